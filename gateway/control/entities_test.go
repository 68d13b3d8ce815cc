package control

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestEntityRoutes(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	const at = "/_electric/entities"
	r.refused(404, "UNKNOWN_ENTITY_TYPE", kyle, "PUT", at+"/chat/1", "")
	r.refused(404, "UNKNOWN_ENTITY_TYPE", kyle, "GET", at+"/chat/1", "")
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":"","externally_writable_collections":{"c":{"type":"state:c"}}}`)
	r.refused(404, "NOT_FOUND", kyle, "GET", at+"/chat/1", "")
	if a := r.as(kyle, "HEAD", at+"/chat/1", ""); a.status != 404 {
		t.Errorf("HEAD: %d", a.status)
	}
	a := r.must(201, kyle, "PUT", at+"/chat/1", `{"args":{"a":1},"tags":{"k":"v"},"sandbox":{"profile":"x"}}`)
	if a.str("status") != "idle" || a.get("created_at").(float64) < 1e12 || a.get("txid") == nil || a.get("spawn_args.a") != 1.0 || a.str("tags.k") != "v" ||
		a.str("sandbox.profile") != "x" || a.str("created_by") != "/principal/user%3Akyle" {
		t.Errorf("%s", a.body)
	}
	for _, hidden := range []string{"write_token", "subscription_id", "consumer"} {
		if strings.Contains(string(a.body), hidden) {
			t.Errorf("%s is shown: %s", hidden, a.body)
		}
	}
	if g := r.must(200, kyle, "GET", at+"/chat/1", ""); g.get("externally_writable_collections.c") == nil || g.get("txid") != nil {
		t.Errorf("%s", g.body)
	}
	if h := r.as(kyle, "HEAD", at+"/chat/1", ""); h.status != 200 || len(h.body) != 0 {
		t.Errorf("HEAD: %d", h.status)
	}
	for _, path := range []string{"", "/display", "/dispatch", "/claims", "/wakes"} {
		r.must(200, kyle, "GET", at+"/chat/1"+path, "")
		r.must(200, "system:dev-local", "GET", at+"/chat/1"+path, "")
		r.refused(401, "UNAUTHORIZED", mallory, "GET", at+"/chat/1"+path, "")
		r.refused(404, "NOT_FOUND", kyle, "GET", at+"/chat/none"+path, "")
		r.refused(404, "UNKNOWN_ENTITY_TYPE", kyle, "GET", at+"/none/none"+path, "")
	}
	if d := r.must(200, kyle, "GET", at+"/chat/1/display", ""); d.str("display") != "Waiting for input" || d.str("code") != "waiting_for_input" {
		t.Errorf("%s", d.body)
	}
	for _, q := range []string{"?limit=0", "?limit=1001", "?limit=x", "?before=0", "?before=x"} {
		r.refused(400, "INVALID_REQUEST", kyle, "GET", at+"/chat/1/claims"+q, "")
	}

	// Tags.
	tag := at + "/chat/1/tags/colour"
	if a := r.must(200, kyle, "POST", tag, `{"value":"blue"}`, "Authorization", "Bearer rouse_wt_whatever"); a.str("tags.colour") != "blue" || a.get("txid") == nil {
		t.Errorf("%s", a.body)
	}
	for _, step := range []struct{ method, body, operation string }{{"POST", `{"value":"red"}`, "update"}, {"DELETE", "", "delete"}, {"POST", `{"value":"blue"}`, "insert"}} {
		r.must(200, kyle, step.method, tag, step.body)
		row := r.last("/chat/1")
		if row["type"] != "tags" || row["key"] != "colour" || row["headers"].(map[string]any)["operation"] != step.operation || r.asksForAttention("/chat/1") {
			t.Errorf("%s: %v", step.operation, row)
		}
	}
	r.refused(400, "INVALID_REQUEST", kyle, "POST", tag, `{"value":7}`)
	r.refused(400, "INVALID_REQUEST", kyle, "POST", tag, ``)
	r.refused(401, "UNAUTHORIZED", mallory, "POST", tag, `{"value":"x"}`)
	r.refused(404, "NOT_FOUND", kyle, "POST", at+"/chat/none/tags/k", `{"value":"x"}`)
	if a := r.must(200, kyle, "DELETE", tag, ""); a.get("tags.colour") != nil {
		t.Errorf("%s", a.body)
	}

	// Signals.
	sig := at + "/chat/1/signal"
	if a := r.must(200, kyle, "POST", sig, `{"signal":"SIGHUP","reason":"reload","payload":{"x":null}}`); a.str("previous_state") != "idle" || a.str("new_state") != "idle" || a.str("url") != "/chat/1" || a.get("txid") == nil || a.get("created_at").(float64) < 1e12 {
		t.Errorf("%s", a.body)
	}
	r.refused(400, "INVALID_REQUEST", kyle, "POST", sig, `{"signal":"SIGNONE"}`)
	r.refused(400, "INVALID_REQUEST", kyle, "POST", sig, ``)
	r.refused(401, "UNAUTHORIZED", mallory, "POST", sig, `{"signal":"SIGKILL"}`)
	r.refused(401, "UNAUTHORIZED", mallory, "DELETE", at+"/chat/1", "")
	if a := r.must(200, kyle, "POST", sig, `{"signal":"SIGSTOP"}`); a.str("new_state") != "paused" {
		t.Errorf("%s", a.body)
	}
	if a := r.must(200, kyle, "DELETE", at+"/chat/1", ""); a.get("txid") == nil {
		t.Errorf("%s", a.body)
	}
	r.refused(409, "INVALID_SIGNAL", kyle, "DELETE", at+"/chat/1", "")
	r.refused(409, "INVALID_SIGNAL", kyle, "POST", sig, `{"signal":"SIGINT"}`)
	r.refused(409, "NOT_RUNNING", kyle, "POST", tag, `{"value":"x"}`)
	r.refused(409, "NOT_RUNNING", kyle, "POST", at+"/chat/1/send", `{"payload":1}`)
	r.refused(409, "DUPLICATE_URL", kyle, "PUT", at+"/chat/1", "")
	if g := r.must(200, kyle, "GET", at+"/chat/1", ""); g.str("status") != "killed" {
		t.Errorf("%s", g.body)
	}
}

// What an entity carries is copied into each of its wakes, so it is bounded.
func TestSpawnCarriesABoundedAmount(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	tags := func(n int) string {
		kv := make([]string, n)
		for i := range kv {
			kv[i] = fmt.Sprintf(`"k%d":"v"`, i)
		}
		return `{"tags":{` + strings.Join(kv, ",") + `}}`
	}
	big := `{"a":"` + strings.Repeat("x", maxCarried) + `"}`
	for _, body := range []string{`{"args":` + big + `}`, `{"sandbox":` + big + `}`, tags(maxTags + 1)} {
		r.refused(400, "INVALID_REQUEST", kyle, "PUT", "/_electric/entities/chat/1", body)
	}
	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", tags(maxTags))
}

func TestSpawnChildren(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	const at = "/_electric/entities/chat/"
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "POST", "/_electric/runners", `{"id":"mac","label":"Mac"}`)
	r.must(201, kyle, "PUT", at+"p", `{"dispatch_policy":{"targets":[{"type":"runner","runnerId":"mac"}]}}`)
	if a := r.must(201, kyle, "PUT", at+"c", `{"parent":"/chat/p"}`); a.str("parent") != "/chat/p" || !strings.Contains(string(a.body), `"runnerId":"mac"`) {
		t.Errorf("%s", a.body)
	}
	r.refused(404, "NOT_FOUND", kyle, "PUT", at+"d", `{"parent":"/chat/none"}`)
	r.refused(401, "UNAUTHORIZED", mallory, "PUT", at+"d", `{"parent":"/chat/p"}`)
	r.must(200, kyle, "DELETE", at+"p", "")
	r.refused(409, "NOT_RUNNING", kyle, "PUT", at+"d", `{"parent":"/chat/p"}`)
	r.db.Exec(t, `insert into rouse.streams (service_id, path, content_type, is_json) values (1, 'chat/plain/main', 'text/plain', false)`)
	r.refused(409, "STREAM_EXISTS", kyle, "PUT", at+"plain", "")
}

func TestFiftySpawnsOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	var mu sync.Mutex
	got := map[string]int{}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			a := r.as(kyle, "PUT", "/_electric/entities/chat/one", `{"initialMessage":"hi"}`)
			mu.Lock()
			defer mu.Unlock()
			got[fmt.Sprint(a.status, " ", a.str("code"))]++
		})
	}
	wg.Wait()
	if got["201 "] != 1 || got["409 DUPLICATE_URL"] != 49 {
		t.Errorf("%v", got)
	}
	if n := r.count(`select count(*) from rouse.messages`); n != 2 {
		t.Errorf("%d messages", n)
	}
}

func TestEntityListOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	const at = "/_electric/entities"
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	for i := range 5 {
		r.must(201, kyle, "PUT", fmt.Sprintf("%s/chat/%d", at, i), "")
	}
	r.must(201, mallory, "PUT", at+"/chat/theirs", "")
	urls := func(a answer) string {
		var list []struct{ URL string }
		if err := json.Unmarshal(a.body, &list); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(list)
	}
	if got := urls(r.must(200, kyle, "GET", at, "")); got != "[{/chat/4} {/chat/3} {/chat/2} {/chat/1} {/chat/0}]" {
		t.Errorf("%s", got)
	}
	if got := urls(r.must(200, "system:dev-local", "GET", at+"/?created_by=/principal/user%253Amallory", "")); got != "[{/chat/theirs}]" {
		t.Errorf("%s", got)
	}
	page := r.must(200, kyle, "GET", at+"?limit=2", "")
	next := page.header.Get("Electric-Next-Cursor")
	if urls(page) != "[{/chat/4} {/chat/3}]" || next == "" {
		t.Fatalf("%s, cursor %q", page.body, next)
	}
	page = r.must(200, kyle, "GET", at+"?limit=3&cursor="+next, "")
	if urls(page) != "[{/chat/2} {/chat/1} {/chat/0}]" || page.header.Get("Electric-Next-Cursor") != "" {
		t.Errorf("%s", page.body)
	}
	for _, q := range []string{"?cursor=x", "?cursor=MTIz", "?limit=0", "?limit=9999", "?limit=-1", "?type=%00", "?parent=%ff"} {
		r.refused(400, "INVALID_REQUEST", kyle, "GET", at+q, "")
	}
	if got := urls(r.must(200, kyle, "GET", at+"?status=killed", "")); got != "[]" {
		t.Errorf("%s", got)
	}
}

// Tags are carried into each wake, so there are few, however they come.
func TestTagsAreFew(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	var tags []string
	for i := range maxTags {
		tags = append(tags, fmt.Sprintf(`"t%d":"v"`, i))
	}
	const at = "/_electric/entities/chat/1"
	r.must(201, kyle, "PUT", at, `{"tags":{`+strings.Join(tags, ",")+`}}`)
	r.refused(400, "INVALID_REQUEST", kyle, "POST", at+"/tags/more", `{"value":"v"}`)
	r.must(200, kyle, "POST", at+"/tags/t1", `{"value":"w"}`)
	r.refused(400, "INVALID_REQUEST", kyle, "POST", at+"/fork", `{"tags":{"more":"v"}}`)
	r.must(201, kyle, "POST", at+"/fork", `{"tags":{"t1":"x"}}`)
	r.must(200, kyle, "DELETE", at+"/tags/t1", "")
	r.must(200, kyle, "POST", at+"/tags/more", `{"value":"v"}`)
}
