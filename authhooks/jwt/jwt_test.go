package jwt

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"
	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/plugins/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// idp is an identity provider with keys that can be changed and that can be down.
type idp struct {
	*httptest.Server
	down    atomic.Bool
	fetches atomic.Int32

	mu   sync.Mutex
	keys []jwk.Key // private ones
}

func newIDP(t testing.TB, keys ...jwk.Key) *idp {
	p := &idp{keys: keys}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		switch r.URL.Path {
		case "/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": p.URL, "jwks_uri": p.URL + "/keys"})
		case "/keys":
			p.fetches.Add(1)
			p.mu.Lock()
			defer p.mu.Unlock()
			list := []any{map[string]string{"kty": "FUTURE", "kid": "odd"}}
			for _, k := range p.keys {
				pub, err := k.PublicKey()
				if err != nil {
					t.Error(err)
				}
				list = append(list, pub)
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"keys": list})
		}
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *idp) publish(keys ...jwk.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = keys
}

func newKey(t testing.TB, kid string, alg jwa.SignatureAlgorithm) jwk.Key {
	t.Helper()
	var raw any
	var err error
	switch alg {
	case jwa.RS256():
		raw, err = rsa.GenerateKey(rand.Reader, 2048)
	case jwa.EdDSA():
		_, raw, err = ed25519.GenerateKey(rand.Reader)
	default:
		raw, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	k, err := jwk.Import(raw)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]any{jwk.KeyIDKey: kid, jwk.AlgorithmKey: alg} {
		if err := k.Set(name, v); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

// claims are those of a good token, changed by what is given; nil takes one away.
func (p *idp) claims(change map[string]any) map[string]any {
	now := time.Now().Unix()
	c := map[string]any{"iss": p.URL, "aud": []string{"rouse", "other"}, "sub": "kyle", "iat": now, "exp": now + 600, "name": "Kyle", "email": "kyle@example.com"}
	for k, v := range change {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	return c
}

func sign(t testing.TB, claims map[string]any, alg jwa.SignatureAlgorithm, key any, head ...string) string {
	t.Helper()
	raw, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	h := jws.NewHeaders()
	for i := 0; i < len(head); i += 2 {
		if err := h.Set(head[i], head[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	out, err := jws.Sign(raw, jws.WithKey(alg, key, jws.WithProtectedHeaders(h)))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func newHook(t testing.TB, p *idp, change func(*Options)) *Hook {
	t.Helper()
	o := Options{Issuer: p.URL, Audiences: []string{"rouse"}, AllowHTTP: true, Attributes: []string{"groups"}}
	if change != nil {
		change(&o)
	}
	h, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

func ask(t testing.TB, h *Hook, token string) (contract.Decision, error) {
	t.Helper()
	return h.Authenticate(context.WithoutCancel(t.Context()), contract.Request{Header: http.Header{"Authorization": {"Bearer " + token}}})
}

func TestWhichTokensAreAccepted(t *testing.T) {
	t.Parallel()
	rs, es, ed := newKey(t, "rs", jwa.RS256()), newKey(t, "es", jwa.ES256()), newKey(t, "ed", jwa.EdDSA())
	foreign := newKey(t, "rs", jwa.RS256())
	p := newIDP(t, rs, es, ed)
	h := newHook(t, p, func(o *Options) { o.Require = map[string]string{"tenant": "one"} })
	ok := map[string]any{"tenant": "one"}
	with := func(name string, v any) map[string]any {
		return p.claims(map[string]any{"tenant": "one", name: v})
	}
	now := time.Now()
	good := sign(t, p.claims(ok), jwa.RS256(), rs)
	parts := strings.Split(good, ".")
	flip := func(part, at int) string {
		raw, err := base64.RawURLEncoding.DecodeString(parts[part])
		if err != nil {
			t.Fatal(err)
		}
		raw[at] ^= 1
		out := []string{parts[0], parts[1], parts[2]}
		out[part] = base64.RawURLEncoding.EncodeToString(raw)
		return strings.Join(out, ".")
	}
	b64 := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	rsPublic, err := rs.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	publicText, err := json.Marshal(rsPublic)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		token string
		want  contract.Verdict
	}{
		"RS256":                                {good, contract.Allow},
		"ES256":                                {sign(t, p.claims(ok), jwa.ES256(), es), contract.Allow},
		"EdDSA":                                {sign(t, p.claims(ok), jwa.EdDSA(), ed), contract.Allow},
		"one audience as a string":             {sign(t, with("aud", "rouse"), jwa.RS256(), rs), contract.Allow},
		"ended within the skew":                {sign(t, with("exp", now.Add(-10*time.Second).Unix()), jwa.RS256(), rs), contract.Allow},
		"a required claim in a list":           {sign(t, with("tenant", []string{"two", "one"}), jwa.RS256(), rs), contract.Allow},
		"expired":                              {sign(t, with("exp", now.Add(-time.Minute).Unix()), jwa.RS256(), rs), contract.Deny},
		"not yet valid":                        {sign(t, with("nbf", now.Add(2*time.Minute).Unix()), jwa.RS256(), rs), contract.Deny},
		"made in the future":                   {sign(t, with("iat", now.Add(2*time.Minute).Unix()), jwa.RS256(), rs), contract.Deny},
		"no expiry":                            {sign(t, with("exp", nil), jwa.RS256(), rs), contract.Deny},
		"another audience":                     {sign(t, with("aud", "other"), jwa.RS256(), rs), contract.Deny},
		"no audience":                          {sign(t, with("aud", nil), jwa.RS256(), rs), contract.Deny},
		"a required claim of another value":    {sign(t, with("tenant", "two"), jwa.RS256(), rs), contract.Deny},
		"no subject":                           {sign(t, with("sub", nil), jwa.RS256(), rs), contract.Deny},
		"a subject that is no id":              {sign(t, with("sub", "a/b"), jwa.RS256(), rs), contract.Deny},
		"a number for a subject":               {sign(t, with("sub", 7), jwa.RS256(), rs), contract.Deny},
		"somebody else's key, same kid":        {sign(t, p.claims(ok), jwa.RS256(), foreign), contract.Deny},
		"the kid of another key":               {sign(t, p.claims(ok), jwa.RS256(), foreign, "kid", "es"), contract.Deny},
		"an algorithm that is not the key's":   {sign(t, p.claims(ok), jwa.PS256(), foreign, "kid", "rs"), contract.Deny},
		"an algorithm that is not on the list": {sign(t, p.claims(ok), jwa.RS384(), foreign), contract.Deny},
		"flipped bit in the claims":            {flip(1, 20), contract.Deny},
		"flipped bit in the signature":         {flip(2, 100), contract.Deny},
		"no signature":                         {parts[0] + "." + parts[1] + ".", contract.Deny},
		"alg none":                             {b64(`{"alg":"none","kid":"rs"}`) + "." + parts[1] + ".", contract.Deny},
		"alg None":                             {b64(`{"alg":"None"}`) + "." + parts[1] + "." + parts[2], contract.Deny},
		"the public key as a shared secret":    {sign(t, p.claims(ok), jwa.HS256(), publicText, "kid", "rs"), contract.Deny},
		"a header nobody knows":                {sign(t, p.claims(ok), jwa.RS256(), rs, "exotic", "1"), contract.Allow},
		"too long":                             {sign(t, with("filler", strings.Repeat("x", maxToken)), jwa.RS256(), rs), contract.Deny},
		"another issuer":                       {sign(t, with("iss", "https://elsewhere.example"), jwa.RS256(), rs), contract.NoOpinion},
		"no issuer":                            {sign(t, with("iss", nil), jwa.RS256(), rs), contract.NoOpinion},
		"no token at all":                      {"rouse_pat_abc", contract.NoOpinion},
		"empty":                                {"", contract.NoOpinion},
		"dots":                                 {"..", contract.NoOpinion},
	} {
		if d, err := ask(t, h, tc.token); err != nil || d.Verdict != tc.want {
			t.Errorf("%s: %v %v, want %v", name, d.Verdict, err, tc.want)
		} else if (d.Why != "") != (tc.want == contract.Deny) {
			t.Errorf("%s: it says %q", name, d.Why)
		}
	}
	for claim, tc := range map[string]struct {
		value any
		why   string
	}{
		"exp":    {now.Add(-time.Minute).Unix(), "it has expired"},
		"nbf":    {now.Add(2 * time.Minute).Unix(), "it is not valid yet"},
		"iat":    {now.Add(2 * time.Minute).Unix(), "it was issued in the future"},
		"aud":    {"other", "its aud has none of the audiences"},
		"tenant": {"two", "its tenant is not what is required"},
		"sub":    {"a/b", "its sub is no principal's id"},
	} {
		if d, err := ask(t, h, sign(t, with(claim, tc.value), jwa.RS256(), rs)); err != nil || d.Why != tc.why {
			t.Errorf("%s: it says %q, %v", claim, d.Why, err)
		}
	}
	if d, err := ask(t, h, sign(t, with("exp", nil), jwa.RS256(), rs)); err != nil || d.Why != "it has no exp" {
		t.Errorf("no exp: it says %q, %v", d.Why, err)
	}
	for name, head := range map[string]string{"crit": `{"alg":"RS256","kid":"rs","crit":["x"],"x":1}`, "b64": `{"alg":"RS256","kid":"rs","b64":false}`} {
		if d, err := ask(t, h, b64(head)+"."+parts[1]+"."+parts[2]); err != nil || d.Verdict != contract.Deny {
			t.Errorf("%s: %v %v", name, d.Verdict, err)
		}
	}
	if d, err := h.Authenticate(t.Context(), contract.Request{Header: http.Header{"Authorization": {"Basic x"}}}); err != nil || d.Verdict != contract.NoOpinion {
		t.Errorf("Basic: %v %v", d, err)
	}
}

func TestHowATokenBecomesAPrincipal(t *testing.T) {
	t.Parallel()
	key := newKey(t, "k", jwa.ES256())
	p := newIDP(t, key)
	h := newHook(t, p, func(o *Options) { o.Claim, o.Prefix, o.Kind = "email", "acme|", "service" })
	d, err := ask(t, h, sign(t, p.claims(map[string]any{"groups": []string{"a", "b"}, "preferred_username": "k"}), jwa.ES256(), key))
	if err != nil || d.Principal.Key() != "service:acme|kyle@example.com" {
		t.Fatalf("%+v %v", d, err)
	}
	if pr := d.Principal.Profile; pr["display_name"] != "Kyle" || pr["email"] != "kyle@example.com" || pr["auth_provider"] != p.URL || pr["auth_subject"] != "kyle" {
		t.Errorf("profile %v", pr)
	}
	if d.Principal.Attributes["groups"] != `["a","b"]` {
		t.Errorf("attributes %v", d.Principal.Attributes)
	}
	if d.CacheFor != time.Minute {
		t.Errorf("remembered for %v", d.CacheFor)
	}
	d, err = ask(t, h, sign(t, p.claims(map[string]any{"exp": time.Now().Add(-20 * time.Second).Unix(), "email_verified": false}), jwa.ES256(), key))
	if err != nil || d.Verdict != contract.Allow || d.CacheFor > 10*time.Second || d.Principal.Profile["email"] != "" {
		t.Errorf("an ending token: %+v %v", d, err)
	}
}

func TestKeysRotateAndProvidersGoDown(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var mu sync.Mutex
	forward := func(d time.Duration) { mu.Lock(); now = now.Add(d); mu.Unlock() }
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	old, fresh := newKey(t, "old", jwa.ES256()), newKey(t, "fresh", jwa.ES256())
	p := newIDP(t, old)
	p.down.Store(true)
	h := newHook(t, p, func(o *Options) { o.Now, o.MaxStale = clock, 5*time.Hour })
	token := func(k jwk.Key) string {
		return sign(t, p.claims(map[string]any{"exp": now.Add(24 * time.Hour).Unix(), "iat": nil}), jwa.ES256(), k)
	}
	byOld, byFresh := token(old), token(fresh)
	want := func(what, tok string, verdict contract.Verdict, fails bool) {
		t.Helper()
		d, err := ask(t, h, tok)
		if (err != nil) != fails || d.Verdict != verdict {
			t.Fatalf("%s: %v %v", what, d.Verdict, err)
		}
		if err != nil && strings.Contains(err.Error(), tok) {
			t.Fatal("the error shows the token")
		}
	}
	want("down from the start", byOld, contract.Deny, true)
	if h.Outage() == "" {
		t.Error("the outage is kept quiet")
	}
	p.down.Store(false)
	want("asked again too soon", byOld, contract.Deny, true)
	forward(11 * time.Second)
	want("up", byOld, contract.Allow, false)
	n := p.fetches.Load()
	for range 50 {
		want("known keys", byOld, contract.Allow, false)
		want("an unknown key, fetched a moment ago", byFresh, contract.Deny, false)
	}
	if p.fetches.Load() != n {
		t.Errorf("unknown keys made %d fetches", p.fetches.Load()-n)
	}
	forward(11 * time.Second)
	p.publish(old, fresh)
	want("a new key is fetched when a token names it", byFresh, contract.Allow, false)
	want("the old one still counts", byOld, contract.Allow, false)
	forward(11 * time.Second)
	p.publish(fresh)
	forward(11 * time.Minute) // the keys are old: the next one starts a fetch behind its back
	want("in between", byFresh, contract.Allow, false)
	until(t, func() bool { d, err := ask(t, h, byOld); return err == nil && d.Verdict == contract.Deny })
	p.down.Store(true)
	forward(4 * time.Hour)
	want("down: rides on what it has", byFresh, contract.Allow, false)
	want("down: an unknown key is an outage, no refusal", byOld, contract.Deny, true)
	forward(time.Hour + 20*time.Minute)
	want("down for too long", byFresh, contract.Deny, true)
	p.down.Store(false)
	forward(11 * time.Second)
	want("up again", byFresh, contract.Allow, false)
	if why := h.Outage(); why != "" {
		t.Error(why)
	}
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal("it does not come to that")
		}
	}
}

func TestKeysOfAFileAndBadOptions(t *testing.T) {
	t.Parallel()
	key := newKey(t, "k", jwa.ES256())
	pub, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(map[string]any{"keys": []any{pub}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &idp{Server: &httptest.Server{URL: "urn:issuer"}}
	h := newHook(t, p, func(o *Options) { o.KeysFile = file })
	if d, err := ask(t, h, sign(t, p.claims(nil), jwa.ES256(), key)); err != nil || d.Verdict != contract.Allow {
		t.Fatal(d, err)
	}
	good := Options{Issuer: "https://a.example", Audiences: []string{"x"}}
	for name, change := range map[string]func(*Options){
		"no issuer": func(o *Options) { o.Issuer = "" }, "no audience": func(o *Options) { o.Audiences = nil },
		"none": func(o *Options) { o.Algorithms = []string{"none"} }, "HS256": func(o *Options) { o.Algorithms = []string{"RS256", "HS256"} },
		"plain http": func(o *Options) { o.Issuer = "http://a.example" }, "plain keys": func(o *Options) { o.KeysURL = "http://a.example/k" },
		"system": func(o *Options) { o.Kind = "system" }, "skew": func(o *Options) { o.Skew = time.Hour },
		"lost file": func(o *Options) { o.KeysFile = file + "x" },
	} {
		o := good
		change(&o)
		if _, err := New(t.Context(), o); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	for _, alg := range []jwa.SignatureAlgorithm{jwa.RS256(), jwa.ES256(), jwa.EdDSA()} {
		b.Run(alg.String(), func(b *testing.B) {
			key := newKey(b, "k", alg)
			p := newIDP(b, key)
			h := newHook(b, p, nil)
			token := sign(b, p.claims(nil), alg, key)
			for b.Loop() {
				if d, err := ask(b, h, token); err != nil || d.Verdict != contract.Allow {
					b.Fatal(d, err)
				}
			}
		})
	}
}

// Whatever is shown, the hook neither panics nor lets anybody in.
func FuzzAuthenticate(f *testing.F) {
	key := newKey(f, "k", jwa.ES256())
	p := newIDP(f, key)
	h := newHook(f, p, nil)
	good := sign(f, p.claims(map[string]any{"exp": time.Now().Add(time.Hour).Unix()}), jwa.ES256(), key)
	for _, seed := range []string{good, good + ".", "..", "a.b.c", "e30.e30.", good[:len(good)-4], strings.Replace(good, ".", "..", 1), "eyJhbGciOiJub25lIn0." + strings.SplitN(good, ".", 3)[1] + "."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		d, err := ask(t, h, token)
		if d.Verdict == contract.Allow && (err != nil || strings.TrimSpace(token) != good) {
			t.Errorf("%q is let in", token)
		}
	})
}
