package pluginhost

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-run/rouse/gateway/soon"
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
	soon.Within(t, 10*time.Second, "no call is under way", func() bool {
		tr.batch.mu.Lock()
		defer tr.batch.mu.Unlock()
		return tr.batch.calls == 0 && len(tr.batch.waiting) == 0
	})
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
	soon.Within(t, 15*time.Second, "a result for everybody while more keep coming", func() bool { return first.Load() == n })
}

// A delivery that is given up costs those that ride with it nothing, whether it
// makes the call, has been taken along, or still waits.
func TestWhoGivesUpTakesNobodyAlong(t *testing.T) {
	t.Parallel()
	h, tr := one(t, "batch")
	up(t, h)
	ctx, giveUp := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	held := func(n int) {
		t.Helper()
		soon.Within(t, 10*time.Second, "they wait", func() bool {
			tr.batch.mu.Lock()
			defer tr.batch.mu.Unlock()
			return tr.batch.calls == batchCalls && len(tr.batch.waiting) == n
		})
	}
	give := func(name, do string, want ...contract.Outcome) {
		wg.Go(func() {
			d := contract.Delivery{WakeID: name, Target: json.RawMessage(`{"type":"fixture","do":"` + do + `"}`), Notification: json.RawMessage(`{}`)}
			if r := tr.Deliver(ctx, d); !slices.Contains(want, r.Outcome) {
				t.Errorf("%s: %+v", name, r)
			}
		})
	}
	// Those that make the four calls give up, and so do half of those that wait.
	for i := range batchCalls {
		give(fmt.Sprint("lead", i), "slow", contract.Retry, contract.Accepted)
	}
	held(0)
	for i := range 20 {
		give(fmt.Sprint("waits", i), "slow", contract.Retry, contract.Accepted)
	}
	held(20)
	for i := range 20 {
		wg.Go(func() {
			if r := send(t, tr, fmt.Sprint("stays", i), "accept", 20*time.Second); r.Outcome != contract.Accepted {
				t.Errorf("one that stays: %+v", r)
			}
		})
	}
	held(40)
	giveUp()
	wg.Wait()
	soon.Within(t, 10*time.Second, "no call is under way", func() bool {
		tr.batch.mu.Lock()
		defer tr.batch.mu.Unlock()
		return tr.batch.calls == 0 && len(tr.batch.waiting) == 0
	})
	if r := send(t, tr, "after", "accept", 10*time.Second); r.Outcome != contract.Accepted {
		t.Errorf("after all that: %+v", r)
	}
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
