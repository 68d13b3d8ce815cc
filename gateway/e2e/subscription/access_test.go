package subscription

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/world"
)

// A subscription belongs to whoever registered it first; the server's own
// principals may do everything.
func TestOwners(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	mine := object{"type": "pull-wake", "pattern": "jobs/*", "wake_stream": "wakes/p"}
	r.do(201, "", "PUT", subPath("p"), mine)
	r.stream("jobs/1", `{"n":1}`)
	r.wake("wakes/p", 1)
	stranger := r.as("user:mallory")
	stranger.do(401, "UNAUTHORIZED", "PUT", subPath("p"), mine)
	stranger.do(401, "UNAUTHORIZED", "PUT", subPath("p"), object{"type": "pull-wake", "pattern": "*", "wake_stream": "wakes/p"})
	for _, c := range []struct{ method, path string }{{"GET", ""}, {"DELETE", ""}, {"POST", "/streams"}, {"DELETE", "/streams/a"}, {"POST", "/claim"}, {"GET", "/wakes"}} {
		stranger.do(401, "UNAUTHORIZED", c.method, subPath("p")+c.path, object{"streams": []string{"a"}, "worker": "w"})
	}
	type page struct{ Subscriptions []subscription }
	if got := world.Into[page](t, stranger.do(200, "", "GET", "/__ds/subscriptions", nil)); len(got.Subscriptions) != 0 {
		t.Errorf("a stranger sees %+v", got)
	}
	if s := r.get("p"); s.State != "waking" || len(s.Streams) != 1 {
		t.Errorf("%+v", s)
	}
	// Whose token it is does not matter: it speaks for itself.
	c := r.claim("p", "w")
	stranger.do(200, "", "POST", subPath("p")+"/ack", object{"acks": acks("jobs/1", c.tail(t, "jobs/1")), "done": true}, "electric-claim-token", c.Token)
	for _, system := range []*rig{r.as(""), r.as("system:framework")} {
		if got := world.Into[page](t, system.do(200, "", "GET", "/__ds/subscriptions", nil)); len(got.Subscriptions) != 1 {
			t.Errorf("the system sees %+v", got)
		}
		system.do(200, "", "PUT", subPath("p"), mine)
		system.do(200, "", "GET", subPath("p"), nil)
		system.do(204, "", "POST", subPath("p")+"/streams", object{"streams": []string{"extra"}})
		system.do(409, "NO_PENDING_WORK", "POST", subPath("p")+"/claim", object{"worker": "w"})
	}
	for _, header := range []string{"kyle", "user:", "robot:x", "user:a/b"} {
		r.as(header).do(400, "INVALID_PRINCIPAL", "GET", subPath("p"), nil)
	}
	r.as("").do(204, "", "DELETE", subPath("p"), nil)
	// The id is free for the next one.
	stranger.do(201, "", "PUT", subPath("p"), mine)
	if s := stranger.get("p"); s.Owner != "/principal/user%3Amallory" {
		t.Errorf("%+v", s)
	}
}

// Where credentials are asked for, nothing but the keys and a wake's own token
// works without them.
func TestCredentialsAreAskedFor(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.json")
	tokens := map[string]string{}
	for _, p := range []string{"user:kyle", "user:mallory", "system:framework"} {
		tokens[p] = devtoken.NewToken()
		if err := devtoken.Add(file, devtoken.Entry{Principal: p, SHA256: devtoken.Hash(tokens[p])}); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, 1, func(c *config.Config) { c.Insecure, c.TokensFile, c.TypeSpawn = false, file, "all" })
	r = r.as("")
	bearer := func(p string) []string { return []string{"Authorization", "Bearer " + tokens[p]} }
	mine := object{"type": "pull-wake", "pattern": "jobs/*", "wake_stream": "wakes/p"}
	r.do(201, "", "PUT", "/v1/stream"+subPath("p"), mine, bearer("user:kyle")...)
	for _, mount := range mounts {
		for _, c := range []struct{ method, path string }{
			{"PUT", "/p"}, {"GET", "/p"}, {"DELETE", "/p"}, {"GET", ""}, {"POST", "/p/streams"}, {"DELETE", "/p/streams/a"}, {"POST", "/p/claim"}, {"GET", "/p/wakes"}, {"GET", "/nobody"}, {"PUT", "/new"},
		} {
			body := object{"type": "pull-wake", "pattern": "jobs/*", "wake_stream": "wakes/p", "streams": []string{"a"}, "worker": "w"}
			r.do(401, "UNAUTHORIZED", c.method, mount+"/__ds/subscriptions"+c.path, body)
			// A name that anybody can write is no credential here.
			r.do(401, "UNAUTHORIZED", c.method, mount+"/__ds/subscriptions"+c.path, body, "electric-principal", "user:kyle")
			r.do(401, "UNAUTHENTICATED", c.method, mount+"/__ds/subscriptions"+c.path, body, "Authorization", "Bearer rouse_pat_wrong")
		}
		r.do(200, "", "GET", mount+"/__ds/jwks.json", nil)
	}
	r.do(401, "UNAUTHORIZED", "GET", subPath("p"), nil, bearer("user:mallory")...)
	r.do(200, "", "GET", subPath("p"), nil, bearer("system:framework")...)
	r.do(201, "", "PUT", "/jobs/1", `{"n":1}`, append(bearer("user:kyle"), "Content-Type", "application/json")...)
	var c claimed
	r.Eventually("there is work", func() bool {
		a := r.Do(t.Context(), "POST", subPath("p")+"/claim", object{"worker": "w"}, map[string]string{"Authorization": "Bearer " + tokens["user:kyle"]})
		if a.Status == 200 {
			c = world.Into[claimed](t, a)
		}
		return a.Status == 200
	})
	r.turn(200, "", "p", "ack", c, c.Token, object{"acks": acks("jobs/1", c.tail(t, "jobs/1")), "done": true})
	if s := world.Into[subscription](t, r.do(200, "", "GET", subPath("p"), nil, bearer("user:kyle")...)); s.State != "idle" {
		t.Errorf("%+v", s)
	}
}

// An entity's stream is watched by those who may read it: a pattern of somebody
// else passes over it, and a name is refused.
func TestEntitiesOfOthersAreNotWatched(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	kyle, mallory, system := r, r.as("user:mallory"), r.as("")
	kyle.do(201, "", "POST", "/_electric/entity-types", object{"name": "job", "description": "job"})
	kyle.do(201, "", "PUT", "/_electric/entities/job/before", object{})
	watch := func(who *rig, id string) {
		who.do(201, "", "PUT", subPath(id), object{"type": "pull-wake", "pattern": "job/**", "wake_stream": "wakes/" + id, "lease_ttl_ms": 10_000})
	}
	watch(kyle, "kyle")
	watch(mallory, "mallory")
	watch(system, "system")
	for _, path := range []string{"job/before/main", "/job/before/main"} {
		mallory.do(401, "UNAUTHORIZED", "POST", subPath("mallory")+"/streams", object{"streams": []string{path}})
		mallory.do(401, "UNAUTHORIZED", "PUT", subPath("other"), object{"type": "pull-wake", "streams": []string{path}, "wake_stream": "wakes/o"})
	}
	// An entity that is made later, by name and by pattern.
	mallory.do(204, "", "POST", subPath("mallory")+"/streams", object{"streams": []string{"job/after/main"}})
	kyle.do(201, "", "PUT", "/_electric/entities/job/after", object{"initialMessage": "hello"})
	kyle.do(200, "", "POST", "/_electric/entities/job/before/send", object{"payload": "hello"})
	kyle.do(201, "", "PUT", "/job/plain", nil, "Content-Type", "application/json") // anybody's
	kyle.do(204, "", "POST", "/job/plain", `{"n":1}`)
	seen := func(who *rig, id string, want ...string) {
		t.Helper()
		got := map[string]bool{}
		who.Eventually(id+" is told of all", func() bool {
			a := who.Do(t.Context(), "POST", subPath(id)+"/claim", object{"worker": "w"}, nil)
			if a.Status == 200 {
				c := world.Into[claimed](t, a)
				var list []object
				for _, s := range c.Streams {
					if s.Pending {
						got[s.Path] = true
						list = append(list, object{"stream": s.Path, "offset": s.Tail})
					}
				}
				who.turn(200, "", id, "ack", c, c.Token, object{"acks": list, "done": true})
			}
			return len(got) >= len(want)
		})
		who.do(409, "NO_PENDING_WORK", "POST", subPath(id)+"/claim", object{"worker": "w"})
		var paths []string
		for p := range got {
			paths = append(paths, p)
		}
		slices.Sort(paths)
		if !slices.Equal(paths, want) {
			t.Errorf("%s is told of %v, not of %v", id, paths, want)
		}
	}
	all := []string{"/job/after/main", "/job/before/main", "job/plain"}
	seen(kyle, "kyle", all...)
	seen(system, "system", all...)
	seen(mallory, "mallory", "job/plain")
	for _, s := range mallory.get("mallory").Streams {
		if s.Pending || s.Acked > "0000000000000000_0000000000000000" && s.Path != "job/plain" {
			t.Errorf("%+v", s)
		}
	}
	// What the gateway keeps for itself is watched by nobody.
	kyle.do(201, "", "POST", "/_electric/runners", object{"id": "mac", "label": "mac"})
	watchAll := world.Into[subscription](t, system.do(201, "", "PUT", subPath("all"), object{"type": "pull-wake", "pattern": "runners/**", "wake_stream": "wakes/all"}))
	if len(watchAll.Streams) != 0 {
		t.Errorf("%+v", watchAll.Streams)
	}
}

// A page of another site cannot use a gateway that asks for no credentials.
func TestOtherSitesPages(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	for _, c := range []struct{ method, path string }{{"PUT", "/p"}, {"GET", "/p"}, {"DELETE", "/p"}, {"GET", ""}, {"POST", "/p/claim"}} {
		r.do(403, "ORIGIN_FORBIDDEN", c.method, "/__ds/subscriptions"+c.path, object{"type": "pull-wake", "pattern": "a", "wake_stream": "w"}, "Origin", "https://evil.example")
	}
	r.pool("p", object{"pattern": "jobs/*", "lease_ttl_ms": int(time.Minute.Milliseconds())})
}
