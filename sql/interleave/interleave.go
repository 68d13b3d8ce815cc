// Package interleave takes the transactions of two sessions through every order in which their statements and commits can
// come, and through queues behind rows that a third session holds. It promises that a schedule that hangs, or ends in a
// deadlock, fails the test and says which it was. It is for tests, and knows nothing of what the statements do.
package interleave

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// Timeout is how long one schedule may take before it counts as hung.
const Timeout = 20 * time.Second

// Meeting is what one schedule is played on.
type Meeting struct {
	// A and B are the two sessions' statements: as many each as Run was told.
	A, B []Call
	// Gate fills in the rows that a gate locks.
	Gate *strings.Replacer
	// Check judges what the statements answered, behind both commits.
	Check func(ctx context.Context, a, b []string) error
}

// Run plays every order of two transactions of na and nb statements, and for each
// gate, a query that locks rows, both orders of arrival while it is held. meet
// makes something fresh for the n-th schedule.
func Run(t *testing.T, db *pgtest.DB, na, nb int, gates []string, meet func(n int) Meeting) {
	t.Helper()
	a, b, h := NewSession(t, db, "a"), NewSession(t, db, "b"), NewSession(t, db, "gate")
	monitor := db.Conn(t)
	n := 0
	schedule := func(name, order, gate string) {
		t.Helper()
		n++
		m := meet(n)
		ctx, cancel := context.WithTimeout(t.Context(), Timeout)
		defer cancel()
		check := func(err error) {
			t.Helper()
			if err == nil {
				return
			}
			if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
				err = fmt.Errorf("%s %s: %w", pe.Detail, pe.Hint, err)
			}
			t.Fatalf("schedule %s: %v (a: %v, b: %v)", name, err, a.Out, b.Out)
		}
		for _, s := range []*Session{a, b, h} {
			s.Out, s.Err = nil, nil
			s.Exec(ctx, "begin")
			check(s.Done(ctx))
		}
		if gate != "" {
			h.Do(ctx, Call{Name: "gate", SQL: `select count(*)::text from (` + m.Gate.Replace(gate) + `) g`})
			check(h.Done(ctx))
		}
		step := map[*Session]int{}
		for _, who := range order {
			s, calls := a, m.A
			if who == 'b' {
				s, calls = b, m.B
			}
			if i := step[s]; i < len(calls) {
				s.Do(ctx, calls[i])
			} else {
				s.Exec(ctx, "commit")
			}
			step[s]++
			check(s.Settled(ctx, monitor))
		}
		h.Exec(ctx, "commit")
		for _, s := range []*Session{h, a, b} {
			check(s.Done(ctx))
		}
		check(m.Check(ctx, a.Out, b.Out))
		if t.Failed() {
			check(errors.New("see above"))
		}
	}
	na, nb = na+1, nb+1 // their commits
	for _, o := range orders(na, nb) {
		schedule(o, o, "")
	}
	sa, sb := strings.Repeat("a", na), strings.Repeat("b", nb)
	for i, g := range gates {
		schedule(fmt.Sprintf("gate %d, a first", i), sa+sb, g)
		schedule(fmt.Sprintf("gate %d, b first", i), sb+sa, g)
	}
	t.Logf("%d schedules", n)
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
