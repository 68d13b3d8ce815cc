package store

import (
	"encoding/json"
	"testing"
)

// A file that goes piece by piece is refused as a small one is, and leaves
// nothing behind then.
func TestALargeFileIsAttachedWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	mustSpawn(t, s, spawnRequest("/chat/1"))
	mustSpawn(t, s, spawnRequest("/chat/dead"))
	if _, err := s.EntitySignal(t.Context(), 1, "/chat/dead", kyle, "SIGKILL", "sig-1", "", nil); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `insert into rouse.streams (service_id, path, content_type, is_json) values (1, 'chat/1/attachments/plain', 'text/plain', false)`)
	large := make([]byte, 2*attachmentPiece+1)
	for i := range large {
		large[i] = byte(i / 1000)
	}
	const event = `{"headers":{"operation":"upsert"},"type":"manifest","key":"attachment:x","value":{}}`
	for _, bytes := range [][]byte{large, []byte("small")} {
		for _, tc := range []struct{ url, principal, id, want string }{
			{"/chat/none", kyle, "a", "not_found"}, {"/chat/1", mallory, "a", "forbidden"}, {"/chat/dead", kyle, "a", "not_running"},
			{"/chat/1", kyle, "plain", "path_taken"},
		} {
			before := count(t, db, `select count(*) + (select count(*) from rouse.messages) + (select count(*) from rouse.audit_log) from rouse.streams`)
			got, err := s.AttachmentPut(t.Context(), 1, tc.url, tc.principal, kyle, Attachment{ID: tc.id, ContentType: "text/plain", Bytes: bytes, Manifest: json.RawMessage(`{}`)}, event)
			if err != nil || got != tc.want {
				t.Errorf("%+v with %d bytes: %s, %v", tc, len(bytes), got, err)
			}
			if after := count(t, db, `select count(*) + (select count(*) from rouse.messages) + (select count(*) from rouse.audit_log) from rouse.streams`); after != before {
				t.Errorf("%+v with %d bytes leaves %d rows", tc, len(bytes), after-before)
			}
		}
	}
	ctx := WithOrigin(t.Context(), `{"address":"10.0.0.1"}`)
	put := func() string {
		t.Helper()
		got, err := s.AttachmentPut(ctx, 1, "/chat/1", "", kyle, Attachment{ID: "big", ContentType: "text/plain", Bytes: large, Manifest: json.RawMessage(`{"n":1}`)}, event)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := put(); got != "created" {
		t.Fatal(got)
	}
	if got := put(); got != "exists" {
		t.Errorf("the same again: %s", got)
	}
	outcome, stream, size, _, err := s.AttachmentGet(t.Context(), 1, "/chat/1", kyle, "big")
	if err != nil || outcome != "ok" || size != int64(len(large)) {
		t.Fatalf("%s, %d bytes, %v", outcome, size, err)
	}
	var read []byte
	for at := int64(0); at < size; {
		p, err := s.StreamRead(t.Context(), ReadRequest{ID: stream, From: &at, MaxBytes: 1 << 20, MaxRows: 1})
		if err != nil || p.Outcome != OK {
			t.Fatalf("%+v, %v", p.Outcome, err)
		}
		read, at = append(read, p.Data...), p.Next
	}
	if string(read) != string(large) {
		t.Error("other bytes are read than were written")
	}
	if n := count(t, db, `select count(*) from rouse.audit_log where action = 'entity.attach' and resource = '/chat/1' and (detail ->> 'bytes')::bigint = $1 and detail::text like '%10.0.0.1%'`, len(large)); n != 1 {
		t.Errorf("%d audit rows", n)
	}
}
