package pools

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/world"
	"github.com/rouse-run/rouse/openapi/runner"
)

// R30: the laptop is offline, so the pool gets the work; nobody there is in time,
// so a webhook does. Each step is another wake, and who comes back to an earlier
// one is too late.
func TestWorkMovesOnFromTargetToTarget(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	h := newHook(t, 200, `{"done":true}`)
	r.runner("laptop")
	r.pool("coding", nil, "sandbox")
	r.alive("laptop", 2*time.Second)
	r.spawn("1", policy(toRunner("laptop", object{"offline": true, "unclaimedAfterMs": 60_000}), toPool("coding", object{"unclaimedAfterMs": 400}), toHook(h.url, nil)))

	// While the laptop is there, it is the laptop's.
	first := r.waits("1", "runner")
	if *first.TargetRunnerID != "laptop" || first.Epoch != 1 {
		t.Errorf("%+v", first)
	}
	entry := r.entries("/runners/laptop/wake")[0]
	if entry["attempt"] != 1.0 || entry["targetIndex"] != 0.0 {
		t.Errorf("%v", entry)
	}
	// Its lid is shut: no heartbeat comes any more.
	second := r.waits("1", "worker-pool")
	if second.Epoch != 2 {
		t.Errorf("%+v", second)
	}
	got := r.entries("/worker-pools/coding/wake?runner=sandbox")
	if len(got) != 1 || got[0]["wakeId"] != second.WakeID || got[0]["attempt"] != 2.0 || got[0]["targetIndex"] != 1.0 || got[0]["claimToken"] == nil {
		t.Errorf("%v", got)
	}
	third := h.post(t)
	if third["attempt"] != 3.0 || third["targetIndex"] != 2.0 || third["epoch"] != 3.0 {
		t.Errorf("%v", third)
	}
	// The log: what each was for, and that it was taken back.
	r.Eventually("the webhook's answer counts", func() bool { return r.wakes("1")[0].ClaimStatus != "unclaimed" })
	all := r.wakes("1")
	if all[1].TargetPoolID == nil || *all[1].TargetPoolID != "coding" || all[0].Attempt != 3 || all[0].TargetIndex != 2 {
		t.Errorf("%+v", all)
	}
	if len(all) != 3 || all[2].DeliveryStatus != "superseded" || all[1].DeliveryStatus != "superseded" || all[0].TargetType != "webhook" {
		t.Errorf("%+v", all)
	}
	// Both come back, and are told that it is over.
	r.alive("laptop", time.Minute)
	for runner, w := range map[string]wake{"laptop": first, "sandbox": second} {
		a := r.Do(t.Context(), "POST", "/_electric/runners/"+runner+"/claim", object{"wakeId": w.WakeID}, nil)
		if a.Status != 409 || a.Code != "NO_PENDING_WORK" {
			t.Errorf("%s: %v %s", runner, a, a.Raw)
		}
	}
	a := r.Do(t.Context(), "POST", "/_electric/wake-callbacks/"+second.WakeID, object{"epoch": 2, "wakeId": second.WakeID}, map[string]string{"electric-claim-token": got[0]["claimToken"].(string)})
	if a.Status != 409 || a.Code != "EPOCH_STALE" {
		t.Errorf("%v %s", a, a.Raw)
	}
	// After progress it begins with the first target again.
	r.send("1", "again")
	if w := r.waits("1", "runner"); *w.TargetRunnerID != "laptop" {
		t.Errorf("%+v", w)
	}
}

// A receiver that refuses for good, and a runner that has no room, give way too.
func TestFailedAndFullTargetsGiveWay(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	gone := newHook(t, 410, `gone`)
	r.do(201, "POST", "/_electric/runners", object{"id": "small", "label": "small", "capacity": 1})
	r.alive("small", time.Minute)
	r.pool("coding", nil, "sandbox")
	r.alive("sandbox", time.Minute)
	r.spawn("1", policy(toHook(gone.url, object{"failed": true}), toPool("coding", nil)))
	gone.post(t)
	if w := r.waits("1", "worker-pool"); w.Epoch != 2 {
		t.Errorf("%+v", w)
	}

	r.spawn("2", policy(toRunner("small", object{"full": true}), toPool("coding", nil)))
	r.claims("small", r.waits("2", "runner").WakeID)
	r.spawn("3", policy(toRunner("small", object{"full": true}), toPool("coding", nil)))
	if w := r.waits("3", "worker-pool"); w.Epoch != 1 {
		t.Errorf("it was sent to a runner that is full first: %+v", w)
	}
	// Without anything about it, it waits.
	r.spawn("4", policy(toRunner("small", object{"offline": true}), toPool("coding", nil)))
	w := r.waits("4", "runner")
	r.Refused(409, "RUNNER_FULL", "POST", "/_electric/runners/small/claim", object{"wakeId": w.WakeID})
}

// What nobody gets done is parked with the reason, takes messages still, and goes
// on when somebody says so.
func TestParkedWorkIsRedriven(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, func(c *config.Config) { c.LeaseTTL = time.Minute })
	r.runner("laptop")
	r.alive("laptop", time.Minute)
	p := policy(toRunner("laptop", nil))
	p["giveUp"] = object{"attempts": 2}
	r.spawn("1", p)
	for range 2 {
		g := r.claims("laptop", r.waits("1", "runner").WakeID)
		if a := r.callback(g, object{"done": true, "error": "it does not work"}); a.Status != 200 {
			t.Fatalf("%v %s", a, a.Raw)
		}
	}
	type parked struct {
		EntityURL string `json:"entity_url"`
		Reason    string
		Attempts  int
		LastError string `json:"last_error"`
	}
	var list []parked
	r.Eventually("it is parked", func() bool {
		list = world.Into[[]parked](t, r.do(200, "GET", "/_electric/parked", nil))
		return len(list) > 0
	})
	if p := list[0]; p.EntityURL != "/task/1" || p.Reason != "attempts_exhausted" || p.Attempts != 2 || p.LastError != "it does not work" {
		t.Errorf("%+v", list)
	}
	if got := r.display("1"); !strings.Contains(got, "Parked") {
		t.Error(got)
	}
	state := world.Into[struct {
		Attempts     int
		ParkedReason string `json:"parked_reason"`
	}](t, r.do(200, "GET", "/_electric/entities/task/1/dispatch", nil))
	if state.Attempts != 2 || state.ParkedReason != "attempts_exhausted" {
		t.Errorf("%+v", state)
	}
	if got := world.Into[[]parked](t, r.as("user:mallory").do(200, "GET", "/_electric/parked", nil)); len(got) != 0 {
		t.Errorf("another sees %+v", got)
	}
	r.as("user:mallory").do(200, "POST", "/_electric/parked/redrive", object{})
	r.as("user:mallory").Refused(401, "UNAUTHORIZED", "POST", "/_electric/entities/task/1/redrive", nil)
	r.send("1", "one more")
	if w := r.wakes("1"); w[0].ClaimStatus == "unclaimed" {
		t.Errorf("it wakes somebody: %+v", w[0])
	}
	if a := r.do(200, "POST", "/_electric/parked/redrive", object{"type": "task", "reason": "unclaimed"}); !strings.Contains(string(a.Raw), `"redriven":0`) {
		t.Errorf("%s", a.Raw)
	}
	if a := r.do(200, "POST", "/_electric/parked/redrive", object{"type": "task", "reason": "attempts_exhausted"}); !strings.Contains(string(a.Raw), `"redriven":1`) {
		t.Errorf("%s", a.Raw)
	}
	g := r.claims("laptop", r.waits("1", "runner").WakeID)
	if g.Attempt != 1 {
		t.Errorf("%+v", g)
	}
	r.Refused(409, "NOT_PARKED", "POST", "/_electric/entities/task/1/redrive", nil)
}

// The phone's story: the laptop's lid is shut, a sandbox of the pool goes on, and
// all that was said is read once.
func TestAPoolGoesOnWhereALaptopStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, func(c *config.Config) { c.LeaseTTL = time.Second })
	r.runner("laptop")
	r.pool("coding", nil, "sandbox")
	handler := func(ctx context.Context, c *runner.Claim) error {
		got, err := unread(ctx, c)
		if err != nil {
			return err
		}
		return c.Append(ctx, object{"headers": object{"operation": "insert"}, "type": "text", "key": c.Runner + got[0], "value": object{"text": c.Runner + ": " + strings.Join(got, ", ")}})
	}
	laptop := r.run("laptop", 0, func(c *runner.Config) { c.Liveness = 200 * time.Millisecond }, handler)
	laptop.until(runner.Connected)
	sandbox := r.run("sandbox", 1, func(c *runner.Config) { c.Liveness = 200 * time.Millisecond }, handler)
	sandbox.until(runner.Connected)
	p := policy(toRunner("laptop", object{"offline": true}), toPool("coding", nil))
	r.spawn("1", p)
	laptop.until(runner.Done)
	laptop.stop()
	r.Eventually("the laptop is offline", func() bool {
		return world.Into[struct{ Liveness string }](t, r.do(200, "GET", "/_electric/runners/laptop", nil)).Liveness == "offline"
	})
	r.send("1", "are you there?")
	if e := sandbox.until(runner.Done); e.Entity != "/task/1" {
		t.Errorf("%+v", e)
	}
	raw := string(r.do(200, "GET", "/task/1/main?offset=-1", nil).Raw)
	if !strings.Contains(raw, `"laptop: hello"`) || !strings.Contains(raw, `"sandbox: are you there?"`) {
		t.Error(raw)
	}
}

// All kinds of targets in one policy: a runner, a pool, a webhook, and a transport
// that is a plugin, which is not bothered with conditions that it does not know.
func TestEveryKindOfTarget(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plugins, got := filepath.Join(dir, "plugins.yaml"), filepath.Join(dir, "wake.json")
	if err := os.WriteFile(plugins, []byte(`transports:
  exec:
    builtin: exec
    config:
      commands:
        sandbox: {argv: [/bin/sh, -c, "cat > '`+got+`.new' && mv '`+got+`.new' '`+got+`'"]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, 1, func(c *config.Config) { c.PluginsFile = plugins })
	gone := newHook(t, 410, `gone`)
	r.runner("laptop")
	r.pool("empty", nil)
	script := object{"type": "exec", "command": "sandbox", "when": object{"failed": true, "unclaimedAfterMs": 3_600_000}}
	for i, bad := range []object{
		{"type": "exec", "command": "sandbox", "when": object{"offline": true}},
		{"type": "exec", "command": "sandbox", "offline": true},
		{"type": "exec", "command": "none"},
	} {
		if a := r.do(400, "PUT", fmt.Sprintf("/_electric/entities/task/bad%d", i), object{"dispatch_policy": policy(bad, toRunner("laptop", nil))}); !strings.Contains(string(a.Raw), `"/dispatch_policy/targets/0`) {
			t.Errorf("%s", a.Raw)
		}
	}
	r.spawn("1", policy(toRunner("laptop", object{"offline": true}), toPool("empty", object{"offline": true}), toHook(gone.url, object{"failed": true}), script))
	gone.post(t)
	var wake struct {
		Attempt     int
		TargetIndex int `json:"targetIndex"`
		Entity      struct{ URL string }
	}
	r.Eventually("the command has it", func() bool {
		raw, err := os.ReadFile(got)
		return err == nil && json.Unmarshal(raw, &wake) == nil
	})
	if wake.Entity.URL != "/task/1" || wake.TargetIndex != 3 || wake.Attempt != 2 {
		t.Errorf("%+v", wake)
	}
}
