package feed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// SQLSTATEs the feed tells apart.
const (
	stateObjectInUse      = "55006"
	stateNotInPrereqState = "55000"
	stateUndefinedObject  = "42704"
	stateDuplicateObject  = "42710"
	stateNoPrivilege      = "42501"
	stateConfigLimit      = "53400"
	stateTooManyConns     = "53300"
	stateAdminShutdown    = "57P01"
	stateCannotConnectNow = "57P03"
	stateInvalidPassword  = "28P01"
	stateInvalidAuth      = "28000"
)

func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// control is an ordinary connection beside the replication connection. One
// goroutine uses it.
type control struct {
	cfg     *pgx.ConnConfig
	timeout time.Duration
	conn    *pgx.Conn
}

// with runs fn on the connection, opening it first if need be, and drops the
// connection on any error that is not the statement's own.
func (c *control) with(ctx context.Context, fn func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if c.conn == nil {
		conn, err := pgx.ConnectConfig(ctx, c.cfg)
		if err != nil {
			return err
		}
		c.conn = conn
	}
	err := fn(ctx, c.conn)
	if err != nil && c.conn.IsClosed() {
		c.conn = nil
	}
	return err
}

func (c *control) close(ctx context.Context) {
	if c.conn != nil {
		closeConn(ctx, c.conn.PgConn())
		c.conn = nil
	}
}

// server describes the database server.
type server struct {
	oid      uint32
	version  int
	walLevel string
	recovery bool
}

func (c *control) server(ctx context.Context) (s server, err error) {
	err = c.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `
			select d.oid, current_setting('server_version_num')::int, current_setting('wal_level'), pg_is_in_recovery()
			from pg_database d where d.datname = current_database()`).
			Scan(&s.oid, &s.version, &s.walLevel, &s.recovery)
	})
	return s, err
}

// slotState is what the server says of a slot.
type slotState struct {
	exists bool
	// pid of the backend that uses the slot, 0 if none does.
	pid int32
	// lost: the slot is invalid and never usable again.
	lost bool
	// walStatus as pg_replication_slots has it, and the bytes of log it retains.
	walStatus string
	retained  int64
	// reply identifies the user's last status update, "" while it does not stream.
	// It is the client's clock: only whether it changes means anything.
	reply string
	// waiting: the backend waits for its client or for more log, so a missing
	// status update is the client's fault.
	waiting bool
	// flushed is where the server's log ends, as far as it is on disk and sent.
	flushed LSN
}

func (c *control) slot(ctx context.Context, name string) (s slotState, err error) {
	err = c.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		var found, flushed string
		row := conn.QueryRow(ctx, `
			select coalesce(s.slot_name::text, ''), coalesce(s.active_pid, 0), coalesce(s.wal_status, ''),
			       coalesce(pg_wal_lsn_diff(w.lsn, s.restart_lsn), 0)::bigint,
			       case when r.state in ('catchup', 'streaming') then coalesce(r.reply_time::text, 'none') else '' end,
			       coalesce(a.wait_event_type in ('Activity', 'Client'), false),
			       w.lsn::text
			from (select pg_current_wal_flush_lsn()) w(lsn)
			left join pg_replication_slots s on s.slot_name = $1 and s.database = current_database()
			left join pg_stat_replication r on r.pid = s.active_pid
			left join pg_stat_activity a on a.pid = s.active_pid`, name)
		if err := row.Scan(&found, &s.pid, &s.walStatus, &s.retained, &s.reply, &s.waiting, &flushed); err != nil {
			return err
		}
		s.exists = found != ""
		s.lost = s.walStatus == "lost"
		s.flushed, err = pglogrepl.ParseLSN(flushed)
		return err
	})
	return s, err
}

// drop removes the slot unless somebody uses it. With lostOnly it spares a slot
// that somebody else has made anew in the meantime.
func (c *control) drop(ctx context.Context, name string, lostOnly bool) error {
	return c.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `
			select pg_drop_replication_slot(slot_name) from pg_replication_slots
			where slot_name = $1 and active_pid is null and (wal_status = 'lost' or not $2)`, name, lostOnly)
		if code := sqlState(err); code == stateUndefinedObject || code == stateObjectInUse {
			return nil
		}
		return err
	})
}

// terminate asks the backend that uses the slot to end, if it is still this one.
func (c *control) terminate(ctx context.Context, name string, pid int32) error {
	return c.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `
			select pg_terminate_backend(active_pid) from pg_replication_slots
			where slot_name = $1 and active_pid = $2`, name, pid)
		return err
	})
}

func (c *control) hasPublication(ctx context.Context, name string) (ok bool, err error) {
	err = c.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `select exists (select from pg_publication where pubname = $1)`, name).Scan(&ok)
	})
	return ok, err
}

// freezeWatch finds out that a slot's holder no longer sends status updates. It
// looks at changes only, on the process's own monotonic clock: the time in a
// status update comes from the holder's clock, which may be wrong.
type freezeWatch struct {
	after time.Duration
	pid   int32
	reply string
	since time.Time
}

// due returns when the watch wants to look again at the latest.
func (w *freezeWatch) due(now time.Time) time.Duration {
	return max(w.after-now.Sub(w.since), eagerStep)
}

// frozen takes one observation.
func (w *freezeWatch) frozen(s slotState, now time.Time) bool {
	if s.pid == 0 || s.reply == "" || s.pid != w.pid || s.reply != w.reply {
		w.pid, w.reply, w.since = s.pid, s.reply, now
		return false
	}
	return s.waiting && now.Sub(w.since) >= w.after
}

// slotName of the router for a database.
func slotName(prefix string, oid uint32) string { return fmt.Sprintf("%s_%d", prefix, oid) }
