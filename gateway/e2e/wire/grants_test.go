package wire_test

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/e2e/wire"
)

func grantBody(value, permission, more string) string {
	kind := "principal"
	if !strings.Contains(value, ":") {
		kind = "principal_kind"
	}
	return fmt.Sprintf(`{"subject_kind":%q,"subject_value":%q,"permission":%q%s}`, kind, value, permission, more)
}

// grant gives a permission on an entity and returns the grant's path.
func (r *rig) grant(f things, body string) string {
	r.t.Helper()
	a := r.must(201, r.kyle, "POST", f.ctl()+"/grants", body)
	return fmt.Sprintf("%s/grants/%.0f", f.ctl(), field(a, "id"))
}

// attach uploads a text file and returns the path of its stream.
func (r *rig) attach(f things, content string) string {
	r.t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreateFormFile("file", "a.txt")
	if err == nil {
		_, err = part.Write([]byte(content))
	}
	for _, kv := range [][2]string{{"subject", `{"type":"inbox","key":"m"}`}, {"mimeType", "text/plain"}} {
		if err == nil {
			err = w.WriteField(kv[0], kv[1])
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	a := r.must(201, r.kyle, "POST", f.ctl()+"/attachments", b.String(), "Content-Type", w.FormDataContentType())
	path, _ := field(a, "attachment.streamPath").(string)
	return path
}

// The streams of an entity open to whom it lets read, in each way of reading,
// and to nobody else; a grant that is taken back or runs out ends that.
func TestStreamsOpenToWhomTheirEntityLetsRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, c := r.worked()
	r.must(204, r.kyle, "POST", "/"+f.Entity+"/error", `{"headers":{"operation":"insert"},"type":"error","key":"e","value":{}}`, tokenHeader(c.WriteToken)...)
	file := r.attach(f, "content")
	agent := &wire.Client{Base: r.kyle.Base, Principal: "agent:reader", HTTP: r.hc}
	reads := func() (out []string) {
		for _, path := range []string{f.main(), "/" + f.Entity + "/error", file} {
			out = append(out, "GET "+path, "HEAD "+path, "GET "+path+"?offset=-1", "GET /v1/stream"+path+"?offset=now", "GET "+path+"?offset=-1&live=long-poll")
		}
		return append(out, "GET "+f.ctl()+"/attachments/"+file[strings.LastIndex(file, "/")+1:])
	}()
	check := func(when string, who *wire.Client, status int) {
		t.Helper()
		for _, read := range reads {
			method, path, _ := strings.Cut(read, " ")
			if a := r.call(who, method, path, ""); a.Status != status {
				t.Errorf("%s: %s: %v, want %d", when, read, a, status)
			}
		}
	}
	check("the owner", r.kyle, 200)
	check("the system", r.nobody, 200)
	check("another", r.mallory, 401)
	for _, other := range []string{grantBody("user:mallory", "write", ""), grantBody("user:mallory", "fork", ""), grantBody("user:third", "read", ""), grantBody("agent", "read", ""),
		grantBody("user:mallory", "read", `,"expires_at":"2020-01-01T00:00:00Z"`)} {
		r.grant(f, other)
	}
	check("granted everything else", r.mallory, 401)
	check("by kind", agent, 200)
	mine := r.grant(f, grantBody("user:mallory", "read", `,"expires_at":"2999-01-01T00:00:00Z"`))
	check("by name", r.mallory, 200)
	// Reading is not writing.
	for _, path := range []string{f.main(), file, "/" + f.Entity + "/error", "/" + f.Entity + "/attachments/none"} {
		r.refused(401, "UNAUTHORIZED", r.mallory, "POST", path, `{}`)
		r.refused(403, "PATH_RESERVED", r.mallory, "PUT", path, `{}`)
	}
	r.must(204, r.kyle, "DELETE", mine, "")
	r.eventually("the grant that was taken back counts no more", func() bool { return r.call(r.mallory, "HEAD", f.main(), "").Status == 401 })
	check("taken back", r.mallory, 401)
}

// Whoever asks: files are made, changed and removed by their routes only.
func TestAttachmentStreamsAreTheEntitys(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, c := r.worked()
	file := r.attach(f, "content")
	for _, who := range []*wire.Client{r.kyle, r.mallory, r.nobody} {
		for _, path := range []string{file, "/" + f.Entity + "/attachments/new", "/v1/stream" + file, strings.ReplaceAll(file[1:], "/", "%2F")} {
			if path[0] != '/' {
				path = "/" + path
			}
			r.refused(403, "PATH_RESERVED", who, "PUT", path, "x", "Content-Type", "text/plain")
			r.refused(401, "UNAUTHORIZED", who, "POST", path, "x", "Content-Type", "text/plain")
			r.refused(401, "UNAUTHORIZED", who, "POST", path, "x", "Content-Type", "text/plain", "electric-claim-token", c.WriteToken)
			if !strings.HasSuffix(path, "new") {
				r.refused(403, "PATH_RESERVED", who, "DELETE", path, "")
			}
		}
	}
	if a := r.must(200, r.kyle, "GET", file, ""); string(a.Raw) != "content" || a.Header.Get("Stream-Closed") != "true" || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/plain") || !strings.HasPrefix(a.Header.Get("Cache-Control"), "private") {
		t.Errorf("%q, %v", a.Raw, a.Header)
	}
	// Where there is no entity the name is anybody's.
	r.must(201, r.mallory, "PUT", "/plain/x/attachments/y", "x", "Content-Type", "text/plain")
	r.must(204, r.nobody, "POST", "/plain/x/attachments/y", "x", "Content-Type", "text/plain")
}

// A fork reads as one stream through every mount, is woken by its first message
// with a claim of its own, and its holder writes to it alone.
func TestForksAreEntitiesOfTheirOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, c := r.worked()
	r.must(204, r.kyle, "POST", f.main(), `{"headers":{"operation":"insert"},"type":"text","key":"t","value":{"n":1}}`, tokenHeader(c.WriteToken)...)
	r.done(f, c, r.tail(f.main()))
	source, _, _ := r.kyle.All(t.Context(), f.main())
	a := r.must(201, r.kyle, "POST", f.ctl()+"/fork", `{"instance_id":"twin","initialMessage":"go on"}`)
	twin := things{Type: f.Type, Entity: f.Type + "/twin", Runner: f.Runner}
	if field(a, "root.url") != "/"+twin.Entity || field(a, "root.streams.main") != twin.main() {
		t.Fatalf("%s", a.Raw)
	}
	e := r.woken(f, 2)
	if !strings.Contains(string(e.raw), twin.Entity+"/main") {
		t.Fatalf("woken for %s", e.raw)
	}
	claim := r.claimed(twin, e)
	if claim.ConsumerID == c.ConsumerID || claim.Epoch != 1 || claim.StreamPath != twin.main() {
		t.Errorf("%v: %s", claim, claim.Raw)
	}
	r.refused(401, "UNAUTHORIZED", r.kyle, "POST", f.main(), `{"headers":{"operation":"insert"},"type":"text","key":"t","value":1}`, tokenHeader(claim.WriteToken)...)
	r.must(204, r.kyle, "POST", twin.main(), `{"headers":{"operation":"insert"},"type":"text","key":"u","value":{"n":2}}`, tokenHeader(claim.WriteToken)...)
	for _, mount := range []string{"", "/v1/stream"} {
		all, _, _ := r.kyle.All(t.Context(), mount+twin.main())
		if len(all) != len(source)+3 {
			t.Fatalf("%d messages, want those of the source, the fork's own creation, the message and what the holder wrote: %s", len(all), all)
		}
		for i := range source {
			if string(all[i]) != string(source[i]) {
				t.Errorf("message %d is %s, not %s", i, all[i], source[i])
			}
		}
	}
	r.done(twin, claim, r.tail(twin.main()))
	if now, _, _ := r.kyle.All(t.Context(), f.main()); len(now) != len(source) {
		t.Errorf("the source has %d messages more", len(now)-len(source))
	}
	r.must(200, r.kyle, "DELETE", f.ctl(), "")
	r.must(200, r.kyle, "POST", twin.ctl()+"/send", `{"payload":"still here"}`)
	r.woken(f, 3)
}

// A principal's own stream, by its escaped url as bodies have it.
func TestAPrincipalReadsItsOwnStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	a := r.must(200, r.kyle, "GET", "/_electric/entities/principal/user%3Akyle", "")
	main, _ := field(a, "streams.main").(string)
	if main != "/principal/user%3Akyle/main" {
		t.Fatalf("%s", a.Raw)
	}
	r.must(200, r.kyle, "POST", "/_electric/entities/principal/user:kyle/send", `{"payload":"note"}`)
	for _, path := range []string{main, "/principal/user:kyle/main"} {
		if all, _, a := r.kyle.All(t.Context(), path); len(all) != 2 {
			t.Errorf("%s: %v, %s", path, a, all)
		}
		r.refused(401, "UNAUTHORIZED", r.mallory, "GET", path, "")
		r.refused(403, "PATH_RESERVED", r.kyle, "PUT", path, "")
		r.refused(403, "PATH_RESERVED", r.kyle, "POST", path, `{}`)
	}
	r.must(201, r.kyle, "POST", "/_electric/entities/principal/user:kyle/grants", grantBody("user:mallory", "read", ""))
	r.must(200, r.mallory, "GET", main, "")
}

// A message speaks for an agent if the agent itself sends it, or by the write
// token of the claim under which that agent is held now, and by nothing else.
func TestWhoSpeaksForAnAgent(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, c := r.worked()
	_, other := r.worked()
	g := r.fresh()
	body := func(agent string) string { return fmt.Sprintf(`{"payload":1,"from_agent":%q}`, agent) }
	told := func(want string) {
		t.Helper()
		all, _, _ := r.kyle.All(t.Context(), g.main())
		if last := string(all[len(all)-1]); !strings.Contains(last, fmt.Sprintf(`"from_agent":%q`, want)) || !strings.Contains(last, `"from":"/principal/`) {
			t.Errorf("told as %s, want from_agent %s", last, want)
		}
	}
	agent := "/" + f.Entity
	r.must(200, r.kyle, "POST", g.ctl()+"/send", body(agent), tokenHeader(c.WriteToken)...)
	told(agent)
	r.must(200, r.kyle, "POST", g.ctl()+"/send", body(r.kyle.Base+agent), "Authorization", "Bearer "+c.WriteToken)
	told(agent)
	r.must(200, r.kyle, "POST", g.ctl()+"/send", body("user:kyle"))
	told("/principal/user%3Akyle")
	worker := &wire.Client{Base: r.kyle.Base, Principal: "agent:worker", HTTP: r.hc}
	r.refused(401, "UNAUTHORIZED", worker, "POST", g.ctl()+"/send", body("/worker"))
	r.grant(g, grantBody("agent:worker", "write", ""))
	r.must(200, worker, "POST", g.ctl()+"/send", body("/worker"))
	told("/worker")
	n := r.tail(g.main())
	for _, header := range [][]string{nil, tokenHeader("junk"), tokenHeader(c.ClaimToken), tokenHeader(other.WriteToken)} {
		r.refused(400, "INVALID_REQUEST", r.kyle, "POST", g.ctl()+"/send", body(agent), header...)
	}
	for _, name := range []string{"/none/none", "", "chat", "agent:worker", "/", "http://", "\\u0000"} {
		if name != "" {
			r.refused(400, "INVALID_REQUEST", r.kyle, "POST", g.ctl()+"/send", body(name), tokenHeader(c.WriteToken)...)
		}
	}
	r.done(f, c, r.tail(f.main()))
	r.refused(400, "INVALID_REQUEST", r.kyle, "POST", g.ctl()+"/send", body(agent), tokenHeader(c.WriteToken)...)
	if after := r.tail(g.main()); after != n {
		t.Error("what was refused was sent")
	}
}
