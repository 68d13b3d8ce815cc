// Package auth turns a request into a principal: who it acts as.
//
// It owns the chain of auth hooks, the rules of the header electric-principal,
// and the users rows, made on first sight. It promises that a hook which fails,
// hangs, panics or talks nonsense refuses the request and never lets it in, and
// that our own claim, hold and write tokens are never shown to a hook. It knows
// nothing of routes, and ownership of things is for their handlers to compare.
package auth

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/plugins/contract"
)

// Users keeps the rows of people.
type Users interface {
	UserSeen(ctx context.Context, service int32, u store.User) (bool, error)
}

// Config of a [Chain].
type Config struct {
	// Hooks are asked in order until one has an opinion.
	Hooks []contract.AuthHook
	// Insecure lets a request without credentials act as whoever its header
	// electric-principal says, or as system:dev-local.
	Insecure bool
	// Near refuses requests without credentials that other sites' pages may have
	// sent; nil refuses none.
	Near *Near
	// Timeout bounds one hook's answer; zero means 5 s.
	Timeout time.Duration
	// MaxPending bounds answers waited for at once, so that a hook that hangs
	// cannot pile up goroutines; zero means 1024.
	MaxPending int
	// Users may be nil: then no rows are made.
	Users Users
	Log   *slog.Logger
}

// Chain authenticates requests. It is safe for concurrent use.
type Chain struct {
	cfg   Config
	slots chan struct{}

	mu   sync.Mutex
	seen map[seenKey]string
}

type seenKey struct {
	service int32
	id      string
}

// maxSeen bounds the memory of people seen; beyond it the memory starts anew.
const maxSeen = 50_000

// New makes a chain.
func New(cfg Config) *Chain {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.MaxPending <= 0 {
		cfg.MaxPending = 1024
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Chain{cfg: cfg, slots: make(chan struct{}, cfg.MaxPending), seen: map[seenKey]string{}}
}

// HeaderPrincipal names who a request acts as.
const HeaderPrincipal = "Electric-Principal"

// HeaderClaimToken carries a claim, hold or write token.
const HeaderClaimToken = "Electric-Claim-Token"

// Bearer returns the credential of the Authorization header, or "".
func Bearer(h http.Header) string {
	scheme, token, ok := strings.Cut(h.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// ClaimToken returns the claim, hold or write token a request shows: the header
// electric-claim-token, else a bearer with one of our prefixes, else "".
func ClaimToken(h http.Header) string {
	if t := h.Get(HeaderClaimToken); t != "" {
		return t
	}
	if t := Bearer(h); claims.IsToken(t) {
		return t
	}
	return ""
}

// Authenticate says who the request acts as: whom the hooks name. The header
// electric-principal counts without hooks' credentials in `dev`, and beside those
// of a system principal, who acts as others. Errors: INVALID_PRINCIPAL,
// UNAUTHENTICATED (credentials refused), UNAUTHORIZED (none shown),
// ORIGIN_FORBIDDEN, AUTH_UNAVAILABLE.
func (c *Chain) Authenticate(r *http.Request) (Principal, error) {
	var named Principal
	if vs := r.Header.Values(HeaderPrincipal); len(vs) > 1 {
		return Principal{}, invalid("it is given more than once")
	} else if len(vs) == 1 {
		var err error
		if named, err = Parse(strings.TrimSpace(vs[0])); err != nil {
			return Principal{}, err
		}
	}
	p, err := c.ask(r)
	if err != nil {
		return Principal{}, err
	}
	if p.IsZero() && c.cfg.Insecure && c.cfg.Near != nil {
		if err := c.cfg.Near.Check(r); err != nil {
			return Principal{}, err
		}
	}
	switch {
	case p.IsZero() && c.cfg.Insecure && named.IsZero():
		return DevLocal, nil
	case p.IsZero() && c.cfg.Insecure:
		return named, nil
	case p.IsZero():
		return Principal{}, problem.New(problem.Unauthorized, "Credentials are missing. Send Authorization: Bearer with a token of this server.").
			WithHeader("WWW-Authenticate", "Bearer")
	case p.Trusted() && !named.IsZero():
		return named, nil
	}
	// The credentials decide; a name beside them that they do not cover counts for nothing.
	return p, nil
}

// Admit refuses a request that needs no credentials when it is another site's
// and shows none: ORIGIN_FORBIDDEN.
func (c *Chain) Admit(r *http.Request) error {
	if !c.cfg.Insecure || c.cfg.Near == nil {
		return nil
	}
	far := c.cfg.Near.Check(r)
	if far == nil {
		return nil
	}
	if p, err := c.ask(r); err != nil {
		return err
	} else if !p.IsZero() {
		return nil
	}
	return far
}

// ask runs the hooks; the zero Principal means that none had an opinion.
func (c *Chain) ask(r *http.Request) (Principal, error) {
	if len(c.cfg.Hooks) == 0 {
		return Principal{}, nil
	}
	h := r.Header.Clone()
	h.Del(HeaderClaimToken)
	if claims.IsToken(Bearer(h)) {
		h.Del("Authorization")
	}
	for _, hook := range c.cfg.Hooks {
		got, verdict, err := c.one(r.Context(), hook, h)
		if err != nil {
			c.cfg.Log.WarnContext(r.Context(), "auth hook failed", "hook", hook.Name(), "error", err)
			return Principal{}, problem.Wrap(problem.AuthUnavailable, err, "Authentication is not available. Try again.")
		}
		switch verdict {
		case contract.Deny:
			return Principal{}, problem.New(problem.Unauthenticated, "The credentials are not valid. Get a new token.").
				WithHeader("WWW-Authenticate", `Bearer error="invalid_token"`)
		case contract.Allow:
			return got, nil
		}
	}
	return Principal{}, nil
}

type answer struct {
	p       contract.Principal
	verdict contract.Verdict
	err     error
}

// one asks one hook and waits no longer than the timeout, whether the hook
// looks at its context or not.
func (c *Chain) one(ctx context.Context, hook contract.AuthHook, h http.Header) (Principal, contract.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	select {
	case c.slots <- struct{}{}:
	default:
		return Principal{}, contract.Deny, fmt.Errorf("too many answers are waited for")
	}
	done := make(chan answer, 1)
	go func() {
		defer func() { <-c.slots }()
		var a answer
		defer func() {
			if v := recover(); v != nil {
				a = answer{err: fmt.Errorf("the hook panicked: %v", v)}
			}
			done <- a
		}()
		a.p, a.verdict, a.err = hook.Authenticate(ctx, h)
	}()
	var a answer
	select {
	case a = <-done:
	case <-ctx.Done():
		return Principal{}, contract.Deny, ctx.Err()
	}
	if a.err != nil || a.verdict == contract.NoOpinion || a.verdict == contract.Deny {
		return Principal{}, a.verdict, a.err
	}
	if a.verdict != contract.Allow {
		return Principal{}, contract.Deny, fmt.Errorf("the hook gave the unknown verdict %d", a.verdict)
	}
	p, err := Parse(a.p.Key())
	if err != nil {
		return Principal{}, contract.Deny, fmt.Errorf("the hook named a malformed principal")
	}
	p.Profile = a.p.Profile
	return p, contract.Allow, nil
}

// Seen makes the users row of a person in a service on first sight, once a
// process and profile. Other kinds have no row.
func (c *Chain) Seen(ctx context.Context, service int32, p Principal) error {
	if p.Kind != User || c.cfg.Users == nil {
		return nil
	}
	key, mark := seenKey{service, p.ID}, profileMark(p.Profile)
	c.mu.Lock()
	last, ok := c.seen[key]
	c.mu.Unlock()
	if ok && last == mark {
		return nil
	}
	_, err := c.cfg.Users.UserSeen(ctx, service, store.User{ID: p.ID, DisplayName: p.Profile["display_name"], Email: p.Profile["email"],
		AvatarURL: p.Profile["avatar_url"], AuthProvider: p.Profile["auth_provider"], AuthSubject: p.Profile["auth_subject"]})
	if err != nil {
		return err
	}
	c.mu.Lock()
	if len(c.seen) >= maxSeen {
		c.seen = map[seenKey]string{}
	}
	c.seen[key] = mark
	c.mu.Unlock()
	return nil
}

func profileMark(profile map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(profile)) {
		fmt.Fprintf(&b, "%s=%s\x00", k, profile[k])
	}
	return b.String()
}
