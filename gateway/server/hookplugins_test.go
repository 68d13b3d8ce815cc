package server

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/obs"
	"github.com/rouse-run/rouse/gateway/pluginhost"
	"github.com/rouse-run/rouse/plugins/contract"
)

// An operator's name that is none is said before anything starts.
func TestOperatorsAreNamedAsPrincipalsAre(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"user:ada": "", "ada": "operator 1", "robot:x": "operator 1", "": "operator 1"} {
		err := CheckAuth(t.Context(), config.Config{Auth: config.Auth{Operators: []string{name}}})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// The hooks of the settings are plugins beside those of the plugins file, shown no
// more of a request than they need.
func TestHooksOfTheSettingsArePlugins(t *testing.T) {
	t.Parallel()
	s := &Server{selfArgs: []string{"rouse", "plugin-serve"}, Config: config.Config{TokensFile: "/t", Auth: config.Auth{Timeout: 7 * time.Second,
		Hooks: []config.AuthHook{{JWT: &config.JWTHook{Issuer: "https://a", Audiences: []string{"x"}}}, {Plugin: "corp"}, {MTLS: &config.MTLSHook{}},
			{HTTP: &config.HTTPHook{URL: "https://h", Headers: []string{"Cookie"}}}, {JWT: &config.JWTHook{Issuer: "https://b", Audiences: []string{"x"}}},
			{Tokens: &config.TokensHook{File: "/in", InProcess: true}}},
		Authorizers: []config.Authorizer{{OPA: &config.OPAAuthorizer{Policy: "/p"}}, {HTTP: &config.HTTPHook{URL: "https://h"}}}}}}
	var set pluginhost.Set
	set.Transports = map[string]pluginhost.Spec{}
	if err := s.amend(&set); err != nil {
		t.Fatal(err)
	}
	for name, headers := range map[string][]string{"auth-tokens": {"Authorization"}, "auth-jwt": {"Authorization"}, "auth-mtls": {}, "auth-http": {"Cookie"},
		"auth-jwt-2": {"Authorization"}, "auth-opa": {}, "auth-http-2": {}} {
		p, there := set.AuthHooks[name]
		if !there || p.Headers == nil || !slices.Equal(p.Headers, headers) || p.Timeout != 7*time.Second {
			t.Errorf("%s: %t %+v", name, there, p)
		}
		delete(set.AuthHooks, name)
	}
	if len(set.AuthHooks) > 0 {
		t.Errorf("there is more: %v", set.AuthHooks)
	}
	taken := pluginhost.Set{Transports: map[string]pluginhost.Spec{}, AuthHooks: map[string]pluginhost.Spec{"auth-opa": {Builtin: "opa"}}}
	if err := s.amend(&taken); err == nil || !strings.Contains(err.Error(), "auth-opa") {
		t.Errorf("a plugin has the name of a hook: %v", err)
	}
}

// What is remembered of a token file ends when the file is another one, or cannot be
// looked at.
func TestATokenFileIsLookedAfter(t *testing.T) {
	t.Parallel()
	h, err := pluginhost.New(context.WithoutCancel(t.Context()), pluginhost.Config{BuiltinHooks: []string{"tokens"}, SelfArgs: []string{"rouse"}, Amend: func(s *pluginhost.Set) error {
		s.AuthHooks = map[string]pluginhost.Spec{"auth-tokens": {Builtin: "tokens"}}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = h.Stop(context.WithoutCancel(t.Context())) }()
	hook, err := h.AuthHook("auth-tokens")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tokens.json")
	l := &lookedAfter{AuthHook: hook, path: file}
	if a, b := l.Generation(), l.Generation(); a == b {
		t.Error("a file that is not there is the same twice")
	}
	seen := map[uint64]bool{}
	add := func() {
		t.Helper()
		if err := devtoken.Add(file, devtoken.Entry{Principal: "user:ada", SHA256: devtoken.Hash(devtoken.NewToken())}); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		add()
		a := l.Generation()
		if seen[a] || a != l.Generation() {
			t.Errorf("%d was there, or does not last", a)
		}
		seen[a] = true
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if seen[l.Generation()] {
		t.Error("the file is gone, and nothing has changed")
	}
	var _ contract.HeaderReader = l // or all header fields would count
}

// A plugin that is named for what it does not do refuses requests: that is said before
// anybody asks.
func TestAPluginThatDoesNotFitIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ does, known, ready bool }{{true, true, true}, {false, false, true}, {false, true, false}} {
		s := &Server{Health: obs.NewHealth()}
		s.fits("authorizer", "guard", func() (does, known bool) { return c.does, c.known }, "does not authorize")
		why := s.Health.NotReady()
		if (len(why) == 0) != c.ready {
			t.Errorf("%+v: %v", c, why)
		}
		for _, r := range why {
			if r.Check != "authorizer guard" || r.Code != pluginhost.CodeDescription || !strings.HasPrefix(r.Detail, "guard does not authorize") {
				t.Errorf("%+v", r)
			}
		}
	}
}
