package exec

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/plugins/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sh is a command of one line.
func sh(line string) Command { return Command{Argv: []string{"/bin/sh", "-c", line}} }

func deliver(t *testing.T, tr *Transport, target string, limit time.Duration) contract.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return tr.Deliver(ctx, contract.Delivery{WakeID: "w1", Service: "default", Attempt: 3, Target: json.RawMessage(target), Notification: json.RawMessage(`{"epoch":7}`)})
}

func TestExitCodesAreOutcomes(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	tr, err := New(map[string]Command{
		"works":  sh(`cat > ` + out + `; echo " $ROUSE_WAKE_ID $ROUSE_SERVICE $ROUSE_ATTEMPT" >> ` + out + `; env | wc -l >> ` + out),
		"later":  sh("exit 75"),
		"fails":  sh("echo why >&2; exit 3"),
		"killed": sh("kill -9 $$"),
		"slow":   sh("sleep 600"),
	}, "/usr/bin:/bin")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]contract.Outcome{"works": contract.Done, "later": contract.Retry, "fails": contract.Permanent, "killed": contract.Unknown, "gone": contract.Retry} {
		if r := deliver(t, tr, `{"type":"exec","command":"`+name+`"}`, 20*time.Second); r.Outcome != want {
			t.Errorf("%s: %+v", name, r)
		}
	}
	raw, err := os.ReadFile(out)
	if err != nil || !strings.HasPrefix(string(raw), `{"epoch":7} w1 default 3`) {
		t.Errorf("the command saw %q, %v", raw, err)
	}
	began := time.Now()
	if r := deliver(t, tr, `{"command":"slow"}`, 200*time.Millisecond); r.Outcome != contract.Unknown || time.Since(began) > 10*time.Second {
		t.Errorf("%+v after %v", r, time.Since(began))
	}
}

// A command's children end with it, however it ends.
func TestNothingIsLeftOfACommand(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	tr, err := New(map[string]Command{"leaves": sh(`sleep 600 & echo $! >> ` + pids), "hangs": sh(`sleep 600 & echo $! >> ` + pids + `; wait`)}, "/usr/bin:/bin")
	if err != nil {
		t.Fatal(err)
	}
	_ = deliver(t, tr, `{"command":"leaves"}`, 20*time.Second)
	_ = deliver(t, tr, `{"command":"hangs"}`, 300*time.Millisecond)
	raw, err := os.ReadFile(pids)
	if err != nil || len(strings.Fields(string(raw))) != 2 {
		t.Fatalf("%q %v", raw, err)
	}
	for _, f := range strings.Fields(string(raw)) {
		pid, _ := strconv.Atoi(f)
		tick := time.NewTicker(10 * time.Millisecond)
		deadline := time.After(10 * time.Second)
		for ended := false; !ended; {
			stat, err := os.ReadFile("/proc/" + f + "/stat")
			if ended = err != nil || strings.Contains(string(stat), ") Z "); ended {
				break
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("%d still runs", pid)
			}
		}
		tick.Stop()
	}
}

func TestOnlySoManyRunAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "go")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	one := sh("cat " + fifo)
	one.Parallel = 1
	started := sh("cat " + fifo + " > " + dir + "/said")
	started.Mode = "start"
	tr, err := New(map[string]Command{"one": one, "start": started}, "/usr/bin:/bin")
	if err != nil {
		t.Fatal(err)
	}
	first := make(chan contract.Result, 1)
	go func() {
		first <- tr.Deliver(t.Context(), contract.Delivery{Target: json.RawMessage(`{"command":"one"}`), Notification: json.RawMessage(`{}`)})
	}()
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0) // opens when the command reads
	if err != nil {
		t.Fatal(err)
	}
	if r := deliver(t, tr, `{"command":"one"}`, 10*time.Second); r.Outcome != contract.Retry || r.RetryAfter != time.Second {
		t.Errorf("got %+v", r)
	}
	_ = w.Close()
	if r := <-first; r.Outcome != contract.Done {
		t.Errorf("got %+v", r)
	}
	// One that is started runs on.
	if r := deliver(t, tr, `{"command":"start"}`, 10*time.Second); r.Outcome != contract.Accepted {
		t.Errorf("got %+v", r)
	}
	if w, err = os.OpenFile(fifo, os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	_, _ = w.WriteString("it ran on")
	_ = w.Close()
	for range cap(tr.slots["start"]) {
		tr.slots["start"] <- struct{}{} // all are free once it has ended
	}
	if raw, err := os.ReadFile(dir + "/said"); err != nil || string(raw) != "it ran on" {
		t.Errorf("%q %v", raw, err)
	}
}

func TestWhatIsNotListedIsNotRun(t *testing.T) {
	t.Parallel()
	p := Plugin()
	if err := p.Configure(t.Context(), json.RawMessage(`{"commands":{"ok":{"argv":["/bin/true"]}}}`)); err != nil {
		t.Fatal(err)
	}
	if err := p.ValidateTarget(t.Context(), json.RawMessage(`{"type":"exec","command":"ok"}`)); err != nil {
		t.Error(err)
	}
	for _, target := range []string{`{}`, `{"command":"/bin/true"}`, `{"command":"ok; rm"}`, `{"command":["ok"]}`, `null`} {
		if err := p.ValidateTarget(t.Context(), json.RawMessage(target)); err == nil {
			t.Errorf("%s is accepted", target)
		}
	}
	for name, config := range map[string]string{
		"a relative program": `{"commands":{"a":{"argv":["true"]}}}`, "no program": `{"commands":{"a":{"argv":[]}}}`, "a program that is not there": `{"commands":{"a":{"argv":["/nonexistent"]}}}`,
		"a strange name": `{"commands":{"a b":{"argv":["/bin/true"]}}}`, "a strange mode": `{"commands":{"a":{"argv":["/bin/true"],"mode":"x"}}}`, "a relative folder": `{"commands":{"a":{"argv":["/bin/true"],"dir":"x"}}}`,
		"no JSON": `{`,
	} {
		if err := p.Configure(t.Context(), json.RawMessage(config)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	// A configuration that is refused changes nothing.
	if r := p.Deliver(t.Context(), contract.Delivery{Target: json.RawMessage(`{"command":"ok"}`), Notification: json.RawMessage(`{}`)}); r.Outcome != contract.Done {
		t.Errorf("got %+v", r)
	}
	if p.Close != nil {
		t.Error("its end would wait for the commands that run on")
	}
}
