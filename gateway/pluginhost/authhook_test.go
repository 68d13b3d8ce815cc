package pluginhost

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/soon"
	"github.com/rouse-run/rouse/plugins/contract"
)

func hookHost(t *testing.T, spec Spec, change ...func(*Host)) (*Host, *AuthHook) {
	t.Helper()
	h := newHost(t, Set{AuthHooks: map[string]Spec{"corp": spec}}, change...)
	a, err := h.AuthHook("corp")
	if err != nil {
		t.Fatal(err)
	}
	if spec.Env[fixtureEnv] == "hook" && spec.SHA256 == own.sum {
		up(t, h)
	}
	return h, a
}

func credentials(v string) contract.Request {
	return contract.Request{Header: http.Header{"Authorization": {v}}}
}

func TestAnAuthPluginDecides(t *testing.T) {
	t.Parallel()
	_, a := hookHost(t, ownSpec("hook"))
	d, err := a.Authenticate(t.Context(), credentials("allow"))
	if err != nil || d.Verdict != contract.Allow || d.Principal.Key() != "user:ada" || d.Principal.Profile["email"] != "a@b.c" || d.CacheFor != time.Minute {
		t.Errorf("%+v %v", d, err)
	}
	if d, err := a.Authenticate(t.Context(), credentials("deny")); err != nil || d.Verdict != contract.Deny || d.Why != "it is on the list" {
		t.Errorf("%+v %v", d, err)
	}
	if d, err := a.Authenticate(t.Context(), credentials("somebody else's")); err != nil || d.Verdict != contract.NoOpinion {
		t.Errorf("%+v %v", d, err)
	}
	q := contract.Question{Principal: contract.Principal{Kind: "user", ID: "ada"}, Verb: "read"}
	if r, err := a.Authorize(t.Context(), q); err != nil || r.Verdict != contract.Allow || r.CacheFor != time.Second || r.Revision != "r7" {
		t.Errorf("%+v %v", r, err)
	}
	q = contract.Question{Principal: contract.Principal{Kind: "user", ID: "ada"}, Verb: "write", BuiltInAllowed: true, Resource: contract.Resource{Service: "default", Kind: "entity", ID: "x"}}
	if r, err := a.Authorize(t.Context(), q); err != nil || r.Verdict != contract.NoOpinion {
		t.Errorf("the question does not arrive whole: %+v %v", r, err)
	}
	q.Resource.ID = "y"
	if r, err := a.Authorize(t.Context(), q); err != nil || r.Verdict != contract.Deny || r.Why != "not that" {
		t.Errorf("%+v %v", r, err)
	}
	if got := a.Headers(); len(got) != 1 || got[0] != "Authorization" {
		t.Errorf("it is shown %v", got)
	}
	// They are asked for before anything runs.
	spec := ownSpec("hook")
	spec.Headers = []string{"Cookie", "X-Team"}
	h, err := New(t.Context(), Config{Amend: func(s *Set) error { s.AuthHooks = map[string]Spec{"corp": spec}; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer stopHost(t, h)
	if a, err := h.AuthHook("corp"); err != nil || len(a.Headers()) != 2 || a.Headers()[0] != "Cookie" {
		t.Errorf("it is shown %v, %v", a.Headers(), err)
	}
	if _, err := (&Host{}).AuthHook("corp"); err == nil {
		t.Error("a hook that is not configured is there")
	}
}

// heard is a log whose warnings are heard.
type heard chan string

func (heard) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (l heard) WithAttrs([]slog.Attr) slog.Handler         { return l }
func (l heard) WithGroup(string) slog.Handler              { return l }
func (l heard) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	select {
	case l <- text:
	default:
	}
	return nil
}

// An auth plugin that looks at fields which its entry does not show knows nobody:
// that is said.
func TestAnAuthPluginThatIsShownTooLittleIsNamed(t *testing.T) {
	t.Parallel()
	said := make(heard, 8)
	spec := ownSpec("hook")
	spec.Headers = []string{"Cookie"}
	hookHost(t, spec, func(h *Host) { h.deps.log = slog.New(said) })
	select {
	case text := <-said:
		if !strings.Contains(text, "not shown") || !strings.Contains(text, "plugin=corp headers=[Authorization]") {
			t.Error(text)
		}
	case <-time.After(10 * time.Second):
		t.Error("nothing is said")
	}
	if hidden := (Spec{}).hides([]string{"authorization"}); len(hidden) > 0 {
		t.Error(hidden)
	}
}

// S9: whatever an auth plugin does wrong is an error, never an opinion.
func TestAnAuthPluginThatFailsRefuses(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T, a *AuthHook, c string, limit time.Duration) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		if d, err := a.Authenticate(ctx, credentials(c)); err == nil || d.Verdict == contract.Allow || d.Verdict == contract.NoOpinion {
			t.Errorf("%s: %+v %v", c, d, err)
		}
	}
	t.Run("in its answers", func(t *testing.T) {
		t.Parallel()
		_, a := hookHost(t, ownSpec("hook"))
		for _, c := range []string{"error", "panic", "nonsense", "hang"} {
			refused(t, a, c, 500*time.Millisecond)
		}
		for _, verb := range []string{"error"} {
			if r, err := a.Authorize(t.Context(), contract.Question{Verb: verb}); err == nil || r.Verdict != contract.Deny {
				t.Errorf("%s: %+v %v", verb, r, err)
			}
		}
		if d, err := a.Authenticate(t.Context(), credentials("allow")); err != nil || d.Verdict != contract.Allow {
			t.Errorf("after all that: %+v %v", d, err)
		}
	})
	t.Run("by ending", func(t *testing.T) {
		t.Parallel()
		h, a := hookHost(t, ownSpec("hook"))
		up(t, h)
		refused(t, a, "crash", 5*time.Second)
		soon.Within(t, 10*time.Second, "it is back", func() bool {
			d, err := a.Authenticate(t.Context(), credentials("allow"))
			return err == nil && d.Verdict == contract.Allow
		})
		if r, err := a.Authorize(t.Context(), contract.Question{Verb: "crash"}); err == nil || r.Verdict != contract.Deny {
			t.Errorf("%+v %v", r, err)
		}
	})
	t.Run("by freezing", func(t *testing.T) {
		t.Parallel()
		h, a := hookHost(t, ownSpec("hook"), func(h *Host) { h.deps.pace.health = time.Hour })
		pid := up(t, h)
		freeze(t, pid)
		refused(t, a, "allow", 300*time.Millisecond)
	})
	for _, what := range []string{"exit", "mute", "rubbish", "transport", "version"} {
		t.Run("by not being there: "+what, func(t *testing.T) {
			t.Parallel()
			_, a := hookHost(t, ownSpec(what))
			refused(t, a, "allow", 300*time.Millisecond)
		})
	}
	t.Run("by not being what is pinned", func(t *testing.T) {
		t.Parallel()
		spec := ownSpec("hook")
		spec.SHA256 = "00" + spec.SHA256[2:]
		h, a := hookHost(t, spec)
		refused(t, a, "allow", 300*time.Millisecond)
		soon.Within(t, 10*time.Second, "it is in the health", func() bool { return info(h).Code == CodeChecksum || info(h).Code == CodeCircuitOpen })
	})
	t.Run("by being stopped", func(t *testing.T) {
		t.Parallel()
		h, a := hookHost(t, ownSpec("hook"))
		stopHost(t, h)
		refused(t, a, "allow", time.Second)
	})
}

// Requests are better sent to another gateway while a hook of this one cannot
// judge them.
func TestAGatewayIsReadyWhenItsHooksAre(t *testing.T) {
	t.Parallel()
	h, _ := hookHost(t, ownSpec("hook"))
	soon.Within(t, 10*time.Second, "it is ready", func() bool { _, _, ok := h.HooksReady(); return ok })
	_ = syscall.Kill(up(t, h), syscall.SIGKILL)
	for range 100 { // a restart is no reason
		if code, _, ok := h.HooksReady(); !ok {
			t.Fatalf("not ready: %s", code)
		}
	}
	broken, _ := hookHost(t, ownSpec("exit"))
	if code, _, ok := broken.HooksReady(); ok || code == "" {
		t.Errorf("it is ready without its hook: %q", code)
	}
	var why string
	soon.Within(t, 20*time.Second, "it is left alone", func() bool {
		code, detail, ok := broken.HooksReady()
		why = detail
		return !ok && code == CodeCircuitOpen
	})
	if !strings.Contains(why, "corp does not run: "+CodeStartFailed) {
		t.Errorf("it does not say which and why: %q", why)
	}
	transports, _ := one(t, "exit")
	if _, _, ok := transports.HooksReady(); !ok {
		t.Error("a transport is no reason")
	}
}
