package mutextest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/sql/interleave"
)

// call is one statement of a session; it answers an outcome in a word.
type call = interleave.Call

func sqlCall(name, sql string, args ...any) call { return call{Name: name, SQL: sql, Args: args} }

// opCall is one mutex call by the real clock, alone in its batch.
func opCall(o op, wait bool) call {
	name := fmt.Sprint(o["op"])
	if !wait {
		name += "?"
	}
	return sqlCall(name, `select (answer).outcome from rouse.claim_apply($1, $2)`, opsJSON(o), wait)
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

// run takes the pair through every schedule of its statements.
func (p pair) run(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("mac", 0)
	r.runner("box", 0)
	r.runner("tight", 1)
	r.exec(`update rouse.runner_runtime_diagnostics set liveness_lease_expires_at = null`)
	gates := p.gates
	if gates == nil {
		gates = usualGates
	}
	again := func(out []string, calls []call) {
		for i, o := range out {
			if o == "busy" {
				out[i] = one[string](r, calls[i].SQL, calls[i].Args[0], true)
			}
		}
	}
	interleave.Run(t, r.db, len(p.a(r, entity{})), len(p.b(r, entity{})), gates, func(n int) interleave.Meeting {
		e := p.setup(r, n)
		m := interleave.Meeting{A: p.a(r, e), B: p.b(r, e),
			Gate: strings.NewReplacer(":consumer", fmt.Sprint(e.consumer), ":stream", fmt.Sprint(e.stream), ":name", e.name)}
		m.Check = func(ctx context.Context, a, b []string) error {
			again(a, m.A)
			again(b, m.B)
			if why, err := broken(ctx, r.c); err != nil || why != "" {
				return fmt.Errorf("%s %w", why, err)
			}
			if p.check(t, r, e, a, b); !t.Failed() {
				r.nothingLost(e)
			}
			return nil
		}
		return m
	})
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
