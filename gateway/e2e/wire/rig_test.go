package wire_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/gateway/soon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// rig is a gateway as `dev` runs it, with the people who call it.
type rig struct {
	t  *testing.T
	db *pgtest.DB
	gw *servertest.Instance
	hc *http.Client

	kyle, mallory, nobody, garbled *wire.Client
	n                              atomic.Int64
}

func newRig(t *testing.T, configure func(*config.Config)) *rig {
	t.Helper()
	return newRigOn(t, pgtest.New(t), configure)
}

// newRigOn starts one more gateway on a database.
func newRigOn(t *testing.T, db *pgtest.DB, configure func(*config.Config)) *rig {
	t.Helper()
	gw := servertest.Start(t, servertest.Options{DB: db, Configure: configure})
	hc := wire.NewHTTP(patience)
	t.Cleanup(hc.CloseIdleConnections)
	base := "http://" + gw.Addr().String() // its public URL may be another
	as := func(principal string) *wire.Client { return &wire.Client{Base: base, Principal: principal, HTTP: hc} }
	return &rig{t: t, db: db, gw: gw, hc: hc, kyle: as("user:kyle"), mallory: as("user:mallory"), nobody: as(""), garbled: as("kyle")}
}

// call sends a request with a JSON text, and headers as pairs.
func (r *rig) call(who *wire.Client, method, path, body string, header ...string) wire.Answer {
	r.t.Helper()
	var b any
	if body != "" {
		b = body
	}
	a := who.Do(r.t.Context(), method, path, b, wire.Header(header...))
	if a.Err != nil {
		r.t.Fatalf("%s %s: %v", method, path, a.Err)
	}
	return a
}

// must is call with the status that has to come.
func (r *rig) must(status int, who *wire.Client, method, path, body string, header ...string) wire.Answer {
	r.t.Helper()
	a := r.call(who, method, path, body, header...)
	if a.Status != status {
		r.t.Fatalf("%s %s %.200s: %v, want %d: %s", method, path, body, a, status, a.Raw)
	}
	return a
}

// refused is call with the refusal that has to come, in the envelope of all
// refusals.
func (r *rig) refused(status int, code string, who *wire.Client, method, path, body string, header ...string) wire.Answer {
	r.t.Helper()
	a := r.call(who, method, path, body, header...)
	if a.Status != status || a.Code != code {
		r.t.Errorf("%s %s %.200s: %v, want %d %s: %s", method, path, body, a, status, code, a.Raw)
		return a
	}
	r.envelope(a)
	return a
}

func (r *rig) envelope(a wire.Answer) {
	r.t.Helper()
	if why := a.Malformed(); why != "" {
		r.t.Error(why)
	}
}

// field reads a member of an answer by a dotted path; nil if it is not there.
func field(a wire.Answer, path string) any {
	var v any
	if json.Unmarshal(a.Raw, &v) != nil {
		return nil
	}
	for k := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

func (r *rig) scan(sql string, args []any, into ...any) {
	r.t.Helper()
	if err := r.db.Conn(r.t).QueryRow(context.WithoutCancel(r.t.Context()), sql, args...).Scan(into...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

func (r *rig) count(sql string, args ...any) (n int64) {
	r.t.Helper()
	r.scan(sql, args, &n)
	return n
}

func (r *rig) text(sql string, args ...any) (s string) {
	r.t.Helper()
	r.scan(sql, args, &s)
	return s
}

// eventually polls until what must come true is true.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	soon.Until(r.t, what, ok)
}

// things are names of kyle's that nothing else in the test uses.
type things struct {
	Type, Entity, Runner string // Entity is type/id
}

func (f things) main() string  { return "/" + f.Entity + "/main" }
func (f things) ctl() string   { return "/_electric/entities/" + f.Entity }
func (f things) claim() string { return "/_electric/runners/" + f.Runner + "/claim" }
func (f things) wake() string  { return "/runners/" + f.Runner + "/wake" }

// fresh makes a type, a runner and an entity that is routed to it.
func (r *rig) fresh() things {
	r.t.Helper()
	n := r.n.Add(1)
	f := things{Type: fmt.Sprintf("type%d", n), Runner: fmt.Sprintf("mac%d", n)}
	f.Entity = f.Type + "/e"
	r.must(201, r.kyle, "POST", "/_electric/entity-types", `{"name":"`+f.Type+`","description":"x"}`)
	r.must(201, r.kyle, "POST", "/_electric/runners", `{"id":"`+f.Runner+`","label":"Mac"}`)
	r.spawn(f, f.Entity, "")
	return f
}

// spawn makes an entity for the runner; more are further members of the body.
func (r *rig) spawn(f things, entity, more string) wire.Answer {
	r.t.Helper()
	return r.must(201, r.kyle, "PUT", "/_electric/entities/"+entity, `{"dispatch_policy":{"targets":[{"type":"runner","runnerId":"`+f.Runner+`"}]}`+more+`}`)
}

func (r *rig) send(f things, payload string) wire.Answer {
	r.t.Helper()
	return r.must(200, r.kyle, "POST", f.ctl()+"/send", `{"payload":`+payload+`}`)
}

// entry is an entry of a wake stream as its owner reads it.
type entry struct {
	Type           string `json:"type"`
	SubscriptionID string `json:"subscription_id"`
	Stream         string `json:"stream"`
	Generation     int64  `json:"generation"`
	TS             int64  `json:"ts"`
	WakeID         string `json:"wakeId"`
	ClaimToken     string `json:"claimToken"`
	Callback       string `json:"callback"`
	raw            json.RawMessage
}

// wakes reads the runner's wake stream.
func (r *rig) wakes(f things) []entry {
	r.t.Helper()
	messages, _, a := r.kyle.All(r.t.Context(), f.wake())
	if a.Status != 200 || a.Err != nil {
		r.t.Fatalf("%v: %s", a, a.Raw)
	}
	out := make([]entry, len(messages))
	for i, m := range messages {
		if err := json.Unmarshal(m, &out[i]); err != nil {
			r.t.Fatal(err)
		}
		out[i].raw = m
	}
	return out
}

// woken waits until the runner has been told n times in all, and returns the
// last entry.
func (r *rig) woken(f things, n int) entry {
	r.t.Helper()
	var list []entry
	r.eventually(fmt.Sprintf("%d wakes for %s", n, f.Runner), func() bool {
		list = r.wakes(f)
		return len(list) >= n
	})
	if len(list) != n {
		r.t.Fatalf("%d wakes, want %d: %s", len(list), n, list[len(list)-1].raw)
	}
	return list[n-1]
}

// claimed claims by the wake entry, as runners do.
func (r *rig) claimed(f things, e entry) wire.Answer {
	r.t.Helper()
	return r.must(200, r.kyle, "POST", f.claim(), string(e.raw))
}

// worked is a fresh entity with a message, woken and claimed.
func (r *rig) worked() (things, wire.Answer) {
	r.t.Helper()
	f := r.fresh()
	r.send(f, `"do"`)
	return f, r.claimed(f, r.woken(f, 1))
}

func callback(a wire.Answer) string { return "/_electric/wake-callbacks/" + a.WakeID }

func tokenHeader(token string) []string { return []string{"electric-claim-token", token} }

// done gives a claim back, with the stream worked up to offset.
func (r *rig) done(f things, c wire.Answer, offset string) wire.Answer {
	r.t.Helper()
	return r.must(200, r.kyle, "POST", callback(c), fmt.Sprintf(`{"epoch":%d,"acks":[{"path":%q,"offset":%q}],"done":true}`, c.Epoch, f.main(), offset), tokenHeader(c.ClaimToken)...)
}

// tail is where a stream ends.
func (r *rig) tail(path string) string {
	r.t.Helper()
	return r.must(200, r.kyle, "HEAD", path, "").Header.Get("Stream-Next-Offset")
}
