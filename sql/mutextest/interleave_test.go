package mutextest

import (
	"fmt"
	"strings"
	"testing"
)

// The setups: an entity each schedule, by the real clock.

func idleEntity(r *rig, n int) entity {
	return r.entity(fmt.Sprintf("/chat/%d", n), toRunner("mac"))
}

func wakingEntity(r *rig, n int) entity {
	e := idleEntity(r, n)
	r.push(e)
	r.exec(`select rouse.dispatch_route(array[$1::bigint], array[$2::bigint])`, e.stream, r.tail(e))
	return e
}

func claimedEntity(r *rig, n int) entity {
	e := wakingEntity(r, n)
	r.exec(`select rouse.claim_apply($1, true)`, opsJSON(e.acquire()))
	return e
}

// lapsedEntity is claimed, and its lease ended an hour ago.
func lapsedEntity(r *rig, n int) entity {
	e := claimedEntity(r, n)
	r.exec(`update rouse.consumers set lease_expires_at = lease_expires_at - interval '1 hour', due_at = due_at - interval '1 hour',
		claimed_at = claimed_at - interval '1 hour' where id = $1`, e.consumer)
	r.exec(`update rouse.consumer_claims k set lease_expires_at = c.lease_expires_at from rouse.consumers c where c.id = $1 and k.consumer_id = c.name`, e.consumer)
	r.exec(`update rouse.entity_dispatch_state d set active_lease_expires_at = c.lease_expires_at, active_claimed_at = c.claimed_at
		from rouse.consumers c where c.id = $1 and d.entity_url = c.entity_url`, e.consumer)
	return e
}

func webhookEntity(r *rig, n int) entity {
	e := r.entity(fmt.Sprintf("/chat/%d", n), toWebhook)
	r.push(e)
	r.exec(`select rouse.dispatch_route(array[$1::bigint], array[$2::bigint])`, e.stream, r.tail(e))
	r.exec(`select rouse.delivery_lend(1, 1, '{}')`)
	return e
}

// The calls. They read the entity when the schedule begins.

func (r *rig) current(e entity, name string) op {
	if e.consumer == 0 {
		return op{"op": name} // only counted
	}
	s := r.state(e)
	o := e.call(name, s.Epoch, s.Wake)
	if name == "ack" || name == "release" {
		o["acks"] = e.acks(s.Tail)
	}
	return o
}

func calls(name string, wait bool) func(*rig, entity) []call {
	return func(r *rig, e entity) []call {
		if name == "acquire" {
			return []call{opCall(e.acquire(), wait)}
		}
		return []call{opCall(r.current(e, name), wait)}
	}
}

func push(_ *rig, e entity) []call {
	return []call{sqlCall("push", `select rouse._stream_push($1, '{"a":1}', true)::text`, e.stream)}
}

func write(r *rig, e entity) []call {
	var o op
	if e.consumer != 0 {
		o = r.current(e, "write")
	} else {
		o = op{"epoch": 0, "wake": strange}
	}
	return []call{sqlCall("write", `select outcome from rouse.stream_append('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
		array[1], array[$1], array['application/json'], array[false], array[false], array[convert_to('{"a":1}', 'UTF8')], array[1], array[null::text],
		array[null::text], array[null::bigint], array[null::bigint], array[null::text], array[false],
		array[$2::bigint], array[$3::bigint], array[$4::uuid], true)`, e.path, e.consumer, o["epoch"], o["wake"])}
}

// routeNext tells the router of an append as if the log had shown it: at the
// position after one more message.
func routeNext(r *rig, e entity) []call {
	var position int64
	if e.stream != 0 {
		position = r.tail(e) + int64(len(`{"a":1}`))
	}
	return []call{sqlCall("route", `select outcome from rouse.dispatch_route(array[$1::bigint], array[$2::bigint])`, e.stream, position)}
}

func routeNow(_ *rig, e entity) []call {
	return []call{sqlCall("route", `select coalesce((select r.outcome from rouse.streams s, rouse.dispatch_route(array[s.id], array[s.actionable]) r where s.id = $1), 'absent')`, e.stream)}
}

func reap(_ *rig, e entity) []call {
	return []call{sqlCall("reap", `select expired || ' ' || redelivered from rouse.claim_reap(100)`)}
}

func signal(s string) func(*rig, entity) []call {
	return func(_ *rig, e entity) []call {
		return []call{sqlCall(s, `select coalesce((select outcome || ' ' || new_state from rouse.entity_signal(1, $1, '`+kyle+`', '`+s+`', 'k', null, null)), '')`, e.url)}
	}
}

func deliver(outcome string) func(*rig, entity) []call {
	return func(r *rig, e entity) []call {
		wake := strange
		if e.consumer != 0 {
			wake = r.state(e).Wake
		}
		return []call{sqlCall(outcome, `select rouse.delivery_result(1, $1, 1, $2, 0, 200, '')`, wake, outcome)}
	}
}

func proved(wait bool) func(*rig, entity) []call {
	return func(r *rig, e entity) []call {
		wake := strange
		if e.consumer != 0 {
			wake = r.state(e).Wake
		}
		return []call{opCall(op{"op": "acquire", "wake": wake, "proved": true, "holder": "claim-token"}, wait)}
	}
}

// oneOf fails unless the two outcomes are, in either order, one of the allowed
// pairs "x y".
func oneOf(t *testing.T, a, b []string, allowed ...string) {
	t.Helper()
	got := strings.Join(append(append([]string{}, a...), b...), " | ")
	for _, x := range allowed {
		if got == x {
			return
		}
	}
	t.Errorf("outcomes %q, not one of %q", got, allowed)
}

func epochIs(t *testing.T, s state, allowed ...int64) {
	t.Helper()
	for _, x := range allowed {
		if s.Epoch == x {
			return
		}
	}
	t.Errorf("epoch %d, not one of %v", s.Epoch, allowed)
}

func TestInterleavings(t *testing.T) {
	t.Parallel()
	pairs := []pair{
		{name: "acquire, acquire", setup: wakingEntity, a: calls("acquire", true), b: calls("acquire", true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "granted | held", "held | granted")
				epochIs(t, r.state(e), 1)
			}},
		{name: "acquire, acquire, neither waits", setup: wakingEntity, a: calls("acquire", false), b: calls("acquire", false),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "granted | held", "held | granted")
			}},
		{name: "acquire, acquire of a lapsed claim", setup: lapsedEntity, a: calls("acquire", true), b: calls("acquire", false),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "granted | held", "held | granted")
				epochIs(t, r.state(e), 2)
			}},
		{name: "acquire, acquire of an idle one with work", setup: func(r *rig, n int) entity { e := idleEntity(r, n); r.push(e); return e },
			a: calls("acquire", true), b: calls("acquire", true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "granted | held", "held | granted")
				epochIs(t, r.state(e), 1)
			}},
		{name: "acquire, heartbeat", setup: claimedEntity, a: calls("acquire", true), b: calls("heartbeat", true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) { oneOf(t, a, b, "held | ok") }},
		{name: "acquire, heartbeat of a lapsed claim", setup: lapsedEntity, a: calls("acquire", true), b: calls("heartbeat", true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "granted | lease_expired", "granted | stale")
				epochIs(t, r.state(e), 2)
			}},
		{name: "acquire, release", setup: claimedEntity, a: calls("acquire", true), b: calls("release", true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "held | released", "no_work | released")
			}},
		{name: "release, append", setup: claimedEntity, a: calls("release", true), b: push,
			check: func(t *testing.T, r *rig, e entity, a, b []string) { equal(t, "release", a[0], "released") }},
		{name: "release, append, in a batch", setup: claimedEntity, a: calls("release", false), b: push,
			check: func(t *testing.T, r *rig, e entity, a, b []string) { equal(t, "release", a[0], "released") }},
		{name: "ack, append", setup: claimedEntity, a: calls("ack", true), b: push,
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				equal(t, "ack", a[0], "ok")
				equal(t, "flagged", r.state(e).Pending, true)
			}},
		{name: "ack, append, in a batch", setup: claimedEntity, a: calls("ack", false), b: push,
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				equal(t, "ack", a[0], "ok")
				equal(t, "flagged", r.state(e).Pending, true)
			}},
		{name: "ack and release, append", setup: claimedEntity, b: push,
			a: func(r *rig, e entity) []call {
				return append(calls("ack", true)(r, e), calls("release", true)(r, e)...)
			},
			check: func(t *testing.T, r *rig, e entity, a, b []string) { equal(t, "release", a[1], "released") }},
		{name: "route, append", setup: idleEntity, a: routeNext, b: push,
			check: func(t *testing.T, r *rig, e entity, a, b []string) { oneOf(t, a, nil, "retry", "minted") }},
		{name: "route, release", setup: func(r *rig, n int) entity { e := claimedEntity(r, n); return e },
			a: routeNext, b: func(r *rig, e entity) []call { return append(push(r, e), calls("release", true)(r, e)...) },
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, nil, "retry", "coalesced")
				equal(t, "release", b[1], "released")
				s := r.state(e)
				equal(t, "mutex", s.State, "waking")
				epochIs(t, s, 2)
			}},
		{name: "route, route", setup: func(r *rig, n int) entity { e := idleEntity(r, n); r.push(e); return e }, a: routeNow, b: routeNow,
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "minted | retry", "retry | minted", "minted | coalesced", "coalesced | minted", "retry | retry")
			}},
		{name: "route, acquire", setup: func(r *rig, n int) entity { e := idleEntity(r, n); r.push(e); return e }, a: routeNow, b: calls("acquire", true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				equal(t, "acquire", b[0], "granted")
				epochIs(t, r.state(e), 1)
			}},
		{name: "reap, heartbeat", setup: claimedEntity, a: reap, b: calls("heartbeat", true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) { oneOf(t, a, b, "0 0 | ok") }},
		{name: "reap, heartbeat of a lapsed claim", setup: lapsedEntity, a: reap, b: calls("heartbeat", true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "1 0 | stale", "1 0 | lease_expired", "0 0 | lease_expired")
			}},
		{name: "reap, heartbeat of a claim that is due and alive", a: reap, b: calls("heartbeat", true),
			setup: func(r *rig, n int) entity {
				e := claimedEntity(r, n)
				r.exec(`update rouse.consumers set due_at = clock_timestamp() where id = $1`, e.consumer)
				return e
			},
			check: func(t *testing.T, r *rig, e entity, a, b []string) { oneOf(t, a, b, "0 0 | ok") }},
		{name: "reap, release of a lapsed claim", setup: lapsedEntity, a: reap, b: calls("release", true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				equal(t, "release", b[0], "lease_expired")
				s := r.state(e)
				equal(t, "mutex", s.State, "waking")
				equal(t, "claim", s.Claims[0].Status, "expired")
				epochIs(t, s, 2)
			}},
		{name: "reap, acquire of a lapsed claim", setup: lapsedEntity, a: reap, b: calls("acquire", true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				equal(t, "acquire", b[0], "granted")
				epochIs(t, r.state(e), 2)
			}},
		{name: "reap, reap", setup: lapsedEntity, a: reap, b: reap,
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "1 0 | 0 0", "0 0 | 1 0", "0 0 | 0 0")
			}},
		{name: "write, heartbeat", setup: claimedEntity, a: write, b: calls("heartbeat", true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) { oneOf(t, a, b, "appended | ok") }},
		{name: "write, release", setup: claimedEntity, a: write, b: calls("release", true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "appended | released", "token_stale | released")
			}},
		{name: "write, acquire of a lapsed claim", setup: lapsedEntity, a: write, b: calls("acquire", true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "lease_expired | granted", "token_stale | granted")
			}},
		{name: "write, kill", setup: claimedEntity, a: write, b: signal("SIGKILL"),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "appended | signalled killed", "token_stale | signalled killed", "closed | signalled killed")
				equal(t, "mutex", r.state(e).State, "stopped")
			}},
		{name: "kill, acquire", setup: wakingEntity, a: signal("SIGKILL"), b: calls("acquire", true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "signalled killed | stopped", "signalled killed | granted")
				equal(t, "mutex", r.state(e).State, "stopped")
			}},
		{name: "kill, release", setup: claimedEntity, a: signal("SIGKILL"), b: calls("release", true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "signalled killed | stale", "signalled killed | released")
			}},
		{name: "kill, append", setup: wakingEntity, a: signal("SIGKILL"), b: push,
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				equal(t, "mutex", r.state(e).State, "stopped")
				equal(t, "flag", r.state(e).Pending, false)
			}},
		{name: "kill, route", setup: func(r *rig, n int) entity { e := idleEntity(r, n); r.push(e); return e }, a: signal("SIGKILL"), b: routeNow,
			check: func(t *testing.T, r *rig, e entity, a, b []string) { equal(t, "mutex", r.state(e).State, "stopped") }},
		{name: "term, release", setup: claimedEntity, a: signal("SIGTERM"), b: calls("release", true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				equal(t, "release", b[0], "released")
				equal(t, "mutex", r.state(e).State, "stopped")
			}},
		{name: "pause, route", setup: func(r *rig, n int) entity { e := idleEntity(r, n); r.push(e); return e }, a: signal("SIGSTOP"), b: routeNow,
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				s := r.state(e)
				equal(t, "mutex", s.State, "idle")
				equal(t, "paused", s.Paused, true)
			}},
		{name: "pause, acquire", setup: wakingEntity, a: signal("SIGSTOP"), b: calls("acquire", true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "signalled paused | paused", "signalled paused | granted")
			}},
		{name: "resume, append", a: signal("SIGCONT"), b: push,
			setup: func(r *rig, n int) entity {
				e := idleEntity(r, n)
				r.exec(`select rouse.entity_signal(1, $1, $2, 'SIGSTOP', 'k', null, null)`, e.url, kyle)
				return e
			},
			check: func(t *testing.T, r *rig, e entity, a, b []string) { equal(t, "paused", r.state(e).Paused, false) }},
		{name: "delivery done, acquire", setup: webhookEntity, a: deliver("done"), b: proved(true),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "released | stale", "released | granted")
				equal(t, "mutex", r.state(e).State, "idle")
			}},
		{name: "delivery retry, acquire", setup: webhookEntity, a: deliver("retry"), b: proved(false),
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "retry | granted", "claimed | granted")
			}},
		{name: "delivery taken, acquire", b: proved(true),
			setup: func(r *rig, n int) entity {
				e := webhookEntity(r, n)
				r.exec(`update rouse.wake_notifications set next_attempt_at = clock_timestamp() where consumer_id = $1`, e.name)
				return e
			},
			a: func(*rig, entity) []call {
				return []call{sqlCall("take", `select count(*)::text from rouse.delivery_lend(10, 10, '{}')`)}
			},
			check: func(t *testing.T, r *rig, e entity, a, b []string) {
				oneOf(t, a, b, "1 | granted", "0 | granted")
				equal(t, "next attempt", r.state(e).lastWake().Next == nil, true)
			}},
	}
	for _, p := range pairs {
		t.Run(p.name, p.run)
	}
}
