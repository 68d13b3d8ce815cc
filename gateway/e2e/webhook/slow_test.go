package webhook

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/gateway/soon"
)

// hooked is one gateway and entities of one person whose wakes go to urls.
type hooked struct {
	t      *testing.T
	in     *servertest.Instance
	person *wire.Client
}

func newHooked(t *testing.T, opts servertest.Options) *hooked {
	t.Helper()
	opts.PluginProcesses = true
	in := servertest.Start(t, opts)
	client := wire.NewHTTP(20 * time.Second)
	t.Cleanup(client.CloseIdleConnections)
	h := &hooked{t: t, in: in, person: &wire.Client{Base: in.URL, Principal: "user:kyle", HTTP: client}}
	h.must(h.person.Type(t.Context(), "job"))
	return h
}

func (h *hooked) must(a wire.Answer) wire.Answer {
	h.t.Helper()
	if a.Status < 200 || a.Status > 299 {
		h.t.Fatalf("%v: %s", a, a.Raw)
	}
	return a
}

func (h *hooked) spawn(id, url string) {
	h.t.Helper()
	h.must(h.person.Do(h.t.Context(), "PUT", "/_electric/entities/job/"+id, map[string]any{
		"dispatch_policy": map[string]any{"targets": []any{map[string]any{"type": "webhook", "url": url}}}}, nil))
}

func (h *hooked) send(id, key string) {
	h.t.Helper()
	h.must(h.person.Send(h.t.Context(), "job", id, key, "hello"))
}

// many does something for each number, several at once.
func many(n int, do func(i int)) {
	var wg sync.WaitGroup
	next := atomic.Int64{}
	for range 8 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	wg.Wait()
}

// Hundreds of entities whose receiver takes connections and never answers do
// not delay the wake of an entity with another receiver: all of those are
// delivered while the first deliveries to the dead one are still waited for.
func TestOneDeadReceiverDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	const dead, rounds = 400, 25
	h := newHooked(t, servertest.Options{})
	var waiting, most, gaveUp atomic.Int64
	release := make(chan struct{})
	hole := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n := waiting.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		select {
		case <-release:
		case <-r.Context().Done():
			gaveUp.Add(1)
		}
	}))
	t.Cleanup(hole.Close)
	t.Cleanup(func() { close(release) })
	posts := make(chan string, rounds)
	well := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"done":true}`)
		posts <- strings.TrimPrefix(r.URL.Path, "/")
	}))
	t.Cleanup(well.Close)

	h.spawn("well", well.URL+"/well")
	wakes := func(when string) (took []time.Duration) {
		for i := range rounds {
			began := time.Now()
			h.send("well", fmt.Sprintf("%s-%d", when, i))
			select {
			case <-posts:
				took = append(took, time.Since(began))
			case <-time.After(30 * time.Second):
				t.Fatalf("%s: wake %d of the entity with a good receiver was not delivered; %d wait for the dead one", when, i, waiting.Load())
			}
		}
		slices.Sort(took)
		return took
	}
	before := wakes("before")
	many(dead, func(i int) { h.spawn(fmt.Sprint("dead-", i), fmt.Sprintf("%s/hook/%d", hole.URL, i)) })
	many(dead, func(i int) { h.send(fmt.Sprint("dead-", i), "m") })
	soon.Until(t, "the dead receiver is tried", func() bool { return waiting.Load() > 0 })
	during := wakes("during")
	if gaveUp.Load() != 0 {
		t.Errorf("%d deliveries to the dead receiver had ended before: this shows nothing", gaveUp.Load())
	}
	if most.Load() > 64 {
		t.Errorf("%d deliveries at once to one receiver", most.Load())
	}
	var queued int
	if err := h.in.DB.Conn(t).QueryRow(t.Context(), `select count(*) from rouse.wake_notifications where target_webhook_url like $1 and resolved_at is null`, hole.URL+"%").Scan(&queued); err != nil || queued != dead {
		t.Errorf("%d wakes of the dead receiver are kept, %v", queued, err)
	}
	median := func(d []time.Duration) time.Duration { return d[len(d)/2] }
	t.Logf("send to POST at the good receiver, median of %d: %v before, %v with %d wakes due for a dead receiver (×%.2f); %d deliveries to that at once",
		rounds, median(before), median(during), dead, float64(median(during))/float64(median(before)), most.Load())
}

// A receiver that takes its time is given several at once, and none is lost.
func TestASlowReceiverGetsAll(t *testing.T) {
	t.Parallel()
	const all = 60
	h := newHooked(t, servertest.Options{})
	var mu sync.Mutex
	keys := map[string]int{}
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		timer := time.NewTimer(100 * time.Millisecond)
		defer timer.Stop()
		<-timer.C
		mu.Lock()
		keys[r.Header.Get("Idempotency-Key")]++
		mu.Unlock()
		_, _ = io.WriteString(w, `{"done":true}`)
	}))
	t.Cleanup(slow.Close)
	many(all, func(i int) { h.spawn(fmt.Sprint(i), slow.URL) })
	many(all, func(i int) { h.send(fmt.Sprint(i), "m") })
	soon.Until(t, "all are done", func() bool { mu.Lock(); defer mu.Unlock(); return len(keys) == all })
	mu.Lock()
	defer mu.Unlock()
	for key, n := range keys {
		if n != 1 {
			t.Errorf("the wake %s came %d times", key, n)
		}
	}
}
