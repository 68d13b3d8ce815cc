package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/obs"
	"github.com/rouse-run/rouse/gateway/pluginhost"
	"github.com/rouse-run/rouse/plugins/contract"
	"github.com/rouse-run/rouse/plugins/sdk"
)

// BuiltinHooks are the auth hooks and authorizers that this binary has, to be served in processes of their own. Their
// settings are those that they have in the section auth. What they start ends with ctx.
func BuiltinHooks(ctx context.Context) map[string]func() sdk.AuthHook {
	all := map[string]func() sdk.AuthHook{}
	for _, name := range []string{"tokens", "jwt", "mtls", "http", "opa"} {
		all[name] = func() sdk.AuthHook { return pluginOf(ctx, name) }
	}
	return all
}

// pluginOf serves one of them.
func pluginOf(ctx context.Context, name string) sdk.AuthHook {
	var (
		who   contract.AuthHook
		judge contract.Authorizer
		notes *obs.Health
	)
	h := sdk.AuthHook{Name: name, Version: "v1", ConfigSchema: json.RawMessage(`{"type":"object"}`), Configure: func(_ context.Context, settings json.RawMessage) (err error) {
		who, judge, notes, err = hookOf(ctx, name, settings)
		return err
	}, Health: func(context.Context) error {
		if notes == nil {
			return nil
		}
		for _, r := range notes.Degraded() {
			// The form in which the gateway finds its own codes again.
			return fmt.Errorf("%s: %s", r.Code, r.Detail)
		}
		return nil
	}}
	if name != "opa" {
		h.Authenticate = func(ctx context.Context, r contract.Request) (contract.Decision, error) {
			if who == nil {
				return contract.Decision{Verdict: contract.Deny}, errUnset
			}
			return who.Authenticate(ctx, r)
		}
	}
	if name == "opa" || name == "http" {
		h.Authorize = func(ctx context.Context, q contract.Question) (contract.Ruling, error) {
			if judge == nil {
				return contract.Ruling{Verdict: contract.Deny}, errUnset
			}
			return judge.Authorize(ctx, q)
		}
	}
	return h
}

var errUnset = errors.New("the hook has no settings")

// hookOf makes a hook of its settings, and what it says of how it is doing. It has others behind it that may know what
// it does not.
func hookOf(ctx context.Context, name string, settings json.RawMessage) (contract.AuthHook, contract.Authorizer, *obs.Health, error) {
	if len(settings) == 0 {
		settings = json.RawMessage(`{}`)
	}
	kind := "hooks"
	if name == "opa" {
		kind = "authorizers"
	}
	section, err := json.Marshal(map[string]any{kind: []any{map[string]any{name: settings}}})
	if err != nil {
		return nil, nil, nil, err
	}
	var a config.Auth
	if err := a.UnmarshalText(section); err != nil {
		return nil, nil, nil, fmt.Errorf("the settings of %s %w", name, err)
	}
	if err := a.Validate(); err != nil {
		return nil, nil, nil, err
	}
	s := &Server{base: ctx, Log: sdk.Logger(), Health: obs.NewHealth()}
	if name == "opa" {
		judge, err := s.ownAuthorizer(a.Authorizers[0])
		return nil, judge, s.Health, err
	}
	if t := a.Hooks[0].Tokens; t != nil {
		who, err := s.tokensHook(t, false, t.CacheFor)
		return who, nil, s.Health, err
	}
	who, err := s.ownHook(a.Hooks[0], false)
	if err != nil {
		return nil, nil, nil, err
	}
	judge, _ := who.(contract.Authorizer)
	return who, judge, s.Health, nil
}

// hookProcess is the plugin that serves a built-in hook of the section auth.
type hookProcess struct {
	name string
	spec pluginhost.Spec
}

// proxies are how a machine's programs are told of its way out; hooks ask others.
var proxies = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}

// tokensFor is how long what a tokens process says of a token is remembered while the file stays as it is.
const tokensFor = time.Minute

// hookProcesses gives, for each hook and authorizer of the section auth that is built in, the plugin that serves it;
// nil for those that run here or are plugins anyway.
func (s *Server) hookProcesses() (hooks, authorizers []*hookProcess, err error) {
	all := s.authHooks()
	hooks, authorizers = make([]*hookProcess, len(all)), make([]*hookProcess, len(s.Config.Auth.Authorizers))
	if len(s.selfArgs) == 0 {
		return hooks, authorizers, nil
	}
	seen := map[string]int{}
	process := func(kind string, headers []string, settings map[string]any) *hookProcess {
		p := &hookProcess{name: "auth-" + kind, spec: pluginhost.Spec{Builtin: kind, PassEnv: proxies, Timeout: s.Config.Auth.Timeout, Headers: headers, Config: settings}}
		if seen[kind]++; seen[kind] > 1 {
			p.name += fmt.Sprintf("-%d", seen[kind])
		}
		return p
	}
	for i, h := range all {
		kind, here := h.Hook()
		if kind == "" || here {
			continue
		}
		settings, err := h.Settings()
		if err != nil {
			return nil, nil, fmt.Errorf("auth hook %d (%s): %w", i+1, kind, err)
		}
		headers := []string{"Authorization"}
		switch {
		case h.Tokens != nil:
			settings["pass_unknown"], settings["cache_for"] = passUnknown(h.Tokens, i == len(all)-1), tokensFor.String()
		case h.MTLS != nil:
			headers = []string{}
		case h.HTTP != nil && len(h.HTTP.Headers) > 0:
			headers = h.HTTP.Headers
		}
		hooks[i] = process(kind, headers, settings)
	}
	for i, h := range s.Config.Auth.Authorizers {
		kind, here := h.Hook()
		if kind == "" || here {
			continue
		}
		settings, err := h.Settings()
		if err != nil {
			return nil, nil, fmt.Errorf("authorizer %d (%s): %w", i+1, kind, err)
		}
		authorizers[i] = process(kind, []string{}, settings)
	}
	return hooks, authorizers, nil
}

// passUnknown says whether a tokens hook leaves others' tokens to the next one. The last hook has nobody to leave them to.
func passUnknown(t *config.TokensHook, last bool) bool {
	if t.PassUnknown != nil {
		return *t.PassUnknown
	}
	return !last
}

// lookedAfter is the process of a tokens file that this process looks at for each request too: what was remembered of
// the file holds only while it stays as it is, so a token that is revoked is asked about again at once.
type lookedAfter struct {
	*pluginhost.AuthHook
	path string

	mu    sync.Mutex
	last  fs.FileInfo // nil: it could not be looked at
	count uint64
}

// Generation implements auth.Generational.
func (l *lookedAfter) Generation() uint64 {
	st, err := os.Stat(l.path)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		st = nil // what is said of it now is not remembered
		l.count++
	case l.last == nil || !os.SameFile(l.last, st) || !l.last.ModTime().Equal(st.ModTime()) || l.last.Size() != st.Size():
		l.count++
	}
	l.last = st
	return l.count + l.AuthHook.Generation()
}
