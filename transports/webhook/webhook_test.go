package webhook_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/plugins/contract"
	"github.com/rouse-run/rouse/transports/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type signer struct{}

func (signer) Sign(body []byte, at time.Time) string {
	return fmt.Sprintf("t=%d,len=%d", at.Unix(), len(body))
}

const wakeID = "0190a8f2-7a10-4c6e-9a51-0d5f5a0c1a01"

func target(url string) json.RawMessage {
	raw, _ := json.Marshal(map[string]string{"type": "webhook", "url": url})
	return raw
}

// loopback is a transport that may reach this machine, as in dev.
func loopback(t *testing.T, timeout time.Duration) *webhook.Transport {
	t.Helper()
	tr := webhook.New(webhook.Config{Signer: signer{}, AllowPrivate: true, Timeout: timeout, Now: func() time.Time { return time.Unix(1700000000, 0) }})
	t.Cleanup(tr.Close)
	return tr
}

func deliver(ctx context.Context, tr *webhook.Transport, url string, attempt int) contract.Result {
	return tr.Deliver(ctx, contract.Delivery{WakeID: wakeID, Service: "default", Attempt: attempt, Target: target(url),
		Notification: json.RawMessage(`{"wakeId":"` + wakeID + `","claimToken":"rouse_ct_secret"}`)})
}

// receiver answers and remembers requests.
func receiver(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL + "/hook?key=s3cret"
}

func TestRequest(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var body []byte
	url := receiver(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.WithoutCancel(r.Context()))
		body, _ = io.ReadAll(r.Body)
		w.WriteHeader(http.StatusOK)
	})
	r := deliver(t.Context(), loopback(t, 0), url, 3)
	if r.Outcome != contract.Accepted || r.StatusCode != 200 {
		t.Fatalf("%+v", r)
	}
	if got.Method != http.MethodPost || got.URL.RequestURI() != "/hook?key=s3cret" {
		t.Errorf("%s %s", got.Method, got.URL)
	}
	want := `{"wakeId":"` + wakeID + `","claimToken":"rouse_ct_secret"}`
	if string(body) != want {
		t.Errorf("body %s", body)
	}
	for k, v := range map[string]string{"Content-Type": "application/json", "Idempotency-Key": wakeID, "Rouse-Delivery-Attempt": "3", "User-Agent": "rouse",
		"Webhook-Signature": fmt.Sprintf("t=1700000000,len=%d", len(want))} {
		if got.Header.Get(k) != v {
			t.Errorf("%s: %q", k, got.Header.Get(k))
		}
	}
	if got.Header.Get("Authorization") != "" || got.Header.Get("Cookie") != "" {
		t.Error("credentials were sent")
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	tr := loopback(t, 0)
	for _, c := range []struct {
		status  int
		body    string
		header  string
		outcome contract.Outcome
		after   time.Duration
	}{
		{200, ``, "", contract.Accepted, 0},
		{200, `{"done":true}`, "", contract.Done, 0},
		{201, `{"done":true,"more":[1]}`, "", contract.Done, 0},
		{204, ``, "", contract.Accepted, 0},
		{200, `{"done":false}`, "", contract.Accepted, 0},
		{200, `{"done":"true"}`, "", contract.Accepted, 0},
		{200, `{"done":true`, "", contract.Accepted, 0},
		{200, `[true]`, "", contract.Accepted, 0},
		{200, "\xff\xfe", "", contract.Accepted, 0},
		{301, ``, "", contract.Retry, 0},
		{302, `{"done":true}`, "", contract.Retry, 0},
		{307, ``, "", contract.Retry, 0},
		{400, `{"done":true}`, "", contract.Retry, 0},
		{401, ``, "", contract.Retry, 0},
		{404, ``, "", contract.Retry, 0},
		{410, `{"done":true}`, "", contract.Permanent, 0},
		{429, ``, "120", contract.Retry, 2 * time.Minute},
		{429, ``, " 7 ", contract.Retry, 7 * time.Second},
		{429, ``, "Tue, 14 Nov 2023 22:14:20 GMT", contract.Retry, time.Minute},
		{429, ``, "Tue, 14 Nov 2023 22:13:20 GMT", contract.Retry, 0},
		{429, ``, "99999999999999999999", contract.Retry, 0},
		{429, ``, "86400", contract.Retry, time.Hour},
		{429, ``, "-5", contract.Retry, 0},
		{429, ``, "soon", contract.Retry, 0},
		{500, ``, "", contract.Retry, 0},
		{503, ``, "3", contract.Retry, 3 * time.Second},
		{504, ``, "", contract.Retry, 0},
	} {
		url := receiver(t, func(w http.ResponseWriter, r *http.Request) {
			if c.header != "" {
				w.Header().Set("Retry-After", c.header)
			}
			if c.status/100 == 3 {
				w.Header().Set("Location", "/elsewhere")
			}
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		})
		r := deliver(t.Context(), tr, url, 1)
		if r.Outcome != c.outcome || r.RetryAfter != c.after || r.StatusCode != c.status {
			t.Errorf("%d %q %q: %+v", c.status, c.body, c.header, r)
		}
		if (r.Error == "") != (c.status < 300) || strings.Contains(r.Error, "s3cret") || strings.Contains(r.Error, "127.0.0.1") {
			t.Errorf("%d: error %q", c.status, r.Error)
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	inner := receiver(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	for _, status := range []int{301, 302, 303, 307, 308} {
		url := receiver(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, inner, status) })
		if r := deliver(t.Context(), loopback(t, 0), url, 1); r.Outcome != contract.Retry || r.StatusCode != status {
			t.Errorf("%d: %+v", status, r)
		}
	}
	if reached.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

func TestSlowReceivers(t *testing.T) {
	t.Parallel()
	const timeout = 150 * time.Millisecond
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	wait := func(r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then is a hang-up noticed
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	for name, h := range map[string]http.HandlerFunc{
		"no answer": func(_ http.ResponseWriter, r *http.Request) { wait(r) },
		"an answer that never ends": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusOK)
			for r.Context().Err() == nil {
				if _, err := w.Write(bytes.Repeat([]byte("x"), 32<<10)); err != nil {
					return
				}
			}
		},
		"an answer that trickles": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"done":`)
			w.(http.Flusher).Flush()
			wait(r)
		},
	} {
		url := receiver(t, h)
		began := time.Now()
		r := deliver(t.Context(), loopback(t, timeout), url, 1)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
		want := contract.Accepted // the status line came
		if name == "no answer" {
			want = contract.Retry
		}
		if r.Outcome != want {
			t.Errorf("%s: %+v", name, r)
		}
		if name == "no answer" && r.Error != "the receiver did not answer in time" {
			t.Errorf("%s: %q", name, r.Error)
		}
	}
	// The caller's deadline holds as well.
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	url := receiver(t, func(_ http.ResponseWriter, r *http.Request) { wait(r) })
	if r := deliver(ctx, loopback(t, time.Hour), url, 1); r.Outcome != contract.Retry {
		t.Errorf("the caller's deadline: %+v", r)
	}
}

func TestBrokenReceivers(t *testing.T) {
	t.Parallel()
	raw := func(answer string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 4096))
				_, _ = io.WriteString(c, answer)
				_ = c.Close()
			}
		}()
		return "http://" + l.Addr().String() + "/hook?key=s3cret"
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := "http://" + closed.Addr().String() + "/hook?key=s3cret"
	_ = closed.Close()
	for name, url := range map[string]string{
		"refused": dead, "hangs up": raw(""), "not http": raw("hello\r\n\r\n"), "half a header": raw("HTTP/1.1 200 OK\r\nConten"),
		"a header without end": raw("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 1<<20)), "switches protocols": raw("HTTP/1.1 101 Switching Protocols\r\n\r\n"),
		"a name that is none":      "http://does-not-exist.invalid/hook?key=s3cret",
		"a certificate of its own": secure(t, time.Now().Add(time.Hour)), "a certificate that has ended": secure(t, time.Now().Add(-time.Hour)),
	} {
		r := deliver(t.Context(), loopback(t, 10*time.Second), url, 1)
		if r.Outcome != contract.Retry {
			t.Errorf("%s: %+v", name, r)
		}
		if r.Error == "" || strings.Contains(r.Error, "s3cret") || strings.Contains(r.Error, "127.0.0.1") {
			t.Errorf("%s: error %q", name, r.Error)
		}
	}
	for _, bad := range []string{``, `{}`, `{"url":7}`, `not json`, `{"url":"http://%zz"}`} {
		r := loopback(t, 0).Deliver(t.Context(), contract.Delivery{WakeID: wakeID, Target: json.RawMessage(bad)})
		if r.Outcome != contract.Permanent {
			t.Errorf("target %s: %+v", bad, r)
		}
	}
}

// secure is a receiver that shows a certificate nobody vouches for, good until a
// time. Nothing may be sent to it.
func secure(t *testing.T, until time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	made := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-48 * time.Hour), NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, made, made, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was sent") }))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of the handshakes that fail
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL + "/hook?key=s3cret"
}

// S11: the check that runs on the address of every connection, asked directly.
func TestInternalAddressesAreRefused(t *testing.T) {
	t.Parallel()
	strict := webhook.New(webhook.Config{}).Control()
	refuse := []string{
		"127.0.0.1:443", "127.255.255.254:80", "0.0.0.0:80", "10.0.0.1:443", "10.255.255.255:443", "172.16.0.1:443", "172.31.255.255:443", "192.168.1.1:443",
		"169.254.169.254:80", "169.254.0.1:443", "100.64.0.1:443", "192.0.0.1:443", "192.0.2.1:443", "198.18.0.1:443", "198.51.100.1:443", "203.0.113.1:443",
		"224.0.0.1:443", "240.0.0.1:443", "255.255.255.255:443", "192.88.99.1:443",
		"[::1]:443", "[::]:443", "[fe80::1]:443", "[fe80::1%eth0]:443", "[fc00::1]:443", "[fd12:3456::1]:443", "[ff02::1]:443", "[fec0::1]:443",
		"[::ffff:127.0.0.1]:443", "[::ffff:10.0.0.1]:443", "[::ffff:169.254.169.254]:80", "[::127.0.0.1]:443",
		"[64:ff9b::7f00:1]:443", "[64:ff9b::a9fe:a9fe]:80", "[64:ff9b:1::a00:1]:443", "[2002:7f00:1::]:443", "[2002:a00:1::1]:443", "[2001::1]:443",
		"[2001:db8::1]:443", "[100::1]:443", "[::ffff:0:7f00:1]:443", "[2001:20::1]:443", "[3fff::1]:443", "[5f00::1]:443", "[2620:4f:8000::1]:443",
		"not-an-address", "", "localhost:443", "2130706433:443", "0x7f.1:443",
	}
	for _, a := range refuse {
		network := "tcp4"
		if strings.HasPrefix(a, "[") {
			network = "tcp6"
		}
		if err := strict(network, a, nil); err == nil {
			t.Errorf("%s is let through", a)
		}
	}
	for _, a := range []string{"93.184.215.14:443", "1.1.1.1:8443", "[2606:4700:4700::1111]:443"} {
		network := "tcp4"
		if strings.HasPrefix(a, "[") {
			network = "tcp6"
		}
		if err := strict(network, a, nil); err != nil {
			t.Errorf("%s: %v", a, err)
		}
	}
	for _, n := range []string{"udp", "unix", "tcp"} {
		if err := strict(n, "93.184.215.14:443", nil); err == nil && n != "tcp" {
			t.Errorf("network %s is let through", n)
		}
	}
	if webhook.New(webhook.Config{AllowPrivate: true}).Control() != nil {
		t.Error("dev is guarded")
	}
}

// A strict transport really runs the check: the receiver on this machine is
// not reached, by address or by name.
func TestGuardIsInTheDialer(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	url := receiver(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	tr := webhook.New(webhook.Config{})
	t.Cleanup(tr.Close)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(strings.Split(url, "/hook")[0], "http://"))
	for _, u := range []string{url, "http://localhost:" + port + "/", "http://[::ffff:127.0.0.1]:" + port + "/", "http://127.1:" + port + "/"} {
		r := deliver(t.Context(), tr, u, 1)
		if r.Outcome != contract.Retry {
			t.Errorf("%s: %+v", u, r)
		}
	}
	if reached.Load() != 0 {
		t.Error("the receiver was reached")
	}
	if r := deliver(t.Context(), tr, url, 1); r.Error != "the receiver's address is not allowed" {
		t.Errorf("%+v", r)
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	strict, dev := webhook.New(webhook.Config{}), webhook.New(webhook.Config{AllowPrivate: true})
	for url, want := range map[string][2]bool{ // strict, dev
		"https://hooks.example/a?b=c":          {true, true},
		"https://hooks.example:8443/":          {true, true},
		"http://hooks.example/":                {false, true},
		"http://10.0.0.5/":                     {false, true},
		"http://[fd00::5]:8080/":               {false, true},
		"http://127.0.0.1:9/":                  {false, true},
		"http://localhost:9/":                  {false, true},
		"http://app.localhost/":                {false, true},
		"http://[::1]:9/":                      {false, true},
		"https://127.0.0.1/":                   {false, true},
		"https://localhost./":                  {false, true},
		"https://10.0.0.1/":                    {false, true},
		"https://169.254.169.254/latest":       {false, true},
		"https://[::ffff:10.0.0.1]/":           {false, true},
		"https://[64:ff9b::a9fe:a9fe]/":        {false, true},
		"https://1.1.1.1/":                     {true, true},
		"https://[2606:4700:4700::1111]/":      {true, true},
		"https://user:pass@hooks.example/":     {false, false},
		"ftp://hooks.example/":                 {false, false},
		"file:///etc/passwd":                   {false, false},
		"https:///path":                        {false, false},
		"https:hooks.example":                  {false, false},
		"//hooks.example":                      {false, false},
		"hooks.example":                        {false, false},
		"":                                     {false, false},
		"https://hooks.example/%zz":            {false, false},
		"https://" + strings.Repeat("a", 2100): {false, false},
	} {
		for i, tr := range []*webhook.Transport{strict, dev} {
			err := tr.ValidateTarget(t.Context(), target(url))
			if (err == nil) != want[i] {
				t.Errorf("%.60s (dev %v): %v", url, i == 1, err)
			}
			if err != nil && strings.Contains(err.Error(), "pass") && strings.Contains(url, "pass@") {
				t.Errorf("the refusal shows the credentials: %v", err)
			}
		}
	}
	for _, bad := range []string{`{}`, `null`, `[]`, `{"url":7}`, `x`} {
		if strict.ValidateTarget(t.Context(), json.RawMessage(bad)) == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
