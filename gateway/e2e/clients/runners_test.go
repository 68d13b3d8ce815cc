package clients

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// R26: every runner route, and every way to a runner's wake stream, for its
// owner, another, and nobody, on a gateway as `serve` runs it.
func TestRunnerRoutesUnderServe(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.json")
	kyle, mallory := devtoken.NewToken(), devtoken.NewToken()
	for who, token := range map[string]string{"user:kyle": kyle, "user:mallory": mallory} {
		if err := devtoken.Add(file, devtoken.Entry{Principal: who, SHA256: devtoken.Hash(token)}); err != nil {
			t.Fatal(err)
		}
	}
	in := servertest.Start(t, servertest.Options{Configure: func(c *config.Config) { c.Insecure, c.TokensFile, c.TypeSpawn = false, file, "all" }})
	hc := wire.NewHTTP(20 * time.Second)
	t.Cleanup(hc.CloseIdleConnections)
	plain := &wire.Client{Base: in.URL, HTTP: hc}
	call := func(token, method, path, body string, header ...string) wire.Answer {
		t.Helper()
		h := map[string]string{}
		if token != "" {
			h["Authorization"] = "Bearer " + token
		}
		for i := 0; i+1 < len(header); i += 2 {
			h[header[i]] = header[i+1]
		}
		var b any
		if body != "" {
			b = body
		}
		a := plain.Do(t.Context(), method, path, b, h)
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		return a
	}
	must := func(a wire.Answer, status int) wire.Answer {
		t.Helper()
		if a.Status != status {
			t.Fatalf("%v: %s", a, a.Raw)
		}
		return a
	}
	must(call(kyle, "POST", "/_electric/runners", `{"id":"mac","label":"Mac"}`), 201)
	must(call(kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`), 201)
	const policy = `{"dispatch_policy":{"targets":[{"type":"runner","runnerId":"mac"}]}}`
	must(call(kyle, "PUT", "/_electric/entities/chat/1", policy), 201)
	must(call(kyle, "POST", "/_electric/entities/chat/1/send", `{"payload":1}`), 200)
	var wake wire.Answer
	for deadline := time.Now().Add(20 * time.Second); ; { // the wake is there, and what follows is about it
		wake = must(call(kyle, "GET", "/runners/mac/wake?offset=-1", ""), 200)
		if strings.Contains(string(wake.Raw), "wakeId") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no wake comes")
		}
	}
	state := func() (s string) {
		t.Helper()
		if err := in.DB.Conn(t).QueryRow(t.Context(), `select string_agg(r::text, ';') || (select string_agg(c.state || c.epoch, ';') from rouse.consumers c)
			|| (select count(*) from rouse.consumer_claims) || (select count(*) from rouse.entities) || (select coalesce(max(wake_stream_offset), '') || count(*) from rouse.runner_runtime_diagnostics)
			from rouse.runners r`).Scan(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := state()
	const r = "/_electric/runners"
	routes := []struct {
		method, path, body string
		owner, other       int
	}{
		{"GET", r + "/mac", "", 200, 403}, {"GET", r + "/mac/health", "", 200, 403}, {"HEAD", r + "/mac", "", 200, 403},
		{"POST", r + "/mac/heartbeat", `{"wake_stream_offset":"0000000000000000_0000000000000000"}`, 200, 403}, {"POST", r + "/mac/heartbeat", "", 200, 403},
		{"POST", r + "/mac/disable", "", 200, 403}, {"POST", r + "/mac/enable", "", 200, 403},
		{"POST", r, `{"id":"mac","label":"Mine"}`, 201, 403},
		{"POST", r, `{"id":"mac2","label":"x","owner_principal":"/principal/user%3Akyle"}`, 201, 403},
		{"GET", r + "?owner_principal=/principal/user%253Akyle", "", 200, 403}, {"GET", r, "", 200, 200},
		{"PUT", "/_electric/entities/chat/2", policy, 201, 403},
		{"GET", "/runners/mac/wake", "", 200, 403}, {"HEAD", "/runners/mac/wake", "", 200, 403},
		{"GET", "/v1/stream/runners/mac/wake?offset=-1", "", 200, 403}, {"GET", "/runners%2Fmac%2Fwake", "", 200, 403}, {"GET", "/runners/mac/wake?offset=now", "", 200, 403},
		{"GET", "/runners/mac/wake?offset=-1&live=long-poll", "", 200, 403},
		{"POST", "/runners/mac/wake", `{"type":"wake"}`, 403, 403}, {"PUT", "/runners/mac/wake", ``, 403, 403}, {"DELETE", "/runners/mac/wake", ``, 403, 403},
		{"POST", "/v1/stream/runners%2Fmac/wake", `{"type":"wake"}`, 403, 403},
		{"POST", r + "/mac/claim", `{}`, 200, 403},
	}
	for _, who := range []struct {
		name, token string
		header      []string
		want        func(owner, other int) int
	}{
		{"nobody", "", nil, func(int, int) int { return 401 }},
		{"nobody by name", "", []string{"electric-principal", "user:kyle"}, func(int, int) int { return 401 }},
		{"a wrong token", "rouse_pat_wrong", nil, func(int, int) int { return 401 }},
		{"another by name", mallory, []string{"electric-principal", "user:kyle"}, func(_, other int) int { return other }},
		{"another", mallory, nil, func(_, other int) int { return other }},
	} {
		for _, q := range routes {
			a := call(who.token, q.method, q.path, q.body, who.header...)
			want := who.want(q.owner, q.other)
			if want == 401 && q.owner == 403 && a.Status == 403 { // reserved for everybody, whoever asks
				want = 403
			}
			if a.Status != want {
				t.Errorf("%s: %s %s: %v, want %d: %s", who.name, q.method, q.path, a, want, a.Raw)
			}
			if strings.Contains(string(a.Raw), "rouse_ct_") || strings.Contains(string(a.Raw), `"mac"`) || q.method != "HEAD" && a.Status >= 400 && a.Code == "" {
				t.Errorf("%s: %s %s tells: %s", who.name, q.method, q.path, a.Raw)
			}
		}
		if after := state(); after != before {
			t.Fatalf("%s changed\n%s\nto\n%s", who.name, before, after)
		}
	}
	for _, q := range routes {
		if a := call(kyle, q.method, q.path, q.body); a.Status != q.owner {
			t.Errorf("the owner: %s %s: %v, want %d: %s", q.method, q.path, a, q.owner, a.Raw)
		}
	}
	// What is not there is not there for anybody.
	for _, path := range []string{"", "/health", "/heartbeat", "/claim", "/enable", "/disable"} {
		method := http.MethodPost
		if path == "" || path == "/health" {
			method = http.MethodGet
		}
		for _, token := range []string{kyle, mallory} {
			must(call(token, method, fmt.Sprintf("%s/none%s", r, path), ""), 404)
		}
	}
}
