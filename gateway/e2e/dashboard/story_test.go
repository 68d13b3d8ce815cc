package dashboard

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/laptop"
)

// The story, watched: the phone sends, the laptop works, the laptop is killed in
// the middle, its work waits for it and falls back to a pool, whose machine
// finishes. Nobody reloads the page.
func TestTheStoryIsWatchedLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *config.Config) { c.LeaseTTL = 2 * time.Second })
	w.entityType("chat")
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	script := fmt.Sprintf(`
		text=$(grep '"type":"inbox"' | tail -n 1 | sed 's/.*"payload":"\([^"]*\)".*/\1/')
		echo "$text: begun by $ROUSE_RUNNER"
		while [ -e %s ]; do sleep 0.02; done
		echo "$text: finished by $ROUSE_RUNNER"`, gate)
	hold := func() {
		t.Helper()
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mac := laptop.Start(t, laptop.Spec{Server: w.gw.URL, ID: "mac", Label: "Kyle's MacBook", Command: script, Liveness: 700 * time.Millisecond})
	w.online("mac")

	w.runner("studio", "Studio", true)
	w.pool("machines", "Machines", object{}, "studio")

	d := open(t, w.gw.URL, "", desk, kyle)
	d.sees("No entities yet.")
	w.spawn("/chat/trip", object{"dispatch_policy": object{"targets": []any{
		object{"type": "runner", "runnerId": "mac", "when": object{"unclaimedAfterMs": 3000}}, toPool("machines")}}})
	d.sees("/chat/trip", "Waiting for input")
	d.click(`//a[contains(@class, "entity")]`)
	d.sees("Created")

	hold()
	w.send("/chat/trip", "find a train to Vienna")
	d.sees("Running on Kyle's MacBook", "find a train to Vienna: begun by mac", "lease")
	d.picture("running")
	if err := os.Remove(gate); err != nil {
		t.Fatal(err)
	}
	d.sees("find a train to Vienna: finished by mac", "Waiting for input", "released")
	d.picture("done")

	hold()
	w.send("/chat/trip", "and a hotel")
	d.sees("and a hotel: begun by mac", "Running on Kyle's MacBook")
	if err := mac.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = mac.Wait()
	d.sees("Waiting for runner...", "expired")
	d.picture("laptop killed")
	d.sees("superseded")
	h := w.claim("studio")
	d.sees("Running on Studio")
	h.append(row("text", "studio", "insert", object{"text": "and a hotel: finished by studio"}))
	d.sees("and a hotel: finished by studio")
	d.picture("fallen back")
	h.done()
	d.sees("Waiting for input")
	d.picture("finished by the pool")
}

// online waits until a runner is there and has said so.
func (w *world) online(id string) {
	w.t.Helper()
	deadline := time.Now().Add(bound)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		status, raw := w.try("GET", "/_electric/runners/"+id, nil)
		if status == 200 && contains(raw, `"liveness":"online"`) {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s is not online: %d %s", id, status, raw)
		}
		<-tick.C
	}
}
