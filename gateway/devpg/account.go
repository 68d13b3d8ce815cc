package devpg

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that Postgres runs as. Postgres refuses to run as root, so root hands the work to another user.
type account struct {
	name     string
	uid, gid uint32
	drop     bool // processes must be started under uid and gid
	shared   bool // other programs of this machine run under it too, so a socket it owns is not private
}

// chooseAccount is the caller itself, or for root the first of `postgres` and `nobody` that exists.
func chooseAccount() (account, error) {
	if uid := os.Geteuid(); uid != 0 {
		return account{name: "uid " + strconv.Itoa(uid), uid: uint32(uid), gid: uint32(os.Getegid())}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr != nil || gidErr != nil {
			continue
		}
		return account{name: name, uid: uint32(uid), gid: uint32(gid), drop: true, shared: name == "nobody"}, nil
	}
	return account{}, &Error{Code: CodeStart, Detail: "Postgres refuses to run as root, and this machine has neither a user `postgres` nor `nobody`",
		Hint: "Run as another user, or add one: `useradd --system postgres`."}
}

// attr starts a child under the account, in a session of its own so that a Ctrl-C in the terminal reaches only us and
// the order of stopping stays ours.
func (a account) attr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if a.drop {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// own makes dir if it is not there, gives it to the account and closes it to all others.
func (a account) own(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if a.drop {
		if err := os.Chown(dir, int(a.uid), int(a.gid)); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o700)
}

// reachable checks that the account may walk down to dir. Only needed when it is not the caller's own.
func (a account) reachable(dir string) error {
	if !a.drop {
		return nil
	}
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil {
			return &Error{Code: CodeDataDir, Detail: "cannot look at " + parent, Cause: err}
		}
		if !a.mayEnter(info) {
			return &Error{Code: CodeNotReachable,
				Detail: fmt.Sprintf("the server runs as %q, which may not enter %s (mode %04o)", a.name, parent, info.Mode().Perm()),
				Hint:   "Choose a data directory it can reach, such as /var/lib/rouse, or allow passing through: chmod o+x " + parent}
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}

func (a account) mayEnter(info os.FileInfo) bool {
	mode := info.Mode().Perm()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		switch {
		case st.Uid == a.uid:
			return mode&0o100 != 0
		case st.Gid == a.gid:
			return mode&0o010 != 0
		}
	}
	return mode&0o001 != 0
}
