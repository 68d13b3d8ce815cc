package retention_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const kyle = "/principal/user%3Akyle"

// rig is a database without a gateway, and a clock that the clean-up is called with.
type rig struct {
	*testing.T
	st   *store.Store
	pool *pgxpool.Pool
	db   *pgtest.DB
	now  time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	db := pgtest.New(t)
	st, err := store.Open(t.Context(), store.Options{DSN: db.DSN, MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	return &rig{t, st, db.Pool(t), db, time.Now().UTC().Truncate(time.Millisecond)}
}

func (r *rig) exec(sql string, args ...any) {
	r.Helper()
	if _, err := r.pool.Exec(r.Context(), sql, args...); err != nil {
		r.Fatalf("%s: %v", sql, err)
	}
}

// one reads one value.
func one[T any](r *rig, sql string, args ...any) T {
	r.Helper()
	rows, err := r.pool.Query(r.Context(), sql, args...)
	if err != nil {
		r.Fatalf("%s: %v", sql, err)
	}
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		r.Fatalf("%s: %v", sql, err)
	}
	return v
}

// stream makes a plain JSON stream and returns its id.
func (r *rig) stream(path string) int64 {
	r.Helper()
	m, err := r.st.StreamCreate(r.Context(), store.CreateRequest{Service: 1, Path: path, ContentType: "application/json", Count: 1})
	if err != nil || m.Outcome != store.Created {
		r.Fatalf("create %s: %+v %v", path, m, err)
	}
	return m.ID
}

// append appends messages, each an append of its own, and returns where each ends.
func (r *rig) append(path string, messages ...string) (ends []int64) {
	r.Helper()
	for _, m := range messages {
		out, err := r.st.StreamAppend(r.Context(), []store.AppendItem{{Service: 1, Path: path, Type: "application/json", Payload: []byte(m),
			Count: int32(strings.Count(m, ",") + 1), Internal: true}}, true)
		if err != nil || out[0].Outcome != store.Appended {
			r.Fatalf("append to %s: %+v %v", path, out, err)
		}
		ends = append(ends, out[0].Position)
	}
	return ends
}

// read reads a stream from a position; below zero from its first kept message.
func (r *rig) read(path string, from int64) (store.Outcome, string) {
	r.Helper()
	p, err := r.st.StreamRead(r.Context(), store.ReadRequest{Service: 1, Path: path, From: &from, MaxBytes: 1 << 20, MaxRows: 1000})
	if err != nil {
		r.Fatalf("read %s: %v", path, err)
	}
	return p.Outcome, string(p.Data)
}

// reads fails unless a stream holds just these messages, from its first on.
func (r *rig) reads(path, want string) {
	r.Helper()
	if o, got := r.read(path, -1); o != store.OK || got != want {
		r.Fatalf("%s: %s %q, want %q", path, o, got, want)
	}
}

func (r *rig) head(path string) int64 {
	r.Helper()
	return one[int64](r, `select head from rouse.streams where path = $1`, path)
}

// rows are the messages that the database holds of a stream.
func (r *rig) rows(path string) int64 {
	r.Helper()
	return one[int64](r, `select count(*) from rouse.messages m join rouse.streams s on s.id = m.stream_id where s.path = $1`, path)
}

// streams is one whole walk over the streams with limits, d later.
func (r *rig) streams(d time.Duration) {
	r.Helper()
	r.now = r.now.Add(d)
	for {
		if !one[bool](r, `select more from rouse._retention_streams(2, 0, $1)`, r.now) {
			return
		}
	}
}

// wakeStreams is one whole walk over the wake streams, d later.
func (r *rig) wakeStreams(d, window time.Duration) {
	r.Helper()
	r.now = r.now.Add(d)
	for {
		if !one[bool](r, `select more from rouse._retention_wake_streams(2, $1, 0, $2)`, window.Milliseconds(), r.now) {
			return
		}
	}
}

// sweep deletes what is below the heads.
func (r *rig) sweep() {
	r.Helper()
	for {
		if !one[bool](r, `select more from rouse._retention_sweep(2, $1)`, r.now.Add(time.Hour)) {
			return
		}
	}
}

func (r *rig) limits(path string, l store.Limits) {
	r.Helper()
	if got, err := r.st.RetentionPut(r.Context(), 1, path, l, false, kyle); err != nil || got != "set" {
		r.Fatalf("limits of %s: %s %v", path, got, err)
	}
}

func (r *rig) trim(path string, to *int64, force bool) store.Trim {
	r.Helper()
	t, err := r.st.StreamTrim(r.Context(), 1, path, to, force, kyle)
	if err != nil {
		r.Fatalf("trim %s: %v", path, err)
	}
	return t
}

func numbers(from, to int) (list []string) {
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprintf("%03d", i)[:3])
	}
	return list
}

// spawn makes an entity of kyle's that a runner of his works for.
func (r *rig) spawn(url, runner string) {
	r.Helper()
	policy := ""
	if runner != "" {
		policy = `{"targets":[{"type":"runner","runnerId":"` + runner + `"}]}`
	}
	r.spawnOn(url, policy)
}

// spawnOn is spawn with a dispatch policy, or none.
func (r *rig) spawnOn(url, policy string) {
	r.Helper()
	typ := strings.Split(url, "/")[1]
	r.exec(`insert into rouse.entity_types (service_id, name, owner_principal) values (1, $1, $2) on conflict do nothing`, typ, kyle)
	var raw []byte
	if policy != "" {
		raw = []byte(policy)
	}
	res, err := r.st.EntitySpawn(context.WithoutCancel(r.Context()), store.SpawnRequest{Service: 1, URL: url, Type: typ, TypeRevision: 1, Principal: kyle, Open: true,
		Tags: []byte("{}"), Policy: raw, Created: `{"headers":{"operation":"insert"},"type":"entity_created","key":"entity-created","value":{}}`})
	if err != nil || res.Outcome != "spawned" {
		r.Fatalf("spawn %s: %s %v", url, res.Outcome, err)
	}
}
