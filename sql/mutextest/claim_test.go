package mutextest

import (
	"testing"
	"time"
)

const strange = "00000000-0000-4000-8000-000000000000"

func TestAcquireOutcomes(t *testing.T) {
	t.Parallel()
	r, e := woken(t)
	wake := r.state(e).Wake
	other := r.entity("/chat/other", toRunner("mac"))
	r.push(other)
	r.route(other)
	otherWake := r.state(other).Wake
	r.runner("box", 0)
	hooked := r.entity("/chat/hook", toWebhook)
	r.push(hooked)
	r.route(hooked)
	hookWake := r.state(hooked).Wake
	silent := r.entity("/chat/silent", "")
	r.push(silent)
	equal(t, "no target", r.route(silent), "no_target")

	before := [...]state{r.state(e), r.state(other), r.state(hooked)}
	refusals := []struct {
		name, outcome string
		o             op
	}{
		{"unknown consumer", "not_found", op{"op": "acquire", "consumer": "e_nobody", "holder": kyle}},
		{"unknown id", "not_found", op{"op": "acquire", "id": 999999, "holder": kyle}},
		{"unknown path", "not_found", op{"op": "acquire", "path": "/no/such/main", "holder": kyle}},
		{"unknown wake", "not_found", op{"op": "acquire", "wake": strange, "holder": kyle}},
		{"a consumer of another service", "not_found", e.acquire().with("service", 2)},
		{"a wake that never was", "wrong_wake", e.acquire().with("wake", strange)},
		{"another consumer's wake", "wrong_wake", e.acquire().with("wake", otherWake).with("proved", true)},
		{"this wake, another epoch", "wrong_wake", e.acquire().with("wake", wake).with("epoch", 2)},
		{"an epoch that never was", "stale", e.acquire().with("epoch", 7)},
		{"names that disagree", "wrong_consumer", e.acquire().with("consumer", other.name)},
		{"another user", "not_owner", e.acquire().with("holder", mallory)},
		{"another user with the token", "not_owner", e.acquire().with("holder", mallory).with("wake", wake).with("proved", true)},
		{"another user as the runner", "not_owner", e.acquire().with("holder", mallory).with("runner", "mac")},
		{"nobody with the token", "not_owner", op{"op": "acquire", "wake": wake, "proved": true}},
		{"another runner", "runner_mismatch", e.acquire().with("runner", "box")},
		{"no such runner", "runner_not_found", e.acquire().with("runner", "toaster")},
		{"a runner for a webhook's wake", "runner_mismatch", hooked.acquire().with("runner", "mac")},
		{"a webhook's wake without its token", "not_owner", hooked.acquire()},
		{"an entity without a target", "no_work", silent.acquire()},
	}
	for _, c := range refusals {
		if got := r.apply(c.o); got.Outcome != c.outcome {
			t.Errorf("%s: %s, not %s", c.name, got.Outcome, c.outcome)
		}
	}
	for i, x := range []entity{e, other, hooked} {
		s := r.state(x)
		equal(t, "state after refusals", s.State, before[i].State)
		equal(t, "epoch after refusals", s.Epoch, before[i].Epoch)
		equal(t, "claims after refusals", len(s.Claims), 0)
		equal(t, "wakes after refusals", len(s.Wakes), 1)
	}
	r.hold()

	equal(t, "by wake with its token", r.want("granted", op{"op": "acquire", "wake": hookWake, "proved": true, "holder": "claim-token"}).Runner, "")
	r.want("granted", op{"op": "acquire", "path": "/" + e.path, "holder": kyle, "runner": "mac"})
	r.want("granted", op{"op": "acquire", "consumer": other.name, "holder": "/principal/system%3Aframework", "trusted": true, "epoch": 1})
	r.hold()
}

// Decision 2: only an attempt with the same claim id is answered the same again.
func TestRepeatedAttempts(t *testing.T) {
	t.Parallel()
	r, e := woken(t)
	o := e.acquire().with("claim_id", "c1").with("runner", "mac")
	g := r.want("granted", o)
	r.after(time.Second)
	again := r.want("repeated", o)
	equal(t, "epoch", again.Epoch, g.Epoch)
	equal(t, "wake", again.Wake, g.Wake)
	equal(t, "stream", again.StreamPath, g.StreamPath)
	equal(t, "notification", string(again.Notification), string(g.Notification))
	equal(t, "lease left", again.LeaseMS, (lease - time.Second).Milliseconds())
	r.want("held", o.with("claim_id", "c2"))
	r.want("held", o.with("holder", mallory).with("trusted", true))
	r.want("held", e.acquire())
	r.after(lease)
	// The lease has lapsed, and so has the attempt.
	r.want("granted", o)
	equal(t, "epoch", r.state(e).Epoch, 2)
	r.hold()
}

// A claim call of a runner that names nothing takes the oldest wake, each once.
func TestAcquireNamingNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("mac", 0)
	r.runner("box", 0)
	any1 := op{"op": "acquire", "runner": "mac", "holder": kyle}
	r.want("no_work", any1)
	var es []entity
	for _, n := range []string{"/chat/b", "/chat/a", "/chat/c"} {
		e := r.entity(n, toRunner("mac"))
		r.push(e)
		r.route(e)
		r.after(time.Second)
		es = append(es, e)
	}
	for i, e := range es {
		o := any1.with("claim_id", e.url)
		a := r.want("granted", o)
		equal(t, "oldest first", a.ConsumerID, e.consumer)
		again := r.want("repeated", o)
		equal(t, "the same attempt, the same claim", again.ConsumerID, es[i].consumer)
	}
	r.want("no_work", any1)
	r.want("no_work", any1.with("runner", "box"))
	r.hold()
}

// Decision 3: a direct acquire mints the wake it takes, if work is pending.
func TestDirectAcquireMints(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("mac", 0)
	e := r.entity("/chat/a", toRunner("mac"))
	r.want("no_work", e.acquire())
	r.push(e) // nobody was told yet
	a := r.want("granted", e.acquire())
	equal(t, "epoch", a.Epoch, 1)
	s := r.state(e)
	equal(t, "wakes", len(s.Wakes), 1)
	equal(t, "route afterwards", r.route(e), "coalesced")
	r.hold()
}

// Decision 1: a granted wake never grants again; a lapsed claim that is met is
// ended, and only the next wake can be claimed.
func TestAcquireMeetsLapsedClaim(t *testing.T) {
	t.Parallel()
	r, e, g := claimed(t)
	r.after(lease)
	r.want("stale", e.acquire().with("wake", g.Wake))
	s := r.state(e)
	equal(t, "mutex", s.State, "waking")
	equal(t, "epoch", s.Epoch, g.Epoch+1)
	equal(t, "first claim", s.Claims[0].Status, "expired")
	equal(t, "the next wake is told", len(r.entries("mac")), 2)
	r.hold()
	a := r.want("granted", e.acquire().with("wake", s.Wake))
	equal(t, "epoch", a.Epoch, g.Epoch+1)
	r.after(lease + time.Hour)
	b := r.want("granted", e.acquire()) // naming nothing takes the next one
	equal(t, "epoch", b.Epoch, g.Epoch+2)
	r.hold()
}

// A released wake never grants again either, nor does one of an earlier epoch.
func TestSpentWakesStaySpent(t *testing.T) {
	t.Parallel()
	r, e, g := claimed(t)
	r.want("released", e.call("release", g.Epoch, g.Wake).with("acks", e.acks(r.tail(e))))
	r.want("stale", e.acquire().with("wake", g.Wake))
	r.want("stale", e.acquire().with("epoch", g.Epoch))
	r.push(e)
	r.route(e)
	r.want("stale", e.acquire().with("wake", g.Wake))
	h := r.want("granted", e.acquire())
	r.want("stale", e.acquire().with("wake", g.Wake))
	for _, name := range []string{"heartbeat", "ack"} {
		r.want("stale", e.call(name, g.Epoch, g.Wake).with("acks", e.acks(r.tail(e))))
		r.want("stale", e.call(name, h.Epoch, g.Wake).with("acks", e.acks(r.tail(e))))
		r.want("stale", e.call(name, g.Epoch, h.Wake).with("acks", e.acks(r.tail(e))))
		r.want("stale", e.call(name, h.Epoch+1, h.Wake).with("acks", e.acks(r.tail(e))))
	}
	equal(t, "cursor", r.state(e).Acked < r.tail(e), true)
	r.hold()
}

// R3: at its end by the database's clock a lease is over, before anybody else
// claims. Nothing brings it back.
func TestLapsedLeaseIsOver(t *testing.T) {
	t.Parallel()
	r, e, g := claimed(t)
	r.after(lease - time.Millisecond)
	equal(t, "append in time", r.write(e, g), "appended")
	r.after(time.Millisecond)
	before := r.state(e)
	for range 2 {
		equal(t, "append", r.write(e, g), "lease_expired")
		r.want("lease_expired", e.call("heartbeat", g.Epoch, g.Wake))
		r.want("lease_expired", e.call("ack", g.Epoch, g.Wake).with("acks", e.acks(r.tail(e))))
	}
	after := r.state(e)
	equal(t, "tail", after.Tail, before.Tail)
	equal(t, "cursor", after.Acked, before.Acked)
	when(t, "lease", after.Lease, *before.Lease)
	equal(t, "mutex", after.State, "claimed")
	// A release ends it as expired, not as released.
	r.want("lease_expired", e.call("release", g.Epoch, g.Wake).with("acks", e.acks(r.tail(e))))
	s := r.state(e)
	equal(t, "claim", s.Claims[0].Status, "expired")
	equal(t, "mutex", s.State, "waking")
	equal(t, "cursor", s.Acked, before.Acked)
	r.want("lease_expired", e.call("release", g.Epoch, g.Wake))
	equal(t, "append", r.write(e, g), "token_stale")
	h := r.want("granted", e.acquire())
	equal(t, "the next holder appends", r.write(e, h), "appended")
	equal(t, "the last one does not", r.write(e, g), "token_stale")
	r.hold()
}

// write appends under a write token of g at the rig's time. The holder's own
// appends are not actionable.
func (r *rig) write(e entity, g answer) string {
	r.t.Helper()
	return one[string](r, `select outcome from rouse._stream_append('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
		array[1], array[$1], array['application/json'], array[false], array[false], array[convert_to('{"a":1}', 'UTF8')], array[1], array[null::text],
		array[null::text], array[null::bigint], array[null::bigint], array[null::text], array[false],
		array[$2::bigint], array[$3::bigint], array[$4::uuid], true, $5)`, e.path, e.consumer, g.Epoch, g.Wake, r.now)
}

// Decision 5: what the holder writes itself wakes nobody.
func TestHolderNeverWakesItself(t *testing.T) {
	t.Parallel()
	r, e, g := claimed(t)
	seen := r.tail(e)
	equal(t, "append", r.write(e, g), "appended")
	a := r.want("released", e.call("release", g.Epoch, g.Wake).with("acks", e.acks(seen)))
	equal(t, "next wake", val(a.NextWake), any(false))
	equal(t, "scan", one[int](r, `select count(*) from rouse.dispatch_scan(0, 100)`), 0)
	equal(t, "route", r.route(e), "idle")
	r.hold()
}

// A heartbeat gives the whole lease anew, by the clock as it is now: one that
// was set back does not leave a lease that ends in what is the far future again.
// Whoever holds it was never promised more.
func TestAHeartbeatFollowsAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	r, e, g := claimed(t)
	r.after(20 * time.Second)
	r.want("ok", e.call("heartbeat", g.Epoch, g.Wake))
	r.after(-10 * time.Minute)
	a := r.want("ok", e.call("heartbeat", g.Epoch, g.Wake))
	equal(t, "told", a.LeaseMS, lease.Milliseconds())
	when(t, "lease", r.state(e).Lease, r.now.Add(lease))
	r.hold()
}

// Whoever holds a claim and says nothing any more loses it in time, too, when
// the clock was set back meanwhile; wakes are told again in time.
func TestLeasesAreClippedWhenTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	r, e, g := claimed(t)
	waiting := r.entity("/chat/waiting", toRunner("mac"))
	r.push(waiting)
	r.route(waiting)
	r.beat("mac", time.Hour)
	clip := func() int { return one[int](r, `select rouse._leases_clip($1)`, r.now) }
	equal(t, "clipped while the clock is right", clip(), 0)
	r.after(-time.Second) // given after the clock was read
	equal(t, "clipped of what was given meanwhile", clip(), 0)
	r.after(time.Second)
	r.after(-10 * time.Minute)
	equal(t, "held", r.want("held", e.acquire().with("claim_id", "other")).LeaseMS, lease.Milliseconds())
	equal(t, "clipped", clip(), 2)
	equal(t, "clipped again", clip(), 0)
	when(t, "lease", r.state(e).Lease, r.now.Add(lease))
	when(t, "the claim's lease", r.state(e).Claims[0].Lease, r.now.Add(lease))
	r.want("ok", e.call("heartbeat", g.Epoch, g.Wake))
	r.after(lease)
	got := r.reap()
	equal(t, "ended", got.Expired, 1)
	equal(t, "told again", got.Redelivered, 1)
	r.want("stale", e.call("heartbeat", g.Epoch, g.Wake))
	r.hold()
}

// R5: acks only advance, within the stream, all or none.
func TestAckOutcomes(t *testing.T) {
	t.Parallel()
	r, e := woken(t)
	first := r.tail(e)
	second := r.push(e)
	other := r.entity("/chat/other", toRunner("mac"))
	g := r.want("granted", e.acquire())
	ack := func(position int64) op { return e.call("ack", g.Epoch, g.Wake).with("acks", e.acks(position)) }
	r.want("ok", ack(first))
	r.want("ok", ack(first)) // a repeat
	r.want("invalid_offset", ack(first-1))
	r.want("invalid_offset", ack(second+1))
	r.want("invalid_offset", ack(-1))
	r.want("unknown_stream", e.call("ack", g.Epoch, g.Wake).with("acks", other.acks(1)))
	r.want("unknown_stream", e.call("ack", g.Epoch, g.Wake).with("acks", []any{map[string]any{"path": "/no/such", "position": 1}}))
	r.want("unknown_stream", e.call("ack", g.Epoch, g.Wake).with("acks", append(e.acks(second), other.acks(1)...)))
	r.want("invalid_offset", e.call("ack", g.Epoch, g.Wake).with("acks", append(e.acks(second), e.acks(second+1)...)))
	equal(t, "all or none", r.acked(e), first)
	r.want("invalid_offset", e.call("release", g.Epoch, g.Wake).with("acks", e.acks(second+1)))
	r.want("unknown_stream", e.call("release", g.Epoch, g.Wake).with("acks", other.acks(1)))
	equal(t, "a refused release keeps the lease", r.state(e).State, "claimed")
	r.want("ok", e.call("ack", g.Epoch, g.Wake)) // nothing to ack is a sign of life, no more
	r.want("ok", ack(second))
	equal(t, "cursor", r.acked(e), second)
	r.hold()
}

// R5: release repeated with the same (wake, epoch) is the same answer.
func TestReleaseRepeats(t *testing.T) {
	t.Parallel()
	for _, left := range []bool{false, true} {
		r, e, g := claimed(t)
		first := r.tail(e)
		if left {
			r.push(e)
		}
		o := e.call("release", g.Epoch, g.Wake).with("acks", e.acks(first))
		equal(t, "next wake", *r.want("released", o).NextWake, left)
		released := *r.state(e).lastClaim().Released
		r.after(time.Minute)
		for range 3 {
			a := r.want("released", o)
			equal(t, "next wake", *a.NextWake, left)
			equal(t, "epoch", a.Epoch, g.Epoch)
			equal(t, "wake", a.Wake, g.Wake)
		}
		when(t, "released", r.state(e).Claims[0].Released, released)
		if left { // also after the next holder has come and gone
			h := r.want("granted", e.acquire())
			equal(t, "next wake", *r.want("released", o).NextWake, true)
			equal(t, "the next holder is untouched", r.state(e).State, "claimed")
			r.want("released", e.call("release", h.Epoch, h.Wake).with("acks", e.acks(r.tail(e))))
			equal(t, "next wake", *r.want("released", o).NextWake, true)
		}
		r.want("stale", e.call("release", g.Epoch, strange))
		r.want("stale", e.call("release", g.Epoch+9, g.Wake))
		r.hold()
	}
}

func TestReleaseOfAFailedRun(t *testing.T) {
	t.Parallel()
	r, e, g := claimed(t)
	tail := r.tail(e)
	r.want("released", e.call("release", g.Epoch, g.Wake).with("acks", e.acks(tail)).with("error", "exit status 1"))
	s := r.state(e)
	equal(t, "claim", s.lastClaim().Status, "failed")
	equal(t, "claim error", val(s.lastClaim().Error), any("exit status 1"))
	equal(t, "last error", val(s.Dispatch.LastError), any("exit status 1"))
	equal(t, "completed", s.Dispatch.LastCompleted == nil, true)
	equal(t, "display", one[string](r, `select code from rouse.entity_display where url = $1`, e.url), "failed")
	r.want("released", e.call("release", g.Epoch, g.Wake).with("error", "exit status 1"))
	r.push(e)
	r.route(e)
	h := r.want("granted", e.acquire())
	r.want("released", e.call("release", h.Epoch, h.Wake).with("acks", e.acks(r.tail(e))))
	equal(t, "a good run clears it", r.state(e).Dispatch.LastError == nil, true)
	r.hold()
}

// R6: the holder dies; its lease ends; a fresh wake with a higher epoch works.
func TestCrashOfTheHolder(t *testing.T) {
	t.Parallel()
	r, e, g := claimed(t)
	for range 5 {
		r.after(10 * time.Second)
		r.want("ok", e.call("heartbeat", g.Epoch, g.Wake))
		equal(t, "a live lease is only moved", r.reap().Expired, 0)
	}
	r.after(lease)
	equal(t, "reap", r.reap(), reaped{Expired: 1})
	s := r.state(e)
	equal(t, "claim", s.lastClaim().Status, "expired")
	h := r.want("granted", e.acquire().with("wake", s.Wake))
	equal(t, "epoch", h.Epoch, g.Epoch+1)
	equal(t, "append of the dead", r.write(e, g), "token_stale")
	r.hold()

	// With nothing left to do nobody is woken.
	r.want("ok", e.call("ack", h.Epoch, h.Wake).with("acks", e.acks(r.tail(e))))
	r.after(lease)
	equal(t, "reap", r.reap(), reaped{Expired: 1})
	s = r.state(e)
	equal(t, "mutex", s.State, "idle")
	equal(t, "epoch", s.Epoch, h.Epoch)
	equal(t, "reap again", r.reap().Expired, 0)
	r.hold()
}

// Decision 10: heartbeats push no index; the reaper moves its due time once a
// lease.
func TestReaperIsPushedOnceALease(t *testing.T) {
	t.Parallel()
	r, e, g := claimed(t)
	r.moved = 0
	for range 60 { // ten minutes, a heartbeat every ten seconds
		r.after(10 * time.Second)
		r.want("ok", e.call("heartbeat", g.Epoch, g.Wake))
		equal(t, "reap", r.reap(), reaped{})
	}
	if r.moved < 18 || r.moved > 22 {
		t.Errorf("due moved %d times in 20 leases", r.moved)
	}
	r.hold()
}

// R18: bookkeeping wakes nobody.
func TestBookkeepingWakesNobody(t *testing.T) {
	t.Parallel()
	r, e, g := claimed(t)
	tail := r.tail(e)
	r.beat("mac", time.Hour)
	wakes := len(r.entries("mac"))
	lsn := one[string](r, `select pg_current_wal_insert_lsn()::text`)
	const rounds = 2500 // of four calls
	batch := []op{}
	for range 50 {
		batch = append(batch, e.call("heartbeat", g.Epoch, g.Wake), e.call("ack", g.Epoch, g.Wake).with("acks", e.acks(tail)))
	}
	for i := range rounds / 50 {
		r.after(10 * time.Millisecond)
		r.exec(`select rouse._claim_apply($1, $2, $3)`, opsJSON(batch...), i%2 == 0, r.now)
		for range 100 {
			r.beat("mac", time.Hour)
		}
	}
	equal(t, "outcomes", r.want("ok", e.call("heartbeat", g.Epoch, g.Wake)).Outcome, "ok")
	equal(t, "wake entries", len(r.entries("mac")), wakes)
	equal(t, "wakes", len(r.state(e).Wakes), 1)
	equal(t, "scan", one[int](r, `select count(*) from rouse.dispatch_scan(0, 100)`), 0)
	equal(t, "route", r.route(e), "idle")
	if lsn == one[string](r, `select pg_current_wal_insert_lsn()::text`) {
		t.Error("nothing was written, so nothing was tested")
	}
	r.hold()
}

// A batch answers in order, and a member's minted wake is published with it.
func TestBatchAnswersInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("mac", 0)
	var es []entity
	for _, u := range []string{"/chat/a", "/chat/b", "/chat/c"} {
		e := r.entity(u, toRunner("mac"))
		r.push(e)
		r.route(e)
		es = append(es, e)
	}
	ops := []op{es[2].acquire(), es[0].acquire(), es[2].acquire(), {"op": "acquire", "consumer": "nobody"}, es[1].acquire()}
	equal(t, "outcomes", one[string](r, `select string_agg((answer).outcome, ' ' order by ord) from rouse._claim_apply($1, false, $2)`, opsJSON(ops...), r.now),
		"granted granted held not_found granted")
	r.hold()
	equal(t, "claims", one[int](r, `select count(*) from rouse.consumer_claims where status = 'active'`), 3)
}
