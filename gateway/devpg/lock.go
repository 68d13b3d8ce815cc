package devpg

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// dirLock is the right to run a server in a directory. The kernel takes it back when its process dies, however it dies.
type dirLock struct{ file *os.File }

// lockDir takes the lock at path without waiting. When somebody else has it, the error (CodeInUse) names their pid.
func lockDir(path, dir string) (*dirLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, &Error{Code: CodeDataDir, Detail: "cannot open " + path, Cause: err}
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(path)
		f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &Error{Code: CodeDataDir, Detail: "cannot lock " + path, Cause: err}
		}
		pid := strings.TrimSpace(string(holder))
		if pid == "" {
			pid = "unknown"
		}
		return nil, &Error{Code: CodeInUse, Detail: fmt.Sprintf("%s is in use by the process with pid %s", dir, pid),
			Hint: "Use that one, stop it first, or give this one a directory of its own."}
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		f.Close()
		return nil, &Error{Code: CodeDataDir, Detail: "cannot write " + path, Cause: err}
	}
	return &dirLock{file: f}, nil
}

// release gives the lock back. The file stays: removing it would let two processes lock two files of one name. Closing it
// alone is not enough: a child that this process starts at the same moment has it open until it runs its own program.
func (l *dirLock) release() error {
	err := l.file.Truncate(0)
	return errors.Join(err, syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN), l.file.Close())
}
