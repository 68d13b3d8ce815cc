package control

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// pooled makes kyle's pool and runners: kyle's mac, mallory's pc.
func pooled(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/runners", `{"id":"mac","label":"Mac","capacity":3}`)
	r.must(201, mallory, "POST", "/_electric/runners", `{"id":"pc","label":"PC"}`)
	r.must(201, kyle, "PUT", "/_electric/worker-pools/coding", `{"name":"Coding agents","capacityPolicy":{"maxConcurrentClaimsPerRunner":2,"maxTotalClaims":10}}`)
	return r
}

func (r *rig) member(who, id string) string {
	r.t.Helper()
	for _, m := range r.must(200, who, "GET", "/_electric/worker-pools/coding", "").get("members").([]any) {
		if m := m.(map[string]any); m["runner_id"] == id {
			return m["status"].(string)
		}
	}
	return ""
}

func TestPoolsOfTheirOwners(t *testing.T) {
	t.Parallel()
	r := pooled(t)
	const at = "/_electric/worker-pools/coding"
	a := r.must(200, kyle, "GET", at, "")
	if a.str("id") != "coding" || a.str("name") != "Coding agents" || a.str("wake_stream") != "/worker-pools/coding/wake" || a.str("admin_status") != "enabled" ||
		a.get("capacity_policy.maxTotalClaims") != 10.0 || a.get("capacity_policy.maxConcurrentClaimsPerRunner") != 2.0 ||
		a.get("active_claims") != 0.0 || a.get("waiting_wakes") != 0.0 || len(a.get("members").([]any)) != 0 || !strings.Contains(a.str("owner_principal"), "kyle") {
		t.Errorf("%s", a.body)
	}
	// What is left out stays; {} takes the limits away; null is nothing said.
	if a := r.must(200, kyle, "PUT", at, `{"admin_status":"disabled"}`); a.str("name") != "Coding agents" || a.str("admin_status") != "disabled" || a.get("capacity_policy.maxTotalClaims") != 10.0 {
		t.Errorf("%s", a.body)
	}
	if a := r.must(200, kyle, "PUT", at, `{"capacity_policy":{}}`); a.get("capacity_policy.maxTotalClaims") != nil || a.str("admin_status") != "disabled" {
		t.Errorf("%s", a.body)
	}
	for _, who := range []string{mallory, "user:eve"} {
		r.refused(403, "POOL_FORBIDDEN", who, "GET", at, "")
		r.refused(403, "POOL_FORBIDDEN", who, "PUT", at, `{"name":"mine"}`)
		r.refused(403, "POOL_FORBIDDEN", who, "DELETE", at, "")
		r.refused(403, "POOL_FORBIDDEN", who, "POST", at+"/join-tokens", `{}`)
		r.refused(403, "POOL_FORBIDDEN", who, "DELETE", at+"/join-tokens", "")
		if got := r.must(200, who, "GET", "/_electric/worker-pools", "").list(); len(got) != 0 {
			t.Errorf("%s sees %v", who, got)
		}
	}
	if got := r.must(200, kyle, "GET", "/_electric/worker-pools", "").list(); len(got) != 1 {
		t.Errorf("%v", got)
	}
	r.must(201, kyle, "PUT", "/_electric/worker-pools/other", `{}`)
	if got := r.must(200, kyle, "GET", "/_electric/worker-pools?after=coding&limit=1", "").list(); len(got) != 1 || got[0].(map[string]any)["name"] != "other" {
		t.Errorf("%v", got)
	}
	if got := r.must(200, "system:framework", "GET", "/_electric/worker-pools", "").list(); len(got) != 2 {
		t.Errorf("%v", got)
	}
	for _, tc := range []struct{ path, body, place string }{
		{"a..b?service=default", `{"capacity_policy":{"maxTotalClaims":0}}`, "/capacity_policy/maxTotalClaims"},
		{"x", `{"capacity_policy":{"maxTotalClaims":100001}}`, "/capacity_policy/maxTotalClaims"},
		{"x", `{"capacity_policy":{"maxConcurrentClaimsPerRunner":1025}}`, "/capacity_policy/maxConcurrentClaimsPerRunner"},
		{"x", `{"capacity_policy":{"max":1}}`, "/capacity_policy/max"},
		{"x", `{"admin_status":"open"}`, "/admin_status"},
		{"x", `{"owner_principal":"kyle"}`, "/owner_principal"},
		{"x", `{"name":"` + strings.Repeat("n", 257) + `"}`, "/name"},
		{"x%20y", `{}`, "path.id"},
	} {
		if a := r.refused(400, "INVALID_REQUEST", kyle, "PUT", "/_electric/worker-pools/"+tc.path, tc.body); !strings.Contains(string(a.body), fmt.Sprintf("%q", tc.place)) {
			t.Errorf("%s: %s", tc.body, a.body)
		}
	}
	r.refused(403, "POOL_FORBIDDEN", kyle, "PUT", "/_electric/worker-pools/x", `{"owner_principal":"/principal/user%3Amallory"}`)
	r.must(204, kyle, "DELETE", at, "")
	r.refused(404, "NOT_FOUND", kyle, "GET", at, "")
	r.refused(404, "NOT_FOUND", kyle, "DELETE", at, "")
	r.refused(403, "POOL_FORBIDDEN", mallory, "PUT", at, `{}`)
	r.must(201, kyle, "PUT", at, `{}`)
}

// A member is one when both owners have said so.
func TestPoolMembers(t *testing.T) {
	t.Parallel()
	r := pooled(t)
	const at = "/_electric/worker-pools/coding"
	if a := r.must(200, kyle, "PUT", at+"/members/mac", `{}`); a.str("status") != "active" || a.str("label") != "Mac" || a.get("capacity") != 3.0 || a.str("liveness") != "offline" {
		t.Errorf("%s", a.body)
	}
	r.refused(403, "POOL_FORBIDDEN", mallory, "PUT", at+"/members/pc", `{}`)
	r.refused(403, "POOL_FORBIDDEN", mallory, "PUT", at+"/members/mac", `{"status":"disabled"}`)
	r.refused(404, "NOT_FOUND", kyle, "PUT", at+"/members/none", `{}`)
	r.refused(404, "NOT_FOUND", kyle, "PUT", "/_electric/worker-pools/none/members/mac", `{}`)
	r.refused(400, "INVALID_REQUEST", kyle, "PUT", at+"/members/mac", `{"status":"invited"}`)

	// By invitation.
	// Of an invited runner nothing is told but whose it is.
	for _, invite := range []string{"", `{"status":"disabled"}`, ""} {
		a := r.must(200, kyle, "PUT", at+"/members/pc", invite)
		if invite == "" && a.str("status") != "invited" || a.get("label") != nil || a.get("liveness") != nil || a.get("capacity") != nil || a.str("owner_principal") == "" {
			t.Errorf("%s", a.body)
		}
	}
	if got := r.must(200, mallory, "GET", "/_electric/runners/pc/pools", "").list(); len(got) != 1 || got[0].(map[string]any)["status"] != "invited" {
		t.Errorf("%v", got)
	}
	if a := r.must(200, mallory, "POST", "/_electric/runners/pc/heartbeat", `{}`); a.get("pools") != nil {
		t.Errorf("an invitation is tailed already: %s", a.body)
	}
	if a := r.must(200, mallory, "PUT", at+"/members/pc", ""); a.str("status") != "active" {
		t.Errorf("%s", a.body)
	}
	beat := r.must(200, mallory, "POST", "/_electric/runners/pc/heartbeat", `{}`)
	if raw, _ := json.Marshal(beat.get("pools")); string(raw) != `[{"pool_id":"coding","status":"active","wake_stream":"/worker-pools/coding/wake"}]` {
		t.Errorf("%s", raw)
	}
	r.must(200, mallory, "GET", at, "")
	r.refused(403, "RUNNER_FORBIDDEN", kyle, "GET", "/_electric/runners/pc/pools", "")

	// Either may drain it; who did not disable it does not undo that.
	if a := r.must(200, kyle, "PUT", at+"/members/pc", `{"status":"disabled"}`); a.str("status") != "disabled" {
		t.Errorf("%s", a.body)
	}
	r.refused(403, "POOL_FORBIDDEN", mallory, "PUT", at+"/members/pc", `{}`)
	r.must(200, kyle, "PUT", at+"/members/pc", `{"status":"active"}`)
	if got := r.member(kyle, "pc"); got != "active" {
		t.Error(got)
	}
	r.refused(403, "POOL_FORBIDDEN", "user:eve", "DELETE", at+"/members/pc", "")
	r.must(204, mallory, "DELETE", at+"/members/pc", "")
	if a := r.refused(404, "NOT_FOUND", kyle, "DELETE", at+"/members/pc", ""); a.str("detail") != "The runner is not in this pool." {
		t.Error(a.body)
	}

	// By a token, until its pool's are revoked.
	a := r.must(201, kyle, "POST", at+"/join-tokens", `{"ttlSeconds":600}`)
	token := a.str("join_token")
	if !strings.HasPrefix(token, "rouse_jt_") || a.str("expires_at") == "" {
		t.Errorf("%s", a.body)
	}
	r.refused(401, "JOIN_TOKEN_INVALID", mallory, "PUT", at+"/members/pc", `{"joinToken":"`+token[:len(token)-12]+`AAAAAAAAAAAA"}`)
	r.must(201, kyle, "PUT", "/_electric/worker-pools/other", `{}`)
	r.refused(401, "JOIN_TOKEN_INVALID", mallory, "PUT", "/_electric/worker-pools/other/members/pc", `{"join_token":"`+token+`"}`)
	r.refused(401, "JOIN_TOKEN_INVALID", mallory, "PUT", "/_electric/worker-pools/none/members/pc", `{"join_token":"`+token+`"}`)
	r.refused(403, "POOL_FORBIDDEN", "user:eve", "PUT", at+"/members/pc", `{"join_token":"`+token+`"}`) // for one's own runner only
	if a := r.must(200, mallory, "PUT", at+"/members/pc", `{"join_token":"`+token+`"}`); a.str("status") != "active" {
		t.Errorf("%s", a.body)
	}
	// Who has left comes back with it; whom the pool's owner has taken out, or drained before they left, does not.
	invite := func() string {
		return `{"join_token":"` + r.must(201, kyle, "POST", at+"/join-tokens", `{}`).str("join_token") + `"}`
	}
	join := `{"join_token":"` + token + `"}`
	r.must(204, mallory, "DELETE", at+"/members/pc", "")
	r.must(200, mallory, "PUT", at+"/members/pc", join)
	r.must(204, kyle, "DELETE", at+"/members/pc", "")
	for _, token := range []string{join, invite()} {
		if a := r.refused(403, "POOL_FORBIDDEN", mallory, "PUT", at+"/members/pc", token); !strings.Contains(string(a.body), "removed") {
			t.Errorf("%s", a.body)
		}
	}
	r.refused(403, "POOL_FORBIDDEN", mallory, "PUT", at+"/members/pc", `{}`)
	r.must(201, mallory, "POST", "/_electric/runners", `{"id":"pc2","label":"PC 2"}`)
	r.must(200, mallory, "PUT", at+"/members/pc2", join) // nobody said anything of this one
	r.must(200, kyle, "PUT", at+"/members/pc", `{}`)
	r.must(200, mallory, "PUT", at+"/members/pc", `{}`)
	r.must(204, mallory, "DELETE", at+"/members/pc", "")
	r.must(200, mallory, "PUT", at+"/members/pc", join)
	r.must(200, kyle, "PUT", at+"/members/pc", `{"status":"disabled"}`)
	r.must(204, mallory, "DELETE", at+"/members/pc", "")
	r.refused(403, "POOL_FORBIDDEN", mallory, "PUT", at+"/members/pc", join)
	r.must(204, kyle, "DELETE", at+"/join-tokens", "")
	r.must(200, mallory, "PUT", at+"/members/pc", invite())
	r.must(200, mallory, "PUT", at+"/members/pc", `{"status":"disabled"}`)
	r.must(204, mallory, "DELETE", at+"/members/pc", "") // drained by nobody but themselves
	r.must(200, mallory, "PUT", at+"/members/pc", invite())
	r.must(204, mallory, "DELETE", at+"/members/pc", "")
	r.must(204, kyle, "DELETE", at+"/join-tokens", "")
	r.refused(401, "JOIN_TOKEN_INVALID", mallory, "PUT", at+"/members/pc", `{"join_token":"`+token+`"}`)
	for _, bad := range []string{`{"ttl_seconds":0}`, `{"ttl_seconds":2592001}`, `{"ttl":1}`} {
		r.refused(400, "INVALID_REQUEST", kyle, "POST", at+"/join-tokens", bad)
	}
}
