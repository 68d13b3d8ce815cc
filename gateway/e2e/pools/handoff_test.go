package pools

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/world"
	"github.com/rouse-run/rouse/openapi/runner"
	"github.com/rouse-run/rouse/openapi/runner/command"
)

// R31: the holder is asked, gives the entity back in time, and the new target goes
// on behind what was acked.
func TestAMovedEntityIsHandedOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	r.runner("laptop")
	r.pool("coding", nil, "sandbox")
	working := make(chan *runner.Claim, 1)
	laptop := r.run("laptop", 0, nil, func(ctx context.Context, c *runner.Claim) error {
		for m, err := range c.Unread(ctx) {
			if err != nil {
				return err
			}
			if strings.Contains(string(m.Data), `"hello"`) {
				if err := c.Ack(ctx, m.Offset); err != nil {
					return err
				}
			}
		}
		working <- c
		<-ctx.Done()
		return context.Cause(ctx)
	})
	laptop.until(runner.Connected)
	var got []string
	sandbox := r.run("sandbox", 1, nil, func(ctx context.Context, c *runner.Claim) (err error) {
		got, err = unread(ctx, c)
		return err
	})
	sandbox.until(runner.Connected)
	r.spawn("1", policy(toRunner("laptop", nil)))
	<-working
	r.send("1", "go on there")

	r.as("user:mallory").Refused(401, "UNAUTHORIZED", "POST", "/_electric/entities/task/1/move", object{"dispatch_policy": policy(toRunner("laptop", nil))})
	a := r.do(200, "POST", "/_electric/entities/task/1/move", object{"dispatch_policy": policy(toPool("coding", nil)), "deadlineMs": 60_000, "reason": "the laptop goes home"})
	moved := world.Into[struct {
		Outcome   string
		TxID      int64
		ReleaseBy *time.Time `json:"release_by"`
	}](t, a)
	if moved.Outcome != "moved" || moved.TxID == 0 || moved.ReleaseBy == nil {
		t.Errorf("%s", a.Raw)
	}
	if e := laptop.until(runner.Returned); !errors.Is(e.Err, runner.ErrMoved) || e.Epoch != 1 {
		t.Errorf("%+v", e)
	}
	if e := sandbox.until(runner.Done); e.Epoch != 2 || len(got) != 1 || got[0] != "go on there" {
		t.Errorf("%+v %q", e, got)
	}
	history := world.Into[[]struct {
		Revision int
		Policy   object `json:"dispatch_policy"`
		MovedBy  string `json:"moved_by"`
		Reason   string
	}](t, r.do(200, "GET", "/_electric/entities/task/1/policies", nil))
	if len(history) != 1 || history[0].Reason != "the laptop goes home" || !strings.Contains(history[0].MovedBy, "kyle") || history[0].Policy["targets"].([]any)[0].(object)["runnerId"] != "laptop" {
		t.Errorf("%+v", history)
	}
	if older := world.Into[[]object](t, r.do(200, "GET", "/_electric/entities/task/1/policies?before=1", nil)); len(older) != 0 {
		t.Errorf("%+v", older)
	}
	r.Refused(400, "INVALID_REQUEST", "GET", "/_electric/entities/task/1/policies?limit=101", nil)
	if n := world.One[int](r.World, `select count(*) from rouse.audit_log where action = 'entity.move'`); n != 1 {
		t.Errorf("%d lines of it", n)
	}
}

// Who does not give it back is fenced at the deadline: told so in every answer,
// never granted a moment more, and not able to write from then on.
func TestAHolderIsFencedAtTheDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, func(c *config.Config) { c.LeaseTTL = time.Minute })
	r.runner("laptop")
	r.runner("desktop")
	r.alive("laptop", time.Hour)
	r.alive("desktop", time.Hour)
	r.spawn("1", policy(toRunner("laptop", nil)))
	g := r.claims("laptop", r.waits("1", "runner").WakeID)
	half := g.Streams[0].Offset
	if a := r.callback(g, object{"acks": []object{{"path": g.StreamPath, "offset": half}}}); a.Status != 200 || strings.Contains(string(a.Raw), "release_by") {
		t.Fatalf("%v %s", a, a.Raw)
	}
	r.send("1", "for the desktop")
	const deadline = 1500 * time.Millisecond
	moved := time.Now()
	r.do(200, "POST", "/_electric/entities/task/1/move", object{"dispatch_policy": policy(toRunner("desktop", nil)), "deadline_ms": deadline.Milliseconds()})
	entries := r.entries("/runners/laptop/wake")
	if e := entries[len(entries)-1]; e["type"] != "release" || e["wakeId"] != g.WakeID || e["epoch"] != 1.0 || e["releaseBy"] == nil {
		t.Errorf("%v", e)
	}
	beats := 0
	r.Eventually("it is fenced", func() bool {
		a := r.callback(g, object{})
		lease := world.Into[struct {
			LeaseMS   int64     `json:"lease_ms"`
			ReleaseBy time.Time `json:"release_by"`
		}](t, a)
		if a.Status != 200 {
			return true
		}
		beats++
		if lease.ReleaseBy.IsZero() || time.Duration(lease.LeaseMS)*time.Millisecond > deadline {
			t.Errorf("%s", a.Raw)
		}
		return false
	})
	if after := time.Since(moved); beats == 0 || after < deadline-50*time.Millisecond {
		t.Errorf("%d beats in %v", beats, after)
	}
	w := r.Do(t.Context(), "POST", g.StreamPath, `{"type":"text","key":"late","value":{},"headers":{"operation":"insert"}}`, map[string]string{"electric-claim-token": g.WriteToken})
	if w.Status < 400 || w.Status >= 500 {
		t.Errorf("a late write: %v", w)
	}
	var next wake
	r.Eventually("the desktop is woken", func() bool {
		next = r.wakes("1")[0]
		return next.Epoch == 2 && next.TargetRunnerID != nil
	})
	if *next.TargetRunnerID != "desktop" {
		t.Errorf("%+v", next)
	}
	if g := r.claims("desktop", next.WakeID); g.Epoch != 2 || g.Streams[0].AckedOffset != half {
		t.Errorf("%+v, not from %s", g, half)
	}
	// With no time at all.
	r.do(200, "POST", "/_electric/entities/task/1/move", object{"dispatch_policy": policy(toRunner("laptop", nil)), "deadline_ms": 0})
	r.Eventually("the laptop is woken", func() bool {
		next = r.wakes("1")[0]
		return next.Epoch == 3 && next.TargetRunnerID != nil && *next.TargetRunnerID == "laptop"
	})
	for body, place := range map[string]string{`{"dispatch_policy":null}`: "/dispatch_policy", `{"dispatch_policy":{"targets":[{"type":"runner"}]}}`: "/dispatch_policy/targets/0/runnerId",
		`{"dispatch_policy":{"targets":[{"type":"runner","runnerId":"laptop"}]},"deadline_ms":600001}`: "/deadline_ms"} {
		if a := r.do(400, "POST", "/_electric/entities/task/1/move", body); !strings.Contains(string(a.Raw), `"`+place+`"`) {
			t.Errorf("%s: %s", body, a.Raw)
		}
	}
	r.Refused(404, "NOT_FOUND", "POST", "/_electric/entities/task/none/move", object{"dispatch_policy": policy(toRunner("laptop", nil))})
	r.Refused(404, "NOT_FOUND", "POST", "/_electric/entities/task/1/move", object{"dispatch_policy": policy(toRunner("none", nil))})
}

// A command that works a moved entity gets SIGTERM, and what it wrote before stays.
func TestACommandIsToldThatItsEntityMoves(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	r.runner("laptop")
	r.runner("desktop")
	laptop := r.run("laptop", 0, nil, command.Handler(command.Config{Command: `trap 'exit 0' TERM; echo begun; while :; do sleep 0.05 & wait $!; done`,
		Environ: []string{"PATH=" + os.Getenv("PATH")}}))
	laptop.until(runner.Connected)
	r.spawn("1", policy(toRunner("laptop", nil)))
	r.Eventually("it has begun", func() bool {
		return strings.Contains(string(r.do(200, "GET", "/task/1/main?offset=-1", nil).Raw), `"begun"`)
	})
	r.do(200, "POST", "/_electric/entities/task/1/move", object{"dispatch_policy": policy(toRunner("desktop", nil))})
	if e := laptop.until(runner.Returned); !errors.Is(e.Err, runner.ErrMoved) {
		t.Errorf("%+v", e)
	}
	if w := r.waits("1", "runner"); *w.TargetRunnerID != "desktop" {
		t.Errorf("%+v", w)
	}
}
