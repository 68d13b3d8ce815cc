package devpg

import (
	"path/filepath"
	"syscall"
	"testing"
)

// A child that is being started has a copy of each open file for a moment.
func TestALockIsGivenBackWhileAChildHasItsFileOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	held, err := lockDir(path, "here")
	if err != nil {
		t.Fatal(err)
	}
	copied, err := syscall.Dup(int(held.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(copied)
	if _, err := lockDir(path, "here"); err == nil {
		t.Fatal("locked twice")
	}
	if err := held.release(); err != nil {
		t.Fatal(err)
	}
	again, err := lockDir(path, "here")
	if err != nil {
		t.Fatal(err)
	}
	if err := again.release(); err != nil {
		t.Fatal(err)
	}
}
