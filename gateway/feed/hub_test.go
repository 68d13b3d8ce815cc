package feed

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestHubTailOnlyRises(t *testing.T) {
	t.Parallel()
	h := NewHub()
	w := h.Watch(1)
	defer w.Close()
	for _, tail := range []int64{5, 3, 9, 9, 1} {
		h.Publish(1, tail, 0)
	}
	h.Publish(1, 0, Closed|Actionable)
	h.Publish(2, 100, Gone)
	if got, want := w.State(), (State{Tail: 9, Closed: true}); got != want {
		t.Fatalf("got %+v, want %+v", got, want)
	}
}

func TestWaitReturnsForEachCause(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		cause func(h *Hub)
		want  State
	}{
		"tail":   {func(h *Hub) { h.Publish(1, 11, 0) }, State{Tail: 11}},
		"closed": {func(h *Hub) { h.Publish(1, 10, Closed) }, State{Tail: 10, Closed: true}},
		"gone":   {func(h *Hub) { h.Publish(1, 0, Gone) }, State{Tail: 10, Gone: true}},
		"resync": {func(h *Hub) { h.Resync() }, State{Tail: 10, Resync: true}},
	}
	for name, c := range cases {
		synctest.Test(t, func(t *testing.T) {
			h := NewHub()
			w := h.Watch(1)
			defer w.Close()
			h.Publish(1, 10, 0)
			got := make(chan State, 1)
			go func() {
				state, err := w.Wait(t.Context(), 10)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				got <- state
			}()
			synctest.Wait()
			h.Publish(1, 10, 0) // no change
			h.Publish(2, 99, 0) // another stream
			synctest.Wait()
			select {
			case s := <-got:
				t.Fatalf("%s: returned %+v without a cause", name, s)
			default:
			}
			c.cause(h)
			if s := <-got; s != c.want {
				t.Errorf("%s: got %+v, want %+v", name, s, c.want)
			}
		})
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	h := NewHub()
	w := h.Watch(1)
	defer w.Close()
	h.Publish(1, 4, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if state, err := w.Wait(ctx, 4); !errors.Is(err, context.Canceled) || state.Tail != 4 {
		t.Fatalf("got %+v, %v", state, err)
	}
	if state, err := w.Wait(ctx, 3); err != nil || state.Tail != 4 {
		t.Fatalf("what is there already is told in any case: got %+v, %v", state, err)
	}
}

func TestResyncIsToldOnceToEachWatcher(t *testing.T) {
	t.Parallel()
	h := NewHub()
	before := h.Watch(1)
	defer before.Close()
	h.Resync()
	after := h.Watch(1)
	defer after.Close()
	h.Publish(1, 2, 0)
	if s, _ := before.Wait(t.Context(), 1); !s.Resync {
		t.Fatalf("a watcher from before was not told: %+v", s)
	}
	for _, w := range []*Watcher{before, after} {
		if s, _ := w.Wait(t.Context(), 1); s != (State{Tail: 2}) {
			t.Fatalf("got %+v", s)
		}
	}
}

// The log can show a commit before a snapshot does: whoever begins to watch in
// between reads the older tail, and must not wait for a notice that has passed.
func TestWatchKnowsWhatWasPublishedAMomentAgo(t *testing.T) {
	t.Parallel()
	clock := time.Unix(0, 0)
	h := NewHub()
	h.now = func() time.Time { return clock }
	for i := range h.shards {
		h.shards[i].rotated = clock
	}
	h.Publish(1, 10, 0)
	h.Publish(1, 8, Closed)
	clock = clock.Add(recentWindow + time.Millisecond)
	h.Publish(1+hubShards, 1, 0) // turns the shard's window
	w := h.Watch(1)
	if s := w.State(); s != (State{Tail: 10, Closed: true}) {
		t.Fatalf("forgotten within the window: %+v", s)
	}
	w.Close()
	again := h.Watch(1)
	defer again.Close()
	if s := again.State(); s.Tail != 10 {
		t.Fatalf("forgotten with the last watcher: %+v", s)
	}
	other := h.Watch(2)
	defer other.Close()
	if s := other.State(); s != (State{}) {
		t.Fatalf("got %+v", s)
	}
}

func TestRecentMemoryIsBounded(t *testing.T) {
	t.Parallel()
	h := NewHub()
	for i := range int64(10 * recentPerShard * hubShards) {
		h.Publish(i, 1, 0)
	}
	for i := range h.shards {
		s := &h.shards[i]
		if n := len(s.recent) + len(s.older); n > 2*recentPerShard {
			t.Fatalf("shard %d remembers %d streams", i, n)
		}
	}
}

func TestTopicsGoWithTheirLastWatcher(t *testing.T) {
	t.Parallel()
	h := NewHub()
	a, b := h.Watch(1), h.Watch(1)
	a.Close()
	a.Close()
	if got := h.Watched(); len(got) != 1 || h.Watchers() != 1 {
		t.Fatalf("watched %v, watchers %d", got, h.Watchers())
	}
	b.Close()
	if got := h.Watched(); len(got) != 0 || h.Watchers() != 0 {
		t.Fatalf("watched %v, watchers %d", got, h.Watchers())
	}
}

// Readers follow streams as the protocol of Watch says, against a table that
// shows each commit a moment after (or before) it is published, while resyncs,
// late and repeated publications happen. Everybody must reach every final tail.
func TestNoWakeIsLost(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const (
		streams = 8
		readers = 64
		final   = 400
	)
	h := NewHub()
	var table [streams]atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range readers {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			stream := int64(rng.IntN(streams))
			for at := int64(0); at < final; {
				w := h.Watch(stream)
				// A reader comes and goes: some rounds on one watcher, then anew.
				for rounds := rng.IntN(5); rounds >= 0 && at < final; rounds-- {
					at = max(at, table[stream].Load())
					if at == final {
						break
					}
					state, err := w.Wait(ctx, at)
					if err != nil {
						t.Errorf("reader of %d stuck at %d of %d", stream, at, table[stream].Load())
						w.Close()
						return
					}
					for !state.Resync && table[stream].Load() < state.Tail {
						runtime.Gosched() // published, not visible yet
					}
				}
				w.Close()
			}
		})
	}
	for s := range int64(streams) {
		rng := rand.New(rand.NewPCG(seed, 1000+uint64(s)))
		wg.Go(func() {
			for tail := int64(1); tail <= final; tail++ {
				if rng.IntN(2) == 0 {
					h.Publish(s, tail, Actionable)
					runtime.Gosched()
					table[s].Store(tail)
				} else {
					table[s].Store(tail)
					runtime.Gosched()
					h.Publish(s, tail, Actionable)
				}
				if rng.IntN(20) == 0 {
					h.Publish(s, rng.Int64N(tail), 0)
				}
				if rng.IntN(50) == 0 {
					h.Resync()
				}
			}
		})
	}
	wg.Wait()
	if h.Watchers() != 0 || len(h.Watched()) != 0 {
		t.Fatalf("left behind: %d watchers, %d topics", h.Watchers(), len(h.Watched()))
	}
}

// BenchmarkWaiter reports the memory of one waiting reader on a stream of its
// own, without its goroutine.
func BenchmarkWaiter(b *testing.B) {
	h := NewHub()
	watchers := make([]*Watcher, b.N)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range watchers {
		w := h.Watch(int64(i))
		w.topic.changed = make(chan struct{}) // as Wait does
		watchers[i] = w
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(b.N), "B/waiter")
	for _, w := range watchers {
		w.Close()
	}
}

func BenchmarkPublishUnwatched(b *testing.B) {
	h := NewHub()
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		h.Publish(i%100_000, i, Actionable)
	}
}

// BenchmarkBroadcast: one publication to 1000 waiting goroutines.
func BenchmarkBroadcast(b *testing.B) {
	h := NewHub()
	const readers = 1000
	var seen atomic.Int64
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	for range readers {
		w := h.Watch(1)
		wg.Go(func() {
			defer w.Close()
			for at := int64(0); ; seen.Add(1) {
				state, err := w.Wait(ctx, at)
				if err != nil {
					return
				}
				at = state.Tail
			}
		})
	}
	tail := int64(0)
	for b.Loop() {
		tail++
		want := seen.Load() + readers
		h.Publish(1, tail, 0)
		for seen.Load() < want {
			runtime.Gosched()
		}
	}
	cancel()
	wg.Wait()
}
