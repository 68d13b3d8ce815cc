package observation

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// manifest makes an entity whose manifest is read.
func (r *rig) manifest(url string) {
	r.t.Helper()
	r.spawn(url, "")
	if got, err := r.s.ObserveManifest(r.t.Context(), 1, url); err != nil || got != "ok" {
		r.t.Fatal(got, err)
	}
}

func TestManifestRowsRegisterAndUnregister(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.manifest("/chat/a")
	r.spawn("/chat/b", "")
	w := r.worker()
	put := func(key, value string) {
		t.Helper()
		r.write("chat/a/main", row("upsert", "manifest", key, value))
	}
	cron := mustCron(t, "0 9 * * *", "Europe/Berlin")
	put("child", `{"kind":"child","entity_url":"/chat/b","wake":{"on":"runFinished","includeResponse":false}}`)
	put("observe", `{"kind":"observe","entity_url":"/chat/b","wake":"runFinished"}`)
	put("source:entity", `{"kind":"source","sourceType":"entity","sourceRef":"/chat/b","wake":{"on":"change","collections":["b","a"],"ops":["delete"],"debounceMs":50,"timeoutMs":60}}`)
	put("source:cron", `{"kind":"source","sourceType":"cron","config":{"expression":"0 9 * * *","timezone":"Europe/Berlin"},"wake":{"on":"change"}}`)
	put("schedule:s", `{"kind":"schedule","scheduleType":"cron","expression":"0 9 * * *","timezone":"Europe/Berlin"}`)
	put("shared-state:s", `{"kind":"shared-state","id":"board","wake":{"on":"change"}}`)
	put("source:db", `{"kind":"source","sourceType":"db","sourceRef":"board"}`)
	put("source:db:named", `{"kind":"source","sourceType":"db","sourceRef":"wall","config":{"id":"wall","collections":{"findings":{"type":"shared:finding","primaryKey":"key"},"other":{"type":"x"},"odd":7}},"wake":{"on":"change","collections":["findings","odd","none"]}}`)
	put("shared-state:named", `{"kind":"shared-state","id":"wall","collections":{"notes":{"type":"note"}},"wake":{"on":"change","collections":["notes"]}}`)
	put("source:entities", `{"kind":"source","sourceType":"entities","sourceRef":"whatever","config":{"tags":{"k":"v"}},"wake":{"on":"change"}}`)
	put("attachment:x", `{"kind":"attachment","id":"x"}`)
	put("no wake", `{"kind":"observe","entity_url":"/chat/b"}`)
	r.settle(w)
	want := map[string]string{
		"child":              `/chat/b "runFinished" 0 0 false`,
		"observe":            `/chat/b "runFinished" 0 0 true`,
		"source:entity":      `/chat/b {"on":"change","collections":["a","b"],"ops":["delete"]} 50 60 true`,
		"source:cron":        `/` + cron.Path() + ` {"on":"change"} 0 0 true`,
		"schedule:s":         `/` + cron.Path() + ` {"on":"change"} 0 0 true`,
		"shared-state:s":     `/_electric/shared-state/board {"on":"change"} 0 0 true`,
		"source:db:named":    `/_electric/shared-state/wall {"on":"change","collections":["findings","none","odd","shared:finding"]} 0 0 true`,
		"shared-state:named": `/_electric/shared-state/wall {"on":"change","collections":["note","notes"]} 0 0 true`,
		"source:entities":    `/_entities/` + MembershipRef(map[string]string{"k": "v"}, kyle) + ` {"on":"change"} 0 0 true`,
	}
	check := func() {
		t.Helper()
		rows, err := r.pool.Query(t.Context(), `select manifest_key, source_url || ' ' || condition || ' ' || debounce_ms || ' ' || timeout_ms || ' ' || include_response
			from rouse.observers where kind = 'wake'`)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		got := map[string]string{}
		for rows.Next() {
			var k, v string
			if err := rows.Scan(&k, &v); err != nil {
				t.Fatal(err)
			}
			if got[k] != "" {
				t.Errorf("%s is registered twice", k)
			}
			got[k] = v
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("\n%v, want\n%v", got, want)
		}
	}
	check()
	if n := r.count(`select count(*) from rouse.shared_state_links where path = '_electric/shared-state/board' and entity_url = '/chat/a'`); n != 2 {
		t.Errorf("%d links to the shared state", n)
	}
	if n := r.count(`select count(*) from rouse.memberships where principal = $1`, kyle); n != 1 {
		t.Error("there is no membership stream")
	}

	// The same row again keeps the cursor; another one of the key replaces it; a
	// deletion removes it, and so does a row that asks for nothing.
	before := r.count(`select id from rouse.observers where manifest_key = 'child'`)
	put("child", `{"kind":"child","entity_url":"/chat/b","wake":{"on":"runFinished","includeResponse":false}}`)
	put("observe", `{"kind":"observe","entity_url":"/chat/b","wake":{"on":"change"}}`)
	put("source:db", `{"kind":"source","sourceType":"db"}`)
	put("schedule:s", `{"kind":"none"}`)
	r.write("chat/a/main", `{"headers":{"operation":"delete"},"type":"manifest","key":"source:cron"}`, `{"headers":{"operation":"delete"},"type":"manifest","key":"shared-state:s"}`)
	r.settle(w)
	delete(want, "source:cron")
	delete(want, "schedule:s")
	delete(want, "shared-state:s")
	want["observe"] = `/chat/b {"on":"change"} 0 0 true`
	check()
	if now := r.count(`select id from rouse.observers where manifest_key = 'child'`); now != before {
		t.Error("the same row began a new cursor")
	}
	if n := r.count(`select count(*) from rouse.shared_state_links where path = '_electric/shared-state/board'`); n != 0 {
		t.Errorf("%d links are left", n)
	}
	// A cron chain that nobody hears any more ends.
	r.now()
	r.settle(w)
	if n := r.count(`select count(*) from rouse.scheduled_tasks where due_at is not null`); n != 0 {
		t.Error("a deleted schedule ticks on")
	}
}

// What happens on a source between a manifest row and its reading, which may be a
// crash away, is told; what happened before the row is not.
func TestAManifestRowCountsFromItsAppend(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.manifest("/chat/a")
	for _, u := range []string{"/chat/b", "/chat/quiet"} {
		r.spawn(u, "")
	}
	todo := func(key string) { r.write("chat/b/main", row("insert", "todo", key, `{}`)) }
	todo("before")
	r.write("chat/a/main", row("insert", "manifest", "quiet", `{"kind":"observe","entity_url":"/chat/quiet","wake":{"on":"change"}}`))
	r.write("chat/a/main", row("insert", "manifest", "m", `{"kind":"observe","entity_url":"/chat/b","wake":{"on":"change"}}`))
	todo("1")
	r.write("chat/a/main", row("insert", "note", "n", `{}`))
	todo("2")
	w := r.worker()
	r.settle(w)
	todo("3")
	r.settle(w)
	var got []string
	for _, e := range r.wakes("/chat/a") {
		for _, c := range decode(t, e)["changes"].([]any) {
			got = append(got, c.(map[string]any)["key"].(string))
		}
	}
	if fmt.Sprint(got) != "[1 2 3]" {
		t.Errorf("%v", got)
	}
}

// Several rows of a key that are read together: the last one counts.
func TestTheLastRowOfAKeyCounts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.manifest("/chat/a")
	r.spawn("/chat/b", "")
	send := func(producer, payload string) string {
		return row("upsert", "manifest", "schedule:s", fmt.Sprintf(`{"kind":"schedule","scheduleType":"future_send","fireAt":"2020-01-01T00:00:00Z","targetUrl":"/chat/b","producerId":%q,"payload":%s}`, producer, payload))
	}
	r.write("chat/a/main", send("p1", "1"), row("insert", "manifest", "other", `{}`), send("p2", "2"))
	r.write("chat/a/main", send("p3", "3"), `{"headers":{"operation":"delete"},"type":"manifest","key":"schedule:t"}`)
	w := r.worker()
	r.settle(w)
	got := r.rows("/chat/b", "inbox")
	if len(got) != 1 || string(got[0].value["payload"]) != "3" || got[0].key != "scheduled-p3" || text(got[0].value["from"]) != "/chat/a" || text(got[0].value["from_agent"]) != "/chat/a" {
		t.Fatalf("%v", got)
	}
	rows := r.rows("/chat/a", "manifest")
	last := rows[len(rows)-1]
	if v := decode(t, last); last.key != "schedule:s" || v["status"] != "sent" || v["producerId"] != "p3" || v["sentAt"] == nil || last.operation != "update" {
		t.Errorf("%s %v", last.key, v)
	}
	// Its own word about it starts nothing anew.
	r.settle(w)
	if n := len(r.rows("/chat/b", "inbox")); n != 1 {
		t.Errorf("it is sent %d times", n)
	}
}

func TestAScheduledSendThatCannotBeSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.manifest("/chat/a")
	r.spawn("/chat/dead", "")
	r.spawnAs("/principal/user%3Aada", "/chat/theirs", "", nil)
	if _, err := r.s.EntitySignal(t.Context(), 1, "/chat/dead", kyle, "SIGKILL", "s", "", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.s.EntitySignal(t.Context(), 1, "/chat/theirs", "/principal/user%3Aada", "SIGSTOP", "s", "", nil); err != nil {
		t.Fatal(err)
	}
	for key, target := range map[string]string{"none": "/chat/none", "dead": "/chat/dead", "theirs": "/chat/theirs"} {
		r.write("chat/a/main", row("insert", "manifest", key, fmt.Sprintf(`{"kind":"schedule","scheduleType":"future_send","fireAt":%q,"targetUrl":%q,"producerId":%q,"payload":null,"status":"pending","senderUrl":"/principal/user%%3Aada"}`,
			time.Now().Add(-time.Second).Format(time.RFC3339), target, key)))
	}
	r.settle(r.worker())
	for key, why := range map[string]string{"none": "no such entity", "dead": "stopped", "theirs": "may not"} {
		var last map[string]any
		for _, e := range r.rows("/chat/a", "manifest") {
			if e.key == key {
				last = decode(t, e)
			}
		}
		if s, _ := last["lastError"].(string); last["status"] != "failed" || !strings.Contains(s, why) || last["failedAt"] == nil {
			t.Errorf("%s: %v", key, last)
		}
	}
	if n := len(r.rows("/chat/theirs", "inbox")); n != 0 {
		t.Error("an entity sent what its creator may not send")
	}
	if n := r.count(`select count(*) from rouse.entities where url = '/chat/theirs' and status = 'paused'`); n != 1 {
		t.Error("a message that may not be sent lets a paused entity go on")
	}
}

// What an entity asks for is bounded by what its creator may.
func TestAManifestBreaksIntoNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.manifest("/chat/a")
	const ada = "/principal/user%3Aada"
	r.spawnAs(ada, "/chat/theirs", "", nil)
	if got, err := r.s.SharedStateAdmit(t.Context(), 1, ada, false, SharedStatePrefix+"theirs", "write", "/chat/theirs", nil); err != nil || got != "ok" {
		t.Fatal(got, err)
	}
	r.write("chat/a/main",
		row("insert", "manifest", "1", `{"kind":"observe","entity_url":"/chat/theirs","wake":{"on":"change"}}`),
		row("insert", "manifest", "2", `{"kind":"observe","entity_url":"/chat/theirs/main","wake":{"on":"change"}}`),
		row("insert", "manifest", "3", `{"kind":"shared-state","id":"theirs","wake":{"on":"change"}}`),
		row("insert", "manifest", "4", `{"kind":"source","sourceType":"webhook","config":{"streamUrl":"/chat/theirs/main"},"wake":{"on":"change"}}`))
	r.settle(r.worker())
	r.write("chat/theirs/main", row("insert", "secret", "s", `{"value":1}`))
	r.settle(r.worker())
	if n := len(r.wakes("/chat/a")); n != 0 {
		t.Errorf("%d wakes by what is somebody else's", n)
	}
	if n := r.count(`select count(*) from rouse.shared_state_links where entity_url = '/chat/a'`); n != 0 {
		t.Error("it has linked itself to somebody else's state")
	}
	if got, err := r.s.SharedStateAdmit(t.Context(), 1, kyle, false, SharedStatePrefix+"theirs", "read", "", nil); err != nil || got != "forbidden" {
		t.Error(got, err)
	}
}
