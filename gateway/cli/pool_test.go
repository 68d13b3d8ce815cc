package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

func TestTargetsAreRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"runner:laptop": `{"type":"runner","runnerId":"laptop"}`,
		"runner:laptop,offline,unclaimed=15s,full,failed": `{"type":"runner","runnerId":"laptop","when":{"failed":true,"full":true,"offline":true,"unclaimedAfterMs":15000}}`,
		"pool:coding":                           `{"type":"worker-pool","workerPoolId":"coding"}`,
		"worker-pool:coding,unclaimed=1m":       `{"type":"worker-pool","workerPoolId":"coding","when":{"unclaimedAfterMs":60000}}`,
		"https://x.example/a,b?c=d,e":           `{"type":"webhook","url":"https://x.example/a,b?c=d,e"}`,
		"https://x.example/a,b,failed":          `{"type":"webhook","url":"https://x.example/a,b","when":{"failed":true}}`,
		"https://x.example:443/,unclaimed=90ms": `{"type":"webhook","url":"https://x.example:443/","when":{"unclaimedAfterMs":90}}`,
		"laptop":                                "", "runner:": "", "pool:x,busy": "", "runner:x,unclaimed": "", "runner:x,unclaimed=15": "", "runner:x,offline=true": "", "": "", "ftp://x": "",
	} {
		got, err := parseTarget(text)
		raw, _ := json.Marshal(got)
		if want == "" && (err == nil || exitCode(err) != ExitUsage) || want != "" && (err != nil || string(raw) != want) {
			t.Errorf("%q: %s %v", text, raw, err)
		}
	}
	for name, f := range map[string]targetFlags{
		"bounds alone": {GiveUpAttempts: 3}, "bounds beside a whole policy": {Policy: `{}`, GiveUpAfter: time.Second}, "no time": {Runner: "a", GiveUpAfter: 1},
		"no JSON": {Policy: `{`}, "no object": {Policy: `null`},
	} {
		if _, err := f.policy(); err == nil || exitCode(err) != ExitUsage {
			t.Errorf("%s: %v", name, err)
		}
	}
	p, err := targetFlags{To: []string{"runner:laptop,offline", "pool:coding", "https://x.example/hook?secret=s"}, GiveUpAfter: time.Hour, GiveUpAttempts: 20}.policy()
	if err != nil || string(p) != `{"targets":[{"type":"runner","runnerId":"laptop","when":{"offline":true}},{"type":"worker-pool","workerPoolId":"coding"},{"type":"webhook","url":"https://x.example/hook?secret=s"}],"giveUp":{"afterMs":3600000,"attempts":20}}` {
		t.Errorf("%s %v", p, err)
	}
	if got := targets(p); got != "runner laptop → pool coding → webhook https://x.example/hook" {
		t.Error(got)
	}
}

// as is the same for somebody else.
func (p person) as(who string) person {
	environ := []string{"ROUSE_AS=" + who}
	for _, kv := range p.environ {
		if !strings.HasPrefix(kv, "ROUSE_AS=") {
			environ = append(environ, kv)
		}
	}
	return person{p.t, environ}
}

func TestPoolCommands(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	other := p.as("user:ada")
	if out := p.ok("pool", "ls"); out != "" {
		t.Error(out)
	}
	if out := p.ok("pool", "create", "coding", "--name", "Coding agents", "--max-per-runner", "2", "--max-total", "20"); out != "pool coding of user:kyle is enabled: at most 20 claims, 2 for one runner\n" {
		t.Error(out)
	}
	p.refused(ExitServerRefusal, "maxTotalClaims", "pool", "create", "coding", "--max-total", "0") // not: no limit
	if out := p.ok("pool", "create", "coding", "--no-limits", "--disable"); out != "pool coding of user:kyle is disabled: any number of claims, any for one runner\n" {
		t.Error(out)
	}
	p.ok("pool", "create", "coding", "--enable", "--max-total", "3")
	p.ok("runner", "register", "sandbox")
	other.ok("runner", "register", "adas")
	if out := p.ok("pool", "add", "coding", "sandbox", "adas"); out != "sandbox is active in coding\nadas is invited in coding\n" {
		t.Error(out)
	}
	if out := other.ok("pool", "join", "coding", "adas"); out != "adas is active in coding\n" {
		t.Error(out)
	}
	if out := other.ok("pool", "drain", "coding", "adas"); out != "adas is disabled in coding\n" {
		t.Error(out)
	}
	out := p.ok("pool", "show", "coding")
	for _, want := range []string{"Coding agents", "0 of 3", "/worker-pools/coding/wake", "sandbox", "adas", "disabled", "user:ada"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if out := p.ok("pool", "ls"); !strings.Contains(out, "coding") || !strings.Contains(out, "0 of 2") || !strings.Contains(out, "0 of 3") {
		t.Error(out)
	}
	var show workerPool
	p.into(&show, "pool", "show", "coding")
	if len(show.Members) != 2 || *show.CapacityPolicy.MaxTotal != 3 || show.CapacityPolicy.MaxPerRunner != nil {
		t.Errorf("%+v", show)
	}
	if out := p.ok("pool", "remove", "coding", "adas"); out != "adas is not in coding any more\n" {
		t.Error(out)
	}

	p.ok("pool", "invite", "coding", "--revoke") // whom the owner has removed no token made before lets in
	token := strings.TrimSpace(p.ok("pool", "invite", "coding", "--ttl", "10m"))
	if !strings.HasPrefix(token, "rouse_jt_") {
		t.Error(token)
	}
	other.refused(ExitServerRefusal, `"rouse pool add coding RUNNER"`, "pool", "join", "coding", "adas")
	joined := other
	joined.environ = append(joined.environ[:len(joined.environ):len(joined.environ)], "ROUSE_JOIN_TOKEN="+token)
	if out := joined.ok("pool", "join", "coding", "adas"); out != "adas is active in coding\n" {
		t.Error(out)
	}
	p.ok("pool", "remove", "coding", "adas")
	joined.refused(ExitServerRefusal, "removed it", "pool", "join", "coding", "adas")
	p.ok("pool", "invite", "coding", "--revoke")
	joined.refused(ExitServerRefusal, "JOIN_TOKEN_INVALID", "pool", "join", "coding", "adas")

	p.refused(ExitUsage, "together", "pool", "create", "x", "--no-limits", "--max-total", "1")
	p.refused(ExitUsage, "--ttl", "pool", "invite", "coding", "--ttl", "1ms")
	other.refused(ExitServerRefusal, "POOL_FORBIDDEN", "pool", "show", "coding")
	p.refused(ExitServerNotFound, "NOT_FOUND", "pool", "show", "none")
	p.ok("pool", "rm", "coding")
	p.refused(ExitServerNotFound, "NOT_FOUND", "pool", "rm", "coding")
}

// What is moved, given up and woken again, as a person sees it.
func TestMovedAndParkedWork(t *testing.T) {
	t.Parallel()
	gw := servertest.Start(t, servertest.Options{Configure: func(c *config.Config) { c.ReaperPeriod = 20 * time.Millisecond }})
	p := person{t, []string{"ROUSE_SERVER=" + gw.URL, "ROUSE_AS=user:kyle", "HOME=" + t.TempDir()}}
	p.ok("type", "put", "task", "-d", "Something to do")
	p.ok("runner", "register", "laptop")
	p.ok("runner", "register", "desktop")
	p.ok("pool", "create", "coding")
	p.refused(ExitUsage, "no target", "entity", "spawn", "task/0", "--to", "laptop")
	p.refused(ExitServerNotFound, "/dispatch_policy/targets/1/workerPoolId", "entity", "spawn", "task/0", "--to", "runner:laptop", "--to", "pool:none")
	p.ok("entity", "spawn", "task/a/1", "--to", "runner:laptop,unclaimed=1h", "--to", "pool:coding", "-m", "hello")
	if out := p.ok("entity", "ps"); !strings.Contains(out, "runner laptop → pool coding") || !strings.Contains(out, "Waiting for runner...") {
		t.Error(out)
	}
	if out := p.ok("entity", "move", "task/a/1", "--runner", "desktop", "--reason", "back home"); out != "moved /task/a/1 → runner desktop\n" {
		t.Error(out)
	}
	if out := p.ok("entity", "move", "task/a/1", "--runner", "desktop"); out != "/task/a/1 goes there already\n" {
		t.Error(out)
	}
	for _, args := range [][]string{{"entity", "move", "task/a/1"}, {"entity", "move", "task/a/1", "--runner", "desktop", "--deadline", "-1s"}, {"parked", "redrive"}, {"parked", "redrive", "task/a/1", "--all"}, {"parked", "redrive", "task/a/1", "--type", "task"}, {"parked", "ls", "--limit", "0"}} {
		p.refused(ExitUsage, "", args...)
	}
	p.refused(ExitServerRefusal, "NOT_PARKED", "parked", "redrive", "task/a/1")
	if out := p.ok("parked", "ls"); out != "" {
		t.Error(out)
	}
	p.ok("entity", "spawn", "task/2", "--runner", "laptop", "--give-up-after", "50ms", "-m", "hello")
	var list []parkedWork
	for deadline := time.Now().Add(20 * time.Second); len(list) == 0; {
		if p.into(&list, "parked", "ls"); time.Now().After(deadline) {
			t.Fatal("nothing is parked")
		}
	}
	if list[0].EntityURL != "/task/2" || list[0].Reason != "unclaimed" || list[0].ParkedAt.IsZero() {
		t.Errorf("%+v", list)
	}
	if out := p.ok("parked", "ls"); !strings.Contains(out, "/task/2") || !strings.Contains(out, "unclaimed") {
		t.Error(out)
	}
	p.ok("entity", "move", "task/2", "--runner", "laptop") // goes on, and does not give up any more
	if out := p.ok("parked", "ls"); out != "" {
		t.Error(out)
	}
	p.ok("entity", "spawn", "task/3", "--runner", "laptop", "--give-up-after", "50ms", "-m", "hello")
	for deadline := time.Now().Add(20 * time.Second); ; {
		if out := p.ok("parked", "redrive", "--all", "--type", "task", "--reason", "unclaimed"); out == "redriven 1\n" {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(out)
		}
	}
	p.refused(ExitServerRefusal, "reason", "parked", "redrive", "--all", "--reason", "boredom")
}
