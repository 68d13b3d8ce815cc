package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	httphook "github.com/rouse-run/rouse/authhooks/http"
	"github.com/rouse-run/rouse/authhooks/jwt"
	"github.com/rouse-run/rouse/authhooks/mtls"
	"github.com/rouse-run/rouse/authhooks/opa"
	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/control"
	"github.com/rouse-run/rouse/gateway/obs"
	"github.com/rouse-run/rouse/gateway/pluginhost"
	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/plugins/contract"
)

// authChain is who may ask, and for what: hooks from the configuration; without any, `serve` denies everybody.
func (s *Server) authChain(db *store.Store) (*auth.Chain, error) {
	a := s.Config.Auth
	set := auth.Config{Insecure: s.Config.Insecure, Near: auth.NewNear(s.Config.PublicURL, s.Config.Listen, s.Config.InsecureAnywhere),
		Users: db, Log: s.Log, Timeout: a.Timeout, MaxCache: a.CacheMax, Limit: auth.Limit{PerSecond: a.RatePerSecond, Burst: a.RateBurst},
		Registry: s.registry(),
		Policy:   auth.Policy{MayGrant: a.AuthorizersMayGrant, DenyByDefault: a.DenyByDefault}, Inspects: control.InspectsPlugins}
	for i, name := range a.Operators {
		p, err := auth.Parse(name)
		if err != nil {
			return nil, fmt.Errorf("auth operator %d: %w", i+1, err)
		}
		set.Operators = append(set.Operators, p)
	}
	hooks := s.authHooks()
	whoBy, mayBy, err := s.hookProcesses()
	if err != nil {
		return nil, err
	}
	for i, h := range hooks {
		hook, err := s.authHook(h, i == len(hooks)-1, whoBy[i])
		if err != nil {
			kind, _ := h.Hook()
			return nil, fmt.Errorf("auth hook %d (%s): %w", i+1, cmp.Or(kind, "plugin"), err)
		}
		set.Hooks = append(set.Hooks, hook)
	}
	for i, h := range a.Authorizers {
		by, err := s.authorizer(h, mayBy[i])
		if err != nil {
			return nil, fmt.Errorf("authorizer %d: %w", i+1, err)
		}
		set.Authorizers = append(set.Authorizers, by)
	}
	return auth.New(set), nil
}

// registry is where metrics go; a gateway that is only looked at has none.
func (s *Server) registry() prometheus.Registerer {
	if s.Metrics == nil {
		return nil
	}
	return s.Metrics.Registry
}

// CheckAuth looks at what the settings of TLS, hooks and authorizers lead to, so that a mistake is said before anything
// is started. Plugins are not looked at.
func CheckAuth(ctx context.Context, c config.Config) error {
	s := &Server{Config: c, base: ctx, Log: slog.New(slog.DiscardHandler), Health: obs.NewHealth()}
	s.Config.Auth.Hooks = slices.DeleteFunc(slices.Clone(c.Auth.Hooks), func(h config.AuthHook) bool { return h.Plugin != "" })
	s.Config.Auth.Authorizers = slices.DeleteFunc(slices.Clone(c.Auth.Authorizers), func(h config.Authorizer) bool { return h.Plugin != "" })
	_, err := newTLS(c, s.Log)
	_, chainErr := s.authChain(nil)
	return errors.Join(err, chainErr, s.stopParts(ctx))
}

// authHooks are those of the settings, that of the tokens file first.
func (s *Server) authHooks() []config.AuthHook {
	if s.Config.TokensFile == "" {
		return s.Config.Auth.Hooks
	}
	return append([]config.AuthHook{{Tokens: &config.TokensHook{File: s.Config.TokensFile}}}, s.Config.Auth.Hooks...)
}

// closing ends a hook with the gateway.
func (s *Server) closing(name string, end func()) {
	s.add(part{name: name, stop: func(context.Context) error { end(); return nil }})
}

// authHook gives one hook: by its process, if it has one. The last one has nobody to pass what it does not know on to.
func (s *Server) authHook(h config.AuthHook, last bool, by *hookProcess) (hook contract.AuthHook, err error) {
	switch {
	case by != nil:
		plugged, err := s.plugins.AuthHook(by.name)
		if err != nil {
			return nil, err
		}
		if hook = plugged; h.Tokens != nil {
			hook = &lookedAfter{AuthHook: plugged, path: h.Tokens.File}
		}
	case h.Plugin != "":
		plugged, err := s.plugins.AuthHook(h.Plugin)
		if err != nil {
			return nil, err
		}
		s.fits("hook", h.Plugin, func() (does, known bool) { does, _, known = plugged.Does(); return does, known }, "does not authenticate")
		hook = plugged
	default:
		hook, err = s.ownHook(h, last)
	}
	if err != nil {
		return nil, err
	}
	// Whom a file of tokens names is the operator's word. Others name system principals where the operator says so.
	if h.MTLS != nil && !h.MTLS.AllowSystem || h.HTTP != nil && !h.HTTP.AllowSystem || h.Plugin != "" && !h.AllowSystem {
		hook = auth.WithoutSystem(hook)
	}
	return hook, nil
}

// ownHook makes one hook in this process.
func (s *Server) ownHook(h config.AuthHook, last bool) (contract.AuthHook, error) {
	switch {
	case h.Tokens != nil:
		return s.tokensHook(h.Tokens, last, 0)
	case h.JWT != nil:
		c := h.JWT
		hook, err := jwt.New(s.base, jwt.Options{Issuer: c.Issuer, Audiences: c.Audiences, KeysURL: c.KeysURL, KeysFile: c.KeysFile,
			Algorithms: c.Algorithms, Skew: c.Skew, Kind: c.Kind, Claim: c.Claim, Prefix: c.Prefix, Require: c.Require, Attributes: c.Attributes,
			CacheFor: c.CacheFor, Refresh: c.Refresh, MaxStale: c.MaxStale, AllowHTTP: c.AllowHTTP})
		if err == nil {
			s.closing("jwt", hook.Close)
			s.Health.Note(func() []obs.Reason {
				if hook.Outage() != "" {
					return []obs.Reason{{Check: "jwt", Code: "ISSUER_UNAVAILABLE", Detail: "the keys of an issuer cannot be fetched; those fetched before count until max_stale"}}
				}
				return nil
			})
		}
		return hook, err
	case h.MTLS != nil:
		rules := make([]mtls.Rule, len(h.MTLS.Rules))
		for i, r := range h.MTLS.Rules {
			rules[i] = mtls.Rule(r)
		}
		return mtls.New(rules, nil)
	case h.HTTP != nil:
		return s.httpHook(h.HTTP)
	}
	return nil, errNoHook
}

// tokensHook reads a file of tokens.
func (s *Server) tokensHook(c *config.TokensHook, last bool, remember time.Duration) (*devtoken.Hook, error) {
	hook, err := devtoken.Open(c.File, devtoken.Options{PassUnknown: passUnknown(c, last), CacheFor: remember})
	if err == nil {
		s.Health.Note(func() []obs.Reason {
			if hook.Broken() != "" {
				return []obs.Reason{{Check: "tokens", Code: "TOKENS_UNREADABLE", Detail: "the file of tokens cannot be used; bearer tokens are refused with 503 until it can"}}
			}
			return nil
		})
	}
	return hook, err
}

var errNoHook = errors.New("it is none that is built in")

func (s *Server) httpHook(c *config.HTTPHook) (*httphook.Hook, error) {
	hook, err := httphook.New(httphook.Options{Name: c.Name, URL: c.URL, Headers: c.Headers, Secret: c.Secret.Reveal(), Timeout: c.Timeout, AllowHTTP: c.AllowHTTP})
	if err == nil {
		s.closing("http auth", hook.Close)
	}
	return hook, err
}

// authorizer gives one authorizer: by its process, if it has one.
func (s *Server) authorizer(h config.Authorizer, by *hookProcess) (contract.Authorizer, error) {
	name := h.Plugin
	if by != nil {
		name = by.name
	}
	if name == "" {
		return s.ownAuthorizer(h)
	}
	plugged, err := s.plugins.AuthHook(name)
	if err != nil {
		return nil, err
	}
	s.fits("authorizer", name, func() (does, known bool) { _, does, known = plugged.Does(); return does, known }, "does not authorize")
	return plugged, nil
}

// fits makes it a reason not to be ready that a plugin does not do what the settings have it for, or has no entry any
// more: requests are refused.
func (s *Server) fits(as, name string, does func() (does, known bool), wrong string) {
	s.Health.Ready(as+" "+name, func() (code, detail string, ok bool) {
		if does, known := does(); known && !does {
			return pluginhost.CodeDescription, name + " " + wrong + " or is no more, and the section auth has it among the " + as + "s", false
		}
		return "", "", true
	})
}

// ownAuthorizer makes one authorizer in this process.
func (s *Server) ownAuthorizer(h config.Authorizer) (contract.Authorizer, error) {
	switch {
	case h.OPA != nil:
		c := h.OPA
		by, err := opa.New(s.base, opa.Options{Policy: c.Policy, Query: c.Query, Deadline: c.Deadline, CacheFor: c.CacheFor, Decisions: c.LogDecisions, Log: s.Log})
		if err == nil {
			s.closing("opa", by.Close)
			s.Health.Note(func() []obs.Reason {
				if why := by.Broken(); why != "" {
					return []obs.Reason{{Check: "opa", Code: "POLICY_BROKEN", Detail: "the policy's files changed and cannot be used; the ones before them are"}}
				}
				return nil
			})
		}
		return by, err
	case h.HTTP != nil:
		return s.httpHook(h.HTTP)
	}
	return nil, errNoHook
}
