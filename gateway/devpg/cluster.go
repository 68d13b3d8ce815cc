package devpg

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Role and Database are what a fresh cluster has: a superuser for the gateway and its database.
const (
	Role     = "rouse"
	Database = "rouse"
)

const goos = runtime.GOOS

// layout is where things are below the directory a server is given.
type layout struct{ dir string }

func (l layout) data() string     { return filepath.Join(l.dir, "data") }
func (l layout) lock() string     { return filepath.Join(l.dir, "lock") }
func (l layout) log() string      { return filepath.Join(l.dir, "postgres.log") }
func (l layout) identity() string { return filepath.Join(l.dir, "server.json") }

// socketDir is dir/run, or a short stand-in under the system's temporary directory where that would not fit into the
// about hundred bytes a socket's address has.
func (l layout) socketDir() string {
	run := filepath.Join(l.dir, "run")
	if len(run) <= 80 {
		return run
	}
	sum := sha256.Sum256([]byte(l.dir))
	return filepath.Join(os.TempDir(), "rouse-"+hex.EncodeToString(sum[:6]))
}

// identity is what a server keeps from one start to the next, so that its URLs stay the same.
type identity struct {
	Port     int    `json:"port"`
	Password string `json:"password"`
}

func (l layout) readIdentity() (identity, error) {
	var id identity
	raw, err := os.ReadFile(l.identity())
	if err == nil {
		err = json.Unmarshal(raw, &id)
	}
	return id, err
}

func (l layout) writeIdentity(id identity) error {
	raw, err := json.Marshal(id)
	if err != nil {
		return err
	}
	next := l.identity() + ".new"
	if err := os.WriteFile(next, append(raw, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, l.identity())
}

// dataMajor is the major version that wrote the data directory, 0 when there is none.
func (l layout) dataMajor() (int, error) {
	raw, err := os.ReadFile(filepath.Join(l.data(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(raw)))
}

// initialise makes the data directory. It is built beside its place and renamed, so that a start which is killed half
// way leaves nothing that looks like a cluster.
func (l layout) initialise(ctx context.Context, acct account, bin Binaries, sync bool) (identity, error) {
	secret := make([]byte, 24)
	if _, err := rand.Read(secret); err != nil {
		return identity{}, &Error{Code: CodeInit, Detail: "no randomness", Cause: err}
	}
	id := identity{Password: hex.EncodeToString(secret)}
	building := filepath.Join(l.dir, "data.building")
	if err := os.RemoveAll(building); err != nil {
		return id, &Error{Code: CodeDataDir, Detail: "cannot clear " + building, Cause: err}
	}
	if err := acct.own(building); err != nil {
		return id, &Error{Code: CodeDataDir, Detail: "cannot make " + building, Cause: err}
	}
	args := []string{"-D", building, "--username=" + Role, "--auth=reject", "--encoding=UTF8", "--locale=C"}
	if !sync {
		args = append(args, "--no-sync")
	}
	if err := run(ctx, acct, bin.Path("initdb"), nil, args...); err != nil {
		return id, &Error{Code: CodeInit, Detail: "initdb failed", Cause: err}
	}
	// Single-user mode takes one statement a line and needs no way in through the network.
	setup := fmt.Sprintf("alter role %s password '%s'\ncreate database %s\n", Role, id.Password, Database)
	if err := run(ctx, acct, bin.Path("postgres"), []byte(setup), "--single", "-D", building, "postgres"); err != nil {
		return id, &Error{Code: CodeInit, Detail: "cannot make the role and the database", Cause: err}
	}
	conf, err := os.OpenFile(filepath.Join(building, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = conf.WriteString("\ninclude 'rouse.conf'\n")
		err = errors.Join(err, conf.Close())
	}
	if err == nil {
		// Both before the data directory appears under its name: a cluster without its password could not be used.
		err = l.writeIdentity(id)
	}
	if err == nil {
		err = os.Rename(building, l.data())
	}
	if err != nil {
		return id, &Error{Code: CodeDataDir, Detail: "cannot finish " + l.data(), Cause: err}
	}
	return id, nil
}

// configure writes the settings and who may connect, anew at each start.
func (l layout) configure(acct account, id identity, settings map[string]string) error {
	all := defaults()
	maps.Copy(all, settings)
	all["port"] = strconv.Itoa(id.Port)
	all["listen_addresses"] = "127.0.0.1"
	all["unix_socket_directories"] = l.socketDir()
	all["unix_socket_permissions"] = "0700"
	all["password_encryption"] = "scram-sha-256"
	var conf bytes.Buffer
	conf.WriteString("# Written by rouse at each start; use ALTER SYSTEM for what should stay.\n")
	for _, key := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&conf, "%s = '%s'\n", key, strings.ReplaceAll(all[key], "'", "''"))
	}
	local := "trust" // the socket's directory lets nobody in but this user and root
	if acct.shared {
		local = "scram-sha-256"
	}
	hba := fmt.Sprintf(`# Written by rouse at each start.
local all         all              %[1]s
local replication all              %[1]s
host  all         all 127.0.0.1/32 scram-sha-256
host  replication all 127.0.0.1/32 scram-sha-256
`, local)
	for name, text := range map[string][]byte{"rouse.conf": conf.Bytes(), "pg_hba.conf": []byte(hba)} {
		path := filepath.Join(l.data(), name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
		if acct.drop {
			if err := os.Chown(path, int(acct.uid), int(acct.gid)); err != nil {
				return err
			}
		}
	}
	return nil
}

// defaults suit one developer's machine. The slot cap is far above what a short absence of the gateway retains, and far
// below what fills a disk.
func defaults() map[string]string {
	return map[string]string{
		"wal_level":                           "logical",
		"max_wal_senders":                     "32",
		"max_replication_slots":               "32",
		"max_slot_wal_keep_size":              "2GB",
		"max_connections":                     "200",
		"shared_buffers":                      "256MB",
		"max_wal_size":                        "2GB",
		"wal_compression":                     "on",
		"jit":                                 "off",
		"idle_in_transaction_session_timeout": "60s",
		"log_checkpoints":                     "off",
		"log_replication_commands":            "off",
		"log_line_prefix":                     "%m [%p] %q%a ",
		"logging_collector":                   "off",
		"log_destination":                     "stderr",
		"timezone":                            "UTC",
		"log_timezone":                        "UTC",
	}
}

// openSocketDir makes the socket's directory and makes sure that it is the account's alone: where it is in the shared
// temporary directory somebody else could have made it first.
func (l layout) openSocketDir(acct account) error {
	dir := l.socketDir()
	if err := os.Mkdir(dir, 0o700); err == nil {
		return acct.own(dir)
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || st.Uid != acct.uid {
		return fmt.Errorf("%s is there and belongs to somebody else", dir)
	}
	return os.Chmod(dir, 0o700)
}

// run executes one of the programs under the account; the error carries the end of what it printed.
func run(ctx context.Context, acct account, program string, stdin []byte, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", childEnv(), acct.attr()
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, tail(out, 1500))
	}
	return nil
}

func tail(b []byte, n int) string {
	if len(b) > n {
		b = b[len(b)-n:]
	}
	return strings.TrimSpace(string(b))
}

// freePort asks the kernel for a loopback port that nobody uses at the moment.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func portIsFree(port int) bool {
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
