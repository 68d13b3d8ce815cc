package plugins

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
)

type object = map[string]any

func at(id string) string { return "/__ds/subscriptions/" + id }

// with adds members to a subscription of a pattern.
func with(more object) object {
	o := object{"pattern": "in/*", "lease_ttl_ms": 20_000}
	for k, v := range more {
		o[k] = v
	}
	return o
}

func (w *world) stream(path string, messages ...string) {
	w.t.Helper()
	w.must(w.person.Do(w.t.Context(), "PUT", "/"+path, nil, map[string]string{"Content-Type": "application/json"}))
	for _, m := range messages {
		w.must(w.person.Do(w.t.Context(), "POST", "/"+path, m, nil))
	}
}

func (w *world) subscription(base, id string) (s object) {
	w.t.Helper()
	if err := json.Unmarshal(w.must(w.person.Do(w.t.Context(), "GET", base+at(id), nil, nil)).Raw, &s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// members are the names of an object's members.
func members(o object) map[string]bool {
	out := map[string]bool{}
	for k := range o {
		out[k] = true
	}
	return out
}

// R8 and R15 for subscriptions: wakes for streams go through a plugin as an
// entity's do, with what a webhook would be told, at either mount.
func TestAPluginCarriesSubscriptionsWakes(t *testing.T) {
	t.Parallel()
	w, url := newWorld(t, "transports:\n"+entry(t, "bell", "bell", ""), func(p map[string]any) string {
		if p["generation"] == 1.0 || p["entity"] != nil {
			return `{"done":true}`
		}
		return "{}"
	})
	for _, mount := range []string{"", "/v1/stream"} {
		id := "bell" + strings.ReplaceAll(mount, "/", "-")
		body := with(object{"type": "bell", "target": object{"address": url}, "pattern": id + "/*", "webhook": object{"url": "ignored"}, "wake_stream": "ignored"})
		a := w.must(w.person.Do(t.Context(), "PUT", mount+at(id), body, nil))
		if a.Status != http.StatusCreated {
			t.Fatalf("%v", a)
		}
		if again := w.must(w.person.Do(t.Context(), "PUT", mount+at(id), body, nil)); again.Status != http.StatusOK || string(again.Raw) != string(a.Raw) {
			t.Errorf("%v %s", again, again.Raw)
		}
		other := with(object{"type": "bell", "target": object{"address": url + "/elsewhere"}, "pattern": id + "/*"})
		if a := w.person.Do(t.Context(), "PUT", mount+at(id), other, nil); a.Status != 409 || a.Code != "SUBSCRIPTION_ALREADY_EXISTS" {
			t.Errorf("%v", a)
		}
		s := w.subscription(mount, id)
		if s["type"] != "bell" || !reflect.DeepEqual(s["target"], object{"address": url}) || s["webhook"] != nil || s["wake_stream"] != nil {
			t.Errorf("shown as %v", s)
		}

		// What is told is what a webhook is told.
		w.must(w.person.Do(t.Context(), "PUT", mount+at("hook"), with(object{"type": "webhook", "webhook": object{"url": url}, "pattern": id + "/*"}), nil))
		w.stream(id+"/a", `{"n":1}`)
		first, hooked := w.post(30*time.Second), w.post(30*time.Second)
		if first["subscription_id"] == "hook" {
			first, hooked = hooked, first
		}
		streams, _ := first["streams"].([]any)
		if first["subscription_id"] != id || hooked["subscription_id"] != "hook" || first["wake_id"] == "" || len(streams) != 1 || !reflect.DeepEqual(members(first), members(hooked)) {
			t.Fatalf("told %v, a webhook %v", first, hooked)
		}
		w.must(w.person.Do(t.Context(), "DELETE", at("hook"), nil, nil))
		w.eventually("its answer has finished the work", func() bool { s := w.subscription(mount, id); return s["state"] == "idle" && s["has_pending"] == false })

		w.must(w.person.Do(t.Context(), "POST", "/"+id+"/a", `{"n":2}`, nil))
		second := w.post(30 * time.Second)
		callback, _ := second["callback_url"].(string)
		if second["generation"] != 2.0 || !strings.HasSuffix(callback, mount+at(id)+"/callback") {
			t.Fatalf("told %v", second)
		}
		tail := second["streams"].([]any)[0].(object)["tail_offset"]
		receiver := &wire.Client{HTTP: w.person.HTTP}
		header := map[string]string{"Authorization": fmt.Sprint("Bearer ", second["callback_token"])}
		w.must(receiver.Do(t.Context(), "POST", callback, object{"generation": 2, "wake_id": second["wake_id"]}, header))
		if s := w.subscription(mount, id); s["state"] != "claimed" {
			t.Errorf("%v", s)
		}
		w.must(receiver.Do(t.Context(), "POST", callback, object{"acks": []object{{"stream": id + "/a", "offset": tail}}, "done": true}, header))
		if s := w.subscription(mount, id); s["state"] != "idle" || s["has_pending"] != false || s["status"] != "active" {
			t.Errorf("%v", s)
		}
		// Its work is told to it, not raced for.
		if a := w.person.Do(t.Context(), "POST", at(id)+"/claim", object{"worker": "w"}, nil); a.Status != 400 || a.Code != "INVALID_REQUEST" {
			t.Errorf("%v", a)
		}
		got := w.text(`select string_agg(a.transport || ' ' || a.outcome, ',' order by a.started_at) from rouse.delivery_attempts a join rouse.wake_notifications n using (wake_id) where n.target_type = 'bell'`)
		if !strings.HasSuffix(got, "bell done,bell accepted") {
			t.Errorf("attempts %s", got)
		}
	}
	if raw := w.must(w.person.Do(t.Context(), "GET", "/__ds/subscriptions", nil, nil)).Raw; strings.Count(string(raw), `"target":{"address":`) != 2 {
		t.Errorf("listed as %s", raw)
	}

	// An entity's wake carries the entity.
	w.must(w.person.Do(t.Context(), "PUT", at("entities"), with(object{"type": "bell", "target": object{"address": url}, "pattern": "job/*/main"}), nil))
	w.must(w.person.Type(t.Context(), "job"))
	w.must(w.person.Do(t.Context(), "PUT", "/_electric/entities/job/1", object{}, nil))
	w.must(w.person.Send(t.Context(), "job", "1", "m-1", "hello"))
	told := w.post(30 * time.Second)
	if e, _ := told["entity"].(object); e["url"] != "/job/1" || told["subscription_id"] != "entities" || told["claimToken"] == "" || told["callback"] == "" {
		t.Errorf("told %v", told)
	}
}

// Nothing of a subscription is sent twice through a transport that must not: a
// person decides, and until then it shows as failed.
func TestAnUncertainSendOfASubscription(t *testing.T) {
	t.Parallel()
	crash := true
	w, url := newWorld(t, "transports:\n"+entry(t, "pager", "pager", ""), func(map[string]any) string {
		if crash { // one delivery at a time
			crash = false
			return "crash"
		}
		return "done"
	})
	w.must(w.person.Do(t.Context(), "PUT", at("p"), with(object{"type": "pager", "target": object{"address": url}}), nil))
	w.stream("in/a", `{"n":1}`)
	wake := w.post(30 * time.Second)["wake_id"].(string)
	w.eventually("it is failed", func() bool { s := w.subscription("", "p"); return s["status"] == "failed" && s["last_error"] != nil })
	if got := w.text(`select string_agg(attempt || ' ' || outcome, ',') from rouse.delivery_attempts`); got != "1 unknown" {
		t.Errorf("attempts %s", got)
	}
	if got := w.text(`select count(*)::text from rouse.wake_notifications where next_attempt_at is not null`); got != "0" {
		t.Error("it is due again")
	}
	w.eventually("the plugin is back", func() bool { return len(w.in.Health.Degraded()) == 0 })
	w.must(w.person.Do(t.Context(), "POST", "/_electric/wakes/"+wake+"/redeliver", nil, nil))
	if again := w.post(30 * time.Second); again["wake_id"] != wake {
		t.Errorf("another wake: %v", again)
	}
	w.eventually("it is done", func() bool {
		s := w.subscription("", "p")
		return s["state"] == "idle" && s["status"] == "active" && s["has_pending"] == false
	})
}

// A target is refused as the one of a dispatch policy is, and nothing of the
// request takes effect.
func TestSubscriptionTargetsThatAreRefused(t *testing.T) {
	t.Parallel()
	w, url := newWorld(t, "transports:\n"+entry(t, "bell", "bell", "")+entry(t, "shut", "shut", "")+entry(t, "free", "free", ""), func(map[string]any) string { return "" })
	w.must(w.person.Type(t.Context(), "job"))
	deep := strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)
	for name, c := range map[string]struct {
		typ, target string
		status      int
		code        string
		policy      bool // a policy's answer is the same
	}{
		"not as the schema has it":   {"bell", `{"address":"ftp://secret"}`, 400, "INVALID_TARGET", true},
		"a member too many":          {"bell", `{"address":"` + url + `","x":1}`, 400, "INVALID_TARGET", true},
		"nothing":                    {"bell", `{}`, 400, "INVALID_TARGET", true},
		"a type that nobody carries": {"carrier-pigeon", `{"secret":1}`, 400, "INVALID_TARGET", true},
		"a plugin that is away":      {"shut", `{}`, 503, "PLUGIN_UNAVAILABLE", true},
		"a runner":                   {"runner", `{"runnerId":"r"}`, 400, "INVALID_TARGET", false},
		"a type of another kind":     {"BELL", `{}`, 400, "INVALID_TARGET", true},
		"a long type":                {strings.Repeat("b", 65), `{}`, 400, "INVALID_REQUEST", true},
		"a type with a NUL":          {`b\u0000`, `{}`, 400, "INVALID_REQUEST", true},
		"an empty type":              {"", `{}`, 400, "INVALID_REQUEST", true},
		"no target":                  {"bell", `null`, 400, "INVALID_REQUEST", false},
		"a list":                     {"bell", `[]`, 400, "INVALID_REQUEST", false},
		"a string":                   {"bell", `"secret"`, 400, "INVALID_REQUEST", false},
		"a type within":              {"bell", `{"type":"bell","address":"` + url + `"}`, 400, "INVALID_REQUEST", false},
		"a key twice":                {"free", `{"a":{"b":1,"b":2}}`, 400, "INVALID_REQUEST", false},
		"a NUL":                      {"free", `{"a":["secret\u0000"]}`, 400, "INVALID_REQUEST", false},
		"a NUL in a name":            {"free", `{"a\u0000":1}`, 400, "INVALID_REQUEST", false},
		"half a character":           {"free", `{"a":"\ud800"}`, 400, "INVALID_REQUEST", false},
		"a huge number":              {"free", `{"a":1e200000}`, 400, "INVALID_REQUEST", true},
		"a tiny number":              {"free", `{"a":[-1.5E-20000]}`, 400, "INVALID_REQUEST", false},
		"a long number":              {"free", `{"a":` + strings.Repeat("7", 500) + `}`, 400, "INVALID_REQUEST", false},
		"a number of many digits":    {"free", `{"a":1e99999999999999999999}`, 400, "INVALID_REQUEST", false},
		"too deep":                   {"free", `{"a":` + deep + `}`, 400, "INVALID_REQUEST", false},
		"too much":                   {"free", `{"a":"` + strings.Repeat("x", 17<<10) + `"}`, 400, "INVALID_REQUEST", false},
	} {
		body := fmt.Sprintf(`{"type":"%s","pattern":"in/*","target":%s}`, c.typ, c.target)
		a := w.person.Do(t.Context(), "PUT", at("bad"), body, nil)
		if a.Status != c.status || a.Code != c.code || strings.Contains(string(a.Raw), "secret") {
			t.Errorf("%s: %v %s", name, a, a.Raw)
		}
		if !c.policy {
			continue
		}
		policy := fmt.Sprintf(`{"dispatch_policy":{"targets":[{"type":"%s"%s]}}`, c.typ, strings.TrimSuffix(","+c.target[1:], ",}"))
		if c.target == "{}" {
			policy = fmt.Sprintf(`{"dispatch_policy":{"targets":[{"type":"%s"}]}}`, c.typ)
		}
		if p := w.person.Do(t.Context(), "PUT", "/_electric/entities/job/bad", policy, nil); p.Status != a.Status || p.Code != a.Code {
			t.Errorf("%s: in a policy %v %s", name, p, p.Raw)
		}
	}
	if got := w.text(`select count(*)::text from rouse.subscriptions`); got != "0" {
		t.Errorf("%s subscriptions were made", got)
	}
	// What the protocol's own types are given beside is passed over, as ever.
	for _, typ := range []object{{"type": "webhook", "webhook": object{"url": url}}, {"type": "pull-wake", "wake_stream": "w"}} {
		id, _ := typ["type"].(string)
		w.must(w.person.Do(t.Context(), "PUT", at(id), with(typ), nil))
		typ["target"] = object{"type": 1}
		if a := w.must(w.person.Do(t.Context(), "PUT", at(id), with(typ), nil)); a.Status != 200 || strings.Contains(string(a.Raw), "target") {
			t.Errorf("%s: %v %s", id, a, a.Raw)
		}
	}
	// Whatever a target may hold comes back and arrives.
	w.must(w.person.Do(t.Context(), "PUT", at("free"), `{"type":"free","streams":["in/x"],"target":{"mount":7,"target":{"type":"x"},"subscription_id":[],"url":"<&>é","n":12345678901234567890,"f":1.50}}`, nil))
	raw := w.must(w.person.Do(t.Context(), "GET", at("free"), nil, nil)).Raw
	if !strings.Contains(string(raw), `"n":12345678901234567890`) || !strings.Contains(string(raw), `"f":1.50`) {
		t.Errorf("%s", raw)
	}
	w.stream("in/x", `{"n":1}`)
	w.eventually("it has arrived", func() bool {
		s := w.subscription("", "free")
		return s["state"] == "idle" && s["has_pending"] == false && s["generation"] == 1.0
	})
}

// Who may use a transport is who may use it in a policy: anybody who is let in.
// The subscription is then theirs.
func TestWhoMaySubscribeAPlugin(t *testing.T) {
	t.Parallel()
	w, url := newWorld(t, "transports:\n"+entry(t, "bell", "bell", "")+"authhooks:\n"+entry(t, "guard", "guard", ""), func(map[string]any) string { return "done" }, func(c *config.Config) {
		c.Insecure = false
		c.Auth.Hooks = []config.AuthHook{{Plugin: "guard"}}
	})
	ask := func(who, method, path string, body any) wire.Answer {
		h := map[string]string{}
		if who != "" {
			h["Authorization"] = "Bearer " + who
		}
		return (&wire.Client{Base: w.in.URL, HTTP: w.person.HTTP}).Do(t.Context(), method, path, body, h)
	}
	w.eventually("the hook is up", func() bool { return ask("ada", "GET", "/__ds/subscriptions", nil).Status == 200 })
	body := with(object{"type": "bell", "target": object{"address": url}})
	for nobody, code := range map[string]string{"": "UNAUTHORIZED", "eve": "UNAUTHENTICATED"} {
		if a := ask(nobody, "PUT", at("s"), body); a.Status != 401 || a.Code != code {
			t.Errorf("%q: %v", nobody, a)
		}
	}
	if a := ask("ada", "PUT", at("s"), body); a.Status != 201 {
		t.Fatalf("ada: %v %s", a, a.Raw)
	}
	for _, method := range []string{"PUT", "GET"} {
		a := ask("bob", method, at("s"), body)
		if a.Status != 401 || a.Code != "UNAUTHORIZED" || strings.Contains(string(a.Raw), url) {
			t.Errorf("bob: %v %s", a, a.Raw)
		}
	}
	if a := ask("bob", "GET", "/__ds/subscriptions", nil); strings.Contains(string(a.Raw), url) {
		t.Errorf("bob sees %s", a.Raw)
	}
	if a := ask("bob", "PUT", at("his"), body); a.Status != 201 {
		t.Errorf("bob's own: %v %s", a, a.Raw)
	}
}
