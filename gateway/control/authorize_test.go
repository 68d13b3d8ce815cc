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

var _ contract.Authorizer = (*taking)(nil)
