package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/store"
)

const registrar = "/principal/user%3Akyle"

func newJSON(t *testing.T, st *store.Store, path, payload string) {
	t.Helper()
	got, err := st.StreamCreate(t.Context(), store.CreateRequest{Service: 1, Path: path, ContentType: "application/json", Payload: []byte(payload), Count: 1})
	if err != nil || got.Outcome != "created" {
		t.Fatalf("%s: %s %v", path, got.Outcome, err)
	}
}

func TestSubscriptionsLife(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	st := open(t, db.DSN)
	ctx := t.Context()
	newJSON(t, st, "jobs/old", `{"a":1}`)
	spec := store.SubscriptionSpec{Service: 1, ID: "work", Type: "pull-wake", Pattern: "jobs/*", WakeStream: "wakes", Description: "text",
		Lease: 5 * time.Second, Mount: "/v1/stream", Owner: registrar}
	put := func(want string) {
		t.Helper()
		if got, err := st.SubscriptionPut(ctx, spec); err != nil || got != want {
			t.Fatalf("put: %s %v, want %s", got, err, want)
		}
	}
	put("created")
	put("confirmed")
	spec.Lease = time.Second
	put("conflict")
	newJSON(t, st, "jobs/new", `{"a":1}`)
	if got, err := st.SubscriptionStreamsAdd(ctx, 1, "work", registrar, []string{"named"}); err != nil || got != "ok" {
		t.Fatal(got, err)
	}
	b, err := st.SubscriptionGet(ctx, 1, "work", 100)
	if err != nil {
		t.Fatal(err)
	}
	want := []store.SubscriptionStream{
		{Path: "named", LinkType: "explicit", AckedOffset: store.FormatOffset(0), TailOffset: store.FormatOffset(0)},
		{Path: "jobs/new", LinkType: "glob", AckedOffset: "-1", TailOffset: store.FormatOffset(7), HasPending: true},
		{Path: "jobs/old", LinkType: "glob", AckedOffset: store.FormatOffset(7), TailOffset: store.FormatOffset(7)},
	}
	if !slices.Equal(b.Streams, want) || b.ID != "work" || b.Type != "pull-wake" || *b.Pattern != "jobs/*" || *b.WakeStream != "wakes" || b.WebhookURL != nil ||
		*b.Description != "text" || b.Lease != 5*time.Second || b.Mount != "/v1/stream" || b.Owner != registrar || b.System || b.Status != "active" || b.State != "idle" ||
		!b.Pending || b.CreatedAt.IsZero() {
		t.Errorf("%+v", b)
	}

	// The scan finds it, the router wakes it, the mutex is the same as everybody's.
	at, next, err := st.SubscriptionScan(ctx, 0, 10)
	if err != nil || len(at) != 1 || next != 0 {
		t.Fatal(at, next, err)
	}
	if got, err := st.DispatchRoute(ctx, at); err != nil || len(got) != 1 || got[0].Outcome != "minted" {
		t.Fatal(got, err)
	}
	answers, err := st.ClaimApply(ctx, []store.ClaimOp{{Op: "acquire", Service: 1, Consumer: b.ConsumerName, Holder: "worker", Trusted: true}}, true)
	if err != nil || answers[0].Outcome != "granted" || answers[0].ConsumerID != b.ConsumerID || answers[0].Epoch != 1 {
		t.Fatal(answers, err)
	}
	g := answers[0]
	var n struct {
		Streams []store.SubscriptionStream `json:"streams"`
	}
	if err := json.Unmarshal(g.Notification, &n); err != nil || len(n.Streams) != 2 || n.Streams[0] != want[1] {
		t.Errorf("%+v %v", n, err)
	}
	if b, err = st.SubscriptionGet(ctx, 1, "work", 0); err != nil || b.State != "claimed" || *b.Holder != "worker" || b.LeaseLeft <= 0 || *b.WakeID != g.WakeID || len(b.Streams) != 0 {
		t.Errorf("%+v %v", b, err)
	}
	release := []store.ClaimOp{{Op: "release", Service: 1, ID: b.ConsumerID, Epoch: 1, Wake: g.WakeID, Acks: []store.ClaimAck{{Path: "jobs/new", Position: 7}}}}
	if answers, err = st.ClaimApply(ctx, release, false); err != nil || answers[0].Outcome != "released" || answers[0].NextWake || answers[0].Holder != "worker" {
		t.Fatal(answers, err)
	}
	if answers, err = st.ClaimApply(ctx, release, false); err != nil || answers[0].Outcome != "released" || answers[0].Holder != "" {
		t.Fatal(answers, err)
	}

	if got, err := st.SubscriptionStreamRemove(ctx, 1, "work", registrar, "named"); err != nil || got != "ok" {
		t.Fatal(got, err)
	}
	for _, action := range []string{"create", "watch", "unwatch"} {
		var n int
		if err := db.Conn(t).QueryRow(ctx, `select count(*) from rouse.audit_log where resource = '/__ds/subscriptions/work' and action = 'subscription.' || $1 and principal = $2`,
			action, registrar).Scan(&n); err != nil || n != 1 {
			t.Errorf("%d audit rows of %s: %v", n, action, err)
		}
	}
	spec = store.SubscriptionSpec{Service: 1, ID: "hook", Type: "webhook", Streams: []string{"jobs/old"}, WebhookURL: "https://hooks.example", Lease: time.Second, Owner: "other", System: true}
	put("created")
	for _, c := range []struct {
		owner, after string
		want         []string
	}{{"", "", []string{"hook", "work"}}, {registrar, "", []string{"work"}}, {"", "hook", []string{"work"}}, {"nobody", "", nil}} {
		list, err := st.SubscriptionList(ctx, 1, c.owner, c.after, 10)
		var ids []string
		for _, b := range list {
			ids = append(ids, b.ID)
		}
		if err != nil || !slices.Equal(ids, c.want) {
			t.Errorf("list %+v: %v %v", c, ids, err)
		}
	}
	for _, want := range []bool{true, false} {
		if ok, err := st.SubscriptionDelete(ctx, 1, "work", registrar); err != nil || ok != want {
			t.Fatal(ok, err)
		}
	}
	if _, err := st.SubscriptionGet(ctx, 1, "work", 1); !errors.Is(err, store.ErrNoRow) {
		t.Errorf("after the delete: %v", err)
	}
	for more := true; more; {
		if more, err = st.SubscriptionTidy(ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := st.SubscriptionStreamsAdd(ctx, 1, "work", registrar, []string{"x"}); err != nil || got != "not_found" {
		t.Errorf("add to none: %s %v", got, err)
	}
	if got, err := st.SubscriptionStreamRemove(ctx, 1, "work", registrar, "x"); err != nil || got != "not_found" {
		t.Errorf("remove from none: %s %v", got, err)
	}
}

// TestAnAbandonedSubscriptionIsFinished: whoever makes one may die before the
// streams that exist are linked; somebody who is making a stream is waited for.
// abandon registers a subscription that cannot be settled, gives up as soon as
// it is registered, and returns when the database has given up too.
func abandon(t *testing.T, db *pgtest.DB, st *store.Store, spec store.SubscriptionSpec) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	put := make(chan error, 1)
	go func() {
		_, err := st.SubscriptionPut(ctx, spec)
		put <- err
	}()
	c := db.Conn(t)
	until := func(what, sql string, args ...any) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; {
			var yes bool
			if err := c.QueryRow(t.Context(), sql, args...).Scan(&yes); err != nil {
				t.Fatal(err)
			}
			if yes {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("it never was %s", what)
			}
		}
	}
	until("registered", `select exists (select from rouse.subscriptions where id = $1)`, spec.ID)
	cancel()
	if err := <-put; err == nil {
		t.Fatal("it is settled while a stream is held")
	}
	until("left alone", `select not exists (select from pg_stat_activity where datname = current_database() and state = 'active' and query like '%subscription_settle%' and pid <> pg_backend_pid())`)
}

func TestAnAbandonedSubscriptionIsFinished(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	st := open(t, db.DSN)
	maker := db.Conn(t)
	tx, err := maker.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select rouse.stream_create(1, 'a/1', 'application/json')`); err != nil {
		t.Fatal(err)
	}
	spec := store.SubscriptionSpec{Service: 1, ID: "s", Type: "webhook", Pattern: "a/*", WebhookURL: "https://hooks.example", Lease: time.Second, Owner: registrar}
	abandon(t, db, st, spec)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	linked := func() int {
		t.Helper()
		b, err := st.SubscriptionGet(t.Context(), 1, "s", 10)
		if err != nil {
			t.Fatal(err)
		}
		return len(b.Streams)
	}
	// Its maker may yet be at it.
	if more, err := st.SubscriptionTidy(t.Context(), 10); err != nil || more || linked() != 0 {
		t.Fatal(more, err, linked())
	}
	if _, err := maker.Exec(t.Context(), `update rouse.subscriptions set changed_at = changed_at - interval '1 minute'`); err != nil {
		t.Fatal(err)
	}
	if more, err := st.SubscriptionTidy(t.Context(), 10); err != nil || more || linked() != 1 {
		t.Fatal(more, err, linked())
	}
	// A stream that somebody holds for good is left for another time.
	spec.ID = "held"
	if tx, err = maker.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select 1 from rouse.streams where path = 'a/1' for no key update`); err != nil {
		t.Fatal(err)
	}
	abandon(t, db, st, spec)
	if _, err := tx.Exec(t.Context(), `update rouse.subscriptions set changed_at = changed_at - interval '1 minute'`); err != nil {
		t.Fatal(err)
	}
	// The row is committed, its stream locked again by the next transaction.
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if tx, err = maker.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select 1 from rouse.streams where path = 'a/1' for no key update`); err != nil {
		t.Fatal(err)
	}
	tidied, give := context.WithTimeout(t.Context(), 20*time.Second)
	defer give()
	if more, err := st.SubscriptionTidy(tidied, 10); err != nil || more {
		t.Fatal(more, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if more, err := st.SubscriptionTidy(t.Context(), 10); err != nil || more {
		t.Fatal(more, err)
	}
	if b, err := st.SubscriptionGet(t.Context(), 1, "held", 10); err != nil || len(b.Streams) != 1 {
		t.Fatal(b.Streams, err)
	}
}
