package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/groupcommit"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/soon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a database that answers when the test says so.
type bench struct {
	mu      sync.Mutex
	batches [][]string
	waits   [][]string
	busy    map[string]bool
	gate    chan struct{} // one token a call, when not nil
	entered chan []string // what a call holds, when it begins
	fail    func(reqs []string) error
}

var errPoison = errors.New("poisoned")

func (b *bench) run(ctx context.Context, wait bool, reqs []string) ([]groupcommit.Answer[string], error) {
	if b.entered != nil {
		b.entered <- slices.Clone(reqs)
	}
	if b.gate != nil {
		select {
		case <-b.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if wait {
		b.waits = append(b.waits, slices.Clone(reqs))
	} else {
		b.batches = append(b.batches, slices.Clone(reqs))
	}
	if b.fail != nil {
		if err := b.fail(reqs); err != nil {
			return nil, err
		}
	}
	out := make([]groupcommit.Answer[string], len(reqs))
	for i, r := range reqs {
		out[i] = groupcommit.Answer[string]{Res: "did " + r, Busy: b.busy[key(r)]}
	}
	return out, nil
}

func key(r string) string { k, _, _ := strings.Cut(r, ":"); return k }

func start(t *testing.T, b *bench, tune func(*groupcommit.Config[string, string])) *groupcommit.Group[string, string] {
	t.Helper()
	cfg := groupcommit.Config[string, string]{Run: b.run, Key: key, Alone: func(err error) bool { return errors.Is(err, errPoison) }}
	if tune != nil {
		tune(&cfg)
	}
	g := groupcommit.New(t.Context(), cfg)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer cancel()
		_ = g.Stop(ctx)
	})
	return g
}

type outcome struct {
	res string
	err error
}

func do(t *testing.T, g *groupcommit.Group[string, string], req string) <-chan outcome {
	out := make(chan outcome, 1)
	go func() {
		res, err := g.Do(t.Context(), req)
		out <- outcome{res, err}
	}()
	return out
}

func TestCallsDuringABatchShareTheNext(t *testing.T) {
	t.Parallel()
	b := &bench{gate: make(chan struct{}), entered: make(chan []string)}
	g := start(t, b, nil)
	first := do(t, g, "a:0")
	if got := <-b.entered; !slices.Equal(got, []string{"a:0"}) {
		t.Fatalf("the first batch holds %v", got)
	}
	var rest []<-chan outcome
	for i := range 50 {
		rest = append(rest, do(t, g, fmt.Sprintf("k%d:x", i)))
	}
	soon.Until(t, "50 wait", func() bool { return g.Pending() == 51 })
	b.gate <- struct{}{}
	if o := <-first; o.res != "did a:0" || o.err != nil {
		t.Fatalf("first: %+v", o)
	}
	if got := <-b.entered; len(got) != 50 {
		t.Fatalf("the second batch holds %d", len(got))
	}
	b.gate <- struct{}{}
	for _, c := range rest {
		if o := <-c; o.err != nil {
			t.Fatal(o.err)
		}
	}
}

func TestABatchIsBoundedByCountAndBytes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name         string
		count, bytes int
		want         int
	}{{"count", 3, 1 << 20, 3}, {"bytes", 100, 10, 2}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := &bench{gate: make(chan struct{}), entered: make(chan []string)}
			g := start(t, b, func(c *groupcommit.Config[string, string]) {
				c.MaxBatch, c.MaxBytes, c.Size = tc.count, tc.bytes, func(string) int { return 5 }
			})
			calls := []<-chan outcome{do(t, g, "a:0")}
			<-b.entered
			for i := range 7 {
				calls = append(calls, do(t, g, fmt.Sprintf("b:%d", i)))
			}
			soon.Until(t, "all wait", func() bool { return g.Pending() == 8 })
			b.gate <- struct{}{}
			for left := 7; left > 0; {
				got := <-b.entered
				if len(got) != min(tc.want, left) {
					t.Fatalf("a batch holds %d of %d", len(got), left)
				}
				left -= len(got)
				b.gate <- struct{}{}
			}
			for _, c := range calls {
				if o := <-c; o.err != nil {
					t.Fatal(o.err)
				}
			}
		})
	}
}

func TestABusyKeyGoesAsideInOrderAndDelaysNobody(t *testing.T) {
	t.Parallel()
	b := &bench{busy: map[string]bool{"slow": true}, entered: make(chan []string), gate: make(chan struct{})}
	g := start(t, b, nil)
	slow := []<-chan outcome{do(t, g, "slow:0")}
	<-b.entered
	b.gate <- struct{}{} // busy: its lane opens
	if got := <-b.entered; !slices.Equal(got, []string{"slow:0"}) {
		t.Fatalf("the lane holds %v", got)
	}
	// The lane waits inside; another key is not held up, more of the same line up.
	fast := do(t, g, "fast:0")
	if got := <-b.entered; !slices.Equal(got, []string{"fast:0"}) {
		t.Fatalf("the batcher holds %v", got)
	}
	for i := 1; i < 4; i++ {
		slow = append(slow, do(t, g, fmt.Sprintf("slow:%d", i)))
		soon.Until(t, "it waits", func() bool { return g.Pending() == 2+i })
	}
	b.mu.Lock()
	b.busy = nil
	b.mu.Unlock()
	b.gate <- struct{}{}
	b.gate <- struct{}{}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for _, c := range slow {
			<-c
		}
		<-fast
	}()
	for done := false; !done; {
		select {
		case <-b.entered:
			b.gate <- struct{}{}
		case <-drained:
			done = true
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	order := slices.Concat(b.waits...)
	for i, r := range order {
		if r != fmt.Sprintf("slow:%d", i) {
			t.Fatalf("the lane ran %v", order)
		}
	}
}

func TestALaneThatStaysBusyGivesUp(t *testing.T) {
	t.Parallel()
	b := &bench{busy: map[string]bool{"slow": true}}
	g := start(t, b, nil)
	_, err := g.Do(t.Context(), "slow:0")
	if problem.CodeOf(err) != problem.DatabaseTimeout {
		t.Fatalf("error %v", err)
	}
	if res, err := g.Do(t.Context(), "fast:0"); err != nil || res != "did fast:0" {
		t.Fatalf("another key: %q %v", res, err)
	}
}

func TestLanesBeyondTheLimitTakeTurns(t *testing.T) {
	t.Parallel()
	b := &bench{busy: map[string]bool{}, entered: make(chan []string, 100), gate: make(chan struct{}, 100)}
	for i := range 5 {
		b.busy[fmt.Sprintf("k%d", i)] = true
	}
	g := start(t, b, func(c *groupcommit.Config[string, string]) { c.SideLanes = 2 })
	var calls []<-chan outcome
	for i := range 5 {
		b.gate <- struct{}{}
		calls = append(calls, do(t, g, fmt.Sprintf("k%d:0", i)))
		<-b.entered
	}
	soon.Until(t, "two lanes run", func() bool { return len(b.entered) >= 2 })
	b.mu.Lock()
	b.busy = nil
	b.mu.Unlock()
	for range 20 {
		b.gate <- struct{}{}
	}
	for _, c := range calls {
		if o := <-c; o.err != nil {
			t.Fatal(o.err)
		}
	}
}

func TestAPoisonedMemberFailsAlone(t *testing.T) {
	t.Parallel()
	b := &bench{gate: make(chan struct{}, 100), entered: make(chan []string, 100)}
	b.fail = func(reqs []string) error {
		if slices.Contains(reqs, "b:poison") {
			return errPoison
		}
		return nil
	}
	g := start(t, b, nil)
	first := do(t, g, "a:0")
	<-b.entered
	var good []<-chan outcome
	for i := range 5 {
		good = append(good, do(t, g, fmt.Sprintf("b:%d", i)))
	}
	bad := do(t, g, "b:poison")
	soon.Until(t, "all wait", func() bool { return g.Pending() == 7 })
	for range 20 {
		b.gate <- struct{}{}
	}
	<-first
	for _, c := range good {
		if o := <-c; o.err != nil {
			t.Fatalf("a neighbour failed: %v", o.err)
		}
	}
	if o := <-bad; !errors.Is(o.err, errPoison) {
		t.Fatalf("the poisoned member: %+v", o)
	}
}

func TestAnyOtherErrorIsEverybodys(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection lost")
	b := &bench{gate: make(chan struct{}, 10), entered: make(chan []string, 10), fail: func([]string) error { return broken }}
	g := start(t, b, nil)
	first := do(t, g, "a:0")
	<-b.entered
	second, third := do(t, g, "b:0"), do(t, g, "c:0")
	soon.Until(t, "all wait", func() bool { return g.Pending() == 3 })
	b.gate <- struct{}{}
	b.gate <- struct{}{}
	for _, c := range []<-chan outcome{first, second, third} {
		if o := <-c; !errors.Is(o.err, broken) {
			t.Fatalf("%+v", o)
		}
	}
	if len(b.batches) != 2 {
		t.Fatalf("%d calls: an unknown result must not be tried again", len(b.batches))
	}
}

func TestACallerMayLeaveAndTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	b := &bench{gate: make(chan struct{}), entered: make(chan []string)}
	g := start(t, b, func(c *groupcommit.Config[string, string]) { c.MaxQueue = 2 })
	first := do(t, g, "a:0")
	<-b.entered
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { _, err := g.Do(ctx, "a:1"); left <- err }()
	soon.Until(t, "it waits", func() bool { return g.Pending() == 2 })
	if _, err := g.Do(t.Context(), "a:2"); problem.CodeOf(err) != problem.Overloaded {
		t.Fatalf("beyond the limit: %v", err)
	}
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatalf("the caller that left: %v", err)
	}
	b.gate <- struct{}{}
	<-first
	if got := <-b.entered; !slices.Equal(got, []string{"a:1"}) {
		t.Fatalf("what the caller left behind: %v", got)
	}
	b.gate <- struct{}{}
	soon.Until(t, "nothing waits", func() bool { return g.Pending() == 0 })
}

// What waits is bounded in bytes as well, whether its callers are still there or
// not, and every way out gives the bytes back.
func TestTheQueueIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	b := &bench{gate: make(chan struct{}), entered: make(chan []string), busy: map[string]bool{}}
	g := start(t, b, func(c *groupcommit.Config[string, string]) {
		c.Size = func(r string) int { return len(r) }
		c.MaxQueueBytes, c.MaxBytes = 100, 10_000
	})
	full := func(when string) {
		t.Helper()
		if _, err := g.Do(t.Context(), "x:"+strings.Repeat("x", 50)); problem.CodeOf(err) != problem.Overloaded {
			t.Fatalf("%s: %v", when, err)
		}
	}
	free := func(when string) {
		t.Helper()
		soon.Until(t, "nothing waits "+when, func() bool { return g.Pending() == 0 })
		last := do(t, g, "y:"+strings.Repeat("y", 98)) // takes all there is
		<-b.entered
		full(when)
		b.gate <- struct{}{}
		if o := <-last; o.err != nil {
			t.Fatalf("%s: %v", when, o.err)
		}
	}
	first := do(t, g, "a:"+strings.Repeat("a", 58))
	<-b.entered
	full("while one is in the database")
	small := do(t, g, "a:"+strings.Repeat("a", 28))
	soon.Until(t, "it waits", func() bool { return g.Pending() == 2 })
	b.gate <- struct{}{}
	<-first
	<-b.entered
	b.gate <- struct{}{}
	<-small
	free("after answers")

	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { _, err := g.Do(ctx, "a:"+strings.Repeat("a", 58)); left <- err }()
	<-b.entered
	cancel()
	<-left
	full("when its caller has left")
	b.gate <- struct{}{}
	free("after the caller left")

	b.mu.Lock()
	b.busy["slow"] = true
	b.mu.Unlock()
	slow := do(t, g, "slow:"+strings.Repeat("s", 58))
	<-b.entered
	b.gate <- struct{}{}
	for range 5 { // the rounds of its side lane
		<-b.entered
		full("in a side lane")
		b.gate <- struct{}{}
	}
	if o := <-slow; problem.CodeOf(o.err) != problem.DatabaseTimeout {
		t.Fatalf("a lane that stays busy: %v", o.err)
	}
	free("after a lane gave up")

	// One alone may be larger than everything.
	huge := do(t, g, "h:"+strings.Repeat("h", 500))
	<-b.entered
	full("behind a huge one")
	b.gate <- struct{}{}
	if o := <-huge; o.err != nil {
		t.Fatal(o.err)
	}
	b.mu.Lock()
	b.fail = func([]string) error { return errors.New("down") }
	b.mu.Unlock()
	down := do(t, g, "d:"+strings.Repeat("d", 58))
	<-b.entered
	b.gate <- struct{}{}
	<-down
	b.mu.Lock()
	b.fail = nil
	b.mu.Unlock()
	free("after a failure")
}

func TestStopFinishesWhatIsInsideAndRefusesTheRest(t *testing.T) {
	t.Parallel()
	b := &bench{gate: make(chan struct{}), entered: make(chan []string)}
	g := start(t, b, nil)
	first := do(t, g, "a:0")
	<-b.entered
	second := do(t, g, "a:1")
	soon.Until(t, "both wait", func() bool { return g.Pending() == 2 })
	stopped := make(chan error, 1)
	go func() { stopped <- g.Stop(t.Context()) }()
	// Calls before the stop takes effect are accepted, and finished like the rest.
	soon.Until(t, "it refuses", func() bool {
		_, err := g.Do(canceled(t), "a:2")
		return problem.CodeOf(err) == problem.ServerStopping
	})
	select {
	case err := <-stopped:
		t.Fatalf("it stopped before its calls were done: %v", err)
	default:
	}
	b.gate <- struct{}{}
	for done := false; !done; {
		select {
		case <-b.entered:
			b.gate <- struct{}{}
		case err := <-stopped:
			if err != nil {
				t.Fatal(err)
			}
			done = true
		}
	}
	for _, c := range []<-chan outcome{first, second} {
		if o := <-c; o.err != nil {
			t.Fatal(o.err)
		}
	}
}

func TestStopCutsOffWhatHangs(t *testing.T) {
	t.Parallel()
	b := &bench{gate: make(chan struct{}), entered: make(chan []string, 1)}
	g := start(t, b, nil)
	hung := do(t, g, "a:0")
	<-b.entered
	if err := g.Stop(canceled(t)); !errors.Is(err, context.Canceled) {
		t.Fatalf("stop: %v", err)
	}
	if o := <-hung; o.err == nil {
		t.Fatal("a call that was cut off succeeded")
	}
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// Many callers, keys that turn busy and free: everybody is answered once and
// each key's calls run in the order in which they were made.
func TestOrderHoldsUnderLoad(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string][]string{}
	calls := 0
	cfg := groupcommit.Config[string, string]{Key: key, MaxBatch: 16, Run: func(_ context.Context, wait bool, reqs []string) ([]groupcommit.Answer[string], error) {
		mu.Lock()
		defer mu.Unlock()
		calls++
		out := make([]groupcommit.Answer[string], len(reqs))
		for i, r := range reqs {
			// A key is busy in some calls, for all its members, as a locked row is.
			if !wait && (calls+len(key(r))*int(key(r)[1]))%3 == 0 {
				out[i].Busy = true
				continue
			}
			seen[key(r)] = append(seen[key(r)], r)
			out[i].Res = r
		}
		return out, nil
	}}
	g := groupcommit.New(t.Context(), cfg)
	defer g.Stop(t.Context())
	var wg sync.WaitGroup
	for k := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 300 {
				req := fmt.Sprintf("k%d:%d", k, i)
				if res, err := g.Do(t.Context(), req); err != nil || res != req {
					t.Errorf("%s: %q %v", req, res, err)
					return
				}
			}
		}()
	}
	wg.Wait()
	for k, got := range seen {
		for i, r := range got {
			if r != fmt.Sprintf("%s:%d", k, i) {
				t.Fatalf("%s ran %v", k, got[:i+1])
			}
		}
	}
}

func BenchmarkDo(b *testing.B) {
	g := groupcommit.New(b.Context(), groupcommit.Config[int, int]{
		Key: func(int) string { return "" },
		Run: func(_ context.Context, _ bool, reqs []int) ([]groupcommit.Answer[int], error) {
			return make([]groupcommit.Answer[int], len(reqs)), nil
		},
	})
	defer g.Stop(b.Context())
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := g.Do(b.Context(), 1); err != nil {
				b.Error(err)
			}
		}
	})
}
