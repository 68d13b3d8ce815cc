package mutextest

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/soon"
)

// full is a rig whose pool coding has that many slots in all, held by a, and a
// wake more that was asked for and refused.
func full(t *testing.T, slots int) (r *rig, held []entity, grants []answer, waits entity) {
	r = newRig(t)
	r.crew("coding", 0, slots, "a")
	for i := range slots {
		e := r.woken(fmt.Sprintf("/chat/%d", i), toPool("coding"))
		held, grants = append(held, e), append(grants, r.want("granted", e.by("a")))
	}
	waits = r.woken("/chat/waits", toPool("coding"))
	r.want("pool_full", waits.by("a"))
	return r, held, grants, waits
}

func (r *rig) done(e entity, a answer) {
	r.t.Helper()
	r.want("released", e.call("release", a.Epoch, a.Wake).with("acks", e.acks(r.tail(e))))
}

// TestNoRoomIsToldOf: a slot that nobody could take is told to nobody: of a pool
// that holds more than a lowered limit, or is disabled, or of a runner whose pool
// is full by others.
func TestNoRoomIsToldOf(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"lowered":  `select rouse.pool_put(1, 'coding', $1, false, $1, null, null, null, 1, true)`,
		"disabled": `select rouse.pool_put(1, 'coding', $1, false, $1, null, 'disabled', null, 2, true)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, held, grants, _ := full(t, 2)
			r.exec(sql, kyle)
			before := r.poolEntries("coding")
			r.done(held[0], grants[0])
			equal(t, "told", r.poolEntries("coding"), before)
		})
	}
	t.Run("lowered by more", func(t *testing.T) {
		t.Parallel()
		r, held, grants, _ := full(t, 3)
		r.exec(`select rouse.pool_put(1, 'coding', $1, false, $1, null, null, null, 1, true)`, kyle)
		before := r.poolEntries("coding")
		r.done(held[0], grants[0])
		r.done(held[1], grants[1])
		equal(t, "still more than it may", r.poolEntries("coding"), before)
		r.done(held[2], grants[2])
		equal(t, "room", r.poolEntries("coding"), before+1)
	})
	t.Run("the runner's pool is full by others", func(t *testing.T) {
		t.Parallel()
		r, _, _, _ := full(t, 1)
		r.runner("b", 1)
		r.beat("b", time.Hour)
		r.member("coding", "b", kyle, "active", false)
		own := r.woken("/chat/own", toRunner("b"))
		a := r.want("granted", own.by("b"))
		before := r.poolEntries("coding")
		r.done(own, a)
		equal(t, "told", r.poolEntries("coding"), before)
	})
	t.Run("the runner is disabled", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.runner("b", 1)
		e, f := r.woken("/chat/1", toRunner("b")), r.woken("/chat/2", toRunner("b"))
		a := r.want("granted", e.by("b"))
		r.want("runner_full", f.by("b"))
		r.exec(`select rouse.runner_set_status(1, 'b', $1, false, 'disabled')`, kyle)
		r.done(e, a)
		equal(t, "told", r.state(f).lastWake().Attempts, 1)
	})
}

// TestSeekPassesOverPoolsWithoutRoom: an acquire that names nothing is not stuck
// at the oldest wake when that is of a pool which is disabled or of which the
// runner holds what it may.
func TestSeekPassesOverPoolsWithoutRoom(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"its share": `select rouse.pool_put(1, 'coding', $1, false, $1, null, null, 1, null, true)`,
		"disabled":  `select rouse.pool_put(1, 'coding', $1, false, $1, null, 'disabled', null, null, true)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.crew("coding", 0, 0, "a")
			r.crew("review", 0, 0)
			r.member("review", "a", kyle, "active", false)
			r.want("granted", r.woken("/chat/1", toPool("coding")).by("a"))
			r.woken("/chat/2", toPool("coding"))
			r.after(time.Second)
			young := r.woken("/chat/3", toPool("review"))
			r.exec(sql, kyle)
			got := r.apply(op{"op": "acquire", "runner": "a", "holder": kyle, "claim_id": "x"})
			equal(t, "got", got.Outcome+" "+got.ConsumerName, "granted "+young.name)
		})
	}
}

// TestPoolIsFullWhenItsMembersAre: a policy passes over a pool that has room
// itself, while none of its members that are there has any.
func TestPoolIsFullWhenItsMembersAre(t *testing.T) {
	t.Parallel()
	const policy = `{"targets":[{"type":"worker-pool","workerPoolId":"coding"},{"type":"webhook","url":"` + hook + `"}]}`
	for name, c := range map[string]struct{ perRunner, capacity int }{"by their share": {1, 0}, "by capacity": {0, 1}, "by both": {2, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.pool("coding", c.perRunner, 0)
			for _, id := range []string{"a", "b"} {
				r.runner(id, c.capacity)
				r.beat(id, time.Hour)
				r.member("coding", id, kyle, "active", false)
			}
			r.want("granted", r.woken("/chat/1", policy).by("a"))
			second := r.woken("/chat/2", policy)
			equal(t, "one has room", r.target(second), "waking worker-pool 0 1")
			r.want("granted", second.by("b"))
			equal(t, "none has", r.target(r.woken("/chat/3", policy)), "waking webhook 1 1")
		})
	}
}

// TestTargetOfSeveralWaitsQuietly: a wake that may move on is told again only
// while its target would take it, and a new round begins when its wait is over,
// not as soon as an earlier target would take it.
func TestTargetOfSeveralWaitsQuietly(t *testing.T) {
	t.Parallel()
	scene(t, "offline", func(t *testing.T, r *rig) {
		e := r.woken("/chat/1", chain(`{"unclaimedAfterMs":3600000}`, "", ""))
		r.after(wakeTTL)
		equal(t, "nobody there", r.reap(), reaped{})
		equal(t, "told", r.state(e).lastWake().Attempts, 1)
		r.alive(time.Hour, "laptop")
		r.after(wakeTTL)
		equal(t, "there", r.reap(), reaped{Redelivered: 1})
	})
	scene(t, "a new round", func(t *testing.T, r *rig) {
		r.alive(10*time.Second, "worker")
		e := r.woken("/chat/1", `{"targets":[{"type":"runner","runnerId":"laptop"},{"type":"worker-pool","workerPoolId":"coding","when":{"offline":true}}]}`)
		r.want("granted", e.by("worker"))
		r.after(lease)
		r.alive(time.Hour, "laptop")
		r.reap()
		equal(t, "its holder died", r.target(e), "waking worker-pool 1 2")
		r.after(time.Second - time.Millisecond)
		r.exec(`update rouse.consumers set due_at = $2 where id = $1`, e.consumer, r.now) // as a member that goes has it
		r.reap()
		equal(t, "not yet", r.target(e), "waking worker-pool 1 2")
		r.after(time.Millisecond)
		r.exec(`update rouse.consumers set due_at = $2 where id = $1`, e.consumer, r.now)
		r.reap()
		equal(t, "then", r.target(e), "waking runner 0 3")
	})
}

// TestSeekPassesOverWhatIsBeingTaken: an acquire that names nothing does not wait
// for the oldest wake while somebody else is at it, if there is another.
func TestSeekPassesOverWhatIsBeingTaken(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]string{"a pool's": toPool("coding"), "its own": toRunner("a")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.crew("coding", 0, 0, "a")
			old := r.woken("/chat/1", policy)
			r.after(time.Second)
			young := r.woken("/chat/2", policy)
			other := r.db.Conn(t)
			tx, err := other.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), `select from rouse.consumers where id = $1 for update`, old.consumer); err != nil {
				t.Fatal(err)
			}
			got := r.apply(op{"op": "acquire", "runner": "a", "holder": kyle, "claim_id": "x"})
			equal(t, "got", got.Outcome+" "+got.ConsumerName, "granted "+young.name)
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			got = r.apply(op{"op": "acquire", "runner": "a", "holder": kyle, "claim_id": "y"})
			equal(t, "then", got.Outcome+" "+got.ConsumerName, "granted "+old.name)
		})
	}
}

// TestRedriveForgetsFailures: what is redriven is told at once and without an old
// error, also by a push transport whose receiver had made no progress.
func TestRedriveForgetsFailures(t *testing.T) {
	t.Parallel()
	r := fallback(t)
	e := r.woken("/chat/1", `{"targets":[{"type":"webhook","url":"`+hook+`"}],"giveUp":{"attempts":4}}`)
	for range 4 {
		a := r.want("granted", e.acquire().with("proved", true))
		r.want("released", e.call("release", a.Epoch, a.Wake).with("error", "boom"))
	}
	equal(t, "given up", r.parked(e), "idle t attempts_exhausted")
	equal(t, "redriven", r.redrive(e, kyle), "redriven")
	equal(t, "told at once", one[bool](r, `select next_attempt_at = $2 from rouse.wake_notifications where wake_id = $1::uuid`, r.state(e).Wake, r.now), true)
	equal(t, "error", one[bool](r, `select last_error is null from rouse.entity_dispatch_state where entity_url = $1`, e.url), true)
}

// TestFailuresOfAPoolDelayNoReceiver: runs that fail in a pool are not held
// against the webhook that is tried after it.
func TestFailuresOfAPoolDelayNoReceiver(t *testing.T) {
	t.Parallel()
	r := fallback(t)
	r.alive(time.Hour, "worker")
	e := r.woken("/chat/1", `{"targets":[{"type":"worker-pool","workerPoolId":"coding","when":{"unclaimedAfterMs":1000}},{"type":"webhook","url":"`+hook+`"}]}`)
	for range 4 {
		a := r.want("granted", e.by("worker"))
		r.want("released", e.call("release", a.Epoch, a.Wake).with("error", "boom"))
	}
	r.later(time.Second)
	equal(t, "moved on", r.target(e), "waking webhook 1 6")
	equal(t, "told at once", one[bool](r, `select next_attempt_at = $2 from rouse.wake_notifications where wake_id = $1::uuid`, r.state(e).Wake, r.now), true)
}

// TestAHeartbeatMakesNoClaimTooMany: a heartbeat that came in time and a claim
// that comes behind the lease's end, at once: the slot is one's or the other's.
func TestAHeartbeatMakesNoClaimTooMany(t *testing.T) {
	t.Parallel()
	for name, who := range map[string]func(r *rig) (held, next entity, by, then string){
		"of a pool": func(r *rig) (entity, entity, string, string) {
			r.crew("coding", 0, 1, "a", "b")
			return r.woken("/chat/1", toPool("coding")), r.woken("/chat/2", toPool("coding")), "a", "b"
		},
		"of a member": func(r *rig) (entity, entity, string, string) {
			r.crew("coding", 1, 0, "a")
			return r.woken("/chat/1", toPool("coding")), r.woken("/chat/2", toPool("coding")), "a", "a"
		},
		"of a runner": func(r *rig) (entity, entity, string, string) {
			r.runner("a", 1)
			return r.woken("/chat/1", toRunner("a")), r.woken("/chat/2", toRunner("a")), "a", "a"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			held, next, by, then := who(r)
			a := r.want("granted", held.by(by))
			const ask = `select (answer).outcome from rouse._claim_apply($1, $2, $3)`
			begin := func(o op, wait bool, at time.Duration) (string, pgx.Tx) {
				t.Helper()
				tx, err := r.db.Conn(t).Begin(r.ctx())
				if err != nil {
					t.Fatal(err)
				}
				var got string
				if err := tx.QueryRow(r.ctx(), ask, opsJSON(o), wait, r.now.Add(at)).Scan(&got); err != nil {
					t.Fatal(err)
				}
				return got, tx
			}
			held1, next1 := held.call("heartbeat", a.Epoch, a.Wake), next.by(then)
			got, tx := begin(held1, true, lease-time.Millisecond)
			equal(t, "in time", got, "ok")
			got, second := begin(next1, false, lease+time.Millisecond)
			if got != "pool_full" && got != "runner_full" {
				t.Errorf("while the heartbeat is on its way: %s", got)
			}
			for _, tx := range []pgx.Tx{tx, second} {
				if err := tx.Commit(r.ctx()); err != nil {
					t.Fatal(err)
				}
			}
			equal(t, "held", one[int](r, `select count(*)::int from rouse.consumer_claims where status = 'active'`), 1)
			// Behind its end, whoever has the mutex first decides: then the heartbeat finds it lapsed.
			r.after(2*lease + time.Second)
			got, tx = begin(next1, false, 0)
			equal(t, "it is over", got, "granted")
			if err := tx.Commit(r.ctx()); err != nil {
				t.Fatal(err)
			}
			r.want("lease_expired", held1)
		})
	}
}

// TestAHeartbeatBehindAClaimMakesNoneTooMany: of a claim and a heartbeat in one
// batch, where the lease ends while the claim waits for its pool, one has the slot.
func TestAHeartbeatBehindAClaimMakesNoneTooMany(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.crew("coding", 0, 1, "a", "b")
	held, next := r.woken("/chat/1", toPool("coding")), r.woken("/chat/2", toPool("coding"))
	r.now = one[time.Time](r, `select clock_timestamp()`)
	a := r.want("granted", held.by("a"))
	for _, table := range []string{"consumers", "consumer_claims"} {
		r.exec(`update rouse.` + table + ` set lease_expires_at = clock_timestamp() + interval '1 s' where lease_expires_at is not null`)
	}
	pool, err := r.db.Conn(t).Begin(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(r.ctx(), `select from rouse.worker_pools where id = 'coding' for no key update`); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	conn := r.db.Conn(t)
	pid := conn.PgConn().PID()
	go func() {
		var outcomes string
		err := conn.QueryRow(r.ctx(), `select string_agg((answer).outcome, ' ' order by ord) from rouse._claim_apply($1, true, null)`,
			opsJSON(next.by("b"), held.call("heartbeat", a.Epoch, a.Wake))).Scan(&outcomes)
		if err != nil {
			outcomes = err.Error()
		}
		got <- outcomes
	}()
	soon.Until(t, "the claim waits for the pool and the lease is over", func() bool {
		return one[bool](r, `select exists (select from pg_stat_activity where pid = $1 and wait_event_type = 'Lock')
			and not exists (select from rouse.consumers where lease_expires_at > clock_timestamp())`, pid)
	})
	if err := pool.Commit(r.ctx()); err != nil {
		t.Fatal(err)
	}
	equal(t, "outcomes", <-got, "granted lease_expired")
	equal(t, "held", one[int](r, `select count(*)::int from rouse.consumers where lease_expires_at > clock_timestamp()`), 1)
}

// TestRoomLeavesLapsedClaimsAlone: while there is room in any case nobody's mutex
// is locked to see whether a lapsed claim is over: its holder and the reaper are
// not kept from it.
func TestRoomLeavesLapsedClaimsAlone(t *testing.T) {
	t.Parallel()
	for name, crew := range map[string]func(r *rig){
		"of a pool":   func(r *rig) { r.crew("coding", 0, 2, "a") },
		"of a member": func(r *rig) { r.crew("coding", 2, 0, "a") },
		"of a runner": func(r *rig) {
			r.pool("coding", 0, 0)
			r.runner("a", 2)
			r.beat("a", time.Hour)
			r.member("coding", "a", kyle, "active", false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			crew(r)
			held, next := r.woken("/chat/1", toPool("coding")), r.woken("/chat/2", toPool("coding"))
			a := r.want("granted", held.by("a"))
			r.after(lease + time.Second)
			tx, err := r.db.Conn(t).Begin(r.ctx())
			if err != nil {
				t.Fatal(err)
			}
			const ask = `select (answer).outcome from rouse._claim_apply($1, false, $2)`
			var got string
			if err := tx.QueryRow(r.ctx(), ask, opsJSON(next.by("a")), r.now).Scan(&got); err != nil {
				t.Fatal(err)
			}
			equal(t, "there is room", got, "granted")
			equal(t, "meanwhile", one[string](r, ask, opsJSON(held.call("release", a.Epoch, a.Wake)), r.now), "lease_expired")
			if err := tx.Commit(r.ctx()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
