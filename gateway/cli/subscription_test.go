package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

func TestSubscriptionCommands(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	if out := p.ok("subscription", "ls"); out != "" {
		t.Error(out)
	}
	if out := p.ok("subscription", "put", "pool", "--pattern", "jobs/**", "--wake-stream", "wakes/pool", "--lease", "1m", "--description", "who does the jobs"); out != "subscription pool → stream wakes/pool\n" {
		t.Error(out)
	}
	p.ok("subscription", "put", "hook", "--stream", "a", "--stream", "b", "--webhook", "http://127.0.0.1:9/hook?secret=s")
	p.refused(ExitServerRefusal, `"rouse subscription show ID"`, "subscription", "put", "pool", "--pattern", "other", "--wake-stream", "wakes/pool")
	p.refused(ExitServerRefusal, "INVALID_REQUEST", "subscription", "put", "bad", "--pattern", "a*b", "--wake-stream", "wakes/pool")
	p.refused(ExitServerRefusal, "WEBHOOK_URL_REJECTED", "subscription", "put", "bad", "--pattern", "a", "--webhook", "http://10.0.0.1/")
	p.refused(ExitServerNotFound, "SUBSCRIPTION_NOT_FOUND", "subscription", "show", "nobody")
	p.refused(ExitUsage, "can't be used together", "subscription", "put", "x", "--pattern", "a", "--webhook", "https://a", "--wake-stream", "b")
	p.refused(ExitUsage, `Run "rouse subscription put --help"`, "subscription", "put", "x", "--lease", "10")
	p.refused(ExitUsage, "--lease: must be a number with its unit", "subscription", "put", "x", "--lease", "1d")
	for _, args := range [][]string{{"subscription", "put", "x", "--pattern", "a"}, {"subscription", "put", "x", "--webhook", "https://a", "--wake-stream", "b"}, {"wake", "ls"}, {"wake", "ls", "a/b", "--subscription", "x"}, {"wake", "ls", "nothing"}} {
		p.refused(ExitUsage, "", args...)
	}
	out := p.ok("subscription", "ls")
	if !strings.Contains(out, "jobs/**") || !strings.Contains(out, "webhook http://127.0.0.1:9/hook ") || strings.Contains(out, "secret") {
		t.Error(out)
	}
	p.ok("subscription", "add", "hook", "c/d", "c/e")
	p.ok("subscription", "remove", "hook", "c/e")
	var s subscription
	p.into(&s, "subscription", "show", "hook")
	if len(s.Streams) != 3 || s.Streams[2].Path != "c/d" || s.Webhook == nil || s.Lease != 30_000 || s.Status != "active" {
		t.Errorf("%+v", s)
	}
	p.ok("stream", "create", "jobs/1", `{"do":"this"}`)
	for deadline := time.Now().Add(20 * time.Second); ; {
		if p.into(&s, "subscription", "show", "pool"); s.State == "waking" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", s)
		}
	}
	out = p.ok("subscription", "show", "pool")
	for _, want := range []string{"who does the jobs", "waking", "1m0s", "user:kyle", "jobs/1", "glob", "yes"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if out := p.ok("wake", "ls", "--subscription", "pool"); !strings.Contains(out, "pull-wake") || !strings.Contains(out, "unclaimed") {
		t.Error(out)
	}
	p.ok("subscription", "rm", "pool", "hook")
	var left []subscription
	if p.into(&left, "subscription", "ls"); len(left) != 0 {
		t.Errorf("%+v", left)
	}
}

func TestSubscriptionsOfPlugins(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "plugins.yaml")
	if err := os.WriteFile(file, []byte("transports: {exec: {builtin: exec, in_process: true, config: {commands: {nightly: {argv: [/bin/cat]}}}}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	gw := servertest.Start(t, servertest.Options{Configure: func(c *config.Config) { c.PluginsFile = file }})
	p := person{t, []string{"ROUSE_SERVER=" + gw.URL, "ROUSE_AS=user:kyle", "HOME=" + t.TempDir()}}
	if out := p.ok("subscription", "put", "nightly", "--pattern", "builds/*", "--target", `{"type":"exec","command":"nightly"}`); out != "subscription nightly → plugin exec\n" {
		t.Error(out)
	}
	var s subscription
	p.into(&s, "subscription", "show", "nightly")
	if s.Type != "exec" || strings.Join(strings.Fields(string(s.Target)), "") != `{"command":"nightly"}` {
		t.Errorf("%+v", s)
	}
	if out := p.ok("subscription", "ls"); !strings.Contains(out, "plugin exec") {
		t.Error(out)
	}
	p.refused(ExitServerRefusal, "INVALID_TARGET", "subscription", "put", "x", "--pattern", "a", "--target", `{"type":"exec","command":"daily"}`)
	p.refused(ExitServerRefusal, "There are: exec, webhook", "subscription", "put", "x", "--pattern", "a", "--target", `{"type":"pigeon"}`)
	p.refused(ExitUsage, "can't be used together", "subscription", "put", "x", "--pattern", "a", "--webhook", "https://a", "--target", `{"type":"exec"}`)
	for _, target := range []string{"exec", `{}`, `[]`, `null`, `{"type":7}`, `{"type":""}`} {
		p.refused(ExitUsage, "--target must be a JSON object with a type", "subscription", "put", "x", "--pattern", "a", "--target", target)
	}
	p.refused(ExitUsage, "--target is for transport plugins", "subscription", "put", "x", "--pattern", "a", "--target", `{"type":"webhook","url":"https://a"}`)
}
