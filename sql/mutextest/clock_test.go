package mutextest

import (
	"context"
	"testing"
	"time"
)

// TestWaitingOutlivesNoLease: a call that waits for a row until its lease has
// ended is refused, whatever time it was when it began to wait. (A predicate on
// the clock in the statement that waits would let it through.)
func TestWaitingOutlivesNoLease(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		gate string
		call func(*rig, entity) []call
		want string
	}{
		{"heartbeat", `select 1 from rouse.consumers where id = $1 for update`, calls("heartbeat", true), "lease_expired"},
		{"ack", `select 1 from rouse.consumers where id = $1 for update`, calls("ack", true), "lease_expired"},
		{"release", `select 1 from rouse.consumers where id = $1 for update`, calls("release", true), "lease_expired"},
		{"acquire by another", `select 1 from rouse.consumers where id = $1 for update`, calls("acquire", true), "granted"},
		{"write, mutex held", `select 1 from rouse.consumers where id = $1 for update`, write, "lease_expired"},
		{"write, stream held", `select 1 from rouse.streams where consumer_id = $1 for no key update`, write, "lease_expired"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.runner("mac", 0)
			gate, caller := newSession(t, r, "gate"), newSession(t, r, "caller")
			monitor := r.db.Conn(t)
			e := wakingEntity(r, 1)
			r.exec(`update rouse.consumers set lease_ttl_ms = 2500 where id = $1`, e.consumer)
			r.exec(`select rouse.claim_apply($1, true)`, opsJSON(e.acquire()))
			calls := c.call(r, e)
			ctx, cancel := context.WithTimeout(r.ctx(), scheduleTimeout)
			defer cancel()
			gate.exec(ctx, "begin")
			gate.do(ctx, call{"gate", `select count(*)::text from (` + c.gate + `) g`, []any{e.consumer}})
			if err := gate.done(ctx); err != nil {
				t.Fatal(err)
			}
			caller.do(ctx, calls[0])
			if err := caller.settled(ctx, monitor); err != nil {
				t.Fatal(err)
			}
			if caller.running == 0 {
				t.Fatalf("did not wait: %v %v", caller.out, caller.err)
			}
			if !one[bool](r, `select lease_expires_at > clock_timestamp() from rouse.consumers where id = $1`, e.consumer) {
				t.Fatal("the lease ended before the call waited: the machine is too slow for this test's lease")
			}
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for one[bool](r, `select lease_expires_at > clock_timestamp() from rouse.consumers where id = $1`, e.consumer) {
				<-tick.C
			}
			gate.exec(ctx, "commit")
			if err := gate.done(ctx); err != nil {
				t.Fatal(err)
			}
			if err := caller.done(ctx); err != nil {
				t.Fatal(err)
			}
			equal(t, "outcome", caller.out[0], c.want)
			r.hold()
		})
	}
}
