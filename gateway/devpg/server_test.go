package devpg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

// holderEnv makes this test binary a process that runs a server on the directory it names until it is killed.
const holderEnv = "ROUSE_DEVPG_TEST_HOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holderEnv); dir != "" {
		os.Exit(hold(dir))
	}
	goleak.VerifyTestMain(m)
}

func hold(dir string) int {
	s, err := Start(context.Background(), Options{Dir: dir, Settings: map[string]string{"fsync": "off"}})
	if err != nil {
		fmt.Println("error", CodeOf(err))
		return 1
	}
	fmt.Println("pid", s.PID())
	select {}
}

// startHolder runs a server in a process of its own and gives that process and the postmaster's pid.
func startHolder(t *testing.T, dir string) (*exec.Cmd, int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), holderEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, "pid ")))
	if err != nil {
		t.Fatalf("the holder said %q", line)
	}
	return cmd, pid
}

// reachableDir is a temporary directory that the server's user can get to when the tests run as root.
func reachableDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rouse-devpg-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func start(t *testing.T, opts Options) *Server {
	t.Helper()
	if opts.Settings == nil {
		opts.Settings = map[string]string{"fsync": "off"}
	}
	s, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s) })
	return s
}

func stop(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// eventually polls until ok, as what is waited for happens in another process.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen in 15 s: %s", what)
		}
		if err := pause(t.Context(), 5*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
}

func query(t *testing.T, dsn, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	var value string
	err = conn.QueryRow(t.Context(), sql).Scan(&value)
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestServerIsSetUpForLogicalReplicationAndKeepsItsURLs(t *testing.T) {
	t.Parallel()
	dir := reachableDir(t)
	s, err := Start(t.Context(), Options{Dir: dir, Settings: map[string]string{"fsync": "off", "application_name": "it's"}})
	if err != nil {
		t.Fatal(err)
	}
	for setting, want := range map[string]string{
		"wal_level": "logical", "max_wal_senders": "32", "max_replication_slots": "32", "max_connections": "200",
		"max_slot_wal_keep_size": "2GB", "application_name": "it's",
	} {
		if got := query(t, s.DSN(Database), "select current_setting('"+setting+"')"); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	socket, tcp := s.DSN(Database), s.TCPURL(Database)
	query(t, tcp, "select 'in'")
	stop(t, s)
	again := start(t, Options{Dir: dir})
	if again.DSN(Database) != socket || again.TCPURL(Database) != tcp {
		t.Errorf("the URLs changed with a restart: %s, %s", again.DSN(Database), again.TCPURL(Database))
	}
}

func TestTCPNeedsThePassword(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Dir: reachableDir(t)})
	_, err := pgx.Connect(t.Context(), strings.Replace(s.TCPURL(Database), s.Password(), "wrong", 1))
	if err == nil || !strings.Contains(err.Error(), "28P01") {
		t.Fatalf("a wrong password over TCP gave %v", err)
	}
	if got := query(t, s.TCPURL(Database), "select string_agg(distinct auth_method, ',') from pg_hba_file_rules where type like 'host%'"); got != "scram-sha-256" {
		t.Errorf("TCP is open to %s", got)
	}
	info, err := os.Stat(s.SocketDir())
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's directory has mode %o", info.Mode().Perm())
	}
}

func TestServerEndsAfterItsParentWasKilled(t *testing.T) {
	t.Parallel()
	dir := reachableDir(t)
	holder, pid := startHolder(t, dir)
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the postmaster ends", func() bool { return syscall.Kill(pid, 0) != nil })
	start(t, Options{Dir: dir})
}

func TestStartRightAfterTheParentWasKilledRecovers(t *testing.T) {
	t.Parallel()
	dir := reachableDir(t)
	holder, _ := startHolder(t, dir)
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait()
	s := start(t, Options{Dir: dir})
	query(t, s.DSN(Database), "select 'in'")
}

func TestSecondLiveStartIsRefusedNamingTheFirst(t *testing.T) {
	t.Parallel()
	dir := reachableDir(t)
	holder, _ := startHolder(t, dir)
	_, err := Start(t.Context(), Options{Dir: dir})
	if CodeOf(err) != CodeInUse || !strings.Contains(err.Error(), "pid "+strconv.Itoa(holder.Process.Pid)) {
		t.Fatalf("got %v", err)
	}
}

func TestStalePidFileOfAnotherProcessIsNoObstacleAndKillsNobody(t *testing.T) {
	t.Parallel()
	dir := reachableDir(t)
	s, err := Start(t.Context(), Options{Dir: dir, Settings: map[string]string{"fsync": "off"}})
	if err != nil {
		t.Fatal(err)
	}
	stop(t, s)
	bystander := exec.Command("sleep", "60")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = bystander.Process.Kill()
		_ = bystander.Wait()
	})
	stale := filepath.Join(dir, "data", "postmaster.pid")
	if err := os.WriteFile(stale, []byte(strconv.Itoa(bystander.Process.Pid)+"\n"+dir+"/data\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := stopOrphan(t.Context(), filepath.Join(dir, "data")); err != nil {
		t.Fatal(err)
	}
	if err := bystander.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatalf("the bystander was hit: %v", err)
	}
}

func TestPortTakenMeanwhileMovesTheServer(t *testing.T) {
	t.Parallel()
	dir := reachableDir(t)
	s, err := Start(t.Context(), Options{Dir: dir, Settings: map[string]string{"fsync": "off"}})
	if err != nil {
		t.Fatal(err)
	}
	port := s.Port()
	stop(t, s)
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	again := start(t, Options{Dir: dir})
	if again.Port() == port {
		t.Fatalf("still on port %d", port)
	}
	query(t, again.DSN(Database), "select 'in'")
}

func TestBadSettingIsAStartErrorThatShowsTheLog(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{Dir: reachableDir(t), Settings: map[string]string{"fsync": "off", "no_such_setting": "1"}})
	if CodeOf(err) != CodeStart || !strings.Contains(err.Error(), "no_such_setting") {
		t.Fatalf("got %v", err)
	}
}

func TestDataOfAnotherMajorVersionIsRefused(t *testing.T) {
	t.Parallel()
	dir := reachableDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("12\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(t.Context(), Options{Dir: dir}); CodeOf(err) != CodeVersion {
		t.Fatalf("got %v", err)
	}
}

func TestFailedTellsOfACrashAndRestartMendsIt(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Dir: reachableDir(t)})
	failed := s.Failed()
	select {
	case <-failed:
		t.Fatal("failed before anything happened")
	default:
	}
	if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-failed:
	case <-time.After(15 * time.Second):
		t.Fatal("nobody was told")
	}
	if err := s.Restart(t.Context(), Fast); err != nil {
		t.Fatal(err)
	}
	query(t, s.DSN(Database), "select 'in'")
}

func TestStopTwiceAndRestartAfterStop(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Dir: reachableDir(t)})
	stop(t, s)
	stop(t, s)
	if err := s.Restart(t.Context(), Fast); CodeOf(err) != CodeStart {
		t.Fatalf("got %v", err)
	}
}

func TestLongDirectoryGetsAShortSocket(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(reachableDir(t), strings.Repeat("long", 25))
	s := start(t, Options{Dir: dir})
	if len(s.SocketDir()) > 80 {
		t.Fatalf("socket directory %s", s.SocketDir())
	}
	query(t, s.DSN(Database), "select 'in'")
	socket := s.SocketDir()
	stop(t, s)
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("%s is left behind", socket)
	}
}

func TestIdleServerStopsAfterItsLastClient(t *testing.T) {
	t.Parallel()
	dir := reachableDir(t)
	idle := &IdleStop{Clients: filepath.Join(dir, "clients"), Advert: filepath.Join(dir, "ctl", "advert"), After: time.Second}
	if _, err := Start(t.Context(), Options{Dir: filepath.Join(dir, "pg"), Settings: map[string]string{"fsync": "off"}, IdleStop: idle}); err != nil {
		t.Fatal(err)
	}
	pid, ready := postmasterPID(filepath.Join(dir, "pg", "data"))
	if pid == 0 || !ready {
		t.Fatalf("pid %d, ready %v", pid, ready)
	}
	if err := os.WriteFile(idle.Advert, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// A client that is no more does not keep it.
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(idle.Clients, strconv.Itoa(gone.Process.Pid)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server stops", func() bool {
		pid, _ := postmasterPID(filepath.Join(dir, "pg", "data"))
		return pid == 0
	})
	if _, err := os.Stat(idle.Advert); !os.IsNotExist(err) {
		t.Error("the advert outlives the server")
	}
}
