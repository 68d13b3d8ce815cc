package interleave

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// Call is one statement of a session; it answers an outcome in a word.
type Call struct {
	Name string
	SQL  string
	Args []any
}

// Session runs statements one after another on a connection of its own. Out is
// what they answered, "" where that was null or no row.
type Session struct {
	Out []string
	Err error

	name     string
	conn     *pgx.Conn
	work     chan func() error
	finished chan error
	running  int
}

// NewSession opens a session, which ends with the test.
func NewSession(t testing.TB, db *pgtest.DB, name string) *Session {
	t.Helper()
	s := &Session{name: name, conn: db.Conn(t), work: make(chan func() error, 16), finished: make(chan error, 16)}
	go func() {
		for f := range s.work {
			s.finished <- f()
		}
		close(s.finished)
	}()
	t.Cleanup(func() {
		close(s.work)
		for range s.finished { //nolint:revive // waits for the goroutine's end before the connection closes
		}
	})
	return s
}

func (s *Session) start(f func() error) { s.running++; s.work <- f }

// Do gives the session a call, and does not wait for it.
func (s *Session) Do(ctx context.Context, c Call) {
	s.start(func() error {
		var out *string
		if err := s.conn.QueryRow(ctx, c.SQL, c.Args...).Scan(&out); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("%s: %s: %w", s.name, c.Name, err)
		}
		if out == nil {
			out = new(string)
		}
		s.Out = append(s.Out, *out)
		return nil
	})
}

// Exec gives the session a statement that answers nothing.
func (s *Session) Exec(ctx context.Context, sql string) {
	s.start(func() error {
		if _, err := s.conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %s: %w", s.name, sql, err)
		}
		return nil
	})
}

// Waits says that what the session was given has not all run.
func (s *Session) Waits() bool { return s.running > 0 }

// Settled waits until the session is idle or waits for another one, which
// monitor is asked for.
func (s *Session) Settled(ctx context.Context, monitor *pgx.Conn) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for s.running > 0 {
		select {
		case err := <-s.finished:
			s.ended(err)
		case <-tick.C:
			var blocked bool
			if err := monitor.QueryRow(ctx, `select cardinality(pg_blocking_pids($1)) > 0`, s.conn.PgConn().PID()).Scan(&blocked); err != nil {
				return err
			}
			if blocked {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("%s hangs: %w", s.name, ctx.Err())
		}
	}
	return nil
}

// Done waits until everything the session was given has run.
func (s *Session) Done(ctx context.Context) error {
	for s.running > 0 {
		select {
		case err := <-s.finished:
			s.ended(err)
		case <-ctx.Done():
			return fmt.Errorf("%s hangs: %w", s.name, ctx.Err())
		}
	}
	return s.Err
}

func (s *Session) ended(err error) {
	s.running--
	s.Err = errors.Join(s.Err, err)
}
