package observation

import (
	"testing"

	"github.com/rouse-run/rouse/gateway/store"
)

// A stream that nobody observes any more is not watched any more, and is again once somebody does.
func TestTheLastObserverTakesTheBitAlong(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, url := range []string{"/chat/a", "/chat/b", "/chat/c"} {
		r.spawn(url, "")
	}
	watched := func(want int64) {
		t.Helper()
		if got := r.count(`select watched from rouse.streams where path = 'chat/b/main'`); got != want {
			t.Fatalf("watched is %d, want %d", got, want)
		}
	}
	gone := func(url string) {
		t.Helper()
		if got, err := r.s.ObserveUnregister(t.Context(), 1, kyle, false, url, "/chat/b", ""); err != nil || got != "ok" {
			t.Fatal(got, err)
		}
	}
	r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/b"})
	r.register(store.ObserverRequest{Subscriber: "/chat/c", Source: "/chat/b"})
	watched(2)
	gone("/chat/a")
	watched(2)
	gone("/chat/c")
	watched(0)
	r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/b"})
	watched(2)
	r.write("chat/b/main", runEnded)
	w := r.worker()
	r.settle(w)
	r.one("/chat/a", "wake")
	// While somebody else has the stream the bit stays: it is no reason to wait.
	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `select from rouse.streams where path = 'chat/b/main' for no key update`); err != nil {
		t.Fatal(err)
	}
	gone("/chat/a")
	watched(2)
}
