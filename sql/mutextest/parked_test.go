package mutextest

import (
	"testing"
	"time"
)

func (r *rig) parked(e entity) string {
	r.t.Helper()
	r.hold()
	return one[string](r, `select concat_ws(' ', state, paused, parked_reason) from rouse.consumers where id = $1`, e.consumer)
}

func (r *rig) redrive(e entity, by string) string {
	r.t.Helper()
	return one[string](r, `select rouse._entity_redrive(1, $1, $2, false, $3)`, e.url, by, r.now)
}

func laptopOnly(giveUp string) string {
	return `{"targets":[{"type":"runner","runnerId":"laptop"}],"giveUp":` + giveUp + `}`
}

// TestGivenUp is R30's dead letter with a chosen clock: what no target took in
// time, or was tried too often, is parked with its reason, stays pending, and goes
// on when somebody redrives it.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	scene(t, "unclaimed for too long", func(t *testing.T, r *rig) {
		e := r.woken("/chat/1", laptopOnly(`{"afterMs":60000}`))
		first := r.state(e).Wake
		r.turns(time.Minute, r.parked, e, "waking f", "idle t unclaimed")
		equal(t, "its wake", r.state(e).lastWake().Delivery, "superseded")
		r.want("paused", e.by("laptop"))
		r.want("paused", op{"op": "acquire", "id": e.consumer, "wake": first, "runner": "laptop", "holder": kyle})
		r.push(e)
		equal(t, "what is sent stays", r.route(e), "idle")
		equal(t, "nor does the scan", one[int](r, `select count(*)::int from rouse.dispatch_scan(0, 100)`), 0)
		equal(t, "noted", one[string](r, `select detail ->> 'reason' from rouse.audit_log where action = 'entity.park' and resource = $1`, e.url), "unclaimed")

		equal(t, "by another", r.redrive(e, mallory), "forbidden")
		r.after(time.Hour)
		equal(t, "redriven", r.redrive(e, kyle), "redriven")
		equal(t, "again", r.redrive(e, kyle), "not_parked")
		equal(t, "a fresh wake", r.target(e), "waking runner 0 1")
		r.later(time.Minute - time.Millisecond)
		equal(t, "counted anew", r.parked(e), "waking f")
		r.want("granted", e.by("laptop"))
	})
	scene(t, "a holder in between", func(t *testing.T, r *rig) {
		e := r.woken("/chat/1", laptopOnly(`{"afterMs":60000}`))
		r.after(50 * time.Second)
		a := r.want("granted", e.by("laptop"))
		r.later(20 * time.Second)
		r.want("released", e.call("release", a.Epoch, a.Wake).with("error", "boom"))
		r.later(59 * time.Second)
		equal(t, "from when it was let go", r.parked(e), "waking f")
		r.later(time.Second)
		equal(t, "then", r.parked(e), "idle t unclaimed")
	})
	scene(t, "a pause in between", func(t *testing.T, r *rig) {
		e := r.woken("/chat/1", laptopOnly(`{"afterMs":60000}`))
		signal := func(s string) {
			r.exec(`select * from rouse._entity_signal((select e from rouse.entities e where e.url = $1), (select c from rouse.consumers c where c.id = $2), $3, $4, $5, gen_random_uuid()::text, null, null, $6)`,
				e.url, e.consumer, e.stream, kyle, s, r.now)
		}
		signal("SIGSTOP")
		r.later(time.Hour)
		signal("SIGCONT")
		r.turns(time.Minute, r.parked, e, "waking f", "idle t unclaimed")
	})
	scene(t, "a move in between", func(t *testing.T, r *rig) {
		e := r.woken("/chat/1", toRunner("laptop"))
		r.after(time.Hour)
		r.move(e, kyle, laptopOnly(`{"afterMs":60000}`), nil)
		r.turns(time.Minute, r.parked, e, "waking f", "idle t unclaimed")
	})
	scene(t, "too many attempts", func(t *testing.T, r *rig) {
		r.alive(time.Hour, "laptop")
		e := r.woken("/chat/1", laptopOnly(`{"attempts":3}`))
		a := r.want("granted", e.by("laptop"))
		r.want("released", e.call("release", a.Epoch, a.Wake).with("error", "boom"))
		a = r.want("granted", e.by("laptop"))
		r.later(lease)
		equal(t, "third", r.target(e), "waking runner 0 3")
		a = r.want("granted", e.by("laptop"))
		r.want("released", e.call("release", a.Epoch, a.Wake).with("error", "boom"))
		equal(t, "used up", r.parked(e), "idle t attempts_exhausted")
		r.want("released", e.call("release", a.Epoch, a.Wake).with("error", "boom"))
		equal(t, "redriven", r.redrive(e, kyle), "redriven")
		equal(t, "from the first", r.target(e), "waking runner 0 1")
	})
	scene(t, "moves count", func(t *testing.T, r *rig) {
		r.alive(time.Hour, "laptop", "worker")
		e := r.woken("/chat/1", `{"targets":[{"type":"runner","runnerId":"laptop","when":{"unclaimedAfterMs":1000}},
			{"type":"worker-pool","workerPoolId":"coding","when":{"unclaimedAfterMs":1000}}],"giveUp":{"attempts":2}}`)
		r.later(time.Second)
		equal(t, "second", r.target(e), "waking worker-pool 1 2")
		r.later(2 * time.Second)
		equal(t, "used up", r.parked(e), "idle t attempts_exhausted")
		r.push(e)
		r.later(24 * time.Hour)
		equal(t, "for good", r.parked(e), "idle t attempts_exhausted")
	})
	scene(t, "progress counts anew", func(t *testing.T, r *rig) {
		e := r.woken("/chat/1", laptopOnly(`{"attempts":2}`))
		for range 3 {
			a := r.want("granted", e.by("laptop"))
			r.want("ok", e.call("ack", a.Epoch, a.Wake).with("acks", e.acks(r.tail(e))))
			r.push(e)
			r.want("released", e.call("release", a.Epoch, a.Wake).with("error", "boom"))
			equal(t, "goes on", r.target(e), "waking runner 0 1")
		}
	})
	t.Run("refused for good", func(t *testing.T) {
		t.Parallel()
		for giveUp, want := range map[string]string{`{"attempts":9}`: "parked", `{"afterMs":60000}`: "failed"} {
			r := fallback(t)
			e := r.woken("/chat/1", `{"targets":[{"type":"webhook","url":"`+hook+`"}],"giveUp":`+giveUp+`}`)
			r.exec(`select rouse._delivery_lend(1, 1, '{}', $1)`, r.now)
			equal(t, giveUp, one[string](r, `select rouse._delivery_result(1, $1::uuid, 1, 'permanent', 0, 410, 'gone', $2)`, r.state(e).Wake, r.now), want)
			r.later(time.Minute)
			equal(t, giveUp, r.parked(e), "idle t delivery_failed")
		}
	})
	scene(t, "no target left", func(t *testing.T, r *rig) {
		r.alive(time.Hour, "worker")
		e, f, g := r.woken("/chat/1", toPool("coding")), r.woken("/chat/2", toPool("coding")), r.entity("/chat/3", toPool("coding"))
		a := r.want("granted", f.by("worker"))
		r.exec(`select rouse.pool_delete(1, 'coding', $1, false)`, kyle)
		r.want("ok", f.call("heartbeat", a.Epoch, a.Wake))
		r.want("pool_disabled", e.by("worker"))
		r.want("released", f.call("release", a.Epoch, a.Wake))
		equal(t, "held", r.parked(f), "idle t no_target")
		r.push(g)
		equal(t, "sent later", r.route(g), "no_target")
		equal(t, "too", r.parked(g), "idle t no_target")
		r.now = time.Now().Add(time.Minute)
		r.reap()
		equal(t, "waiting", r.parked(e), "idle t no_target")
		equal(t, "in vain", r.redrive(e, kyle), "no_target")
		equal(t, "all in vain", one[int](r, `select rouse.parked_redrive(1, $1, false, null, null, 100)`, kyle), 0)
		equal(t, "still", r.parked(e), "idle t no_target")
		r.crew("coding", 0, 0)
		equal(t, "all of them", one[int](r, `select rouse.parked_redrive(1, $1, false, 'chat', 'no_target', 100)`, kyle), 3)
		equal(t, "goes on", r.target(e), "waking worker-pool 0 1")
	})
}

// TestParkedAndPaused: neither a signal nor a message wakes what is parked, and a
// redrive does not wake what is paused.
func TestParkedAndPaused(t *testing.T) {
	t.Parallel()
	r := fallback(t)
	park := func(url string) entity {
		e := r.woken(url, laptopOnly(`{"afterMs":1000}`))
		r.later(time.Second)
		equal(t, "parked", r.parked(e), "idle t unclaimed")
		return e
	}
	signal := func(e entity, sig string) {
		r.exec(`select rouse.entity_signal(1, $1, $2, $3, gen_random_uuid()::text, null, null)`, e.url, kyle, sig)
	}
	e := park("/chat/1")
	signal(e, "SIGSTOP")
	signal(e, "SIGCONT")
	equal(t, "goes on being parked", r.parked(e), "idle t unclaimed")
	signal(e, "SIGSTOP")
	r.exec(`select rouse.entity_resume(1, $1)`, e.url)
	equal(t, "by a message", r.parked(e), "idle t unclaimed")
	signal(e, "SIGSTOP")
	equal(t, "redriven", r.redrive(e, kyle), "redriven")
	equal(t, "paused", r.parked(e), "idle t")
	signal(e, "SIGCONT")
	equal(t, "wakes", r.target(e), "waking runner 0 1")
	signal(e, "SIGKILL")

	f := park("/chat/2")
	signal(f, "SIGKILL")
	equal(t, "ended", r.redrive(f, kyle), "not_parked")
	equal(t, "of nobody else's", one[int](r, `select rouse.parked_redrive(1, $1, false, null, null, 100)`, mallory), 0)
	g := park("/chat/3")
	equal(t, "not listed", one[int](r, `select count(*)::int from rouse.parked_list(1, $1, false, null, 10)`, mallory), 0)
	equal(t, "listed", one[string](r, `select entity_url || ' ' || reason || ' ' || attempts from rouse.parked_list(1, $1, false, null, 10)`, kyle), "/chat/3 unclaimed 1")
	equal(t, "of another type", one[int](r, `select rouse.parked_redrive(1, $1, false, 'other', null, 100)`, kyle), 0)
	equal(t, "for another reason", one[int](r, `select rouse.parked_redrive(1, $1, false, null, 'no_target', 100)`, kyle), 0)
	equal(t, "by the system", one[int](r, `select rouse.parked_redrive(1, '/principal/system%3Adev-local', true, null, 'unclaimed', 100)`), 1)
	equal(t, "goes on", r.target(g), "waking runner 0 1")
}

// TestAReleaseSaysWhetherThereIsANextWake: what is given up when its claim ends
// has none, however often the release is repeated.
func TestAReleaseSaysWhetherThereIsANextWake(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		policy, between string
		next            bool
		parked          string
	}{
		"used up":       {laptopOnly(`{"attempts":1}`), "", false, "idle t attempts_exhausted"},
		"not yet":       {laptopOnly(`{"attempts":2}`), "", true, "waking f"},
		"its pool is":   {toPool("coding"), "", true, "waking f"},
		"pool is gone":  {toPool("coding"), `select rouse.pool_delete(1, 'coding', '` + kyle + `', false)`, false, "idle t no_target"},
		"nothing to it": {toRunner("laptop"), "", true, "waking f"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.runner("laptop", 0)
			r.alive(time.Hour, "laptop")
			r.crew("coding", 0, 0, "a")
			e := r.woken("/chat/1", tc.policy)
			by := "laptop"
			if tc.policy == toPool("coding") {
				by = "a"
			}
			a := r.want("granted", e.by(by))
			if tc.between != "" {
				r.exec(tc.between)
			}
			o := e.call("release", a.Epoch, a.Wake).with("error", "boom")
			for range 2 {
				if got := r.want("released", o); got.NextWake == nil || *got.NextWake != tc.next {
					t.Errorf("next wake: %v, want %t", val(got.NextWake), tc.next)
				}
				equal(t, "became", r.parked(e), tc.parked)
			}
		})
	}
}
