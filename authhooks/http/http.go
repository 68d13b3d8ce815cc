// Package httphook asks an HTTP endpoint who a request acts as, or whether a
// principal may do something: the auth hook for systems that are there already.
//
// It owns the questions' and answers' form: JSON in a POST, answered with 200 and
// a verdict. It promises that whatever else comes back, or does not come in time,
// is an error, which refuses; that the endpoint sees the header fields it is
// configured to see and no others; and that neither they nor its own secret stand
// in errors. It knows nothing of the gateway.
package httphook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rouse-run/rouse/plugins/contract"
)

// Options of a [Hook]. URL is needed.
type Options struct {
	// Name is used in logs; empty means "http".
	Name string
	// URL is asked. It is https, or this machine's.
	URL string
	// Headers are the request's fields that the endpoint is shown; empty means
	// Authorization.
	Headers []string
	// Secret is shown to the endpoint as a bearer token, if not empty.
	Secret string
	// Timeout bounds an answer; zero means 2 s.
	Timeout time.Duration
	// AllowHTTP lets plain http go to other machines.
	AllowHTTP bool
}

// notAsked is how long it is remembered that there is nothing to ask about.
const notAsked = time.Minute

// maxAnswer bounds an answer in bytes.
const maxAnswer = 64 << 10

// Hook asks one endpoint. It is safe for concurrent use.
type Hook struct {
	o      Options
	client *http.Client
}

var (
	_ contract.AuthHook     = (*Hook)(nil)
	_ contract.HeaderReader = (*Hook)(nil)
	_ contract.Authorizer   = (*Hook)(nil)
)

// New makes a hook; it sends nothing yet.
func New(o Options) (*Hook, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("the endpoint must be an https URL without a user")
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && !o.AllowHTTP && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, errors.New("the endpoint must be an https URL, or be on this machine: credentials are sent there")
	}
	if o.Name == "" {
		o.Name = "http"
	}
	if len(o.Headers) == 0 {
		o.Headers = []string{"Authorization"}
	}
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Second
	}
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, errors.New("there is no HTTP transport")
	}
	t := base.Clone()
	t.MaxIdleConnsPerHost = 32
	return &Hook{o: o, client: &http.Client{Transport: t,
		// A redirect would take the credentials elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// Close lets idle connections go.
func (h *Hook) Close() { h.client.CloseIdleConnections() }

// Name implements contract.AuthHook and contract.Authorizer.
func (h *Hook) Name() string { return h.o.Name }

// Headers implements contract.HeaderReader.
func (h *Hook) Headers() []string { return h.o.Headers }

// principal is one on this wire.
type principal struct {
	Kind       string            `json:"kind"`
	ID         string            `json:"id"`
	Profile    map[string]string `json:"profile,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
}

// whoAsks is the question of authentication.
type whoAsks struct {
	Ask         string      `json:"ask"`
	Headers     http.Header `json:"headers"`
	Certificate []byte      `json:"certificate,omitempty"` // DER, base64
}

// mayIt is the question of authorisation.
type mayIt struct {
	Ask            string    `json:"ask"`
	Principal      principal `json:"principal"`
	Verb           string    `json:"verb"`
	Resource       resource  `json:"resource"`
	BuiltInAllowed bool      `json:"built_in_allowed"`
}

type resource struct {
	Service string `json:"service"`
	Kind    string `json:"kind"`
	ID      string `json:"id"`
}

// answer answers both.
type answer struct {
	Verdict    string     `json:"verdict"`
	Principal  *principal `json:"principal"`
	CacheForMS int64      `json:"cache_for_ms"`
	// Reason is for the gateway's log.
	Reason string `json:"reason"`
}

var verdicts = map[string]contract.Verdict{"allow": contract.Allow, "deny": contract.Deny, "no_opinion": contract.NoOpinion}

// Authenticate implements contract.AuthHook. A request that has none of the
// fields and no certificate is not asked about.
func (h *Hook) Authenticate(ctx context.Context, r contract.Request) (contract.Decision, error) {
	shown := http.Header{}
	for _, name := range h.o.Headers {
		if v := r.Header.Values(name); len(v) > 0 {
			shown[http.CanonicalHeaderKey(name)] = v
		}
	}
	if len(shown) == 0 && r.Certificate == nil {
		return contract.Decision{CacheFor: notAsked}, nil
	}
	a, err := h.ask(ctx, whoAsks{"authenticate", shown, r.Certificate})
	if err != nil {
		return contract.Decision{Verdict: contract.Deny}, err
	}
	d := contract.Decision{Verdict: verdicts[a.Verdict], CacheFor: time.Duration(a.CacheForMS) * time.Millisecond, Why: clip(a.Reason)}
	if d.Verdict == contract.Allow {
		if a.Principal == nil {
			return contract.Decision{Verdict: contract.Deny}, errors.New("the endpoint allows without a principal")
		}
		d.Principal = contract.Principal(*a.Principal)
	}
	return d, nil
}

// Authorize implements contract.Authorizer.
func (h *Hook) Authorize(ctx context.Context, q contract.Question) (contract.Ruling, error) {
	a, err := h.ask(ctx, mayIt{"authorize", principal{Kind: q.Principal.Kind, ID: q.Principal.ID, Attributes: q.Principal.Attributes}, q.Verb, resource(q.Resource), q.BuiltInAllowed})
	if err != nil {
		return contract.Ruling{Verdict: contract.Deny}, err
	}
	return contract.Ruling{Verdict: verdicts[a.Verdict], CacheFor: time.Duration(a.CacheForMS) * time.Millisecond, Why: clip(a.Reason)}, nil
}

// clip bounds a reason.
func clip(s string) string {
	const most = 300
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

func (h *Hook) ask(ctx context.Context, question any) (answer, error) {
	var a answer
	body, err := json.Marshal(question)
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, h.o.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.o.URL, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	if h.o.Secret != "" {
		req.Header.Set("Authorization", "Bearer "+h.o.Secret)
	}
	resp, err := h.client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the URL, whose query may hold a secret
		}
		return a, fmt.Errorf("the endpoint does not answer: %w", err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return a, fmt.Errorf("the endpoint's answer breaks off: %w", err)
	case resp.StatusCode != http.StatusOK:
		return a, fmt.Errorf("the endpoint answers %d", resp.StatusCode)
	case len(raw) > maxAnswer:
		return a, errors.New("the endpoint's answer is too long")
	case json.Unmarshal(raw, &a) != nil:
		return a, errors.New("the endpoint's answer is not the JSON it should be")
	}
	if _, ok := verdicts[a.Verdict]; !ok {
		return a, errors.New("the endpoint's verdict is none of allow, deny, no_opinion")
	}
	if a.CacheForMS < 0 || a.CacheForMS > int64(24*time.Hour/time.Millisecond) {
		return a, errors.New("the endpoint's cache time is out of range")
	}
	return a, nil
}
