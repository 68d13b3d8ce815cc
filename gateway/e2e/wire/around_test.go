package wire_test

import (
	"encoding/json"
	"fmt"
	"mime"
	"strings"
	"sync"
	"testing"
)

// What the routes around an entity refuse, and as what; what is refused changes
// nothing.
func TestWhatRoutesAroundAnEntityRefuse(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, r.kyle, "POST", "/_electric/entity-types", `{"name":"around","description":"x","externally_writable_collections":{"notes":{"type":"state:notes"}}}`)
	for _, id := range []string{"e", "dead"} {
		r.must(201, r.kyle, "PUT", "/_electric/entities/around/"+id, "")
	}
	r.must(200, r.kyle, "DELETE", "/_electric/entities/around/dead", "")
	f := things{Type: "around", Runner: "none"}
	const e, dead, none, no = "/_electric/entities/around/e", "/_electric/entities/around/dead", "/_electric/entities/around/none", "/_electric/entities/none/none"
	const grant = `{"subject_kind":"principal","subject_value":"user:x","permission":"read"}`
	const cron = `{"scheduleType":"cron","expression":"* * * * *","payload":1}`
	for _, q := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		// Grants
		{"POST", e + "/grants", ``, 400, "INVALID_REQUEST"},
		{"POST", e + "/grants", `{"subject_kind":"group","subject_value":"x","permission":"read"}`, 400, "INVALID_REQUEST"},
		{"POST", e + "/grants", `{"subject_kind":"principal","subject_value":"x","permission":"read"}`, 400, "INVALID_REQUEST"},
		{"POST", e + "/grants", `{"subject_kind":"principal","subject_value":"user:x","permission":"dance"}`, 400, "INVALID_REQUEST"},
		{"POST", e + "/grants", `{"subject_kind":"principal","subject_value":"user:x","permission":"read","expires_at":"soon"}`, 400, "INVALID_REQUEST"},
		{"POST", e + "/grants", `{"subject_kind":"principal","subject_value":"user:x","permission":"read","surprise":1}`, 400, "INVALID_REQUEST"},
		{"POST", none + "/grants", grant, 404, "NOT_FOUND"},
		{"POST", no + "/grants", grant, 404, "UNKNOWN_ENTITY_TYPE"},
		{"GET", none + "/grants", "", 404, "NOT_FOUND"},
		{"DELETE", e + "/grants/999", "", 404, "NOT_FOUND"},
		{"DELETE", e + "/grants/x", "", 400, "INVALID_REQUEST"},
		{"POST", "/_electric/entity-types/around/grants", grant, 400, "INVALID_REQUEST"}, // types are spawned and managed
		{"GET", "/_electric/entity-types/none/grants", "", 404, "NOT_FOUND"},
		{"DELETE", "/_electric/entity-types/around/grants/999", "", 404, "NOT_FOUND"},
		// Forks
		{"POST", none + "/fork", ``, 404, "NOT_FOUND"},
		{"POST", no + "/fork", ``, 404, "UNKNOWN_ENTITY_TYPE"},
		{"POST", e + "/fork", `{"anchor":"latest_completed_run"}`, 400, "INVALID_REQUEST"}, // there is none
		{"POST", e + "/fork", `{"anchor":"yesterday"}`, 400, "INVALID_REQUEST"},
		{"POST", e + "/fork", `{"anchor":"latest_completed_run","fork_pointer":{"offset":null,"sub_offset":1}}`, 400, "INVALID_REQUEST"},
		{"POST", e + "/fork", `{"fork_pointer":{"offset":"0000000000000000_0000000099999999","sub_offset":0}}`, 400, "INVALID_REQUEST"},
		{"POST", e + "/fork", `{"surprise":1}`, 400, "INVALID_REQUEST"},
		// Collections
		{"POST", e + "/collections/none", `{"operation":"insert","value":{}}`, 403, "FORBIDDEN"},
		{"POST", e + "/collections/notes", ``, 400, "INVALID_REQUEST"},
		{"POST", e + "/collections/notes", `{"operation":"dance","value":{}}`, 400, "INVALID_REQUEST"},
		{"POST", none + "/collections/notes", `{"operation":"insert","value":{}}`, 404, "NOT_FOUND"},
		{"POST", dead + "/collections/notes", `{"operation":"insert","value":{}}`, 409, "NOT_RUNNING"},
		// Queued messages
		{"PATCH", none + "/inbox/k", `{"position":"a"}`, 404, "NOT_FOUND"},
		{"PATCH", e + "/inbox/k", `{"surprise":1}`, 400, "INVALID_REQUEST"},
		{"PATCH", e + "/inbox/k", `{"mode":"loud"}`, 400, "INVALID_REQUEST"},
		// Schedules
		{"PUT", e + "/schedules/s", ``, 400, "INVALID_REQUEST"},
		{"PUT", e + "/schedules/s", `{"scheduleType":"lunar","payload":1}`, 400, "INVALID_REQUEST"},
		{"PUT", e + "/schedules/s", `{"scheduleType":"cron","expression":"every day","payload":1}`, 400, "INVALID_REQUEST"},
		{"PUT", e + "/schedules/s", `{"scheduleType":"cron","expression":"* * * * *","timezone":"Mars/Olympus","payload":1}`, 400, "INVALID_REQUEST"},
		{"PUT", e + "/schedules/s", `{"scheduleType":"future_send","payload":1}`, 400, "INVALID_REQUEST"},
		{"PUT", e + "/schedules/s", `{"scheduleType":"future_send","payload":1,"fireAt":"soon"}`, 400, "INVALID_REQUEST"},
		{"PUT", e + "/schedules/s", `{"scheduleType":"future_send","payload":1,"fireAt":"2099-01-01T00:00:00Z","from":"/principal/user%3Amallory"}`, 400, "INVALID_REQUEST"},
		{"PUT", none + "/schedules/s", cron, 404, "NOT_FOUND"},
		{"PUT", dead + "/schedules/s", cron, 409, "NOT_RUNNING"},
		{"POST", e + "/send", `{"payload":1,"afterMs":-1}`, 400, "INVALID_REQUEST"},
		{"POST", dead + "/send", `{"payload":1,"afterMs":1000}`, 409, "NOT_RUNNING"},
		// Observation
		{"POST", "/_electric/wake", ``, 400, "INVALID_REQUEST"},
		{"POST", "/_electric/wake", `{"subscriberUrl":"/around/e","sourceUrl":"/around/e","condition":"never"}`, 400, "INVALID_REQUEST"},
		{"POST", "/_electric/wake", `{"subscriberUrl":"/around/e","sourceUrl":"/around/e","condition":{"on":"change","ops":["dance"]}}`, 400, "INVALID_REQUEST"},
		{"POST", "/_electric/wake", `{"subscriberUrl":"/around/none","sourceUrl":"/around/e","condition":"runFinished"}`, 404, "NOT_FOUND"},
		{"POST", "/_electric/wake/unregister", `{"subscriberUrl":"/around/e"}`, 400, "INVALID_WAKE_UNREGISTER"},
		{"POST", "/_electric/observations/cron/ensure-stream", `{}`, 400, "INVALID_REQUEST"},
		{"POST", "/_electric/observations/cron/ensure-stream", `{"expression":"61 * * * *"}`, 400, "INVALID_REQUEST"},
		{"POST", "/_electric/observations/entities/ensure-stream", `{"tags":{"a":1}}`, 400, "INVALID_REQUEST"},
		{"POST", "/_electric/pg-sync/register", `{"options":{"table":7}}`, 400, "INVALID_REQUEST"},
		{"PUT", e + "/webhook-source-subscriptions/x", `{"sourceKey":"none"}`, 404, "NOT_FOUND"},
		// Shared state
		{"GET", "/_electric/shared-state/none", "", 401, "UNAUTHORIZED"},
		{"PUT", "/_electric/shared-state/none", "", 401, "UNAUTHORIZED"},
		// Attachments
		{"POST", e + "/attachments", `{}`, 400, "INVALID_REQUEST"},
		{"GET", e + "/attachments/none", "", 404, "NOT_FOUND"},
		{"DELETE", e + "/attachments/none", "", 404, "NOT_FOUND"},
	} {
		before := r.mine(f)
		r.refused(q.status, q.code, r.kyle, q.method, q.path, q.body)
		if after := r.mine(f); after != before {
			t.Errorf("%s %s %s changed\n%s\nto\n%s", q.method, q.path, q.body, before, after)
		}
	}
}

// What makes a shared state gives its first user the use of it: the first read
// and the first write after it are no races.
func TestASharedStateIsUsableAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f := r.fresh()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			at := fmt.Sprintf("/_electric/shared-state/board-%d", i)
			h := map[string]string{"electric-owner-entity": "/" + f.Entity, "Content-Type": "application/json"}
			made := r.kyle.Do(t.Context(), "PUT", at, nil, h)
			read := r.kyle.Do(t.Context(), "GET", at+"?offset=-1", nil, nil)
			wrote := r.kyle.Do(t.Context(), "POST", at, row("note", "k", `{}`), nil)
			again := r.kyle.Do(t.Context(), "PUT", at, nil, h)
			if made.Status != 201 || read.Status != 200 || wrote.Status != 204 || again.Status != 200 {
				t.Errorf("made %v, read %v, wrote %v, made again %v", made, read, wrote, again)
			}
			if other := r.mallory.Do(t.Context(), "GET", at, nil, nil); other.Status != 401 {
				t.Errorf("another reads: %v", other)
			}
			if other := r.mallory.Do(t.Context(), "PUT", at, nil, h); other.Status != 401 {
				t.Errorf("another names somebody's entity: %v", other)
			}
		})
	}
	wg.Wait()
}

// A file keeps its name, whatever letters that has, in a header that any client
// can read.
func TestFilesKeepTheirNames(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f := r.fresh()
	for _, name := range []string{"plain.txt", "naïve café.txt", "ファイル.txt", "10:30\u202fAM.png", "🙂.txt", `a;b,c=d.txt`} {
		id := r.attachFile(f.Entity, name, "content of "+name)
		a := r.must(200, r.kyle, "GET", f.ctl()+"/attachments/"+id, "")
		header := a.Header.Get("Content-Disposition")
		for i := range len(header) {
			if header[i] < 0x20 || header[i] > 0x7e {
				t.Fatalf("%q: the header holds byte %#x", name, header[i])
			}
		}
		kind, params, err := mime.ParseMediaType(header)
		if err != nil || kind != "attachment" || params["filename"] != name {
			t.Errorf("%q: %s: %s %v %v", name, header, kind, params, err)
		}
		if string(a.Raw) != "content of "+name || a.Header.Get("Content-Type") != "text/plain" {
			t.Errorf("%q: %s %v", name, a.Raw, a.Header)
		}
	}
	// The manifest of the entity says what there is.
	messages, _, _ := r.kyle.All(t.Context(), f.main())
	n := 0
	for _, m := range messages {
		var v struct {
			Type  string
			Value struct{ Kind, Filename string }
		}
		if err := json.Unmarshal(m, &v); err != nil {
			t.Fatal(err)
		}
		if v.Type == "manifest" && v.Value.Kind == "attachment" {
			n++
		}
	}
	if n != 6 {
		t.Errorf("%d files in the manifest: %s", n, strings.Join(strings.Fields(fmt.Sprintf("%s", messages)), " "))
	}
}

// A delayed send is answered at once and lands once, when it is due, as the
// sender's; a queued or paused message waits in the stream until it is moved.
func TestDelayedAndQueuedSends(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f := r.fresh()
	if a := r.must(204, r.kyle, "POST", f.ctl()+"/send", `{"payload":"later","afterMs":300,"type":"note"}`); len(a.Raw) != 0 {
		t.Errorf("%s", a.Raw)
	}
	rows := func() (out []string) {
		messages, _, _ := r.kyle.All(t.Context(), f.main())
		for _, m := range messages {
			if strings.Contains(string(m), `"inbox"`) {
				out = append(out, string(m))
			}
		}
		return out
	}
	if got := rows(); len(got) != 0 {
		t.Errorf("before it is due: %s", got)
	}
	e := r.woken(f, 1) // it wakes as any message does
	got := rows()
	if len(got) != 1 || !strings.Contains(got[0], `"payload":"later"`) || !strings.Contains(got[0], `"from":"/principal/user%3Akyle"`) || !strings.Contains(got[0], `"message_type":"note"`) {
		t.Errorf("%s", got)
	}
	c := r.claimed(f, e)
	r.done(f, c, r.tail(f.main()))
	r.must(200, r.kyle, "POST", f.ctl()+"/send", `{"payload":"queued","mode":"queued","key":"q"}`)
	if got := rows(); !strings.Contains(got[1], `"status":"pending"`) || !strings.Contains(got[1], `"mode":"queued"`) {
		t.Errorf("%s", got[1])
	}
	r.must(200, r.kyle, "PATCH", f.ctl()+"/inbox/q", `{"payload":"changed"}`)
	r.must(200, r.kyle, "DELETE", f.ctl()+"/inbox/q", "")
	got = rows()
	if len(got) != 4 || !strings.Contains(got[2], `"operation":"update"`) || !strings.Contains(got[2], `"changed"`) || !strings.Contains(got[3], `"q"`) {
		t.Errorf("%s", got)
	}
}

// A child's finished run wakes the entity that waits for it: once, however often
// its holder says so, with what the child answered, and also when the gateway
// that took the holder's row ends right behind it.
func TestAFinishedRunWakesItsObserverOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f := r.fresh()
	child := things{Type: f.Type, Entity: f.Type + "/child", Runner: f.Runner + "c"}
	r.must(201, r.kyle, "POST", "/_electric/runners", `{"id":"`+child.Runner+`","label":"Mac"}`)
	r.spawn(child, child.Entity, `,"parent":"/`+f.Entity+`","initialMessage":"go","wake":{"subscriberUrl":"/`+f.Entity+`","condition":"runFinished","includeResponse":true}`)
	c := r.claimed(child, r.woken(child, 1))
	write := func(seq int, rows string) {
		t.Helper()
		a := r.call(r.kyle, "POST", child.main(), rows, append(tokenHeader(c.WriteToken), "Producer-Id", "entity-/"+child.Entity, "Producer-Epoch", "1", "Producer-Seq", fmt.Sprint(seq))...)
		if a.Status != 200 && a.Status != 204 {
			t.Fatalf("%v: %s", a, a.Raw)
		}
	}
	const finished = `{"type":"run","key":"run-1","value":{"status":"completed","finish_reason":"stop"},"headers":{"operation":"update"}}`
	write(0, `[`+row("run", "run-1", `{"status":"started"}`)+`,`+row("text", "t", `{"status":"streaming","run_id":"run-1"}`)+`,`+
		row("text_delta", "t:0", `{"text_id":"t","run_id":"run-1","delta":"all "}`)+`,`+row("text_delta", "t:1", `{"text_id":"t","run_id":"run-1","delta":"done"}`)+`]`)
	write(1, finished)
	write(1, finished) // a repeat
	if err := r.gw.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = newRigOn(t, r.db, nil)
	write(1, finished) // and once more, to another gateway
	r.done(child, c, r.tail(child.main()))
	r.woken(f, 1)
	wakes := func() (out []string) {
		messages, _, _ := r.kyle.All(t.Context(), f.main())
		for _, m := range messages {
			if strings.Contains(string(m), `"type":"wake"`) {
				out = append(out, string(m))
			}
		}
		return out
	}
	got := wakes()
	if len(got) == 0 {
		t.Fatal("no wake row")
	}
	var v struct {
		Key   string
		Value struct {
			Source        string
			FinishedChild struct {
				URL       string
				RunStatus string `json:"run_status"`
				Response  string
			} `json:"finished_child"`
		}
	}
	if err := json.Unmarshal([]byte(got[0]), &v); err != nil {
		t.Fatal(err)
	}
	if v.Value.Source != "/"+child.Entity || v.Value.FinishedChild.URL != "/"+child.Entity || v.Value.FinishedChild.RunStatus != "completed" || v.Value.FinishedChild.Response != "all done" || !strings.HasPrefix(v.Key, "wake-") {
		t.Errorf("%s", got[0])
	}
	r.eventually("nothing is left to observe", func() bool { return r.count(`select count(*) from rouse.observers where behind`) == 0 })
	if got := wakes(); len(got) != 1 {
		t.Errorf("%d wakes for one run: %s", len(got), got)
	}
}
