package access

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/signin"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// The hooks that are built in run in processes of their own as well, with the
// same settings: whoever kills one costs a moment, and lets nobody in.
func TestHooksInProcessesOfTheirOwn(t *testing.T) {
	t.Parallel()
	idp := signin.New(t)
	dir := t.TempDir()
	rules, plugins := filepath.Join(dir, "policy.rego"), filepath.Join(dir, "plugins.yaml")
	if err := os.WriteFile(rules, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`authhooks:
  people: {builtin: jwt, config: {issuer: %q, audiences: [rouse], allow_http: true, attributes: [role], cache_for: 1ms}}
  rules: {builtin: opa, config: {policy: %q, deadline: 5s, cache_for: 1ms}}
`, idp.URL, rules)
	if err := os.WriteFile(plugins, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	gw := servertest.Start(t, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
		c.Insecure, c.PluginsFile = false, plugins
		c.Auth.Hooks = []config.AuthHook{{Plugin: "people"}}
		c.Auth.Authorizers = []config.Authorizer{{Plugin: "rules"}}
	}})
	c := plain(t)
	author, operator := bearer(idp.Token(t, "kyle", time.Hour, "role", "author")), bearer(idp.Token(t, "kyle", time.Hour, "role", "operator"))
	works := func() {
		t.Helper()
		for deadline := time.Now().Add(bound); ; {
			a := do(t, c, "GET", gw.URL+"/_electric/runners", "", author...)
			if a.status == 200 {
				return
			}
			if a.code() != "AUTH_UNAVAILABLE" || time.Now().After(deadline) {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
	}
	works()
	must(t, 201, c, "PUT", gw.URL+"/notes", `[1]`, append(author, "Content-Type", "application/json")...)
	must(t, 403, c, "DELETE", gw.URL+"/notes", "", author...)
	must(t, 204, c, "DELETE", gw.URL+"/notes", "", operator...)
	must(t, 401, c, "GET", gw.URL+"/_electric/runners", "", bearer(idp.Token(t, "kyle", -time.Hour))...)
	must(t, 401, c, "GET", gw.URL+"/_electric/runners", "")

	// Killed, they come back; meanwhile strangers stay out.
	for _, name := range []string{"people", "rules"} {
		pid := childOf(t, name)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if a := do(t, c, "GET", gw.URL+"/_electric/runners", "", bearer(idp.Token(t, "kyle", -time.Hour))...); a.status == 200 {
			t.Errorf("a stranger got in while %s was away", name)
		}
		works()
	}
}

// childOf finds the process that serves a plugin of this test's gateway.
func childOf(t *testing.T, name string) int {
	t.Helper()
	want := map[string]string{"people": "jwt", "rules": "opa"}[name]
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !strings.HasSuffix(string(line), "plugin-serve\x00"+want+"\x00") {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		var pid, parent int
		var state string
		after := string(stat)[strings.LastIndexByte(string(stat), ')')+1:]
		if _, err := fmt.Sscan(after, &state, &parent); err != nil || parent != os.Getpid() {
			continue
		}
		if _, err := fmt.Sscan(e.Name(), &pid); err == nil {
			return pid
		}
	}
	t.Fatalf("no process serves %s", name)
	return 0
}
