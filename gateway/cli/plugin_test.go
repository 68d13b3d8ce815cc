package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/pluginhost"
)

// plain runs a command line that needs no gateway.
func plain(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Run(t.Context(), args, Streams{In: strings.NewReader(""), Out: &o, Err: &e, Environ: []string{"HOME=" + t.TempDir()}})
	return code, o.String(), e.String()
}

func TestPluginsOfAGateway(t *testing.T) {
	t.Parallel()
	p := newPerson(t)
	p.environ[1] = "ROUSE_AS=system:framework"
	if out := p.ok("plugin", "ls"); !strings.Contains(out, "webhook") || !strings.Contains(out, "in the gateway") || !strings.Contains(out, "up") {
		t.Errorf("got %s", out)
	}
	var list []pluginState
	p.into(&list, "plugin", "ls")
	if len(list) != 1 || list[0].Name != "webhook" || !list[0].InProcess || list[0].Kind != "transport" {
		t.Errorf("got %+v", list)
	}
	if out := p.ok("plugin", "logs", "webhook"); out != "" {
		t.Errorf("got %s", out)
	}
	p.refused(ExitServerNotFound, "no plugin", "plugin", "logs", "nothing")
	p.environ[1] = "ROUSE_AS=user:kyle"
	p.refused(ExitServerRefusal, "made for system:framework", "plugin", "ls")
	p.refused(ExitServerRefusal, "made for system:framework", "plugin", "logs", "webhook")
}

func TestPluginCheckTellsTheEntryOfAProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "pager")
	if err := os.WriteFile(path, []byte("pager\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	const sum = "004a53c63bf4ca33be87ecce8df36020b60a7df24872b198d83546a6af88ca60"
	if code, out, errOut := plain(t, "plugin", "check", path); code != ExitOK || out != fmt.Sprintf("  pager:\n    path: %s\n    sha256: %s\n", path, sum) {
		t.Errorf("%d %q %s", code, out, errOut)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := plain(t, "plugin", "check", path); code != ExitFindings || !strings.Contains(errOut, "PLUGIN_WRITABLE") {
		t.Errorf("%d %s", code, errOut)
	}
	if code, _, errOut := plain(t, "plugin", "check"); code != ExitUsage {
		t.Errorf("%d %s", code, errOut)
	}
}

func TestPluginCheckTriesAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "plugins.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("transports:\n  exec: {builtin: exec, config: {commands: {ok: {argv: [/bin/true]}}}}\n  webhook: {builtin: webhook}\n")
	if code, out, errOut := plain(t, "plugin", "check", file); code != ExitOK || strings.Count(out, "ok      ") != 2 {
		t.Errorf("%d %s %s", code, out, errOut)
	}
	write("transports:\n  exec: {builtin: exec, config: {commands: {ok: {argv: [/nonexistent]}}}}\n  pager: {path: /nonexistent, sha256: " + strings.Repeat("0", 64) + "}\n  other: {builtin: telegraph}\n")
	code, out, errOut := plain(t, "plugin", "check", file)
	for _, want := range []string{"FAILED  transport exec  PLUGIN_CONFIG_REFUSED", "FAILED  transport pager  PLUGIN_NOT_FOUND", "FAILED  transport other  PLUGIN_CONFIGURATION"} {
		if code != ExitFindings || !strings.Contains(out, want) {
			t.Errorf("%d: %q is not in %s%s", code, want, out, errOut)
		}
	}
	// What a program says when it ends is nowhere else to be read.
	sh, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := pluginhost.Checksum(sh)
	if err != nil {
		t.Fatal(err)
	}
	write("transports:\n  printer: {path: " + sh + ", sha256: " + sum + ", args: [-c, 'echo there is no licence >&2; exit 3']}\n")
	if code, out, _ := plain(t, "plugin", "check", file); code != ExitFindings || !strings.Contains(out, "PLUGIN_START_FAILED") || !strings.Contains(out, "| there is no licence\n") {
		t.Errorf("%d %s", code, out)
	}
	write("transports: [")
	if code, _, errOut := plain(t, "plugin", "check", file); code != ExitFindings || !strings.Contains(errOut, "PLUGIN_CONFIGURATION") {
		t.Errorf("%d %s", code, errOut)
	}
	// A gateway says it before it starts anything.
	if code, _, errOut := plain(t, "plugin", "check", filepath.Join(t.TempDir(), "none.yaml")); code != ExitFindings {
		t.Errorf("%d %s", code, errOut)
	}
}

func TestPluginNewAndTest(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pager")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	code, _, errOut := plain(t, "plugin", "new", "transport", "pager", "--dir", dir, "--rouse", root)
	if code != ExitOK || !strings.Contains(errOut, "go mod tidy") {
		t.Fatalf("%d %s", code, errOut)
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "main.go")); err != nil || !strings.Contains(string(raw), `Type:    "pager"`) {
		t.Errorf("%v %s", err, raw)
	}
	for _, args := range [][]string{
		{"transport", "pager", "--dir", dir, "--rouse", root},                              // it is there already
		{"transport", "Pager", "--dir", dir + "2", "--rouse", root},                        // no name
		{"transport", "pager", "--dir", dir + "3", "--rouse", filepath.Join(root, "docs")}, // no checkout
		{"theme", "pager"},
		{"transport", "pager", "--dir", dir + "4"}, // this binary is no release
	} {
		if code, _, errOut := plain(t, append([]string{"plugin", "new"}, args...)...); code != ExitUsage {
			t.Errorf("%v: %d %s", args, code, errOut)
		}
	}
	code, out, errOut := plain(t, "plugin", "test", "/bin/true", "--timeout", "2s")
	if code != ExitFindings || !strings.Contains(out, "FAILED") {
		t.Errorf("%d %s %s", code, out, errOut)
	}
	if code, _, errOut := plain(t, "plugin", "test", "/bin/true", "--target", "{"); code != ExitUsage {
		t.Errorf("%d %s", code, errOut)
	}
}
