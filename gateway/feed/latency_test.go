package feed

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// stampedRouter notes when each stream's notice is handed to the router.
type stampedRouter struct{ at chan time.Time }

func (s *stampedRouter) Notices(_ context.Context, b Batch) {
	s.at <- time.Now()
	b.Confirm()
}

func (*stampedRouter) Gap(context.Context, GapReason) {}

// BenchmarkCommitToNotice measures, on a server with fsync, from the moment the
// commit has returned to its client until a reader's Wait returns and until the
// router has the notice. Below zero is possible: the log can be quicker.
func BenchmarkCommitToNotice(b *testing.B) {
	in := pgtest.Server(b, pgtest.Options{})
	conn := in.DB.Conn(b)
	router := &stampedRouter{at: make(chan time.Time, 1)}
	hub := NewHub()
	f, err := New(Config{DSN: in.DB.DSN}, Deps{Hub: hub, Router: router})
	if err != nil {
		b.Fatal(err)
	}
	if err := f.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer f.Stop(context.WithoutCancel(b.Context()))
	for tick := time.Tick(time.Millisecond); !f.Up(); <-tick {
	}
	w := hub.Watch(1)
	defer w.Close()
	var toReader, toRouter []time.Duration
	read := make(chan time.Time, 1)
	for i := int64(1); b.Loop(); i++ {
		go func() {
			for {
				state, err := w.Wait(b.Context(), i-1)
				if err != nil || !state.Resync {
					read <- time.Now()
					return
				}
			}
		}()
		if _, err := conn.Exec(b.Context(), fmt.Sprintf(`select pg_logical_emit_message(true, 'rouse', '1:%d:1')`, i),
			pgx.QueryExecModeSimpleProtocol); err != nil {
			b.Fatal(err)
		}
		committed := time.Now()
		toReader = append(toReader, (<-read).Sub(committed))
		toRouter = append(toRouter, (<-router.at).Sub(committed))
	}
	for name, all := range map[string][]time.Duration{"reader": toReader, "router": toRouter} {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), "µs-"+name+"-p50")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "µs-"+name+"-p99")
	}
}
