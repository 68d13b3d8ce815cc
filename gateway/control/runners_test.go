package control

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// laptop is a type, a runner "mac" of kyle, and an entity routed to it.
func laptop(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := newRig(t, change)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "POST", "/_electric/runners", `{"id":"mac","label":"Kyle's MacBook"}`)
	r.spawn("/chat/1")
	return r
}

func (r *rig) spawn(url string) {
	r.t.Helper()
	r.must(201, kyle, "PUT", "/_electric/entities"+url, `{"dispatch_policy":{"targets":[{"type":"runner","runnerId":"mac"}]}}`)
}

// work sends a message and routes it.
func (r *rig) work(url string) {
	r.t.Helper()
	r.must(200, kyle, "POST", "/_electric/entities"+url+"/send", `{"payload":"do"}`)
	r.route()
}

// R26: every runner route for its owner, another, a trusted principal and
// nobody, and for a runner that is not there.
func TestRunnerRoutesMatrix(t *testing.T) {
	t.Parallel()
	r := laptop(t, nil)
	for _, tc := range []struct {
		method, path, body string
		owner              int
	}{
		{"GET", "", "", 200},
		{"GET", "/health", "", 200},
		{"POST", "/heartbeat", "", 200},
		{"POST", "/claim", `{}`, 204},
		{"POST", "/disable", "", 200},
		{"POST", "/enable", "", 200},
		{"PUT", "/wake-key", `{"wakeKey":"` + wakeKeyA + `"}`, 200},
		{"DELETE", "/wake-key", "", 200},
	} {
		at := "/_electric/runners/mac" + tc.path
		r.refused(403, "RUNNER_FORBIDDEN", mallory, tc.method, at, tc.body)
		r.must(tc.owner, kyle, tc.method, at, tc.body)
		r.must(tc.owner, "system:dev-local", tc.method, at, tc.body)
		r.refused(404, "NOT_FOUND", kyle, tc.method, "/_electric/runners/none"+tc.path, tc.body)
		r.refused(404, "NOT_FOUND", mallory, tc.method, "/_electric/runners/none"+tc.path, tc.body)
		r.refused(400, "INVALID_PRINCIPAL", "nobody", tc.method, at, tc.body)
	}
	r.refused(403, "RUNNER_FORBIDDEN", mallory, "POST", "/_electric/runners", `{"id":"mac","label":"Mine"}`)
	r.refused(403, "RUNNER_FORBIDDEN", mallory, "POST", "/_electric/runners", `{"id":"x","label":"Mine","owner_principal":"/principal/user%3Akyle"}`)
	r.refused(403, "RUNNER_FORBIDDEN", mallory, "GET", "/_electric/runners?owner_principal=/principal/user%253Akyle", "")
	r.refused(403, "RUNNER_FORBIDDEN", mallory, "PUT", "/_electric/entities/chat/theirs", `{"dispatch_policy":{"targets":[{"type":"runner","runnerId":"mac"}]}}`)
	if a := r.must(200, mallory, "GET", "/_electric/runners", ""); strings.TrimSpace(string(a.body)) != "[]" {
		t.Errorf("%s", a.body)
	}
	for _, path := range []string{"", "/", "?owner_principal=/principal/user%253Akyle"} {
		if a := r.must(200, kyle, "GET", "/_electric/runners"+path, ""); !strings.HasPrefix(string(a.body), `[{"id":"mac"`) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	if n := r.count(`select count(*) from rouse.runners where owner_principal = '/principal/user%3Akyle'`); n != 1 {
		t.Error("the runner changed hands")
	}
}

func TestRunnerRegistration(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	const at = "/_electric/runners"
	a := r.must(201, kyle, "POST", at, `{"id":"ci-1","label":"CI","kind":"ci","admin_status":"disabled","capacity":2,"owner_principal":"/principal/user%3Akyle",
		"wake_stream":"/runners/ci-1/wake","sandbox_profiles":[{"name":"p","label":"P","remote":true}]}`)
	if a.str("kind") != "ci" || a.str("admin_status") != "disabled" || a.get("capacity") != 2.0 || a.str("wake_stream") != "/runners/ci-1/wake" || a.str("liveness") != "offline" {
		t.Errorf("%s", a.body)
	}
	if b := r.must(201, kyle, "POST", at, `{"id":"ci-1","label":"CI two"}`); b.str("label") != "CI two" || b.str("kind") != "ci" || b.str("created_at") != a.str("created_at") {
		t.Errorf("%s", b.body)
	}
	for body, place := range map[string]string{
		`{"label":"x"}`:                                        "/",
		`{"id":"x"}`:                                           "/",
		`{"id":"","label":"x"}`:                                "/id",
		`{"id":"a/b","label":"x"}`:                             "/id",
		`{"id":"..","label":"x"}`:                              "/id",
		`{"id":"x","label":""}`:                                "/label",
		`{"id":"x","label":"x","kind":"toaster"}`:              "/kind",
		`{"id":"x","label":"x","admin_status":"maybe"}`:        "/admin_status",
		`{"id":"x","label":"x","owner_principal":"user:kyle"}`: "/owner_principal",
		`{"id":"x","label":"x","wake_stream":"/elsewhere"}`:    "/wake_stream",
		`{"id":"x","label":"x","capacity":0}`:                  "/capacity",
		`{"id":"x","label":"x","sandbox_profiles":[{}]}`:       "/sandbox_profiles/0",
		`{"id":"x","label":"x","more":1}`:                      "/more",
	} {
		if a := r.refused(400, "INVALID_REQUEST", kyle, "POST", at, body); !strings.Contains(string(a.body), fmt.Sprintf(`"path":%q`, place)) {
			t.Errorf("%s: not at %s: %s", body, place, a.body)
		}
	}
}

func TestRunnerHeartbeatAndHealth(t *testing.T) {
	t.Parallel()
	r := laptop(t, nil)
	const at = "/_electric/runners/mac"
	if a := r.must(200, kyle, "GET", at+"/health", ""); a.str("health.status") != "unhealthy" || a.str("runner.liveness_status") != "offline" || !strings.Contains(string(a.body), "RUNNER_NEVER_SEEN") {
		t.Errorf("%s", a.body)
	}
	row := r.count(`select xmin::text::bigint from rouse.runners where id = 'mac'`)
	a := r.must(200, kyle, "POST", at+"/heartbeat", `{"lease_ms":60000,"wakeStreamOffset":"-1","diagnostics":{"version":"1","api_token":"s3cr3t","nested":{"password":"s3cr3t","ok":9007199254740993},"note":"rouse_wt_s3cr3t"}}`)
	if a.str("liveness") != "online" || a.str("last_seen_at") == "" || a.str("liveness_lease_expires_at") == "" || strings.Contains(string(a.body), "s3cr3t") ||
		!strings.Contains(string(a.body), "9007199254740993") || a.str("wake_stream_offset") != "-1" {
		t.Errorf("%s", a.body)
	}
	if r.count(`select xmin::text::bigint from rouse.runners where id = 'mac'`) != row {
		t.Error("a heartbeat rewrites the registration")
	}
	if a := r.must(200, kyle, "GET", at+"/health", ""); a.str("health.status") != "healthy" || a.str("runner.liveness_status") != "online" || a.str("client.version") != "1" {
		t.Errorf("%s", a.body)
	}
	r.must(200, kyle, "POST", at+"/heartbeat", `{"liveness_lease_expires_at":"2999-01-01T00:00:00Z"}`)
	for _, body := range []string{`{"lease_ms":0}`, `{"lease_ms":-1}`, `{"lease_ms":3600001}`, `{"lease_ms":"x"}`, `{"wake_stream_offset":"junk"}`, `{"wake_stream_offset":"now"}`, `{"diagnostics":[]}`,
		`{"diagnostics":{"x":"` + strings.Repeat("x", 17000) + `"}}`, `{"liveness_lease_expires_at":"2001-01-01T00:00:00Z"}`, `{"liveness_lease_expires_at":"soon"}`, `{"more":1}`} {
		r.refused(400, "INVALID_REQUEST", kyle, "POST", at+"/heartbeat", body)
	}
	r.db.Exec(t, `update rouse.runner_runtime_diagnostics set liveness_lease_expires_at = clock_timestamp() - interval '1 ms'`)
	if a := r.must(200, kyle, "GET", at+"/health", ""); a.str("runner.liveness_status") != "expired" || a.get("runner.lease_remaining_ms") != 0.0 {
		t.Errorf("%s", a.body)
	}
	r.work("/chat/1")
	r.must(200, kyle, "POST", at+"/disable", "")
	if a := r.must(200, kyle, "GET", at+"/health", ""); !strings.Contains(string(a.body), "RUNNER_DISABLED") || a.get("dispatch.entities_with_outstanding_wake") != 1.0 {
		t.Errorf("%s", a.body)
	}
	r.refused(409, "NOT_RUNNING", kyle, "POST", at+"/claim", `{"stream":"chat/1/main"}`)
}

func TestRunnerClaims(t *testing.T) {
	t.Parallel()
	r := laptop(t, nil)
	const at = "/_electric/runners/mac/claim"
	r.must(204, kyle, "POST", at, ``)
	r.refused(409, "NO_PENDING_WORK", kyle, "POST", at, `{"type":"wake","stream":"chat/1/main","generation":1}`)
	r.work("/chat/1")
	r.refused(404, "WAKE_CALLBACK_NOT_FOUND", kyle, "POST", at, `{"stream":"chat/none/main"}`)
	r.refused(404, "WAKE_CALLBACK_NOT_FOUND", kyle, "POST", at, `{"wakeId":"not-a-uuid"}`)
	// Another runner of the same owner is not the target.
	r.must(201, kyle, "POST", "/_electric/runners", `{"id":"other","label":"Other"}`)
	r.refused(400, "INVALID_REQUEST", kyle, "POST", "/_electric/runners/other/claim", `{"stream":"/chat/1/main"}`)

	var entry string
	if err := r.db.Conn(t).QueryRow(t.Context(), `select convert_from(m.payload, 'UTF8') from rouse.messages m join rouse.streams s on s.id = m.stream_id where s.path = 'runners/mac/wake'`).Scan(&entry); err != nil {
		t.Fatal(err)
	}
	a := r.must(200, kyle, "POST", at, entry) // the entry as it was read, whatever it holds
	for _, k := range []string{"consumerId", "wakeId", "streamPath", "callback", "claimToken", "writeToken", "triggerEvent"} {
		if a.str(k) == "" {
			t.Errorf("%s is missing: %s", k, a.body)
		}
	}
	if a.get("epoch") != 1.0 || a.str("principal.key") != kyle || a.str("entity.url") != "/chat/1" || a.str("callback") != "http://rouse.test/_electric/wake-callbacks/"+a.str("wakeId") {
		t.Errorf("%s", a.body)
	}
	r.refused(409, "ALREADY_CLAIMED", kyle, "POST", at, entry)
	// A named attempt answers the same again.
	r.spawn("/chat/2")
	r.work("/chat/2")
	one := r.must(200, kyle, "POST", at, `{"stream":"chat/2/main","claimId":"c1"}`)
	two := r.must(200, kyle, "POST", at, `{"stream":"chat/2/main","claimId":"c1"}`)
	if one.str("claimToken") != two.str("claimToken") || one.get("epoch") != two.get("epoch") {
		t.Errorf("%s\n%s", one.body, two.body)
	}
	// Paused and stopped entities have nothing to do.
	r.must(200, kyle, "POST", "/_electric/wake-callbacks/"+one.str("wakeId"), `{"done":true,"epoch":1}`, "electric-claim-token", one.str("claimToken"))
	r.must(200, kyle, "POST", "/_electric/entities/chat/2/signal", `{"signal":"SIGSTOP"}`)
	if a := r.must(200, kyle, "POST", at, `{"stream":"chat/2/main"}`); strings.TrimSpace(string(a.body)) != `{"done":true}` {
		t.Errorf("%s", a.body)
	}
	r.must(200, kyle, "DELETE", "/_electric/entities/chat/2", "")
	if a := r.must(200, kyle, "POST", at, `{"stream":"chat/2/main"}`); strings.TrimSpace(string(a.body)) != `{"done":true}` {
		t.Errorf("%s", a.body)
	}
	// Capacity.
	r.must(201, kyle, "POST", "/_electric/runners", `{"id":"mac","label":"Mac","capacity":1}`)
	r.spawn("/chat/3")
	r.work("/chat/3")
	r.refused(409, "RUNNER_FULL", kyle, "POST", at, `{"stream":"chat/3/main"}`)
}

// R2: fifty race for one wake.
func TestFiftyClaimsOfOneWake(t *testing.T) {
	t.Parallel()
	r := laptop(t, nil)
	r.work("/chat/1")
	var mu sync.Mutex
	got := map[string]int{}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			a := r.as(kyle, "POST", "/_electric/runners/mac/claim", `{"stream":"chat/1/main"}`)
			mu.Lock()
			defer mu.Unlock()
			got[fmt.Sprint(a.status, " ", a.str("code"))]++
		})
	}
	wg.Wait()
	if got["200 "] != 1 || got["409 ALREADY_CLAIMED"] != 49 {
		t.Errorf("%v", got)
	}
}
