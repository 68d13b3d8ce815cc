// Package command owns a handler that runs a shell command for each wake: unread messages go in as JSON lines, what it
// prints is appended to the entity's stream as it comes, and the SIGTERM and SIGHUP that the entity gets meanwhile reach
// its process group.
//
// It promises that the command and what it started in its process group are killed when the claim is lost, that its
// output lands in order and once, and that a run whose command fails is recorded as failed with the end of its standard
// error. It must not know how a wake is claimed.
package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rouse-run/rouse/openapi/runner"
)

// Config of a [Handler].
type Config struct {
	// Command is run by sh -c.
	Command string
	// Dir is where it runs; empty = here.
	Dir string
	// Environ is the environment it gets, KEY=value, besides the ROUSE_ variables that name the work. Nil = none.
	Environ []string
	// Types are the types of State Protocol messages it is given; a value that is none is always given. Nil = those
	// that come from outside: inbox, signal, wake. All gives it every message, its own of earlier runs too.
	Types []string
	All   bool
	// Stderr takes what it writes there, line by line. Nil = nowhere.
	Stderr io.Writer
	// KillAfter is how long it may take to end when it is told to (SIGTERM) before it is killed. Zero = 3 s.
	KillAfter time.Duration
}

// maxTail is how much of the end of standard error a failure carries, in bytes.
const maxTail = 4 << 10

// DefaultTypes are the types of messages that others write into an entity's stream.
func DefaultTypes() []string { return []string{"inbox", "signal", "wake"} }

// Handler runs the command for each claim.
func Handler(cfg Config) runner.Handler {
	if cfg.Types == nil {
		cfg.Types = DefaultTypes()
	}
	if cfg.KillAfter <= 0 {
		cfg.KillAfter = 3 * time.Second
	}
	if cfg.Stderr == nil {
		cfg.Stderr = io.Discard
	}
	return func(ctx context.Context, c *runner.Claim) error {
		r := &run{cfg: cfg, claim: c}
		return r.do(ctx)
	}
}

type run struct {
	cfg   Config
	claim *runner.Claim
	rows  int64

	mu        sync.Mutex
	signalled []syscall.Signal // passed on to the command
}

func (r *run) do(ctx context.Context) error {
	// The signal that ends the command with its parent follows the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	cmd := exec.CommandContext(ctx, "sh", "-c", r.cfg.Command)
	cmd.Dir, cmd.Env = r.cfg.Dir, append(slices.Clone(r.cfg.Environ), r.environ()...)
	isolate(cmd)
	cmd.Cancel = func() error { return terminate(cmd) }
	cmd.WaitDelay = r.cfg.KillAfter
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, outWriter := io.Pipe()
	cmd.Stdout = outWriter
	errTail := &tailWriter{to: r.cfg.Stderr}
	cmd.Stderr = errTail
	if err := cmd.Start(); err != nil {
		_ = stdin.Close()
		return fmt.Errorf("the command does not start: %w", err)
	}
	defer kill(cmd) // what is left of its process group

	var pipes sync.WaitGroup
	var fed, wrote error
	over, ended := context.WithCancel(ctx)
	defer ended()
	pipes.Go(func() {
		if fed = r.feed(ctx, stdin); fed != nil {
			stop(fed)
			return
		}
		r.listen(over, func(s syscall.Signal) error { return send(cmd, s) })
	})
	pipes.Go(func() {
		if wrote = r.copyOut(ctx, out); wrote != nil {
			stop(wrote)
			_ = out.CloseWithError(wrote)
		}
	})
	err = cmd.Wait()
	ended()
	_ = outWriter.Close()
	_ = stdin.Close()
	pipes.Wait()
	errTail.flush()

	switch {
	case fed != nil:
		return fed
	case wrote != nil:
		return wrote
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay):
		// The shell has ended well and left something behind that holds its output open. The run is over all the same.
		return nil
	case err != nil && !r.asTold(err):
		return failure(err, errTail.tail())
	}
	return nil
}

// failure is what the error stream says of a command that failed.
func failure(err error, stderr string) error {
	text := err.Error()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		text = "the command ended with " + exit.String()
	}
	if stderr != "" {
		text += "\n" + stderr
	}
	return errors.New(text)
}

// environ names the work.
func (r *run) environ() []string {
	n := r.claim.Notification
	vars := map[string]string{
		"ROUSE_ENTITY": r.claim.Entity(), "ROUSE_STREAM": n.StreamPath, "ROUSE_WAKE_ID": n.WakeID,
		"ROUSE_EPOCH": strconv.FormatInt(r.claim.Epoch(), 10), "ROUSE_SERVER": r.claim.Server,
		"ROUSE_SERVICE": r.claim.Service, "ROUSE_RUNNER": r.claim.Runner,
	}
	if e := n.Entity; e != nil {
		vars["ROUSE_ENTITY_TYPE"], vars["ROUSE_SPAWN_ARGS"] = e.Type, string(e.SpawnArgs)
	}
	out := make([]string, 0, len(vars))
	for _, k := range slices.Sorted(maps.Keys(vars)) {
		// An environment cannot carry a NUL; JSON text has none, paths are refused with one.
		out = append(out, k+"="+strings.ReplaceAll(vars[k], "\x00", ""))
	}
	return out
}

// feed writes what is unread to the command. A command that does not read it is not wrong.
func (r *run) feed(ctx context.Context, stdin io.WriteCloser) error {
	defer func() { _ = stdin.Close() }()
	deaf := false
	for m, err := range r.claim.Unread(ctx) {
		if err != nil {
			return err
		}
		if deaf || !r.wanted(m.Data) {
			continue
		}
		var line bytes.Buffer
		if err := json.Compact(&line, m.Data); err != nil {
			return err
		}
		line.WriteByte('\n')
		if _, err := stdin.Write(line.Bytes()); err != nil {
			deaf = true
		}
	}
	return nil
}

func (r *run) wanted(m json.RawMessage) bool {
	if r.cfg.All {
		return true
	}
	var s struct {
		Type    string          `json:"type"`
		Headers json.RawMessage `json:"headers"`
	}
	if json.Unmarshal(m, &s) != nil || len(s.Headers) == 0 {
		return true
	}
	return slices.Contains(r.cfg.Types, s.Type)
}

// tailWriter passes whole lines on and keeps the end.
type tailWriter struct {
	mu   sync.Mutex
	to   io.Writer
	line []byte
	end  []byte
}

func (w *tailWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end = append(w.end, p...)
	if len(w.end) > 2*maxTail {
		w.end = append(w.end[:0], w.end[len(w.end)-maxTail:]...)
	}
	w.line = append(w.line, p...)
	if i := bytes.LastIndexByte(w.line, '\n'); i >= 0 || len(w.line) > maxLine {
		if i < 0 {
			i = len(w.line) - 1
		}
		_, _ = w.to.Write(w.line[:i+1])
		w.line = append(w.line[:0], w.line[i+1:]...)
	}
	return len(p), nil
}

func (w *tailWriter) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.line) > 0 {
		_, _ = w.to.Write(append(w.line, '\n'))
		w.line = nil
	}
}

func (w *tailWriter) tail() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	end := w.end
	if len(end) > maxTail {
		end = end[len(end)-maxTail:]
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(end), "�"))
}
