package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// grantModel is a grant as the model has it.
type grantModel struct {
	id               int64
	permission, kind string
	value            string
	descendants      bool
	copies           bool
	expires          *time.Time
}

func (g grantModel) json() json.RawMessage {
	m := map[string]any{"permission": g.permission, "subject_kind": g.kind, "subject_value": g.value, "copy_to_children": g.copies}
	if g.descendants {
		m["propagation"] = "descendants"
	}
	if g.expires != nil {
		m["expires_at"] = g.expires
	}
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return raw
}

type entityModel struct {
	url, owner string
	parent     *entityModel
	grants     []grantModel
}

// may is the rule itself: the owner, or a grant on the entity or one that
// propagates on an ancestor, of the permission or manage, to the principal or
// its kind, before it expires.
func (e *entityModel) may(principal, kind, permission string, at time.Time) bool {
	if e.owner == principal {
		return true
	}
	for a := e; a != nil; a = a.parent {
		for _, g := range a.grants {
			if (a == e || g.descendants) && (g.permission == permission || g.permission == "manage") &&
				(g.kind == "principal" && g.value == principal || g.kind == "principal_kind" && g.value == kind) &&
				(g.expires == nil || g.expires.After(at)) {
				return true
			}
		}
	}
	return false
}

// What is stored for each entity comes to what the rule says, for random trees
// and grants given, inherited, copied, expired and taken back, at any time.
func TestEffectivePermissionsAreTheModels(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	conn := db.Conn(t)
	principals := map[string]string{kyle: "user", mallory: "user", "/principal/agent%3Aa": "agent", "/principal/service%3As": "service"}
	permissions := []string{"read", "write", "delete", "signal", "fork", "schedule", "spawn", "manage"}
	now := time.Now().Truncate(time.Microsecond)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		drawGrant := rapid.Custom(func(rt *rapid.T) grantModel {
			g := grantModel{permission: rapid.SampledFrom(permissions).Draw(rt, "permission"), kind: "principal",
				value:       rapid.SampledFrom(slices.Sorted(mapKeys(principals))).Draw(rt, "subject"),
				descendants: rapid.Bool().Draw(rt, "descendants"), copies: rapid.Bool().Draw(rt, "copies")}
			if rapid.Bool().Draw(rt, "to a kind") {
				g.kind, g.value = "principal_kind", principals[g.value]
			}
			if h := rapid.IntRange(-1, 3).Draw(rt, "expires in hours"); h != 0 {
				at := now.Add(time.Duration(h) * time.Hour)
				g.expires = &at
			}
			return g
		})
		var all []*entityModel
		for i := range rapid.IntRange(3, 14).Draw(rt, "steps") {
			switch what := rapid.IntRange(0, 3).Draw(rt, "what"); {
			case what <= 1 || len(all) == 0:
				e := &entityModel{url: fmt.Sprintf("/chat/r%d-%d", round, i), owner: rapid.SampledFrom([]string{kyle, mallory}).Draw(rt, "owner")}
				r := spawnRequest(e.url)
				r.Principal, r.System = e.owner, true
				if len(all) > 0 && rapid.IntRange(0, 3).Draw(rt, "child") > 0 {
					e.parent = rapid.SampledFrom(all).Draw(rt, "parent")
					r.Parent = e.parent.url
					for _, g := range e.parent.grants {
						if g.copies && (g.expires == nil || g.expires.After(now)) {
							g.id, g.descendants = 0, false
							e.grants = append(e.grants, g)
						}
					}
				}
				given := rapid.SliceOfN(drawGrant, 0, 2).Draw(rt, "given")
				if len(given) > 0 {
					list := make([]json.RawMessage, len(given))
					for i, g := range given {
						list[i] = g.json()
					}
					r.Grants, _ = json.Marshal(list)
				}
				e.grants = append(e.grants, given...)
				mustSpawn(t, s, r)
				all = append(all, e)
			case what == 2:
				e, g := rapid.SampledFrom(all).Draw(rt, "entity"), drawGrant.Draw(rt, "grant")
				outcome, row, err := s.GrantPut(t.Context(), 1, e.url, "", kyle, g.json())
				if err != nil || outcome != "granted" {
					rt.Fatalf("grant: %s, %v", outcome, err)
				}
				g.id = row.ID
				e.grants = append(e.grants, g)
			default:
				e := rapid.SampledFrom(all).Draw(rt, "entity")
				if at := slices.IndexFunc(e.grants, func(g grantModel) bool { return g.id != 0 && (g.expires == nil || g.expires.After(now)) }); at >= 0 {
					if outcome, err := s.GrantDelete(t.Context(), 1, e.url, "", kyle, e.grants[at].id); err != nil || outcome != "deleted" {
						rt.Fatalf("delete: %s, %v", outcome, err)
					}
					e.grants = slices.Delete(e.grants, at, at+1)
				}
			}
		}
		var urls []string
		for _, e := range all {
			urls = append(urls, e.url)
		}
		for principal, kind := range principals {
			for _, permission := range permissions {
				for _, at := range []time.Time{now, now.Add(90 * time.Minute), now.Add(3 * time.Hour)} {
					var got, want []string
					if err := conn.QueryRow(t.Context(), `select coalesce(array_agg(x order by array_position($3, x)), '{}')
						from rouse._entity_allowed(1, $1, $2, $3::text[], $4) x`, principal, permission, urls, at).Scan(&got); err != nil {
						rt.Fatal(err)
					}
					for _, e := range all {
						if e.may(principal, kind, permission, at) {
							want = append(want, e.url)
						}
					}
					if !slices.Equal(got, want) {
						rt.Fatalf("%s may %s at +%s to %v, want %v", principal, permission, at.Sub(now), got, want)
					}
				}
			}
		}
	})
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// Children that are spawned while a grant is given to descendants get it, and
// keep nothing of one that is taken back meanwhile.
func TestGrantsAndSpawnsInOneTreeMeetEachOther(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	mustSpawn(t, s, spawnRequest("/chat/root"))
	const rounds = 12
	grant := grantModel{permission: "read", kind: "principal", value: mallory, descendants: true}
	for i := range rounds {
		var wg sync.WaitGroup
		var id int64
		wg.Go(func() {
			outcome, g, err := s.GrantPut(t.Context(), 1, "/chat/root", kyle, kyle, grant.json())
			if err != nil || outcome != "granted" {
				t.Errorf("%s, %v", outcome, err)
			}
			id = g.ID
		})
		for k := range 3 {
			wg.Go(func() {
				r := spawnRequest(fmt.Sprintf("/chat/%d-%d", i, k))
				r.Parent = "/chat/root"
				if k == 2 && i > 0 {
					r.Parent = fmt.Sprintf("/chat/%d-0", i-1)
				}
				if res, err := s.EntitySpawn(t.Context(), r); err != nil || res.Outcome != "spawned" {
					t.Errorf("%s, %v", res.Outcome, err)
				}
			})
		}
		wg.Wait()
		if missing := count(t, db, `select count(*) from rouse.entities e where not exists (
			select from rouse.entity_effective_permissions p where p.entity_url = e.url and p.source_grant_id = $1)`, id); missing != 0 {
			t.Fatalf("round %d: %d entities did not get the grant", i, missing)
		}
		wg.Go(func() {
			if outcome, err := s.GrantDelete(t.Context(), 1, "/chat/root", kyle, kyle, id); err != nil || outcome != "deleted" {
				t.Errorf("%s, %v", outcome, err)
			}
		})
		wg.Go(func() {
			r := spawnRequest(fmt.Sprintf("/chat/%d-late", i))
			r.Parent = "/chat/root"
			if res, err := s.EntitySpawn(t.Context(), r); err != nil || res.Outcome != "spawned" {
				t.Errorf("%s, %v", res.Outcome, err)
			}
		})
		wg.Wait()
		if left := count(t, db, `select count(*) from rouse.entity_effective_permissions`); left != 0 {
			t.Fatalf("round %d: %d rows are left of a grant that was taken back", i, left)
		}
	}
}

// Grants that have run out leave with the next one; there is a bound to those
// that stay.
func TestGrantsOfAnEntityAreBounded(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	mustSpawn(t, s, spawnRequest("/chat/1"))
	db.Exec(t, `insert into rouse.entity_grants (service_id, entity_url, permission, subject_kind, subject_value, created_by, expires_at)
		select 1, '/chat/1', 'read', 'principal', $1, $1, case when n <= 10 then clock_timestamp() - interval '1 ms' end from generate_series(1, 1009) n`, kyle)
	g := grantModel{permission: "read", kind: "principal_kind", value: "user"}
	for _, want := range []string{"granted", "too_many"} {
		if outcome, _, err := s.GrantPut(t.Context(), 1, "/chat/1", kyle, kyle, g.json()); err != nil || outcome != want {
			t.Errorf("%s, want %s: %v", outcome, want, err)
		}
	}
	if n := count(t, db, `select count(*) from rouse.entity_grants`); n != 1000 {
		t.Errorf("%d grants are left", n)
	}
}
