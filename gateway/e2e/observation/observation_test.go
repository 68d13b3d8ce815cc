package observation_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// A parent spawns a child with a wake, sleeps, and is woken with what the child
// said, through a runner's claim like every other message.
func TestAParentSleepsUntilItsChildIsDone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.team("p")
	token, release := r.hold("p")
	r.spawn("c", `,"parent":"/chat/p","initialMessage":"work","wake":{"subscriberUrl":"/chat/p","condition":"runFinished","manifestKey":"child:chat:c"}`)
	r.write("p", token, row("insert", "manifest", "child:chat:c", `{"kind":"child","entity_type":"chat","id":"c","entity_url":"/chat/c","wake":{"on":"runFinished","includeResponse":true}}`))
	release()
	child, done := r.claim("c")
	r.write("c", child, row("insert", "run", "r1", `{"status":"started"}`))
	r.write("c", child, row("insert", "text_delta", "t:0", `{"run_id":"r1","delta":"all "}`), row("insert", "text_delta", "t:1", `{"run_id":"r1","delta":"well"}`))
	began := time.Now()
	r.write("c", child, row("update", "run", "r1", `{"status":"completed","finish_reason":"stop"}`))
	_, woken := r.claim("p")
	t.Logf("from the end of the run to the parent's claim: %v", time.Since(began))
	list := r.wakes("p")
	if len(list) != 1 {
		t.Fatalf("%d wakes", len(list))
	}
	f, _ := list[0].Value["finished_child"].(map[string]any)
	if f["url"] != "/chat/c" || f["run_status"] != "completed" || f["response"] != "all well" || !strings.HasPrefix(list[0].Key, "wake-") || list[0].Headers["offset"] == nil {
		t.Errorf("%+v", list[0])
	}
	done()
	woken()
	// Bookkeeping of the one wakes not the other: nothing is left.
	for _, id := range []string{"p", "c"} {
		if a := r.call(200, r.kyle, "GET", "/_electric/entities/chat/"+id, ""); !strings.Contains(string(a.Raw), `"status":"idle"`) {
			t.Errorf("%s", a.Raw)
		}
	}
}

// With two gateways, whichever reads the log, each event wakes once. The writer
// writes by one, the rows are read by the other.
func TestTwoGatewaysWakeOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	r, other := newRigOn(t, db), newRigOn(t, db)
	r.team("src", "a", "b")
	for _, s := range []string{"a", "b"} {
		other.call(204, other.kyle, "POST", "/_electric/wake", `{"subscriberUrl":"/chat/`+s+`","sourceUrl":"/chat/src","condition":{"on":"change","collections":["todo"]}}`)
	}
	token, _ := r.hold("src")
	const n = 40
	var wg sync.WaitGroup
	for _, via := range []*rig{r, other} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range n / 2 {
				via.write("src", token, row("insert", "todo", fmt.Sprint(i), `{}`))
			}
		}()
	}
	wg.Wait()
	for _, s := range []string{"a", "b"} {
		other.eventually("each change is told", func() bool { return len(other.wakes(s)) >= n })
		seen := map[string]bool{}
		for _, m := range other.wakes(s) {
			seen[m.Key] = true
		}
		if got := len(other.wakes(s)); got != n || len(seen) != n {
			t.Errorf("%s is told %d times, %d different, want %d", s, got, len(seen), n)
		}
	}
}

// The observation of an entity that does not exist yet begins with its first
// row.
func TestObservingWhatIsToCome(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.team("p")
	r.call(204, r.kyle, "POST", "/_electric/wake", `{"subscriberUrl":"/chat/p","sourceUrl":"/chat/later","condition":{"on":"change","collections":["todo"]}}`)
	r.spawn("later", "")
	token, _ := r.hold("later")
	r.write("later", token, row("insert", "todo", "1", `{}`))
	r.eventually("the wake", func() bool { return len(r.wakes("p")) == 1 })
}

func TestSignalsWakeObservers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.team("p", "c")
	r.call(204, r.kyle, "POST", "/_electric/wake", `{"subscriberUrl":"/chat/p","sourceUrl":"/chat/c","condition":{"on":"change","collections":["signal"]}}`)
	// Neither a send nor a tag is a change of what the entity does.
	r.call(200, r.kyle, "POST", "/_electric/entities/chat/c/send", `{"payload":1}`)
	r.call(200, r.kyle, "POST", "/_electric/entities/chat/c/tags/k", `{"value":"v"}`)
	r.call(200, r.kyle, "POST", "/_electric/entities/chat/c/signal", `{"signal":"SIGHUP"}`)
	r.eventually("the wake", func() bool { return len(r.wakes("p")) > 0 })
	if list := r.wakes("p"); len(list) != 1 || list[0].Value["changes"].([]any)[0].(map[string]any)["collection"] != "signal" {
		t.Errorf("%+v", list)
	}
}

func TestSchedulesRunAndEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.team("a", "b")
	const at = "/_electric/entities/chat/a/schedules/"
	r.call(200, r.kyle, "PUT", at+"often", `{"scheduleType":"cron","expression":"0 9 * * *","timezone":"America/New_York","payload":{"x":1}}`)
	planned := func() bool {
		var n int
		if err := r.pool.QueryRow(t.Context(), `select count(*) from rouse.scheduled_tasks where kind = 'cron_tick' and planned and due_at > clock_timestamp()`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
	r.eventually("the first tick is planned", planned)
	r.due()
	r.eventually("the tick wakes", func() bool { return len(r.wakes("a")) == 1 })
	stream, _ := r.wakes("a")[0].Value["source"].(string)
	if !strings.HasPrefix(stream, "/_cron/") {
		t.Fatalf("%+v", r.wakes("a")[0])
	}
	if ticks := r.rows(stream, "cron_tick"); len(ticks) != 1 || ticks[0].Key != "tick-1" || ticks[0].Value["timezone"] != "America/New_York" {
		t.Errorf("%+v", ticks)
	}
	// A cron stream is read by all and written by nobody.
	r.call(200, r.mallory, "GET", stream+"?offset=-1", "")
	for _, m := range []string{"PUT", "POST", "DELETE"} {
		if a := r.call(403, r.kyle, m, stream, `[]`, "content-type", "application/json"); a.Code != "PATH_RESERVED" {
			t.Errorf("%s: %s", m, a.Raw)
		}
	}
	// Once it is deleted, it ticks no more: the chain ends.
	r.call(200, r.kyle, "DELETE", at+"often", "")
	r.due()
	r.eventually("the chain ends", func() bool {
		var n int
		if err := r.pool.QueryRow(t.Context(), `select count(*) from rouse.scheduled_tasks where kind = 'cron_tick' and due_at is not null`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
	if n := len(r.wakes("a")); n != 1 {
		t.Errorf("%d wakes after the deletion", n)
	}

	r.call(200, r.kyle, "PUT", at+"once", `{"scheduleType":"future_send","payload":{"hello":"b"},"fireAt":"2020-01-01T00:00:00Z","targetUrl":"/chat/b","messageType":"greeting"}`)
	r.eventually("the message", func() bool { return len(r.rows("/chat/b/main", "inbox")) == 1 })
	if m := r.rows("/chat/b/main", "inbox")[0]; m.Value["from"] != "/chat/a" || m.Value["message_type"] != "greeting" || m.Value["payload"].(map[string]any)["hello"] != "b" {
		t.Errorf("%+v", m)
	}
	r.eventually("the manifest says so", func() bool {
		list := r.rows("/chat/a/main", "manifest")
		return list[len(list)-1].Value["status"] == "sent"
	})

	r.call(204, r.kyle, "POST", "/_electric/entities/chat/b/send", `{"payload":"later","afterMs":60000}`)
	r.due()
	r.eventually("the delayed message", func() bool { return len(r.rows("/chat/b/main", "inbox")) == 2 })
	if _, release := r.claim("b"); release != nil {
		release()
	}
}

// No gateway is running between an append, a tick, a delayed send, and what they
// cause: the next one does it, once.
func TestWhatIsDueWhileNobodyRunsIsDoneOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var stream string
	t.Run("before", func(t *testing.T) {
		r := newRigOn(t, db)
		r.team("a", "b")
		r.call(204, r.kyle, "POST", "/_electric/wake", `{"subscriberUrl":"/chat/a","sourceUrl":"/chat/b","condition":{"on":"change","collections":["todo"]},"debounceMs":2147483647}`)
		r.call(204, r.kyle, "POST", "/_electric/entities/chat/b/send", `{"payload":"later","afterMs":3600000}`)
		r.call(200, r.kyle, "PUT", "/_electric/entities/chat/a/schedules/s", `{"scheduleType":"cron","expression":"0 0 1 1 *","payload":1}`)
		r.eventually("the tick is planned", func() bool {
			return r.pool.QueryRow(t.Context(), `select '/' || s.path from rouse.scheduled_tasks t join rouse.streams s on s.id = t.stream_id where t.planned`).Scan(&stream) == nil
		})
		token, _ := r.hold("b")
		r.write("b", token, row("insert", "todo", "1", `{}`))
		r.eventually("it is collected", func() bool {
			var n int
			err := r.pool.QueryRow(t.Context(), `select count(*) from rouse.observers where state is not null and not behind`).Scan(&n)
			return err == nil && n == 1
		})
	})
	// What a gateway appended right before it died: the append's own transaction
	// has marked the cursor, nobody has read it.
	db.Exec(t, `select rouse._stream_push(s.id, '{"headers":{"operation":"insert"},"type":"todo","key":"2","value":{}}', false)
		from (select s.id from rouse.streams s where s.path = 'chat/b/main' for no key update) s`)
	db.Exec(t, `update rouse.scheduled_tasks set due_at = clock_timestamp()`)
	db.Exec(t, `update rouse.observers set due_at = clock_timestamp() where due_at is not null`)
	r, _ := newRigOn(t, db), newRigOn(t, db)
	r.eventually("the wakes", func() bool { return len(r.wakes("a")) == 2 })
	r.eventually("the message", func() bool { return len(r.rows("/chat/b/main", "inbox")) == 2 })
	changes := 0
	for _, m := range r.wakes("a") {
		if m.Value["source"] == "/chat/b" {
			changes = len(m.Value["changes"].([]any))
		}
	}
	if ticks := r.rows(stream, "cron_tick"); changes != 2 || len(ticks) != 1 {
		t.Errorf("%d changes, %d ticks", changes, len(ticks))
	}
}

// The first read of a shared state comes right behind its making.
func TestASharedStateIsThereAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.team("a", "b")
	r.call(201, r.mallory, "PUT", "/_electric/entities/chat/m", "")
	const at = "/_electric/shared-state/board-1"
	js := []string{"content-type", "application/json"}
	owner := func(url string) []string { return append([]string{"electric-owner-entity", url}, js...) }
	denied := func(_ *rig, method, path, body string, h ...string) {
		t.Helper()
		if a := r.call(401, r.mallory, method, path, body, h...); method != "HEAD" && a.Code != "UNAUTHORIZED" {
			t.Errorf("%s %s: %s", method, path, a.Raw)
		}
	}
	// Nobody's yet: nobody makes it without an entity of theirs, and nothing remains of the attempts.
	for _, h := range [][]string{js, owner("/chat/m"), owner("/chat/none")} {
		if a := r.call(401, r.kyle, "PUT", at, "", h...); a.Code != "UNAUTHORIZED" {
			t.Errorf("%s", a.Raw)
		}
	}
	r.call(401, r.kyle, "GET", at+"?offset=-1", "")
	for name, h := range map[string][]string{
		"not JSON": {"electric-owner-entity", "/chat/a", "content-type", "text/plain"}, "a fork": append(owner("/chat/a"), "stream-forked-from", "/chat/a/main"),
		"a relative owner": owner("chat/a"), "two lifetimes": append(owner("/chat/a"), "stream-ttl", "5", "stream-expires-at", "2030-01-01T00:00:00Z"),
	} {
		if a := r.call(400, r.kyle, "PUT", at, "", h...); a.Code != "INVALID_REQUEST" {
			t.Errorf("%s: %s", name, a.Raw)
		}
	}
	r.call(401, r.kyle, "GET", at+"?offset=-1", "")
	r.call(201, r.kyle, "PUT", at, "", owner("/chat/a")...)
	r.call(200, r.kyle, "GET", at+"?offset=-1", "")
	r.call(200, r.kyle, "PUT", at, "", js...)
	r.call(200, r.kyle, "HEAD", at, "")
	for _, mount := range []string{"", "/v1/stream"} {
		denied(r, "GET", mount+at+"?offset=-1", "")
		denied(r, "HEAD", mount+at, "")
		denied(r, "POST", mount+at, `[]`, js...)
		denied(r, "PUT", mount+at, "", js...)
		denied(r, "PUT", mount+at, "", owner("/chat/m")...) // the header overrides no link
		denied(r, "DELETE", mount+at, "")
	}
	r.call(401, r.kyle, "DELETE", at, "")
	r.call(204, r.kyle, "OPTIONS", at, "")
	// It is not read by way of a fork either.
	if a := r.call(403, r.mallory, "PUT", "/thief", "", "stream-forked-from", at); a.Code != "PATH_RESERVED" {
		t.Errorf("%s", a.Raw)
	}
	// A grant of read reads, one of write writes.
	grant := func(p string) {
		t.Helper()
		r.call(201, r.kyle, "POST", "/_electric/entities/chat/a/grants", `{"subject_kind":"principal","subject_value":"user:mallory","permission":"`+p+`"}`)
	}
	grant("read")
	r.call(200, r.mallory, "GET", at+"?offset=-1", "")
	denied(r, "POST", at, `[{"type":"todo","key":"1","headers":{"operation":"insert"},"value":{}}]`, js...)
	grant("write")
	r.call(204, r.mallory, "POST", at, `[{"type":"todo","key":"1","headers":{"operation":"insert"},"value":{}}]`, js...)

	// What is written wakes who observes it, once.
	r.call(204, r.kyle, "POST", "/_electric/wake", `{"subscriberUrl":"/chat/b","sourceUrl":"`+at+`","condition":{"on":"change"}}`)
	r.call(204, r.kyle, "POST", at, row("update", "todo", "1", `{"value":2}`), js...)
	r.eventually("the wake", func() bool { return len(r.wakes("b")) == 1 })
	if m := r.wakes("b")[0]; m.Value["source"] != at || m.Value["changes"].([]any)[0].(map[string]any)["value"] != 2.0 {
		t.Errorf("%+v", m)
	}
	// A holder's write token is enough where no principal is at hand; another entity's is not.
	nobody := *r.mallory
	nobody.Principal = "user:eve"
	token, _ := r.hold("a")
	r.call(204, &nobody, "POST", at, row("insert", "todo", "2", `{}`), append(js, "electric-claim-token", token)...)
	token, _ = r.hold("b")
	r.call(401, &nobody, "POST", at, row("insert", "todo", "3", `{}`), append(js, "electric-claim-token", token)...)
	// The manifest of an entity links it for good.
	r.write("b", token, row("insert", "manifest", "shared-state:board-1", `{"kind":"shared-state","id":"board-1"}`))
	r.eventually("the link", func() bool {
		return nobody.Do(t.Context(), "POST", at, row("insert", "todo", "4", `{}`), map[string]string{"content-type": "application/json", "electric-claim-token": token}).Status == 204
	})
	r.call(404, r.kyle, "GET", "/_electric/shared-state", "")
}

func TestMembershipStreamsAreTheirReadersOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.team("p")
	r.spawn("1", `,"tags":{"team":"red"}`)
	r.call(201, r.mallory, "PUT", "/_electric/entities/chat/m", `{"tags":{"team":"red"}}`)
	a := r.call(200, r.kyle, "POST", "/_electric/observations/entities/ensure-stream", `{"tags":{"team":"red"}}`)
	stream := strings.Split(strings.Split(string(a.Raw), `"streamUrl":"`)[1], `"`)[0]
	r.eventually("the member", func() bool { return len(r.rows(stream, "members")) == 1 })
	if m := r.rows(stream, "members")[0]; m.Key != "/chat/1" || m.Value["url"] != "/chat/1" || string(m.Headers["operation"]) != `"insert"` {
		t.Errorf("%+v", m)
	}
	r.call(401, r.mallory, "GET", stream+"?offset=-1", "")
	for _, m := range []string{"PUT", "POST", "DELETE"} {
		r.call(403, r.kyle, m, stream, `[]`, "content-type", "application/json")
	}
	r.call(204, r.kyle, "POST", "/_electric/wake", `{"subscriberUrl":"/chat/p","sourceUrl":"`+stream+`","condition":{"on":"change","collections":["members"]}}`)
	r.call(401, r.mallory, "POST", "/_electric/wake", `{"subscriberUrl":"/chat/m","sourceUrl":"`+stream+`","condition":{"on":"change"}}`)
	r.spawn("2", `,"tags":{"team":"red"}`)
	r.eventually("the wake", func() bool { return len(r.wakes("p")) == 1 })
	if m := r.wakes("p")[0]; m.Value["changes"].([]any)[0].(map[string]any)["key"] != "/chat/2" {
		t.Errorf("%+v", m)
	}
	// A tail follows it live.
	_, next, _ := r.kyle.All(t.Context(), stream)
	r.call(200, r.kyle, "DELETE", "/_electric/entities/chat/2/tags/team", "")
	if a := r.call(200, r.kyle, "GET", stream+"?live=long-poll&offset="+url.QueryEscape(next), ""); !strings.Contains(string(a.Raw), `"operation":"delete"`) {
		t.Errorf("%s", a.Raw)
	}
}
