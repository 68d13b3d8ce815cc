package retention_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/store"
)

// What was noted by a clock that has been set back since does not stop the clean-up until the clock is there again, and
// nothing goes early.
func TestTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stream("a")
	r.limits("a", store.Limits{Age: time.Hour})
	ends := r.append("a", numbers(100, 110)...)
	r.streams(0)
	r.append("a", numbers(110, 115)...)
	ahead := 365 * 24 * time.Hour
	r.exec(`update rouse.stream_marks set at = at + $1`, ahead)
	r.exec(`update rouse.retention_walks set finished_at = finished_at + $1`, ahead)
	step := func(d time.Duration) int32 {
		t.Helper()
		r.now = r.now.Add(d)
		return one[int32](r, `select trimmed from rouse._retention_streams(10, 1000, $1)`, r.now)
	}
	if n := step(2 * time.Second); n != 0 {
		t.Fatal("something went early")
	}
	if n := step(59 * time.Minute); n != 0 {
		t.Fatal("something went before its age")
	}
	if n := step(2 * time.Minute); n != 1 || r.head("a") != ends[9] {
		t.Fatalf("%d streams trimmed, the head is at %d", n, r.head("a"))
	}
	r.exec(`update rouse.stream_trims set due_at = due_at + $1`, ahead)
	r.sweep()
	if n := r.rows("a"); n != 5 {
		t.Fatalf("%d rows", n)
	}
	// Producers: noted ahead, they count from now.
	if _, err := r.st.StreamAppend(t.Context(), []store.AppendItem{{Service: 1, Path: "a", Type: "application/json", Payload: []byte("1"), Count: 1,
		Producer: &store.Producer{ID: "p"}}}, true); err != nil {
		t.Fatal(err)
	}
	forget := func(d time.Duration) int32 {
		t.Helper()
		r.now = r.now.Add(d)
		return one[int32](r, `select deleted from rouse._retention_rows('producers', 10, 3600000, 0, $1)`, r.now)
	}
	forget(0)
	r.exec(`update rouse.producer_marks set at = at + $1`, ahead)
	if a, b, c := forget(time.Second), forget(50*time.Minute), forget(11*time.Minute); a != 0 || b != 0 || c != 1 {
		t.Fatal(a, b, c)
	}
}

// However long messages are kept, a stream has few notes of when it had which tail.
func TestALongAgeTakesFewNotes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stream("a")
	r.limits("a", store.Limits{Age: 1000 * 24 * time.Hour})
	begin := r.now
	for day := range 100 {
		r.append("a", numbers(100+day, 101+day)...)
		r.streams(24 * time.Hour)
	}
	if n := one[int64](r, `select count(*) from rouse.stream_marks`); n < 20 || n > 26 {
		t.Fatalf("%d notes in a tenth of the age, 24 are enough", n)
	}
	r.now = begin
	r.streams((1000 + 10) * 24 * time.Hour)
	if h := r.head("a"); h < 3 || h > 11*3 {
		t.Fatalf("ten days later the head is at %d", h)
	}
}

// The clean-up holds streams while it trims them, so it does not wait for a step that deletes rows.
func TestATrimOfTheCleanUpWaitsForNoSweep(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stream("a")
	ends := r.append("a", numbers(100, 110)...)
	r.trim("a", &ends[3], false)
	tx, err := r.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `select * from rouse._retention_sweep(2, clock_timestamp())`); err != nil {
		t.Fatal(err)
	}
	trim := func() string {
		t.Helper()
		return one[string](r, `select outcome from rouse.streams s, rouse._stream_trim(s.id, $1, false, false, clock_timestamp()) where s.path = 'a'`, ends[6])
	}
	if got := trim(); got != "busy" || r.head("a") != ends[3] {
		t.Fatal(got)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := trim(); got != "trimmed" || r.head("a") != ends[6] {
		t.Fatal(got)
	}
	r.sweep()
	if n := r.rows("a"); n != 3 {
		t.Fatalf("%d rows", n)
	}
}

// A trim of very many appends does not count them while appends wait: the rest is counted anew.
func TestAHugeTrimKeepsTheCountRight(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.stream("a")
	const all, kept = 170_000, 100_000
	r.exec(`insert into rouse.messages (stream_id, position, payload) select $1, n, '1' from generate_series(1, $2::bigint) n`, id, all)
	r.exec(`update rouse.streams set tail = $2 where id = $1`, id, all)
	r.limits("a", store.Limits{Messages: kept})
	counted := func() int64 {
		return one[int64](r, `select counted from rouse.stream_retention where stream_id = $1`, id)
	}
	for range 2 {
		r.streams(time.Minute)
	}
	if n := counted(); n != kept {
		t.Fatalf("%d counted in two looks", n)
	}
	to := int64(60_000)
	if got := r.trim("a", &to, false); got.Head != to {
		t.Fatalf("%+v", got)
	}
	if n := counted(); n != 0 {
		t.Fatalf("%d are still counted", n)
	}
	for range 5 {
		r.streams(time.Minute)
	}
	if h := r.head("a"); h != all-kept || counted() != kept {
		t.Fatalf("the head is at %d, %d counted", h, counted())
	}
	to = all - 10
	r.trim("a", &to, false)
	r.streams(time.Minute)
	if n := counted(); n != 10 {
		t.Fatalf("%d counted", n)
	}
}

// What is left of a deleted stream is left to who removes those, in whole: the two do not wait for each other.
func TestADeletedStreamIsNotSwept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.stream("a")
	r.append("a", numbers(100, 110)...)
	r.trim("a", nil, false)
	if _, _, err := r.st.StreamDelete(t.Context(), 1, "a", false); err != nil {
		t.Fatal(err)
	}
	r.stream("a") // another one of the same name
	r.append("a", "555")
	r.sweep()
	if n := one[int64](r, `select count(*) from rouse.messages where stream_id = $1`, id); n != 10 {
		t.Fatalf("%d rows of the deleted stream", n)
	}
	if n := one[int64](r, `select count(*) from rouse.stream_trims`); n != 0 {
		t.Fatalf("%d streams to sweep", n)
	}
	r.exec(`select rouse.stream_purge()`)
	if n := one[int64](r, `select count(*) from rouse.messages where stream_id = $1`, id); n != 0 {
		t.Fatalf("%d rows of the deleted stream are left", n)
	}
	r.reads("a", "555")
}

// Who works an entity whose stream is trimmed by force gives it back with what it has read: that goes no further than the
// cursor by now, and nothing is left to do.
func TestAHolderGivesBackWhatWasTrimmedByForce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner()
	r.spawn("/chat/1", "mac")
	r.work("/chat/1")
	const main = "chat/1/main"
	tail := func() int64 { return one[int64](r, `select tail from rouse.streams where path = $1`, main) }
	apply := func(op string, acks ...int64) string {
		t.Helper()
		list := []map[string]any{}
		for _, at := range acks {
			list = append(list, map[string]any{"path": main, "position": at})
		}
		return one[string](r, `select (a.answer).outcome from rouse.consumers c, rouse._claim_apply(jsonb_build_array(jsonb_build_object('op', $1::text,
			'service', 1, 'consumer', c.name, 'holder', $2::text, 'trusted', true, 'epoch', c.epoch, 'wake', c.wake_id, 'acks', $3::jsonb)), true, $4) a
			where c.entity_url = '/chat/1'`, op, kyle, list, r.now)
	}
	if got := apply("acquire"); got != "granted" {
		t.Fatal(got)
	}
	read := tail()
	r.append(main, "100", "101")
	if got := apply("ack", read); got != "ok" {
		t.Fatal(got)
	}
	if got := r.trim(main, nil, true); got.Head != tail() || got.LimitedBy != "" {
		t.Fatalf("%+v", got)
	}
	r.append(main, "102")
	if got := apply("ack", read); got != "ok" {
		t.Fatalf("an ack of what was trimmed: %s", got)
	}
	if got := apply("ack", tail()+1); got != "invalid_offset" && got != "beyond" {
		t.Fatalf("an ack beyond the tail: %s", got)
	}
	if got := apply("ack", tail()); got != "ok" {
		t.Fatal(got)
	}
	if got := apply("ack", tail()-1); got != "invalid_offset" {
		t.Fatalf("an ack that goes back: %s", got)
	}
	if got := apply("release", read); got != "released" {
		t.Fatalf("a release that acks what was trimmed: %s", got)
	}
	if got := one[int64](r, `select cs.acked from rouse.consumer_streams cs join rouse.streams s on s.id = cs.stream_id where s.path = $1`, main); got != tail() {
		t.Fatalf("the cursor is at %d, the tail at %d", got, tail())
	}
	r.work("/chat/1")
	r.done("/chat/1")
}

// Whoever watches a name gets a fork of a trimmed stream from where it begins: what they are told to read is there.
func TestAForkOfATrimmedStreamIsWatchedFromItsBeginning(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stream("jobs")
	ends := r.append("jobs", numbers(100, 105)...)
	r.trim("jobs", &ends[2], false)
	put, err := r.st.SubscriptionPut(t.Context(), store.SubscriptionSpec{Service: 1, ID: "all", Type: "pull-wake", Pattern: "forks/*", WakeStream: "wakes", Lease: 30 * time.Second, Owner: kyle})
	if err != nil {
		t.Fatalf("%+v %v", put, err)
	}
	from := "jobs"
	for path, at := range map[string]int64{"forks/some": ends[4], "forks/none": ends[2]} {
		if m, err := r.st.StreamCreate(t.Context(), store.CreateRequest{Service: 1, Path: path, ForkPath: &from, ForkOffset: &at, Count: 1}); err != nil || m.Outcome != store.Created {
			t.Fatalf("%+v %v", m, err)
		}
		type link struct {
			Acked  int64
			Behind bool
		}
		rows, err := r.pool.Query(t.Context(), `select cs.acked, cs.behind from rouse.consumer_streams cs join rouse.streams s on s.id = cs.stream_id where s.path = $1`, path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[link])
		if err != nil || got.Acked != ends[2] || got.Behind != (at > ends[2]) {
			t.Fatalf("%s: %+v %v", path, got, err)
		}
	}
}
