package cli

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

func TestGlobalFlagsAreThoseOfClients(t *testing.T) {
	t.Parallel()
	of := reflect.TypeFor[clientFlags]()
	if of.NumField() != len(globals) {
		t.Errorf("%d flags, %d of them before commands", of.NumField(), len(globals))
	}
	for f := range of.Fields() {
		if valued, there := globals["--"+strings.ToLower(f.Name)]; !there || valued != (f.Type.Kind() != reflect.Bool) {
			t.Errorf("%s: %t", f.Name, there)
		}
	}
}

func TestGlobalFlagsAreMovedBehindTheCommand(t *testing.T) {
	t.Parallel()
	var cmd root
	parser, err := kong.New(&cmd, kong.Vars{"listen": "", "server": "", "version": ""})
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"pool ls --as a":                            "pool ls --as a",
		"--as a pool ls":                            "pool ls --as a",
		"pool --as a --json list":                   "pool list --as a --json",
		"--json --token=x --server y stream tail z": "stream tail --json --token=x --server y z",
		"--as a":                           "",
		"--as":                             "",
		"--as a --help":                    "--help",
		"pool --as":                        "pool",
		"--json pool --as a lst":           "pool lst",
		"--json help pool":                 "help pool",
		"--as a nonsense":                  "nonsense",
		"--as pool pool ls":                "pool ls --as pool",
		"--config x serve":                 "--config x serve",
		"type put --json pool":             "type put --json pool",
		"--as a stream append x -- --as b": "stream append --as a x -- --as b",
	} {
		if got := strings.Join(inPlace(parser.Model.Node, strings.Fields(line)), " "); got != want {
			t.Errorf("%q: %q, not %q", line, got, want)
		}
	}
	args := []string{"--json", "pool", "ls"}
	inPlace(parser.Model.Node, args)
	if !slices.Equal(args, []string{"--json", "pool", "ls"}) {
		t.Errorf("the caller's are %q now", args)
	}
}

// Whoever writes them before the command gets the same.
func TestGlobalFlagsStandAnywhere(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	p.environ = slices.DeleteFunc(p.environ, func(kv string) bool { return strings.HasPrefix(kv, "ROUSE_AS=") })
	p.ok("--as", "user:ada", "runner", "register", "laptop")
	for _, args := range [][]string{{"--as", "user:ada", "--json", "runner", "ls"}, {"runner", "--as=user:ada", "ls", "--json"}, {"runner", "ls", "--as", "user:ada", "--json"}} {
		if out := p.ok(args...); !strings.Contains(out, "user%3Aada") || !strings.HasPrefix(out, "[") {
			t.Errorf("%v: %s", args, out)
		}
	}
	if out := p.ok("--as", "user:eve", "runner", "ls"); strings.Contains(out, "laptop") {
		t.Error(out)
	}
	p.refused(ExitUsage, "--as", "--as", "user:ada", "keys", "ls") // which asks no gateway
	p.refused(ExitUsage, "pol", "--as", "user:ada", "pol", "ls")
	if out := p.ok("--as", "user:ada"); !strings.Contains(out, "Exit codes:") || !strings.Contains(out, "before the command") {
		t.Error(out)
	}
	if _, _, said := p.run("", "pool", "--json"); !strings.Contains(said, `expected one of "create"`) {
		t.Error(said)
	}
	for _, args := range [][]string{{"--json", "help", "pool"}, {"help", "--json", "pool"}, {"help", "pool"}, {"--as", "help", "help", "pool"}} {
		if out := p.ok(args...); !strings.Contains(out, "Usage: rouse pool <command>") {
			t.Errorf("%v: %s", args, out)
		}
	}
	if out := p.ok("--as", "user:ada", "pool", "add", "--help"); !strings.Contains(out, "rouse pool add coding") {
		t.Error(out)
	}
}

// In dev who names nobody is the system, whose word counts for everybody: it is said that nobody was asked.
func TestWhoNamesNobodyIsToldWhoWasNotAsked(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	p.ok("pool", "create", "coding")
	p.as("user:ada").ok("runner", "register", "adas")
	p.environ = slices.DeleteFunc(p.environ, func(kv string) bool { return strings.HasPrefix(kv, "ROUSE_AS=") })
	p.ok("runner", "register", "mine")
	if code, out, said := p.run("", "pool", "add", "coding", "mine"); code != ExitOK || out != "mine is active in coding\n" || said != "" {
		t.Errorf("%d %s%s", code, out, said)
	}
	code, out, said := p.run("", "pool", "add", "coding", "mine", "adas")
	if code != ExitOK || out != "mine is active in coding\nadas is active in coding\n" || !strings.Contains(said, "adas of user:ada was not asked") || !strings.Contains(said, "--as") {
		t.Errorf("%d %s%s", code, out, said)
	}
	if _, _, said := p.run("", "pool", "add", "coding", "adas", "--json"); said != "" {
		t.Error(said)
	}
}
