package feed

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

func TestNoticesComeInCommitOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t)
	g := startGateway(t, db.DSN, nil)
	eventually(t, "up", g.Up)
	if !g.Holder() {
		t.Fatal("a lone gateway does not hold the router's slot")
	}
	if code, detail, ok := g.Health(); !ok || code != "" {
		t.Fatalf("health: %s %s", code, detail)
	}
	watched := g.hub.Watch(7)
	defer watched.Close()

	const n = 200
	for i := int64(1); i <= n; i++ {
		emitNotice(t, conn, i, 10*i, Actionable)
	}
	eventually(t, "all notices routed", func() bool { return len(g.router.seen()) == n })
	for i, got := range g.router.seen() {
		if want := (Notice{Stream: int64(i + 1), Tail: 10 * int64(i+1), Flags: Actionable}); got != want {
			t.Fatalf("notice %d: got %+v, want %+v", i, got, want)
		}
	}
	if s := watched.State(); s != (State{Tail: 70}) {
		t.Fatalf("hub: %+v", s)
	}
	if got := g.metric(t, "rouse_feed_notices_total", ""); got != n {
		t.Fatalf("metric: %v notices", got)
	}
}

func TestOneTransactionCanSayManyThings(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t)
	g := startGateway(t, db.DSN, nil)
	eventually(t, "up", g.Up)
	closing, going := g.hub.Watch(2), g.hub.Watch(3)
	defer closing.Close()
	defer going.Close()

	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range [][2]string{
		{PrefixStreams, "1:10:1,2:20:2"}, {"another", "1:99:1"}, {PrefixWakes, "w1,w2"},
		{PrefixStreams, "3:30:4,1:15:9:entity"}, {PrefixWakes, "w1"}, {PrefixMembers, ""}, {PrefixMembers, ""},
	} {
		if _, err := tx.Exec(t.Context(), `select pg_logical_emit_message(true, $1, $2)`, m[0], m[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "memberships told", func() bool { return g.members.Load() > 0 })
	eventually(t, "wakes delivered", func() bool { return slices.Contains(g.wakes.seen(), "w2") })
	eventually(t, "notice routed", func() bool {
		seen := g.router.seen()
		return len(seen) > 0 && seen[len(seen)-1].Tail == 15
	})
	if got := closing.State(); got != (State{Tail: 20, Closed: true}) {
		t.Errorf("closed stream: %+v", got)
	}
	if got := going.State(); got != (State{Tail: 30, Gone: true}) {
		t.Errorf("gone stream: %+v", got)
	}
	for _, n := range g.router.seen() {
		if n.Stream != 1 {
			t.Errorf("the router was given a notice that asks for nothing: %+v", n)
		}
	}
	if got := g.wakes.seen(); !slices.Equal(got, []string{"w1", "w2"}) {
		t.Errorf("wakes: %v", got)
	}
}

func TestWhatRollsBackIsNeverSeen(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t)
	g := startGateway(t, db.DSN, nil)
	eventually(t, "up", g.Up)
	w := g.hub.Watch(1)
	defer w.Close()

	exec(t, conn, `begin`)
	emitNotice(t, conn, 1, 10, Actionable)
	emit(t, conn, PrefixWakes, "never")
	exec(t, conn, `rollback`)

	exec(t, conn, `begin`)
	exec(t, conn, `savepoint s`)
	emitNotice(t, conn, 1, 20, Actionable)
	exec(t, conn, `rollback to s`)
	emitNotice(t, conn, 2, 1, Actionable)
	exec(t, conn, `commit`)

	// Not part of the transaction: sent although that rolls back.
	exec(t, conn, `begin`)
	exec(t, conn, `select pg_logical_emit_message(false, 'rouse', '1:30:1')`)
	exec(t, conn, `rollback`)
	emitNotice(t, conn, 3, 1, Actionable)

	eventually(t, "the last notice", func() bool { return g.router.has(3) })
	if got := streamsOf(g.router.seen()); !slices.Equal(got, []int64{2, 3}) {
		t.Fatalf("routed: %v", got)
	}
	if s := w.State(); s != (State{}) || len(g.wakes.seen()) != 0 {
		t.Fatalf("hub: %+v, wakes: %v", s, g.wakes.seen())
	}
}

func TestMalformedMessageIsAnnouncedAsAGap(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t)
	g := startGateway(t, db.DSN, nil)
	eventually(t, "up", g.Up)
	w := g.hub.Watch(9)
	defer w.Close()
	emit(t, conn, PrefixStreams, "1:10:1,garbage,2:20:1")
	eventually(t, "the readable entries", func() bool { return g.router.has(1) && g.router.has(2) })
	eventually(t, "the gap", func() bool { return g.router.gapCount(GapMalformed) > 0 })
	if s, err := w.Wait(t.Context(), 0); err != nil || !s.Resync {
		t.Fatalf("reader: %+v, %v", s, err)
	}
	if !g.Up() {
		t.Fatal("the feed broke off")
	}
}

func TestOnlyTheHolderRoutes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t)
	a := startGateway(t, db.DSN, nil)
	eventually(t, "first up", a.Up)
	b := startGateway(t, db.DSN, nil)
	eventually(t, "second up", b.Up)
	if !a.Holder() || b.Holder() {
		t.Fatalf("holders: first %v, second %v", a.Holder(), b.Holder())
	}
	wa, wb := a.hub.Watch(5), b.hub.Watch(5)
	defer wa.Close()
	defer wb.Close()
	emitNotice(t, conn, 5, 50, Actionable)
	emit(t, conn, PrefixWakes, "wake-1")
	for _, g := range []*gateway{a, b} {
		eventually(t, "wake on every gateway", func() bool { return len(g.wakes.seen()) == 1 })
	}
	for _, w := range []*Watcher{wa, wb} {
		eventually(t, "tail on every gateway", func() bool { return w.State().Tail == 50 })
	}
	eventually(t, "routed", func() bool { return a.router.has(5) })
	if got := b.router.seen(); len(got) != 0 {
		t.Fatalf("the standby routed %v", got)
	}
	if got := query[int](t, conn, `select count(*)::int from pg_replication_slots where database = current_database()`); got != 2 {
		t.Fatalf("%d slots, want one a gateway", got)
	}
	b.stop(t)
	eventually(t, "the temporary slot is gone", func() bool {
		return query[int](t, conn, `select count(*)::int from pg_replication_slots where database = current_database()`) == 1
	})
}

func TestGatewayWithoutRouterNeverTakesTheSlot(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t)
	hub := NewHub()
	f, err := New(Config{DSN: db.DSN}, Deps{Hub: hub})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer f.Stop(t.Context())
	eventually(t, "up", f.Up)
	w := hub.Watch(1)
	defer w.Close()
	emitNotice(t, conn, 1, 10, Actionable)
	eventually(t, "tail", func() bool { return w.State().Tail == 10 })
	if f.Holder() || query[bool](t, conn, `select exists (select from pg_replication_slots where slot_name = $1)`, routerSlot(t, conn)) {
		t.Fatal("the router's slot exists")
	}
}

func TestConfirmedPositionFollowsTheRouter(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t)
	g := startGateway(t, db.DSN, func(_ *Config, r *routerLog) { r.hold = true })
	eventually(t, "up", g.Up)
	slot := routerSlot(t, conn)
	before := currentLSN(t, conn)
	emitNotice(t, conn, 1, 10, Actionable)
	after := currentLSN(t, conn)
	eventually(t, "routed", func() bool { return g.router.has(1) })
	// Status updates come in between, as the received position shows.
	eventually(t, "status after the notice", func() bool {
		return query[bool](t, conn, `select coalesce(bool_or(write_lsn >= $1::text::pg_lsn), false) from pg_stat_replication r
			join pg_replication_slots s on s.active_pid = r.pid where s.slot_name = $2`, after.String(), slot)
	})
	if got := confirmedLSN(t, conn, slot); got >= after || got > before+1<<20 {
		t.Fatalf("confirmed %v, though the notice at %v is not done", got, after)
	}
	g.router.confirm()
	eventually(t, "confirmed", func() bool { return confirmedLSN(t, conn, slot) >= after })
}

func TestUnconfirmedNoticesComeAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t)
	a := startGateway(t, db.DSN, func(_ *Config, r *routerLog) { r.hold = true })
	eventually(t, "up", a.Up)
	emitNotice(t, conn, 1, 10, Actionable)
	eventually(t, "routed", func() bool { return a.router.has(1) })
	a.stop(t)
	b := startGateway(t, db.DSN, nil)
	eventually(t, "routed again", func() bool { return b.router.has(1) })
}

func TestQuietDatabaseRetainsNoLog(t *testing.T) {
	t.Parallel()
	db, other := pgtest.New(t), pgtest.Empty(t)
	conn, noise := db.Conn(t), other.Conn(t)
	g := startGateway(t, db.DSN, nil)
	eventually(t, "up", g.Up)
	slot := routerSlot(t, conn)
	exec(t, noise, `create table noise (x text)`)
	for range 3 {
		exec(t, noise, `insert into noise select repeat('x', 1000) from generate_series(1, 1000)`)
		target := currentLSN(t, conn)
		eventually(t, "the confirmed position passes the other database's writes", func() bool {
			return confirmedLSN(t, conn, slot) >= target
		})
	}
	if len(g.router.seen()) != 0 {
		t.Fatalf("routed: %v", g.router.seen())
	}
}

// The router is stuck and 20 000 transactions come: tails are served, the socket
// is read to the end, and the router gets each stream once.
func TestSlowRouterDelaysNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t)
	g := startGateway(t, db.DSN, func(_ *Config, r *routerLog) {
		r.entered, r.leave = make(chan struct{}), make(chan struct{})
	})
	eventually(t, "up", g.Up)
	emitNotice(t, conn, 1, 1, Actionable)
	<-g.router.entered // and does not come back

	w := g.hub.Watch(2)
	defer w.Close()
	const n = 20_000
	exec(t, conn, `do $$ begin
		for i in 1..20000 loop
			perform pg_logical_emit_message(true, 'rouse', (2 + i % 50) || ':' || i || ':1');
			commit;
		end loop;
	end $$`)
	end := currentLSN(t, conn)
	last := g.hub.Watch(2 + n%50)
	defer last.Close()
	eventually(t, "tails served", func() bool { return last.State().Tail == n })
	slot := routerSlot(t, conn)
	eventually(t, "socket drained", func() bool {
		return query[bool](t, conn, `select coalesce(bool_or(write_lsn >= $1::text::pg_lsn), false) from pg_stat_replication r
			join pg_replication_slots s on s.active_pid = r.pid where s.slot_name = $2`, end.String(), slot)
	})
	if got := confirmedLSN(t, conn, slot); got >= end {
		t.Fatal("confirmed what the router has not done")
	}
	if got := g.metric(t, "rouse_feed_router_backlog", ""); got != 50 {
		t.Fatalf("backlog of %v streams, want 50", got)
	}
	close(g.router.leave)
	<-g.router.entered
	eventually(t, "routed", func() bool { return len(g.router.seen()) == 1+50 })
	for _, got := range g.router.seen()[1:] {
		if got.Tail <= n-50 {
			t.Fatalf("not the highest tail: %+v", got)
		}
	}
	eventually(t, "confirmed", func() bool { return confirmedLSN(t, conn, slot) >= end })
}

func TestConfigRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"no dsn":       {},
		"bad dsn":      {DSN: "postgres://user:secret-word@host:notaport/db"},
		"rare status":  {DSN: "postgres://h/d", StatusInterval: time.Second},
		"hasty freeze": {DSN: "postgres://h/d", FreezeAfter: time.Millisecond},
		"slot name":    {DSN: "postgres://h/d", RouterSlot: "a b"},
	} {
		_, err := New(cfg, Deps{Hub: NewHub()})
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "secret-word") {
			t.Errorf("%s: the error tells a secret: %v", name, err)
		}
	}
}
