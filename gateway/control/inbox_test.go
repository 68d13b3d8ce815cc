package control

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// last is the newest row of an entity's stream.
func (r *rig) last(url string) map[string]any {
	r.t.Helper()
	rows := r.rows(url)
	return rows[len(rows)-1]
}

// asksForAttention says whether the last row of an entity's stream wakes.
func (r *rig) asksForAttention(url string) bool {
	return r.count(`select count(*) from rouse.streams where path = substr($1, 2) || '/main' and actionable = tail`, url) == 1
}

func TestInboxEdits(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", "")
	const at = "/_electric/entities/chat/1/inbox/"
	r.must(200, kyle, "POST", "/_electric/entities/chat/1/send", `{"payload":"draft","mode":"queued","key":"m/1"}`)
	for body, wakes := range map[string]bool{
		`{"payload":{"n":12345678901234567890}}`: true, `{"payload":null}`: true, `{"position":"a1"}`: true, `{"position":""}`: true, `{"mode":"steer"}`: true,
		`{"status":"pending"}`: true, `{"status":"processed"}`: false, `{"status":"cancelled","mode":"paused"}`: false,
	} {
		a := r.must(200, kyle, "PATCH", at+"m/1", body)
		row := r.last("/chat/1")
		h := row["headers"].(map[string]any)
		if uuid.Validate(a.str("txid")) != nil || row["type"] != "inbox" || row["key"] != "m/1" || h["operation"] != "update" || h["txid"] != a.str("txid") {
			t.Errorf("%s: %v, %s", body, row, a.body)
		}
		v := row["value"].(map[string]any)
		for _, member := range []string{"payload", "position", "mode", "status"} {
			if _, told := v[member]; told != strings.Contains(body, `"`+member+`"`) {
				t.Errorf("%s: %s in %v", body, member, v)
			}
		}
		if (v["processed_at"] != nil) != strings.Contains(body, "processed") || (v["cancelled_at"] != nil) != strings.Contains(body, "cancelled") {
			t.Errorf("%s: %v", body, v)
		}
		if r.asksForAttention("/chat/1") != wakes {
			t.Errorf("%s: wakes %v", body, !wakes)
		}
	}
	a := r.must(200, kyle, "DELETE", at+"m%2F1", "")
	if row := r.last("/chat/1"); row["key"] != "m/1" || row["headers"].(map[string]any)["operation"] != "delete" || row["headers"].(map[string]any)["txid"] != a.str("txid") || row["value"] != nil || r.asksForAttention("/chat/1") {
		t.Errorf("%v", row)
	}
	for _, bad := range []string{``, `{}`, `{"mode":"later"}`, `{"status":"lost"}`, `{"position":7}`, `{"position":"` + strings.Repeat("x", 257) + `"}`, `{"more":1}`, `[]`} {
		r.refused(400, "INVALID_REQUEST", kyle, "PATCH", at+"m", bad)
	}
	r.refused(400, "INVALID_REQUEST", kyle, "DELETE", at+strings.Repeat("k", 257), "")
	for _, m := range []struct{ method, body string }{{"PATCH", `{"mode":"queued"}`}, {"DELETE", ""}} {
		r.refused(401, "UNAUTHORIZED", mallory, m.method, at+"m", m.body)
		r.refused(404, "NOT_FOUND", kyle, m.method, "/_electric/entities/chat/none/inbox/m", m.body)
		r.refused(404, "UNKNOWN_ENTITY_TYPE", kyle, m.method, "/_electric/entities/none/none/inbox/m", m.body)
	}
	r.grant(kyle, "/chat/1", granted("principal", "user:mallory", "write", ""))
	r.must(200, mallory, "PATCH", at+"m", `{"mode":"queued"}`)
	r.must(200, kyle, "DELETE", "/_electric/entities/chat/1", "")
	r.refused(409, "NOT_RUNNING", kyle, "PATCH", at+"m", `{"mode":"queued"}`)
	r.refused(409, "NOT_RUNNING", kyle, "DELETE", at+"m", "")
}

func TestCollections(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":"",
		"state_schemas":{"state:comments":{"type":"object","required":["body"],"properties":{"body":{"type":"string"}},"additionalProperties":false}},
		"externally_writable_collections":{"comments":{"type":"state:comments","contract":"comments/v1"},"todo":{"type":"todo","operations":["insert","update","delete"]}}}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", "")
	const at = "/_electric/entities/chat/1/collections/"
	a := r.must(201, kyle, "POST", at+"comments", `{"operation":"insert","value":{"body":"<hi> 12345678901234567890"}}`)
	row := r.last("/chat/1")
	h := row["headers"].(map[string]any)
	if uuid.Validate(a.str("key")) != nil || row["key"] != a.str("key") || row["type"] != "state:comments" || h["operation"] != "insert" || h["txid"] != a.str("txid") ||
		h["principal"].(map[string]any)["url"] != "/principal/user%3Akyle" || h["principal"].(map[string]any)["kind"] != "user" || h["principal"].(map[string]any)["id"] != "kyle" ||
		row["value"].(map[string]any)["body"] != "<hi> 12345678901234567890" || !r.asksForAttention("/chat/1") {
		t.Errorf("%v, %s", row, a.body)
	}
	if a := r.must(201, kyle, "POST", at+"todo", `{"operation":"insert","key":"t1","value":null}`); a.str("key") != "t1" {
		t.Errorf("%s", a.body)
	}
	r.must(200, kyle, "POST", at+"todo", `{"operation":"update","key":"t1","value":{"done":true}}`)
	r.must(200, kyle, "POST", at+"todo", `{"operation":"delete","key":"t1"}`)
	if row := r.last("/chat/1"); row["type"] != "todo" || row["key"] != "t1" || row["value"] != nil || row["headers"].(map[string]any)["operation"] != "delete" {
		t.Errorf("%v", row)
	}
	n := len(r.rows("/chat/1"))
	for name, op := range map[string]string{"none": "insert", "comments": "delete", "state:comments": "insert"} {
		r.refused(403, "FORBIDDEN", kyle, "POST", at+name, fmt.Sprintf(`{"operation":%q,"key":"k","value":{"body":"x"}}`, op))
	}
	bad := r.refused(422, "SCHEMA_VALIDATION_FAILED", kyle, "POST", at+"comments", `{"operation":"insert","value":{"body":4242424242}}`)
	if !strings.Contains(string(bad.body), `"/value/body"`) || strings.Contains(string(bad.body), "4242424242") {
		t.Errorf("%s", bad.body)
	}
	for _, body := range []string{``, `{}`, `{"operation":"upsert","value":1}`, `{"operation":"insert"}`, `{"operation":"update","value":1}`, `{"operation":"delete"}`,
		`{"operation":"insert","key":7,"value":1}`, `{"operation":"insert","key":"` + strings.Repeat("x", 257) + `","value":1}`, `{"operation":"insert","value":1,"more":1}`} {
		r.refused(400, "INVALID_REQUEST", kyle, "POST", at+"todo", body)
	}
	const good = `{"operation":"insert","value":{"body":"x"}}`
	r.refused(401, "UNAUTHORIZED", mallory, "POST", at+"comments", good)
	r.refused(404, "NOT_FOUND", kyle, "POST", "/_electric/entities/chat/none/collections/comments", good)
	r.refused(404, "UNKNOWN_ENTITY_TYPE", kyle, "POST", "/_electric/entities/none/none/collections/comments", good)
	if m := len(r.rows("/chat/1")); m != n {
		t.Errorf("%d rows came of refused writes", m-n)
	}
	r.grant(kyle, "/chat/1", granted("principal_kind", "user", "write", ""))
	r.must(201, mallory, "POST", at+"comments", good)
	r.must(200, kyle, "DELETE", "/_electric/entities/chat/1", "")
	r.refused(409, "NOT_RUNNING", kyle, "POST", at+"comments", good)

	for _, set := range []string{`[]`, `"x"`, `{"c":1}`, `{"c":{}}`, `{"c":{"type":""}}`, `{"c":{"type":7}}`, `{"c":{"type":"inbox"}}`, `{"c":{"type":"x","operations":["upsert"]}}`,
		`{"c":{"type":"x","operations":"insert"}}`, `{"c":{"type":"x","more":1}}`, `{"":{"type":"x"}}`, `{"comments":{"type":"state:comments"}}`,
		`{"comments":{"type":"state:comments","contract":"comments/v2"}}`, `{"talk":{"type":"state:talk","contract":"comments/v1"}}`} {
		a := r.refused(400, "INVALID_REQUEST", kyle, "POST", "/_electric/entity-types", `{"name":"bad","description":"","externally_writable_collections":`+set+`}`)
		if !strings.Contains(string(a.body), "/externally_writable_collections") {
			t.Errorf("%s: %s", set, a.body)
		}
	}
}
