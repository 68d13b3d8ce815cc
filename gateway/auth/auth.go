// Package auth turns a request into a principal: who it acts as.
//
// It owns the chains of auth hooks and of authorizers, what is remembered of
// their answers, the rules of the header electric-principal, the limits of
// principals, and the users rows, made on first sight. It promises that a hook
// which fails, hangs, panics or talks nonsense refuses the request and never lets
// it in, that no credential is kept in the clear, and that our own claim, hold
// and write tokens are never shown to a hook. It knows nothing of routes, and
// ownership of things is for their handlers to compare.
package auth

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
	// Authorizers are asked in order, after the built-in rules, until one has an
	// opinion; see [Chain.May].
	Authorizers []contract.Authorizer
	// Policy says what authorizers' opinions count for.
	Policy Policy
	// Operators are not asked about by authorizers in the requests that Inspects
	// knows: they look at what is wrong with one that is down. Nil Inspects knows none.
	Operators []Principal
	Inspects  func(*http.Request) bool
	// Insecure lets a request without credentials act as whoever its header
	// electric-principal says, or as system:dev-local.
	Insecure bool
	// Near refuses requests without credentials that other sites' pages may have
	// sent; nil refuses none.
	Near *Near
	// Timeout bounds one hook's answer; zero means 5 s.
	Timeout time.Duration
	// MaxPending bounds the answers of one hook that are waited for at once, so
	// that a hook that hangs cannot pile up goroutines; zero means 1024.
	MaxPending int
	// MaxCache bounds how long any answer is remembered; zero means 5 min.
	MaxCache time.Duration
	// Limit is how many requests a principal may make.
	Limit Limit
	// Users may be nil: then no rows are made.
	Users Users
	Log   *slog.Logger
	// Registry gets the metrics; nil: nobody does.
	Registry prometheus.Registerer
	// Now is the clock; nil means the system's.
	Now func() time.Time
}

// Chain authenticates requests. It is safe for concurrent use.
type Chain struct {
	cfg    Config
	askers []*asker
	judges []*judge
	limits *limits

	mu   sync.Mutex
	seen map[seenKey]digest
}

type seenKey struct {
	service int32
	id      string
	// provider is the hook's: who comes by two of them is not written anew each time.
	provider string
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
	if cfg.MaxCache <= 0 {
		cfg.MaxCache = 5 * time.Minute
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Chain{cfg: cfg, limits: newLimits(cfg.Limit, cfg.Now), seen: map[seenKey]digest{}}
	counted := newVectors(cfg.Registry)
	for _, h := range cfg.Hooks {
		c.askers = append(c.askers, newAsker(h, &c.cfg, counted.of(h.Name(), "who")))
	}
	for _, a := range cfg.Authorizers {
		c.judges = append(c.judges, newJudge(a, &c.cfg, counted.of(a.Name(), "may")))
	}
	return c
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

// visit is what is known of a request already.
type visit struct {
	mu   sync.Mutex
	done bool
	p    Principal
	err  error
	// service is the name of the one that the request selects.
	service string
}

type visitKey struct{}

// Handler lets each request that next serves be asked about, counted and judged
// once, however often its handlers ask who it is.
func (c *Chain) Handler(next http.Handler) http.Handler {
	if len(c.judges) == 0 && c.limits == nil {
		return next // asking twice costs less than remembering
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitKey{}, &visit{})))
	})
}

// Authenticate says who the request acts as: whom the hooks name. The header
// electric-principal counts without hooks' credentials in `dev`, and beside those
// of a system principal, who acts as others. It is where requests are counted
// against the caller's limit, and where authorizers are asked about the route.
// Errors: INVALID_PRINCIPAL, UNAUTHENTICATED (credentials refused), UNAUTHORIZED
// (none shown), ORIGIN_FORBIDDEN, AUTH_UNAVAILABLE, RATE_LIMITED, FORBIDDEN.
func (c *Chain) Authenticate(r *http.Request) (Principal, error) {
	v, _ := r.Context().Value(visitKey{}).(*visit)
	if v == nil {
		return c.authenticate(r)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.done {
		v.p, v.err = c.authenticate(r)
		v.done, v.service = true, serviceOf(r)
	}
	return v.p, v.err
}

func (c *Chain) authenticate(r *http.Request) (Principal, error) {
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
	acts := p // the credentials decide; a name beside them that they do not cover counts for nothing
	switch {
	case p.IsZero() && c.cfg.Insecure && named.IsZero():
		acts = DevLocal
	case p.IsZero() && c.cfg.Insecure:
		acts = named
	case p.IsZero():
		what := "Credentials are missing."
		switch {
		case claims.IsToken(Bearer(r.Header)):
			what = "Authorization holds the token of a claim, which names nobody; it goes into the header electric-claim-token."
		case r.Header.Get("Authorization") != "":
			what = "Nobody is known by these credentials."
		}
		return Principal{}, problem.New(problem.Unauthorized, what+" Send Authorization: Bearer with a token of this server.").
			WithHeader("WWW-Authenticate", "Bearer")
	case p.Trusted() && !named.IsZero():
		acts = named
	}
	if err := c.limits.take(p); err != nil {
		return Principal{}, err
	}
	return acts, c.mayRoute(r, acts)
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

// Seen makes the users row of a person in a service on first sight, once a
// process and profile. Other kinds have no row.
func (c *Chain) Seen(ctx context.Context, service int32, p Principal) error {
	if p.Kind != User || c.cfg.Users == nil {
		return nil
	}
	key, now := seenKey{service, p.ID, p.Profile["auth_provider"]}, mark(p.Profile)
	c.mu.Lock()
	last, ok := c.seen[key]
	c.mu.Unlock()
	if ok && last == now {
		return nil
	}
	// Postgres holds no NUL, and a provider's claim may.
	field := func(name string) string {
		return strings.ReplaceAll(strings.ToValidUTF8(p.Profile[name], "\uFFFD"), "\x00", "")
	}
	_, err := c.cfg.Users.UserSeen(ctx, service, store.User{ID: p.ID, DisplayName: field("display_name"), Email: field("email"),
		AvatarURL: field("avatar_url"), AuthProvider: field("auth_provider"), AuthSubject: field("auth_subject")})
	if err != nil {
		return err
	}
	c.mu.Lock()
	if len(c.seen) >= maxSeen {
		c.seen = map[seenKey]digest{}
	}
	c.seen[key] = now
	c.mu.Unlock()
	return nil
}

// mark names what a hook has told of a principal, in a size that does not depend on it.
func mark(told ...map[string]string) digest {
	d := sha256.New()
	for _, m := range told {
		count(d, len(m))
		for _, k := range slices.Sorted(maps.Keys(m)) {
			part(d, []byte(k))
			part(d, []byte(m[k]))
		}
	}
	return digest(d.Sum(nil))
}
