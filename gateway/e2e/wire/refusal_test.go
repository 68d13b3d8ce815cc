package wire_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/e2e/wire"
)

// What each route of types, entities and runners refuses, and as what.
func TestWhatRoutesRefuse(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f := r.fresh()
	r.must(201, r.kyle, "POST", "/_electric/entity-types", `{"name":"strict","description":"x","creation_schema":{"type":"object","required":["topic"],
		"properties":{"topic":{"type":"string"}}},"inbox_schemas":{"query":{"type":"object","required":["text"]}}}`)
	r.must(201, r.kyle, "POST", "/_electric/entity-types", `{"name":"deaf","description":"x","inbox_schemas":{}}`)
	r.must(201, r.kyle, "PUT", "/_electric/entities/strict/e", `{"args":{"topic":"x"}}`)
	r.must(201, r.kyle, "PUT", "/_electric/entities/deaf/e", "")
	r.must(201, r.kyle, "PUT", "/_electric/entities/deaf/dead", "")
	r.must(200, r.kyle, "DELETE", "/_electric/entities/deaf/dead", "")
	const types, entities, runners = "/_electric/entity-types", "/_electric/entities", "/_electric/runners"
	mac := runners + "/" + f.Runner
	policy := func(target string) string { return `{"dispatch_policy":{"targets":[` + target + `]}}` }
	for _, q := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		// §0
		{"GET", "/_electric/no-such-route", "", 404, "NOT_FOUND"},
		{"PUT", "/_electric/health", "", 405, "METHOD_NOT_ALLOWED"},
		{"GET", types + "?service=none", "", 404, "SERVICE_NOT_FOUND"},
		// §1
		{"POST", types, ``, 400, "INVALID_REQUEST"},
		{"POST", types, `{`, 400, "INVALID_REQUEST"},
		{"POST", types, `[]`, 400, "INVALID_REQUEST"},
		{"POST", types, `{"description":"x"}`, 400, "INVALID_REQUEST"},
		{"POST", types, `{"name":"x"}`, 400, "INVALID_REQUEST"},
		{"POST", types, `{"name":"x","description":7}`, 400, "INVALID_REQUEST"},
		{"POST", types, `{"name":"x","description":"x","surprise":1}`, 400, "INVALID_REQUEST"},
		{"POST", types, `{"name":"_x","description":"x"}`, 400, "INVALID_REQUEST"},
		{"POST", types, `{"name":"principal","description":"x"}`, 400, "INVALID_REQUEST"},
		{"POST", types, `{"name":"a/b","description":"x"}`, 400, "INVALID_REQUEST"},
		{"POST", types, `{"name":"x","description":"x","creation_schema":{"if":{}}}`, 400, "INVALID_REQUEST"},
		{"POST", types, `{"name":"x","description":"x","inbox_schemas":{"a":{"patternProperties":{}}}}`, 400, "INVALID_REQUEST"},
		{"POST", types, `{"name":"x","description":"x","state_schemas":[]}`, 400, "INVALID_REQUEST"},
		{"POST", types, `{"name":"x","description":"x","serve_endpoint":"not a url"}`, 400, "INVALID_REQUEST"},
		{"POST", types, `{"name":"x","description":"x","default_dispatch_policy":{"targets":[{"type":"pigeon"}]}}`, 400, "INVALID_TARGET"},
		{"GET", types + "/none", "", 404, "NOT_FOUND"},
		{"DELETE", types + "/none", "", 404, "NOT_FOUND"},
		{"PATCH", types + "/none/schemas", `{"inbox_schemas":{"a":{}}}`, 404, "NOT_FOUND"},
		{"PATCH", types + "/strict/schemas", `{"inbox_schemas":{"query":{}}}`, 409, "SCHEMA_KEY_EXISTS"},
		{"PATCH", types + "/strict/schemas", `{"inbox_schemas":7}`, 400, "INVALID_REQUEST"},
		{"PATCH", types + "/strict/schemas", `{"creation_schema":{}}`, 400, "INVALID_REQUEST"},
		// §2
		{"GET", entities + "?limit=0", "", 400, "INVALID_REQUEST"},
		{"GET", entities + "?cursor=x", "", 400, "INVALID_REQUEST"},
		{"PUT", entities + "/none/e", "", 404, "UNKNOWN_ENTITY_TYPE"},
		{"PUT", entities + "/strict/e", `{"args":{"topic":"x"}}`, 409, "DUPLICATE_URL"},
		{"PUT", entities + "/deaf/dead", "", 409, "DUPLICATE_URL"},
		{"PUT", entities + "/strict/new", `{"args":{"other":1}}`, 422, "SCHEMA_VALIDATION_FAILED"},
		{"PUT", entities + "/strict/new", `{"args":[]}`, 400, "INVALID_REQUEST"},
		{"PUT", entities + "/strict/new", `{"tags":{"n":123}}`, 400, "INVALID_REQUEST"},
		{"PUT", entities + "/strict/new", `{"tags":[]}`, 400, "INVALID_REQUEST"},
		{"PUT", entities + "/strict/new", `{"surprise":1}`, 400, "INVALID_REQUEST"},
		{"PUT", entities + "/strict/new", `{"parent":"/none/none"}`, 404, "NOT_FOUND"},
		{"PUT", entities + "/deaf/new", `{"parent":"/deaf/dead"}`, 409, "NOT_RUNNING"},
		{"PUT", entities + "/strict/new", `{"initialMessage":{},"initialMessageType":"query"}`, 422, "SCHEMA_VALIDATION_FAILED"},
		{"PUT", entities + "/strict/new", `{"initialMessage":1,"initialMessageType":"none"}`, 422, "UNKNOWN_MESSAGE_TYPE"},
		{"PUT", entities + "/strict/new", policy(`{"type":"runner","runnerId":"none"}`), 404, "NOT_FOUND"},
		{"PUT", entities + "/strict/new", policy(`{"type":"pigeon"}`), 400, "INVALID_TARGET"},
		{"PUT", entities + "/strict/new", policy(``), 400, "INVALID_REQUEST"},
		{"PUT", entities + "/strict/new", policy(`{"type":"webhook","url":"ftp://x"}`), 400, "WEBHOOK_URL_REJECTED"},
		{"PUT", entities + "/principal/user:x", "", 400, "INVALID_REQUEST"},
		{"PUT", entities + "/strict/a*b", "", 400, "INVALID_PATH"},
		{"PUT", entities + "/strict/../x", "", 400, "INVALID_PATH"},
		{"GET", entities + "/strict/none", "", 404, "NOT_FOUND"},
		{"GET", entities + "/none/none", "", 404, "UNKNOWN_ENTITY_TYPE"},
		{"DELETE", entities + "/strict/none", "", 404, "NOT_FOUND"},
		{"DELETE", entities + "/none/none", "", 404, "UNKNOWN_ENTITY_TYPE"},
		{"DELETE", entities + "/deaf/dead", "", 409, "INVALID_SIGNAL"},
		{"POST", entities + "/deaf/e/signal", `{"signal":"SIGNONE"}`, 400, "INVALID_REQUEST"},
		{"POST", entities + "/deaf/e/signal", ``, 400, "INVALID_REQUEST"},
		{"POST", entities + "/deaf/none/signal", `{"signal":"SIGKILL"}`, 404, "NOT_FOUND"},
		{"POST", entities + "/none/none/signal", `{"signal":"SIGKILL"}`, 404, "UNKNOWN_ENTITY_TYPE"},
		{"POST", entities + "/deaf/dead/signal", `{"signal":"SIGCONT"}`, 409, "INVALID_SIGNAL"},
		{"POST", entities + "/deaf/e/send", `{}`, 400, "INVALID_REQUEST"},
		{"POST", entities + "/deaf/e/send", `{"payload":1,"mode":"loud"}`, 400, "INVALID_REQUEST"},
		{"POST", entities + "/deaf/e/send", `{"payload":1,"surprise":1}`, 400, "INVALID_REQUEST"},
		{"POST", entities + "/deaf/e/send", `{"payload":1,"from":"/principal/user%3Amallory"}`, 400, "INVALID_REQUEST"},
		{"POST", entities + "/deaf/e/send", `{"payload":1,"from_principal":"/principal/user%3Amallory"}`, 400, "INVALID_REQUEST"},
		{"POST", entities + "/deaf/e/send", `{"payload":1,"from_agent":"/strict/e"}`, 400, "INVALID_REQUEST"},
		{"POST", entities + "/deaf/e/send", `{"payload":1,"type":"any"}`, 422, "UNKNOWN_MESSAGE_TYPE"},
		{"POST", entities + "/strict/e/send", `{"payload":{},"type":"query"}`, 422, "SCHEMA_VALIDATION_FAILED"},
		{"POST", entities + "/strict/e/send", `{"payload":{},"type":"none"}`, 422, "UNKNOWN_MESSAGE_TYPE"},
		{"POST", entities + "/deaf/none/send", `{"payload":1}`, 404, "NOT_FOUND"},
		{"POST", entities + "/none/none/send", `{"payload":1}`, 404, "UNKNOWN_ENTITY_TYPE"},
		{"POST", entities + "/deaf/dead/send", `{"payload":1}`, 409, "NOT_RUNNING"},
		{"POST", entities + "/deaf/e/tags/k", `{"value":1}`, 400, "INVALID_REQUEST"},
		{"POST", entities + "/deaf/e/tags/k", ``, 400, "INVALID_REQUEST"},
		{"POST", entities + "/deaf/none/tags/k", `{"value":"v"}`, 404, "NOT_FOUND"},
		{"POST", entities + "/deaf/dead/tags/k", `{"value":"v"}`, 409, "NOT_RUNNING"},
		{"DELETE", entities + "/deaf/dead/tags/k", "", 409, "NOT_RUNNING"},
		{"DELETE", entities + "/deaf/none/tags/k", "", 404, "NOT_FOUND"},
		// §3
		{"POST", runners, ``, 400, "INVALID_REQUEST"},
		{"POST", runners, `{"id":"x"}`, 400, "INVALID_REQUEST"},
		{"POST", runners, `{"label":"x"}`, 400, "INVALID_REQUEST"},
		{"POST", runners, `{"id":"x","label":"x","kind":"toaster"}`, 400, "INVALID_REQUEST"},
		{"POST", runners, `{"id":"x","label":"x","owner_principal":"user:kyle"}`, 400, "INVALID_REQUEST"},
		{"POST", runners, `{"id":"x","label":"x","owner_principal":"/principal/user%3Amallory"}`, 403, "RUNNER_FORBIDDEN"},
		{"POST", runners, `{"id":"x","label":"x","wake_stream":"/elsewhere"}`, 400, "INVALID_REQUEST"},
		{"GET", runners + "?owner_principal=/principal/user%253Amallory", "", 403, "RUNNER_FORBIDDEN"},
		{"GET", runners + "?owner_principal=x", "", 400, "INVALID_REQUEST"},
		{"GET", runners + "/none", "", 404, "NOT_FOUND"},
		{"GET", runners + "/none/health", "", 404, "NOT_FOUND"},
		{"POST", runners + "/none/heartbeat", "", 404, "NOT_FOUND"},
		{"POST", runners + "/none/enable", "", 404, "NOT_FOUND"},
		{"POST", runners + "/none/disable", "", 404, "NOT_FOUND"},
		{"POST", runners + "/none/claim", "", 404, "NOT_FOUND"},
		{"POST", mac + "/heartbeat", `{"lease_ms":-1}`, 400, "INVALID_REQUEST"},
		{"POST", mac + "/heartbeat", `{"wake_stream_offset":"junk"}`, 400, "INVALID_REQUEST"},
		{"POST", mac + "/heartbeat", `{"diagnostics":7}`, 400, "INVALID_REQUEST"},
		{"POST", mac + "/claim", `{"stream":"` + f.Entity + `/main"}`, 409, "NO_PENDING_WORK"},
		{"POST", mac + "/claim", `{"stream":7}`, 400, "INVALID_REQUEST"},
		{"POST", mac + "/claim", `{"wakeId":"00000000-0000-0000-0000-000000000000"}`, 404, "WAKE_CALLBACK_NOT_FOUND"},
		// §4
		{"POST", "/_electric/wake-callbacks/00000000-0000-0000-0000-000000000000", `{"epoch":1}`, 401, "UNAUTHORIZED"},
		{"POST", "/_electric/consumers/none/acquire", ``, 404, "NOT_FOUND"},
		{"GET", "/_electric/wake-callbacks/00000000-0000-0000-0000-000000000000", "", 405, "METHOD_NOT_ALLOWED"},
	} {
		before := r.mine(f)
		a := r.refused(q.status, q.code, r.kyle, q.method, q.path, q.body)
		if strings.Contains(string(a.Raw), "surprise\":") {
			t.Errorf("%s %s echoes the body: %s", q.method, q.path, a.Raw)
		}
		if after := r.mine(f); after != before {
			t.Errorf("%s %s %s changed something", q.method, q.path, q.body)
		}
	}
	if n := r.count(`select count(*) from rouse.entity_types where name in ('x', '_x', 'principal')`) + r.count(`select count(*) from rouse.entities where url like '%new%'`) +
		r.count(`select count(*) from rouse.runners where id = 'x'`); n != 0 {
		t.Errorf("%d things were made by what was refused", n)
	}
}

// A claim is refused to a runner that is not its entity's, that is disabled, or
// whose entity somebody holds, each with the code runners look for.
func TestWhatAClaimRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f := r.fresh()
	r.send(f, `1`)
	e := r.woken(f, 1)
	body := string(e.raw)
	r.must(201, r.kyle, "POST", "/_electric/runners", `{"id":"other","label":"Other"}`)
	r.refused(400, "INVALID_REQUEST", r.kyle, "POST", "/_electric/runners/other/claim", body)
	r.must(200, r.kyle, "POST", "/_electric/runners/"+f.Runner+"/disable", "")
	r.refused(409, "NOT_RUNNING", r.kyle, "POST", f.claim(), body)
	r.must(200, r.kyle, "POST", "/_electric/runners/"+f.Runner+"/enable", "")
	c := r.claimed(f, e)
	a := r.refused(409, "ALREADY_CLAIMED", r.kyle, "POST", f.claim(), body)
	if !strings.Contains(string(a.Raw), f.Runner) {
		t.Errorf("it is not said who holds it: %s", a.Raw)
	}
	for body, code := range map[string]string{
		`{"epoch":7}`: "FENCED",
		`{"epoch":1,"acks":[{"path":"` + f.main() + `","offset":"0000000000000000_0000000099999999"}]}`: "INVALID_OFFSET",
		`{"epoch":1,"acks":[{"path":"` + f.main() + `","offset":"-1"}],"done":true}`:                    "INVALID_REQUEST",
		`{"epoch":1,"acks":[{"path":"/elsewhere/main","offset":"` + r.tail(f.main()) + `"}]}`:           "INVALID_REQUEST",
		`{"epoch":"one"}`: "INVALID_REQUEST",
		`{"epoch":1,"wakeId":"00000000-0000-0000-0000-000000000000"}`: "INVALID_REQUEST",
	} {
		if a := r.call(r.kyle, "POST", callback(c), body, tokenHeader(c.ClaimToken)...); a.Code != code {
			t.Errorf("%s: %v, want %s: %s", body, a, code, a.Raw)
		}
	}
	r.refused(401, "CLAIM_TOKEN_INVALID", r.kyle, "POST", "/_electric/wake-callbacks/00000000-0000-0000-0000-000000000000", `{"epoch":1}`, tokenHeader(c.ClaimToken)...)
	if n := r.count(`select count(*) from rouse.consumer_claims where status = 'active' and epoch = 1`); n != 1 {
		t.Errorf("%d claims are active", n)
	}
	r.done(f, c, r.tail(f.main()))
	r.refused(409, "NO_PENDING_WORK", r.kyle, "POST", f.claim(), body)
}

// What an unused name, an empty body and any content type get is what the
// ecosystem's servers give.
func TestGroundRules(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f := r.fresh()
	if a := r.must(200, r.nobody, "GET", "/_electric/health", ""); field(a, "status") != "ok" {
		t.Errorf("%s", a.Raw)
	}
	r.must(200, r.kyle, "POST", "/_electric/runners/"+f.Runner+"/heartbeat", "") // an empty body counts as {}
	r.must(200, r.kyle, "POST", "/_electric/runners/"+f.Runner+"/heartbeat", "{}", "Content-Type", "text/plain")
	a := r.refused(400, "INVALID_REQUEST", r.kyle, "POST", "/_electric/entity-types", `{"name":"x","description":7}`)
	if details, _ := field(a, "error.details").([]any); len(details) != 1 || details[0].(map[string]any)["path"] != "/description" || details[0].(map[string]any)["message"] == "" {
		t.Errorf("%s", a.Raw)
	}
	for _, path := range []string{"/_electric/entities", "/_electric/entity-types", f.main(), "/any/thing", "/_electric/no-such-route", "/__ds/subscriptions/x", "/"} {
		a := r.must(204, r.nobody, "OPTIONS", path, "")
		allowed := strings.ToLower(a.Header.Get("Access-Control-Allow-Headers"))
		for _, h := range []string{"content-type", "authorization", "electric-claim-token", "electric-owner-entity", "electric-principal", "ngrok-skip-browser-warning", "if-none-match"} {
			if !strings.Contains(allowed, h) {
				t.Errorf("%s: a preflight does not allow %s", path, h)
			}
		}
		for _, m := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			if !strings.Contains(a.Header.Get("Access-Control-Allow-Methods"), m) {
				t.Errorf("%s: a preflight does not allow %s", path, m)
			}
		}
		if a.Header.Get("Access-Control-Allow-Origin") != "*" || len(a.Raw) != 0 {
			t.Errorf("%s: %v %s", path, a.Header, a.Raw)
		}
	}
	for _, path := range []string{"/_electric/entities/none/none", "/none", "/_electric/health", f.main()} {
		a := r.call(r.kyle, "GET", path, "")
		exposed := strings.ToLower(a.Header.Get("Access-Control-Expose-Headers"))
		for _, h := range []string{"stream-next-offset", "stream-cursor", "stream-up-to-date", "stream-closed", "electric-handle", "electric-offset", "electric-schema", "electric-cursor"} {
			if !strings.Contains(exposed, h) {
				t.Errorf("%s: %s is not exposed to pages with credentials", path, h)
			}
		}
	}
}

// The ecosystem's command line sends its user's name along as the sender. It
// claims to be nobody: the message is the caller's.
func TestASendersNameIsNoPrincipal(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f := r.fresh()
	for _, who := range []*wire.Client{r.kyle, r.nobody} {
		r.must(200, who, "POST", f.ctl()+"/send", `{"from":"test-user@test-host","payload":{"text":"hello world"}}`)
	}
	messages, _, _ := r.kyle.All(t.Context(), f.main())
	for i, from := range []string{"/principal/user%3Akyle", "/principal/system%3Adev-local"} {
		if s := string(messages[i+1]); !strings.Contains(s, `"from":"`+from+`"`) || strings.Contains(s, "test-host") {
			t.Errorf("%s", s)
		}
	}
}

// A type that is served somewhere is asked for there, when nothing is said about
// it; its manifest's name is its own.
func TestServedTypesAreDiscovered(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	asked := make(chan string, 10)
	answer := make(chan [2]string, 10) // status and body
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked <- q.Method + " " + q.URL.Path
		a := <-answer
		status := http.StatusOK
		if a[0] != "" {
			_, _ = fmt.Sscan(a[0], &status)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(a[1]))
	}))
	t.Cleanup(srv.Close)
	const types = "/_electric/entity-types"
	register := func(name string) string { return `{"name":"` + name + `","serve_endpoint":"` + srv.URL + `/serve"}` }
	answer <- [2]string{"", `{"name":"served","description":"from there","creation_schema":{"type":"object"},"inbox_schemas":{"hi":{}}}`}
	a := r.must(201, r.kyle, "POST", types, register("served"))
	if got := <-asked; got != "PUT /serve" {
		t.Errorf("%s was called", got)
	}
	if field(a, "description") != "from there" || field(a, "inbox_schemas.hi") == nil || field(a, "revision") != 1.0 ||
		!strings.Contains(string(a.Raw), `"type":"webhook"`) || field(a, "serve_endpoint") != srv.URL+"/serve" {
		t.Errorf("%s", a.Raw)
	}
	answer <- [2]string{"", `{"name":"foo","description":"x"}`}
	r.refused(400, "SERVE_ENDPOINT_NAME_MISMATCH", r.kyle, "POST", types, register("bar"))
	answer <- [2]string{"500", `{}`}
	r.refused(502, "SERVE_ENDPOINT_UNREACHABLE", r.kyle, "POST", types, register("bar"))
	answer <- [2]string{"", `rubbish`}
	r.refused(502, "SERVE_ENDPOINT_UNREACHABLE", r.kyle, "POST", types, register("bar"))
	for range 3 {
		<-asked
	}
	// Described types are not asked about.
	r.must(201, r.kyle, "POST", types, `{"name":"told","description":"x","serve_endpoint":"`+srv.URL+`/serve"}`)
	select {
	case got := <-asked:
		t.Errorf("%s was called for a described type", got)
	default:
	}
	r.refused(404, "NOT_FOUND", r.kyle, "GET", types+"/bar", "")
}
