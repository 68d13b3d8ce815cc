package control

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rouse-run/rouse/gateway/soon"
)

// watched makes entities of kyle's, and one of mallory's.
func watched(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":"","inbox_schemas":{"note":{"type":"object","required":["text"]}}}`)
	for _, id := range []string{"a", "b"} {
		r.must(201, kyle, "PUT", "/_electric/entities/chat/"+id, "")
	}
	r.must(201, mallory, "PUT", "/_electric/entities/chat/m", "")
	return r
}

func TestWakeRoutes(t *testing.T) {
	t.Parallel()
	r := watched(t)
	const at = "/_electric/wake"
	body := func(subscriber, source, rest string) string {
		return fmt.Sprintf(`{"subscriberUrl":%q,"sourceUrl":%q%s}`, subscriber, source, rest)
	}
	const run = `,"condition":"runFinished"`
	for _, c := range []string{run, run, `,"condition":{"on":"runFinished"}`, `,"condition":{"on":"change","collections":["x"],"ops":["insert","delete"]},"debounceMs":10,"timeoutMs":1000.5,"includeResponse":false,"manifestKey":"k"`,
		`,"condition":{"on":"change","collections":["x"],"ops":["delete","insert"]},"debounceMs":10,"timeoutMs":1000.5,"includeResponse":false,"manifestKey":"k"`} {
		if a := r.must(204, kyle, "POST", at, body("/chat/a", "/chat/b", c)); len(a.body) != 0 {
			t.Errorf("%s", a.body)
		}
	}
	if n := r.count(`select count(*) from rouse.observers where debounce_ms in (0, 10) and timeout_ms in (0, 1001) and subscriber_url = '/chat/a'`); n != 2 {
		t.Errorf("%d registrations", n)
	}
	r.must(204, kyle, "POST", at, body("/chat/a", "/chat/not yet", run))
	r.must(204, kyle, "POST", at, body("/chat/a", "/_electric/shared-state/not-yet", run))
	r.must(204, "system:dev-local", "POST", at, body("/chat/a", "/chat/m", run))

	for name, b := range map[string]string{
		"no body": "", "no source": `{"subscriberUrl":"/chat/a","condition":"runFinished"}`, "no condition": body("/chat/a", "/chat/b", ""),
		"another condition": body("/chat/a", "/chat/b", `,"condition":"secret-value"`), "a number": body("/chat/a", "/chat/b", `,"condition":7`),
		"no on": body("/chat/a", "/chat/b", `,"condition":{}`), "another op": body("/chat/a", "/chat/b", `,"condition":{"on":"change","ops":["secret-value"]}`),
		"collections of numbers": body("/chat/a", "/chat/b", `,"condition":{"on":"change","collections":[1]}`),
		"a negative debounce":    body("/chat/a", "/chat/b", run+`,"debounceMs":-1`), "a debounce for ever": body("/chat/a", "/chat/b", run+`,"debounceMs":1e300`),
		"a relative source": body("/chat/a", "chat/b", run), "a dotted source": body("/chat/a", "/chat/../b", run), "a relative subscriber": body("chat/a", "/chat/b", run),
		"an unknown member": body("/chat/a", "/chat/b", run+`,"nope":"secret-value"`), "a cron stream of nonsense": body("/chat/a", "/_cron/secret-value", run),
		"a cron stream that never ticks": body("/chat/a", "/_cron/"+base64.RawURLEncoding.EncodeToString([]byte(`{"expression":"0 0 30 2 *","timezone":"UTC"}`)), run),
		"a long condition":               body("/chat/a", "/chat/b", `,"condition":{"on":"change","collections":["`+strings.Repeat("x", 20<<10)+`"]}`),
	} {
		if a := r.refused(400, "INVALID_REQUEST", kyle, "POST", at, b); strings.Contains(string(a.body), "secret-value") {
			t.Errorf("%s: the value is echoed: %s", name, a.body)
		}
	}
	r.refused(404, "NOT_FOUND", kyle, "POST", at, body("/chat/none", "/chat/b", run))
	r.refused(401, "UNAUTHORIZED", mallory, "POST", at, body("/chat/a", "/chat/m", run)) // not its subscriber
	r.refused(401, "UNAUTHORIZED", mallory, "POST", at, body("/chat/m", "/chat/a", run)) // not its source
	r.refused(401, "UNAUTHORIZED", mallory, "POST", at, body("/chat/m", "/chat/a/main", run))
	r.refused(400, "INVALID_PRINCIPAL", "garbled", "POST", at, body("/chat/a", "/chat/b", run))
	// What mallory may read by a grant may wake what is mallory's.
	r.must(201, kyle, "POST", "/_electric/entities/chat/a/grants", `{"subject_kind":"principal","subject_value":"user:mallory","permission":"read"}`)
	r.must(204, mallory, "POST", at, body("/chat/m", "/chat/a", run))
	r.refused(401, "UNAUTHORIZED", mallory, "POST", at, body("/chat/a", "/chat/m", run))

	un := at + "/unregister"
	r.refused(400, "INVALID_WAKE_UNREGISTER", kyle, "POST", un, `{"subscriberUrl":"/chat/a"}`)
	r.refused(400, "INVALID_REQUEST", kyle, "POST", un, `{"sourceUrl":"/chat/b"}`)
	r.refused(400, "INVALID_REQUEST", kyle, "POST", un, `{"subscriberUrl":"/chat/a","sourceUrl":"chat"}`)
	r.refused(404, "NOT_FOUND", kyle, "POST", un, `{"subscriberUrl":"/chat/none","sourceUrl":"/chat/b"}`)
	r.refused(401, "UNAUTHORIZED", mallory, "POST", un, `{"subscriberUrl":"/chat/a","sourceUrl":"/chat/b"}`)
	before := r.count(`select count(*) from rouse.observers where subscriber_url = '/chat/a'`)
	r.must(204, kyle, "POST", un, `{"subscriberUrl":"/chat/a","manifestKey":"k"}`)
	r.must(204, kyle, "POST", un, `{"subscriberUrl":"/chat/a","manifestKey":"k"}`)
	if n := r.count(`select count(*) from rouse.observers where subscriber_url = '/chat/a'`); n != before-1 {
		t.Errorf("%d registrations are left of %d", n, before)
	}
	r.must(204, kyle, "POST", un, `{"subscriberUrl":"/chat/a","sourceUrl":"/chat/b"}`)
	if n := r.count(`select count(*) from rouse.observers where subscriber_url = '/chat/a' and source_url = '/chat/b'`); n != 0 {
		t.Errorf("%d registrations are left", n)
	}
	r.must(200, kyle, "DELETE", "/_electric/entities/chat/a", "")
	r.refused(409, "NOT_RUNNING", kyle, "POST", at, body("/chat/a", "/chat/b", run))
}

// An entity that comes to be while somebody asks to be woken by it is told only
// to those who may read it.
func TestASourceThatComesToBeMeanwhileIsNoWayIn(t *testing.T) {
	t.Parallel()
	r := watched(t)
	tx, err := r.db.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `lock table rouse.streams in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	done := make(chan answer, 1)
	go func() {
		done <- r.as(mallory, "POST", "/_electric/wake", `{"subscriberUrl":"/chat/m","sourceUrl":"/chat/new","condition":{"on":"change"}}`)
	}()
	soon.Until(t, "the registration waits", func() bool {
		return r.count(`select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%observe_register%'`) == 1
	})
	var outcome string
	if err := tx.QueryRow(t.Context(), `select outcome from rouse.entity_spawn(1, '/chat/new', 'chat', 1, '/principal/user%3Akyle', false, true, null, '{}', null, null, null,
		'{"headers":{}}', null)`).Scan(&outcome); err != nil || outcome != "spawned" {
		t.Fatal(outcome, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := <-done; a.status != 204 && a.status != 401 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if n := r.count(`select count(*) from rouse.observers where subscriber_url = '/chat/m' and trusted`); n != 0 {
		t.Error("it is told to somebody who may not read it")
	}
}

func TestASpawnRegistersItsWake(t *testing.T) {
	t.Parallel()
	r := watched(t)
	const at = "/_electric/entities/chat/"
	r.must(201, kyle, "PUT", at+"c", `{"parent":"/chat/a","wake":{"subscriberUrl":"/chat/a","condition":"runFinished","includeResponse":true,"manifestKey":"child:chat:c"},"initialMessage":{"text":"hi"},"initialMessageType":"note"}`)
	if n := r.count(`select count(*) from rouse.observers o join rouse.streams s on s.id = o.stream_id
		where s.path = 'chat/c/main' and o.subscriber_url = '/chat/a' and o.manifest_key = 'child:chat:c' and s.watched & 2 = 2 and o.condition = '"runFinished"'`); n != 1 {
		t.Error("the wake is not registered")
	}
	for name, c := range map[string]struct {
		status     int
		code, body string
	}{
		"another's subscriber": {401, "UNAUTHORIZED", `{"wake":{"subscriberUrl":"/chat/m","condition":"runFinished"}}`},
		"no subscriber":        {404, "NOT_FOUND", `{"wake":{"subscriberUrl":"/chat/none","condition":"runFinished"}}`},
		"no condition":         {400, "INVALID_REQUEST", `{"wake":{"subscriberUrl":"/chat/a"}}`},
		"not its member":       {400, "INVALID_REQUEST", `{"wake":{"subscriberUrl":"/chat/a","condition":"runFinished","sourceUrl":"/chat/b"}}`},
		"a bad condition":      {400, "INVALID_REQUEST", `{"wake":{"subscriberUrl":"/chat/a","condition":{"on":"never"}}}`},
	} {
		r.refused(c.status, c.code, kyle, "PUT", at+"d", c.body)
		if n := r.count(`select count(*) from rouse.entities where url = '/chat/d'`); n != 0 {
			t.Fatalf("%s: spawned all the same", name)
		}
	}
	// A spawn that is refused registers nothing.
	n := r.count(`select count(*) from rouse.observers`)
	r.refused(409, "DUPLICATE_URL", kyle, "PUT", at+"c", `{"wake":{"subscriberUrl":"/chat/b","condition":"runFinished"}}`)
	if now := r.count(`select count(*) from rouse.observers`); now != n {
		t.Error("a refused spawn has registered a wake")
	}
}

func TestScheduleRoutes(t *testing.T) {
	t.Parallel()
	r := watched(t)
	const at = "/_electric/entities/chat/a/schedules/"
	last := func() string {
		t.Helper()
		var s string
		if err := r.db.Conn(t).QueryRow(t.Context(), `select convert_from(m.payload, 'UTF8') from rouse.messages m join rouse.streams s on s.id = m.stream_id
			where s.path = 'chat/a/main' order by m.position desc limit 1`).Scan(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	a := r.must(200, kyle, "PUT", at+"morning", `{"scheduleType":"cron","expression":"0 9 * * MON-FRI","timezone":"Europe/Berlin","payload":{"do":"it"},"debounceMs":5}`)
	if len(a.str("txid")) != 36 {
		t.Errorf("%s", a.body)
	}
	for _, part := range []string{`{"headers":{"operation":"upsert",`, `"txid":"` + a.str("txid") + `"`, `"type":"manifest","key":"schedule:morning"`, `"kind":"schedule","id":"morning","scheduleType":"cron","expression":"0 9 * * MON-FRI","timezone":"Europe/Berlin","payload":{"do":"it"},"wake":{"on":"change","debounceMs":5}`} {
		if !strings.Contains(last(), part) {
			t.Errorf("%s is not in %s", part, last())
		}
	}
	r.must(200, kyle, "PUT", at+"x%2Fy", `{"scheduleType":"future_send","payload":null,"fireAt":"2030-01-01T00:00:00+01:00","targetUrl":"/chat/b"}`)
	for _, part := range []string{`"key":"schedule:x/y"`, `"scheduleType":"future_send","fireAt":"2029-12-31T23:00:00.000Z","targetUrl":"/chat/b","senderUrl":"/chat/a","payload":null,"producerId":"future-send-`, `"status":"pending"`} {
		if !strings.Contains(last(), part) {
			t.Errorf("%s is not in %s", part, last())
		}
	}
	r.must(200, kyle, "PUT", at+"self", `{"scheduleType":"future_send","payload":{"text":"x"},"messageType":"note","fireAt":"2030-01-01T00:00:00Z","from":"/principal/user%3Akyle"}`)
	if n := r.count(`select count(*) from rouse.observers where kind = 'manifest' and subscriber_url = '/chat/a'`); n != 1 {
		t.Error("nobody reads the manifest")
	}
	if n := r.count(`select count(*) from rouse.streams where path = 'chat/a/main' and pending`); n != 0 {
		t.Error("bookkeeping wakes the entity")
	}
	for name, body := range map[string]string{
		"none": "", "no type": `{"payload":1}`, "another type": `{"scheduleType":"secret","payload":1}`, "no payload": `{"scheduleType":"cron","expression":"* * * * *"}`,
		"no expression": `{"scheduleType":"cron","payload":1}`, "a bad one": `{"scheduleType":"cron","payload":1,"expression":"secret"}`,
		"a bad zone": `{"scheduleType":"cron","payload":1,"expression":"* * * * *","timezone":"secret"}`, "no time": `{"scheduleType":"future_send","payload":1}`,
		"a bad time": `{"scheduleType":"future_send","payload":1,"fireAt":"secret"}`, "a far time": `{"scheduleType":"future_send","payload":1,"fireAt":"9999-01-01T00:00:00Z"}`,
		"a bad target":      `{"scheduleType":"future_send","payload":1,"fireAt":"2030-01-01T00:00:00Z","targetUrl":"secret"}`,
		"somebody else":     `{"scheduleType":"future_send","payload":1,"fireAt":"2030-01-01T00:00:00Z","from":"/principal/user%3Asecret"}`,
		"a bad debounce":    `{"scheduleType":"cron","payload":1,"expression":"* * * * *","debounceMs":-1}`,
		"an unknown member": `{"scheduleType":"cron","payload":1,"expression":"* * * * *","nope":"secret"}`,
	} {
		if a := r.refused(400, "INVALID_REQUEST", kyle, "PUT", at+"bad", body); strings.Contains(string(a.body), "secret") {
			t.Errorf("%s: the value is echoed: %s", name, a.body)
		}
	}
	r.refused(400, "INVALID_REQUEST", kyle, "PUT", at+strings.Repeat("k", 300), `{"scheduleType":"cron","payload":1,"expression":"* * * * *"}`)
	good := `{"scheduleType":"cron","payload":1,"expression":"* * * * *"}`
	future := func(rest string) string {
		return `{"scheduleType":"future_send","fireAt":"2030-01-01T00:00:00Z"` + rest + `}`
	}
	r.refused(422, "SCHEMA_VALIDATION_FAILED", kyle, "PUT", at+"bad", future(`,"payload":{},"messageType":"note"`))
	r.refused(422, "UNKNOWN_MESSAGE_TYPE", kyle, "PUT", at+"bad", future(`,"payload":{},"messageType":"other"`))
	r.refused(404, "NOT_FOUND", kyle, "PUT", at+"bad", future(`,"payload":{},"targetUrl":"/chat/none"`))
	r.refused(401, "UNAUTHORIZED", kyle, "PUT", at+"bad", future(`,"payload":{},"targetUrl":"/chat/m"`))
	r.refused(404, "NOT_FOUND", kyle, "PUT", "/_electric/entities/chat/none/schedules/x", good)
	r.refused(404, "UNKNOWN_ENTITY_TYPE", kyle, "PUT", "/_electric/entities/none/none/schedules/x", good)
	r.refused(401, "UNAUTHORIZED", mallory, "PUT", at+"x", good)
	r.refused(401, "UNAUTHORIZED", mallory, "DELETE", at+"morning", "")
	r.must(201, kyle, "POST", "/_electric/entities/chat/a/grants", `{"subject_kind":"principal","subject_value":"user:mallory","permission":"write"}`)
	r.refused(401, "UNAUTHORIZED", mallory, "PUT", at+"x", good)
	r.must(201, kyle, "POST", "/_electric/entities/chat/a/grants", `{"subject_kind":"principal","subject_value":"user:mallory","permission":"schedule"}`)
	r.must(200, mallory, "PUT", at+"x", good)
	if strings.Contains(last(), `"bad"`) {
		t.Error("a refused schedule is in the manifest")
	}
	r.must(200, kyle, "DELETE", at+"morning", "")
	if !strings.Contains(last(), `"operation":"delete"`) || !strings.Contains(last(), `"schedule:morning"`) || strings.Contains(last(), `"value"`) {
		t.Error(last())
	}
	r.must(200, kyle, "DELETE", at+"never", "")
	r.refused(404, "NOT_FOUND", kyle, "DELETE", "/_electric/entities/chat/none/schedules/x", "")
	r.must(200, kyle, "DELETE", "/_electric/entities/chat/a", "")
	r.refused(409, "NOT_RUNNING", kyle, "PUT", at+"x", good)
	r.refused(409, "NOT_RUNNING", kyle, "DELETE", at+"x", "")
}

func TestDelayedSendRoute(t *testing.T) {
	t.Parallel()
	r := watched(t)
	const at = "/_electric/entities/chat/a/send"
	for _, key := range []string{"", "k", "k"} {
		var h []string
		if key != "" {
			h = []string{"Idempotency-Key", key}
		}
		if a := r.must(204, kyle, "POST", at, `{"payload":{"text":"later"},"type":"note","afterMs":60000.5}`, h...); len(a.body) != 0 {
			t.Errorf("%s", a.body)
		}
	}
	if n := r.count(`select count(*) from rouse.scheduled_tasks where due_at > clock_timestamp() + interval '50 s' and entity_url = '/chat/a'`); n != 2 {
		t.Errorf("%d messages are scheduled", n)
	}
	if a := r.must(200, kyle, "POST", at, `{"payload":{"text":"now"},"type":"note","afterMs":0}`); a.str("txid") == "" {
		t.Errorf("%s", a.body)
	}
	// What would be refused now is refused now.
	r.refused(422, "SCHEMA_VALIDATION_FAILED", kyle, "POST", at, `{"payload":{},"type":"note","afterMs":1}`)
	r.refused(401, "UNAUTHORIZED", mallory, "POST", at, `{"payload":1,"afterMs":1}`)
	r.refused(404, "NOT_FOUND", kyle, "POST", "/_electric/entities/chat/none/send", `{"payload":1,"afterMs":1}`)
	r.must(200, kyle, "DELETE", "/_electric/entities/chat/b", "")
	r.refused(409, "NOT_RUNNING", kyle, "POST", "/_electric/entities/chat/b/send", `{"payload":1,"afterMs":1}`)
	if n := r.count(`select count(*) from rouse.scheduled_tasks`); n != 2 {
		t.Errorf("%d messages are scheduled", n)
	}
}

func TestSourceRoutes(t *testing.T) {
	t.Parallel()
	r := watched(t)
	a := r.must(200, mallory, "POST", "/_electric/observations/cron/ensure-stream", `{"expression":"*/5 * * * *"}`)
	if a.str("streamUrl") != "/_cron/eyJleHByZXNzaW9uIjoiKi81ICogKiAqICoiLCJ0aW1lem9uZSI6IlVUQyJ9" {
		t.Errorf("%s", a.body)
	}
	r.must(200, kyle, "POST", "/_electric/observations/cron/ensure-stream", `{"expression":"*/5 * * * *","timezone":"UTC"}`)
	if n := r.count(`select count(*) from rouse.streams where kind = 'cron'`); n != 1 {
		t.Errorf("%d cron streams", n)
	}
	for _, body := range []string{"", `{"expression":"x"}`, `{"expression":"* * * * *","timezone":"x"}`, `{"expression":7}`} {
		r.refused(400, "INVALID_REQUEST", kyle, "POST", "/_electric/observations/cron/ensure-stream", body)
	}
	one := r.must(200, kyle, "POST", "/_electric/observations/entities/ensure-stream", `{"tags":{"b":"2","a":"1"}}`)
	two := r.must(200, kyle, "POST", "/_electric/observations/entities/ensure-stream", `{"tags":{"a":"1","b":"2"}}`)
	other := r.must(200, mallory, "POST", "/_electric/observations/entities/ensure-stream", `{"tags":{"a":"1","b":"2"}}`)
	if one.str("sourceRef") == "" || one.str("sourceRef") != two.str("sourceRef") || one.str("sourceRef") == other.str("sourceRef") ||
		one.str("streamUrl") != "/_entities/"+one.str("sourceRef") || one.str("sourceRef")[:16] != other.str("sourceRef")[:16] {
		t.Errorf("%s %s %s", one.body, two.body, other.body)
	}
	r.must(200, kyle, "POST", "/_electric/observations/entities/ensure-stream", ``)
	for _, body := range []string{`{"tags":{"a":1}}`, `{"tags":[]}`, `{"tags":{"":"x"}}`} {
		r.refused(400, "INVALID_REQUEST", kyle, "POST", "/_electric/observations/entities/ensure-stream", body)
	}
	if a := r.must(200, kyle, "GET", "/_electric/webhook-sources", ""); string(a.body) != "{\"webhookSources\":[]}\n" {
		t.Errorf("%s", a.body)
	}
	if a := r.must(200, kyle, "GET", "/_electric/event-sources", ""); string(a.body) != "{\"eventSources\":[]}\n" {
		t.Errorf("%s", a.body)
	}
	for _, name := range []string{"webhook-source-subscriptions", "event-source-subscriptions"} {
		r.refused(404, "NOT_FOUND", kyle, "PUT", "/_electric/entities/chat/a/"+name+"/x", `{"webhookKey":"github"}`)
		r.refused(404, "NOT_FOUND", kyle, "DELETE", "/_electric/entities/chat/a/"+name+"/x", "")
		r.refused(401, "UNAUTHORIZED", mallory, "PUT", "/_electric/entities/chat/a/"+name+"/x", `{"webhookKey":"github"}`)
		r.refused(404, "UNKNOWN_ENTITY_TYPE", kyle, "PUT", "/_electric/entities/none/x/"+name+"/x", `{}`)
	}
	const sync = "/_electric/pg-sync/register"
	r.refused(503, "NOT_CONFIGURED", kyle, "POST", sync, `{"options":{"table":"todos","columns":["id"],"where":"a = $1","params":["x"],"replica":"full"},"metadata":{"x":1}}`)
	r.refused(503, "NOT_CONFIGURED", kyle, "POST", sync, `{"options":{"table":"todos","params":{"1":"x"},"url":"https://x.example"}}`)
	for _, body := range []string{"", `{"options":{}}`, `{"options":{"table":7}}`, `{"options":{"table":"t","replica":"some"}}`, `{"options":{"table":"t","params":7}}`, `{"options":{"table":"t","url":"file:///x"}}`} {
		r.refused(400, "INVALID_REQUEST", kyle, "POST", sync, body)
	}
	if a := r.must(200, kyle, "DELETE", "/_electric/entities/chat/a/pg-sync-observations/abc", ""); a.str("txid") == "" {
		t.Errorf("%s", a.body)
	}
	r.refused(401, "UNAUTHORIZED", mallory, "DELETE", "/_electric/entities/chat/a/pg-sync-observations/abc", "")
}

// A membership stream shows what there is from its first answer on, however many
// pages that takes and whoever else asks: no worker runs here.
func TestAMembershipStreamIsFilledBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	r := watched(t)
	const many = 1201
	r.db.Exec(t, `insert into rouse.entities (service_id, url, type, created_by, consumer_id, tags)
		select 1, '/chat/m' || i, 'chat', '/principal/user%3A' || case when i % 2 = 0 then 'kyle' else 'mallory' end, i + 1000000, '{"team":"red"}' from generate_series(1, $1::int) i`, many)
	const ensure = "/_electric/observations/entities/ensure-stream"
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			path := r.must(200, kyle, "POST", ensure, `{"tags":{"team":"red"}}`).str("streamUrl")
			n := r.count(`select count(*) from rouse.messages m join rouse.streams s on s.id = m.stream_id where s.path = $1`, strings.TrimPrefix(path, "/"))
			if n != many/2 {
				t.Errorf("%d of %d members after the answer", n, many/2)
			}
		})
	}
	g.Wait()
}
