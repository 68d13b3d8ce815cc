package skeleton_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/plugins/plugintest"
	"github.com/rouse-run/rouse/plugins/skeleton"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// do runs a tool in a folder.
func do(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// A new author's first minutes: write, test, build, conformance.
func TestANewPluginBuildsIsTestedAndConforms(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"transport", "authhook"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "pager")
			names, err := skeleton.Write(dir, skeleton.Plugin{Kind: kind, Name: "pager", Version: "v0.0.0", Rouse: root})
			if err != nil || len(names) != 4 {
				t.Fatalf("%v %v", names, err)
			}
			// What this module was built with need not be fetched again.
			if err := os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644); err != nil {
				t.Fatal(err)
			}
			if out := do(t, dir, "gofmt", "-l", "."); out != "" {
				t.Errorf("not formatted: %s", out)
			}
			do(t, dir, "go", "vet", "./...")
			do(t, dir, "go", "test", "./...")
			do(t, dir, "go", "build", "-o", "pager", ".")
			ok := plugintest.Run(context.WithoutCancel(t.Context()), plugintest.Options{Path: filepath.Join(dir, "pager")}, func(r plugintest.Result) {
				if r.Err != nil {
					t.Errorf("%s: %v", r.Name, r.Err)
				}
			})
			if !ok {
				t.Error("it does not conform")
			}
		})
	}
}

func TestASkeletonOverwritesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := skeleton.Write(dir, skeleton.Plugin{Kind: "transport", Name: "pager"}); err == nil {
		t.Error("it wrote into a folder that is not empty")
	}
	for _, p := range []skeleton.Plugin{{Kind: "transport", Name: "Pager"}, {Kind: "transport", Name: "runner"}, {Kind: "transport", Name: "../x"}, {Kind: "theme", Name: "pager"}} {
		dir := filepath.Join(t.TempDir(), "new")
		if _, err := skeleton.Write(dir, p); err == nil {
			t.Errorf("%+v is written", p)
		}
	}
}
