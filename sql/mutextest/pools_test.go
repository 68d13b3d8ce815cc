package mutextest

import (
	"encoding/json"
	"testing"
	"time"
)

// pool makes a pool of kyle's; 0 is no limit.
func (r *rig) pool(id string, perRunner, total int) {
	r.t.Helper()
	if got := one[string](r, `select outcome from rouse.pool_put(1, $1, $2, false, $2, $1, null, nullif($3, 0), nullif($4, 0), true)`,
		id, kyle, perRunner, total); got != "created" && got != "updated" {
		r.t.Fatalf("pool %s: %s", id, got)
	}
}

// member puts a runner into a pool by somebody's word.
func (r *rig) member(pool, runner, by, status string, invited bool) string {
	r.t.Helper()
	return one[string](r, `select outcome from rouse.pool_member_put(1, $1, $2, $3, false, $4, $5)`, pool, runner, by, status, invited)
}

// runnerOf registers a runner of somebody's.
func (r *rig) runnerOf(id, owner string) {
	r.t.Helper()
	if got := one[string](r, `select outcome from rouse.runner_register(1, $1, $2, false, $2, $1, 'server', 'enabled', '[]', null)`, id, owner); got != "created" {
		r.t.Fatalf("runner %s: %s", id, got)
	}
}

// TestPoolsBelongToTheirOwners: an id is its first registrar's, limits change
// only when they are given, and who may see or end a pool is its owner.
func TestPoolsBelongToTheirOwners(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	put := func(by, owner string, limits bool) string {
		return one[string](r, `select outcome from rouse.pool_put(1, 'coding', $1, false, $2, 'Coding', null, null, 3, $3)`, by, owner, limits)
	}
	equal(t, "first", put(kyle, kyle, true), "created")
	equal(t, "again", put(kyle, kyle, false), "updated")
	equal(t, "by another", put(mallory, mallory, true), "forbidden")
	equal(t, "limit", one[int](r, `select max_total_claims from rouse.worker_pools where id = 'coding'`), 3)
	r.exec(`select rouse.pool_put(1, 'coding', $1, false, $1, null, 'disabled', null, null, false)`, kyle)
	equal(t, "kept", one[string](r, `select concat_ws(' ', name, admin_status, max_total_claims) from rouse.worker_pools where id = 'coding'`), "Coding disabled 3")
	r.exec(`select rouse.pool_put(1, 'coding', $1, false, $1, null, 'enabled', null, null, true)`, kyle)
	equal(t, "without a limit", one[bool](r, `select max_total_claims is null from rouse.worker_pools where id = 'coding'`), true)
	equal(t, "stream", one[string](r, `select kind from rouse.streams where path = 'worker-pools/coding/wake'`), "wake")

	equal(t, "rotated by another", one[string](r, `select outcome from rouse.pool_join_rotate(1, 'coding', $1, false)`, mallory), "forbidden")
	equal(t, "rotated", one[int](r, `select join_generation from rouse.pool_join_rotate(1, 'coding', $1, false)`, kyle), 2)
	equal(t, "deleted by another", one[string](r, `select outcome from rouse.pool_delete(1, 'coding', $1, false)`, mallory), "forbidden")
	equal(t, "deleted", one[string](r, `select outcome from rouse.pool_delete(1, 'coding', $1, false)`, kyle), "deleted")
	equal(t, "gone", one[string](r, `select outcome from rouse.pool_delete(1, 'coding', $1, false)`, kyle), "not_found")
	// Policies may still name it: whoever else took the id would be given their work.
	const again = `select outcome from rouse.pool_put(1, 'coding', $1, $2, $1, null, null, null, null, true)`
	equal(t, "by another, when it is gone", one[string](r, again, mallory, false), "forbidden")
	equal(t, "and nothing is left of that", one[int](r, `select count(*)::int from rouse.worker_pools`), 0)
	equal(t, "by its owner", one[string](r, again, kyle, false), "created")
	equal(t, "old join tokens stay ended", one[int](r, `select join_generation from rouse.worker_pools`), 3)
	r.exec(`select rouse.pool_delete(1, 'coding', $1, false)`, kyle)
	equal(t, "by the system", one[string](r, again, mallory, true), "created")
	equal(t, "nor then", one[int](r, `select join_generation from rouse.worker_pools`), 4)
}

// TestMembershipTakesBothOwners: neither the pool's owner nor the runner's puts
// a runner into a pool alone, and a drained member does not take itself back.
func TestMembershipTakesBothOwners(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pool("coding", 0, 0)
	r.runnerOf("hers", mallory)
	r.runnerOf("his", kyle)

	equal(t, "uninvited", r.member("coding", "hers", mallory, "active", false), "forbidden")
	equal(t, "uninvited, disabled", r.member("coding", "hers", mallory, "disabled", false), "forbidden")
	equal(t, "own", r.member("coding", "his", kyle, "active", false), "active")
	equal(t, "no such pool", r.member("nowhere", "his", kyle, "active", false), "pool_not_found")
	equal(t, "no such runner", r.member("coding", "nobody", kyle, "active", false), "runner_not_found")
	equal(t, "no such runner, asked by another", r.member("coding", "nobody", mallory, "active", true), "forbidden")
	equal(t, "a runner of somebody else by token", r.member("coding", "his", mallory, "active", true), "forbidden")

	equal(t, "invited", r.member("coding", "hers", kyle, "active", false), "invited")
	equal(t, "invited again", r.member("coding", "hers", kyle, "active", false), "invited")
	equal(t, "accepted", r.member("coding", "hers", mallory, "active", false), "accepted")
	equal(t, "again", r.member("coding", "hers", mallory, "active", false), "active")
	equal(t, "drained by the pool", r.member("coding", "hers", kyle, "disabled", false), "disabled")
	equal(t, "takes itself back", r.member("coding", "hers", mallory, "active", false), "forbidden")
	equal(t, "nor by token", r.member("coding", "hers", mallory, "active", true), "forbidden")
	equal(t, "nor by disabling itself", r.member("coding", "hers", mallory, "disabled", false), "disabled")
	equal(t, "nor then", r.member("coding", "hers", mallory, "active", false), "forbidden")
	equal(t, "taken back", r.member("coding", "hers", kyle, "active", false), "active")
	equal(t, "steps out", r.member("coding", "hers", mallory, "disabled", false), "disabled")
	equal(t, "is not pulled in", r.member("coding", "hers", kyle, "active", false), "invited")
	equal(t, "steps in", r.member("coding", "hers", mallory, "active", false), "accepted")

	remove := func(runner, by string) string {
		return one[string](r, `select outcome from rouse.pool_member_delete(1, 'coding', $1, $2, false)`, runner, by)
	}
	equal(t, "removes another's", remove("his", mallory), "forbidden")
	equal(t, "leaves", remove("hers", mallory), "deleted")
	equal(t, "left", remove("hers", kyle), "member_not_found")
	equal(t, "by token", r.member("coding", "hers", mallory, "active", true), "accepted")
	equal(t, "removed", remove("hers", kyle), "deleted")

	r.now = time.Now()
	r.beat("his", time.Hour)
	var members []struct {
		RunnerID, Status string
		Online           bool
	}
	if err := json.Unmarshal(one[[]byte](r, `select members from rouse.pool_get(1, 'coding')`), &members); err != nil {
		t.Fatal(err)
	}
	if len(members) != 1 || members[0].RunnerID != "his" || members[0].Status != "active" || !members[0].Online {
		t.Errorf("members: %+v", members)
	}
	equal(t, "listed for the owner", one[int](r, `select count(*)::int from rouse.pool_list(1, $1, false, null, 10)`, kyle), 1)
	equal(t, "not for others", one[int](r, `select count(*)::int from rouse.pool_list(1, $1, false, null, 10)`, mallory), 0)
	r.member("coding", "hers", kyle, "active", false)
	equal(t, "for the invited", one[int](r, `select count(*)::int from rouse.pool_list(1, $1, false, null, 10)`, mallory), 1)
	equal(t, "pools of a runner", one[string](r, `select pool_id || ' ' || wake_stream || ' ' || status from rouse.runner_pools(1, 'his')`), "coding /worker-pools/coding/wake active")
	equal(t, "pools in a heartbeat", one[string](r, `select pools::text from rouse.runner_beat(1, 'his', $1, false, 1000, null, null)`, kyle),
		`[{"id": "coding", "wakeStream": "/worker-pools/coding/wake"}]`)
}
