package inspect

import (
	"net"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/store/migrate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func byCode(t *testing.T, findings []Finding) map[string]Finding {
	t.Helper()
	m := map[string]Finding{}
	for _, f := range findings {
		m[f.Code] = f
	}
	return m
}

func TestServerSetUpAsWeDoIsFine(t *testing.T) {
	t.Parallel()
	in := pgtest.Server(t, pgtest.Options{})
	findings := Run(t.Context(), Target{DSN: in.DB.DSN, Source: migrate.Embedded("test")})
	for _, f := range findings {
		// Some builds of Postgres come without lz4.
		if f.Severity != OK && !(f.Code == "ENCODING" && strings.Contains(f.Detail, "lz4")) {
			t.Errorf("%+v", f)
		}
	}
	want := []string{"PG_VERSION", "PG_WRITABLE", "WAL_LEVEL", "WAL_TIMELINE", "REPLICATION_CAPACITY", "SLOT_WAL_CAP", "DURABILITY", "IDLE_IN_TRANSACTION",
		"ENCODING", "REPLICATION_CONNECTION", "POOLER", "SLOTS", "OLD_SNAPSHOTS", "MIGRATIONS"}
	var got []string
	for _, f := range findings {
		got = append(got, f.Code)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestEachMistakeIsFound(t *testing.T) {
	t.Parallel()
	in := pgtest.Server(t, pgtest.Options{Unmigrated: true, Settings: map[string]string{
		"wal_level": "replica", "max_slot_wal_keep_size": "-1", "idle_in_transaction_session_timeout": "0", "synchronous_commit": "off",
		"max_replication_slots": "1", "default_transaction_read_only": "on", "fsync": "off"}})
	found := byCode(t, Run(t.Context(), Target{DSN: in.DB.DSN, Source: migrate.Embedded("test")}))
	for code, severity := range map[string]Severity{"WAL_LEVEL": Error, "SLOT_WAL_CAP": Warn, "IDLE_IN_TRANSACTION": Warn, "DURABILITY": Error,
		"REPLICATION_CAPACITY": Warn, "PG_WRITABLE": Error, "MIGRATIONS_PENDING": Error} {
		if f := found[code]; f.Severity != severity || f.Fix == "" {
			t.Errorf("%s: %+v, want %s with a fix", code, f, severity)
		}
	}
}

func TestARoleThatMayNotAskForTheTimelineIsTold(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	role := "plain_" + db.Name
	db.Exec(t, `create role `+role+` login password 'plain'`)
	defer db.Exec(t, `drop role `+role)
	db.Exec(t, `revoke execute on function pg_walfile_name(pg_lsn) from public`)
	u, err := url.Parse(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "plain")
	f := byCode(t, Run(t.Context(), Target{DSN: u.String(), Source: migrate.Embedded("test")}))["WAL_TIMELINE"]
	if f.Severity != Error || f.Fix == "" || !strings.Contains(f.Detail, "permission denied") {
		t.Errorf("got %+v", f)
	}
}

func TestSlotsAreTold(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	slot := "rouse_router_" + db.Name
	db.Exec(t, `select pg_create_logical_replication_slot($1, 'pgoutput')`, slot)
	f := byCode(t, Run(t.Context(), Target{DSN: db.DSN, Source: migrate.Embedded("test")}))["SLOTS"]
	if f.Severity != OK || !strings.Contains(f.Detail, slot) {
		t.Errorf("got %+v", f)
	}
}

func TestPoolerIsSeenByTheProcessItMakesUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	through := pooler(t, db.DSN)
	f := byCode(t, Run(t.Context(), Target{DSN: through, DirectDSN: db.DSN, Source: migrate.Embedded("test")}))["POOLER"]
	if f.Severity != OK || !strings.Contains(f.Detail, "through a pooler") {
		t.Errorf("in front of the hot path: %+v", f)
	}
	f = byCode(t, Run(t.Context(), Target{DSN: db.DSN, DirectDSN: through, Source: migrate.Embedded("test")}))["POOLER"]
	if f.Severity != Error {
		t.Errorf("in front of the direct URL: %+v", f)
	}
}

func TestUnreachableDatabaseIsTheOnlyFindingAndNamesNobody(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	findings := Run(t.Context(), Target{DSN: "postgres://someuser:hunter2@" + addr + "/somedb", Source: migrate.Embedded("test")})
	if len(findings) != 1 || findings[0].Code != "DATABASE_UNAVAILABLE" || findings[0].Severity != Error {
		t.Fatalf("got %+v", findings)
	}
	for _, secret := range []string{"hunter2", "someuser", "somedb"} {
		if strings.Contains(findings[0].Detail, secret) {
			t.Errorf("%q shows %q", findings[0].Detail, secret)
		}
	}
}

func TestNewerDatabaseIsAWarningWhenSafe(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	file := func(compat string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("-- compat: " + compat + "\nselect 1;\n")}
	}
	newer := migrate.Source{Functions: fstest.MapFS{}, Migrations: fstest.MapFS{"000001_a.up.sql": file("safe"), "000002_b.up.sql": file("safe")}}
	older := migrate.Source{Functions: fstest.MapFS{}, Migrations: fstest.MapFS{"000001_a.up.sql": file("safe")}}
	m, err := migrate.New(migrate.Options{DSN: db.DSN, Source: newer})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := byCode(t, Run(t.Context(), Target{DSN: db.DSN, Source: older}))["MIGRATIONS"]
	if f.Severity != Warn {
		t.Errorf("got %+v", f)
	}
}
