package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Postgres is a private server in a folder of its own, reached by a unix socket.
type Postgres struct {
	*Proc
	bin, dir string
	user     *syscall.Credential
	Version  string
}

// Settings of the server: durable in every respect, sized for a machine with a few gigabytes. fsync, full_page_writes
// and synchronous_commit are written out because the figures mean nothing without them.
func Settings() map[string]string {
	return map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
		"shared_buffers": "1GB", "max_wal_size": "8GB", "min_wal_size": "2GB", "checkpoint_timeout": "15min", "wal_compression": "on",
		"wal_level": "logical", "max_replication_slots": "16", "max_wal_senders": "16", "max_slot_wal_keep_size": "4GB",
		"max_connections": "300", "jit": "off", "autovacuum": "on", "idle_in_transaction_session_timeout": "60s",
	}
}

// StartPostgres makes a cluster in dir and starts it. As root it runs as postgres or nobody, since Postgres refuses
// root.
func StartPostgres(ctx context.Context, dir string) (*Postgres, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	pg := &Postgres{bin: bin, dir: dir}
	if pg.user, err = unprivileged(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if pg.user != nil {
		if err := os.Chown(dir, int(pg.user.Uid), int(pg.user.Gid)); err != nil {
			return nil, err
		}
	}
	data := filepath.Join(dir, "data")
	if out, err := pg.Run(ctx, "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-instructions"); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	args := []string{"-D", data, "-k", dir, "-c", "listen_addresses="}
	settings := Settings()
	names := make([]string, 0, len(settings))
	for k := range settings {
		names = append(names, k)
	}
	sort.Strings(names)
	for _, k := range names {
		args = append(args, "-c", k+"="+settings[k])
	}
	pg.Proc, err = Start("Postgres", Options{Dir: dir, User: pg.user, Log: dir + ".log"}, filepath.Join(bin, "postgres"), args...)
	if err != nil {
		return nil, err
	}
	ready, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err = pg.Until(ready, func(ctx context.Context) error {
		c, err := pgx.Connect(ctx, pg.DSN("postgres"))
		if err != nil {
			return err
		}
		defer c.Close(ctx)
		return c.QueryRow(ctx, "show server_version").Scan(&pg.Version)
	})
	if err != nil {
		pg.Stop()
		return nil, err
	}
	return pg, nil
}

// DSN of a database.
func (pg *Postgres) DSN(database string) string {
	return "postgres://postgres@/" + database + "?host=" + pg.dir
}

// Dir holds the socket.
func (pg *Postgres) Dir() string { return pg.dir }

// Stop ends the server.
func (pg *Postgres) Stop() {
	if pg != nil && pg.Proc != nil {
		pg.Proc.Stop(syscall.SIGINT)
	}
}

// Exec runs statements in a database, each in a transaction of its own.
func (pg *Postgres) Exec(ctx context.Context, database string, statements ...string) error {
	c, err := pgx.Connect(ctx, pg.DSN(database))
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	for _, s := range statements {
		if _, err := c.Exec(ctx, s); err != nil {
			return fmt.Errorf("%.60s: %w", s, err)
		}
	}
	return nil
}

// Run runs one of Postgres' own programs as the server's user and returns what it printed.
func (pg *Postgres) Run(ctx context.Context, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(pg.bin, program), args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: pg.user}
	return cmd.CombinedOutput()
}

func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32)
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("Postgres refuses to run as root, and there is no user postgres or nobody")
}

// postgresBin finds a folder with all the programs needed; ROUSE_PG_BIN comes first.
func postgresBin() (string, error) {
	var dirs []string
	if d := os.Getenv("ROUSE_PG_BIN"); d != "" {
		dirs = append(dirs, d)
	}
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin", "/Applications/Postgres.app/Contents/Versions/latest/bin"} {
		found, _ := filepath.Glob(pattern)
		sort.Sort(sort.Reverse(sort.StringSlice(found)))
		dirs = append(dirs, found...)
	}
	dirs = append(dirs, filepath.SplitList(os.Getenv("PATH"))...)
	for _, d := range dirs {
		complete := true
		for _, program := range []string{"postgres", "initdb", "pgbench"} {
			if _, err := os.Stat(filepath.Join(d, program)); err != nil {
				complete = false
			}
		}
		if complete {
			return d, nil
		}
	}
	return "", errors.New("no Postgres with pgbench on this machine; install one or set ROUSE_PG_BIN")
}
