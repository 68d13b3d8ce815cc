package pluginhost

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttributes gives a child a process group of its own and lets it die with
// the host.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// awaitExit returns when the child has ended, without taking it away: until then
// nobody else can get its number.
func awaitExit(cmd *exec.Cmd) (waited bool, err error) {
	for unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	return false, nil
}

// apply limits a child that runs; a limit that cannot be had is not worth an
// outage.
func (l limits) apply(pid int) {
	_ = unix.Prlimit(pid, unix.RLIMIT_CORE, &unix.Rlimit{}, nil)
	if l.files > 0 {
		_ = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: l.files, Max: l.files}, nil)
	}
}

// resident is the memory of a process in bytes, 0 if it is not known.
func resident(pid int) int64 {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(raw)
	if len(fields) < 3 {
		return 0
	}
	rss, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	shared, _ := strconv.ParseInt(string(fields[2]), 10, 64)
	// The program itself is shared with its sealed copy.
	return (rss - shared) * int64(os.Getpagesize())
}

// running says whether there is a process of a number, be it a zombie.
func running(pid int) bool { return syscall.Kill(pid, 0) != syscall.ESRCH }

// ended says whether a process is no more, or is one that nobody has collected
// yet.
func ended(pid int) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return !running(pid)
	}
	state := bytes.LastIndex(raw, []byte(") "))
	return state >= 0 && state+2 < len(raw) && (raw[state+2] == 'Z' || raw[state+2] == 'X')
}
