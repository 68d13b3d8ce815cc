package streamtest

import (
	"strings"
	"testing"
	"time"
)

func TestCreateIsIdempotentForTheSameConfiguration(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	at := r.now.Add(time.Hour)
	r.wantCreate(created{path: "a", contentType: "text/plain; charset=utf-8", payload: "hello"}, "created")
	if m := r.wantCreate(created{path: "a", contentType: plain, payload: "again"}, "exists"); m.tail != 5 {
		t.Fatalf("tail %d: a repeat must not append", m.tail)
	}
	r.wantCreate(created{path: "a", contentType: "text/html"}, "conflict")
	r.wantCreate(created{path: "a"}, "conflict") // octet-stream
	r.wantCreate(created{path: "a", contentType: plain, closed: true}, "conflict")
	r.wantCreate(created{path: "a", contentType: plain, ttl: ptr(int64(5))}, "conflict")
	r.wantCreate(created{path: "a", contentType: plain, expires: &at}, "conflict")
	r.wantCreate(created{path: "a", contentType: plain, fork: "a"}, "conflict")
	r.wantCreate(created{path: "ttl", ttl: ptr(int64(60))}, "created")
	r.wantCreate(created{path: "ttl", ttl: ptr(int64(60))}, "exists")
	r.wantCreate(created{path: "ttl", ttl: ptr(int64(61))}, "conflict")
	r.wantCreate(created{path: "at", expires: &at}, "created")
	r.wantCreate(created{path: "at", expires: &at}, "exists")
	r.wantCreate(created{path: "e", kind: "entity"}, "created")
	r.wantCreate(created{path: "e"}, "guarded")
	if m := r.wantCreate(created{path: "c", closed: true, payload: "x"}, "created"); !m.closed || m.tail != 1 || m.typ != "application/octet-stream" {
		t.Fatalf("created %+v", m)
	}
}

func TestAnExpiredStreamIsAbsent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old := r.wantCreate(created{path: "a", contentType: plain, ttl: ptr(int64(10)), payload: "old"}, "created")
	r.now = r.now.Add(10 * time.Second)
	if got := r.delete("a", false); got != "not_found" {
		t.Fatalf("delete: %s", got)
	}
	m := r.wantCreate(created{path: "a", contentType: "application/json", payload: "1"}, "created")
	if m.id == old.id || m.tail != 1 {
		t.Fatalf("recreated %+v", m)
	}
	r.wantCreate(created{path: "b", contentType: plain, ttl: ptr(int64(10))}, "created")
	r.now = r.now.Add(10 * time.Second)
	r.wantCreate(created{path: "b", contentType: plain}, "created")
	r.wantCreate(created{path: "c", contentType: plain, ttl: ptr(int64(10))}, "created")
	r.wantCreate(created{path: "f", fork: "c"}, "created")
	r.now = r.now.Add(10 * time.Second)
	r.wantCreate(created{path: "g", fork: "c"}, "source_not_found")
	if got := r.purge(100); !strings.HasPrefix(got, "2 expired") {
		t.Fatalf("purge: %s", got)
	}
	if got := one[int](r, `select count(*) from rouse.streams where path is null`); got != 0 {
		t.Fatalf("%d retired streams are left", got)
	}
}

func TestForksReadTheirSource(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(created{path: "a", contentType: plain, payload: "one"})
	r.appendGroups(group{path: "a", typ: plain, payloads: []string{"two", "three"}})
	m := r.wantCreate(created{path: "f", fork: "a", forkAt: ptr(int64(6)), payload: "!"}, "created")
	if m.tail != 7 || m.typ != plain || r.all("f") != "onetwo!" {
		t.Fatalf("fork %+v reads %q", m, r.all("f"))
	}
	r.wantCreate(created{path: "f", fork: "a", forkAt: ptr(int64(6))}, "exists")
	r.wantCreate(created{path: "f", fork: "a", forkAt: ptr(int64(3))}, "conflict")
	r.wantCreate(created{path: "f", fork: "a"}, "conflict")
	r.wantCreate(created{path: "g", fork: "f", forkAt: ptr(int64(3)), forkSub: ptr(int64(2))}, "created")
	if got := r.all("g"); got != "onetw" {
		t.Fatalf("a fork of a fork, inside its source's source, reads %q", got)
	}
	r.wantCreate(created{path: "h", fork: "g", forkAt: ptr(int64(3)), forkSub: ptr(int64(1))}, "created")
	r.appendGroups(group{path: "h", typ: plain, payloads: []string{"X"}})
	if got := r.all("h"); got != "onetX" {
		t.Fatalf("a fork inside a fork's first part reads %q", got)
	}
	for name, c := range map[string]created{
		"fork_offset":      {path: "x", fork: "a", forkAt: ptr(int64(4))},
		"fork_sub":         {path: "x", fork: "a", forkAt: ptr(int64(3)), forkSub: ptr(int64(4))},
		"source_not_found": {path: "x", fork: "none"},
		"content_type":     {path: "x", fork: "a", contentType: "text/html"},
	} {
		r.wantCreate(c, name)
	}
	r.wantCreate(created{path: "x", fork: "a", forkAt: ptr(int64(99))}, "fork_offset")
	r.wantCreate(created{path: "x", fork: "a", forkAt: ptr(int64(11)), forkSub: ptr(int64(1))}, "fork_sub")
	r.create(created{path: "e", kind: "entity", contentType: plain})
	r.wantCreate(created{path: "x", fork: "e"}, "guarded")
	if r.head("x") != "not_found" || one[int](r, `select count(*) from rouse.streams where forked_from = (select id from rouse.streams where path = 'a')`) != 1 {
		t.Fatal("a refused fork left something behind")
	}
	// Producer state is the source's own.
	r.wantAppend(item{path: "a", typ: plain, payload: "p", producer: "p"}, "appended")
	r.wantCreate(created{path: "p", fork: "a"}, "created")
	r.wantAppend(item{path: "p", typ: plain, payload: "p", producer: "p"}, "appended")
}

func TestAJSONForkTakesTheFirstMessagesAsTheyAre(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const body = `{"a" : "\u00e9,]"},{"headers":{"operation":"insert"}},[1, 2],3`
	r.create(created{path: "j", contentType: "application/json", payload: body, count: 4, stamps: []int32{31}})
	r.wantCreate(created{path: "f", fork: "j", forkAt: ptr(int64(0)), forkSub: ptr(int64(3))}, "created")
	p := r.read("f", 0, 1000, 10)
	if p.data != strings.TrimSuffix(body, ",3") || p.stamps != "{31}" || len(p.positions) != 1 || p.positions[0] != p.tail {
		t.Fatalf("the fork reads %+v", p)
	}
	r.wantCreate(created{path: "g", fork: "j", forkAt: ptr(int64(0)), forkSub: ptr(int64(5))}, "fork_sub")
}

func TestDeletingKeepsWhatForksRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(created{path: "a", contentType: plain, payload: "A"})
	r.create(created{path: "b", fork: "a", payload: "B"})
	r.create(created{path: "c", fork: "b", payload: "C"})
	r.create(created{path: "d", fork: "a", payload: "D"})
	if got := r.delete("b", false); got != "deleted" {
		t.Fatalf("delete b: %s", got)
	}
	if r.head("b") != "gone" || r.delete("b", false) != "gone" || r.read("b", 0, 9, 9).outcome != "gone" {
		t.Fatal("a soft-deleted stream is not gone")
	}
	r.wantCreate(created{path: "b", contentType: plain}, "gone")
	r.wantCreate(created{path: "x", fork: "b"}, "source_gone")
	r.wantAppend(item{path: "b", typ: plain, payload: "x", streamSeq: "1"}, "gone")
	if r.all("c") != "ABC" || r.all("a") != "A" {
		t.Fatalf("the fork reads %q, the root %q", r.all("c"), r.all("a"))
	}
	r.delete("a", false)
	r.delete("d", false)
	if r.head("d") != "not_found" || r.head("a") != "gone" {
		t.Fatal("the root went although a fork of a fork reads it")
	}
	r.delete("c", false)
	for _, path := range []string{"a", "b", "c"} {
		if r.head(path) != "not_found" {
			t.Fatalf("%s outlives its last fork", path)
		}
	}
	r.wantCreate(created{path: "a", contentType: plain, payload: "new"}, "created")
	if r.all("a") != "new" {
		t.Fatalf("the new stream reads %q", r.all("a"))
	}
	if got := r.purge(2); got != "0 expired, 4 messages, 4 streams" {
		t.Fatalf("purge: %s", got)
	}
	if n := one[int](r, `select count(*) from rouse.messages`); n != 1 {
		t.Fatalf("%d rows are left, want the new stream's one", n)
	}
	r.create(created{path: "e", kind: "entity", contentType: plain})
	if r.delete("e", false) != "guarded" || r.delete("e", true) != "deleted" || r.delete("e", true) != "not_found" {
		t.Fatal("the guard of delete is broken")
	}
}

func TestPurgeIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(created{path: "a", contentType: plain})
	payloads := make([]string, 25)
	for i := range payloads {
		payloads[i] = "x"
	}
	r.appendGroups(group{path: "a", typ: plain, payloads: payloads})
	r.delete("a", false)
	for _, want := range []int{10, 10, 5} {
		var e, m, s int
		if err := r.c.QueryRow(t.Context(), `select * from rouse._stream_purge(10,$1)`, r.now).Scan(&e, &m, &s); err != nil {
			t.Fatal(err)
		}
		if m != want || (s == 1) != (want == 5) {
			t.Fatalf("a step removed %d messages and %d streams, want %d", m, s, want)
		}
	}
}

func TestReadsAreBoundedPages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(created{path: "a", contentType: plain})
	r.appendGroups(group{path: "a", typ: plain, payloads: []string{"aaa", "bbb", "ccccccccccccccccc", "d"}})
	for _, tc := range []struct {
		from           int64
		bytes, rows    int
		data           string
		next           int64
		outcomeIfNotOK string
	}{
		{0, 6, 9, "aaabbb", 6, ""},
		{0, 8, 9, "aaabbb", 6, ""},
		{0, 1, 9, "aaa", 3, ""},
		{6, 1, 9, "ccccccccccccccccc", 23, ""}, // larger than a page: a page of its own
		{0, 100, 3, "aaabbbccccccccccccccccc", 23, ""},
		{23, 100, 9, "d", 24, ""},
		{24, 100, 9, "", 24, ""},
		{0, 0, 9, "", 0, ""}, // only what the stream is
		{25, 100, 9, "", 25, "beyond"},
	} {
		p := r.read("a", tc.from, tc.bytes, tc.rows)
		outcome := "ok"
		if tc.outcomeIfNotOK != "" {
			outcome = tc.outcomeIfNotOK
		}
		if p.outcome != outcome || p.data != tc.data || p.next != tc.next || p.tail != 24 {
			t.Errorf("read %+v: %+v", tc, p)
		}
	}
	r.exec(`update rouse.streams set head = 6 where path = 'a'`)
	if got := r.read("a", 3, 9, 9).outcome; got != "trimmed" {
		t.Fatalf("a read before the head: %s", got)
	}
	// By id, for tails; a retired stream is not found any more.
	id := one[int64](r, `select id from rouse.streams where path = 'a'`)
	byID := `select outcome from rouse.stream_read(null, null, $1, 6)`
	if got := one[string](r, byID, id); got != "ok" {
		t.Fatalf("by id: %s", got)
	}
	r.delete("a", false)
	if got := one[string](r, byID, id); got != "not_found" {
		t.Fatalf("by id, retired: %s", got)
	}
}

func TestAPageSaysWhereItsAppendsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(created{path: "j", contentType: "application/json"})
	const message = `{"headers":{"operation":"insert"},"key":"k"}`
	for i := range int64(3) {
		r.wantAppend(item{path: "j", typ: "application/json", payload: message, stamps: "{12}", producer: "p", seq: i}, "appended")
		r.appendGroups(group{path: "j", typ: "application/json", payloads: []string{`7`}})
	}
	p := r.read("j", 0, 1000, 100)
	if p.stamps != "{12};;{12};;{12};" || len(p.positions) != 6 || p.data != strings.Repeat(message+",7,", 2)+message+",7" {
		t.Fatalf("page %+v", p)
	}
	for i, at := range p.positions {
		if want := int64((i/2)*(len(message)+1) + len(message) + i%2); at != want {
			t.Fatalf("append %d ends at %d, want %d", i, at, want)
		}
	}
}
