package cli

import (
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// A command of a runner that was started with nohup traps SIGHUP like any other.
// Not parallel: what is ignored is the whole process'.
func TestCommandsHearHangupsUnderNohup(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	t.Cleanup(func() { signal.Reset(syscall.SIGHUP) })
	command := func() string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "sh", "-c", `trap 'echo heard' HUP; kill -HUP $$; echo end`).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(out)), " ")
	}
	if got := command(); got != "end" {
		t.Fatalf("SIGHUP is not ignored here: %q", got)
	}
	restore := hearHangups()
	if got := command(); got != "heard end" {
		t.Errorf("%q", got)
	}
	restore()
	if !signal.Ignored(syscall.SIGHUP) {
		t.Error("SIGHUP would end the process from now on")
	}
}
