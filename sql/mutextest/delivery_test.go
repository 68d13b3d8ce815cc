package mutextest

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

type due struct {
	Wake     string
	Consumer string
	Epoch    int64
	Attempt  int
	LeaseMS  int
}

func (r *rig) take(limit int) []due {
	r.t.Helper()
	rows, err := r.c.Query(r.ctx(), `select wake_id::text, consumer_name, epoch, attempt, lease_ms from rouse._delivery_lend($1, $1, '{}', $2)`, limit, r.now)
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[due])
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) result(d due, outcome string, retry time.Duration) string {
	r.t.Helper()
	return one[string](r, `select rouse._delivery_result(1, $1, $2, $3, $4, 200, 'text', $5)`, d.Wake, d.Attempt, outcome, retry.Milliseconds(), r.now)
}

// pushed is an entity for a webhook with one unread message, and its wake taken
// by a delivery worker.
func pushed(t *testing.T) (*rig, entity, due) {
	t.Helper()
	r := newRig(t)
	e := r.entity("/chat/hook", toWebhook)
	r.push(e)
	if got := r.route(e); got != "minted" {
		t.Fatalf("route: %s", got)
	}
	s := r.state(e)
	equal(t, "delivery", s.lastWake().Delivery, "queued")
	when(t, "due", s.lastWake().Next, r.now)
	equal(t, "the reaper does not look", s.Due == nil, true)
	ds := r.take(10)
	if len(ds) != 1 {
		t.Fatalf("%d due", len(ds))
	}
	equal(t, "attempt", ds[0].Attempt, 1)
	equal(t, "wake", ds[0].Wake, s.Wake)
	equal(t, "loan", ds[0].LeaseMS, int(lease.Milliseconds()))
	equal(t, "lent", len(r.take(10)), 0)
	return r, e, ds[0]
}

func (r *rig) attempts(e entity) string {
	return one[string](r, `select coalesce(string_agg(a.attempt || ':' || coalesce(a.outcome, 'open'), ' ' order by a.attempt), '')
		from rouse.delivery_attempts a join rouse.wake_notifications n using (service_id, wake_id) where n.consumer_id = $1`, e.name)
}

// A worker that dies leaves its wake due again when the loan ends.
func TestDeliveryLoanEnds(t *testing.T) {
	t.Parallel()
	r, e, d := pushed(t)
	r.after(lease - time.Millisecond)
	equal(t, "still lent", len(r.take(10)), 0)
	r.after(time.Millisecond)
	again := r.take(10)
	if len(again) != 1 {
		t.Fatalf("%d due after the loan", len(again))
	}
	equal(t, "wake", again[0].Wake, d.Wake)
	equal(t, "epoch", again[0].Epoch, d.Epoch)
	equal(t, "attempt", again[0].Attempt, 2)
	equal(t, "attempts", r.attempts(e), "1:open 2:open")
	// The first worker was only slow. Its answer is noted, the second one's loan stands.
	next := *r.state(e).lastWake().Next
	equal(t, "late answer", r.result(d, "retry", time.Second), "repeated")
	when(t, "next attempt", r.state(e).lastWake().Next, next)
	equal(t, "the same answer twice", r.result(d, "retry", time.Second), "repeated")
	equal(t, "attempts", r.attempts(e), "1:retry 2:open")
	r.hold()
}

func TestDeliveryBackoff(t *testing.T) {
	t.Parallel()
	r, e, d := pushed(t)
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60, 60} {
		equal(t, "became", r.result(d, "retry", 0), "retry")
		when(t, fmt.Sprintf("attempt %d is due", i+2), r.state(e).lastWake().Next, r.now.Add(want*time.Second))
		r.after(want*time.Second - time.Millisecond)
		equal(t, "early", len(r.take(1)), 0)
		r.after(time.Millisecond)
		ds := r.take(1)
		if len(ds) != 1 || ds[0].Attempt != i+2 {
			t.Fatalf("attempt %d: %v", i+2, ds)
		}
		d = ds[0]
	}
	equal(t, "became", r.result(d, "retry", 7*time.Minute), "retry")
	when(t, "the receiver's wish", r.state(e).lastWake().Next, r.now.Add(7*time.Minute))
	equal(t, "mutex", r.state(e).State, "waking")
	equal(t, "epoch", r.state(e).Epoch, 1)
	r.hold()
}

// Decision 4: accepted means that the receiver will call back; should it not,
// the same wake is sent again.
func TestDeliveryAccepted(t *testing.T) {
	t.Parallel()
	r, e, d := pushed(t)
	equal(t, "became", r.result(d, "accepted", 0), "delivered")
	s := r.state(e)
	equal(t, "delivery", s.lastWake().Delivery, "delivered")
	when(t, "sent again", s.lastWake().Next, r.now.Add(lease))
	r.hold()
	r.after(lease)
	ds := r.take(1)
	equal(t, "the same wake", len(ds) == 1 && ds[0].Wake == d.Wake && ds[0].Attempt == 2, true)
	r.want("not_owner", op{"op": "acquire", "wake": d.Wake, "holder": mallory})
	g := r.want("granted", op{"op": "acquire", "wake": d.Wake, "holder": "claim-token", "proved": true})
	equal(t, "next", r.state(e).lastWake().Next == nil, true)
	equal(t, "answer after the claim", r.result(ds[0], "retry", 0), "claimed")
	equal(t, "next", r.state(e).lastWake().Next == nil, true)
	r.want("released", e.call("release", g.Epoch, g.Wake).with("acks", e.acks(r.tail(e))))
	r.after(time.Hour)
	equal(t, "due", len(r.take(10)), 0)
	r.hold()
}

// Decision 4: done acquires, acks the snapshot and releases.
func TestDeliveryDone(t *testing.T) {
	t.Parallel()
	r, e, d := pushed(t)
	snapshot := r.tail(e)
	equal(t, "became", r.result(d, "done", 0), "released")
	s := r.state(e)
	equal(t, "mutex", s.State, "idle")
	equal(t, "cursor", s.Acked, snapshot)
	equal(t, "claim", s.lastClaim().Status, "released")
	equal(t, "holder", s.lastClaim().Holder, "transport:webhook")
	equal(t, "wake", s.lastWake().Claim, "completed")
	equal(t, "status", s.EntityStatus, "idle")
	r.hold()

	// What came after the snapshot is left, and wakes again.
	r.push(e)
	r.route(e)
	d = r.take(1)[0]
	snapshot = r.tail(e)
	r.push(e)
	r.route(e)
	equal(t, "became", r.result(d, "done", 0), "released")
	s = r.state(e)
	equal(t, "mutex", s.State, "waking")
	equal(t, "cursor", s.Acked, snapshot)
	equal(t, "epoch", s.Epoch, d.Epoch+1)
	next := r.take(1)
	equal(t, "due at once", len(next) == 1 && next[0].Epoch == d.Epoch+1, true)
	r.hold()

	// A receiver that acked further through the callback, and then says done.
	g := r.want("granted", op{"op": "acquire", "wake": next[0].Wake, "holder": "claim-token", "proved": true})
	r.push(e)
	r.want("ok", e.call("ack", g.Epoch, g.Wake).with("acks", e.acks(r.tail(e))))
	equal(t, "became", r.result(next[0], "done", 0), "released")
	equal(t, "cursor", r.acked(e), r.tail(e))
	equal(t, "mutex", r.state(e).State, "idle")
	r.hold()

	// Done after the callback has released already.
	r.push(e)
	r.route(e)
	d = r.take(1)[0]
	g = r.want("granted", op{"op": "acquire", "wake": d.Wake, "holder": "claim-token", "proved": true})
	r.want("released", e.call("release", g.Epoch, g.Wake).with("acks", e.acks(r.tail(e))))
	equal(t, "became", r.result(d, "done", 0), "resolved")
	r.hold()

	// Done after the receiver's lease has lapsed: its work is not trusted.
	r.push(e)
	r.route(e)
	d = r.take(1)[0]
	before := r.acked(e)
	r.want("granted", op{"op": "acquire", "wake": d.Wake, "holder": "claim-token", "proved": true})
	r.after(lease)
	equal(t, "became", r.result(d, "done", 0), "lease_expired")
	s = r.state(e)
	equal(t, "mutex", s.State, "waking")
	equal(t, "cursor", s.Acked, before)
	r.hold()
}

func TestDeliveryPermanent(t *testing.T) {
	t.Parallel()
	r, e, d := pushed(t)
	equal(t, "became", r.result(d, "permanent", 0), "failed")
	s := r.state(e)
	equal(t, "delivery", s.lastWake().Delivery, "failed")
	equal(t, "next", s.lastWake().Next == nil, true)
	equal(t, "mutex", s.State, "waking")
	equal(t, "last error", s.Dispatch.LastError != nil, true)
	r.after(24 * time.Hour)
	equal(t, "due", len(r.take(10)), 0)
	equal(t, "reap", r.reap(), reaped{})
	// A new message asks the receiver once more.
	r.push(e)
	equal(t, "route", r.route(e), "coalesced")
	again := r.take(10)
	equal(t, "asked again", len(again), 1)
	equal(t, "the same wake", again[0].Wake, d.Wake)
	equal(t, "became", r.result(again[0], "permanent", 0), "failed")
	r.hold()
	// The wake can still be claimed by whoever has its token.
	r.want("granted", op{"op": "acquire", "wake": d.Wake, "holder": "claim-token", "proved": true})
	r.hold()
}

// Answers for a wake that is over change nothing but the attempt.
func TestDeliveryAnswersAfterTheEnd(t *testing.T) {
	t.Parallel()
	for _, outcome := range []string{"accepted", "done", "retry", "permanent", "unknown"} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			r, e, d := pushed(t)
			r.exec(`select rouse.entity_signal(1, $1, $2, 'SIGKILL', 'k', null, null)`, e.url, kyle)
			before := r.state(e)
			equal(t, "became", r.result(d, outcome, 0), "resolved")
			after := r.state(e)
			equal(t, "delivery", after.lastWake().Delivery, before.lastWake().Delivery)
			equal(t, "next", after.lastWake().Next == nil, true)
			equal(t, "mutex", after.State, "stopped")
			equal(t, "attempts", r.attempts(e), "1:"+outcome)
			equal(t, "again", r.result(d, outcome, 0), "repeated")
			equal(t, "no such attempt", r.result(due{Wake: d.Wake, Attempt: 9}, outcome, 0), "repeated")
			equal(t, "no such wake", r.result(due{Wake: strange, Attempt: 1}, outcome, 0), "repeated")
			r.hold()
		})
	}
}

func TestDeliveryTakeIsBoundedAndInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 5 {
		e := r.entity(fmt.Sprintf("/chat/%d", i), toWebhook)
		r.push(e)
		r.route(e)
		r.after(time.Millisecond)
	}
	equal(t, "first", len(r.take(2)), 2)
	equal(t, "second", len(r.take(2)), 2)
	equal(t, "third", len(r.take(2)), 1)
	equal(t, "fourth", len(r.take(2)), 0)
	r.hold()
}
