package mtls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/rouse-run/rouse/plugins/contract"
)

func certificate(t *testing.T, now time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var uris []*url.URL
	for _, s := range []string{"spiffe://one/ns/x", "spiffe://one/runner-7"} {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		uris = append(uris, u)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "laptop"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(30 * time.Second),
		URIs: uris, DNSNames: []string{"ci.example"}, EmailAddresses: []string{"kyle@example.com"}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestWhoACertificateStandsFor(t *testing.T) {
	t.Parallel()
	now := time.Now()
	der := certificate(t, now)
	for name, tc := range map[string]struct {
		rules []Rule
		want  string
	}{
		"without rules":            {nil, "service:laptop"},
		"email":                    {[]Rule{{"email", "", "user"}}, "user:kyle@example.com"},
		"dns with a prefix":        {[]Rule{{"dns", "ci.", "agent"}}, "agent:example"},
		"the uri that is an id":    {[]Rule{{"uri", "spiffe://one/", "service"}}, "service:runner-7"},
		"the first rule that fits": {[]Rule{{"cn", "phone", "user"}, {"dns", "", "service"}, {"cn", "", "user"}}, "service:ci.example"},
		"none fits":                {[]Rule{{"cn", "phone", "user"}}, ":"},
		"nothing left":             {[]Rule{{"cn", "laptop", "user"}}, ":"},
	} {
		h, err := New(tc.rules, nil)
		if err != nil {
			t.Fatal(err)
		}
		d, err := h.Authenticate(t.Context(), contract.Request{Certificate: der})
		if err != nil || d.Principal.Key() != tc.want || (d.Verdict == contract.Allow) != (tc.want != ":") {
			t.Errorf("%s: %+v %v", name, d, err)
		}
		if d.CacheFor > 30*time.Second {
			t.Errorf("%s: remembered for %v, longer than it is valid", name, d.CacheFor)
		}
	}
	late, err := New(nil, func() time.Time { return now.Add(time.Minute) })
	if err != nil {
		t.Fatal(err)
	}
	if d, err := late.Authenticate(t.Context(), contract.Request{Certificate: der}); err != nil || d.Verdict != contract.Deny {
		t.Errorf("a certificate that is over: %v %v", d, err)
	}
	if d, err := late.Authenticate(t.Context(), contract.Request{}); err != nil || d.Verdict != contract.NoOpinion {
		t.Errorf("none: %v %v", d, err)
	}
	if d, err := late.Authenticate(t.Context(), contract.Request{Certificate: []byte("x")}); err == nil || d.Verdict != contract.Deny {
		t.Errorf("rubbish: %v %v", d, err)
	}
	for _, bad := range []Rule{{"serial", "", "user"}, {"cn", "", "root"}} {
		if _, err := New([]Rule{bad}, nil); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}
