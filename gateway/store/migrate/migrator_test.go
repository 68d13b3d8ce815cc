package migrate_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/store/migrate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// files makes a file system of name → text.
func files(pairs ...string) fstest.MapFS {
	fs := fstest.MapFS{}
	for i := 0; i+1 < len(pairs); i += 2 {
		fs[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return fs
}

const (
	one = "-- compat: safe\ncreate table rouse.one (id int);\n"
	two = "-- compat: safe\ncreate table rouse.two (id int);\n"
)

func sourceOf(release string, functions fstest.MapFS, pairs ...string) migrate.Source {
	return migrate.Source{Migrations: files(pairs...), Functions: functions, Release: release}
}

func answer(n int) fstest.MapFS {
	return files("answer.sql", fmt.Sprintf("create or replace function rouse.answer() returns int language sql as $$ select %d $$;", n))
}

func newMigrator(t *testing.T, db *pgtest.DB, s migrate.Source) *migrate.Migrator {
	t.Helper()
	m, err := migrate.New(migrate.Options{DSN: db.DSN, Source: s})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func up(t *testing.T, db *pgtest.DB, s migrate.Source) migrate.Report {
	t.Helper()
	r, err := newMigrator(t, db, s).Up(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func status(t *testing.T, db *pgtest.DB, s migrate.Source) migrate.Status {
	t.Helper()
	st, err := newMigrator(t, db, s).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func value[T any](t *testing.T, db *pgtest.DB, sql string) T {
	t.Helper()
	var v T
	if err := db.Conn(t).QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestUpAppliesWhatIsMissingOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	r := up(t, db, sourceOf("v1.0.0", answer(1), "000001_one.up.sql", one))
	if len(r.Applied) != 1 || r.Functions != 1 || r.Status.HasPending() {
		t.Fatalf("first: %+v", r)
	}
	both := sourceOf("v1.0.0", answer(1), "000001_one.up.sql", one, "000002_two.up.sql", two)
	if err := status(t, db, both).Usable(); migrate.CodeOf(err) != migrate.CodePending {
		t.Fatalf("got %v", err)
	}
	if r := up(t, db, both); len(r.Applied) != 1 || r.Applied[0].Version != 2 || r.Functions != 0 {
		t.Fatalf("second: %+v", r)
	}
	if r := up(t, db, both); len(r.Applied) != 0 || r.Functions != 0 {
		t.Fatalf("third: %+v", r)
	}
	if got := value[string](t, db, "select string_agg(version || ' ' || name || ' ' || compat, ', ' order by version) from rouse.schema_history"); got != "1 one safe, 2 two safe" {
		t.Errorf("history: %s", got)
	}
}

func TestFunctionsMayNameEachOtherInAnyOrderAndChangeTogether(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	s := sourceOf("v1.0.0", files(
		"a_first.sql", "create or replace function rouse.a_first() returns int language sql as $$ select rouse.z_last() $$;",
		"z_last.sql", "create or replace function rouse.z_last() returns int language sql as $$ select 7 $$;"))
	up(t, db, s)
	if got := value[int](t, db, "select rouse.a_first()"); got != 7 {
		t.Fatalf("got %d", got)
	}
	broken := sourceOf("v1.0.0", files(
		"a_first.sql", "create or replace function rouse.a_first() returns int language sql as $$ select 8 $$;",
		"z_last.sql", "create or replace function rouse.z_last() returns nonsense language sql as $$ select 8 $$;"))
	if _, err := newMigrator(t, db, broken).Up(t.Context()); migrate.CodeOf(err) != migrate.CodeFailed || !strings.Contains(err.Error(), "z_last.sql") {
		t.Fatalf("got %v", err)
	}
	if got := value[int](t, db, "select rouse.a_first()"); got != 7 {
		t.Errorf("half of a refused set was kept: %d", got)
	}
}

func TestFunctionsOfANewerBinaryStay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second migrate.Source
		want          int
	}{
		"newer release":            {sourceOf("v1.2.0", answer(12)), sourceOf("v1.1.9", answer(11)), 12},
		"older release":            {sourceOf("v1.2.0", answer(12)), sourceOf("v1.10.0", answer(110)), 110},
		"newer migration":          {sourceOf("devel", answer(2), "000001_one.up.sql", one, "000002_two.up.sql", two), sourceOf("v9.0.0", answer(1), "000001_one.up.sql", one), 2},
		"unversioned, same schema": {sourceOf("devel-1", answer(1)), sourceOf("devel-2", answer(2)), 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Empty(t)
			up(t, db, c.first)
			r := up(t, db, c.second)
			if got := value[int](t, db, "select rouse.answer()"); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
			if kept := r.Functions == 0; kept != r.Status.FunctionsNewer || kept != (r.Status.Warning() != "") {
				t.Errorf("%+v, warning %q", r.Status, r.Status.Warning())
			}
		})
	}
}

func TestUnknownBreakingMigrationIsRefusedAndSafeOneWarned(t *testing.T) {
	t.Parallel()
	old := sourceOf("v1.0.0", answer(1), "000001_one.up.sql", one)
	for compat, refused := range map[string]bool{"safe": false, "breaking": true} {
		t.Run(compat, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Empty(t)
			up(t, db, sourceOf("v1.1.0", answer(1), "000001_one.up.sql", one,
				"000002_new.up.sql", "-- compat: "+compat+"\ncreate table rouse.new (id int);\n"))
			st := status(t, db, old)
			if refused {
				if err := st.Usable(); migrate.CodeOf(err) != migrate.CodeTooNew || !strings.Contains(err.Error(), "000002_new") || !strings.Contains(err.Error(), "v1.1.0") {
					t.Errorf("got %v", err)
				}
				if _, err := newMigrator(t, db, old).Up(t.Context()); migrate.CodeOf(err) != migrate.CodeTooNew {
					t.Errorf("got %v", err)
				}
				return
			}
			if err := st.Usable(); err != nil || st.Warning() == "" {
				t.Errorf("%v, warning %q", err, st.Warning())
			}
		})
	}
}

func TestAMigrationThatWasEditedAfterwardsIsNoticed(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	before := sourceOf("v1.0.0", answer(1), "000001_one.up.sql", one)
	up(t, db, before)
	// As an older release leaves it: without hashes. They are noted, and nothing is amiss.
	db.Exec(t, `alter table rouse.schema_history drop column hash`)
	if s := status(t, db, before); s.Warning() != "" || s.HasPending() {
		t.Fatal(s.Explain())
	}
	up(t, db, before)
	edited := sourceOf("v1.1.0", answer(2), "000001_one.up.sql", one+"create index on rouse.one (id);\n", "000002_two.up.sql", two)
	s := status(t, db, edited)
	if !strings.Contains(s.Warning(), "000001_one") || !strings.Contains(s.Explain(), "another text: 000001_one") {
		t.Fatal(s.Warning(), s.Explain())
	}
	if _, err := newMigrator(t, db, edited).Up(t.Context()); migrate.CodeOf(err) != migrate.CodeEdited {
		t.Fatal(err)
	}
	if _, err := newMigrator(t, db, edited).Plan(t.Context()); migrate.CodeOf(err) != migrate.CodeEdited {
		t.Fatal(err)
	}
	if value[bool](t, db, `select to_regclass('rouse.two') is not null or rouse.answer() <> 1`) {
		t.Fatal("something was changed all the same")
	}
	up(t, db, sourceOf("v1.1.0", answer(2), "000001_one.up.sql", one, "000002_two.up.sql", two))
}

func TestVersionWithoutARecordCountsAsBreaking(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	s := sourceOf("v1.0.0", answer(1), "000001_one.up.sql", one)
	up(t, db, s)
	db.Exec(t, "update rouse.schema_migrations set version = 9")
	if err := status(t, db, s).Usable(); migrate.CodeOf(err) != migrate.CodeTooNew {
		t.Errorf("got %v", err)
	}
}

func TestRefusedMigrationLeavesNothingAndRepairMakesItRunAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	broken := sourceOf("v1.0.0", answer(1), "000001_one.up.sql", one,
		"000002_two.up.sql", "-- compat: safe\ncreate table rouse.two (id int);\nselect 1/0;\n")
	if _, err := newMigrator(t, db, broken).Up(t.Context()); migrate.CodeOf(err) != migrate.CodeFailed || !strings.Contains(err.Error(), "000002_two") {
		t.Fatalf("got %v", err)
	}
	if value[bool](t, db, "select to_regclass('rouse.two') is not null") {
		t.Error("a part of the refused migration is there")
	}
	mended := sourceOf("v1.0.0", answer(1), "000001_one.up.sql", one, "000002_two.up.sql", two)
	if _, err := newMigrator(t, db, mended).Up(t.Context()); migrate.CodeOf(err) != migrate.CodeDirty {
		t.Fatalf("got %v", err)
	}
	said, err := newMigrator(t, db, mended).Repair(t.Context())
	if err != nil || !strings.Contains(said, "did not take effect") || !strings.Contains(said, "not applied") {
		t.Fatalf("%q, %v", said, err)
	}
	if r := up(t, db, mended); len(r.Applied) != 1 || r.Applied[0].Version != 2 {
		t.Errorf("got %+v", r)
	}
	if said, err := newMigrator(t, db, mended).Repair(t.Context()); err != nil || !strings.Contains(said, "Nothing to repair") {
		t.Errorf("%q, %v", said, err)
	}
}

// A migrator that dies between the migration's commit and the clearing of the mark leaves what this test makes.
func TestRepairSeesThatAnInterruptedMigrationTookEffect(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	s := sourceOf("v1.0.0", answer(1), "000001_one.up.sql", one)
	up(t, db, s)
	db.Exec(t, "update rouse.schema_migrations set dirty = true")
	said, err := newMigrator(t, db, s).Repair(t.Context())
	if err != nil || !strings.Contains(said, "took effect") || !strings.Contains(said, "as applied") {
		t.Fatalf("%q, %v", said, err)
	}
	if r := up(t, db, s); len(r.Applied) != 0 {
		t.Errorf("it ran again: %+v", r)
	}
}

func TestRepairOfTheFirstMigration(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	if _, err := newMigrator(t, db, sourceOf("v1.0.0", answer(1), "000001_one.up.sql", "-- compat: safe\nselect 1/0;\n")).Up(t.Context()); migrate.CodeOf(err) != migrate.CodeFailed {
		t.Fatalf("got %v", err)
	}
	s := sourceOf("v1.0.0", answer(1), "000001_one.up.sql", one)
	if _, err := newMigrator(t, db, s).Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := up(t, db, s); len(r.Applied) != 1 {
		t.Errorf("got %+v", r)
	}
}

func TestMigrationOutsideATransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	s := sourceOf("v1.0.0", answer(1), "000001_one.up.sql", one,
		"000002_idx.up.sql", "-- compat: safe\n-- transaction: none\ncreate index concurrently if not exists one_id_idx on rouse.one (id);\n")
	up(t, db, s)
	if st := status(t, db, s); st.Usable() != nil || !value[bool](t, db, "select to_regclass('rouse.one_id_idx') is not null") {
		t.Errorf("got %+v", st)
	}
	if got := value[int](t, db, "select count(*)::int from rouse.schema_history"); got != 2 {
		t.Errorf("%d records", got)
	}
}

func TestManyMigratorsAtOnceAndOneWorks(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	s := sourceOf("v1.0.0", answer(1), "000001_one.up.sql", one, "000002_two.up.sql", two)
	var wg sync.WaitGroup
	applied := make([]int, 6)
	errs := make([]error, len(applied))
	for i := range applied {
		m := newMigrator(t, db, s)
		wg.Go(func() {
			var r migrate.Report
			r, errs[i] = m.Up(t.Context())
			applied[i] = len(r.Applied)
		})
	}
	wg.Wait()
	total := 0
	for i := range applied {
		if errs[i] != nil {
			t.Error(errs[i])
		}
		total += applied[i]
	}
	if total != 2 {
		t.Errorf("%d migrations were applied by %v", total, applied)
	}
}

func TestWaitForAnotherMigratorIsBoundedAndNamesIt(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	conn := db.Conn(t)
	if _, err := conn.Exec(t.Context(), "select pg_advisory_lock($1)", migrate.LockKey); err != nil {
		t.Fatal(err)
	}
	m, err := migrate.New(migrate.Options{DSN: db.DSN, Source: sourceOf("v1.0.0", answer(1)), LockWait: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Up(t.Context())
	if migrate.CodeOf(err) != migrate.CodeLocked || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", conn.PgConn().PID())) {
		t.Fatalf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	migrate.SetLockWait(m, time.Hour)
	if _, err := m.Up(ctx); err == nil {
		t.Fatal("waited beyond its context")
	}
}

func TestMigrationGivesUpOnATableLock(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	up(t, db, sourceOf("v1.0.0", answer(1), "000001_one.up.sql", one))
	tx, err := db.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select from rouse.one"); err != nil {
		t.Fatal(err)
	}
	m, err := migrate.New(migrate.Options{DSN: db.DSN, LockTimeout: 50 * time.Millisecond,
		Source: sourceOf("v1.0.0", answer(1), "000001_one.up.sql", one, "000002_alter.up.sql", "-- compat: safe\nalter table rouse.one add column b int;\n")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Up(t.Context()); migrate.CodeOf(err) != migrate.CodeFailed || !strings.Contains(err.Error(), "lock timeout") {
		t.Fatalf("got %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestPlanIsWhatUpWouldDo(t *testing.T) {
	t.Parallel()
	s := sourceOf("v1.0.0", answer(5), "000001_one.up.sql", one, "000002_two.up.sql", two)
	byHand, byUp := pgtest.Empty(t), pgtest.Empty(t)
	plan, err := newMigrator(t, byHand, s).Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !status(t, byHand, s).Fresh {
		t.Fatal("a plan changed the database")
	}
	byHand.Exec(t, plan)
	up(t, byUp, s)
	tables := "select string_agg(table_name, ',' order by table_name) from information_schema.tables where table_schema = 'rouse' and table_name <> 'schema_migrations'"
	if a, b := value[string](t, byHand, tables), value[string](t, byUp, tables); a != b || value[int](t, byHand, "select rouse.answer()") != 5 {
		t.Errorf("by hand %s, by up %s", a, b)
	}
	if plan, err := newMigrator(t, byUp, s).Plan(t.Context()); err != nil || plan != "" {
		t.Errorf("plan of an up-to-date database: %q, %v", plan, err)
	}
}

func TestMalformedSourcesAreRefused(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]migrate.Source{
		"no compat line": sourceOf("", answer(1), "000001_a.up.sql", "create table x ();"),
		"wrong word":     sourceOf("", answer(1), "000001_a.up.sql", "-- compat: maybe\n"),
		"bad name":       sourceOf("", answer(1), "1_a.up.sql", one),
		"same number":    sourceOf("", answer(1), "000001_a.up.sql", one, "000001_b.up.sql", one),
	} {
		if _, err := migrate.New(migrate.Options{DSN: "postgres://x", Source: s}); migrate.CodeOf(err) != migrate.CodeSource {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestUnreachableDatabase(t *testing.T) {
	t.Parallel()
	m, err := migrate.New(migrate.Options{DSN: "postgres://u:hunter2@127.0.0.1:1/d?connect_timeout=1", Source: sourceOf("", answer(1))})
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []func() error{
		func() error { _, err := m.Up(t.Context()); return err },
		func() error { _, err := m.Status(t.Context()); return err },
		func() error { _, err := m.Repair(t.Context()); return err },
	} {
		if err := call(); migrate.CodeOf(err) != migrate.CodeUnavailable || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v", err)
		}
	}
}
