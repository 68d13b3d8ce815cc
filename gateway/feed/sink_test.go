package feed

import (
	"fmt"
	"slices"
	"testing"
)

func streamsOf(notices []Notice) (ids []int64) {
	for _, n := range notices {
		ids = append(ids, n.Stream)
	}
	return ids
}

func wantPositions(t *testing.T, q *routerQueue, received, done LSN) {
	t.Helper()
	if r, d := q.positions(); r != received || d != done {
		t.Fatalf("positions: received %d, done %d; want %d, %d", r, d, received, done)
	}
}

func TestRouterQueueMergesByStream(t *testing.T) {
	t.Parallel()
	q := newRouterQueue(10)
	q.begin(GapStart)
	q.add(Notice{Stream: 1, Tail: 10, Flags: Actionable, Kind: "a"})
	q.add(Notice{Stream: 2, Tail: 5, Flags: Actionable})
	q.add(Notice{Stream: 1, Tail: 30, Flags: Actionable | Closed})
	q.add(Notice{Stream: 1, Tail: 20, Flags: Actionable})
	q.complete(100)
	b, gap := q.take()
	want := []Notice{{Stream: 1, Tail: 30, Flags: Actionable | Closed, Kind: "a"}, {Stream: 2, Tail: 5, Flags: Actionable}}
	if !slices.Equal(b.Notices, want) || b.LSN != 100 || gap != GapStart {
		t.Fatalf("got %+v, gap %q", b, gap)
	}
	if b, gap = q.take(); len(b.Notices) != 0 || gap != "" {
		t.Fatalf("taken twice: %+v, %q", b, gap)
	}
}

func TestRouterQueuePositions(t *testing.T) {
	t.Parallel()
	q := newRouterQueue(10)
	q.begin(GapStart)
	wantPositions(t, q, 0, 0)
	q.complete(50)
	wantPositions(t, q, 50, 50) // nothing owed: quiet log moves on

	q.add(Notice{Stream: 1})
	q.complete(60)
	wantPositions(t, q, 60, 50)
	first, _ := q.take()
	wantPositions(t, q, 60, 50)
	q.add(Notice{Stream: 2})
	q.complete(70)
	second, _ := q.take()
	first.Confirm()
	wantPositions(t, q, 70, 60)
	second.Confirm()
	first.Confirm()
	wantPositions(t, q, 70, 70)
	q.complete(65)
	wantPositions(t, q, 70, 70)
}

// A batch may hold the first notices of a transaction whose end comes later:
// the end must not be confirmed before the batch is.
func TestRouterQueueHoldsPositionForPartOfATransaction(t *testing.T) {
	t.Parallel()
	q := newRouterQueue(10)
	q.begin(GapStart)
	q.complete(50)
	wantPositions(t, q, 50, 50)
	q.add(Notice{Stream: 1})
	part, _ := q.take()
	q.complete(60)
	wantPositions(t, q, 60, 50)
	part.Confirm()
	wantPositions(t, q, 60, 60)
}

func TestRouterQueueIgnoresConfirmationsOfAnEarlierSession(t *testing.T) {
	t.Parallel()
	q := newRouterQueue(10)
	q.begin(GapStart)
	q.add(Notice{Stream: 1})
	q.complete(90)
	old, _ := q.take()
	q.begin(GapStart)
	q.add(Notice{Stream: 1}) // the log is sent again
	q.complete(80)
	old.Confirm()
	wantPositions(t, q, 80, 0)
	again, _ := q.take()
	again.Confirm()
	wantPositions(t, q, 80, 80)
}

func TestRouterQueueIsBounded(t *testing.T) {
	t.Parallel()
	q := newRouterQueue(3)
	q.begin(GapStart)
	q.take()
	for i := range int64(10) {
		q.add(Notice{Stream: i})
	}
	q.add(Notice{Stream: 1, Tail: 7})
	q.complete(10)
	b, gap := q.take()
	if fmt.Sprint(streamsOf(b.Notices)) != "[0 1 2]" || b.Notices[1].Tail != 7 || gap != GapOverflow {
		t.Fatalf("got %+v, gap %q", b, gap)
	}
}

func TestWakeQueue(t *testing.T) {
	t.Parallel()
	q := newWakeQueue(2)
	for _, id := range []string{"a", "b", "a", "c"} {
		q.add(id)
	}
	ids, gap := q.take()
	if !slices.Equal(ids, []string{"a", "b"}) || gap != GapOverflow {
		t.Fatalf("got %v, gap %q", ids, gap)
	}
	q.add("a")
	if ids, gap = q.take(); !slices.Equal(ids, []string{"a"}) || gap != "" {
		t.Fatalf("got %v, gap %q", ids, gap)
	}
}
