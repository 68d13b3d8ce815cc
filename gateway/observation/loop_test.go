package observation

import (
	"context"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

// started runs a worker until the test ends.
func (r *rig) started(cfg Config) *Worker {
	r.t.Helper()
	cfg.DB = r.s
	w, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx := context.WithoutCancel(r.t.Context())
	if err := w.Start(ctx); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if err := w.Stop(ctx); err != nil {
			r.t.Error(err)
		}
	})
	return w
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			r.t.Fatalf("it never came: %s", what)
		}
	}
}

// Without a word from the log or from this gateway's routes, everything is found
// within a scan.
func TestTheLoopsNeedNoSignal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.started(Config{Scan: time.Hour, FeedUp: func() bool { return false }}) // then a second is the most
	r.spawn("/chat/a", "")
	ref := r.membership(kyle, map[string]string{})
	r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/b"})
	c := r.listen("/chat/a", "* * * * * *", "")
	r.spawn("/chat/b", "")
	r.write("chat/b/main", runEnded)
	r.eventually("a wake by what was to come and by each second", func() bool { return len(r.wakes("/chat/a")) >= 2 })
	r.eventually("the ticks", func() bool { return len(r.rows("/"+c.Path(), "cron_tick")) >= 2 })
	r.eventually("the members", func() bool { return len(r.rows("/_entities/"+ref, "members")) == 2 })
}

// A due time is kept without a scan, and a signal needs none either.
func TestDueTimesNeedNoScan(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.started(Config{Scan: time.Hour})
	r.spawn("/chat/a", "")
	r.spawn("/chat/b", "")
	r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/b", DebounceMS: 50})
	r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/none", TimeoutMS: 50})
	if err := r.s.ScheduleAdd(t.Context(), 1, kyle, false, "/chat/b", staterow.Message{Payload: []byte(`1`), From: kyle}.Encode(), 50*time.Millisecond, ""); err != nil {
		t.Fatal(err)
	}
	w.Poke()
	r.write("chat/b/main", runEnded)
	w.Observed()
	r.eventually("the debounced wake and the timeout", func() bool { return len(r.wakes("/chat/a")) == 2 })
	r.eventually("the message", func() bool { return len(r.rows("/chat/b", "inbox")) == 1 })
	// Somebody waits for this one, so its spawn is looked at.
	r.spawn("/chat/none", "")
	r.write("chat/none/main", runEnded)
	w.Changed()
	r.eventually("the wake by what was to come", func() bool { return len(r.wakes("/chat/a")) == 3 })
}

// With nothing to wait for, nothing is due.
func TestNothingIsDueWhereNothingWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if next, ok, err := r.s.ObservationNext(t.Context()); err != nil || ok {
		t.Fatalf("due in %v (%t), %v", next, ok, err)
	}
	r.spawn("/chat/a", "")
	if err := r.s.ScheduleAdd(t.Context(), 1, kyle, false, "/chat/a", staterow.Message{Payload: []byte(`1`), From: kyle}.Encode(), time.Hour, ""); err != nil {
		t.Fatal(err)
	}
	if next, ok, err := r.s.ObservationNext(t.Context()); err != nil || !ok || next > time.Hour || next < 59*time.Minute {
		t.Fatalf("due in %v (%t), %v", next, ok, err)
	}
}

// What another gateway changes is shown without a scan: the log tells of it.
func TestMembershipsNeedTheLogOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.started(Config{Scan: time.Hour})
	log, err := feed.New(feed.Config{DSN: r.db.DirectDSN()}, feed.Deps{Hub: feed.NewHub(), Members: w.Members})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	if err := log.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	r.eventually("the log feed", log.Up)
	r.spawn("/chat/a", "") // nobody observes yet
	ref := r.membership(kyle, map[string]string{})
	for i, url := range []string{"/chat/b", "/chat/c"} {
		r.spawn(url, "")
		r.eventually("the member", func() bool { return len(r.rows("/_entities/"+ref, "members")) >= i+2 })
	}
}

// busy is a database in which there is always more to read, until it has been
// asked for sources that have come.
type busy struct {
	Database
	w              *Worker
	poke, attached bool
	until          time.Time
	takes          int
}

func (b *busy) ObserveTake(context.Context, int64, int32, int32) ([]store.Observer, error) {
	if b.takes++; b.poke && b.takes == 2 {
		b.w.Poke()
	}
	if b.attached || time.Now().After(b.until) {
		return nil, nil
	}
	return []store.Observer{{ID: 1, Acked: int64(b.takes), Tail: int64(b.takes) + 1, Condition: `"runFinished"`}}, nil
}

func (b *busy) ObserveApply(context.Context, []store.ObserverMove, bool) ([]string, error) {
	return []string{"applied"}, nil
}

func (b *busy) ObserveAttach(context.Context, int64, int32) (int64, int32, error) {
	b.attached = true
	return 0, 0, nil
}

// Who waits for a source to come is not kept waiting by those who have theirs.
func TestASourceIsFoundHoweverMuchThereIsToRead(t *testing.T) {
	t.Parallel()
	for _, poke := range []bool{true, false} { // the other time a scan would find it, if the loop slept
		b := &busy{poke: poke, until: time.Now().Add(10 * time.Second)}
		w, err := New(Config{DB: b, Scan: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		b.w, w.attached = w, time.Now()
		w.attach.Store(false)
		w.observe(t.Context())
		if !b.attached {
			t.Errorf("told %v: nobody looked for it in %d rounds", poke, b.takes)
		}
	}
}

// crowded is a database in which entities change all the time, and membership
// streams are compared all the time.
type crowded struct {
	Database
	changes, checks int
}

func (c *crowded) MembershipApply(context.Context, int32) (int32, error) {
	if c.changes++; c.checks > 2 || c.changes > 1000 {
		return 0, nil
	}
	return showLimit, nil
}

func (c *crowded) MembershipCheck(context.Context, time.Duration, int32) (string, error) {
	if c.checks++; c.changes > 2 || c.checks > 1000 {
		return "none", nil
	}
	return "checked", nil
}

// Membership streams are told of changes while others are compared, and the
// other way about.
func TestNeitherChangesNorComparisonsWait(t *testing.T) {
	t.Parallel()
	c := &crowded{}
	w, err := New(Config{DB: c})
	if err != nil {
		t.Fatal(err)
	}
	if !w.memberships(t.Context()) || c.changes > 10 || c.checks > 10 {
		t.Errorf("%d rounds of changes, %d of comparisons", c.changes, c.checks)
	}
}
