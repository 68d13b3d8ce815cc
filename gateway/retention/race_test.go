package retention_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/store"
)

// Appends, forks, trims and the deleting of rows go on at once: each fork holds, from where it begins to its end, every
// message in its place, whatever its source has lost since.
func TestForksAmongTrims(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stream("src")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const messages, forks = 400, 60
	var wg sync.WaitGroup
	written := make(chan struct{})
	fail := func(format string, args ...any) {
		t.Errorf(format, args...)
		cancel()
	}
	wg.Go(func() {
		defer close(written)
		for i := range messages {
			out, err := r.st.StreamAppend(ctx, []store.AppendItem{{Service: 1, Path: "src", Type: "application/json", Payload: fmt.Appendf(nil, "%d", 1000+i), Count: 1}}, true)
			if err != nil || out[0].Outcome != store.Appended {
				fail("append: %+v %v", out, err)
				return
			}
		}
	})
	going := func() bool {
		select {
		case <-written:
			return false
		default:
			return ctx.Err() == nil
		}
	}
	wg.Go(func() { // keeps the newest twenty bytes or so
		for going() {
			h, err := r.st.StreamHead(ctx, 1, "src")
			if err != nil {
				fail("head: %v", err)
				return
			}
			to := max(h.Tail-20, 0)
			if _, err := r.st.StreamTrim(ctx, 1, "src", &to, false, ""); err != nil {
				fail("trim: %v", err)
				return
			}
		}
	})
	for range 2 {
		wg.Go(func() {
			for going() {
				if _, err := r.st.RetentionSweep(ctx, 3); err != nil {
					fail("sweep: %v", err)
					return
				}
			}
		})
	}
	made := make(chan string, forks)
	wg.Go(func() {
		defer close(made)
		for i := range forks {
			path, from := fmt.Sprintf("fork%d", i), "src"
			if i%3 == 2 {
				from = fmt.Sprintf("fork%d", i-1) // a fork of a fork
			}
			m, err := r.st.StreamCreate(ctx, store.CreateRequest{Service: 1, Path: path, ForkPath: &from, Count: 1})
			if err != nil || m.Outcome != store.Created {
				fail("fork %d: %+v %v", i, m, err)
				return
			}
			if i%5 == 4 {
				if _, err := r.st.StreamTrim(ctx, 1, path, nil, false, ""); err != nil {
					fail("trim of fork %d: %v", i, err)
					return
				}
			}
			made <- path
		}
	})
	wg.Wait()
	for range 1000 { // what is left to delete, with the forks' hour over
		r.now = time.Now().Add(2 * time.Hour)
		if !one[bool](r, `select more from rouse._retention_sweep(5000, $1)`, r.now) {
			break
		}
	}
	n := 0
	for path := range made {
		n++
		o, got := r.read(path, -1)
		if o != store.OK {
			t.Fatalf("%s: %s", path, o)
		}
		if got == "" {
			continue
		}
		// Whole numbers one after the other, and each of four digits, so that the place says which it is.
		var first, last int
		parts := strings.Split(got, ",")
		if _, err := fmt.Sscan(parts[0], &first); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(parts[len(parts)-1], &last); err != nil {
			t.Fatal(err)
		}
		if last-first+1 != len(parts) || r.head(path) != int64(4*(first-1000)) {
			t.Fatalf("%s holds %d to %d in %d messages, its head is %d", path, first, last, len(parts), r.head(path))
		}
	}
	if n != forks && !t.Failed() {
		t.Fatalf("%d forks", n)
	}
}

// A sweep waits for no stream, whatever it finds to do: a trim that has the stream waits for what the sweep holds.
func TestASweepWaitsForNoStream(t *testing.T) {
	t.Parallel()
	for name, fork := range map[string]bool{"all goes": false, "a fork keeps some": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.stream("src")
			ends := r.append("src", "1000", "1001", "1002", "1003")
			r.trim("src", &ends[0], false)
			if fork {
				from := "src"
				if m, err := r.st.StreamCreate(t.Context(), store.CreateRequest{Service: 1, Path: "fork", ForkPath: &from, Count: 1}); err != nil || m.Outcome != store.Created {
					t.Fatalf("%+v %v", m, err)
				}
			}
			r.trim("src", &ends[3], false)
			tx, err := r.db.Conn(t).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), `select from rouse.streams where path = 'src' for update`); err != nil {
				t.Fatal(err)
			}
			if _, err := r.st.RetentionSweep(t.Context(), 100); err != nil {
				t.Errorf("beside a trim: %v", err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := int64(0)
			if fork {
				want = 3
			}
			if n := r.rows("src"); n != want {
				t.Errorf("%d rows are kept, want %d", n, want)
			}
		})
	}
}

// While wakes are minted, told and resolved, the compaction never takes the entry of one that is open.
func TestCompactionAmongWakes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner()
	const entities = 12
	for i := range entities {
		r.spawn(fmt.Sprintf("/chat/%d", i), "mac")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stop := make(chan struct{})
	var trims int
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			var trimmed, lost int
			// An hour from now, so that everything is old at once.
			err := r.pool.QueryRow(ctx, `select trimmed from rouse._retention_wake_streams(10, 1, 0, clock_timestamp() + interval '1 hour')`).Scan(&trimmed)
			if err == nil {
				err = r.pool.QueryRow(ctx, `select count(*) from rouse.wake_notifications n join rouse.streams s on s.path = ltrim(n.runner_wake_stream, '/')
					where n.resolved_at is null and n.runner_wake_stream_offset <= rouse._offset(s.head)`).Scan(&lost)
			}
			if err != nil || lost != 0 {
				t.Errorf("%d open wakes have lost their entry, %v", lost, err)
				return
			}
			trims += trimmed
		}
	})
	for round := range 8 {
		for i := range entities {
			r.work(fmt.Sprintf("/chat/%d", i))
		}
		for i := range entities {
			if (i+round)%5 != 0 {
				r.done(fmt.Sprintf("/chat/%d", i))
			}
		}
		for i := range entities {
			if (i+round)%5 == 0 {
				r.done(fmt.Sprintf("/chat/%d", i))
			}
		}
	}
	close(stop)
	wg.Wait()
	if trims == 0 {
		t.Fatal("nothing was trimmed meanwhile")
	}
}
