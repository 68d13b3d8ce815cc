package cli

import (
	"os/exec"
	"syscall"
)

// attach gives a process of the story a group of its own, so that Ctrl-C reaches the demo first and it ends them in
// order. Should the demo die without having done so, the kernel tells them to end.
func attach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
