//go:build !linux

package exec

import (
	"os"
	"os/exec"
	"syscall"
)

// withParent puts a command in a group of its own.
func withParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// endGroup ends what a command has left running.
func endGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// onItsOwn lets a command outlive this process.
func onItsOwn(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func searchPath() string { return os.Getenv("PATH") }
