package subscriptiontest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// register is rouse.subscription_register for a pattern; target "" is null.
func (r *rig) register(id, typ, pattern, url, target string) (string, error) {
	var outcome string
	err := r.c.QueryRow(r.ctx(), `select rouse.subscription_register(1, $1, $2, $3, '{}', null, $4, $5::jsonb, null, 30000, '/v1/stream', $6, false)`,
		id, typ, pattern, orNull(url), orNull(target), kyle).Scan(&outcome)
	return outcome, err
}

func TestTargetsOfTransports(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const bell = `{"type":"bell","address":"a","deep":{"b":1,"a":[]}}`
	if got, err := r.register("t", "bell", "in/*", "", bell); err != nil || got != "created" {
		t.Fatalf("%s %v", got, err)
	}
	for what, c := range map[string]struct{ url, target, typ, want string }{
		"the same":       {"", `{"deep":{"a":[],"b":1},"address":"a","type":"bell"}`, "bell", "confirmed"},
		"another target": {"", `{"type":"bell","address":"b"}`, "bell", "conflict"},
		"another type":   {"", `{"type":"gong","address":"a","deep":{"b":1,"a":[]}}`, "gong", "conflict"},
		"a webhook":      {hook, "", "webhook", "conflict"},
	} {
		if got, err := r.register("t", c.typ, "in/*", c.url, c.target); err != nil || got != c.want {
			t.Errorf("%s: %s %v", what, got, err)
		}
	}
	for what, c := range map[string]struct{ url, target, typ string }{
		"no target":                 {"", "", "bell"},
		"somebody else's target":    {"", bell, "gong"},
		"a target without a type":   {"", `{"address":"a"}`, "bell"},
		"a target that is no one":   {"", `"bell"`, "bell"},
		"a webhook with a target":   {hook, bell, "webhook"},
		"a pull-wake of nothing":    {"", "", "pull-wake"},
		"a webhook without a url":   {"", "", "webhook"},
		"a target of no type":       {"", `{"type":""}`, ""},
		"a pull-wake with a target": {"", `{"type":"pull-wake"}`, "pull-wake"},
	} {
		if got, err := r.register("wrong", c.typ, "in/*", c.url, c.target); err == nil {
			t.Errorf("%s: %s", what, got)
		}
	}
	var of string
	if err := r.c.QueryRow(r.ctx(), `select string_agg(coalesce(rouse.subscription_target(s.consumer_id)::text, 'none') || coalesce(rouse.subscription_target(-1)::text, ''), ',') from rouse.subscriptions s`).Scan(&of); err != nil {
		t.Fatal(err)
	}
	if of != `{"deep": {"a": [], "b": 1}, "type": "bell", "address": "a"}` {
		t.Errorf("targets %s", of)
	}
}

// What was registered before there were other targets is confirmed by the same
// configuration, through either function.
func TestTheHashOfAConfigurationStays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.subscribe(spec{id: "old", pattern: "in/*", url: hook, mount: "/v1/stream"})
	const before = `select encode(sha256(convert_to(jsonb_build_object('type', 'webhook', 'pattern', 'in/*', 'streams', '{}'::text[], 'wake_stream', null::text,
		'webhook', $1::text, 'lease_ttl_ms', 30000, 'description', null::text)::text, 'UTF8')), 'hex') = config_hash from rouse.subscriptions where id = 'old'`
	if !one[bool](r, before, hook) {
		t.Error("it is another")
	}
	if got, err := r.register("old", "webhook", "in/*", hook, ""); err != nil || got != "confirmed" {
		t.Errorf("%s %v", got, err)
	}
}

// Their wakes are due as a webhook's are, for a receiver of their own, and what
// becomes of an attempt shows in the subscription.
func TestWakesOfTransports(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// Members of the gateway's own names stay the transport's.
	if got, err := r.register("t", "bell", "in/*", "", `{"type":"bell","mount":7,"subscription_id":null,"url":"https://elsewhere.example","target":{}}`); err != nil || got != "created" {
		t.Fatalf("%s %v", got, err)
	}
	r.settle("t")
	s := r.sub("t")
	a := r.make("in/a", `{"a": 1}`)
	r.wantRoute(a, "minted")
	id, n := r.wakeOf(s)
	if n.SubscriptionID != "t" || n.StreamPath != "/in/a" || len(n.Streams) != 1 || n.Streams[0].Path != "in/a" {
		t.Errorf("notification %+v", n)
	}
	lend := func() int {
		t.Helper()
		var attempt int
		var receiver string
		var target json.RawMessage
		if err := r.c.QueryRow(r.ctx(), `select attempt, receiver, target from rouse._delivery_lend(10, 10, '{}', $1)`, r.now).Scan(&attempt, &receiver, &target); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Type   string
			ID     string `json:"subscription_id"`
			Mount  string
			Target map[string]any
		}
		if err := json.Unmarshal(target, &got); err != nil {
			t.Fatal(err)
		}
		if receiver != "bell" || got.Type != "" || got.ID != "t" || got.Mount != "/v1/stream" ||
			fmt.Sprint(got.Target) != "map[mount:7 subscription_id:<nil> target:map[] type:bell url:https://elsewhere.example]" {
			t.Errorf("lent for %s: %s", receiver, target)
		}
		return attempt
	}
	status := func(want string) {
		t.Helper()
		if got := one[string](r, `select status || coalesce(': ' || last_error, '') from rouse.subscriptions where id = 't'`); got != want {
			t.Errorf("status %s, want %s", got, want)
		}
	}
	due := func() bool {
		t.Helper()
		return one[bool](r, `select next_attempt_at is not null from rouse.wake_notifications where wake_id = $1`, id)
	}
	for i, c := range []struct{ outcome, became, status string }{
		{"retry", "retry", "failed: away"}, {"accepted", "delivered", "active"}, {"unknown", "unknown", "failed: away"}, {"permanent", "failed", "failed: away"},
	} {
		attempt := lend()
		if got := r.result(id, attempt, c.outcome, 0, "away"); attempt != i+1 || got != c.became {
			t.Errorf("%s at %d: %s", c.outcome, attempt, got)
		}
		status(c.status)
		if again := c.outcome == "retry" || c.outcome == "accepted"; due() != again {
			t.Errorf("after %s it is due: %v", c.outcome, !again)
		}
		if !due() {
			if got := one[string](r, `select rouse._wake_redeliver(1, $1, $2, $3)`, id, kyle, r.now); got != "redelivered" {
				t.Errorf("by a person: %s", got)
			}
			status("active")
		}
		r.after(time.Hour)
	}
	if got := r.result(id, lend(), "done", 0, ""); got != "released" {
		t.Errorf("done: %s", got)
	}
	status("active")
	if got := r.state(s); got != "idle 1" {
		t.Errorf("state %s", got)
	}
	r.wantLinks(s, link{"in/a", "glob", 8, 8, false})
	// Nobody is left behind by its end.
	if !one[bool](r, `select rouse.subscription_delete(1, 't', $1)`, kyle) {
		t.Error("it is not deleted")
	}
}
