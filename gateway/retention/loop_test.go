package retention_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-run/rouse/gateway/retention"
	"github.com/rouse-run/rouse/gateway/store"
)

// fake answers steps and writes down which were taken.
type fake struct {
	mu    sync.Mutex
	taken []string
	left  map[string]int
	fail  map[string]error
}

func (f *fake) step(name string) (store.Progress, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken = append(f.taken, name)
	if err := f.fail[name]; err != nil {
		return store.Progress{}, err
	}
	f.left[name]--
	return store.Progress{Seen: 1, Changed: 1, More: f.left[name] > 0}, nil
}

func (f *fake) count(name string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.taken {
		if t == name {
			n++
		}
	}
	return n
}

func (f *fake) RetentionWakeStreams(context.Context, int, time.Duration, time.Duration) (store.Progress, error) {
	return f.step("wake_streams")
}
func (f *fake) RetentionStreams(context.Context, int, time.Duration) (store.Progress, error) {
	return f.step("streams")
}
func (f *fake) RetentionAdopt(context.Context, int) (store.Progress, error) { return f.step("adopt") }
func (f *fake) RetentionSweep(context.Context, int) (store.Progress, error) {
	return f.step("messages")
}
func (f *fake) RetentionRows(_ context.Context, walk store.Walk, _ int, _, _ time.Duration) (store.Progress, error) {
	return f.step(string(walk))
}
func (f *fake) RetentionAudit(context.Context, int, time.Duration) (store.Progress, error) {
	return f.step("audit")
}

func TestARoundTakesEveryJobToItsEnd(t *testing.T) {
	t.Parallel()
	db := &fake{left: map[string]int{"messages": 130, "claims": 3}, fail: map[string]error{"wakes": errors.New("down")}}
	all := retention.Ages{WakeEntries: 1, Claims: 1, Wakes: 1, Audit: 1, Producers: 1}
	r, err := retention.New(retention.Config{DB: db, Ages: all, Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	r.Round(t.Context())
	for name, want := range map[string]int{"adopt": 1, "streams": 1, "wake_streams": 1, "messages": 130, "claims": 3, "wakes": 1, "audit": 1, "producers": 1} {
		if got := db.count(name); got != want {
			t.Errorf("%d steps of %s, want %d", got, name, want)
		}
	}
	// One that has much to do lets the others have their turn.
	if last := slices.Index(db.taken, "producers"); last > 120 {
		t.Errorf("the last job waits for %d steps", last)
	}
}

// A job that has always more to do does not keep the others waiting for longer than a period.
func TestAJobWithoutAnEndLeavesTheOthersTheirRounds(t *testing.T) {
	t.Parallel()
	db := &fake{left: map[string]int{"messages": 1 << 30}}
	r, err := retention.New(retention.Config{DB: db, Period: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ {
		if !r.Round(t.Context()) || db.count("adopt") != n || db.count("streams") != n {
			t.Fatalf("round %d: %v", n, db.taken)
		}
	}
	delete(db.left, "messages")
	if r.Round(t.Context()) {
		t.Fatal("there is nothing more to do")
	}
}

func TestWhatIsKeptForEverIsNotLookedAt(t *testing.T) {
	t.Parallel()
	db := &fake{left: map[string]int{}}
	r, err := retention.New(retention.Config{DB: db})
	if err != nil {
		t.Fatal(err)
	}
	r.Round(t.Context())
	if want := []string{"adopt", "streams", "messages"}; !slices.Equal(db.taken, want) {
		t.Errorf("%v", db.taken)
	}
}

func TestStopEndsARound(t *testing.T) {
	t.Parallel()
	db := &fake{left: map[string]int{"messages": 1 << 30}}
	r, err := retention.New(retention.Config{DB: db, Period: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for db.count("messages") < 3 {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("no step was taken")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := r.Stop(ctx); err != nil {
		t.Fatalf("a round goes on behind Stop: %v", err)
	}
}

// The clean-up as a gateway runs it, on a real database, from limits to rows.
func TestTheCleanUpRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stream("a")
	r.limits("a", store.Limits{Messages: 3})
	r.append("a", numbers(100, 150)...)
	var both []*retention.Retention // as two gateways would
	for range 2 {
		c, err := retention.New(retention.Config{DB: r.st, Period: 20 * time.Millisecond, Batch: 7,
			Ages: retention.Ages{WakeEntries: time.Hour, Claims: time.Hour, Wakes: time.Hour, Audit: time.Hour, Producers: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		both = append(both, c)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for r.rows("a") != 3 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%d rows stay", r.rows("a"))
		}
	}
	r.reads("a", "147,148,149")
	for _, c := range both {
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
