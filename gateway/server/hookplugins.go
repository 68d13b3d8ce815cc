package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/obs"
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
	)
	h := sdk.AuthHook{Name: name, ConfigSchema: json.RawMessage(`{"type":"object"}`), Configure: func(_ context.Context, settings json.RawMessage) (err error) {
		who, judge, err = hookOf(ctx, name, settings)
		return err
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

// hookOf makes a hook of its settings. It has others behind it that may know what it does not.
func hookOf(ctx context.Context, name string, settings json.RawMessage) (contract.AuthHook, contract.Authorizer, error) {
	if len(settings) == 0 {
		settings = json.RawMessage(`{}`)
	}
	kind := "hooks"
	if name == "opa" {
		kind = "authorizers"
	}
	section, err := json.Marshal(map[string]any{kind: []any{map[string]any{name: settings}}})
	if err != nil {
		return nil, nil, err
	}
	var a config.Auth
	if err := a.UnmarshalText(section); err != nil {
		return nil, nil, fmt.Errorf("the settings of %s %w", name, err)
	}
	if err := a.Validate(); err != nil {
		return nil, nil, err
	}
	s := &Server{base: ctx, Log: sdk.Logger(), Health: obs.NewHealth()}
	if name == "opa" {
		judge, err := s.authorizer(a.Authorizers[0])
		return nil, judge, err
	}
	who, err := s.authHook(a.Hooks[0], false)
	if err != nil {
		return nil, nil, err
	}
	judge, _ := who.(contract.Authorizer)
	return who, judge, nil
}
