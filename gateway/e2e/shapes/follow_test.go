package shapes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/devpg"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// A client behind a balancer speaks to another gateway each time, while others
// write through both: it misses nothing and gets nothing twice.
func twoGateways(t *testing.T, fresh func() *pgtest.DB) {
	db := fresh()
	one, two := gateway(t, db), gateway(t, db)
	kyle := as(t, "user:kyle", one.URL, two.URL)
	kyle.chat()
	s := as(t, "user:kyle", one.URL, two.URL).shape("entities", "where", "type = 'chat' and status <> 'killed'")
	var writers sync.WaitGroup
	const each, hands = 20, 3
	var txids sync.Map
	for h := range hands {
		writers.Go(func() {
			c := as(t, "user:kyle", one.URL, two.URL)
			for i := range each {
				path := fmt.Sprintf("/_electric/entities/chat/%d-%02d", h, i)
				for _, q := range [][2]string{{"PUT", ""}, {"POST", "/tags/a"}, {"DELETE", ""}} {
					if q[0] == "DELETE" && i%2 == 0 {
						continue
					}
					body := ""
					if q[1] != "" {
						body = fmt.Sprintf(`{"value":"%d"}`, i)
					}
					a, err := c.try(t.Context(), q[0], path+q[1], body)
					if err != nil || a.status >= 300 {
						t.Errorf("%v %+v", err, a)
						return
					}
					txids.Store(a.txid(t), true)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	seen := map[string]int{}
	follow := func(live bool) {
		refetched := s.refetched
		for _, m := range s.step(live) {
			for _, txid := range m.Headers.Txids {
				seen[fmt.Sprint(txid, m.Key, m.Headers.Operation)]++
			}
		}
		if s.refetched > refetched {
			clear(seen)
		}
	}
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		follow(s.offset != "-1" && rand.N(2) == 0)
	}
	last := kyle.must(201, "PUT", "/_electric/entities/chat/last", "{}").txid(t)
	s.await(last)
	var want []string
	for h := range hands {
		for i := range each {
			if i%2 == 0 {
				want = append(want, fmt.Sprintf("/chat/%d-%02d", h, i))
			}
		}
	}
	s.expect("what is left", strings.Join(append(want, "/chat/last"), " "))
	for key, row := range s.rows {
		if strings.Contains(key, "last") {
			continue
		}
		_, i, _ := strings.Cut(strings.Trim(key, `"`), "-")
		if tag := strings.TrimPrefix(i, "0"); !strings.Contains(row["tags"], `"`+tag+`"`) {
			t.Errorf("%s: %s", key, row["tags"])
		}
	}
	for what, n := range seen {
		if n > 1 {
			t.Errorf("%s came %d times", what, n)
		}
	}
	// The second gateway begins to read the log when it is first asked, after the
	// first rows that the other has sent: that costs a start anew, no more.
	if s.refetched > 2 {
		t.Errorf("fetched anew %d times", s.refetched)
	}
}

// Every snapshot and what follows it join without a gap and without an overlap,
// however often a client begins while others write. A commit is in the log a
// moment before new snapshots show it.
func snapshotsJoin(t *testing.T, fresh func() *pgtest.DB) {
	in := gateway(t, fresh())
	kyle := as(t, "user:kyle", in.URL)
	kyle.chat("0")
	kyle.shape("entities").step(false)
	var enough atomic.Bool
	var writers sync.WaitGroup
	for h := range 4 {
		writers.Go(func() {
			c := as(t, "user:kyle", in.URL)
			for i := 0; !enough.Load(); i++ {
				if a, err := c.try(t.Context(), "POST", "/_electric/entities/chat/0/tags/"+fmt.Sprint(h), fmt.Sprintf(`{"value":"%d"}`, i)); err != nil || a.status != 200 {
					t.Errorf("%v %+v", err, a)
				}
			}
		})
	}
	var shapes []*shape
	for range 60 {
		s := kyle.shape("entities")
		s.step(false)
		shapes = append(shapes, s)
	}
	enough.Store(true)
	writers.Wait()
	a := kyle.must(201, "PUT", "/_electric/entities/chat/end", "{}").txid(t)
	for _, s := range shapes {
		s.await(a)
		if s.refetched > 0 {
			t.Errorf("a shape was fetched anew")
		}
	}
	again := kyle.shape("entities")
	again.step(false)
	want := again.rows[`"rouse"."entities"/"default"/"/chat/0"`]
	for i, s := range shapes {
		if got := s.rows[`"rouse"."entities"/"default"/"/chat/0"`]; got["tags"] != want["tags"] || got["updated_at"] != want["updated_at"] {
			t.Fatalf("shape %d: %v, want %v", i, got, want)
		}
	}
}

// A restart of the gateway, or of the database, is told to the client, which is
// right again after it.
func TestRestarts(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pgtest.Options{})
	start := func() *servertest.Instance { return gateway(t, server.DB) }
	in := start()
	kyle := as(t, "user:kyle", in.URL)
	kyle.chat("1")
	s := kyle.shape("entities")
	s.step(false)
	s.await(kyle.must(201, "PUT", "/_electric/entities/chat/2", "{}").txid(t))
	if err := in.Drain(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	in = start()
	kyle.urls = []string{in.URL}
	kyle.must(201, "PUT", "/_electric/entities/chat/3", "{}")
	s.until("a start anew", func() bool { return s.refetched == 1 && len(s.rows) == 3 })
	if err := server.Restart(t.Context(), devpg.Fast); err != nil {
		t.Fatal(err)
	}
	var spawned answer
	for deadline := time.Now().Add(bound); ; { // the pool finds out that its connections are gone
		if spawned = kyle.do("PUT", "/_electric/entities/chat/4", "{}"); spawned.status == 201 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", spawned)
		}
	}
	for deadline := time.Now().Add(bound); len(s.rows) != 4; {
		if time.Now().After(deadline) {
			t.Fatalf("never right again: %v", s.keys())
		}
		s.step(s.offset != "-1")
	}
	s.await(kyle.must(201, "PUT", "/_electric/entities/chat/5", "{}").txid(t))
	s.expect("after the restarts", "/chat/1 /chat/2 /chat/3 /chat/4 /chat/5")
}

// What a caller may see follows the grants: given, taken back, lapsed, to a
// kind, and to a child at its birth, which needs no start anew.
func grantsDecide(t *testing.T, fresh func() *pgtest.DB) {
	in := gateway(t, fresh())
	kyle, mallory := as(t, "user:kyle", in.URL), as(t, "user:mallory", in.URL)
	kyle.chat("1", "2")
	mallory.spawn("hers")
	s, claims := mallory.shape("entities"), mallory.shape("entity_dispatch_state")
	s.step(false)
	claims.step(false)
	s.expect("before", "/chat/hers")
	claims.expect("before", "/chat/hers")
	give := func(path, body string) string {
		a := kyle.must(201, "POST", path+"/grants", body)
		_, rest, _ := strings.Cut(a.body, `"id":`)
		id, _, _ := strings.Cut(strings.Trim(rest, `" `), ",")
		return strings.Trim(id, `" `)
	}
	id := give("/_electric/entities/chat/1", `{"subject_kind":"principal","subject_value":"/principal/user%3Amallory","permission":"read"}`)
	s.until("a grant", func() bool { return s.keys() == "/chat/1 /chat/hers" })
	claims.until("a grant, of what belongs to the entity", func() bool { return claims.keys() == "/chat/1 /chat/hers" })
	kyle.must(204, "DELETE", "/_electric/entities/chat/1/grants/"+id, "")
	s.until("its end", func() bool { return s.keys() == "/chat/hers" })
	give("/_electric/entities/chat/2", `{"subject_kind":"principal_kind","subject_value":"user","permission":"manage","propagation":"descendants"}`)
	s.until("a grant to a kind", func() bool { return s.keys() == "/chat/2 /chat/hers" })
	refetched := s.refetched
	a := kyle.must(201, "PUT", "/_electric/entities/chat/child", `{"parent":"/chat/2"}`)
	s.await(a.txid(t))
	s.expect("a child", "/chat/2 /chat/child /chat/hers")
	if s.refetched != refetched {
		t.Errorf("a child's birth made the shape start anew")
	}
	// What she may not see, she does not hear of.
	hidden := kyle.must(201, "PUT", "/_electric/entities/chat/secret", "{}").txid(t)
	s.await(mallory.must(200, "POST", "/_electric/entities/chat/hers/tags/a", `{"value":"b"}`).txid(t))
	if slices.ContainsFunc(s.last, func(m message) bool { return slices.Contains(m.Headers.Txids, hidden) }) || strings.Contains(s.keys(), "secret") {
		t.Errorf("%v %+v", s.keys(), s.last)
	}
	permissions := mallory.shape("entity_effective_permissions")
	permissions.step(false)
	if len(permissions.rows) != 2 {
		t.Errorf("her grants: %v", permissions.rows)
	}
	give("/_electric/entities/chat/secret", `{"subject_kind":"principal","subject_value":"/principal/user%3Aada","permission":"read"}`)
	s.await(mallory.must(200, "POST", "/_electric/entities/chat/hers/tags/a", `{"value":"c"}`).txid(t))
	if permissions.step(false); len(permissions.rows) != 2 {
		t.Errorf("she follows somebody else's grant: %v", permissions.rows)
	}
	// Time ends a grant without a word in the log.
	soon := time.Now().Add(1500 * time.Millisecond).UTC().Format(time.RFC3339Nano)
	give("/_electric/entities/chat/1", `{"subject_kind":"principal","subject_value":"/principal/user%3Amallory","permission":"read","expires_at":"`+soon+`"}`)
	s.until("a grant for a while", func() bool { return strings.HasPrefix(s.keys(), "/chat/1 ") })
	s.until("its end by time", func() bool { return !strings.HasPrefix(s.keys(), "/chat/1 ") && len(s.rows) > 0 })
}

// Runners, their liveness, types and people, as each may see them.
func eachTheirOwn(t *testing.T, fresh func() *pgtest.DB) {
	in := gateway(t, fresh(), func(c *config.Config) { c.TypeSpawn = "registrar" })
	kyle, mallory, system := as(t, "user:kyle", in.URL), as(t, "user:mallory", in.URL), as(t, "", in.URL)
	for _, who := range []*caller{kyle, mallory} {
		name := strings.TrimPrefix(who.as, "user:")
		who.must(201, "POST", "/_electric/runners", fmt.Sprintf(`{"id":"mac-%s","label":"Mac"}`, name))
		who.must(201, "POST", "/_electric/entity-types", fmt.Sprintf(`{"name":"type-%s","description":""}`, name))
	}
	for table, want := range map[string][3]string{
		"runners":      {"mac-kyle", "mac-mallory", "mac-kyle mac-mallory"},
		"entity_types": {"type-kyle", "type-mallory", "principal type-kyle type-mallory"},
		"users":        {"kyle mallory", "kyle mallory", "kyle mallory"},
	} {
		for i, who := range []*caller{kyle, mallory, system} {
			s := who.shape(table)
			s.step(false)
			got := strings.TrimPrefix(s.keys(), "principal ")
			if got != strings.TrimPrefix(want[i], "principal ") {
				t.Errorf("%s of %s: %q, want %q", table, who.as, got, want[i])
			}
		}
	}
	// Live: each gets their own changes only. Trap 13: a heartbeat changes
	// nothing in the table of runners.
	runners, live, others := kyle.shape("runners"), kyle.shape("runner_runtime_diagnostics"), mallory.shape("runner_runtime_diagnostics")
	types, hers, theirs := kyle.shape("entity_types"), mallory.shape("entity_types"), mallory.shape("runners")
	for _, s := range []*shape{runners, live, others, types, hers, theirs} {
		s.step(false)
	}
	// What is not hers comes first: were it shown, it would be there when hers is.
	kyle.must(200, "POST", "/_electric/runners/mac-kyle/heartbeat", `{"diagnostics":{}}`)
	mallory.must(200, "POST", "/_electric/runners/mac-mallory/heartbeat", `{}`)
	live.until("a heartbeat", func() bool { return live.keys() == "mac-kyle" })
	others.until("a heartbeat", func() bool { return others.keys() == "mac-mallory" })
	if ms := runners.step(false); len(ms) != 0 {
		t.Errorf("a heartbeat changes the runner: %+v", ms)
	}
	kyle.must(200, "POST", "/_electric/runners/mac-kyle/disable", "")
	runners.until("what an administrator changes", func() bool {
		return runners.rows[`"rouse"."runners"/"default"/"mac-kyle"`]["admin_status"] == "disabled"
	})
	mallory.must(200, "POST", "/_electric/runners/mac-mallory/disable", "")
	theirs.until("what she changes of her own", func() bool {
		return theirs.rows[`"rouse"."runners"/"default"/"mac-mallory"`]["admin_status"] == "disabled"
	})
	if theirs.keys() != "mac-mallory" {
		t.Errorf("she follows %s", theirs.keys())
	}
	kyle.must(201, "POST", "/_electric/entity-types", `{"name":"later","description":""}`)
	types.until("a type", func() bool { return types.keys() == "later type-kyle" })
	mallory.must(201, "POST", "/_electric/entity-types", `{"name":"mine","description":""}`)
	hers.until("her type, and not the one before it", func() bool { return hers.keys() == "mine type-mallory" })
	kyle.must(201, "POST", "/_electric/entity-types/later/grants", `{"subject_kind":"principal","subject_value":"/principal/user%3Amallory","permission":"spawn"}`)
	hers.until("a type that she may spawn", func() bool { return hers.keys() == "later mine type-mallory" })
	kyle.must(204, "DELETE", "/_electric/entity-types/later", "")
	hers.until("it is gone", func() bool { return hers.keys() == "mine type-mallory" })
	types.until("it is gone for who registered it", func() bool { return types.keys() == "type-kyle" })
}

// Services do not see each other.
func servicesApart(t *testing.T, fresh func() *pgtest.DB) {
	in := gateway(t, fresh())
	kyle, system := as(t, "user:kyle", in.URL), as(t, "", in.URL)
	system.must(201, "POST", "/_electric/services", `{"name":"other"}`)
	kyle.chat("1")
	s, other := system.shape("entities"), system.shape("entities", "service", "other")
	s.step(false)
	other.step(false)
	kyle.must(201, "POST", "/_electric/entity-types?service=other", `{"name":"chat","description":""}`)
	a := kyle.must(201, "PUT", "/_electric/entities/chat/2?service=other", "{}")
	other.await(a.txid(t))
	for key, row := range other.rows {
		if key != `"rouse"."entities"/"other"/"/chat/2"` || row["tenant_id"] != "other" {
			t.Errorf("%s %v", key, row)
		}
	}
	s.step(false)
	s.expect("the default service", "/chat/1")
	clause := system.shape("entities", "service", "other", "where", "tenant_id = 'other'")
	clause.step(false)
	if len(clause.rows) != 1 {
		t.Errorf("by tenant: %v", clause.rows)
	}
}

// What a run does to the tables of dispatch, wakes and claims is synced.
func aRun(t *testing.T, fresh func() *pgtest.DB) {
	in := gateway(t, fresh())
	kyle := as(t, "user:kyle", in.URL)
	kyle.chat()
	kyle.must(201, "POST", "/_electric/runners", `{"id":"mac","label":"Mac"}`)
	state, wakes, claims := kyle.shape("entity_dispatch_state"), kyle.shape("wake_notifications"), kyle.shape("consumer_claims", "where", "status = 'active'")
	active := kyle.shape("entities", "where", "status = 'running'", "columns", "url,status")
	all := []*shape{state, wakes, claims, active}
	for _, s := range all {
		s.step(false)
	}
	kyle.must(201, "PUT", "/_electric/entities/chat/1", `{"dispatch_policy":{"targets":[{"type":"runner","runnerId":"mac"}]},"initialMessage":"hi"}`)
	const row = `"rouse"."entity_dispatch_state"/"default"/"/chat/1"`
	state.until("an outstanding wake", func() bool {
		return state.rows[row] != nil && state.rows[row]["outstanding_wake_id"] != "NULL"
	})
	wakes.until("the wake", func() bool { return len(wakes.rows) == 1 })
	for _, w := range wakes.rows {
		if w["wake_id"] != state.rows[row]["outstanding_wake_id"] || strings.Contains(fmt.Sprint(w), "rouse_ct_") {
			t.Errorf("the wake: %v", w)
		}
	}
	a := kyle.must(200, "POST", "/_electric/runners/mac/claim", `{}`)
	claims.until("the claim", func() bool { return len(claims.rows) == 1 })
	active.until("it runs", func() bool { return active.keys() == "/chat/1" })
	state.until("the claim", func() bool {
		return state.rows[row]["active_epoch"] == "1" && state.rows[row]["active_runner_id"] == "mac"
	})
	token := field(a.body, "claimToken")
	kyle.must(200, "POST", "/_electric/wake-callbacks/"+field(a.body, "wakeId"), `{"epoch":1,"acks":[],"done":true}`, "electric-claim-token", token)
	claims.until("its end", func() bool { return len(claims.rows) == 0 })
	active.until("its end", func() bool { return len(active.rows) == 0 })
	state.until("its end", func() bool { return state.rows[row]["active_epoch"] == "NULL" })
}

func field(body, name string) string {
	_, rest, _ := strings.Cut(body, `"`+name+`":"`)
	v, _, _ := strings.Cut(rest, `"`)
	return v
}

// Large values that an update does not touch are not in the log; a row that
// comes to match brings them all the same.
func largeValues(t *testing.T, fresh func() *pgtest.DB) {
	in := gateway(t, fresh())
	kyle := as(t, "user:kyle", in.URL)
	kyle.chat()
	raw := make([]byte, 20_000)
	for i := range raw {
		raw[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[rand.N(36)]
	}
	kyle.must(201, "PUT", "/_electric/entities/chat/1", `{"args":{"text":"`+string(raw)+`"}}`)
	all, killed := kyle.shape("entities"), kyle.shape("entities", "where", "status = 'killed'")
	all.step(false)
	killed.step(false)
	const row = `"rouse"."entities"/"default"/"/chat/1"`
	all.await(kyle.must(200, "DELETE", "/_electric/entities/chat/1", "").txid(t))
	killed.until("the kill", func() bool { return len(killed.rows) == 1 })
	for _, s := range []*shape{all, killed} {
		if got := s.rows[row]; got["status"] != "killed" || !strings.Contains(got["spawn_args"], string(raw)) {
			t.Errorf("%s, %d bytes", got["status"], len(got["spawn_args"]))
		}
	}
}

// inFlight is how many requests the gateway says it serves, this one not counted.
func inFlight(t *testing.T, base string) (n int) {
	t.Helper()
	for line := range strings.Lines(as(t, "", base).must(200, "GET", "/metrics", "").body) {
		if name, value, ok := strings.Cut(line, " "); ok && strings.Contains(name, "in_flight") {
			var v int
			_, _ = fmt.Sscan(value, &v)
			n += v
		}
	}
	return n - 1
}

// A live request ends at the drain, by long-poll and by SSE.
func drained(t *testing.T, fresh func() *pgtest.DB) {
	in := gateway(t, fresh(), func(c *config.Config) { c.LongPollTimeout, c.SSEMaxAge = 5*time.Minute, 5*time.Minute })
	kyle := as(t, "user:kyle", in.URL)
	kyle.chat("1")
	s := kyle.shape("entities")
	s.step(false)
	ended := make(chan answer, 2)
	for _, sse := range []string{"", "&live_sse=true"} {
		path := s.path(true) + sse
		c := as(t, "user:kyle", in.URL)
		go func() {
			a, _ := c.try(t.Context(), "GET", path, "")
			ended <- a
		}()
	}
	began := time.Now()
	for inFlight(t, in.URL) < 2 {
		if time.Since(began) > bound {
			t.Fatal("they do not wait")
		}
	}
	began = time.Now()
	if err := in.Drain(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if a := <-ended; a.status != 200 || !strings.Contains(a.body, "up-to-date") {
			t.Errorf("%+v", a)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the drain took %v", took)
	}
}

// While somebody's transaction keeps the row session from beginning, clients get
// their rows, and again; when it begins they follow.
func TestAnOpenTransactionDelaysChangesOnly(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, pgtest.Options{})
	in := gateway(t, server.DB)
	kyle := as(t, "user:kyle", in.URL)
	kyle.chat("1")
	writer := server.DB.Conn(t)
	if _, err := writer.Exec(t.Context(), `begin; insert into rouse.audit_log (service_id, principal, action, resource) values (1, 'x', 'x', 'x')`); err != nil {
		t.Fatal(err)
	}
	s := kyle.shape("entities")
	s.step(false)
	s.expect("the rows", "/chat/1")
	kyle.spawn("2")
	s.until("the rows again", func() bool { return s.keys() == "/chat/1 /chat/2" })
	if s.refetched == 0 {
		t.Error("there was a session")
	}
	if _, err := writer.Exec(t.Context(), `commit`); err != nil {
		t.Fatal(err)
	}
	s.until("a session", func() bool { return s.offset != "0_0" && s.offset != "-1" })
	refetched := s.refetched
	s.await(kyle.must(201, "PUT", "/_electric/entities/chat/3", "{}").txid(t))
	s.expect("a change", "/chat/1 /chat/2 /chat/3")
	if s.refetched != refetched {
		t.Error("it was fetched anew")
	}
}
