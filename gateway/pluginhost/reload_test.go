package pluginhost

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/soon"
	"github.com/rouse-run/rouse/plugins/contract"
	"github.com/rouse-run/rouse/plugins/sdk"
)

// fileHost runs what a plugins file says, and looks at it when told.
func fileHost(t *testing.T, text string) (h *Host, write func(string)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plugins.yaml")
	write = func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	h, err := New(context.WithoutCancel(t.Context()), Config{File: file, TempDir: shortDir(t), Signer: fakeSigner{},
		Builtins: map[string]func() sdk.Transport{"fixture": func() sdk.Transport { return fixtureTransport(false) }}})
	if err != nil {
		t.Fatal(err)
	}
	h.deps.pace = fast
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopHost(t, h) })
	return h, write
}

func entry(name, answer string) string {
	s := ownSpec("transport")
	return fmt.Sprintf("  %s: {path: %q, sha256: %s, env: {%s: transport}, config: {answer: %q}}\n", name, s.Path, s.SHA256, fixtureEnv, answer)
}

// answer is what the plugin is configured to say.
func answer(t *testing.T, h *Host, typ string) string {
	t.Helper()
	tr := h.Transport(typ)
	if tr == nil {
		return "none"
	}
	return send(t, tr, "w", "accept", 10*time.Second).Error
}

func TestAChangedFileIsPutToUseAndNoDeliveryIsDropped(t *testing.T) {
	t.Parallel()
	h, write := fileHost(t, "transports:\n"+entry("fixture", "one"))
	up(t, h)
	if got := answer(t, h, "fixture"); got != "one" {
		t.Fatalf("got %q", got)
	}
	// Deliveries all the while, slow ones among them.
	var stop atomic.Bool
	var wg sync.WaitGroup
	var sent, lost atomic.Int64
	for n := range 4 {
		wg.Go(func() {
			for k := 0; !stop.Load(); k++ {
				do := "accept"
				if (n+k)%3 == 0 {
					do = "slow"
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				r := h.Transport("fixture").Deliver(ctx, contract.Delivery{WakeID: fmt.Sprint(n, k), Target: json.RawMessage(`{"do":"` + do + `"}`), Notification: json.RawMessage(`{}`)})
				cancel()
				sent.Add(1)
				if r.Outcome != contract.Accepted {
					lost.Add(1)
					t.Errorf("%+v", r)
				}
			}
		})
	}
	pids := map[int]bool{}
	for _, version := range []string{"two", "three"} {
		pids[up(t, h)] = true
		write("transports:\n" + entry("fixture", version))
		soon.Within(t, 20*time.Second, version+" is in use", func() bool { return answer(t, h, "fixture") == version })
	}
	// One that does not work changes nothing.
	write("transports:\n" + strings.Replace(entry("fixture", "four"), "answer: \"four\"", "refuse: \"no\"", 1))
	soon.Within(t, 20*time.Second, "the failure is in the health", func() bool { r := h.Health(); return len(r) == 1 && r[0].Code == CodeReloadFailed })
	if got := answer(t, h, "fixture"); got != "three" {
		t.Errorf("got %q", got)
	}
	// Nor does a file that is none.
	write("transports: [hunter2\n")
	soon.Within(t, 20*time.Second, "the file is in the health", func() bool {
		r := h.Health()
		return len(r) > 0 && r[0].Code == CodeConfiguration && !strings.Contains(fmt.Sprint(r), "hunter2")
	})
	write("transports:\n" + entry("fixture", "five"))
	soon.Within(t, 20*time.Second, "five is in use", func() bool { return answer(t, h, "fixture") == "five" })
	soon.Within(t, 20*time.Second, "all is well", func() bool { return len(h.Health()) == 0 })
	stop.Store(true)
	wg.Wait()
	if sent.Load() < 20 {
		t.Errorf("only %d deliveries were made", sent.Load())
	}
	for pid := range pids {
		gone(t, pid, 10*time.Second)
	}
}

func TestPluginsComeAndGoWithTheFile(t *testing.T) {
	t.Parallel()
	hook := ownSpec("hook")
	h, write := fileHost(t, "")
	if len(h.Transports()) != 0 {
		t.Fatal("there are some already")
	}
	write("transports:\n" + entry("one", "1") + entry("two", "2") + fmt.Sprintf("authhooks:\n  corp: {path: %q, sha256: %s, env: {%s: hook}}\n", hook.Path, hook.SHA256, fixtureEnv))
	soon.Within(t, 20*time.Second, "both are there", func() bool { return answer(t, h, "one") == "1" && answer(t, h, "two") == "2" })
	if a, err := h.AuthHook("corp"); err != nil {
		t.Error(err)
	} else if d, err := a.Authenticate(t.Context(), credentials("allow")); err != nil || d.Verdict != contract.Allow {
		t.Errorf("%+v %v", d, err)
	}
	names := []string{}
	for _, tr := range h.Transports() {
		names = append(names, tr.Type())
	}
	if fmt.Sprint(names) != "[one two]" {
		t.Errorf("got %v", names)
	}
	write("transports:\n" + entry("two", "2"))
	soon.Within(t, 20*time.Second, "one is gone", func() bool { return h.Transport("one") == nil })
	// In this process, and back.
	write("transports:\n  two: {builtin: fixture, in_process: true, config: {answer: inside}}\n")
	soon.Within(t, 20*time.Second, "it is inside", func() bool { return answer(t, h, "two") == "inside" })
	soon.Within(t, 20*time.Second, "no process is left", func() bool { ps := h.Plugins(); return len(ps) == 2 && ps[1].InProcess && ps[1].PID == 0 })
	if _, known := h.Logs("two"); !known {
		t.Error("it is not known")
	}
	write("transports:\n" + entry("two", "outside"))
	soon.Within(t, 20*time.Second, "it is outside", func() bool { return answer(t, h, "two") == "outside" })
	if a, err := h.AuthHook("corp"); err == nil {
		if d, err := a.Authenticate(t.Context(), credentials("allow")); err == nil {
			t.Errorf("a hook that was taken out decides: %+v", d)
		}
	}
}

func TestATransportInsideKeepsTheContract(t *testing.T) {
	t.Parallel()
	h, _ := fileHost(t, "transports:\n  two: {builtin: fixture, in_process: true, config: {answer: inside}}\n  bad: {builtin: fixture, in_process: true, config: {answer: 7}}\n")
	tr := h.Transport("two")
	if r := send(t, tr, "w", "done", time.Second); r.Error != `signed:{"n":1}` {
		t.Errorf("got %+v", r)
	}
	if r := send(t, tr, "w", "panic", time.Second); r.Outcome != contract.Retry {
		t.Errorf("got %+v", r)
	}
	if err := tr.ValidateTarget(t.Context(), json.RawMessage(`{"do":1}`)); err == nil {
		t.Error("the schema is not asked")
	}
	if err := tr.ValidateTarget(t.Context(), json.RawMessage(`{"do":"forbidden"}`)); err == nil {
		t.Error("the transport is not asked")
	}
	if r := send(t, h.Transport("bad"), "w", "accept", time.Second); r.Outcome != contract.Retry || !strings.Contains(r.Error, CodeConfigRefused) {
		t.Errorf("got %+v", r)
	}
}

// A transport in this process whose entry changes or goes is let go of, and what it
// still does holds up no change.
func TestATransportInsideIsLetGoOf(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "plugins.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	entry := func(answer string) string {
		return "transports:\n  two: {builtin: fixture, in_process: true, config: {answer: " + answer + "}}\n"
	}
	write(entry("one"))
	var closed atomic.Int32
	busy := make(chan struct{})
	h, err := New(context.WithoutCancel(t.Context()), Config{File: file, TempDir: shortDir(t), Builtins: map[string]func() sdk.Transport{"fixture": func() sdk.Transport {
		tr := fixtureTransport(false)
		tr.Close = func() { <-busy; closed.Add(1) }
		return tr
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopHost(t, h) })
	for _, next := range []string{entry("other"), "transports: {}\n"} {
		write(next)
		soon.Within(t, 10*time.Second, "the change", func() bool { return answer(t, h, "two") != "one" })
	}
	soon.Within(t, 10*time.Second, "the entry's end", func() bool { return h.Transport("two") == nil })
	close(busy)
	soon.Within(t, 10*time.Second, "the end of both", func() bool { return closed.Load() == 2 })
}

func TestFilesThatAreWrongSayWhereAndQuoteNothing(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"transport: {}": "there is no member transport here",
		"transports: {a: {path: /x, config: hunter2}}":     "named members must stand here",
		"transports: {a: {pth: /x}}":                       "there is no member pth here",
		"transports: {a: {}}":                              "transports.a needs a path, or names a builtin one",
		"transports: {a: {path: x, sha256: 0}}":            "needs an absolute path",
		"transports: {a: {path: /x}}":                      "transports.a needs the sha256",
		"transports: {A_b: {builtin: webhook}}":            "a name that is none",
		"transports: {runner: {builtin: webhook}}":         "and not runner",
		"transports: {a: {builtin: w, memory: 1MiB}}":      "needs at least 16MiB",
		"transports: {a: {builtin: w, timeout: 1h}}":       "has a timeout",
		"transports: {a: {builtin: w, headers: [X]}}":      "only auth hooks are",
		"authhooks: {a: {builtin: jwt, in_process: true}}": "configured under auth.hooks",
		"transports: {a: {builtin: w}}\nauthhooks: {a: {path: /x, sha256: " + strings.Repeat("0", 64) + "}}": "has the name of a transport",
		"transports: {a: {path: /x, in_process: true, sha256: " + strings.Repeat("0", 64) + "}}":             "only a builtin one can",
		"transports: [": "it is no YAML",
		"transports: {a: {config: {password: *hunter2 }}}": "it is no YAML",
		"transports: {a: {files: \"`hunter2\"}}":           "must stand here",
	} {
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunt") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := Load("/nonexistent/plugins.yaml"); CodeOf(err) != CodeConfiguration {
		t.Error(err)
	}
	if _, err := New(t.Context(), Config{Amend: func(s *Set) error { s.Transports["a"] = Spec{Builtin: "nothing"}; return nil }}); CodeOf(err) != CodeConfiguration {
		t.Error(err)
	}
}

// What stood in the way of a changed entry may pass.
func TestAChangedEntryIsTriedAgain(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	h, write := fileHost(t, "transports:\n"+entry("fixture", "one"))
	up(t, h)
	if err := os.Rename(p.path, p.path+".later"); err != nil {
		t.Fatal(err)
	}
	write(fmt.Sprintf("transports:\n  fixture: {path: %q, sha256: %s, env: {%s: transport}, config: {answer: two}}\n", p.path, p.sum, fixtureEnv))
	soon.Within(t, 20*time.Second, "it is stale", func() bool { return info(h).Code == CodeReloadFailed })
	if got := answer(t, h, "fixture"); got != "one" {
		t.Errorf("got %q", got)
	}
	if err := os.Rename(p.path+".later", p.path); err != nil {
		t.Fatal(err)
	}
	soon.Within(t, 20*time.Second, "two is in use", func() bool { return answer(t, h, "fixture") == "two" })
	soon.Within(t, 20*time.Second, "all is well", func() bool { return len(h.Health()) == 0 })
}

// What an auth hook has said under its old settings is told from what it says under
// the new ones.
func TestAChangedHookIsOfAnotherGeneration(t *testing.T) {
	t.Parallel()
	line := func(timeout string) string {
		s := ownSpec("hook")
		return fmt.Sprintf("authhooks:\n  corp: {path: %q, sha256: %s, env: {%s: hook}, timeout: %s}\n", s.Path, s.SHA256, fixtureEnv, timeout)
	}
	h, write := fileHost(t, line("3s"))
	a, err := h.AuthHook("corp")
	if err != nil {
		t.Fatal(err)
	}
	up(t, h)
	before := a.Generation()
	h.reload()
	if a.Generation() != before {
		t.Error("nothing has changed")
	}
	write(line("4s"))
	soon.Within(t, 10*time.Second, "it is another one", func() bool { return a.Generation() == before+1 })
	// One that is taken away has said nothing that counts, whatever comes in its place.
	write("{}\n")
	soon.Within(t, 10*time.Second, "it is gone", func() bool { _, _, known := a.Does(); return known && a.get() == nil })
	soon.Within(t, 10*time.Second, "what it said is, too", func() bool { return a.Generation() == before+2 })
	write(line("5s"))
	soon.Within(t, 10*time.Second, "it is back", func() bool { who, may, known := a.Does(); return who && may && known })
	if a.Generation() < before+2 {
		t.Error("it goes on as the one before")
	}
}
