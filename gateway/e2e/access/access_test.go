package access

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/signin"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// bound is how long a test waits for what takes a moment.
const bound = 20 * time.Second

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) code() string {
	var p struct{ Code string }
	_ = json.Unmarshal([]byte(a.body), &p)
	return p.Code
}

// do sends a request; headers come in pairs.
func do(t *testing.T, client *http.Client, method, url, body string, header ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(raw)}
}

// plain is a client of http.
func plain(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// must is do with the status that is wanted.
func must(t *testing.T, status int, client *http.Client, method, url, body string, header ...string) answer {
	t.Helper()
	a := do(t, client, method, url, body, header...)
	if a.status != status {
		t.Fatalf("%s %s: %d, want %d: %s", method, url, a.status, status, a.body)
	}
	return a
}

func bearer(token string) []string { return []string{"Authorization", "Bearer " + token} }

// tokenFile makes a file of one token each.
func tokenFile(t testing.TB, who ...string) (file string, tokens map[string]string) {
	t.Helper()
	file, tokens = filepath.Join(t.TempDir(), "tokens.json"), map[string]string{}
	for _, p := range who {
		tokens[p] = devtoken.NewToken()
		if err := devtoken.Add(file, devtoken.Entry{Principal: p, SHA256: devtoken.Hash(tokens[p])}); err != nil {
			t.Fatal(err)
		}
	}
	return file, tokens
}

// R24: a hook turns a request into a user, whose row is made on first sight;
// three hooks beside each other.
func TestPeopleOfThreeHooks(t *testing.T) {
	t.Parallel()
	file, tokens := tokenFile(t, "user:ada")
	idp := signin.New(t)
	legacy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct{ Headers http.Header }
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			t.Error(err)
		}
		switch q.Headers.Get("Cookie") {
		case "session=eve":
			_, _ = io.WriteString(w, `{"verdict":"allow","principal":{"kind":"user","id":"eve","profile":{"display_name":"Eve","email":"eve@example.com"}},"cache_for_ms":60000}`)
		case "session=down":
			w.WriteHeader(http.StatusInternalServerError)
		case "session=over":
			_, _ = io.WriteString(w, `{"verdict":"deny"}`)
		default:
			_, _ = io.WriteString(w, `{"verdict":"no_opinion"}`)
		}
	}))
	t.Cleanup(legacy.Close)
	gw := servertest.Start(t, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
		c.Insecure, c.TokensFile = false, file
		c.Auth.Hooks = []config.AuthHook{idp.Hook(), {HTTP: &config.HTTPHook{URL: legacy.URL, Headers: []string{"Cookie"}}}}
	}})
	pool := gw.DB.Pool(t)
	rows := func() (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), `select count(*) from rouse.users`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	seen := rows()
	list := gw.URL + "/_electric/entities"
	for _, tc := range []struct {
		name   string
		header []string
		status int
		code   string
		user   string
		shown  string
	}{
		{"nothing", nil, 401, "UNAUTHORIZED", "", ""},
		{"an unknown token of ours", bearer(devtoken.NewToken()), 401, "UNAUTHENTICATED", "", ""},
		{"a token nobody knows", bearer("opaque"), 401, "UNAUTHORIZED", "", ""},
		{"an expired JWT", bearer(idp.Token(t, "kyle", -time.Minute)), 401, "UNAUTHENTICATED", "", ""},
		{"a JWT with a flipped bit", bearer(idp.Token(t, "kyle", time.Hour) + "A"), 401, "UNAUTHENTICATED", "", ""},
		{"another issuer's JWT", bearer(signin.New(t).Token(t, "kyle", time.Hour)), 401, "UNAUTHORIZED", "", ""},
		{"a session that is over", []string{"Cookie", "session=over"}, 401, "UNAUTHENTICATED", "", ""},
		{"an endpoint that fails", []string{"Cookie", "session=down"}, 503, "AUTH_UNAVAILABLE", "", ""},
		{"token", bearer(tokens["user:ada"]), 200, "", "ada", ""},
		{"token again", bearer(tokens["user:ada"]), 200, "", "ada", ""},
		{"JWT", bearer(idp.Token(t, "kyle", time.Hour)), 200, "", "kyle", "Name of kyle"},
		{"session", []string{"Cookie", "session=eve"}, 200, "", "eve", "Eve"},
		{"token beside a session: the first hook decides", append(bearer(tokens["user:ada"]), "Cookie", "session=over"), 200, "", "ada", ""},
	} {
		a := do(t, plain(t), "GET", list, "", tc.header...)
		if a.status != tc.status || a.code() != tc.code {
			t.Errorf("%s: %d %s", tc.name, a.status, a.body)
			continue
		}
		if tc.user == "" {
			if n := rows(); n != seen {
				t.Errorf("%s: it made a row", tc.name)
			}
			continue
		}
		var shown string
		if err := pool.QueryRow(t.Context(), `select coalesce(display_name, '') from rouse.users where id = $1`, tc.user).Scan(&shown); err != nil || shown != tc.shown {
			t.Errorf("%s: the row says %q: %v", tc.name, shown, err)
		}
		seen = rows()
	}
	if seen != 3 {
		t.Errorf("%d rows for three people", seen)
	}

	// A revoked token counts for nothing from the next request on.
	if _, err := devtoken.Remove(file, func(e devtoken.Entry) bool { return e.Principal == "user:ada" }); err != nil {
		t.Fatal(err)
	}
	if a := do(t, plain(t), "GET", list, "", bearer(tokens["user:ada"])...); a.code() != "UNAUTHENTICATED" {
		t.Errorf("a revoked token: %d %s", a.status, a.body)
	}
	must(t, 200, plain(t), "GET", list, "", bearer(idp.Token(t, "kyle", time.Hour))...)
}

const policy = `package rouse

# Only operators take things away.
decision := "deny" if { input.resource.kind == "route"; input.verb == "DELETE"; input.principal.attributes.role != "operator" }

# Auditors read every entity.
decision := "allow" if { input.resource.kind == "entity"; input.verb == "read"; input.principal.attributes.role == "auditor" }
`

func TestAPolicyTakesAwayAndMayGrant(t *testing.T) {
	t.Parallel()
	idp := signin.New(t)
	file := filepath.Join(t.TempDir(), "policy.rego")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, grants := range []bool{false, true} {
		gw := servertest.Start(t, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
			c.Insecure, c.TypeSpawn = false, "all"
			c.Auth.Hooks = []config.AuthHook{idp.Hook()}
			c.Auth.Authorizers = []config.Authorizer{{OPA: &config.OPAAuthorizer{Policy: file, Deadline: 5 * time.Second}}}
			c.Auth.AuthorizersMayGrant = grants
		}})
		client := plain(t)
		as := func(who, role string) []string { return bearer(idp.Token(t, who, time.Hour, "role", role)) }
		kyle := as("kyle", "author")
		must(t, 201, client, "POST", gw.URL+"/_electric/entity-types", `{"name":"chat","description":"x"}`, kyle...)
		must(t, 201, client, "PUT", gw.URL+"/_electric/entities/chat/1", `{}`, kyle...)
		must(t, 200, client, "GET", gw.URL+"/_electric/entities/chat/1", "", kyle...)
		must(t, 401, client, "GET", gw.URL+"/_electric/entities/chat/1", "", as("eve", "author")...)
		must(t, 401, client, "GET", gw.URL+"/chat/1/main", "", as("eve", "author")...)

		want := 401
		if grants {
			want = 200
		}
		must(t, want, client, "GET", gw.URL+"/_electric/entities/chat/1", "", as("otto", "auditor")...)
		must(t, want, client, "GET", gw.URL+"/chat/1/main", "", as("otto", "auditor")...)
		must(t, 401, client, "POST", gw.URL+"/_electric/entities/chat/1/signal", `{"signal":"SIGSTOP"}`, as("otto", "auditor")...)

		// The owner himself may not.
		if a := must(t, 403, client, "DELETE", gw.URL+"/_electric/entities/chat/1", "", kyle...); a.code() != "FORBIDDEN" {
			t.Error(a.body)
		}
		must(t, 200, client, "DELETE", gw.URL+"/_electric/entities/chat/1", "", as("kyle", "operator")...)
		must(t, 201, client, "PUT", gw.URL+"/notes", `[1]`, append(kyle, "Content-Type", "application/json")...)
		must(t, 403, client, "DELETE", gw.URL+"/notes", "", kyle...)
		must(t, 204, client, "DELETE", gw.URL+"/notes", "", as("kyle", "operator")...)
	}
}

func TestWhoSendsTooMuchIsTold(t *testing.T) {
	t.Parallel()
	file, tokens := tokenFile(t, "user:kyle", "user:ada", "system:framework")
	gw := servertest.Start(t, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
		c.Insecure, c.TokensFile = false, file
		c.Auth.RatePerSecond, c.Auth.RateBurst = 0.01, 5
	}})
	var refused answer
	for n := range 6 {
		if a := do(t, plain(t), "GET", gw.URL+"/_electric/runners", "", bearer(tokens["user:kyle"])...); n < 5 && a.status != 200 {
			t.Fatalf("request %d: %d %s", n, a.status, a.body)
		} else if n == 5 {
			refused = a
		}
	}
	if refused.status != 429 || refused.code() != "RATE_LIMITED" || refused.header.Get("Retry-After") == "" || refused.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %v %s", refused.status, refused.header, refused.body)
	}
	// All ways in are one; others are not held up, nor is the system.
	for _, path := range []string{"/any/stream", "/__ds/subscriptions/x", "/_electric/entities"} {
		if a := do(t, plain(t), "GET", gw.URL+path, "", bearer(tokens["user:kyle"])...); a.status != 429 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	must(t, 200, plain(t), "GET", gw.URL+"/_electric/runners", "", bearer(tokens["user:ada"])...)
	for range 10 {
		must(t, 200, plain(t), "GET", gw.URL+"/_electric/runners", "", bearer(tokens["system:framework"])...)
	}
}

// Every change of the control plane leaves a row of who, what and from where, and no secret.
func TestChangesAreAudited(t *testing.T) {
	t.Parallel()
	file, tokens := tokenFile(t, "user:kyle", "system:framework")
	gw := servertest.Start(t, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) { c.Insecure, c.TokensFile = false, file }})
	kyle := append(bearer(tokens["user:kyle"]), "X-Request-Id", "the-request")
	c := plain(t)
	changes := []struct {
		status             int
		method, path, body string
		resource           string
	}{
		{201, "POST", "/_electric/entity-types", `{"name":"chat","description":"x"}`, "chat"},
		{200, "PATCH", "/_electric/entity-types/chat/schemas", `{"inbox_schemas":{"note":{"type":"object"}}}`, "chat"},
		{201, "POST", "/_electric/entity-types/chat/grants", `{"subject_kind":"principal","subject_value":"/principal/user%3Aada","permission":"spawn"}`, "chat"},
		{201, "PUT", "/_electric/entities/chat/1", `{"args":{"password":"hunter2"}}`, "/chat/1"},
		{200, "POST", "/_electric/entities/chat/1/tags/color", `{"value":"hunter2"}`, "/chat/1"},
		{201, "POST", "/_electric/entities/chat/1/grants", `{"subject_kind":"principal","subject_value":"/principal/user%3Aada","permission":"read"}`, "/chat/1"},
		{200, "PUT", "/_electric/entities/chat/1/schedules/nightly", `{"scheduleType":"cron","expression":"0 3 * * *","payload":"hunter2"}`, "/chat/1"},
		{200, "PUT", "/_electric/entities/chat/1/schedules/once", `{"scheduleType":"future_send","fireAt":"2099-01-01T00:00:00Z","payload":"hunter2"}`, "/chat/1"},
		{200, "DELETE", "/_electric/entities/chat/1/schedules/nightly", ``, "/chat/1"},
		{204, "POST", "/_electric/wake", `{"subscriberUrl":"/chat/1","sourceUrl":"/notes","condition":{"on":"change"}}`, "/chat/1"},
		{204, "POST", "/_electric/wake/unregister", `{"subscriberUrl":"/chat/1","sourceUrl":"/notes"}`, "/chat/1"},
		{204, "POST", "/_electric/wake", `{"subscriberUrl":"/chat/1","sourceUrl":"/others","condition":{"on":"change"}}`, "/chat/1"},
		{200, "POST", "/_electric/entities/chat/1/signal", `{"signal":"SIGSTOP","reason":"hunter2"}`, "/chat/1"},
		{201, "POST", "/_electric/runners", `{"id":"mac","label":"Mac"}`, "mac"},
		{200, "POST", "/_electric/runners/mac/disable", `{}`, "mac"},
		{201, "PUT", "/__ds/subscriptions/s", `{"type":"pull-wake","pattern":"jobs/*","wake_stream":"wakes/s"}`, "s"},
		{204, "DELETE", "/__ds/subscriptions/s", ``, "s"},
		{204, "DELETE", "/_electric/entity-types/chat", ``, "chat"},
	}
	pool := gw.DB.Pool(t)
	var last int64
	for _, ch := range changes {
		must(t, ch.status, c, ch.method, gw.URL+ch.path, ch.body, kyle...)
		var who, what, on, address, request, detail string
		var id int64
		if err := pool.QueryRow(t.Context(), `select id, principal, action, resource, coalesce(detail->'from'->>'address', ''), coalesce(detail->'from'->>'request', ''), detail::text
			from rouse.audit_log order by id desc limit 1`).Scan(&id, &who, &what, &on, &address, &request, &detail); err != nil {
			t.Fatalf("%s %s: %v", ch.method, ch.path, err)
		}
		if id == last || who != "/principal/user%3Akyle" || what == "" || !strings.Contains(on, ch.resource) || address != "127.0.0.1" || request == "" {
			t.Errorf("%s %s: row %d of %s by %s on %s from %q, request %q", ch.method, ch.path, id, what, who, on, address, request)
		}
		if strings.Contains(detail, "hunter2") || strings.Contains(detail, tokens["user:kyle"]) {
			t.Errorf("%s %s: the row holds what it must not: %s", ch.method, ch.path, detail)
		}
		last = id
	}
	// A refused change is none, and what runs all the time, or changes nothing, is not written down.
	must(t, 204, c, "POST", gw.URL+"/_electric/wake", `{"subscriberUrl":"/chat/1","sourceUrl":"/others","condition":{"on":"change"}}`, kyle...)
	must(t, 204, c, "POST", gw.URL+"/_electric/wake/unregister", `{"subscriberUrl":"/chat/1","sourceUrl":"/notes"}`, kyle...)
	must(t, 200, c, "POST", gw.URL+"/_electric/runners/mac/heartbeat", `{}`, kyle...)
	must(t, 404, c, "POST", gw.URL+"/_electric/entities/none/1/signal", `{"signal":"SIGSTOP"}`, kyle...)
	var newest int64
	if err := pool.QueryRow(t.Context(), `select max(id) from rouse.audit_log`).Scan(&newest); err != nil || newest != last {
		t.Errorf("row %d was written, %v", newest, err)
	}
}
