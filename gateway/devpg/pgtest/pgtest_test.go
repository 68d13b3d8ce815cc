package pgtest

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/devpg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNewGivesEachTestItsOwnMigratedDatabase(t *testing.T) {
	t.Parallel()
	a, b := New(t), New(t)
	a.Exec(t, `create table rouse.only_here (id int)`)
	var there, streams bool
	err := b.Conn(t).QueryRow(t.Context(), `select to_regclass('rouse.only_here') is not null, to_regclass('rouse.streams') is not null`).Scan(&there, &streams)
	if err != nil {
		t.Fatal(err)
	}
	if there || !streams {
		t.Fatalf("sees the other's table: %v; is migrated: %v", there, streams)
	}
}

func TestDatabaseIsDroppedWithItsSlotsAndSessions(t *testing.T) {
	t.Parallel()
	outer := Empty(t)
	var name string
	t.Run("inner", func(t *testing.T) {
		db := New(t)
		name = db.Name
		db.Exec(t, `select pg_create_logical_replication_slot('slot_' || current_database(), 'pgoutput')`)
		db.Pool(t)
	})
	var databases, slots int
	err := outer.Conn(t).QueryRow(t.Context(), `select (select count(*) from pg_database where datname = $1),
(select count(*) from pg_replication_slots where database = $1)`, name).Scan(&databases, &slots)
	if err != nil {
		t.Fatal(err)
	}
	if databases != 0 || slots != 0 {
		t.Fatalf("left behind: %d databases, %d slots", databases, slots)
	}
}

func TestServerOfItsOwnSurvivesEachModeOfRestart(t *testing.T) {
	t.Parallel()
	in := Server(t, Options{Settings: map[string]string{"wal_sender_timeout": "3s"}})
	in.DB.Exec(t, `create table kept (n int)`)
	for n, mode := range []devpg.Mode{devpg.Fast, devpg.Immediate, devpg.Crash} {
		in.DB.Exec(t, `insert into kept values ($1)`, n)
		began := time.Now()
		if err := in.Restart(t.Context(), mode); err != nil {
			t.Fatal(err)
		}
		t.Logf("restart in mode %d took %v", mode, time.Since(began))
		var count int
		var timeout string
		err := in.DB.Conn(t).QueryRow(t.Context(), `select count(*), current_setting('wal_sender_timeout') from kept`).Scan(&count, &timeout)
		if err != nil {
			t.Fatal(err)
		}
		if count != n+1 || timeout != "3s" {
			t.Fatalf("after restart %d: %d rows, wal_sender_timeout %s", n, count, timeout)
		}
	}
}

// BenchmarkNew gives the price of a database for one test, making and dropping.
func BenchmarkNew(b *testing.B) {
	c, err := sharedCluster()
	if err != nil {
		b.Fatal(err)
	}
	conn, err := c.admin(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(b.Context())
	template, err := c.template(b.Context(), conn)
	if err != nil {
		b.Fatal(err)
	}
	var cloning time.Duration
	for b.Loop() {
		began := time.Now()
		if err := clone(b.Context(), conn, "bench_new", template); err != nil {
			b.Fatal(err)
		}
		cloning += time.Since(began)
		if err := dropDatabase(b.Context(), conn, "bench_new"); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(cloning.Seconds()*1000/float64(b.N), "clone-ms/op")
}

// failing is a test that has failed, as far as cleanup can see.
type failing struct {
	testing.TB
	cleanup []func()
	said    []string
}

func (f *failing) Failed() bool     { return true }
func (f *failing) Cleanup(c func()) { f.cleanup = append(f.cleanup, c) }
func (f *failing) Logf(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

func TestDatabaseOfAFailedTestIsKeptWithoutItsSlots(t *testing.T) {
	t.Parallel()
	f := &failing{TB: t}
	db := New(f)
	db.Exec(t, `select pg_create_logical_replication_slot('slot_' || current_database(), 'pgoutput')`)
	for _, c := range slices.Backward(f.cleanup) {
		c()
	}
	if len(f.said) != 1 || !strings.Contains(f.said[0], db.DSN) {
		t.Errorf("said %q", f.said)
	}
	var slots int
	conn := db.Conn(t)
	if err := conn.QueryRow(t.Context(), `select count(*) from pg_replication_slots where database = $1`, db.Name).Scan(&slots); err != nil || slots != 0 {
		t.Errorf("%d slots, %v", slots, err)
	}
	t.Cleanup(func() { db.discard(t) })
}

func TestSweepTakesTheDatabasesOfDeadProcessesOnly(t *testing.T) {
	t.Parallel()
	alive := New(t)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	conn, err := alive.server.admin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	orphan := fmt.Sprintf("t_%d_orphan", gone.Process.Pid)
	if err := clone(t.Context(), conn, orphan, "template1"); err != nil {
		t.Fatal(err)
	}
	if err := sweep(t.Context(), alive.server); err != nil {
		t.Fatal(err)
	}
	rows, err := conn.Query(t.Context(), `select datname from pg_database where datname = any($1)`, []string{orphan, alive.Name})
	if err != nil {
		t.Fatal(err)
	}
	left, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(left) != 1 || left[0] != alive.Name {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestATestHasOnePool(t *testing.T) {
	t.Parallel()
	db := New(t)
	pool := db.Pool(t)
	if db.Pool(t) != pool {
		t.Error("each call opens a pool of its own: a test that asks in a loop uses up the server's connections")
	}
	t.Run("sub", func(sub *testing.T) {
		if db.Pool(sub) == pool {
			t.Error("a subtest's end closes its parent's pool")
		}
	})
	if err := pool.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestVersionsThatAreAskedForHaveServersOfTheirOwn(t *testing.T) {
	t.Setenv("ROUSE_PG_BIN", "")
	usual, err := sharedName(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, err := devpg.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("ROUSE_PG_BIN", found[0].Dir)
	asked, err := sharedName(t.Context())
	if err != nil || asked != fmt.Sprintf("%s-pg%d", usual, found[0].Major) {
		t.Fatalf("%s, %v; without the variable it is %s", asked, err, usual)
	}
}
