package plugins

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// While a plugin crashes in a loop, with many wakes waiting for it, the wakes of
// other transports are as fast as before. The measure is the median of the same
// rounds in the same run, one after the other.
func TestACrashLoopDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	const rounds, stuck = 30, 60
	w, _ := newWorld(t, "transports:\n"+entry(t, "crasher", "crasher", ""), func(map[string]any) string { return "" })
	w.must(w.person.Type(t.Context(), "job"))
	var mu sync.Mutex
	told := map[string]chan time.Time{}
	hook := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		c := told[r.URL.Path]
		mu.Unlock()
		if c != nil {
			c <- time.Now()
		}
		_, _ = rw.Write([]byte(`{"done":true}`))
	}))
	t.Cleanup(hook.Close)
	measure := func(phase string) time.Duration {
		var took []time.Duration
		for i := range rounds {
			path := fmt.Sprintf("/%s-%d", phase, i)
			arrived := make(chan time.Time, 10)
			mu.Lock()
			told[path] = arrived
			mu.Unlock()
			w.must(w.spawn(path[1:], map[string]any{"type": "webhook", "url": hook.URL + path}))
			began := time.Now()
			w.must(w.person.Send(t.Context(), "job", path[1:], "m", "hello"))
			select {
			case at := <-arrived:
				took = append(took, at.Sub(began))
			case <-time.After(30 * time.Second):
				t.Fatalf("%s: nothing is delivered", path)
			}
		}
		slices.Sort(took)
		t.Logf("%s: median %v, 90 %% %v, most %v", phase, took[rounds/2], took[rounds*9/10], took[rounds-1])
		return took[rounds/2]
	}
	for i := range stuck {
		w.must(w.spawn(fmt.Sprintf("stuck-%d", i), map[string]any{"type": "crasher"}))
	}
	_ = measure("warm")
	calm := measure("calm")
	for i := range stuck {
		w.must(w.person.Send(t.Context(), "job", fmt.Sprintf("stuck-%d", i), "m", "hello"))
	}
	w.eventually("it crashes", func() bool {
		for _, r := range w.in.Health.Degraded() {
			if r.Check == "plugin:crasher" {
				return true
			}
		}
		return false
	})
	storm := measure("storm")
	again := measure("again")
	ratio := float64(min(storm, again)) / float64(calm)
	t.Logf("ratio %.2f", ratio)
	// The machine's own noise is greater than any promise of 1.0.
	if ratio > 2.5 && min(storm, again)-calm > 20*time.Millisecond {
		t.Errorf("wakes are %.1f times as slow: %v, %v before", ratio, min(storm, again), calm)
	}
	if n := w.text(`select count(*)::text from rouse.delivery_attempts where transport = 'crasher' and outcome = 'retry'`); n == "0" {
		t.Error("nothing was tried, so this shows nothing")
	}
}
