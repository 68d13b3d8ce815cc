package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/plugins/contract"
)

// remembered is a hook of bearer tokens "kind:id" whose answers hold for a while.
type remembered struct {
	names []string // nil: all fields count
	hold  time.Duration
	asked atomic.Int32
	slow  func()
	deny  atomic.Bool
	saw   atomic.Pointer[contract.Request]
}

func (*remembered) Name() string { return "remembered" }

func (h *remembered) Authenticate(_ context.Context, r contract.Request) (contract.Decision, error) {
	h.asked.Add(1)
	h.saw.Store(&r)
	if h.slow != nil {
		h.slow()
	}
	d := contract.Decision{CacheFor: h.hold}
	b := Bearer(r.Header)
	kind, id, ok := strings.Cut(b, ":")
	switch {
	case b == "":
	case !ok || h.deny.Load():
		d.Verdict = contract.Deny
	default:
		d.Verdict, d.Principal = contract.Allow, contract.Principal{Kind: kind, ID: id + r.Header.Get("X-Suffix")}
	}
	return d, nil
}

// some is a remembered that depends on some fields only.
type some struct{ *remembered }

func (s some) Headers() []string { return s.names }

// clock is one that tests move.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.at }

func (c *clock) forward(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.at = c.at.Add(d) }

func TestAnswersAreRememberedForAsLongAsTheHookSays(t *testing.T) {
	t.Parallel()
	clk := &clock{at: time.Now()}
	h := &remembered{hold: 10 * time.Second}
	c := New(Config{Hooks: []contract.AuthHook{h}, Now: clk.now})
	ask := func(want string, header ...string) {
		t.Helper()
		p, err := c.Authenticate(request(header...))
		got := p.Key()
		if err != nil {
			got = string(problem.CodeOf(err))
		}
		if got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	asked := func(want int32) {
		t.Helper()
		if n := h.asked.Swap(0); n != want {
			t.Fatalf("asked %d times, want %d", n, want)
		}
	}
	kyle := []string{"Authorization", "Bearer user:kyle"}
	ask("user:kyle", kyle...)
	ask("user:kyle", kyle...)
	asked(1)
	ask("user:kyle-x", append(kyle, "X-Suffix", "-x")...) // whatever the hook sees counts
	ask("user:ada", "Authorization", "Bearer user:ada")
	asked(2)
	ask("UNAUTHENTICATED", "Authorization", "Bearer junk")
	ask("UNAUTHENTICATED", "Authorization", "Bearer junk")
	ask("UNAUTHORIZED")
	ask("UNAUTHORIZED")
	asked(2)
	h.deny.Store(true) // revoked where the hook looks
	clk.forward(9 * time.Second)
	ask("user:kyle", kyle...)
	asked(0)
	clk.forward(time.Second)
	ask("UNAUTHENTICATED", kyle...)
	ask("UNAUTHENTICATED", kyle...)
	asked(1)
	h.deny.Store(false)
	clk.forward(10 * time.Second)
	ask("user:kyle", kyle...)

	h.hold = time.Hour // the gateway has a limit of its own
	clk.forward(10 * time.Second)
	ask("user:kyle", kyle...)
	h.asked.Store(0)
	clk.forward(5 * time.Minute)
	ask("user:kyle", kyle...)
	asked(1)

	for key := range c.askers[0].let {
		if strings.Contains(string(key[:]), "kyle") {
			t.Error("a credential is kept")
		}
	}
}

func TestOnlyTheFieldsThatCountAreShownAndRememberedBy(t *testing.T) {
	t.Parallel()
	h := &remembered{hold: time.Minute, names: []string{"authorization"}}
	c := New(Config{Hooks: []contract.AuthHook{some{h}}})
	for i := range 5 {
		p, err := c.Authenticate(request("Authorization", "Bearer user:kyle", "X-Suffix", fmt.Sprint(i), "Cookie", "secret"))
		if err != nil || p.Key() != "user:kyle" {
			t.Fatal(p.Key(), err)
		}
	}
	if n := h.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	if saw := h.saw.Load(); len(saw.Header) != 1 {
		t.Errorf("the hook saw %v", saw.Header)
	}
	// Nor is a token of ours shown that stands beside credentials.
	if p, err := c.Authenticate(request("Authorization", "Bearer user:ada", "Authorization", "bearer rouse_wt_x")); err != nil || p.Key() != "user:ada" {
		t.Fatal(p.Key(), err)
	}
	if saw := h.saw.Load(); len(saw.Header["Authorization"]) != 1 {
		t.Errorf("the hook saw %v", saw.Header)
	}
}

func TestEqualQuestionsShareAnAnswerUnlessNothingIsToBeRemembered(t *testing.T) {
	t.Parallel()
	for _, hold := range []time.Duration{time.Minute, 0} {
		go0, in := make(chan struct{}), make(chan struct{}, 100)
		h := &remembered{hold: hold}
		c := New(Config{Hooks: []contract.AuthHook{h}})
		if _, err := c.Authenticate(request("Authorization", "Bearer user:first")); err != nil {
			t.Fatal(err) // now it is known whether it lets answers be remembered
		}
		h.asked.Store(0)
		h.slow = func() { in <- struct{}{}; <-go0 }
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if p, err := c.Authenticate(request("Authorization", "Bearer user:kyle")); err != nil || p.Key() != "user:kyle" {
					t.Error(p.Key(), err)
				}
			})
		}
		want := int32(20)
		if hold > 0 {
			want = 1
		}
		for range want {
			<-in
		}
		// One that is cut off neither waits nor takes the answer from the others.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Authenticate(request("Authorization", "Bearer user:kyle").WithContext(ctx)); problem.CodeOf(err) != problem.AuthUnavailable {
			t.Error(err)
		}
		close(go0)
		all.Wait()
		if n := h.asked.Load(); n < want || n > want+1 {
			t.Errorf("hold %v: asked %d times, want %d", hold, n, want)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	m := map[int]time.Time{}
	for i := range 10 {
		m[i] = now.Add(time.Duration(i-5) * time.Second)
	}
	makeRoom(m, 10, func(at time.Time) bool { return !now.Before(at) })
	if len(m) != 4 || m[9].IsZero() {
		t.Errorf("what is over did not go first: %v", m)
	}
	for i := range 6 {
		m[i+20] = now.Add(time.Hour)
	}
	makeRoom(m, 10, func(time.Time) bool { return false })
	if len(m) >= 8 {
		t.Errorf("%d are left", len(m))
	}
}

// What a slow hook costs falls on those it does not know yet.
func TestASlowHookDoesNotSlowWhoIsKnown(t *testing.T) {
	t.Parallel()
	rate := func(slow bool) float64 {
		h := &remembered{hold: time.Hour}
		c := New(Config{Hooks: []contract.AuthHook{h}})
		known := request("Authorization", "Bearer user:kyle")
		if _, err := c.Authenticate(known); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		var strangers sync.WaitGroup
		if slow {
			h.slow = func() { <-time.After(50 * time.Millisecond) }
			for i := range 16 {
				strangers.Go(func() {
					for n := 0; ; n++ {
						select {
						case <-stop:
							return
						default:
						}
						if _, err := c.Authenticate(request("Authorization", fmt.Sprintf("Bearer user:%d-%d", i, n))); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		const n = 20_000
		began := time.Now()
		for range n {
			if _, err := c.Authenticate(known); err != nil {
				t.Fatal(err)
			}
		}
		took := time.Since(began)
		close(stop)
		strangers.Wait()
		return n / took.Seconds()
	}
	// The best of several, so that what else the machine does does not count.
	var alone, beside float64
	for range 5 {
		alone, beside = max(alone, rate(false)), max(beside, rate(true))
	}
	t.Logf("%.0f/s alone, %.0f/s beside 16 strangers and a hook of 50 ms", alone, beside)
	if beside < alone/3 {
		t.Errorf("known principals slow from %.0f/s to %.0f/s", alone, beside)
	}
}

func TestRequestsArePerPrincipal(t *testing.T) {
	t.Parallel()
	clk := &clock{at: time.Now()}
	c := New(Config{Hooks: []contract.AuthHook{tokens}, Limit: Limit{PerSecond: 2, Burst: 3}, Now: clk.now})
	served := func(who string) (n int, last error) {
		h := c.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			for range 3 { // however often a handler asks, a request is one
				if _, last = c.Authenticate(r); last != nil {
					return
				}
			}
			n++
		}))
		for range 10 {
			h.ServeHTTP(httptest.NewRecorder(), request("Authorization", "Bearer "+who))
		}
		return n, last
	}
	n, err := served("user:kyle")
	if n != 3 || problem.CodeOf(err) != problem.RateLimited || problem.From(err).RetryAfter != 500*time.Millisecond || problem.From(err).Status() != 429 {
		t.Errorf("%d were served, then %v", n, err)
	}
	if n, _ := served("user:ada"); n != 3 {
		t.Errorf("one principal's requests count for another: %d", n)
	}
	if n, err := served("system:framework"); n != 10 || err != nil {
		t.Errorf("the system is limited: %d %v", n, err)
	}
	clk.forward(time.Second)
	if n, _ := served("user:kyle"); n != 2 {
		t.Errorf("after a second %d are served", n)
	}
}

// judgement is an authorizer for tests.
type judgement func(contract.Question) (contract.Ruling, error)

func (judgement) Name() string { return "judgement" }

func (j judgement) Authorize(_ context.Context, q contract.Question) (contract.Ruling, error) {
	return j(q)
}

func TestWhatAuthorizersCountFor(t *testing.T) {
	t.Parallel()
	say := func(v contract.Verdict) judgement {
		return func(contract.Question) (contract.Ruling, error) { return contract.Ruling{Verdict: v}, nil }
	}
	for _, tc := range []struct {
		name    string
		by      []contract.Authorizer
		policy  Policy
		builtIn bool
		want    bool
		fails   bool
	}{
		{"none, built-in yes", nil, Policy{}, true, true, false},
		{"none, built-in no", nil, Policy{MayGrant: true}, false, false, false},
		{"deny takes away", []contract.Authorizer{say(contract.Deny)}, Policy{}, true, false, false},
		{"allow grants nothing", []contract.Authorizer{say(contract.Allow)}, Policy{}, false, false, false},
		{"allow grants where it may", []contract.Authorizer{say(contract.Allow)}, Policy{MayGrant: true}, false, true, false},
		{"no opinion leaves it to the rules", []contract.Authorizer{say(contract.NoOpinion)}, Policy{MayGrant: true}, true, true, false},
		{"no opinion, denied by default", []contract.Authorizer{say(contract.NoOpinion)}, Policy{DenyByDefault: true}, true, false, false},
		{"the first opinion counts", []contract.Authorizer{say(contract.NoOpinion), say(contract.Allow), say(contract.Deny)}, Policy{}, true, true, false},
		{"failure refuses", []contract.Authorizer{judgement(func(contract.Question) (contract.Ruling, error) {
			return contract.Ruling{Verdict: contract.Allow}, errors.New("boom")
		})}, Policy{MayGrant: true}, true, false, true},
		{"panic refuses", []contract.Authorizer{judgement(func(contract.Question) (contract.Ruling, error) { panic("boom") })}, Policy{}, true, false, true},
		{"nonsense refuses", []contract.Authorizer{say(77)}, Policy{MayGrant: true}, true, false, true},
	} {
		c := New(Config{Authorizers: tc.by, Policy: tc.policy})
		got, err := c.May(t.Context(), Principal{Kind: User, ID: "kyle"}, "read", contract.Resource{Kind: "entity", ID: "/a/b"}, tc.builtIn)
		if got != tc.want || (problem.CodeOf(err) == problem.AuthUnavailable) != tc.fails {
			t.Errorf("%s: %v %v", tc.name, got, err)
		}
	}
}

// Why an authorizer denies is for the log, also when it is remembered.
func TestWhySomethingIsDeniedIsForTheLog(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	c := New(Config{Log: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Authorizers: []contract.Authorizer{judgement(func(contract.Question) (contract.Ruling, error) {
			return contract.Ruling{Verdict: contract.Deny, Why: "not on a Sunday", CacheFor: time.Minute}, nil
		})}})
	for range 2 {
		if ok, err := c.May(t.Context(), Principal{Kind: User, ID: "kyle"}, "read", contract.Resource{Kind: "entity", ID: "/a/b"}, true); ok || err != nil {
			t.Error(ok, err)
		}
	}
	if n := strings.Count(said.String(), `why="not on a Sunday"`); n != 2 {
		t.Errorf("said %d times: %s", n, said.String())
	}
}

func TestRulingsAreRememberedByAllThatIsAsked(t *testing.T) {
	t.Parallel()
	clk := &clock{at: time.Now()}
	var asked atomic.Int32
	c := New(Config{Hooks: []contract.AuthHook{tokens}, Now: clk.now, Authorizers: []contract.Authorizer{judgement(func(q contract.Question) (contract.Ruling, error) {
		asked.Add(1)
		v := contract.NoOpinion
		if q.Resource.Kind == "route" && q.Verb == http.MethodDelete || q.Principal.Attributes["team"] == "red" || q.Principal.Profile["email"] == "red" || !q.BuiltInAllowed {
			v = contract.Deny
		}
		return contract.Ruling{Verdict: v, CacheFor: time.Second}, nil
	})}})
	kyle, red := Principal{Kind: User, ID: "kyle"}, Principal{Kind: User, ID: "kyle", Attributes: map[string]string{"team": "red"}}
	thing := contract.Resource{Service: "default", Kind: "entity", ID: "/a/b"}
	mail := Principal{Kind: User, ID: "kyle", Profile: map[string]string{"email": "red"}}
	both := Principal{Kind: User, ID: "kyle", Attributes: map[string]string{"a": "1", "team": "red"}}
	alike := Principal{Kind: User, ID: "kyle", Attributes: map[string]string{"a": "1\x00team=red"}}
	for range 3 {
		for i, q := range []struct {
			p       Principal
			verb    string
			builtIn bool
			want    bool
		}{{kyle, "read", true, true}, {red, "read", true, false}, {mail, "read", true, false}, {both, "read", true, false}, {alike, "read", true, true}, {kyle, "read", false, false}, {kyle, "write", true, true}} {
			if got, err := c.May(t.Context(), q.p, q.verb, thing, q.builtIn); err != nil || got != q.want {
				t.Errorf("%d: %v %v", i, got, err)
			}
		}
	}
	if asked.Load() != 7 {
		t.Errorf("asked %d times", asked.Load())
	}
	clk.forward(time.Second)
	if _, err := c.May(t.Context(), kyle, "read", thing, true); err != nil || asked.Load() != 8 {
		t.Errorf("a ruling outlived its time: %v, asked %d times", err, asked.Load())
	}
	r := request("Authorization", "Bearer user:kyle")
	if _, err := c.Authenticate(r); err != nil {
		t.Error(err)
	}
	r.Method = http.MethodDelete
	if _, err := c.Authenticate(r); problem.CodeOf(err) != problem.Forbidden {
		t.Errorf("the route is not judged: %v", err)
	}
}

// A route is judged under one name, whatever way leads to it.
func TestARouteHasOneName(t *testing.T) {
	t.Parallel()
	var asked string
	c := New(Config{Insecure: true, Authorizers: []contract.Authorizer{judgement(func(q contract.Question) (contract.Ruling, error) {
		asked = q.Resource.ID
		return contract.Ruling{}, nil
	})}})
	for target, want := range map[string]string{
		"/": "/", "/notes": "/notes", "/v1/stream/notes": "/notes", "/v1/stream/a%2Fb": "/a/b", "/v1/stream/__ds/subscriptions/s": "/__ds/subscriptions/s",
		"/_electric/entities/chat/1/": "/_electric/entities/chat/1", "/_electric/entities/": "/_electric/entities", "/v1/streams": "/v1/streams",
	} {
		if _, err := c.Authenticate(httptest.NewRequest("GET", target, nil)); err != nil || asked != want {
			t.Errorf("%s is judged as %s, want %s (%v)", target, asked, want, err)
		}
	}
}

// A policy that lets nobody read a stream means its HEAD too.
func TestAHeadIsJudgedAsARead(t *testing.T) {
	t.Parallel()
	c := New(Config{Insecure: true, Authorizers: []contract.Authorizer{judgement(func(q contract.Question) (contract.Ruling, error) {
		if q.Verb == "GET" {
			return contract.Ruling{Verdict: contract.Deny}, nil
		}
		return contract.Ruling{}, nil
	})}})
	for method, want := range map[string]problem.Code{"GET": problem.Forbidden, "HEAD": problem.Forbidden, "PUT": ""} {
		if _, err := c.Authenticate(httptest.NewRequest(method, "/private/a", nil)); problem.CodeOf(err) != want {
			t.Errorf("%s: %v", method, err)
		}
	}
}

// Who forks a stream reads it: under whatever name the source is given, its path is asked about too.
func TestAForkIsAReadOfItsSource(t *testing.T) {
	t.Parallel()
	c := New(Config{Insecure: true, Authorizers: []contract.Authorizer{judgement(func(q contract.Question) (contract.Ruling, error) {
		if q.Verb == "GET" && q.Resource.ID == "/private/a" {
			return contract.Ruling{Verdict: contract.Deny}, nil
		}
		return contract.Ruling{}, nil
	})}})
	for source, want := range map[string]problem.Code{
		"/public": "", "/private/a": problem.Forbidden, "/v1/stream/private/a": problem.Forbidden, "/private%2Fa": problem.Forbidden, "%2Fv1/stream/%70rivate/a": problem.Forbidden,
	} {
		r := httptest.NewRequest("PUT", "/copy", nil)
		r.Header.Set("Stream-Forked-From", source)
		_, err := c.Authenticate(r)
		if (want == "") != (err == nil) || err != nil && problem.CodeOf(err) != want {
			t.Errorf("%s: %v, want %q", source, err, want)
		}
	}
}

func TestWhatHooksSayIsCounted(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	h := &remembered{hold: time.Minute}
	c := New(Config{Hooks: []contract.AuthHook{h}, Registry: reg, Authorizers: []contract.Authorizer{judgement(func(contract.Question) (contract.Ruling, error) {
		return contract.Ruling{}, errors.New("boom")
	})}})
	for _, token := range []string{"user:kyle", "user:kyle", "user:kyle", "junk"} {
		if _, err := c.Authenticate(request("Authorization", "Bearer "+token)); err == nil {
			t.Error("a failing authorizer lets somebody in")
		}
	}
	got, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, f := range got {
		for _, m := range f.Metric {
			if f.GetName() == "rouse_auth_answers_total" && m.GetCounter().GetValue() > 0 {
				var l []string
				for _, p := range m.Label {
					l = append(l, p.GetValue())
				}
				counted[strings.Join(l, " ")] = m.GetCounter().GetValue()
			}
		}
	}
	want := map[string]float64{"allow remembered who": 1, "remembered remembered who": 2, "deny remembered who": 1, "failure judgement may": 3}
	if !maps.Equal(counted, want) {
		t.Errorf("%v, want %v", counted, want)
	}
}

func BenchmarkAuthenticateKnown(b *testing.B) {
	h := &remembered{hold: time.Hour, names: []string{"Authorization"}}
	c := New(Config{Hooks: []contract.AuthHook{some{h}}, Authorizers: []contract.Authorizer{judgement(func(contract.Question) (contract.Ruling, error) {
		return contract.Ruling{Verdict: contract.Allow, CacheFor: time.Hour}, nil
	})}})
	r := request("Authorization", "Bearer user:kyle")
	for b.Loop() {
		if _, err := c.Authenticate(r); err != nil {
			b.Fatal(err)
		}
	}
}
