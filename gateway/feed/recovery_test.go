package feed

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/devpg"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

func TestRouterSlotDroppedWhileRunning(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, b := pair(t, db.DSN, nil)
	conn := db.Conn(t)
	slot := routerSlot(t, conn)
	exec(t, conn, `do $$
		declare v_slot text := '`+slot+`';
		begin
			while clock_timestamp() < now() + interval '15 s' loop
				perform pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = v_slot and active_pid is not null;
				begin
					perform pg_drop_replication_slot(v_slot);
					return;
				exception when object_in_use then null;
				end;
			end loop;
			raise exception 'could not drop %', v_slot;
		end $$`)
	gaps := func() int { return a.router.gapCount(GapSlot) + b.router.gapCount(GapSlot) }
	took := within(t, testPatience, "the slot is made anew and the gap told", func() bool { return gaps() == 2 })
	t.Logf("slot made anew after: %v", took)
	eventually(t, "both up", func() bool { return allUp(a, b) })
	if got := a.metric(t, "rouse_feed_router_slot_created_total", "") + b.metric(t, "rouse_feed_router_slot_created_total", ""); got != 2 {
		t.Errorf("metric: the slot was made %v times, want 2", got)
	}
	emitNotice(t, conn, 1, 1, Actionable)
	eventually(t, "routed", func() bool { return a.router.has(1) || b.router.has(1) })
}

// connect keeps trying: the server may be on its way up.
func connect(t *testing.T, dsn string) (conn *pgx.Conn) {
	t.Helper()
	eventually(t, "a connection", func() (ok bool) {
		var err error
		conn, err = pgx.Connect(t.Context(), dsn)
		return err == nil
	})
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func TestRouterSlotInvalidated(t *testing.T) {
	t.Parallel()
	in := pgtest.Server(t, pgtest.Options{Settings: map[string]string{
		"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "64MB",
	}})
	conn := in.DB.Conn(t)
	g := startGateway(t, in.DB.DSN, func(c *Config, r *routerLog) {
		r.hold = true // pins the log
		c.MonitorInterval = 20 * time.Millisecond
	})
	eventually(t, "up", g.Up)
	emitNotice(t, conn, 1, 1, Actionable)
	eventually(t, "routed", func() bool { return g.router.has(1) })
	statuses := make(map[string]bool)
	eventually(t, "the slot is lost and made anew", func() bool {
		exec(t, conn, `select pg_logical_emit_message(false, 'filler', repeat('x', 1000000))`)
		exec(t, conn, `select pg_switch_wal()`)
		exec(t, conn, `checkpoint`)
		for _, s := range walStatuses {
			if g.metric(t, "rouse_feed_router_slot_wal_status", s) == 1 {
				statuses[s] = true
			}
		}
		return g.router.gapCount(GapSlot) >= 2
	})
	t.Logf("wal_status seen: %v", statuses)
	if got := g.metric(t, "rouse_feed_router_slot_created_total", "lost"); got < 1 {
		t.Errorf("metric: made anew %v times because it was lost", got)
	}
	g.router.confirm()
	// The new slot may have been lost to the last checkpoint too: a notice that
	// falls into that gap is the scan's.
	next := int64(2)
	eventually(t, "routed on the new slot", func() bool {
		emitNotice(t, conn, next, 1, Actionable)
		next++
		return slices.ContainsFunc(g.router.seen(), func(n Notice) bool { return n.Stream >= 2 })
	})
}

// The publication is missing where the slot stands in the log: until Postgres
// 17 the slot would fail there for ever, from 18 on the server passes over it.
func TestPublicationCreatedAfterTheSlot(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t)
	exec(t, conn, `drop publication rouse_notice`)
	g := startGateway(t, db.DSN, nil)
	eventually(t, "up: nothing asks for the publication yet", g.Up)
	exec(t, conn, `create table some_table (x int)`)
	began := time.Now()
	exec(t, conn, `insert into some_table values (1)`)
	if serverVersion(t, conn) < 180000 {
		eventually(t, "the reason is told", func() bool {
			code, _, _ := g.Health()
			return code == CodePublicationMissing
		})
		ends := g.metric(t, "rouse_feed_session_ends_total", "")
		within(t, testPatience, "tries again", func() bool {
			return g.metric(t, "rouse_feed_session_ends_total", "") >= ends+4
		})
		// 50 + 100 + 200 ms, less the jitter.
		if took := time.Since(began); took < 150*time.Millisecond {
			t.Errorf("five sessions failed within %v: no pause in between", took)
		}
	}
	exec(t, conn, `create publication rouse_notice`)
	if serverVersion(t, conn) < 180000 {
		eventually(t, "made anew", func() bool { return g.metric(t, "rouse_feed_router_slot_created_total", "publication") == 1 })
	}
	emitNotice(t, conn, 1, 1, Actionable)
	eventually(t, "routed", func() bool { return g.router.has(1) })
}

func serverVersion(t *testing.T, conn *pgx.Conn) int {
	t.Helper()
	return query[int](t, conn, `select current_setting('server_version_num')::int`)
}

// From Postgres 17 on a standby can keep the slot in step; a temporary slot is
// never worth it.
func TestRouterSlotIsMadeForFailover(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t)
	pair(t, db.DSN, nil)
	can := serverVersion(t, conn) >= 170000
	slot := routerSlot(t, conn)
	const failover = `select coalesce(bool_or((to_jsonb(s) ->> 'failover')::boolean), false) from pg_replication_slots s
		where s.database = current_database() and (s.slot_name = $1) = $2`
	if got := query[bool](t, conn, failover, slot, true); got != can {
		t.Errorf("router's slot: failover %v, want %v", got, can)
	}
	if query[bool](t, conn, failover, slot, false) {
		t.Error("a temporary slot is made for failover")
	}
}

func TestServerRestarts(t *testing.T) {
	t.Parallel()
	in := pgtest.Server(t, pgtest.Options{})
	a, b := pair(t, in.DB.DSN, nil)
	for i, mode := range []devpg.Mode{devpg.Immediate, devpg.Fast, devpg.Crash} {
		conn := connect(t, in.DB.DSN)
		stream := int64(100 * (i + 1))
		emitNotice(t, conn, stream, 1, Actionable)
		w := a.hub.Watch(1)
		if err := in.Restart(t.Context(), mode); err != nil {
			t.Fatal(err)
		}
		up := time.Now()
		conn = connect(t, in.DB.DSN)
		emitNotice(t, conn, stream+1, 1, Actionable)
		routed := func(id int64) func() bool {
			return func() bool { return a.router.has(id) || b.router.has(id) }
		}
		eventually(t, "routed after the restart", routed(stream+1))
		t.Logf("%v: routed %v after the server was up", mode, time.Since(up))
		eventually(t, "routed what came before it", routed(stream))
		eventually(t, "both up", func() bool { return allUp(a, b) })
		s, err := w.Wait(t.Context(), 0)
		if err != nil || !s.Resync {
			t.Fatalf("%v: readers were not told to read again: %+v, %v", mode, s, err)
		}
		w.Close()
	}
}

// A stopping server waits for its logical replication clients to confirm
// everything. The router cannot finish once the server lets nobody in.
func TestStuckRouterDoesNotKeepTheServerFromStopping(t *testing.T) {
	t.Parallel()
	in := pgtest.Server(t, pgtest.Options{})
	conn := in.DB.Conn(t)
	g := startGateway(t, in.DB.DSN, func(_ *Config, r *routerLog) { r.hold = true })
	eventually(t, "a position is confirmed, which the server now goes by", func() bool {
		return query[bool](t, conn, `select coalesce(bool_or(flush_lsn is not null), false) from pg_stat_replication`)
	})
	emitNotice(t, conn, 1, 1, Actionable)
	eventually(t, "routed", func() bool { return g.router.has(1) })
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), testPatience)
	defer cancel()
	if err := in.Restart(ctx, devpg.Fast); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	t.Logf("fast restart with a stuck router: %v", took)
	if took > 8*time.Second {
		t.Errorf("the restart took %v", took)
	}
	if got := g.metric(t, "rouse_feed_session_ends_total", CodeServerStopping); got == 0 {
		t.Error("the feed did not see why")
	}
	eventually(t, "up again", g.Up)
	eventually(t, "the notice comes again", func() bool { return len(g.router.seen()) >= 2 })
}

// While a slot cannot be had the poller serves the tails, and nothing else
// waits.
func TestPollerStandsInWhileASlotWaits(t *testing.T) {
	t.Parallel()
	in := pgtest.Server(t, pgtest.Options{})
	conn, writer := in.DB.Conn(t), in.DB.Conn(t)
	exec(t, writer, `begin`)
	exec(t, writer, `create table unfinished (x int)`)

	g := startGateway(t, in.DB.DSN, func(c *Config, _ *routerLog) { c.SettleDelay = 2 * time.Second })
	eventually(t, "the reason is told", func() bool {
		code, _, ok := g.Health()
		return !ok && code == CodeSlotWaiting
	})
	var streams []int64
	for _, name := range []string{"grows", "closes", "goes", "vanishes"} {
		streams = append(streams, insertStream(t, conn, name))
	}
	watchers := make([]*Watcher, len(streams))
	for i, id := range streams {
		watchers[i] = g.hub.Watch(id)
		defer watchers[i].Close()
	}
	exec(t, conn, `update rouse.streams set tail = 10 where id = $1`, streams[0])
	exec(t, conn, `update rouse.streams set closed_at = now() where id = $1`, streams[1])
	exec(t, conn, `update rouse.streams set deleted_at = now() where id = $1`, streams[2])
	exec(t, conn, `delete from rouse.streams where id = $1`, streams[3])
	for i, want := range []State{{Tail: 10}, {Closed: true}, {Gone: true}, {Gone: true}} {
		ctx, cancel := context.WithTimeout(t.Context(), testPatience)
		if got, err := watchers[i].Wait(ctx, 0); err != nil || got != want {
			t.Fatalf("watcher %d: got %+v, %v; want %+v", i, got, err, want)
		}
		cancel()
	}
	if g.Up() {
		t.Fatal("up, though a transaction that a slot must wait for is open")
	}
	// The writer ends, the log takes over, the poller goes to sleep.
	exec(t, writer, `commit`)
	eventually(t, "up", g.Up)
	settled := g.metric(t, "rouse_feed_polls_total", "ok")
	eventually(t, "one last pass", func() bool { return g.metric(t, "rouse_feed_polls_total", "ok") > settled })
	emitNotice(t, conn, streams[0], 20, 0)
	eventually(t, "served from the log", func() bool { return watchers[0].State().Tail == 20 })
	// Nobody changes the feed's state, so the poller has nothing to wake for.
	asked := g.metric(t, "rouse_feed_polls_total", "ok")
	for range 3 {
		before := currentLSN(t, conn)
		emitNotice(t, conn, streams[0], 20, 0)
		eventually(t, "status updates go on", func() bool { return confirmedLSN(t, conn, routerSlot(t, conn)) > before })
	}
	if got := g.metric(t, "rouse_feed_polls_total", "ok"); got != asked {
		t.Fatalf("the poller went on: %v passes, then %v", asked, got)
	}
}

// A slot that has retained much shows what is new only after the old.
func TestPollerStandsInWhileABacklogIsRead(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t)
	before := startGateway(t, db.DSN, nil)
	eventually(t, "up", before.Up)
	before.stop(t)
	emitNotice(t, conn, 1<<40, 1, Actionable)

	read := make(chan struct{})
	release := sync.OnceFunc(func() { close(read) })
	context.AfterFunc(t.Context(), release)
	g := startGateway(t, db.DSN, func(c *Config, _ *routerLog) {
		c.Hooks.Receive = func() { <-read }
	})
	eventually(t, "up", g.Up)
	id := insertStream(t, conn, "polled")
	w := g.hub.Watch(id)
	defer w.Close()
	exec(t, conn, `update rouse.streams set tail = 5 where id = $1`, id)
	eventually(t, "polled", func() bool { return w.State().Tail == 5 })
	if g.live() || g.router.has(1<<40) {
		t.Fatal("the backlog was read after all")
	}
	release()
	eventually(t, "the backlog is read", func() bool { return g.live() && g.router.has(1<<40) })
}

func insertStream(t *testing.T, conn *pgx.Conn, name string) int64 {
	t.Helper()
	return query[int64](t, conn, `insert into rouse.streams (service_id, path, content_type, is_json)
		values (1, $1, 'text/plain', false) returning id`, name)
}

// A waiting attempt is given up at once, on the server too.
func TestStopWhileASlotWaits(t *testing.T) {
	t.Parallel()
	in := pgtest.Server(t, pgtest.Options{})
	conn, writer := in.DB.Conn(t), in.DB.Conn(t)
	exec(t, writer, `begin`)
	exec(t, writer, `create table unfinished (x int)`)
	g := startGateway(t, in.DB.DSN, nil)
	eventually(t, "the slot is waiting", func() bool {
		return query[int](t, conn, `select count(*)::int from pg_replication_slots`) == 1
	})
	began := time.Now()
	g.stop(t)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("stop took %v", took)
	}
	eventually(t, "the server has given it up too", func() bool {
		return query[int](t, conn, `select count(*)::int from pg_replication_slots`) == 0
	})
}

// Each of these is a server the log cannot be had from: the reason is told, the
// poller serves, and the feed comes up when the reason ends.
func TestReasonsWhyTheFeedIsDown(t *testing.T) {
	t.Parallel()
	in := pgtest.Server(t, pgtest.Options{Settings: map[string]string{"max_replication_slots": "1"}})
	conn := in.DB.Conn(t)
	exec(t, conn, `select pg_create_logical_replication_slot('somebody_else', 'pgoutput')`)
	exec(t, conn, `create role plain login password 'plain'`)
	exec(t, conn, `grant usage on schema rouse to plain`)
	exec(t, conn, `grant select on rouse.streams to plain`)

	g := startGateway(t, in.DB.DSN, nil)
	eventually(t, "slots exhausted", func() bool {
		code, _, _ := g.Health()
		return code == CodeSlotsExhausted
	})
	exec(t, conn, `select pg_drop_replication_slot('somebody_else')`)
	eventually(t, "up", g.Up)

	cfg, err := pgx.ParseConfig(in.DB.DSN)
	if err != nil {
		t.Fatal(err)
	}
	plain := startGateway(t, fmt.Sprintf("host=%s port=%d dbname=%s user=plain password=plain", cfg.Host, cfg.Port, cfg.Database), nil)
	eventually(t, "no permission", func() bool {
		code, _, _ := plain.Health()
		return code == CodePermission
	})
	id := insertStream(t, conn, "polled")
	w := plain.hub.Watch(id)
	defer w.Close()
	exec(t, conn, `update rouse.streams set tail = 5 where id = $1`, id)
	eventually(t, "polled", func() bool { return w.State().Tail == 5 })
}

func TestServerWithoutLogicalLog(t *testing.T) {
	t.Parallel()
	in := pgtest.Server(t, pgtest.Options{Settings: map[string]string{"wal_level": "replica"}})
	g := startGateway(t, in.DB.DSN, nil)
	eventually(t, "the reason is told", func() bool {
		code, _, ok := g.Health()
		return !ok && code == CodeWALLevel
	})
}

func TestNoServerAtAll(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "postgres://nobody:canary-secret@127.0.0.1:1/none", nil)
	eventually(t, "failed", func() bool {
		_, detail, ok := g.Health()
		return !ok && detail == "no connection to Postgres"
	})
}
