// Package observation_test judges observation as a client sees it: gateways as they run, the database they share, and
// nothing of how they do it.
package observation_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/gateway/soon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

type rig struct {
	t             *testing.T
	db            *pgtest.DB
	pool          *pgxpool.Pool
	hc            *http.Client
	kyle, mallory *wire.Client
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOn(t, pgtest.New(t))
}

// newRigOn starts one more gateway on a database.
func newRigOn(t *testing.T, db *pgtest.DB) *rig {
	t.Helper()
	gw := servertest.Start(t, servertest.Options{DB: db, Configure: func(c *config.Config) {}})
	hc := wire.NewHTTP(patience)
	t.Cleanup(hc.CloseIdleConnections)
	as := func(principal string) *wire.Client { return &wire.Client{Base: gw.URL, Principal: principal, HTTP: hc} }
	return &rig{t: t, db: db, pool: db.Pool(t), hc: hc, kyle: as("user:kyle"), mallory: as("user:mallory")}
}

func (r *rig) call(status int, who *wire.Client, method, path, body string, header ...string) wire.Answer {
	r.t.Helper()
	var b any
	if body != "" {
		b = body
	}
	a := who.Do(r.t.Context(), method, path, b, wire.Header(header...))
	if a.Err != nil || a.Status != status {
		r.t.Fatalf("%s %s %s %.200s: %v, want %d: %s", who.Principal, method, path, body, a, status, a.Raw)
	}
	return a
}

// team registers a type and a runner of kyle's, and spawns entities for it.
func (r *rig) team(ids ...string) {
	r.t.Helper()
	r.call(201, r.kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.call(201, r.kyle, "POST", "/_electric/runners", `{"id":"mac","label":"Mac"}`)
	for _, id := range ids {
		r.spawn(id, "")
	}
}

func (r *rig) spawn(id, more string) {
	r.t.Helper()
	r.call(201, r.kyle, "PUT", "/_electric/entities/chat/"+id, `{"dispatch_policy":{"targets":[{"type":"runner","runnerId":"mac"}]}`+more+`}`)
}

// hold wakes an entity by a message, claims it, and returns its write token and
// what releases it.
func (r *rig) hold(id string) (write string, release func()) {
	r.t.Helper()
	r.call(200, r.kyle, "POST", "/_electric/entities/chat/"+id+"/send", `{"payload":"go"}`)
	return r.claim(id)
}

// claim claims an entity once it is woken.
func (r *rig) claim(id string) (write string, release func()) {
	r.t.Helper()
	var a wire.Answer
	r.eventually("/chat/"+id+" is woken", func() bool {
		a = r.kyle.Do(r.t.Context(), "POST", "/_electric/runners/mac/claim", map[string]any{"stream": "chat/" + id + "/main"}, nil)
		return a.Status == 200 && a.WriteToken != ""
	})
	return a.WriteToken, func() {
		r.t.Helper()
		_, tail, _ := r.kyle.All(r.t.Context(), "/chat/"+id+"/main")
		done := map[string]any{"epoch": a.Epoch, "done": true, "acks": []any{map[string]any{"path": "/chat/" + id + "/main", "offset": tail}}}
		if d := r.kyle.Do(r.t.Context(), "POST", "/_electric/wake-callbacks/"+a.WakeID, done, map[string]string{"electric-claim-token": a.ClaimToken}); d.Status != 200 {
			r.t.Fatalf("done: %v %s", d, d.Raw)
		}
	}
}

// write appends as an entity's holder.
func (r *rig) write(id, token string, rows ...string) {
	r.t.Helper()
	r.call(204, r.kyle, "POST", "/chat/"+id+"/main", "["+strings.Join(rows, ",")+"]", "electric-claim-token", token)
}

type message struct {
	Type    string                     `json:"type"`
	Key     string                     `json:"key"`
	Headers map[string]json.RawMessage `json:"headers"`
	Value   map[string]any             `json:"value"`
}

// rows are the messages of a type on a stream that kyle may read.
func (r *rig) rows(path, typ string) []message {
	r.t.Helper()
	list, _, a := r.kyle.All(r.t.Context(), path)
	if a.Status != 200 {
		if a.Status == 404 {
			return nil
		}
		r.t.Fatalf("GET %s: %v %s", path, a, a.Raw)
	}
	var out []message
	for _, raw := range list {
		var m message
		if err := json.Unmarshal(raw, &m); err != nil {
			r.t.Fatalf("%s: %v", raw, err)
		}
		if m.Type == typ {
			out = append(out, m)
		}
	}
	return out
}

func (r *rig) wakes(id string) []message { return r.rows("/chat/"+id+"/main", "wake") }

// eventually polls until ok.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	soon.Until(r.t, what, ok)
}

// due lets what is scheduled be due.
func (r *rig) due() {
	r.t.Helper()
	r.db.Exec(r.t, `update rouse.scheduled_tasks set due_at = clock_timestamp() where due_at is not null and planned`)
	r.db.Exec(r.t, `update rouse.observers set due_at = clock_timestamp() where due_at is not null`)
}

func row(op, typ, key, value string) string {
	return fmt.Sprintf(`{"headers":{"operation":%q},"type":%q,"key":%q,"value":%s}`, op, typ, key, value)
}
