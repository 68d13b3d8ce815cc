package mutextest

import (
	"encoding/json"
	"testing"
	"time"
)

// woken is an entity for runner "mac" with one unread message and its wake.
func woken(t *testing.T) (*rig, entity) {
	t.Helper()
	r := newRig(t)
	r.runner("mac", 0)
	e := r.entity("/chat/team/7", toRunner("mac"))
	r.push(e)
	if got := r.route(e); got != "minted" {
		t.Fatalf("route: %s", got)
	}
	return r, e
}

func claimed(t *testing.T) (*rig, entity, answer) {
	t.Helper()
	r, e := woken(t)
	r.after(time.Second)
	return r, e, r.want("granted", e.acquire())
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, not %v", what, got, want)
	}
}

func when(t *testing.T, what string, got *time.Time, want time.Time) {
	t.Helper()
	if got == nil || !got.Equal(want) {
		t.Errorf("%s: %s, not %s", what, at(got), at(&want))
	}
}

// The thirteen transitions of the RFC, each read back from the tables.

func TestTransitionSpawned(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("mac", 0)
	e := r.entity("/chat/team/7", toRunner("mac"))
	s := r.state(e)
	equal(t, "mutex", s.State, "idle")
	equal(t, "epoch", s.Epoch, 0)
	equal(t, "status", s.EntityStatus, "idle")
	equal(t, "wakes", len(s.Wakes), 0)
	equal(t, "claims", len(s.Claims), 0)
	equal(t, "cursor is behind the creation event", s.Acked, s.Tail)
	equal(t, "outstanding", s.Dispatch.Outstanding == nil, true)
	equal(t, "active", s.Dispatch.ActiveEpoch == nil, true)
	equal(t, "pending", string(s.Dispatch.PendingStreams), "[]")
	equal(t, "policy", one[string](r, `select dispatch_policy -> 'targets' -> 0 ->> 'runnerId' from rouse.entities where url = $1`, e.url), "mac")
	equal(t, "route of the creation event", r.route(e), "idle")
	r.want("no_work", e.acquire())
	r.hold()
}

func TestTransitionAppended(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("mac", 0)
	e := r.entity("/chat/team/7", toRunner("mac"))
	before := r.tail(e)
	tail := r.push(e)
	equal(t, "route", r.route(e), "minted")
	s := r.state(e)
	equal(t, "mutex", s.State, "waking")
	equal(t, "epoch", s.Epoch, 1)
	equal(t, "status", s.EntityStatus, "idle")
	equal(t, "wakes", len(s.Wakes), 1)
	w := s.lastWake()
	equal(t, "wake epoch", w.Epoch, 1)
	equal(t, "wake", w.ID, s.Wake)
	equal(t, "delivery", w.Delivery, "delivered")
	equal(t, "claim", w.Claim, "unclaimed")
	equal(t, "attempts", w.Attempts, 1)
	equal(t, "outstanding", val(s.Dispatch.Outstanding), any(w.ID))
	equal(t, "last wake", val(s.Dispatch.LastWake), any(w.ID))
	equal(t, "reason", val(s.Dispatch.PendingReason), any("message_received"))
	when(t, "pending since", s.Dispatch.PendingSince, r.now)
	entries := r.entries("mac")
	if len(entries) != 1 {
		t.Fatalf("%d entries of the wake stream", len(entries))
	}
	got := entries[0]
	equal(t, "wakeId", got["wakeId"], any(w.ID))
	equal(t, "epoch", got["epoch"], any(float64(1)))
	equal(t, "consumerId", got["consumerId"], any(e.name))
	equal(t, "streamPath", got["streamPath"], any("/chat/team/7/main"))
	equal(t, "type", got["type"], any("wake"))
	equal(t, "subscription_id", got["subscription_id"], any(e.name))
	equal(t, "stream", got["stream"], any("chat/team/7/main"))
	equal(t, "generation", got["generation"], any(float64(1)))
	equal(t, "ts", got["ts"], any(float64(r.now.UnixMilli())))
	streams := got["streams"].([]any)[0].(map[string]any)
	equal(t, "tail at wake time", streams["offset"], any(one[string](r, `select rouse._offset($1)`, tail)))
	equal(t, "where unread begins", streams["ackedOffset"], any(one[string](r, `select rouse._offset($1)`, before)))
	equal(t, "recorded offset", val(w.Offset), any(one[string](r, `select rouse._offset(tail) from rouse.streams where path = 'runners/mac/wake'`)))
	for _, secret := range []string{"claimToken", "callback", "token"} {
		if _, ok := got[secret]; ok {
			t.Errorf("the stored entry has a %s", secret)
		}
	}
	r.hold()
}

func TestTransitionDuplicateWhileOutstanding(t *testing.T) {
	t.Parallel()
	r, e := woken(t)
	before := r.state(e)
	r.after(3 * time.Second)
	tail := r.push(e)
	equal(t, "route", r.route(e), "coalesced")
	s := r.state(e)
	equal(t, "same wake", s.Wake, before.Wake)
	equal(t, "same epoch", s.Epoch, before.Epoch)
	equal(t, "wakes", len(s.Wakes), 1)
	equal(t, "outstanding", val(s.Dispatch.Outstanding), any(before.Wake))
	equal(t, "entries", len(r.entries("mac")), 1)
	when(t, "pending since the first", s.Dispatch.PendingSince, epochStart)
	var pending []struct{ Path, Offset, AckedOffset string }
	if err := json.Unmarshal(s.Dispatch.PendingStreams, &pending); err != nil || len(pending) != 1 {
		t.Fatalf("pending streams %s: %v", s.Dispatch.PendingStreams, err)
	}
	equal(t, "merged offset", pending[0].Offset, one[string](r, `select rouse._offset($1)`, tail))
	r.hold()
}

func TestTransitionDuplicateWhileClaimed(t *testing.T) {
	t.Parallel()
	r, e, g := claimed(t)
	r.after(time.Second)
	tail := r.push(e)
	equal(t, "route", r.route(e), "coalesced")
	s := r.state(e)
	equal(t, "mutex", s.State, "claimed")
	equal(t, "epoch", s.Epoch, g.Epoch)
	equal(t, "wakes", len(s.Wakes), 1)
	equal(t, "entries", len(r.entries("mac")), 1)
	equal(t, "outstanding", s.Dispatch.Outstanding == nil, true)
	var pending []struct{ Path, Offset string }
	if err := json.Unmarshal(s.Dispatch.PendingStreams, &pending); err != nil || len(pending) != 1 {
		t.Fatalf("pending streams %s: %v", s.Dispatch.PendingStreams, err)
	}
	equal(t, "merged path", pending[0].Path, "/chat/team/7/main")
	equal(t, "merged offset", pending[0].Offset, one[string](r, `select rouse._offset($1)`, tail))
	r.hold()
}

func TestTransitionAcquireAccepted(t *testing.T) {
	t.Parallel()
	r, e := woken(t)
	wake := r.state(e).Wake
	r.after(2 * time.Second)
	a := r.want("granted", e.acquire().with("wake", wake).with("runner", "mac").with("claim_id", "c1"))
	equal(t, "epoch", a.Epoch, 1)
	equal(t, "wake", a.Wake, wake)
	equal(t, "lease", a.LeaseMS, lease.Milliseconds())
	equal(t, "stream", a.StreamPath, "/chat/team/7/main")
	s := r.state(e)
	equal(t, "mutex", s.State, "claimed")
	equal(t, "holder", s.Holder, kyle)
	when(t, "lease", s.Lease, r.now.Add(lease))
	// The grant moves no indexed column: the reaper looks when it would have
	// looked for the unclaimed wake, which is never after the lease's end.
	equal(t, "due by the lease's end", s.Due != nil && !s.Due.After(r.now.Add(lease)), true)
	equal(t, "status", s.EntityStatus, "running")
	k := s.lastClaim()
	equal(t, "claim", k.Status, "active")
	equal(t, "claim holder", k.Holder, kyle)
	equal(t, "claim runner", k.Runner, "mac")
	when(t, "claim lease", k.Lease, r.now.Add(lease))
	when(t, "claim heartbeat", k.LastHeartbeat, r.now)
	w := s.lastWake()
	equal(t, "wake claim", w.Claim, "claimed")
	equal(t, "wake open", w.Open, true)
	d := s.Dispatch
	equal(t, "outstanding", d.Outstanding == nil, true)
	equal(t, "active consumer", val(d.ActiveConsumer), any(e.name))
	equal(t, "active runner", val(d.ActiveRunner), any("mac"))
	equal(t, "active epoch", val(d.ActiveEpoch), any(int64(1)))
	when(t, "active lease", d.ActiveLease, r.now.Add(lease))
	when(t, "last claimed", d.LastClaimed, r.now)
	r.hold()
}

func TestTransitionAcquireRejected(t *testing.T) {
	t.Parallel()
	r, e, g := claimed(t)
	before := r.state(e)
	r.after(time.Second)
	for _, o := range []op{e.acquire(), e.acquire().with("wake", g.Wake), e.acquire().with("runner", "mac")} {
		a := r.want("held", o)
		equal(t, "lease left", a.LeaseMS, (lease - time.Second).Milliseconds())
		equal(t, "held by", a.Runner, "mac")
	}
	after := r.state(e)
	equal(t, "status", after.EntityStatus, "running")
	equal(t, "claims", len(after.Claims), 1)
	equal(t, "epoch", after.Epoch, before.Epoch)
	when(t, "lease", after.Lease, *before.Lease)
	r.hold()
}

func TestTransitionClaimHeartbeat(t *testing.T) {
	t.Parallel()
	r, e, g := claimed(t)
	due := at(r.state(e).Due)
	r.after(10 * time.Second)
	a := r.want("ok", e.call("heartbeat", g.Epoch, g.Wake))
	equal(t, "lease", a.LeaseMS, lease.Milliseconds())
	s := r.state(e)
	when(t, "lease", s.Lease, r.now.Add(lease))
	equal(t, "due stays", at(s.Due), due)
	when(t, "claim heartbeat", s.lastClaim().LastHeartbeat, r.now)
	when(t, "claim lease", s.lastClaim().Lease, r.now.Add(lease))
	when(t, "active lease", s.Dispatch.ActiveLease, r.now.Add(lease))
	equal(t, "wakes", len(s.Wakes), 1)
	r.hold()
}

func TestTransitionRunnerHeartbeat(t *testing.T) {
	t.Parallel()
	r, e := woken(t)
	registered := one[string](r, `select xmin::text from rouse.runners where id = 'mac'`)
	var seen, until time.Time
	read := func() {
		if err := r.c.QueryRow(r.ctx(), `select last_seen_at, liveness_lease_expires_at from rouse.runner_runtime_diagnostics where runner_id = 'mac'`).
			Scan(&seen, &until); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "told again on coming online", r.beat("mac", time.Minute), 1)
	read()
	when(t, "last seen", &seen, r.now)
	when(t, "liveness", &until, r.now.Add(time.Minute))
	r.after(20 * time.Second)
	equal(t, "told again while online", r.beat("mac", time.Minute), 0)
	read()
	when(t, "last seen", &seen, r.now)
	when(t, "liveness", &until, r.now.Add(time.Minute))
	equal(t, "the registration row is untouched", one[string](r, `select xmin::text from rouse.runners where id = 'mac'`), registered)
	equal(t, "wakes", len(r.state(e).Wakes), 1)
	r.hold()
}

func TestTransitionAck(t *testing.T) {
	t.Parallel()
	r, e := woken(t)
	first := r.tail(e)
	second := r.push(e)
	r.route(e)
	g := r.want("granted", e.acquire())
	r.after(time.Second)
	r.want("ok", e.call("ack", g.Epoch, g.Wake).with("acks", e.acks(first)))
	s := r.state(e)
	equal(t, "cursor", s.Acked, first)
	equal(t, "flag", s.Pending, true)
	equal(t, "still pending", s.Dispatch.PendingReason != nil, true)
	r.want("ok", e.call("ack", g.Epoch, g.Wake).with("acks", e.acks(second)))
	s = r.state(e)
	equal(t, "cursor", s.Acked, second)
	equal(t, "flag", s.Pending, false)
	equal(t, "pending streams", string(s.Dispatch.PendingStreams), "[]")
	equal(t, "pending reason", s.Dispatch.PendingReason == nil, true)
	equal(t, "pending since", s.Dispatch.PendingSince == nil, true)
	var acked []struct{ Path, Offset string }
	if err := json.Unmarshal(s.lastClaim().Acked, &acked); err != nil || len(acked) != 1 {
		t.Fatalf("acked streams %s: %v", s.lastClaim().Acked, err)
	}
	equal(t, "acked path", acked[0].Path, "/"+e.path)
	equal(t, "acked offset", acked[0].Offset, one[string](r, `select rouse._offset($1)`, second))
	equal(t, "still claimed", s.State, "claimed")
	r.hold()
}

func TestTransitionReleaseWithoutWorkLeft(t *testing.T) {
	t.Parallel()
	r, e, g := claimed(t)
	tail := r.tail(e)
	r.after(time.Second)
	a := r.want("released", e.call("release", g.Epoch, g.Wake).with("acks", e.acks(tail)))
	equal(t, "next wake", val(a.NextWake), any(false))
	s := r.state(e)
	equal(t, "mutex", s.State, "idle")
	equal(t, "epoch", s.Epoch, 1)
	equal(t, "status", s.EntityStatus, "idle")
	k := s.lastClaim()
	equal(t, "claim", k.Status, "released")
	when(t, "released", k.Released, r.now)
	equal(t, "wake", s.lastWake().Claim, "completed")
	equal(t, "wake open", s.lastWake().Open, false)
	d := s.Dispatch
	equal(t, "active", d.ActiveEpoch == nil && d.ActiveConsumer == nil && d.ActiveRunner == nil && d.ActiveLease == nil, true)
	when(t, "last released", d.LastReleased, r.now)
	when(t, "last completed", d.LastCompleted, r.now)
	equal(t, "outstanding", d.Outstanding == nil, true)
	r.want("no_work", e.acquire())
	r.hold()
}

func TestTransitionReleaseWithWorkLeft(t *testing.T) {
	t.Parallel()
	r, e, g := claimed(t)
	first := r.tail(e)
	r.push(e)
	r.route(e)
	r.after(time.Second)
	a := r.want("released", e.call("release", g.Epoch, g.Wake).with("acks", e.acks(first)))
	equal(t, "next wake", val(a.NextWake), any(true))
	s := r.state(e)
	equal(t, "mutex", s.State, "waking")
	equal(t, "epoch", s.Epoch, 2)
	equal(t, "status", s.EntityStatus, "idle")
	equal(t, "claim", s.lastClaim().Status, "released")
	equal(t, "wakes", len(s.Wakes), 2)
	equal(t, "first wake open", s.Wakes[0].Open, false)
	equal(t, "fresh wake", s.lastWake().ID != g.Wake && s.lastWake().ID == s.Wake, true)
	equal(t, "outstanding", val(s.Dispatch.Outstanding), any(s.Wake))
	equal(t, "reason", val(s.Dispatch.PendingReason), any("release"))
	equal(t, "entries", len(r.entries("mac")), 2)
	r.hold()
}

func TestTransitionLeaseExpiry(t *testing.T) {
	t.Parallel()
	r, e, g := claimed(t)
	r.after(lease - time.Millisecond)
	equal(t, "too early", r.reap().Expired, 0)
	r.after(time.Millisecond)
	equal(t, "at the lease's end", r.reap(), reaped{Expired: 1})
	s := r.state(e)
	equal(t, "mutex", s.State, "waking")
	equal(t, "epoch", s.Epoch, g.Epoch+1)
	equal(t, "status", s.EntityStatus, "idle")
	k := s.lastClaim()
	equal(t, "claim", k.Status, "expired")
	equal(t, "claim error", k.Error != nil, true)
	equal(t, "lapsed wake", s.Wakes[0].Claim, "expired")
	equal(t, "lapsed wake open", s.Wakes[0].Open, false)
	d := s.Dispatch
	equal(t, "active", d.ActiveEpoch == nil && d.ActiveLease == nil, true)
	equal(t, "completed", d.LastCompleted == nil, true)
	equal(t, "outstanding", val(d.Outstanding), any(s.Wake))
	equal(t, "entries", len(r.entries("mac")), 2)
	r.hold()
}

func TestTransitionStopped(t *testing.T) {
	t.Parallel()
	for _, c := range []string{"outstanding", "claimed"} {
		t.Run(c, func(t *testing.T) {
			t.Parallel()
			r, e := woken(t)
			var g answer
			if c == "claimed" {
				g = r.want("granted", e.acquire())
			}
			equal(t, "signal", one[string](r, `select outcome from rouse.entity_signal(1, $1, $2, 'SIGKILL', 'k1', null, null)`, e.url, kyle), "signalled")
			s := r.state(e)
			equal(t, "mutex", s.State, "stopped")
			equal(t, "status", s.EntityStatus, "killed")
			equal(t, "wake open", s.lastWake().Open, false)
			if c == "outstanding" {
				equal(t, "wake", s.lastWake().Delivery, "superseded")
				equal(t, "wake claim", s.lastWake().Claim, "unclaimed")
			} else {
				equal(t, "claim", s.lastClaim().Status, "failed")
				r.want("stale", e.call("heartbeat", g.Epoch, g.Wake))
				r.want("stale", e.call("ack", g.Epoch, g.Wake).with("acks", e.acks(s.Tail)))
				r.want("stale", e.call("release", g.Epoch, g.Wake))
			}
			d := s.Dispatch
			equal(t, "outstanding", d.Outstanding == nil, true)
			equal(t, "active", d.ActiveEpoch == nil, true)
			equal(t, "pending", string(d.PendingStreams), "[]")
			r.want("stopped", e.acquire())
			r.want("stopped", e.acquire().with("wake", s.Wakes[0].ID))
			equal(t, "route", r.route(e), "idle")
			equal(t, "scan", one[int](r, `select count(*) from rouse.dispatch_scan(0, 100)`), 0)
			equal(t, "append", r.push(e), int64(0))
			r.after(time.Hour)
			equal(t, "reap", r.reap().Expired, 0)
			r.hold()
		})
	}
}
