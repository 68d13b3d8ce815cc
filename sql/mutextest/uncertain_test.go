package mutextest

import (
	"testing"
	"time"
)

func (r *rig) uncertain(d due) bool {
	r.t.Helper()
	return one[bool](r, `select rouse.delivery_uncertain(1, $1, $2)`, d.Wake, d.Attempt)
}

// Uncertainty is kept, not retried.
func TestAnUnknownDeliveryIsNotSentAgain(t *testing.T) {
	t.Parallel()
	r, e, d := pushed(t)
	equal(t, "the first attempt is certain", r.uncertain(d), false)
	equal(t, "became", r.result(d, "unknown", 0), "unknown")
	equal(t, "attempts", r.attempts(e), "1:unknown")
	w := r.state(e).lastWake()
	equal(t, "delivery", w.Delivery, "failed")
	equal(t, "never due", w.Next == nil, true)
	r.after(100 * lease)
	equal(t, "due", len(r.take(10)), 0)
	// It can be claimed all the same, by whoever got it.
	r.want("granted", op{"op": "acquire", "wake": d.Wake, "holder": "claim-token", "proved": true})
}

// A gateway that dies in the middle of a delivery leaves an attempt that nobody
// answers.
func TestAnAttemptThatWasNeverAnsweredIsUncertain(t *testing.T) {
	t.Parallel()
	r, e, d := pushed(t)
	r.after(lease)
	again := r.take(10)
	if len(again) != 1 || again[0].Attempt != 2 {
		t.Fatalf("got %+v", again)
	}
	for range 2 { // the answer to the first may have been lost
		equal(t, "the second attempt is uncertain", r.uncertain(again[0]), true)
	}
	equal(t, "attempts", r.attempts(e), "1:unknown 2:open")
	equal(t, "a late answer", r.result(d, "accepted", 0), "repeated")
	equal(t, "became", r.result(again[0], "unknown", 0), "unknown")
	// A person has it delivered again: that attempt is certain.
	equal(t, "redeliver", one[string](r, `select rouse._wake_redeliver(1, $1, 'user:kyle', $2)`, d.Wake, r.now), "redelivered")
	third := r.take(10)
	if len(third) != 1 || third[0].Attempt != 3 {
		t.Fatalf("got %+v", third)
	}
	equal(t, "the third attempt is certain", r.uncertain(third[0]), false)
	equal(t, "became", r.result(third[0], "accepted", -time.Millisecond), "delivered")
	w := r.state(e).lastWake()
	equal(t, "delivery", w.Delivery, "delivered")
	equal(t, "never due again by itself", w.Next == nil, true)
}
