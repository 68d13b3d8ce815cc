// Package signin owns what stands before a gateway in tests of who may do what: an
// identity provider, a policy, and a door that signs in clients that have no
// credentials of their own.
//
// It promises that a provider's tokens are as real ones are: signed, of an issuer
// whose keys are found by discovery, over after their time. It knows nothing of
// the routes that are tried.
package signin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
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
