package observation

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/rouse-run/rouse/gateway/store"
)

// members folds a membership stream.
func (r *rig) members(ref string) map[string]map[string]any {
	r.t.Helper()
	out := map[string]map[string]any{}
	for _, e := range r.rows("/_entities/"+ref, "members") {
		_, had := out[e.key]
		if (e.operation == "insert") == had {
			r.t.Errorf("%s of %s", e.operation, e.key)
		}
		if e.operation == "delete" {
			delete(out, e.key)
			continue
		}
		out[e.key] = decode(r.t, e)
	}
	return out
}

func (r *rig) membership(principal string, tags map[string]string) string {
	r.t.Helper()
	ref := MembershipRef(tags, principal)
	raw, err := json.Marshal(tags)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.s.MembershipEnsure(r.t.Context(), 1, principal, false, ref, raw); err != nil {
		r.t.Fatal(err)
	}
	return ref
}

func (r *rig) tag(url, key string, value *string) {
	r.t.Helper()
	if _, _, _, err := r.s.EntityTagPut(r.t.Context(), 1, url, kyle, key, value, row("insert", "tags", key, `{}`)); err != nil {
		r.t.Fatal(err)
	}
}

func TestAMembershipStreamFollowsItsEntities(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const ada = "/principal/user%3Aada"
	team := map[string]string{"team": "red"}
	r.spawnAs(kyle, "/chat/before", "", map[string]string{"team": "red", "x": "y"})
	r.spawnAs(kyle, "/chat/other", "", map[string]string{"team": "blue"})
	r.spawnAs(ada, "/chat/theirs", "", team)
	ref, all := r.membership(kyle, team), r.membership(kyle, map[string]string{})
	w := r.worker()
	r.settle(w)
	is := func(ref string, want ...string) map[string]map[string]any {
		t.Helper()
		got := r.members(ref)
		if len(got) != len(want) {
			t.Fatalf("%d members, want %v: %v", len(got), want, got)
		}
		for _, u := range want {
			if got[u] == nil {
				t.Fatalf("%s is no member", u)
			}
		}
		return got
	}
	m := is(ref, "/chat/before")["/chat/before"]
	if m["url"] != "/chat/before" || m["type"] != "chat" || m["status"] != "idle" || m["tags"].(map[string]any)["x"] != "y" || m["created_at"].(float64) < 1e12 {
		t.Errorf("%v", m)
	}
	is(all, "/chat/before", "/chat/other")

	red, blue := "red", "blue"
	r.spawnAs(kyle, "/chat/after", "", team)
	r.tag("/chat/other", "team", &red)
	r.settle(w)
	is(ref, "/chat/before", "/chat/after", "/chat/other")
	r.tag("/chat/before", "team", nil)
	r.tag("/chat/other", "team", &blue)
	r.settle(w)
	is(ref, "/chat/after")
	if _, err := r.s.EntitySignal(t.Context(), 1, "/chat/after", kyle, "SIGKILL", "s", "", nil); err != nil {
		t.Fatal(err)
	}
	r.settle(w)
	if m := is(ref, "/chat/after")["/chat/after"]; m["status"] != "killed" {
		t.Errorf("%v", m)
	}
	is(all, "/chat/before", "/chat/after", "/chat/other")

	// A grant leaves no word; the comparison finds it.
	r.db.Exec(t, `insert into rouse.entity_grants (service_id, entity_url, permission, subject_kind, subject_value, created_by) values (1, '/chat/theirs', 'read', 'principal', $1, $2)`, kyle, ada)
	r.db.Exec(t, `insert into rouse.entity_effective_permissions (service_id, entity_url, source_entity_url, source_grant_id, permission, subject_kind, subject_value)
		select 1, entity_url, entity_url, id, permission, subject_kind, subject_value from rouse.entity_grants`)
	r.db.Exec(t, `update rouse.memberships set checked_at = clock_timestamp() - interval '1 hour'`)
	r.settle(w)
	is(ref, "/chat/after", "/chat/theirs")
	if n := r.count(`select count(*) from rouse.membership_changes`); n != 0 {
		t.Errorf("%d words are left", n)
	}
}

// A stream that nobody asks for goes after a month, unless it is observed; asked
// for again, it is there again.
func TestAForgottenMembershipStreamGoes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/a", "")
	forgotten, observed, wanted := r.membership(kyle, map[string]string{}), r.membership(kyle, map[string]string{"k": "1"}), r.membership(kyle, map[string]string{"k": "2"})
	w := r.worker()
	r.settle(w)
	r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/_entities/" + observed, Condition: Condition{}.String()})
	r.db.Exec(t, `update rouse.memberships set touched_at = clock_timestamp() - interval '31 days', checked_at = null`)
	r.membership(kyle, map[string]string{"k": "2"})
	r.settle(w)
	for ref, want := range map[string]int64{forgotten: 0, observed: 1, wanted: 1} {
		if n := r.count(`select count(*) from rouse.memberships m join rouse.streams s on s.path = '_entities/' || m.ref where m.ref = $1`, ref); n != want {
			t.Errorf("%s: %d, want %d", ref, n, want)
		}
	}
	if n := r.count(`select count(*) from rouse.streams where path = '_entities/' || $1`, forgotten); n != 0 {
		t.Error("its stream is left")
	}
	r.membership(kyle, map[string]string{})
	r.settle(w)
	if got := r.members(forgotten); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

// Changes at the same time as several gateways tell of them: at rest the stream
// says what is.
func TestMembershipsSettleUnderConcurrency(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tags := map[string]string{"on": "1"}
	ref := r.membership(kyle, tags)
	for i := range 4 {
		r.spawn(fmt.Sprintf("/chat/%d", i), "")
	}
	ctx, stop := context.WithCancel(t.Context())
	var tellers, writers sync.WaitGroup
	for range 2 {
		w := rigOn(t, r.db).worker()
		tellers.Add(1)
		go func() {
			defer tellers.Done()
			for ctx.Err() == nil {
				w.memberships(ctx)
			}
		}()
	}
	one := "1"
	for i := range 4 {
		writers.Add(1)
		go func() {
			defer writers.Done()
			for n := range 20 {
				v := &one
				if n%2 == 1 {
					v = nil
				}
				if _, _, _, err := r.s.EntityTagPut(t.Context(), 1, fmt.Sprintf("/chat/%d", i), kyle, "on", v, row("insert", "tags", "on", `{}`)); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	writers.Wait()
	r.tag("/chat/2", "on", &one)
	stop()
	tellers.Wait()
	r.settle(r.worker())
	if got := r.members(ref); len(got) != 1 || got["/chat/2"] == nil {
		t.Errorf("%v", got)
	}
}

func TestSharedStatesBelongToEntities(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const ada, eve = "/principal/user%3Aada", "/principal/user%3Aeve"
	r.spawn("/chat/a", "")
	r.spawnAs(ada, "/chat/b", "", nil)
	admit := func(who, permission, owner string) string {
		t.Helper()
		got, err := r.s.SharedStateAdmit(t.Context(), 1, who, false, SharedStatePrefix+"s", permission, owner, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, c := range []struct{ who, permission, owner, want string }{
		{kyle, "write", "", "forbidden"}, {kyle, "read", "", "forbidden"}, // nobody's yet
		{kyle, "write", "/chat/b", "forbidden"}, {kyle, "write", "/chat/none", "forbidden"}, // not by an entity of somebody else's
		{kyle, "write", "/chat/a", "ok"}, {kyle, "write", "", "ok"}, {kyle, "read", "", "ok"},
		{ada, "write", "/chat/b", "forbidden"}, {ada, "read", "", "forbidden"}, // the header overrides no link
		{eve, "read", "", "forbidden"},
	} {
		if got := admit(c.who, c.permission, c.owner); got != c.want {
			t.Errorf("%s %s as %s: %s, want %s", c.who, c.permission, c.owner, got, c.want)
		}
	}
	// Two that are first at once: one is.
	var wg sync.WaitGroup
	got := make([]string, 8)
	for i := range got {
		who, owner := kyle, "/chat/a"
		if i%2 == 1 {
			who, owner = ada, "/chat/b"
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			var err error
			if got[i], err = r.s.SharedStateAdmit(t.Context(), 1, who, false, SharedStatePrefix+"race", "write", owner, nil); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	if n := r.count(`select count(distinct entity_url) from rouse.shared_state_links where path = $1`, SharedStatePrefix+"race"); n != 1 {
		t.Errorf("%d were first: %v", n, got)
	}
}
