package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/plugins/contract"
)

// maxAnswers bounds the answers of one hook that let somebody in, and those that
// do not, each: who tries many wrong credentials pushes nobody else's out.
const maxAnswers = 20_000

// maxTold bounds a principal's profile and attributes together, in bytes.
const maxTold = 32 << 10

func size(m map[string]string) (n int) {
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}

// ask runs the hooks; the zero Principal means that none had an opinion.
func (c *Chain) ask(r *http.Request) (Principal, error) {
	if len(c.askers) == 0 {
		return Principal{}, nil
	}
	var cert []byte
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		cert = r.TLS.VerifiedChains[0][0].Raw
	}
	for _, a := range c.askers {
		got, err := a.ask(r.Context(), r.Header, cert)
		if err != nil {
			c.cfg.Log.WarnContext(r.Context(), "auth hook failed", "hook", a.hook.Name(), "error", err)
			return Principal{}, problem.Wrap(problem.AuthUnavailable, err, "Authentication is not available. Try again.")
		}
		switch got.verdict {
		case contract.Deny:
			c.cfg.Log.DebugContext(r.Context(), "credentials refused", "hook", a.hook.Name(), "why", got.why)
			return Principal{}, problem.New(problem.Unauthenticated, "The credentials are not valid. Get a new token.").
				WithHeader("WWW-Authenticate", `Bearer error="invalid_token"`)
		case contract.Allow:
			return got.p, nil
		}
	}
	return Principal{}, nil
}

// digest names what an answer depends on. It is made with a secret of the process
// and kept in place of credentials.
type digest [sha256.Size]byte

// Generational is a hook or an authorizer that becomes another one now and then,
// as when its settings change.
type Generational interface {
	// Generation is another number after each change, never one that was. It is
	// asked for at each request and takes no time.
	Generation() uint64
}

// generationOf gives what v says, always the same if it says nothing.
func generationOf(v any) func() uint64 {
	if g, ok := v.(Generational); ok {
		return g.Generation
	}
	return func() uint64 { return 0 }
}

// WithoutSystem is h for a [Chain], but whoever it takes for a system principal is
// refused: those pass every check of ownership.
func WithoutSystem(h contract.AuthHook) contract.AuthHook { return withoutSystem{h} }

type withoutSystem struct{ contract.AuthHook }

// answer is what a hook said.
type answer struct {
	p       Principal
	verdict contract.Verdict
	why     string    // of a refusal, for the log
	until   time.Time // not to be used from then on
	by      uint64    // the generation that was asked
}

// inquiry is what requests that wait for one answer have in common.
type inquiry struct {
	key digest
	by  uint64
}

// asker is a hook with what is remembered of it.
type asker struct {
	hook       contract.AuthHook
	noSystem   bool
	generation func() uint64
	headers    []string // nil: all
	cfg        *Config
	counts     *metrics
	salt       [16]byte
	slots      chan struct{}
	// remembers says that the hook has let an answer be remembered.
	remembers atomic.Bool

	mu      sync.RWMutex
	let     map[digest]answer
	refused map[digest]answer // and no opinions
	pending map[inquiry]*call
}

// call is an answer that is waited for.
type call struct {
	done chan struct{}
	a    answer
	err  error
}

func newAsker(h contract.AuthHook, cfg *Config, counts *metrics) *asker {
	bounded, noSystem := h.(withoutSystem)
	if noSystem {
		h = bounded.AuthHook
	}
	a := &asker{hook: h, noSystem: noSystem, generation: generationOf(h), cfg: cfg, counts: counts, slots: make(chan struct{}, cfg.MaxPending),
		let: map[digest]answer{}, refused: map[digest]answer{}, pending: map[inquiry]*call{}}
	_, _ = rand.Read(a.salt[:]) // never fails: crypto/rand ends the process instead
	if r, ok := h.(contract.HeaderReader); ok {
		a.headers = []string{}
		for _, name := range r.Headers() {
			a.headers = append(a.headers, http.CanonicalHeaderKey(name))
		}
	}
	return a
}

// ask gives the hook's answer, from memory where it may. Equal questions that
// come while one is answered share the answer, if it may be remembered at all.
func (a *asker) ask(ctx context.Context, h http.Header, cert []byte) (answer, error) {
	// Before it is asked: what it said before a change must not count after it.
	by := a.generation()
	if !a.remembers.Load() {
		return a.put(ctx, h, cert, nil, by)
	}
	key, now := a.key(h, cert), a.cfg.Now()
	a.mu.RLock()
	got, ok := a.let[key]
	if !ok {
		got, ok = a.refused[key]
	}
	a.mu.RUnlock()
	if ok && got.by == by && now.Before(got.until) {
		a.counts.remembered.Inc()
		return got, nil
	}
	a.mu.Lock()
	same := inquiry{key, by}
	c := a.pending[same]
	if c == nil {
		c = &call{done: make(chan struct{})}
		a.pending[same] = c
		// It goes on for the others when this request is cut off.
		shared := context.WithoutCancel(ctx)
		a.mu.Unlock()
		go func() {
			c.a, c.err = a.put(shared, h, cert, &key, by)
			a.mu.Lock()
			delete(a.pending, same)
			a.mu.Unlock()
			close(c.done)
		}()
	} else {
		a.mu.Unlock()
	}
	select {
	case <-c.done:
		return c.a, c.err
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

// key is the digest of all that the hook is shown.
func (a *asker) key(h http.Header, cert []byte) digest {
	d := sha256.New()
	d.Write(a.salt[:])
	part(d, cert)
	names := a.headers
	if names == nil {
		names = slices.Sorted(maps.Keys(h))
	}
	for _, name := range names {
		if values := shown(h, name); len(values) > 0 {
			part(d, []byte(name))
			count(d, len(values))
			for _, v := range values {
				part(d, []byte(v))
			}
		}
	}
	return digest(d.Sum(nil))
}

func part(d hash.Hash, b []byte) {
	count(d, len(b))
	d.Write(b)
}

func count(d hash.Hash, n int) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	d.Write(b[:])
}

// shown are a field's values that hooks may see: not our own tokens.
func shown(h http.Header, name string) []string {
	switch name {
	case HeaderClaimToken:
		return nil
	case "Authorization":
		ours := func(v string) bool { return claims.IsToken(Bearer(http.Header{name: {v}})) }
		if slices.ContainsFunc(h[name], ours) {
			return slices.DeleteFunc(slices.Clone(h[name]), ours)
		}
	}
	return h[name]
}

// request is the hook's copy of what it is shown.
func (a *asker) request(h http.Header, cert []byte) contract.Request {
	names := a.headers
	if names == nil {
		names = slices.Collect(maps.Keys(h))
	}
	out := make(http.Header, len(names))
	for _, name := range names {
		if values := shown(h, name); len(values) > 0 {
			out[name] = slices.Clone(values)
		}
	}
	return contract.Request{Header: out, Certificate: cert}
}

// put asks the hook and waits no longer than the timeout, whether the hook looks
// at its context or not; what may be remembered is.
func (a *asker) put(ctx context.Context, h http.Header, cert []byte, key *digest, by uint64) (answer, error) {
	began, start := a.cfg.Now(), time.Now()
	got, err := within(ctx, a.cfg.Timeout, a.slots, a.request(h, cert), a.hook.Authenticate)
	a.counts.answered(start, got.Verdict, err)
	if err != nil {
		return answer{}, err
	}
	out := answer{verdict: got.Verdict, why: got.Why, by: by}
	switch got.Verdict {
	case contract.NoOpinion, contract.Deny:
	case contract.Allow:
		p, err := Parse(got.Principal.Key())
		if err != nil {
			return answer{}, errors.New("the hook named a malformed principal")
		}
		p.Profile, p.Attributes = got.Principal.Profile, got.Principal.Attributes
		if size(p.Profile)+size(p.Attributes) > maxTold {
			return answer{}, errors.New("the hook tells more of a principal than is kept")
		}
		out.p = p
		if a.noSystem && p.Kind == System {
			out = answer{verdict: contract.Deny, why: "the hook names a system principal, and allow_system is not set for it", by: by}
			a.cfg.Log.WarnContext(ctx, "a hook names a system principal, which only one with allow_system: true may; the request is refused", "hook", a.hook.Name())
		}
	default:
		return answer{}, fmt.Errorf("the hook gave the unknown verdict %d", got.Verdict)
	}
	if got.CacheFor <= 0 {
		return out, nil
	}
	a.remembers.Store(true)
	out.until = began.Add(min(got.CacheFor, a.cfg.MaxCache))
	if key == nil {
		k := a.key(h, cert)
		key = &k
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	to := a.refused
	if out.verdict == contract.Allow {
		to = a.let
		delete(a.refused, *key)
	} else {
		delete(a.let, *key)
	}
	makeRoom(to, maxAnswers, func(e answer) bool { return !a.cfg.Now().Before(e.until) })
	to[*key] = out
	return out, nil
}

// makeRoom keeps a memory below its bound: first what is over goes, then
// whatever comes first.
func makeRoom[K comparable, V any](m map[K]V, bound int, over func(V) bool) {
	if len(m) < bound {
		return
	}
	maps.DeleteFunc(m, func(_ K, v V) bool { return over(v) })
	for k := range m {
		if len(m) < bound*3/4 {
			return
		}
		delete(m, k)
	}
}

// within calls f and waits no longer than the timeout, whether f looks at its
// context or not. A panic is an error. What has not come back holds its slot.
func within[Q, A any](ctx context.Context, timeout time.Duration, slots chan struct{}, q Q, f func(context.Context, Q) (A, error)) (A, error) {
	var none A
	select {
	case slots <- struct{}{}:
	default:
		return none, errors.New("too many answers are waited for")
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type outcome struct {
		a   A
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		defer func() { <-slots }()
		var o outcome
		defer func() {
			if v := recover(); v != nil {
				o = outcome{err: fmt.Errorf("the hook panicked: %v", v)}
			}
			done <- o
		}()
		o.a, o.err = f(ctx, q)
	}()
	select {
	case o := <-done:
		return o.a, o.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
