// Package notification compares what the transports carry: one payload, however
// it travels. It holds tests only.
package notification

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/gateway/soon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// core is what every transport and every claim answer carries.
var core = []string{"consumerId", "epoch", "wakeId", "streamPath", "streams", "triggeredBy", "triggerEvent", "callback", "claimToken", "entity"}

func must(t *testing.T, a wire.Answer, allowed ...int) wire.Answer {
	t.Helper()
	if !slices.Contains(allowed, a.Status) {
		t.Fatalf("%v: %s", a, a.Raw)
	}
	return a
}

// shape replaces what differs between two entities of the same kind.
func shape(t *testing.T, n map[string]any, id string) map[string]any {
	t.Helper()
	raw, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	for k := range out {
		if !slices.Contains(core, k) {
			delete(out, k)
		}
	}
	if len(out) != len(core) {
		t.Errorf("%s has %d of the %d core members: %v", id, len(out), len(core), out)
	}
	for _, k := range []string{"consumerId", "wakeId", "callback", "claimToken", "triggerEvent"} { // the event may be named by the wire
		if s, ok := out[k].(string); !ok || s == "" {
			t.Errorf("%s: %s is %v", id, k, out[k])
		}
		out[k] = k
	}
	var walk func(v any) any
	walk = func(v any) any {
		switch x := v.(type) {
		case map[string]any:
			for k := range x {
				x[k] = walk(x[k])
			}
		case []any:
			for i := range x {
				x[i] = walk(x[i])
			}
		case string:
			for _, p := range []string{"/job/" + id} {
				if len(x) >= len(p) && x[:len(p)] == p {
					return "/job/ID" + x[len(p):]
				}
			}
		}
		return v
	}
	return walk(out).(map[string]any)
}

// R8: pull-wake, webhook and the answer of a claim carry the same object, and
// the callback and the token in each of them work.
func TestOneNotificationOverEveryTransport(t *testing.T) {
	t.Parallel()
	client := wire.NewHTTP(20 * time.Second)
	gw := servertest.Start(t, servertest.Options{})
	t.Cleanup(client.CloseIdleConnections)
	c := &wire.Client{Base: gw.URL, Principal: "user:kyle", HTTP: client}
	posted := make(chan map[string]any, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		var n map[string]any
		if err := json.Unmarshal(body, &n); err != nil {
			t.Error(err)
		}
		posted <- n
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(receiver.Close)
	ctx := t.Context()
	must(t, c.Type(ctx, "job"), 200, 201)
	must(t, c.Runner(ctx, "mac"), 200, 201)
	for id, target := range map[string]map[string]any{"pull": {"type": "runner", "runnerId": "mac"}, "push": {"type": "webhook", "url": receiver.URL}} {
		must(t, c.Do(ctx, "PUT", "/_electric/entities/job/"+id, map[string]any{"args": map[string]any{"colour": "blue"}, "tags": map[string]string{"a": "b"},
			"dispatch_policy": map[string]any{"targets": []any{target}}}, nil), 200, 201)
		must(t, c.Send(ctx, "job", id, "same-key", "hello"), 200)
	}
	push := <-posted
	var pull map[string]any
	soon.Until(t, "the entry of the wake stream", func() bool {
		entries, _, a := c.All(ctx, "/runners/mac/wake")
		must(t, a, 200)
		return len(entries) == 1 && json.Unmarshal(entries[0], &pull) == nil
	})
	pushed, pulled := shape(t, push, "push"), shape(t, pull, "pull")
	// Messages carry their time, so only the length of the streams may differ by nothing else.
	if !reflect.DeepEqual(pushed, pulled) {
		a, _ := json.MarshalIndent(pushed, "", " ")
		b, _ := json.MarshalIndent(pulled, "", " ")
		t.Errorf("pushed\n%s\npulled\n%s", a, b)
	}
	// Names that the ecosystem's clients look for.
	for k, want := range map[string]any{"type": "wake", "subscription_id": pull["consumerId"], "stream": "job/pull/main", "generation": 1.0} {
		if pull[k] != want {
			t.Errorf("pulled %s: %v, not %v", k, pull[k], want)
		}
	}
	for k, want := range map[string]any{"wake_id": push["wakeId"], "generation": 1.0, "callback_url": push["callback"], "callback_token": push["claimToken"]} {
		if push[k] != want {
			t.Errorf("pushed %s: %v, not %v", k, push[k], want)
		}
	}
	// A claim by the runner's route answers the same object with more in it.
	g := must(t, c.Claim(ctx, "mac", "c1"), 200)
	var answer map[string]any
	if err := json.Unmarshal(g.Raw, &answer); err != nil {
		t.Fatal(err)
	}
	if got := shape(t, answer, "pull"); !reflect.DeepEqual(got, pulled) {
		t.Errorf("a claim answers\n%v\nand the entry was\n%v", got, pulled)
	}
	// The pushed token claims at the pushed callback; the holder needs no user.
	anonymous := &wire.Client{Base: gw.URL, Principal: "user:somebody-else", HTTP: client}
	path := push["callback"].(string)[len(gw.URL):]
	h := must(t, anonymous.Do(ctx, "POST", path, map[string]any{"wakeId": push["wakeId"]}, map[string]string{"electric-claim-token": push["claimToken"].(string)}), 200)
	if h.WriteToken == "" || h.Epoch != 1 {
		t.Errorf("%v", h)
	}
	must(t, anonymous.Append(ctx, "/job/push/main", h.WriteToken, map[string]any{"a": 1}, nil), 200, 204)
}
