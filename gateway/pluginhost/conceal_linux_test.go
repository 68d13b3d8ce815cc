package pluginhost

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Plugins run as the gateway's user and cannot read its secrets nevertheless, nor
// what other plugins are shown;
// as root they could, so root starts this test's gateway as somebody else.
func TestPluginsCannotReadWhatTheGatewayHolds(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "ph")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	raw, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program, sockets := filepath.Join(dir, "gateway"), filepath.Join(dir, "s")
	as := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		as.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(program, raw, 0o755), os.Mkdir(sockets, 0o700)); err != nil {
		t.Fatal(err)
	}
	if as.Credential != nil {
		if err := os.Chown(sockets, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	for open, want := range map[string]string{"": "environment false memory false denied true", "1": "environment true"} {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env, cmd.SysProcAttr, cmd.Dir = []string{fixtureEnv + "=keeper", "HOST_DIR=" + sockets, "OPEN=" + open, kept}, as, "/"
		out, err := cmd.CombinedOutput()
		lines := strings.Split(string(out), "\n")
		if err != nil || len(lines) != 5 || !strings.HasPrefix(lines[0], "program "+want) || !strings.HasPrefix(lines[1], "builtin "+want) ||
			lines[2] != "sibling environment false memory false denied true" || lines[3] != "<nil>" {
			t.Errorf("concealed %t: %v\n%s", open == "", err, strings.ReplaceAll(string(out), kept, "KEPT"))
		}
	}
}
