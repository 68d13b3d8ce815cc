package wire_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/e2e/wire"
)

// kinds says what a JSON value is: string, number, integer, bool, object, array,
// null, time (an RFC 3339 string) or millis (a number of milliseconds of our days).
func kinds(v any) []string {
	switch v := v.(type) {
	case nil:
		return []string{"null"}
	case bool:
		return []string{"bool"}
	case string:
		if _, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return []string{"string", "time"}
		}
		return []string{"string"}
	case float64:
		out := []string{"number"}
		if v == float64(int64(v)) {
			out = append(out, "integer")
		}
		if v > 1.5e12 && v < 4e12 {
			out = append(out, "millis")
		}
		return out
	case []any:
		return []string{"array"}
	}
	return []string{"object"}
}

// has demands members of an object, given as "path kind" or "path kind|kind".
func has(t *testing.T, what string, a wire.Answer, members ...string) {
	t.Helper()
	for _, m := range members {
		path, want, _ := strings.Cut(m, " ")
		got := kinds(field(a, path))
		if !slices.ContainsFunc(strings.Split(want, "|"), func(k string) bool { return slices.Contains(got, k) }) {
			t.Errorf("%s: %s is %v, want %s: %s", what, path, got, want, a.Raw)
		}
	}
}

// The objects of the control routes have the members that the ecosystem's
// clients read, of the types they expect, and none that they must not see.
func TestObjectsHaveTheWiresMembers(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	typ := r.must(201, r.kyle, "POST", "/_electric/entity-types", `{"name":"full","description":"x","creation_schema":{"type":"object"},"inbox_schemas":{"q":{}},"state_schemas":{"s":{}},
		"slash_commands":[{"name":"clear","description":"x"}]}`)
	has(t, "a type", typ, "name string", "description string", "creation_schema object", "inbox_schemas object", "state_schemas object", "slash_commands array", "revision integer", "created_at time", "updated_at time")
	bare := r.must(201, r.kyle, "POST", "/_electric/entity-types", `{"name":"bare","description":"x"}`)
	has(t, "a bare type", bare, "creation_schema null", "inbox_schemas null", "state_schemas null", "serve_endpoint null", "default_dispatch_policy null", "slash_commands null")
	for _, member := range []string{"creation_schema", "inbox_schemas", "state_schemas"} {
		if !strings.Contains(string(bare.Raw), `"`+member+`":null`) {
			t.Errorf("%s is absent, not null: %s", member, bare.Raw)
		}
	}

	runner := r.must(201, r.kyle, "POST", "/_electric/runners", `{"id":"obj","label":"Mac","sandbox_profiles":[{"name":"local","label":"Local"}]}`)
	has(t, "a runner", runner, "id string", "owner_principal string", "label string", "kind string", "admin_status string", "wake_stream string", "sandbox_profiles array", "created_at time", "updated_at time")
	if field(runner, "owner_principal") != "/principal/user%3Akyle" || field(runner, "wake_stream") != "/runners/obj/wake" || field(runner, "kind") != "local" || field(runner, "admin_status") != "enabled" {
		t.Errorf("%s", runner.Raw)
	}
	beat := r.must(200, r.kyle, "POST", "/_electric/runners/obj/heartbeat", `{"lease_ms":90000,"wake_stream_offset":"-1","diagnostics":{"status":"streaming"}}`)
	has(t, "a heartbeat", beat, "last_seen_at time", "liveness_lease_expires_at time", "wake_stream_offset string", "diagnostics object")

	entity := r.must(201, r.kyle, "PUT", "/_electric/entities/full/e", `{"args":{"a":1},"tags":{"k":"v"},"dispatch_policy":{"targets":[{"type":"runner","runnerId":"obj"}]},"initialMessage":{"n":1}}`)
	members := []string{"url string", "type string", "status string", "streams.main string", "dispatch_policy object", "tags object", "spawn_args object", "created_by string", "created_at millis", "updated_at millis"}
	has(t, "a spawn", entity, append(members, "txid integer")...)
	got := r.must(200, r.kyle, "GET", "/_electric/entities/full/e", "")
	has(t, "an entity", got, members...)
	for _, a := range []wire.Answer{entity, got} {
		for _, hidden := range []string{"write_token", "writeToken", "subscription_id", "consumer"} {
			if strings.Contains(string(a.Raw), hidden) {
				t.Errorf("%s is shown: %s", hidden, a.Raw)
			}
		}
	}
	list := r.must(200, r.kyle, "GET", "/_electric/entities?type=full&created_by=/principal/user%253Akyle&status=idle", "")
	var all []json.RawMessage
	if err := json.Unmarshal(list.Raw, &all); err != nil || len(all) != 1 {
		t.Fatalf("%v %s", err, list.Raw)
	}
	has(t, "a listed entity", wire.Answer{Raw: all[0]}, members...)

	// What wakes.
	f := things{Type: "full", Entity: "full/e", Runner: "obj"}
	e := r.woken(f, 1)
	if e.Type != "wake" || e.Stream != "full/e/main" || e.Generation != 1 || e.SubscriptionID == "" || e.TS < 1_500_000_000_000 {
		t.Errorf("the entry %s", e.raw)
	}
	c := r.claimed(f, e)
	has(t, "a notification", c, "consumerId string", "epoch integer", "wakeId string", "streamPath string", "streams array", "triggeredBy array", "callback string", "claimToken string", "triggerEvent string",
		"entity.type string", "entity.status string", "entity.url string", "entity.streams.main string", "entity.tags object", "entity.spawnArgs object", "principal.url string", "principal.key string", "principal.kind string", "principal.id string")
	if field(c, "streamPath") != "/full/e/main" || field(c, "principal.key") != "user:kyle" || field(c, "triggerEvent") != "message_received" || field(c, "entity.spawnArgs.a") != 1.0 ||
		!strings.HasSuffix(fmt.Sprint(field(c, "callback")), "/_electric/wake-callbacks/"+c.WakeID) {
		t.Errorf("%s", c.Raw)
	}
	streams, _ := field(c, "streams").([]any)
	if first, _ := streams[0].(map[string]any); len(streams) != 1 || first["path"] != "/full/e/main" || first["offset"] != r.tail(f.main()) {
		t.Errorf("%v, the tail is %s", streams, r.tail(f.main()))
	}
	confirm := r.must(200, r.kyle, "POST", callback(c), fmt.Sprintf(`{"epoch":1,"wakeId":%q}`, c.WakeID), tokenHeader(c.ClaimToken)...)
	has(t, "a claim", confirm, "ok bool", "writeToken string", "token string")
	keep := r.must(200, r.kyle, "POST", callback(c), `{"epoch":1}`, tokenHeader(c.ClaimToken)...)
	has(t, "a heartbeat of a claim", keep, "ok bool")
	health := r.must(200, r.kyle, "GET", "/_electric/runners/obj/health", "")
	has(t, "a runner's health", health, "runner.liveness_status string", "runner.lease_expires_at time", "runner.lease_remaining_ms number", "runner.wake_stream_offset string", "client object",
		"claims.active_count integer", "claims.active array", "dispatch.entities_with_active_claim integer", "dispatch.entities_with_outstanding_wake integer", "dispatch.entities_with_pending_work integer",
		"health.status string", "health.issues array")
	if field(health, "claims.active_count") != 1.0 || field(health, "dispatch.entities_with_active_claim") != 1.0 || field(health, "health.status") != "healthy" || field(health, "runner.liveness_status") != "online" {
		t.Errorf("%s", health.Raw)
	}
	if a := r.must(200, r.kyle, "GET", f.ctl(), ""); field(a, "status") != "running" {
		t.Errorf("while it is held: %s", a.Raw)
	}
	done := r.done(f, c, r.tail(f.main()))
	has(t, "a done", done, "ok bool", "next_wake bool")
	signal := r.must(200, r.kyle, "POST", f.ctl()+"/signal", `{"signal":"SIGTERM","reason":"enough","payload":{"x":1}}`)
	has(t, "a signal", signal, "url string", "signal string", "previous_state string", "new_state string", "created_at number|time", "txid integer")
	if field(signal, "previous_state") != "idle" || field(signal, "new_state") != "stopped" {
		t.Errorf("%s", signal.Raw)
	}

	// And what the stream says of all that.
	messages, _, _ := r.kyle.All(t.Context(), f.main())
	var types []string
	for i, m := range messages {
		a := wire.Answer{Raw: m}
		has(t, fmt.Sprint("row ", i), a, "type string", "key string", "value object", "headers.operation string", "headers.offset string")
		types = append(types, fmt.Sprint(field(a, "type")))
	}
	if got := strings.Join(types, " "); got != "entity_created slash_command inbox signal" {
		t.Errorf("the stream holds %s", got)
	}
	has(t, "the first row", wire.Answer{Raw: messages[0]}, "value.entity_type string", "value.timestamp time", "value.args object")
	inbox := wire.Answer{Raw: messages[2]}
	has(t, "a message", inbox, "value.from string", "value.payload object", "value.timestamp time", "value.mode string", "value.status string", "headers.txid string")
	if !strings.HasPrefix(fmt.Sprint(field(inbox, "key")), "msg-in-") || field(inbox, "value.from") != "/principal/user%3Akyle" {
		t.Errorf("%s", inbox.Raw)
	}
	sig := wire.Answer{Raw: messages[3]}
	has(t, "a signal's row", sig, "value.signal string", "value.status string", "value.sender string", "value.timestamp time", "value.reason string", "value.payload object", "value.previous_state string", "value.new_state string")
	if !strings.HasPrefix(fmt.Sprint(field(sig, "key")), "sig-") || field(sig, "value.status") != "handled" {
		t.Errorf("%s", sig.Raw)
	}
}

// What each signal does to an entity that is at rest, paused, or held, and that
// only the two that end it close its stream.
func TestSignalsMoveEntities(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	send := func(f things, signal string) wire.Answer {
		return r.must(200, r.kyle, "POST", f.ctl()+"/signal", `{"signal":"`+signal+`"}`)
	}
	for _, q := range []struct{ before, signal, from, to string }{
		{"", "SIGINT", "idle", "idle"}, {"", "SIGHUP", "idle", "idle"}, {"", "SIGUSR", "idle", "idle"}, {"", "SIGCONT", "idle", "idle"},
		{"", "SIGSTOP", "idle", "paused"}, {"SIGSTOP", "SIGCONT", "paused", "idle"}, {"SIGSTOP", "SIGSTOP", "paused", "paused"},
		{"", "SIGTERM", "idle", "stopped"}, {"SIGSTOP", "SIGTERM", "paused", "stopped"}, {"", "SIGKILL", "idle", "killed"}, {"SIGSTOP", "SIGKILL", "paused", "killed"},
	} {
		f := r.fresh()
		if q.before != "" {
			send(f, q.before)
		}
		a := send(f, q.signal)
		if field(a, "previous_state") != q.from || field(a, "new_state") != q.to {
			t.Errorf("%s after %q: %s", q.signal, q.before, a.Raw)
		}
		over := q.to == "stopped" || q.to == "killed"
		if closed := r.must(200, r.kyle, "HEAD", f.main(), "").Header.Get("Stream-Closed") == "true"; closed != over {
			t.Errorf("%s: the stream is closed: %v", q.signal, closed)
		}
		if over {
			r.refused(409, "INVALID_SIGNAL", r.kyle, "POST", f.ctl()+"/signal", `{"signal":"SIGCONT"}`)
			r.refused(409, "INVALID_SIGNAL", r.kyle, "DELETE", f.ctl(), "")
		}
	}
	// A holder is asked to end by the stream; its done is what stops the entity.
	f, c := r.worked()
	if a := send(f, "SIGTERM"); field(a, "previous_state") != "running" || field(a, "new_state") != "stopping" {
		t.Errorf("%s", a.Raw)
	}
	r.refused(409, "NOT_RUNNING", r.kyle, "POST", f.ctl()+"/send", `{"payload":1}`)
	r.must(204, r.kyle, "POST", f.main(), row("text", "last words", `{}`), tokenHeader(c.WriteToken)...)
	r.done(f, c, r.tail(f.main()))
	if a := r.must(200, r.kyle, "GET", f.ctl(), ""); field(a, "status") != "stopped" {
		t.Errorf("%s", a.Raw)
	}
	if r.must(200, r.kyle, "HEAD", f.main(), "").Header.Get("Stream-Closed") != "true" {
		t.Error("its stream is open")
	}
	// A holder whose entity is paused finishes what it does, and is the last
	// until the entity goes on.
	f, c = r.worked()
	if a := send(f, "SIGSTOP"); field(a, "previous_state") != "running" || field(a, "new_state") != "paused" {
		t.Errorf("%s", a.Raw)
	}
	at := r.tail(f.main())
	r.must(200, r.kyle, "POST", callback(c), `{"epoch":1}`, tokenHeader(c.ClaimToken)...)
	r.must(204, r.kyle, "POST", f.main(), row("text", "last words", `{}`), tokenHeader(c.WriteToken)...)
	r.must(200, r.kyle, "POST", f.ctl()+"/send", `{"payload":"for later","mode":"paused"}`)
	if a := r.done(f, c, at); a.NextWake == nil || *a.NextWake {
		t.Errorf("work for a paused entity: %s", a.Raw)
	}
	if a := r.must(200, r.kyle, "GET", f.ctl(), ""); field(a, "status") != "paused" {
		t.Errorf("%s", a.Raw)
	}
	if a := send(f, "SIGCONT"); field(a, "new_state") != "idle" {
		t.Errorf("%s", a.Raw)
	}
	next := r.claimed(f, r.woken(f, 2)) // the message that waited
	r.done(f, next, r.tail(f.main()))
}
