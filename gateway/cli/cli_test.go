package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/store/migrate"
)

// asRouseEnv makes this test binary the rouse binary.
const asRouseEnv = "ROUSE_CLI_TEST_AS_ROUSE"

func TestMain(m *testing.M) {
	if os.Getenv(asRouseEnv) != "" {
		os.Exit(Run(context.Background(), os.Args[1:], Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Environ: os.Environ()}))
	}
	goleak.VerifyTestMain(m)
}

// rouse runs one command line in this process.
func rouse(t *testing.T, environ []string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Run(t.Context(), args, Streams{In: strings.NewReader(""), Out: &o, Err: &e, Environ: environ})
	return code, o.String(), e.String()
}

// command makes a process of its own of a command line.
func command(t *testing.T, environ []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(append(os.Environ(), asRouseEnv+"=1"), environ...)
	return cmd
}

func TestHelpTellsCommandsAndExitCodes(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--help"}, {"help"}} {
		code, out, _ := rouse(t, nil, args...)
		if code != ExitOK {
			t.Errorf("%v: exit code %d", args, code)
		}
		for _, want := range []string{"dev", "serve", "migrate up", "doctor", "Exit codes:", `9  "rouse doctor" found an error`} {
			if !strings.Contains(out, want) {
				t.Errorf("%v: no %q in the help", args, want)
			}
		}
	}
	for _, args := range [][]string{{"serve", "--help"}, {"help", "serve"}} {
		if code, out, _ := rouse(t, nil, args...); code != ExitOK || !strings.Contains(out, "--migrate") || strings.Contains(out, "Exit codes:") {
			t.Errorf("%v: %d %s", args, code, out)
		}
	}
}

func TestMistakesAreUsageErrors(t *testing.T) {
	t.Parallel()
	ring := "ROUSE_KEYS=" + strings.TrimSpace(claims.NewKeys())
	garbled := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(garbled, []byte("user:kyle\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	parent := t.TempDir()
	untouched := filepath.Join(parent, "data")
	for _, c := range []struct {
		args    []string
		environ []string
		want    string
	}{
		{args: []string{"bogus"}, want: "bogus"},
		{args: []string{"serve", "--no-such-flag"}, want: "no-such-flag"},
		{args: []string{"serve"}, want: "ROUSE_DATABASE_URL"},
		{args: []string{"serve", "--config", "/nowhere.yaml"}, want: "/nowhere.yaml"},
		{args: []string{"serve", "--log-level", "loud"}, want: "--log-level", environ: []string{"ROUSE_DATABASE_URL=postgres://x"}},
		{args: []string{"migrate", "status"}, environ: []string{"ROUSE_POOL_SIZE=x", "ROUSE_DATABASE_URL=postgres://x"}, want: "ROUSE_POOL_SIZE"},
		{args: []string{"doctor"}, want: "ROUSE_DATABASE_URL"},
		{args: []string{"dev", "--data-dir", t.TempDir(), "--listen", "0.0.0.0:0"}, want: "--insecure-anywhere"},
		{args: []string{"serve"}, environ: []string{"ROUSE_DATABASE_URL=postgres://x"}, want: "rouse keys new"},
		{args: []string{"serve"}, environ: []string{"ROUSE_DATABASE_URL=postgres://x", "ROUSE_KEYS=garbled"}, want: "ROUSE_KEYS"},
		{args: []string{"serve"}, environ: []string{"ROUSE_DATABASE_URL=postgres://x", "ROUSE_KEYS=/nowhere/keys"}, want: "ROUSE_KEYS"},
		{args: []string{"serve"}, environ: []string{"ROUSE_DATABASE_URL=postgres://x", ring, "ROUSE_TOKENS_FILE=/nowhere/tokens"}, want: "ROUSE_TOKENS_FILE"},
		{args: []string{"serve"}, environ: []string{"ROUSE_DATABASE_URL=postgres://x", ring, "ROUSE_TOKENS_FILE=" + garbled}, want: "ROUSE_TOKENS_FILE"},
		{args: []string{"serve"}, environ: []string{"ROUSE_DATABASE_URL=postgres://x", ring, `ROUSE_AUTH={"hooks":[{"jwt":{"issuer":"http://a","audiences":["b"]}}]}`}, want: "auth hook 1 (jwt)"},
		{args: []string{"serve"}, environ: []string{"ROUSE_DATABASE_URL=postgres://x", ring, `ROUSE_AUTH={"authorizers":[{"opa":{"policy":"/nowhere"}}]}`}, want: "authorizer 1"},
		{args: []string{"serve"}, environ: []string{"ROUSE_DATABASE_URL=postgres://x", ring, "ROUSE_TLS_CERT=/nowhere", "ROUSE_TLS_KEY=/nowhere"}, want: "TLS"},
		{args: []string{"dev", "--data-dir", untouched}, environ: []string{`ROUSE_AUTH={"hooks":[{"plugin":""}]}`}, want: "hooks[0]"},
		{args: []string{"serve"}, environ: []string{"ROUSE_DATABASE_URL=postgres://x", ring, `ROUSE_AUTH={"hooks":[{"plugin":"corp"}]}`}, want: "hooks[0].plugin: the plugins file (ROUSE_PLUGINS_FILE) has no auth hook corp"},
		{args: []string{"serve"}, environ: []string{"ROUSE_DATABASE_URL=postgres://x", ring, `ROUSE_AUTH={"authorizers":[{"plugin":"corp"}]}`}, want: "authorizers[0].plugin"},
		{args: []string{"dev", "--data-dir", untouched}, environ: []string{"ROUSE_PLUGINS_FILE=/nowhere/plugins"}, want: "ROUSE_PLUGINS_FILE"},
		{args: []string{"serve"}, environ: []string{"ROUSE_DATABASE_URL=nonsense", ring}, want: "ROUSE_DATABASE_URL"},
		{args: []string{"migrate"}, environ: []string{"ROUSE_DATABASE_URL=postgres://x", "ROUSE_DIRECT_URL=http://x"}, want: "ROUSE_DIRECT_URL"},
		{args: []string{"doctor"}, environ: []string{"ROUSE_DATABASE_URL=nonsense"}, want: "ROUSE_DATABASE_URL"},
		{args: []string{"dev", "--data-dir", untouched}, environ: []string{"ROUSE_KEYS=garbled"}, want: "ROUSE_KEYS"},
		{args: []string{"dev", "--data-dir", untouched}, environ: []string{"ROUSE_TOKENS_FILE=" + garbled}, want: "ROUSE_TOKENS_FILE"},
		{args: []string{"dev", "--data-dir", untouched, "--listen", busy.Addr().String()}, want: "choose another with --listen"},
		{args: []string{"serve"}, environ: []string{"ROUSE_DATABASE_URL=postgres://x", "ROUSE_INSECURE=true", "ROUSE_LISTEN=:0"}, want: "ROUSE_INSECURE_ANYWHERE"},
	} {
		code, out, errOut := rouse(t, c.environ, c.args...)
		if code != ExitUsage || !strings.Contains(errOut, c.want) || out != "" {
			t.Errorf("%v: exit code %d, out %q, err %q", c.args, code, out, errOut)
		}
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("something was started before the mistake was seen: %v %v", left, err)
	}
}

func TestDevRefusesADirectoryOfOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "passwd"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errOut := rouse(t, nil, "dev", "--data-dir", dir, "--listen", "127.0.0.1:0")
	if left, err := os.ReadDir(dir); code != ExitDataDir || !strings.Contains(errOut, "is not empty") || err != nil || len(left) != 1 {
		t.Errorf("%d %s %v %v", code, errOut, left, err)
	}
}

func TestOnePendingMigrationIsOne(t *testing.T) {
	t.Parallel()
	if err := usable(migrate.Status{Pending: make([]migrate.Migration, 1)}); exitCode(err) != ExitPending || !strings.Contains(err.Error(), "1 migration of") {
		t.Error(err)
	}
	if err := usable(migrate.Status{Pending: make([]migrate.Migration, 2)}); !strings.Contains(err.Error(), "2 migrations of") {
		t.Error(err)
	}
	if err := usable(migrate.Status{}); err != nil {
		t.Error(err)
	}
}

func TestVersionAndKeys(t *testing.T) {
	t.Parallel()
	if code, out, _ := rouse(t, nil, "version"); code != ExitOK || !strings.HasPrefix(out, "rouse "+Release()) {
		t.Errorf("%d %q", code, out)
	}
	if code, out, _ := rouse(t, nil, "--version"); code != ExitOK || out != versionLine()+"\n" {
		t.Errorf("%d %q", code, out)
	}
	_, out, _ := rouse(t, nil, "version", "--json")
	var v map[string]string
	if err := json.Unmarshal([]byte(out), &v); err != nil || v["release"] != Release() {
		t.Errorf("%q, %v", out, err)
	}
	code, out, _ := rouse(t, nil, "keys", "new")
	if _, err := claims.ParseKeys(out); code != ExitOK || err != nil {
		t.Errorf("%d, %v", code, err)
	}
}

func TestMigrateFromNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	environ := []string{"ROUSE_DATABASE_URL=" + db.DSN}
	code, out, errOut := rouse(t, environ, "migrate", "status")
	if code != ExitPending || !strings.Contains(out, "to do: 000001") {
		t.Errorf("status of nothing: %d %q %q", code, out, errOut)
	}
	code, plan, _ := rouse(t, environ, "migrate", "up", "--dry-run")
	if code != ExitOK || !strings.Contains(plan, "create table rouse.streams") {
		t.Errorf("plan: %d, %d bytes", code, len(plan))
	}
	if code, out, errOut = rouse(t, environ, "migrate"); code != ExitOK || !strings.Contains(out, "applied 000001") || !strings.Contains(out, "functions") {
		t.Errorf("migrate: %d %q %q", code, out, errOut)
	}
	if code, out, _ = rouse(t, environ, "migrate", "up"); code != ExitOK || out != "nothing to do\n" {
		t.Errorf("again: %d %q", code, out)
	}
	code, out, _ = rouse(t, environ, "migrate", "status", "--json")
	var s struct {
		Version, Newest int
		Pending         []any
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil || code != ExitOK || s.Version == 0 || s.Version != s.Newest || s.Pending == nil || len(s.Pending) > 0 {
		t.Errorf("status: %d %q, %v", code, out, err)
	}
	if code, out, _ = rouse(t, environ, "migrate", "repair"); code != ExitOK || !strings.Contains(out, "Nothing to repair") {
		t.Errorf("repair: %d %q", code, out)
	}
	db.Exec(t, "update rouse.schema_migrations set dirty = true")
	if code, _, errOut = rouse(t, environ, "migrate"); code != ExitMigration || !strings.Contains(errOut, "rouse migrate repair") {
		t.Errorf("dirty: %d %q", code, errOut)
	}
	if code, out, _ = rouse(t, environ, "migrate", "repair"); code != ExitOK || !strings.Contains(out, "Marked it as applied") {
		t.Errorf("repair: %d %q", code, out)
	}
}

func TestUnreachableDatabaseHasItsExitCode(t *testing.T) {
	t.Parallel()
	environ := []string{"ROUSE_DATABASE_URL=postgres://u:hunter2@127.0.0.1:1/d?connect_timeout=1", "ROUSE_KEYS=" + strings.TrimSpace(claims.NewKeys())}
	for _, args := range [][]string{{"serve"}, {"migrate"}, {"migrate", "status"}, {"doctor"}} {
		code, out, errOut := rouse(t, environ, args...)
		if code != ExitUnavailable || strings.Contains(out+errOut, "hunter2") {
			t.Errorf("%v: %d %q %q", args, code, out, errOut)
		}
	}
}

func TestServeRefusesAPendingOrTooNewDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	environ := []string{"ROUSE_DATABASE_URL=" + db.DSN, "ROUSE_LISTEN=127.0.0.1:0", "ROUSE_KEYS=" + strings.TrimSpace(claims.NewKeys())}
	if code, _, errOut := rouse(t, environ, "serve"); code != ExitPending || !strings.Contains(errOut, "--migrate") {
		t.Errorf("%d %q", code, errOut)
	}
	newer := pgtest.New(t)
	newer.Exec(t, "insert into rouse.schema_history (version, name, compat) values (999, 'new', 'breaking')")
	newer.Exec(t, "update rouse.schema_migrations set version = 999")
	environ[0] = "ROUSE_DATABASE_URL=" + newer.DSN
	for _, args := range [][]string{{"serve"}, {"serve", "--migrate"}, {"migrate"}, {"migrate", "status"}} {
		if code, _, errOut := rouse(t, environ, args...); code != ExitTooNew || !strings.Contains(errOut, "000999_new") {
			t.Errorf("%v: %d %q", args, code, errOut)
		}
	}
}

func TestDoctorFindsWhatTheSharedServerSaves(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	environ := []string{"ROUSE_DATABASE_URL=" + db.DSN}
	code, out, _ := rouse(t, environ, "doctor")
	if code != ExitFindings || !strings.Contains(out, "DURABILITY") || !strings.Contains(out, "→") {
		t.Errorf("%d %s", code, out)
	}
	code, out, _ = rouse(t, environ, "doctor", "--json")
	var report struct {
		Worst    string
		Findings []struct{ Code, Severity string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != ExitFindings || report.Worst != "error" || len(report.Findings) < 10 {
		t.Errorf("%d %+v, %v", code, report, err)
	}
}

func TestConfigurationFileIsRead(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	file := filepath.Join(t.TempDir(), "rouse.yaml")
	if err := os.WriteFile(file, []byte("database_url: "+db.DSN+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := rouse(t, nil, "migrate", "status", "--config", file); code != ExitOK {
		t.Errorf("%d %q %q", code, out, errOut)
	}
}
