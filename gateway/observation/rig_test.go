package observation

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/store"
)

const kyle = "/principal/user%3Akyle"

// rig is a database with entities, without gateways.
type rig struct {
	t    testing.TB
	db   *pgtest.DB
	s    *store.Store
	pool *pgxpool.Pool
}

func newRig(t testing.TB) *rig {
	t.Helper()
	return rigOn(t, pgtest.New(t))
}

func rigOn(t testing.TB, db *pgtest.DB) *rig {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{DSN: db.DSN, MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &rig{t, db, s, db.Pool(t)}
}

// spawn makes an entity of kyle's, below a parent if that is not empty.
func (r *rig) spawn(url, parent string) {
	r.t.Helper()
	r.spawnAs(kyle, url, parent, nil)
}

func (r *rig) spawnAs(principal, url, parent string, tags map[string]string) {
	r.t.Helper()
	typ := strings.Split(url, "/")[1]
	r.db.Exec(r.t, `insert into rouse.entity_types (service_id, name, owner_principal) values (1, $1, $2) on conflict do nothing`, typ, principal)
	raw, err := json.Marshal(tags)
	if err != nil || tags == nil {
		raw = []byte("{}")
	}
	res, err := r.s.EntitySpawn(r.t.Context(), store.SpawnRequest{Service: 1, URL: url, Type: typ, TypeRevision: 1, Principal: principal, Open: true, Tags: raw,
		Parent: parent, Created: `{"headers":{"operation":"insert"},"type":"entity_created","key":"entity-created","value":{}}`})
	if err != nil || res.Outcome != "spawned" {
		r.t.Fatalf("spawn %s: %s %v", url, res.Outcome, err)
	}
}

// write appends messages to a stream as its holder would.
func (r *rig) write(path string, messages ...string) {
	r.t.Helper()
	out, err := r.s.StreamAppend(r.t.Context(), []store.AppendItem{{Service: 1, Path: path, Type: "application/json",
		Payload: []byte(strings.Join(messages, ",")), Count: int32(len(messages)), Internal: true}}, true)
	if err != nil || out[0].Outcome != store.Appended {
		r.t.Fatalf("append to %s: %+v %v", path, out, err)
	}
}

func (r *rig) register(q store.ObserverRequest) {
	r.t.Helper()
	q.Service = 1
	if q.Principal == "" {
		q.Principal = kyle
	}
	if q.Condition == "" {
		q.Condition = Condition{RunFinished: true}.String()
	}
	if got, err := r.s.ObserveRegister(r.t.Context(), q); err != nil || got != "ok" {
		r.t.Fatalf("register: %s %v", got, err)
	}
}

// rows are the messages of a type on an entity's main stream, or on the stream
// of that path.
func (r *rig) rows(path, typ string) []event {
	r.t.Helper()
	if strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "/_") {
		path += "/main"
	}
	rows, err := r.pool.Query(r.t.Context(), `select m.position, m.payload from rouse.messages m join rouse.streams s on s.id = m.stream_id
		where s.path = $1 order by m.position`, strings.TrimPrefix(path, "/"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	var out []event
	for rows.Next() {
		var at int64
		var payload []byte
		if err := rows.Scan(&at, &payload); err != nil {
			r.t.Fatal(err)
		}
		for _, e := range events(payload, at) {
			if e.typ == typ {
				out = append(out, e)
			}
		}
	}
	return out
}

func (r *rig) wakes(url string) []event { return r.rows(url, "wake") }

// one is the value of the only row of a type.
func (r *rig) one(url, typ string) map[string]any {
	r.t.Helper()
	list := r.rows(url, typ)
	if len(list) != 1 {
		r.t.Fatalf("%s has %d %s rows, want 1", url, len(list), typ)
	}
	return decode(r.t, list[0])
}

func decode(t testing.TB, e event) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(e.raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func (r *rig) count(sql string, args ...any) (n int64) {
	r.t.Helper()
	if err := r.pool.QueryRow(r.t.Context(), sql, args...).Scan(&n); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// worker makes one that nobody starts: the test takes its rounds.
func (r *rig) worker() *Worker {
	r.t.Helper()
	w, err := New(Config{DB: r.s})
	if err != nil {
		r.t.Fatal(err)
	}
	return w
}

// settle takes rounds until nothing is left to do.
func (r *rig) settle(w *Worker) {
	r.t.Helper()
	for range 20 {
		ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
		w.attach.Store(true)
		a, b, c := w.observe(ctx), w.schedule(ctx), w.memberships(ctx)
		cancel()
		if !a && !b && !c {
			return
		}
	}
	r.t.Fatal("there is always something to do")
}

const (
	runBegun = `{"headers":{"operation":"insert"},"type":"run","key":"r1","value":{"status":"started"}}`
	runEnded = `{"headers":{"operation":"update"},"type":"run","key":"r1","value":{"status":"completed"}}`
)

func row(op, typ, key, value string) string {
	return fmt.Sprintf(`{"headers":{"operation":%q},"type":%q,"key":%q,"value":%s}`, op, typ, key, value)
}
