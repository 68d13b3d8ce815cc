package subscriptiontest

import (
	"encoding/json"
	"fmt"
	"testing"
)

func TestPutOutcomes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	expect := func(what, want string, s spec) {
		t.Helper()
		if got := r.put(s); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	base := spec{id: "s", pattern: "events/*", streams: []string{"x", "y", "x"}}
	expect("the first", "created", base)
	expect("the same", "confirmed", spec{id: "s", pattern: "events/*", streams: []string{"y", "x"}})
	for name, s := range map[string]spec{
		"pattern": {id: "s", pattern: "events/**", streams: base.streams},
		"streams": {id: "s", pattern: "events/*"},
		"url":     {id: "s", pattern: "events/*", streams: base.streams, url: hook + "2"},
		"lease":   {id: "s", pattern: "events/*", streams: base.streams, lease: 1000},
		"text":    {id: "s", pattern: "events/*", streams: base.streams, description: "x"},
		"type":    {id: "s", pattern: "events/*", streams: base.streams, typ: "pull-wake", wakeStream: "w"},
	} {
		expect("another "+name, "conflict", s)
	}
	other := base
	other.owner = mallory
	expect("somebody else's", "forbidden", other)
	other.system = true
	expect("the server's own", "confirmed", other)

	r.make("plain", "")
	r.makeKind("runners/mac/wake", "", "wake", orNull(kyle))
	r.spawn("/chat/mine", kyle)
	r.spawn("/chat/hers", mallory)
	r.exec(`insert into rouse.streams (service_id, path, content_type, is_json) values (1, 'text', 'text/plain', false)`)
	r.exec(`insert into rouse.streams (service_id, path, content_type, is_json, closed_at) values (1, 'shut', 'application/json', true, clock_timestamp())`)
	r.exec(`insert into rouse.streams (service_id, path, content_type, is_json, expires_at) values (1, 'over', 'text/plain', false, '2020-01-01')`)
	pull := func(id, wake, pattern string, streams ...string) spec {
		return spec{id: id, typ: "pull-wake", wakeStream: wake, pattern: pattern, streams: streams}
	}
	expect("an own entity", "created", spec{id: "e1", streams: []string{"chat/mine/main"}})
	expect("somebody else's entity", "stream_forbidden", spec{id: "e2", streams: []string{"chat/hers/main"}})
	expect("somebody else's entity, for the server", "created", spec{id: "e3", streams: []string{"chat/hers/main"}, system: true})
	expect("a wake stream to watch", "stream_reserved", spec{id: "e4", streams: []string{"runners/mac/wake"}})
	expect("a reserved name", "stream_reserved", spec{id: "e5", streams: []string{"_cron/x"}})
	expect("a wake stream that exists", "created", pull("p1", "plain", "events/*"))
	expect("a wake stream that does not", "created", pull("p2", "made/here", "events/*"))
	expect("a wake stream that is over", "created", pull("p2b", "over", "events/*"))
	expect("a text wake stream", "wake_stream_type", pull("p3", "text", "events/*"))
	expect("a closed wake stream", "wake_stream_type", pull("p4", "shut", "events/*"))
	expect("a runner's wake stream", "wake_stream_guarded", pull("p5", "runners/mac/wake", "events/*"))
	expect("an entity as wake stream", "wake_stream_guarded", pull("p6", "chat/mine/main", "events/*"))
	expect("an entity's error stream as wake stream", "wake_stream_guarded", pull("p6b", "chat/mine/error", "events/*"))
	expect("a reserved wake stream", "wake_stream_guarded", pull("p7", "_x", "events/*"))
	expect("its own wake stream by pattern", "created", pull("p8", "events/wakes", "events/*"))
	expect("its own wake stream by name", "wake_stream_own", pull("p9", "wakes", "", "wakes"))
	if got := one[string](r, `select content_type || ' ' || kind from rouse.streams where path = 'made/here'`); got != "application/json app" {
		t.Errorf("the wake stream is %s", got)
	}
	if n := one[int](r, `select count(*) from rouse.subscriptions`); n != 7 {
		t.Errorf("%d subscriptions", n)
	}
	if n := one[int](r, `select count(*) from rouse.consumers where kind = 'subscription'`); n != 7 {
		t.Errorf("%d consumers", n)
	}
}

// TestPutsOfOneIdAtOnce: one of them registers, the others confirm or conflict.
func TestPutsOfOneIdAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	type result struct {
		out string
		err error
	}
	results := make(chan result)
	for i := range 8 {
		c := r.db.Conn(t)
		go func() {
			var out string
			err := c.QueryRow(t.Context(), `select rouse.subscription_register(1, 'same', 'pull-wake', 'a/' || $1::text, '{}', 'w', null, null, null, 1000, '', $2, false)`,
				fmt.Sprint(i%2), kyle).Scan(&out)
			results <- result{out, err}
		}()
	}
	seen := map[string]int{}
	for range 8 {
		x := <-results
		if x.err != nil {
			t.Error(x.err)
		}
		seen[x.out]++
	}
	if seen["created"] != 1 || seen["confirmed"] != 3 || seen["conflict"] != 4 {
		t.Errorf("%v", seen)
	}
}

func TestStreamsThatExistLinkAtTheirTailAndLaterOnesAtTheirBeginning(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.make("events/old", `{"a": 1}`)
	r.make("events/empty", "")
	r.make("named/old", `{"a": 1}`)
	r.make("other/old", `{"a": 1}`)
	r.make("events/deep/er", `{"a": 1}`)
	for i := range 20 { // more than a step of the scan
		r.make(fmt.Sprintf("events/old%02d/x", i), "")
	}
	s := r.subscribe(spec{id: "s", pattern: "events/*", streams: []string{"named/old", "named/new", "events/old"}})
	r.wantLinks(s, link{"events/empty", "glob", 0, 0, false}, link{"events/old", "explicit", 8, 8, false}, link{"named/old", "explicit", 8, 8, false})

	r.make("events/new", `{"a": 1}`)
	r.make("events/quiet", "")
	r.make("named/new", `{"a": 1}`)
	r.make("events/a/b", `{"a": 1}`)
	r.append("events/old")
	r.wantLinks(s, link{"events/empty", "glob", 0, 0, false}, link{"events/new", "glob", 0, 8, true}, link{"events/old", "explicit", 8, 16, true},
		link{"events/quiet", "glob", 0, 0, false}, link{"named/new", "explicit", 0, 8, true}, link{"named/old", "explicit", 8, 8, false})
	r.append("events/quiet")
	if got := r.links(s); !got[3].Behind {
		t.Errorf("the first append to a quiet stream does not mark it: %+v", got)
	}

	// A stream that goes takes its links with it; its name is watched on.
	if got := one[string](r, `select outcome from rouse._stream_delete(1, 'named/new', false, $1)`, r.now); got != "deleted" {
		t.Fatal(got)
	}
	if got := one[string](r, `select outcome from rouse._stream_delete(1, 'events/new', false, $1)`, r.now); got != "deleted" {
		t.Fatal(got)
	}
	if n := len(r.links(s)); n != 4 {
		t.Fatalf("%d links after two deletes", n)
	}
	r.make("named/new", "")
	if got := r.links(s); got[3].Path != "named/new" || got[3].Acked != 0 || got[3].Type != "explicit" {
		t.Errorf("the name is not watched on: %+v", got)
	}
}

// TestForksAreStreams: a fork is new to those who watch its name, with all that
// it begins with; its source may be deleted and stay for it, watched by nobody.
func TestForksAreStreams(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.subscribe(spec{id: "s", pattern: "a/*"})
	source := r.make("a/source", `{"a": 1}`)
	r.append("a/source")
	if got := one[string](r, `select outcome from rouse._stream_create(1, 'a/fork', null, null, null, false, null, 1, null, 'a/source', 8, null, 'app', null, null, $1)`, r.now); got != "created" {
		t.Fatal(got)
	}
	r.wantLinks(s, link{"a/fork", "glob", 0, 8, true}, link{"a/source", "glob", 0, 16, true})
	r.exec(`select rouse._stream_delete(1, 'a/source', false, $1)`, r.now)
	r.wantLinks(s, link{"a/fork", "glob", 0, 8, true})
	if got := one[string](r, `select (deleted_at is not null and path is not null)::text || watched from rouse.streams where id = $1`, source); got != "true0" {
		t.Errorf("the source: %s", got)
	}
	// A name that is taken by what is left of a stream is no stream to name.
	other := r.subscribe(spec{id: "other", streams: []string{"a/source"}})
	r.wantLinks(other)
	r.exec(`select rouse._stream_delete(1, 'a/fork', false, $1)`, r.now)
	r.wantLinks(s)
	r.make("a/source", `{"a": 1}`)
	r.wantLinks(s, link{"a/source", "glob", 0, 8, true})
	r.wantLinks(other, link{"a/source", "explicit", 0, 8, true})
}

func TestOnlyStreamsOfClientsAndEntitiesAreFound(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/old", kyle)
	r.spawn("/chat/hers", mallory)
	r.makeKind("runners/mac/wake", "", "wake", orNull(kyle))
	r.exec(`insert into rouse.streams (service_id, path, kind, owner, content_type, is_json) values (1, '_cron/x', 'app', null, 'application/json', true)`)
	s := r.subscribe(spec{id: "s", pattern: "**"})
	all := r.subscribe(spec{id: "all", pattern: "**", system: true})
	r.spawn("/chat/new", kyle)
	r.spawn("/chat/hers2", mallory)
	r.makeKind("runners/box/wake", "", "wake", orNull(kyle))
	r.makeKind("_entities/x", `{"a": 1}`, "app", nil)
	paths := func(s sub) (out []string) {
		for _, l := range r.links(s) {
			out = append(out, fmt.Sprintf("%s %v", l.Path, l.Behind))
		}
		return out
	}
	if got := fmt.Sprint(paths(s)); got != "[chat/new/main true chat/old/main false]" {
		t.Errorf("kyle's: %s", got)
	}
	if got := fmt.Sprint(paths(all)); got != "[chat/hers/main false chat/hers2/main true chat/new/main true chat/old/main false]" {
		t.Errorf("the server's: %s", got)
	}
}

func TestNamingAndForgettingStreams(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	add := func(id string, streams ...string) string {
		t.Helper()
		got := one[string](r, `select rouse.subscription_watch(1, $1, 'x', $2)`, id, streams)
		r.settle(id)
		return got
	}
	remove := func(id, path string) string {
		t.Helper()
		return one[string](r, `select rouse.subscription_unwatch(1, $1, 'x', $2)`, id, path)
	}
	r.make("a/1", `{"a": 1}`)
	r.make("b/1", `{"a": 1}`)
	r.spawn("/chat/hers", mallory)
	s := r.subscribe(spec{id: "s", typ: "pull-wake", wakeStream: "w", pattern: "a/*"})
	for _, c := range []struct {
		want    string
		id      string
		streams []string
	}{
		{"not_found", "none", []string{"a"}},
		{"stream_forbidden", "s", []string{"chat/hers/main"}},
		{"stream_reserved", "s", []string{"_x"}},
		{"wake_stream_own", "s", []string{"w"}},
		{"ok", "s", []string{"a/1", "b/1", "b/2", "b/1"}},
		{"ok", "s", []string{"b/1"}},
	} {
		if got := add(c.id, c.streams...); got != c.want {
			t.Errorf("add %v: %s, want %s", c.streams, got, c.want)
		}
	}
	r.wantLinks(s, link{"a/1", "explicit", 8, 8, false}, link{"b/1", "explicit", 8, 8, false})
	r.append("a/1")
	r.make("b/2", `{"a": 1}`)
	if got := remove("none", "a/1"); got != "not_found" {
		t.Errorf("remove of none: %s", got)
	}
	for _, path := range []string{"a/1", "b/1", "b/2", "b/2", "never/there"} {
		if got := remove("s", path); got != "ok" {
			t.Errorf("remove %s: %s", path, got)
		}
	}
	// The pattern matches too: the link stays, with its cursor and its mark.
	r.wantLinks(s, link{"a/1", "glob", 8, 16, true})
	if n := one[int](r, `select count(*) from rouse.streams where watched & 1 = 1`); n != 1 {
		t.Errorf("%d streams are marked as watched", n)
	}
	// What is made later is no longer linked.
	r.exec(`select rouse._stream_delete(1, 'b/2', false, $1)`, r.now)
	r.make("b/2", `{"a": 1}`)
	r.wantLinks(s, link{"a/1", "glob", 8, 16, true})
	// Named streams have a bound.
	r.exec(`insert into rouse.subscription_paths (path, service_id, consumer_id) select 'n/' || i, 1, $1 from generate_series(1, 9999) i`, s.consumer)
	if got := add("s", "x/1", "n/7", "x/2"); got != "too_many" {
		t.Errorf("beyond the bound: %s", got)
	}
	if n := one[int](r, `select count(*) from rouse.subscription_paths where path like 'n/%'`); n != 9999 {
		t.Errorf("%d of the names before are left", n)
	}
	if n := one[int](r, `select count(*) from rouse.subscription_paths`); n != 9999 {
		t.Errorf("%d names", n)
	}
	if got := add("s", "x/1"); got != "ok" {
		t.Errorf("up to the bound: %s", got)
	}
}

func TestGetAndList(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.make("a/1", `{"a": 1}`)
	r.subscribe(spec{id: "one", pattern: "a/*", streams: []string{"b/none", "a/1"}, description: "text", mount: "/v1/stream", lease: 1234})
	r.subscribe(spec{id: "two", typ: "pull-wake", wakeStream: "w", pattern: "a/*", owner: mallory})
	r.make("a/2", `{"a": 1}`)
	r.make("a/3", ``)
	get := func(id string, n int) (out []link, rest map[string]any) {
		t.Helper()
		var streams []struct {
			Path        string `json:"path"`
			LinkType    string `json:"link_type"`
			AckedOffset string `json:"acked_offset"`
			TailOffset  string `json:"tail_offset"`
			HasPending  bool   `json:"has_pending"`
		}
		raw := one[json.RawMessage](r, `select to_jsonb(g) from rouse.subscription_get(1, $1, $2) g`, id, n)
		if err := json.Unmarshal(raw, &rest); err != nil {
			t.Fatal(err)
		}
		list, _ := json.Marshal(rest["streams"])
		if err := json.Unmarshal(list, &streams); err != nil {
			t.Fatal(err)
		}
		for _, s := range streams {
			out = append(out, link{Path: s.Path + " " + s.AckedOffset, Type: s.LinkType, Behind: s.HasPending})
		}
		return out, rest
	}
	links, rest := get("one", 100)
	if got, want := fmt.Sprint(links), fmt.Sprint([]link{{"a/1 " + offset(8), "explicit", 0, 0, false}, {"b/none " + offset(0), "explicit", 0, 0, false},
		{"a/2 -1", "glob", 0, 0, true}, {"a/3 -1", "glob", 0, 0, false}}); got != want {
		t.Errorf("streams %s, want %s", got, want)
	}
	for k, want := range map[string]any{"id": "one", "type": "webhook", "pattern": "a/*", "webhook_url": hook, "description": "text", "lease_ttl_ms": 1234.0,
		"mount": "/v1/stream", "owner": kyle, "status": "active", "state": "idle", "epoch": 0.0, "pending": true, "system": false, "wake_stream": nil} {
		if rest[k] != want {
			t.Errorf("%s is %v, want %v", k, rest[k], want)
		}
	}
	if links, _ = get("one", 3); len(links) != 3 {
		t.Errorf("%d streams of at most 3", len(links))
	}
	list := func(owner, after string, n int) string {
		return one[string](r, `select coalesce(string_agg(id, ' ' order by id), '') from rouse.subscription_list(1, $1, $2, $3)`, orNull(owner), after, n)
	}
	if got := list("", "", 10); got != "one two" {
		t.Errorf("all: %s", got)
	}
	if got := list(kyle, "", 10); got != "one" {
		t.Errorf("kyle's: %s", got)
	}
	if got := list("", "one", 10) + "|" + list("", "", 1); got != "two|one" {
		t.Errorf("pages: %s", got)
	}
	// As a mutex among the others, it is told like them.
	if got := one[string](r, `select g.kind || ' ' || g.state || ' ' || g.pending || ' ' || jsonb_path_query_array(g.streams, '$[*].has_pending')
		from rouse.subscriptions s join rouse.consumers c on c.id = s.consumer_id cross join lateral rouse.consumer_get(1, c.name) g where s.id = 'one'`); got != "subscription idle true [false, true, false]" {
		t.Errorf("the mutex: %s", got)
	}
	if n := one[int](r, `select count(*) from rouse.subscription_get(1, 'none', 10)`); n != 0 {
		t.Error("a subscription that is not there is found")
	}
	if n := one[int](r, `select count(*) from rouse.subscription_get(2, 'one', 10)`); n != 0 {
		t.Error("another service's subscription is found")
	}
}

func TestDeleteEndsEverythingAndLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 20 {
		r.make(fmt.Sprintf("a/%d", i), `{"a": 1}`)
	}
	kept := r.subscribe(spec{id: "kept", streams: []string{"a/0"}})
	s := r.subscribe(spec{id: "s", pattern: "a/*", streams: []string{"later"}})
	r.append("a/3")
	r.route(one[int64](r, `select id from rouse.streams where path = 'a/3'`))
	g := r.want("granted", s.acquire("w"))
	if !one[bool](r, `select rouse.subscription_delete(1, 's', $1)`, kyle) {
		t.Fatal("not deleted")
	}
	if one[bool](r, `select rouse.subscription_delete(1, 's', $1)`, kyle) {
		t.Fatal("deleted twice")
	}
	r.want("stale", s.call("ack", g, ack("a/3", 16)))
	if got := one[string](r, `select status || ' ' || error from rouse.consumer_claims where consumer_id = $1`, s.name); got != "failed The subscription was deleted." {
		t.Errorf("its claim: %s", got)
	}
	// Its id is free at once, for a life of its own.
	again := r.subscribe(spec{id: "s", streams: []string{"a/3"}})
	if again.name == s.name || again.consumer == s.consumer || r.state(again) != "idle 0" {
		t.Errorf("the second life is the first: %+v %s", again, r.state(again))
	}
	for range 20 {
		if !one[bool](r, `select rouse.subscription_tidy(3)`) {
			break
		}
	}
	if n := one[int](r, `select count(*) from rouse.consumer_streams where consumer_id = $1`, s.consumer); n != 0 {
		t.Errorf("%d links are left", n)
	}
	if n := one[int](r, `select (select count(*) from rouse.consumers where id = $1) + (select count(*) from rouse.subscription_removals)`, s.consumer); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if got := one[string](r, `select string_agg(path, ' ' order by path) from rouse.streams where watched & 1 = 1`); got != "a/0 a/3" {
		t.Errorf("watched are %s", got)
	}
	r.wantLinks(kept, link{"a/0", "explicit", 8, 8, false})
	r.make("later", `{"a": 1}`)
	if n := one[int](r, `select count(*) from rouse.consumer_streams k join rouse.streams s on s.id = k.stream_id where s.path = 'later'`); n != 0 {
		t.Error("a deleted subscription finds streams")
	}
}
