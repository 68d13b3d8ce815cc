package story

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/openapi/client"
	"github.com/rouse-run/rouse/openapi/runner"
	"github.com/rouse-run/rouse/openapi/runner/call"
)

func (w *world) signal(id string, s client.SignalRequestSignal) client.SignalResult {
	w.t.Helper()
	var out client.SignalResult
	resp, err := w.phone.SignalEntity(w.t.Context(), "task", id, nil, client.SignalRequest{Signal: s})
	w.ok(call.Decode(resp, err, &out))
	return out
}

func (w *world) status(id string) client.EntityStatus {
	w.t.Helper()
	var e client.Entity
	resp, err := w.phone.GetEntity(w.t.Context(), "task", id, nil)
	w.ok(call.Decode(resp, err, &e))
	return e.Status
}

// says waits until the entity's stream says something.
func (w *world) says(id, text string) {
	w.t.Helper()
	w.eventually("the entity says "+text, func() bool { return slices.Contains(w.texts(id), text) })
}

// R35, the recipe of docs/runners.md: an entity's SIGHUP has the command that works it read its settings again, while it
// works.
func TestAHangUpReloadsACommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 10*time.Second)
	settings := filepath.Join(t.TempDir(), "model")
	if err := os.WriteFile(settings, []byte("small"), 0o600); err != nil {
		t.Fatal(err)
	}
	events := w.shell(`
		load() { model=$(cat '`+settings+`'); echo "model $model"; }
		trap load HUP
		load
		until [ "$model" = large ]; do sleep 0.05 & wait $!; done
		echo finished`, nil)
	w.send("1", "hello")
	w.until(events, runner.Claimed)
	w.says("1", "model small")
	if err := os.WriteFile(settings, []byte("large"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := w.signal("1", client.SIGHUP); s.NewState != s.PreviousState {
		t.Errorf("%+v", s)
	}
	e := w.until(events, runner.Done)
	if e.Epoch != 1 || !slices.Equal(w.texts("1"), []string{"model small", "model large", "finished"}) {
		t.Errorf("%+v %q", e, w.texts("1"))
	}
	// The command has had the signal: it wakes nobody once more. Work that comes is the next wake's.
	w.send("1", "and again")
	if e := w.until(events, runner.Done); e.Epoch != 2 {
		t.Errorf("%+v", e)
	}
}

// A message that came before the signal, while the command ran, is not lost with it.
func TestASignalTakesNoMessageAlong(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 10*time.Second)
	events := w.shell(`
		while read line; do echo "$line" | grep -o '"payload":"[^"]*"'; done
		[ "$ROUSE_EPOCH" -gt 1 ] && exit
		trap 'echo hung up; exit 0' HUP
		echo waiting
		while :; do sleep 0.05 & wait $!; done`, nil)
	w.send("1", "first")
	w.says("1", "waiting")
	w.send("1", "second")
	w.signal("1", client.SIGHUP)
	if e := w.until(events, runner.Done); e.Epoch != 1 {
		t.Errorf("%+v", e)
	}
	if e := w.until(events, runner.Done); e.Epoch != 2 {
		t.Errorf("%+v", e)
	}
	if got := w.texts("1"); !slices.Equal(got, []string{`"payload":"first"`, "waiting", "hung up", `"payload":"second"`}) {
		t.Errorf("%q", got)
	}
}

// SIGTERM ends the command and then the entity; a command that ends by it has not failed.
func TestATermStopsACommandAndItsEntity(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"by default": `echo working; while :; do sleep 0.05; done`,
		"tidily":     `trap 'echo tidied up; exit 0' TERM; echo working; while :; do sleep 0.05 & wait $!; done`,
	} {
		w := newWorld(t, 10*time.Second)
		events := w.shell(script, nil)
		w.send("1", "hello")
		w.says("1", "working")
		if s := w.signal("1", client.SIGTERM); s.NewState != "stopping" {
			t.Errorf("%s: %+v", name, s)
		}
		w.until(events, runner.Done)
		w.eventually("it has stopped", func() bool { return w.status("1") == client.EntityStatusStopped })
		if name == "tidily" && !strings.HasSuffix(strings.Join(w.texts("1"), " "), "tidied up") {
			t.Errorf("%q", w.texts("1"))
		}
		resp, err := w.phone.SendToEntity(t.Context(), "task", "1", nil, client.SendRequest{Payload: []byte(`1`)})
		if call.Status(call.Decode(resp, err, nil)) != http.StatusConflict {
			t.Errorf("%s: a stopped entity takes messages", name)
		}
	}
}
