package wholefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/rouse-run/rouse/authhooks/wholefile"
)

func add(text string) func([]byte) ([]byte, error) {
	return func(old []byte) ([]byte, error) { return append(old, text...), nil }
}

func TestThoseWhoChangeAFileLoseNothingOfEachOther(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := wholefile.Change(path, add("x")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got, err := os.ReadFile(path); err != nil || string(got) != strings.Repeat("x", 20) {
		t.Errorf("%q %v", got, err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("%v %v", left, err)
	}
}

// Who changes the file may be another user than the gateway, which must go on to
// read it.
func TestAFileKeepsItsOwnerAndMode(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := wholefile.Change(path, add("one")); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatal(st.Mode(), err)
	}
	owner := os.Geteuid()
	if owner == 0 { // only root can give files away
		owner = 12345
	}
	if err := errors.Join(os.Chown(path, owner, -1), os.Chmod(path, 0o640)); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Symlink(path, link), wholefile.Change(link, add(" two"))); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if now := int(st.Sys().(*syscall.Stat_t).Uid); now != owner || st.Mode().Perm() != 0o640 {
		t.Errorf("owner %d, mode %v", now, st.Mode())
	}
	if err := wholefile.Change(path, func([]byte) ([]byte, error) { return nil, errors.New("no") }); err == nil {
		t.Error("a change that failed was made")
	}
	if got, err := os.ReadFile(link); err != nil || string(got) != "one two" {
		t.Errorf("%q %v", got, err)
	}
}
