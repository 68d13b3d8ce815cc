package control

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/plugins/contract"
)

// taking denies one thing and has no opinion on the rest.
type taking struct {
	mu               sync.Mutex
	verb, kind, name string
}

func (*taking) Name() string { return "taking" }

func (d *taking) Authorize(_ context.Context, q contract.Question) (contract.Ruling, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.Verb == d.verb && q.Resource.Kind == d.kind && q.Resource.ID == d.name {
		return contract.Ruling{Verdict: contract.Deny}, nil
	}
	return contract.Ruling{}, nil
}

// What an authorizer takes away is refused also where the built-in rule is
// compared inside the transaction that does the work.
func TestAuthorizersTakeAway(t *testing.T) {
	t.Parallel()
	rule := &taking{}
	r := laptop(t, func(c *Config) {
		c.Auth = auth.New(auth.Config{Insecure: true, Users: c.Store, Authorizers: []contract.Authorizer{rule}})
	})
	const at = "/_electric/entities"
	const types = "/_electric/entity-types"
	typ := `{"name":"chat","description":""}`
	r.must(201, kyle, "POST", types, typ)
	r.must(201, kyle, "PUT", at+"/chat/p", "")
	r.must(201, kyle, "PUT", at+"/chat/c", `{"parent":"/chat/p"}`)
	r.must(201, kyle, "PUT", at+"/chat/q", "")
	consumer := "/_electric/consumers/" + r.consumer("/chat/p")
	r.must(200, kyle, "GET", consumer, "")
	r.grant(kyle, "/chat/p", granted("principal", "user:mallory", "read", ""))
	r.must(200, mallory, "GET", consumer, "")
	grant := r.must(201, kyle, "POST", types+"/chat/grants", granted("principal", "user:x", "spawn", ""))
	r.work("/chat/1")
	wake := "/_electric/wakes/" + r.str(`select wake_id::text from rouse.wake_notifications limit 1`)
	r.must(200, kyle, "GET", wake, "")
	n := r.count(`select count(*) from rouse.audit_log`)
	for _, c := range []struct{ verb, kind, name, who, method, path, body string }{
		{"spawn", "type", "chat", kyle, "PUT", at + "/chat/new", ""},
		{"spawn", "entity", "/chat/p", kyle, "PUT", at + "/chat/new", `{"parent":"/chat/p"}`},
		{"fork", "entity", "/chat/p", kyle, "POST", at + "/chat/p/fork", ""},
		{"fork", "entity", "/chat/c", kyle, "POST", at + "/chat/p/fork", ""},
		{"spawn", "entity", "/chat/q", kyle, "POST", at + "/chat/p/fork", `{"parent":"/chat/q"}`},
		{"manage", "type", "chat", kyle, "POST", types, typ},
		{"manage", "type", "chat", kyle, "PATCH", types + "/chat/schemas", `{"inbox_schemas":{"x":{}}}`},
		{"manage", "type", "chat", kyle, "POST", types + "/chat/grants", granted("principal", "user:y", "spawn", "")},
		{"manage", "type", "chat", kyle, "DELETE", types + "/chat/grants/" + fmt.Sprint(int64(grant.get("id").(float64))), ""},
		{"manage", "type", "chat", kyle, "DELETE", types + "/chat", ""},
		{"read", "entity", "/chat/p", mallory, "GET", consumer, ""},
		{"manage", "entity", "/chat/1", kyle, "GET", wake, ""},
		{"manage", "entity", "/chat/1", kyle, "POST", wake + "/redeliver", ""},
	} {
		rule.mu.Lock()
		rule.verb, rule.kind, rule.name = c.verb, c.kind, c.name
		rule.mu.Unlock()
		r.refused(401, "UNAUTHORIZED", c.who, c.method, c.path, c.body)
	}
	if got := r.count(`select count(*) from rouse.audit_log`); got != n {
		t.Errorf("%d changes were made", got-n)
	}
	// What is not there is still told as such.
	rule.mu.Lock()
	rule.verb = ""
	rule.mu.Unlock()
	r.refused(404, "NOT_FOUND", kyle, "PUT", at+"/chat/new", `{"parent":"/chat/none"}`)
	r.refused(404, "UNKNOWN_ENTITY_TYPE", kyle, "PUT", at+"/none/new", "")
	r.refused(404, "NOT_FOUND", kyle, "DELETE", types+"/none", "")
	r.must(201, kyle, "POST", at+"/chat/p/fork", `{"parent":"/chat/q"}`)
}

// Runners are asked about before anything is done with them.
func TestAuthorizersTakeRunnersAway(t *testing.T) {
	t.Parallel()
	rule := &taking{}
	r := laptop(t, func(c *Config) {
		c.Auth = auth.New(auth.Config{Insecure: true, Users: c.Store, Authorizers: []contract.Authorizer{rule}})
	})
	const mac = `{"targets":[{"type":"runner","runnerId":"mac"}]}`
	const at = "/_electric/runners"
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"laptop","description":"","default_dispatch_policy":`+mac+`}`)
	r.work("/chat/1")
	seen := r.str(`select coalesce(max(last_seen_at)::text, '') from rouse.runner_runtime_diagnostics`)
	n := r.count(`select count(*) from rouse.audit_log`)
	for _, c := range []struct{ verb, method, path, body string }{
		{"dispatch", "PUT", "/_electric/entities/chat/2", `{"dispatch_policy":` + mac + `}`},
		{"dispatch", "PUT", "/_electric/entities/chat/2", `{"parent":"/chat/1"}`}, // by its parent's policy
		{"dispatch", "PUT", "/_electric/entities/laptop/2", ""},                   // by its type's
		{"dispatch", "POST", "/_electric/entities/chat/1/fork", ""},
		{"dispatch", "POST", "/_electric/entity-types", `{"name":"other","description":"","default_dispatch_policy":` + mac + `}`},
		{"claim", "POST", at + "/mac/claim", `{}`},
		{"claim", "POST", "/_electric/consumers/" + r.consumer("/chat/1") + "/acquire", `{}`},
		{"manage", "POST", at + "/mac/heartbeat", ""},
		{"manage", "POST", at + "/mac/disable", ""},
		{"manage", "POST", at, `{"id":"mac","label":"Mine"}`},
	} {
		rule.mu.Lock()
		rule.verb, rule.kind, rule.name = c.verb, "runner", "mac"
		rule.mu.Unlock()
		r.refused(403, "RUNNER_FORBIDDEN", kyle, c.method, c.path, c.body)
	}
	if got := r.count(`select count(*) from rouse.audit_log`); got != n {
		t.Errorf("%d changes were made", got-n)
	}
	if got := r.str(`select coalesce(max(last_seen_at)::text, '') from rouse.runner_runtime_diagnostics`); got != seen {
		t.Error("the heartbeat counted")
	}
	rule.mu.Lock()
	rule.verb = ""
	rule.mu.Unlock()
	r.must(200, kyle, "POST", at+"/mac/claim", `{}`)
}

// A pool is changed, and a member's work claimed by the callback, only where the
// policy leaves the right to it.
func TestAuthorizersTakePoolsAway(t *testing.T) {
	t.Parallel()
	rule := &taking{}
	r := laptop(t, func(c *Config) {
		c.Auth = auth.New(auth.Config{Insecure: true, Users: c.Store, Authorizers: []contract.Authorizer{rule}})
	})
	const team = "/_electric/worker-pools/team"
	r.must(201, kyle, "PUT", team, `{}`)
	r.must(200, kyle, "PUT", team+"/members/mac", `{}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/7", `{"dispatch_policy":{"targets":[{"type":"worker-pool","workerPoolId":"team"}]}}`)
	r.must(200, kyle, "POST", "/_electric/entities/chat/7/send", `{"payload":1}`)
	r.route()
	wake := r.str(`select wake_id::text from rouse.wake_notifications where resolved_at is null`)
	callback := "/_electric/wake-callbacks/" + wake
	n := r.count(`select count(*) from rouse.audit_log`)
	for _, c := range []struct{ verb, kind, name, method, path, body, code string }{
		{"manage", "worker-pool", "team", "PUT", team, `{"name":"Mine"}`, "POOL_FORBIDDEN"},
		{"manage", "worker-pool", "team", "DELETE", team, "", "POOL_FORBIDDEN"},
		{"manage", "worker-pool", "team", "POST", team + "/join-tokens", `{}`, "POOL_FORBIDDEN"},
		{"manage", "worker-pool", "team", "DELETE", team + "/join-tokens", "", "POOL_FORBIDDEN"},
		{"manage", "worker-pool", "team", "PUT", team + "/members/mac", `{"status":"disabled"}`, "POOL_FORBIDDEN"},
		{"manage", "worker-pool", "team", "DELETE", team + "/members/mac", "", "POOL_FORBIDDEN"},
		{"manage", "runner", "mac", "PUT", team + "/members/mac", `{"status":"disabled"}`, "RUNNER_FORBIDDEN"},
		{"manage", "runner", "mac", "DELETE", team + "/members/mac", "", "RUNNER_FORBIDDEN"},
		{"claim", "runner", "mac", "POST", callback, `{"runnerId":"mac"}`, "RUNNER_FORBIDDEN"},
	} {
		rule.mu.Lock()
		rule.verb, rule.kind, rule.name = c.verb, c.kind, c.name
		rule.mu.Unlock()
		r.refused(403, c.code, kyle, c.method, c.path, c.body, token(r.claimToken(wake))...)
	}
	if got := r.count(`select count(*) from rouse.audit_log`); got != n {
		t.Errorf("%d changes were made", got-n)
	}
	rule.mu.Lock()
	rule.verb = ""
	rule.mu.Unlock()
	r.must(200, kyle, "POST", callback, `{"runnerId":"mac"}`, token(r.claimToken(wake))...)
}

// giving allows some things and has no opinion on the rest.
type giving map[right]bool

func (giving) Name() string { return "giving" }

func (g giving) Authorize(_ context.Context, q contract.Question) (contract.Ruling, error) {
	if g[right{q.Verb, q.Resource.Kind, q.Resource.ID}] {
		return contract.Ruling{Verdict: contract.Allow}, nil
	}
	return contract.Ruling{}, nil
}

// What an authorizer allows counts also where the built-in rule is compared inside
// the transaction that does the work; the other rules of the same work still hold.
func TestAuthorizersGrantWhatTransactionsCompare(t *testing.T) {
	t.Parallel()
	given := giving{}
	r := laptop(t, func(c *Config) {
		c.OpenTypes = false
		c.Auth = auth.New(auth.Config{Insecure: true, Users: c.Store, Authorizers: []contract.Authorizer{given}, Policy: auth.Policy{MayGrant: true}})
	})
	const at = "/_electric/entities"
	const mac = `"dispatch_policy":{"targets":[{"type":"runner","runnerId":"mac"}]}`
	r.must(201, kyle, "PUT", at+"/chat/p", `{"tags":{"a":"b"}}`)
	r.must(201, mallory, "POST", "/_electric/entity-types", `{"name":"own","description":""}`)
	wide := granted("principal_kind", "user", "read", "")
	fork := func(id string) string { return `{"instance_id":"` + id + `","parent":"/chat/p"}` }
	r.must(201, mallory, "PUT", at+"/own/root", "")
	if a := r.as(kyle, "PUT", "/_electric/worker-pools/team", `{"name":"Team"}`); a.status != 200 && a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, c := range []struct {
		name               string
		method, path, body string
		status             int    // without
		code               string // without
		want               int
		rights             []right
	}{
		{"a type", "PUT", at + "/chat/m1", "", 401, "UNAUTHORIZED", 201, []right{{"spawn", "type", "chat"}}},
		{"a parent", "PUT", at + "/own/m2", `{"parent":"/chat/p"}`, 401, "UNAUTHORIZED", 201, []right{{"spawn", "entity", "/chat/p"}}},
		{"a runner", "PUT", at + "/own/m3", `{` + mac + `}`, 403, "RUNNER_FORBIDDEN", 201, []right{{"dispatch", "runner", "mac"}}},
		{"a pool", "PUT", at + "/own/m8", `{"dispatch_policy":{"targets":[{"type":"worker-pool","workerPoolId":"team"}]}}`, 403, "POOL_FORBIDDEN", 201, []right{{"dispatch", "worker-pool", "team"}}},
		{"a parent's runner", "PUT", at + "/own/m4", `{"parent":"/chat/1"}`, 401, "UNAUTHORIZED", 201, []right{{"spawn", "entity", "/chat/1"}, {"dispatch", "runner", "mac"}}},
		{"broad grants", "PUT", at + "/own/m5", `{"parent":"/chat/p","grants":[` + wide + `]}`, 401, "UNAUTHORIZED", 201, []right{{"spawn", "entity", "/chat/p"}, {"manage", "entity", "/chat/p"}}},
		{"a fork's parent", "POST", at + "/own/root/fork", fork("m6"), 401, "UNAUTHORIZED", 201, []right{{"spawn", "entity", "/chat/p"}}},
		{"a fork", "POST", at + "/chat/p/fork", `{"instance_id":"m7"}`, 401, "UNAUTHORIZED", 201, []right{{"fork", "entity", "/chat/p"}}},
		{"a type's schemas", "PATCH", "/_electric/entity-types/chat/schemas", `{"inbox_schemas":{"x":{}}}`, 401, "UNAUTHORIZED", 200, []right{{"manage", "type", "chat"}}},
		{"a type's grant", "POST", "/_electric/entity-types/chat/grants", granted("principal", "user:x", "spawn", ""), 401, "UNAUTHORIZED", 201, []right{{"manage", "type", "chat"}}},
		{"an entity's grant", "POST", at + "/chat/p/grants", granted("principal", "user:x", "read", ""), 401, "UNAUTHORIZED", 201, []right{{"manage", "entity", "/chat/p"}}},
		{"a schedule", "PUT", at + "/chat/p/schedules/s", `{"scheduleType":"cron","expression":"0 0 * * *","payload":1}`, 401, "UNAUTHORIZED", 200, []right{{"schedule", "entity", "/chat/p"}}},
		{"a later message", "POST", at + "/chat/p/send", `{"payload":1,"afterMs":60000}`, 401, "UNAUTHORIZED", 204, []right{{"write", "entity", "/chat/p"}}},
		{"a runner's status", "POST", "/_electric/runners/mac/enable", "", 403, "RUNNER_FORBIDDEN", 200, []right{{"manage", "runner", "mac"}}},
		{"a pool's name", "PUT", "/_electric/worker-pools/team", `{"name":"Ours"}`, 403, "POOL_FORBIDDEN", 200, []right{{"manage", "worker-pool", "team"}}},
		{"ending join tokens", "DELETE", "/_electric/worker-pools/team/join-tokens", "", 403, "POOL_FORBIDDEN", 204, []right{{"manage", "worker-pool", "team"}}},
		{"a claim", "POST", "/_electric/runners/mac/claim", `{}`, 403, "RUNNER_FORBIDDEN", 204, []right{{"claim", "runner", "mac"}}},
		{"deleting a type", "DELETE", "/_electric/entity-types/chat", "", 401, "UNAUTHORIZED", 204, []right{{"manage", "type", "chat"}}},
		{"deleting a pool", "DELETE", "/_electric/worker-pools/team", "", 403, "POOL_FORBIDDEN", 204, []right{{"manage", "worker-pool", "team"}}},
	} {
		// All but one of what it takes is not enough.
		for left := range c.rights {
			clear(given)
			for i, one := range c.rights {
				given[one] = i != left
			}
			if a := r.as(mallory, c.method, c.path, c.body); a.status != c.status && a.status != 401 && a.status != 403 {
				t.Errorf("%s without %v: %d %s", c.name, c.rights[left], a.status, a.body)
			}
		}
		clear(given)
		r.refused(c.status, c.code, mallory, c.method, c.path, c.body)
		for _, one := range c.rights {
			given[one] = true
		}
		if a := r.as(mallory, c.method, c.path, c.body); a.status != c.want {
			t.Errorf("%s: %d %s", c.name, a.status, a.body)
		}
	}
	if n := r.count(`select count(*) from rouse.scheduled_tasks where kind = 'delayed_send' and trusted`); n != 1 {
		t.Errorf("%d messages will be sent", n)
	}
	if n := r.count(`select count(*) from rouse.entities where url in ('/own/m2', '/own/m4') and created_by <> '/principal/user%3Amallory'`); n != 0 {
		t.Error("what was spawned is somebody else's")
	}
}

var _ contract.Authorizer = (*taking)(nil)
