package mutextest

import (
	"fmt"
	"testing"
)

// askedToHandOver is held by mac, moved to box, and its deadline is over.
func askedToHandOver(r *rig, n int) entity {
	e := claimedEntity(r, n)
	r.exec(`select rouse.entity_move(1, $1, $2, false, $3::jsonb, 30000, null)`, e.url, kyle, toRunner("box"))
	r.exec(`update rouse.consumers set release_by = release_by - interval '1 minute', lease_expires_at = lease_expires_at - interval '1 minute',
		due_at = due_at - interval '1 minute' where id = $1`, e.consumer)
	r.exec(`update rouse.consumer_claims k set lease_expires_at = c.lease_expires_at from rouse.consumers c where c.id = $1 and k.consumer_id = c.name`, e.consumer)
	r.exec(`update rouse.entity_dispatch_state d set active_lease_expires_at = c.lease_expires_at from rouse.consumers c where c.id = $1 and d.entity_url = c.entity_url`, e.consumer)
	return e
}

// sentUntold is for the pool coding, and nobody has been told of its work.
func sentUntold(r *rig, n int) entity {
	pooled(0)(r, n)
	e := r.entity(fmt.Sprintf("/chat/%d/untold", n), toPool("coding"))
	r.push(e)
	return e
}

// TestHandoverInterleavings takes what ends a claim, or takes a pool away, and
// what needs it, through all their interleavings.
func TestHandoverInterleavings(t *testing.T) {
	t.Parallel()
	drop := statement("delete", `select outcome from rouse.pool_delete(1, 'coding', $2, $1 = '')`, kyle)
	for _, wait := range []bool{true, false} {
		for _, p := range []pair{
			{name: "heard of at the deadline, reap", setup: askedToHandOver, a: calls("heartbeat", wait), b: reap,
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "lease_expired | 1 0", "stale | 1 0", "lease_expired | 0 0")
					r.exec(`select rouse.claim_reap(100)`)
					equal(t, "goes to", r.state(e).State+" "+r.state(e).Runner, "waking box")
				}},
			{name: "released at the deadline, reap", setup: askedToHandOver, a: calls("release", wait), b: reap,
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "lease_expired | 1 0", "lease_expired | 0 0")
					equal(t, "goes to", r.state(e).State+" "+r.state(e).Runner, "waking box")
				}},
			{name: "moved, moved", setup: func(r *rig, n int) entity { r.pool("coding", 0, 0); return claimedEntity(r, n) }, a: moveTo(toRunner("box"), 1000), b: moveTo(toPool("coding"), 500),
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "moved | moved")
					equal(t, "history", one[string](r, `select string_agg(revision::text, ' ' order by revision) from rouse.entity_policy_history where entity_url = $1`, e.url), "1 2")
				}},
			{name: "the pool goes, its first wake is made", setup: sentUntold, a: routeNow, b: drop,
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "minted | deleted", "no_target | deleted", "retry | deleted")
					if a[0] == "retry" {
						r.exec(`select rouse.dispatch_route(array[$1::bigint], array[$2::bigint])`, e.stream, r.tail(e))
					}
					// Told before or after: its work is parked, at the latest when it is looked at.
					r.exec(`update rouse.consumers set due_at = clock_timestamp() where state = 'waking' and id = $1`, e.consumer)
					r.exec(`select rouse.claim_reap(100)`)
					equal(t, "parked", r.parked(e), "idle t no_target")
				}},
			{name: "redriven, routed", b: routeNow, a: statement("redrive", `select rouse.entity_redrive(1, $1, $2, false)`, kyle),
				setup: func(r *rig, n int) entity {
					e := r.entity(fmt.Sprintf("/chat/%d", n), toRunner("mac"))
					r.push(e)
					r.exec(`select rouse._consumer_park(c, 'unclaimed', clock_timestamp()) from rouse.consumers c where id = $1`, e.consumer)
					r.push(e)
					return e
				},
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "redriven | idle", "redriven | coalesced", "redriven | retry")
					s := r.state(e)
					equal(t, "one wake", fmt.Sprint(s.State, " ", len(s.Wakes)), "waking 1")
				}},
			{name: "redriven, redriven with all", a: statement("redrive", `select rouse.entity_redrive(1, $1, $2, false)`, kyle),
				b: statement("all", `select rouse.parked_redrive(1, $2, $1 = '', null, null, 10)::text`, kyle),
				setup: func(r *rig, n int) entity {
					e := wakingEntity(r, n)
					r.exec(`select rouse._consumer_park(c, 'unclaimed', clock_timestamp()) from rouse.consumers c where id = $1`, e.consumer)
					return e
				},
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "redriven | 0", "not_parked | 1")
					equal(t, "woken", r.state(e).State, "waking")
				}},
			{name: "moved, redriven", a: moveTo(toRunner("box"), 0), b: statement("redrive", `select rouse.entity_redrive(1, $1, $2, false)`, kyle),
				setup: func(r *rig, n int) entity {
					e := wakingEntity(r, n)
					r.exec(`select rouse._consumer_park(c, 'unclaimed', clock_timestamp()) from rouse.consumers c where id = $1`, e.consumer)
					return e
				},
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "moved | redriven", "moved | not_parked")
					equal(t, "goes to", r.state(e).Runner, "box")
				}},
		} {
			p.gates = poolGates
			p.name += fmt.Sprintf(", wait %v", wait)
			t.Run(p.name, p.run)
		}
	}
}
