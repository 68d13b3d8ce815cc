package shapes

import (
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// Worker pools and their members, as their owner, the owners of members, and
// everybody else may see them.
func poolsShared(t *testing.T, fresh func() *pgtest.DB) {
	in := gateway(t, fresh())
	kyle, ada, eve, system := as(t, "user:kyle", in.URL), as(t, "user:ada", in.URL), as(t, "user:eve", in.URL), as(t, "", in.URL)
	kyle.must(201, "POST", "/_electric/runners", `{"id":"mac","label":"Mac"}`)
	ada.must(201, "POST", "/_electric/runners", `{"id":"pc","label":"PC"}`)
	kyle.must(201, "PUT", "/_electric/worker-pools/before", `{}`)
	kyle.must(200, "PUT", "/_electric/worker-pools/before/members/mac", `{}`)
	all := map[*caller][2]*shape{}
	for _, who := range []*caller{kyle, ada, eve, system} {
		all[who] = [2]*shape{who.shape("worker_pools"), who.shape("worker_pool_members")}
		for _, s := range all[who] {
			s.step(false)
		}
	}
	see := func(what string, want map[*caller][2]string) {
		t.Helper()
		for who, keys := range want {
			for i, s := range all[who] {
				s.until(what+", as "+who.as+" sees it", func() bool { return strings.ReplaceAll(s.keys(), `"`, "") == keys[i] })
			}
		}
	}
	see("at first", map[*caller][2]string{kyle: {"before", "before/mac"}, system: {"before", "before/mac"}})
	kyle.must(201, "PUT", "/_electric/worker-pools/coding", `{"capacity_policy":{"maxTotalClaims":3}}`)
	kyle.must(200, "PUT", "/_electric/worker-pools/coding/members/mac", `{}`)
	// Behind his in the log, so that who is shown hers has passed over his.
	eve.must(201, "POST", "/_electric/runners", `{"id":"vm","label":"VM"}`)
	eve.must(201, "PUT", "/_electric/worker-pools/eves", `{}`)
	eve.must(200, "PUT", "/_electric/worker-pools/eves/members/vm", `{}`)
	see("a pool", map[*caller][2]string{kyle: {"before coding", "before/mac coding/mac"}, system: {"before coding eves", "before/mac coding/mac eves/vm"}, ada: {"", ""}, eve: {"eves", "eves/vm"}})
	// With a runner in it, and already when it is invited, ada sees the pool and who else is in it.
	kyle.must(200, "PUT", "/_electric/worker-pools/coding/members/pc", `{}`)
	see("an invitation", map[*caller][2]string{ada: {"coding", "coding/mac coding/pc"}, kyle: {"before coding", "before/mac coding/mac coding/pc"}})
	row := func(who *caller, table int, key string) map[string]string { return all[who][table].rows[key] }
	if got := row(ada, 1, `"rouse"."worker_pool_members"/"default"/"coding"/"pc"`); got["status"] != "invited" {
		t.Errorf("%v", got)
	}
	kyle.must(200, "PUT", "/_electric/worker-pools/coding", `{"capacity_policy":{"maxTotalClaims":9}}`)
	all[ada][0].until("a limit", func() bool {
		return row(ada, 0, `"rouse"."worker_pools"/"default"/"coding"`)["max_total_claims"] == "9"
	})
	kyle.must(200, "PUT", "/_electric/worker-pools/coding/members/mac", `{"status":"disabled"}`)
	all[ada][1].until("another is drained", func() bool {
		return row(ada, 1, `"rouse"."worker_pool_members"/"default"/"coding"/"mac"`)["status"] == "disabled"
	})
	eve.must(200, "PUT", "/_electric/worker-pools/eves", `{"capacity_policy":{"maxTotalClaims":5}}`)
	all[eve][0].until("hers has a limit", func() bool {
		return row(eve, 0, `"rouse"."worker_pools"/"default"/"eves"`)["max_total_claims"] == "5"
	})
	see("all of this", map[*caller][2]string{eve: {"eves", "eves/vm"}})
	ada.must(204, "DELETE", "/_electric/worker-pools/coding/members/pc", "")
	see("out of it", map[*caller][2]string{ada: {"", ""}, kyle: {"before coding", "before/mac coding/mac"}})
	kyle.must(204, "DELETE", "/_electric/worker-pools/coding", "")
	see("gone", map[*caller][2]string{kyle: {"before", "before/mac"}, system: {"before eves", "before/mac eves/vm"}, ada: {"", ""}, eve: {"eves", "eves/vm"}})
}
