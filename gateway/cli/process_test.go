package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/soon"
)

// output collects what a process prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// process is a rouse with a pid of its own.
type process struct {
	cmd    *exec.Cmd
	out    *output
	exited chan struct{}
}

func launch(t *testing.T, environ []string, args ...string) *process {
	t.Helper()
	p := &process{cmd: command(t, environ, args...), out: &output{}, exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("rouse %v printed:\n%s", args, p.out)
		}
	})
	return p
}

var gatewayURL = regexp.MustCompile(`(?:gateway +|public_url=|"public_url":")(http://[^\s"]+)`)

// url waits until the process has told where it listens.
func (p *process) url(t *testing.T) string {
	t.Helper()
	var url string
	soon.Within(t, 30*time.Second, "the gateway says where it is", func() bool {
		select {
		case <-p.exited:
			t.Fatalf("it ended with %v", p.cmd.ProcessState)
		default:
		}
		if m := gatewayURL.FindStringSubmatch(p.out.String()); m != nil {
			url = m[1]
		}
		return url != ""
	})
	return url
}

func (p *process) exit(t *testing.T, sig syscall.Signal, limit time.Duration) int {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.exited:
	case <-time.After(limit):
		t.Fatalf("still there %v after %v", limit, sig)
	}
	return p.cmd.ProcessState.ExitCode()
}

func ready(t *testing.T, url string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	soon.Within(t, 20*time.Second, "the gateway is ready", func() bool {
		res, err := client.Get(url + "/readyz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}

// dataDir is one that the server's user can get to when the tests run as root.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rouse-cli-")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func postmaster(t *testing.T, dir string) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "postgres", "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Split(string(raw), "\n")[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestDevFromNothingToAStopThatLeavesNothingRunning(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	p := launch(t, nil, "dev", "--data-dir", dir, "--listen", "127.0.0.1:0")
	ready(t, p.url(t))
	server := postmaster(t, dir)
	info, err := os.Stat(filepath.Join(dir, "keys"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key ring: %v, %v", info, err)
	}

	second := launch(t, nil, "dev", "--data-dir", dir, "--listen", "127.0.0.1:0")
	<-second.exited
	if code := second.cmd.ProcessState.ExitCode(); code != ExitDataDir || !strings.Contains(second.out.String(), "pid "+strconv.Itoa(p.cmd.Process.Pid)) || !strings.Contains(second.out.String(), "--data-dir") {
		t.Errorf("a second one: %d %s", code, second.out)
	}

	if code := p.exit(t, syscall.SIGTERM, 15*time.Second); code != ExitOK {
		t.Errorf("exit code %d", code)
	}
	if err := syscall.Kill(server, 0); err == nil {
		t.Error("Postgres outlives it")
	}
	keys, err := os.ReadFile(filepath.Join(dir, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	again := launch(t, nil, "dev", "--data-dir", dir, "--listen", "127.0.0.1:0")
	ready(t, again.url(t))
	if after, err := os.ReadFile(filepath.Join(dir, "keys")); err != nil || !bytes.Equal(keys, after) {
		t.Errorf("the key ring changed with a restart: %v", err)
	}
	if code := again.exit(t, syscall.SIGINT, 15*time.Second); code != ExitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestDevForEverybodyIsSaidTwiceAndLoudly(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	p := launch(t, nil, "dev", "--data-dir", dir, "--listen", "0.0.0.0:0", "--insecure-anywhere")
	ready(t, p.url(t))
	if !strings.Contains(p.out.String(), "FROM EVERYBODY") {
		t.Errorf("it does not say what it does: %s", p.out)
	}
	if code := p.exit(t, syscall.SIGTERM, 15*time.Second); code != ExitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestDevEndsWhenItsPostgresDies(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	p := launch(t, nil, "dev", "--data-dir", dir, "--listen", "127.0.0.1:0")
	ready(t, p.url(t))
	if err := syscall.Kill(postmaster(t, dir), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.exited:
	case <-time.After(30 * time.Second):
		t.Fatal("it goes on without a database")
	}
	if code := p.cmd.ProcessState.ExitCode(); code == ExitOK || !strings.Contains(p.out.String(), "the database ended unexpectedly") {
		t.Errorf("exit code %d: %s", code, p.out)
	}
}

func TestDevRecoversAfterKill9(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	p := launch(t, nil, "dev", "--data-dir", dir, "--listen", "127.0.0.1:0")
	ready(t, p.url(t))
	server := postmaster(t, dir)
	if code := p.exit(t, syscall.SIGKILL, 5*time.Second); code != -1 {
		t.Errorf("exit code %d", code)
	}
	again := launch(t, nil, "dev", "--data-dir", dir, "--listen", "127.0.0.1:0")
	ready(t, again.url(t))
	if err := syscall.Kill(server, 0); err == nil {
		t.Error("the first Postgres is still there")
	}
	if code := again.exit(t, syscall.SIGTERM, 15*time.Second); code != ExitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestDevEndsQuietlyWhileItMakesItsCluster(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	p := launch(t, nil, "dev", "--data-dir", dir, "--listen", "127.0.0.1:0")
	soon.Within(t, 20*time.Second, "initdb works", func() bool {
		_, err := os.Stat(filepath.Join(dir, "postgres", "data.building", "PG_VERSION"))
		return err == nil
	})
	if code := p.exit(t, syscall.SIGINT, 15*time.Second); code != ExitOK || strings.Contains(p.out.String(), "initdb") {
		t.Errorf("exit code %d: %s", code, p.out)
	}
}

func TestServeOnAllAddressesWarnsOfTheURLsItHandsOut(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	p := launch(t, []string{"ROUSE_DATABASE_URL=" + db.DSN, "ROUSE_LISTEN=:0", "ROUSE_KEYS=" + strings.TrimSpace(claims.NewKeys())}, "serve", "--migrate")
	ready(t, p.url(t))
	if !strings.Contains(p.out.String(), "set ROUSE_PUBLIC_URL") {
		t.Error("it does not warn")
	}
	if code := p.exit(t, syscall.SIGTERM, 15*time.Second); code != ExitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestServeMigratesWhenToldTo(t *testing.T) {
	t.Parallel()
	db := pgtest.Empty(t)
	p := launch(t, []string{"ROUSE_DATABASE_URL=" + db.DSN, "ROUSE_LISTEN=127.0.0.1:0", "ROUSE_KEYS=" + strings.TrimSpace(claims.NewKeys())}, "serve", "--migrate")
	ready(t, p.url(t))
	if code := p.exit(t, syscall.SIGTERM, 15*time.Second); code != ExitOK {
		t.Errorf("exit code %d", code)
	}
	for line := range strings.Lines(p.out.String()) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil || v["level"] == nil {
			t.Errorf("not a log line: %q", line)
		}
	}
	if warned := strings.Count(p.out.String(), "nobody can call this gateway"); warned != 1 {
		t.Errorf("%d warnings that it has no tokens", warned)
	}
	if strings.Contains(p.out.String(), "rouse:") {
		t.Errorf("a failure: %s", p.out)
	}
}
