package runner

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// hinted is a pool's wake, and whether the cursor may pass it.
func hinted(path string, epoch int64, at time.Time) (*wake, *bool) {
	settled := false
	return &wake{path: path, epoch: epoch, received: at, settle: func() { settled = true }}, &settled
}

func TestHintsOfAPool(t *testing.T) {
	t.Parallel()
	q := newQueue()
	ctx := t.Context()
	now := time.Now()
	put := func(path string, epoch int64, at time.Time) *bool {
		t.Helper()
		w, settled := hinted(path, epoch, at)
		if err := q.hint(ctx, w); err != nil {
			t.Fatal(err)
		}
		return settled
	}
	a1 := put("/a", 1, now)
	if put("/a", 1, now); *a1 {
		t.Error("the first of the same is dropped")
	}
	a2 := put("/a", 2, now)
	b1 := put("/b", 1, now.Add(time.Second))
	if !*a1 || *a2 || *b1 {
		t.Error("of an entity's wakes the newest stays")
	}
	// As many requests as hints, not more.
	for i, want := range []bool{true, true, false} {
		if q.draw() != want {
			t.Errorf("two hints are good for two requests: request %d", i+1)
		}
	}
	q.drawn()
	q.drawn()
	// A claim of something else is worked; what told of it is dealt with when the run is over.
	l, w, superseded := q.adopt(ctx, "/a", 2)
	if l == nil || w == nil || w.epoch != 2 || *a2 {
		t.Fatalf("%+v %+v", l, w)
	}
	if again, _, _ := q.adopt(ctx, "/a", 3); again != nil || superseded.Err() == nil {
		t.Error("an entity is worked twice, or its older run is not told")
	}
	if late := put("/a", 2, now); !*late {
		t.Error("a hint of what is worked is kept")
	}
	q.finish(l, true, false)
	if late := put("/a", 2, now); !*late {
		t.Error("a hint of what was worked is kept")
	}
	// Nothing waited: only what was told before then is no news.
	if q.dry(now.Add(time.Second)); *b1 {
		t.Error("a hint is dropped that came later")
	}
	if q.dry(now.Add(2 * time.Second)); !*b1 || q.draw() {
		t.Error("a hint is kept that is no news")
	}
	// A newer wake ends the run of an older one here, and is asked for.
	l, _, superseded = q.adopt(ctx, "/c", 1)
	c2 := put("/c", 2, now)
	if superseded.Err() == nil || *c2 || !q.draw() {
		t.Error("a newer wake counts for nothing")
	}
	q.drawn()
	q.finish(l, false, false)
	// After a refusal nothing is asked for a while, and then again.
	q.lull(errors.New("refused"))
	if q.draw() {
		if time.Now().Before(q.hints.pause) {
			t.Error("it asks again at once")
		}
		q.drawn() // the pause was over before it was looked at
	}
	if !q.wait(ctx) || !q.draw() {
		t.Error("it never asks again")
	}
}

// What is granted may be the runner's own, of which its own wake stream has told.
func TestAnAdoptedWakeOfTheRunnersOwn(t *testing.T) {
	t.Parallel()
	q := newQueue()
	own, settled := hinted("/a", 1, time.Now())
	if err := q.put(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	l, w, _ := q.adopt(t.Context(), "/a", 1)
	if w != own {
		t.Fatalf("%+v", w)
	}
	if l2, w2, _ := q.take(t.Context()); l2 != nil || w2 != nil {
		t.Error("it is claimed once more")
	}
	q.finish(l, true, false)
	if *settled {
		t.Error("the queue settles what the run has to")
	}
	if len(q.lanes) != 0 {
		t.Errorf("%d lanes are left", len(q.lanes))
	}
}

// A stream is not read on while too many hints wait.
func TestHintsHoldTheStreamUp(t *testing.T) {
	t.Parallel()
	q := newQueue()
	for i := range maxWaiting {
		w, _ := hinted(fmt.Sprint("/", i), 1, time.Now())
		if err := q.hint(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	w, _ := hinted("/one-more", 1, time.Now())
	go func() { ended <- q.hint(ctx, w) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	go func() { ended <- q.hint(t.Context(), w) }()
	q.dry(time.Now().Add(time.Hour))
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
