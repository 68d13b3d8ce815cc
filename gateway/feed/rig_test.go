package feed

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
)

// patience is how long a test waits for what must happen; it fails then.
const testPatience = 20 * time.Second

// eventually polls until ok, and fails the test if that takes too long.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	within(t, testPatience, what, ok)
}

// within fails the test if ok is not true in time, and returns the time it took.
func within(t *testing.T, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Since(began) > limit {
			t.Fatalf("not within %v: %s", limit, what)
		}
		<-tick.C
	}
	return time.Since(began)
}

// routerLog is a RouterSink that keeps what it gets.
type routerLog struct {
	// hold keeps batches unconfirmed until confirm is called.
	hold bool
	// entered is told of each call, and leave is awaited, if set.
	entered chan struct{}
	leave   chan struct{}

	mu      sync.Mutex
	notices []Notice
	gaps    []GapReason
	owed    []Batch
}

func (r *routerLog) Notices(ctx context.Context, b Batch) {
	if r.entered != nil {
		select {
		case r.entered <- struct{}{}:
		case <-ctx.Done():
		}
	}
	if r.leave != nil {
		select {
		case <-r.leave:
		case <-ctx.Done():
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notices = append(r.notices, b.Notices...)
	if r.hold {
		r.owed = append(r.owed, b)
		return
	}
	b.Confirm()
}

func (r *routerLog) Gap(_ context.Context, reason GapReason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps = append(r.gaps, reason)
}

func (r *routerLog) confirm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.owed {
		b.Confirm()
	}
	r.owed = nil
}

func (r *routerLog) seen() []Notice {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.notices)
}

func (r *routerLog) has(stream int64) bool {
	return slices.ContainsFunc(r.seen(), func(n Notice) bool { return n.Stream == stream })
}

func (r *routerLog) gapCount(reason GapReason) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.gaps {
		if g == reason {
			n++
		}
	}
	return n
}

// wakeLog is a DeliverySink that keeps what it gets.
type wakeLog struct {
	mu   sync.Mutex
	ids  []string
	gaps []GapReason
}

func (w *wakeLog) Wakes(_ context.Context, ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids = append(w.ids, ids...)
}

func (w *wakeLog) Gap(_ context.Context, reason GapReason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gaps = append(w.gaps, reason)
}

func (w *wakeLog) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.ids)
}

// gateway is a feed with everything around it.
type gateway struct {
	*Feed
	hub    *Hub
	router *routerLog
	wakes  *wakeLog
	// members counts how often memberships were told of.
	members atomic.Int32
	reg     *prometheus.Registry
}

// startGateway starts a feed; set changes its configuration and router first.
func startGateway(t *testing.T, dsn string, set func(*Config, *routerLog)) *gateway {
	t.Helper()
	g := &gateway{hub: NewHub(), router: &routerLog{}, wakes: &wakeLog{}, reg: prometheus.NewRegistry()}
	// Most tests watch streams that have no row: the poller would call them gone.
	cfg := Config{DSN: dsn, SettleDelay: time.Hour}
	if set != nil {
		set(&cfg, g.router)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	f, err := New(cfg, Deps{Hub: g.hub, Router: g.router, Delivery: g.wakes, Members: func() { g.members.Add(1) }, Registry: g.reg, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	g.Feed = f
	if err := f.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.stop(t) })
	return g
}

func (g *gateway) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testPatience)
	defer cancel()
	if err := g.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// metric returns the sum of a metric's values over its labels, or of those with
// the label value given.
func (g *gateway) metric(t *testing.T, name, label string) (sum float64) {
	t.Helper()
	families, err := g.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			if label != "" && (len(m.GetLabel()) == 0 || m.GetLabel()[0].GetValue() != label) {
				continue
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// holder returns the gateway that holds the router's slot, nil if none does.
func holder(gateways ...*gateway) *gateway {
	for _, g := range gateways {
		if g.Holder() {
			return g
		}
	}
	return nil
}

func allUp(gateways ...*gateway) bool {
	return holder(gateways...) != nil &&
		!slices.ContainsFunc(gateways, func(g *gateway) bool { return !g.Up() })
}

// emit commits one transaction with one message.
func emit(t *testing.T, conn *pgx.Conn, prefix, text string) {
	t.Helper()
	exec(t, conn, `select pg_logical_emit_message(true, $1, $2)`, prefix, text)
}

func emitNotice(t *testing.T, conn *pgx.Conn, stream, tail int64, flags Flags) {
	t.Helper()
	emit(t, conn, PrefixStreams, fmt.Sprintf("%d:%d:%d", stream, tail, flags))
}

func exec(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func query[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// routerSlot is the slot's name in the database of conn.
func routerSlot(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	return slotName("rouse_router", query[uint32](t, conn, `select oid from pg_database where datname = current_database()`))
}

func confirmedLSN(t *testing.T, conn *pgx.Conn, slot string) LSN {
	t.Helper()
	var lsn LSN
	text := query[string](t, conn, `select coalesce(max(confirmed_flush_lsn)::text, '0/0') from pg_replication_slots where slot_name = $1`, slot)
	if err := lsn.Scan(text); err != nil {
		t.Fatal(err)
	}
	return lsn
}

func currentLSN(t *testing.T, conn *pgx.Conn) LSN {
	t.Helper()
	var lsn LSN
	if err := lsn.Scan(query[string](t, conn, `select pg_current_wal_insert_lsn()::text`)); err != nil {
		t.Fatal(err)
	}
	return lsn
}
