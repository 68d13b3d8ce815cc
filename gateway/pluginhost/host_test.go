package pluginhost

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/soon"
	"github.com/rouse-run/rouse/plugins/contract"
)

func TestAPluginDeliversAndItsOutcomesAreFields(t *testing.T) {
	t.Parallel()
	h, tr := one(t, "transport")
	for do, want := range map[string]contract.Result{
		"permanent": {Outcome: contract.Permanent, StatusCode: 410, Error: "gone"},
		"later":     {Outcome: contract.Retry, RetryAfter: 90 * time.Second},
		"done":      {Outcome: contract.Done, Error: `signed:{"n":1}`},
		"panic":     {Outcome: contract.Retry, Error: "the plugin panicked in Deliver"},
	} {
		if got := send(t, tr, do, do, 10*time.Second); got != want {
			t.Errorf("%s: got %+v, want %+v", do, got, want)
		}
	}
	i := info(h)
	if i.State != stateUp || i.Version != "v1.2.3" || i.Starts != 1 || i.Code != "" || string(i.TargetSchema) != fixtureSchema {
		t.Errorf("got %+v", i)
	}
	if r := h.Health(); len(r) != 0 {
		t.Errorf("a plugin that is well is complained of: %v", r)
	}
	soon.Within(t, 5*time.Second, "what it logged is kept", func() bool {
		lines, known := h.Logs("fixture")
		return known && strings.Contains(joined(lines), "the plugin panicked")
	})
}

func joined(lines []LogLine) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.Text + "\n")
	}
	return b.String()
}

func TestTargetsAreCheckedByTheSchemaAndThenByThePlugin(t *testing.T) {
	t.Parallel()
	h, tr := one(t, "transport")
	for target, want := range map[string]string{
		`{"type":"fixture","do":"x"}`:         "",
		`{"type":"fixture"}`:                  "it lacks do",
		`{"type":"fixture","do":7}`:           "do must be of type string",
		`{"type":"fixture","do":""}`:          "do is not as the schema has it (minLength)",
		`{"type":"fixture","do":"forbidden"}`: "it is forbidden",
	} {
		err := tr.ValidateTarget(t.Context(), json.RawMessage(target))
		if got := errText(err); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
	stopHost(t, h)
	err := tr.ValidateTarget(t.Context(), json.RawMessage(`{"type":"fixture","do":"x"}`))
	if p := problem.From(err); p.Code != problem.PluginUnavailable {
		t.Errorf("a plugin that cannot be asked: %v", err)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestAPluginSeesNothingOfTheHostsEnvironment(t *testing.T) {
	t.Setenv("ROUSE_KEYS", "hunter2")
	t.Setenv("PASSED_ON", "yes")
	spec := ownSpec("transport")
	spec.PassEnv = []string{"PASSED_ON"}
	spec.Env["GIVEN"] = "this"
	h := newHost(t, Set{Transports: map[string]Spec{"fixture": spec}})
	tr := h.transports["fixture"]
	up(t, h)
	raw, err := os.ReadFile("/proc/" + pidText(info(h).PID) + "/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00") {
		name, _, ok := strings.Cut(kv, "=")
		switch name {
		case fixtureEnv, "GIVEN", "PASSED_ON", "PATH", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "GOMEMLIMIT", "ROUSE_PLUGIN",
			"PLUGIN_MIN_PORT", "PLUGIN_MAX_PORT", "PLUGIN_PROTOCOL_VERSIONS", "PLUGIN_CLIENT_CERT", "PLUGIN_UNIX_SOCKET_DIR":
		default:
			if ok { // a certificate has lines of its own
				t.Errorf("the plugin is given %s", name)
			}
		}
	}
	if r := send(t, tr, "w", "env", 10*time.Second); strings.Contains(r.Error, "hunter2") || !strings.Contains(string(raw), "GIVEN=this") || !strings.Contains(string(raw), "PASSED_ON=yes") {
		t.Errorf("got %q", r.Error)
	}
}

func TestSettingsThatAreRefusedAreSaidAndTriedAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config map[string]any
		code   string
		says   string
	}{
		"by the plugin": {map[string]any{"refuse": "no such server"}, CodeConfigRefused, "no such server"},
		"by its schema": {map[string]any{"answer": 42424242}, CodeConfigRefused, "answer must be of type string"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, Set{Transports: map[string]Spec{"fixture": ownSpec("transport").with(c.config)}})
			soon.Within(t, 10*time.Second, "it is refused", func() bool { return info(h).Code == c.code })
			if d := info(h).Detail; !strings.Contains(d, c.says) || strings.Contains(d, "42424242") {
				t.Errorf("got %q", d)
			}
		})
	}
}

func TestAPluginThatSaysItIsSickIsInTheHealth(t *testing.T) {
	t.Parallel()
	h := newHost(t, Set{Transports: map[string]Spec{"fixture": ownSpec("transport").with(map[string]any{"sick": "the server is away"})}})
	soon.Within(t, 10*time.Second, "it is in the health", func() bool { r := h.Health(); return len(r) == 1 && r[0].Code == CodeUnhealthy })
	if i := info(h); i.State != stateUp || i.Detail != "the server is away" || i.Starts != 1 {
		t.Errorf("a complaint is no crash: %+v", i)
	}
}

func TestABatchIsAnsweredEach(t *testing.T) {
	t.Parallel()
	got, err := read([]contract.Delivery{{WakeID: "a"}, {WakeID: "b"}}, answers("b", "a"))
	if err != nil || got[0].StatusCode != 1 || got[1].StatusCode != 0 {
		t.Errorf("%v %v", got, err)
	}
	for name, ids := range map[string][]string{"one missing": {"a"}, "one twice": {"a", "a"}, "a strange one": {"a", "c"}, "one too many": {"a", "b", "c"}} {
		if _, err := read([]contract.Delivery{{WakeID: "a"}, {WakeID: "b"}}, answers(ids...)); CodeOf(err) != CodeRubbish {
			t.Errorf("%s: %v", name, err)
		}
	}
}
