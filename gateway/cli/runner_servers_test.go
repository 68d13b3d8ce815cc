package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/gateway/soon"
)

// R37: one process is a runner at several gateways and services at once, under one id, with a cursor, and credentials, at
// each.
func TestOneRunnerAtSeveralServers(t *testing.T) {
	t.Parallel()
	var people []person // of each place
	var servers, tokens []string
	for range 2 {
		file, token := filepath.Join(t.TempDir(), "tokens.json"), devtoken.NewToken()
		if err := devtoken.Add(file, devtoken.Entry{Principal: "user:kyle", SHA256: devtoken.Hash(token)}); err != nil {
			t.Fatal(err)
		}
		gw := servertest.Start(t, servertest.Options{Configure: func(c *config.Config) { c.Insecure, c.TokensFile, c.TypeSpawn = false, file, "all" }})
		gw.DB.Exec(t, `insert into rouse.services (name) values ('team')`)
		servers, tokens = append(servers, gw.URL), append(tokens, token)
		people = append(people, person{t, []string{"ROUSE_SERVER=" + gw.URL, "ROUSE_TOKEN=" + token}})
	}
	// The second gateway is served twice: its default service and another one.
	servers, tokens = append(servers, servers[1]+"?service=team"), append(tokens, tokens[1])
	people = append(people, person{t, append([]string{"ROUSE_SERVICE=team"}, people[1].environ...)})

	state := t.TempDir()
	environ := []string{"PATH=/usr/bin:/bin", "HOME=" + state}
	run := func(extra []string, more ...string) (stop func() int, events *output) {
		ctx, cancel := context.WithCancel(t.Context())
		events = &output{}
		ended := make(chan int, 1)
		args := append([]string{"runner", "run", "--id", "laptop", "--json", "--exec", `echo "at $ROUSE_SERVER $ROUSE_SERVICE"`}, more...)
		for _, s := range servers {
			args = append(args, "--server", s)
		}
		go func() {
			ended <- Run(ctx, args, Streams{In: strings.NewReader(""), Out: events, Err: t.Output(), Environ: append(extra, environ...)})
		}()
		return func() int { cancel(); return <-ended }, events
	}
	stop, events := run([]string{"ROUSE_TOKEN=" + strings.Join(tokens, ",")})
	for i, p := range people {
		soon.Within(t, 20*time.Second, "it is registered", func() bool {
			code, out, _ := p.run("", "runner", "ls")
			return code == ExitOK && strings.Contains(out, "online")
		})
		p.ok("type", "put", "task")
		p.ok("entity", "spawn", "task/1", "--runner", "laptop", "-m", "hello")
		soon.Within(t, 20*time.Second, "the run is over", func() bool { return strings.Count(events.String(), `"event":"done"`) == i+1 })
	}
	if code := stop(); code != ExitOK {
		t.Errorf("exit code %d", code)
	}
	for i, p := range people {
		base, service, named := strings.Cut(servers[i], "?service=")
		if !named {
			service = "default"
		}
		out := p.ok("entity", "tail", "task/1", "--no-follow")
		if want := fmt.Sprintf("at %s %s\n", base, service); strings.Count(out, "text  ") != 1 || !strings.Contains(out, want) {
			t.Errorf("at %s: want %q in %s", servers[i], want, out)
		}
	}
	dir := filepath.Join(state, ".local", "state", "rouse", "runners")
	if cursors, err := filepath.Glob(filepath.Join(dir, "laptop-*.json")); err != nil || len(cursors) != 3 {
		t.Errorf("cursors: %v, %v", cursors, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "laptop.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its key: %v, %v", info, err)
	}

	// Each cursor is taken up again: what was done is not done twice, what is new is.
	flags := []string{}
	for _, token := range tokens {
		flags = append(flags, "--token", token)
	}
	stop, events = run(nil, flags...)
	for i, p := range people {
		p.ok("entity", "send", "task/1", "more")
		soon.Within(t, 20*time.Second, "the run is over", func() bool { return strings.Count(events.String(), `"event":"done"`) == i+1 })
	}
	if code := stop(); code != ExitOK || strings.Count(events.String(), `"event":"claimed"`) != 3 {
		t.Errorf("exit code %d after\n%s", code, events)
	}
	person{t, append(environ, "ROUSE_TOKEN=a,b,c")}.refused(ExitUsage, "3 tokens for 2 servers", "runner", "run", "--id", "x", "--exec", "true", "--server", servers[0], "--server", servers[1])
	person{t, environ}.refused(ExitUsage, "named twice", "runner", "run", "--id", "x", "--exec", "true", "--server", servers[0], "--server", servers[0])
	for _, id := range []string{"../evil", "a/b", "..", ""} {
		person{t, environ}.refused(ExitUsage, "a runner's id is", "runner", "run", "--id", id, "--exec", "true", "--server", servers[0])
	}
	if keys, err := filepath.Glob(filepath.Join(dir, "..", "*", "*.key")); err != nil || len(keys) != 2 { // of laptop and x
		t.Errorf("keys of refused ids: %v, %v", keys, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "..", "evil.key")); err == nil {
		t.Error("a key lies outside its directory")
	}
	if err := os.Chmod(filepath.Join(dir, "laptop.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	person{t, environ}.refused(ExitFailed, "chmod 600", "runner", "run", "--id", "laptop", "--exec", "true", "--server", servers[0])
}
