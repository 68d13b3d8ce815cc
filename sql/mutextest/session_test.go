package mutextest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// scheduleTimeout is how long one schedule may take before it counts as hung.
const scheduleTimeout = 20 * time.Second

// call is one statement of a session; it answers an outcome in a word.
type call struct {
	name string
	sql  string
	args []any
}

func sqlCall(name, sql string, args ...any) call { return call{name, sql, args} }

// opCall is one mutex call by the real clock, alone in its batch.
func opCall(o op, wait bool) call {
	name := fmt.Sprint(o["op"])
	if !wait {
		name += "?"
	}
	return call{name, `select (answer).outcome from rouse.claim_apply($1, $2)`, []any{opsJSON(o), wait}}
}

// session runs statements one after another on a connection of its own, in one
// transaction.
type session struct {
	name     string
	conn     *pgx.Conn
	pid      uint32
	work     chan func() error
	finished chan error
	running  int
	out      []string
	err      error
}

func newSession(t testing.TB, r *rig, name string) *session {
	c := r.db.Conn(t)
	s := &session{name: name, conn: c, pid: c.PgConn().PID(), work: make(chan func() error, 16), finished: make(chan error, 16)}
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

func (s *session) start(ctx context.Context, f func() error) { s.running++; s.work <- f }

func (s *session) do(ctx context.Context, c call) {
	s.start(ctx, func() error {
		var out *string
		if err := s.conn.QueryRow(ctx, c.sql, c.args...).Scan(&out); err != nil {
			return fmt.Errorf("%s: %s: %w", s.name, c.name, err)
		}
		if out == nil {
			s.out = append(s.out, "")
		} else {
			s.out = append(s.out, *out)
		}
		return nil
	})
}

func (s *session) exec(ctx context.Context, sql string) {
	s.start(ctx, func() error {
		if _, err := s.conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %s: %w", s.name, sql, err)
		}
		return nil
	})
}

// settled waits until the session is idle or waits for another one.
func (s *session) settled(ctx context.Context, monitor *pgx.Conn) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for s.running > 0 {
		select {
		case err := <-s.finished:
			s.running--
			s.err = errors.Join(s.err, err)
		case <-tick.C:
			var blocked bool
			if err := monitor.QueryRow(ctx, `select cardinality(pg_blocking_pids($1)) > 0`, s.pid).Scan(&blocked); err != nil {
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

// done waits until everything the session was given has run.
func (s *session) done(ctx context.Context) error {
	for s.running > 0 {
		select {
		case err := <-s.finished:
			s.running--
			s.err = errors.Join(s.err, err)
		case <-ctx.Done():
			return fmt.Errorf("%s hangs: %w", s.name, ctx.Err())
		}
	}
	return s.err
}

// pair is two sessions' transactions over one fresh entity. A busy answer is
// sent again with wait after the schedule, as the gateway does.
type pair struct {
	name  string
	setup func(r *rig, n int) entity
	a, b  func(r *rig, e entity) []call
	// check sees the outcomes of the two sessions' calls.
	check func(t *testing.T, r *rig, e entity, a, b []string)
	// gates are rows that a third session holds while both others queue up;
	// nil means the usual ones.
	gates []string
}

var usualGates = []string{
	`select 1 from rouse.consumers where id = :consumer for update`,
	`select 1 from rouse.streams where id = :stream for no key update`,
	`select 1 from rouse.streams where path in ('runners/mac/wake', 'runners/box/wake') order by path for no key update`,
	`select 1 from rouse.wake_notifications where consumer_id = ':name' for update`,
	`select 1 from rouse.runners order by id for no key update`,
}

// orders are the interleavings of two sessions with na and nb steps.
func orders(na, nb int) []string {
	if na == 0 || nb == 0 {
		return []string{strings.Repeat("a", na) + strings.Repeat("b", nb)}
	}
	var out []string
	for _, rest := range orders(na-1, nb) {
		out = append(out, "a"+rest)
	}
	for _, rest := range orders(na, nb-1) {
		out = append(out, "b"+rest)
	}
	return out
}

// run takes the pair through every interleaving of its statements and commits,
// and through every gate with both orders of arrival.
func (p pair) run(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("mac", 0)
	r.runner("box", 0)
	r.runner("tight", 1)
	r.exec(`update rouse.runner_runtime_diagnostics set liveness_lease_expires_at = null`)
	a, b, h := newSession(t, r, "a"), newSession(t, r, "b"), newSession(t, r, "gate")
	monitor := r.db.Conn(t)
	n := 0
	schedule := func(name, order, gate string) {
		n++
		e := p.setup(r, n)
		ca, cb := p.a(r, e), p.b(r, e)
		ctx, cancel := context.WithTimeout(r.ctx(), scheduleTimeout)
		defer cancel()
		fail := func(err error) {
			t.Helper()
			t.Fatalf("%s, schedule %s: %v (a: %v, b: %v)", p.name, name, err, a.out, b.out)
		}
		for _, s := range []*session{a, b, h} {
			s.out, s.err = nil, nil
			s.exec(ctx, "begin")
			if err := s.done(ctx); err != nil {
				fail(err)
			}
		}
		if gate != "" {
			h.do(ctx, call{"gate", `select count(*)::text from (` + strings.NewReplacer(":consumer", fmt.Sprint(e.consumer), ":stream", fmt.Sprint(e.stream), ":name", e.name).Replace(gate) + `) g`, nil})
			if err := h.done(ctx); err != nil {
				fail(err)
			}
		}
		ia, ib := 0, 0
		for _, who := range order {
			s, cs, i := a, ca, &ia
			if who == 'b' {
				s, cs, i = b, cb, &ib
			}
			if *i < len(cs) {
				s.do(ctx, cs[*i])
			} else {
				s.exec(ctx, "commit")
			}
			*i++
			if err := s.settled(ctx, monitor); err != nil {
				fail(err)
			}
		}
		h.exec(ctx, "commit")
		for _, s := range []*session{h, a, b} {
			if err := s.done(ctx); err != nil {
				var pe *pgconn.PgError
				if errors.As(err, &pe) && pe.Code == "40P01" {
					err = fmt.Errorf("deadlock: %s %s: %w", pe.Detail, pe.Hint, err)
				}
				fail(err)
			}
		}
		again := func(out []string, cs []call) {
			for i, o := range out {
				if o == "busy" {
					out[i] = one[string](r, cs[i].sql, cs[i].args[0], true)
				}
			}
		}
		again(a.out, ca)
		again(b.out, cb)
		if why, err := broken(ctx, r.c); err != nil || why != "" {
			fail(fmt.Errorf("%s %w", why, err))
		}
		p.check(t, r, e, a.out, b.out)
		if t.Failed() {
			fail(errors.New("see above"))
		}
		r.nothingLost(e)
	}
	for _, o := range orders(len(p.a(r, entity{}))+1, len(p.b(r, entity{}))+1) {
		schedule(o, o, "")
	}
	gates := p.gates
	if gates == nil {
		gates = usualGates
	}
	for i, g := range gates {
		na, nb := len(p.a(r, entity{}))+1, len(p.b(r, entity{}))+1
		sa, sb := strings.Repeat("a", na), strings.Repeat("b", nb)
		schedule(fmt.Sprintf("gate %d, a first", i), sa+sb, g)
		schedule(fmt.Sprintf("gate %d, b first", i), sb+sa, g)
	}
	t.Logf("%d schedules", n)
}

// nothingLost reaps and scans once and then demands that whatever is pending has an open
// wake or a claim.
func (r *rig) nothingLost(e entity) {
	r.t.Helper()
	r.exec(`select rouse.claim_reap(100)`)
	r.exec(`select rouse.dispatch_route(array_agg(stream_id), array_agg("position")) from rouse.dispatch_scan(0, 1000)`)
	if why, err := broken(r.ctx(), r.c); err != nil || why != "" {
		r.t.Fatalf("after the scan: %s %v", why, err)
	}
	s := r.state(e)
	if s.Actionable > s.Acked && s.State == "idle" && !s.Paused {
		r.t.Fatalf("work is pending and nobody is told: %+v", s)
	}
}
