package mutextest

import (
	"fmt"
	"slices"
	"testing"
)

// crowd is a schedule over several entities: the sessions take rows in opposite
// orders. None of these may deadlock, whichever row a third session holds while
// both queue up, and nothing may be lost.

// both names the entity of the schedule, for runner mac, and a neighbour for
// another runner.
func neighbour(r *rig, e entity) entity {
	n := entity{url: e.url + "/next", path: e.path[:len(e.path)-len("/main")] + "/next/main"}
	if err := r.c.QueryRow(r.ctx(), `select c.id, c.name, s.id from rouse.consumers c join rouse.streams s on s.consumer_id = c.id
		where c.entity_url = $1`, n.url).Scan(&n.consumer, &n.name, &n.stream); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// four makes /chat/n for mac and /chat/n/next for box, and the same again as
// /chat/n/x and /chat/n/x/next, each with one message nobody was told of.
func four(r *rig, n int) entity {
	var first entity
	for i, u := range []string{"", "/x"} {
		e := r.entity(fmt.Sprintf("/chat/%d%s", n, u), toRunner("mac"))
		m := r.entity(fmt.Sprintf("/chat/%d%s/next", n, u), toRunner("box"))
		r.push(e)
		r.push(m)
		if i == 0 {
			first = e
		}
	}
	return first
}

func second(r *rig, e entity) entity {
	x := entity{url: e.url + "/x", path: e.path[:len(e.path)-len("/main")] + "/x/main"}
	if err := r.c.QueryRow(r.ctx(), `select c.id, c.name, s.id from rouse.consumers c join rouse.streams s on s.consumer_id = c.id
		where c.entity_url = $1`, x.url).Scan(&x.consumer, &x.name, &x.stream); err != nil {
		r.t.Fatal(err)
	}
	return x
}

func routeBoth(first, then entity) call {
	return sqlCall("route", `select string_agg(outcome, ' ') from rouse.dispatch_route(array[$1::bigint, $2::bigint],
		array[(select actionable from rouse.streams where id = $1), (select actionable from rouse.streams where id = $2)])`, first.stream, then.stream)
}

func batchCall(ops ...op) call {
	return sqlCall("batch", `select string_agg((answer).outcome, ' ' order by ord) from rouse.claim_apply($1, $2)`, opsJSON(ops...), false)
}

// stub stands for a call while calls are only counted.
var stub = []call{{Name: "stub"}}

func TestNoDeadlockBetweenBatches(t *testing.T) {
	t.Parallel()
	wakeStreams := []string{
		`select 1 from rouse.streams where path = 'runners/mac/wake' for no key update`,
		`select 1 from rouse.streams where path = 'runners/box/wake' for no key update`,
		`select 1 from rouse.runners where id = 'mac' for no key update`,
		`select 1 from rouse.consumers where id = :consumer for update`,
		`select 1 from rouse.streams where id = :stream for no key update`,
		`select 1 from rouse.wake_notifications where consumer_id = ':name' for update`,
	}
	pairs := []pair{
		// Again and again: what is taken in no order deadlocks now and then only.
		{name: "wakes of two runners, published in opposite orders", setup: four, gates: slices.Repeat(wakeStreams[:2], 6),
			a: func(r *rig, e entity) []call {
				if e.consumer == 0 {
					return stub
				}
				return []call{routeBoth(e, neighbour(r, e))}
			},
			b: func(r *rig, e entity) []call {
				if e.consumer == 0 {
					return stub
				}
				x := second(r, e)
				return []call{routeBoth(neighbour(r, x), x)}
			},
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				if a[0] != "retry minted" && a[0] != "minted retry" && a[0] != "retry retry" {
					equal(t, "a", a[0], "minted minted")
				}
			}},
		{name: "a runner comes back while its wakes are claimed and minted", setup: four, gates: wakeStreams,
			a: func(r *rig, e entity) []call {
				if e.consumer == 0 {
					return stub
				}
				// One is claimed and will be released with work left; one waits.
				x := second(r, e)
				r.exec(`select rouse.dispatch_route(array[$1::bigint, $2::bigint], array[0::bigint, 0::bigint])`, e.stream, x.stream)
				r.exec(`select rouse.claim_apply($1, true)`, opsJSON(e.acquire()))
				r.exec(`update rouse.runner_runtime_diagnostics set liveness_lease_expires_at = null`)
				s := r.state(e)
				return []call{batchCall(x.acquire(), e.call("release", s.Epoch, s.Wake))}
			},
			b: func(r *rig, e entity) []call {
				return []call{sqlCall("heartbeat", `select outcome from rouse.runner_heartbeat(1, 'mac', '`+kyle+`', false, null, null, null)`)}
			},
			check: func(t *testing.T, r *rig, e entity, a, b []string) { equal(t, "heartbeat", b[0], "ok") }},
		{name: "two batches over the same consumers in opposite orders", setup: four, gates: wakeStreams,
			a: func(r *rig, e entity) []call {
				if e.consumer == 0 {
					return stub
				}
				return []call{batchCall(e.acquire(), second(r, e).acquire())}
			},
			b: func(r *rig, e entity) []call {
				if e.consumer == 0 {
					return stub
				}
				return []call{batchCall(second(r, e).acquire(), e.acquire())}
			},
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				equal(t, "claims", one[int](r, `select count(*) from rouse.consumers where state = 'claimed' and entity_url in ($1, $2)`, e.url, e.url+"/x") > 0, true)
			}},
		{name: "a batch of acks and an append to both streams", setup: four, gates: wakeStreams,
			a: func(r *rig, e entity) []call {
				if e.consumer == 0 {
					return stub
				}
				x := second(r, e)
				r.exec(`select rouse.claim_apply($1, true)`, opsJSON(e.acquire(), x.acquire()))
				return []call{batchCall(r.current(e, "ack"), r.current(x, "release"))}
			},
			b: func(r *rig, e entity) []call {
				if e.consumer == 0 {
					return append(stub, stub...)
				}
				return append(push(r, second(r, e)), push(r, e)...)
			},
			check: func(t *testing.T, r *rig, e entity, a, b []string) {}},
		{name: "a kill and a batch that releases its neighbour", setup: four, gates: wakeStreams,
			a: func(r *rig, e entity) []call {
				if e.consumer == 0 {
					return stub
				}
				x := second(r, e)
				r.exec(`select rouse.claim_apply($1, true)`, opsJSON(e.acquire(), x.acquire()))
				return []call{batchCall(r.current(e, "release"), r.current(x, "release"))}
			},
			b: signal("SIGKILL"),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				equal(t, "mutex", r.state(e).State, "stopped")
			}},
	}
	for _, p := range pairs {
		t.Run(p.name, p.run)
	}
}

// A runner of capacity one, two waiting wakes, two calls at once: one is granted.
func TestCapacityUnderRace(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{true, false} {
		two := func(r *rig, n int) entity {
			r.exec(`update rouse.runners set capacity = null where id = 'tight'`)
			r.exec(`select rouse.entity_signal(1, url, created_by, 'SIGKILL', 'k', null, null) from rouse.entities where status <> 'killed'`)
			r.exec(`update rouse.runners set capacity = 1 where id = 'tight'`)
			e := r.entity(fmt.Sprintf("/chat/%d", n), toRunner("tight"))
			x := r.entity(fmt.Sprintf("/chat/%d/x", n), toRunner("tight"))
			r.push(e)
			r.push(x)
			return e
		}
		pair{name: fmt.Sprintf("wait %v", wait), setup: two, a: calls("acquire", wait),
			b: func(r *rig, e entity) []call {
				if e.consumer == 0 {
					return stub
				}
				return []call{opCall(second(r, e).acquire(), wait)}
			},
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "granted | runner_full", "runner_full | granted")
				equal(t, "claims", one[int](r, `select count(*) from rouse.consumers where state = 'claimed' and runner_id = 'tight'`), 1)
			}}.named(t)
	}
}

func (p pair) named(t *testing.T) { t.Run(p.name, p.run) }
