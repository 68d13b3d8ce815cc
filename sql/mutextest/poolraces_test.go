package mutextest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var poolGates = append(slices.Clone(usualGates),
	`select 1 from rouse.worker_pools where id = 'coding' for no key update`,
	`select 1 from rouse.streams where path = 'worker-pools/coding/wake' for no key update`)

// pooled sets up a schedule: the pool coding of mac and box with that limit in
// all, what earlier schedules left over stopped, and an entity with a wake for
// it, and one more at its url + /x.
func pooled(total int) func(r *rig, n int) entity {
	return func(r *rig, n int) entity {
		r.exec(`select rouse.entity_signal(1, url, created_by, 'SIGKILL', 'k', null, null) from rouse.entities where status <> 'killed'`)
		r.pool("coding", 0, total)
		r.exec(`update rouse.worker_pools set max_total_claims = nullif($1, 0)`, total)
		for _, m := range []string{"mac", "box"} {
			r.member("coding", m, kyle, "active", false)
			r.exec(`select rouse.runner_heartbeat(1, $1, $2, false, 3600000, null, null)`, m, kyle)
		}
		e := r.entity(fmt.Sprintf("/chat/%d", n), toPool("coding"))
		x := r.entity(fmt.Sprintf("/chat/%d/x", n), toPool("coding"))
		for _, e := range []entity{e, x} {
			r.push(e)
			r.exec(`select rouse.dispatch_route(array[$1::bigint], array[$2::bigint])`, e.stream, r.tail(e))
		}
		return e
	}
}

// holding is pooled with the second entity held by box.
func holding(total int) func(r *rig, n int) entity {
	return func(r *rig, n int) entity {
		e := pooled(total)(r, n)
		r.exec(`select rouse.claim_apply($1, true)`, opsJSON(second(r, e).by("box")))
		return e
	}
}

func byRunner(runner string, wait bool) func(*rig, entity) []call {
	return func(_ *rig, e entity) []call { return []call{opCall(e.by(runner), wait)} }
}

// ofSecond is a call about the schedule's second entity.
func ofSecond(f func(r *rig, x entity) call) func(*rig, entity) []call {
	return func(r *rig, e entity) []call {
		if e.consumer == 0 {
			return stub
		}
		return []call{f(r, second(r, e))}
	}
}

func statement(name, sql string, args ...any) func(*rig, entity) []call {
	return func(_ *rig, e entity) []call { return []call{sqlCall(name, sql, append([]any{e.url}, args...)...)} }
}

func moveTo(policy string, deadline int) func(*rig, entity) []call {
	return statement("move", `select outcome from rouse.entity_move(1, $1, $2, false, $3::jsonb, $4, null)`, kyle, policy, deadline)
}

// TestPoolInterleavings takes pairs of sessions around a pool, a move and a
// redrive through all their interleavings.
func TestPoolInterleavings(t *testing.T) {
	t.Parallel()
	claims := func(r *rig, e entity) int {
		return one[int](r, `select count(*)::int from rouse.consumer_claims where status = 'active' and entity_url in ($1, $1 || '/x')`, e.url)
	}
	for _, wait := range []bool{true, false} {
		for _, p := range []pair{
			{name: "two members, one wake", setup: pooled(0), a: byRunner("mac", wait), b: byRunner("box", wait),
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "granted | held", "held | granted")
				}},
			{name: "two members, two wakes, one slot", setup: pooled(1), a: byRunner("mac", wait),
				b: ofSecond(func(_ *rig, x entity) call { return opCall(x.by("box"), wait) }),
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "granted | pool_full", "pool_full | granted")
					equal(t, "claims", claims(r, e), 1)
				}},
			{name: "two wakes, one slot, by seeking", setup: pooled(1),
				a: func(*rig, entity) []call {
					return []call{opCall(op{"op": "acquire", "runner": "mac", "holder": kyle}, wait)}
				},
				b: func(*rig, entity) []call {
					return []call{opCall(op{"op": "acquire", "runner": "box", "holder": kyle}, wait)}
				},
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					equal(t, "claims", claims(r, e), 1)
					oneOf(t, a, b, "granted | pool_full", "pool_full | granted", "granted | no_work", "no_work | granted", "granted | held", "held | granted",
						"granted | stale", "stale | granted")
				}},
			{name: "another takes the id of a pool that goes", setup: pooled(0),
				a: statement("delete", `select outcome from rouse.pool_delete(1, 'coding', $2, false) where $1 <> ''`, kyle),
				b: statement("put", `select outcome from rouse.pool_put(1, 'coding', $2, false, $2, null, null, null, null, false) where $1 <> ''`, mallory),
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "deleted | forbidden")
				}},
			{name: "its owner changes a pool that goes", setup: pooled(0),
				a: statement("delete", `select outcome from rouse.pool_delete(1, 'coding', $2, false) where $1 <> ''`, kyle),
				b: statement("put", `select outcome from rouse.pool_put(1, 'coding', $2, false, $2, null, null, null, null, false) where $1 <> ''`, kyle),
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "deleted | created", "deleted | updated")
					equal(t, "pools", one[int](r, `select count(*)::int from rouse.worker_pools where id = 'coding'`), map[string]int{"created": 1}[b[0]])
				}},
			{name: "the slot is freed while it is asked for", setup: holding(1), a: byRunner("mac", wait),
				b: ofSecond(func(r *rig, x entity) call { return opCall(r.current(x, "release"), wait) }),
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "granted | released", "pool_full | released")
					// Who was refused hears of it again: at once, or when claim_reap looks.
					if s := r.state(e); a[0] == "pool_full" && s.lastWake().Attempts < 2 {
						r.exec(`update rouse.consumers set look_at = clock_timestamp(), due_at = clock_timestamp() where look_at is not null and id = $1`, e.consumer)
						r.exec(`select rouse.claim_reap(100)`)
						equal(t, "told", r.state(e).lastWake().Attempts, 2)
					}
				}},
			{name: "the member is drained", setup: pooled(1), a: byRunner("mac", wait),
				b: statement("drain", `select outcome from rouse.pool_member_put(1, 'coding', 'mac', $2, false, 'disabled', $1 = '')`, kyle),
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "granted | disabled", "not_member | disabled")
				}},
			{name: "the pool is deleted", setup: pooled(1), a: byRunner("mac", wait),
				b: statement("delete", `select outcome from rouse.pool_delete(1, 'coding', $2, $1 = '')`, kyle),
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "granted | deleted", "pool_disabled | deleted")
				}},
			{name: "moved while it is asked for", setup: pooled(0), a: byRunner("mac", wait), b: moveTo(toRunner("box"), 30000),
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "granted | moved", "runner_mismatch | moved")
					equal(t, "deadline", one[bool](r, `select (release_by is not null) = (state = 'claimed') from rouse.consumers where id = $1`, e.consumer), true)
				}},
			{name: "moved while it is released", setup: claimedEntity, a: calls("release", wait), b: moveTo(toRunner("box"), 30000),
				check: func(t *testing.T, r *rig, e entity, a, b []string) { oneOf(t, a, b, "released | moved") }},
			{name: "fenced while it is released", setup: claimedEntity, a: calls("release", wait), b: moveTo(toRunner("box"), 0),
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "released | moved", "lease_expired | moved")
				}},
			{name: "moved while it is heard of", setup: claimedEntity, a: calls("heartbeat", wait), b: moveTo(toRunner("box"), 1000),
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "ok | moved")
					equal(t, "lease", one[bool](r, `select lease_expires_at <= release_by from rouse.consumers where id = $1`, e.consumer), true)
				}},
			{name: "it moves on while it is asked for", a: byRunner("mac", wait), b: reap,
				setup: func(r *rig, n int) entity {
					e := r.entity(fmt.Sprintf("/chat/%d", n), `{"targets":[{"type":"runner","runnerId":"mac","when":{"unclaimedAfterMs":1}},{"type":"runner","runnerId":"box"}]}`)
					r.push(e)
					r.exec(`select rouse.dispatch_route(array[$1::bigint], array[$2::bigint])`, e.stream, r.tail(e))
					r.exec(`update rouse.wake_notifications set created_at = created_at - interval '1 minute' where consumer_id = $1`, e.name)
					r.exec(`update rouse.consumers set due_at = due_at - interval '1 minute' where id = $1`, e.consumer)
					return e
				},
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "granted | 0 0", "runner_mismatch | 0 0")
					s := r.state(e)
					equal(t, "one", s.Runner, map[string]string{"granted": "mac", "runner_mismatch": "box"}[a[0]])
				}},
			{name: "given up while it is asked for", a: byRunner("mac", wait), b: reap,
				setup: func(r *rig, n int) entity {
					e := r.entity(fmt.Sprintf("/chat/%d", n), `{"targets":[{"type":"runner","runnerId":"mac"}],"giveUp":{"afterMs":1}}`)
					r.push(e)
					r.exec(`select rouse.dispatch_route(array[$1::bigint], array[$2::bigint])`, e.stream, r.tail(e))
					r.exec(`update rouse.entity_dispatch_state set pending_since = pending_since - interval '1 minute' where entity_url = $1`, e.url)
					r.exec(`update rouse.consumers set due_at = due_at - interval '1 minute' where id = $1`, e.consumer)
					return e
				},
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "granted | 0 0", "paused | 0 0")
					equal(t, "parked", one[bool](r, `select parked_at is not null from rouse.consumers where id = $1`, e.consumer), a[0] == "paused")
				}},
			{name: "all redriven while one is", b: statement("redrive", `select rouse.entity_redrive(1, $1, $2, false)`, kyle),
				setup: func(r *rig, n int) entity {
					r.exec(`select rouse.entity_signal(1, url, created_by, 'SIGKILL', 'k', null, null) from rouse.entities where status <> 'killed'`)
					e := r.entity(fmt.Sprintf("/chat/%d", n), toRunner("mac"))
					r.push(e)
					r.exec(`select rouse._consumer_park(c, 'unclaimed', clock_timestamp()) from rouse.consumers c where id = $1`, e.consumer)
					return e
				},
				a: func(*rig, entity) []call {
					return []call{sqlCall("all", `select rouse.parked_redrive(1, $1, false, null, null, 100)::text`, kyle)}
				},
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					oneOf(t, a, b, "1 | not_parked", "0 | redriven")
					equal(t, "woken", r.state(e).Epoch, 1)
				}},
			{name: "redriven while it is sent more", b: push,
				setup: func(r *rig, n int) entity {
					e := r.entity(fmt.Sprintf("/chat/%d", n), toRunner("mac"))
					r.push(e)
					r.exec(`select rouse._consumer_park(c, 'unclaimed', clock_timestamp()) from rouse.consumers c where id = $1`, e.consumer)
					return e
				},
				a: statement("redrive", `select rouse.entity_redrive(1, $1, $2, false)`, kyle),
				check: func(t *testing.T, r *rig, e entity, a, b []string) {
					equal(t, "redriven", a[0], "redriven")
					equal(t, "woken", r.state(e).State, "waking")
				}},
		} {
			p.gates = poolGates
			p.name += fmt.Sprintf(", wait %v", wait)
			t.Run(p.name, p.run)
		}
	}
}

// TestManySessionsOnePool: twenty runners on twenty sessions race for the wakes
// of one pool with limits, each naming the wakes it hears of in an order of its
// own and seeking now and then. Every wake is granted once, no limit is ever
// passed, and all is done in the end.
func TestManySessionsOnePool(t *testing.T) {
	t.Parallel()
	const runners, work, perRunner, total = 20, 120, 1, 9
	r := newRig(t)
	r.pool("coding", perRunner, total)
	var es []entity
	for i := range runners {
		id := fmt.Sprintf("m%d", i)
		r.runner(id, 0)
		r.exec(`select rouse.runner_heartbeat(1, $1, $2, false, 3600000, null, null)`, id, kyle)
		r.member("coding", id, kyle, "active", false)
	}
	for i := range work {
		e := r.entity(fmt.Sprintf("/chat/%d", i), toPool("coding"))
		r.push(e)
		r.exec(`select rouse.dispatch_route(array[$1::bigint], array[$2::bigint])`, e.stream, r.tail(e))
		es = append(es, e)
	}
	left := func() int {
		return one[int](r, `select count(*)::int from rouse.wake_notifications where target_pool_id = 'coding' and resolved_at is null`)
	}
	deadline := time.Now().Add(2 * time.Minute)
	var wg sync.WaitGroup
	failed := make(chan error, runners)
	stop := make(chan struct{})
	conns, outcomes := make([]*rig, runners), make([]map[string]int, runners)
	for i := range runners {
		outcomes[i] = map[string]int{}
		conns[i] = &rig{t: t, db: r.db, c: r.db.Conn(t)}
	}
	for i, s := range conns {
		wg.Go(func() {
			id := fmt.Sprintf("m%d", i)
			run := func(o op, wait bool) (answer, error) {
				return scanAnswer(s.c.QueryRow(t.Context(), `select `+answerColumns+` from (select answer as a from rouse.claim_apply($1, $2)) t`, opsJSON(o), wait))
			}
			var held []answer
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				default:
				}
				// Claims are kept for a while, so that the limits are in the way.
				if len(held) > 0 && (len(held) > perRunner || k%4 == 3) {
					a := held[0]
					held = held[1:]
					if _, err := run(op{"op": "release", "id": a.ConsumerID, "epoch": a.Epoch, "wake": a.Wake, "acks": ackAll(a)}, true); err != nil {
						failed <- err
						return
					}
				}
				o := op{"op": "acquire", "runner": id, "holder": kyle}
				if k%3 != 0 {
					o = es[(i*7+k*13)%work].by(id)
				}
				a, err := run(o, k%2 == 0)
				if err != nil {
					failed <- err
					return
				}
				if a.Outcome == "granted" {
					held = append(held, a)
				}
				outcomes[i][a.Outcome]++
			}
		})
	}
	for left() > 0 && time.Now().Before(deadline) && len(failed) == 0 { //nolint:revive // the query is the pause
	}
	close(stop)
	wg.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	equal(t, "left", left(), 0)
	equal(t, "granted once each", one[string](r, `select count(*) || ' ' || count(distinct consumer_id) || ' ' || bool_and(status = 'released' and pool_id = 'coding') from rouse.consumer_claims`), fmt.Sprintf("%d %d true", work, work))
	met := map[string]int{}
	for _, o := range outcomes {
		for k, n := range o {
			met[k] += n
		}
	}
	t.Log(met)
	for _, o := range []string{"granted", "pool_full", "runner_full", "busy"} {
		if met[o] == 0 {
			t.Errorf("nobody met %s: the limits were not tried", o)
		}
	}
	// Whenever a claim began, at most so many others were held, in all and by its runner.
	overlap := func(where string) int {
		return one[int](r, `select max(n)::int from (select (select count(*) from rouse.consumer_claims o
			where o.claimed_at <= k.claimed_at and o.released_at > k.claimed_at`+where+`) as n from rouse.consumer_claims k) x`)
	}
	if n := overlap(""); n > total || n < 2 {
		t.Errorf("%d claims of the pool at once, limit %d", n, total)
	}
	if n := overlap(` and o.runner_id = k.runner_id`); n > perRunner {
		t.Errorf("%d claims of one runner at once, limit %d", n, perRunner)
	}
}

// ackAll acks what a claim's notification names.
func ackAll(a answer) []any {
	var n struct {
		Streams []struct{ Path, Offset string }
	}
	if err := json.Unmarshal(a.Notification, &n); err != nil {
		panic(err)
	}
	var out []any
	for _, s := range n.Streams {
		at, err := strconv.ParseInt(strings.Split(s.Offset, "_")[1], 10, 64)
		if err != nil {
			panic(err)
		}
		out = append(out, map[string]any{"path": s.Path, "position": at})
	}
	return out
}
