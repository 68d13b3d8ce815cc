package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rouse-run/rouse/gateway/devpg"
	"github.com/rouse-run/rouse/gateway/store/migrate"
)

// opTimeout bounds one piece of housekeeping on the server.
const opTimeout = time.Minute

// DB is a database of one test.
type DB struct {
	Name string
	// DSN reaches it over a Unix socket. There is no pooler between, so it is the direct DSN as well.
	DSN string

	server cluster

	mu    sync.Mutex
	pools map[testing.TB]*pgxpool.Pool
}

// New gives the test a migrated database of its own on the shared server. It is dropped, with its replication slots and
// whoever is still connected, when the test passes; kept and its URL printed when it fails.
func New(t testing.TB) *DB {
	t.Helper()
	return shared(t, true)
}

// Empty gives the test a database of its own without anything in it.
func Empty(t testing.TB) *DB {
	t.Helper()
	return shared(t, false)
}

func shared(t testing.TB, migrated bool) *DB {
	t.Helper()
	c, err := sharedCluster()
	if err != nil {
		t.Fatalf("pgtest: no shared Postgres: %v", err)
	}
	return c.newDatabase(t, migrated)
}

// DirectDSN is the DSN for replication and migrations.
func (db *DB) DirectDSN() string { return db.DSN }

// Pool gives the test's connection pool, which is closed before the database is dropped.
func (db *DB) Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	db.mu.Lock()
	defer db.mu.Unlock()
	if pool := db.pools[t]; pool != nil {
		return pool
	}
	pool, err := pgxpool.New(t.Context(), db.DSN)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	if db.pools == nil {
		db.pools = map[testing.TB]*pgxpool.Pool{}
	}
	db.pools[t] = pool
	t.Cleanup(pool.Close)
	return pool
}

// Conn opens one connection that is closed before the database is dropped.
func (db *DB) Conn(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.DSN)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
		defer cancel()
		if err := conn.Close(ctx); err != nil {
			t.Logf("pgtest: closing a connection: %v", err)
		}
	})
	return conn
}

// Exec runs statements on a connection of their own.
func (db *DB) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.DSN)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	_, err = conn.Exec(t.Context(), sql, args...)
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatalf("pgtest: %s: %v", sql, err)
	}
}

func (c cluster) newDatabase(t testing.TB, migrated bool) *DB {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), opTimeout)
	defer cancel()
	conn, err := c.admin(ctx)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	defer conn.Close(ctx)
	template := "template1"
	if migrated {
		if template, err = c.template(ctx, conn); err != nil {
			t.Fatalf("pgtest: the migrated template: %v", err)
		}
	}
	suffix := make([]byte, 6)
	if _, err := rand.Read(suffix); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	name := fmt.Sprintf("t_%d_%s", os.Getpid(), hex.EncodeToString(suffix))
	if err := clone(ctx, conn, name, template); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	db := &DB{Name: name, DSN: c.dsn(name), server: c}
	t.Cleanup(func() { db.discard(t) })
	return db
}

// discard drops the database of a test that passed.
func (db *DB) discard(t testing.TB) {
	if t.Failed() {
		t.Logf("pgtest: the database is kept for a day or until its server is gone: psql '%s'", db.DSN)
		kept := filepath.Join(db.server.root, "kept")
		if err := errors.Join(os.MkdirAll(kept, 0o700), os.WriteFile(filepath.Join(kept, db.Name), nil, 0o600)); err != nil {
			t.Logf("pgtest: cannot mark it: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	conn, err := db.server.admin(ctx)
	if err == nil {
		if t.Failed() {
			// Its slots would hold back the log of the whole server.
			err = dropSlots(ctx, conn, db.Name)
		} else {
			err = dropDatabase(ctx, conn, db.Name)
		}
		err = errors.Join(err, conn.Close(ctx))
	}
	if err != nil {
		t.Logf("pgtest: giving up %s: %v", db.Name, err)
	}
}

// dropDatabase ends all sessions, drops the logical slots and then the database, which a slot would keep alive.
func dropDatabase(ctx context.Context, conn *pgx.Conn, name string) error {
	if err := dropSlots(ctx, conn, name); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, "drop database if exists "+pgx.Identifier{name}.Sanitize()+" with (force)")
	return err
}

// dropSlots ends a database's sessions and drops its logical slots: they count, and hold back the log, for the whole
// server.
func dropSlots(ctx context.Context, conn *pgx.Conn, name string) error {
	for {
		_, err := conn.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity where datname = $1`, name)
		var left int
		if err == nil {
			_, err = conn.Exec(ctx, `select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = $1 and not active`, name)
		}
		if err == nil {
			err = conn.QueryRow(ctx, `select count(*) from pg_replication_slots where database = $1`, name).Scan(&left)
		}
		// A session on its way out can hold its slot for another moment (55006), or a slot can vanish between being
		// seen and being dropped (42704).
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); err != nil && (!ok || pgErr.Code != "55006" && pgErr.Code != "42704") {
			return err
		}
		if err == nil && left == 0 {
			return nil
		}
		if err := waitABit(ctx); err != nil {
			return fmt.Errorf("%d replication slots of %s do not go: %w", left, name, err)
		}
	}
}

// clone makes a database from a template. Templates take no connections, so nobody can be in the way. Copying files is
// twice as fast as copying through the log where nothing is synced to disk.
func clone(ctx context.Context, conn *pgx.Conn, name, template string) error {
	_, err := conn.Exec(ctx, fmt.Sprintf("create database %s template %s strategy file_copy", pgx.Identifier{name}.Sanitize(), pgx.Identifier{template}.Sanitize()))
	return err
}

// templateLock is held by whoever builds a template.
const templateLock = 7305807

// keptTemplates is how many templates of other texts of the migrations stay: people switch back and forth.
const keptTemplates = 8

// template gives the name of the database that holds what this binary's migrations and functions make, building it if
// it is not there.
func (c cluster) template(ctx context.Context, conn *pgx.Conn) (string, error) {
	source := migrate.Embedded("test")
	fingerprint, err := source.Fingerprint()
	if err != nil {
		return "", err
	}
	name := "tmpl_" + fingerprint[:16]
	exists := func() (ok bool, err error) {
		err = conn.QueryRow(ctx, `select exists (select from pg_database where datname = $1)`, name).Scan(&ok)
		return ok, err
	}
	if ok, err := exists(); ok || err != nil {
		return name, err
	}
	if _, err := conn.Exec(ctx, `select pg_advisory_lock($1)`, templateLock); err != nil {
		return "", err
	}
	defer conn.Exec(ctx, `select pg_advisory_unlock($1)`, templateLock)
	if ok, err := exists(); ok || err != nil {
		return name, err
	}
	// Built under another name and renamed, so that what carries the name is whole.
	building := "building_" + fingerprint[:16]
	if err := dropDatabase(ctx, conn, building); err != nil {
		return "", err
	}
	if err := clone(ctx, conn, building, "template1"); err != nil {
		return "", err
	}
	m, err := migrate.New(migrate.Options{DSN: c.dsn(building), Source: source})
	if err != nil {
		return "", err
	}
	if _, err := m.Up(ctx); err != nil {
		return "", err
	}
	for _, sql := range []string{
		"select pg_terminate_backend(pid) from pg_stat_activity where datname = '" + building + "'",
		"alter database " + building + " allow_connections false",
		"alter database " + building + " rename to " + name,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return "", err
		}
	}
	return name, c.dropOldTemplates(ctx, conn, name)
}

func (c cluster) dropOldTemplates(ctx context.Context, conn *pgx.Conn, current string) error {
	rows, err := conn.Query(ctx, `select datname from pg_database where datname like 'tmpl\_%' and datname <> $1
order by oid desc offset $2`, current, keptTemplates)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		err := dropDatabase(ctx, conn, name)
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) {
			continue // somebody is cloning it right now; it goes another time
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Options of a server of a test's own.
type Options struct {
	// Settings are added to the defaults, which sync to disk and are set up for logical replication.
	Settings map[string]string
	// Unmigrated leaves the server's databases empty.
	Unmigrated bool
	// Dir is where the server's files are; empty = a temporary directory. The test removes what it names.
	Dir string
	// Env is added to the little that the server sees of our environment.
	Env []string
}

// Instance is a server of one test, with one database.
type Instance struct {
	*devpg.Server // Restart(ctx, mode), Kill(ctx), PID(), TCPURL(database) …
	DB            *DB
}

// Server gives the test a Postgres of its own, for faults: it may be killed and restarted. It is gone with the test; its
// log is printed when the test fails.
func Server(t testing.TB, opts Options) *Instance {
	t.Helper()
	dir := opts.Dir
	if dir == "" {
		dir = serverDir(t)
	}
	in := start(t, dir, devpg.Options{Dir: dir, Settings: opts.Settings, Env: opts.Env})
	if !opts.Unmigrated {
		m, err := migrate.New(migrate.Options{DSN: in.DB.DSN, Source: migrate.Embedded("test")})
		if err == nil {
			_, err = m.Up(t.Context())
		}
		if err != nil {
			t.Fatalf("pgtest: %v", err)
		}
	}
	return in
}

// serverDir is a directory for one server, which goes with the test.
func serverDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rouse-pg-")
	if err == nil {
		err = os.Chmod(dir, 0o711) // as root the server runs as somebody else, who must get through
	}
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return dir
}

func start(t testing.TB, dir string, opts devpg.Options) *Instance {
	t.Helper()
	srv, err := devpg.Start(t.Context(), opts)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
		defer cancel()
		if err := srv.Stop(ctx); err != nil {
			t.Errorf("pgtest: %v", err)
		}
		if raw, err := os.ReadFile(srv.LogPath()); err == nil && t.Failed() {
			t.Logf("pgtest: the server's log ends with\n%s", raw[max(0, len(raw)-4000):])
		}
	})
	return &Instance{Server: srv, DB: &DB{Name: devpg.Database, DSN: srv.DSN(devpg.Database),
		server: cluster{SocketDir: srv.SocketDir(), Port: srv.Port(), Password: srv.Password(), root: dir}}}
}
