package retention_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/store"
)

func TestATrimMovesTheHeadAndTheRowsGoLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stream("a")
	ends := r.append("a", numbers(100, 110)...)
	inside := ends[3] + 1 // in the middle of an append: that one stays whole
	if got := r.trim("a", &inside, false); got.Outcome != store.Trimmed || got.Head != ends[3] || got.LimitedBy != "" {
		t.Fatalf("%+v", got)
	}
	r.reads("a", strings.Join(numbers(104, 110), ","))
	if o, _ := r.read("a", 0); o != store.Trimmed {
		t.Fatalf("a read of the start: %s", o)
	}
	if o, got := r.read("a", ends[3]); o != store.OK || !strings.HasPrefix(got, "104") {
		t.Fatalf("a read at the head: %s %s", o, got)
	}
	below := int64(0)
	p, err := r.st.StreamRead(t.Context(), store.ReadRequest{Service: 1, Path: "a", From: &below, MaxBytes: 100, MaxRows: 10})
	if err != nil || p.Head != ends[3] || p.Next != 0 {
		t.Fatalf("the refusal says %d, %v; the first kept is at %d", p.Head, err, ends[3])
	}
	if n := r.rows("a"); n != 10 {
		t.Fatalf("%d rows before the sweep", n)
	}
	r.sweep()
	if n := r.rows("a"); n != 6 {
		t.Fatalf("%d rows after it", n)
	}
	if got := r.trim("a", &ends[2], false); got.Outcome != "unchanged" || got.Head != ends[3] {
		t.Fatalf("a head never goes back: %+v", got)
	}
	// All of it: the stream is empty and goes on at its tail.
	if got := r.trim("a", nil, false); got.Head != ends[9] || got.Tail != ends[9] {
		t.Fatalf("%+v", got)
	}
	r.reads("a", "")
	r.append("a", "999")
	r.reads("a", "999")
	r.sweep()
	if n := r.rows("a"); n != 1 {
		t.Fatalf("%d rows", n)
	}
	far := ends[9] + 1000
	if got := r.trim("a", &far, false); got.Outcome != "beyond" {
		t.Fatalf("%+v", got)
	}
	if got := r.trim("nowhere", nil, false); got.Outcome != store.NotFound {
		t.Fatalf("%+v", got)
	}
	if n := one[int64](r, `select count(*) from rouse.audit_log where action = 'stream.trim' and resource = '/a'`); n == 0 {
		t.Fatal("a trim leaves no audit row")
	}
}

func TestForksKeepWhatTheyRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stream("src")
	ends := r.append("src", numbers(100, 110)...)
	fork := func(path, from string, at int64) store.StreamMeta {
		t.Helper()
		m, err := r.st.StreamCreate(t.Context(), store.CreateRequest{Service: 1, Path: path, ForkPath: &from, ForkOffset: &at, Count: 1})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	fork("early", "src", ends[5])
	fork("grandchild", "early", ends[2])
	r.trim("src", &ends[7], false)
	r.sweep()
	r.reads("src", strings.Join(numbers(108, 110), ","))
	r.reads("early", strings.Join(numbers(100, 106), ","))
	r.reads("grandchild", strings.Join(numbers(100, 103), ","))
	if n := r.rows("src"); n != 8 {
		t.Fatalf("%d rows: what no fork reads goes", n)
	}
	// A fork of a trimmed stream begins where the stream does.
	late := fork("late", "src", ends[8])
	if late.Outcome != store.Created {
		t.Fatalf("%+v", late)
	}
	r.reads("late", "108")
	if o, _ := r.read("late", 0); o != store.Trimmed {
		t.Fatalf("the fork's start: %s", o)
	}
	if m := fork("never", "src", ends[3]); m.Outcome != store.ForkOffset {
		t.Fatalf("a fork of what was trimmed: %+v", m)
	}
	// The fork is trimmed too: what neither reads goes from the source, but not what the grandchild reads.
	r.trim("early", &ends[4], false)
	r.sweep()
	r.now = r.now.Add(2 * time.Hour)
	r.sweep()
	r.reads("early", "105")
	r.reads("grandchild", strings.Join(numbers(100, 103), ","))
	r.trim("grandchild", nil, false)
	r.now = r.now.Add(2 * time.Hour)
	r.sweep()
	r.reads("early", "105")
	if n := r.rows("src"); n != 3 {
		t.Fatalf("%d rows of the source: 105, 108 and 109 are wanted", n)
	}
}

func TestNothingThatSomebodyHasStillToReadIsTrimmed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.stream("jobs")
	ends := r.append("jobs", numbers(100, 110)...)
	// A subscription's cursor and an observer's.
	sub := one[int64](r, `insert into rouse.consumers (service_id, name, kind) values (1, 'sub', 'subscription') returning id`)
	r.exec(`insert into rouse.consumer_streams (consumer_id, stream_id, link_type, acked, behind) values ($1, $2, 'explicit', $3, true)`, sub, id, ends[4])
	r.exec(`insert into rouse.observers (service_id, stream_id, kind, subscriber_url, acked, behind, source_path, source_url, principal)
	        values (1, $1, 'wake', '/x/y', $2, true, 'jobs', '/jobs', $3)`, id, ends[6], kyle)
	if got := r.trim("jobs", nil, false); got.Head != ends[4] || got.LimitedBy != "cursor" {
		t.Fatalf("%+v", got)
	}
	r.limits("jobs", store.Limits{Bytes: 3})
	r.streams(time.Minute)
	if got := r.head("jobs"); got != ends[4] {
		t.Fatalf("the limit trimmed up to %d", got)
	}
	r.exec(`update rouse.consumer_streams set acked = $1 where stream_id = $2`, ends[9], id)
	r.streams(time.Minute)
	if got := r.head("jobs"); got != ends[6] {
		t.Fatalf("the observer's cursor: %d", got)
	}
	// Force moves the cursors along.
	if got := r.trim("jobs", &ends[8], true); got.Head != ends[8] || got.LimitedBy != "" {
		t.Fatalf("%+v", got)
	}
	if got := one[int64](r, `select acked from rouse.observers where stream_id = $1`, id); got != ends[8] {
		t.Fatalf("the observer is at %d", got)
	}
}

func TestAnEntitysPendingWorkStays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/1", "")
	main := "chat/1/main"
	begin := r.append(main, "100")
	out, err := r.st.StreamAppend(t.Context(), []store.AppendItem{{Service: 1, Path: main, Type: "application/json", Payload: []byte("101"), Count: 1, Internal: true, Actionable: true}}, true)
	if err != nil || out[0].Outcome != store.Appended {
		t.Fatalf("%+v %v", out, err)
	}
	r.append(main, "102", "103")
	acked := one[int64](r, `select acked from rouse.consumer_streams cs join rouse.streams s on s.id = cs.stream_id where s.path = $1`, main)
	if got := r.trim(main, nil, false); got.Head > acked || got.LimitedBy != "cursor" {
		t.Fatalf("%+v though work waits behind %d", got, acked)
	}
	// Once it is done, what came behind it may go, and the cursor goes along: the next wake begins where reading can.
	r.exec(`update rouse.consumer_streams set acked = $1 where stream_id = (select id from rouse.streams where path = $2)`, out[0].Position, main)
	got := r.trim(main, nil, false)
	if got.Outcome != store.Trimmed || got.Head != got.Tail {
		t.Fatalf("%+v", got)
	}
	if acked := one[int64](r, `select acked from rouse.consumer_streams cs join rouse.streams s on s.id = cs.stream_id where s.path = $1`, main); acked != got.Head {
		t.Fatalf("the cursor is at %d, the head at %d", acked, got.Head)
	}
	if begin[0] >= got.Head {
		t.Fatal("nothing was trimmed")
	}
}

func TestLimitsByAgeBytesAndCount(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, path := range []string{"age", "bytes", "count", "all", "free"} {
		r.stream(path)
	}
	r.limits("age", store.Limits{Age: time.Hour})
	r.limits("bytes", store.Limits{Bytes: 10})
	r.limits("count", store.Limits{Messages: 4})
	r.limits("all", store.Limits{Age: time.Hour, Bytes: 1000, Messages: 5})
	var age []int64
	for i := range 6 {
		n := numbers(100+2*i, 102+2*i)
		age = append(age, r.append("age", n...)...)
		r.append("bytes", n...)
		r.append("count", "1,2", "3") // three messages
		r.append("all", n...)
		r.append("free", n...)
		r.streams(15 * time.Minute)
		r.sweep()
	}
	// The walk at 90 min finds what was there at 15 and 30 min older than an hour.
	if got := r.head("age"); got != age[3] {
		t.Fatalf("by age up to %d, want %d", got, age[3])
	}
	r.reads("bytes", "109,110,111") // 9 bytes; a fourth append makes 12
	r.reads("count", "3,1,2,3")     // one append is one or two messages
	r.reads("all", strings.Join(numbers(107, 112), ","))
	r.reads("free", strings.Join(numbers(100, 112), ","))
	if n := r.rows("bytes"); n != 3 {
		t.Fatalf("%d rows of bytes", n)
	}
	// All of it is old at last, and the notes of times go with it.
	r.streams(2 * time.Hour)
	r.reads("age", "")
	if n := one[int64](r, `select count(*) from rouse.stream_marks m join rouse.streams s on s.id = m.stream_id where s.path = 'age'`); n != 0 {
		t.Fatalf("%d marks stay", n)
	}
	// One append beyond the limit stays all the same.
	r.append("bytes", "123456789012345")
	r.append("count", "1,2,3,4,5,6,7")
	r.streams(time.Minute)
	r.reads("bytes", "123456789012345")
	r.reads("count", "1,2,3,4,5,6,7")
	// Without limits of its own nothing goes any more.
	if got, err := r.st.RetentionDelete(t.Context(), 1, "count", kyle); got != "deleted" || err != nil {
		t.Fatal(got, err)
	}
	r.append("count", "8")
	r.streams(time.Minute)
	r.reads("count", "1,2,3,4,5,6,7,8")
	if n := one[int64](r, `select count(*) from rouse.stream_retention x join rouse.streams s on s.id = x.stream_id where s.path = 'count'`); n != 0 {
		t.Fatal("the row without limits stays")
	}
}

// Trims for other reasons do not make a count forget, nor count twice, what went.
func TestACountSurvivesOtherTrims(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.stream("c")
	r.limits("c", store.Limits{Messages: 6})
	ends := r.append("c", numbers(100, 106)...)
	r.streams(time.Minute)
	r.trim("c", &ends[3], false)
	r.sweep()
	r.append("c", numbers(106, 110)...)
	r.streams(time.Minute)
	r.reads("c", strings.Join(numbers(104, 110), ","))
	r.append("c", "110", "111")
	r.streams(time.Minute)
	r.reads("c", strings.Join(numbers(106, 112), ","))
}

func TestLimitsOfATypeHoldForItsEntities(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/old", "")
	adopt := func(d time.Duration) {
		r.now = r.now.Add(d)
		for one[bool](r, `select more from rouse._retention_adopt(3, $1)`, r.now) {
		}
	}
	if got, err := r.st.RetentionTypePut(t.Context(), 1, "chat", store.Limits{Messages: 2}, kyle); got != "set" || err != nil {
		t.Fatal(got, err)
	}
	r.spawn("/other/1", "")
	r.spawn("/chat/new", "")
	adopt(time.Minute)
	r.spawn("/chat/newer", "")
	adopt(time.Hour)
	r.limits("chat/newer/main", store.Limits{}) // keeps all, whatever the type says
	for _, url := range []string{"chat/old", "chat/new", "chat/newer", "other/1"} {
		r.append(url+"/main", "1", "2", "3", "4")
		r.exec(`update rouse.consumer_streams cs set acked = s.tail from rouse.streams s where s.id = cs.stream_id and s.path = $1`, url+"/main")
	}
	r.streams(time.Minute)
	r.reads("chat/old/main", "3,4")
	r.reads("chat/new/main", "3,4")
	if h := r.head("chat/newer/main"); h != 0 {
		t.Fatalf("its own rule is to keep all: %d", h)
	}
	if h := r.head("other/1/main"); h != 0 {
		t.Fatalf("another type's: %d", h)
	}
	got, err := r.st.RetentionGet(t.Context(), 1, "chat/new/main")
	if err != nil || got.Source != "type" || got.EntityType != "chat" || got.Messages != 2 || got.Head != r.head("chat/new/main") {
		t.Fatalf("%+v %v", got, err)
	}
	if got, err := r.st.RetentionTypePut(t.Context(), 1, "chat", store.Limits{}, kyle); got != "deleted" || err != nil {
		t.Fatal(got, err)
	}
	r.append("chat/old/main", "5")
	r.streams(time.Minute)
	r.reads("chat/old/main", "3,4,5")
}

func TestGuardedKindsHaveNoLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`select rouse.runner_register(1, 'mac', $1, false, $1, 'Mac', 'local', 'enabled', '[]', null)`, kyle)
	if got, err := r.st.RetentionPut(t.Context(), 1, "runners/mac/wake", store.Limits{Bytes: 1}, false, kyle); got != "guarded" || err != nil {
		t.Fatal(got, err)
	}
	if got := r.trim("runners/mac/wake", nil, true); got.Outcome != store.Guarded {
		t.Fatalf("%+v", got)
	}
	r.stream("a")
	if got, err := r.st.RetentionPut(t.Context(), 1, "a", store.Limits{Bytes: 1}, true, kyle); got != "set" || err != nil {
		t.Fatal(got, err)
	}
	if got, err := r.st.RetentionPut(t.Context(), 1, "a", store.Limits{Bytes: 1}, true, kyle); got != "same" || err != nil {
		t.Fatal(got, err)
	}
	if got, err := r.st.RetentionPut(t.Context(), 1, "a", store.Limits{Bytes: 2}, true, kyle); got != "conflict" || err != nil {
		t.Fatal(got, err)
	}
}

// Many streams are trimmed in few steps, none of which holds very many of them.
func TestStreamsAreTrimmedManyAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 120
	r.exec(`insert into rouse.streams (service_id, path, content_type, is_json, tail) select 1, 's/' || i, 'application/json', true, 200 from generate_series(1, $1::int) i`, n)
	r.exec(`insert into rouse.messages (stream_id, position, payload) select s.id, i * 20, convert_to(repeat('1', 20), 'UTF8') from rouse.streams s, generate_series(1, 10) i where s.path like 's/%'`)
	r.exec(`insert into rouse.stream_retention (stream_id, own, max_bytes) select id, true, 100 from rouse.streams where path like 's/%'`)
	steps, most, all := 0, 0, 0
	for more := true; more; steps++ {
		p, err := r.st.RetentionStreams(t.Context(), 100, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		more, most, all = p.More, max(most, p.Changed), all+p.Changed
	}
	// How many fit into a step's time depends on the machine; a step does what it does for one at least.
	if all != n || most > 25 || most < 2 {
		t.Errorf("%d trims in %d steps, at most %d in one", all, steps, most)
	}
	if left := one[int64](r, `select count(*) from rouse.streams where path like 's/%' and head <> 100`); left != 0 {
		t.Errorf("%d streams were left out", left)
	}
}
