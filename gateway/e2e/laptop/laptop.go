// Package laptop has runners in processes of their own, which a test can kill as a laptop dies. They are the test's own
// binary. It promises that none outlives its test. It is for tests only.
package laptop

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/rouse-run/rouse/openapi/runner"
	"github.com/rouse-run/rouse/openapi/runner/command"
)

// environ names the variable that makes a test binary a runner.
const environ = "ROUSE_TEST_LAPTOP"

// Spec is what a runner process is told.
type Spec struct {
	Server, ID string
	Label      string // registers the runner first, if not empty
	Cursors    string // the folder of its cursors; none if empty
	Command    string
	All        bool          // one run for all that is unread
	Liveness   time.Duration // zero: the default
}

// Serve is the first call of a TestMain: it does not return if this process is a laptop.
func Serve() {
	raw := os.Getenv(environ)
	if raw == "" {
		return
	}
	fmt.Fprintln(os.Stderr, run(raw))
	os.Exit(1)
}

func run(raw string) error {
	var spec Spec
	if err := json.Unmarshal([]byte(raw), &spec); err != nil {
		return err
	}
	cfg := runner.Config{
		ID: spec.ID, Servers: []runner.Server{{URL: spec.Server, Principal: "user:kyle"}}, Liveness: spec.Liveness,
		Handler: command.Handler(command.Config{Command: spec.Command, All: spec.All, Environ: []string{"PATH=" + os.Getenv("PATH")}, Stderr: os.Stderr}),
		Log:     slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if spec.Label != "" {
		cfg.Register = &runner.Registration{Label: spec.Label}
	}
	if spec.Cursors != "" {
		cfg.Cursors = runner.CursorDir(spec.Cursors)
	}
	r, err := runner.New(cfg)
	if err != nil {
		return err
	}
	return r.Run(context.Background())
}

// Start starts a runner process. It dies with the test at the latest.
func Start(t *testing.T, spec Spec) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), environ+"="+string(raw))
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}
