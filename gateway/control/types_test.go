package control

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestEntityTypes(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.OpenTypes = false })
	const at = "/_electric/entity-types"
	first := r.must(201, kyle, "POST", at, `{"name":"chat","description":"one","creation_schema":{"type":"object"},"inbox_schemas":{"hi":{"type":"string"}}}`)
	if first.get("revision") != 1.0 || first.get("state_schemas") != nil || first.str("owner_principal") != "/principal/user%3Akyle" || first.get("inbox_schemas.hi.type") != "string" {
		t.Errorf("%s", first.body)
	}
	second := r.must(201, kyle, "POST", at, `{"name":"chat","description":"two","creation_schema":null}`)
	if second.get("revision") != 2.0 || second.str("created_at") != first.str("created_at") || second.get("creation_schema") != nil || second.get("inbox_schemas") != nil {
		t.Errorf("%s", second.body)
	}
	for _, path := range []string{at, at + "/"} {
		if a := r.must(200, kyle, "GET", path, ""); !strings.HasPrefix(string(a.body), `[{"name":"chat"`) {
			t.Errorf("%s", a.body)
		}
		if a := r.must(200, mallory, "GET", path, ""); strings.TrimSpace(string(a.body)) != "[]" {
			t.Errorf("somebody who may not spawn it sees %s", a.body)
		}
	}
	r.must(200, kyle, "GET", at+"/chat", "")
	r.must(200, "system:dev-local", "GET", at+"/chat", "")
	r.refused(401, "UNAUTHORIZED", mallory, "GET", at+"/chat", "")
	r.refused(401, "UNAUTHORIZED", mallory, "POST", at, `{"name":"chat","description":"mine"}`)
	r.refused(401, "UNAUTHORIZED", mallory, "DELETE", at+"/chat", "")
	r.refused(401, "UNAUTHORIZED", mallory, "PATCH", at+"/chat/schemas", `{"inbox_schemas":{"x":{}}}`)
	r.refused(401, "UNAUTHORIZED", mallory, "PUT", "/_electric/entities/chat/1", "")
	r.refused(404, "NOT_FOUND", kyle, "GET", at+"/none", "")
	r.refused(404, "NOT_FOUND", kyle, "DELETE", at+"/none", "")
	r.refused(404, "NOT_FOUND", kyle, "PATCH", at+"/none/schemas", `{}`)

	if a := r.must(200, kyle, "PATCH", at+"/chat/schemas", `{"inbox_schemas":{"a":{}},"state_schemas":{"b":true}}`); a.get("revision") != 3.0 {
		t.Errorf("%s", a.body)
	}
	r.refused(409, "SCHEMA_KEY_EXISTS", kyle, "PATCH", at+"/chat/schemas", `{"inbox_schemas":{"a":{}}}`)

	// Grants that came with a registration.
	r.must(201, kyle, "POST", at, `{"name":"shared","description":"","permission_grants":[{"subject_kind":"principal","subject_value":"/principal/user%3Amallory","permission":"spawn"}]}`)
	r.must(201, kyle, "POST", at, `{"name":"public","description":"","permission_grants":[{"subject_kind":"principal_kind","subject_value":"user","permission":"spawn"}]}`)
	r.must(201, mallory, "PUT", "/_electric/entities/shared/1", "")
	r.must(201, mallory, "PUT", "/_electric/entities/public/1", "")
	r.refused(401, "UNAUTHORIZED", "user:third", "PUT", "/_electric/entities/shared/2", "")

	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", "")
	r.must(204, kyle, "DELETE", at+"/chat", "")
	r.must(200, kyle, "GET", "/_electric/entities/chat/1", "")
}

func TestSchemasAreChecked(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for schema, place := range map[string]string{
		`[]`:              "/creation_schema",
		`"x"`:             "/creation_schema",
		`{"type":"nope"}`: "/creation_schema",
		`{"if":{}}`:       "/creation_schema/if",
		`{"properties":{"a":{"patternProperties":{}}}}`: "/creation_schema/properties/a/patternProperties",
		`{"anyOf":[{},{"x-y":1}]}`:                      "/creation_schema/anyOf/1/x-y",
		`{"items":{"contains":{}}}`:                     "/creation_schema/items/contains",
		`{"propertyNames":{"if":{}}}`:                   "/creation_schema/propertyNames/if",
		`{"$ref":"https://example.com/s.json"}`:         "/creation_schema",
		`{"$ref":"file:///etc/passwd"}`:                 "/creation_schema",
		`{"$ref":"#/definitions/none"}`:                 "/creation_schema",
		`{"pattern":"(?<=a)b"}`:                         "/creation_schema",
	} {
		a := r.refused(400, "INVALID_REQUEST", kyle, "POST", "/_electric/entity-types", `{"name":"x","description":"","creation_schema":`+schema+`}`)
		if !strings.Contains(string(a.body), fmt.Sprintf("%q", place)) {
			t.Errorf("%s: not at %s: %s", schema, place, a.body)
		}
	}
	for _, schema := range []string{
		`true`, `{}`, `{"properties":{"if":{"type":"string"}}}`, `{"enum":[{"if":1}]}`, `{"default":{"x-y":1}}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","$id":"https://example.com/x","type":"object","additionalProperties":{"anyOf":[{"const":1},{"type":"null"}]}}`,
		`{"definitions":{"n":{"type":"object","properties":{"next":{"$ref":"#/definitions/n"}}}},"$ref":"#/definitions/n"}`,
		`{"type":"object","properties":{"pair":{"type":"array","minItems":2,"maxItems":2,"items":[{"type":"string"},{"type":"number"}]},"again":{"$ref":"#/properties/pair/items/0"}}}`,
	} {
		r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"x","description":"","creation_schema":`+schema+`}`)
	}
}

func TestSpawnArgumentsAreChecked(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":"","creation_schema":{"type":"object","required":["n"],
		"properties":{"n":{"type":"integer","minimum":5},"who":{"type":"string","nullable":true,"pattern":"^[a-z]+$"}},"additionalProperties":false}}`)
	for args, place := range map[string]string{
		`{}`: "/args\",\"message\":\"lacks n", `{"n":"secret-value"}`: "/args/n\",\"message\":\"must be of type integer", `{"n":3}`: "/args/n",
		`{"n":7,"who":"SECRET-VALUE"}`: "/args/who", `{"n":7,"secret-value":1}`: "/args",
	} {
		a := r.refused(422, "SCHEMA_VALIDATION_FAILED", kyle, "PUT", "/_electric/entities/chat/x", `{"args":`+args+`}`)
		if !strings.Contains(string(a.body), `"path":"`+place+`"`) || strings.Contains(strings.ToLower(string(a.body)), "secret-value") {
			t.Errorf("%s: %s", args, a.body)
		}
	}
	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", `{"args":{"n":12345678901234567890,"who":null}}`)
	if a := r.must(200, kyle, "GET", "/_electric/entities/chat/1", ""); !strings.Contains(string(a.body), "12345678901234567890") {
		t.Errorf("a large number was changed: %s", a.body)
	}
	r.must(201, kyle, "PUT", "/_electric/entities/chat/2", "") // only checked when given

	// Tuples as generators for draft 7 write them.
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"pairs","description":"","creation_schema":{"properties":{"p":{"items":[{"type":"string"},{"type":"number"}]},"q":{"$ref":"#/properties/p/items/1"}}}}`)
	r.must(201, kyle, "PUT", "/_electric/entities/pairs/1", `{"args":{"p":["a",1,true],"q":2}}`)
	for _, args := range []string{`{"p":[1,1]}`, `{"p":["a","b"]}`, `{"q":"a"}`} {
		r.refused(422, "SCHEMA_VALIDATION_FAILED", kyle, "PUT", "/_electric/entities/pairs/2", `{"args":`+args+`}`)
	}
}

type discoverer map[string]string

func (d discoverer) Discover(_ context.Context, url string) ([]byte, error) {
	if m, ok := d[url]; ok {
		return []byte(m), nil
	}
	return nil, errors.New("connection refused")
}

func TestServeEndpoints(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.Discover = discoverer{"https://a.example/s": `{"name":"chat","description":"found","creation_schema":{"type":"object"},"inbox_schemas":{"hi":{}}}`, "https://b.example/s": `{"name":"other"}`, "https://c.example/s": `rubbish`}
	})
	const at = "/_electric/entity-types"
	a := r.must(201, kyle, "POST", at, `{"name":"chat","serve_endpoint":"https://a.example/s"}`)
	if a.str("description") != "found" || a.get("inbox_schemas.hi") == nil || !strings.Contains(string(a.body), `"default_dispatch_policy":{"targets":[{"url":"https://a.example/s","type":"webhook"}]}`) {
		t.Errorf("%s", a.body)
	}
	// A described type is not probed.
	r.must(201, kyle, "POST", at, `{"name":"x","description":"d","serve_endpoint":"https://down.example/"}`)
	r.refused(400, "SERVE_ENDPOINT_NAME_MISMATCH", kyle, "POST", at, `{"name":"chat","serve_endpoint":"https://b.example/s"}`)
	r.refused(502, "SERVE_ENDPOINT_UNREACHABLE", kyle, "POST", at, `{"name":"chat","serve_endpoint":"https://c.example/s"}`)
	r.refused(502, "SERVE_ENDPOINT_UNREACHABLE", kyle, "POST", at, `{"name":"chat","serve_endpoint":"https://down.example/"}`)
	r.refused(400, "WEBHOOK_URL_REJECTED", kyle, "POST", at, `{"name":"chat","description":"","serve_endpoint":"http://plain.example/"}`)
	r.refused(400, "INVALID_REQUEST", kyle, "POST", at, `{"name":"chat","serve_endpoint":"ftp://x/"}`)
	r.refused(400, "INVALID_REQUEST", kyle, "POST", at, `{"name":"chat"}`)
}

// The policy table: what is stored and what is refused where.
func TestDispatchPolicies(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "POST", "/_electric/runners", `{"id":"mac","label":"Mac"}`)
	for i, tc := range []struct {
		who, policy string
		status      int
		code, place string
	}{
		{kyle, `{"targets":[{"type":"runner","runnerId":"mac"}]}`, 201, "", ""},
		{kyle, `{"targets":[{"type":"runner","runner_id":"mac"}]}`, 201, "", ""},
		{kyle, `{"targets":[{"type":"runner","runnerId":"mac","subscription_id":"s"}]}`, 201, "", ""},
		{kyle, `{"targets":[{"type":"webhook","url":"https://x.example"}]}`, 201, "", ""},
		{kyle, `null`, 201, "", ""},
		{mallory, `{"targets":[{"type":"runner","runnerId":"mac"}]}`, 403, "RUNNER_FORBIDDEN", ""},
		{"system:framework", `{"targets":[{"type":"runner","runnerId":"mac"}]}`, 201, "", ""},
		{kyle, `{"targets":[{"type":"runner","runnerId":"none"}]}`, 404, "NOT_FOUND", "/dispatch_policy/targets/0/runnerId"},
		{kyle, `{"targets":[]}`, 400, "INVALID_REQUEST", "/dispatch_policy/targets"},
		{kyle, `{"targets":[{"type":"runner","runnerId":"mac"},{"type":"runner","runnerId":"mac"}]}`, 400, "INVALID_REQUEST", "/dispatch_policy/targets/1"},
		{kyle, `{"targets":"x"}`, 400, "INVALID_REQUEST", "/dispatch_policy/targets"},
		{kyle, `{}`, 400, "INVALID_REQUEST", "/dispatch_policy"},
		{kyle, `[]`, 400, "INVALID_REQUEST", "/dispatch_policy"},
		{kyle, `{"targets":[{"type":"runner","runnerId":"mac"}],"more":1}`, 400, "INVALID_REQUEST", "/dispatch_policy/more"},
		{kyle, `{"targets":[1]}`, 400, "INVALID_REQUEST", "/dispatch_policy/targets/0"},
		{kyle, `{"targets":[null]}`, 400, "INVALID_REQUEST", "/dispatch_policy/targets/0"},
		{kyle, `{"targets":[{}]}`, 400, "INVALID_REQUEST", "/dispatch_policy/targets/0"},
		{kyle, `{"targets":[{"type":7}]}`, 400, "INVALID_REQUEST", "/dispatch_policy/targets/0/type"},
		{kyle, `{"targets":[{"type":"runner"}]}`, 400, "INVALID_REQUEST", "/dispatch_policy/targets/0/runnerId"},
		{kyle, `{"targets":[{"type":"runner","runnerId":"a/b"}]}`, 400, "INVALID_REQUEST", "/dispatch_policy/targets/0/runnerId"},
		{kyle, `{"targets":[{"type":"runner","runnerId":"mac","runner_id":"mac"}]}`, 400, "INVALID_REQUEST", "/dispatch_policy/targets/0/runner_id"},
		{kyle, `{"targets":[{"type":"runner","runnerId":"mac","url":"x"}]}`, 400, "INVALID_REQUEST", "/dispatch_policy/targets/0/url"},
		{kyle, `{"targets":[{"type":"runner","runnerId":"mac","subscription_id":""}]}`, 400, "INVALID_REQUEST", "/dispatch_policy/targets/0/subscription_id"},
		{kyle, `{"targets":[{"type":"webhook","url":"http://x.example"}]}`, 400, "WEBHOOK_URL_REJECTED", "/dispatch_policy/targets/0"},
		{kyle, `{"targets":[{"type":"webhook","url":"http://127.0.0.1:9/"}]}`, 400, "WEBHOOK_URL_REJECTED", "/dispatch_policy/targets/0"},
		{kyle, `{"targets":[{"type":"webhook","url":"https://10.0.0.5/"}]}`, 400, "WEBHOOK_URL_REJECTED", "/dispatch_policy/targets/0"},
		{kyle, `{"targets":[{"type":"webhook","url":"https://user:secret@x.example/"}]}`, 400, "WEBHOOK_URL_REJECTED", "/dispatch_policy/targets/0"},
		{kyle, `{"targets":[{"type":"webhook","url":""}]}`, 400, "WEBHOOK_URL_REJECTED", "/dispatch_policy/targets/0"},
		{kyle, `{"targets":[{"type":"webhook","url":7}]}`, 400, "INVALID_REQUEST", "/dispatch_policy/targets/0/url"},
		{kyle, `{"targets":[{"type":"webhook"}]}`, 400, "WEBHOOK_URL_REJECTED", "/dispatch_policy/targets/0"},
		{kyle, `{"targets":[{"type":"carrier-pigeon"}]}`, 400, "INVALID_TARGET", "/dispatch_policy/targets/0"},
	} {
		a := r.as(tc.who, "PUT", fmt.Sprintf("/_electric/entities/chat/%d", i), `{"dispatch_policy":`+tc.policy+`}`)
		if a.status != tc.status {
			t.Errorf("%s: %d, want %d: %s", tc.policy, a.status, tc.status, a.body)
		}
		if strings.Contains(string(a.body), "secret") {
			t.Errorf("a refusal shows what it refuses: %s", a.body)
		}
		if tc.code != "" && a.code() != tc.code || tc.place != "" && !strings.Contains(string(a.body), fmt.Sprintf(`"path":%q`, tc.place)) {
			t.Errorf("%s: %s", tc.policy, a.body)
		}
		if tc.status == 201 && strings.Contains(tc.policy, "runner") && !strings.Contains(string(a.body), `"runnerId":"mac"`) {
			t.Errorf("%s is stored as %s", tc.policy, a.body)
		}
	}
	// As a type's default it is checked in the same way, ownership at the spawn.
	a := r.refused(400, "WEBHOOK_URL_REJECTED", kyle, "POST", "/_electric/entity-types", `{"name":"d","description":"","default_dispatch_policy":{"targets":[{"type":"webhook","url":"http://x.example"}]}}`)
	if !strings.Contains(string(a.body), `"path":"/default_dispatch_policy/targets/0"`) {
		t.Errorf("the place is missing: %s", a.body)
	}
	r.refused(400, "INVALID_REQUEST", kyle, "POST", "/_electric/entity-types", `{"name":"d","description":"","default_dispatch_policy":{"targets":[]}}`)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"d","description":"","default_dispatch_policy":{"targets":[{"type":"runner","runnerId":"mac"}]}}`)
	r.refused(403, "RUNNER_FORBIDDEN", mallory, "PUT", "/_electric/entities/d/1", "")
	if a := r.must(201, kyle, "PUT", "/_electric/entities/d/1", ""); a.get("dispatch_policy.targets") == nil {
		t.Errorf("the default is not taken: %s", a.body)
	}
}

// R14: the policy an entity was spawned with stays, whatever is tried and
// whatever happens to where it came from.
func TestThePolicyIsFixedAtSpawn(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, id := range []string{"mac", "pc"} {
		r.must(201, kyle, "POST", "/_electric/runners", `{"id":"`+id+`","label":"x"}`)
	}
	runner := func(id string) string { return `{"targets":[{"type":"runner","runnerId":"` + id + `"}]}` }
	typ := func(policy string) {
		r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":"","default_dispatch_policy":`+policy+`}`)
	}
	typ(runner("mac"))
	const root = "/_electric/entities/chat/"
	r.must(201, kyle, "PUT", root+"default", "")
	r.must(201, kyle, "PUT", root+"own", `{"dispatch_policy":`+runner("pc")+`}`)
	r.must(201, kyle, "PUT", root+"child", `{"parent":"/chat/own"}`)
	r.must(201, kyle, "PUT", root+"rebel", `{"parent":"/chat/own","dispatch_policy":`+runner("mac")+`}`)
	typ("null")
	r.must(201, kyle, "PUT", root+"none", "")
	want := map[string]any{"default": "mac", "own": "pc", "child": "pc", "rebel": "mac", "none": nil}
	unchanged := func(after string) {
		t.Helper()
		for id, runner := range want {
			var got any
			if targets, ok := r.must(200, kyle, "GET", root+id, "").get("dispatch_policy.targets").([]any); ok && len(targets) == 1 {
				got = targets[0].(map[string]any)["runnerId"]
			}
			if got != runner {
				t.Errorf("after %s: %s goes to %v and not to %v", after, id, got, runner)
			}
		}
	}
	unchanged("the spawn")
	for id := range want {
		for _, who := range []string{kyle, mallory, "system:framework"} {
			for _, policy := range []string{runner("mac"), runner("pc"), `null`, `{"targets":[{"type":"webhook","url":"https://x.example/"}]}`} {
				body := `{"dispatch_policy":` + policy + `}`
				if a := r.as(who, "PUT", root+id, body); a.status != 409 && a.status != 403 {
					t.Errorf("%s spawns %s again: %d %s", who, id, a.status, a.body)
				}
				for _, route := range []string{"", "/dispatch"} {
					for _, method := range []string{"PATCH", "POST"} {
						if a := r.as(who, method, root+id+route, body); a.status != 405 && a.status != 404 {
							t.Errorf("%s %s of %s by %s: %d %s", method, route, id, who, a.status, a.body)
						}
					}
				}
			}
		}
	}
	unchanged("attempts to set it")
	r.must(200, kyle, "POST", root+"own/tags/dispatch_policy", `{"value":"x"}`)
	r.must(200, kyle, "POST", root+"own/signal", `{"signal":"SIGSTOP","payload":{"dispatch_policy":null}}`)
	r.must(200, kyle, "POST", root+"own/signal", `{"signal":"SIGCONT"}`)
	r.must(200, kyle, "POST", root+"own/send", `{"payload":{"dispatch_policy":null}}`)
	typ(runner("pc"))
	unchanged("another default of its type")
	r.must(204, kyle, "DELETE", "/_electric/entity-types/chat", "")
	r.must(200, kyle, "DELETE", root+"own", "")
	unchanged("the end of its parent and its type")
}

// What a type offers is on each entity's stream from the start, and wakes nobody.
func TestSlashCommandsAreRowsOfTheirEntities(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":"","slash_commands":[{"name":"sum-up","description":"d","arguments":[{"name":"n"}]},{"name":"stop","description":""}]}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", `{"initialMessage":"hi"}`)
	rows := r.rows("/chat/1")
	if len(rows) != 4 || rows[3]["type"] != "inbox" {
		t.Fatalf("%v", rows)
	}
	for i, name := range []string{"sum-up", "stop"} {
		v, _ := rows[i+1]["value"].(map[string]any)
		if rows[i+1]["type"] != "slash_command" || rows[i+1]["key"] != name || v["name"] != name || v["source"] != "static" || v["updated_at"] == nil || rows[i+1]["headers"].(map[string]any)["operation"] != "insert" {
			t.Errorf("%v", rows[i+1])
		}
	}
	r.must(201, kyle, "PUT", "/_electric/entities/chat/quiet", "")
	if n := r.count(`select count(*) from rouse.consumer_streams cs join rouse.streams s on s.id = cs.stream_id where s.path = 'chat/quiet/main' and cs.acked = s.tail and not s.pending`); n != 1 {
		t.Error("creation asks for attention")
	}
	for _, bad := range []string{`{}`, `"x"`, `[1]`, `[{}]`, `[{"name":""}]`, `[{"name":7}]`, `[{"name":"a"},{"name":"a"}]`, `[{"name":"` + strings.Repeat("x", 129) + `"}]`} {
		a := r.refused(400, "INVALID_REQUEST", kyle, "POST", "/_electric/entity-types", `{"name":"bad","description":"","slash_commands":`+bad+`}`)
		if !strings.Contains(string(a.body), "/slash_commands") {
			t.Errorf("%s: %s", bad, a.body)
		}
	}
}
