package pools

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/nacl/box"

	"github.com/rouse-run/rouse/gateway/e2e/world"
	"github.com/rouse-run/rouse/openapi/runner"
)

// Everybody in a pool reads its wake stream: members what the entries are for them,
// the others that there is something; and who has no part in it reads nothing.
func TestWhoReadsAPoolsWakes(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	r.pool("coding", nil, "a", "b")
	eve, ada := r.as("user:eve"), r.as("user:ada")
	ada.runner("adas")
	eve.runner("eves")
	r.do(200, "PUT", "/_electric/worker-pools/coding/members/adas", object{})
	const at = "/worker-pools/coding/wake"
	ada.Refused(403, "POOL_FORBIDDEN", "GET", at, nil) // an invitation is none yet
	ada.Refused(403, "NOT_POOL_MEMBER", "GET", at+"?runner=adas", nil)
	ada.do(200, "PUT", "/_electric/worker-pools/coding/members/adas", object{})
	r.do(201, "PUT", "/_electric/entities/task/1", object{"dispatch_policy": policy(toPool("coding", nil)), "args": object{"colour": "confidential"}, "tags": object{"t": "confidential"}})
	r.send("1", "hello")
	w := r.waits("1", "worker-pool")

	for who, path := range map[*rig]string{r: at, ada: at + "?offset=-1"} {
		raw := string(who.do(200, "GET", path, nil).Raw)
		if !strings.Contains(raw, w.WakeID) || strings.Contains(raw, "rouse_ct_") || strings.Contains(raw, "confidential") {
			t.Errorf("a bystander reads %s", raw)
		}
	}
	for _, mount := range []string{"", "/v1/stream"} {
		for path, code := range map[string]string{at: "POOL_FORBIDDEN", at + "?runner=eves": "NOT_POOL_MEMBER", at + "?runner=a": "NOT_POOL_MEMBER", at + "?runner=none": "NOT_POOL_MEMBER", at + "?runner=": "INVALID_REQUEST", at + "?runner=a&runner=b": "INVALID_REQUEST"} {
			status := 403
			if code == "INVALID_REQUEST" {
				status = 400
			}
			eve.Refused(status, code, "GET", mount+path, nil)
		}
		if a := eve.Do(t.Context(), "HEAD", mount+at, nil, nil); a.Status != 403 {
			t.Errorf("HEAD: %v", a)
		}
		if a := eve.Do(t.Context(), "POST", mount+at, `{"type":"wake"}`, nil); a.Status != 403 || a.Code != "PATH_RESERVED" {
			t.Errorf("POST: %v", a)
		}
	}
	r.Refused(403, "NOT_POOL_MEMBER", "GET", at+"?runner=adas", nil) // the pool's owner is not the runner's
	entry := func(who *rig, runner string) object {
		t.Helper()
		all := who.entries(at + "?runner=" + runner)
		if len(all) != 1 {
			t.Fatalf("%v", all)
		}
		return all[0]
	}
	mine := entry(r, "a")
	if mine["wakeId"] != w.WakeID || mine["entity"] == nil || mine["callback"] == nil || !strings.HasPrefix(mine["claimToken"].(string), "rouse_ct_") {
		t.Errorf("%v", mine)
	}

	// Who may not claim it: strangers by any runner, members' owners by another's.
	eve.Refused(403, "RUNNER_FORBIDDEN", "POST", "/_electric/runners/a/claim", object{"wakeId": w.WakeID})
	eve.Refused(403, "NOT_POOL_MEMBER", "POST", "/_electric/runners/eves/claim", object{"wakeId": w.WakeID})
	ada.Refused(403, "RUNNER_FORBIDDEN", "POST", "/_electric/runners/a/claim", object{"wakeId": w.WakeID})
	if a := eve.Do(t.Context(), "POST", "/_electric/runners/eves/claim", object{}, nil); a.Status != 204 {
		t.Errorf("%v %s", a, a.Raw)
	}
	// By the callback: whose runner it is, is said; another's is none of one's own.
	callback := func(who *rig, body object) (int, string) {
		t.Helper()
		a := who.Do(t.Context(), "POST", "/_electric/wake-callbacks/"+w.WakeID, body, map[string]string{"electric-claim-token": mine["claimToken"].(string)})
		return a.Status, a.Code
	}
	for name, tc := range map[string]struct {
		who  *rig
		body object
		code string
	}{
		"no runner":               {ada, object{"wakeId": w.WakeID, "epoch": 1}, "INVALID_REQUEST"},
		"a runner of none's":      {ada, object{"wakeId": w.WakeID, "epoch": 1, "runnerId": "none"}, "NOT_FOUND"},
		"another's":               {ada, object{"wakeId": w.WakeID, "epoch": 1, "runnerId": "a"}, "RUNNER_FORBIDDEN"},
		"a runner that is not in": {eve, object{"wakeId": w.WakeID, "epoch": 1, "runnerId": "eves"}, "NOT_POOL_MEMBER"},
	} {
		if status, code := callback(tc.who, tc.body); status < 400 || status >= 500 || code != tc.code {
			t.Errorf("%s: %d %s, not %s", name, status, code, tc.code)
		}
	}
	if status, code := callback(ada, object{"wakeId": w.WakeID, "epoch": 1, "runner_id": "adas"}); status != 200 {
		t.Errorf("%d %s", status, code)
	}
	r.Refused(409, "ALREADY_CLAIMED", "POST", "/_electric/runners/a/claim", object{"wakeId": w.WakeID})
}

// A member with a key gets the entries sealed to it, and each its own.
func TestAPoolsWakesAreSealedForEachMember(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	r.pool("coding", nil, "open", "shut")
	public, private, err := box.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r.do(200, "PUT", "/_electric/runners/shut/wake-key", object{"wake_key": base64.StdEncoding.EncodeToString(public[:])})
	r.spawn("1", policy(toPool("coding", nil)))
	w := r.waits("1", "worker-pool")
	sealed := r.entries("/worker-pools/coding/wake?runner=shut")[0]
	if len(sealed) != 3 || sealed["type"] != "wake" {
		t.Fatalf("%v", sealed)
	}
	raw, err := base64.StdEncoding.DecodeString(sealed["sealed"].(string))
	if err != nil {
		t.Fatal(err)
	}
	plain, ok := box.OpenAnonymous(nil, raw, public, private)
	var entry object
	if !ok || json.Unmarshal(plain, &entry) != nil || entry["wakeId"] != w.WakeID || entry["claimToken"] == nil {
		t.Errorf("%s", plain)
	}
	if open := r.entries("/worker-pools/coding/wake?runner=open")[0]; open["wakeId"] != w.WakeID {
		t.Errorf("%v", open)
	}
}

// A member that is taken out while it reads learns it at its next entry at the
// latest; a live read by another goes on.
func TestAMemberThatIsTakenOutReadsNoMore(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	r.pool("coding", nil, "a", "b")
	for _, m := range []string{"a", "b"} {
		p := r.run(m, 0, func(c *runner.Config) { c.Liveness = 50 * time.Millisecond }, func(ctx context.Context, c *runner.Claim) error {
			_, err := unread(ctx, c)
			return err
		})
		p.until(runner.Connected)
		if m == "a" {
			r.do(204, "DELETE", "/_electric/worker-pools/coding/members/a", nil)
			n := world.One[time.Time](r.World, `select clock_timestamp()`)
			r.Eventually("it has heard", func() bool {
				return world.One[bool](r.World, `select last_seen_at > $1::timestamptz + interval '200 ms' from rouse.runner_runtime_diagnostics where runner_id = 'a'`, n)
			})
		}
	}
	for _, id := range []string{"1", "2", "3"} {
		r.spawn(id, policy(toPool("coding", nil)))
	}
	r.Eventually("all is done", func() bool {
		return world.One[int](r.World, `select count(*) from rouse.consumer_claims where status = 'released'`) == 3
	})
	if n := world.One[int](r.World, `select count(*) from rouse.consumer_claims where runner_id = 'a'`); n != 0 {
		t.Errorf("it has got %d", n)
	}
}

// A child and a fork go where their parent and their source go.
func TestChildrenAndForksOfAPool(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	r.pool("coding", nil, "a")
	p := policy(toRunner("a", object{"offline": true}), toPool("coding", nil))
	p["giveUp"] = object{"attempts": 9}
	r.do(201, "PUT", "/_electric/entities/task/parent", object{"dispatch_policy": p})
	r.do(201, "PUT", "/_electric/entities/task/child", object{"parent": "/task/parent", "initialMessage": "hello"})
	r.do(201, "POST", "/_electric/entities/task/parent/fork", object{"waitTimeoutMs": 0, "instance_id": "forked"})
	got := r.run("a", 0, nil, func(ctx context.Context, c *runner.Claim) error {
		_, err := unread(ctx, c)
		return err
	})
	if e := got.until(runner.Done); e.Entity != "/task/child" {
		t.Errorf("%+v", e)
	}
	r.send("forked", "hello")
	for e := got.until(runner.Done); e.Entity != "/task/forked"; e = got.until(runner.Done) {
		if e.Entity != "/task/child" {
			t.Errorf("%+v", e)
		}
	}
	for _, id := range []string{"child", "forked"} {
		e := world.Into[struct {
			Policy object `json:"dispatch_policy"`
		}](t, r.do(200, "GET", "/_electric/entities/task/"+id, nil))
		if targets := e.Policy["targets"].([]any); len(targets) != 2 || targets[1].(object)["workerPoolId"] != "coding" || e.Policy["giveUp"].(object)["attempts"] != 9.0 {
			t.Errorf("%s: %v", id, e.Policy)
		}
	}
	// Another may not send work there, as a child, a fork, or by moving it.
	mallory := r.as("user:mallory")
	mallory.do(201, "POST", "/_electric/entity-types", object{"name": "other", "description": "x"})
	mallory.Refused(403, "POOL_FORBIDDEN", "PUT", "/_electric/entities/other/1", object{"dispatch_policy": policy(toPool("coding", nil))})
	mallory.do(201, "PUT", "/_electric/entities/other/2", object{})
	mallory.do(403, "POST", "/_electric/entities/other/2/move", object{"dispatch_policy": policy(toPool("coding", nil))})
}

// A runner that runs begins with a pool's work when it is put into it, long
// before its next heartbeat, and is told when it is out.
func TestARunnerLearnsAtOnceThatItIsInAPool(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	r.pool("coding", nil)
	r.runner("laptop")
	laptop := r.run("laptop", 1, func(c *runner.Config) { c.Liveness = time.Hour }, func(context.Context, *runner.Claim) error { return nil })
	laptop.until(runner.Connected)
	r.spawn("1", policy(toPool("coding", nil)))
	r.waits("1", "worker-pool")
	began := time.Now()
	r.do(200, "PUT", "/_electric/worker-pools/coding/members/laptop", object{})
	if e := laptop.until(runner.Done); e.Entity != "/task/1" {
		t.Errorf("it did %+v", e)
	}
	t.Logf("done %v after it was put into the pool", time.Since(began))
	r.do(204, "DELETE", "/_electric/worker-pools/coding/members/laptop", nil)
	r.do(200, "PUT", "/_electric/worker-pools/coding/members/laptop", object{"status": "disabled"})
	told := 0
	for _, e := range r.entries("/runners/laptop/wake") {
		if e["type"] == "pools" {
			told++
		}
	}
	if told != 2 {
		t.Errorf("it was told %d times that its pools changed", told)
	}
}
