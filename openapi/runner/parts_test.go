package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestALeaseEndsByWhicheverClockIsFirst(t *testing.T) {
	t.Parallel()
	sent := time.Now()
	l := newLease(context.Background(), sent, time.Hour, time.Minute)
	defer l.stop()
	for name, c := range map[string]struct {
		monotonic, wall time.Duration
		over            bool
	}{
		"both early":        {58 * time.Minute, 58 * time.Minute, false},
		"both late":         {59 * time.Minute, 59 * time.Minute, true},
		"the machine slept": {time.Minute, 2 * time.Hour, true},
		"the clock was set": {2 * time.Hour, -time.Hour, true},
		"set back, early":   {time.Minute, -time.Hour, false},
	} {
		if got := l.over(sent.Add(c.monotonic), sent.Add(c.wall)); got != c.over {
			t.Errorf("%s: over %v", name, got)
		}
	}
}

func TestALeaseCountsFromBeforeTheRequestAndNeverShrinks(t *testing.T) {
	t.Parallel()
	sent := time.Now()
	l := newLease(context.Background(), sent, 10*time.Second, 0)
	defer l.stop()
	if want := sent.Add(9 * time.Second); !l.end.Equal(want) {
		t.Errorf("the end is %v after the request", l.end.Sub(sent))
	}
	l.extend(sent.Add(-time.Minute), 10*time.Second) // an answer that was overtaken
	if !l.end.Equal(sent.Add(9 * time.Second)) {
		t.Error("an old answer shortened it")
	}
	l.extend(sent.Add(time.Second), 100*time.Second)
	if !l.end.Equal(sent.Add(99 * time.Second)) { // the margin is 2 s at most
		t.Errorf("the end is %v after the request", l.end.Sub(sent))
	}
	l.lose(ErrLost)
	l.extend(sent.Add(time.Hour), time.Hour)
	if l.check() || !errors.Is(context.Cause(l.ctx), ErrLost) {
		t.Error("a lost lease came back")
	}
	late := newLease(context.Background(), sent.Add(-time.Hour), time.Minute, 0)
	defer late.stop()
	if late.check() {
		t.Error("a lease that was over when it was granted holds")
	}
}

// Whatever settles when, the cursor is where everything before it is settled, and never behind where it was.
func TestProgressNeverPassesWhatIsOpen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newProgress()
		p.reset("b", "0000")
		type batch struct {
			at     *place
			offset string
			open   int
		}
		var all []*batch
		last := "0000"
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			var open []*batch
			for _, b := range all {
				if b.open > 0 {
					open = append(open, b)
				}
			}
			if len(open) == 0 || rapid.Bool().Draw(t, "add") {
				b := &batch{offset: fmt.Sprintf("%04d", len(all)+1), open: rapid.IntRange(0, 3).Draw(t, "wakes")}
				b.at = p.add(b.offset, b.open)
				all = append(all, b)
			} else {
				b := rapid.SampledFrom(open).Draw(t, "settled")
				b.open--
				p.settle(b.at)
			}
			want := "0000"
			for _, b := range all {
				if b.open > 0 {
					break
				}
				want = b.offset
			}
			if _, got := p.at(); got != want || got < last {
				t.Fatalf("the cursor is at %s, want %s, was %s", got, want, last)
			}
			last = want
		}
	})
}

// However wakes of few entities arrive, end and come back, no entity is worked twice at once, none is forgotten, and all
// are settled in the end.
func TestQueueWorksEachEntityOnceAtATime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		q := newQueue()
		type job struct {
			l *lane
			w *wake
		}
		var working []job
		newest, worked := map[string]int64{}, map[string]int64{}
		var unsettled atomic.Int64
		put := func(path string, epoch int64) {
			unsettled.Add(1)
			done := false
			w := &wake{path: path, epoch: epoch, settle: func() {
				if !done {
					done = true
					unsettled.Add(-1)
				}
			}}
			if err := q.put(ctx, w); err != nil {
				t.Fatal(err)
			}
			newest[path] = max(newest[path], epoch)
		}
		take := func() bool {
			l, w, _ := q.take(ctx)
			if w == nil {
				return false
			}
			for _, j := range working {
				if j.w.path == w.path {
					t.Fatalf("%s is worked twice", w.path)
				}
			}
			if w.epoch <= worked[w.path] {
				t.Fatalf("%s epoch %d comes after %d", w.path, w.epoch, worked[w.path])
			}
			worked[w.path] = w.epoch
			working = append(working, job{l, w})
			return true
		}
		end := func(i int) {
			j := working[i]
			working = append(working[:i], working[i+1:]...)
			j.w.settle()
			q.finish(j.l, true, false)
		}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				put(rapid.SampledFrom([]string{"/a", "/b", "/c"}).Draw(t, "path"), rapid.Int64Range(1, 12).Draw(t, "epoch"))
			case 1:
				take()
			default:
				if len(working) > 0 {
					end(rapid.IntRange(0, len(working)-1).Draw(t, "ended"))
				}
			}
		}
		for len(working) > 0 || take() {
			end(0)
		}
		for path, epoch := range newest {
			if worked[path] != epoch {
				t.Fatalf("%s was worked up to %d, its newest wake is %d", path, worked[path], epoch)
			}
		}
		if n := unsettled.Load(); n != 0 {
			t.Fatalf("%d wakes are not settled", n)
		}
		if len(q.lanes) != 0 {
			t.Fatalf("%d lanes are left over", len(q.lanes))
		}
	})
}

func FuzzParseWake(f *testing.F) {
	f.Add([]byte(`{"type":"wake","stream":"a/main","generation":3}`))
	f.Add([]byte(`{"type":"wake","streamPath":"/a/main","epoch":3,"wakeId":"x"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if w, ok := parseWake(json.RawMessage(raw)); ok && (w.path[0] != '/' || w.epoch <= 0) {
			t.Errorf("%+v", w)
		}
	})
}

// A part of an append that was handed out does not count as read.
func TestReadCountsWholeAppendsOnly(t *testing.T) {
	t.Parallel()
	m := func(offset string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"headers":{"operation":"insert","offset":%q}}`, offset))
	}
	p := page{messages: []json.RawMessage{m("1"), m("2"), m("2"), m("2"), m("3"), json.RawMessage(`7`), m("4")}, next: "4"}
	for stop, want := range []string{"1", "1", "1", "2", "2", "3", "4"} {
		c := &Claim{read: map[string]string{}, acked: map[string]string{}}
		n := 0
		c.give("/s", p, func(Message, error) bool { n++; return n <= stop })
		if c.read["/s"] != want {
			t.Errorf("stopped behind message %d: read up to %q, want %q", stop+1, c.read["/s"], want)
		}
	}
}
