package control

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
)

// grant gives a permission on an entity and returns its id.
func (r *rig) grant(by, entity, body string) int64 {
	r.t.Helper()
	return int64(r.must(201, by, "POST", "/_electric/entities"+entity+"/grants", body).get("id").(float64))
}

// Each route asks for its permission: its owner may, so may whoever was granted
// it or manage, by name or by kind; nobody else, and nobody any more whose grant
// has expired or was for something else.
func TestWhoMayDoWhatToAnEntity(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":"","externally_writable_collections":{"notes":{"type":"state:notes"}}}`)
	const at = "/_electric/entities"
	routes := []struct {
		permission, method, path, body string
		status                         int
	}{
		{"read", "GET", "", "", 200},
		{"read", "HEAD", "", "", 200},
		{"read", "GET", "/display", "", 200},
		{"read", "GET", "/dispatch", "", 200},
		{"read", "GET", "/claims", "", 200},
		{"read", "GET", "/wakes", "", 200},
		{"write", "POST", "/send", `{"payload":1}`, 200},
		{"write", "POST", "/tags/k", `{"value":"v"}`, 200},
		{"write", "DELETE", "/tags/k", "", 200},
		{"write", "PATCH", "/inbox/m", `{"mode":"queued"}`, 200},
		{"write", "DELETE", "/inbox/m", "", 200},
		{"write", "POST", "/collections/notes", `{"operation":"insert","value":1}`, 201},
		{"fork", "POST", "/fork", "", 201},
		{"schedule", "PUT", "/schedules/s", `{"scheduleType":"cron","expression":"0 3 * * *","payload":1}`, 200},
		{"schedule", "DELETE", "/schedules/s", "", 200},
		{"signal", "POST", "/signal", `{"signal":"SIGHUP"}`, 200},
		{"spawn", "PUT", "/_electric/entities/chat/child-%s", `{"parent":"%s"}`, 201},
		{"manage", "GET", "/grants", "", 200},
		{"manage", "POST", "/grants", `{"subject_kind":"principal","subject_value":"user:x","permission":"read"}`, 201},
		{"delete", "DELETE", "", "", 200},
	}
	all := []string{"read", "write", "delete", "signal", "fork", "schedule", "spawn", "manage"}
	for i, rt := range routes {
		others := make([]string, 0, len(all))
		for _, p := range all {
			if p != rt.permission && p != "manage" {
				others = append(others, p)
			}
		}
		for j, actor := range []struct {
			name, who string
			grants    []string // bodies
			may       bool
		}{
			{"the owner", kyle, nil, true},
			{"the system", "system:framework", nil, true},
			{"nobody", mallory, nil, false},
			{"by name", mallory, []string{granted("principal", "user:mallory", rt.permission, "")}, true},
			{"by the name's url", mallory, []string{granted("principal", "/principal/user%3Amallory", rt.permission, `,"expires_at":"2999-01-01T00:00:00Z"`)}, true},
			{"by kind", "agent:a", []string{granted("principal_kind", "agent", rt.permission, "")}, true},
			{"by manage", mallory, []string{granted("principal", "user:mallory", "manage", "")}, true},
			{"another's grant", mallory, []string{granted("principal", "user:other", rt.permission, ""), granted("principal_kind", "agent", rt.permission, "")}, false},
			{"expired", mallory, []string{granted("principal", "user:mallory", rt.permission, `,"expires_at":"2020-01-01T00:00:00Z"`)}, false},
			{"for all else", mallory, func() (out []string) {
				for _, p := range others {
					out = append(out, granted("principal", "user:mallory", p, ""))
				}
				return out
			}(), false},
		} {
			entity := fmt.Sprintf("/chat/%d-%d", i, j)
			r.must(201, kyle, "PUT", at+entity, "")
			for _, g := range actor.grants {
				r.grant(kyle, entity, g)
			}
			path, body := at+entity+rt.path, rt.body
			if strings.Contains(rt.path, "%s") {
				path, body = fmt.Sprintf(rt.path, entity[len("/chat/"):]), fmt.Sprintf(rt.body, entity)
			}
			a := r.as(actor.who, rt.method, path, body)
			switch {
			case actor.may && a.status != rt.status:
				t.Errorf("%s %s for %s: %d, want %d: %s", rt.method, rt.path, actor.name, a.status, rt.status, a.body)
			case !actor.may && (a.status != 401 || rt.method != "HEAD" && a.code() != "UNAUTHORIZED"):
				t.Errorf("%s %s for %s: %d, want 401: %s", rt.method, rt.path, actor.name, a.status, a.body)
			}
		}
	}
}

func granted(kind, value, permission, more string) string {
	return fmt.Sprintf(`{"subject_kind":%q,"subject_value":%q,"permission":%q%s}`, kind, value, permission, more)
}

func TestEntityGrants(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	const at = "/_electric/entities/chat/1/grants"
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", "")
	a := r.must(201, kyle, "POST", at, `{"subject_kind":"principal","subject_value":"user:mallory","permission":"read","propagation":"descendants","copy_to_children":true,"expires_at":"2999-12-31T23:00:00+01:00"}`)
	if a.str("subject_value") != "/principal/user%3Amallory" || a.str("entity_url") != "/chat/1" || a.str("propagation") != "descendants" ||
		a.get("copy_to_children") != true || a.str("expires_at") != "2999-12-31T22:00:00.000Z" || a.str("created_by") != "/principal/user%3Akyle" || a.str("created_at") == "" {
		t.Errorf("%s", a.body)
	}
	r.must(201, kyle, "POST", at, granted("principal", "user:late", "read", `,"expires_at":"2001-01-01T00:00:00Z"`))
	if l := r.must(200, kyle, "GET", at, ""); len(l.get("grants").([]any)) != 1 || strings.Contains(string(l.body), "late") {
		t.Errorf("%s", l.body)
	}
	r.refused(400, "INVALID_REQUEST", kyle, "POST", at, granted("principal", "user:late", "read", `,"expires_at":"9999-12-31T23:59:59-01:00"`)) // year 10000 there
	id := fmt.Sprint(int64(a.get("id").(float64)))
	// A reader cannot pass on what it was given.
	r.refused(401, "UNAUTHORIZED", mallory, "POST", at, granted("principal", "user:x", "read", ""))
	r.refused(401, "UNAUTHORIZED", mallory, "GET", at, "")
	r.refused(401, "UNAUTHORIZED", mallory, "DELETE", at+"/"+id, "")
	for body, place := range map[string]string{
		``: "/", `{}`: "/", `[]`: "/",
		granted("principal", "kyle", "read", ""):                                    "/subject_value",
		granted("principal", "", "read", ""):                                        "/subject_value",
		granted("principal", "root:kyle", "read", ""):                               "/subject_value",
		granted("principal_kind", "root", "read", ""):                               "/subject_value",
		granted("group", "x", "read", ""):                                           "/subject_kind",
		granted("principal", "user:x", "own", ""):                                   "/permission",
		granted("principal", "user:x", "read", `,"propagation":"up"`):               "/propagation",
		granted("principal", "user:x", "read", `,"copy_to_children":"yes"`):         "/copy_to_children",
		granted("principal", "user:x", "read", `,"expires_at":"soon"`):              "/expires_at",
		granted("principal", "user:x", "read", `,"expires_at":7`):                   "/expires_at",
		granted("principal", "user:x", "read", `,"secret-member":"secret-value"`):   "",
		granted("principal", strings.Repeat("secret", 300), "read", ""):             "/subject_value",
		granted("principal", "user:x", "read", `,"expires_at":"0001-01-01T00:00Z"`): "/expires_at",
	} {
		a := r.refused(400, "INVALID_REQUEST", kyle, "POST", at, body)
		if place != "" && place != "/" && !strings.Contains(string(a.body), fmt.Sprintf("%q", place)) || strings.Contains(string(a.body), "secret-value") || strings.Contains(string(a.body), "secretsecret") {
			t.Errorf("%s: %s", short(body), a.body)
		}
	}
	for _, bad := range []string{"0", "-1", "x", "1.5", "99999999999999999999"} {
		r.refused(400, "INVALID_REQUEST", kyle, "DELETE", at+"/"+bad, "")
	}
	r.refused(404, "NOT_FOUND", kyle, "DELETE", at+"/999999", "")
	r.refused(404, "NOT_FOUND", kyle, "GET", "/_electric/entities/chat/none/grants", "")
	r.refused(404, "NOT_FOUND", kyle, "POST", "/_electric/entities/chat/none/grants", granted("principal", "user:x", "read", ""))
	r.refused(404, "NOT_FOUND", kyle, "DELETE", "/_electric/entities/chat/none/grants/1", "")
	r.refused(404, "UNKNOWN_ENTITY_TYPE", kyle, "GET", "/_electric/entities/none/none/grants", "")

	// What propagates reaches children, with and without a copy of their own; what is taken back is gone but for the copies.
	r.must(201, kyle, "PUT", "/_electric/entities/chat/c", `{"parent":"/chat/1"}`)
	r.must(200, mallory, "GET", "/_electric/entities/chat/c", "")
	if l := r.must(200, kyle, "GET", "/_electric/entities/chat/c/grants", ""); len(l.get("grants").([]any)) != 1 || !strings.Contains(string(l.body), `"propagation":"self"`) {
		t.Errorf("%s", l.body)
	}
	r.must(204, kyle, "DELETE", at+"/"+id, "")
	r.refused(404, "NOT_FOUND", kyle, "DELETE", at+"/"+id, "")
	r.refused(401, "UNAUTHORIZED", mallory, "GET", "/_electric/entities/chat/1", "")
	r.must(200, mallory, "GET", "/_electric/entities/chat/c", "")
	if n := r.count(`select count(*) from rouse.audit_log where action like 'entity.grant%' and resource = '/chat/1'`); n != 3 {
		t.Errorf("%d lines of audit", n)
	}
}

// A spawner of children cannot widen who else may: broad grants need manage on
// the parent.
func TestGrantsAtTheSpawn(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	const at = "/_electric/entities/chat/"
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", at+"p", `{"grants":[`+granted("principal", "user:mallory", "spawn", "")+`]}`)
	r.refused(401, "UNAUTHORIZED", mallory, "GET", at+"p", "")
	narrow := granted("principal", "user:ada", "read", "")
	r.must(201, mallory, "PUT", at+"c1", `{"parent":"/chat/p","grants":[`+narrow+`]}`)
	r.must(200, "user:ada", "GET", at+"c1", "")
	for i, broad := range []string{
		granted("principal", "user:ada", "manage", ""), granted("principal_kind", "user", "read", ""),
		granted("principal", "user:ada", "read", `,"propagation":"descendants"`), granted("principal", "user:ada", "read", `,"copy_to_children":true`),
	} {
		body := `{"parent":"/chat/p","grants":[` + narrow + "," + broad + `]}`
		a := r.refused(401, "UNAUTHORIZED", mallory, "PUT", fmt.Sprint(at, "b", i), body)
		if !strings.Contains(string(a.body), `"/grants"`) {
			t.Errorf("%s", a.body)
		}
		r.must(201, kyle, "PUT", fmt.Sprint(at, "b", i), body)
	}
	r.grant(kyle, "/chat/p", granted("principal", "user:mallory", "manage", ""))
	r.must(201, mallory, "PUT", at+"c2", `{"parent":"/chat/p","grants":[`+granted("principal_kind", "user", "read", "")+`]}`)
	r.must(200, "user:whoever", "GET", at+"c2", "")
	for body, place := range map[string]string{
		`{"grants":{}}`: "/grants", `{"grants":"x"}`: "/grants", `{"grants":[1]}`: "/grants", `{"grants":[{"more":1}]}`: "/grants", `{"grants":[{}]}`: "/grants/0/subject_kind",
		`{"grants":[` + narrow + `,` + granted("principal", "user:x", "own", "") + `]}`:               "/grants/1/permission",
		`{"grants":[` + strings.TrimSuffix(strings.Repeat(narrow+",", maxGrants+1), ",") + `]}`:       "/grants",
		`{"grants":[` + granted("principal", "user:x", "read", `,"expires_at":"9999-99-99"`) + `]}`:   "/grants/0/expires_at",
		`{"grants":[` + granted("principal", "user:x", "read", `,"propagation":"sideways"`) + `]}`:    "/grants/0/propagation",
		`{"grants":[` + granted("principal", "secret-value", "read", `,"propagation":"self"`) + `]}`:  "/grants/0/subject_value",
		`{"grants":[` + granted("principal_kind", "everybody", "read", `,"expires_at":null`) + `]}`:   "/grants/0/subject_value",
		`{"grants":[` + granted("nobody", "everybody", "read", `,"copy_to_children":false`) + `]}`:    "/grants/0/subject_kind",
		`{"grants":[` + granted("principal", "user:x", "read", `,"copy_to_children":"secret"`) + `]}`: "/grants",
	} {
		a := r.refused(400, "INVALID_REQUEST", kyle, "PUT", at+"bad", body)
		if !strings.Contains(string(a.body), fmt.Sprintf("%q", place)) || strings.Contains(string(a.body), "secret") {
			t.Errorf("%s: %s", short(body), a.body)
		}
	}
	r.refused(404, "NOT_FOUND", kyle, "GET", at+"bad", "")
	r.must(201, kyle, "PUT", at+"none", `{"grants":null}`)
	r.must(201, kyle, "PUT", at+"empty", `{"grants":[]}`)
}

// Lists show what one may read, and nothing else.
func TestListsShowWhatOneMayRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	const at = "/_electric/entities"
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		r.must(201, kyle, "PUT", at+"/chat/"+id, "")
	}
	r.must(201, mallory, "PUT", at+"/chat/own", "")
	r.grant(kyle, "/chat/a", granted("principal", "user:mallory", "read", ""))
	r.grant(kyle, "/chat/a", granted("principal_kind", "user", "manage", ""))
	r.grant(kyle, "/chat/b", granted("principal_kind", "user", "read", ""))
	r.grant(kyle, "/chat/c", granted("principal", "user:mallory", "write", ""))
	r.grant(kyle, "/chat/d", granted("principal", "user:mallory", "read", `,"expires_at":"2020-01-01T00:00:00Z"`))
	r.grant(kyle, "/chat/e", granted("principal_kind", "agent", "read", ""))
	for who, want := range map[string]string{mallory: "[own b a]", "user:third": "[b a]", "agent:x": "[e]", "service:x": "[]", kyle: "[e d c b a]", "system:dev-local": "[own e d c b a]"} {
		if got := r.ids(who, at); got != want {
			t.Errorf("%s sees %s, want %s", who, got, want)
		}
	}
	page := r.must(200, mallory, "GET", at+"?limit=2", "")
	if got := r.ids(mallory, at+"?limit=2&cursor="+page.header.Get("Electric-Next-Cursor")); got != "[a]" {
		t.Errorf("second page %s", got)
	}
	if got := r.ids(mallory, at+"?created_by=/principal/user%253Akyle"); got != "[b a]" {
		t.Errorf("by its maker: %s", got)
	}
}

// ids lists entities as somebody sees them.
func (r *rig) ids(who, path string) string {
	r.t.Helper()
	var out []string
	for _, e := range r.must(200, who, "GET", path, "").list() {
		url := e.(map[string]any)["url"].(string)
		out = append(out, url[strings.LastIndex(url, "/")+1:])
	}
	return fmt.Sprint(out)
}

func TestEntityTypeGrants(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.OpenTypes = false })
	const at = "/_electric/entity-types"
	typ := `{"name":"chat","description":"","permission_grants":[` + granted("principal", "user:mallory", "spawn", "") + `]}`
	r.must(201, kyle, "POST", at, typ)
	r.must(201, kyle, "POST", at, typ) // repeated at each start of its program
	l := r.must(200, kyle, "GET", at+"/chat/grants", "")
	if len(l.get("grants").([]any)) != 1 || !strings.Contains(string(l.body), `"entity_type":"chat"`) {
		t.Errorf("%s", l.body)
	}
	// A time that moves with each registration makes one grant last longer.
	for _, day := range []string{"2020-01-01", "2999-01-02", "2999-01-01"} {
		r.must(201, kyle, "POST", at, `{"name":"moving","description":"","permission_grants":[`+granted("principal", "user:x", "spawn", `,"expires_at":"`+day+`T00:00:00Z"`)+`]}`)
	}
	if n := r.count(`select count(*) from rouse.entity_type_grants where entity_type = 'moving' and expires_at = '2999-01-02Z'`); n != 1 || n != r.count(`select count(*) from rouse.entity_type_grants where entity_type = 'moving'`) {
		t.Errorf("%d grants", n)
	}
	first := fmt.Sprint(int64(l.get("grants").([]any)[0].(map[string]any)["id"].(float64)))
	r.must(200, mallory, "GET", at+"/chat", "")
	r.must(201, mallory, "PUT", "/_electric/entities/chat/m", "")
	r.refused(401, "UNAUTHORIZED", mallory, "GET", at+"/chat/grants", "")
	r.refused(401, "UNAUTHORIZED", mallory, "POST", at+"/chat/grants", granted("principal", "user:x", "spawn", ""))
	r.refused(401, "UNAUTHORIZED", mallory, "DELETE", at+"/chat/grants/"+first, "")
	r.refused(401, "UNAUTHORIZED", mallory, "DELETE", at+"/chat", "")
	r.refused(401, "UNAUTHORIZED", "agent:a", "PUT", "/_electric/entities/chat/a", "")
	a := r.must(201, kyle, "POST", at+"/chat/grants", granted("principal_kind", "agent", "spawn", `,"expires_at":"2999-01-01T00:00:00Z"`))
	r.must(201, "agent:a", "PUT", "/_electric/entities/chat/a", "")
	r.must(204, kyle, "DELETE", at+"/chat/grants/"+fmt.Sprint(int64(a.get("id").(float64))), "")
	r.refused(401, "UNAUTHORIZED", "agent:a", "PUT", "/_electric/entities/chat/a2", "")
	r.must(201, kyle, "POST", at+"/chat/grants", granted("principal_kind", "agent", "spawn", `,"expires_at":"2020-01-01T00:00:00Z"`))
	r.refused(401, "UNAUTHORIZED", "agent:a", "PUT", "/_electric/entities/chat/a2", "")
	// Who manages a type does what its registrar may.
	r.must(201, kyle, "POST", at+"/chat/grants", granted("principal", "user:ada", "manage", ""))
	r.must(200, "user:ada", "PATCH", at+"/chat/schemas", `{"inbox_schemas":{"x":{}}}`)
	r.must(201, "user:ada", "POST", at, `{"name":"chat","description":"hers"}`)
	if g := r.must(200, kyle, "GET", at+"/chat", ""); g.str("owner_principal") != "/principal/user%3Akyle" {
		t.Errorf("%s", g.body)
	}
	r.must(201, mallory, "PUT", "/_electric/entities/chat/m2", "")
	for body, place := range map[string]string{
		granted("principal", "user:x", "read", ""):                        "/permission",
		granted("principal", "x", "spawn", ""):                            "/subject_value",
		granted("principal_kind", "x", "spawn", ""):                       "/subject_value",
		granted("x", "x", "spawn", ""):                                    "/subject_kind",
		granted("principal", "user:x", "spawn", `,"expires_at":"x"`):      "/expires_at",
		granted("principal", "user:x", "spawn", `,"propagation":"self"`):  "",
		granted("principal", "user:x", "spawn", `,"copy_to_children":1`):  "",
		granted("principal", "user:x", "spawn", `,"expires_at":{"x":{}}`): "/expires_at",
	} {
		a := r.refused(400, "INVALID_REQUEST", kyle, "POST", at+"/chat/grants", body)
		if !strings.Contains(string(a.body), place) {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	for _, bad := range []string{
		`{}`, `[1]`, `[` + granted("principal", "user:x", "read", "") + `]`, `[` + granted("principal", "user:x", "spawn", `,"propagation":"descendants"`) + `]`,
	} {
		r.refused(400, "INVALID_REQUEST", kyle, "POST", at, `{"name":"bad","description":"","permission_grants":`+bad+`}`)
	}
	r.refused(404, "NOT_FOUND", kyle, "GET", at+"/none/grants", "")
	r.refused(404, "NOT_FOUND", kyle, "POST", at+"/none/grants", granted("principal", "user:x", "spawn", ""))
	r.refused(404, "NOT_FOUND", kyle, "DELETE", at+"/none/grants/1", "")
	r.refused(404, "NOT_FOUND", kyle, "DELETE", at+"/chat/grants/999999", "")
	r.refused(400, "INVALID_REQUEST", kyle, "DELETE", at+"/chat/grants/x", "")
	// A type that is registered anew by somebody else keeps nobody's grants.
	r.must(204, "user:ada", "DELETE", at+"/chat", "")
	r.must(201, "user:bob", "POST", at, `{"name":"chat","description":""}`)
	r.refused(401, "UNAUTHORIZED", mallory, "PUT", "/_electric/entities/chat/m3", "")
}

// A principal is an entity too: built in, its own, and never spawned or ended.
func TestPrincipalsAreEntities(t *testing.T) {
	t.Parallel()
	var told atomic.Int32
	r := newRig(t, func(c *Config) { c.Changed = func() { told.Add(1) } })
	// Who waits for a stream of it is linked when it comes to be, as for every other.
	if got := r.str(`select rouse.subscription_register(1, 's', 'pull-wake', 'principal/*/main', array['principal/user:kyle/main'], 'wakes/s', null, null, null, 30000, '', '/principal/user%3Akyle', false)`); got != "created" {
		t.Fatal(got)
	}
	for _, at := range []string{"/_electric/entities/principal/user:kyle", "/_electric/entities/principal/user%3Akyle"} {
		a := r.must(200, kyle, "GET", at, "")
		if a.str("url") != "/principal/user%3Akyle" || a.str("type") != "principal" || a.str("tags.principal_kind") != "user" || a.str("tags.principal_id") != "kyle" ||
			a.str("status") != "idle" || a.str("streams.main") != "/principal/user%3Akyle/main" {
			t.Errorf("%s", a.body)
		}
	}
	if n := r.count(`select count(*) from rouse.consumer_streams cs join rouse.streams s on s.id = cs.stream_id where s.path = 'principal/user:kyle/main' and cs.link_type <> 'own' and cs.behind`); n != 1 || told.Load() != 1 {
		t.Errorf("%d links, told %d times", n, told.Load())
	}
	const at = "/_electric/entities/principal/user:kyle"
	r.refused(401, "UNAUTHORIZED", mallory, "GET", at, "")
	r.refused(404, "NOT_FOUND", mallory, "GET", "/_electric/entities/principal/user:nobody", "")
	r.must(200, "system:dev-local", "GET", "/_electric/entities/principal/agent:worker", "")
	for _, bad := range []string{"kyle", "root:kyle", "user:", ":", "user:a/b"} {
		r.refused(400, "INVALID_REQUEST", kyle, "GET", "/_electric/entities/principal/"+bad, "")
		r.refused(400, "INVALID_REQUEST", kyle, "POST", "/_electric/entities/principal/"+bad+"/send", `{"payload":1}`)
	}
	for _, who := range []string{kyle, mallory, "system:framework"} {
		r.refused(400, "INVALID_REQUEST", who, "PUT", at, "")
		r.refused(400, "INVALID_REQUEST", who, "DELETE", at, "")
		r.refused(400, "INVALID_REQUEST", who, "POST", at+"/signal", `{"signal":"SIGKILL"}`)
		r.refused(400, "INVALID_REQUEST", who, "POST", at+"/tags/k", `{"value":"v"}`)
		r.refused(400, "INVALID_REQUEST", who, "DELETE", at+"/tags/k", "")
	}
	// It takes messages, from whom it lets send.
	r.must(200, kyle, "POST", at+"/send", `{"payload":"note to self"}`)
	r.refused(401, "UNAUTHORIZED", mallory, "POST", at+"/send", `{"payload":"spam"}`)
	r.grant(kyle, "/principal/user:kyle", granted("principal_kind", "user", "write", ""))
	r.must(200, mallory, "POST", at+"/send", `{"payload":"hi"}`)
	if n := r.count(`select count(*) from rouse.messages m join rouse.streams s on s.id = m.stream_id where s.path = 'principal/user:kyle/main' and s.owner = '/principal/user%3Akyle'`); n != 3 {
		t.Errorf("%d messages", n)
	}
	// Lists are of what was spawned.
	if got := r.ids(kyle, "/_electric/entities"); got != "[]" {
		t.Errorf("listed: %s", got)
	}
	if got := r.ids(kyle, "/_electric/entities?type=principal"); got != "[user%3Akyle]" {
		t.Errorf("listed: %s", got)
	}
	if got := r.ids("service:new", "/_electric/entities?type=principal"); got != "[service%3Anew]" {
		t.Errorf("listed: %s", got)
	}
}

// What is granted in one service says nothing about another, where things may
// have the same names; files and forks stay where they are made.
func TestGrantsStayInTheirService(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.OpenTypes = false })
	r.must(201, "system:framework", "POST", "/_electric/services", `{"name":"other"}`)
	for _, q := range []string{"", "?service=other"} {
		r.must(201, kyle, "POST", "/_electric/entity-types"+q, `{"name":"chat","description":""}`)
		r.must(201, kyle, "PUT", "/_electric/entities/chat/p"+q, "")
		r.must(201, kyle, "PUT", "/_electric/entities/chat/c"+q, `{"parent":"/chat/p"}`)
	}
	r.grant(kyle, "/chat/p", granted("principal", "user:mallory", "manage", `,"propagation":"descendants"`))
	r.must(201, kyle, "POST", "/_electric/entity-types/chat/grants", granted("principal", "user:mallory", "spawn", ""))
	file := r.attach(kyle, "/chat/p", "x", "", []byte("here"))
	for _, tc := range []struct{ method, path, body string }{
		{"GET", "/_electric/entities/chat/p", ""}, {"GET", "/_electric/entities/chat/c", ""}, {"POST", "/_electric/entities/chat/c/send", `{"payload":1}`},
		{"GET", "/_electric/entities/chat/p/grants", ""}, {"POST", "/_electric/entities/chat/p/fork", `{"instance_id":"f"}`}, {"GET", "/_electric/entity-types/chat", ""},
		{"PUT", "/_electric/entities/chat/m", ""}, {"POST", "/_electric/entities/chat/p/inbox/k", `{}`},
	} {
		if tc.method == "POST" && strings.Contains(tc.path, "inbox") {
			tc.method, tc.body = "PATCH", `{"mode":"queued"}`
		}
		if a := r.as(mallory, tc.method, tc.path, tc.body); a.status >= 400 {
			t.Errorf("%s %s: %d %s", tc.method, tc.path, a.status, a.body)
		}
		r.refused(401, "UNAUTHORIZED", mallory, tc.method, tc.path+"?service=other", tc.body)
	}
	if got := r.ids(mallory, "/_electric/entities?service=other"); got != "[]" {
		t.Errorf("listed there: %s", got)
	}
	r.refused(404, "NOT_FOUND", kyle, "GET", "/_electric/entities/chat/p/attachments/"+file+"?service=other", "")
	if n := r.count(`select count(*) from rouse.entities where service_id <> 1`); n != 2 {
		t.Errorf("%d entities there", n)
	}
	r.must(201, kyle, "POST", "/_electric/entities/chat/p/fork?service=other", `{"instance_id":"f"}`)
	if n := r.count(`select count(*) from rouse.entities e join rouse.streams s on s.service_id = e.service_id and s.path = substr(e.url, 2) || '/main' where e.service_id <> 1`); n != 4 {
		t.Errorf("%d entities there after a fork", n)
	}
}
