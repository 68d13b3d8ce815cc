package control

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
)

// rows reads an entity's stream as State Protocol messages.
func (r *rig) rows(url string) []map[string]any {
	r.t.Helper()
	var text string
	if err := r.db.Conn(r.t).QueryRow(r.t.Context(), `select '[' || string_agg(convert_from(m.payload, 'UTF8'), ',' order by m.position) || ']'
		from rouse.messages m join rouse.streams s on s.id = m.stream_id where s.path = substr($1, 2) || '/main'`, url).Scan(&text); err != nil {
		r.t.Fatal(err)
	}
	var out []map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		r.t.Fatalf("%s: %v", text, err)
	}
	return out
}

func TestSend(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":"","inbox_schemas":{"order":{"type":"object","required":["sku"]}}}`)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"closed","description":"","inbox_schemas":{}}`)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"free","description":""}`)
	for _, typ := range []string{"chat", "closed", "free"} {
		r.must(201, kyle, "PUT", "/_electric/entities/"+typ+"/1", "")
	}
	const at = "/_electric/entities/chat/1/send"
	a := r.must(200, kyle, "POST", at, `{"payload":{"n":12345678901234567890,"h":"<&>"},"from":"/principal/user%3Akyle","from_principal":"user:kyle","position":"a0"}`)
	if uuid.Validate(a.str("txid")) != nil || !strings.HasPrefix(a.str("key"), "msg-in-") || a.header.Get("Stream-Next-Offset") != a.str("offset") {
		t.Errorf("%s", a.body)
	}
	rows := r.rows("/chat/1")
	m := rows[1]
	v := m["value"].(map[string]any)
	if m["type"] != "inbox" || m["key"] != a.str("key") || m["headers"].(map[string]any)["txid"] != a.str("txid") || v["from"] != "/principal/user%3Akyle" ||
		v["mode"] != "immediate" || v["status"] != "processed" || v["processed_at"] == nil || v["position"] != "a0" || v["from_principal"] != "/principal/user%3Akyle" {
		t.Errorf("row %v", m)
	}
	if n := r.count(`select count(*) from rouse.messages where position(convert_to('12345678901234567890', 'UTF8') in payload) > 0 and position(convert_to('<&>', 'UTF8') in payload) > 0 and stamps = '{12}'`); n != 1 {
		t.Error("the payload's bytes were changed, or the message has no stamp")
	}
	if n := r.count(`select count(*) from rouse.streams where path = 'chat/1/main' and pending and actionable = tail`); n != 1 {
		t.Error("the message asks for no attention")
	}
	if first := rows[0]; first["type"] != "entity_created" || first["key"] != "entity-created" || first["value"].(map[string]any)["entity_type"] != "chat" {
		t.Errorf("first row %v", first)
	}
	for mode, pending := range map[string]bool{"queued": true, "steer": false, "paused": true} {
		r.must(200, kyle, "POST", at, `{"payload":1,"mode":"`+mode+`"}`)
		rows := r.rows("/chat/1")
		v := rows[len(rows)-1]["value"].(map[string]any)
		position, _ := v["position"].(string)
		if v["mode"] != mode || (v["status"] == "pending") != pending || (v["processed_at"] == nil) != pending || (len(position) == len("0000000000000000:a0")) != pending {
			t.Errorf("%s: %v", mode, v)
		}
	}
	r.must(200, kyle, "POST", at, `{"payload":1,"mode":"queued","position":"a7"}`)
	if rows := r.rows("/chat/1"); rows[len(rows)-1]["value"].(map[string]any)["position"] != "a7" {
		t.Errorf("the client's position is lost: %v", rows[len(rows)-1])
	}
	r.must(200, kyle, "POST", at, `{"payload":null}`)
	r.must(200, kyle, "POST", at, `{"payload":{"sku":"a"},"type":"order"}`)
	bad := r.refused(422, "SCHEMA_VALIDATION_FAILED", kyle, "POST", at, `{"payload":{"sku-secret":"a"},"type":"order"}`)
	if !strings.Contains(string(bad.body), `"path":"/payload"`) || strings.Contains(string(bad.body), "secret") {
		t.Errorf("%s", bad.body)
	}
	r.refused(422, "UNKNOWN_MESSAGE_TYPE", kyle, "POST", at, `{"payload":1,"type":"none"}`)
	r.refused(422, "UNKNOWN_MESSAGE_TYPE", kyle, "POST", "/_electric/entities/closed/1/send", `{"payload":1,"type":"any"}`)
	r.must(200, kyle, "POST", "/_electric/entities/closed/1/send", `{"payload":1}`)
	r.must(200, kyle, "POST", "/_electric/entities/free/1/send", `{"payload":1,"type":"any"}`)
	// What the type adds later counts for entities that exist.
	r.must(200, kyle, "PATCH", "/_electric/entity-types/chat/schemas", `{"inbox_schemas":{"late":{"type":"string"}}}`)
	r.must(200, kyle, "POST", at, `{"payload":"x","type":"late"}`)

	r.refused(404, "NOT_FOUND", kyle, "POST", "/_electric/entities/chat/none/send", `{"payload":1}`)
	r.refused(404, "UNKNOWN_ENTITY_TYPE", kyle, "POST", "/_electric/entities/none/none/send", `{"payload":1}`)
	r.refused(401, "UNAUTHORIZED", mallory, "POST", at, `{"payload":1}`)
	r.refused(400, "INVALID_REQUEST", kyle, "POST", at, `{"payload":1,"from":"/principal/user%3Amallory"}`)
	r.refused(400, "INVALID_REQUEST", kyle, "POST", at, `{"payload":1,"from_agent":"/chat/1"}`)
	r.refused(400, "INVALID_REQUEST", kyle, "POST", at, `{"payload":1,"from_agent":"/chat/1"}`, "electric-claim-token", "rouse_wt_junk")
}

func TestInitialMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":"","inbox_schemas":{"order":{"type":"string"}}}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", `{"initialMessage":"hello","initialMessageType":"order"}`)
	if rows := r.rows("/chat/1"); len(rows) != 2 || rows[1]["value"].(map[string]any)["payload"] != "hello" || rows[1]["value"].(map[string]any)["message_type"] != "order" {
		t.Errorf("%v", rows)
	}
	if n := r.count(`select count(*) from rouse.streams where pending and actionable = tail`); n != 1 {
		t.Error("the first message asks for no attention")
	}
	r.refused(422, "UNKNOWN_MESSAGE_TYPE", kyle, "PUT", "/_electric/entities/chat/2", `{"initialMessage":"hello","initialMessageType":"none"}`)
	r.refused(422, "SCHEMA_VALIDATION_FAILED", kyle, "PUT", "/_electric/entities/chat/2", `{"initialMessage":7,"initialMessageType":"order"}`)
	r.refused(404, "NOT_FOUND", kyle, "GET", "/_electric/entities/chat/2", "")
}

// A send that is repeated with its key lands once, whoever retries at once.
func TestIdempotentSends(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", "")
	const at = "/_electric/entities/chat/1/send"
	var mu sync.Mutex
	got := map[string]int{}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			a := r.as(kyle, "POST", at, `{"payload":"once"}`, "Idempotency-Key", "k-1")
			mu.Lock()
			defer mu.Unlock()
			got[fmt.Sprint(a.status, a.str("txid"), a.str("key"), a.str("offset"))]++
		})
	}
	wg.Wait()
	if len(got) != 1 {
		t.Errorf("answers differ: %v", got)
	}
	first := r.must(200, kyle, "POST", at, `{"payload":"twice","key":"mine"}`)
	second := r.must(200, kyle, "POST", at, `{"payload":"twice","key":"mine"}`)
	if string(first.body) != string(second.body) || first.str("key") != "mine" {
		t.Errorf("%s %s", first.body, second.body)
	}
	r.must(200, kyle, "POST", at, `{"payload":"other"}`, "Idempotency-Key", "k-2")
	if rows := r.rows("/chat/1"); len(rows) != 4 {
		t.Errorf("%d rows", len(rows))
	}
}

func TestSendToAPausedEntityResumesIt(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", "")
	status := func() string { return r.must(200, kyle, "GET", "/_electric/entities/chat/1", "").str("status") }
	r.must(200, kyle, "POST", "/_electric/entities/chat/1/signal", `{"signal":"SIGSTOP"}`)
	r.must(200, kyle, "POST", "/_electric/entities/chat/1/send", `{"payload":1,"mode":"paused"}`)
	if got := status(); got != "paused" {
		t.Errorf("after a paused message: %s", got)
	}
	r.must(200, kyle, "POST", "/_electric/entities/chat/1/send", `{"payload":1}`)
	if got := status(); got != "idle" {
		t.Errorf("after a message: %s", got)
	}
}
