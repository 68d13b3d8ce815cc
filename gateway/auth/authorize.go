package auth

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/plugins/contract"
)

// Policy says what authorizers' opinions count for.
type Policy struct {
	// MayGrant lets an authorizer's yes overrule the built-in rules' no. Without
	// it authorizers can only take away.
	MayGrant bool
	// DenyByDefault refuses what no authorizer has an opinion on, instead of
	// leaving it to the built-in rules.
	DenyByDefault bool
}

// maxRulings bounds what is remembered of one authorizer.
const maxRulings = 50_000

// May says whether a principal may do something, given what ownership and grants
// say. Authorizers are asked in order until one has an opinion. Errors:
// AUTH_UNAVAILABLE, when one fails.
func (c *Chain) May(ctx context.Context, p Principal, verb string, on contract.Resource, builtIn bool) (bool, error) {
	if len(c.judges) == 0 {
		return builtIn, nil
	}
	q := contract.Question{Principal: contract.Principal{Kind: p.Kind, ID: p.ID, Profile: p.Profile, Attributes: p.Attributes},
		Verb: verb, Resource: on, BuiltInAllowed: builtIn}
	key := question{p.Key(), mark(p.Profile, p.Attributes), verb, on, builtIn}
	for _, j := range c.judges {
		r, err := j.ask(ctx, q, key)
		if err != nil {
			c.cfg.Log.WarnContext(ctx, "authorizer failed", "hook", j.by.Name(), "error", err)
			return false, problem.Wrap(problem.AuthUnavailable, err, "Authorisation is not available. Try again.")
		}
		switch r.verdict {
		case contract.Deny:
			c.cfg.Log.DebugContext(ctx, "denied by an authorizer", "hook", j.by.Name(), "principal", p.Key(), "verb", verb, "kind", on.Kind, "resource", on.ID, "why", r.why)
			return false, nil
		case contract.Allow:
			return builtIn || c.cfg.Policy.MayGrant, nil
		}
	}
	return builtIn && !c.cfg.Policy.DenyByDefault, nil
}

// Judged says that there are authorizers: without any, asking [Chain.May] changes
// nothing.
func (c *Chain) Judged() bool { return len(c.judges) > 0 }

// Operates says that the settings name the principal as one of those who look
// after the gateway.
func (c *Chain) Operates(p Principal) bool {
	return slices.ContainsFunc(c.cfg.Operators, func(o Principal) bool { return o.Key() == p.Key() })
}

// Reading adds the authorizers' opinions to what readers say of the streams of
// entities that others own.
func (c *Chain) Reading(r *Readers) *Readers {
	if len(c.judges) == 0 {
		return r
	}
	return &Readers{db: r.db, seen: map[readerKey]time.Time{}, policy: c}
}

// mayReadAs asks about the read of an entity's streams by the principal of a
// request under way.
func (c *Chain) mayReadAs(ctx context.Context, url string, builtIn bool) (bool, error) {
	p, service := visitor(ctx)
	if p.IsZero() {
		return builtIn, nil
	}
	return c.May(ctx, p, "read", contract.Resource{Service: service, Kind: "entity", ID: url}, builtIn)
}

// serviceOf is the service that a request names.
func serviceOf(r *http.Request) string {
	if r.URL.RawQuery != "" {
		if s := r.URL.Query().Get("service"); s != "" {
			return s
		}
	}
	return store.DefaultService
}

// mayRoute asks about a request as such, whatever its handler compares later.
func (c *Chain) mayRoute(r *http.Request, p Principal) error {
	if len(c.judges) == 0 || c.cfg.Inspects != nil && c.Operates(p) && c.cfg.Inspects(r) {
		return nil
	}
	may := func(verb, path string) error {
		ok, err := c.May(r.Context(), p, verb, contract.Resource{Service: serviceOf(r), Kind: "route", ID: routeOf(path)}, true)
		if err == nil && !ok {
			err = problem.New(problem.Forbidden, "The policy of this gateway does not allow it.")
		}
		return err
	}
	verb := r.Method
	if verb == http.MethodHead {
		verb = http.MethodGet // it tells no less than a policy on reading means to keep
	}
	if err := may(verb, r.URL.Path); err != nil {
		return err
	}
	// A fork shows what its source holds: who makes one reads the source.
	for _, source := range r.Header["Stream-Forked-From"] {
		path, err := url.PathUnescape(source)
		if err != nil {
			continue // no path of a stream: the handler refuses it
		}
		if err := may(http.MethodGet, path); err != nil {
			return err
		}
	}
	return nil
}

// routeOf is a request's path under the one name that policies know: streams and
// subscriptions are also served below /v1/stream, and control routes with a slash
// behind them.
func routeOf(path string) string {
	if below, ok := strings.CutPrefix(path, "/v1/stream/"); ok {
		return "/" + below
	}
	if p := strings.TrimSuffix(path, "/"); p != "" {
		return p
	}
	return "/"
}

var errVerdict = errors.New("the authorizer gave an unknown verdict")

// question is what a ruling is remembered by.
type question struct {
	principal string
	told      digest // its profile and attributes
	verb      string
	on        contract.Resource
	builtIn   bool
}

// judge is an authorizer with what is remembered of it.
type judge struct {
	by         contract.Authorizer
	generation func() uint64
	cfg        *Config
	counts     *metrics
	slots      chan struct{}

	mu   sync.RWMutex
	seen map[question]ruling
	// revision names the rules of the newest answers, and turns counts them.
	revision string
	turns    uint64
}

type ruling struct {
	verdict contract.Verdict
	why     string // of a denial, for the log
	until   time.Time
	by      uint64 // the generation that was asked
	turn    uint64 // which of its rules it is by
}

func newJudge(by contract.Authorizer, cfg *Config, counts *metrics) *judge {
	return &judge{by: by, generation: generationOf(by), cfg: cfg, counts: counts, slots: make(chan struct{}, cfg.MaxPending), seen: map[question]ruling{}}
}

func (j *judge) ask(ctx context.Context, q contract.Question, key question) (ruling, error) {
	began, generation := j.cfg.Now(), j.generation()
	j.mu.RLock()
	got, ok := j.seen[key]
	turn := j.turns
	j.mu.RUnlock()
	if ok && got.by == generation && got.turn == turn && began.Before(got.until) {
		j.counts.remembered.Inc()
		return got, nil
	}
	start := time.Now()
	r, err := within(ctx, j.cfg.Timeout, j.slots, q, j.by.Authorize)
	j.counts.answered(start, r.Verdict, err)
	if err != nil {
		return ruling{verdict: contract.Deny}, err
	}
	switch r.Verdict {
	case contract.NoOpinion, contract.Allow, contract.Deny:
	default:
		return ruling{verdict: contract.Deny}, errVerdict
	}
	said := ruling{r.Verdict, r.Why, began.Add(min(r.CacheFor, j.cfg.MaxCache)), generation, turn}
	j.remember(key, said, r)
	return said, nil
}

// remember keeps a ruling for as long as it holds. One by other rules than those
// before ends what is remembered of them; one that was asked for before they changed
// says nothing about those that there are now.
func (j *judge) remember(key question, said ruling, r contract.Ruling) {
	if r.CacheFor <= 0 && r.Revision == "" {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if r.Revision != j.revision {
		if said.turn != j.turns {
			return
		}
		j.revision = r.Revision
		j.turns++
	}
	if r.CacheFor <= 0 {
		return
	}
	said.turn = j.turns
	makeRoom(j.seen, maxRulings, func(e ruling) bool { return !j.cfg.Now().Before(e.until) })
	j.seen[key] = said
}
