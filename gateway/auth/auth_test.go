package auth

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/plugins/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type hookFunc func(ctx context.Context, h http.Header) (contract.Principal, contract.Verdict, error)

func (hookFunc) Name() string { return "fake" }

func (f hookFunc) Authenticate(ctx context.Context, r contract.Request) (contract.Decision, error) {
	p, v, err := f(ctx, r.Header)
	return contract.Decision{Principal: p, Verdict: v}, err
}

// tokens lets a bearer token act as the principal it spells.
var tokens = hookFunc(func(_ context.Context, h http.Header) (contract.Principal, contract.Verdict, error) {
	b := Bearer(h)
	if b == "" {
		return contract.Principal{}, contract.NoOpinion, nil
	}
	kind, id, ok := strings.Cut(b, ":")
	if !ok {
		return contract.Principal{}, contract.Deny, nil
	}
	return contract.Principal{Kind: kind, ID: id}, contract.Allow, nil
})

func request(header ...string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func TestWhoARequestActsAs(t *testing.T) {
	t.Parallel()
	dev, serve := New(Config{Insecure: true}), New(Config{Hooks: []contract.AuthHook{tokens}})
	devTokens := New(Config{Insecure: true, Hooks: []contract.AuthHook{tokens}})
	for _, tc := range []struct {
		name   string
		chain  *Chain
		header []string
		want   string // key, or a code
	}{
		{"dev: nothing", dev, nil, "system:dev-local"},
		{"dev: any bearer", dev, []string{"Authorization", "Bearer x"}, "system:dev-local"},
		{"dev: named", dev, []string{"electric-principal", "user:kyle"}, "user:kyle"},
		{"dev: named by url", dev, []string{"electric-principal", "/principal/user%3Akyle%40home"}, "user:kyle@home"},
		{"dev: malformed", dev, []string{"electric-principal", "kyle"}, "INVALID_PRINCIPAL"},
		{"dev: empty header", dev, []string{"electric-principal", ""}, "INVALID_PRINCIPAL"},
		{"dev: twice", dev, []string{"electric-principal", "user:a", "electric-principal", "user:b"}, "INVALID_PRINCIPAL"},
		{"dev with tokens: nothing", devTokens, nil, "system:dev-local"},
		{"dev with tokens: a wrong one", devTokens, []string{"Authorization", "Bearer wrong"}, "UNAUTHENTICATED"},
		{"serve: nothing", serve, nil, "UNAUTHORIZED"},
		{"serve: a name is no credential", serve, []string{"electric-principal", "user:kyle"}, "UNAUTHORIZED"},
		{"serve: not even system", serve, []string{"electric-principal", "system:dev-local"}, "UNAUTHORIZED"},
		{"serve: token", serve, []string{"Authorization", "Bearer user:kyle"}, "user:kyle"},
		{"serve: lower-case scheme", serve, []string{"Authorization", "bearer user:kyle"}, "user:kyle"},
		{"serve: wrong token", serve, []string{"Authorization", "Bearer junk"}, "UNAUTHENTICATED"},
		{"serve: token and same name", serve, []string{"Authorization", "Bearer user:kyle", "electric-principal", "user:kyle"}, "user:kyle"},
		{"serve: token and another name", serve, []string{"Authorization", "Bearer user:kyle", "electric-principal", "user:ada"}, "user:kyle"},
		{"serve: no rising to system", serve, []string{"Authorization", "Bearer user:kyle", "electric-principal", "system:framework"}, "user:kyle"},
		{"serve: system acts as others", serve, []string{"Authorization", "Bearer system:framework", "electric-principal", "user:ada"}, "user:ada"},
		{"serve: an unknown system is not trusted", serve, []string{"Authorization", "Bearer system:mine", "electric-principal", "user:ada"}, "system:mine"},
		{"serve: claim token is no credential", serve, []string{"Authorization", "Bearer rouse_ct_abc"}, "UNAUTHORIZED"},
		{"serve: write token beside a name", serve, []string{"Authorization", "Bearer rouse_wt_user:x"}, "UNAUTHORIZED"},
		{"serve: malformed name beats a good token", serve, []string{"Authorization", "Bearer user:kyle", "electric-principal", "root"}, "INVALID_PRINCIPAL"},
	} {
		p, err := tc.chain.Authenticate(request(tc.header...))
		got := p.Key()
		if err != nil {
			got = string(problem.CodeOf(err))
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestAHookThatFailsRefuses(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	for name, hook := range map[string]hookFunc{
		"error": func(context.Context, http.Header) (contract.Principal, contract.Verdict, error) {
			return contract.Principal{Kind: "user", ID: "x"}, contract.Allow, errors.New("boom")
		},
		"panic": func(context.Context, http.Header) (contract.Principal, contract.Verdict, error) { panic("boom") },
		"hang": func(context.Context, http.Header) (contract.Principal, contract.Verdict, error) {
			<-release
			return contract.Principal{Kind: "user", ID: "x"}, contract.Allow, nil
		},
		"lie": func(context.Context, http.Header) (contract.Principal, contract.Verdict, error) {
			return contract.Principal{Kind: "root", ID: "x"}, contract.Allow, nil
		},
		"nonsense": func(context.Context, http.Header) (contract.Principal, contract.Verdict, error) {
			return contract.Principal{Kind: "user", ID: "x"}, 77, nil
		},
	} {
		c := New(Config{Insecure: true, Hooks: []contract.AuthHook{hook}, Timeout: 20 * time.Millisecond})
		if _, err := c.Authenticate(request()); problem.CodeOf(err) != problem.AuthUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type refusing struct{ hookFunc }

func (refusing) Authenticate(context.Context, contract.Request) (contract.Decision, error) {
	return contract.Decision{Verdict: contract.Deny, Why: "it has expired"}, nil
}

// Why credentials are refused is for the operator's log; the caller, who may be
// guessing, is not told. One who is known by none is not told that they are missing.
func TestWhyCredentialsAreRefusedIsForTheLog(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	c := New(Config{Hooks: []contract.AuthHook{refusing{}}, Log: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	_, err := c.Authenticate(request("Authorization", "Bearer x"))
	if problem.CodeOf(err) != problem.Unauthenticated || strings.Contains(err.Error(), "expired") || !strings.Contains(said.String(), `why="it has expired"`) {
		t.Errorf("%v, logged %s", err, said.String())
	}
	for credentials, want := range map[string]string{
		"": "Credentials are missing.", "Basic x": "Nobody is known by these credentials.",
		"Bearer rouse_wt_x": "it goes into the header electric-claim-token. Send Authorization", "bearer rouse_ct_x": "it goes into the header electric-claim-token.",
	} {
		_, err := New(Config{Hooks: []contract.AuthHook{tokens}}).Authenticate(request("Authorization", credentials))
		if problem.CodeOf(err) != problem.Unauthorized || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", credentials, err)
		}
	}
}

func TestHungAnswersAreBounded(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	c := New(Config{MaxPending: 2, Timeout: 5 * time.Millisecond, Hooks: []contract.AuthHook{
		hookFunc(func(context.Context, http.Header) (contract.Principal, contract.Verdict, error) {
			<-release
			return contract.Principal{}, contract.NoOpinion, nil
		})}})
	for range 5 {
		if _, err := c.Authenticate(request()); problem.CodeOf(err) != problem.AuthUnavailable {
			t.Fatal(err)
		}
	}
	if n := len(c.askers[0].slots); n != 2 {
		t.Fatalf("%d goroutines hang", n)
	}
}

func TestHooksNeverSeeOurTokens(t *testing.T) {
	t.Parallel()
	var saw http.Header
	c := New(Config{Insecure: true, Hooks: []contract.AuthHook{hookFunc(func(_ context.Context, h http.Header) (contract.Principal, contract.Verdict, error) {
		saw = h
		return contract.Principal{}, contract.NoOpinion, nil
	})}})
	for _, tok := range []string{"rouse_ct_1", "rouse_ht_1", "rouse_wt_1"} {
		r := request("Authorization", "Bearer "+tok, "Electric-Claim-Token", tok, "X-Other", "1")
		if _, err := c.Authenticate(r); err != nil {
			t.Fatal(err)
		}
		if saw.Get("Authorization") != "" || saw.Get("Electric-Claim-Token") != "" || saw.Get("X-Other") != "1" {
			t.Errorf("the hook saw %v", saw)
		}
		if ClaimToken(r.Header) != tok {
			t.Errorf("the request lost its token: %q", ClaimToken(r.Header))
		}
	}
	if got := ClaimToken(request("Authorization", "Bearer rouse_wt_b", "electric-claim-token", "a").Header); got != "a" {
		t.Errorf("the claim header does not win: %q", got)
	}
	if got := ClaimToken(request("Authorization", "Bearer user-token").Header); got != "" {
		t.Errorf("a user's token was taken for ours: %q", got)
	}
}

func TestPrincipalForms(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ in, url string }{
		{"user:kyle", "/principal/user%3Akyle"},
		{"agent:a b", "/principal/agent%3Aa%20b"},
		{"user:é!'()*~", "/principal/user%3A%C3%A9!'()*~"},
		{"service:x:y", "/principal/service%3Ax%3Ay"},
	} {
		p, err := Parse(tc.in)
		if err != nil || p.URL() != tc.url {
			t.Errorf("%s: %s, %v", tc.in, p.URL(), err)
		}
		if back, err := Parse(p.URL()); err != nil || back.Key() != p.Key() {
			t.Errorf("%s does not come back: %v", p.URL(), err)
		}
	}
	for _, in := range []string{"", "user", "user:", ":x", "root:x", "user:a/b", "/principal/user%3", "/principal/user%3Aa%2Fb", "/principal/user%zzx", "user:\x00", "user:\xff", "user:" + strings.Repeat("x", 257)} {
		if _, err := Parse(in); problem.CodeOf(err) != problem.InvalidPrincipal {
			t.Errorf("%q: %v", in, err)
		}
	}
	if !DevLocal.Owns("/principal/user%3Aanybody") {
		t.Error("system:dev-local does not own everything")
	}
	p, _ := Parse("user:kyle")
	if !p.Owns("/principal/user%3Akyle") || p.Owns("/principal/user%3Aada") {
		t.Error("a person owns what is not theirs")
	}
}

type users struct{ calls []store.User }

func (u *users) UserSeen(_ context.Context, _ int32, row store.User) (bool, error) {
	u.calls = append(u.calls, row)
	if row.ID == "down" {
		return false, problem.New(problem.DatabaseUnavailable, "")
	}
	return true, nil
}

// What a hook tells of a person is bounded, and holds nothing that the database
// cannot.
func TestWhatHooksTellIsBoundedAndClean(t *testing.T) {
	t.Parallel()
	email := ""
	c := New(Config{Hooks: []contract.AuthHook{telling(func() contract.Principal {
		return contract.Principal{Kind: User, ID: "kyle", Profile: map[string]string{"email": email}}
	})}})
	for _, tc := range []struct {
		length int
		want   problem.Code
	}{{maxTold - len("email"), ""}, {maxTold, problem.AuthUnavailable}} {
		email = strings.Repeat("x", tc.length)
		if _, err := c.Authenticate(request("Authorization", "Bearer x")); problem.CodeOf(err) != tc.want {
			t.Errorf("%d bytes: %v", tc.length, err)
		}
	}
	u := &users{}
	if err := New(Config{Users: u}).Seen(t.Context(), 1, Principal{Kind: User, ID: "kyle", Profile: map[string]string{"display_name": "K\x00y\xffle"}}); err != nil {
		t.Fatal(err)
	}
	if got := u.calls[0].DisplayName; got != "Ky\uFFFDle" {
		t.Errorf("%q is written", got)
	}
}

// telling is a hook that lets everybody in.
type telling func() contract.Principal

func (telling) Name() string { return "telling" }

func (f telling) Authenticate(context.Context, contract.Request) (contract.Decision, error) {
	return contract.Decision{Verdict: contract.Allow, Principal: f()}, nil
}

func TestPeopleAreWrittenOnFirstSight(t *testing.T) {
	t.Parallel()
	u := &users{}
	c := New(Config{Users: u})
	kyle := Principal{Kind: User, ID: "kyle", Profile: map[string]string{"email": "k@example.com"}}
	for range 3 {
		if err := c.Seen(t.Context(), 1, kyle); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Seen(t.Context(), 2, kyle); err != nil {
		t.Fatal(err)
	}
	kyle.Profile = map[string]string{"email": "new@example.com"}
	if err := c.Seen(t.Context(), 1, kyle); err != nil {
		t.Fatal(err)
	}
	if err := c.Seen(t.Context(), 1, DevLocal); err != nil {
		t.Fatal(err)
	}
	if len(u.calls) != 3 || u.calls[0].Email != "k@example.com" || u.calls[2].Email != "new@example.com" {
		t.Fatalf("%+v", u.calls)
	}
	for range 2 { // a failure is not remembered as seen
		if err := c.Seen(t.Context(), 1, Principal{Kind: User, ID: "down"}); problem.CodeOf(err) != problem.DatabaseUnavailable {
			t.Fatal(err)
		}
	}
	if len(u.calls) != 5 {
		t.Fatal("a failed write was not tried again")
	}
	for range 3 { // a token in one's scripts, a JWT in the browser
		for _, provider := range []string{"devtoken", "jwt"} {
			if err := c.Seen(t.Context(), 1, Principal{Kind: User, ID: "ada", Profile: map[string]string{"auth_provider": provider}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(u.calls) != 7 {
		t.Fatalf("who comes by two hooks was written %d times", len(u.calls)-5)
	}
}
