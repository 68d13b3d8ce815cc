// Package webhook carries wakes to an HTTP endpoint by a signed POST.
//
// It promises that it connects to no internal address unless it is allowed to
// (checked on the connected address, whatever DNS says), follows no redirect,
// uses no proxy, sends exactly the bytes that were signed, and keeps no
// response body. It knows nothing of the database; who retries, and when, is
// its caller's business.
package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/rouse-run/rouse/plugins/contract"
)

// maxAnswer bounds what is read of an answer; only {"done":true} matters.
const maxAnswer = 64 << 10

// Signer makes the value of the Webhook-Signature header.
type Signer interface {
	Sign(body []byte, at time.Time) string
}

// Config of a [Transport].
type Config struct {
	Signer Signer
	// AllowPrivate permits loopback and private addresses and plain http; for
	// `dev` and for operators who say so.
	AllowPrivate bool
	// Timeout bounds one POST; zero means 20 s.
	Timeout time.Duration
	// Now tells the time of the signature; nil means the clock.
	Now func() time.Time
}

// Transport posts wakes.
type Transport struct {
	cfg    Config
	client *http.Client
}

var _ contract.Transport = (*Transport)(nil)

var errAddress = errors.New("the address is not allowed")

// New makes the transport.
func New(cfg Config) *Transport {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 20 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	t := &Transport{cfg: cfg}
	d := &net.Dialer{Timeout: 5 * time.Second, Control: t.Control()}
	t.client = &http.Client{
		Transport: &http.Transport{
			DialContext: d.DialContext, Proxy: nil, ForceAttemptHTTP2: true, MaxIdleConns: 256, MaxIdleConnsPerHost: 16,
			IdleConnTimeout: 60 * time.Second, TLSHandshakeTimeout: 5 * time.Second, MaxResponseHeaderBytes: 32 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return t
}

// Close drops idle connections.
func (t *Transport) Close() { t.client.CloseIdleConnections() }

// Control is the check that the dialer runs on every address it is about to
// connect to; exported so that a test can ask it without a dial.
func (t *Transport) Control() func(network, address string, c syscall.RawConn) error {
	if t.cfg.AllowPrivate {
		return nil
	}
	guard := ssrf.New(ssrf.WithAnyPort())
	return func(network, address string, c syscall.RawConn) error {
		if err := guard.Safe(network, address, c); err != nil {
			return errors.Join(errAddress, err)
		}
		return nil
	}
}

// Type implements contract.Transport.
func (*Transport) Type() string { return "webhook" }

// ValidateTarget implements contract.Transport: {"type":"webhook","url":…}.
func (t *Transport) ValidateTarget(_ context.Context, target json.RawMessage) error {
	var c struct {
		URL string `json:"url"`
	}
	if err := json.Unmarshal(target, &c); err != nil || c.URL == "" {
		return errors.New("a webhook target needs a url")
	}
	if len(c.URL) > 2048 {
		return errors.New("the webhook url is longer than 2048 bytes")
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Hostname() == "" || u.Opaque != "" {
		return errors.New("the webhook url cannot be parsed")
	}
	if u.User != nil {
		return errors.New("the webhook url must not hold credentials")
	}
	switch {
	case u.Scheme == "http" && t.cfg.AllowPrivate:
		return nil
	case u.Scheme != "https":
		return errors.New("the webhook url must be https")
	case t.cfg.AllowPrivate:
		return nil
	case isLoopbackName(u.Hostname()):
		return errors.New("the webhook url points at this machine")
	}
	if ip, err := netip.ParseAddr(strings.Trim(u.Hostname(), "[]")); err == nil {
		network := "tcp6" // as a dialer says it
		if ip.Is4() {
			network = "tcp4"
		}
		if err := t.Control()(network, net.JoinHostPort(ip.String(), "443"), nil); err != nil {
			return errors.New("the webhook url points at an internal address")
		}
	}
	return nil
}

func isLoopbackName(host string) bool {
	h := strings.ToLower(strings.TrimSuffix(host, "."))
	if h == "localhost" || strings.HasSuffix(h, ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(h, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}

// Deliver implements contract.Transport.
func (t *Transport) Deliver(ctx context.Context, d contract.Delivery) contract.Result {
	var c struct {
		URL string `json:"url"`
	}
	if err := json.Unmarshal(d.Target, &c); err != nil || c.URL == "" {
		return contract.Result{Outcome: contract.Permanent, Error: "the stored target has no url"}
	}
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(d.Notification))
	if err != nil {
		return contract.Result{Outcome: contract.Permanent, Error: "the stored url cannot be used"}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "rouse")
	req.Header.Set("Idempotency-Key", d.WakeID)
	req.Header.Set("Rouse-Delivery-Attempt", strconv.Itoa(d.Attempt))
	switch {
	case d.Signature != "":
		req.Header.Set("Webhook-Signature", d.Signature)
	case t.cfg.Signer != nil:
		req.Header.Set("Webhook-Signature", t.cfg.Signer.Sign(d.Notification, t.cfg.Now()))
	}
	resp, err := t.client.Do(req)
	if err != nil {
		// Every transport error can pass: a DNS failure, too.
		return contract.Result{Outcome: contract.Retry, Error: brief(err)}
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return verdict(resp, body, t.cfg.Now())
}

func verdict(resp *http.Response, body []byte, now time.Time) contract.Result {
	r := contract.Result{StatusCode: resp.StatusCode}
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		var a struct {
			Done bool `json:"done"`
		}
		r.Outcome = contract.Accepted
		if json.Unmarshal(body, &a) == nil && a.Done {
			r.Outcome = contract.Done
		}
		return r
	case resp.StatusCode == http.StatusGone:
		r.Outcome, r.Error = contract.Permanent, "the receiver answered 410 Gone"
		return r
	}
	r.Outcome, r.Error = contract.Retry, "the receiver answered "+strconv.Itoa(resp.StatusCode)
	r.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), now)
	return r
}

// retryAfter reads the header's seconds or date; at most an hour is believed.
func retryAfter(v string, now time.Time) time.Duration {
	v = strings.TrimSpace(v)
	if at, err := http.ParseTime(v); err == nil {
		return min(max(at.Sub(now), 0), time.Hour)
	}
	n, err := strconv.Atoi(v)
	if err != nil || n <= 0 {
		return 0
	}
	return min(time.Duration(min(n, 3600))*time.Second, time.Hour)
}

// brief says what kind of failure it was, without the url (it may hold a
// secret in its query).
func brief(err error) string {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err
	}
	var dns *net.DNSError
	switch {
	case errors.Is(err, errAddress):
		return "the receiver's address is not allowed"
	case errors.Is(err, context.DeadlineExceeded):
		return "the receiver did not answer in time"
	case errors.As(err, &dns):
		return "the receiver's name could not be resolved"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the receiver refused the connection"
	}
	return "the connection to the receiver failed"
}
