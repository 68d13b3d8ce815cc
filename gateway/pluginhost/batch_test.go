package pluginhost

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-run/rouse/plugins/contract"
)

// Deliveries that come while calls are under way ride together, each gets its
// own answer, and none is lost when the process ends with all of them.
func TestDeliveriesRideTogether(t *testing.T) {
	t.Parallel()
	h, tr := one(t, "batch")
	up(t, h)
	const n = 200
	var wg sync.WaitGroup
	for i := range n {
		do, want := "accept", contract.Accepted
		switch {
		case i < 4:
			do = "slow" // they keep the calls busy
		case i%10 == 0:
			do, want = "permanent", contract.Permanent
		case i%10 == 1:
			do, want = "done", contract.Done
		}
		wg.Go(func() {
			if r := send(t, tr, fmt.Sprint("w", i), do, 20*time.Second); r.Outcome != want {
				t.Errorf("%s: %+v", do, r)
			}
		})
	}
	wg.Wait()
	calls := counted(t, h, "rouse_plugin_calls_total")
	if calls >= n || calls < n/16 {
		t.Errorf("%v calls for %d deliveries", calls, n)
	}
	t.Logf("%v calls for %d deliveries", calls, n)
	for i := range 32 {
		do := "slow"
		if i == 20 {
			do = "crash"
		}
		wg.Go(func() {
			if r := send(t, tr, fmt.Sprint("v", i), do, 20*time.Second); r.Outcome != contract.Retry && r.Outcome != contract.Accepted {
				t.Errorf("%+v", r)
			}
		})
	}
	wg.Wait()
	if tr.batch.calls != 0 || len(tr.batch.waiting) != 0 {
		t.Errorf("%d calls, %d waiting", tr.batch.calls, len(tr.batch.waiting))
	}
}

// However many deliveries keep coming, each one's result is told: who makes a call
// for others does not go on for ever.
func TestWhoMakesTheCallsGetsItsResultToo(t *testing.T) {
	t.Parallel()
	h, tr := one(t, "batch")
	up(t, h)
	const n = 200
	var wg sync.WaitGroup
	var first atomic.Int32
	var enough atomic.Bool
	for i := range n {
		wg.Go(func() {
			for k := 0; !enough.Load(); k++ {
				if r := send(t, tr, fmt.Sprintf("w%d-%d", i, k), "slow", 20*time.Second); r.Outcome != contract.Accepted {
					t.Errorf("%+v", r)
				}
				if k == 0 {
					first.Add(1)
				}
			}
		})
	}
	defer wg.Wait()
	defer enough.Store(true)
	until(t, 15*time.Second, "a result for everybody while more keep coming", func() bool { return first.Load() == n })
}

// counted is the sum of a counter over its labels.
func counted(t *testing.T, h *Host, name string) (n float64) {
	t.Helper()
	all, err := h.cfg.Registry.(prometheus.Gatherer).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}
