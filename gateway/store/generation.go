package store

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// errStandby: nothing is read from a standby, which may be behind.
var errStandby = errors.New("the server is a standby")

// takesWrites refuses a connection to a standby, which says so when it greets;
// of several hosts in the database's URL the next one is tried.
func takesWrites(_ context.Context, c *pgconn.PgConn) error {
	if c.ParameterStatus("in_hot_standby") == "on" {
		return errStandby
	}
	return nil
}

// generation counts the states that the database went on from.
type generation struct {
	mu    sync.Mutex
	known string
	n     uint64
}

// identify asks a new connection's server which timeline of which cluster it
// is on. A failover or a restore breaks all connections, so the first one to
// what is there instead finds out before anything is read through it.
func (s *Store) identify(ctx context.Context, c *pgx.Conn) error {
	var id string
	err := c.QueryRow(ctx, `select left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) || ' ' || system_identifier from pg_control_system()`,
		pgx.QueryExecModeSimpleProtocol).Scan(&id)
	if err != nil {
		if c.IsClosed() {
			return err
		}
		return nil // a service that does not tell: the feed's sessions remain as a sign
	}
	s.generation.mu.Lock()
	defer s.generation.mu.Unlock()
	if s.generation.known != "" && s.generation.known != id {
		s.generation.n++
	}
	s.generation.known = id
	return nil
}

// Generation changes when the database is another one than before, or went on
// from an older state of itself: what was read before may no longer be true.
func (s *Store) Generation() uint64 {
	s.generation.mu.Lock()
	defer s.generation.mu.Unlock()
	return s.generation.n
}
