//go:build faults

package fault

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// clock is what programs that libfaketime is loaded into take for the time: the
// true one and an offset.
type clock struct {
	t    *testing.T
	path string
}

// newClock makes one that is right; env has a program follow it.
func newClock(t *testing.T) (c *clock, env []string) {
	t.Helper()
	library := ""
	for _, pattern := range []string{"/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1"} {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			library = found[0]
		}
	}
	if library == "" {
		t.Fatal("libfaketime is not installed: `make test-faults` sees to it, or apt-get install faketime")
	}
	dir, err := os.MkdirTemp("", "rouse-clock-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // as root Postgres runs as somebody else
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c = &clock{t, filepath.Join(dir, "offset")}
	c.set("+0")
	// Only what is the time jumps: how long something takes is measured by clocks that do not. Processes look at the
	// offset once a second, so for a moment the server's have different clocks.
	return c, []string{"LD_PRELOAD=" + library, "FAKETIME_TIMESTAMP_FILE=" + c.path, "FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
		"NO_FAKE_STAT=1"}
}

// set makes the clock jump; offset in seconds, with its sign.
func (c *clock) set(offset string) {
	c.t.Helper()
	// Renamed, so that nobody reads half of it.
	err := os.WriteFile(c.path+".new", []byte(offset+"\n"), 0o644)
	if err == nil {
		err = os.Rename(c.path+".new", c.path)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// F14: Postgres' clock jumps forward ten minutes, then back twenty. Leases end
// early, or are given anew; never are two alive, none lasts beyond what a lease
// may, and no wake is lost.
func TestClockOfPostgresJumpsUnderLoad(t *testing.T) {
	t.Parallel()
	c, env := newClock(t)
	w := newWorldThrough(t, 6, pgtest.Options{Env: env}, func(w *world) string { return w.pg.DB.DSN })
	w.clockJumps = true
	jump := func(offset string, by time.Duration) time.Time {
		c.set(offset)
		within(t, patience, "Postgres' clock has jumped", func() bool {
			var at time.Time
			w.scan(`select clock_timestamp()`, nil, &at)
			return time.Until(at.Add(-by)).Abs() < 30*time.Second
		})
		return time.Now()
	}
	// One claim for each jump whose holder is silent from then on.
	abandon := func(id string) string {
		w.must(w.clients[0].Spawn(t.Context(), "job", id, "mac"), 200, 201)
		w.must(w.clients[0].Send(t.Context(), "job", id, "k"+id, "k"+id), 200)
		var consumer string
		w.scan(`select name from rouse.consumers where entity_url = $1`, []any{"/job/" + id}, &consumer)
		within(t, patience, "it is claimed by whoever says nothing any more", func() bool {
			return w.clients[0].Acquire(t.Context(), consumer, "silent").Status == 200
		})
		return consumer
	}
	over := func(consumer string, since time.Time) {
		within(t, patience, "what its holder has left is over", func() bool {
			var n int
			w.scan(`select count(*) from rouse.consumer_claims where consumer_id = $1 and claim_id = 'silent' and status = 'active'`, []any{consumer}, &n)
			return n == 0
		})
		t.Logf("the claim whose holder was silent was over %v after the jump", time.Since(since).Round(time.Millisecond))
	}
	underLoad(t, w, 4, 100, func() {
		first := abandon("ahead")
		at := jump("+600", 10*time.Minute)
		over(first, at)
		pause(t.Context(), 2*lease)
		second := abandon("back")
		at = jump("-600", -10*time.Minute)
		over(second, at)
		if took := time.Since(at); took > 3*lease+5*time.Second {
			t.Errorf("a lease of %v went on for %v when the clock was set back", lease, took)
		}
		within(t, patience, "no lease ends later than any may", func() bool {
			var far int
			w.scan(`select count(*) from rouse.consumers where state = 'claimed' and lease_expires_at > clock_timestamp() + lease_ttl_ms * interval '1 ms' + interval '1 s'`, nil, &far)
			return far == 0
		})
		pause(t.Context(), 2*lease)
	})
}
