package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	gomigrate "github.com/golang-migrate/migrate/v4"
	driver "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// bookkeeping is what the migrator itself needs. Created by code because it must be there before the first migration.
const bookkeeping = `create schema if not exists rouse;
create table if not exists rouse.schema_history (
    version     integer not null,
    name        text not null,
    compat      text not null,
    applied_at  timestamptz not null default clock_timestamp(),
    hash        text,
    constraint schema_history_pkey primary key (version),
    constraint schema_history_compat_check check (compat in ('safe', 'breaking'))
);
alter table rouse.schema_history add column if not exists hash text;
comment on table rouse.schema_history is 'One row a migration, written in its transaction, so that a binary can judge those it does not know.';
create table if not exists rouse.schema_manifest (
    id          integer not null default 1,
    hash        text not null,
    functions   integer not null,
    migration   integer not null,
    release     text not null,
    applied_at  timestamptz not null default clock_timestamp(),
    constraint schema_manifest_pkey primary key (id),
    constraint schema_manifest_id_check check (id = 1)
);
comment on table rouse.schema_manifest is 'Which set of functions is installed, and by which release.';
`

// lockKey is the advisory lock of all Rouse migrators of a database.
const lockKey int64 = 0x726f757365 // "rouse"

// Options of a Migrator.
type Options struct {
	DSN    string // direct, not through a pooler
	Source Source
	Logger *slog.Logger // nil = silent
	// LockWait bounds the wait for another migrator; 0 = 60 s.
	LockWait time.Duration
	// LockTimeout bounds the wait of one statement for a table's lock, so that a migration queues nobody behind it for
	// longer; 0 = 5 s.
	LockTimeout time.Duration
}

// Migrator brings one database up to date. It holds no connection between calls.
type Migrator struct {
	opts      Options
	list      []Migration
	functions []Function
	hash      string
}

// New checks the source and gives a migrator.
func New(opts Options) (*Migrator, error) {
	if opts.LockWait == 0 {
		opts.LockWait = time.Minute
	}
	if opts.LockTimeout == 0 {
		opts.LockTimeout = 5 * time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Migrator{opts: opts}
	var err error
	if m.list, err = opts.Source.List(); err == nil {
		m.functions, err = opts.Source.ListFunctions()
	}
	if err != nil {
		return nil, &Error{Code: CodeSource, Detail: "the migrations in this binary are malformed", Cause: err}
	}
	m.hash = functionsHash(m.functions)
	return m, nil
}

// Report says what Up did.
type Report struct {
	Applied   []Migration
	Functions int // replaced; 0 when they were up to date
	Status    Status
}

// Up applies what is missing: the migrations one by one, then all functions in one transaction. Safe to call from any
// number of processes at once.
func (m *Migrator) Up(ctx context.Context) (Report, error) {
	var report Report
	err := m.locked(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, bookkeeping); err != nil {
			return &Error{Code: CodeFailed, Detail: "cannot make the migrator's own tables", Cause: err}
		}
		status, err := m.status(ctx, conn)
		if err != nil {
			return err
		}
		if err := status.refusal(); err != nil {
			return err
		}
		if err := status.edited(); err != nil {
			return err
		}
		if err := m.noteHashes(ctx, conn); err != nil {
			return err
		}
		if report.Applied, err = m.step(ctx, status); err != nil {
			return err
		}
		if status.FunctionsPending {
			if err := m.applyFunctions(ctx, conn); err != nil {
				return err
			}
			report.Functions = len(m.functions)
		}
		report.Status, err = m.status(ctx, conn)
		return err
	})
	return report, err
}

// noteHashes fills in the hashes of migrations that were applied before hashes were kept.
func (m *Migrator) noteHashes(ctx context.Context, conn *pgx.Conn) error {
	versions, hashes := make([]int, len(m.list)), make([]string, len(m.list))
	for i, mig := range m.list {
		versions[i], hashes[i] = mig.Version, mig.hash()
	}
	_, err := conn.Exec(ctx, `update rouse.schema_history h set hash = u.hash
		from unnest($1::int[], $2::text[]) u (version, hash) where h.version = u.version and h.hash is null`, versions, hashes)
	if err != nil {
		return &Error{Code: CodeFailed, Detail: "cannot note which migrations were applied", Cause: err}
	}
	return nil
}

// step runs the pending migrations through golang-migrate.
func (m *Migrator) step(ctx context.Context, status Status) ([]Migration, error) {
	if len(status.Pending) == 0 {
		return nil, nil
	}
	runner, err := m.runner(ctx)
	if err != nil {
		return nil, err
	}
	defer runner.Close()
	var applied []Migration
	for _, next := range status.Pending {
		if err := ctx.Err(); err != nil {
			return applied, err
		}
		m.opts.Logger.Info("migrating", "version", next.Version, "name", next.Name, "compat", next.Compat)
		if err := runner.Steps(1); err != nil {
			return applied, &Error{Code: CodeFailed, Detail: fmt.Sprintf("migration %06d_%s was refused", next.Version, next.Name), Cause: err,
				Hint: "Nothing of a transactional migration stays behind; `rouse migrate repair` says where the database stands and clears the mark."}
		}
		if !next.Transactional {
			// Alone in its file and outside a transaction; its record follows it.
			if err := m.record(ctx, next); err != nil {
				return applied, err
			}
		}
		applied = append(applied, next)
	}
	return applied, nil
}

func (m *Migrator) record(ctx context.Context, mig Migration) error {
	conn, err := m.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, recordSQL(mig)); err != nil {
		return &Error{Code: CodeFailed, Detail: fmt.Sprintf("cannot record migration %06d", mig.Version), Cause: err}
	}
	return nil
}

// runner opens golang-migrate on a connection of its own, whose statements give up waiting for locks.
func (m *Migrator) runner(ctx context.Context) (*gomigrate.Migrate, error) {
	cfg, err := m.config()
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*cfg)
	to, err := driver.WithInstance(db, &driver.Config{MigrationsTable: `"rouse"."schema_migrations"`, MigrationsTableQuoted: true})
	if err != nil {
		return nil, &Error{Code: CodeUnavailable, Detail: "cannot open the migration's connection", Cause: errors.Join(err, closeDB(db))}
	}
	from, err := newRecording(m.opts.Source, m.list)
	if err != nil {
		return nil, &Error{Code: CodeSource, Detail: "cannot read the migrations in this binary", Cause: errors.Join(err, to.Close())}
	}
	runner, err := gomigrate.NewWithInstance("embedded", from, "pgx5", to)
	if err != nil {
		return nil, &Error{Code: CodeSource, Detail: "cannot set up the migration", Cause: errors.Join(err, to.Close())}
	}
	return runner, nil
}

func closeDB(db *sql.DB) error { return db.Close() }

// applyFunctions replaces the whole set in one transaction. With check_function_bodies off Postgres looks up what a body
// names only when it runs, so functions may come in any order.
func (m *Migrator) applyFunctions(ctx context.Context, conn *pgx.Conn) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return &Error{Code: CodeUnavailable, Detail: "cannot begin", Cause: err}
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if _, err := tx.Exec(ctx, "set local check_function_bodies = off"); err != nil {
		return &Error{Code: CodeFailed, Detail: "cannot prepare the functions' transaction", Cause: err}
	}
	for _, f := range m.functions {
		if _, err := tx.Exec(ctx, f.SQL); err != nil {
			return &Error{Code: CodeFailed, Detail: "function file " + f.Name + ".sql was refused; no function was changed", Cause: err}
		}
	}
	_, err = tx.Exec(ctx, `insert into rouse.schema_manifest (id, hash, functions, migration, release)
values (1, $1, $2, $3, $4)
on conflict (id) do update set hash = excluded.hash, functions = excluded.functions, migration = excluded.migration,
    release = excluded.release, applied_at = clock_timestamp()`, m.hash, len(m.functions), newest(m.list), m.opts.Source.Release)
	if err == nil {
		err = tx.Commit(ctx)
	}
	if err != nil {
		return &Error{Code: CodeFailed, Detail: "cannot record the functions; none was changed", Cause: err}
	}
	m.opts.Logger.Info("functions replaced", "count", len(m.functions))
	return nil
}

// Plan gives, as SQL text for a person to read or run, what Up would do. It changes nothing.
func (m *Migrator) Plan(ctx context.Context) (string, error) {
	status, err := m.Status(ctx)
	if err != nil {
		return "", err
	}
	if err := status.refusal(); err != nil {
		return "", err
	}
	if !status.HasPending() {
		return "", nil
	}
	if err := status.edited(); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "-- the migrator's own tables\n%s\n", bookkeeping)
	for _, p := range status.Pending {
		fmt.Fprintf(&b, "-- migration %06d_%s (%s)\n", p.Version, p.Name, p.Compat)
		if p.Transactional {
			fmt.Fprintf(&b, "begin;\n%s\n%scommit;\n\n", p.SQL, recordSQL(p))
		} else {
			fmt.Fprintf(&b, "%s\n%s\n", p.SQL, recordSQL(p))
		}
	}
	if status.FunctionsPending {
		fmt.Fprintf(&b, "-- functions (%d)\nbegin;\nset local check_function_bodies = off;\n", len(m.functions))
		for _, f := range m.functions {
			fmt.Fprintf(&b, "\n-- %s.sql\n%s\n", f.Name, f.SQL)
		}
		b.WriteString("commit;\n")
	}
	return b.String(), nil
}

// locked runs f while this process is the database's only migrator. It polls instead of waiting inside Postgres: a
// session that waits for an advisory lock holds a snapshot, and CREATE INDEX CONCURRENTLY waits for every snapshot.
func (m *Migrator) locked(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := m.connect(ctx)
	if err != nil {
		return err
	}
	// The lock goes with its session, whatever happens to us.
	defer conn.Close(context.WithoutCancel(ctx))
	deadline := time.Now().Add(m.opts.LockWait)
	for {
		var got bool
		if err := conn.QueryRow(ctx, "select pg_try_advisory_lock($1)", lockKey).Scan(&got); err != nil {
			return &Error{Code: CodeUnavailable, Detail: "cannot ask for the migration lock", Cause: err}
		}
		if got {
			return f(conn)
		}
		if time.Now().After(deadline) {
			return &Error{Code: CodeLocked, Detail: "another process is migrating this database" + holder(ctx, conn),
				Hint: "Wait for it. If it hangs, end it with pg_terminate_backend(pid)."}
		}
		wait := time.NewTimer(100*time.Millisecond + rand.N(200*time.Millisecond))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return &Error{Code: CodeLocked, Detail: "gave up waiting for another migrator", Cause: ctx.Err()}
		}
	}
}

// holder names the session that has the migration lock, as far as we may see it.
func holder(ctx context.Context, conn *pgx.Conn) string {
	var pid int
	var app string
	err := conn.QueryRow(ctx, `select a.pid, coalesce(a.application_name, '') from pg_locks l join pg_stat_activity a using (pid)
where l.locktype = 'advisory' and l.granted and l.database = (select oid from pg_database where datname = current_database())
  and (l.classid::bigint << 32 | l.objid::bigint) = $1 limit 1`, lockKey).Scan(&pid, &app)
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (backend pid %d, application %q)", pid, app)
}

func (m *Migrator) config() (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(m.opts.DSN)
	if err != nil {
		return nil, &Error{Code: CodeUnavailable, Detail: "the database URL cannot be read", Cause: err}
	}
	cfg.RuntimeParams["lock_timeout"] = fmt.Sprintf("%dms", m.opts.LockTimeout.Milliseconds())
	cfg.RuntimeParams["application_name"] = "rouse migrate"
	cfg.RuntimeParams["idle_in_transaction_session_timeout"] = "0"
	return cfg, nil
}

func (m *Migrator) connect(ctx context.Context) (*pgx.Conn, error) {
	cfg, err := m.config()
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, &Error{Code: CodeUnavailable, Detail: "cannot connect to the database", Cause: err}
	}
	return conn, nil
}
