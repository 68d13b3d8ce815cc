// Package exec carries wakes to commands of the machine it runs on: for
// continuous integration, for what a crontab does, for scripts.
//
// It promises that only commands are run that the configuration lists, with
// exactly the arguments that it lists: a target names one and adds nothing. A
// command whose end was not seen is not run again by itself. It gives the
// notification to the command's standard input and to nobody else.
package exec

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/rouse-run/rouse/plugins/contract"
	"github.com/rouse-run/rouse/plugins/sdk"
)

// Exit codes of a command that mean something: the others but 0 are failures
// that stay as they are until a person says otherwise.
const exitRetry = 75 // EX_TEMPFAIL of sysexits.h

const (
	defaultParallel = 4
	// keptOutput is what is logged of a failed command's standard error.
	keptOutput = 500
)

// Command is an entry of the configuration.
type Command struct {
	// Argv is the program, absolute, and its arguments.
	Argv []string `json:"argv"`
	// Dir is where it runs; empty means /.
	Dir string `json:"dir"`
	// Env is its environment, beside ROUSE_WAKE_ID, ROUSE_SERVICE and
	// ROUSE_ATTEMPT; nothing is inherited but PATH.
	Env map[string]string `json:"env"`
	// Mode is wait (the default): exit code 0 means that the work is done. start:
	// the command runs on by itself, claims the work by the callback in its
	// notification, and is not waited for.
	Mode string `json:"mode"`
	// Parallel is how many may run at once; zero means 4.
	Parallel int `json:"parallel"`
}

// Transport runs commands.
type Transport struct {
	commands map[string]Command
	slots    map[string]chan struct{}
	path     string
}

const schema = `{"type":"object","required":["command"],"properties":{"type":{"type":"string"},` +
	`"command":{"type":"string","minLength":1,"description":"The name of a command of the transport's configuration."},"subscription_id":{"type":"string"}},` +
	`"additionalProperties":false}`

const configSchema = `{"type":"object","required":["commands"],"additionalProperties":false,"properties":{"commands":{"type":"object","additionalProperties":{` +
	`"type":"object","required":["argv"],"additionalProperties":false,"properties":{` +
	`"argv":{"type":"array","minItems":1,"items":{"type":"string"}},"dir":{"type":"string"},` +
	`"env":{"type":"object","additionalProperties":{"type":"string"}},"mode":{"enum":["wait","start"]},"parallel":{"type":"integer","minimum":1,"maximum":256}}}}}}`

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// New makes a transport of some commands. path is the PATH that they get.
func New(commands map[string]Command, path string) (*Transport, error) {
	t := &Transport{commands: map[string]Command{}, slots: map[string]chan struct{}{}, path: path}
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		c := commands[name]
		switch {
		case !nameForm.MatchString(name):
			return nil, errors.New("a command's name is of letters, digits, dots, dashes and underscores")
		case len(c.Argv) == 0 || !filepath.IsAbs(c.Argv[0]):
			return nil, fmt.Errorf("command %s: its program has no absolute path", name)
		case c.Dir != "" && !filepath.IsAbs(c.Dir):
			return nil, fmt.Errorf("command %s: its folder has no absolute path", name)
		case c.Mode != "" && c.Mode != "wait" && c.Mode != "start":
			return nil, fmt.Errorf("command %s: its mode is neither wait nor start", name)
		}
		if _, err := exec.LookPath(c.Argv[0]); err != nil {
			return nil, fmt.Errorf("command %s: its program cannot be executed", name)
		}
		if c.Parallel <= 0 {
			c.Parallel = defaultParallel
		}
		t.commands[name], t.slots[name] = c, make(chan struct{}, c.Parallel)
	}
	return t, nil
}

// Plugin is the transport as a plugin.
func Plugin() sdk.Transport {
	t, _ := New(nil, "") // without commands nothing is refused
	return sdk.Transport{
		Type: "exec", Version: "v1", AtMostOnce: true, TargetSchema: json.RawMessage(schema), ConfigSchema: json.RawMessage(configSchema),
		Configure: func(_ context.Context, raw json.RawMessage) error {
			var c struct {
				Commands map[string]Command `json:"commands"`
			}
			if err := json.Unmarshal(raw, &c); err != nil {
				return errors.New("the settings cannot be read")
			}
			made, err := New(c.Commands, searchPath())
			if err == nil {
				t = made
			}
			return err
		},
		ValidateTarget: func(_ context.Context, target json.RawMessage) error { return t.validate(target) },
		Deliver:        func(ctx context.Context, d contract.Delivery) contract.Result { return t.Deliver(ctx, d) },
	}
}

func (t *Transport) command(target json.RawMessage) (name string, c Command, err error) {
	var x struct {
		Command string `json:"command"`
	}
	if json.Unmarshal(target, &x) != nil || x.Command == "" {
		return "", c, errors.New("an exec target names a command")
	}
	c, ok := t.commands[x.Command]
	if !ok {
		return "", c, errors.New("there is no such command in the transport's configuration")
	}
	return x.Command, c, nil
}

func (t *Transport) validate(target json.RawMessage) error {
	_, _, err := t.command(target)
	return err
}

// Deliver runs a command.
func (t *Transport) Deliver(ctx context.Context, d contract.Delivery) contract.Result {
	name, c, err := t.command(d.Target)
	if err != nil {
		// The configuration may have it again.
		return contract.Result{Outcome: contract.Retry, RetryAfter: time.Minute, Error: err.Error()}
	}
	slots := t.slots[name]
	select {
	case slots <- struct{}{}:
	default:
		return contract.Result{Outcome: contract.Retry, RetryAfter: time.Second, Error: "as many as may are running"}
	}
	if c.Mode == "start" {
		return t.start(name, c, d, func() { <-slots })
	}
	defer func() { <-slots }()
	// The kernel's parent-death signal follows the thread that started a child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	t.prepare(cmd, c, d)
	withParent(cmd)
	said := &tail{}
	cmd.Stderr = said
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return contract.Result{Outcome: contract.Retry, Error: "the command cannot be started"}
	}
	err = cmd.Wait()
	endGroup(cmd)
	if ctx.Err() != nil {
		// It was cut off in the middle of what it did.
		return contract.Result{Outcome: contract.Unknown, Error: "the command took too long and was ended"}
	}
	code := cmd.ProcessState.ExitCode()
	if err == nil || code == 0 {
		return contract.Result{Outcome: contract.Done}
	}
	sdk.Logger().Warn("command failed", "command", name, "wake_id", d.WakeID, "exit_code", code, "stderr", said.String())
	switch {
	case code == exitRetry:
		return contract.Result{Outcome: contract.Retry, StatusCode: code, Error: "the command asks to be run again (exit code 75)"}
	case code < 0:
		return contract.Result{Outcome: contract.Unknown, Error: "the command was ended by a signal"}
	}
	return contract.Result{Outcome: contract.Permanent, StatusCode: code, Error: fmt.Sprintf("the command failed with exit code %d", code)}
}

// start leaves a command to itself.
func (t *Transport) start(name string, c Command, d contract.Delivery, release func()) contract.Result {
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	t.prepare(cmd, c, d)
	onItsOwn(cmd)
	if err := cmd.Start(); err != nil {
		release()
		return contract.Result{Outcome: contract.Retry, Error: "the command cannot be started"}
	}
	// It outlives the transport, which nothing must keep from ending: this process
	// waits for it only to count it and to leave no zombie.
	go func() {
		defer release()
		if err := cmd.Wait(); err != nil {
			sdk.Logger().Warn("command failed", "command", name, "wake_id", d.WakeID, "exit_code", cmd.ProcessState.ExitCode())
		}
	}()
	return contract.Result{Outcome: contract.Accepted}
}

func (t *Transport) prepare(cmd *exec.Cmd, c Command, d contract.Delivery) {
	cmd.Dir = "/"
	if c.Dir != "" {
		cmd.Dir = c.Dir
	}
	env := map[string]string{"PATH": t.path}
	maps.Copy(env, c.Env)
	env["ROUSE_WAKE_ID"], env["ROUSE_SERVICE"], env["ROUSE_ATTEMPT"] = d.WakeID, d.Service, fmt.Sprint(d.Attempt)
	cmd.Env = []string{}
	for _, k := range slices.Sorted(maps.Keys(env)) {
		cmd.Env = append(cmd.Env, k+"="+env[k])
	}
	cmd.Stdin = bytes.NewReader(d.Notification)
}

// tail keeps the end of what is written to it.
type tail struct{ buf []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - keptOutput; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.buf) }
