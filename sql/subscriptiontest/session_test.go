package subscriptiontest

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

// invariants are queries that find what must never be there.
var invariants = []struct{ name, sql string }{
	{"whatever is unread is marked",
		`select k.consumer_id from rouse.consumer_streams k join rouse.streams s on s.id = k.stream_id where k.link_type <> 'own' and s.tail > k.acked and not k.behind and s.path is not null`},
	{"the cursor is within the stream",
		`select k.consumer_id from rouse.consumer_streams k join rouse.streams s on s.id = k.stream_id where k.acked > s.tail or k.acked < 0`},
	{"a stream that is watched says so",
		`select k.consumer_id from rouse.consumer_streams k join rouse.streams s on s.id = k.stream_id where k.link_type <> 'own' and s.watched & 1 = 0 and s.path is not null`},
	{"a stream that has gone is watched by nobody",
		`select k.consumer_id from rouse.consumer_streams k join rouse.streams s on s.id = k.stream_id where k.link_type <> 'own' and s.deleted_at is not null`},
	{"a waking or claimed mutex has exactly its wake open; no other has one",
		`select c.id from rouse.consumers c
		  left join rouse.wake_notifications n on n.service_id = c.service_id and n.consumer_id = c.name and n.resolved_at is null
		 where (c.state in ('waking', 'claimed')) <> (n.wake_id is not null) or n.wake_id <> c.wake_id or n.epoch <> c.epoch
		    or (n.claim_status = 'claimed') <> (c.state = 'claimed')`},
	{"a claimed mutex has its one active claim; no other has one",
		`select c.id from rouse.consumers c left join rouse.consumer_claims k on k.service_id = c.service_id and k.consumer_id = c.name and k.status = 'active'
		 where (c.state = 'claimed') <> (k.epoch is not null) or k.epoch <> c.epoch`},
}

// broken says which invariant does not hold, or "".
func (r *rig) broken() string {
	r.t.Helper()
	for _, v := range invariants {
		if n := one[int](r, `select count(*) from (`+v.sql+`) q`); n > 0 {
			return fmt.Sprintf("%s: %d findings", v.name, n)
		}
	}
	return ""
}

// nothingLost scans as the gateway does and then demands that whatever is unread
// has somebody who was told.
func (r *rig) nothingLost() {
	r.t.Helper()
	r.exec(`select rouse._claim_reap(100, $1)`, r.now)
	r.exec(`select rouse._dispatch_route(array_agg(stream_id), array_agg("position"), $1) from rouse.subscription_scan(0, 10000) where stream_id is not null`, r.now)
	if why := r.broken(); why != "" {
		r.t.Fatal("after the scan: " + why)
	}
	if n := one[int](r, `select count(*) from rouse.consumers c where c.kind = 'subscription' and c.state = 'idle' and rouse._consumer_pending(c.id)`); n > 0 {
		r.t.Fatalf("%d subscriptions have something unread and nobody is told", n)
	}
}

// session runs statements one after another in one transaction of its own.
type session struct {
	name     string
	conn     *pgx.Conn
	work     chan func() error
	finished chan error
	running  int
	out      []string
	err      error
}

func newSession(r *rig, name string) *session {
	s := &session{name: name, conn: r.db.Conn(r.t), work: make(chan func() error, 16), finished: make(chan error, 16)}
	go func() {
		for f := range s.work {
			s.finished <- f()
		}
		close(s.finished)
	}()
	r.t.Cleanup(func() {
		close(s.work)
		for range s.finished { //nolint:revive // waits for the goroutine's end before the connection closes
		}
	})
	return s
}

func (s *session) do(ctx context.Context, c call) {
	s.running++
	s.work <- func() error {
		var out *string
		err := s.conn.QueryRow(ctx, c.sql, c.args...).Scan(&out)
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", s.name, c.name, err)
		}
		if out != nil {
			s.out = append(s.out, *out)
		} else {
			s.out = append(s.out, "")
		}
		return nil
	}
}

func (s *session) exec(ctx context.Context, sql string) {
	s.running++
	s.work <- func() error {
		_, err := s.conn.Exec(ctx, sql)
		return err
	}
}

// settled waits until the session is idle, or, with a monitor, waits for another.
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
			if monitor == nil {
				continue
			}
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
	return s.err
}

// call is one statement of a session; it answers a word.
type call struct {
	name string
	sql  string
	args []any
}

// world is what a pair of sessions meets on: a subscription, claimed and with an
// unread stream, fresh for each schedule.
type world struct {
	s       sub
	g       answer
	path    string
	stream  int64
	tail    int64
	n       int
	second  string // another stream of the subscription's, up to date
	wStream string
}

func (r *rig) world(n int) world {
	w := world{n: n, path: fmt.Sprintf("p%d/a", n), second: fmt.Sprintf("p%d/b", n), wStream: fmt.Sprintf("w%d", n)}
	r.make(w.second, `{"a": 1}`)
	w.s = r.subscribe(spec{id: fmt.Sprint("s", n), typ: "pull-wake", wakeStream: w.wStream, pattern: fmt.Sprintf("p%d/*", n), streams: []string{w.path}})
	w.stream, w.tail = r.make(w.path, `{"a": 1}`), 8
	r.wantRoute(w.stream, "minted")
	w.g = r.want("granted", w.s.acquire("w"))
	return w
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

// gates are rows that a third session holds while both others queue up.
var gates = []string{
	`select count(*)::text from (select 1 from rouse.consumers where id = :consumer for update) g`,
	`select count(*)::text from (select 1 from rouse.streams where id = :stream for no key update) g`,
	`select count(*)::text from (select 1 from rouse.streams where path = ':wake' for no key update) g`,
}

// interleave takes two sessions through every interleaving of their statements
// and commits, and through every gate with both orders of arrival. A busy or
// retry answer is asked again afterwards, as the gateway does.
func interleave(t *testing.T, a, b func(w world) []call) {
	t.Parallel()
	r := newRig(t)
	sa, sb, sh := newSession(r, "a"), newSession(r, "b"), newSession(r, "gate")
	monitor := r.db.Conn(t)
	n := 0
	schedule := func(order, gate string) {
		n++
		w := r.world(n)
		calls := map[rune][]call{'a': a(w), 'b': b(w)}
		ctx, cancel := context.WithTimeout(r.ctx(), 20*time.Second)
		defer cancel()
		check := func(err error) {
			t.Helper()
			if err == nil {
				return
			}
			var pe *pgconn.PgError
			if errors.As(err, &pe) {
				err = fmt.Errorf("%w: %s", err, pe.Detail)
			}
			t.Fatalf("schedule %s, gate %q: %v (a: %v, b: %v)", order, gate, err, sa.out, sb.out)
		}
		for _, s := range []*session{sa, sb, sh} {
			s.out, s.err = nil, nil
			s.exec(ctx, "begin")
			check(s.settled(ctx, nil))
		}
		if gate != "" {
			sh.do(ctx, call{"gate", strings.NewReplacer(":consumer", fmt.Sprint(w.s.consumer), ":stream", fmt.Sprint(w.stream), ":wake", w.wStream).Replace(gate), nil})
			check(sh.settled(ctx, nil))
		}
		step := map[rune]int{}
		for _, who := range order {
			s := map[rune]*session{'a': sa, 'b': sb}[who]
			if i := step[who]; i < len(calls[who]) {
				s.do(ctx, calls[who][i])
			} else {
				s.exec(ctx, "commit")
			}
			step[who]++
			check(s.settled(ctx, monitor))
		}
		sh.exec(ctx, "commit")
		for _, s := range []*session{sh, sa, sb} {
			check(s.settled(ctx, nil))
		}
		if why := r.broken(); why != "" {
			check(errors.New(why))
		}
		for who, s := range map[rune]*session{'a': sa, 'b': sb} {
			for i, out := range s.out {
				if c := calls[who][i]; out == "busy" {
					args := append([]any(nil), c.args...)
					args[len(args)-1] = true // wait
					one[*string](r, c.sql, args...)
				} else if out == "retry" {
					one[*string](r, c.sql, c.args...)
				}
			}
		}
		if why := r.broken(); why != "" {
			check(errors.New("after asking again: " + why))
		}
		r.nothingLost()
	}
	w := world{}
	na, nb := len(a(w))+1, len(b(w))+1
	for _, o := range orders(na, nb) {
		schedule(o, "")
	}
	for _, g := range gates {
		schedule(strings.Repeat("a", na)+strings.Repeat("b", nb), g)
		schedule(strings.Repeat("b", nb)+strings.Repeat("a", na), g)
	}
	t.Logf("%d schedules", n)
}
