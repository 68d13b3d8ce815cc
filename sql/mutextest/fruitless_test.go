package mutextest

import (
	"fmt"
	"testing"
	"time"
)

// finish claims the entity's wake, as a receiver's callback does, and ends the
// claim with more members in its release.
func (r *rig) finish(e entity, more op) {
	r.t.Helper()
	s := r.state(e)
	a := r.want("granted", e.acquire().with("wake", s.Wake).with("proved", true))
	o := e.call("release", a.Epoch, a.Wake)
	for k, v := range more {
		o = o.with(k, v)
	}
	r.want("released", o)
}

// A receiver that ends its claims and acks nothing is told at once the first
// time, and then ever later; an ack that moves anything ends that.
func TestAReceiverThatMakesNoProgressIsToldLater(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]op{"done": {}, "failed": {"error": "no"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			e := r.entity("/chat/hook", toWebhook)
			r.push(e)
			r.route(e)
			for i, want := range []time.Duration{0, 1, 2, 4, 8, 16, 32, 60, 60} {
				r.finish(e, more)
				s := r.state(e)
				when(t, fmt.Sprintf("wake %d is due", i+2), s.lastWake().Next, r.now.Add(want*time.Second))
				if want > 0 {
					r.after(want*time.Second - time.Millisecond)
					equal(t, "early", len(r.take(10)), 0)
					r.after(time.Millisecond)
				}
				ds := r.take(10)
				if len(ds) != 1 || ds[0].Wake != s.Wake || ds[0].Attempt != 1 {
					t.Fatalf("wake %d: %v", i+2, ds)
				}
			}
			// New messages do not make it sooner, nor is the wake kept from whoever asks for it.
			r.push(e)
			r.route(e)
			first := r.push(e)
			r.push(e)
			r.finish(e, op{"acks": e.acks(first)})
			when(t, "after progress", r.state(e).lastWake().Next, r.now)
			r.finish(e, more)
			when(t, "anew", r.state(e).lastWake().Next, r.now)
			// A lapsed lease is no such end: what it leaves is told at once.
			r.finish(e, more)
			when(t, "and later", r.state(e).lastWake().Next, r.now.Add(time.Second))
			r.want("granted", e.acquire().with("wake", r.state(e).Wake).with("proved", true))
			r.later(lease)
			when(t, "after a lapse", r.state(e).lastWake().Next, r.now)
			r.hold()
		})
	}
}

// Runners are told at once, whatever they do: they can hold themselves back.
func TestARunnerThatMakesNoProgressIsToldAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("mac", 0)
	e := r.entity("/chat/1", toRunner("mac"))
	r.push(e)
	r.route(e)
	for i := range 4 {
		a := r.want("granted", e.acquire().with("runner", "mac"))
		r.want("released", e.call("release", a.Epoch, a.Wake))
		equal(t, "entries", len(r.entries("mac")), i+2)
	}
	equal(t, "count", one[int](r, `select fruitless from rouse.consumers where id = $1`, e.consumer), 0)
	r.hold()
}
