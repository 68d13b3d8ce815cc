package observation

import (
	"context"
	"testing"
	"time"

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
	if err := r.s.ScheduleAdd(t.Context(), 1, kyle, false, "/chat/b", Message{Payload: []byte(`1`), From: kyle}.Encode(), 50*time.Millisecond, ""); err != nil {
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
