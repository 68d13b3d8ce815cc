package access

import "fmt"

// ofPool is an operation on one worker pool.
var ofPool = guarded.with(users(no(403, "POOL_FORBIDDEN"))).with(kind{elsewhere: no(404, "NOT_FOUND")})

// pool makes a worker pool.
func (w *world) pool(id string) string {
	w.Helper()
	w.do("PUT", "/_electric/worker-pools/"+id, fmt.Sprintf(`{"name":%q}`, hidden))
	return id
}

func poolAsk(name, body string) func(*world) ask {
	return func(w *world) ask {
		return ask{path: map[string]string{"id": w.pool(owners + "-" + name)}, body: body}
	}
}

// memberAsk is an ask about a runner in a pool; member says that it is in.
func memberAsk(name, body string, member bool) func(*world) ask {
	return func(w *world) ask {
		pool, runner := w.pool(owners+"-"+name), w.runner(owners+"-"+name)
		if member {
			w.do("PUT", "/_electric/worker-pools/"+pool+"/members/"+runner, "")
		}
		return ask{path: map[string]string{"id": pool, "runnerId": runner}, body: body}
	}
}

func poolRows() []row {
	return []row{
		{"listWorkerPools", "", ofEverybody, shows(200), plainly("", "")},
		{"putWorkerPool", "", ofEverybody.with(users(hides(201))).with(kind{elsewhere: shows(201)}), shows(201), func(*world) ask {
			return ask{path: map[string]string{"id": "pool-{column}"}, body: `{}`}
		}},
		{"putWorkerPool", "one that is there", ofPool.with(kind{elsewhere: shows(201)}), shows(200), poolAsk("putWorkerPool", `{"name":"mine"}`)},
		{"putWorkerPool", "somebody's", ofPool.with(kind{elsewhere: shows(201)}), shows(201), func(*world) ask {
			return ask{path: map[string]string{"id": "somebodys-{column}"}, body: `{"owner_principal":"/principal/user%3Akyle"}`}
		}},
		{"getWorkerPool", "", ofPool, shows(200), poolAsk("getWorkerPool", "")},
		{"deleteWorkerPool", "", ofPool, shows(204), poolAsk("deleteWorkerPool", "")},
		{"putWorkerPoolMember", "", ofPool, shows(200), memberAsk("putWorkerPoolMember", `{}`, false)},
		{"putWorkerPoolMember", "to drain it", ofPool, shows(200), memberAsk("drained", `{"status":"disabled"}`, true)},
		{"putWorkerPoolMember", "with a token that is none", guarded.with(users(no(401, "JOIN_TOKEN_INVALID"))).with(kind{elsewhere: no(401, "JOIN_TOKEN_INVALID")}), no(401, "JOIN_TOKEN_INVALID"),
			memberAsk("joined", `{"join_token":"rouse_jt_AAAA"}`, false)},
		{"deleteWorkerPoolMember", "", ofPool, shows(204), memberAsk("deleteWorkerPoolMember", "", true)},
		{"createWorkerPoolJoinToken", "", ofPool, shows(201), poolAsk("createWorkerPoolJoinToken", `{"ttl_seconds":60}`)},
		{"revokeWorkerPoolJoinTokens", "", ofPool, shows(204), poolAsk("revokeWorkerPoolJoinTokens", "")},
		{"listRunnerPools", "", ofRunner, shows(200), runnerAsk("listRunnerPools", "")},
	}
}

func moveRows() []row {
	policy := `{"dispatch_policy":{"targets":[{"type":"runner","runnerId":%q}]}}`
	return []row{
		{"moveEntity", "", ofEntity, shows(200), func(w *world) ask {
			return ask{path: taskPath(w.entity("moveEntity")), body: fmt.Sprintf(policy, w.runner(owners+"-moveEntity"))}
		}},
		{"moveEntity", "to another's runner", ofEntity, no(403, "RUNNER_FORBIDDEN"), func(w *world) ask {
			return ask{path: taskPath(w.entity("moveAway")), body: fmt.Sprintf(policy, "foreign-runner")}
		}},
		{"listEntityPolicies", "", ofEntity, shows(200), taskAsk("listEntityPolicies", "")},
		{"redriveEntity", "", ofEntity, no(409, "NOT_PARKED"), taskAsk("redriveEntity", "")},
		{"listParked", "", ofEverybody, shows(200), plainly("", "")},
		{"redriveParked", "", ofEverybody, shows(200), plainly("", `{}`)},
	}
}
