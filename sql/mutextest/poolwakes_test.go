package mutextest

import (
	"testing"
	"time"
)

func toPool(id string) string {
	return `{"targets":[{"type":"worker-pool","workerPoolId":"` + id + `"}]}`
}

// crew makes a pool of kyle's with online members, m0, m1, …
func (r *rig) crew(pool string, perRunner, total int, members ...string) {
	r.t.Helper()
	r.pool(pool, perRunner, total)
	for _, m := range members {
		r.runner(m, 0)
		r.beat(m, time.Hour)
		if got := r.member(pool, m, kyle, "active", false); got != "active" {
			r.t.Fatalf("member %s: %s", m, got)
		}
	}
}

// woken spawns an entity with a wake that waits.
func (r *rig) woken(url, policy string) entity {
	r.t.Helper()
	e := r.entity(url, policy)
	r.push(e)
	if got := r.route(e); got != "minted" {
		r.t.Fatalf("%s: %s", url, got)
	}
	return e
}

func (e entity) by(runner string) op {
	return op{"op": "acquire", "id": e.consumer, "runner": runner, "holder": kyle, "claim_id": runner}
}

func (r *rig) poolEntries(pool string) int {
	r.t.Helper()
	r.hold()
	return one[int](r, `select count(*)::int from rouse.messages m join rouse.streams s on s.id = m.stream_id where s.path = 'worker-pools/' || $1 || '/wake'`, pool)
}

// TestPoolWakeIsARace: every member may read a pool's wake, one gets it, the
// claim is the runner's and the pool's, and the others learn at once.
func TestPoolWakeIsARace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crew("coding", 0, 0, "a", "b")
	r.runner("outside", 0)
	r.runnerOf("hers", mallory)
	r.member("coding", "hers", kyle, "active", false)
	e := r.woken("/chat/1", toPool("coding"))

	equal(t, "entries", r.poolEntries("coding"), 1)
	equal(t, "entry", one[string](r, `select concat_ws(' ', x ->> 'type', x ->> 'subscription_id', x ->> 'wakeId', x ->> 'attempt', x ->> 'targetIndex')
		from (select convert_from(m.payload, 'UTF8')::jsonb as x from rouse.messages m join rouse.streams s on s.id = m.stream_id where s.path = 'worker-pools/coding/wake') q`),
		"wake "+e.name+" "+r.state(e).Wake+" 1 0")
	equal(t, "wake", one[string](r, `select concat_ws(' ', target_type, target_pool_id, coalesce(target_runner_id, '-'), runner_wake_stream, delivery_status)
		from rouse.wake_notifications where wake_id = $1::uuid`, r.state(e).Wake), "worker-pool coding - /worker-pools/coding/wake delivered")

	r.want("runner_mismatch", e.acquire())
	r.want("not_member", e.by("outside"))
	r.want("not_owner", op{"op": "acquire", "id": e.consumer, "runner": "a", "holder": mallory})
	r.want("not_member", op{"op": "acquire", "id": e.consumer, "runner": "hers", "holder": mallory})
	a := r.want("granted", e.by("a"))
	equal(t, "runner", a.Runner, "a")
	r.want("held", e.by("b"))
	r.want("repeated", e.by("a"))
	equal(t, "claim", one[string](r, `select concat_ws(' ', runner_id, pool_id, status) from rouse.consumer_claims where consumer_id = $1`, e.name), "a coding active")
	equal(t, "shown", *r.state(e).Dispatch.ActiveRunner, "a")
	r.want("not_holder", e.call("heartbeat", a.Epoch, a.Wake).with("proved", true))
	r.want("ok", e.call("heartbeat", a.Epoch, a.Wake))
	r.want("released", e.call("release", a.Epoch, a.Wake).with("acks", e.acks(r.tail(e))))
	equal(t, "let go", one[bool](r, `select pool_id is null and runner_id is null from rouse.consumers where id = $1`, e.consumer), true)

	r.exec(`select rouse.pool_put(1, 'coding', $1, false, $1, null, 'disabled', null, null, false)`, kyle)
	r.push(e)
	equal(t, "again", r.route(e), "minted")
	r.want("pool_disabled", e.by("a"))
	r.exec(`select rouse.pool_put(1, 'coding', $1, false, $1, null, 'enabled', null, null, false)`, kyle)
	equal(t, "told on enabling", r.poolEntries("coding"), 3)
	r.member("coding", "a", kyle, "disabled", false)
	r.want("not_member", e.by("a"))
	r.exec(`select rouse.runner_set_status(1, 'b', $1, false, 'disabled')`, kyle)
	r.want("runner_disabled", e.by("b"))
}

// TestDrainedMemberFinishes: a disabled member keeps what it holds and gets
// nothing new.
func TestDrainedMemberFinishes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crew("coding", 0, 0, "a", "b")
	e, f := r.woken("/chat/1", toPool("coding")), r.woken("/chat/2", toPool("coding"))
	a := r.want("granted", e.by("a"))
	equal(t, "drained", r.member("coding", "a", kyle, "disabled", false), "disabled")
	r.want("not_member", f.by("a"))
	r.want("ok", e.call("heartbeat", a.Epoch, a.Wake))
	r.push(e)
	r.want("released", e.call("release", a.Epoch, a.Wake))
	r.want("not_member", e.by("a"))
	r.want("no_work", op{"op": "acquire", "runner": "a", "holder": kyle})
	r.want("granted", e.by("b"))
}

// TestPoolLimits: each limit refuses by itself, counts live claims only, and
// also those granted in the same batch.
func TestPoolLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crew("coding", 2, 3, "a", "b")
	var es []entity
	for _, u := range []string{"/chat/1", "/chat/2", "/chat/3", "/chat/4"} {
		es = append(es, r.woken(u, toPool("coding")))
	}
	var ops []op
	for _, e := range es[:3] {
		ops = append(ops, e.by("a"))
	}
	equal(t, "in one batch", one[string](r, `select string_agg((answer).outcome, ' ' order by ord) from rouse._claim_apply($1, false, $2)`, opsJSON(ops...), r.now),
		"granted granted runner_full")
	r.want("granted", es[2].by("b"))
	r.want("pool_full", es[3].by("b"))
	equal(t, "no room to seek", r.apply(op{"op": "acquire", "runner": "b", "holder": kyle}).Outcome, "no_work")
	r.after(lease)
	r.want("granted", es[3].by("b")) // the claims have lapsed, whether or not that was noticed

	ops = nil
	for i, m := range []string{"a", "b", "a", "b"} {
		ops = append(ops, es[i].by(m))
	}
	r.after(lease)
	equal(t, "total in one batch", one[string](r, `select string_agg((answer).outcome, ' ' order by ord) from rouse._claim_apply($1, false, $2)`, opsJSON(ops...), r.now),
		"granted granted granted pool_full")
}

// TestPoolRunnersOwnCapacity: a runner's capacity counts what it holds of all
// its pools and of its own.
func TestPoolRunnersOwnCapacity(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crew("coding", 0, 0)
	r.crew("review", 0, 0)
	r.runner("a", 2)
	r.member("coding", "a", kyle, "active", false)
	r.member("review", "a", kyle, "active", false)
	own, one1, two := r.woken("/chat/own", toRunner("a")), r.woken("/chat/1", toPool("coding")), r.woken("/chat/2", toPool("review"))
	equal(t, "in one batch", one[string](r, `select string_agg((answer).outcome, ' ' order by ord) from rouse._claim_apply($1, false, $2)`,
		opsJSON(own.by("a"), one1.by("a"), two.by("a")), r.now), "granted granted runner_full")
	r.want("runner_full", two.by("a"))
	r.after(lease)
	r.want("granted", two.by("a"))
}

// TestSeekTakesTheOldest: an acquire that names nothing takes the oldest wake of
// the runner's own and of its pools, but of a pool without room none.
func TestSeekTakesTheOldest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crew("coding", 0, 1, "a")
	r.crew("review", 0, 0)
	r.member("review", "a", kyle, "active", false)
	spawn := func(url, policy string) entity { r.after(time.Second); return r.woken(url, policy) }
	first, second := spawn("/chat/1", toPool("coding")), spawn("/chat/2", toPool("coding"))
	third, fourth := spawn("/chat/3", toRunner("a")), spawn("/chat/4", toPool("review"))
	seek := func(claim string) answer {
		return r.apply(op{"op": "acquire", "runner": "a", "holder": kyle, "claim_id": claim})
	}
	got := seek("1")
	equal(t, "first", got.Outcome+" "+got.ConsumerName, "granted "+first.name)
	equal(t, "the same again", seek("1").Outcome, "repeated")
	equal(t, "the pool is full", seek("2").ConsumerName, third.name)
	equal(t, "the other pool", seek("3").ConsumerName, fourth.name)
	equal(t, "nothing more", seek("4").Outcome, "no_work")
	r.want("released", first.call("release", got.Epoch, got.Wake).with("acks", first.acks(r.tail(first))))
	equal(t, "room again", seek("5").ConsumerName, second.name)
}

// TestFreedCapacityTellsWhatWaits: a slot that frees up tells the oldest wake
// that waits for it, once, and only where there was a limit in the way; of two
// slots, freed one by one, each tells another.
func TestFreedCapacityTellsWhatWaits(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]struct{ perRunner, total, capacity int }{
		"total": {0, 2, 0}, "per runner": {2, 0, 0}, "capacity": {0, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.pool("coding", limits.perRunner, limits.total)
			r.runner("a", limits.capacity)
			r.beat("a", time.Hour)
			r.member("coding", "a", kyle, "active", false)
			var es []entity
			for _, u := range []string{"/chat/1", "/chat/2", "/chat/3", "/chat/4"} {
				es = append(es, r.woken(u, toPool("coding")))
				r.after(time.Millisecond)
			}
			finish := func(e entity, a answer) {
				r.want("released", e.call("release", a.Epoch, a.Wake).with("acks", e.acks(r.tail(e))))
			}
			told := func() int { return r.poolEntries("coding") }
			a := r.want("granted", es[0].by("a"))
			finish(es[0], a)
			equal(t, "below the limit nobody is told", told(), 4)
			r.push(es[0])
			r.after(time.Minute)
			r.route(es[0]) // youngest now
			equal(t, "minted", told(), 5)

			x, y := r.want("granted", es[1].by("a")), r.want("granted", es[2].by("a"))
			r.apply(es[3].by("a"))
			equal(t, "full", r.apply(es[0].by("a")).Outcome != "granted", true)
			r.after(time.Millisecond)
			finish(es[1], x)
			equal(t, "one slot", told(), 6)
			equal(t, "the oldest", one[string](r, `select convert_from(m.payload, 'UTF8')::jsonb ->> 'consumerId' from rouse.messages m
				join rouse.streams s on s.id = m.stream_id where s.path = 'worker-pools/coding/wake' order by m.position desc limit 1`), es[3].name)
			finish(es[2], y)
			equal(t, "the next, who was refused, too", told(), 7)
			equal(t, "another", one[string](r, `select convert_from(m.payload, 'UTF8')::jsonb ->> 'consumerId' from rouse.messages m
				join rouse.streams s on s.id = m.stream_id where s.path = 'worker-pools/coding/wake' order by m.position desc limit 1`), es[0].name)
		})
	}
}

// TestRefusedForRoomIsLookedAtAgain: a refusal whose count was old by the time
// it was given is made good: a second later the wake is told if there is room,
// and not while there is none.
func TestRefusedForRoomIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{toPool("coding"), toRunner("a")} {
		r := newRig(t)
		r.pool("coding", 0, 1)
		r.runner("a", 1)
		r.beat("a", 100*time.Hour)
		r.member("coding", "a", kyle, "active", false)
		e, f := r.woken("/chat/1", policy), r.woken("/chat/2", policy)
		r.want("granted", e.by("a"))
		if out := r.apply(f.by("a")).Outcome; out != "pool_full" && out != "runner_full" {
			t.Fatal(out)
		}
		attempts := func() int { return r.state(f).lastWake().Attempts }
		r.later(999 * time.Millisecond)
		equal(t, "not yet", attempts(), 1)
		// However often it was told, it is looked at as often as a wake that was told once.
		r.exec(`update rouse.wake_notifications set attempts = 8 where wake_id = $1::uuid`, r.state(f).Wake)
		r.later(time.Millisecond)
		equal(t, "full still", attempts(), 8)
		// The claim lapses and nobody notices: there is room, though nothing was freed.
		r.exec(`update rouse.consumers set due_at = 'infinity' where id = $1`, e.consumer)
		r.later(wakeTTL)
		equal(t, "room", attempts(), 9)
		r.reap()
		equal(t, "once", attempts(), 9)
		r.want("granted", f.by("a"))
	}
}

// TestPoolWakeIsToldAgain: while nobody claims a pool's wake it is told again as
// a runner's is, if a member is there to hear it.
func TestPoolWakeIsToldAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crew("coding", 0, 0)
	r.runner("a", 0)
	r.member("coding", "a", kyle, "active", false)
	e := r.woken("/chat/1", toPool("coding"))
	r.after(wakeTTL)
	equal(t, "nobody there", r.reap(), reaped{})
	equal(t, "back", r.beat("a", time.Hour), 1)
	equal(t, "told", r.poolEntries("coding"), 2)
	equal(t, "still there", r.beat("a", time.Hour), 0)
	r.after(wakeTTL)
	equal(t, "again", r.reap(), reaped{Redelivered: 1})
	r.member("coding", "a", kyle, "disabled", false)
	r.after(wakeTTL)
	equal(t, "drained", r.reap(), reaped{})
	r.after(2 * time.Hour)
	equal(t, "drained and back", r.beat("a", time.Hour), 0)
	equal(t, "same wake", r.state(e).Epoch, 1)
	r.member("coding", "a", kyle, "active", false)
	equal(t, "taken back", r.poolEntries("coding"), 4)
	equal(t, "again by a person", one[string](r, `select rouse._wake_redeliver(1, $1::uuid, $2, $3)`, r.state(e).Wake, kyle, r.now), "redelivered")
	equal(t, "told", r.poolEntries("coding"), 5)
}

// TestRaisedLimitTells: raising a limit tells as many as there is room for.
func TestRaisedLimitTells(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crew("coding", 0, 1, "a")
	r.now = time.Now()
	var es []entity
	for _, u := range []string{"/chat/1", "/chat/2", "/chat/3", "/chat/4"} {
		es = append(es, r.woken(u, toPool("coding")))
	}
	r.want("granted", es[0].by("a"))
	set := func(total any) {
		r.exec(`select rouse.pool_put(1, 'coding', $1, false, $1, null, null, null, $2, true)`, kyle, total)
	}
	set(1)
	equal(t, "unchanged", r.poolEntries("coding"), 4)
	set(3)
	equal(t, "two more slots", r.poolEntries("coding"), 6)
	set(2)
	equal(t, "lowered", r.poolEntries("coding"), 6)
	set(nil)
	equal(t, "without a limit", r.poolEntries("coding"), 9)
}

// TestRaisedCapacityTells: registering a runner anew with a higher capacity, or
// enabled, tells it of what waits.
func TestRaisedCapacityTells(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("a", 1)
	r.woken("/chat/1", toRunner("a"))
	r.woken("/chat/2", toRunner("a"))
	register := func(status string, capacity int) {
		r.exec(`select rouse.runner_register(1, 'a', $1, false, $1, 'A', null, $2, null, $3)`, kyle, status, capacity)
	}
	register("enabled", 1)
	equal(t, "as it was", len(r.entries("a")), 2)
	register("enabled", 2)
	equal(t, "raised", len(r.entries("a")), 4)
	register("disabled", 3)
	equal(t, "disabled", len(r.entries("a")), 4)
	register("enabled", 3)
	equal(t, "enabled", len(r.entries("a")), 6)
}
