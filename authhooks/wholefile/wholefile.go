// Package wholefile changes files of secrets while others read them. It promises that who reads one sees the old text or
// the new, whole, that of two who change it each sees what the other wrote, and that whoever could read it still can. It
// knows nothing of what the files hold.
package wholefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Change puts a changed file in the old one's place. change gets nil when there
// is no file yet; the first is for its owner only.
func Change(path string, change func(old []byte) ([]byte, error)) error {
	// Through a link, as orchestrators mount files, the target is replaced.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("the file's directory cannot be locked: %w", err)
	}
	old, err := os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var data []byte
	if old != nil {
		if data, err = os.ReadFile(path); err != nil {
			return err
		}
	}
	out, err := change(data)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(out)
	err = errors.Join(err, like(tmp, old), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return dir.Sync()
}

// like gives a file the mode and the owner of the one whose place it takes: the
// gateway may be a user of its own, who must go on to read it.
func like(f *os.File, old fs.FileInfo) error {
	if old == nil {
		return f.Chmod(0o600)
	}
	made, err := f.Stat() // a folder may have given it its group already
	if err != nil {
		return err
	}
	was, ok := old.Sys().(*syscall.Stat_t)
	is, alike := made.Sys().(*syscall.Stat_t)
	if ok && alike && (was.Uid != is.Uid || was.Gid != is.Gid) {
		if err := f.Chown(int(was.Uid), int(was.Gid)); err != nil {
			return fmt.Errorf("the file's owner cannot be kept: %w", err)
		}
	}
	return f.Chmod(old.Mode().Perm())
}
