package control

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

// whole reads an entity's stream through its forks, as a client does.
func (r *rig) whole(url string) []map[string]any {
	r.t.Helper()
	var out []map[string]any
	for pos := int64(0); ; {
		page, err := r.c.cfg.Store.StreamRead(r.t.Context(), store.ReadRequest{Service: 1, Path: url[1:] + "/main", From: &pos, MaxBytes: 1 << 20, MaxRows: 1000})
		if err != nil || page.Outcome != store.OK {
			r.t.Fatalf("%s: %v, %v", url, page.Outcome, err)
		}
		if page.Next == pos {
			return out
		}
		var rows []map[string]any
		if err := json.Unmarshal([]byte("["+string(page.Data)+"]"), &rows); err != nil {
			r.t.Fatal(err)
		}
		out, pos = append(out, rows...), page.Next
	}
}

// write appends messages to an entity's stream, as its holder would: one append.
func (r *rig) write(url string, messages ...string) (end string) {
	r.t.Helper()
	res, err := r.c.cfg.Appender.Append(r.t.Context(), store.AppendItem{Service: 1, Path: url[1:] + "/main", Type: "application/json",
		Payload: []byte(strings.Join(messages, ",")), Count: int32(len(messages)), Stamps: []int32{staterow.HeadersAt}, Internal: true})
	if err != nil || res.Outcome != store.Appended {
		r.t.Fatalf("%v, %v", res.Outcome, err)
	}
	return store.FormatOffset(res.Position)
}

func event(operation, typ, key, value string) string {
	if value == "" {
		return fmt.Sprintf(`{"headers":{"operation":%q},"type":%q,"key":%q}`, operation, typ, key)
	}
	return fmt.Sprintf(`{"headers":{"operation":%q},"type":%q,"key":%q,"value":%s}`, operation, typ, key, value)
}

// manifestOf is what an entity's manifest comes to.
func manifestOf(rows []map[string]any) map[string]string {
	out := map[string]string{}
	for _, m := range rows {
		if m["type"] != "manifest" {
			continue
		}
		key := m["key"].(string)
		if m["headers"].(map[string]any)["operation"] == "delete" {
			delete(out, key)
			continue
		}
		raw, _ := json.Marshal(m["value"])
		out[key] = string(raw)
	}
	return out
}

func forked(a answer) (root string, all []string) {
	for _, e := range a.get("entities").([]any) {
		all = append(all, e.(map[string]any)["url"].(string))
	}
	return a.str("root.url"), all
}

func TestFork(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	const at = "/_electric/entities"
	r.must(201, kyle, "POST", "/_electric/runners", `{"id":"mac","label":"Mac"}`)
	r.must(201, kyle, "PUT", at+"/chat/p", `{"args":{"self":"/chat/p","n":12345678901234567890,"list":["/chat/p/main","x"]},"tags":{"a":"1"},"dispatch_policy":{"targets":[{"type":"runner","runnerId":"mac"}]}}`)
	r.must(201, kyle, "PUT", at+"/chat/c", `{"parent":"/chat/p"}`)
	r.must(201, kyle, "PUT", at+"/chat/g", `{"parent":"/chat/c"}`)
	file := r.attach(kyle, "/chat/p", "a.txt", "text/plain", []byte("file"))
	r.write("/chat/p", event("insert", "manifest", "child:chat:c", `{"key":"child:chat:c","kind":"child","id":"c","entity_type":"chat","entity_url":"/chat/c","wake":{"on":"runFinished"}}`),
		event("insert", "child_status", "child:chat:c", `{"entity_url":"/chat/c","entity_type":"chat","status":"idle"}`),
		event("insert", "manifest", "source:entity:/chat/c", `{"key":"source:entity:/chat/c","kind":"source","sourceType":"entity","sourceRef":"/chat/c","config":{"entityUrl":"/chat/c","streamPath":"/chat/c/main","extra":1}}`),
		event("insert", "replay_watermark", "/chat/c", `{"source_id":"/chat/c","offset":"1"}`),
		event("insert", "manifest", "schedule:s", `{"key":"schedule:s","kind":"schedule","scheduleType":"future_send","targetUrl":"/chat/p","senderUrl":"/chat/p","fireAt":"2999-01-01T00:00:00Z","producerId":"x","payload":1}`),
		event("insert", "manifest", "gone", `{"kind":"child","entity_url":"/chat/c"}`), event("delete", "manifest", "gone", ""),
		event("insert", "text", "t1", `{"body":"see /chat/c"}`))
	r.must(200, kyle, "POST", at+"/chat/p/send", `{"payload":"hello"}`)

	before := r.whole("/chat/p")
	a := r.must(201, kyle, "POST", at+"/chat/p/fork", `{"instance_id":"twin","tags":{"b":"2"},"initialMessage":{"go":true}}`)
	root, all := forked(a)
	if root != "/chat/twin" || len(all) != 3 || all[0] != root || !strings.HasPrefix(all[1], "/chat/c-fork-") || !strings.HasPrefix(all[2], "/chat/g-fork-") {
		t.Fatalf("%s", a.body)
	}
	child, grandchild := all[1], all[2]
	e := r.must(200, kyle, "GET", at+root, "")
	if e.str("status") != "idle" || e.str("tags.a") != "1" || e.str("tags.b") != "2" || e.str("spawn_args.self") != root || e.get("parent") != nil ||
		!strings.Contains(string(e.body), "12345678901234567890") || !strings.Contains(string(e.body), `"`+root+`/main"`) || !strings.Contains(string(e.body), `"runnerId":"mac"`) ||
		e.str("created_by") != "/principal/user%3Akyle" {
		t.Errorf("%s", e.body)
	}
	if g := r.must(200, kyle, "GET", at+grandchild, ""); g.str("parent") != child {
		t.Errorf("%s", g.body)
	}
	rows := r.whole(root)
	for i, m := range before {
		if fmt.Sprint(rows[i]) != fmt.Sprint(m) {
			t.Fatalf("row %d of the fork is %v, not %v", i, rows[i], m)
		}
	}
	rows = rows[len(before):]
	if first := rows[0]; first["type"] != "entity_created" || first["headers"].(map[string]any)["operation"] != "update" || first["headers"].(map[string]any)["forkedFrom"] != "/chat/p" {
		t.Errorf("%v", first)
	}
	if last := rows[len(rows)-1]; last["type"] != "inbox" || last["value"].(map[string]any)["payload"].(map[string]any)["go"] != true {
		t.Errorf("%v", last)
	}
	id := strings.TrimPrefix(child, "/chat/")
	m := manifestOf(r.whole(root))
	for key, holds := range map[string]string{
		"child:chat:" + id: `"entity_url":"` + child + `"`, "source:entity:" + child: `"streamPath":"` + child + `/main"`,
		"schedule:s": `"targetUrl":"/chat/twin"`, "attachment:" + file: `"streamPath":"/chat/twin/attachments/` + file + `"`,
	} {
		if !strings.Contains(m[key], holds) {
			t.Errorf("manifest %s is %s", key, m[key])
		}
	}
	if len(m) != 4 || !strings.Contains(m["source:entity:"+child], `"extra":1`) || !strings.Contains(m["child:chat:"+id], `"wake"`) {
		t.Errorf("manifest %v", m)
	}
	var status, mark int
	for _, row := range rows {
		v, _ := row["value"].(map[string]any)
		if row["type"] == "child_status" && v["entity_url"] == child {
			status++
		}
		if row["type"] == "replay_watermark" && row["key"] == child && v["source_id"] == child {
			mark++
		}
	}
	if status != 1 || mark != 1 {
		t.Errorf("%d child statuses and %d watermarks in %v", status, mark, rows)
	}
	// Each goes on by itself: its own mutex, its cursor behind what it began with, its own files.
	if n := r.count(`select count(*) from rouse.consumer_streams cs join rouse.streams s on s.id = cs.stream_id join rouse.entities e on e.consumer_id = cs.consumer_id
		where s.path = 'chat/twin/main' and e.url = '/chat/twin' and cs.acked < s.tail and s.actionable = s.tail and s.consumer_id = cs.consumer_id`); n != 1 {
		t.Error("the first message is not what the fork is woken for")
	}
	if n := r.count(`select count(*) from rouse.consumer_streams cs join rouse.streams s on s.id = cs.stream_id where s.path = $1 and cs.acked = s.tail and not s.pending`, child[1:]+"/main"); n != 1 {
		t.Error("a forked child has something to do")
	}
	if g := r.must(200, kyle, "GET", at+root+"/attachments/"+file, ""); string(g.body) != "file" {
		t.Errorf("%s", g.body)
	}
	r.must(200, kyle, "DELETE", at+"/chat/p/attachments/"+file, "")
	if g := r.must(200, kyle, "GET", at+root+"/attachments/"+file, ""); string(g.body) != "file" {
		t.Errorf("%s", g.body)
	}
	n := len(r.whole(root))
	r.must(200, kyle, "POST", at+"/chat/p/send", `{"payload":"only there"}`)
	if len(r.whole(root)) != n {
		t.Error("the fork sees what happens to its source")
	}
	r.must(200, kyle, "POST", at+"/chat/twin/send", `{"payload":"only here"}`)
	if rows := r.whole(root); len(rows) != n+1 || rows[n]["headers"].(map[string]any)["operation"] != "insert" {
		t.Error("the fork does not go on")
	}
	// A fork of a fork, and one more of the same source: names are free or made up.
	r.refused(409, "DUPLICATE_URL", kyle, "POST", at+"/chat/p/fork", `{"instance_id":"twin"}`)
	again, _ := forked(r.must(201, kyle, "POST", at+"/chat/twin/fork", ""))
	if got, want := len(r.whole(again)), len(r.whole(root)); got <= want {
		t.Errorf("%d rows, source has %d", got, want)
	}
}

func TestForksOfAnEarlierPoint(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	const at = "/_electric/entities/chat/p/fork"
	r.must(201, kyle, "PUT", "/_electric/entities/chat/p", "")
	r.must(201, kyle, "PUT", "/_electric/entities/chat/c", `{"parent":"/chat/p"}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/d", `{"parent":"/chat/p"}`)
	r.refused(400, "INVALID_REQUEST", kyle, "POST", at, `{"anchor":"latest_completed_run"}`) // there is none yet
	created := len(r.whole("/chat/p"))
	one := r.write("/chat/p", event("insert", "text", "1", `1`), event("insert", "manifest", "child:chat:c", `{"kind":"child","entity_type":"chat","entity_url":"/chat/c"}`), event("insert", "text", "2", `2`))
	r.write("/chat/p", event("update", "run", "r1", `{"status":"completed"}`), event("insert", "text", "3", `3`), event("insert", "manifest", "child:chat:d", `{"kind":"child","entity_type":"chat","entity_url":"/chat/d"}`))
	r.write("/chat/p", event("update", "run", "r2", `{"status":"failed"}`), event("update", "run", "r3", `{"status":"started"}`), event("insert", "text", "x", `"completed"`))
	// It may be at work: what is forked is how it was.
	r.db.Exec(t, `update rouse.entities set status = 'running' where url = '/chat/p'`)
	r.refused(409, "FORK_WAIT_TIMEOUT", kyle, "POST", at, `{"waitTimeoutMs":0}`)
	keys := func(url string) (out []string) {
		for _, m := range r.whole(url) {
			if m["headers"].(map[string]any)["forkedFrom"] == nil {
				out = append(out, m["type"].(string)+" "+m["key"].(string))
			}
		}
		return out[created:]
	}
	for _, tc := range []struct {
		body, want string
		entities   int
	}{
		{`{"fork_pointer":{"offset":null,"sub_offset":2}}`, "[text 1]", 1},
		{`{"fork_pointer":{"offset":null,"sub_offset":3}}`, "[text 1 manifest child:chat:c]", 2},
		{`{"fork_pointer":{"offset":null,"sub_offset":4}}`, "[text 1 manifest child:chat:c text 2]", 2},
		{`{"fork_pointer":{"offset":"` + one + `","sub_offset":1}}`, "[text 1 manifest child:chat:c text 2 run r1]", 2},
		{`{"fork_pointer":{"offset":"` + one + `","sub_offset":3}}`, "[text 1 manifest child:chat:c text 2 run r1 text 3 manifest child:chat:d]", 3},
		{`{"fork_pointer":{"offset":"` + one + `","sub_offset":4}}`, "[text 1 manifest child:chat:c text 2 run r1 text 3 manifest child:chat:d run r2]", 3},
		{`{"anchor":"latest_completed_run"}`, "[text 1 manifest child:chat:c text 2 run r1]", 2},
	} {
		a := r.must(201, kyle, "POST", at, tc.body)
		root, all := forked(a)
		if got := fmt.Sprint(keys(root)); got != tc.want || len(all) != tc.entities {
			t.Errorf("%s: %s and %d entities, want %s and %d", tc.body, got, len(all), tc.want, tc.entities)
		}
	}
	if e := r.refused(400, "INVALID_REQUEST", kyle, "POST", at, `{"fork_pointer":{"offset":null,"sub_offset":1},"anchor":"latest_completed_run"}`); !strings.Contains(string(e.body), `"/anchor"`) {
		t.Errorf("%s", e.body)
	}
	for _, p := range []string{`{"offset":null,"sub_offset":99}`, `{"offset":"0000000000000000_0000000000000007","sub_offset":1}`, `{"offset":"0000000000000000_0000000099999999","sub_offset":1}`,
		`{"offset":"x","sub_offset":1}`, `{"offset":null,"sub_offset":0}`, `{"offset":null,"sub_offset":1.5}`, `{"offset":7,"sub_offset":1}`, `{"sub_offset":-1}`, `[]`, `{"offset":null,"sub_offset":1e300}`} {
		r.refused(400, "INVALID_REQUEST", kyle, "POST", at, `{"fork_pointer":`+p+`}`)
	}
	// A forked child has to be idle, since it is forked as it is.
	r.db.Exec(t, `update rouse.entities set status = 'running' where url = '/chat/c'`)
	busy := r.refused(409, "FORK_WAIT_TIMEOUT", kyle, "POST", at, `{"anchor":"latest_completed_run","waitTimeoutMs":150}`)
	if got := fmt.Sprint(busy.get("error.details.active")); got != "[/chat/c]" {
		t.Errorf("active: %s in %s", got, busy.body)
	}
	r.must(201, kyle, "POST", at, `{"fork_pointer":{"offset":null,"sub_offset":2},"waitTimeoutMs":0}`)
}

func TestForkRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	const at = "/_electric/entities"
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", at+"/chat/p", "")
	r.must(201, kyle, "PUT", at+"/chat/c", `{"parent":"/chat/p"}`)
	r.must(201, mallory, "PUT", at+"/chat/hers", "")
	fork := at + "/chat/p/fork"
	r.refused(404, "NOT_FOUND", kyle, "POST", at+"/chat/none/fork", "")
	r.refused(404, "UNKNOWN_ENTITY_TYPE", kyle, "POST", at+"/none/none/fork", "")
	r.refused(400, "INVALID_REQUEST", kyle, "POST", at+"/principal/user:kyle/fork", "")
	r.refused(400, "INVALID_REQUEST", kyle, "POST", at+"/chat/c/fork", "")
	r.refused(401, "UNAUTHORIZED", mallory, "POST", fork, "")
	// fork on the root alone does not copy what the caller has no right to.
	r.grant(kyle, "/chat/p", granted("principal", "user:mallory", "fork", ""))
	r.refused(401, "UNAUTHORIZED", mallory, "POST", fork, "")
	r.grant(kyle, "/chat/p", granted("principal", "user:mallory", "fork", `,"propagation":"descendants"`))
	root, _ := forked(r.must(201, mallory, "POST", fork, ""))
	r.must(200, mallory, "GET", at+root, "")
	r.refused(401, "UNAUTHORIZED", kyle, "GET", at+root, "") // a fork is its maker's
	for body, place := range map[string]string{
		`[]`: "", `{"instance_id":"a/b"}`: "/instance_id", `{"instance_id":"a*"}`: "/instance_id", `{"instance_id":".."}`: "/instance_id", `{"instance_id":7}`: "/instance_id",
		`{"waitTimeoutMs":-1}`: "/waitTimeoutMs", `{"waitTimeoutMs":"x"}`: "/waitTimeoutMs", `{"anchor":"x"}`: "/anchor",
		`{"tags":{"a":1}}`: "/tags/a", `{"tags":{"":"x"}}`: "/tags", `{"parent":7}`: "/parent", `{"more":1}`: "",
		`{"wake":{"subscriberUrl":"/chat/p","condition":"runFinished"}}`: "/wake", `{"parent":"/chat/p","wake":{"subscriberUrl":"/chat/p","condition":"never"}}`: "/wake/condition",
	} {
		a := r.refused(400, "INVALID_REQUEST", kyle, "POST", fork, body)
		if !strings.Contains(string(a.body), place) {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	r.refused(404, "NOT_FOUND", kyle, "POST", fork, `{"parent":"/chat/none"}`)
	r.refused(401, "UNAUTHORIZED", kyle, "POST", fork, `{"parent":"/chat/hers"}`)
	r.refused(401, "UNAUTHORIZED", kyle, "POST", fork, `{"parent":"/chat/p","wake":{"subscriberUrl":"/chat/hers","condition":"runFinished"}}`)
	r.db.Exec(t, `insert into rouse.streams (service_id, path, content_type, is_json) values (1, 'chat/plain/main', 'text/plain', false)`)
	if a := r.refused(409, "STREAM_EXISTS", kyle, "POST", fork, `{"instance_id":"plain"}`); !strings.HasPrefix(a.str("detail"), "The plain stream /chat/plain/") {
		t.Error(a.body)
	}
	n := r.count(`select count(*) from rouse.entities`)

	r.must(201, kyle, "POST", fork, `{"waitTimeoutMs":1e300}`) // waits no longer than it has to, and than is allowed
	n += 2

	// Under a parent, which may be the source itself, and is woken by it.
	a := r.must(201, kyle, "POST", fork, `{"parent":"/chat/p","wake":{"subscriberUrl":"/chat/p","condition":"runFinished","manifestKey":"child:chat:x"},"initialMessage":"hi"}`)
	if a.str("root.parent") != "/chat/p" {
		t.Errorf("%s", a.body)
	}
	if rows := r.whole(a.str("root.url")); rows[len(rows)-1]["value"].(map[string]any)["from"] != "/chat/p" {
		t.Errorf("%v", rows[len(rows)-1])
	}
	if n := r.count(`select count(*) from rouse.observers where subscriber_url = '/chat/p' and source_url = $1 and manifest_key = 'child:chat:x'`, a.str("root.url")); n != 1 {
		t.Error("the parent is not woken by its fork")
	}
	if got := r.count(`select count(*) from rouse.entities`); got != n+2 {
		t.Errorf("%d entities came of it", got-n)
	}

	// Another's runner.
	r.must(201, mallory, "POST", "/_electric/runners", `{"id":"pc","label":"PC"}`)
	r.must(201, mallory, "PUT", at+"/chat/run", `{"dispatch_policy":{"targets":[{"type":"runner","runnerId":"pc"}]},"grants":[`+granted("principal", "user:kyle", "manage", "")+`]}`)
	r.refused(403, "RUNNER_FORBIDDEN", kyle, "POST", at+"/chat/run/fork", "")
	r.must(201, mallory, "POST", at+"/chat/run/fork", "")

	// At work, and ended.
	r.db.Exec(t, `update rouse.entities set status = 'running' where url = '/chat/c'`)
	busy := r.refused(409, "FORK_WAIT_TIMEOUT", kyle, "POST", fork, `{"waitTimeoutMs":1}`)
	if got := fmt.Sprint(busy.get("error.details.active")); got != "[/chat/c]" {
		t.Errorf("active: %s in %s", got, busy.body)
	}
	r.db.Exec(t, `update rouse.entities set status = 'idle' where url = '/chat/c'`)
	r.must(200, kyle, "DELETE", at+"/chat/c", "")
	r.refused(409, "NOT_RUNNING", kyle, "POST", fork, "")
}

// A fork waits for its sources, and takes what came while it waited.
func TestForkWaitsForItsSources(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/p", "")
	r.db.Exec(t, `update rouse.entities set status = 'running' where url = '/chat/p'`)
	done := make(chan answer)
	go func() { done <- r.as(kyle, "POST", "/_electric/entities/chat/p/fork", `{"waitTimeoutMs":20000}`) }()
	r.write("/chat/p", event("insert", "text", "late", `1`))
	r.db.Exec(t, `update rouse.entities set status = 'idle' where url = '/chat/p'`)
	a := <-done
	if a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if rows := r.whole(a.str("root.url")); len(rows) != 3 || rows[1]["key"] != "late" {
		t.Errorf("%v", rows)
	}
	// A gateway that is going to stop keeps nobody waiting.
	r.db.Exec(t, `update rouse.entities set status = 'running' where url = '/chat/p'`)
	go func() { done <- r.as(kyle, "POST", "/_electric/entities/chat/p/fork", `{"waitTimeoutMs":20000}`) }()
	r.c.Drain()
	if a := <-done; a.status != 503 || a.code() != "SERVER_STOPPING" {
		t.Errorf("%d %s", a.status, a.body)
	}
	r.db.Exec(t, `update rouse.entities set status = 'idle' where url = '/chat/p'`)
	// The tree is being changed by somebody else.
	tx, err := r.db.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select rouse._entity_root(1, '/chat/p', true)`); err != nil {
		t.Fatal(err)
	}
	r.refused(409, "FORK_IN_PROGRESS", kyle, "POST", "/_electric/entities/chat/p/fork", `{"waitTimeoutMs":0}`)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Appends, spawns and forks at once: every fork is a moment of its source.
func TestForksAmongAppends(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/p", "")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for k := range 10 {
				if a := r.as(kyle, "POST", "/_electric/entities/chat/p/send", fmt.Sprintf(`{"payload":1,"key":"%d-%d"}`, i, k)); a.status != 200 {
					t.Errorf("%d %s", a.status, a.body)
				}
				if k%5 == 4 {
					if a := r.as(kyle, "PUT", fmt.Sprintf("/_electric/entities/chat/c-%d-%d", i, k), `{"parent":"/chat/p"}`); a.status != 201 {
						t.Errorf("%d %s", a.status, a.body)
					}
				}
			}
		})
	}
	roots := make([]string, 4)
	for i := range roots {
		wg.Go(func() {
			if a := r.as(kyle, "POST", "/_electric/entities/chat/p/fork", ""); a.status == 201 {
				roots[i] = a.str("root.url")
			} else {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	wg.Wait()
	source := r.whole("/chat/p")
	for _, root := range roots {
		if root == "" {
			continue
		}
		for i, m := range r.whole(root) {
			if m["headers"].(map[string]any)["forkedFrom"] != nil {
				break
			}
			if fmt.Sprint(m) != fmt.Sprint(source[i]) {
				t.Errorf("row %d of %s is %v, not %v", i, root, m, source[i])
			}
		}
	}
}

// Wherever a stream is cut, the fork begins with exactly the messages before it
// and the manifest that they come to, however they lie in appends.
func TestForkPointersAreTheModels(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		url := fmt.Sprintf("/chat/r%d", round)
		r.must(201, kyle, "PUT", "/_electric/entities"+url, "")
		type place struct {
			offset string
			index  int // of the first message behind it
		}
		messages := []string{""} // the creation
		places := []place{{"", 0}}
		for range rapid.IntRange(1, 5).Draw(rt, "appends") {
			var batch []string
			for range rapid.IntRange(1, 4).Draw(rt, "messages") {
				key := fmt.Sprintf("k%d", rapid.IntRange(0, 2).Draw(rt, "key"))
				op := rapid.SampledFrom([]string{"insert", "update", "delete"}).Draw(rt, "operation")
				if op == "delete" {
					batch = append(batch, event(op, "manifest", key, ""))
				} else {
					batch = append(batch, event(op, rapid.SampledFrom([]string{"manifest", "text", "m\\u0061nifest"}).Draw(rt, "type"), key, fmt.Sprintf(`{"kind":"effect","n":%d,"s":"a,]}\""}`, len(messages)+len(batch))))
				}
			}
			for i := range batch {
				batch[i] = strings.ReplaceAll(batch[i], `\\u`, `\u`)
			}
			end := r.write(url, batch...)
			messages = append(messages, batch...)
			places = append(places, place{end, len(messages)})
		}
		p := rapid.SampledFrom(places).Draw(rt, "offset")
		if p.index == len(messages) {
			p = places[0]
		}
		sub := rapid.IntRange(1, len(messages)-p.index).Draw(rt, "sub")
		offset := "null"
		if p.offset != "" {
			offset = `"` + p.offset + `"`
		}
		a := r.as(kyle, "POST", "/_electric/entities"+url+"/fork", fmt.Sprintf(`{"fork_pointer":{"offset":%s,"sub_offset":%d}}`, offset, sub))
		if a.status != 201 {
			rt.Fatalf("%d %s", a.status, a.body)
		}
		all, source := r.whole(a.str("root.url")), r.whole(url)
		n := p.index + sub
		if len(all) != n+1 || fmt.Sprint(all[:n]) != fmt.Sprint(source[:n]) {
			rt.Fatalf("the fork has %d messages, want %d and one of its own:\n%v\n%v", len(all), n, all, source[:n])
		}
		if got, want := fmt.Sprint(manifestOf(all)), fmt.Sprint(manifestOf(source[:n])); got != want {
			rt.Fatalf("manifest %s, want %s", got, want)
		}
	})
}

// A shared state that forked entities use is forked once for all of them; one
// that only stands in a manifest is somebody else's and stays so.
func TestForksShareTheirOwnState(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/p", "")
	r.must(201, kyle, "PUT", "/_electric/entities/chat/c", `{"parent":"/chat/p"}`)
	for _, id := range []string{"board", "secret"} {
		r.db.Exec(t, `with s as (insert into rouse.streams (service_id, path, kind, owner, content_type, is_json, tail)
			values (1, '_electric/shared-state/' || $1, 'shared', '/principal/user%3Amallory', 'application/json', true, 7) returning id)
			insert into rouse.messages (stream_id, position, payload, count) select id, 7, '{"a":1}', 1 from s`, id)
	}
	r.db.Exec(t, `insert into rouse.shared_state_links (service_id, path, entity_url, manifest_key)
		values (1, '_electric/shared-state/board', '/chat/p', 'shared-state:board'), (1, '_electric/shared-state/board', '/chat/c', 'x'), (1, '_electric/shared-state/secret', '/chat/hers', 'x')`)
	r.write("/chat/p", event("insert", "manifest", "shared-state:board", `{"key":"shared-state:board","kind":"shared-state","id":"board","wake":{"on":"change"}}`),
		event("insert", "manifest", "shared-state:secret", `{"key":"shared-state:secret","kind":"shared-state","id":"secret"}`))
	r.write("/chat/c", event("insert", "manifest", "source:db:board", `{"key":"source:db:board","kind":"source","sourceType":"db","sourceRef":"board","config":{"id":"board"}}`))
	root, all := forked(r.must(201, kyle, "POST", "/_electric/entities/chat/p/fork", ""))
	var path string
	if err := r.db.Conn(t).QueryRow(t.Context(), `select s.path from rouse.streams s join rouse.streams f on f.id = s.forked_from
		where s.kind = 'shared' and f.path = '_electric/shared-state/board' and s.tail = 7`).Scan(&path); err != nil {
		t.Fatal(err)
	}
	id := strings.TrimPrefix(path, "_electric/shared-state/")
	if n := r.count(`select count(*) from rouse.shared_state_links where path = $1 and entity_url in ($2, $3)`, path, root, all[1]); n != 2 {
		t.Errorf("%d links", n)
	}
	m := manifestOf(r.whole(root))
	if !strings.Contains(m["shared-state:"+id], `"id":"`+id+`"`) || m["shared-state:board"] != "" || !strings.Contains(m["shared-state:secret"], `"id":"secret"`) {
		t.Errorf("%v", m)
	}
	if m := manifestOf(r.whole(all[1])); !strings.Contains(m["source:db:"+id], `"id":"`+id+`"`) {
		t.Errorf("%v", m)
	}
	if n := r.count(`select count(*) from rouse.streams where kind = 'shared'`); n != 3 {
		t.Errorf("%d shared states", n)
	}
	// What the forks' manifests ask for is read from the fork on.
	if n := r.count(`select count(*) from rouse.observers o join rouse.streams s on s.id = o.stream_id
		where o.kind = 'manifest' and o.subscriber_url in ($1, $2) and o.acked < s.tail and o.behind`, root, all[1]); n != 2 {
		t.Errorf("%d manifests are to be read", n)
	}
}

// What holders write is read leniently: no shape of a row keeps an entity from
// being forked, and what is understood counts.
func TestForksOfOddStreams(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/p", "")
	for _, odd := range []string{`1`, `null`, `"manifest"`, `[]`, `{"type":1,"key":"manifest"}`, `{"type":"manifest"}`, `{"type":"manifest","key":"a"}`, `{"type":"manifest","key":"b","value":[1],"headers":7}`,
		`{"type":"manifest","key":"\u0000","value":{"kind":"child","entity_url":"\u0000"},"headers":{"operation":"insert"}}`,
		`{"type":"manifest","key":"n","value":{"kind":"attachment","id":"\u0000","streamPath":7},"headers":{"operation":"insert"}}`,
		`{"type":"manifest","key":"m","value":{"kind":"attachment","id":"none","streamPath":"/chat/p/attachments/none"},"headers":{"operation":"insert"}}`,
		`{"type":"manifest","key":"s","value":{"kind":"shared-state","id":"../../x","config":"\ud800"},"headers":{"operation":"upsert"}}`,
		`{"type":"manifest","key":"t","value":{"kind":"schedule","payload":1e999999,"targetUrl":"/chat/p"}}`,
		"{\"type\":\"manifest\",\"key\":\"u\",\"value\":{\"kind\":\"observe\",\"x\":\"\xff\"}}",
		`{"type":"child_status","key":"c","value":{"entity_url":{}}}`, `{"type":"replay_watermark","key":"c","value":{"source_id":[]}}`,
		`{"type":"manifest","key":"last","value":{"kind":"effect"},"headers":{"operation":"insert"}}`} {
		r.write("/chat/p", odd)
	}
	for _, body := range []string{"", `{"fork_pointer":{"offset":null,"sub_offset":18}}`} {
		root, _ := forked(r.must(201, kyle, "POST", "/_electric/entities/chat/p/fork", body))
		if n := r.count(`select count(*) from rouse.messages m join rouse.streams s on s.id = m.stream_id
			where s.path = $1 and convert_from(m.payload, 'UTF8') like '%1e999999%'`, root[1:]+"/main"); n != 1 {
			t.Errorf("%s: the schedule is told %d times", body, n)
		}
	}
}

// A fork makes everything that was asked for or nothing.
func TestForksAreWholeOrRefused(t *testing.T) {
	t.Parallel()
	var told atomic.Int32
	r := newRig(t, func(c *Config) { c.Changed, c.Poke = func() { told.Add(1) }, func() { told.Add(100) } })
	const at = "/_electric/entities"
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", at+"/chat/p", "")
	r.must(201, kyle, "PUT", at+"/chat/q", "")
	r.grant(kyle, "/chat/p", granted("principal", "user:mallory", "fork", ""))
	r.grant(kyle, "/chat/q", granted("principal", "user:mallory", "spawn", ""))
	told.Store(0)
	r.must(201, kyle, "PUT", at+"/chat/w", `{"wake":{"subscriberUrl":"/chat/q","condition":"runFinished","timeoutMs":1}}`)
	if told.Load() != 101 {
		t.Error("those who follow entities and registrations are not told of a spawn")
	}
	n := r.count(`select count(*) from rouse.entities`)

	// To wake the parent one has to be able to write it.
	body := `{"parent":"/chat/q","wake":{"subscriberUrl":"/chat/q","condition":"runFinished"}}`
	r.refused(401, "UNAUTHORIZED", mallory, "POST", at+"/chat/p/fork", body)
	// A stranger's stream has the name of one of the fork's files.
	file := r.attach(kyle, "/chat/p", "a.txt", "text/plain", []byte("file"))
	r.db.Exec(t, `insert into rouse.streams (service_id, path, content_type, is_json) values (1, 'chat/squatted/attachments/' || $1, 'text/plain', false)`, file)
	r.refused(409, "STREAM_EXISTS", kyle, "POST", at+"/chat/p/fork", `{"instance_id":"squatted"}`)
	if got := r.count(`select count(*) from rouse.entities`); got != n {
		t.Errorf("%d entities came of what was refused", got-n)
	}

	r.grant(kyle, "/chat/q", granted("principal", "user:mallory", "write", ""))
	told.Store(0)
	root, _ := forked(r.must(201, mallory, "POST", at+"/chat/p/fork", body))
	if n := r.count(`select count(*) from rouse.observers where subscriber_url = '/chat/q' and source_url = $1`, root); n != 1 {
		t.Error("the parent is not woken by its fork")
	}
	if told.Load() != 101 {
		t.Error("those who follow entities and registrations are not told of a fork")
	}

	// Of more descendants than are looked at, those that are named are not left out.
	r.db.Exec(t, `insert into rouse.entities (service_id, url, type, parent, created_by, consumer_id)
		select 1, '/chat/many-' || n, 'chat', '/chat/p', '/principal/user%3Akyle', 0 from generate_series(1, 501) n`)
	r.must(201, kyle, "PUT", at+"/chat/c", `{"parent":"/chat/p"}`)
	r.write("/chat/p", event("insert", "manifest", "child:chat:c", `{"kind":"child","entity_type":"chat","entity_url":"/chat/c"}`), event("update", "run", "r", `{"status":"completed"}`))
	if a := r.as(kyle, "POST", at+"/chat/p/fork", `{"anchor":"latest_completed_run","waitTimeoutMs":0}`); a.status == 201 {
		if _, all := forked(a); len(all) != 2 {
			t.Errorf("of the root and its one child %v are forked", all)
		}
	} else if a.status != 400 || a.code() != "INVALID_REQUEST" {
		t.Errorf("%d %s", a.status, a.body)
	}
}
