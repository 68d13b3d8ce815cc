package servertest_test

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// far is a request as another site's page makes it, or under another name.
func far(t *testing.T, method, url, body, host, origin string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if host != "" {
		req.Host = host
	}
	if origin != "" {
		req.Header.Set("Origin", origin)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(raw)
}

// A page that a developer opens must not act as system on the gateway that runs
// on the same machine.
func TestOtherSitesCannotUseAGatewayWithoutCredentials(t *testing.T) {
	t.Parallel()
	in := servertest.Start(t, servertest.Options{Configure: func(c *config.Config) { c.PublicURL = "https://tunnel.example" }})
	base := "http://" + in.Addr().String()
	json := []string{"Content-Type", "application/json"}
	expect(t, 201, "PUT", base+"/plain", `[]`, json...)
	expect(t, 201, "POST", base+"/_electric/entity-types", `{"name":"chat","description":""}`)
	expect(t, 201, "POST", base+"/_electric/runners", `{"id":"mac","label":"Mac"}`)
	expect(t, 201, "PUT", base+"/_electric/entities/chat/1", `{"dispatch_policy":{"targets":[{"type":"runner","runnerId":"mac"}]}}`)
	rows := func() (n int) {
		t.Helper()
		if err := in.DB.Conn(t).QueryRow(t.Context(), `select (select count(*) from rouse.streams) + (select count(*) from rouse.messages) + (select count(*) from rouse.entities)
			+ (select count(*) from rouse.entity_types) + (select count(*) from rouse.runners)`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := rows()
	type call struct{ method, path, body string }
	reads := []call{{"GET", "/_electric/entities", ``}, {"GET", "/_electric/entities/chat/1", ``}, {"GET", "/_electric/runners", ``}, {"GET", "/_electric/runners/mac", ``},
		{"GET", "/_electric/entity-types", ``}, {"GET", "/chat/1/main", ``}, {"GET", "/runners/mac/wake", ``}}
	refused := append([]call{
		{"PUT", "/plain2", ``}, {"POST", "/plain", `[1]`}, {"POST", "/v1/stream/plain", `[1]`}, {"DELETE", "/plain", ``},
		{"POST", "/_electric/entity-types", `{"name":"evil","description":""}`}, {"DELETE", "/_electric/entity-types/chat", ``},
		{"PUT", "/_electric/entities/chat/2", `{}`}, {"POST", "/_electric/entities/chat/1/send", `{"payload":1}`}, {"DELETE", "/_electric/entities/chat/1", ``},
		{"POST", "/_electric/entities/chat/1/signal", `{"signal":"SIGINT"}`}, {"POST", "/_electric/entities/chat/1/tags/a", `{"value":"b"}`},
		{"POST", "/_electric/runners", `{"id":"evil","label":"x"}`}, {"POST", "/_electric/runners/mac/claim", `{}`}, {"POST", "/_electric/runners/mac/disable", ``},
		{"GET", "/v1/stream/chat/1/main?offset=-1&live=sse", ``}, {"POST", "/_electric/services", `{"name":"evil"}`},
	}, reads...)
	for name, from := range map[string]struct{ host, origin string }{
		"another site's page": {"", "https://evil.example"}, "a sandboxed page": {"", "null"},
		"a name made to point here": {"evil.example:4437", ""}, "its page": {"evil.example:4437", "http://evil.example:4437"},
		"another site through the tunnel": {"tunnel.example", "https://evil.example"},
	} {
		for _, q := range refused {
			status, body := far(t, q.method, base+q.path, q.body, from.host, from.origin, append(json, "electric-principal", "system:framework")...)
			if status != 403 || !strings.Contains(body, `"ORIGIN_FORBIDDEN"`) || !strings.Contains(body, "ROUSE_PUBLIC_URL") {
				t.Errorf("%s: %s %s: %d %s", name, q.method, q.path, status, body)
			}
		}
		// What is public anyway, and what only tells that somebody is there.
		for _, path := range []string{"/plain", "/livez", "/_electric/health", "/openapi.json", "/__ds/jwks.json"} {
			if status, body := far(t, "GET", base+path, "", from.host, from.origin); status != 200 {
				t.Errorf("%s: GET %s: %d %s", name, path, status, body)
			}
		}
		if status, _ := far(t, "OPTIONS", base+"/plain", "", from.host, from.origin); status != 204 {
			t.Errorf("%s: a preflight: %d", name, status)
		}
		// A token that nobody can guess is enough where a token is; this one is junk, which is said.
		if status, body := far(t, "POST", base+"/_electric/wake-callbacks/00000000-0000-7000-8000-000000000000", `{}`, from.host, from.origin, "electric-claim-token", "rouse_ct_x"); status != 401 || !strings.Contains(body, "CLAIM_TOKEN_INVALID") {
			t.Errorf("%s: a callback with a token: %d %s", name, status, body)
		}
	}
	if after := rows(); after != before {
		t.Errorf("%d rows were made or lost", after-before)
	}
	for name, from := range map[string]struct{ host, origin string }{
		"a client": {"", ""}, "its own page": {"localhost:4437", "http://localhost:4437"}, "a page being developed": {"", "http://localhost:3000"},
		"through the tunnel": {"tunnel.example", ""}, "its own page through the tunnel": {"tunnel.example", "https://tunnel.example"},
	} {
		for _, q := range reads {
			if status, body := far(t, q.method, base+q.path, q.body, from.host, from.origin); status != 200 {
				t.Errorf("%s: %s %s: %d %s", name, q.method, q.path, status, body)
			}
		}
		if status, body := far(t, "POST", base+"/plain", `[1]`, from.host, from.origin, json...); status != 204 {
			t.Errorf("%s: an append: %d %s", name, status, body)
		}
		if status, body := far(t, "POST", base+"/_electric/entities/chat/1/send", `{"payload":1}`, from.host, from.origin); status != 200 {
			t.Errorf("%s: a send: %d %s", name, status, body)
		}
	}
}

// With credentials pages of every site may use a gateway, for they must show some.
func TestServeTakesCredentialsFromEverySite(t *testing.T) {
	t.Parallel()
	token, file := devtoken.NewToken(), filepath.Join(t.TempDir(), "tokens")
	if err := devtoken.Add(file, devtoken.Entry{Principal: "user:kyle", SHA256: devtoken.Hash(token)}); err != nil {
		t.Fatal(err)
	}
	in := servertest.Start(t, servertest.Options{Configure: func(c *config.Config) { c.Insecure, c.TokensFile = false, file }})
	for _, from := range []struct{ host, origin string }{{"", "https://app.example"}, {"rouse.example", ""}, {"rouse.example", "https://app.example"}} {
		if status, body := far(t, "GET", in.URL+"/_electric/entities", "", from.host, from.origin, "Authorization", "Bearer "+token); status != 200 {
			t.Errorf("%v: %d %s", from, status, body)
		}
		if status, _ := far(t, "GET", in.URL+"/_electric/entities", "", from.host, from.origin); status != 401 {
			t.Errorf("%v without credentials: %d", from, status)
		}
	}
}
