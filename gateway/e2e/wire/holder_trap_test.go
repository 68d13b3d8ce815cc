package wire_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
)

// A claim is given back by what the database knows: a gateway that restarted,
// or another one, takes the release, and its write token still writes there.
func TestAReleaseNeedsNobodysMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, c := r.worked()
	if err := r.gw.Drain(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	again := newRigOn(t, r.db, nil)
	again.must(204, again.kyle, "POST", f.main(), row("text", "k", `{}`), tokenHeader(c.WriteToken)...)
	if a := again.done(f, c, again.tail(f.main())); a.NextWake == nil || *a.NextWake {
		t.Errorf("%s", a.Raw)
	}
	if n := again.count(`select count(*) from rouse.consumer_claims where status = 'active'`); n != 0 {
		t.Errorf("%d claims are still active", n)
	}
	// What it was told of before the restart it is told of no more, and new work wakes.
	again.send(f, `2`)
	if e := again.woken(f, 2); e.Generation != 2 {
		t.Errorf("%s", e.raw)
	}
}

// row is a State Protocol row as holders write it.
func row(typ, key, value string) string {
	return `{"type":"` + typ + `","key":"` + key + `","value":` + value + `,"headers":{"operation":"insert"}}`
}

// A heartbeat that says nothing of the lease extends it; none clears it. It does
// not wear the row out either: the claim's own row keeps its place.
func TestAHeartbeatNeverClearsALease(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	_, c := r.worked()
	lease := func() (at time.Time) {
		r.scan(`select lease_expires_at from rouse.consumers where name = $1`, []any{c.ConsumerID}, &at)
		return at
	}
	at := "/_electric/consumers/" + c.ConsumerID + "/heartbeat"
	last := lease()
	for _, q := range []struct{ path, body string }{{callback(c), `{"epoch":1}`}, {callback(c), `{"generation":1}`}, {at, ``}, {at, `{}`}, {at, `{"epoch":1}`}} {
		a := r.must(200, r.kyle, "POST", q.path, q.body, tokenHeader(c.ClaimToken)...)
		now := lease() // scanning a null fails the test
		if !now.After(last) || a.LeaseMS < 20_000 {
			t.Errorf("%s %s: the lease went from %v to %v, %d ms are said", q.path, q.body, last, now, a.LeaseMS)
		}
		last = now
	}
	if n := r.count(`select count(*) from rouse.consumer_claims where status = 'active' and lease_expires_at is not null`); n != 1 {
		t.Errorf("%d claims have a lease", n)
	}
}

// A claim on one entity leaves another's token as it is, also within one runner
// and one session, and so does its end.
func TestTokensOfTwoEntitiesLiveApart(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, first := r.worked()
	g := things{Type: f.Type, Entity: f.Type + "/second", Runner: f.Runner}
	r.spawn(f, g.Entity, `,"initialMessage":1`)
	second := r.claimed(g, r.woken(g, 2))
	write := func(x things, c wire.Answer, key string, status int) {
		t.Helper()
		r.must(status, r.kyle, "POST", x.main(), row("text", key, `{}`), tokenHeader(c.WriteToken)...)
	}
	write(f, first, "a", 204)
	write(g, second, "b", 204)
	write(f, second, "c", 401)
	write(g, first, "d", 401)
	r.done(g, second, r.tail(g.main()))
	write(g, second, "e", 401)
	write(f, first, "f", 204)
	// Its own next claim replaces it.
	r.done(f, first, r.tail(f.main()))
	r.send(f, `2`)
	third := r.claimed(f, r.woken(f, 3))
	write(f, first, "g", 401)
	write(f, third, "h", 204)
}

// Work that comes while its entity is held is told of when it is given back:
// once, by the next generation, and not before.
func TestWorkThatComesDuringAClaimWakesAfterIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, c := r.worked()
	at := r.tail(f.main())
	for i := range 5 {
		r.send(f, fmt.Sprint(i))
	}
	if n := len(r.wakes(f)); n != 1 {
		t.Errorf("%d wakes during a claim", n)
	}
	a := r.done(f, c, at)
	if a.NextWake == nil || !*a.NextWake {
		t.Errorf("%s", a.Raw)
	}
	e := r.woken(f, 2)
	if e.Generation != 2 || e.WakeID == c.WakeID {
		t.Errorf("%s", e.raw)
	}
	// A runner that skips a wake since it is still at work loses nothing: the claim that it makes later takes it.
	next := r.claimed(f, e)
	if r.done(f, next, r.tail(f.main())); len(r.wakes(f)) != 2 {
		t.Errorf("%d wakes for work that is done", len(r.wakes(f)))
	}
}

// An initial message wakes whoever the entity is dispatched to, since link,
// message and wake are one transaction; an entity without one wakes nobody.
func TestAnInitialMessageWakes(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f := r.fresh() // its own entity has no message
	for i := range 10 {
		g := things{Type: f.Type, Entity: fmt.Sprintf("%s/m%d", f.Type, i), Runner: f.Runner}
		r.spawn(f, g.Entity, `,"initialMessage":{"text":"first"},"initialMessageType":"hello"`)
		e := r.woken(f, i+1)
		if e.Stream != g.Entity+"/main" {
			t.Fatalf("%s", e.raw)
		}
		messages, _, _ := r.kyle.All(t.Context(), g.main())
		if len(messages) != 2 || !strings.Contains(string(messages[1]), `"text":"first"`) || !strings.Contains(string(messages[1]), `"message_type":"hello"`) {
			t.Fatalf("%s", messages)
		}
	}
	if n := r.count(`select count(*) from rouse.wake_notifications where entity_url = $1`, "/"+f.Entity); n != 0 {
		t.Errorf("%d wakes for an entity nobody wrote to", n)
	}
}

// A done that comes too late, after the lease has ended, is refused, but it does
// not leave the claim behind: that ends then, and the work is claimable again.
// While the gateway drains a done is still taken.
func TestALateDoneLeavesNothingPending(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *config.Config) { c.ReaperPeriod, c.ScanPeriod = 10*time.Minute, 10*time.Minute })
	f, c := r.worked()
	r.db.Exec(t, `update rouse.consumers set lease_expires_at = clock_timestamp() - interval '1 ms' where name = $1`, c.ConsumerID)
	body := fmt.Sprintf(`{"epoch":1,"acks":[{"path":%q,"offset":%q}],"done":true}`, f.main(), r.tail(f.main()))
	for range 2 {
		r.refused(409, "FENCED", r.kyle, "POST", callback(c), body, tokenHeader(c.ClaimToken)...)
	}
	if s := r.text(`select string_agg(status::text, ',') from rouse.consumer_claims`); s != "expired" {
		t.Errorf("the claim is %s", s)
	}
	next := r.claimed(f, r.woken(f, 2))
	if next.Epoch != 2 {
		t.Errorf("%v", next)
	}
	r.done(f, next, r.tail(f.main()))
	if n := r.count(`select count(*) from rouse.consumer_claims where status = 'active'`); n != 0 {
		t.Errorf("%d claims are still active", n)
	}
}

// Addresses that are handed out begin with the one configured base, which may
// have a path, whatever address the gateway listens on and is called by.
func TestHandedOutAddressesBeginWithThePublicURL(t *testing.T) {
	t.Parallel()
	const public = "https://agents.example/base"
	r := newRig(t, func(c *config.Config) { c.PublicURL = public })
	f := r.fresh()
	r.send(f, `1`)
	e := r.woken(f, 1)
	c := r.claimed(f, e)
	for what, got := range map[string]any{"the entry": e.Callback, "the claim": field(c, "callback")} {
		if want := public + "/_electric/wake-callbacks/" + c.WakeID; got != want {
			t.Errorf("%s has the callback %v, want %s", what, got, want)
		}
	}
	if strings.Contains(string(e.raw)+string(c.Raw), r.gw.Addr().String()) {
		t.Errorf("the address it listens on is handed out: %s", c.Raw)
	}
}

// Nothing that is spawned, listed or notified carries a token that writes: only
// a claim does, and at rest there is none.
func TestOnlyAClaimGivesAWriteToken(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f := r.fresh()
	spawned := r.spawn(f, f.Type+"/fresh", `,"initialMessage":1`)
	e := r.woken(f, 1)
	for what, s := range map[string]string{
		"a spawn": string(spawned.Raw), "an entity": string(r.must(200, r.kyle, "GET", "/_electric/entities/"+f.Type+"/fresh", "").Raw),
		"the list": string(r.must(200, r.kyle, "GET", "/_electric/entities", "").Raw), "a wake": string(e.raw),
		"the stream": string(r.must(200, r.kyle, "GET", "/"+f.Type+"/fresh/main", "").Raw),
	} {
		for _, secret := range []string{"rouse_wt_", "rouse_ht_", "write_token", "writeToken", "subscription_id\":\"webhook"} {
			if strings.Contains(s, secret) {
				t.Errorf("%s shows %s: %s", what, secret, s)
			}
		}
	}
	if legacy := spawned.Header.Get("X-Write-Token"); legacy != "" {
		r.refused(401, "UNAUTHORIZED", r.kyle, "POST", "/"+f.Type+"/fresh/main", row("text", "k", `{}`), tokenHeader(legacy)...)
	}
	// The token of the entry claims, and writes nothing.
	r.refused(401, "UNAUTHORIZED", r.kyle, "POST", "/"+f.Type+"/fresh/main", row("text", "k", `{}`), tokenHeader(e.ClaimToken)...)
	c := r.must(200, r.kyle, "POST", "/_electric/wake-callbacks/"+e.WakeID, `{"epoch":1,"wakeId":"`+e.WakeID+`"}`, tokenHeader(e.ClaimToken)...)
	r.must(204, r.kyle, "POST", "/"+f.Type+"/fresh/main", row("text", "k", `{}`), tokenHeader(c.WriteToken)...)
	if n := r.count(`select count(*) from rouse.messages where convert_from(payload, 'UTF8') like '%rouse\__t\_%'`) +
		r.count(`select count(*) from rouse.wake_notifications where notification_public::text like '%rouse\__t\_%'`); n != 0 {
		t.Errorf("%d tokens are at rest", n)
	}
}

// However often a runner says that it lives, what UIs see of runners' rows does
// not change.
func TestHeartbeatsDoNotRewriteTheRunner(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f := r.fresh()
	place := func() string {
		return r.text(`select ctid || ' ' || xmin from rouse.runners where id = $1`, f.Runner)
	}
	before := place()
	for i := range 20 {
		r.must(200, r.kyle, "POST", "/_electric/runners/"+f.Runner+"/heartbeat",
			fmt.Sprintf(`{"lease_ms":%d,"wake_stream_offset":"-1","diagnostics":{"status":"streaming","events_received":%d,"last_error":null}}`, 60_000+i, i))
	}
	if after := place(); after != before {
		t.Errorf("the row moved from %s to %s", before, after)
	}
	a := r.must(200, r.kyle, "GET", "/_electric/runners/"+f.Runner, "")
	if field(a, "diagnostics.events_received") != 19.0 || field(a, "last_seen_at") == nil || field(a, "wake_stream_offset") != "-1" {
		t.Errorf("%s", a.Raw)
	}
}

// Offsets that the server has handed out can be acked at once, however many
// append meanwhile.
func TestAnAckOfWhatWasReadIsNeverOutOfRange(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, c := r.worked()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				who := r.kyle
				if a := who.Do(context.WithoutCancel(ctx), "POST", f.ctl()+"/send", map[string]any{"payload": fmt.Sprintf("%d-%d", w, i)}, nil); a.Status != 200 {
					t.Errorf("send: %v", a)
				}
			}
		})
	}
	for i := range 100 {
		var at string
		if i%2 == 0 { // its own append's end, which a snapshot may not show yet
			at = r.must(204, r.kyle, "POST", f.main(), row("text", fmt.Sprint("k", i), `{}`), tokenHeader(c.WriteToken)...).Header.Get("Stream-Next-Offset")
		} else {
			at = r.tail(f.main())
		}
		a := r.call(r.kyle, "POST", callback(c), fmt.Sprintf(`{"epoch":1,"acks":[{"path":%q,"offset":%q}]}`, f.main(), at), tokenHeader(c.ClaimToken)...)
		if a.Status != 200 {
			t.Errorf("an ack of %s: %v %s", at, a, a.Raw)
		}
	}
	stop()
	wg.Wait()
}

// A paused or stopped entity is not dispatched, its waiting wake is over, and a
// claim of it is answered as done. A message resumes a paused one, unless it is
// meant for a paused one.
func TestPausedAndStoppedEntitiesAreLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	signal := func(f things, s string) { r.must(200, r.kyle, "POST", f.ctl()+"/signal", `{"signal":"`+s+`"}`) }
	done := func(f things, e entry) {
		t.Helper()
		if a := r.must(200, r.kyle, "POST", f.claim(), string(e.raw)); strings.TrimSpace(string(a.Raw)) != `{"done":true}` {
			t.Errorf("%s", a.Raw)
		}
	}
	f := r.fresh()
	r.send(f, `1`)
	e := r.woken(f, 1)
	signal(f, "SIGSTOP")
	done(f, e)
	r.must(200, r.kyle, "POST", f.ctl()+"/send", `{"payload":2,"mode":"paused"}`)
	if a := r.must(200, r.kyle, "GET", f.ctl(), ""); field(a, "status") != "paused" {
		t.Errorf("%s", a.Raw)
	}
	if n := len(r.wakes(f)); n != 1 {
		t.Errorf("%d wakes for a paused entity", n)
	}
	r.send(f, `3`)
	if a := r.must(200, r.kyle, "GET", f.ctl(), ""); field(a, "status") != "idle" {
		t.Errorf("%s", a.Raw)
	}
	second := r.woken(f, 2)
	r.must(200, r.kyle, "DELETE", f.ctl(), "")
	done(f, second)
	if s := r.text(`select string_agg(distinct delivery_status::text, ',') from rouse.wake_notifications where entity_url = $1`, "/"+f.Entity); s != "superseded" {
		t.Errorf("its wakes are %s", s)
	}
	if n := r.count(`select count(*) from rouse.consumer_claims where entity_url = $1`, "/"+f.Entity); n != 0 {
		t.Errorf("%d claims of a stopped entity", n)
	}
	// A claim by the entry's own token is refused.
	r.refused(409, "NOT_RUNNING", r.kyle, "POST", "/_electric/wake-callbacks/"+second.WakeID, `{"epoch":`+fmt.Sprint(second.Generation)+`,"wakeId":"`+second.WakeID+`"}`, tokenHeader(second.ClaimToken)...)
	// A holder whose entity is killed meanwhile writes nothing more; its done is no error.
	g, c := r.worked()
	signal(g, "SIGKILL")
	if a := r.call(r.kyle, "POST", g.main(), row("text", "k", `{}`), tokenHeader(c.WriteToken)...); a.Status != 409 && a.Status != 401 {
		t.Errorf("%v", a)
	}
	if n := r.count(`select count(*) from rouse.consumer_claims where entity_url = $1 and status = 'active'`, "/"+g.Entity); n != 0 {
		t.Errorf("%d active claims of a killed entity", n)
	}
}

// What a gateway knows of dispatch it reads each time: entities, their waiting
// messages and their cursors outlive its restart.
func TestDispatchSurvivesARestart(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f := r.fresh()
	r.send(f, `1`)
	e := r.woken(f, 1)
	g := r.fresh() // nobody was ever woken for it
	if err := r.gw.Drain(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	again := newRigOn(t, r.db, nil)
	again.send(g, `1`)
	if got := again.woken(g, 1); got.Stream != g.Entity+"/main" {
		t.Errorf("%s", got.raw)
	}
	c := again.claimed(f, e)
	again.done(f, c, again.tail(f.main()))
	again.send(f, `2`)
	if got := again.woken(f, 2); got.Generation != 2 {
		t.Errorf("%s", got.raw)
	}
}

// Every change to an entity says the transaction that made it, in the 32 bits
// that a synced shape's messages have it in.
func TestEveryChangeSaysItsTransaction(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f := r.fresh()
	at := "/_electric/entities/" + f.Type + "/tx"
	for _, q := range []struct {
		method, path, body string
		status             int
	}{
		{"PUT", at, ``, 201},
		{"POST", at + "/tags/k", `{"value":"v"}`, 200},
		{"DELETE", at + "/tags/k", ``, 200},
		{"POST", at + "/signal", `{"signal":"SIGSTOP"}`, 200},
		{"POST", at + "/signal", `{"signal":"SIGCONT"}`, 200},
		{"DELETE", at, ``, 200},
	} {
		a := r.must(q.status, r.kyle, q.method, q.path, q.body)
		var got struct{ TxID json.Number }
		if err := json.Unmarshal(a.Raw, &got); err != nil {
			t.Fatalf("%s: %v", a.Raw, err)
		}
		if want := r.text(`select xmin::text from rouse.entities where url = $1`, "/"+f.Type+"/tx"); got.TxID.String() != want {
			t.Errorf("%s %s %s says %s; the row was written by %s", q.method, q.path, q.body, got.TxID, want)
		}
	}
	sent := r.send(f, `1`)
	messages, _, _ := r.kyle.All(t.Context(), f.main())
	var last struct{ Headers struct{ TxID string } }
	if err := json.Unmarshal(messages[len(messages)-1], &last); err != nil || last.Headers.TxID == "" || last.Headers.TxID != field(sent, "txid") {
		t.Errorf("a send said %s; its row has %s", sent.Raw, messages[len(messages)-1])
	}
}

// A holder that falls silent is seen: its claim says that it expired, its run is
// no success, and a wake with its reason follows.
func TestAHolderThatFallsSilentIsSeen(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *config.Config) { c.LeaseTTL, c.ReaperPeriod = 300*time.Millisecond, 20*time.Millisecond })
	f, c := r.worked()
	e := r.woken(f, 2)
	if e.Generation != 2 || e.WakeID == c.WakeID {
		t.Errorf("%s", e.raw)
	}
	a := r.must(200, r.kyle, "GET", f.ctl()+"/claims", "")
	if !strings.Contains(string(a.Raw), `"status":"expired"`) || !strings.Contains(string(a.Raw), `"error":"`) {
		t.Errorf("%s", a.Raw)
	}
	a = r.must(200, r.kyle, "GET", f.ctl()+"/dispatch", "")
	if !strings.Contains(string(a.Raw), "lease_expired") {
		t.Errorf("the reason is not said: %s", a.Raw)
	}
	r.refused(401, "UNAUTHORIZED", r.kyle, "POST", f.main(), row("text", "k", `{}`), tokenHeader(c.WriteToken)...)
}

// Runtimes look for what woke them from the notification's offset on. When a
// holder wrote behind a message and died, the next wake's offset is still the
// message's, or its successor would take the holder's rows for news without
// work, and ack the message unworked.
func TestAWakesOffsetIsThatOfItsWork(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, c := r.worked()
	offset := func(a wire.Answer) string {
		streams, _ := field(a, "streams").([]any)
		if len(streams) != 1 {
			t.Fatalf("%s", a.Raw)
		}
		s, _ := streams[0].(map[string]any)["offset"].(string)
		return s
	}
	message := r.tail(f.main())
	if got := offset(c); got != message {
		t.Errorf("the first wake's offset is %s, the message's %s", got, message)
	}
	r.must(204, r.kyle, "POST", f.main(), row("text", "half", `{}`), tokenHeader(c.WriteToken)...)
	r.db.Exec(t, `update rouse.consumers set lease_expires_at = clock_timestamp() - interval '1 ms', due_at = clock_timestamp() - interval '1 ms' where name = $1`, c.ConsumerID)
	next := r.claimed(f, r.woken(f, 2))
	if got := offset(next); got != message {
		t.Errorf("the next wake's offset is %s, the message's %s", got, message)
	}
	// And so when work came during a claim that wrote after it.
	second := r.send(f, `2`).Header.Get("Stream-Next-Offset")
	r.must(204, r.kyle, "POST", f.main(), row("text", "whole", `{}`), tokenHeader(next.WriteToken)...)
	r.done(f, next, message)
	if got := offset(r.claimed(f, r.woken(f, 3))); got != second {
		t.Errorf("the third wake's offset is %s, the message's %s", got, second)
	}
}
