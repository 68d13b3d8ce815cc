package store

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// ShapeSnapshot says which transactions a shape's first rows show, and where in
// the log and when they were read.
type ShapeSnapshot struct {
	// Transactions below XMin are shown, those from XMax on are not, and of those
	// between, the ones in progress are not.
	XMin, XMax uint64
	InProgress []uint64
	// LSN is where the log ended just after the snapshot: every transaction that
	// is shown ended before.
	LSN uint64
	// At is the database's time.
	At time.Time
}

// Shows reports whether the snapshot shows the transaction with this 32-bit id,
// which must not be further than 2^31 transactions away.
func (s ShapeSnapshot) Shows(xid uint32) bool {
	delta := int32(xid - uint32(s.XMax))
	if delta >= 0 {
		return false
	}
	full := s.XMax + uint64(int64(delta))
	if full < s.XMin {
		return true
	}
	for _, x := range s.InProgress {
		if x == full {
			return false
		}
	}
	return true
}

// parseSnapshot reads xmin:xmax:xip,xip.
func parseSnapshot(text string, s *ShapeSnapshot) (err error) {
	parts := strings.SplitN(text, ":", 3)
	if len(parts) != 3 {
		return strconv.ErrSyntax
	}
	if s.XMin, err = strconv.ParseUint(parts[0], 10, 64); err != nil {
		return err
	}
	if s.XMax, err = strconv.ParseUint(parts[1], 10, 64); err != nil || parts[2] == "" {
		return err
	}
	for _, each := range strings.Split(parts[2], ",") {
		x, err := strconv.ParseUint(each, 10, 64)
		if err != nil {
			return err
		}
		s.InProgress = append(s.InProgress, x)
	}
	return nil
}

// shapeSettings fix the text form of values; the log's is the same. Rows are taken
// as fast as their reader takes them, for as long as the caller allows.
const shapeSettings = `select set_config('timezone', 'UTC', true), set_config('datestyle', 'ISO', true), set_config('jit', 'off', true),
	set_config('statement_timeout', '0', true)`

// ShapeRead reads rows for a shape in one snapshot: begin gets the snapshot,
// then row gets each row's columns in text form, nil for null, valid during the
// call only. The query must answer texts; its words are the caller's own and
// values come in args. A snapshot holds a connection until the last row has been
// taken. The errors of begin and row end it and are returned.
func (s *Store) ShapeRead(ctx context.Context, query string, args []any, begin func(ShapeSnapshot) error, row func([][]byte) error) error {
	return s.conn(ctx, s.pool, func(ctx context.Context, c *pgx.Conn) error {
		tx, err := c.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
		if err != nil {
			return err
		}
		defer func() {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = tx.Rollback(end)
		}()
		// The first statement takes the snapshot; the position is read after it.
		if _, err := tx.Exec(ctx, shapeSettings); err != nil {
			return err
		}
		var snap ShapeSnapshot
		var text string
		var lsn int64
		err = tx.QueryRow(ctx, `select pg_current_snapshot()::text, (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint, clock_timestamp()`).
			Scan(&text, &lsn, &snap.At)
		if err != nil {
			return err
		}
		snap.LSN = uint64(lsn)
		if err := parseSnapshot(text, &snap); err != nil {
			return err
		}
		if err := begin(snap); err != nil || query == "" {
			return err
		}
		// Not prepared under a name: there are as many queries as clauses.
		rs, err := tx.Query(ctx, query, append([]any{pgx.QueryExecModeDescribeExec}, args...)...)
		if err != nil {
			return err
		}
		defer rs.Close()
		for rs.Next() {
			if err := row(rs.RawValues()); err != nil {
				return err
			}
		}
		return rs.Err()
	})
}

// ShapePosition answers up to where the log is on disk, and so sent: every
// transaction that has been answered lies before.
func (s *Store) ShapePosition(ctx context.Context) (uint64, error) {
	var lsn int64
	err := s.row(ctx, func(r pgx.Row) error { return r.Scan(&lsn) }, `select (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint`)
	return uint64(lsn), err
}

// ShapeReaders is who may read an entity.
type ShapeReaders struct {
	CreatedBy string
	// Subjects of grants: URLs of principals, and kinds of principals.
	Subjects []string
	// Valid is how long this holds if no grant changes; zero is for good.
	Valid time.Duration
}

// ShapeAccess answers who may read entities, by url, and which transactions the
// answer shows. An entity that is not there is left out.
func (s *Store) ShapeAccess(ctx context.Context, service int32, urls []string) (snap ShapeSnapshot, out map[string]ShapeReaders, err error) {
	err = again(func() error {
		snap, out = ShapeSnapshot{}, make(map[string]ShapeReaders, len(urls))
		return s.rowsOnce(ctx, s.pool, func(rows pgx.Rows) error {
			var text string
			var url, by *string
			var r ShapeReaders
			var valid *int64
			if err := rows.Scan(&text, &url, &by, &r.Subjects, &valid); err != nil {
				return err
			}
			if url != nil {
				r.CreatedBy = str(by)
				if valid != nil {
					r.Valid = max(time.Duration(*valid)*time.Millisecond, time.Millisecond)
				}
				out[*url] = r
			}
			if snap.XMax != 0 {
				return nil
			}
			return parseSnapshot(text, &snap)
		}, `select snapshot, url, created_by, subjects, valid_ms from rouse.shape_access($1::integer, $2::text[])`, service, urls)
	})
	return snap, out, err
}

// ShapeLapsed reports whether time has ended a grant to the principal since.
func (s *Store) ShapeLapsed(ctx context.Context, service int32, principal string, since time.Time) (lapsed bool, err error) {
	err = s.row(ctx, func(r pgx.Row) error { return r.Scan(&lapsed) },
		`select rouse.shape_lapsed($1::integer, $2::text, $3::timestamptz)`, service, principal, since)
	return lapsed, err
}

// ShapePools answers which of some worker pools the principal may see, and which
// transactions the answer shows.
func (s *Store) ShapePools(ctx context.Context, service int32, principal string, ids []string) (snap ShapeSnapshot, out []string, err error) {
	var text string
	err = s.row(ctx, func(r pgx.Row) error { return r.Scan(&text, &out) },
		`select pg_current_snapshot()::text, array(select rouse.pool_visible($1::integer, $2::text, $3::text[]))`, service, principal, ids)
	if err == nil {
		err = mapError(parseSnapshot(text, &snap))
	}
	return snap, out, err
}

// ShapeTypes answers which of some entity types the principal may spawn, and
// which transactions the answer shows.
func (s *Store) ShapeTypes(ctx context.Context, service int32, principal string, names []string) (snap ShapeSnapshot, out []string, err error) {
	var text string
	err = s.row(ctx, func(r pgx.Row) error { return r.Scan(&text, &out) },
		`select pg_current_snapshot()::text, array(select rouse.entity_type_allowed($1::integer, $2::text, 'spawn', $3::text[]))`, service, principal, names)
	if err == nil {
		err = mapError(parseSnapshot(text, &snap))
	}
	return snap, out, err
}
