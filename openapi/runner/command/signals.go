package command

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/rouse-run/rouse/openapi/runner"
)

// forwarded are the signals of an entity that reach the process which works it.
var forwarded = map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGHUP": syscall.SIGHUP}

// listenAfter is how long a command runs before its entity is listened to: most are done by then, and ask nothing of the
// gateway. What came meanwhile is there.
const listenAfter = 200 * time.Millisecond

// listen passes the entity's signals on to the command, from where its input ended, until ctx ends.
func (r *run) listen(ctx context.Context, send func(syscall.Signal) error) {
	t := time.NewTimer(listenAfter)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return
	}
	whole := true // all that came is dealt with
	_ = r.claim.Follow(ctx, func(m runner.Message) error {
		typ, name := signalOf(m.Data)
		sig, known := forwarded[name]
		switch {
		case known && send(sig) == nil:
			r.mu.Lock()
			r.signalled = append(r.signalled, sig)
			r.mu.Unlock()
		case slices.Contains(DefaultTypes(), typ):
			whole = false
		}
		if whole && m.Offset != "" {
			// The command has had it: it wakes nobody after this run.
			r.claim.Read(m.Offset)
		}
		return nil
	})
}

// signalOf is a row's type and, of a signal, its name.
func signalOf(raw json.RawMessage) (typ, name string) {
	var row struct {
		Type  string          `json:"type"`
		Value json.RawMessage `json:"value"`
	}
	if json.Unmarshal(raw, &row) != nil {
		return "", ""
	}
	if row.Type != "signal" {
		return row.Type, ""
	}
	var s struct {
		Signal string `json:"signal"`
	}
	_ = json.Unmarshal(row.Value, &s)
	return row.Type, s.Signal
}

// asTold says that the command ended by a SIGTERM which the entity got: it has stopped as it was told to.
func (r *run) asTold(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || !slices.Contains(r.signalled, syscall.SIGTERM) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && (status.Signaled() && status.Signal() == syscall.SIGTERM || status.ExitStatus() == 128+int(syscall.SIGTERM))
}
