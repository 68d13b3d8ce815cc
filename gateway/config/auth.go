package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// Auth says how requests are authenticated and what they may do, in a file's section "auth" or, as JSON or YAML, in
// ROUSE_AUTH. The hook of TokensFile stands before its hooks.
type Auth struct {
	// Hooks are asked in order until one has an opinion.
	Hooks []AuthHook `yaml:"hooks"`
	// Authorizers are asked in order, after the built-in rules, until one has an opinion.
	Authorizers []Authorizer `yaml:"authorizers"`
	// AuthorizersMayGrant lets their yes overrule the built-in rules' no.
	AuthorizersMayGrant bool `yaml:"authorizers_may_grant"`
	// DenyByDefault refuses what no authorizer has an opinion on.
	DenyByDefault bool `yaml:"deny_by_default"`
	// Operators are principals, such as user:ada, that may see how plugins are doing, whatever authorizers say.
	Operators []string `yaml:"operators"`
	// Timeout bounds one hook's answer; zero means 5 s.
	Timeout time.Duration `yaml:"timeout"`
	// CacheMax bounds how long any answer is remembered; zero means 5 min.
	CacheMax time.Duration `yaml:"cache_max"`
	// RatePerSecond is how many requests a principal may make, RateBurst how many at once; zero means no limit.
	RatePerSecond float64 `yaml:"rate_per_second"`
	RateBurst     int     `yaml:"rate_burst"`
}

// AuthHook is one of its members. Those that are built in run in a process of their own unless InProcess says that
// they run in the gateway's.
type AuthHook struct {
	Tokens *TokensHook `yaml:"tokens"`
	JWT    *JWTHook    `yaml:"jwt"`
	MTLS   *MTLSHook   `yaml:"mtls"`
	HTTP   *HTTPHook   `yaml:"http"`
	// Plugin names a plugin that authenticates, and AllowSystem lets that one name system principals.
	Plugin      string `yaml:"plugin"`
	AllowSystem bool   `yaml:"allow_system"`
}

// Authorizer is one of its members, in a process of its own as hooks are.
type Authorizer struct {
	OPA  *OPAAuthorizer `yaml:"opa"`
	HTTP *HTTPHook      `yaml:"http"`
	// Plugin names a plugin that authorizes.
	Plugin string `yaml:"plugin"`
}

// TokensHook is a file of hashed tokens.
type TokensHook struct {
	File string `yaml:"file"`
	// PassUnknown leaves bearer tokens that are not of the file, nor of the form of its tokens, to the next hook; nil:
	// if there is one.
	PassUnknown *bool `yaml:"pass_unknown"`
	// CacheFor is how long an answer may be remembered where somebody looks after the file; zero: not at all.
	CacheFor  time.Duration `yaml:"cache_for"`
	InProcess bool          `yaml:"in_process"`
}

// JWTHook accepts an identity provider's tokens.
type JWTHook struct {
	Issuer     string            `yaml:"issuer"`
	Audiences  []string          `yaml:"audiences"`
	KeysURL    string            `yaml:"keys_url"`
	KeysFile   string            `yaml:"keys_file"`
	Algorithms []string          `yaml:"algorithms"`
	Skew       time.Duration     `yaml:"skew"`
	Kind       string            `yaml:"kind"`
	Claim      string            `yaml:"claim"`
	Prefix     string            `yaml:"prefix"`
	Require    map[string]string `yaml:"require"`
	Attributes []string          `yaml:"attributes"`
	CacheFor   time.Duration     `yaml:"cache_for"`
	Refresh    time.Duration     `yaml:"refresh"`
	MaxStale   time.Duration     `yaml:"max_stale"`
	AllowHTTP  bool              `yaml:"allow_http"`
	InProcess  bool              `yaml:"in_process"`
}

// MTLSHook makes principals of client certificates. See TLSClientCA.
type MTLSHook struct {
	// Rules are tried in order; without any, the subject's common name is a service's id.
	Rules []MTLSRule `yaml:"rules"`
	// AllowSystem lets certificates be those of system principals.
	AllowSystem bool `yaml:"allow_system"`
	InProcess   bool `yaml:"in_process"`
}

// MTLSRule makes one kind of principal of one field of a certificate.
type MTLSRule struct {
	// From is cn, uri, dns or email.
	From string `yaml:"from"`
	// Prefix must begin the field and is taken off.
	Prefix string `yaml:"prefix"`
	// Kind is user, agent, service or system.
	Kind string `yaml:"kind"`
}

// HTTPHook asks an endpoint.
type HTTPHook struct {
	Name string `yaml:"name"`
	URL  string `yaml:"url"`
	// Headers are those of the request that the endpoint is shown; for authentication only.
	Headers []string `yaml:"headers"`
	// Secret is shown to the endpoint as a bearer token.
	Secret    Secret        `yaml:"secret"`
	Timeout   time.Duration `yaml:"timeout"`
	AllowHTTP bool          `yaml:"allow_http"`
	// AllowSystem lets the endpoint name system principals.
	AllowSystem bool `yaml:"allow_system"`
	InProcess   bool `yaml:"in_process"`
}

// OPAAuthorizer asks a Rego policy.
type OPAAuthorizer struct {
	// Policy is a .rego file, or a folder of .rego and data files.
	Policy string `yaml:"policy"`
	// Query is what is asked; empty means data.rouse.decision.
	Query    string        `yaml:"query"`
	Deadline time.Duration `yaml:"deadline"`
	CacheFor time.Duration `yaml:"cache_for"`
	// LogDecisions writes each decision to the log, without attributes and profiles.
	LogDecisions bool `yaml:"log_decisions"`
	InProcess    bool `yaml:"in_process"`
}

// Hook names what is built in of an entry and says whether it runs in the gateway's process; "" for a plugin.
func (h AuthHook) Hook() (kind string, inProcess bool) {
	switch {
	case h.Tokens != nil:
		return "tokens", h.Tokens.InProcess
	case h.JWT != nil:
		return "jwt", h.JWT.InProcess
	case h.MTLS != nil:
		return "mtls", h.MTLS.InProcess
	case h.HTTP != nil:
		return "http", h.HTTP.InProcess
	}
	return "", false
}

// Settings are those of what is built in, as a process of its own reads them: its secret in the clear, and its files
// by names that hold in every folder.
func (h AuthHook) Settings() (map[string]any, error) {
	switch {
	case h.Tokens != nil:
		return settings(*h.Tokens, nil, "file")
	case h.JWT != nil:
		return settings(*h.JWT, nil, "keys_file")
	case h.MTLS != nil:
		return settings(*h.MTLS, nil)
	case h.HTTP != nil:
		return settings(*h.HTTP, &h.HTTP.Secret)
	}
	return nil, errors.New("a plugin has its settings in the plugins file")
}

// Hook is as [AuthHook.Hook].
func (h Authorizer) Hook() (kind string, inProcess bool) {
	switch {
	case h.OPA != nil:
		return "opa", h.OPA.InProcess
	case h.HTTP != nil:
		return "http", h.HTTP.InProcess
	}
	return "", false
}

// Settings are as [AuthHook.Settings].
func (h Authorizer) Settings() (map[string]any, error) {
	switch {
	case h.OPA != nil:
		return settings(*h.OPA, nil, "policy")
	case h.HTTP != nil:
		return settings(*h.HTTP, &h.HTTP.Secret)
	}
	return nil, errors.New("a plugin has its settings in the plugins file")
}

// settings gives a section's members, of which files are paths.
func settings(section any, secret *Secret, files ...string) (map[string]any, error) {
	raw, err := yaml.Marshal(section)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	if err := yaml.Unmarshal(raw, &out); err != nil {
		return nil, err
	}
	delete(out, "in_process")
	if secret != nil {
		out["secret"] = secret.Reveal()
	}
	for _, name := range files {
		path, _ := out[name].(string)
		if path == "" {
			continue
		}
		if out[name], err = filepath.Abs(path); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// sectionError says what is wrong with a variable that holds a section, and quotes none of it.
type sectionError struct{ error }

// UnmarshalText reads the section from a variable; it takes the place of the file's.
func (a *Auth) UnmarshalText(text []byte) error {
	var out Auth
	if err := parse(text, &out); err != nil {
		return sectionError{err}
	}
	*a = out
	return nil
}

// Validate says what is wrong with the section by itself.
func (a Auth) Validate() error { return errors.Join(a.validate()...) }

// validate lists what is wrong, by the names of the file.
func (a Auth) validate() (wrong []error) {
	bad := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("auth (ROUSE_AUTH): "+format, args...))
	}
	for i, h := range a.Hooks {
		n := count(h.Tokens != nil, h.JWT != nil, h.MTLS != nil, h.HTTP != nil, h.Plugin != "")
		switch {
		case n != 1:
			bad("hooks[%d] must be one of tokens, jwt, mtls, http, plugin", i)
		case h.Tokens != nil && h.Tokens.File == "":
			bad("hooks[%d].tokens.file is needed", i)
		case h.JWT != nil && (h.JWT.Issuer == "" || len(h.JWT.Audiences) == 0):
			bad("hooks[%d].jwt needs issuer and audiences", i)
		case h.HTTP != nil && h.HTTP.URL == "":
			bad("hooks[%d].http.url is needed", i)
		case h.MTLS != nil && !h.MTLS.AllowSystem && slices.ContainsFunc(h.MTLS.Rules, func(r MTLSRule) bool { return r.Kind == "system" }):
			bad("hooks[%d].mtls has a rule of kind system, which passes every check of ownership: that needs allow_system: true beside rules", i)
		case h.AllowSystem && h.Plugin == "":
			bad("hooks[%d].allow_system stands beside plugin; http and mtls have it among their own settings, and tokens and jwt have none", i)
		}
	}
	for i, h := range a.Authorizers {
		n := count(h.OPA != nil, h.HTTP != nil, h.Plugin != "")
		switch {
		case n != 1:
			bad("authorizers[%d] must be one of opa, http, plugin", i)
		case h.OPA != nil && h.OPA.Policy == "":
			bad("authorizers[%d].opa.policy is needed", i)
		case h.HTTP != nil && h.HTTP.URL == "":
			bad("authorizers[%d].http.url is needed", i)
		}
	}
	if len(a.Authorizers) == 0 && (a.AuthorizersMayGrant || a.DenyByDefault) {
		bad("authorizers_may_grant and deny_by_default mean nothing without authorizers")
	}
	if a.Timeout < 0 || a.Timeout > time.Minute {
		bad("timeout must be at most 1m")
	}
	if a.CacheMax < 0 || a.CacheMax > time.Hour {
		bad("cache_max must be at most 1h")
	}
	if a.RatePerSecond < 0 || a.RateBurst < 0 || a.RateBurst > 0 && a.RatePerSecond == 0 {
		bad("rate_per_second and rate_burst must not be negative, and a burst needs a rate")
	}
	return wrong
}

func count(all ...bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}
