package mutextest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// walker drives pools, policies of several targets, moves and redrives at random
// and keeps what must hold of every history: the invariants after each step; no
// grant to who may not have it; no limit passed by a grant; and in the end, once
// everybody is there and unlimited, all work done.
type walker struct {
	r        *rig
	runners  []string
	pool     string
	entities []entity
	claims   map[string]answer // the last grant of each entity
	done     map[string]int
	prefix   string
}

func (x *walker) acquire(t *rapid.T, o op, runner string) {
	got := x.r.apply(o)
	x.done["acquire "+got.Outcome]++
	if got.Outcome != "granted" && got.Outcome != "repeated" {
		return
	}
	e := x.entities[slices.IndexFunc(x.entities, func(e entity) bool { return e.consumer == got.ConsumerID })]
	x.claims[e.url] = got
	if got.Outcome == "repeated" || runner == "" {
		return
	}
	if why := one[*string](x.r, `select case
		when r.admin_status <> 'enabled' then 'the runner is disabled'
		when k.pool_id is not null and (w.id is null or w.admin_status <> 'enabled') then 'the pool is disabled'
		when k.pool_id is not null and not exists (select from rouse.worker_pool_members m where m.pool_id = k.pool_id and m.runner_id = k.runner_id and m.status = 'active') then 'it is no member'
		when r.capacity < (select count(*) from rouse.consumer_claims o where o.runner_id = k.runner_id and o.status = 'active' and o.lease_expires_at > $3) then 'the runner has more than it may'
		when w.max_total_claims < (select count(*) from rouse.consumer_claims o where o.pool_id = k.pool_id and o.status = 'active' and o.lease_expires_at > $3) then 'the pool has more than it may'
		when w.max_concurrent_claims_per_runner < (select count(*) from rouse.consumer_claims o where o.pool_id = k.pool_id and o.runner_id = k.runner_id and o.status = 'active' and o.lease_expires_at > $3)
		then 'the runner has more of the pool than it may' end
		from rouse.consumer_claims k left join rouse.runners r on r.id = k.runner_id left join rouse.worker_pools w on w.id = k.pool_id
		where k.consumer_id = $1 and k.epoch = $2`, got.ConsumerName, got.Epoch, x.r.now); why != nil {
		t.Fatalf("granted, and %s", *why)
	}
}

func (x *walker) policy(t *rapid.T) string {
	laptop, worker := x.runners[0], x.runners[1]
	return rapid.SampledFrom([]string{
		toRunner(laptop), toPool(x.pool), toPool(x.pool), toWebhook,
		`{"targets":[{"type":"runner","runnerId":"` + laptop + `"},{"type":"worker-pool","workerPoolId":"` + x.pool + `"},{"type":"webhook","url":"` + hook + `"}]}`,
		`{"targets":[{"type":"worker-pool","workerPoolId":"` + x.pool + `","when":{"unclaimedAfterMs":5000}},{"type":"runner","runnerId":"` + worker + `","when":{"unclaimedAfterMs":5000,"offline":true}}]}`,
		`{"targets":[{"type":"runner","runnerId":"` + laptop + `","when":{"full":true}},{"type":"worker-pool","workerPoolId":"` + x.pool + `"}],"giveUp":{"attempts":4}}`,
		`{"targets":[{"type":"worker-pool","workerPoolId":"` + x.pool + `"}],"giveUp":{"afterMs":60000}}`,
		`{"targets":[{"type":"webhook","url":"` + hook + `"},{"type":"worker-pool","workerPoolId":"` + x.pool + `"}],"giveUp":{"afterMs":90000,"attempts":6}}`,
	}).Draw(t, "policy")
}

func (x *walker) actions(t *rapid.T) map[string]func(*rapid.T) {
	r := x.r
	some := func(t *rapid.T) entity { return rapid.SampledFrom(x.entities).Draw(t, "entity") }
	runner := func(t *rapid.T) string { return rapid.SampledFrom(x.runners).Draw(t, "runner") }
	acquire := func(t *rapid.T) {
		e, id := some(t), runner(t)
		x.acquire(t, e.by(id), id)
	}
	mostly := []string{"enabled", "enabled", "enabled", "enabled", "disabled"}
	push := func(t *rapid.T) { e := some(t); r.push(e); r.route(e) }
	return map[string]func(*rapid.T){
		"":     func(t *rapid.T) { r.hold() },
		"push": push, "push 2": push, "push 3": push,
		"push untold": func(t *rapid.T) { r.push(some(t)) },
		"scan":        func(t *rapid.T) { x.scan() },
		"acquire":     acquire, "acquire 2": acquire, "acquire 3": acquire, "acquire 4": acquire,
		"acquire an old wake": func(t *rapid.T) {
			e := some(t)
			if g, ok := x.claims[e.url]; ok {
				x.acquire(t, e.by(g.Runner).with("wake", g.Wake), g.Runner)
			}
		},
		"seek": func(t *rapid.T) {
			id := runner(t)
			x.acquire(t, op{"op": "acquire", "runner": id, "holder": kyle, "claim_id": fmt.Sprint("s", r.now.UnixNano())}, id)
		},
		"acquire by token": func(t *rapid.T) {
			x.acquire(t, some(t).acquire().with("proved", true).with("holder", mallory), "")
		},
		"release": func(t *rapid.T) {
			e := some(t)
			g, ok := x.claims[e.url]
			if !ok {
				t.Skip("never held")
			}
			o := e.call("release", g.Epoch, g.Wake)
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				o["error"] = "boom"
			case 1:
				o["acks"] = e.acks(r.tail(e))
			}
			x.done["release "+r.apply(o).Outcome]++
		},
		"heartbeat": func(t *rapid.T) {
			e := some(t)
			if g, ok := x.claims[e.url]; ok {
				x.done["heartbeat "+r.apply(e.call("heartbeat", g.Epoch, g.Wake)).Outcome]++
			}
		},
		"ack": func(t *rapid.T) {
			e := some(t)
			if g, ok := x.claims[e.url]; ok {
				x.done["ack "+r.apply(e.call("ack", g.Epoch, g.Wake).with("acks", e.acks(r.tail(e)))).Outcome]++
			}
		},
		"time passes": func(t *rapid.T) {
			r.after(rapid.SampledFrom([]time.Duration{time.Second, 5 * time.Second, 10 * time.Second, lease, time.Minute}).Draw(t, "d"))
		},
		"reap": func(t *rapid.T) { r.reap() },
		"beat": func(t *rapid.T) {
			r.beat(runner(t), rapid.SampledFrom([]time.Duration{5 * time.Second, time.Minute, time.Hour}).Draw(t, "liveness"))
		},
		"runner": func(t *rapid.T) {
			r.exec(`select rouse.runner_register(1, $1, $2, false, $2, $1, null, $3, null, $4)`, runner(t), kyle,
				rapid.SampledFrom(mostly).Draw(t, "status"), rapid.IntRange(1, 3).Draw(t, "capacity"))
		},
		"member": func(t *rapid.T) {
			r.member(x.pool, runner(t), kyle, rapid.SampledFrom([]string{"active", "active", "disabled"}).Draw(t, "status"), false)
		},
		"limits": func(t *rapid.T) {
			r.exec(`select rouse.pool_put(1, $1, $2, false, $2, null, $3, nullif($4, 0), nullif($5, 0), true)`, x.pool, kyle,
				rapid.SampledFrom(mostly).Draw(t, "status"), rapid.IntRange(0, 2).Draw(t, "per runner"), rapid.IntRange(0, 3).Draw(t, "total"))
		},
		"move": func(t *rapid.T) {
			out, _ := r.move(some(t), kyle, x.policy(t), rapid.SampledFrom([]int{0, 1000, 30000}).Draw(t, "deadline"))
			x.done["move "+out]++
		},
		"redrive": func(t *rapid.T) { x.done["redrive "+r.redrive(some(t), kyle)]++ },
		"pause": func(t *rapid.T) {
			r.exec(`select rouse.entity_signal(1, $1, $2, $3, gen_random_uuid()::text, null, null)`, some(t).url, kyle, rapid.SampledFrom([]string{"SIGSTOP", "SIGCONT", "SIGCONT", "SIGCONT"}).Draw(t, "signal"))
		},
		"deliver": func(t *rapid.T) {
			outcome := rapid.SampledFrom([]string{"accepted", "done", "retry", "permanent", "unknown"}).Draw(t, "outcome")
			for _, became := range one[[]string](r, `select coalesce(array_agg(rouse._delivery_result(1, d.wake_id, d.attempt, $2, 0, 200, null, $1)), '{}') from rouse._delivery_lend(1, 1, '{}', $1) d`, r.now, outcome) {
				x.done["deliver "+became]++
			}
		},
	}
}

func (x *walker) scan() {
	x.r.exec(`select rouse._dispatch_route(array_agg(stream_id), array_agg("position"), $1) from rouse.dispatch_scan(0, 1000)`, x.r.now)
}

// finish has everybody there, unlimited and working, and demands that all is done.
func (x *walker) finish(t *rapid.T) {
	r := x.r
	r.exec(`select rouse.pool_put(1, $1, $2, false, $2, null, 'enabled', null, null, true)`, x.pool, kyle)
	r.exec(`update rouse.runners set capacity = null where id like $1`, x.prefix+"%")
	for _, id := range x.runners {
		r.exec(`select rouse.runner_set_status(1, $1, $2, false, 'enabled')`, id, kyle)
		r.member(x.pool, id, kyle, "active", false)
		r.beat(id, 1000*time.Hour)
	}
	for _, e := range x.entities {
		r.exec(`select rouse.entity_signal(1, $1, $2, 'SIGCONT', gen_random_uuid()::text, null, null)`, e.url, kyle)
		r.redrive(e, kyle)
	}
	for range 12 {
		r.later(lease)
		x.scan()
		for _, id := range x.runners {
			for {
				g := r.apply(op{"op": "acquire", "runner": id, "holder": kyle, "claim_id": fmt.Sprint("f", r.now.UnixNano(), id)})
				if g.Outcome != "granted" {
					break
				}
				i := slices.IndexFunc(x.entities, func(e entity) bool { return e.consumer == g.ConsumerID })
				e := x.entities[i]
				r.want("released", e.call("release", g.Epoch, g.Wake).with("acks", e.acks(r.tail(e))))
			}
		}
		// What was refused for good is a person's to send again.
		r.exec(`select rouse._wake_redeliver(1, wake_id, $1, $2) from rouse.wake_notifications where delivery_status = 'failed' and resolved_at is null`, kyle, r.now)
		r.exec(`select rouse._delivery_result(1, d.wake_id, d.attempt, 'done', 0, 200, null, $1) from rouse._delivery_lend(100, 100, '{}', $1) d`, r.now)
		for _, e := range x.entities {
			if r.parked(e) != "idle f" {
				r.redrive(e, kyle)
			}
		}
	}
	for _, e := range x.entities {
		if s := r.state(e); s.Actionable > s.Acked {
			t.Fatalf("%s is not done: %s, %+v", e.url, r.target(e), s)
		}
	}
}

func TestPoolsAtRandom(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	done := map[string]int{}
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		x := &walker{r: r, prefix: fmt.Sprintf("w%d-", n), claims: map[string]answer{}, done: done}
		// What earlier histories left over is over.
		r.exec(`select rouse.entity_signal(1, url, created_by, 'SIGKILL', gen_random_uuid()::text, null, null) from rouse.entities where status not in ('killed', 'stopped')`)
		x.pool = x.prefix + "pool"
		r.pool(x.pool, 0, 2)
		for i := range 3 {
			id := fmt.Sprintf("%s%d", x.prefix, i)
			r.runner(id, 2)
			x.runners = append(x.runners, id)
			r.member(x.pool, id, kyle, "active", false)
			r.beat(id, time.Hour)
		}
		for i := range 4 {
			x.entities = append(x.entities, r.entity(fmt.Sprintf("/chat/%s%d", x.prefix, i), x.policy(t)))
		}
		t.Repeat(x.actions(t))
		x.finish(t)
	})
	t.Log(done)
	for _, o := range []string{"acquire granted", "acquire held", "acquire not_member", "acquire runner_disabled", "acquire stale",
		"move moved", "redrive not_parked", "release released", "heartbeat ok"} {
		if done[o] == 0 {
			t.Errorf("no history met %q", o)
		}
	}
}
