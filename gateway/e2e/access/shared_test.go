package access

import (
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/signin"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// sharedPolicy lets auditors read every shared state and use one, and keeps one from
// everybody else.
const sharedPolicy = `package rouse

decision := "deny" if {
	input.resource.kind == "shared-state"
	input.resource.id == "/_electric/shared-state/closed"
	input.principal.attributes.role == "author"
}

decision := "allow" if {
	input.resource.kind == "shared-state"
	input.verb == "read"
	input.principal.attributes.role == "auditor"
}

decision := "allow" if {
	input.resource.kind == "shared-state"
	input.resource.id == "/_electric/shared-state/desk"
	input.principal.attributes.role == "auditor"
}
`

func TestAPolicyRulesOnSharedState(t *testing.T) {
	t.Parallel()
	idp := signin.New(t)
	gw := servertest.Start(t, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
		c.Insecure, c.TypeSpawn = false, "all"
		c.Auth.Hooks = []config.AuthHook{idp.Hook()}
		c.Auth.Authorizers, c.Auth.AuthorizersMayGrant = signin.PolicyFile(t, sharedPolicy), true
	}})
	c := plain(t)
	as := func(who, role string) []string { return bearer(idp.Token(t, who, time.Hour, "role", role)) }
	kyle, eve, otto := as("kyle", "author"), as("eve", "author"), as("otto", "auditor")
	must(t, 201, c, "POST", gw.URL+"/_electric/entity-types", `{"name":"chat","description":"x"}`, kyle...)
	must(t, 201, c, "PUT", gw.URL+"/_electric/entities/chat/1", `{}`, kyle...)
	must(t, 201, c, "PUT", gw.URL+"/_electric/entities/chat/2", `{}`, otto...)
	put := func(status int, name, owner string, who []string) {
		t.Helper()
		must(t, status, c, "PUT", gw.URL+"/_electric/shared-state/"+name, "", append(who[:len(who):len(who)], "Content-Type", "application/json", "Electric-Owner-Entity", owner)...)
	}
	links := func() (n int) {
		t.Helper()
		if err := gw.DB.Pool(t).QueryRow(t.Context(), `select count(*) from rouse.shared_state_links`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	put(201, "board", "/chat/1", kyle)
	// Taken away before anything is done; the built-in rules hold for the rest.
	n := links()
	put(401, "closed", "/chat/1", kyle)
	put(401, "other", "/chat/1", eve)
	put(401, "other", "/chat/1", otto)
	if got := links(); got != n {
		t.Errorf("%d links were made", got-n)
	}
	board := gw.URL + "/_electric/shared-state/board"
	must(t, 200, c, "GET", board, "", kyle...)
	must(t, 401, c, "GET", board, "", eve...)
	must(t, 200, c, "GET", board, "", otto...)
	message := func(who []string) []string {
		return append(who[:len(who):len(who)], "Content-Type", "application/json")
	}
	must(t, 401, c, "POST", board, `[{"type":"x","key":"a","value":1,"headers":{"operation":"insert"}}]`, message(otto)...)
	must(t, 204, c, "POST", board, `[{"type":"x","key":"a","value":1,"headers":{"operation":"insert"}}]`, message(kyle)...)
	// What is kept of it is asked about as what it holds is.
	kept := gw.URL + "/_electric/retention/streams/_electric/shared-state/board"
	must(t, 200, c, "GET", kept, "", otto...)
	must(t, 401, c, "GET", kept, "", eve...)
	must(t, 401, c, "PUT", kept, `{"max_messages":1}`, otto...)
	must(t, 401, c, "POST", kept, `{"before":"now"}`, otto...)
	must(t, 200, c, "PUT", kept, `{"max_messages":100}`, kyle...)
	// Given: an entity that he could not link by himself uses it.
	put(201, "desk", "/chat/1", otto)
	must(t, 200, c, "GET", gw.URL+"/_electric/shared-state/desk", "", kyle...)
}
