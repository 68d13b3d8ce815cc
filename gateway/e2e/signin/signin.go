// Package signin owns what stands before a gateway in tests of who may do what: an
// identity provider, and a proxy that signs in clients that have no credentials
// of their own.
//
// It promises that a provider's tokens are as real ones are: signed, of an issuer
// whose keys are found by discovery, over after their time. It knows nothing of
// what principals may do.
package signin

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
)

// Audience is who a provider's tokens are for.
const Audience = "rouse"

// Provider is an identity provider. Its tokens are made by hand, so that they are
// not judged by what made them.
type Provider struct {
	*httptest.Server
	key *ecdsa.PrivateKey
}

// New starts one.
func New(t testing.TB) *Provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey.ECDH()
	if err != nil {
		t.Fatal(err)
	}
	point := public.Bytes()[1:] // behind the mark of an uncompressed one
	jwk := map[string]string{"kty": "EC", "crv": "P-256", "kid": "k1", "alg": "ES256", "use": "sig", "x": encode(point[:32]), "y": encode(point[32:])}
	p := &Provider{key: key}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keys" {
			_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{jwk}})
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": p.URL, "jwks_uri": p.URL + "/keys"})
	}))
	t.Cleanup(p.Close)
	return p
}

// Token is one of a subject, that holds for d and has more claims, in pairs.
func (p *Provider) Token(t testing.TB, subject string, d time.Duration, more ...any) string {
	t.Helper()
	signed, err := p.sign(subject, d, more...)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (p *Provider) sign(subject string, d time.Duration, more ...any) (string, error) {
	now := time.Now()
	claims := map[string]any{"iss": p.URL, "aud": []string{Audience}, "sub": subject, "iat": now.Add(-time.Hour).Unix(), "exp": now.Add(d).Unix(), "name": "Name of " + subject}
	for i := 0; i+1 < len(more); i += 2 {
		claims[fmt.Sprint(more[i])] = more[i+1]
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	text := encode([]byte(`{"alg":"ES256","kid":"k1","typ":"JWT"}`)) + "." + encode(body)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, p.key, sum[:])
	if err != nil {
		return "", err
	}
	var sig [64]byte
	r.FillBytes(sig[:32])
	s.FillBytes(sig[32:])
	return text + "." + encode(sig[:]), nil
}

// Hook is a gateway's setting that takes this provider's tokens; authorizers see
// the claim role.
func (p *Provider) Hook() config.AuthHook {
	return config.AuthHook{JWT: &config.JWTHook{Issuer: p.URL, Audiences: []string{Audience}, AllowHTTP: true, Attributes: []string{"role"}}}
}

// Proxy signs in: a request that shows no credentials gets those of whom its
// header electric-principal names, users a token of the provider, others what
// System is, and without a header those of Anybody. It is what lets clients that
// know of no tokens speak to a gateway that asks for them.
type Proxy struct {
	URL string
	// Role is a claim of all its tokens.
	Role string
	// System is the bearer token of everybody who is not a user.
	System string
	// Anybody is the user of requests that name nobody.
	Anybody string

	provider *Provider
	mu       sync.Mutex
	target   *url.URL
	tokens   map[string]string
}

// Proxy starts a proxy; its target is set later, since a gateway has to know
// where it is found.
func (p *Provider) Proxy(t testing.TB, role, system, anybody string) *Proxy {
	t.Helper()
	s := &Proxy{Role: role, System: system, Anybody: anybody, provider: p, tokens: map[string]string{}}
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		s.mu.Lock()
		r.SetURL(s.target)
		s.mu.Unlock()
		r.Out.Host = r.In.Host
		if r.Out.Header.Get("Authorization") == "" {
			r.Out.Header.Set("Authorization", "Bearer "+s.token(r.Out.Header.Get("Electric-Principal")))
		}
	}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() { _ = srv.Serve(l); close(done) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close()
		}
		<-done
	})
	s.URL = "http://" + l.Addr().String()
	return s
}

// To sets where requests go.
func (s *Proxy) To(t testing.TB, addr string) {
	t.Helper()
	u, err := url.Parse("http://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.target = u
}

func (s *Proxy) token(principal string) string {
	user, isUser := strings.CutPrefix(principal, "user:")
	switch {
	case principal == "":
		user = s.Anybody
	case !isUser:
		return s.System
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens[user] == "" {
		// An empty token is refused by the gateway, which fails the test that needs it.
		s.tokens[user], _ = s.provider.sign(user, time.Hour, "role", s.Role)
	}
	return s.tokens[user]
}
