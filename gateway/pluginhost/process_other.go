//go:build !linux

package pluginhost

import (
	"os/exec"
	"syscall"
)

// childAttributes gives a child a process group of its own. That it dies with
// the host is up to the SDK's look at its parent here.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// awaitExit waits for the end of the child.
func awaitExit(cmd *exec.Cmd) (waited bool, err error) { return true, cmd.Wait() }

func (limits) apply(int) {}

func resident(int) int64 { return 0 }

func running(pid int) bool { return syscall.Kill(pid, 0) != syscall.ESRCH }

func ended(pid int) bool { return !running(pid) }
