package control

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/appender"
	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/plugins/contract"
	"github.com/rouse-run/rouse/transports/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a control plane on a database of its own, without the log feed: tests
// route by hand.
type rig struct {
	t      testing.TB
	db     *pgtest.DB
	claims *claims.Service
	c      *Control
	url    string
}

// claimToken is what an entry of the wake stream carries for its owner.
func (r *rig) claimToken(wake string) string { return r.claims.ClaimToken(1, 1, wake) }

// newRig starts a control plane; change may alter its configuration.
func newRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	return newRigOn(t, pgtest.New(t), change)
}

// newRigOn is newRig on a database that another one may use too.
func newRigOn(t testing.TB, db *pgtest.DB, change func(*Config)) *rig {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{DSN: db.DSN, MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	keys, err := claims.ParseKeys(claims.NewKeys())
	if err != nil {
		t.Fatal(err)
	}
	life, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	cl := claims.New(life, s, claims.NewTokens(keys), claims.Config{PublicURL: "http://rouse.test"})
	ap := appender.New(life, appender.Config{Store: s, Hub: feed.NewHub()})
	cfg := Config{Store: s, Services: store.NewServices(s), Auth: auth.New(auth.Config{Insecure: true, Users: s}), Claims: cl, Appender: ap,
		Transports: Carriers{webhook.New(webhook.Config{})}, OpenTypes: true, MaxBody: 1 << 20}
	if change != nil {
		change(&cfg)
	}
	c := New(life, cfg)
	srv := httptest.NewServer(c)
	t.Cleanup(func() {
		srv.Close()
		for _, stop := range []func(context.Context) error{c.Stop, ap.Stop, cl.Stop} {
			if err := stop(life); err != nil {
				t.Error(err)
			}
		}
	})
	return &rig{t: t, db: db, claims: cl, c: c, url: srv.URL}
}

// answer is a response read whole.
type answer struct {
	status int
	header http.Header
	body   []byte
	t      testing.TB
}

// get reads a member by a dotted path.
func (a answer) get(path string) any {
	a.t.Helper()
	var v any
	if err := json.Unmarshal(a.body, &v); err != nil {
		a.t.Fatalf("body %q: %v", a.body, err)
	}
	for _, k := range strings.Split(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

// list is a body that is an array.
func (a answer) list() []any {
	a.t.Helper()
	var v []any
	if err := json.Unmarshal(a.body, &v); err != nil {
		a.t.Fatalf("body %q: %v", a.body, err)
	}
	return v
}

func (a answer) str(path string) string {
	a.t.Helper()
	s, _ := a.get(path).(string)
	return s
}

// code is the error code, checked for the shape that every refusal has.
func (a answer) code() string {
	a.t.Helper()
	if ct := a.header.Get("Content-Type"); ct != "application/problem+json" {
		a.t.Errorf("status %d has content type %s: %s", a.status, ct, a.body)
	}
	code := a.str("code")
	if code == "" || a.str("error.code") != code || a.get("status") != float64(a.status) || a.str("error.message") == "" {
		a.t.Errorf("not the envelope of a refusal: %s", a.body)
	}
	return code
}

// do sends a request; body is JSON text, or "" for none. Headers are pairs.
func (r *rig) do(method, path, body string, header ...string) answer {
	r.t.Helper()
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, rd)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, b, r.t}
}

// as is do under a principal.
func (r *rig) as(who, method, path, body string, header ...string) answer {
	r.t.Helper()
	return r.do(method, path, body, append(header, "electric-principal", who)...)
}

// must is as, and fails the test unless the status is want.
func (r *rig) must(want int, who, method, path, body string, header ...string) answer {
	r.t.Helper()
	a := r.as(who, method, path, body, header...)
	if a.status != want {
		r.t.Fatalf("%s %s %s: status %d, want %d: %s", who, method, path, a.status, want, a.body)
	}
	return a
}

// refused checks status and code of a refusal.
func (r *rig) refused(status int, code, who, method, path, body string, header ...string) answer {
	r.t.Helper()
	a := r.as(who, method, path, body, header...)
	if a.status != status || a.code() != code {
		r.t.Errorf("%s %s %s %s: %d %s, want %d %s: %s", who, method, path, short(body), a.status, a.str("code"), status, code, a.body)
	}
	return a
}

func short(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

// count reads one number.
func (r *rig) count(sql string, args ...any) (n int64) {
	r.t.Helper()
	if err := r.db.Conn(r.t).QueryRow(r.t.Context(), sql, args...).Scan(&n); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// route does what the wake router would.
func (r *rig) route() {
	r.t.Helper()
	r.db.Exec(r.t, `select rouse.dispatch_route(array_agg(s.id), array_agg(s.tail)) from rouse.streams s where s.pending`)
}

const (
	kyle    = "user:kyle"
	mallory = "user:mallory"
)

var _ contract.AuthHook = denyAll{}

// denyAll stands for serve without a matching token.
type denyAll struct{}

func (denyAll) Name() string { return "none" }
func (denyAll) Authenticate(context.Context, contract.Request) (contract.Decision, error) {
	return contract.Decision{}, nil
}
