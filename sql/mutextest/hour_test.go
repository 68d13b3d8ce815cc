package mutextest

import (
	"testing"
	"time"
)

// F28: a receiver that answers 5xx for an hour is asked by the schedule all the
// while, at least once a minute, for the same
// wake and epoch; what is kept of it is bounded, and the first time that it works
// ends it.
func TestAReceiverFailsForAnHour(t *testing.T) {
	t.Parallel()
	r, e, d := pushed(t)
	wake, began, sent := d.Wake, r.now, 1
	snapshot := r.tail(e)
	for r.now.Sub(began) < time.Hour {
		equal(t, "became", r.result(d, "retry", 0), "retry")
		next := r.state(e).lastWake().Next
		if next == nil || next.Sub(r.now) < time.Second || next.Sub(r.now) > time.Minute {
			t.Fatalf("after attempt %d it is due %v, now is %v", sent, next, r.now)
		}
		r.after(next.Sub(r.now))
		ds := r.take(10)
		if len(ds) != 1 || ds[0].Wake != wake || ds[0].Epoch != d.Epoch || ds[0].Attempt != sent+1 {
			t.Fatalf("attempt %d: %+v", sent+1, ds)
		}
		d, sent = ds[0], sent+1
	}
	if sent < 60 || sent > 70 {
		t.Errorf("it was asked %d times in an hour", sent)
	}
	if n := one[int](r, `select count(*)::int from rouse.delivery_attempts`); n > 20 {
		t.Errorf("%d attempts are kept", n)
	}
	s := r.state(e)
	equal(t, "mutex", s.State, "waking")
	equal(t, "epoch", s.Epoch, 1)
	r.hold()
	equal(t, "became", r.result(d, "done", 0), "released")
	s = r.state(e)
	equal(t, "mutex", s.State, "idle")
	equal(t, "cursor", s.Acked, snapshot)
	r.hold()
}
