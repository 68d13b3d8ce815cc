package control

import (
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/store"
)

func TestRetentionOfAPlainStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if _, err := r.c.cfg.Store.StreamCreate(t.Context(), store.CreateRequest{Service: 1, Path: "notes/a b", ContentType: "text/plain", Count: 1}); err != nil {
		t.Fatal(err)
	}
	var offsets []string
	for _, text := range []string{"one", "two", "three"} {
		got, err := r.c.cfg.Appender.Append(t.Context(), store.AppendItem{Service: 1, Path: "notes/a b", Type: "text/plain", Payload: []byte(text), Count: 1})
		if err != nil {
			t.Fatal(err)
		}
		offsets = append(offsets, store.FormatOffset(got.Position))
	}
	for _, at := range []string{"/_electric/retention/streams/notes/a%20b", "/_electric/retention/streams/notes%2Fa%20b"} {
		a := r.must(200, kyle, "GET", at, "")
		if a.get("source") != "none" || a.get("bytes") != 11.0 || a.get("stream") != "/notes/a b" || a.get("next_offset") != offsets[2] {
			t.Fatalf("%s", a.body)
		}
	}
	const at = "/_electric/retention/streams/notes/a%20b"
	a := r.must(200, kyle, "PUT", at, `{"max_age_seconds":86400,"max_bytes":1000000}`)
	if a.get("source") != "stream" || a.get("max_age_seconds") != 86400.0 || a.get("max_bytes") != 1e6 || a.get("max_messages") != nil {
		t.Fatalf("%s", a.body)
	}
	// All is replaced; nothing limited is a rule, too.
	if a = r.must(200, kyle, "PUT", at, `{"max_messages":7}`); a.get("max_bytes") != nil || a.get("max_messages") != 7.0 {
		t.Fatalf("%s", a.body)
	}
	if a = r.must(200, kyle, "PUT", at, `{}`); a.get("source") != "stream" {
		t.Fatalf("%s", a.body)
	}
	r.must(204, kyle, "DELETE", at, "")
	r.must(204, kyle, "DELETE", at, "")
	if a = r.must(200, kyle, "GET", at, ""); a.get("source") != "none" {
		t.Fatalf("%s", a.body)
	}

	a = r.must(200, kyle, "POST", at, `{"before":"`+offsets[0]+`"}`)
	if a.get("trimmed") != true || a.get("earliest_offset") != offsets[0] || a.get("next_offset") != offsets[2] || a.get("limited_by") != nil {
		t.Fatalf("%s", a.body)
	}
	if a = r.must(200, kyle, "POST", at, `{"before":"-1"}`); a.get("trimmed") != false || a.get("earliest_offset") != offsets[0] {
		t.Fatalf("%s", a.body)
	}
	// Somebody has still to read it.
	r.db.Exec(t, `insert into rouse.observers (service_id, stream_id, kind, subscriber_url, acked, behind, source_path, source_url, principal)
		select 1, id, 'wake', '/x/y', $1, true, path, '/' || path, '' from rouse.streams where path = 'notes/a b'`, 6)
	if a = r.must(200, kyle, "POST", at, `{"before":"now"}`); a.get("earliest_offset") != offsets[1] || a.get("limited_by") != "cursor" {
		t.Fatalf("%s", a.body)
	}
	if a = r.must(200, kyle, "POST", at, `{"before":"now","force":true}`); a.get("earliest_offset") != offsets[2] {
		t.Fatalf("%s", a.body)
	}
	if got := r.str(`select string_agg(action || coalesce(' ' || (detail ->> 'force'), ''), ', ' order by id) from rouse.audit_log where resource = '/notes/a b'`); got !=
		"retention.put, retention.put, retention.put, retention.delete, stream.trim false, stream.trim false, stream.trim false, stream.trim true" {
		t.Fatal(got)
	}

	r.refused(404, "STREAM_NOT_FOUND", kyle, "GET", "/_electric/retention/streams/nowhere", "")
	r.refused(404, "STREAM_NOT_FOUND", kyle, "PUT", "/_electric/retention/streams/nowhere", `{}`)
	r.refused(404, "STREAM_NOT_FOUND", kyle, "POST", "/_electric/retention/streams/nowhere", `{"before":"now"}`)
	for _, bad := range []string{`{"max_age_seconds":0}`, `{"max_bytes":-1}`, `{"max_messages":1.5}`, `{"max_age_seconds":99999999999999}`, `{"max_age":5}`, `[]`} {
		r.refused(400, "INVALID_REQUEST", kyle, "PUT", at, bad)
	}
	for _, bad := range []string{`{"before":"soon"}`, `{"before":""}`, `{"before":"` + store.FormatOffset(99) + `"}`} {
		r.refused(400, "OFFSET_INVALID", kyle, "POST", at, bad)
	}
	r.refused(400, "INVALID_REQUEST", kyle, "POST", at, `{}`)
	r.refused(400, "INVALID_PATH", kyle, "GET", "/_electric/retention/streams/a%00b", "")
}

func TestRetentionOfEntities(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", "")
	const main, typ = "/_electric/retention/streams/chat/1/main", "/_electric/retention/types/chat"
	r.must(200, kyle, "PUT", main, `{"max_messages":5}`)
	r.refused(401, "UNAUTHORIZED", mallory, "GET", main, "")
	r.refused(401, "UNAUTHORIZED", mallory, "PUT", main, `{}`)
	r.refused(401, "UNAUTHORIZED", mallory, "POST", main, `{"before":"now"}`)
	// Reading lets one see it, managing change it.
	r.grant(kyle, "/chat/1", `{"subject_kind":"principal","subject_value":"user:mallory","permission":"read"}`)
	r.must(200, mallory, "GET", main, "")
	r.refused(401, "UNAUTHORIZED", mallory, "DELETE", main, "")
	r.grant(kyle, "/chat/1", `{"subject_kind":"principal","subject_value":"user:mallory","permission":"manage"}`)
	r.must(204, mallory, "DELETE", main, "")
	r.must(201, kyle, "POST", "/_electric/runners", `{"id":"mac","label":"Mac"}`)
	wakes := "/_electric/retention/streams/runners/mac/wake"
	r.must(200, kyle, "GET", wakes, "")
	r.refused(401, "UNAUTHORIZED", mallory, "GET", wakes, "")
	r.refused(403, "PATH_RESERVED", kyle, "PUT", wakes, `{}`)
	r.refused(403, "PATH_RESERVED", kyle, "POST", wakes, `{"before":"now","force":true}`)

	if a := r.must(200, kyle, "GET", typ, ""); strings.TrimSpace(string(a.body)) != "{}" {
		t.Fatalf("%s", a.body)
	}
	r.must(200, kyle, "PUT", typ, `{"max_age_seconds":604800}`)
	if a := r.must(200, kyle, "GET", typ, ""); a.get("max_age_seconds") != 604800.0 {
		t.Fatalf("%s", a.body)
	}
	r.refused(401, "UNAUTHORIZED", mallory, "PUT", typ, `{}`)
	r.refused(404, "NOT_FOUND", kyle, "PUT", "/_electric/retention/types/none", `{}`)
	if _, err := r.c.cfg.Store.RetentionAdopt(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	if a := r.must(200, kyle, "GET", main, ""); a.get("source") != "type" || a.get("entity_type") != "chat" || a.get("max_age_seconds") != 604800.0 {
		t.Fatalf("%s", a.body)
	}
	r.must(204, kyle, "DELETE", typ, "")
	if a := r.must(200, kyle, "GET", main, ""); a.get("source") != "none" {
		t.Fatalf("%s", a.body)
	}
	if _, err := r.c.cfg.Store.RetentionStreams(t.Context(), 1000, time.Minute); err != nil {
		t.Fatal(err)
	}
	if n := r.count(`select count(*) from rouse.stream_retention`); n != 0 {
		t.Fatalf("%d rows without limits", n)
	}
	// Whoever registers the name next does not inherit them.
	r.must(200, kyle, "PUT", typ, `{"max_messages":1}`)
	r.must(204, kyle, "DELETE", "/_electric/entity-types/chat", "")
	r.must(201, mallory, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	if a := r.must(200, mallory, "GET", typ, ""); a.get("max_messages") != nil {
		t.Fatalf("%s", a.body)
	}
}
