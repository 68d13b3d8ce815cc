package mutextest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// invariants are queries that find what must never be there. Each answers the
// consumers it is broken for.
var invariants = []struct{ name, sql string }{
	{"a claimed mutex has its one active claim, with the same epoch, wake, holder and lease; no other has one",
		`select c.id from rouse.consumers c
		  left join rouse.consumer_claims k on k.service_id = c.service_id and k.consumer_id = c.name and k.status = 'active'
		 where (c.state = 'claimed') <> (k.epoch is not null)
		    or k.epoch <> c.epoch or k.wake_id <> c.wake_id or k.lease_expires_at <> c.lease_expires_at
		    or k.epoch is not null and (k.holder, k.runner_id) is distinct from (c.holder, c.runner_id)`},
	{"a waking or claimed mutex has exactly its wake open; no other has one",
		`select c.id from rouse.consumers c
		  left join rouse.wake_notifications n on n.service_id = c.service_id and n.consumer_id = c.name and n.resolved_at is null
		 where (c.state in ('waking', 'claimed')) <> (n.wake_id is not null)
		    or n.wake_id <> c.wake_id or n.epoch <> c.epoch
		    or (n.claim_status = 'claimed') <> (c.state = 'claimed')`},
	{"no epoch beyond the mutex's, and none twice",
		`select c.id from rouse.consumers c
		   join rouse.wake_notifications n on n.service_id = c.service_id and n.consumer_id = c.name
		  group by c.id, c.epoch having max(n.epoch) <> c.epoch or count(distinct n.epoch) <> count(*)`},
	{"a claim names the wake of its epoch",
		`select c.id from rouse.consumers c
		   join rouse.consumer_claims k on k.service_id = c.service_id and k.consumer_id = c.name
		   left join rouse.wake_notifications n on n.service_id = k.service_id and n.wake_id = k.wake_id
		  where n.consumer_id is distinct from c.name or n.epoch is distinct from k.epoch
		     or n.claim_status is distinct from case k.status when 'active' then 'claimed' when 'expired' then 'expired' else 'completed' end`},
	{"a wake that nobody claimed is resolved only by being superseded",
		`select c.id from rouse.consumers c join rouse.wake_notifications n on n.service_id = c.service_id and n.consumer_id = c.name
		  where n.claim_status = 'unclaimed' and (n.resolved_at is not null) <> (n.delivery_status = 'superseded')`},
	{"nothing is due of a wake that is claimed or resolved",
		`select c.id from rouse.consumers c join rouse.wake_notifications n on n.service_id = c.service_id and n.consumer_id = c.name
		  where n.next_attempt_at is not null and (n.resolved_at is not null or n.claim_status <> 'unclaimed')`},
	{"the dispatch state mirrors the mutex",
		`select c.id from rouse.consumers c join rouse.entity_dispatch_state d on d.service_id = c.service_id and d.entity_url = c.entity_url
		  where d.outstanding_wake_id is distinct from case when c.state = 'waking' then c.wake_id end
		     or d.active_epoch is distinct from case when c.state = 'claimed' then c.epoch end
		     or d.active_consumer_id is distinct from case when c.state = 'claimed' then c.name end
		     or d.active_runner_id is distinct from case when c.state = 'claimed' then c.runner_id end
		     or d.active_claimed_at is distinct from case when c.state = 'claimed' then c.claimed_at end
		     or d.active_lease_expires_at is distinct from case when c.state = 'claimed' then c.lease_expires_at end
		     or (d.outstanding_wake_target is null) <> (d.outstanding_wake_id is null)`},
	// A paused entity that is resumed over a lapsed claim is idle before the
	// reaper has come by.
	{"the entity's status fits the mutex",
		`select c.id from rouse.consumers c join rouse.entities e on e.consumer_id = c.id
		  where case c.state when 'claimed' then e.status not in ('running', 'paused', 'stopping')
		                                     and not (e.status = 'idle' and c.lease_expires_at <= e.updated_at)
		                     when 'stopped' then e.status not in ('stopped', 'killed')
		                     else e.status not in ('idle', 'paused') end
		     or (e.status = 'paused' or c.parked_at is not null) <> c.paused and e.status not in ('stopping', 'stopped', 'killed')`},
	{"the cursor is within the stream",
		`select k.consumer_id from rouse.consumer_streams k join rouse.streams s on s.id = k.stream_id where k.acked > s.tail or k.acked < 0`},
	// What has no target, and can never have one, need not be looked for.
	{"whatever is pending is flagged for the scan",
		`select k.consumer_id from rouse.consumer_streams k join rouse.streams s on s.id = k.stream_id
		   join rouse.consumers c on c.id = k.consumer_id
		   join rouse.entities e on e.consumer_id = c.id and e.dispatch_policy -> 'targets' -> 0 is not null
		  where s.actionable > k.acked and not s.pending and s.path is not null and c.state <> 'stopped'`},
	{"the reaper looks no later than the lease ends",
		`select c.id from rouse.consumers c where c.state = 'claimed' and c.due_at > c.lease_expires_at`},
	{"the reaper looks no later than an unclaimed wake is told again",
		`select c.id from rouse.consumers c join rouse.wake_notifications n on n.service_id = c.service_id and n.wake_id = c.wake_id
		  where c.state = 'waking' and (c.runner_id is not null or c.pool_id is not null)
		    and c.due_at > coalesce(c.look_at, c.told_at + make_interval(secs => c.wake_ttl_ms / 1000.0 * (1 << least(greatest(n.attempts - 3, 0), 5))))`},
	{"whatever waits or is held has a due time",
		`select c.id from rouse.consumers c where c.state in ('waking', 'claimed') and c.due_at is null`},
	{"a wake is for whom its consumer says, a claim is its runner's and its pool's",
		`select c.id from rouse.consumers c
		   left join rouse.wake_notifications n on n.service_id = c.service_id and n.wake_id = c.wake_id
		   left join rouse.consumer_claims k on k.service_id = c.service_id and k.consumer_id = c.name and k.epoch = c.epoch
		  where case c.state when 'waking' then (n.target_runner_id, n.target_pool_id, n.target_index) is distinct from (c.runner_id, c.pool_id, c.target_index)
		                     when 'claimed' then (k.runner_id, k.pool_id) is distinct from (c.runner_id, c.pool_id)
		                                         or coalesce(n.target_runner_id <> c.runner_id, false) or n.target_pool_id is distinct from c.pool_id
		                     when 'idle' then c.runner_id is not null or c.pool_id is not null end`},
	{"what is parked is told nobody and held by nobody",
		`select c.id from rouse.consumers c where c.parked_at is not null and (c.state <> 'idle' or not c.paused)`},
	{"no lease goes beyond the deadline of a handover",
		`select c.id from rouse.consumers c where c.release_by is not null and (c.state <> 'claimed' or c.lease_expires_at > c.release_by)`},
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// allInvariants is one query for all of them.
var allInvariants = func() string {
	parts := make([]string, len(invariants))
	for i, v := range invariants {
		parts[i] = fmt.Sprintf(`select %d as invariant, q.id from (%s) q (id)`, i, v.sql)
	}
	return strings.Join(parts, " union all ")
}()

// broken says which invariant does not hold, or "".
func broken(ctx context.Context, q querier) (string, error) {
	rows, err := q.Query(ctx, allInvariants)
	if err != nil {
		return "", err
	}
	type hit struct {
		Invariant int
		Consumer  int64
	}
	hits, err := pgx.CollectRows(rows, pgx.RowToStructByPos[hit])
	if err != nil || len(hits) == 0 {
		return "", err
	}
	return fmt.Sprintf("%s: broken for consumer %d (%d findings in all)", invariants[hits[0].Invariant].name, hits[0].Consumer, len(hits)), nil
}

// hold fails the test unless every invariant holds.
func (r *rig) hold() {
	r.t.Helper()
	why, err := broken(r.ctx(), r.c)
	if err != nil {
		r.t.Fatal(err)
	}
	if why != "" {
		r.t.Fatal(why)
	}
}

// TestInvariantsSeeDamage damages each thing an invariant looks at: a check
// that cannot fail proves nothing.
func TestInvariantsSeeDamage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, damage string }{
		{"claim row", `update rouse.consumer_claims set status = 'released'`},
		{"lease mirror", `update rouse.consumer_claims set lease_expires_at = lease_expires_at + interval '1 s'`},
		{"wake resolved", `update rouse.wake_notifications set resolved_at = clock_timestamp()`},
		{"epoch", `update rouse.consumers set epoch = epoch + 1`},
		{"dispatch", `update rouse.entity_dispatch_state set active_epoch = 99`},
		{"status", `update rouse.entities set status = 'idle'`},
		{"cursor", `update rouse.consumer_streams set acked = 1000000`},
		{"flag", `update rouse.streams set pending = false`},
		{"due", `update rouse.consumers set due_at = 'infinity'`},
		{"runner", `update rouse.consumers set runner_id = 'box'`},
		{"pool", `update rouse.consumer_claims set pool_id = 'box'`},
		{"parked", `update rouse.consumers set paused = true, parked_at = clock_timestamp(), parked_reason = 'x'`},
		{"deadline", `update rouse.consumers set release_by = clock_timestamp()`},
		{"next attempt", `update rouse.wake_notifications set next_attempt_at = clock_timestamp()`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.runner("mac", 0)
			e := r.entity("/chat/a", toRunner("mac"))
			r.push(e)
			r.route(e)
			r.want("granted", e.acquire())
			r.hold()
			r.exec(c.damage)
			if why, err := broken(r.ctx(), r.c); err != nil || why == "" {
				t.Fatalf("the damage is not seen (%v)", err)
			}
		})
	}
}
