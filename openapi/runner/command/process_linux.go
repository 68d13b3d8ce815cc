package command

import (
	"os/exec"
	"syscall"
)

// isolate gives the command a process group of its own, and has the kernel kill its shell when this process dies: whoever
// is gone can neither heartbeat nor append.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
