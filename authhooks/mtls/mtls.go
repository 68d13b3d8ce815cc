// Package mtls is the auth hook of client certificates: it names the principal
// that a certificate stands for.
//
// It promises to believe only in certificates that the connection has verified
// already, and to name nobody for one that no rule fits. It knows nothing of the
// gateway, and verifies nothing itself.
package mtls

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rouse-run/rouse/plugins/contract"
)

// Rule makes principals of one kind of one field.
type Rule struct {
	// From is cn (the subject's common name), uri, dns or email (of the subject's
	// alternative names).
	From string
	// Prefix must begin the field, and is taken off: what is left is the id.
	Prefix string
	// Kind is user, agent, service or system.
	Kind string
}

// Hook authenticates by certificate.
type Hook struct {
	rules []Rule
	now   func() time.Time
}

var (
	_ contract.AuthHook     = (*Hook)(nil)
	_ contract.HeaderReader = (*Hook)(nil)
)

// cacheFor is how long a certificate's principal is remembered; the connection
// that showed it lives longer.
const cacheFor = time.Minute

// New makes a hook of rules, which are tried in order; without any, the common
// name is a service's id. A nil now is the system's clock.
func New(rules []Rule, now func() time.Time) (*Hook, error) {
	if len(rules) == 0 {
		rules = []Rule{{From: "cn", Kind: "service"}}
	}
	for i, r := range rules {
		switch r.From {
		case "cn", "uri", "dns", "email":
		default:
			return nil, fmt.Errorf("rule %d: from must be cn, uri, dns or email", i)
		}
		switch r.Kind {
		case "user", "agent", "service", "system":
		default:
			return nil, fmt.Errorf("rule %d: kind must be user, agent, service or system", i)
		}
	}
	if now == nil {
		now = time.Now
	}
	return &Hook{rules, now}, nil
}

// Name implements contract.AuthHook.
func (h *Hook) Name() string { return "mtls" }

// Headers implements contract.HeaderReader: none count.
func (h *Hook) Headers() []string { return nil }

// Authenticate implements contract.AuthHook: no certificate, or none that a rule
// fits, no opinion. One that is over since the connection was made is refused.
func (h *Hook) Authenticate(_ context.Context, r contract.Request) (contract.Decision, error) {
	if r.Certificate == nil {
		return contract.Decision{CacheFor: cacheFor}, nil
	}
	cert, err := x509.ParseCertificate(r.Certificate)
	if err != nil {
		return contract.Decision{Verdict: contract.Deny}, errors.New("the verified certificate cannot be read")
	}
	now := h.now()
	if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return contract.Decision{Verdict: contract.Deny}, nil
	}
	for _, rule := range h.rules {
		for _, value := range fields(cert, rule.From) {
			id, ok := strings.CutPrefix(value, rule.Prefix)
			if !ok || !isID(id) {
				continue
			}
			return contract.Decision{Verdict: contract.Allow, CacheFor: min(cacheFor, cert.NotAfter.Sub(now)),
				Principal: contract.Principal{Kind: rule.Kind, ID: id, Profile: map[string]string{"auth_provider": "mtls", "auth_subject": cert.Subject.String()}}}, nil
		}
	}
	return contract.Decision{CacheFor: min(cacheFor, cert.NotAfter.Sub(now))}, nil
}

func isID(s string) bool {
	return s != "" && len(s) <= 256 && !strings.Contains(s, "/") && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func fields(cert *x509.Certificate, from string) []string {
	switch from {
	case "cn":
		return []string{cert.Subject.CommonName}
	case "dns":
		return cert.DNSNames
	case "email":
		return cert.EmailAddresses
	}
	out := make([]string, len(cert.URIs))
	for i, u := range cert.URIs {
		out[i] = u.String()
	}
	return out
}
