package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

const kyle, mallory = "/principal/user%3Akyle", "/principal/user%3Amallory"

// controlStore is a store on a database of its own, with a type "chat" of kyle.
func controlStore(t *testing.T) (*Store, *pgtest.DB) {
	t.Helper()
	db := pgtest.New(t)
	s, err := Open(t.Context(), Options{DSN: db.DSN, MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if outcome, _, _, err := s.EntityTypePut(t.Context(), 1, kyle, false, EntityType{Name: "chat"}); err != nil || outcome != "created" {
		t.Fatalf("type: %s, %v", outcome, err)
	}
	return s, db
}

func spawnRequest(url string) SpawnRequest {
	return SpawnRequest{Service: 1, URL: url, Type: "chat", TypeRevision: 1, Principal: kyle,
		Created: `{"headers":{"operation":"insert"},"type":"entity_created","key":"entity-created","value":{}}`}
}

func mustSpawn(t *testing.T, s *Store, r SpawnRequest) Entity {
	t.Helper()
	res, err := s.EntitySpawn(t.Context(), r)
	if err != nil || res.Outcome != "spawned" {
		t.Fatalf("spawn %s: %s, %v", r.URL, res.Outcome, err)
	}
	return res.Entity
}

func register(t *testing.T, s *Store, id, owner string) {
	t.Helper()
	outcome, _, _, err := s.RunnerRegister(t.Context(), 1, owner, false, Runner{ID: id, Owner: owner, Label: "Kyle's MacBook"})
	if err != nil || outcome != "created" {
		t.Fatalf("register: %s, %v", outcome, err)
	}
}

func runnerPolicy(id string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"targets":[{"type":"runner","runnerId":%q}]}`, id))
}

// count reads one number, or fails the test.
func count(t *testing.T, db *pgtest.DB, sql string, args ...any) (n int64) {
	t.Helper()
	if err := db.Conn(t).QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func TestSpawnMakesEverythingAndCreationWakesNobody(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	register(t, s, "mac", kyle)
	r := spawnRequest("/chat/team/a/7")
	r.Policy, r.Tags, r.Args = runnerPolicy("mac"), json.RawMessage(`{"a":"b"}`), json.RawMessage(`{"n":12345678901234567890}`)
	e := mustSpawn(t, s, r)
	if e.Status != "idle" || e.Type != "chat" || e.CreatedBy != kyle || string(e.SpawnArgs) != `{"n": 12345678901234567890}` {
		t.Fatalf("entity %+v", e)
	}
	if n := count(t, db, `select count(*) from rouse.streams s join rouse.consumer_streams c on c.stream_id = s.id
		where s.path = 'chat/team/a/7/main' and s.kind = 'entity' and s.owner = $1 and s.tail = c.acked and s.tail > 0
		  and not s.pending and s.actionable = 0 and s.consumer_id = c.consumer_id`, kyle); n != 1 {
		t.Fatal("the main stream, its cursor or its mutex is wrong")
	}
	if n := count(t, db, `select count(*) from rouse.entity_dispatch_state where entity_url = '/chat/team/a/7' and outstanding_wake_id is null`); n != 1 {
		t.Fatal("no dispatch state")
	}
	if n := count(t, db, `select count(*) from rouse.audit_log where resource = '/chat/team/a/7' and action = 'entity.spawn' and principal = $1`, kyle); n != 1 {
		t.Fatal("no audit row")
	}
	r = spawnRequest("/chat/b")
	r.Message = `{"headers":{"operation":"insert"},"type":"inbox","key":"m","value":{}}`
	mustSpawn(t, s, r)
	if n := count(t, db, `select count(*) from rouse.streams where path = 'chat/b/main' and pending and actionable = tail`); n != 1 {
		t.Fatal("the first message asks for no attention")
	}
}

func TestSpawnRefusals(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	register(t, s, "mac", kyle)
	mustSpawn(t, s, spawnRequest("/chat/taken"))
	mustSpawn(t, s, spawnRequest("/chat/dead"))
	if _, err := s.EntitySignal(t.Context(), 1, "/chat/dead", kyle, "SIGKILL", "sig-1", "", nil); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `insert into rouse.streams (service_id, path, content_type, is_json) values (1, 'chat/plain/main', 'text/plain', false),
		(1, 'chat/err/error', 'text/plain', false)`)
	db.Exec(t, `insert into rouse.streams (service_id, path, content_type, is_json, expires_at) values (1, 'chat/old/main', 'text/plain', false, now() - interval '1 s')`)
	for _, tc := range []struct {
		name, want string
		change     func(*SpawnRequest)
	}{
		{"duplicate", "duplicate", func(r *SpawnRequest) { r.URL = "/chat/taken" }},
		{"killed keeps its name", "duplicate", func(r *SpawnRequest) { r.URL = "/chat/dead" }},
		{"plain stream on main", "path_taken", func(r *SpawnRequest) { r.URL = "/chat/plain" }},
		{"plain stream on error", "path_taken", func(r *SpawnRequest) { r.URL = "/chat/err" }},
		{"expired stream is absent", "spawned", func(r *SpawnRequest) { r.URL = "/chat/old" }},
		{"unknown type", "unknown_type", func(r *SpawnRequest) { r.Type = "none" }},
		{"type changed", "type_changed", func(r *SpawnRequest) { r.TypeRevision = 2 }},
		{"not the registrar", "type_forbidden", func(r *SpawnRequest) { r.Principal = mallory }},
		{"open type", "spawned", func(r *SpawnRequest) { r.Principal, r.Open, r.URL = mallory, true, "/chat/open" }},
		{"system", "spawned", func(r *SpawnRequest) {
			r.Principal, r.System, r.URL = "/principal/system%3Adev-local", true, "/chat/sys"
		}},
		{"no parent", "parent_not_found", func(r *SpawnRequest) { r.Parent = "/chat/none" }},
		{"somebody's parent", "parent_forbidden", func(r *SpawnRequest) { r.Parent, r.Principal, r.Open = "/chat/taken", mallory, true }},
		{"dead parent", "parent_not_running", func(r *SpawnRequest) { r.Parent = "/chat/dead" }},
		{"no runner", "runner_not_found", func(r *SpawnRequest) { r.Policy = runnerPolicy("none") }},
		{"somebody's runner", "runner_forbidden", func(r *SpawnRequest) { r.Policy, r.Principal, r.Open = runnerPolicy("mac"), mallory, true }},
	} {
		r := spawnRequest("/chat/" + strings.ReplaceAll(tc.name, " ", "-"))
		tc.change(&r)
		res, err := s.EntitySpawn(t.Context(), r)
		if err != nil || res.Outcome != tc.want {
			t.Errorf("%s: %s, want %s (%v)", tc.name, res.Outcome, tc.want, err)
		}
	}
	if n := count(t, db, `select count(*) from rouse.consumers c where not exists (select from rouse.entities e where e.consumer_id = c.id)`); n != 0 {
		t.Errorf("refused spawns left %d consumers", n)
	}
}

func TestEffectivePolicyIsExplicitThenParentThenType(t *testing.T) {
	t.Parallel()
	s, _ := controlStore(t)
	for _, id := range []string{"explicit", "parent", "typed"} {
		register(t, s, id, kyle)
	}
	if _, _, _, err := s.EntityTypePut(t.Context(), 1, kyle, false, EntityType{Name: "routed", DefaultDispatchPolicy: runnerPolicy("typed")}); err != nil {
		t.Fatal(err)
	}
	parent := spawnRequest("/chat/parent")
	parent.Policy = runnerPolicy("parent")
	mustSpawn(t, s, parent)
	mustSpawn(t, s, spawnRequest("/chat/bare"))
	for _, tc := range []struct {
		url, typ, parent string
		policy           json.RawMessage
		want             string
	}{
		{"/routed/1", "routed", "", nil, "typed"},
		{"/routed/2", "routed", "/chat/parent", nil, "parent"},
		{"/routed/3", "routed", "/chat/parent", runnerPolicy("explicit"), "explicit"},
		{"/routed/4", "routed", "/chat/bare", nil, "typed"},
		{"/chat/5", "chat", "", nil, ""},
	} {
		r := spawnRequest(tc.url)
		r.Type, r.Parent, r.Policy = tc.typ, tc.parent, tc.policy
		e := mustSpawn(t, s, r)
		var got struct{ Targets []struct{ RunnerID string } }
		if e.DispatchPolicy != nil {
			if err := json.Unmarshal(e.DispatchPolicy, &got); err != nil {
				t.Fatal(err)
			}
		}
		if (tc.want == "") != (len(got.Targets) == 0) || tc.want != "" && got.Targets[0].RunnerID != tc.want {
			t.Errorf("%s: policy %s, want %s", tc.url, e.DispatchPolicy, tc.want)
		}
	}
	// Immutable afterwards: a new default changes nobody.
	if _, _, _, err := s.EntityTypePut(t.Context(), 1, kyle, false, EntityType{Name: "routed", DefaultDispatchPolicy: runnerPolicy("explicit")}); err != nil {
		t.Fatal(err)
	}
	if e, err := s.EntityGet(t.Context(), 1, "/routed/1"); err != nil || !strings.Contains(string(e.DispatchPolicy), "typed") {
		t.Fatalf("policy moved: %s, %v", e.DispatchPolicy, err)
	}
}

func TestFiftySpawnsOfOneURLMakeOneEntity(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	outcomes := make([]string, 50)
	var wg sync.WaitGroup
	for i := range outcomes {
		wg.Go(func() {
			res, err := s.EntitySpawn(t.Context(), spawnRequest("/chat/one"))
			outcomes[i] = fmt.Sprint(res.Outcome, err)
		})
	}
	wg.Wait()
	got := map[string]int{}
	for _, o := range outcomes {
		got[o]++
	}
	if got["spawned<nil>"] != 1 || got["duplicate<nil>"] != 49 {
		t.Fatalf("outcomes %v", got)
	}
	if n := count(t, db, `select count(*) from rouse.consumers`); n != 1 {
		t.Fatalf("%d consumers", n)
	}
}

func TestSpawnRollsBackAsAWhole(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	tx, err := db.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select rouse.entity_spawn(1, '/chat/x', 'chat', 1, $1, false, false, null, null, null, null, null,
		'{"headers":{}}', '{"headers":{}}')`, kyle); err != nil {
		t.Fatal(err)
	}
	// A second spawn of the same url waits for the first and then succeeds.
	done := make(chan SpawnResult, 1)
	go func() {
		res, _ := s.EntitySpawn(t.Context(), spawnRequest("/chat/x"))
		done <- res
	}()
	waitBlocked(t, db, "entity_spawn")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res := <-done; res.Outcome != "spawned" {
		t.Fatalf("after a rollback: %s", res.Outcome)
	}
	if n := count(t, db, `select count(*) from rouse.messages`); n != 1 {
		t.Fatalf("%d messages, the rolled-back ones are still there", n)
	}
}

// waitBlocked polls until a session whose query names part waits for a lock.
func waitBlocked(t *testing.T, db *pgtest.DB, part string) {
	t.Helper()
	c := db.Conn(t)
	for {
		var n int
		if err := c.QueryRow(t.Context(), `select count(*) from pg_stat_activity where datname = current_database()
			and wait_event_type = 'Lock' and query like '%' || $1 || '%' and pid <> pg_backend_pid()`, part).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
}

func TestEntityListFiltersAndPages(t *testing.T) {
	t.Parallel()
	s, _ := controlStore(t)
	for i := range 5 {
		mustSpawn(t, s, spawnRequest(fmt.Sprintf("/chat/%d", i)))
	}
	r := spawnRequest("/chat/child")
	r.Parent = "/chat/0"
	mustSpawn(t, s, r)
	r = spawnRequest("/chat/theirs")
	r.Principal, r.Open = mallory, true
	mustSpawn(t, s, r)
	list := func(f EntityFilter) (urls []string) {
		t.Helper()
		if f.Limit == 0 {
			f.Limit = 100
		}
		es, err := s.EntityList(t.Context(), 1, f)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			urls = append(urls, e.URL)
		}
		return urls
	}
	if got := list(EntityFilter{VisibleTo: kyle}); fmt.Sprint(got) != "[/chat/child /chat/4 /chat/3 /chat/2 /chat/1 /chat/0]" {
		t.Errorf("visible %v", got)
	}
	if got := list(EntityFilter{Parent: "/chat/0"}); fmt.Sprint(got) != "[/chat/child]" {
		t.Errorf("children %v", got)
	}
	if got := list(EntityFilter{CreatedBy: mallory}); fmt.Sprint(got) != "[/chat/theirs]" {
		t.Errorf("by mallory %v", got)
	}
	if got := list(EntityFilter{Type: "none"}); len(got) != 0 {
		t.Errorf("of no type %v", got)
	}
	var all []string
	f := EntityFilter{Limit: 2}
	for {
		es, err := s.EntityList(t.Context(), 1, f)
		if err != nil {
			t.Fatal(err)
		}
		if len(es) == 0 {
			break
		}
		for _, e := range es {
			all = append(all, e.URL)
		}
		f.BeforeAt, f.BeforeURL = es[len(es)-1].CreatedAt, es[len(es)-1].URL
	}
	if len(all) != 7 {
		t.Errorf("pages gave %v", all)
	}
	if es, err := s.EntityList(t.Context(), 2, EntityFilter{Limit: 10}); err != nil || len(es) != 0 {
		t.Errorf("another service sees %v, %v", es, err)
	}
}

func TestTagsAreToldOnTheStreamAndWakeNobody(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	mustSpawn(t, s, spawnRequest("/chat/t"))
	v := "blue"
	put := func(value *string) string {
		t.Helper()
		outcome, _, _, err := s.EntityTagPut(t.Context(), 1, "/chat/t", kyle, "colour", value, `{"headers":{"operation":"insert"}}`)
		if err != nil {
			t.Fatal(err)
		}
		return outcome
	}
	if got := put(&v); got != "ok" {
		t.Fatal(got)
	}
	if got := put(&v); got != "unchanged" {
		t.Fatal(got)
	}
	if e, _ := s.EntityGet(t.Context(), 1, "/chat/t"); string(e.Tags) != `{"colour": "blue"}` {
		t.Fatalf("tags %s", e.Tags)
	}
	if got := put(nil); got != "ok" {
		t.Fatal(got)
	}
	if n := count(t, db, `select count(*) from rouse.messages m join rouse.streams s on s.id = m.stream_id where not s.pending and s.actionable = 0`); n != 3 {
		t.Fatalf("%d rows on the stream", n)
	}
	if outcome, _, _, _ := s.EntityTagPut(t.Context(), 1, "/chat/none", kyle, "k", &v, "{}"); outcome != "not_found" {
		t.Fatal(outcome)
	}
	if _, err := s.EntitySignal(t.Context(), 1, "/chat/t", kyle, "SIGKILL", "s", "", nil); err != nil {
		t.Fatal(err)
	}
	if got := put(&v); got != "not_running" {
		t.Fatal(got)
	}
}

func TestErrorStreamIsMadeOnceAndBelongsToTheEntity(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	claimed := func(url string, lease string) WriteClaim {
		t.Helper()
		e := mustSpawn(t, s, spawnRequest(url))
		db.Exec(t, `update rouse.consumers set state = 'claimed', epoch = 3, wake_id = $2, due_at = now(), claimed_at = now(),
			lease_expires_at = clock_timestamp() + $3::interval where id = $1`, e.ConsumerID, testWake, lease)
		return WriteClaim{ConsumerID: e.ConsumerID, Epoch: 3, WakeID: testWake}
	}
	holder, other, late := claimed("/chat/e", "1 hour"), claimed("/chat/g", "1 hour"), claimed("/chat/h", "-1 ms")
	stale, otherWake := holder, holder
	stale.Epoch, otherWake.WakeID = 2, "018f0000-0000-7000-8000-000000000002"
	for name, c := range map[string]struct {
		url   string
		claim WriteClaim
		want  Outcome
	}{
		"another entity's holder": {"/chat/e", other, Guarded}, "an epoch that is over": {"/chat/e", stale, TokenStale},
		"another wake": {"/chat/e", otherWake, TokenStale}, "a lease that ended": {"/chat/h", late, LeaseExpired},
		"no entity": {"/chat/none", holder, NotFound}, "no claim at all": {"/chat/e", WriteClaim{WakeID: testWake}, Guarded},
	} {
		if o, err := s.EntityErrorStream(t.Context(), 1, c.url, c.claim); o != c.want || err != nil {
			t.Errorf("%s: %s, %v", name, o, err)
		}
	}
	if n := count(t, db, `select count(*) from rouse.streams where kind = 'error'`); n != 0 {
		t.Fatalf("%d error streams were made for nobody", n)
	}
	var wg sync.WaitGroup
	got := make([]Outcome, 8)
	for i := range got {
		wg.Go(func() { got[i], _ = s.EntityErrorStream(t.Context(), 1, "/chat/e", holder) })
	}
	wg.Wait()
	made := 0
	for _, o := range got {
		if o == Created {
			made++
		} else if o != Exists {
			t.Errorf("outcome %s", o)
		}
	}
	if n := count(t, db, `select count(*) from rouse.streams s join rouse.entities e on e.consumer_id = s.consumer_id
		where s.path = 'chat/e/error' and s.kind = 'error' and s.owner = $1 and s.is_json`, kyle); made != 1 || n != 1 {
		t.Errorf("%d made, %d there", made, n)
	}
	db.Exec(t, `insert into rouse.streams (service_id, path, content_type, is_json) values (1, 'chat/g/error', 'text/plain', false)`)
	if o, _ := s.EntityErrorStream(t.Context(), 1, "/chat/g", other); o != PathTaken {
		t.Error(o)
	}
}

const testWake = "018f0000-0000-7000-8000-000000000001"
