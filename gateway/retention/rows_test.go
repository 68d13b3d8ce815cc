package retention_test

import (
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/store"
)

func TestWhatIsLongOverIsRemoved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner()
	day := 24 * time.Hour
	for _, url := range []string{"/chat/1", "/chat/2", "/chat/3"} {
		r.spawn(url, "mac")
		r.wake(url)
	}
	r.done("/chat/1")
	r.exec(`insert into rouse.delivery_attempts (service_id, wake_id, attempt, transport, started_at)
	        select service_id, wake_id, 1, 'webhook', created_at from rouse.wake_notifications`)
	r.now = r.now.Add(20 * day)
	r.done("/chat/2")
	r.now = r.now.Add(20 * day)
	counts := func() [3]int64 {
		t.Helper()
		return [3]int64{one[int64](r, `select count(*) from rouse.consumer_claims`), one[int64](r, `select count(*) from rouse.wake_notifications`),
			one[int64](r, `select count(*) from rouse.delivery_attempts`)}
	}
	clean := func(period time.Duration) {
		t.Helper()
		for _, what := range []string{"claims", "wakes"} {
			for one[bool](r, `select more from rouse._retention_rows($1, 2, $2, $3, $4)`, what, (30 * day).Milliseconds(), period.Milliseconds(), r.now) {
			}
		}
	}
	if got := counts(); got != [3]int64{2, 3, 3} {
		t.Fatal(got)
	}
	clean(time.Hour)
	// The claim of 40 days ago and its wake; that of 20 days and the open wake stay.
	if got := counts(); got != [3]int64{1, 2, 2} {
		t.Fatal(got)
	}
	if n := one[int64](r, `select count(*) from rouse.wake_notifications where resolved_at is null`); n != 1 {
		t.Fatalf("%d open wakes", n)
	}
	// A release that is said again is answered as before, whatever is kept of it.
	answer := one[string](r, `select (a.answer).outcome from rouse.consumers c, rouse._claim_apply(jsonb_build_array(jsonb_build_object(
		'op', 'release', 'service', 1, 'consumer', c.name, 'epoch', c.epoch, 'wake', gen_random_uuid())), true, $1) a where c.entity_url = '/chat/1'`, r.now)
	if answer != "stale" {
		t.Fatal(answer)
	}
	// The next walk is due after its period only.
	r.now = r.now.Add(30 * time.Minute)
	if seen := one[int32](r, `select seen from rouse._retention_rows('claims', 10, 1, 3600000, $1)`, r.now); seen != 0 {
		t.Fatalf("%d rows looked at", seen)
	}
	r.now = r.now.Add(20 * day)
	clean(time.Hour)
	if got := counts(); got != [3]int64{0, 1, 1} {
		t.Fatal(got)
	}
}

func TestOldAuditRowsGoInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`truncate rouse.audit_log`)
	r.exec(`insert into rouse.audit_log (service_id, at, principal, action, resource) select 1, $1::timestamptz - i * interval '1 day', 'p', 'a', 'r' from generate_series(10, 0, -1) i`, r.now)
	for one[bool](r, `select more from rouse._retention_audit(2, $1, $2)`, (5*24*time.Hour + time.Minute).Milliseconds(), r.now) {
	}
	if n := one[int64](r, `select count(*) from rouse.audit_log`); n != 6 {
		t.Fatalf("%d rows", n)
	}
}

func TestProducersOfIdleStreamsAreForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	send := func(path string, epoch, seq int64) store.Outcome {
		t.Helper()
		out, err := r.st.StreamAppend(t.Context(), []store.AppendItem{{Service: 1, Path: path, Type: "application/json", Payload: []byte("1"), Count: 1,
			Producer: &store.Producer{ID: "p", Epoch: epoch, Seq: seq}}}, true)
		if err != nil {
			t.Fatal(err)
		}
		return out[0].Outcome
	}
	walk := func(d time.Duration) {
		t.Helper()
		r.now = r.now.Add(d)
		for one[bool](r, `select more from rouse._retention_rows('producers', 1, $1, 0, $2)`, (30 * 24 * time.Hour).Milliseconds(), r.now) {
		}
	}
	for _, path := range []string{"idle", "busy"} {
		r.stream(path)
		send(path, 0, 0)
	}
	walk(time.Hour)
	walk(20 * 24 * time.Hour)
	send("busy", 0, 1)
	walk(time.Hour)
	walk(11 * 24 * time.Hour)
	if got := send("busy", 0, 1); got != store.Duplicate {
		t.Fatalf("a repeat on a stream in use: %s", got)
	}
	if got := send("idle", 0, 1); got != store.ProducerGap {
		t.Fatalf("a sequence that goes on after a month: %s", got)
	}
	if got := send("idle", 1, 0); got != store.Appended {
		t.Fatalf("a new epoch: %s", got)
	}
}
