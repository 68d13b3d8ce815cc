package streamtest

import (
	"slices"
	"testing"
	"time"
)

const plain = "text/plain"

func TestGroupsAppendAndRefuseEachForItself(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(created{path: "a", contentType: plain})
	r.create(created{path: "b", contentType: "application/json"})
	r.create(created{path: "closed", contentType: plain, closed: true})
	r.create(created{path: "late", contentType: plain, ttl: ptr(int64(1))})
	r.create(created{path: "src", contentType: plain})
	r.create(created{path: "fork", contentType: plain, fork: "src"})
	r.delete("src", false)
	r.create(created{path: "e/main", contentType: "application/json", kind: "entity"})
	r.now = r.now.Add(time.Second)
	got := r.appendGroups(
		group{path: "a", typ: plain, payloads: []string{"one", "two"}},
		group{path: "b", typ: plain, payloads: []string{"x"}},
		group{path: "closed", typ: plain, payloads: []string{"x"}},
		group{path: "late", typ: plain, payloads: []string{"x"}},
		group{path: "src", typ: plain, payloads: []string{"x"}},
		group{path: "none", typ: plain, payloads: []string{"x"}},
		group{path: "e/main", typ: "application/json", payloads: []string{"{}"}},
	)
	var outcomes []string
	for _, a := range got {
		outcomes = append(outcomes, a.outcome)
	}
	if want := []string{"appended", "content_type", "closed", "not_found", "gone", "not_found", "guarded"}; !slices.Equal(outcomes, want) {
		t.Fatalf("outcomes %v, want %v", outcomes, want)
	}
	if got[0].tail != 6 || r.all("a") != "onetwo" {
		t.Fatalf("tail %d, content %q", got[0].tail, r.all("a"))
	}
	if n := one[int](r, `select count(*) from rouse.messages`); n != 2 {
		t.Fatalf("%d rows, want 2: a refused group must store nothing", n)
	}
}

func TestProducersAppendOnceInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(created{path: "a", contentType: plain})
	p := func(epoch, seq int64, payload string) item {
		return item{path: "a", typ: plain, payload: payload, producer: "p", epoch: epoch, seq: seq}
	}
	if a := r.wantAppend(p(0, 1, "x"), "producer_gap"); a.seq != -1 {
		t.Fatalf("a new producer has accepted %d", a.seq)
	}
	r.wantAppend(p(0, 0, "one"), "appended")
	r.wantAppend(p(0, 1, "two"), "appended")
	if a := r.wantAppend(p(0, 0, "other"), "duplicate"); a.tail != 6 || a.seq != 1 {
		t.Fatalf("a duplicate answered %+v", a)
	}
	if a := r.wantAppend(p(0, 3, "x"), "producer_gap"); a.seq != 1 {
		t.Fatalf("a gap answered %+v", a)
	}
	r.wantAppend(p(1, 1, "x"), "producer_epoch_seq")
	r.wantAppend(p(1, 0, "three"), "appended")
	if a := r.wantAppend(p(0, 2, "x"), "producer_fenced"); a.epoch != 1 {
		t.Fatalf("a fenced producer learned %+v", a)
	}
	// A close by a producer is repeated like any of its appends; the newer epoch
	// still fences, everybody else meets a closed stream.
	end := item{path: "a", typ: plain, payload: "end", producer: "p", epoch: 1, seq: 1, close: true}
	r.wantAppend(end, "appended")
	if a := r.wantAppend(end, "duplicate"); !a.closed {
		t.Fatal("the repeat of a close does not say closed")
	}
	r.wantAppend(p(1, 2, "x"), "closed")
	r.wantAppend(p(0, 5, "x"), "producer_fenced")
	r.wantAppend(item{path: "a", typ: plain, payload: "x", producer: "q"}, "closed")
	r.wantAppend(item{path: "a", typ: plain, payload: "x", producer: "q", seq: 4}, "closed")
	if got := r.all("a"); got != "onetwothreeend" {
		t.Fatalf("content %q", got)
	}
}

func TestStreamSeqClosesAndTypes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(created{path: "a", contentType: "text/plain; charset=utf-8"})
	seq := func(s string) item { return item{path: "a", typ: plain, payload: s, streamSeq: s} }
	r.wantAppend(seq("09"), "appended")
	r.wantAppend(seq("10"), "appended")
	r.wantAppend(seq("10"), "seq")
	r.wantAppend(seq("1"), "seq")
	r.wantAppend(seq("a"), "appended")
	r.wantAppend(seq("B"), "seq") // bytes, not a language's order
	r.wantAppend(item{path: "a", typ: "text/html", payload: "x", streamSeq: "z"}, "content_type")
	r.wantAppend(item{path: "none", typ: plain, close: true}, "not_found")
	a := r.wantAppend(item{path: "a", typ: "other/type", close: true}, "appended")
	if !a.closed || a.tail != 5 {
		t.Fatalf("a close without data answered %+v", a)
	}
	r.wantAppend(item{path: "a", typ: plain, close: true}, "duplicate")
	r.wantAppend(item{path: "a", typ: plain, payload: "x", close: true}, "closed")
}

func TestWriteTokensHoldOnlyWhileTheClaimLives(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const wake = "018f0000-0000-7000-8000-000000000001"
	const other = "018f0000-0000-7000-8000-000000000002"
	id := one[int64](r, `insert into rouse.consumers (service_id, name, kind, state, epoch, wake_id, lease_expires_at, due_at)
		values (1, 'c', 'entity', 'claimed', 7, $1, $2, $2) returning id`, wake, r.now.Add(30*time.Second))
	stranger := one[int64](r, `insert into rouse.consumers (service_id, name, kind, state, epoch, wake_id, lease_expires_at, due_at)
		values (1, 'd', 'entity', 'claimed', 7, $1, $2, $2) returning id`, other, r.now.Add(time.Hour))
	for path, kind := range map[string]string{"e/main": "entity", "e/error": "error", "runners/r/wake": "wake"} {
		r.create(created{path: path, contentType: "application/json", kind: kind, consumer: &id})
	}
	r.create(created{path: "app", contentType: "application/json"})
	token := func(path string) item {
		return item{path: path, typ: "application/json", payload: "{}", consumer: id, claimEpoch: 7, wake: wake}
	}
	r.wantAppend(item{path: "e/main", typ: "application/json", payload: "{}"}, "guarded")
	r.wantAppend(token("e/main"), "appended")
	r.wantAppend(token("e/error"), "appended")
	r.wantAppend(token("runners/r/wake"), "guarded")
	r.wantAppend(token("app"), "appended")
	if one[bool](r, `select pending or actionable > 0 from rouse.streams where path = 'e/main'`) {
		t.Fatal("the holder's own append asks for attention")
	}
	bad := token("e/main")
	bad.claimEpoch = 6
	r.wantAppend(bad, "token_stale")
	bad = token("e/main")
	bad.wake = other
	r.wantAppend(bad, "token_stale")
	bad = token("e/main")
	bad.consumer, bad.wake = stranger, other
	r.wantAppend(bad, "guarded")
	bad.consumer = 999
	r.wantAppend(bad, "guarded")

	r.now = r.now.Add(30 * time.Second)
	r.wantAppend(token("e/main"), "lease_expired")
	r.now = r.now.Add(-time.Millisecond)
	r.wantAppend(token("e/main"), "appended")
	r.exec(`update rouse.consumers set state = 'idle', wake_id = null, lease_expires_at = null, due_at = null where id = $1`, id)
	r.wantAppend(token("e/main"), "token_stale")
}

func TestOnlyInternalAppendsToEntitiesAskForAttention(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for path, kind := range map[string]string{"e/main": "entity", "e/error": "error", "app": "app"} {
		r.create(created{path: path, contentType: plain, kind: kind})
	}
	state := func(path string) (actionable int64, pending bool) {
		if err := r.c.QueryRow(t.Context(), `select actionable, pending from rouse.streams where path = $1`, path).Scan(&actionable, &pending); err != nil {
			t.Fatal(err)
		}
		return actionable, pending
	}
	r.appendGroups(group{path: "e/main", typ: plain, internal: true, payloads: []string{"quiet"}})
	if a, p := state("e/main"); a != 0 || p {
		t.Fatalf("a quiet append: actionable %d, pending %v", a, p)
	}
	r.appendGroups(
		group{path: "e/main", typ: plain, internal: true, actionable: true, payloads: []string{"loud"}},
		group{path: "e/error", typ: plain, internal: true, actionable: true, payloads: []string{"loud"}},
		group{path: "app", typ: plain, actionable: true, payloads: []string{"loud"}})
	if a, p := state("e/main"); a != 9 || !p {
		t.Fatalf("a loud append: actionable %d, pending %v", a, p)
	}
	for _, path := range []string{"e/error", "app"} {
		if a, p := state(path); a != 0 || p {
			t.Fatalf("%s: actionable %d, pending %v", path, a, p)
		}
	}
	r.wantAppend(item{path: "e/main", typ: plain, payload: "more", internal: true, actionable: true, producer: "p"}, "appended")
	if a, _ := state("e/main"); a != 13 {
		t.Fatalf("a loud append of a producer: actionable %d", a)
	}
}

func TestAppendsOfOneStreamStayInOrderWithinACall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(created{path: "a", contentType: plain})
	var items []item
	for i := range int64(20) {
		items = append(items, item{path: "a", typ: plain, payload: string(rune('a' + i)), producer: "p", seq: i})
	}
	for i, a := range r.append(false, items...) {
		if a.outcome != "appended" || a.tail != int64(i+1) {
			t.Fatalf("append %d: %+v", i, a)
		}
	}
	if got := r.all("a"); got != "abcdefghijklmnopqrst" {
		t.Fatalf("content %q", got)
	}
}

func TestWritesAndReadsSlideTheExpiry(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(created{path: "a", contentType: plain, ttl: ptr(int64(100))})
	expires := func() time.Duration {
		return one[time.Time](r, `select expires_at from rouse.streams where path = 'a'`).Sub(epochStart)
	}
	at := func(d time.Duration) { r.now = epochStart.Add(d) }
	at(4 * time.Second) // not worth a row version
	r.wantAppend(item{path: "a", typ: plain, payload: "x", streamSeq: "1"}, "appended")
	if expires() != 100*time.Second {
		t.Fatalf("expires after %v", expires())
	}
	at(10 * time.Second)
	r.wantAppend(item{path: "a", typ: plain, payload: "x", streamSeq: "2"}, "appended")
	if expires() != 110*time.Second {
		t.Fatalf("expires after %v", expires())
	}
	at(20 * time.Second)
	r.appendGroups(group{path: "a", typ: plain, payloads: []string{"x"}})
	if expires() != 120*time.Second || r.read("a", 0, 10, 10).touch {
		t.Fatalf("expires after %v, touch %v", expires(), r.read("a", 0, 10, 10).touch)
	}
	at(30 * time.Second)
	if !r.read("a", 0, 10, 10).touch {
		t.Fatal("a read does not ask to be followed by a touch")
	}
	id := one[int64](r, `select id from rouse.streams where path = 'a'`)
	if !one[bool](r, `select rouse._stream_touch($1,$2)`, id, r.now) || expires() != 130*time.Second {
		t.Fatalf("expires after %v", expires())
	}
	at(130 * time.Second)
	if one[bool](r, `select rouse._stream_touch($1,$2)`, id, r.now) {
		t.Fatal("an expired stream came back to life")
	}
	r.wantAppend(item{path: "a", typ: plain, payload: "x", streamSeq: "3"}, "not_found")
	if r.head("a") != "not_found" || r.read("a", 0, 10, 10).outcome != "not_found" {
		t.Fatal("an expired stream can be seen")
	}
}
