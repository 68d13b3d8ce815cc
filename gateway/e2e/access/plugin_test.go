package access

import (
	"bytes"
	"encoding/json"
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
	"github.com/rouse-run/rouse/gateway/soon"
)

// plugin is what a gateway tells of one.
type plugin struct {
	Name, Kind, State, Code string
	Builtin                 bool
	InProcess               bool `json:"in_process"`
	PID                     int
}

// plugins lists a gateway's auth hooks, for a system principal's token.
func plugins(t *testing.T, gw *servertest.Instance, system string) map[string]plugin {
	t.Helper()
	var all []plugin
	a := must(t, 200, plain(t), "GET", gw.URL+"/_electric/plugins", "", bearer(system)...)
	if err := json.Unmarshal([]byte(a.body), &all); err != nil {
		t.Fatal(err)
	}
	hooks := map[string]plugin{}
	for _, p := range all {
		if p.Kind == "authhook" {
			hooks[p.Name] = p
		}
	}
	return hooks
}

// The hooks that are built in run in processes of their own, whether the settings
// name them or the plugins file does: whoever kills one costs a moment, and lets
// nobody in.
func TestHooksInProcessesOfTheirOwn(t *testing.T) {
	t.Parallel()
	idp := signin.New(t)
	for name, tc := range map[string]struct {
		people, rules string // the names of the processes
		configure     func(t *testing.T, c *config.Config, policy string)
	}{
		"by the plugins file": {"people", "rules", func(t *testing.T, c *config.Config, policy string) {
			c.PluginsFile = filepath.Join(t.TempDir(), "plugins.yaml")
			text := fmt.Sprintf(`authhooks:
  people: {builtin: jwt, config: {issuer: %q, audiences: [rouse], allow_http: true, attributes: [role], cache_for: 1ms}}
  rules: {builtin: opa, config: {policy: %q, deadline: 5s, cache_for: 1ms}}
`, idp.URL, policy)
			if err := os.WriteFile(c.PluginsFile, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c.Auth.Hooks = []config.AuthHook{{Plugin: "people"}}
			c.Auth.Authorizers = []config.Authorizer{{Plugin: "rules"}}
		}},
		"by themselves": {"auth-jwt", "auth-opa", func(_ *testing.T, c *config.Config, policy string) {
			hook := idp.Hook()
			hook.JWT.CacheFor = time.Millisecond
			c.Auth.Hooks = []config.AuthHook{hook}
			c.Auth.Authorizers = []config.Authorizer{{OPA: &config.OPAAuthorizer{Policy: policy, Deadline: 5 * time.Second, CacheFor: time.Millisecond}}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, tokens := tokenFile(t, "system:framework")
			rules := filepath.Join(t.TempDir(), "policy.rego")
			if err := os.WriteFile(rules, []byte(policy), 0o600); err != nil {
				t.Fatal(err)
			}
			gw := servertest.Start(t, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
				c.Insecure, c.TokensFile = false, file
				tc.configure(t, c, rules)
			}})
			c := plain(t)
			author, operator := bearer(idp.Token(t, "kyle", time.Hour, "role", "author")), bearer(idp.Token(t, "kyle", time.Hour, "role", "operator"))
			works := func() {
				t.Helper()
				soon.Until(t, "it works", func() bool {
					a := do(t, c, "GET", gw.URL+"/_electric/runners", "", author...)
					if a.status != 200 && a.code() != "AUTH_UNAVAILABLE" {
						t.Fatalf("%d %s", a.status, a.body)
					}
					return a.status == 200
				})
			}
			works()
			must(t, 201, c, "PUT", gw.URL+"/notes", `[1]`, append(author, "Content-Type", "application/json")...)
			must(t, 403, c, "DELETE", gw.URL+"/notes", "", author...)
			must(t, 204, c, "DELETE", gw.URL+"/notes", "", operator...)
			must(t, 401, c, "GET", gw.URL+"/_electric/runners", "", bearer(idp.Token(t, "kyle", -time.Hour))...)
			must(t, 401, c, "GET", gw.URL+"/_electric/runners", "")

			// Killed, they come back; meanwhile strangers stay out.
			for _, name := range []string{tc.people, tc.rules} {
				p := plugins(t, gw, tokens["system:framework"])[name]
				if p.PID == 0 || p.PID == os.Getpid() || !p.Builtin || p.InProcess {
					t.Fatalf("%s: %+v", name, p)
				}
				if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				if a := do(t, c, "GET", gw.URL+"/_electric/runners", "", bearer(idp.Token(t, "kyle", -time.Hour))...); a.status == 200 {
					t.Errorf("a stranger got in while %s was away", name)
				}
				works()
			}
		})
	}
}

// While a hook's process does not answer, those it has let in go on as long as
// that holds, and nobody is let in or sent away for good.
func TestAHookThatIsAway(t *testing.T) {
	t.Parallel()
	idp := signin.New(t)
	file, tokens := tokenFile(t, "system:framework", "user:ada", "user:eve")
	gw := servertest.Start(t, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
		c.Insecure, c.TokensFile = false, file
		c.Auth.Hooks, c.Auth.Timeout = []config.AuthHook{idp.Hook()}, time.Second
	}})
	c := plain(t)
	list := gw.URL + "/_electric/runners"
	kyle, newcomer := bearer(idp.Token(t, "kyle", time.Hour)), bearer(idp.Token(t, "eve", time.Hour))
	must(t, 200, c, "GET", list, "", kyle...)
	for name, known := range map[string][]string{"auth-jwt": kyle, "auth-tokens": bearer(tokens["user:ada"])} {
		must(t, 200, c, "GET", list, "", known...)
		stranger := newcomer
		if name == "auth-tokens" {
			stranger = bearer(tokens["user:eve"])
		}
		pid := plugins(t, gw, tokens["system:framework"])[name].PID
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		soon.Until(t, name+" stands still", func() bool { return stopped(t, pid) })
		a := do(t, c, "GET", list, "", stranger...)
		if a.status != 503 || a.code() != "AUTH_UNAVAILABLE" || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s away: %d %s", name, a.status, a.body)
		}
		must(t, 200, c, "GET", list, "", known...)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		soon.Until(t, name+" is back", func() bool { return do(t, c, "GET", list, "", stranger...).status == 200 })
	}
}

// An authorizer that is down refuses everybody everything, but does not hide from
// an operator that it is down.
func TestAnOperatorSeesWhatIsWrongWithAnAuthorizer(t *testing.T) {
	t.Parallel()
	file, tokens := tokenFile(t, "system:framework", "user:ada", "user:eve")
	rules := filepath.Join(t.TempDir(), "policy.rego")
	if err := os.WriteFile(rules, []byte("package rouse\n\ndecision := \"deny\" if input.resource.id == \"/_electric/plugins\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	gw := servertest.Start(t, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
		c.Insecure, c.TokensFile = false, file
		c.Auth.Operators = []string{"user:ada"}
		c.Auth.Authorizers = []config.Authorizer{{OPA: &config.OPAAuthorizer{Policy: rules, Deadline: 5 * time.Second, CacheFor: time.Millisecond}}}
	}})
	c := plain(t)
	const list, log, other = "/_electric/plugins", "/_electric/plugins/auth-opa/log", "/_electric/runners"
	ada := bearer(tokens["user:ada"])
	judge := plugins(t, gw, tokens["user:ada"])["auth-opa"]
	must(t, 200, c, "GET", gw.URL+list+"/", "", ada...)
	must(t, 200, c, "GET", gw.URL+log, "", ada...)
	must(t, 200, c, "GET", gw.URL+other, "", ada...)
	must(t, 403, c, "GET", gw.URL+list, "", bearer(tokens["system:framework"])...)
	must(t, 403, c, "GET", gw.URL+log, "", bearer(tokens["user:eve"])...)
	// Its file is mended by nobody yet: it cannot come back.
	if err := os.WriteFile(rules, []byte("package"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(judge.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	soon.Until(t, "it is away, and others are refused", func() bool {
		return do(t, c, "GET", gw.URL+other, "", bearer(tokens["user:eve"])...).status == 503
	})
	soon.Until(t, "the operator sees it", func() bool {
		p := plugins(t, gw, tokens["user:ada"])["auth-opa"]
		return p.State != "up" && p.Code != ""
	})
	must(t, 200, c, "GET", gw.URL+log, "", ada...)
	must(t, 503, c, "GET", gw.URL+other, "", ada...)
	for _, who := range []string{"system:framework", "user:eve"} {
		for _, path := range []string{list, log} {
			if a := must(t, 503, c, "GET", gw.URL+path, "", bearer(tokens[who])...); a.code() != "AUTH_UNAVAILABLE" {
				t.Errorf("%s: %s", who, a.body)
			}
		}
	}
}

// A policy that is broken when its process has to begin anew refuses everybody;
// once it is mended it counts at once, however long it was left alone for.
func TestAMendedPolicyCountsAtOnce(t *testing.T) {
	t.Parallel()
	file, tokens := tokenFile(t, "user:ada")
	folder := filepath.Join(t.TempDir(), "policy")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, "rules.rego"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("package rouse\n")
	gw := servertest.Start(t, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
		c.Insecure, c.TokensFile, c.Auth.Operators = false, file, []string{"user:ada"}
		c.Auth.Authorizers = []config.Authorizer{{OPA: &config.OPAAuthorizer{Policy: folder, Deadline: 5 * time.Second, CacheFor: time.Millisecond}}}
	}})
	c, ada := plain(t), bearer(tokens["user:ada"])
	must(t, 200, c, "GET", gw.URL+"/_electric/runners", "", ada...)
	write("package")
	if err := syscall.Kill(plugins(t, gw, tokens["user:ada"])["auth-opa"].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	soon.Until(t, "it is left alone", func() bool { return plugins(t, gw, tokens["user:ada"])["auth-opa"].State == "circuit_open" })
	must(t, 503, c, "GET", gw.URL+"/_electric/runners", "", ada...)
	write("package rouse\n\ndecision := false\n")
	mended := time.Now()
	soon.Until(t, "the mended policy counts", func() bool { return do(t, c, "GET", gw.URL+"/_electric/runners", "", ada...).status == 403 })
	t.Logf("it counts after %v", time.Since(mended))
	if d := time.Since(mended); d > 10*time.Second {
		t.Errorf("the mended policy counts after %v only", d)
	}
}

// stopped says whether every thread of a process stands still, where /proc tells:
// each goes on until the signal has reached it.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		// The name before the state may hold anything; a thread that is gone stands still.
		if b, err := os.ReadFile(thread); err == nil && !strings.HasPrefix(string(b[bytes.LastIndexByte(b, ')')+1:]), " T") {
			return false
		}
	}
	return true
}

// What is wrong with a hook in a process of its own is said under the same code as
// of one in the gateway's, where in_process puts it.
func TestHooksSayWhatIsWrongWhereverTheyRun(t *testing.T) {
	t.Parallel()
	for _, inside := range []bool{false, true} {
		t.Run(fmt.Sprintf("in_process %t", inside), func(t *testing.T) {
			t.Parallel()
			idp := signin.New(t)
			file, tokens := tokenFile(t, "system:framework")
			rules := filepath.Join(t.TempDir(), "policy.rego")
			if err := os.WriteFile(rules, []byte(policy), 0o600); err != nil {
				t.Fatal(err)
			}
			gw := servertest.Start(t, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
				hook := idp.Hook()
				hook.JWT.InProcess = inside
				c.Insecure = false
				c.Auth.Hooks = []config.AuthHook{{Tokens: &config.TokensHook{File: file, InProcess: inside}}, hook}
				c.Auth.Authorizers = []config.Authorizer{{OPA: &config.OPAAuthorizer{Policy: rules, Deadline: 5 * time.Second, InProcess: inside}}}
			}})
			if n := len(plugins(t, gw, tokens["system:framework"])); inside && n != 0 || !inside && n != 3 {
				t.Errorf("%d hooks have a process of their own", n)
			}
			idp.Close()
			stranger := do(t, plain(t), "GET", gw.URL+"/_electric/runners", "", bearer(idp.Token(t, "kyle", time.Hour))...)
			if stranger.status != 503 {
				t.Errorf("without the issuer's keys: %d %s", stranger.status, stranger.body)
			}
			if err := os.WriteFile(rules, []byte("package rouse\n\ndecision :="), 0o600); err != nil {
				t.Fatal(err)
			}
			soon.Until(t, "both are in /readyz", func() bool {
				a := must(t, 200, plain(t), "GET", gw.URL+"/readyz", "")
				return strings.Contains(a.body, "ISSUER_UNAVAILABLE") && strings.Contains(a.body, "POLICY_BROKEN")
			})
			list := gw.URL + "/_electric/runners"
			must(t, 200, plain(t), "GET", list, "", bearer(tokens["system:framework"])...)
			// A file of tokens that cannot be read may have taken one away.
			whole, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, append(whole, '{'), 0o600); err != nil {
				t.Fatal(err)
			}
			must(t, 503, plain(t), "GET", list, "", bearer(tokens["system:framework"])...)
			soon.Until(t, "it is in /readyz", func() bool {
				return strings.Contains(must(t, 200, plain(t), "GET", gw.URL+"/readyz", "").body, "TOKENS_UNREADABLE")
			})
			if err := os.WriteFile(file, whole, 0o600); err != nil {
				t.Fatal(err)
			}
			must(t, 200, plain(t), "GET", list, "", bearer(tokens["system:framework"])...)
			soon.Until(t, "it is not in /readyz", func() bool {
				return !strings.Contains(must(t, 200, plain(t), "GET", gw.URL+"/readyz", "").body, "TOKENS_UNREADABLE")
			})
		})
	}
}
