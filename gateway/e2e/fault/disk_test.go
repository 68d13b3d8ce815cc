//go:build faults && linux

package fault

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/devpg"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// disk is a small file system of its own.
type disk struct {
	t   *testing.T
	dir string
}

func newDisk(t *testing.T, megabytes int) *disk {
	t.Helper()
	dir, err := os.MkdirTemp("", "rouse-disk-")
	if err == nil {
		err = syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0711", megabytes))
	}
	if err != nil {
		t.Fatalf("a small file system can be mounted by root only: %v", err)
	}
	t.Cleanup(func() {
		// The last process of the server may not have let go yet.
		deadline := time.Now().Add(5 * time.Second)
		for err := syscall.Unmount(dir, 0); err != nil; err = syscall.Unmount(dir, 0) {
			if time.Now().After(deadline) {
				t.Errorf("unmounting %s: %v", dir, err)
				return
			}
			pause(context.WithoutCancel(t.Context()), 20*time.Millisecond)
		}
		_ = os.Remove(dir)
	})
	return &disk{t, dir}
}

func (d *disk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fill leaves nothing free.
func (d *disk) fill() {
	d.t.Helper()
	f, err := os.Create(d.ballast())
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for block := make([]byte, 64<<10); ; {
		if _, err := f.Write(block); err != nil {
			if len(block) == 1 {
				return // that it ends so is what is wanted
			}
			block = block[:len(block)/2]
		}
	}
}

// free takes it away again.
func (d *disk) free() {
	d.t.Helper()
	if err := os.Remove(d.ballast()); err != nil {
		d.t.Fatal(err)
	}
}

// small keeps the server's log short.
var small = map[string]string{"max_wal_size": "64MB", "min_wal_size": "32MB", "shared_buffers": "64MB"}

// full lets the disk be full until many calls were refused, and for a while
// longer; then there is space again. force makes the server need space at once.
func (w *world) full(d *disk, force func()) {
	t := w.t
	t.Helper()
	lines := func() (n int) {
		for _, g := range w.gateways {
			g.mu.Lock()
			n += strings.Count(g.out.String(), "\n")
			g.mu.Unlock()
		}
		return n
	}
	loud, refused := lines(), w.load.refusals()
	d.fill()
	began := time.Now()
	force()
	within(t, patience, "calls are refused", func() bool { return w.load.refusals() > refused+50 })
	pause(t.Context(), 3*time.Second)
	took := time.Since(began)
	loud, refused = lines()-loud, w.load.refusals()-refused
	t.Logf("full for %v: %d calls were refused, the gateways logged %d lines", took.Round(time.Millisecond), refused, loud)
	// Each refused call is told once, and what goes on by itself pauses when it fails.
	if limit := 2*refused + 40*int(took/time.Second+1); loud > limit {
		t.Errorf("%d lines were logged in %v with %d refusals", loud, took, refused)
	}
	d.free()
	if w.pg.PID() == 0 {
		t.Log("Postgres had given up, and is started again")
		if err := w.pg.Restart(t.Context(), devpg.Fast); err != nil {
			t.Fatal(err)
		}
	}
	for i := range w.gateways {
		w.ready(i)
	}
	t.Logf("both gateways were ready %v after there was space again", (time.Since(began) - took).Round(time.Millisecond))
}

// F15: the disk with Postgres' data is full, its log is elsewhere: it goes on,
// and refuses what needs space.
func TestDiskOfPostgresIsFull(t *testing.T) {
	t.Parallel()
	d := newDisk(t, 256)
	w := newWorldThrough(t, 6, pgtest.Options{Dir: filepath.Join(d.dir, "pg"), Settings: small}, func(w *world) string {
		log, err := os.MkdirTemp("", "rouse-wal-")
		if err == nil {
			err = os.Chmod(log, 0o711)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(log) })
		if err := w.pg.Down(t.Context(), devpg.Fast); err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(d.dir, "pg", "data", "pg_wal")
		if out, err := exec.CommandContext(t.Context(), "cp", "-a", at, log).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := os.RemoveAll(at); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(log, "pg_wal"), at); err != nil {
			t.Fatal(err)
		}
		if err := w.pg.Restart(t.Context(), devpg.Fast); err != nil {
			t.Fatal(err)
		}
		return w.pg.DB.DSN
	})
	underLoad(t, w, 4, 100, func() {
		w.full(d, func() {})
		if w.pg.PID() == 0 {
			t.Error("Postgres went down")
		}
	})
}

// F15: the disk with Postgres' log is full, too: it stops, recovers when there
// is space again, and has everything that was acknowledged.
func TestDiskOfPostgresLogIsFull(t *testing.T) {
	t.Parallel()
	d := newDisk(t, 256)
	w := newWorldThrough(t, 6, pgtest.Options{Dir: filepath.Join(d.dir, "pg"), Settings: small}, func(w *world) string { return w.pg.DB.DSN })
	underLoad(t, w, 4, 100, func() {
		w.full(d, func() {
			within(t, patience, "Postgres needs another segment of its log, and fails", func() bool {
				return tryExec(t, w.pg.DB.DSN, `select pg_switch_wal()`) != nil
			})
		})
	})
}

// refusals are the answers that were tried again.
func (l *load) refusals() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.refused {
		n += k
	}
	return n
}

// tryExec runs a statement on a connection of its own.
func tryExec(t *testing.T, dsn, sql string) error {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(t.Context()) }()
	_, err = conn.Exec(t.Context(), sql)
	return err
}
