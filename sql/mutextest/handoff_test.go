package mutextest

import (
	"testing"
	"time"
)

// move hands an entity to another policy; the answer is outcome and release_by.
func (r *rig) move(e entity, by, policy string, deadline any) (string, *time.Time) {
	r.t.Helper()
	var out string
	var at *time.Time
	if err := r.c.QueryRow(r.ctx(), `select outcome, release_by from rouse._entity_move(1, $1, $2, false, $3, $4, 'to the office', $5)`, e.url, by, policy, deadline, r.now).
		Scan(&out, &at); err != nil {
		r.t.Fatal(err)
	}
	r.hold()
	return out, at
}

// TestMove is R31 with a chosen clock: what nobody holds moves at once, what is
// held is let go by the deadline, and the cursor stays.
func TestMove(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) *rig {
		r := fallback(t)
		r.runner("desktop", 0)
		r.alive(time.Hour, "laptop", "desktop", "worker")
		return r
	}
	t.Run("idle", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		e := r.entity("/chat/1", toRunner("laptop"))
		out, at := r.move(e, kyle, toPool("coding"), nil)
		equal(t, "moved", out, "moved")
		equal(t, "at once", at == nil, true)
		equal(t, "no wake", r.target(e), "idle")
		out, _ = r.move(e, kyle, toPool("coding"), nil)
		equal(t, "again", out, "unchanged")
		r.push(e)
		r.route(e)
		equal(t, "next", r.target(e), "waking worker-pool 0 1")
		out, _ = r.move(e, kyle, toRunner("desktop"), nil)
		equal(t, "back", out, "moved")
		equal(t, "history", one[string](r, `select string_agg(revision || ' ' || (dispatch_policy #>> '{targets,0,type}') || ' ' || moved_by || ' ' || reason, ', ') from rouse.entity_policy_page(1, $1, null, 10)`, e.url),
			"2 worker-pool "+kyle+" to the office, 1 runner "+kyle+" to the office")
		equal(t, "noted", one[int](r, `select count(*)::int from rouse.audit_log where action = 'entity.move' and resource = $1`, e.url), 2)
	})
	t.Run("again and again", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		e, other := r.entity("/chat/1", toRunner("laptop")), r.entity("/chat/2", toRunner("laptop"))
		r.move(other, kyle, toPool("coding"), nil)
		for i := range 203 {
			if out, _ := r.move(e, kyle, []string{toPool("coding"), toRunner("laptop")}[i%2], nil); out != "moved" {
				t.Fatalf("move %d: %s", i+1, out)
			}
		}
		equal(t, "the last ones are kept", one[string](r, `select count(*) || ' ' || min(revision) || ' ' || max(revision) from rouse.entity_policy_history where entity_url = $1`, e.url), "200 4 203")
		equal(t, "of each", one[int](r, `select count(*)::int from rouse.entity_policy_history where entity_url = $1`, other.url), 1)
	})
	t.Run("that nobody could be told of", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		e := r.entity("/chat/1", "")
		r.push(e)
		equal(t, "nobody", r.route(e), "no_target")
		r.move(e, kyle, toRunner("desktop"), nil)
		equal(t, "told", r.target(e), "waking runner 0 1")
		r.hold()
	})
	t.Run("waking", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		e := r.woken("/chat/1", toRunner("laptop"))
		first := r.state(e).Wake
		r.move(e, kyle, toRunner("desktop"), nil)
		equal(t, "runner", r.state(e).Runner, "desktop")
		r.want("stale", op{"op": "acquire", "id": e.consumer, "wake": first, "runner": "laptop", "holder": kyle})
		r.want("runner_mismatch", e.by("laptop"))
		equal(t, "told", len(r.entries("desktop")), 1)
		r.want("granted", e.by("desktop"))
	})
	t.Run("released in time", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		e := r.woken("/chat/1", toRunner("laptop"))
		a := r.want("granted", e.by("laptop"))
		out, at := r.move(e, kyle, toRunner("desktop"), 10000)
		equal(t, "moved", out, "moved")
		equal(t, "by", at.Sub(r.now), 10*time.Second)
		asked := r.entries("laptop")[1]
		equal(t, "asked", asked["type"].(string)+" "+asked["consumerId"].(string)+" "+asked["wakeId"].(string)+" "+asked["releaseBy"].(string),
			"release "+e.name+" "+a.Wake+" 2031-05-01T12:00:10.000Z")
		equal(t, "heard on a heartbeat", one[time.Time](r, `select (answer).release_by from rouse._claim_apply($1, true, $2)`, opsJSON(e.call("heartbeat", a.Epoch, a.Wake)), r.now).Sub(r.now), 10*time.Second)
		acked := r.tail(e)
		r.want("ok", e.call("ack", a.Epoch, a.Wake).with("acks", e.acks(acked)))
		r.push(e)
		r.after(5 * time.Second)
		equal(t, "lease", r.want("ok", e.call("heartbeat", a.Epoch, a.Wake)).LeaseMS, 5000)
		r.want("released", e.call("release", a.Epoch, a.Wake))
		equal(t, "next", r.target(e)+" "+r.state(e).Runner, "waking runner 0 1 desktop")
		equal(t, "cursor", r.acked(e), acked)
		r.want("granted", e.by("desktop"))
		equal(t, "no more deadline", one[bool](r, `select release_by is null from rouse.consumers where id = $1`, e.consumer), true)
		r.after(lease / 2)
		equal(t, "whole lease", r.apply(e.call("heartbeat", a.Epoch+1, r.state(e).Wake)).LeaseMS, lease.Milliseconds())
	})
	t.Run("fenced at the deadline", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		e := r.woken("/chat/1", toPool("coding"))
		a := r.want("granted", e.by("worker"))
		r.move(e, kyle, toRunner("desktop"), 10000)
		asked := r.entries("worker") // it was told before that it is in a pool
		equal(t, "the pool's runner is asked", asked[len(asked)-1]["type"], any("release"))
		r.later(10*time.Second - time.Millisecond)
		r.want("ok", e.call("heartbeat", a.Epoch, a.Wake))
		equal(t, "may write", r.write(e, a), "appended")
		r.after(time.Millisecond)
		r.want("lease_expired", e.call("heartbeat", a.Epoch, a.Wake))
		equal(t, "may not write", r.write(e, a), "lease_expired")
		equal(t, "one ends", r.reap(), reaped{Expired: 1})
		equal(t, "next", r.target(e)+" "+r.state(e).Runner, "waking runner 0 1 desktop")
		equal(t, "claim", r.state(e).Claims[0].Status, "expired")
	})
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		e := r.woken("/chat/1", toRunner("laptop"))
		a := r.want("granted", e.by("laptop"))
		out, at := r.move(e, kyle, toRunner("desktop"), 0)
		equal(t, "moved", out, "moved")
		equal(t, "nothing to wait for", at == nil, true)
		r.want("stale", e.call("heartbeat", a.Epoch, a.Wake))
		equal(t, "next", r.target(e)+" "+r.state(e).Runner, "waking runner 0 1 desktop")
		equal(t, "asked all the same", r.entries("laptop")[1]["type"].(string), "release")
	})
	t.Run("deadlines", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		e := r.woken("/chat/1", toRunner("laptop"))
		r.want("granted", e.by("laptop"))
		_, at := r.move(e, kyle, toRunner("desktop"), 3600000)
		equal(t, "ten minutes at most", at.Sub(r.now), 10*time.Minute)
		_, at = r.move(e, kyle, toPool("coding"), nil)
		equal(t, "half a minute if nothing is said", at.Sub(r.now), 30*time.Second)
		_, at = r.move(e, kyle, toRunner("desktop"), 60000)
		equal(t, "an earlier one stands", at.Sub(r.now), 30*time.Second)
		out, at := r.move(e, kyle, toRunner("desktop"), 45000)
		equal(t, "to where it goes already", out+" "+at.Sub(r.now).String(), "unchanged 30s")
		out, at = r.move(e, kyle, toRunner("desktop"), 5000)
		equal(t, "but sooner", out+" "+at.Sub(r.now).String(), "moved 5s")
		out, at = r.move(e, kyle, toRunner("desktop"), 0)
		equal(t, "now", out, "moved")
		equal(t, "nobody has it", at == nil, true)
		equal(t, "next", r.target(e)+" "+r.state(e).Runner, "waking runner 0 1 desktop")
		equal(t, "a policy is kept when it is replaced", one[int](r, `select count(*)::int from rouse.entity_policy_page(1, $1, null, 10)`, e.url), 3)
		out, _ = r.move(e, kyle, toRunner("desktop"), 0)
		equal(t, "nobody to fence", out, "unchanged")
		equal(t, "a page of them", one[string](r, `select string_agg(revision::text, ' ') from rouse.entity_policy_page(1, $1, 3, 1)`, e.url), "2")
	})
	t.Run("parked", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		e := r.woken("/chat/1", laptopOnly(`{"afterMs":1000}`))
		r.later(time.Second)
		equal(t, "parked", r.parked(e), "idle t unclaimed")
		r.move(e, kyle, toRunner("desktop"), nil)
		equal(t, "goes on", r.target(e)+" "+r.state(e).Runner, "waking runner 0 1 desktop")
	})
	t.Run("paused", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		e := r.woken("/chat/1", toRunner("laptop"))
		r.exec(`select rouse.entity_signal(1, $1, $2, 'SIGSTOP', 'k', null, null)`, e.url, kyle)
		r.move(e, kyle, toRunner("desktop"), nil)
		equal(t, "stays", r.target(e), "idle")
		r.exec(`select rouse.entity_signal(1, $1, $2, 'SIGCONT', 'l', null, null)`, e.url, kyle)
		equal(t, "then", r.target(e)+" "+r.state(e).Runner, "waking runner 0 1 desktop")
	})
	t.Run("who may", func(t *testing.T) {
		t.Parallel()
		r := setup(t)
		r.runnerOf("hers", mallory)
		r.exec(`select rouse.pool_put(1, 'theirs', $1, false, $1, null, null, null, null, true)`, mallory)
		e := r.woken("/chat/1", toRunner("laptop"))
		for _, c := range []struct{ by, policy, want string }{
			{mallory, toRunner("hers"), "forbidden"},
			{kyle, toRunner("hers"), "target_forbidden"},
			{kyle, toRunner("nobody"), "target_not_found"},
			{kyle, toPool("theirs"), "target_forbidden"},
			{kyle, toPool("nowhere"), "target_not_found"},
			{kyle, `{"targets":[{"type":"runner","runnerId":"desktop"},{"type":"runner","runnerId":"hers"}]}`, "target_forbidden"},
		} {
			out, _ := r.move(e, c.by, c.policy, nil)
			equal(t, c.policy, out, c.want)
		}
		equal(t, "nothing happened", r.target(e)+" "+r.state(e).Runner, "waking runner 0 1 laptop")
		r.exec(`select rouse.pool_member_put(1, 'theirs', 'desktop', $1, false, 'active', false), rouse.pool_member_put(1, 'theirs', 'desktop', $2, false, 'active', false)`, mallory, kyle)
		out, _ := r.move(e, kyle, toPool("theirs"), nil)
		equal(t, "a member's owner", out, "moved")
		r.exec(`select rouse.entity_signal(1, $1, $2, 'SIGKILL', 'k', null, null)`, e.url, kyle)
		out, _ = r.move(e, kyle, toRunner("desktop"), nil)
		equal(t, "ended", out, "not_running")
	})
}

// TestSpawnForAPool: who may target a pool is asked at the spawn.
func TestSpawnForAPool(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pool("coding", 0, 0)
	r.runnerOf("hers", mallory)
	r.exec(`select rouse.entity_type_put(1, 'hers', $1, false, '', null, null, null, null, null, null, null, null)`, mallory)
	spawn := func(url, by, pool string) string {
		return one[string](r, `select outcome from rouse.entity_spawn(1, $1, 'hers', 1, $2, false, true, '{}', '{}', null, $3, null, '{"headers":{"operation":"insert"}}', null)`, url, by, toPool(pool))
	}
	equal(t, "no such pool", spawn("/hers/1", mallory, "nowhere"), "pool_not_found")
	equal(t, "not hers", spawn("/hers/1", mallory, "coding"), "pool_forbidden")
	r.member("coding", "hers", kyle, "active", false)
	equal(t, "invited only", spawn("/hers/1", mallory, "coding"), "pool_forbidden")
	r.member("coding", "hers", mallory, "active", false)
	equal(t, "member", spawn("/hers/1", mallory, "coding"), "spawned")
	equal(t, "owner", spawn("/hers/2", kyle, "coding"), "spawned")
}
