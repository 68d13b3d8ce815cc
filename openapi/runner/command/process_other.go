//go:build unix && !linux

package command

import (
	"os/exec"
	"syscall"
)

// isolate gives the command a process group of its own. A command whose runner dies ends when it next writes.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
