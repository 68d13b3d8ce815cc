package pgtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/devpg"
)

// layoutVersion changes when a server left running by an older text of this package cannot be used.
const layoutVersion = 1

// idleAfter is how long the shared server stays after its last client.
const idleAfter = time.Minute

// cluster is where a running server can be reached.
type cluster struct {
	SocketDir string `json:"socket_dir"`
	Port      int    `json:"port"`
	Password  string `json:"password"`
	root      string
}

func (c cluster) dsn(database string) string {
	return devpg.SocketURL(c.SocketDir, c.Port, c.Password, database)
}

func (c cluster) admin(ctx context.Context) (*pgx.Conn, error) {
	return pgx.Connect(ctx, c.dsn("postgres"))
}

// sharedCluster is asked for once a process: the tests of one package share the answer.
var sharedCluster = sync.OnceValues(func() (cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	name, err := sharedName(ctx)
	if err != nil {
		return cluster{}, err
	}
	return joinShared(ctx, filepath.Join(os.TempDir(), name))
})

// sharedName tells the servers of users, and of versions that ROUSE_PG_BIN asks for, apart: tests on two versions may
// run at the same time.
func sharedName(ctx context.Context) (string, error) {
	name := fmt.Sprintf("rouse-pgtest-%d-v%d", os.Getuid(), layoutVersion)
	if os.Getenv("ROUSE_PG_BIN") == "" {
		return name, nil
	}
	found, err := devpg.Find(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s-pg%d", name, found[0].Major), nil
}

// joinShared registers this process as a client of the server under root and starts it if it is not there.
func joinShared(ctx context.Context, root string) (cluster, error) {
	if err := os.MkdirAll(root, 0o711); err != nil {
		return cluster{}, err
	}
	if info, err := os.Lstat(root); err != nil {
		return cluster{}, err
	} else if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(st.Uid) != os.Getuid() {
		return cluster{}, fmt.Errorf("%s belongs to somebody else", root)
	}
	unlock, err := flock(ctx, filepath.Join(root, "start.lock"))
	if err != nil {
		return cluster{}, err
	}
	defer unlock()

	idle := &devpg.IdleStop{Clients: filepath.Join(root, "clients"), Advert: filepath.Join(root, "ctl", "advert.json"), After: idleAfter}
	register := func() error {
		return os.WriteFile(filepath.Join(idle.Clients, strconv.Itoa(os.Getpid())), nil, 0o600)
	}
	// Register before reading the advert: the server's keeper takes the advert away before it counts clients.
	if err := register(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cluster{}, err
	}
	if c, ok := readAdvert(ctx, root, idle.Advert); ok {
		return c, sweep(ctx, c)
	}
	dir := filepath.Join(root, "pg")
	opts := devpg.Options{Dir: dir, IdleStop: idle, Settings: fastSettings()}
	srv, err := devpg.Start(ctx, opts)
	if code := devpg.CodeOf(err); code == devpg.CodeStart || code == devpg.CodeDataDir || code == devpg.CodeVersion || code == devpg.CodeInit {
		// Nothing in it is worth keeping, and without fsync a machine that went down leaves it broken.
		if err := os.RemoveAll(dir); err != nil {
			return cluster{}, err
		}
		srv, err = devpg.Start(ctx, opts)
	}
	if err != nil {
		return cluster{}, err
	}
	c := cluster{SocketDir: srv.SocketDir(), Port: srv.Port(), Password: srv.Password(), root: root}
	if err := sweep(ctx, c); err != nil {
		return cluster{}, err
	}
	if err := register(); err != nil {
		return cluster{}, err
	}
	raw, err := json.Marshal(c)
	if err != nil {
		return cluster{}, err
	}
	return c, os.WriteFile(idle.Advert, raw, 0o600)
}

// readAdvert gives the advertised server if it answers. While its keeper is making up its mind (the advert is moved
// aside) it waits for the outcome.
func readAdvert(ctx context.Context, root, advert string) (cluster, bool) {
	deadline := time.Now().Add(5 * time.Second)
	for {
		c := cluster{root: root}
		if raw, err := os.ReadFile(advert); err == nil && json.Unmarshal(raw, &c) == nil {
			conn, err := c.admin(ctx)
			if err != nil {
				return c, false
			}
			return c, conn.Close(ctx) == nil
		}
		if _, err := os.Stat(advert + ".stopping"); err != nil || time.Now().After(deadline) {
			_ = os.Remove(advert + ".stopping")
			return c, false
		}
		if waitABit(ctx) != nil {
			return c, false
		}
	}
}

// fastSettings trade safety, which a test's database does not need, for speed.
func fastSettings() map[string]string {
	return map[string]string{
		// Commits are synchronous: without a flush, which costs nothing here, the log feed would see them only when the
		// WAL writer gets to them, up to a second later.
		"fsync": "off", "synchronous_commit": "on", "full_page_writes": "off",
		"checkpoint_timeout": "1h", "max_wal_size": "4GB",
		"shared_buffers": "512MB", "max_connections": "400", "max_worker_processes": "16",
		"max_wal_senders": "64", "max_replication_slots": "64",
		// Test databases come and go by the hundred; their autovacuum is the tests' own business.
		"autovacuum_naptime": "10s",
		"log_min_messages":   "warning", "log_min_error_statement": "panic",
	}
}

// sweep drops the databases of test processes that are gone, but for those kept for a look within the last day.
func sweep(ctx context.Context, c cluster) error {
	conn, err := c.admin(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, `select datname from pg_database where datname like 't\_%'`)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		var pid int
		var id string
		if _, err := fmt.Sscanf(name, "t_%d_%s", &pid, &id); err != nil || syscall.Kill(pid, 0) == nil {
			continue
		}
		mark := filepath.Join(c.root, "kept", name)
		if info, err := os.Stat(mark); err == nil && time.Since(info.ModTime()) < 24*time.Hour {
			continue
		}
		if err := dropDatabase(ctx, conn, name); err != nil {
			return err
		}
		if err := os.Remove(mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// flock waits for an exclusive lock on path.
func flock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(err, f.Close())
		}
		if err := waitABit(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("waiting for %s: %w", path, err), f.Close())
		}
	}
}

func waitABit(ctx context.Context) error {
	t := time.NewTimer(20 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
