package dispatch

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/soon"
	"github.com/rouse-run/rouse/gateway/store"
)

func notices(n int, flags feed.Flags) []feed.Notice {
	out := make([]feed.Notice, n)
	for i := range out {
		out[i] = feed.Notice{Stream: int64(i + 1), Tail: int64(100 + i), Flags: flags}
	}
	return out
}

func TestOnlyAppendsThatAskForSomebodyAreRouted(t *testing.T) {
	t.Parallel()
	db := &fakeDB{}
	d := running(t, Config{}, Deps{DB: db})
	var confirmed atomic.Int32
	batch := append(notices(3, feed.Created), feed.Notice{Stream: 9, Tail: 7, Flags: feed.Actionable | feed.Closed},
		feed.Notice{Stream: 10, Tail: 8, Flags: feed.Created | feed.Linked}, feed.Notice{Stream: 11, Tail: 9, Flags: feed.Observed})
	d.Router().Notices(t.Context(), feed.NewBatch(0, batch, func() { confirmed.Add(1) }))
	d.Router().Notices(t.Context(), feed.NewBatch(0, notices(2, feed.Gone), func() { confirmed.Add(1) }))
	if len(db.routed) != 1 || !slices.Equal(db.routed[0], []store.StreamAt{{Stream: 9, Position: 7}, {Stream: 10, Position: 8}}) {
		t.Errorf("routed %v", db.routed)
	}
	if confirmed.Load() != 2 {
		t.Errorf("%d confirmed", confirmed.Load())
	}
}

func TestBigBatchesAreCut(t *testing.T) {
	t.Parallel()
	db := &fakeDB{}
	d := running(t, Config{}, Deps{DB: db})
	d.Router().Notices(t.Context(), feed.NewBatch(0, notices(2*routeBatch+1, feed.Actionable), nil))
	if len(db.routed) != 3 || len(db.routed[0]) != routeBatch || len(db.routed[2]) != 1 {
		t.Errorf("%d calls", len(db.routed))
	}
}

// A stream that makes every call with it fail keeps no other from being woken,
// neither from the log nor from the scan.
func TestAPoisonedStreamIsRoutedAlone(t *testing.T) {
	t.Parallel()
	const poison = 3
	var confirmed atomic.Int32
	db := &fakeDB{route: func(_ int, at []store.StreamAt) ([]store.Routed, error) {
		for _, a := range at {
			if a.Stream == poison {
				return nil, problem.New(problem.Internal, "x")
			}
		}
		return outcomes("minted", at), nil
	}, scan: func(_ int, after int64, _ int) ([]store.StreamAt, error) {
		if after >= poison {
			return nil, nil
		}
		return []store.StreamAt{{Stream: 1, Position: 1}, {Stream: 2, Position: 1}, {Stream: poison, Position: 1}}, nil
	}}
	d := running(t, Config{}, Deps{DB: db})
	d.Router().Notices(t.Context(), feed.NewBatch(0, notices(7, feed.Actionable), func() { confirmed.Add(1) }))
	if _, err := d.router.scan(t.Context()); err != nil {
		t.Error(err)
	}
	woken := map[int64]int{}
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, call := range db.routed {
		for _, a := range call {
			if len(call) == 1 || !slices.ContainsFunc(call, func(x store.StreamAt) bool { return x.Stream == poison }) {
				woken[a.Stream]++
			}
		}
	}
	for id := int64(1); id <= 7; id++ {
		if woken[id] == 0 {
			t.Errorf("stream %d was not routed by a call that could succeed", id)
		}
	}
	if confirmed.Load() != 1 {
		t.Error("the log is held for a stream that can never be routed")
	}
}

// The log is let go of only when the decision is committed.
func TestOutageHoldsTheLog(t *testing.T) {
	t.Parallel()
	var confirmed atomic.Bool
	db := &fakeDB{route: func(n int, at []store.StreamAt) ([]store.Routed, error) {
		if n <= 3 {
			return nil, errDown
		}
		if confirmed.Load() {
			t.Error("confirmed before it was routed")
		}
		return outcomes("minted", at), nil
	}}
	d := running(t, Config{}, Deps{DB: db})
	d.Router().Notices(t.Context(), feed.NewBatch(0, notices(2, feed.Actionable), func() { confirmed.Store(true) }))
	if !confirmed.Load() || len(db.routed) != 4 {
		t.Errorf("confirmed %v after %d calls", confirmed.Load(), len(db.routed))
	}

	db = &fakeDB{route: func(int, []store.StreamAt) ([]store.Routed, error) { return nil, errDown }}
	d = running(t, Config{}, Deps{DB: db})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Router().Notices(ctx, feed.NewBatch(0, notices(1, feed.Actionable), func() { t.Error("confirmed although it was never routed") }))
	}()
	soon.Until(t, "it tries", func() bool { return db.count(func() int { return len(db.routed) }) > 1 })
	cancel()
	<-done
}

// What is locked or not visible yet is tried again soon, and left to the scan
// in the end.
func TestRetries(t *testing.T) {
	t.Parallel()
	db := &fakeDB{route: func(n int, at []store.StreamAt) ([]store.Routed, error) {
		if n <= 4 {
			return outcomes("retry", at), nil
		}
		return outcomes("minted", at), nil
	}}
	d := running(t, Config{}, Deps{DB: db})
	confirmed := false
	d.Router().Notices(t.Context(), feed.NewBatch(0, notices(1, feed.Actionable), func() { confirmed = true }))
	if !confirmed {
		t.Error("a retry holds the log, though the scan backs it")
	}
	soon.Until(t, "it is routed", func() bool {
		d.router.mu.Lock()
		defer d.router.mu.Unlock()
		return len(d.router.later) == 0
	})
	if n := db.count(func() int { return len(db.routed) }); n != 5 {
		t.Errorf("%d calls", n)
	}
	if n := db.count(func() int { return len(db.scans) }); n != 1 {
		t.Errorf("%d scans", n)
	}
}

func TestRetriesKeepTheHighestPosition(t *testing.T) {
	t.Parallel()
	var open atomic.Bool
	db := &fakeDB{route: func(_ int, at []store.StreamAt) ([]store.Routed, error) {
		if open.Load() {
			return outcomes("coalesced", at), nil
		}
		return outcomes("retry", at), nil
	}}
	d := running(t, Config{}, Deps{DB: db})
	for _, p := range []int64{5, 9, 7} {
		d.Router().Notices(t.Context(), feed.NewBatch(0, []feed.Notice{{Stream: 1, Tail: p, Flags: feed.Actionable}}, nil))
	}
	open.Store(true)
	soon.Until(t, "it is routed", func() bool {
		d.router.mu.Lock()
		defer d.router.mu.Unlock()
		return len(d.router.later) == 0
	})
	db.mu.Lock()
	defer db.mu.Unlock()
	if last := db.routed[len(db.routed)-1][0]; last.Position != 9 {
		t.Errorf("the last call was for position %d", last.Position)
	}
}

func TestHopelessRetriesAreLeftToTheScan(t *testing.T) {
	t.Parallel()
	db := &fakeDB{route: func(_ int, at []store.StreamAt) ([]store.Routed, error) { return outcomes("retry", at), nil }}
	d := running(t, Config{}, Deps{DB: db})
	soon.Until(t, "the scan at the start", func() bool { return db.count(func() int { return len(db.scans) }) == 1 })
	d.Router().Notices(t.Context(), feed.NewBatch(0, notices(1, feed.Actionable), nil))
	soon.Until(t, "the scan is called for", func() bool { return db.count(func() int { return len(db.scans) }) == 2 })
	if n := db.count(func() int { return len(db.routed) }); n != routeTries+1 {
		t.Errorf("%d calls", n)
	}
}

// An outage during retries loses none of them.
func TestRetriesOutliveAnOutage(t *testing.T) {
	t.Parallel()
	db := &fakeDB{route: func(n int, at []store.StreamAt) ([]store.Routed, error) {
		switch {
		case n == 1:
			return outcomes("retry", at), nil
		case n <= 3:
			return nil, errDown
		}
		return outcomes("minted", at), nil
	}}
	d := running(t, Config{}, Deps{DB: db})
	d.Router().Notices(t.Context(), feed.NewBatch(0, notices(3, feed.Actionable), nil))
	soon.Until(t, "all are routed", func() bool {
		d.router.mu.Lock()
		defer d.router.mu.Unlock()
		return len(d.router.later) == 0
	})
}

func TestScanReadsPages(t *testing.T) {
	t.Parallel()
	const all = 2*scanPageSize + 7
	db := &fakeDB{scan: func(_ int, after int64, limit int) ([]store.StreamAt, error) {
		var page []store.StreamAt
		for id := after + 1; id <= all && len(page) < limit; id++ {
			page = append(page, store.StreamAt{Stream: id, Position: 1})
		}
		return page, nil
	}}
	running(t, Config{FeedUp: func() bool { return true }}, Deps{DB: db})
	soon.Until(t, "everything is routed", func() bool {
		return db.count(func() int {
			n := 0
			for _, r := range db.routed {
				n += len(r)
			}
			return n
		}) == all
	})
	db.mu.Lock()
	defer db.mu.Unlock()
	if len(db.scans) != 3 || db.scans[1] != scanPageSize || db.scans[2] != 2*scanPageSize {
		t.Errorf("pages after %v", db.scans)
	}
}

// Subscriptions are stepped through after the entities, page by page; a page may
// hold nothing that is idle.
func TestScanStepsThroughSubscriptions(t *testing.T) {
	t.Parallel()
	var after []int64
	db := &fakeDB{subscriptions: func(a int64, limit int) ([]store.StreamAt, int64, error) {
		after = append(after, a)
		switch a {
		case 0:
			return []store.StreamAt{{Stream: 1, Position: 10}, {Stream: 2, Position: 20}}, 500, nil
		case 500:
			return nil, 900, nil
		case 900:
			return []store.StreamAt{{Stream: 3, Position: 30}}, 0, nil
		}
		return nil, 0, errDown
	}}
	d, err := New(Config{}, Deps{DB: db, Notify: fakeNotifier{}})
	if err != nil {
		t.Fatal(err)
	}
	r := d.router
	n, err := r.scan(t.Context())
	if err != nil || n != 3 || !slices.Equal(after, []int64{0, 500, 900}) || len(db.routed) != 2 || db.routed[1][0] != (store.StreamAt{Stream: 3, Position: 30}) {
		t.Errorf("%d routed after pages %v: %v %v", n, after, db.routed, err)
	}
	db.subscriptions = func(int64, int) ([]store.StreamAt, int64, error) { return nil, 0, errDown }
	if _, err := r.scan(t.Context()); !errors.Is(err, errDown) {
		t.Errorf("an outage: %v", err)
	}
}

// Decision 11: at the start, on a gap, after a failure and, while the feed is
// down, often; else seldom.
func TestWhenItScans(t *testing.T) {
	t.Parallel()
	scans := func(db *fakeDB) int { return db.count(func() int { return len(db.scans) }) }
	up := &fakeDB{}
	d := running(t, Config{FeedUp: func() bool { return true }, ScanPeriodDown: time.Millisecond}, Deps{DB: up})
	soon.Until(t, "the first", func() bool { return scans(up) == 1 })
	for i, reason := range []feed.GapReason{feed.GapStart, feed.GapSlot, feed.GapOverflow, feed.GapMalformed} {
		d.Router().Gap(t.Context(), reason)
		soon.Until(t, string(reason), func() bool { return scans(up) == i+2 })
	}

	down := &fakeDB{}
	running(t, Config{ScanPeriodDown: time.Millisecond}, Deps{DB: down})
	soon.Until(t, "often while the feed is down", func() bool { return scans(down) > 20 })

	failing := &fakeDB{scan: func(n int, _ int64, _ int) ([]store.StreamAt, error) {
		if n < 5 {
			return nil, errDown
		}
		return nil, nil
	}}
	running(t, Config{FeedUp: func() bool { return true }, ScanPeriodDown: time.Millisecond}, Deps{DB: failing})
	soon.Until(t, "again after failures", func() bool { return scans(failing) == 5 })
	if scans(up) != 5 {
		t.Errorf("%d scans while nothing happened", scans(up))
	}
}

// Decision 11: after the start and after an outage live holders speak first.
func TestReaperGivesGrace(t *testing.T) {
	t.Parallel()
	const grace = 150 * time.Millisecond
	var at []time.Time
	db := &fakeDB{}
	db.reap = func(n int) (int, int, int, error) {
		db.mu.Lock()
		at = append(at, time.Now())
		db.mu.Unlock()
		switch n {
		case 1:
			return 300, 100, 100, nil // a full round: more are due
		case 3:
			return 0, 0, 0, errDown
		}
		return 0, 0, 0, nil
	}
	began := time.Now()
	running(t, Config{ReapGrace: grace, ReapPeriod: 400 * time.Millisecond}, Deps{DB: db})
	soon.Until(t, "five rounds", func() bool { return db.count(func() int { return len(at) }) >= 5 })
	db.mu.Lock()
	defer db.mu.Unlock()
	if d := at[0].Sub(began); d < grace {
		t.Errorf("the first round came after %v", d)
	}
	full, outage := at[1].Sub(at[0]), at[3].Sub(at[2])
	if full >= 300*time.Millisecond {
		t.Errorf("%v after a full round", full)
	}
	if outage < grace {
		t.Errorf("%v after an outage", outage)
	}
}

func TestJanitorGoesOnWhileThereIsMore(t *testing.T) {
	t.Parallel()
	db := &fakeDB{}
	running(t, Config{JanitorPeriod: time.Millisecond}, Deps{DB: db})
	soon.Until(t, "it purges", func() bool { return db.count(func() int { return db.purges }) > 6 })
}

func TestNewNeedsItsParts(t *testing.T) {
	t.Parallel()
	if _, err := New(Config{}, Deps{}); err == nil {
		t.Error("made of nothing")
	}
	d, err := New(Config{}, Deps{DB: &fakeDB{}, Notify: fakeNotifier{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Stop(t.Context()); err != nil {
		t.Errorf("stopping what never started: %v", err)
	}
}
