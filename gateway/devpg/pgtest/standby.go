package pgtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/devpg"
)

// Backup copies the server's files, for which it is restarted, into a directory
// that goes with the test. They know the same role and password.
func (in *Instance) Backup(t testing.TB) (dir string) {
	t.Helper()
	dir = serverDir(t)
	if err := in.Down(t.Context(), devpg.Fast); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	from := filepath.Dir(in.LogPath())
	out, err := exec.CommandContext(t.Context(), "cp", "-a", filepath.Join(from, "data"), filepath.Join(from, "server.json"), dir).CombinedOutput()
	if err != nil {
		t.Fatalf("pgtest: %v: %s", err, out)
	}
	if err := in.Restart(t.Context(), devpg.Fast); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return dir
}

// Restore starts a server on a backup, as far as its own log goes: on a timeline
// of its own.
func (in *Instance) Restore(t testing.TB, backup string) *Instance {
	t.Helper()
	return in.recover(t, backup, "recovery.signal", map[string]string{"restore_command": "false"})
}

// recover starts a server on copied files.
func (in *Instance) recover(t testing.TB, dir, signal string, settings map[string]string) *Instance {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "data", signal), nil, 0o644); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	binaries := in.Binaries()
	return start(t, dir, devpg.Options{Dir: dir, Settings: settings, Binaries: &binaries})
}

// Standby makes a streaming standby of the server from a Backup. upstream is how
// the standby reaches the server, a URL; opts.Settings are added to those of a
// standby that takes over replication slots where the version can. Promote makes
// a primary of it.
func (in *Instance) Standby(t testing.TB, upstream string, opts Options) *Instance {
	t.Helper()
	config, err := pgx.ParseConfig(upstream)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	dir := in.Backup(t)
	const slot = "standby"
	in.DB.Exec(t, `select pg_create_physical_replication_slot($1)`, slot)
	settings := map[string]string{
		"hot_standby": "on", "hot_standby_feedback": "on", "primary_slot_name": slot,
		"primary_conninfo": conninfo("host", config.Host, "port", strconv.Itoa(int(config.Port)), "user", config.User, "password", config.Password,
			"dbname", devpg.Database, "application_name", slot),
		"wal_receiver_status_interval": "1s", "wal_retrieve_retry_interval": "200ms",
	}
	if in.Binaries().Major >= 17 {
		settings["sync_replication_slots"] = "on"
	}
	for name, value := range opts.Settings {
		settings[name] = value
	}
	return in.recover(t, dir, "standby.signal", settings)
}

// Promote makes the standby a primary.
func (in *Instance) Promote(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, in.DB.DSN)
	if err != nil {
		return err
	}
	var done bool
	err = conn.QueryRow(ctx, `select pg_promote(true, 60)`).Scan(&done)
	if err == nil && !done {
		err = errors.New("the standby was not promoted in a minute")
	}
	return errors.Join(err, conn.Close(ctx))
}

// conninfo spells a connection in libpq's words.
func conninfo(pairs ...string) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		b.WriteString(pairs[i] + "='" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(pairs[i+1]) + "' ")
	}
	return strings.TrimSpace(b.String())
}
