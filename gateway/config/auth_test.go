package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const authSection = `
auth:
  hooks:
    - tokens: {file: /etc/rouse/tokens}
    - jwt: {issuer: "https://id.example", audiences: [rouse], skew: 1m, require: {tenant: one}}
    - mtls: {rules: [{from: uri, prefix: "spiffe://x/", kind: service}]}
    - http: {url: "https://auth.example/check", headers: [Cookie], secret: hunter2}
    - plugin: ours
  authorizers:
    - opa: {policy: /etc/rouse/policy, deadline: 5ms}
  deny_by_default: true
  operators: [user:ada]
  rate_per_second: 50
`

func TestTheAuthSectionOfAFile(t *testing.T) {
	t.Parallel()
	env := map[string]string{"ROUSE_DATABASE_URL": "postgres://x", "ROUSE_TLS_CERT": "/c", "ROUSE_TLS_KEY": "/k", "ROUSE_TLS_CLIENT_CA": "/ca"}
	file := write(t, "auth.yaml", authSection)
	c, err := Load(Default(), Sources{File: file, Environ: env})
	if err != nil {
		t.Fatal(err)
	}
	h := c.Auth.Hooks
	if len(h) != 5 || h[0].Tokens.File != "/etc/rouse/tokens" || h[1].JWT.Skew != time.Minute || h[1].JWT.Require["tenant"] != "one" ||
		h[2].MTLS.Rules[0].Kind != "service" || h[3].HTTP.Secret.Reveal() != "hunter2" || h[4].Plugin != "ours" ||
		c.Auth.Authorizers[0].OPA.Deadline != 5*time.Millisecond || !c.Auth.DenyByDefault || len(c.Auth.Operators) != 1 || c.Auth.RatePerSecond != 50 {
		t.Errorf("%+v", c.Auth)
	}
	if text := fmt.Sprintf("%+v %v", c, *h[3].HTTP); strings.Contains(text, "hunter2") {
		t.Error("the secret can be printed")
	}
	env["ROUSE_AUTH"] = `{"hooks":[{"jwt":{"issuer":"https://b.example","audiences":["b"]}}]}`
	c, err = Load(Default(), Sources{File: file, Environ: env})
	if err != nil || len(c.Auth.Hooks) != 1 || c.Auth.Hooks[0].JWT.Issuer != "https://b.example" || len(c.Auth.Authorizers) != 0 {
		t.Errorf("the variable does not take the section's place: %+v %v", c.Auth, err)
	}
	env["ROUSE_AUTH"] = `{"hooks":[{"jwt":{"issuer":"hunter2","secret":"hunter2"}}]}`
	if _, err = Load(Default(), Sources{Environ: env}); err == nil || !strings.Contains(err.Error(), "ROUSE_AUTH: line 1: there is no setting secret here") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a bad variable: %v", err)
	}
}

func TestWhatTheAuthSectionRefuses(t *testing.T) {
	t.Parallel()
	for section, want := range map[string]string{
		`{hooks: [{}]}`: "hooks[0]", `{hooks: [{tokens: {file: a}, plugin: b}]}`: "hooks[0]", `{hooks: [{tokens: {}}]}`: "tokens.file",
		`{hooks: [{jwt: {issuer: a}}]}`: "audiences", `{hooks: [{http: {}}]}`: "http.url", `{authorizers: [{}]}`: "authorizers[0]",
		`{authorizers: [{opa: {}}]}`: "opa.policy", `{deny_by_default: true}`: "deny_by_default", `{timeout: 2m}`: "timeout",
		`{cache_max: 2h}`: "cache_max", `{rate_burst: 5}`: "rate_burst", `{hooks: [{mtls: {}}]}`: "ROUSE_TLS_CLIENT_CA",
		`{hooks: [{mtls: {rules: [{from: cn, kind: system}]}}]}`: "allow_system", `{hooks: [{jwt: {issuer: a, audiences: [b]}, allow_system: true}]}`: "allow_system", `{hoks: []}`: "hoks",
	} {
		_, err := Load(Default(), Sources{File: write(t, "auth.yaml", "database_url: postgres://x\nauth: "+section+"\n"), Environ: map[string]string{"X": ""}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", section, err)
		}
	}
	for env, want := range map[string]string{"ROUSE_TLS_CERT": "ROUSE_TLS_KEY", "ROUSE_TLS_CLIENT_CA": "ROUSE_TLS_CERT"} {
		if _, err := Load(Default(), Sources{Environ: map[string]string{"ROUSE_DATABASE_URL": "postgres://x", env: "/file"}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s alone: %v", env, err)
		}
	}
}

// What a hook in a process of its own is told is all that the settings say, but where it runs.
func TestSettingsOfHooks(t *testing.T) {
	t.Parallel()
	var a Auth
	if err := a.UnmarshalText([]byte(`{hooks: [{tokens: {file: tokens}}, {jwt: {issuer: i, audiences: [a], skew: 90s}}, {http: {url: "https://x", secret: hunter2, in_process: true}}, {plugin: p}],
		authorizers: [{opa: {policy: /etc/p}}]}`)); err != nil {
		t.Fatal(err)
	}
	all := make([]map[string]any, len(a.Hooks))
	for i, h := range a.Hooks {
		all[i], _ = h.Settings()
	}
	file, _ := all[0]["file"].(string)
	if !strings.HasPrefix(file, "/") || !strings.HasSuffix(file, "/tokens") || all[1]["skew"] != "1m30s" || all[2]["secret"] != "hunter2" || all[3] != nil {
		t.Errorf("%v", all)
	}
	if _, there := all[2]["in_process"]; there {
		t.Error("it is told where it runs")
	}
	if kind, inside := a.Hooks[2].Hook(); kind != "http" || !inside {
		t.Error(kind, inside)
	}
	if rules, err := a.Authorizers[0].Settings(); err != nil || rules["policy"] != "/etc/p" {
		t.Errorf("%v %v", rules, err)
	}
}
