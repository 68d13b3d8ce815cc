package mutextest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rouse-run/rouse/sql/interleave"
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
			gate, caller := interleave.NewSession(t, r.db, "gate"), interleave.NewSession(t, r.db, "caller")
			monitor := r.db.Conn(t)
			// On a machine that is starved the schedule cannot be had at once: the
			// call comes too late, or waits longer than any lock is waited for.
			for n := 1; !outlive(t, r, n, gate, caller, monitor, c.gate, c.call, c.want); n++ {
				if n == 5 {
					t.Fatal("the machine is too slow for this test")
				}
			}
			r.hold()
		})
	}
}

// outlive lets one call wait past its lease; false when time was not with it.
func outlive(t *testing.T, r *rig, n int, gate, caller *interleave.Session, monitor *pgx.Conn, lock string, calls func(*rig, entity) []call, want string) bool {
	t.Helper()
	e := wakingEntity(r, n)
	r.exec(`update rouse.consumers set lease_ttl_ms = 1500 where id = $1`, e.consumer)
	r.exec(`select rouse.claim_apply($1, true)`, opsJSON(e.acquire()))
	live := func() bool {
		return one[bool](r, `select lease_expires_at > clock_timestamp() from rouse.consumers where id = $1`, e.consumer)
	}
	c := calls(r, e)
	ctx, cancel := context.WithTimeout(r.ctx(), 2*interleave.Timeout)
	defer cancel()
	caller.Out, caller.Err = nil, nil
	gate.Exec(ctx, "begin")
	gate.Do(ctx, sqlCall("gate", `select count(*)::text from (`+lock+`) g`, e.consumer))
	if err := gate.Done(ctx); err != nil {
		t.Fatal(err)
	}
	caller.Do(ctx, c[0])
	if err := caller.Settled(ctx, monitor); err != nil {
		t.Fatal(err)
	}
	waits, inTime := caller.Waits(), live()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for live() {
		<-tick.C
	}
	gate.Exec(ctx, "commit")
	if err := gate.Done(ctx); err != nil {
		t.Fatal(err)
	}
	err := caller.Done(ctx)
	var pe *pgconn.PgError
	if errors.As(err, &pe) && pe.Code == "55P03" || err == nil && (!waits || !inTime) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "outcome", caller.Out[0], want)
	return true
}
