package control

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"mime/multipart"
	"net/textproto"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// upload is a form with a file; fields are pairs.
func upload(t testing.TB, filename, mimeType string, content []byte, fields ...string) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := 0; i < len(fields); i += 2 {
		if err := w.WriteField(fields[i], fields[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	h := textproto.MIMEHeader{}
	h.Set("Content-Disposition", multipart.FileContentDisposition("file", filename))
	if mimeType != "" {
		h.Set("Content-Type", mimeType)
	}
	p, err := w.CreatePart(h)
	if err == nil {
		_, err = p.Write(content)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), w.FormDataContentType()
}

const subject = `{"type":"inbox","key":"m1"}`

// attach uploads a file and returns its id.
func (r *rig) attach(who, entity, filename, mimeType string, content []byte, fields ...string) string {
	r.t.Helper()
	body, ct := upload(r.t, filename, mimeType, content, append(fields, "subject", subject)...)
	return r.must(201, who, "POST", "/_electric/entities"+entity+"/attachments", body, "Content-Type", ct).str("attachment.id")
}

func TestAttachments(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", "")
	const at = "/_electric/entities/chat/1/attachments"
	content := bytes.Repeat([]byte("0123456789\r\n--boundary\x00\xff"), 200_000) // several pieces
	sum := sha256.Sum256(content)
	body, ct := upload(t, "plan.bin", "application/x-thing", content, "subject", subject, "meta", `{"n":12345678901234567890}`, "role", "output", "id", "a.1")
	a := r.must(201, kyle, "POST", at, body, "Content-Type", ct)
	row := r.last("/chat/1")
	h, v := row["headers"].(map[string]any), row["value"].(map[string]any)
	if uuid.Validate(a.str("txid")) != nil || h["txid"] != a.str("txid") || h["operation"] != "upsert" || row["type"] != "manifest" || row["key"] != "attachment:a.1" || r.asksForAttention("/chat/1") {
		t.Errorf("%v", row)
	}
	for member, want := range map[string]any{"kind": "attachment", "id": "a.1", "key": "attachment:a.1", "streamPath": "/chat/1/attachments/a.1", "status": "complete", "role": "output",
		"mimeType": "application/x-thing", "filename": "plan.bin", "byteLength": float64(len(content)), "sha256": hex.EncodeToString(sum[:]), "createdBy": "/principal/user%3Akyle"} {
		if v[member] != want || a.get("attachment."+member) != want {
			t.Errorf("%s: %v and %v, want %v", member, v[member], a.get("attachment."+member), want)
		}
	}
	if a.str("attachment.subject.type") != "inbox" || a.str("attachment.subject.key") != "m1" || !strings.Contains(string(a.body), "12345678901234567890") {
		t.Errorf("%s", a.body)
	}
	if n := r.count(`select count(*) from rouse.messages m join rouse.streams s on s.id = m.stream_id
		where s.path = 'chat/1/attachments/a.1' and s.kind = 'attachment' and s.closed_at is not null and octet_length(m.payload) <= 1048576`); n != 5 {
		t.Errorf("%d pieces", n)
	}
	g := r.must(200, kyle, "GET", at+"/a.1", "")
	if !bytes.Equal(g.body, content) || g.header.Get("Content-Type") != "application/x-thing" || g.header.Get("Content-Length") != fmt.Sprint(len(content)) ||
		g.header.Get("Content-Disposition") != `attachment; filename="plan.bin"; filename*=UTF-8''plan.bin` || !strings.Contains(g.header.Get("Cache-Control"), "private") {
		t.Errorf("%d bytes, %v", len(g.body), g.header)
	}
	// A copy is kept, and whether it is still good and its reader let is asked each time.
	if etag := g.header.Get("ETag"); etag != `"`+hex.EncodeToString(sum[:])+`"` || !strings.Contains(g.header.Get("Cache-Control"), "no-cache") {
		t.Errorf("%v", g.header)
	} else if again := r.must(304, kyle, "GET", at+"/a.1", "", "If-None-Match", etag); len(again.body) != 0 {
		t.Errorf("%d bytes", len(again.body))
	} else {
		r.refused(401, "UNAUTHORIZED", mallory, "GET", at+"/a.1", "", "If-None-Match", etag)
		r.must(200, kyle, "GET", at+"/a.1", "", "If-None-Match", `"other"`)
	}
	if h := r.must(200, kyle, "HEAD", at+"/a.1", ""); len(h.body) != 0 || h.header.Get("Content-Length") != fmt.Sprint(len(content)) {
		t.Errorf("HEAD: %v", h.header)
	}
	r.refused(409, "STREAM_EXISTS", kyle, "POST", at, body, "Content-Type", ct)

	// An empty file, JSON, and what the browser says of a file.
	for name, tc := range map[string]struct {
		mimeType, content, want string
		fields                  []string
	}{
		"empty":    {"text/plain; charset=utf-8", "", "text/plain; charset=utf-8", nil},
		"json":     {"application/json", `{"a":1}`, "application/json", nil},
		"untyped":  {"", "x", "application/octet-stream", nil},
		"by field": {"text/plain", "x", "image/png", []string{"mimeType", "image/png"}},
		"html":     {"text/html", "<script>", "text/html", nil},
	} {
		id := r.attach(kyle, "/chat/1", "f", tc.mimeType, []byte(tc.content), tc.fields...)
		g := r.must(200, kyle, "GET", at+"/"+id, "")
		if string(g.body) != tc.content || g.header.Get("Content-Type") != tc.want || !strings.HasPrefix(g.header.Get("Content-Disposition"), "attachment") {
			t.Errorf("%s: %q, %v", name, g.body, g.header)
		}
	}

	// Who may.
	r.refused(401, "UNAUTHORIZED", mallory, "GET", at+"/a.1", "")
	r.refused(401, "UNAUTHORIZED", mallory, "DELETE", at+"/a.1", "")
	r.refused(401, "UNAUTHORIZED", mallory, "POST", at, body, "Content-Type", ct)
	r.grant(kyle, "/chat/1", granted("principal", "user:mallory", "read", ""))
	r.must(200, mallory, "GET", at+"/a.1", "")
	r.refused(401, "UNAUTHORIZED", mallory, "DELETE", at+"/a.1", "")
	r.refused(401, "UNAUTHORIZED", mallory, "POST", at, body, "Content-Type", ct)
	r.grant(kyle, "/chat/1", granted("principal", "user:mallory", "write", ""))
	theirs := r.attach(mallory, "/chat/1", "x", "", []byte("x"))
	r.must(200, mallory, "DELETE", at+"/"+theirs, "")

	// What is not there.
	r.refused(404, "NOT_FOUND", kyle, "GET", at+"/"+theirs, "")
	r.refused(404, "NOT_FOUND", kyle, "GET", at+"/..x/y", "")
	for _, method := range []string{"GET", "DELETE"} {
		r.refused(404, "NOT_FOUND", kyle, method, at+"/none", "")
		r.refused(404, "NOT_FOUND", kyle, method, "/_electric/entities/chat/none/attachments/a", "")
		r.refused(404, "UNKNOWN_ENTITY_TYPE", kyle, method, "/_electric/entities/none/none/attachments/a", "")
	}
	r.refused(404, "NOT_FOUND", kyle, "POST", "/_electric/entities/chat/none/attachments", body, "Content-Type", ct)
	r.refused(404, "UNKNOWN_ENTITY_TYPE", kyle, "POST", "/_electric/entities/none/none/attachments", body, "Content-Type", ct)
	r.refused(400, "INVALID_REQUEST", kyle, "POST", "/_electric/entities/principal/user:kyle/attachments", body, "Content-Type", ct)

	del := r.must(200, kyle, "DELETE", at+"/a.1", "")
	if row := r.last("/chat/1"); row["key"] != "attachment:a.1" || row["headers"].(map[string]any)["operation"] != "delete" || row["headers"].(map[string]any)["txid"] != del.str("txid") {
		t.Errorf("%v", row)
	}
	r.refused(404, "NOT_FOUND", kyle, "GET", at+"/a.1", "")
	if n := r.count(`select count(*) from rouse.streams where path = 'chat/1/attachments/a.1'`); n != 0 {
		t.Error("the stream of a removed attachment still has its name")
	}
	r.must(201, kyle, "POST", at, body, "Content-Type", ct) // the name is free again
	r.must(200, kyle, "DELETE", "/_electric/entities/chat/1", "")
	r.refused(409, "NOT_RUNNING", kyle, "POST", at, body, "Content-Type", ct)
	r.refused(409, "NOT_RUNNING", kyle, "DELETE", at+"/a.1", "")
	r.must(200, kyle, "GET", at+"/a.1", "")
}

// A file name in any script, with whatever a header cannot hold.
func TestAttachmentNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"":                           `attachment`,
		"a b.txt":                    `attachment; filename="a b.txt"; filename*=UTF-8''a%20b.txt`,
		"Überschrift\u202f日本語 🎉.pdf": `attachment; filename="_berschrift____ _.pdf"; filename*=UTF-8''%C3%9Cberschrift%E2%80%AF%E6%97%A5%E6%9C%AC%E8%AA%9E%20%F0%9F%8E%89.pdf`,
		`q"u\o%te;'.txt`:             `attachment; filename="q_u_o_te;'.txt"; filename*=UTF-8''q%22u%5Co%25te%3B%27.txt`,
	} {
		if got := disposition(name); got != want {
			t.Errorf("%q:\n got %s\nwant %s", name, got, want)
		}
	}
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", "")
	id := r.attach(kyle, "/chat/1", "日本\u202f語.pdf", "application/pdf", []byte("x"))
	if d := r.must(200, kyle, "GET", "/_electric/entities/chat/1/attachments/"+id, "").header.Get("Content-Disposition"); !strings.Contains(d, "UTF-8''%E6%97%A5") {
		t.Error(d)
	}
	id = r.attach(kyle, "/chat/1", "x", "", []byte("x"), "filename", `C:\dir\..\evil.sh`)
	if d := r.must(200, kyle, "GET", "/_electric/entities/chat/1/attachments/"+id, "").header.Get("Content-Disposition"); !strings.HasPrefix(d, `attachment; filename="evil.sh"`) {
		t.Error(d)
	}
}

func TestAttachmentFormsAreChecked(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", "")
	const at = "/_electric/entities/chat/1/attachments"
	for place, fields := range map[string][]string{
		"/subject/type": {"subjectType", "secret-value", "subjectKey", "k"},
		"/subject/key":  {"subjectType", "run"},
		"/subject":      {"subject", `{"type":"run","key":"k"`},
		"/role":         {"subject", subject, "role", "secret-value"},
		"/id":           {"subject", subject, "id", "a/secret-value"},
		"/meta":         {"subject", subject, "meta", `["secret-value"]`},
		"/mimeType":     {"subject", subject, "mimeType", "secret-value"},
		"/filename":     {"subject", subject, "filename", strings.Repeat("x", 256)},
		"/":             {"subject", subject, "meta", "{\"a\":\"\xff\"}"},
	} {
		body, ct := upload(t, "f", "", []byte("x"), fields...)
		a := r.refused(400, "INVALID_REQUEST", kyle, "POST", at, body, "Content-Type", ct)
		if !strings.Contains(string(a.body), fmt.Sprintf("%q", place)) || strings.Contains(string(a.body), "secret-value") {
			t.Errorf("%s: %s", place, a.body)
		}
	}
	good, ct := upload(t, "f", "", []byte("x"), "subject", subject)
	for name, tc := range map[string]struct{ body, contentType string }{
		"no form":         {good, "application/json"},
		"no type":         {good, ""},
		"no boundary":     {good, "multipart/form-data"},
		"cut off":         {good[:len(good)-20], ct},
		"another's":       {good, "multipart/form-data; boundary=other"},
		"empty":           {"", ct},
		"no file":         {"--b\r\nContent-Disposition: form-data; name=\"subject\"\r\n\r\nx\r\n--b--\r\n", "multipart/form-data; boundary=b"},
		"a field twice":   {"--b\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\nx\r\n--b\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\nx\r\n--b--\r\n", "multipart/form-data; boundary=b"},
		"two files":       {"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--b--\r\n", "multipart/form-data; boundary=b"},
		"line feeds only": {"--b\nContent-Disposition: form-data; name=\"file\"\n\nx\n--b--\n", "multipart/form-data; boundary=b"},
		"many fields": {strings.Repeat("--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\nx\r\n", 1) + manyFields() + "--b--\r\n",
			"multipart/form-data; boundary=b"},
	} {
		if a := r.refused(400, "INVALID_REQUEST", kyle, "POST", at, tc.body, "Content-Type", tc.contentType); a.status != 400 {
			t.Errorf("%s", name)
		}
	}
	large, ct := upload(t, "f", "", make([]byte, maxAttachment+1), "subject", subject)
	r.refused(413, "PAYLOAD_TOO_LARGE", kyle, "POST", at, large, "Content-Type", ct)
	large, ct = upload(t, "f", "", make([]byte, maxAttachment+(maxParts+1)*maxField), "subject", subject)
	r.refused(413, "PAYLOAD_TOO_LARGE", kyle, "POST", at, large, "Content-Type", ct)
	large, ct = upload(t, "f", "", []byte("x"), "meta", strings.Repeat("x", maxField+1))
	r.refused(413, "PAYLOAD_TOO_LARGE", kyle, "POST", at, large, "Content-Type", ct)
	if n := r.count(`select count(*) from rouse.streams where kind = 'attachment' or path like '%attachments%'`); n != 0 {
		t.Errorf("%d streams came of refused files", n)
	}
	whole, ct := upload(t, "f", "", make([]byte, maxAttachment), "subject", subject)
	id := r.must(201, kyle, "POST", at, whole, "Content-Type", ct).str("attachment.id")
	if g := r.must(200, kyle, "GET", at+"/"+id, ""); len(g.body) != maxAttachment {
		t.Errorf("%d bytes came back", len(g.body))
	}
	if held := r.c.cfg.Bodies.Held(); held != 0 {
		t.Errorf("%d bytes of bodies are still held", held)
	}
}

func manyFields() string {
	var b strings.Builder
	for i := range maxParts {
		fmt.Fprintf(&b, "--b\r\nContent-Disposition: form-data; name=\"f%d\"\r\n\r\nx\r\n", i)
	}
	return b.String()
}

// Whatever a form holds, the file is the part's content and nothing else, and
// what cannot be read is refused.
func FuzzAttachmentForms(f *testing.F) {
	f.Add([]byte("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\nabc\r\n--b--\r\n"))
	f.Add([]byte("preamble\r\n--b\r\nContent-Disposition: form-data; name=\"id\"\r\n\r\n1\r\n--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n\r\n\r\n--b--"))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := parseForm(body, "b")
		if err != nil {
			return
		}
		mr := multipart.NewReader(bytes.NewReader(body), "b")
		for {
			p, err := mr.NextRawPart()
			if err != nil {
				t.Fatalf("a form without a file was taken: %v", err)
			}
			if p.FormName() != "file" {
				continue
			}
			want, err := io.ReadAll(p)
			if err != nil || !bytes.Equal(got.file, want) {
				t.Fatalf("the file is %q, want %q (%v)", got.file, want, err)
			}
			return
		}
	})
}
