//go:build unix && !linux

package cli

import (
	"os/exec"
	"syscall"
)

// attach gives a process of the story a group of its own, so that Ctrl-C reaches the demo first and it ends them in
// order.
func attach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
