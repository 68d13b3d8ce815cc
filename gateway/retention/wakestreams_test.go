package retention_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/store"
)

const (
	macs   = "runners/mac/wake"
	window = time.Hour
)

// runner registers kyle's mac.
func (r *rig) runner() {
	r.Helper()
	r.exec(`select rouse.runner_register(1, 'mac', $1, false, $1, 'Mac', 'local', 'enabled', '[]', null)`, kyle)
}

// seen is a heartbeat of the mac at the rig's time, which reports where it has read to.
func (r *rig) seen(offset *string) {
	r.Helper()
	r.exec(`select rouse._runner_heartbeat(1, 'mac', $1, false, 60000, $2, null, $3)`, kyle, offset, r.now)
}

// wake gives an entity work and returns where the entry that tells the mac of it ends.
func (r *rig) wake(url string) int64 {
	r.Helper()
	r.work(url)
	return one[int64](r, `select tail from rouse.streams where path = $1`, macs)
}

// work gives an entity work, which mints its wake.
func (r *rig) work(url string) {
	r.Helper()
	out, err := r.st.StreamAppend(r.Context(), []store.AppendItem{{Service: 1, Path: url[1:] + "/main", Type: "application/json", Payload: []byte("1"), Count: 1, Internal: true, Actionable: true}}, true)
	if err != nil || out[0].Outcome != store.Appended {
		r.Fatalf("%+v %v", out, err)
	}
	if got := one[string](r, `select outcome from rouse._dispatch_route(array[$1::bigint], array[$2::bigint], $3)`, out[0].StreamID, out[0].Position, r.now); got != "minted" {
		r.Fatalf("%s is %s", url, got)
	}
}

// done claims an entity's wake and gives it back with everything acked.
func (r *rig) done(url string) {
	r.Helper()
	name := one[string](r, `select c.name from rouse.consumers c where c.entity_url = $1`, url)
	if got := one[string](r, `select (a.answer).outcome from rouse._claim_apply(jsonb_build_array(jsonb_build_object(
		'op', 'acquire', 'service', 1, 'consumer', $1::text, 'holder', $2::text, 'trusted', true)), true, $3) a`, name, kyle, r.now); got != "granted" {
		r.Fatalf("acquire %s: %s", url, got)
	}
	if got := one[string](r, `select (a.answer).outcome from rouse.consumers c, rouse._claim_apply(jsonb_build_array(jsonb_build_object(
		'op', 'release', 'service', 1, 'consumer', c.name, 'epoch', c.epoch, 'wake', c.wake_id, 'acks',
		jsonb_build_array(jsonb_build_object('path', ltrim($2::text, '/') || '/main', 'position', (select tail from rouse.streams where path = ltrim($2::text, '/') || '/main'))))), true, $3) a
		where c.name = $1`, name, url, r.now); got != "released" {
		r.Fatalf("release %s: %s", url, got)
	}
}

func TestWakeEntriesGoBelowTheCursorAndTheWindow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner()
	var ends []int64
	for i := range 4 {
		url := fmt.Sprintf("/chat/%d", i)
		r.spawn(url, "mac")
		ends = append(ends, r.wake(url))
		r.done(url)
		r.wakeStreams(20*time.Minute, window)
	}
	// The first was told 80 min ago, the second 60, at the walk after it each was noted; the mac has read one entry.
	cursor := fmt.Sprintf("%016d_%016d", 0, ends[0])
	r.seen(&cursor)
	r.wakeStreams(time.Minute, window)
	if got := r.head(macs); got != ends[0] {
		t.Fatalf("the head is %d, of %v", got, ends)
	}
	// It reads on, but the window keeps the rest for a while.
	cursor = fmt.Sprintf("%016d_%016d", 0, ends[3])
	r.seen(&cursor)
	r.wakeStreams(time.Second, window)
	if got := r.head(macs); got != ends[0] {
		t.Fatalf("the head is %d, of %v", got, ends)
	}
	r.wakeStreams(20*time.Minute, window)
	if got := r.head(macs); got != ends[1] {
		t.Fatalf("the head is %d, of %v", got, ends)
	}
	r.wakeStreams(20*time.Minute, window)
	if got := r.head(macs); got != ends[2] {
		t.Fatalf("the head is %d, of %v", got, ends)
	}
	r.wakeStreams(3*time.Hour, window)
	if got := r.head(macs); got != ends[3] {
		t.Fatalf("the head is %d, of %v", got, ends)
	}
	r.sweep()
	if n := r.rows(macs); n != 0 {
		t.Fatalf("%d entries stay", n)
	}
	// What comes next is read as ever.
	r.spawn("/chat/next", "mac")
	r.wake("/chat/next")
	if o, got := r.read(macs, ends[3]); o != store.OK || got == "" {
		t.Fatalf("%s %q", o, got)
	}
}

func TestARunnerThatReportsNothingPinsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner()
	r.spawn("/chat/1", "mac")
	end := r.wake("/chat/1")
	r.done("/chat/1")
	r.wakeStreams(time.Minute, window)
	r.seen(nil) // lives, and says no offset
	r.wakeStreams(2*time.Hour, window)
	if got := r.head(macs); got != end {
		t.Fatalf("the head is %d, want %d", got, end)
	}
	// One that has said where it is, and then was gone for longer than the window.
	r.spawn("/chat/2", "mac")
	start := fmt.Sprintf("%016d_%016d", 0, end)
	r.seen(&start)
	end2 := r.wake("/chat/2")
	r.done("/chat/2")
	r.wakeStreams(time.Minute, window)
	r.wakeStreams(50*time.Minute, window)
	if got := r.head(macs); got != end {
		t.Fatalf("the head is %d though the mac was seen lately and is at %d", got, end)
	}
	r.wakeStreams(2*time.Hour, window)
	if got := r.head(macs); got != end2 {
		t.Fatalf("the head is %d, want %d", got, end2)
	}
}

func TestAnEntryOfAnOpenWakeStays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner()
	for _, url := range []string{"/chat/a", "/chat/b", "/chat/c"} {
		r.spawn(url, "mac")
	}
	a := r.wake("/chat/a")
	r.done("/chat/a")
	b := r.wake("/chat/b") // nobody comes for it
	c := r.wake("/chat/c")
	r.done("/chat/c")
	r.wakeStreams(time.Minute, window)
	r.wakeStreams(48*time.Hour, window)
	if got := r.head(macs); got != a {
		t.Fatalf("the head is %d: a at %d, the open b at %d, c at %d", got, a, b, c)
	}
	// Told again at the end of the stream: the first telling is of no use any more.
	r.seen(nil)
	if again := one[string](r, `select max(runner_wake_stream_offset) from rouse.wake_notifications where resolved_at is null`); again <= fmt.Sprintf("%016d_%016d", 0, c) {
		t.Fatalf("b was not told again: %s", again)
	}
	r.wakeStreams(time.Minute, window)
	if got := r.head(macs); got != c {
		t.Fatalf("the head is %d, want %d", got, c)
	}
	// While it is claimed its entry stays, too.
	tail := one[int64](r, `select tail from rouse.streams where path = $1`, macs)
	r.wakeStreams(48*time.Hour, window)
	if got := r.head(macs); got != c {
		t.Fatalf("the head is %d, want %d", got, c)
	}
	r.done("/chat/b")
	r.wakeStreams(48*time.Hour, window)
	if got := r.head(macs); got != tail {
		t.Fatalf("the head is %d, want %d", got, tail)
	}
}

// A pool's stream has no cursors: the window and its open wakes decide.
func TestAPoolsWakeStreamIsCompacted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const path = "worker-pools/coding/wake"
	if got := one[string](r, `select outcome from rouse.pool_put(1, 'coding', $1, false, $1, 'Coding', 'enabled', null, null, false)`, kyle); got != "created" {
		t.Fatal(got)
	}
	r.spawnOn("/chat/a", `{"targets":[{"type":"worker-pool","workerPoolId":"coding"}]}`)
	r.spawnOn("/chat/b", `{"targets":[{"type":"worker-pool","workerPoolId":"coding"}]}`)
	told := func(url string) int64 {
		r.work(url)
		return one[int64](r, `select tail from rouse.streams where path = $1`, path)
	}
	first, second := told("/chat/a"), told("/chat/b")
	if first == 0 || second <= first {
		t.Fatalf("entries end at %d and %d", first, second)
	}
	r.exec(`update rouse.wake_notifications set resolved_at = $1 where entity_url = '/chat/a'`, r.now)
	r.wakeStreams(time.Minute, window)
	r.wakeStreams(50*time.Minute, window)
	if got := r.head(path); got != 0 {
		t.Fatalf("the head is %d within the window", got)
	}
	r.wakeStreams(2*time.Hour, window)
	if got := r.head(path); got != first {
		t.Fatalf("the head is %d, want %d: the second is open", got, first)
	}
	r.exec(`update rouse.wake_notifications set resolved_at = $1 where entity_url = '/chat/b'`, r.now)
	r.wakeStreams(time.Minute, window)
	if got := r.head(path); got != second {
		t.Fatalf("the head is %d, want %d", got, second)
	}
}
