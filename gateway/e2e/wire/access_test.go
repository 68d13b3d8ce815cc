package wire_test

import (
	"bytes"
	"fmt"
	"mime/multipart"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
)

// route is one route with what its owner and another are answered. {T}, {E} and
// {R} stand for a type, an entity and a runner that kyle has just made.
type route struct {
	method, path, body string
	owner              int
	other              int
	code               string // of the other's refusal
}

// Every control route and every way to a stream of the gateway, for its owner,
// another, nobody (whom `dev` lets do everything) and somebody whose principal
// is garbled, who must not pass for nobody. Types are spawned by their registrar.
func TestWhoMayCallARoute(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *config.Config) { c.TypeSpawn = "registrar" })
	routes := []route{
		{"POST", "/_electric/entity-types", `{"name":"{T}","description":"y"}`, 201, 401, "UNAUTHORIZED"},
		{"GET", "/_electric/entity-types", "", 200, 200, ""},
		{"GET", "/_electric/entity-types/", "", 200, 200, ""},
		{"GET", "/_electric/entity-types/{T}", "", 200, 401, "UNAUTHORIZED"},
		{"PATCH", "/_electric/entity-types/{T}/schemas", `{"inbox_schemas":{"n":{}}}`, 200, 401, "UNAUTHORIZED"},
		{"DELETE", "/_electric/entity-types/{T}", "", 204, 401, "UNAUTHORIZED"},

		{"GET", "/_electric/entities", "", 200, 200, ""},
		{"GET", "/_electric/entities/?type={T}", "", 200, 200, ""},
		{"PUT", "/_electric/entities/{T}/new", "", 201, 401, "UNAUTHORIZED"},
		{"PUT", "/_electric/entities/{T}/child", `{"parent":"/{E}"}`, 201, 401, "UNAUTHORIZED"},
		{"GET", "/_electric/entities/{E}", "", 200, 401, "UNAUTHORIZED"},
		{"HEAD", "/_electric/entities/{E}", "", 200, 401, ""},
		{"DELETE", "/_electric/entities/{E}", "", 200, 401, "UNAUTHORIZED"},
		{"POST", "/_electric/entities/{E}/signal", `{"signal":"SIGHUP"}`, 200, 401, "UNAUTHORIZED"},
		{"POST", "/_electric/entities/{E}/send", `{"payload":1}`, 200, 401, "UNAUTHORIZED"},
		{"POST", "/_electric/entities/{E}/tags/k", `{"value":"v"}`, 200, 401, "UNAUTHORIZED"},
		{"DELETE", "/_electric/entities/{E}/tags/k", "", 200, 401, "UNAUTHORIZED"},
		{"GET", "/_electric/entities/{E}/display", "", 200, 401, "UNAUTHORIZED"},
		{"GET", "/_electric/entities/{E}/dispatch", "", 200, 401, "UNAUTHORIZED"},
		{"GET", "/_electric/entities/{E}/claims", "", 200, 401, "UNAUTHORIZED"},
		{"GET", "/_electric/entities/{E}/wakes", "", 200, 401, "UNAUTHORIZED"},

		{"POST", "/_electric/runners", `{"id":"{R}","label":"Mine"}`, 201, 403, "RUNNER_FORBIDDEN"},
		{"GET", "/_electric/runners", "", 200, 200, ""},
		{"GET", "/_electric/runners/{R}", "", 200, 403, "RUNNER_FORBIDDEN"},
		{"GET", "/_electric/runners/{R}/health", "", 200, 403, "RUNNER_FORBIDDEN"},
		{"POST", "/_electric/runners/{R}/heartbeat", `{"lease_ms":90000}`, 200, 403, "RUNNER_FORBIDDEN"},
		{"POST", "/_electric/runners/{R}/disable", "", 200, 403, "RUNNER_FORBIDDEN"},
		{"POST", "/_electric/runners/{R}/enable", "", 200, 403, "RUNNER_FORBIDDEN"},
		{"POST", "/_electric/runners/{R}/claim", "", 204, 403, "RUNNER_FORBIDDEN"},

		{"GET", "/{E}/main", "", 200, 401, "UNAUTHORIZED"},
		{"HEAD", "/{E}/main", "", 200, 401, ""},
		{"GET", "/v1/stream/{E}/main?offset=-1", "", 200, 401, "UNAUTHORIZED"},
		{"GET", "/{E}/main?offset=now", "", 200, 401, "UNAUTHORIZED"},
		{"GET", "/runners/{R}/wake?offset=-1", "", 200, 403, "RUNNER_FORBIDDEN"},
		{"HEAD", "/runners/{R}/wake", "", 200, 403, ""},
	}
	r.tryAll(routes, func(things) []string { return nil })
}

// The same for the routes around an entity: what it grants, files, schedules,
// observes, and what others may change of it.
func TestWhoMayCallARouteAroundAnEntity(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *config.Config) { c.TypeSpawn = "registrar" })
	const grant = `{"subject_kind":"principal","subject_value":"/principal/user%3Athird","permission":"spawn"}`
	const cron = `{"scheduleType":"cron","expression":"0 0 1 1 *","payload":1}`
	routes := []route{
		{"GET", "/_electric/entity-types/{T}/grants", "", 200, 401, "UNAUTHORIZED"},
		{"POST", "/_electric/entity-types/{T}/grants", grant, 201, 401, "UNAUTHORIZED"},
		{"DELETE", "/_electric/entity-types/{T}/grants/{TG}", "", 204, 401, "UNAUTHORIZED"},
		{"GET", "/_electric/entities/{Q}/grants", "", 200, 401, "UNAUTHORIZED"},
		{"POST", "/_electric/entities/{Q}/grants", grant, 201, 401, "UNAUTHORIZED"},
		{"DELETE", "/_electric/entities/{Q}/grants/{EG}", "", 204, 401, "UNAUTHORIZED"},
		{"POST", "/_electric/entities/{Q}/fork", `{"instance_id":"fork"}`, 201, 401, "UNAUTHORIZED"},
		{"POST", "/_electric/entities/{Q}/collections/notes", `{"operation":"insert","key":"n","value":{}}`, 201, 401, "UNAUTHORIZED"},
		{"PATCH", "/_electric/entities/{Q}/inbox/queued", `{"position":"b"}`, 200, 401, "UNAUTHORIZED"},
		{"DELETE", "/_electric/entities/{Q}/inbox/queued", "", 200, 401, "UNAUTHORIZED"},
		{"PUT", "/_electric/entities/{Q}/schedules/other", cron, 200, 401, "UNAUTHORIZED"},
		{"PUT", "/_electric/entities/{Q}/schedules/other", `{"scheduleType":"future_send","payload":1,"fireAt":"2099-01-01T00:00:00Z"}`, 200, 401, "UNAUTHORIZED"},
		{"DELETE", "/_electric/entities/{Q}/schedules/yearly", "", 200, 401, "UNAUTHORIZED"},
		{"GET", "/_electric/entities/{Q}/attachments/{A}", "", 200, 401, "UNAUTHORIZED"},
		{"DELETE", "/_electric/entities/{Q}/attachments/{A}", "", 200, 401, "UNAUTHORIZED"},
		{"GET", "/{Q}/attachments/{A}", "", 200, 401, "UNAUTHORIZED"},
		{"POST", "/_electric/wake", `{"subscriberUrl":"/{Q}","sourceUrl":"/{Q}","condition":"runFinished"}`, 204, 401, "UNAUTHORIZED"},
		{"POST", "/_electric/wake/unregister", `{"subscriberUrl":"/{Q}","sourceUrl":"/{Q}"}`, 204, 401, "UNAUTHORIZED"},
		{"DELETE", "/_electric/entities/{Q}/pg-sync-observations/x", "", 200, 401, "UNAUTHORIZED"},
		{"GET", "/_electric/shared-state/{T}", "", 200, 401, "UNAUTHORIZED"},
		{"HEAD", "/_electric/shared-state/{T}", "", 200, 401, ""},
		{"POST", "/_electric/shared-state/{T}", `{"type":"note","key":"k","value":{},"headers":{"operation":"insert"}}`, 204, 401, "UNAUTHORIZED"},
		{"PUT", "/_electric/shared-state/{T}", "", 200, 401, "UNAUTHORIZED"},
		{"POST", "/_electric/observations/cron/ensure-stream", `{"expression":"0 0 1 1 *"}`, 200, 200, ""},
		{"POST", "/_electric/observations/entities/ensure-stream", `{"tags":{"a":"b"}}`, 200, 200, ""},
		{"GET", "/_electric/webhook-sources", "", 200, 200, ""},
	}
	r.tryAll(routes, func(f things) []string {
		q := f.Type + "/q" // nobody is dispatched for it, so nothing moves by itself
		at := "/_electric/entities/" + q
		r.must(201, r.kyle, "POST", "/_electric/entity-types", `{"name":"`+f.Type+`","description":"x","externally_writable_collections":{"notes":{"type":"state:notes"}}}`)
		r.must(201, r.kyle, "PUT", at, "")
		r.must(200, r.kyle, "POST", at+"/send", `{"payload":1,"mode":"queued","key":"queued"}`)
		r.must(200, r.kyle, "PUT", at+"/schedules/yearly", cron)
		r.must(201, r.kyle, "PUT", "/_electric/shared-state/"+f.Type, "", "electric-owner-entity", "/"+q, "Content-Type", "application/json")
		id := func(path string) string { return fmt.Sprint(field(r.must(201, r.kyle, "POST", path, grant), "id")) }
		return []string{"{Q}", q, "{TG}", id("/_electric/entity-types/" + f.Type + "/grants"), "{EG}", id(at + "/grants"), "{A}", r.attachFile(q, "a.txt", "a")}
	})
}

// attachFile gives an entity a file and returns its id.
func (r *rig) attachFile(entity, name, content string) string {
	r.t.Helper()
	body, contentType := form(r.t, name, content)
	a := r.must(201, r.kyle, "POST", "/_electric/entities/"+entity+"/attachments", body, "Content-Type", contentType)
	id, _ := field(a, "attachment.id").(string)
	if id == "" {
		r.t.Fatalf("%s", a.Raw)
	}
	return id
}

// form is a file and what it belongs to, as browsers send them.
func form(t *testing.T, name, content string) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreateFormFile("file", name)
	if err == nil {
		_, err = part.Write([]byte(content))
	}
	for k, v := range map[string]string{"subject": `{"type":"inbox","key":"k"}`, "role": "input", "mimeType": "text/plain"} {
		if err == nil {
			err = w.WriteField(k, v)
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), w.FormDataContentType()
}

// tryAll calls each route as everybody, on things of its own, which refused
// calls leave as they are; prepare makes more of them and says what stands for
// them.
func (r *rig) tryAll(routes []route, prepare func(things) []string) {
	t := r.t
	t.Helper()
	for _, q := range routes {
		var f things
		var fill func(string) string
		for _, who := range []struct {
			name   string
			as     *wire.Client
			status int
			code   string
		}{
			{"somebody whose principal is garbled", r.garbled, 400, "INVALID_PRINCIPAL"},
			{"another", r.mallory, q.other, q.code},
			{"the owner", r.kyle, q.owner, ""},
			{"nobody", r.nobody, q.owner, ""},
		} {
			if fill == nil || who.as == r.nobody {
				f = r.fresh()
				fill = strings.NewReplacer(append([]string{"{T}", f.Type, "{E}", f.Entity, "{R}", f.Runner}, prepare(f)...)...).Replace
			}
			before := r.mine(f)
			a := r.call(who.as, q.method, fill(q.path), fill(q.body))
			if a.Status != who.status || a.Status >= 400 && a.Code != who.code && q.method != "HEAD" {
				t.Errorf("%s: %s %s: %v, want %d %s: %s", who.name, q.method, q.path, a, who.status, who.code, a.Raw)
			}
			if a.Status >= 400 {
				if q.method != "HEAD" {
					r.envelope(a)
				}
				if after := r.mine(f); after != before {
					t.Errorf("%s: %s %s was refused, and changed\n%s\nto\n%s", who.name, q.method, q.path, before, after)
				}
			}
			if who.as == r.mallory && strings.Contains(string(a.Raw), f.Type) {
				t.Errorf("another is told by %s %s: %s", q.method, q.path, a.Raw)
			}
		}
	}
}

// mine is what kyle's things look like in the database.
func (r *rig) mine(f things) string {
	r.t.Helper()
	return r.text(`select coalesce((select t::text from rouse.entity_types t where t.name = $1), '')
		|| coalesce((select string_agg(e::text, ';' order by e.url) from rouse.entities e where e.type = $1), '')
		|| coalesce((select q::text from rouse.runners q where q.id = $2), '')
		|| coalesce((select d::text from rouse.runner_runtime_diagnostics d where d.runner_id = $2), '')
		|| (select string_agg(s.path || ' ' || s.tail || coalesce(s.closed_at::text, ''), ';' order by s.path) from rouse.streams s
		    where s.path like $1 || '/%' or s.path = 'runners/' || $2 || '/wake')`, f.Type, f.Runner)
}

// Nobody but the gateway makes, ends or deletes its streams, whoever asks, under
// any of their names; and without a claim nobody writes.
func TestTheGatewaysStreamsAreItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f := r.fresh()
	r.send(f, `1`)
	r.woken(f, 1)
	before := r.mine(f)
	for _, who := range []*wire.Client{r.kyle, r.mallory, r.nobody} {
		for _, prefix := range []string{"/", "/v1/stream/"} {
			for _, path := range []string{f.Entity + "/main", strings.ReplaceAll(f.Entity, "/", "%2F") + "/main", f.Type + "/e%2Fmain"} {
				r.refused(403, "PATH_RESERVED", who, "PUT", prefix+path, `{}`)
				r.refused(403, "PATH_RESERVED", who, "DELETE", prefix+path, "")
				for _, header := range [][]string{nil, tokenHeader("junk"), tokenHeader("rouse_wt_junk"), {"Authorization", "Bearer wrong-token"}} {
					a := r.refused(401, "UNAUTHORIZED", who, "POST", prefix+path, `{"type":"text","key":"k","value":{},"headers":{"operation":"insert"}}`, header...)
					if field(a, "error.message") != "Invalid write token" {
						t.Errorf("%s", a.Raw)
					}
				}
			}
			for _, path := range []string{"runners/" + f.Runner + "/wake", "runners%2F" + f.Runner + "%2Fwake", "runners/mine/wake", "_entities/x", "_cron/x", "_webhooks/x", "principal/user%3Akyle"} {
				r.refused(403, "PATH_RESERVED", who, "PUT", prefix+path, "")
				r.refused(403, "PATH_RESERVED", who, "POST", prefix+path, `{"type":"wake"}`)
				r.refused(403, "PATH_RESERVED", who, "DELETE", prefix+path, "")
			}
		}
	}
	if after := r.mine(f); after != before {
		t.Errorf("the streams changed from\n%s\nto\n%s", before, after)
	}
	// Any other path is a plain stream, for everybody.
	r.must(201, r.mallory, "PUT", "/plain/a", `[]`)
	r.must(204, r.nobody, "POST", "/plain/a", `{"n":1}`)
	r.must(200, r.kyle, "GET", "/plain/a", "")
	r.must(204, r.mallory, "DELETE", "/plain/a", "")
}

// A plain stream cannot take the name of a stream that an entity of a
// registered type would have: nobody keeps others from spawning it.
func TestNobodyTakesTheNameOfAnEntityToBe(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f := r.fresh()
	r.must(201, r.mallory, "PUT", "/plain/source", `[]`)
	r.must(201, r.mallory, "PUT", "/no-type/a/main", `[]`)
	r.must(201, r.mallory, "PUT", "/"+f.Type+"/other", `[]`)
	r.must(201, r.mallory, "PUT", "/"+f.Type+"/unborn/notes", `[]`)
	for _, prefix := range []string{"/", "/v1/stream/"} {
		for _, path := range []string{"/unborn/main", "/team/a/unborn/main", "%2Funborn%2Fmain", "/unborn/error"} {
			r.refused(403, "PATH_RESERVED", r.mallory, "PUT", prefix+f.Type+path, `[]`)
			r.refused(403, "PATH_RESERVED", r.mallory, "PUT", prefix+f.Type+path, ``, "Stream-Forked-From", "/plain/source")
		}
	}
	for _, id := range []string{"/unborn", "/team/a/unborn"} {
		r.must(201, r.kyle, "PUT", "/_electric/entities/"+f.Type+id, `{}`)
	}
}

// Who calls about a claim is told by its token; without one nobody is served,
// and a token of another claim, of another wake or of nothing serves nobody.
func TestWhoMayCallAboutAClaim(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, c := r.worked()
	g, other := r.worked()
	r.send(g, `2`)
	past := other
	r.done(g, other, r.tail(g.main()))
	r.must(200, r.kyle, "GET", "/_electric/consumers/"+c.ConsumerID, "")
	r.refused(401, "UNAUTHORIZED", r.mallory, "GET", "/_electric/consumers/"+c.ConsumerID, "")
	r.refused(404, "NOT_FOUND", r.kyle, "GET", "/_electric/consumers/none", "")

	at := "/_electric/consumers/" + c.ConsumerID
	acks := `"acks":[{"path":"` + f.main() + `","offset":"` + r.tail(f.main()) + `"}]`
	state := func() string {
		return r.text(`select c::text || k::text from rouse.consumers c join rouse.consumer_claims k on k.consumer_id = c.name where c.name = $1`, c.ConsumerID)
	}
	before := state()
	calls := []struct{ path, body string }{
		{callback(c), `{"epoch":1,"wakeId":"` + c.WakeID + `"}`},
		{callback(c), `{"epoch":1}`},
		{callback(c), `{"epoch":1,` + acks + `}`},
		{callback(c), `{"epoch":1,"acks":[],"done":true}`},
		{at + "/heartbeat", ``},
		{at + "/ack", `{` + acks + `}`},
		{at + "/release", `{}`},
	}
	for _, who := range []*wire.Client{r.kyle, r.mallory, r.nobody} {
		for _, q := range calls {
			r.refused(401, "UNAUTHORIZED", who, "POST", q.path, q.body)
			for _, wrong := range []string{"junk", "rouse_ht_junk", other.ClaimToken, past.WriteToken, c.ClaimToken + "x"} {
				a := r.call(who, "POST", q.path, q.body, tokenHeader(wrong)...)
				if a.Status != 401 || a.Code != "CLAIM_TOKEN_INVALID" {
					t.Errorf("%s %s: %v", q.path, q.body, a)
				}
			}
		}
	}
	if after := state(); after != before {
		t.Errorf("what was refused changed\n%s\nto\n%s", before, after)
	}
	for _, q := range calls { // the holder, by its token in any of the three ways, whoever it says it is
		r.refused(400, "INVALID_PRINCIPAL", r.garbled, "POST", q.path, q.body, tokenHeader(c.ClaimToken)...)
	}
	for _, header := range [][]string{tokenHeader(c.ClaimToken), {"Authorization", "Bearer " + c.ClaimToken}, {"Authorization", "Bearer junk", "electric-claim-token", c.ClaimToken}} {
		for _, who := range []*wire.Client{r.kyle, r.nobody} {
			r.must(200, who, "POST", callback(c), `{"epoch":1}`, header...)
		}
	}
	for _, q := range calls {
		if q.body == `{}` { // released by the call before: a repeat answers the same
			r.must(200, r.kyle, "POST", q.path, q.body, tokenHeader(c.ClaimToken)...)
			continue
		}
		if strings.Contains(q.path, "/consumers/") {
			continue
		}
		r.must(200, r.kyle, "POST", q.path, q.body, tokenHeader(c.ClaimToken)...)
	}
}
