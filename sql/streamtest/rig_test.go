package streamtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// epochStart is when every test begins by its own clock: it says what time it
// is and waits for nothing.
var epochStart = time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)

type rig struct {
	t   testing.TB
	db  *pgtest.DB
	c   *pgx.Conn
	now time.Time
}

func newRig(t testing.TB) *rig {
	t.Helper()
	db := pgtest.New(t)
	return &rig{t: t, db: db, c: db.Conn(t), now: epochStart}
}

// on returns the same rig with another session.
func (r *rig) on(c *pgx.Conn) *rig { s := *r; s.c = c; return &s }

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.c.Exec(r.t.Context(), sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

func one[T any](r *rig, sql string, args ...any) T {
	r.t.Helper()
	var v T
	if err := r.c.QueryRow(r.t.Context(), sql, args...).Scan(&v); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// created is the input of a create; zero values are the function's defaults.
type created struct {
	path, contentType, payload string
	count                      int
	stamps                     []int32
	ttl, forkAt, forkSub       *int64
	expires                    *time.Time
	closed                     bool
	fork, kind, owner          string
	consumer                   *int64
}

type meta struct {
	outcome string
	id      int64
	tail    int64
	closed  bool
	typ     string
}

func ptr[T any](v T) *T { return &v }

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (r *rig) create(c created) meta {
	r.t.Helper()
	if c.kind == "" {
		c.kind = "app"
	}
	var payload []byte
	if c.payload != "" {
		payload = []byte(c.payload)
	}
	if c.count == 0 {
		c.count = 1
	}
	var m meta
	var id, tail *int64
	var closed *bool
	var typ *string
	err := r.c.QueryRow(r.t.Context(), `select * from rouse._stream_create(1,$1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15)`,
		c.path, orNull(c.contentType), c.ttl, c.expires, c.closed, payload, c.count, c.stamps,
		orNull(c.fork), c.forkAt, c.forkSub, c.kind, orNull(c.owner), c.consumer, r.now).Scan(&m.outcome, &id, &tail, &closed, &typ)
	if err != nil {
		r.t.Fatalf("create %s: %v", c.path, err)
	}
	if id != nil {
		m.id, m.tail, m.closed, m.typ = *id, *tail, *closed, *typ
	}
	return m
}

func (r *rig) wantCreate(c created, outcome string) meta {
	r.t.Helper()
	m := r.create(c)
	if m.outcome != outcome {
		r.t.Fatalf("create %+v: %s, want %s", c, m.outcome, outcome)
	}
	return m
}

// item is one special append.
type item struct {
	path, typ, payload, stamps string
	internal, actionable       bool
	producer                   string
	epoch, seq                 int64
	streamSeq                  string
	close                      bool
	consumer, claimEpoch       int64
	wake                       string
}

type answer struct {
	outcome    string
	tail       int64
	closed     bool
	epoch, seq int64
}

// append runs specials in one call.
func (r *rig) append(wait bool, items ...item) []answer {
	r.t.Helper()
	got, err := r.tryAppend(wait, items...)
	if err != nil {
		r.t.Fatalf("append: %v", err)
	}
	return got
}

func (r *rig) tryAppend(wait bool, items ...item) ([]answer, error) {
	n := len(items)
	var services, counts []int32
	var paths, types []string
	var internal, act, closes []bool
	var payloads [][]byte
	stamps, producers, streamSeqs, wakes := make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n)
	epochs, seqs, consumers, claims := make([]*int64, n), make([]*int64, n), make([]*int64, n), make([]*int64, n)
	for i, it := range items {
		services, counts, paths, types = append(services, 1), append(counts, 1), append(paths, it.path), append(types, it.typ)
		internal, act, closes = append(internal, it.internal), append(act, it.actionable), append(closes, it.close)
		var payload []byte
		if it.payload != "" {
			payload = []byte(it.payload)
		}
		payloads = append(payloads, payload)
		stamps[i], streamSeqs[i] = orNull(it.stamps), orNull(it.streamSeq)
		if it.producer != "" {
			producers[i], epochs[i], seqs[i] = &it.producer, &it.epoch, &it.seq
		}
		if it.consumer != 0 {
			consumers[i], claims[i], wakes[i] = &it.consumer, &it.claimEpoch, &it.wake
		}
	}
	rows, err := r.c.Query(r.t.Context(), `select outcome, tail, closed, producer_epoch, producer_seq from rouse._stream_append(
		null,null,null,null,null,null, null,null,null,null,null, $1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16, $17, $18) order by ord`,
		services, paths, types, internal, act, payloads, counts, stamps, producers, epochs, seqs, streamSeqs, closes, consumers, claims, wakes, wait, r.now)
	if err != nil {
		return nil, err
	}
	return collect(rows)
}

func collect(rows pgx.Rows) ([]answer, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (answer, error) {
		var a answer
		var tail, epoch, seq *int64
		var closed *bool
		err := row.Scan(&a.outcome, &tail, &closed, &epoch, &seq)
		if tail != nil {
			a.tail = *tail
		}
		if closed != nil {
			a.closed = *closed
		}
		if epoch != nil {
			a.epoch, a.seq = *epoch, *seq
		}
		return a, err
	})
}

func (r *rig) wantAppend(it item, outcome string) answer {
	r.t.Helper()
	a := r.append(false, it)
	if len(a) != 1 || a[0].outcome != outcome {
		r.t.Fatalf("append %+v: %+v, want %s", it, a, outcome)
	}
	return a[0]
}

// group is the plain appends of one stream.
type group struct {
	path, typ            string
	internal, actionable bool
	payloads             []string
}

// appendGroups runs plain groups in one call.
func (r *rig) appendGroups(groups ...group) []answer {
	r.t.Helper()
	var services, counts, of []int32
	var paths, types []string
	var internal, act []bool
	var bytes, rel []int64
	var payloads [][]byte
	for i, g := range groups {
		services, paths, types = append(services, 1), append(paths, g.path), append(types, g.typ)
		internal, act = append(internal, g.internal), append(act, g.actionable)
		sum := int64(0)
		for _, p := range g.payloads {
			sum += int64(len(p))
			of, counts, rel, payloads = append(of, int32(i+1)), append(counts, 1), append(rel, sum), append(payloads, []byte(p))
		}
		bytes = append(bytes, sum)
	}
	rows, err := r.c.Query(r.t.Context(), `select outcome, tail, closed, producer_epoch, producer_seq from rouse._stream_append(
		$1,$2,$3,$4,$5,$6, $7,$8,$9,$10,$11, null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null, false, $12) order by ord`,
		services, paths, types, internal, act, bytes, of, rel, payloads, counts, make([]*string, len(of)), r.now)
	if err != nil {
		r.t.Fatal(err)
	}
	got, err := collect(rows)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// page is what a read answers.
type page struct {
	outcome    string
	tail, next int64
	closed     bool
	touch      bool
	data       string
	positions  []int64
	stamps     string
}

func (r *rig) read(path string, from int64, maxBytes, maxRows int) page {
	r.t.Helper()
	var p page
	var tail, next *int64
	var closed, touch *bool
	var data []byte
	var stamps *string
	err := r.c.QueryRow(r.t.Context(), `select outcome, tail, next, closed, touch, page, positions, stamps from rouse._stream_read(1,$1,null,$2,$3,$4,$5)`,
		path, from, maxBytes, maxRows, r.now).Scan(&p.outcome, &tail, &next, &closed, &touch, &data, &p.positions, &stamps)
	if err != nil {
		r.t.Fatalf("read %s: %v", path, err)
	}
	if tail != nil {
		p.tail, p.next, p.closed, p.touch = *tail, *next, *closed, *touch
	}
	p.data = string(data)
	if stamps != nil {
		p.stamps = *stamps
	}
	return p
}

// all reads a stream from its start, page by page.
func (r *rig) all(path string) string {
	r.t.Helper()
	var b strings.Builder
	from := int64(0)
	for {
		p := r.read(path, from, 7, 3)
		if p.outcome != "ok" {
			r.t.Fatalf("read %s from %d: %s", path, from, p.outcome)
		}
		b.WriteString(p.data)
		if p.next == p.tail {
			return b.String()
		}
		if p.next <= from {
			r.t.Fatalf("read %s from %d makes no progress", path, from)
		}
		from = p.next
	}
}

func (r *rig) head(path string) string {
	r.t.Helper()
	return one[string](r, `select outcome from rouse._stream_head(1,$1,$2)`, path, r.now)
}

func (r *rig) delete(path string, internal bool) string {
	r.t.Helper()
	return one[string](r, `select outcome from rouse._stream_delete(1,$1,$2,$3)`, path, internal, r.now)
}

// purge runs the clean-up to its end and returns what it removed.
func (r *rig) purge(limit int) string {
	r.t.Helper()
	var e, m, s, te, tm, ts int
	for {
		if err := r.c.QueryRow(r.t.Context(), `select * from rouse._stream_purge($1,$2)`, limit, r.now).Scan(&e, &m, &s); err != nil {
			r.t.Fatal(err)
		}
		te, tm, ts = te+e, tm+m, ts+s
		if e < limit && m < limit && s < limit {
			return fmt.Sprintf("%d expired, %d messages, %d streams", te, tm, ts)
		}
	}
}
