package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, c, c, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func (a *authority) file(t *testing.T) string {
	t.Helper()
	return write(t, filepath.Join(a.dir, "ca.pem"), "CERTIFICATE", a.cert.Raw)
}

func write(t *testing.T, path, kind string, der []byte) string {
	t.Helper()
	if err := os.WriteFile(path+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// issue makes a certificate, and writes it and its key to name.pem, name.key.
func (a *authority) issue(t *testing.T, name string, serial int64) (tls.Certificate, string, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		write(t, filepath.Join(a.dir, name+".pem"), "CERTIFICATE", der), write(t, filepath.Join(a.dir, name+".key"), "PRIVATE KEY", raw)
}

// client is one that trusts the authority and may show certificates.
func client(t *testing.T, a *authority, certs ...tls.Certificate) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.pool(), Certificates: certs}, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	_, cert, key := ca.issue(t, "gateway", 2)
	gw := servertest.Start(t, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
		c.Insecure, c.TLSCert, c.TLSKey, c.TLSClientCA = false, cert, key, ca.file(t)
		c.Auth.Hooks = []config.AuthHook{{MTLS: &config.MTLSHook{Rules: []config.MTLSRule{{From: "cn", Prefix: "person-", Kind: "user"}}}}}
	}})
	if !strings.HasPrefix(gw.URL, "https://") {
		t.Fatalf("the public URL is %s", gw.URL)
	}
	kyle, _, _ := ca.issue(t, "person-kyle", 3)
	machine, _, _ := ca.issue(t, "machine", 4)
	list := gw.URL + "/_electric/runners"
	mine := client(t, ca, kyle)
	must(t, 201, mine, "POST", list, `{"id":"mac","label":"Mac"}`)
	if a := must(t, 200, mine, "GET", list, ""); !strings.Contains(a.body, "/principal/user%3Akyle") {
		t.Error(a.body)
	}
	must(t, 401, client(t, ca), "GET", list, "")
	must(t, 401, client(t, ca, machine), "GET", list, "")
	must(t, 200, client(t, ca), "GET", gw.URL+"/livez", "")
	// A header cannot play a certificate.
	must(t, 401, client(t, ca), "GET", list, "", "X-Client-Cert", "person-kyle", "Electric-Principal", "user:kyle")
	forged, _, _ := other.issue(t, "person-kyle", 3)
	r, err := http.NewRequestWithContext(t.Context(), "GET", list, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := client(t, ca, forged).Do(r); err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized { // a client may keep a certificate to itself that was not asked for
			t.Errorf("another authority's certificate: %d", resp.StatusCode)
		}
	}

	// What is live works over HTTP/2 too.
	must(t, 201, mine, "PUT", gw.URL+"/notes", `[{"n":1}]`, "Content-Type", "application/json")
	if r, err = http.NewRequestWithContext(t.Context(), "GET", gw.URL+"/notes?offset=-1&live=sse", nil); err != nil {
		t.Fatal(err)
	}
	resp, err := mine.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 {
		t.Errorf("it is %s", resp.Proto)
	}
	must(t, 204, mine, "POST", gw.URL+"/notes", `[{"n":2}]`, "Content-Type", "application/json")
	var got strings.Builder
	buf := make([]byte, 1<<10)
	for !strings.Contains(got.String(), `"n":2`) {
		n, err := resp.Body.Read(buf)
		got.Write(buf[:n])
		if err != nil {
			t.Fatalf("%v after %q", err, got.String())
		}
	}
}

func TestCertificatesAreReplacedWithoutARestart(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	_, cert, key := ca.issue(t, "gateway", 100)
	gw := servertest.Start(t, servertest.Options{Configure: func(c *config.Config) { c.TLSCert, c.TLSKey = cert, key }})
	serial := func() int64 {
		t.Helper()
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: ca.pool()}}).DialContext(t.Context(), "tcp", gw.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if n := serial(); n != 100 {
		t.Fatal(n)
	}
	// Half of a change is no change.
	if err := os.WriteFile(key, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(1500 * time.Millisecond); time.Now().Before(until); {
		if n := serial(); n != 100 {
			t.Fatal(n)
		}
	}
	ca.issue(t, "gateway", 101)
	for deadline := time.Now().Add(bound); serial() != 101; {
		if time.Now().After(deadline) {
			t.Fatal("the new certificate is not served")
		}
	}
}
