package observation

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

func TestAParentIsToldOfItsChildsRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/p", "")
	r.spawn("/chat/c", "/chat/p")
	r.register(store.ObserverRequest{Subscriber: "/chat/p", Source: "/chat/c", IncludeResponse: true})
	w := r.worker()
	r.write("chat/c/main", `{"headers":{"operation":"insert"},"type":"text_delta","key":"x:0","value":{"run_id":"r0","delta":"of another run"}}`)
	r.write("chat/c/main", runBegun, row("insert", "text_delta", "t:0", `{"run_id":"r1","delta":"Good "}`))
	r.write("chat/c/main", row("insert", "text_delta", "t:1", `{"run_id":"r1","delta":"morning \u0000."}`))
	r.settle(w)
	if n := len(r.wakes("/chat/p")); n != 0 {
		t.Fatalf("%d wakes before the run has ended", n)
	}
	r.write("chat/c/main", runEnded)
	r.settle(w)
	v := r.one("/chat/p", "wake")
	child, _ := v["finished_child"].(map[string]any)
	if v["source"] != "/chat/c" || v["timeout"] != false || child["url"] != "/chat/c" || child["type"] != "chat" || child["run_status"] != "completed" ||
		child["response"] != "Good morning \x00." {
		t.Errorf("%v", v)
	}
	changes := v["changes"].([]any)[0].(map[string]any)
	if changes["collection"] != "runs" || changes["kind"] != "update" || changes["key"] != "r1" {
		t.Errorf("%v", changes)
	}
	if n := r.count(`select count(*) from rouse.streams where path = 'chat/p/main' and pending and actionable = tail`); n != 1 {
		t.Error("the wake asks for nobody's attention")
	}
	// Looked at again, it is told once.
	r.db.Exec(t, `update rouse.observers set behind = true`)
	r.settle(w)
	r.one("/chat/p", "wake")
	if n := r.count(`select count(*) from rouse.observers where behind`); n != 0 {
		t.Error("a cursor that has read everything is marked")
	}
}

func TestOnlyAParentIsToldTheResponse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/p", "")
	r.spawn("/chat/c", "/chat/p")
	r.spawn("/chat/o", "")
	r.register(store.ObserverRequest{Subscriber: "/chat/o", Source: "/chat/c", IncludeResponse: true})
	r.register(store.ObserverRequest{Subscriber: "/chat/p", Source: "/chat/c"})
	failed := `{"headers":{"operation":"update"},"type":"run","key":"r1","value":{"status":"failed"}}`
	r.write("chat/c/main", runBegun, row("insert", "error", "e", `{"run_id":"r1","message":"broke"}`), failed)
	r.settle(r.worker())
	if v := r.one("/chat/o", "wake"); v["finished_child"] != nil {
		t.Errorf("a stranger is told %v", v)
	}
	child := r.one("/chat/p", "wake")["finished_child"].(map[string]any)
	if child["run_status"] != "failed" || child["response"] != nil || child["error"] != nil {
		t.Errorf("without includeResponse: %v", child)
	}
	r.register(store.ObserverRequest{Subscriber: "/chat/p", Source: "/chat/c", IncludeResponse: true, ManifestKey: "k"})
	r.write("chat/c/main", failed)
	r.settle(r.worker())
	list := r.wakes("/chat/p")
	if last := decode(t, list[len(list)-1]); last["finished_child"].(map[string]any)["error"] != "broke" {
		t.Errorf("%v", last)
	}
}

func TestChangesAreNarrowedByCollectionAndOperation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/a", "")
	r.spawn("/chat/b", "")
	for key, c := range map[string]Condition{"any": {}, "todo": {Collections: []string{"todo"}}, "deletes": {Ops: []string{"delete"}},
		"manifest": {Collections: []string{"manifest"}}, "inserted todo": {Collections: []string{"todo"}, Ops: []string{"insert"}}} {
		r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/b", Condition: c.String(), ManifestKey: key})
	}
	r.write("chat/b/main",
		row("insert", "todo", "1", `{"value":{"t":1},"oldValue":2}`), row("upsert", "todo", "2", `{"old_value":3}`), row("update", "note", "3", `{}`),
		`{"headers":{"operation":"delete"},"type":"todo","key":"1"}`, row("insert", "manifest", "m", `{}`),
		// What the gateway itself writes wakes nobody.
		row("insert", "inbox", "i", `{"payload":1}`), row("insert", "wake", "w", `{}`), row("insert", "tags", "t", `{}`), row("insert", "entity_created", "e", `{}`))
	r.settle(r.worker())
	got := map[string][]string{}
	for _, e := range r.wakes("/chat/a") {
		v := decode(t, e)
		id := strings.Split(e.key, "-")[1]
		var key string
		if err := r.pool.QueryRow(t.Context(), `select manifest_key from rouse.observers where id = $1::text::bigint`, id).Scan(&key); err != nil {
			t.Fatal(err)
		}
		for _, c := range v["changes"].([]any) {
			m := c.(map[string]any)
			got[key] = append(got[key], m["collection"].(string)+" "+m["kind"].(string)+" "+m["key"].(string))
			if m["key"] == "1" && m["kind"] == "insert" && (m["oldValue"] != 2.0 || m["value"].(map[string]any)["t"] != 1.0) {
				t.Errorf("%v", m)
			}
		}
	}
	for key, want := range map[string][]string{
		"any":  {"todo insert 1", "todo insert 2", "note update 3", "todo delete 1"},
		"todo": {"todo insert 1", "todo insert 2", "todo delete 1"}, "deletes": {"todo delete 1"}, "manifest": {"manifest insert m"},
		"inserted todo": {"todo insert 1", "todo insert 2"}} {
		if !slices.Equal(got[key], want) {
			t.Errorf("%s: %v, want %v", key, got[key], want)
		}
	}
	keys := map[string]bool{}
	for _, e := range r.wakes("/chat/a") {
		if keys[e.key] {
			t.Errorf("two wakes have the key %s", e.key)
		}
		keys[e.key] = true
	}
}

// What a run said is found however long ago it began, and however much it said.
func TestALongRunIsReadBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/p", "")
	r.spawn("/chat/c", "/chat/p")
	r.register(store.ObserverRequest{Subscriber: "/chat/p", Source: "/chat/c", IncludeResponse: true})
	delta := func(run, s string) string {
		return row("insert", "text_delta", "t", `{"run_id":"`+run+`","delta":"`+s+`"}`)
	}
	r.write("chat/c/main", delta("r1", "of an earlier run of that name"))
	r.write("chat/c/main", runBegun, delta("r1", "begin "))
	for range 3 {
		r.write("chat/c/main", slices.Repeat([]string{delta("r0", strings.Repeat("x", 1000))}, 700)...)
		r.write("chat/c/main", delta("r1", "middle "))
	}
	for range 600 {
		r.write("chat/c/main", delta("r0", "y"))
	}
	r.write("chat/c/main", delta("r1", "end"), runEnded)
	r.settle(r.worker())
	if got := r.one("/chat/p", "wake")["finished_child"].(map[string]any)["response"]; got != "begin middle middle middle end" {
		t.Errorf("%q", got)
	}
	// More than a wake carries: its end.
	r.write("chat/c/main", strings.Replace(runBegun, "r1", "r2", 1))
	for range 3 {
		r.write("chat/c/main", delta("r2", strings.Repeat("é", maxResponse/4)))
	}
	r.write("chat/c/main", delta("r2", "end"), strings.Replace(runEnded, "r1", "r2", 1))
	r.settle(r.worker())
	list := r.wakes("/chat/p")
	got, _ := decode(t, list[len(list)-1])["finished_child"].(map[string]any)["response"].(string)
	if len(got) > maxResponse || len(got) < maxResponse-4 || !strings.HasSuffix(got, "éend") || strings.ContainsRune(got, '�') {
		t.Errorf("%d bytes, ends with %q", len(got), got[max(0, len(got)-9):])
	}
}

// No shape of a message stops a cursor.
func TestPoisonedMessagesStopNoCursor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/a", "")
	r.spawn("/chat/b", "")
	r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/b", Condition: Condition{}.String()})
	if got, err := r.s.ObserveManifest(t.Context(), 1, "/chat/b"); err != nil || got != "ok" {
		t.Fatal(got, err)
	}
	poison := []string{`1`, `null`, `"x"`, `[]`, `[{"type":"run"}]`, `{}`, `{"type":1}`, `{"type":"\u0000","key":"\u0000"}`, `{"type":"manifest","key":"\u0000","value":{"kind":"child"}}`,
		`{"type":"todo","key":"\ud800","value":{"value":"\u0000"},"headers":[]}`, `{"type":"todo","value":1e999999,"headers":{"operation":"delete"}}`,
		`{"type":"manifest","key":"k1","value":{"kind":"source","sourceType":"entity","sourceRef":"/chat/\u0000","wake":"runFinished"}}`,
		`{"type":"manifest","key":"k2","value":{"kind":"child","entity_url":"/chat/c","wake":{"on":"change","collections":["\u0000"],"debounceMs":1e300,"timeoutMs":-1}}}`,
		`{"type":"manifest","key":"k3","value":{"kind":"schedule","scheduleType":"future_send","fireAt":"9999999-01-01T00:00:00Z","targetUrl":"/chat/a","producerId":"p","payload":1}}`,
		`{"type":"manifest","key":"k4","value":{"kind":"schedule","scheduleType":"cron","expression":"\u0000"}}`,
		`{"type":"manifest","key":"k5","value":{"kind":"shared-state","id":"../../x"}}`, `{"type":"manifest","key":"k6","value":[1]}`,
		`{"type":"manifest","key":"k7","value":{"kind":"source","sourceType":"entities","config":{"tags":{"\u0000":"x"}},"wake":"runFinished"}}`,
		`{"type":"manifest","key":"k8","value":{"kind":"schedule","scheduleType":"future_send","fireAt":"2020-01-01T00:00:00Z","targetUrl":"/chat/a","producerId":"p","payload":{"a":"\u0000","n":1e999999}}}`}
	for _, p := range poison {
		r.write("chat/b/main", p)
	}
	// A payload that is no JSON at all cannot come by HTTP; it stops nothing either.
	r.db.Exec(t, `update rouse.messages set payload = '\xff00'::bytea where position = (select min(position) from rouse.messages m join rouse.streams s on s.id = m.stream_id
		where s.path = 'chat/b/main' and m.payload = '1'::bytea) and payload = '1'::bytea`)
	r.write("chat/b/main", row("insert", "todo", "good", `{}`))
	r.settle(r.worker())
	list := r.wakes("/chat/a")
	if len(list) == 0 || !strings.Contains(string(list[len(list)-1].raw), `"good"`) {
		t.Fatalf("the cursor stands still: %d wakes", len(list))
	}
	if n := r.count(`select count(*) from rouse.observers o join rouse.streams s on s.id = o.stream_id where o.acked < s.tail or o.behind`); n != 0 {
		t.Errorf("%d cursors are behind", n)
	}
	if got := r.rows("/chat/a", "inbox"); len(got) != 1 || !strings.Contains(string(got[0].raw), `"n":1e999999`) {
		t.Errorf("a scheduled message that holds what jsonb cannot: %v", got)
	}
}

func TestASourceThatComesLaterIsReadFromItsStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/a", "")
	r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/later"})
	w := r.worker()
	r.settle(w)
	r.spawn("/chat/later", "")
	r.write("chat/later/main", runBegun, runEnded)
	r.settle(w)
	r.one("/chat/a", "wake")

	// One that the principal may not read when it comes is not observed.
	r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/theirs"})
	r.spawnAs("/principal/user%3Aada", "/chat/theirs", "", nil)
	r.write("chat/theirs/main", runBegun, runEnded)
	r.settle(w)
	r.one("/chat/a", "wake")
	if n := r.count(`select count(*) from rouse.observers where source_url = '/chat/theirs'`); n != 0 {
		t.Error("somebody else's entity is observed")
	}
}

// refusing is a database that cannot store what one observer has found.
type refusing struct {
	*store.Store
	id int64
}

func (d *refusing) ObserveApply(ctx context.Context, moves []store.ObserverMove, wait bool) ([]string, error) {
	for _, m := range moves {
		if m.ID == d.id && len(m.Rows) > 0 {
			return nil, &pgconn.PgError{Code: pgerrcode.DataException}
		}
	}
	return d.Store.ObserveApply(ctx, moves, wait)
}

func TestOneThatCannotBeToldKeepsNobodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/src", "")
	for _, s := range []string{"/chat/0", "/chat/1", "/chat/2"} {
		r.spawn(s, "")
		r.register(store.ObserverRequest{Subscriber: s, Source: "/chat/src"})
	}
	r.write("chat/src/main", runEnded)
	d := &refusing{r.s, r.count(`select id from rouse.observers where subscriber_url = '/chat/1'`)}
	w, err := New(Config{DB: d})
	if err != nil {
		t.Fatal(err)
	}
	r.settle(w)
	for s, want := range map[string]int{"/chat/0": 1, "/chat/1": 0, "/chat/2": 1} {
		if n := len(r.wakes(s)); n != want {
			t.Errorf("%s: %d wakes, want %d", s, n, want)
		}
	}
	d.id = 0
	r.write("chat/src/main", runEnded)
	r.settle(w)
	r.one("/chat/1", "wake")
}

// Who loses the right to read a source is not told of it any more.
func TestARevokedReaderIsToldNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const ada = "/principal/user%3Aada"
	r.spawn("/chat/a", "")
	r.spawnAs(ada, "/chat/theirs", "", nil)
	r.db.Exec(t, `insert into rouse.entity_grants (service_id, entity_url, permission, subject_kind, subject_value, created_by) values (1, '/chat/theirs', 'read', 'principal', $1, $2)`, kyle, ada)
	r.db.Exec(t, `insert into rouse.entity_effective_permissions (service_id, entity_url, source_entity_url, source_grant_id, permission, subject_kind, subject_value)
		select 1, entity_url, entity_url, id, permission, subject_kind, subject_value from rouse.entity_grants`)
	r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/theirs"})
	r.write("chat/theirs/main", runEnded)
	r.settle(r.worker())
	r.one("/chat/a", "wake")
	r.db.Exec(t, `delete from rouse.entity_grants`)
	r.write("chat/theirs/main", runEnded)
	r.settle(r.worker())
	r.one("/chat/a", "wake")
	if n := r.count(`select count(*) from rouse.observers`); n != 0 {
		t.Errorf("%d registrations are left", n)
	}
}

func TestRegisteringAgainKeepsTheCursor(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/a", "")
	r.spawn("/chat/b", "")
	q := store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/b"}
	r.register(q)
	r.write("chat/b/main", runEnded)
	r.register(q)
	r.settle(r.worker())
	r.one("/chat/a", "wake")
	if n := r.count(`select count(*) from rouse.observers`); n != 1 {
		t.Errorf("%d registrations", n)
	}
	for _, by := range []struct{ source, key string }{{"/chat/b", ""}, {"", "k"}} {
		r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/b", ManifestKey: "k"})
		if got, err := r.s.ObserveUnregister(t.Context(), 1, kyle, false, "/chat/a", by.source, by.key); err != nil || got != "ok" {
			t.Fatal(got, err)
		}
		if n := r.count(`select count(*) from rouse.observers where manifest_key = 'k'`); n != 0 {
			t.Errorf("%d registrations are left after %v", n, by)
		}
	}
	r.write("chat/b/main", runEnded)
	r.settle(r.worker())
	r.one("/chat/a", "wake")
}

func TestDebounceAndTimeoutAreDueTimes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/a", "")
	r.spawn("/chat/b", "")
	const hour = 3_600_000
	r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/b", DebounceMS: hour, TimeoutMS: hour})
	w := r.worker()
	due := func() { r.db.Exec(t, `update rouse.observers set due_at = clock_timestamp() where due_at is not null`) }
	r.write("chat/b/main", runEnded, strings.Replace(runEnded, "r1", "r2", 1))
	r.settle(w)
	if n := len(r.wakes("/chat/a")); n != 0 {
		t.Fatalf("%d wakes before the debounce is over", n)
	}
	r.write("chat/b/main", strings.Replace(runEnded, "r1", "r3", 1))
	r.settle(w)
	due()
	r.settle(r.worker()) // another gateway's: it is in the row
	v := r.one("/chat/a", "wake")
	if len(v["changes"].([]any)) != 3 || v["timeout"] != false {
		t.Errorf("%v", v)
	}
	if n := r.count(`select count(*) from rouse.observers where due_at is not null or state is not null`); n != 0 {
		t.Error("a timeout is waited for after a match")
	}

	r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/b", TimeoutMS: hour, ManifestKey: "t"})
	r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/not yet", TimeoutMS: hour, ManifestKey: "absent"})
	due()
	r.settle(w)
	list := r.wakes("/chat/a")
	if len(list) != 3 {
		t.Fatalf("%d wakes", len(list))
	}
	for _, e := range list[1:] {
		v := decode(t, e)
		if v["timeout"] != true || len(v["changes"].([]any)) != 0 || !strings.HasSuffix(e.key, "-timeout") {
			t.Errorf("%s %v", e.key, v)
		}
	}
	due()
	r.settle(w)
	if n := len(r.wakes("/chat/a")); n != 3 {
		t.Errorf("a timeout is told again")
	}
}

func TestADebounceThatCollectsTooMuchIsToldEarly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/a", "")
	r.spawn("/chat/b", "")
	r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/b", DebounceMS: MaxDelay, Condition: Condition{}.String()})
	for range 3 {
		r.write("chat/b/main", slices.Repeat([]string{row("insert", "todo", "x", `{}`)}, 100)...)
	}
	r.settle(r.worker())
	if v := r.one("/chat/a", "wake"); len(v["changes"].([]any)) != maxCollected {
		t.Errorf("%d changes", len(v["changes"].([]any)))
	}
}

// Observers whose subscriber or source has ended go; a mutual observation wakes
// nobody for ever.
func TestObservationEndsWithItsEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/a", "")
	r.spawn("/chat/b", "")
	r.spawn("/chat/c", "")
	w := r.worker()
	r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/b", Condition: Condition{}.String()})
	r.register(store.ObserverRequest{Subscriber: "/chat/b", Source: "/chat/a", Condition: Condition{}.String()})
	r.register(store.ObserverRequest{Subscriber: "/chat/c", Source: "/chat/b", Condition: Condition{}.String(), DebounceMS: MaxDelay})
	r.write("chat/b/main", row("insert", "todo", "x", `{}`))
	r.settle(w)
	r.one("/chat/a", "wake")
	if n := len(r.wakes("/chat/b")); n != 0 {
		t.Errorf("a wake woke %d times", n)
	}
	if res, err := r.s.EntitySignal(t.Context(), 1, "/chat/b", kyle, "SIGKILL", "sig-1", "", nil); err != nil || res.NewState != "killed" {
		t.Fatal(res, err)
	}
	r.settle(w)
	// What was collected, and the last word itself, are still told.
	if v := r.one("/chat/c", "wake"); len(v["changes"].([]any)) != 2 {
		t.Errorf("%v", v)
	}
	r.write("chat/a/main", row("insert", "todo", "y", `{}`))
	r.settle(w)
	if n := r.count(`select count(*) from rouse.observers`); n != 0 {
		t.Errorf("%d registrations are left", n)
	}
}

// Two gateways at once, each taking every round, on a source that is written all
// the time: each event is told exactly once.
func TestTwoGatewaysTellEachEventOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/b", "")
	subscribers := []string{"/chat/s0", "/chat/s1", "/chat/s2"}
	for _, s := range subscribers {
		r.spawn(s, "")
		r.register(store.ObserverRequest{Subscriber: s, Source: "/chat/b", Condition: Condition{Collections: []string{"todo"}}.String()})
		// Everybody observes everybody: wakes and marks cross.
		r.register(store.ObserverRequest{Subscriber: "/chat/b", Source: s, Condition: Condition{Collections: []string{"nothing"}}.String()})
	}
	const n = 60
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		w := rigOn(t, r.db).worker()
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				select {
				case <-stop:
					return
				default:
					w.observe(t.Context())
				}
			}
		}()
	}
	for i := range n {
		r.write("chat/b/main", row("insert", "todo", string(rune('a'+i%26)), `{}`))
		r.write(subscribers[i%3][1:]+"/main", row("insert", "note", "x", `{}`))
	}
	close(stop)
	wg.Wait()
	r.settle(r.worker())
	for _, s := range subscribers {
		seen := map[string]bool{}
		for _, e := range r.wakes(s) {
			if seen[e.key] {
				t.Errorf("%s is told %s twice", s, e.key)
			}
			seen[e.key] = true
		}
		if len(seen) != n {
			t.Errorf("%s is told %d events, want %d", s, len(seen), n)
		}
	}
}

// Several services at once, with the same urls in each: what happens in one is
// told in it alone, and one batch carries out what is due in all.
func TestServicesDoNotMix(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/a", "")
	r.spawn("/chat/b", "")
	if _, _, err := r.s.ServiceCreate(t.Context(), "other", kyle); err != nil {
		t.Fatal(err)
	}
	id, err := store.NewServices(r.s).ID(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	r.db.Exec(t, `insert into rouse.entity_types (service_id, name, owner_principal) values ($1, 'chat', $2)`, id, kyle)
	for _, url := range []string{"/chat/a", "/chat/b"} {
		if res, err := r.s.EntitySpawn(t.Context(), store.SpawnRequest{Service: id, URL: url, Type: "chat", TypeRevision: 1, Principal: kyle, Open: true,
			Created: `{"headers":{"operation":"insert"},"type":"entity_created","key":"entity-created","value":{}}`}); err != nil || res.Outcome != "spawned" {
			t.Fatal(res.Outcome, err)
		}
	}
	for _, service := range []int32{1, id} {
		if got, err := r.s.ObserveRegister(t.Context(), store.ObserverRequest{Service: service, Principal: kyle, Subscriber: "/chat/a", Source: "/chat/b", Condition: Condition{RunFinished: true}.String()}); err != nil || got != "ok" {
			t.Fatal(got, err)
		}
		if err := r.s.ScheduleAdd(t.Context(), service, kyle, false, "/chat/b", staterow.Message{Payload: []byte(`1`), From: kyle}.Encode(), 0, "p"); err != nil {
			t.Fatal(err)
		}
		if err := r.s.MembershipEnsure(t.Context(), service, kyle, false, "all", []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	r.write("chat/b/main", runEnded)
	r.settle(r.worker())
	for service, want := range map[int32]string{1: "1 1 2", id: "0 1 2"} {
		var got string
		if err := r.pool.QueryRow(t.Context(), `select count(*) filter (where s.path = 'chat/a/main' and m.payload like '%"type":"wake"%'::bytea) || ' ' ||
			count(*) filter (where s.path = 'chat/b/main' and m.payload like '%"type":"inbox"%'::bytea) || ' ' ||
			count(*) filter (where s.path = '_entities/all') from rouse.streams s join rouse.messages m on m.stream_id = s.id where s.service_id = $1`, service).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("service %d: %s, want %s", service, got, want)
		}
	}
}

// A source's end is told when nothing is appended with it, too: what was
// collected at once, and the registration goes.
func TestASourceEndsWithoutAWord(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/a", "")
	r.spawn("/chat/b", "")
	if _, err := r.s.StreamCreate(t.Context(), store.CreateRequest{Service: 1, Path: "plain", ContentType: "application/json"}); err != nil {
		t.Fatal(err)
	}
	for source, path := range map[string]string{"/chat/b": "chat/b/main", "/plain": "plain"} {
		r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: source, Condition: Condition{}.String(), DebounceMS: MaxDelay})
		r.write(path, row("insert", "todo", "x", `{}`))
	}
	r.settle(r.worker())
	if n := len(r.wakes("/chat/a")); n != 0 {
		t.Fatalf("%d wakes before the debounce is over", n)
	}
	// A stop that was asked for while it ran comes with the end of its claim.
	r.db.Exec(t, `select rouse._entity_close(c, clock_timestamp()) from rouse.consumers c where c.entity_url = '/chat/b'`)
	out, err := r.s.StreamAppend(t.Context(), []store.AppendItem{{Service: 1, Path: "plain", Close: true}}, true)
	if err != nil || out[0].Outcome != store.Appended {
		t.Fatal(out, err)
	}
	r.settle(r.worker())
	if n := len(r.wakes("/chat/a")); n != 2 {
		t.Errorf("%d wakes, want what was collected of each", n)
	}
	if n := r.count(`select count(*) from rouse.observers`); n != 0 {
		t.Errorf("%d registrations are left", n)
	}
}
