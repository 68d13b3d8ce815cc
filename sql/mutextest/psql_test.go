package mutextest

import (
	"fmt"
	"testing"
	"time"
)

// The calls of one claim, as somebody makes them from psql (docs/operations.md):
// by the consumer's name, one at a time, on the database's own clock.
func TestAClaimByHand(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("laptop", 0)
	r.now = one[time.Time](r, `select clock_timestamp()`)
	e := r.woken("/chat/1", toRunner("laptop"))
	var name, wake string
	var epoch int64
	if err := r.c.QueryRow(r.ctx(), `select name, wake_id::text, epoch from rouse.consumers where entity_url = '/chat/1'`).Scan(&name, &wake, &epoch); err != nil {
		t.Fatal(err)
	}
	ask := func(want, sql string, args ...any) {
		t.Helper()
		equal(t, sql, one[string](r, `select a.outcome || coalesce(' ' || a.next_wake::text, '') from rouse.`+sql+` a`, args...), want)
	}
	acks := func(position int64) string {
		return fmt.Sprintf(`[{"path":"/chat/1/main","position":%d}]`, position)
	}
	const (
		acquire   = `claim_acquire(1, $1, $2::uuid, $3, $4, $5)`
		heartbeat = `claim_heartbeat(1, $1, $2, $3::uuid)`
		ack       = `claim_ack(1, $1, $2, $3::uuid, $4::jsonb)`
		release   = `claim_release(1, $1, $2, $3::uuid, $4::jsonb)`
		failed    = `claim_release(1, $1, $2, $3::uuid, p_error => $4)`
	)
	ask("stale", heartbeat, name, epoch, wake)
	ask("not_owner", acquire, name, wake, mallory, "laptop", "one")
	ask("not_found", acquire, "none", wake, kyle, "laptop", "one")
	ask("granted", acquire, name, wake, kyle, "laptop", "one")
	ask("repeated", acquire, name, wake, kyle, "laptop", "one")
	ask("held", acquire, name, wake, kyle, "laptop", "two")
	ask("ok", heartbeat, name, epoch, wake)
	ask("stale", heartbeat, name, epoch+1, wake)
	ask("invalid_offset", ack, name, epoch, wake, acks(r.tail(e)+1))
	ask("unknown_stream", ack, name, epoch, wake, `[{"path":"/chat/2/main","position":0}]`)
	ask("ok", ack, name, epoch, wake, acks(r.tail(e)))
	equal(t, "acked", r.acked(e), r.tail(e))
	r.push(e)
	ask("released true", failed, name, epoch, wake, "boom")
	equal(t, "why", one[string](r, `select error from rouse.consumer_claims where status = 'failed'`), "boom")
	wake = one[string](r, `select wake_id::text from rouse.consumers where name = $1`, name)
	ask("granted", acquire, name, wake, kyle, "laptop", "three")
	ask("stale", release, name, epoch, wake, `[]`)
	ask("released false", release, name, epoch+1, wake, acks(r.tail(e)))
	ask("released false", release, name, epoch+1, wake, acks(r.tail(e)))
	ask("stale", heartbeat, name, epoch+1, wake)
}
