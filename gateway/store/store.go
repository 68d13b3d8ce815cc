// Package store is the gateway's only way to the database's tables: one Go
// method for one SQL function, with the same name, and SQLSTATEs turned into
// coded errors.
//
// It promises that no pgx type leaves it, that an expected outcome is a value
// and never an error, and that every error it returns carries a problem code.
// It knows nothing of HTTP, principals' rights, or who calls it.
package store

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rouse-run/rouse/gateway/problem"
)

// Options configures [Open].
type Options struct {
	// DSN may point at a transaction pooler: no call keeps session state.
	DSN string
	// MaxConns bounds the pool; zero means 16.
	MaxConns int
	// Pooled avoids named prepared statements, for poolers without protocol-level
	// prepare support.
	Pooled bool
	// AcquireTimeout bounds the wait for a connection; zero means 5 s.
	AcquireTimeout time.Duration
	// CallTimeout bounds a call whose context has no deadline; zero means 15 s. The
	// database is told to give a statement up shortly before, so that nothing runs on
	// there for nobody.
	CallTimeout time.Duration
}

// hotConns is how many connections are kept apart for batches: appends, mutex
// calls, the router. A backend that runs the same few functions over and over
// has their plans and catalogue entries at hand; spread over a whole pool that
// readers share, each batch meets a cold one.
const hotConns = 3

// Store calls the functions of schema rouse.
type Store struct {
	pool           *pgxpool.Pool
	hot            *pgxpool.Pool // for batches that wait for no row
	acquireTimeout time.Duration
	callTimeout    time.Duration
	// bare: there is a pooler that takes no settings with a connection.
	bare       atomic.Bool
	generation generation
	clock      databaseClock
}

// Open connects lazily: a database that is down now is reported by the calls,
// not here.
func Open(ctx context.Context, o Options) (*Store, error) {
	cfg, err := pgxpool.ParseConfig(o.DSN)
	if err != nil {
		// ParseConfig's text holds the DSN, which may hold a password.
		return nil, problem.New(problem.InvalidRequest, "The database URL cannot be parsed. Check ROUSE_DATABASE_URL.")
	}
	cfg.MaxConns = 16
	if o.MaxConns > 0 {
		cfg.MaxConns = int32(min(o.MaxConns, 1000))
	}
	cfg.MaxConnLifetime = time.Hour
	cfg.MaxConnIdleTime = 10 * time.Minute
	cfg.HealthCheckPeriod = 15 * time.Second
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	if o.Pooled {
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	// A connection to a node that was demoted or is going down is of no use to
	// the next caller: let the pool drop it.
	cfg.ConnConfig.OnPgError = func(_ *pgconn.PgConn, e *pgconn.PgError) bool {
		switch e.Code {
		case pgerrcode.ReadOnlySQLTransaction, pgerrcode.AdminShutdown, pgerrcode.CrashShutdown, pgerrcode.CannotConnectNow:
			return false
		}
		return true
	}
	st := &Store{acquireTimeout: o.AcquireTimeout, callTimeout: o.CallTimeout}
	if st.acquireTimeout <= 0 {
		st.acquireTimeout = 5 * time.Second
	}
	if st.callTimeout <= 0 {
		st.callTimeout = 15 * time.Second
	}
	st.bare.Store(o.Pooled)
	cfg.BeforeConnect = st.bounds(cfg.ConnConfig.RuntimeParams)
	cfg.AfterConnect = st.identify
	if cfg.ConnConfig.ValidateConnect == nil {
		cfg.ConnConfig.ValidateConnect = takesWrites
	}
	hot := cfg.Copy()
	hot.MaxConns = min(hotConns, cfg.MaxConns/2)
	cfg.MaxConns -= hot.MaxConns
	st.pool, err = pgxpool.NewWithConfig(ctx, cfg)
	if err == nil && hot.MaxConns > 0 {
		st.hot, err = pgxpool.NewWithConfig(ctx, hot)
	} else {
		st.hot = st.pool
	}
	if err != nil {
		return nil, problem.Wrap(problem.DatabaseUnavailable, err, "The database pool could not be made.")
	}
	return st, nil
}

// bounds are the settings of every connection, unless the database's URL has its
// own: a statement ends before its caller gives up waiting, and a transaction that
// was left open ends, too. Poolers forward settings or refuse connections with
// any; behind the latter the database's own apply.
func (s *Store) bounds(given map[string]string) func(context.Context, *pgx.ConnConfig) error {
	settings := map[string]string{
		"statement_timeout":                   strconv.FormatInt((s.callTimeout - s.callTimeout/15).Milliseconds(), 10),
		"idle_in_transaction_session_timeout": "60000",
	}
	return func(_ context.Context, c *pgx.ConnConfig) error {
		if s.bare.Load() {
			return nil
		}
		params := maps.Clone(c.RuntimeParams)
		if params == nil {
			params = map[string]string{}
		}
		for name, value := range settings {
			if _, own := given[name]; !own {
				params[name] = value
			}
		}
		c.RuntimeParams = params
		return nil
	}
}

// Close ends all connections after their calls.
func (s *Store) Close() {
	s.pool.Close()
	s.hot.Close()
}

// Ping says whether the database answers and accepts writes.
func (s *Store) Ping(ctx context.Context) error {
	var standby bool
	err := s.row(ctx, func(r pgx.Row) error { return r.Scan(&standby) }, `select pg_is_in_recovery()`)
	if err == nil && standby {
		return problem.New(problem.DatabaseReadOnly, "The database is a standby.")
	}
	return err
}

// Stat reports pool use for metrics.
func (s *Store) Stat() (total, idle, acquired int32, waits int64) {
	pools := []*pgxpool.Pool{s.pool, s.hot}
	for _, p := range slices.Compact(pools) {
		st := p.Stat()
		total, idle, acquired, waits = total+st.TotalConns(), idle+st.IdleConns(), acquired+st.AcquiredConns(), waits+st.EmptyAcquireCount()
	}
	return total, idle, acquired, waits
}

// lane is where a batch runs: apart from everything else, unless it may wait
// for rows.
func (s *Store) lane(wait bool) *pgxpool.Pool {
	if wait {
		return s.pool
	}
	return s.hot
}

// conn lends a connection with a bounded wait, so that an exhausted pool
// answers 503 and never hangs.
func (s *Store) conn(ctx context.Context, pool *pgxpool.Pool, f func(context.Context, *pgx.Conn) error) error {
	// A database that vanished without a word must not hold a caller for ever.
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.callTimeout)
		defer cancel()
	}
	actx, cancel := context.WithTimeout(ctx, s.acquireTimeout)
	c, err := pool.Acquire(actx)
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok && pe.Code == pgerrcode.ProtocolViolation && !s.bare.Swap(true) {
		c, err = pool.Acquire(actx)
	}
	cancel()
	if err != nil {
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return problem.Wrap(problem.Overloaded, err, "No database connection became free in time. Try again.")
		}
		return mapError(err)
	}
	defer c.Release()
	return mapError(f(ctx, c.Conn()))
}

// row runs a query that answers one row.
func (s *Store) row(ctx context.Context, scan func(pgx.Row) error, sql string, args ...any) error {
	return again(func() error {
		return s.conn(ctx, s.pool, func(ctx context.Context, c *pgx.Conn) error {
			if origin, ok := ctx.Value(originKey{}).(string); ok {
				return rowFrom(ctx, c, origin, scan, sql, args...)
			}
			return scan(c.QueryRow(ctx, sql, args...))
		})
	})
}

type originKey struct{}

// WithOrigin tells the calls of ctx that answer one row where they come from: the
// audit rows that they write say so. It holds no secret.
func WithOrigin(ctx context.Context, origin string) context.Context {
	return context.WithValue(ctx, originKey{}, origin)
}

// rowFrom runs a query behind a setting that lasts for its transaction: both go
// in one round trip, and the pipeline is one transaction.
func rowFrom(ctx context.Context, c *pgx.Conn, origin string, scan func(pgx.Row) error, sql string, args ...any) (err error) {
	var b pgx.Batch
	b.Queue(`select set_config('rouse.origin', $1, true)`, origin)
	b.Queue(sql, args...)
	got := c.SendBatch(ctx, &b)
	defer func() {
		if closed := got.Close(); err == nil {
			err = closed
		}
	}()
	if _, err := got.Exec(); err != nil {
		return err
	}
	return scan(got.QueryRow())
}

// rows runs a query and hands each row to scan.
func (s *Store) rows(ctx context.Context, scan func(pgx.Rows) error, sql string, args ...any) error {
	return s.rowsOn(ctx, s.pool, scan, sql, args...)
}

func (s *Store) rowsOn(ctx context.Context, pool *pgxpool.Pool, scan func(pgx.Rows) error, sql string, args ...any) error {
	return again(func() error { return s.rowsOnce(ctx, pool, scan, sql, args...) })
}

func (s *Store) rowsOnce(ctx context.Context, pool *pgxpool.Pool, scan func(pgx.Rows) error, sql string, args ...any) error {
	return s.conn(ctx, pool, func(ctx context.Context, c *pgx.Conn) error {
		rs, err := c.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		defer rs.Close()
		for rs.Next() {
			if err := scan(rs); err != nil {
				return err
			}
		}
		return rs.Err()
	})
}

// ErrNoRow is what a lookup returns when there is no such row.
var ErrNoRow = problem.New(problem.NotFound, "There is no such thing here.")

// IsDataError says that the call's own data made it fail, so that the same
// call without that data can succeed: how a batch tells a poisoned member from
// an outage.
func IsDataError(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && (pgerrcode.IsDataException(pe.Code) || pgerrcode.IsIntegrityConstraintViolation(pe.Code) ||
		pgerrcode.IsProgramLimitExceeded(pe.Code) || pe.Code == pgerrcode.UntranslatableCharacter)
}

// mapError gives every error a code, by SQLSTATE and never by text.
func mapError(err error) error {
	if err == nil {
		return nil
	}
	var coded *problem.Error
	if errors.As(err, &coded) {
		return err
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNoRow
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	var pe *pgconn.PgError
	if errors.As(err, &pe) {
		switch {
		case pe.Code == pgerrcode.ReadOnlySQLTransaction:
			return problem.Wrap(problem.DatabaseReadOnly, err, "The database is read-only at the moment. Try again.")
		case pe.Code == pgerrcode.LockNotAvailable, pe.Code == pgerrcode.QueryCanceled,
			pe.Code == pgerrcode.DeadlockDetected, pe.Code == pgerrcode.SerializationFailure:
			return problem.Wrap(problem.DatabaseTimeout, err, "The database was busy with this row. Try again.")
		case pgerrcode.IsConnectionException(pe.Code), pgerrcode.IsOperatorIntervention(pe.Code),
			pgerrcode.IsInsufficientResources(pe.Code):
			return problem.Wrap(problem.DatabaseUnavailable, err, "The database is not available. Try again.")
		case pgerrcode.IsDataException(pe.Code), pe.Code == pgerrcode.UntranslatableCharacter:
			return problem.Wrap(problem.InvalidRequest, err, "The request holds a value that the database cannot store, such as a number of too many digits.")
		}
		return problem.Wrap(problem.Internal, err, "The database refused the call. Give the request id to the operator.")
	}
	if errors.Is(err, errStandby) {
		return problem.Wrap(problem.DatabaseReadOnly, err, "The database is read-only at the moment. Try again.")
	}
	var ne net.Error
	var ce *pgconn.ConnectError
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ne) || errors.As(err, &ce) || pgconn.Timeout(err) || !isScanError(err) {
		return problem.Wrap(problem.DatabaseUnavailable, err, "The database is not available. Try again.")
	}
	return problem.Wrap(problem.Internal, err, "The database's answer was not understood. Give the request id to the operator.")
}

// isScanError tells a wrong row shape (a bug) from a broken connection.
func isScanError(err error) bool {
	var se pgx.ScanArgError
	return errors.As(err, &se)
}
