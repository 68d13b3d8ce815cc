package story

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-run/rouse/openapi/runner"
	"github.com/rouse-run/rouse/openapi/runner/command"
)

// shell runs a runner with a command, and one entity that it works.
func (w *world) shell(script string, edit func(*command.Config)) chan runner.Event {
	w.t.Helper()
	cfg := command.Config{Command: script, Environ: []string{"PATH=" + os.Getenv("PATH"), "HOME=/nowhere"}, Stderr: testLog{w.t}, KillAfter: time.Second}
	if edit != nil {
		edit(&cfg)
	}
	events := w.run(func(c *runner.Config) { c.Handler = command.Handler(cfg) })
	w.spawn("1", "laptop")
	return events
}

func TestACommandsOutputIsAppended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 10*time.Second)
	state := `{"type":"step","key":"s1","value":{"n":1},"headers":{"operation":"insert"}}`
	events := w.shell(`
		read line; echo "$line" | grep -o '"payload":"[^"]*"'
		printf '\377\000 odd\r\n\n'
		echo '`+state+`'
		echo "$ROUSE_ENTITY $ROUSE_ENTITY_TYPE $ROUSE_SPAWN_ARGS $ROUSE_STREAM $ROUSE_EPOCH $ROUSE_RUNNER $ROUSE_SERVICE"
		printf 'no line end'`, nil)
	w.send("1", "hello")
	w.until(events, runner.Done)
	want := []string{`"payload":"hello"`, "�\x00 odd", `/task/1 task {"colour":"blue"} /task/1/main 1 laptop default`, "no line end"}
	if got := w.texts("1"); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	var step row
	for _, r := range w.rows("/task/1/main") {
		if r.Type == "step" {
			step = r
		}
	}
	if step.Key != "s1" || string(step.Value) != `{"n":1}` || step.Headers.Offset == "" {
		t.Errorf("%+v", step)
	}
}

// Output comes while the command runs, not when it has ended.
func TestOutputComesAsItIsPrinted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 10*time.Second)
	gate := filepath.Join(t.TempDir(), "go")
	events := w.shell(fmt.Sprintf(`echo first; while [ ! -e %s ]; do sleep 0.01; done; echo second`, gate), nil)
	w.send("1", "hello")
	w.eventually("the first line is there", func() bool { return slices.Equal(w.texts("1"), []string{"first"}) })
	if c := w.claims("1"); c[0].Status != "active" {
		t.Errorf("%+v", c)
	}
	w.ok(os.WriteFile(gate, nil, 0o600))
	w.until(events, runner.Done)
	if got := w.texts("1"); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("%q", got)
	}
}

func TestALotOfOutputKeepsItsOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 30*time.Second)
	events := w.shell(`i=0; while [ $i -lt 5000 ]; do echo "line $i"; i=$((i+1)); done; head -c 1500000 /dev/zero | tr '\0' x`, nil)
	w.send("1", "hello")
	if e := w.until(events, runner.Done); e.Err != nil {
		t.Fatal(e.Err)
	}
	var got []string
	size := 0
	for _, text := range w.texts("1") {
		if strings.HasPrefix(text, "line ") {
			got = append(got, text)
		} else {
			size += len(text)
		}
	}
	if len(got) != 5000 || size != 1500000 {
		t.Fatalf("%d lines, %d more bytes", len(got), size)
	}
	for i, text := range got {
		if text != "line "+strconv.Itoa(i) {
			t.Fatalf("line %d is %q", i, text)
		}
	}
}

func TestWhatACommandIsGiven(t *testing.T) {
	t.Parallel()
	for _, all := range []bool{false, true} {
		w := newWorld(t, 10*time.Second)
		events := w.shell(`sed 's/.*"type":"\([a-z_]*\)".*/saw \1/'`, func(c *command.Config) { c.All = all })
		w.send("1", "one")
		w.until(events, runner.Done)
		w.send("1", "two")
		w.until(events, runner.Done)
		want := []string{"saw inbox", "saw inbox"}
		if all {
			want = []string{"saw inbox", "saw text", "saw inbox"}
		}
		if got := w.texts("1"); !slices.Equal(got, want) {
			t.Errorf("all=%v: %q", all, got)
		}
	}
}

// A command that does not read has done everything all the same.
func TestACommandNeedNotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 10*time.Second)
	events := w.shell(`exec 0<&-; echo deaf`, nil)
	big := strings.Repeat("x", 200_000) // more than a pipe holds
	w.send("1", big)
	w.send("1", big)
	w.until(events, runner.Done)
	w.eventually("nothing is left", func() bool { return w.display("1") == "Waiting for input" })
}

// What a command leaves behind in its process group ends with it.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 10*time.Second)
	pid := filepath.Join(t.TempDir(), "pid")
	events := w.shell(fmt.Sprintf(`sleep 1000 & echo $! >%s; echo started`, pid), nil)
	w.send("1", "hello")
	w.until(events, runner.Done)
	raw, err := os.ReadFile(pid)
	w.ok(err)
	n, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	w.ok(err)
	w.eventually("the background process is gone", func() bool { return gone(n) })
	if got := w.texts("1"); !slices.Equal(got, []string{"started"}) {
		t.Errorf("%q", got)
	}
}

// gone says that a process runs no more; a zombie does not.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(raw), ") Z ")
}

func TestAFailedCommandIsSeenByEverybody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 10*time.Second)
	events := w.shell(`echo half; echo "no such shed" >&2; exit 7`, nil)
	w.send("1", "paint")
	if e := w.until(events, runner.Failed); !strings.Contains(e.Err.Error(), "exit status 7") {
		t.Error(e.Err)
	}
	rows := w.rows("/task/1/error")
	if len(rows) != 1 || rows[0].Type != "error" || !strings.Contains(string(rows[0].Value), "no such shed") || !strings.Contains(string(rows[0].Value), "exit status 7") {
		t.Errorf("%+v", rows)
	}
	c := w.claims("1")
	if len(c) != 1 || c[0].Status != "failed" || c[0].Error == nil || !strings.Contains(*c[0].Error, "no such shed") {
		t.Errorf("%+v", c)
	}
	if d := w.display("1"); d != "Run failed — check logs" {
		t.Errorf("display %q", d)
	}
	// Its messages count as read, so it is not run for ever.
	if got := w.texts("1"); !slices.Equal(got, []string{"half"}) {
		t.Errorf("%q", got)
	}
}

// refuser fails the requests that it is told to.
type refuser struct {
	sick atomic.Bool
	what string
}

func (r *refuser) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.sick.Load() && strings.Contains(req.URL.Path, r.what) {
		return nil, errors.New("the network is gone")
	}
	return http.DefaultTransport.RoundTrip(req)
}

// A command whose claim is lost is ended before the lease is, with its whole group; what it had not written stays
// unwritten, and the next claim works the message again.
func TestALostClaimEndsTheCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2*time.Second)
	dir := t.TempDir()
	net := &refuser{what: "/wake-callbacks/"}
	cfg := command.Config{Environ: []string{"PATH=" + os.Getenv("PATH")}, Stderr: testLog{t}, KillAfter: 200 * time.Millisecond,
		// The shell ignores SIGTERM: it must be killed.
		Command: fmt.Sprintf(`[ $ROUSE_EPOCH -gt 1 ] && { echo "again"; exit; }
			trap '' TERM; sleep 1000 & echo $! >%[1]s/child; echo $$ >%[1]s/shell; echo started
			while :; do sleep 0.05; done`, dir)}
	server := w.server("")
	server.HTTP = &http.Client{Transport: net}
	events := w.run(func(c *runner.Config) {
		c.Servers = []runner.Server{server}
		c.Handler = command.Handler(cfg)
	})
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	w.spawn("1", "laptop")
	w.send("1", "hello")
	w.eventually("it works", func() bool { return slices.Equal(w.texts("1"), []string{"started"}) })
	net.sick.Store(true)
	lost := w.until(events, runner.Lost)
	net.sick.Store(false)
	if !errors.Is(lost.Err, runner.ErrLost) {
		t.Error(lost.Err)
	}
	for _, name := range []string{"shell", "child"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		w.ok(err)
		n, err := strconv.Atoi(strings.TrimSpace(string(raw)))
		w.ok(err)
		w.eventually("the "+name+" is gone", func() bool { return gone(n) })
	}
	w.until(events, runner.Done)
	if got := w.texts("1"); !slices.Equal(got, []string{"started", "again"}) {
		t.Errorf("%q", got)
	}
}

// A runner that is told to end gives unfinished work back at once.
func TestADrainGivesWorkBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Minute)
	w.register("laptop")
	w.spawn("1", "laptop")
	w.send("1", "hello")
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	var kinds []runner.EventKind
	r, err := runner.New(runner.Config{ID: "laptop", Servers: []runner.Server{w.server("")}, Grace: 50 * time.Millisecond,
		Handler: command.Handler(command.Config{Command: "echo started; sleep 1000", Environ: []string{"PATH=" + os.Getenv("PATH")}, KillAfter: time.Second}),
		Observe: func(e runner.Event) {
			mu.Lock()
			defer mu.Unlock()
			kinds = append(kinds, e.Kind)
		}})
	w.ok(err)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	w.eventually("it works", func() bool { return len(w.texts("1")) == 1 })
	stop()
	w.ok(<-ended)
	if !slices.Contains(kinds, runner.Returned) {
		t.Errorf("%v", kinds)
	}
	if c := w.claims("1"); c[0].Status != "released" || c[0].NextWake == nil || !*c[0].NextWake || c[0].Error != nil {
		raw, _ := json.Marshal(c)
		t.Errorf("%s", raw)
	}
}
