package story

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/laptop"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/openapi/client"
	"github.com/rouse-run/rouse/openapi/runner"
	"github.com/rouse-run/rouse/openapi/runner/call"
)

// The story: the phone sends, the laptop works. The laptop is killed in the middle of the second message, and a second
// process goes on where it was, with a higher epoch.
func TestTheLaptopDiesAndAnotherProcessGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1500*time.Millisecond)
	w.register("laptop")
	w.spawn("1", "laptop")
	dir := t.TempDir()
	hold := filepath.Join(dir, "hold")
	// Three steps. What an earlier run of the same message has done already is in the stream and is not done again.
	script := fmt.Sprintf(`
		in=$(cat)
		text=$(printf '%%s\n' "$in" | grep '"type":"inbox"' | tail -n 1 | sed 's/.*"payload":"\([^"]*\)".*/\1/')
		for step in 1 2 3; do
			case "$in" in *"\"text\":\"$text $step"*) continue;; esac
			echo "$text $step by epoch $ROUSE_EPOCH"
			while [ $step = 2 ] && [ -e %s ]; do sleep 0.01; done
		done`, hold)
	spec := laptop.Spec{Server: w.gw.URL, ID: "laptop", Cursors: filepath.Join(dir, "cursors"), Command: script, All: true}
	first := laptop.Start(t, spec)

	w.send("1", "sing")
	w.eventually("the first message is worked", func() bool { return len(w.claims("1")) == 1 && w.claims("1")[0].Status == "released" })
	if got := w.texts("1"); !slices.Equal(got, []string{"sing 1 by epoch 1", "sing 2 by epoch 1", "sing 3 by epoch 1"}) {
		t.Fatalf("%v", got)
	}

	if err := os.WriteFile(hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.send("1", "dance")
	w.eventually("two steps are done", func() bool { return len(w.texts("1")) == 5 })
	if err := first.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	killed := time.Now()
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	laptop.Start(t, spec)
	w.eventually("the second process has finished", func() bool {
		c := w.claims("1")
		return len(c) == 3 && c[0].Status == "released"
	})
	t.Logf("killed → finished by another process in %v (lease 1.5 s)", time.Since(killed).Round(time.Millisecond))
	if got := w.texts("1")[3:]; !slices.Equal(got, []string{"dance 1 by epoch 2", "dance 2 by epoch 2", "dance 3 by epoch 3"}) {
		t.Fatalf("%v", got)
	}
	var states []string
	for _, c := range w.claims("1") {
		states = append(states, fmt.Sprintf("%d %s", c.Epoch, c.Status))
	}
	if !slices.Equal(states, []string{"3 released", "2 expired", "1 released"}) {
		t.Errorf("%v", states)
	}
	if d := w.display("1"); d != "Waiting for input" {
		t.Errorf("display %q", d)
	}
}

func TestOneRunnerServesSeveralServersAndServices(t *testing.T) {
	t.Parallel()
	one, two := newWorld(t, 5*time.Second), newWorld(t, 5*time.Second)
	system := runner.Server{URL: two.gw.URL}
	admin, err := system.Client()
	two.ok(err)
	resp, err := admin.CreateService(t.Context(), client.CreateServiceJSONRequestBody{Name: "other"})
	two.ok(call.Decode(resp, err, nil))
	other := &world{t: t, gw: two.gw}
	other.phone, err = two.server("other").Client()
	two.ok(err)
	resp, err = other.phone.PutEntityType(t.Context(), nil, client.EntityTypePut{Name: "task", Description: ptr("x")})
	two.ok(call.Decode(resp, err, nil))

	dir := runner.CursorDir(t.TempDir())
	servers := []runner.Server{one.server(""), two.server(""), two.server("other")}
	events := one.run(func(c *runner.Config) {
		c.Servers, c.Cursors = servers, dir
		c.Handler = func(ctx context.Context, cl *runner.Claim) error {
			return cl.Append(ctx, map[string]any{"headers": map[string]any{"operation": "insert"}, "type": "text", "key": "k",
				"value": map[string]any{"text": cl.Server + " " + cl.Service}})
		}
	})
	one.until(events, runner.Connected)
	one.until(events, runner.Connected)
	for _, w := range []*world{one, two, other} {
		w.spawn("1", "laptop")
		w.send("1", "hello")
		if e := w.until(events, runner.Done); e.Entity != "/task/1" {
			t.Errorf("%+v", e)
		}
	}
	for i, w := range []*world{one, two, other} {
		service := servers[i].Service
		if service == "" {
			service = "default"
		}
		if got := w.texts("1"); !slices.Equal(got, []string{w.gw.URL + " " + service}) {
			t.Errorf("%v", got)
		}
	}
	one.eventually("each has a cursor of its own", func() bool {
		files, _ := filepath.Glob(filepath.Join(string(dir), "laptop-*.json"))
		return len(files) == 3
	})
}

// An RFC-style runner claims by the callback, with the token of the entry that it was served.
func TestClaimsByTheCallback(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5*time.Second)
	events := w.run(func(c *runner.Config) {
		c.Style = runner.Callback
		c.Handler = func(ctx context.Context, cl *runner.Claim) error {
			for m, err := range cl.Unread(ctx) {
				if err != nil {
					return err
				}
				if err := cl.Ack(ctx, m.Offset); err != nil {
					return err
				}
			}
			return cl.Append(ctx, map[string]any{"headers": map[string]any{"operation": "insert"}, "type": "text", "key": "k", "value": map[string]any{"text": "done"}})
		}
	})
	w.spawn("1", "laptop")
	w.send("1", "hello")
	w.until(events, runner.Done)
	if got := w.texts("1"); !slices.Equal(got, []string{"done"}) {
		t.Errorf("%v", got)
	}
	if c := w.claims("1"); len(c) != 1 || c[0].Status != "released" {
		t.Errorf("%+v", c)
	}
}

// What a handler writes is no work for it, what others send while it works is.
func TestMessagesDuringARunComeAfterwards(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5*time.Second)
	in, out := make(chan struct{}), make(chan struct{})
	var seen [][]string
	events := w.run(func(c *runner.Config) {
		c.Handler = func(ctx context.Context, cl *runner.Claim) error {
			var got []string
			for m, err := range cl.Unread(ctx) {
				if err != nil {
					return err
				}
				var r row
				if err := json.Unmarshal(m.Data, &r); err != nil {
					return err
				}
				if r.Headers.Offset != m.Offset || m.Offset == "" {
					t.Errorf("%s is stamped %q, the message says %q", r.Key, r.Headers.Offset, m.Offset)
				}
				got = append(got, r.Type)
			}
			seen = append(seen, got)
			if cl.Epoch() == 1 {
				close(in)
				<-out
			}
			return cl.Append(ctx, map[string]any{"headers": map[string]any{"operation": "insert"}, "type": "text", "key": fmt.Sprint(cl.Epoch()), "value": map[string]any{"text": "x"}})
		}
	})
	w.spawn("1", "laptop")
	w.send("1", "one")
	w.send("1", "two")
	<-in
	w.send("1", "three")
	close(out)
	w.until(events, runner.Done)
	w.until(events, runner.Done)
	total := strings.Count(fmt.Sprint(seen), "inbox")
	if total != 3 || len(seen) != 2 || w.claims("1")[0].Status != "released" {
		t.Errorf("%v", seen)
	}
	w.eventually("nothing is left", func() bool { return w.display("1") == "Waiting for input" })
}

// B5's way in small: from the send to the claim, over HTTP. Stated, not asserted.
func TestLatencyFromSendToClaim(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5*time.Second)
	claimed := make(chan time.Time, 1)
	events := w.run(func(c *runner.Config) {
		c.Handler = func(context.Context, *runner.Claim) error { claimed <- time.Now(); return nil }
	})
	w.spawn("1", "laptop")
	var took, tail []time.Duration
	for i := range 50 {
		sent := time.Now()
		w.send("1", fmt.Sprint(i))
		took = append(took, (<-claimed).Sub(sent))
		tail = append(tail, w.until(events, runner.Claimed).Took)
		w.until(events, runner.Done)
	}
	slices.Sort(took)
	slices.Sort(tail)
	t.Logf("send → handler: p50 %v, p90 %v, max %v; wake read → claimed: p50 %v, p90 %v", took[25], took[45], took[49], tail[25], tail[45])
	if took[25] > 2*time.Second {
		t.Errorf("half of the wakes took more than %v: nobody is woken by the log", took[25])
	}
}

// A gateway that drains sends its runners away; they find the next one at the same address and lose nothing.
func TestARunnerOutlivesItsGateway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 10*time.Second)
	events := w.run(func(c *runner.Config) { c.Handler = func(context.Context, *runner.Claim) error { return nil } })
	w.spawn("1", "laptop")
	w.send("1", "before")
	w.until(events, runner.Done)

	address := strings.TrimPrefix(w.gw.URL, "http://")
	w.ok(w.gw.Drain(t.Context()))
	w.until(events, runner.Disconnected)
	next := servertest.Start(t, servertest.Options{DB: w.gw.DB, Configure: func(c *config.Config) { c.Listen = address }})
	up := time.Now()
	w.gw = next
	w.send("1", "after")
	w.until(events, runner.Done)
	t.Logf("worked %v after the next gateway was ready", time.Since(up).Round(time.Millisecond))
	if c := w.claims("1"); len(c) != 2 || c[0].Status != "released" {
		t.Errorf("%+v", c)
	}
}
