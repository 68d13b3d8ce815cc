package mutextest

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/store"
)

// BenchmarkCycle measures whole wake cycles (append, route, acquire, release
// with an ack) called in batches on one connection, by batch size, on a server
// that syncs each commit. Beside cycles/s it reports, a cycle and step, the
// wall time and the CPU time of the connection's backend, both in µs.
func BenchmarkCycle(b *testing.B) {
	const entities, runners = 2000, 16
	in := pgtest.Server(b, pgtest.Options{})
	st, err := store.Open(b.Context(), store.Options{DSN: in.DB.DSN + "&application_name=cycle", MaxConns: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(st.Close)
	r := &rig{t: b, db: in.DB, c: in.DB.Conn(b), now: time.Now()}
	r.exec(`select rouse.entity_type_put(1, 'chat', $1, false, '', null, null, null, null, null, null, null, null)`, kyle)
	for i := range runners {
		r.runner(fmt.Sprintf("mac%d", i), 0)
	}
	es := make([]entity, entities)
	for i := range es {
		es[i] = r.entity(fmt.Sprintf("/chat/%d", i), toRunner(fmt.Sprintf("mac%d", i%runners)))
	}
	pid := os.Getpid() // of the backend, once it is there
	// What the test databases do for speed, a measurement does not.
	r.exec(`analyze`)
	payload := []byte(`{"headers":{"operation":"insert"},"type":"inbox","value":{"text":"` + strings.Repeat("x", 180) + `"}}`)

	next := 0
	cycle := func(b *testing.B, size int, wall, cpu *[4]time.Duration) {
		step := func(i int, f func() error) {
			was, start := cpuOf(b, pid), time.Now()
			if err := f(); err != nil {
				b.Fatal(err)
			}
			wall[i] += time.Since(start)
			cpu[i] += cpuOf(b, pid) - was
		}
		batch, at := make([]entity, size), make([]store.StreamAt, size)
		items, ops := make([]store.AppendItem, size), make([]store.ClaimOp, size)
		for i := range batch {
			n := next % entities
			batch[i] = es[n]
			next++
			items[i] = store.AppendItem{Service: 1, Path: es[n].path, Type: "application/json", Payload: payload, Count: 1, Internal: true, Actionable: true}
			ops[i] = store.ClaimOp{Op: "acquire", Service: 1, Path: es[n].path, Holder: kyle, Runner: fmt.Sprintf("mac%d", n%runners), ClaimID: "c"}
		}
		step(0, func() error {
			rs, err := st.StreamAppend(b.Context(), items, false)
			for i, a := range rs {
				at[i] = store.StreamAt{Stream: a.StreamID, Position: a.Position}
			}
			return err
		})
		step(1, func() error {
			rs, err := st.DispatchRoute(b.Context(), at)
			for _, a := range rs {
				if a.Outcome != "minted" {
					return fmt.Errorf("route: %s", a.Outcome)
				}
			}
			return err
		})
		step(2, func() error {
			rs, err := st.ClaimApply(b.Context(), ops, false)
			for i, a := range rs {
				if a.Outcome != "granted" {
					return fmt.Errorf("acquire: %s", a.Outcome)
				}
				ops[i] = store.ClaimOp{Op: "release", Service: 1, ID: a.ConsumerID, Epoch: a.Epoch, Wake: a.WakeID,
					Acks: []store.ClaimAck{{Path: batch[i].path, Position: at[i].Position}}}
			}
			return err
		})
		step(3, func() error {
			rs, err := st.ClaimApply(b.Context(), ops, false)
			for _, a := range rs {
				if a.Outcome != "released" {
					return fmt.Errorf("release: %s", a.Outcome)
				}
			}
			return err
		})
	}
	cycle(b, entities, new([4]time.Duration), new([4]time.Duration)) // plans and pages
	pid = one[int](r, `select pid from pg_stat_activity where application_name = 'cycle' and query like '%claim_apply%'`)

	for _, size := range []int{1, 8, 50, 128} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			var wall, cpu [4]time.Duration
			for b.Loop() {
				cycle(b, size, &wall, &cpu)
			}
			n := float64(b.N * size)
			b.ReportMetric(n/b.Elapsed().Seconds(), "cycles/s")
			for i, name := range []string{"append", "route", "acquire", "release"} {
				b.ReportMetric(float64(wall[i].Nanoseconds())/n/1e3, name+"-µs")
				b.ReportMetric(float64(cpu[i].Nanoseconds())/n/1e3, name+"-cpu-µs")
			}
		})
	}
}

// cpuOf is the CPU time a process has used, from the kernel's scheduler.
func cpuOf(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		b.Skipf("no scheduler statistics here: %v", err)
	}
	first, _, _ := bytes.Cut(text, []byte(" "))
	ns, err := strconv.ParseInt(string(first), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(ns)
}
