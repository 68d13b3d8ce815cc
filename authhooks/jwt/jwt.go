// Package jwt is the auth hook of JSON Web Tokens (RFC 7519) that an identity
// provider signs: bearer tokens of one issuer, for one audience or several.
//
// It owns the provider's published keys: where they are (OpenID Connect
// discovery, or a given place), how long they hold and what happens while they
// cannot be had. It promises that no token is accepted without a signature of an
// asymmetric algorithm on the list, and without issuer, audience and expiry, and
// that no token or claim stands in its errors. It has no opinion on what is no
// such token, or another issuer's. It knows nothing of the gateway.
package jwt

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"
	jwx "github.com/lestrrat-go/jwx/v3/jwt"

	"github.com/rouse-run/rouse/plugins/contract"
)

// Options of a [Hook]. Issuer and Audiences are needed.
type Options struct {
	// Name is used in logs; empty means "jwt".
	Name string
	// Issuer is the exact value of the claim iss.
	Issuer string
	// Audiences are values of the claim aud; a token needs one of them.
	Audiences []string
	// KeysURL is where the provider's keys are (RFC 7517); empty means where the
	// issuer's OpenID Connect discovery document says.
	KeysURL string
	// KeysFile is a file that holds them instead.
	KeysFile string
	// Algorithms are those that count, of RFC 7518's and RFC 8037's names; empty
	// means RS256, PS256, ES256, ES384 and EdDSA. Those with a shared secret, and
	// "none", are refused by New.
	Algorithms []string
	// Skew is how far clocks may differ; zero means 30 s, the greatest is 5 min.
	Skew time.Duration

	// Kind of the principals: user (when empty), agent or service.
	Kind string
	// Claim is the one that holds a principal's id; empty means sub. Only use
	// another that people cannot choose themselves.
	Claim string
	// Prefix stands before the claim's value in the id, to keep the people of
	// several issuers apart.
	Prefix string
	// Require are claims that must have a value: for a list, contain it.
	Require map[string]string
	// Attributes are claims that authorizers are told; what is no string is JSON.
	Attributes []string

	// CacheFor is how long a decision may be remembered; zero means 1 min. No
	// decision outlives its token.
	CacheFor time.Duration
	// Refresh is how old the keys get before they are fetched anew, in the
	// background; zero means 10 min.
	Refresh time.Duration
	// MaxStale is how old they get while they cannot be fetched; then nobody is
	// let in. Zero means 24 h.
	MaxStale time.Duration
	// Retry is the least time between two fetches, also for keys that are not
	// known; zero means 10 s.
	Retry time.Duration
	// AllowHTTP lets the keys come over plain http; for tests and this machine.
	AllowHTTP bool
	// Client fetches; nil means one of the hook's own, of 5 s a request.
	Client *http.Client
	// Now is the clock; nil means the system's.
	Now func() time.Time
}

// The greatest sizes in bytes of a token, and of what a provider sends.
const (
	maxToken = 16 << 10
	maxKeys  = 1 << 20
)

// Hook authenticates tokens. It is safe for concurrent use.
type Hook struct {
	o     Options
	algs  map[string]jwa.SignatureAlgorithm
	keys  *keys
	heads []string
}

var (
	_ contract.AuthHook     = (*Hook)(nil)
	_ contract.HeaderReader = (*Hook)(nil)
)

// New makes a hook. It fetches nothing yet: a gateway starts while its provider
// is down. Fetches end with ctx, or with Close.
func New(ctx context.Context, o Options) (*Hook, error) {
	if o.Issuer == "" || len(o.Audiences) == 0 || slices.Contains(o.Audiences, "") {
		return nil, errors.New("an issuer and at least one audience are needed")
	}
	if len(o.Algorithms) == 0 {
		o.Algorithms = []string{"RS256", "PS256", "ES256", "ES384", "EdDSA"}
	}
	switch o.Kind {
	case "":
		o.Kind = "user"
	case "user", "agent", "service":
	default:
		return nil, errors.New("the kind must be user, agent or service")
	}
	if o.Skew < 0 || o.Skew > 5*time.Minute {
		return nil, errors.New("the skew must be at most 5m")
	}
	def(&o.Name, "jwt")
	def(&o.Claim, "sub")
	def(&o.Skew, 30*time.Second)
	def(&o.CacheFor, time.Minute)
	def(&o.Refresh, 10*time.Minute)
	def(&o.MaxStale, 24*time.Hour)
	def(&o.Retry, 10*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	h := &Hook{o: o, algs: map[string]jwa.SignatureAlgorithm{}, heads: []string{"Authorization"}}
	for _, name := range o.Algorithms {
		alg, ok := jwa.LookupSignatureAlgorithm(name)
		if !ok || alg.IsSymmetric() || name == jwa.NoSignature().String() {
			return nil, fmt.Errorf("%q is no algorithm that can be accepted: name asymmetric ones, such as RS256 or ES256", name)
		}
		h.algs[name] = alg
	}
	var err error
	h.keys, err = newKeys(ctx, o)
	return h, err
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Close ends fetches under way.
func (h *Hook) Close() { h.keys.close() }

// Outage says why the issuer's keys could not be had the last time; "" when they
// could, or when nobody has asked yet.
func (h *Hook) Outage() string {
	h.keys.mu.Lock()
	defer h.keys.mu.Unlock()
	if h.keys.failed == nil {
		return ""
	}
	return h.keys.failed.Error()
}

// Name implements contract.AuthHook.
func (h *Hook) Name() string { return h.o.Name }

// Headers implements contract.HeaderReader.
func (h *Hook) Headers() []string { return h.heads }

// head is what is looked at before a signature is.
type head struct {
	Alg  string          `json:"alg"`
	Kid  string          `json:"kid"`
	Crit json.RawMessage `json:"crit"`
	B64  *bool           `json:"b64"`
}

// Authenticate implements contract.AuthHook. An error means that the provider's
// keys cannot be had.
func (h *Hook) Authenticate(ctx context.Context, r contract.Request) (contract.Decision, error) {
	deny := func(why string) contract.Decision { return contract.Decision{Verdict: contract.Deny, Why: why} }
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	// What is not for this hook stays so.
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return contract.Decision{CacheFor: h.o.CacheFor}, nil
	}
	token = strings.TrimSpace(token)
	first, issuer, ok := peek(token)
	if !ok || issuer != h.o.Issuer {
		return contract.Decision{CacheFor: h.o.CacheFor}, nil
	}
	alg, allowed := h.algs[first.Alg]
	if !allowed || len(token) > maxToken || first.Crit != nil || first.B64 != nil {
		return deny("its algorithm is not accepted, it is too long or it asks for extensions"), nil
	}
	candidates, err := h.keys.find(ctx, first.Kid, alg)
	if err != nil || len(candidates) == 0 {
		return deny("the issuer has no key of this kid and algorithm"), err
	}
	t, err := jwx.Parse([]byte(token), jwx.WithKeyProvider(provider{alg, candidates}), jwx.WithIssuer(h.o.Issuer),
		jwx.WithRequiredClaim("exp"), jwx.WithAcceptableSkew(h.o.Skew), jwx.WithClock(jwx.ClockFunc(h.o.Now)))
	if err != nil {
		return deny(refusal(err)), nil
	}
	aud, _ := t.Audience()
	if !slices.ContainsFunc(aud, func(a string) bool { return slices.Contains(h.o.Audiences, a) }) {
		return deny("its aud has none of the audiences"), nil
	}
	for name, want := range h.o.Require {
		if !has(t, name, want) {
			return deny("its " + name + " is not what is required"), nil
		}
	}
	p, ok := h.principal(t)
	if !ok {
		return deny("its " + h.o.Claim + " is no principal's id"), nil
	}
	left := h.o.CacheFor
	if exp, ok := t.Expiration(); ok {
		left = min(left, exp.Add(h.o.Skew).Sub(h.o.Now()))
	}
	return contract.Decision{Verdict: contract.Allow, Principal: p, CacheFor: left}, nil
}

// refusal says without a value of the token why it was not verified.
func refusal(err error) string {
	switch {
	case errors.Is(err, jwx.TokenExpiredError()):
		return "it has expired"
	case errors.Is(err, jwx.TokenNotYetValidError()):
		return "it is not valid yet"
	case errors.Is(err, jwx.InvalidIssuedAtError()):
		return "it was issued in the future"
	case errors.Is(err, jwx.MissingRequiredClaimError()):
		return "it has no exp"
	}
	return "its signature or form is not valid"
}

// peek reads what routes a token, before anything of it is believed. It fails
// for what is no signed token.
func peek(token string) (head, string, bool) {
	var (
		first head
		body  struct {
			Issuer string `json:"iss"`
		}
	)
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return first, "", false
	}
	for i, into := range []any{&first, &body} {
		raw, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil || json.Unmarshal(raw, into) != nil {
			return first, "", false
		}
	}
	return first, body.Issuer, true
}

// provider shows the verification the keys that were found, for the one
// algorithm that was looked at.
type provider struct {
	alg  jwa.SignatureAlgorithm
	keys []jwk.Key
}

// FetchKeys implements jws.KeyProvider.
func (p provider) FetchKeys(_ context.Context, sink jws.KeySink, sig *jws.Signature, _ *jws.Message) error {
	if alg, ok := sig.ProtectedHeaders().Algorithm(); !ok || alg != p.alg {
		return errors.New("the algorithm is not the one that was looked at")
	}
	for _, k := range p.keys {
		sink.Key(p.alg, k)
	}
	return nil
}

// has says whether a claim is, or contains, a value.
func has(t jwx.Token, name, want string) bool {
	var v any
	if t.Get(name, &v) != nil {
		return false
	}
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, func(one any) bool { return text(one) == want })
	case []string:
		return slices.Contains(v, want)
	}
	return text(v) == want
}

// text is a claim as a string; what is none is JSON.
func text(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(raw))
}

func (h *Hook) principal(t jwx.Token) (contract.Principal, bool) {
	var id string
	if t.Get(h.o.Claim, &id) != nil || id == "" {
		return contract.Principal{}, false
	}
	id = h.o.Prefix + id
	// What is no id of a principal cannot be mapped to one without becoming
	// somebody else.
	if len(id) > 256 || strings.Contains(id, "/") || !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) {
		return contract.Principal{}, false
	}
	p := contract.Principal{Kind: h.o.Kind, ID: id, Profile: map[string]string{"auth_provider": h.o.Issuer}}
	if sub, ok := t.Subject(); ok {
		p.Profile["auth_subject"] = sub
	}
	for _, m := range []struct{ field, claim string }{{"display_name", "preferred_username"}, {"display_name", "name"}, {"email", "email"}, {"avatar_url", "picture"}} {
		var v string
		if t.Get(m.claim, &v) == nil && v != "" {
			p.Profile[m.field] = v
		}
	}
	if has(t, "email_verified", "false") {
		delete(p.Profile, "email")
	}
	for _, name := range h.o.Attributes {
		var v any
		if t.Get(name, &v) == nil {
			if p.Attributes == nil {
				p.Attributes = map[string]string{}
			}
			p.Attributes[name] = text(v)
		}
	}
	return p, true
}
