package mutextest

import (
	"fmt"
	"testing"
	"time"
)

// chain is the policy of the fallback tests: the laptop, then the pool, then a
// webhook, with what each says of its "when" (empty: the default).
func chain(laptop, pool, giveUp string) string {
	when := func(w string) string {
		if w == "" {
			return ""
		}
		return `,"when":` + w
	}
	p := fmt.Sprintf(`{"targets":[{"type":"runner","runnerId":"laptop"%s},{"type":"worker-pool","workerPoolId":"coding"%s},{"type":"webhook","url":%q}]`,
		when(laptop), when(pool), hook)
	if giveUp != "" {
		p += `,"giveUp":` + giveUp
	}
	return p + "}"
}

// target says where an entity's mutex stands: state, target and attempt. On the
// way it looks at the invariants.
func (r *rig) target(e entity) string {
	r.t.Helper()
	r.hold()
	return one[string](r, `select concat_ws(' ', c.state, n.target_type, n.target_index, n.attempt)
		from rouse.consumers c left join rouse.wake_notifications n on n.wake_id = c.wake_id where c.id = $1`, e.consumer)
}

// liveness makes runners online, by the rig's clock.
func (r *rig) alive(d time.Duration, runners ...string) {
	for _, id := range runners {
		r.beat(id, d)
	}
}

// fallback is a rig with a laptop and a pool of one member, all offline.
func fallback(t *testing.T) *rig {
	r := newRig(t)
	r.runner("laptop", 0)
	r.runner("worker", 0)
	r.pool("coding", 0, 0)
	r.member("coding", "worker", kyle, "active", false)
	return r
}

// scene plays a test of its own on a fallback rig.
func scene(t *testing.T, name string, play func(t *testing.T, r *rig)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		play(t, fallback(t))
	})
}

// turns says that what the reaper makes of an entity (target or parked) is still
// the one a millisecond before d has passed, and the other then.
func (r *rig) turns(d time.Duration, look func(entity) string, e entity, before, then string) {
	r.t.Helper()
	r.later(d - time.Millisecond)
	equal(r.t, "a millisecond before", look(e), before)
	r.later(time.Millisecond)
	equal(r.t, "then", look(e), then)
}

// TestFirstTargetThatWouldTakeIt is where a new wake goes (R15): the first
// target that is not passed over by its own when.
func TestFirstTargetThatWouldTakeIt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, policy, want string
		online             []string
	}{
		{"all there", chain("", "", ""), "waking runner 0 1", []string{"laptop", "worker"}},
		{"laptop away", chain("", "", ""), "waking worker-pool 1 1", []string{"worker"}},
		{"nobody there", chain("", "", ""), "waking webhook 2 1", nil},
		{"the laptop is waited for", chain(`{"unclaimedAfterMs":1000}`, "", ""), "waking runner 0 1", nil},
		{"the pool is waited for", chain("", `{"failed":true}`, ""), "waking worker-pool 1 1", nil},
		{"the last is waited for", `{"targets":[{"type":"runner","runnerId":"laptop"},{"type":"worker-pool","workerPoolId":"coding"}]}`, "waking worker-pool 1 1", nil},
		{"none would take it", `{"targets":[{"type":"runner","runnerId":"laptop"},{"type":"worker-pool","workerPoolId":"coding","when":{"offline":true}}]}`, "waking runner 0 1", nil},
		{"one target only", toRunner("laptop"), "waking runner 0 1", nil},
		{"a member only", `{"targets":[{"type":"worker-pool","workerPoolId":"coding"},{"type":"runner","runnerId":"laptop"}]}`, "waking worker-pool 0 1", []string{"worker"}},
	} {
		scene(t, c.name, func(t *testing.T, r *rig) {
			r.alive(time.Hour, c.online...)
			e := r.woken("/chat/1", c.policy)
			equal(t, "target", r.target(e), c.want)
			equal(t, "shown", one[string](r, `select outstanding_wake_target ->> 'type' from rouse.entity_dispatch_state where entity_url = '/chat/1'`) != "", true)
		})
	}
	t.Run("full", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.runner("laptop", 1)
		r.crew("coding", 0, 1, "worker")
		r.alive(time.Hour, "laptop")
		first, second := r.woken("/chat/1", chain("", "", "")), r.woken("/chat/2", chain("", "", ""))
		equal(t, "not yet full", r.target(second), "waking runner 0 1")
		r.want("granted", first.by("laptop"))
		third := r.woken("/chat/3", chain("", "", ""))
		equal(t, "the runner is full", r.target(third), "waking worker-pool 1 1")
		r.want("granted", third.by("worker"))
		equal(t, "and the pool", r.target(r.woken("/chat/4", chain("", "", ""))), "waking webhook 2 1")
		equal(t, "which one says is no matter", r.target(r.woken("/chat/5", chain("", `{"offline":true}`, ""))), "waking worker-pool 1 1")
	})
}

// TestNobodyToldYet: an acquire that comes before any wake is decided by the
// target that its wake is made for.
func TestNobodyToldYet(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("laptop", 1)
	r.runner("desktop", 0)
	r.crew("coding", 0, 1, "worker")
	r.alive(time.Hour, "laptop", "desktop")
	untold := func(url, policy string) entity { e := r.entity(url, policy); r.push(e); return e }
	const waits = `{"targets":[{"type":"runner","runnerId":"laptop","when":{"failed":true}},{"type":"runner","runnerId":"desktop"}]}`
	first := untold("/chat/1", waits)
	r.want("granted", first.acquire())
	r.want("runner_full", untold("/chat/2", waits).acquire())
	r.want("runner_mismatch", untold("/chat/3", waits).by("desktop"))
	r.want("not_owner", untold("/chat/4", waits).acquire().with("holder", mallory))
	r.exec(`select rouse.runner_set_status(1, 'laptop', $1, false, 'disabled')`, kyle)
	r.want("runner_disabled", untold("/chat/5", waits).acquire())
	r.want("granted", untold("/chat/6", chain("", "", "")).by("worker"))
	equal(t, "all full", r.apply(untold("/chat/7", toPool("coding")).by("worker")).Outcome, "pool_full")
}

// TestWakeMovesOn is R30 with a chosen clock: each reason moves a wake to the
// next target at its time and not before, and the earlier target is fenced.
func TestWakeMovesOn(t *testing.T) {
	t.Parallel()
	scene(t, "unclaimed", func(t *testing.T, r *rig) {
		r.alive(time.Hour, "laptop", "worker")
		e := r.woken("/chat/1", chain(`{"unclaimedAfterMs":15000}`, `{"unclaimedAfterMs":60000}`, ""))
		first := r.state(e).Wake
		r.turns(15*time.Second, r.target, e, "waking runner 0 1", "waking worker-pool 1 2")
		r.want("stale", op{"op": "acquire", "id": e.consumer, "wake": first, "runner": "laptop", "holder": kyle})
		r.want("stale", op{"op": "acquire", "id": e.consumer, "wake": first, "holder": kyle})
		r.want("not_member", e.by("laptop"))
		equal(t, "old wake", r.state(e).Wakes[0].Delivery, "superseded")
		r.later(time.Minute)
		equal(t, "and on", r.target(e), "waking webhook 2 3")
		r.want("runner_mismatch", e.by("worker"))
		r.later(24 * time.Hour)
		equal(t, "the last waits", r.target(e), "waking webhook 2 3")
		a := r.want("granted", e.acquire().with("proved", true))
		r.want("released", e.call("release", a.Epoch, a.Wake).with("acks", e.acks(r.tail(e))))
		r.alive(time.Hour, "laptop")
		r.push(e)
		r.route(e)
		equal(t, "after progress", r.target(e), "waking runner 0 1")
		r.later(15 * time.Second)
		equal(t, "and again", r.target(e), "waking worker-pool 1 2")
		equal(t, "what was done stays done", r.state(e).Wakes[2].Delivery+" "+r.state(e).Wakes[3].Delivery, "delivered superseded")
	})
	scene(t, "goes offline", func(t *testing.T, r *rig) {
		r.alive(20*time.Second, "laptop")
		e := r.woken("/chat/1", chain(`{"offline":true}`, "", ""))
		r.turns(20*time.Second, r.target, e, "waking runner 0 1", "waking webhook 2 2")
	})
	scene(t, "goes offline after it was told again", func(t *testing.T, r *rig) {
		r.alive(45*time.Second, "laptop")
		e := r.woken("/chat/1", chain(`{"offline":true}`, "", ""))
		r.after(30 * time.Second)
		equal(t, "told", r.reap(), reaped{Redelivered: 1})
		r.turns(15*time.Second, r.target, e, "waking runner 0 1", "waking webhook 2 2")
	})
	scene(t, "comes back before the end", func(t *testing.T, r *rig) {
		r.alive(20*time.Second, "laptop")
		e := r.woken("/chat/1", chain(`{"offline":true}`, "", ""))
		r.after(10 * time.Second)
		r.alive(20*time.Second, "laptop")
		r.later(15 * time.Second)
		equal(t, "alive", r.target(e), "waking runner 0 1")
		r.later(5 * time.Second)
		equal(t, "gone", r.target(e), "waking webhook 2 2")
	})
	scene(t, "says that it goes", func(t *testing.T, r *rig) {
		r.alive(time.Hour, "laptop", "worker")
		e, f := r.woken("/chat/1", chain(`{"offline":true}`, "", "")), r.woken("/chat/2", chain("", "", ""))
		g := r.woken("/chat/3", `{"targets":[{"type":"worker-pool","workerPoolId":"coding"},{"type":"webhook","url":"`+hook+`"}]}`)
		r.after(time.Second)
		r.alive(time.Second, "laptop", "worker")
		r.later(time.Second - time.Millisecond)
		equal(t, "before", r.target(e)+", "+r.target(g), "waking runner 0 1, waking worker-pool 0 1")
		r.later(time.Millisecond)
		for _, x := range []entity{e, f} {
			equal(t, "then", r.target(x), "waking webhook 2 2")
		}
		equal(t, "the pool's last", r.target(g), "waking webhook 1 2")
	})
	t.Run("is sent away", func(t *testing.T) {
		t.Parallel()
		for name, sql := range map[string]string{
			"pool disabled":   `select rouse.pool_put(1, 'coding', $1, false, $1, null, 'disabled', null, null, false)`,
			"member drained":  `select rouse.pool_member_put(1, 'coding', 'worker', $1, false, 'disabled', false)`,
			"member removed":  `select rouse.pool_member_delete(1, 'coding', 'worker', $1, false)`,
			"runner disabled": `select rouse.runner_set_status(1, 'worker', $1, false, 'disabled')`,
			"registered so":   `select rouse.runner_register(1, 'worker', $1, false, $1, 'W', null, 'disabled', null, null)`,
		} {
			r := fallback(t)
			r.now = time.Now()
			r.alive(time.Hour, "worker")
			e := r.woken("/chat/1", `{"targets":[{"type":"worker-pool","workerPoolId":"coding","when":{"offline":true}},{"type":"webhook","url":"`+hook+`"}]}`)
			r.exec(sql, kyle)
			r.now = time.Now().Add(time.Second)
			r.reap()
			equal(t, name, r.target(e), "waking webhook 1 2")
		}
	})
	scene(t, "disabled", func(t *testing.T, r *rig) {
		r.alive(time.Hour, "laptop", "worker")
		e := r.woken("/chat/1", chain(`{"offline":true}`, "", ""))
		r.exec(`select rouse.runner_set_status(1, 'laptop', $1, false, 'disabled')`, kyle)
		r.later(wakeTTL)
		equal(t, "at the next look", r.target(e), "waking worker-pool 1 2")
	})
	t.Run("full", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.runner("laptop", 1)
		r.crew("coding", 0, 0, "worker")
		r.alive(time.Hour, "laptop")
		for when, want := range map[string]string{`{"full":true}`: "waking worker-pool 1 2", `{"offline":true}`: "waking runner 0 1"} {
			e, f := r.woken("/chat/a"+when[2:4], toRunner("laptop")), r.woken("/chat/b"+when[2:4], chain(when, "", ""))
			a := r.want("granted", e.by("laptop"))
			r.want("runner_full", f.by("laptop"))
			r.later(time.Second)
			equal(t, when, r.target(f), want)
			r.want("released", e.call("release", a.Epoch, a.Wake).with("acks", e.acks(r.tail(e))))
		}
	})
	scene(t, "the holder dies", func(t *testing.T, r *rig) {
		r.alive(20*time.Second, "laptop")
		r.alive(time.Hour, "worker")
		e := r.woken("/chat/1", chain("", "", ""))
		a := r.want("granted", e.by("laptop"))
		r.later(lease)
		equal(t, "passed over", r.target(e), "waking worker-pool 1 2")
		r.want("stale", e.call("release", a.Epoch, strange))
		r.want("lease_expired", e.call("release", a.Epoch, a.Wake))
		r.want("granted", e.by("worker"))
	})
	scene(t, "a run that fails stays where it is", func(t *testing.T, r *rig) {
		r.alive(time.Hour, "laptop", "worker")
		e := r.woken("/chat/1", chain("", "", ""))
		a := r.want("granted", e.by("laptop"))
		r.want("released", e.call("release", a.Epoch, a.Wake).with("error", "boom"))
		equal(t, "again", r.target(e), "waking runner 0 2")
		a = r.want("granted", e.by("laptop"))
		r.want("ok", e.call("ack", a.Epoch, a.Wake).with("acks", e.acks(r.tail(e))))
		r.push(e)
		r.want("released", e.call("release", a.Epoch, a.Wake).with("error", "boom"))
		equal(t, "it had moved the cursor", r.target(e), "waking runner 0 1")
	})
	scene(t, "the pool is deleted", func(t *testing.T, r *rig) {
		r.alive(time.Hour, "worker")
		e := r.woken("/chat/1", chain("", `{"failed":true}`, ""))
		equal(t, "at first", r.target(e), "waking worker-pool 1 1")
		r.exec(`select rouse.pool_delete(1, 'coding', $1, false)`, kyle)
		r.now = time.Now().Add(time.Minute)
		r.reap()
		equal(t, "then", r.target(e), "waking webhook 2 2")
	})
	scene(t, "the pool was deleted before", func(t *testing.T, r *rig) {
		e := r.entity("/chat/1", `{"targets":[{"type":"worker-pool","workerPoolId":"coding","when":{"failed":true}},{"type":"webhook","url":"`+hook+`"}]}`)
		r.exec(`select rouse.pool_delete(1, 'coding', $1, false)`, kyle)
		r.push(e)
		equal(t, "routed", r.route(e), "minted")
		equal(t, "passed over", r.target(e), "waking webhook 1 1")
	})
	scene(t, "the pool was deleted, and the other is away", func(t *testing.T, r *rig) {
		e := r.entity("/chat/1", `{"targets":[{"type":"worker-pool","workerPoolId":"coding"},{"type":"runner","runnerId":"laptop","when":{"offline":true}}]}`)
		r.exec(`select rouse.pool_delete(1, 'coding', $1, false)`, kyle)
		r.push(e)
		equal(t, "routed", r.route(e), "minted")
		equal(t, "waits for who is left", r.target(e), "waking runner 1 1")
	})
	scene(t, "nobody would take what its holder left", func(t *testing.T, r *rig) {
		r.alive(10*time.Second, "worker")
		e := r.woken("/chat/1", `{"targets":[{"type":"runner","runnerId":"laptop"},{"type":"worker-pool","workerPoolId":"coding","when":{"offline":true}}]}`)
		r.want("granted", e.by("worker"))
		r.later(lease)
		equal(t, "waits where it was", r.target(e), "waking worker-pool 1 2")
		r.alive(time.Hour, "laptop")
		r.later(wakeTTL)
		equal(t, "until another would", r.target(e), "waking runner 0 3")
	})
	scene(t, "new rounds", func(t *testing.T, r *rig) {
		r.alive(100*time.Hour, "laptop", "worker")
		e := r.woken("/chat/1", `{"targets":[{"type":"runner","runnerId":"laptop","when":{"unclaimedAfterMs":10000}},
			{"type":"worker-pool","workerPoolId":"coding","when":{"unclaimedAfterMs":10000}}]}`)
		for round, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			r.later(10 * time.Second)
			equal(t, "second", r.target(e), fmt.Sprintf("waking worker-pool 1 %d", 2*round+2))
			r.later(10*time.Second + wait*time.Second - time.Millisecond)
			equal(t, "not yet", r.target(e), fmt.Sprintf("waking worker-pool 1 %d", 2*round+2))
			r.later(time.Millisecond)
			equal(t, "first again", r.target(e), fmt.Sprintf("waking runner 0 %d", 2*round+3))
		}
	})
	scene(t, "one target with a when", func(t *testing.T, r *rig) {
		r.alive(time.Hour, "laptop")
		e := r.woken("/chat/1", `{"targets":[{"type":"runner","runnerId":"laptop","when":{"unclaimedAfterMs":5000}}]}`)
		r.later(6 * time.Second)
		equal(t, "a fresh wake", r.target(e), "waking runner 0 2")
	})
}

// TestDeliveryMovesOn: a push transport that gives up a wake hands it to the next
// target at once, and the eighth retry is given up.
func TestDeliveryMovesOn(t *testing.T) {
	t.Parallel()
	const pushFirst = `{"targets":[{"type":"webhook","url":"` + hook + `"%s},{"type":"runner","runnerId":"laptop"%s}]%s}`
	result := func(r *rig, e entity, outcome string) string {
		r.t.Helper()
		n := one[int](r, `select count(*)::int from rouse._delivery_lend(10, 10, '{}', $1)`, r.now)
		if n != 1 {
			r.t.Fatalf("%d wakes due", n)
		}
		w := r.state(e).lastWake()
		return one[string](r, `select rouse._delivery_result(1, $1::uuid, $2, $3, 0, 500, 'no', $4)`, w.ID, w.Attempts, outcome, r.now)
	}
	for _, outcome := range []string{"permanent", "unknown"} {
		r := fallback(t)
		e := r.woken("/chat/1", fmt.Sprintf(pushFirst, "", "", ""))
		equal(t, outcome, result(r, e, outcome), "moved")
		equal(t, "to", r.target(e), "waking runner 1 2")
		equal(t, "told", len(r.entries("laptop")), 1)
	}
	scene(t, "the eighth retry", func(t *testing.T, r *rig) {
		e := r.woken("/chat/1", fmt.Sprintf(pushFirst, `,"when":{"failed":true}`, "", ""))
		for range 7 {
			equal(t, "retry", result(r, e, "retry"), "retry")
			r.after(time.Minute)
		}
		equal(t, "eighth", result(r, e, "retry"), "moved")
		equal(t, "to", r.target(e), "waking runner 1 2")
	})
	scene(t, "not when its policy does not say so", func(t *testing.T, r *rig) {
		e := r.woken("/chat/1", fmt.Sprintf(pushFirst, `,"when":{"unclaimedAfterMs":3600000}`, "", ""))
		for range 8 {
			equal(t, "retry", result(r, e, "retry"), "retry")
			r.after(time.Minute)
		}
		equal(t, "refused", result(r, e, "permanent"), "failed")
		equal(t, "stays", r.target(e), "waking webhook 0 1")
		r.later(time.Hour)
		equal(t, "until its time", r.target(e), "waking runner 1 2")
	})
	scene(t, "the last begins a new round", func(t *testing.T, r *rig) {
		r.alive(time.Hour, "laptop")
		e := r.woken("/chat/1", `{"targets":[{"type":"runner","runnerId":"laptop","when":{"unclaimedAfterMs":1000}},{"type":"webhook","url":"`+hook+`","when":{"failed":true}}]}`)
		r.later(time.Second)
		equal(t, "second", r.target(e), "waking webhook 1 2")
		equal(t, "refused", result(r, e, "permanent"), "failed")
		r.turns(time.Second, r.target, e, "waking webhook 1 2", "waking runner 0 3")
	})
}
