package subscriptiontest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestSettlingWaitsForThoseWhoMayNotHaveSeenIt: a stream whose maker looked for
// subscriptions before there was this one, and commits after, is linked all the
// same. Whoever begins later is not waited for.
func TestSettlingWaitsForThoseWhoMayNotHaveSeenIt(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprint("named ", named), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			early, late := r.db.Conn(t), r.db.Conn(t)
			begin := func(c *pgx.Conn, path string) pgx.Tx {
				tx, err := c.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				var outcome string
				if err := tx.QueryRow(t.Context(), `select outcome from rouse._stream_create(1, $1, 'application/json', null, null, false, '{"a": 1}', 1, null, null, null, null, 'app', null, null, $2)`,
					path, r.now).Scan(&outcome); err != nil || outcome != "created" {
					t.Fatalf("%s %v", outcome, err)
				}
				return tx
			}
			commit := func(tx pgx.Tx) {
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			txEarly := begin(early, "a/early")
			s := spec{id: "s", pattern: "a/*"}
			if named {
				s = spec{id: "s", streams: []string{"a/early", "a/late"}}
			}
			if got := r.put(s); got != "created" {
				t.Fatal(got)
			}
			var change *int32
			var creators []string
			step := func() (outcome string) {
				t.Helper()
				if err := r.c.QueryRow(t.Context(), `select outcome, change, creators from rouse.subscription_settle(1, 's', $1, $2, 1000)`, change, creators).
					Scan(&outcome, &change, &creators); err != nil {
					t.Fatal(err)
				}
				return outcome
			}
			if got := step(); got != "waiting" || len(creators) != 1 {
				t.Fatalf("%s %v", got, creators)
			}
			txLate := begin(late, "a/late")
			if got := step(); got != "waiting" || len(creators) != 1 {
				t.Fatalf("%s %v", got, creators)
			}
			commit(txEarly)
			for range 10 {
				if got := step(); got == "done" {
					break
				} else if got != "more" {
					t.Fatalf("%s %v", got, creators)
				}
			}
			if got := step(); got != "done" {
				t.Fatal(got)
			}
			commit(txLate)
			kind := "glob"
			if named {
				kind = "explicit"
			}
			r.wantLinks(r.sub("s"), link{"a/early", kind, 8, 8, false}, link{"a/late", kind, 0, 8, true})
		})
	}
}

// TestMoreStreamsAreWaitedForAnew: settling for the first change must not end the
// wait for a second one made meanwhile.
func TestMoreStreamsAreWaitedForAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.put(spec{id: "s", streams: []string{"a"}})
	if got := one[string](r, `select rouse.subscription_watch(1, 's', 'x', '{b}')`); got != "ok" {
		t.Fatal(got)
	}
	// The first maker's last step, begun before the second change.
	if got := one[string](r, `select outcome from rouse.subscription_settle(1, 's', 1, '{}', 100)`); got != "done" {
		t.Fatal(got)
	}
	if got := one[int](r, `select changes - settled from rouse.subscriptions`); got != 1 {
		t.Fatalf("%d changes are open", got)
	}
	if got := one[int](r, `select count(*) from rouse.subscription_unsettled(0, 10)`); got != 1 {
		t.Fatal("it is not found as unsettled")
	}
	if got := one[int](r, `select count(*) from rouse.subscription_unsettled(60000, 10)`); got != 0 {
		t.Fatal("it is taken for abandoned at once")
	}
	r.settle("s")
	if got := one[int](r, `select count(*) from rouse.subscription_unsettled(0, 10)`); got != 0 {
		t.Fatal("it is still unsettled")
	}
	if got := one[string](r, `select outcome from rouse.subscription_settle(1, 'none', null, null, 100)`); got != "not_found" {
		t.Fatal(got)
	}
}

// TestNoStreamFallsBetweenThoseThatExistAndThoseThatAreMade: makers of streams and
// of subscriptions run against each other; every stream ends up linked to every
// subscription, and what was appended after the subscription was there is unread.
func TestNoStreamFallsBetweenThoseThatExistAndThoseThatAreMade(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const makers, subscriptions = 4, 6
	var made atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	fail := make(chan error, makers+1)
	slowest := make([]time.Duration, makers)
	for i := range makers {
		c := r.db.Conn(t)
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				path := fmt.Sprintf("%c/%d/%d", 'a'+n%5, i, n)
				err := func() error {
					tx, err := c.Begin(t.Context())
					if err != nil {
						return err
					}
					defer tx.Rollback(t.Context())
					began := time.Now()
					if _, err := tx.Exec(t.Context(), `select rouse.stream_create(1, $1, 'application/json')`, path); err != nil {
						return err
					}
					slowest[i] = max(slowest[i], time.Since(began))
					for range rand.IntN(3) * 20 { // some take their time before they commit
						if _, err := tx.Exec(t.Context(), `select 1`); err != nil {
							return err
						}
					}
					if err := tx.Commit(t.Context()); err != nil {
						return err
					}
					made.Add(1)
					return nil
				}()
				if err != nil {
					fail <- err
					return
				}
			}
		})
	}
	c := r.db.Conn(t)
	wg.Go(func() {
		defer close(stop)
		s := r.on(c)
		for i := range subscriptions {
			for before := made.Load(); made.Load() < before+15; {
				if _, err := c.Exec(t.Context(), `select 1`); err != nil {
					fail <- err
					return
				}
			}
			s.subscribe(spec{id: fmt.Sprint("s", i), pattern: "**"})
		}
	})
	wg.Wait()
	close(fail)
	for err := range fail {
		t.Fatal(err)
	}
	if n := one[int](r, `select count(*) from rouse.subscriptions b cross join rouse.streams s
		where not exists (select from rouse.consumer_streams k where k.consumer_id = b.consumer_id and k.stream_id = s.id)`); n != 0 {
		t.Errorf("%d of %d streams are missing", n, made.Load())
	}
	t.Logf("%d streams, the slowest made in %v", made.Load(), slowest)
}

// TestACrashWhileSettlingIsFinishedByAnybody: each step is a transaction of its
// own, and the next caller goes on from it.
func TestACrashWhileSettlingIsFinishedByAnybody(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 30 {
		r.make(fmt.Sprintf("a/%02d", i), `{"a": 1}`)
	}
	r.put(spec{id: "s", pattern: "a/*"})
	var outcome string
	if err := r.c.QueryRow(t.Context(), `select outcome from rouse.subscription_settle(1, 's', null, null, 10)`).Scan(&outcome); err != nil || outcome != "more" {
		t.Fatalf("%s %v", outcome, err)
	}
	// Meanwhile the world goes on: appended to before, behind and at where it stands.
	r.append("a/03")
	r.append("a/20")
	r.make("a/000", `{"a": 1}`)
	r.make("a/25x", `{"a": 1}`)
	if got := r.put(spec{id: "s", pattern: "a/*"}); got != "confirmed" {
		t.Fatal(got)
	}
	r.settle("s")
	links := r.links(r.sub("s"))
	if len(links) != 32 {
		t.Fatalf("%d links", len(links))
	}
	for _, l := range links {
		want := link{l.Path, "glob", 8, 8, false}
		switch l.Path {
		case "a/03":
			want = link{l.Path, "glob", 8, 16, true}
		case "a/20": // not linked yet when it was appended to: it existed until now
			want = link{l.Path, "glob", 16, 16, false}
		case "a/000", "a/25x":
			want = link{l.Path, "glob", 0, 8, true}
		}
		if l != want {
			t.Errorf("%+v, want %+v", l, want)
		}
	}
}

// TestALockedStreamHoldsUpNothingButItself: settling and tidying wait for no row;
// what is locked is done in a later step.
func TestALockedStreamHoldsUpNothingButItself(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 9 {
		r.make(fmt.Sprint("a/", i), `{"a": 1}`)
	}
	other := r.db.Conn(t)
	locked := func(f func()) {
		t.Helper()
		tx, err := other.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `select 1 from rouse.streams where path = 'a/4' for no key update`); err != nil {
			t.Fatal(err)
		}
		f()
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.put(spec{id: "s", pattern: "a/*", streams: []string{"a/4"}})
	step := func() string {
		t.Helper()
		return one[string](r, `select outcome from rouse.subscription_settle(1, 's', 1, '{}', 100)`)
	}
	locked(func() {
		for range 3 {
			if got := step(); got != "waiting" { // it is not asked again and again without a pause
				t.Errorf("a step: %s", got)
			}
		}
		if n := len(r.links(r.sub("s"))); n != 8 {
			t.Errorf("%d streams are linked", n)
		}
	})
	r.append("a/7")
	for step() != "done" {
	}
	links := r.links(r.sub("s"))
	if len(links) != 9 || links[4] != (link{"a/4", "explicit", 8, 8, false}) || links[7] != (link{"a/7", "glob", 8, 16, true}) {
		t.Errorf("%+v", links)
	}
	consumer := r.sub("s").consumer
	r.exec(`select rouse.subscription_delete(1, 's', '')`)
	left := func(want int) {
		t.Helper()
		if n := one[int](r, `select count(*) from rouse.consumer_streams where consumer_id = $1`, consumer); n != want {
			t.Errorf("%d links are left, want %d", n, want)
		}
	}
	locked(func() {
		for range 3 {
			r.exec(`select rouse.subscription_tidy(100)`)
		}
		left(1)
	})
	r.exec(`select rouse.subscription_tidy(100)`)
	left(0)
}
