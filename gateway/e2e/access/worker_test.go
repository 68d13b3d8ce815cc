package access

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/signin"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/openapi/runner"
	"github.com/rouse-run/rouse/openapi/runner/call"
)

// Whoever the policy has no opinion on may nothing. Machines work, and make
// nothing.
const closed = `package rouse

makes if { input.resource.kind == "route"; input.verb in {"PUT", "DELETE"} }

decision := "allow" if { input.principal.attributes.role == "author"; input.built_in_allowed }

decision := "allow" if { input.principal.attributes.role == "machine"; input.built_in_allowed; not makes }
`

// The whole way of a message where an identity provider says who people are and a
// policy that refuses by default what they may do: the runner's user token goes
// beside claim and write tokens, which nobody else judges.
func TestAWorkerBehindAProviderAndAPolicy(t *testing.T) {
	t.Parallel()
	idp := signin.New(t)
	file := filepath.Join(t.TempDir(), "policy.rego")
	if err := os.WriteFile(file, []byte(closed), 0o600); err != nil {
		t.Fatal(err)
	}
	gw := servertest.Start(t, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
		c.Insecure = false
		c.Auth.Hooks = []config.AuthHook{idp.Hook()}
		c.Auth.Authorizers = []config.Authorizer{{OPA: &config.OPAAuthorizer{Policy: file, Deadline: 5 * time.Second}}}
		c.Auth.DenyByDefault = true
		c.Auth.RatePerSecond = 1000
	}})
	author := bearer(idp.Token(t, "kyle", time.Hour, "role", "author"))
	machine := idp.Token(t, "kyle", time.Hour, "role", "machine")
	nobody := bearer(idp.Token(t, "kyle", time.Hour))
	c := plain(t)
	must(t, 201, c, "POST", gw.URL+"/_electric/entity-types", `{"name":"task","description":"x"}`, author...)
	must(t, 403, c, "GET", gw.URL+"/_electric/entities", "", nobody...)
	must(t, 403, c, "PUT", gw.URL+"/_electric/entities/task/0", `{}`, bearer(machine)...)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	events := make(chan runner.Event, 1000)
	r, err := runner.New(runner.Config{ID: "laptop", Servers: []runner.Server{{URL: gw.URL, Token: machine}},
		Register: &runner.Registration{Label: "Kyle's laptop"}, Observe: func(e runner.Event) { events <- e },
		Handler: func(ctx context.Context, c *runner.Claim) error {
			for m, err := range c.Unread(ctx) {
				if err != nil {
					return err
				}
				if err := c.Ack(ctx, m.Offset); err != nil {
					return err
				}
			}
			return c.Append(ctx, map[string]any{"headers": map[string]any{"operation": "insert"}, "type": "text", "key": "k", "value": map[string]any{"text": "worked"}})
		}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	until := func(kind runner.EventKind) {
		t.Helper()
		deadline := time.After(bound)
		for {
			select {
			case e := <-events:
				if e.Kind == kind {
					return
				}
			case err := <-ended:
				t.Fatalf("the runner ended: %v", err)
			case <-deadline:
				t.Fatalf("no %v comes", kind)
			}
		}
	}
	until(runner.Connected)
	must(t, 201, c, "PUT", gw.URL+"/_electric/entities/task/1", `{"dispatch_policy":{"targets":[{"type":"runner","runnerId":"laptop"}]}}`, author...)
	must(t, 200, c, "POST", gw.URL+"/_electric/entities/task/1/send", `{"payload":"hello"}`, author...)
	until(runner.Done)
	if a := must(t, 200, c, "GET", gw.URL+"/task/1/main?offset=-1", "", author...); !strings.Contains(a.body, `"worked"`) || !json.Valid([]byte(a.body)) {
		t.Error(a.body)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// With a token that the policy knows nothing of, the runner is told and stops.
	r, err = runner.New(runner.Config{ID: "laptop", Servers: []runner.Server{{URL: gw.URL, Token: idp.Token(t, "kyle", time.Hour)}}, Handler: func(context.Context, *runner.Claim) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	refused, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	if err := r.Run(refused); call.Status(err) != 403 {
		t.Errorf("%v", err)
	}
}
