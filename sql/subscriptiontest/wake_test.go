package subscriptiontest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func (r *rig) wakeOf(s sub) (id string, n notification) {
	r.t.Helper()
	var raw json.RawMessage
	if err := r.c.QueryRow(r.ctx(), `select n.wake_id::text, n.notification_public from rouse.consumers c join rouse.wake_notifications n on n.wake_id = c.wake_id where c.id = $1`,
		s.consumer).Scan(&id, &raw); err != nil {
		r.t.Fatal(err)
	}
	return id, r.notified(raw)
}

func TestPullWake(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.make("quiet", `{"a": 1}`)
	s := r.subscribe(spec{id: "jobs", typ: "pull-wake", wakeStream: "wakes/jobs", pattern: "events/*", streams: []string{"quiet"}})
	r.want("no_work", s.acquire("w1"))
	a := r.make("events/a", `{"a": 1}`)
	r.wantRoute(a, "minted")
	r.wantRoute(a, "coalesced")
	b := r.make("events/b", "")
	r.append("events/b")
	r.wantRoute(b, "coalesced")
	got := r.entries("wakes/jobs")
	if len(got) != 1 {
		t.Fatalf("entries %v", got)
	}
	var entry map[string]any
	if err := json.Unmarshal([]byte(got[0]), &entry); err != nil {
		t.Fatal(err)
	}
	// A bare hint: nothing of it is a secret or names a wake.
	if want := map[string]any{"type": "wake", "subscription_id": "jobs", "stream": "events/a", "generation": 1.0, "ts": float64(r.now.UnixMilli())}; fmt.Sprint(entry) != fmt.Sprint(want) {
		t.Errorf("entry %v, want %v", entry, want)
	}
	_, n := r.wakeOf(s)
	if n.StreamPath != "/events/a" || n.SubscriptionID != "jobs" || n.Epoch != 1 || n.Entity != nil || fmt.Sprint(n.TriggeredBy) != "[events/a]" || len(n.Streams) != 2 ||
		n.Streams[0].Path != "events/a" || n.Streams[0].AckedOffset != "-1" || n.Streams[0].TailOffset != offset(8) || !n.Streams[0].HasPending || n.Streams[0].LinkType != "glob" ||
		n.Streams[1].Path != "quiet" || n.Streams[1].HasPending || n.Streams[1].LinkType != "explicit" {
		t.Errorf("notification %+v", n)
	}

	g := r.want("granted", s.acquire("w1"))
	if g.Holder != "w1" || g.Epoch != 1 || g.LeaseMS != 30000 {
		t.Errorf("grant %+v", g)
	}
	held := r.want("held", s.acquire("w2"))
	if held.Holder != "w1" || held.Epoch != 1 {
		t.Errorf("held %+v", held)
	}
	r.want("ok", s.call("heartbeat", g))
	// Appends while it is held write nothing and are not lost.
	r.append("events/a")
	r.wantRoute(a, "coalesced")
	r.want("unknown_stream", s.call("ack", g, ack("events/none", 0)))
	r.want("invalid_offset", s.call("ack", g, ack("events/a", 17)))
	r.want("ok", s.call("ack", g, ack("/events/a", 8)))
	r.want("invalid_offset", s.call("ack", g, ack("events/a", 7)))
	r.want("invalid_offset", s.call("release", g, ack("events/b", 8), ack("events/a", 7)))
	r.wantLinks(s, link{"events/a", "glob", 8, 16, true}, link{"events/b", "glob", 0, 8, true}, link{"quiet", "explicit", 8, 8, false})
	first := r.want("released", s.call("release", g, ack("events/b", 8)))
	if first.NextWake == nil || !*first.NextWake || first.Holder != "w1" {
		t.Errorf("release %+v", first)
	}
	if again := r.want("released", s.call("release", g, ack("events/b", 8))); again.Holder != "" || again.NextWake == nil || !*again.NextWake {
		t.Errorf("the repeat %+v", again)
	}
	if got := r.state(s); got != "waking 2" {
		t.Errorf("after the release: %s", got)
	}
	g2 := r.want("granted", s.acquire("w2"))
	if n := r.notified(g2.Notification); n.StreamPath != "/events/a" || n.Streams[0].Path != "events/a" || n.Streams[0].AckedOffset != offset(8) {
		t.Errorf("second wake %+v", n)
	}
	r.want("stale", s.call("ack", g, ack("events/a", 16)))
	last := r.want("released", s.call("release", g2, ack("events/a", 16)))
	if last.NextWake == nil || *last.NextWake {
		t.Errorf("last release %+v", last)
	}
	r.wantLinks(s, link{"events/a", "glob", 16, 16, false}, link{"events/b", "glob", 8, 8, false}, link{"quiet", "explicit", 8, 8, false})
	r.want("no_work", s.acquire("w1"))
	if got := len(r.entries("wakes/jobs")); got != 2 {
		t.Errorf("%d entries for two generations", got)
	}

	// Work nobody was told of is taken without a wake.
	r.append("quiet")
	g3 := r.want("granted", s.acquire("w1"))
	if g3.Epoch != 3 {
		t.Errorf("third %+v", g3)
	}
	// A lease that lapses ends; what is left makes the next wake.
	r.after(31 * time.Second)
	r.want("lease_expired", s.call("ack", g3, ack("quiet", 16)))
	if n := one[int](r, `select expired from rouse._claim_reap(10, $1)`, r.now); n != 1 {
		t.Errorf("%d lapsed", n)
	}
	if got := r.state(s); got != "waking 4" {
		t.Errorf("after the lapse: %s", got)
	}
	if got := len(r.entries("wakes/jobs")); got != 4 {
		t.Errorf("%d entries", got)
	}
}

// take lends the due wakes and returns their attempts by wake.
func (r *rig) take() map[string]int {
	r.t.Helper()
	rows, err := r.c.Query(r.ctx(), `with due as (
		update rouse.wake_notifications n set attempts = n.attempts + 1, next_attempt_at = $1::timestamptz + interval '30 s' where n.next_attempt_at <= $1 returning n.*
	), noted as (
		insert into rouse.delivery_attempts (service_id, wake_id, attempt, transport, started_at) select d.service_id, d.wake_id, d.attempts, d.target_type, $1 from due d
	) select wake_id::text, attempts from due`, r.now)
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]int{}
	for rows.Next() {
		var id string
		var n int
		if err := rows.Scan(&id, &n); err != nil {
			r.t.Fatal(err)
		}
		out[id] = n
	}
	return out
}

func (r *rig) result(wake string, attempt int, outcome string, status int, text string) string {
	r.t.Helper()
	return one[string](r, `select rouse._delivery_result(1, $1, $2, $3, 0, $4, nullif($5, ''), $6)`, wake, attempt, outcome, status, text, r.now)
}

func TestWebhookDelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.subscribe(spec{id: "hook", pattern: "events/*", mount: "/v1/stream"})
	a := r.make("events/a", `{"a": 1}`)
	r.wantRoute(a, "minted")
	wake, _ := r.wakeOf(s)
	if got := one[string](r, `select target_type || ' ' || target::text || ' ' || target_webhook_url from rouse.wake_notifications where wake_id = $1`, wake); got != `webhook {"url": "`+hook+`", "type": "webhook", "mount": "/v1/stream", "subscription_id": "hook"} `+hook {
		t.Errorf("target %s", got)
	}
	status := func(want string) {
		t.Helper()
		if got := one[string](r, `select status || coalesce(': ' || last_error, '') from rouse.subscriptions where id = 'hook'`); got != want {
			t.Errorf("status %q, want %q", got, want)
		}
	}
	if got := r.take(); got[wake] != 1 {
		t.Fatalf("due %v", got)
	}
	if got := r.result(wake, 1, "retry", 503, "HTTP 503"); got != "retry" {
		t.Errorf("retry: %s", got)
	}
	status("failed: HTTP 503")
	r.after(2 * time.Second)
	r.take()
	if got := r.result(wake, 2, "permanent", 410, "gone"); got != "failed" {
		t.Errorf("permanent: %s", got)
	}
	status("failed: gone")
	r.after(time.Hour)
	if got := r.take(); len(got) != 0 {
		t.Errorf("a refused wake is due: %v", got)
	}
	// A new message asks once more, with the same wake.
	r.append("events/a")
	r.wantRoute(a, "coalesced")
	if got := r.take(); got[wake] != 3 {
		t.Fatalf("due %v", got)
	}
	// Done acks what the wake told of, not what came later.
	if got := r.result(wake, 3, "done", 200, ""); got != "released" {
		t.Errorf("done: %s", got)
	}
	status("active")
	r.wantLinks(s, link{"events/a", "glob", 8, 16, true})
	if got := r.state(s); got != "waking 2" {
		t.Errorf("after done: %s", got)
	}
	if got := r.result(wake, 3, "done", 200, ""); got != "repeated" {
		t.Errorf("done again: %s", got)
	}
	wake, _ = r.wakeOf(s)
	r.take()
	if got := r.result(wake, 1, "accepted", 200, ""); got != "delivered" {
		t.Errorf("accepted: %s", got)
	}
	// The callback of a receiver that was given the wake's token.
	g := r.want("granted", op{"op": "acquire", "wake": wake, "holder": "claim-token", "proved": true})
	released := r.want("released", s.call("release", g, ack("events/a", 16)))
	if *released.NextWake {
		t.Error("a wake for nothing")
	}
	r.wantLinks(s, link{"events/a", "glob", 16, 16, false})
	// A stream that goes while a wake for it is out leaves nothing to ack.
	r.append("events/a")
	r.wantRoute(a, "minted")
	wake, _ = r.wakeOf(s)
	r.take()
	r.exec(`select rouse._stream_delete(1, 'events/a', false, $1)`, r.now)
	if got := r.result(wake, 1, "done", 200, ""); got != "released" {
		t.Errorf("done of nothing: %s", got)
	}
	if got := r.state(s); got != "idle 3" {
		t.Errorf("after done of nothing: %s", got)
	}
	// One that comes under the same name meanwhile is another one, and unread.
	r.wantRoute(r.make("events/b", `{"a": 1}`), "minted")
	wake, _ = r.wakeOf(s)
	r.take()
	r.exec(`select rouse._stream_delete(1, 'events/b', false, $1)`, r.now)
	r.after(time.Second)
	r.make("events/b", `{"a": 1}`)
	if got := r.result(wake, 1, "done", 200, ""); got != "released" {
		t.Errorf("done of another's: %s", got)
	}
	r.wantLinks(s, link{"events/b", "glob", 0, 8, true})
	if got := r.state(s); got != "waking 5" {
		t.Errorf("after done of another's: %s", got)
	}
}

func TestAWakeForAnEntityCarriesItsContextAndNamesItAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.subscribe(spec{id: "all", pattern: "**", system: true})
	p := r.make("plain", `{"a": 1}`)
	a := r.spawn("/chat/a", kyle)
	b := r.spawn("/chat/b", mallory)
	r.wantRoute(a, "minted") // the creation itself wakes, under a pattern
	r.wantRoute(b, "coalesced")
	r.wantRoute(p, "coalesced")
	seen := map[string]int{}
	for range 3 {
		g := r.want("granted", s.acquire("w"))
		n := r.notified(g.Notification)
		seen[n.StreamPath]++
		if n.StreamPath == "/plain" {
			if n.Entity != nil || len(n.Streams) != 1 || n.Streams[0].Path != "plain" {
				t.Errorf("plain: %+v", n)
			}
			r.want("released", s.call("release", g, ack("plain", 8)))
			continue
		}
		url := strings.TrimSuffix(n.StreamPath, "/main")
		if n.Entity == nil || n.Entity.URL != url || n.Entity.Type != "chat" || n.Entity.CreatedBy == "" || len(n.Streams) != 1 ||
			n.Streams[0].Path != n.StreamPath || n.Streams[0].Offset != n.Streams[0].TailOffset || n.ConsumerID != s.name || n.WakeID == "" {
			t.Errorf("entity: %+v", n)
		}
		tail := one[int64](r, `select tail from rouse.streams where path = $1`, n.StreamPath[1:])
		if n.Streams[0].Offset != offset(tail) {
			t.Errorf("offset %s, tail %d", n.Streams[0].Offset, tail)
		}
		r.want("released", s.call("release", g, ack(n.StreamPath, tail)))
	}
	if len(seen) != 3 || r.state(s) != "idle 3" {
		t.Errorf("woken for %v, then %s", seen, r.state(s))
	}
	// The entity's own mutex is another one and knows nothing of all this.
	if got := one[string](r, `select c.state || ' ' || c.epoch || ' ' || (select pending from rouse.streams where id = $1) from rouse.consumers c where c.entity_url = '/chat/a'`, a); got != "idle 0 false" {
		t.Errorf("the entity's mutex: %s", got)
	}
	r.exec(`select rouse._stream_push($1, '{"headers":{},"type":"inbox"}', true)`, a)
	if got := r.route(a)[a]; got != "minted" {
		t.Errorf("route %s", got)
	}
	if got := one[string](r, `select string_agg(c.kind || ' ' || c.state, ', ' order by c.kind) from rouse.consumers c where c.wake_id is not null`); got != "entity waking, subscription waking" {
		t.Errorf("woken are %s", got)
	}
	// What a subscription acks leaves the entity's own work pending.
	g := r.want("granted", s.acquire("w"))
	r.want("released", s.call("release", g, ack("chat/a/main", one[int64](r, `select tail from rouse.streams where id = $1`, a))))
	if !one[bool](r, `select pending from rouse.streams where id = $1`, a) {
		t.Error("the entity's work is no longer flagged")
	}
	// A holder's own append is no work for the entity, and is for its subscriptions.
	r.exec(`select rouse._stream_push($1, '{"headers":{},"type":"run"}', false)`, b)
	r.wantRoute(b, "minted")
	if got := one[string](r, `select state from rouse.consumers where entity_url = '/chat/b'`); got != "idle" {
		t.Errorf("the other entity is %s", got)
	}
}

func TestABusyStreamStarvesNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.subscribe(spec{id: "all", pattern: "chat/**", system: true})
	var streams []int64
	for i := range 3 {
		streams = append(streams, r.spawn(fmt.Sprintf("/chat/%d", i), kyle))
	}
	r.route(streams...)
	var order []string
	for range 6 {
		g := r.want("granted", s.acquire("w"))
		n := r.notified(g.Notification)
		order = append(order, n.Entity.URL)
		tail := one[int64](r, `select tail from rouse.streams where path = $1`, n.StreamPath[1:])
		r.exec(`select rouse._stream_push(id, '{"a": 1}', false) from rouse.streams where path = 'chat/0/main'`) // always more of it
		r.want("released", s.call("release", g, ack(n.StreamPath, tail)))
	}
	if got := strings.Join(order, " "); !strings.HasPrefix(got, "/chat/0 /chat/1 /chat/2 /chat/0") {
		t.Errorf("order %s", got)
	}
}

func TestOneStreamWakesAllWhoWatchItAndOneSubscriptionIsOneWake(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var subs []sub
	for i := range 5 {
		subs = append(subs, r.subscribe(spec{id: fmt.Sprint("s", i), pattern: "a/*"}))
	}
	a, b := r.make("a/1", `{"a": 1}`), r.make("a/2", `{"a": 1}`)
	if got := r.route(a, b); got[a] != "minted" || got[b] != "minted" && got[b] != "coalesced" {
		t.Errorf("%v", got)
	}
	for _, s := range subs {
		if got := r.state(s); got != "waking 1" {
			t.Errorf("%s: %s", s.id, got)
		}
		if _, n := r.wakeOf(s); len(n.Streams) != 2 {
			t.Errorf("%s: %+v", s.id, n.Streams)
		}
	}
	// One is locked by somebody else, the others are not held up by it.
	r.exec(`update rouse.consumers set state = 'idle', wake_id = null, due_at = null where kind = 'subscription'`)
	r.exec(`update rouse.wake_notifications set resolved_at = clock_timestamp(), delivery_status = 'superseded', next_attempt_at = null`)
	other := r.db.Conn(t)
	tx, err := other.Begin(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(r.ctx(), `select 1 from rouse.consumers where id = $1 for update`, subs[2].consumer); err != nil {
		t.Fatal(err)
	}
	r.wantRoute(a, "retry")
	if err := tx.Rollback(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if got := one[int](r, `select count(*) from rouse.consumers where state = 'waking'`); got != 4 {
		t.Errorf("%d are woken", got)
	}
	r.wantRoute(a, "minted")
	r.wantRoute(a, "coalesced")
}

// TestVeryManyAreWokenInTurns: one stream that very many watch holds up the
// router for some hundred of them at a time.
func TestVeryManyAreWokenInTurns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stream := r.make("a/1", "")
	const n = 1200
	r.exec(`insert into rouse.consumers (service_id, name, kind) select 1, 's_' || i, 'subscription' from generate_series(1, $1::int) i`, n)
	r.exec(`insert into rouse.subscriptions (consumer_id, service_id, id, type, pattern, webhook_url, config_hash, owner, system, settled, scan_done, changed_at, created_at)
		select c.id, 1, c.name, 'webhook', 'a/*', 'https://x', '', 'x', true, 1, true, now(), now() from rouse.consumers c`)
	r.exec(`insert into rouse.consumer_streams (consumer_id, stream_id, link_type, acked) select c.id, $1, 'glob', 0 from rouse.consumers c`, stream)
	r.exec(`update rouse.streams set watched = 1`)
	r.append("a/1")
	woken := func() int {
		t.Helper()
		return one[int](r, `select count(*) from rouse.consumers where state = 'waking'`)
	}
	for _, want := range []struct {
		outcome string
		woken   int
	}{{"retry", 501}, {"retry", 1002}, {"minted", 1200}, {"idle", 1200}} {
		r.wantRoute(stream, want.outcome)
		if got := woken(); got != want.woken {
			t.Errorf("%s: %d are woken, want %d", want.outcome, got, want.woken)
		}
	}
	// The scan hands over the same stream once for each of them.
	r.exec(`update rouse.consumers set state = 'idle', wake_id = null, due_at = null`)
	r.exec(`update rouse.wake_notifications set resolved_at = clock_timestamp(), delivery_status = 'superseded', next_attempt_at = null`)
	r.exec(`select rouse._dispatch_route(array_agg(stream_id), array_agg("position"), $1) from rouse.subscription_scan(0, 500)`, r.now)
	if got := woken(); got != 501 {
		t.Errorf("%d are woken by the scan", got)
	}
}

// TestTheScanFindsWhatTheRouterWasNotTold: nothing depends on a notice.
func TestTheScanFindsWhatTheRouterWasNotTold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var subs []sub
	for i := range 7 {
		subs = append(subs, r.subscribe(spec{id: fmt.Sprint("s", i), pattern: fmt.Sprint("a", i, "/*")}))
	}
	for i := range 7 {
		for j := range 3 {
			r.make(fmt.Sprint("a", i, "/", j), `{"a": 1}`)
		}
	}
	r.want("granted", subs[1].acquire("w"))
	r.exec(`select rouse._consumer_pause($1, true, $2)`, subs[2].consumer, r.now)
	found := 0
	for after := int64(0); ; {
		rows, err := r.c.Query(r.ctx(), `select consumer_id, stream_id, "position" from rouse.subscription_scan($1, 2)`, after)
		if err != nil {
			t.Fatal(err)
		}
		var streams []int64
		n := 0
		for rows.Next() {
			var stream, position *int64
			if err := rows.Scan(&after, &stream, &position); err != nil {
				t.Fatal(err)
			}
			n++
			if stream != nil {
				streams = append(streams, *stream)
			}
		}
		found += len(streams)
		r.route(streams...)
		if n < 2 {
			break
		}
	}
	if found != 5 {
		t.Errorf("%d are found", found)
	}
	for i, s := range subs {
		want := "waking 1"
		switch i {
		case 1:
			want = "claimed 1"
		case 2:
			want = "idle 0"
		}
		if got := r.state(s); got != want {
			t.Errorf("%s: %s, want %s", s.id, got, want)
		}
	}
	if got := one[int](r, `select count(stream_id) from rouse.subscription_scan(0, 100)`); got != 0 {
		t.Errorf("the scan finds %d more", got)
	}
}

// TestAWakeStreamMayBeWatched: a wake of one subscription is an append like any
// other to those who watch its wake stream.
func TestAWakeStreamMayBeWatched(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.subscribe(spec{id: "s", typ: "pull-wake", wakeStream: "wakes/s", pattern: "a/*"})
	w := r.subscribe(spec{id: "w", streams: []string{"wakes/s"}})
	a := r.make("a/1", `{"a": 1}`)
	r.wantRoute(a, "minted")
	if got := r.links(w); len(got) != 1 || !got[0].Behind {
		t.Fatalf("%+v", got)
	}
	r.wantRoute(one[int64](r, `select id from rouse.streams where path = 'wakes/s'`), "minted")
	if r.state(s) != "waking 1" || r.state(w) != "waking 1" {
		t.Errorf("%s, %s", r.state(s), r.state(w))
	}
	// A wake stream that is gone loses a hint, not the wake.
	r.exec(`select rouse._stream_delete(1, 'wakes/s', false, $1)`, r.now)
	g := r.want("granted", s.acquire("x"))
	r.append("a/1")
	r.want("released", s.call("release", g))
	if got := r.state(s); got != "waking 2" {
		t.Errorf("after its wake stream has gone: %s", got)
	}
	r.want("granted", s.acquire("x"))
}

// TestSubscriptionsToEverythingDoNotWakeEachOther: patterns pass over wake
// streams, those that exist and those that are made, their own and others'.
func TestSubscriptionsToEverythingDoNotWakeEachOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.make("wakes/old", "")
	first := r.subscribe(spec{id: "one", typ: "pull-wake", wakeStream: "wakes/one", pattern: "**"})
	second := r.subscribe(spec{id: "two", typ: "pull-wake", wakeStream: "wakes/two", pattern: "**"})
	a := r.make("a", `{"a": 1}`)
	r.wantRoute(a, "minted")
	for _, s := range []sub{first, second} {
		g := r.want("granted", s.acquire("w"))
		if released := r.want("released", s.call("release", g, ack("a", 8))); *released.NextWake {
			t.Errorf("%s is woken by a wake", s.id)
		}
		r.wantLinks(s, link{"a", "glob", 8, 8, false}, link{"wakes/old", "glob", 0, 0, false})
	}
	// Who named a wake stream and does so no longer does not keep it by its pattern.
	r.exec(`select rouse.subscription_watch(1, 'two', 'x', array['wakes/one'])`)
	r.settle("two")
	if n := len(r.links(second)); n != 3 {
		t.Fatalf("%d links, want the wake stream among them", n)
	}
	r.exec(`select rouse.subscription_unwatch(1, 'two', 'x', 'wakes/one')`)
	r.wantLinks(second, link{"a", "glob", 8, 8, false}, link{"wakes/old", "glob", 0, 0, false})
	// It comes back under its name when it was deleted, and is a wake stream still.
	r.exec(`select rouse._stream_delete(1, 'wakes/one', false, $1)`, r.now)
	r.make("wakes/one", "")
	r.wantLinks(second, link{"a", "glob", 8, 8, false}, link{"wakes/old", "glob", 0, 0, false})
}

// TestABatchIsDecidedInOrder: what a callback does is one call of the database.
func TestABatchIsDecidedInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.subscribe(spec{id: "s", pattern: "a/*"})
	a := r.make("a/1", `{"a": 1}`)
	r.wantRoute(a, "minted")
	wake, _ := r.wakeOf(s)
	g := answer{Epoch: 1, Wake: wake}
	got, err := r.tryApply(op{"op": "acquire", "wake": wake, "epoch": 1, "holder": "h", "proved": true}, s.call("ack", g, ack("a/1", 4), ack("a/1", 8)), s.call("release", g))
	if err != nil || len(got) != 3 || got[0].Outcome != "granted" || got[1].Outcome != "ok" || got[2].Outcome != "released" || *got[2].NextWake {
		t.Fatalf("%+v %v", got, err)
	}
	r.wantLinks(s, link{"a/1", "glob", 8, 8, false})
}
