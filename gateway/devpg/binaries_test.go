package devpg

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakePostgres makes a directory that looks like an installation of the given version.
func fakePostgres(t *testing.T, dir, version string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, program := range needed {
		script := "#!/bin/sh\necho '" + program + " (PostgreSQL) " + version + "'\n"
		if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFindPrefersPathAndThenTheNewest(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	old := fakePostgres(t, filepath.Join(root, "14", "bin"), "14.9")
	fifteen := fakePostgres(t, filepath.Join(root, "15", "bin"), "15.18 (Debian 15.18-0+deb12u1)")
	eighteen := fakePostgres(t, filepath.Join(root, "18", "bin"), "18.1")
	seventeen := fakePostgres(t, filepath.Join(root, "17", "bin"), "17beta2")
	links := filepath.Join(root, "links")
	if err := os.Mkdir(links, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(fifteen, "postgres"), filepath.Join(links, "postgres")); err != nil {
		t.Fatal(err)
	}
	found, err := find(t.Context(), []string{"/nowhere", old, links}, []string{filepath.Join(root, "*", "bin")})
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, b := range found {
		dirs = append(dirs, b.Dir)
	}
	want := []string{fifteen, eighteen, seventeen}
	if strings.Join(dirs, " ") != strings.Join(want, " ") {
		t.Fatalf("found %v, want %v", dirs, want)
	}
	if found[0].Version != "15.18" || found[0].Major != 15 || found[2].Version != "17beta2" {
		t.Errorf("versions %+v", found)
	}
}

func TestFindSaysWhatWasWrong(t *testing.T) {
	t.Parallel()
	dir := fakePostgres(t, filepath.Join(t.TempDir(), "bin"), "13.4")
	_, err := find(t.Context(), []string{dir}, []string{"/nowhere/*/bin"})
	if CodeOf(err) != CodeNotFound {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"13.4", "/nowhere/*/bin", "ROUSE_PG_BIN"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
}

func TestEnvironmentVariableWins(t *testing.T) {
	dir := fakePostgres(t, filepath.Join(t.TempDir(), "bin"), "16.2")
	t.Setenv("ROUSE_PG_BIN", dir)
	found, err := Find(t.Context())
	if err != nil || len(found) != 1 || found[0].Dir != dir {
		t.Fatalf("found %v, %v", found, err)
	}
	t.Setenv("ROUSE_PG_BIN", "/nowhere")
	if _, err := Find(t.Context()); CodeOf(err) != CodeNotFound || !strings.Contains(err.Error(), "ROUSE_PG_BIN names no usable Postgres") {
		t.Fatalf("got %v", err)
	}
}

func TestDownloadThatFailsSaysHowToInstall(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mirror := "http://" + l.Addr().String()
	l.Close()
	dir := t.TempDir()
	_, err = Download(t.Context(), dir, mirror)
	if CodeOf(err) != CodeNotFound || !strings.Contains(err.Error(), "could not be downloaded") || !strings.Contains(err.Error(), "Install it") {
		t.Fatalf("got %v", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "unpack-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestReachableNamesTheClosedDirectory(t *testing.T) {
	t.Parallel()
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	stranger := account{name: "stranger", uid: 4_000_000, gid: 4_000_000, drop: true}
	err := stranger.reachable(filepath.Join(closed, "data"))
	if CodeOf(err) != CodeNotReachable || !strings.Contains(err.Error(), closed) {
		t.Fatalf("got %v", err)
	}
	if err := stranger.reachable("/usr/lib"); err != nil {
		t.Fatalf("an open directory: %v", err)
	}
	self := account{name: "self"}
	if err := self.reachable(filepath.Join(closed, "data")); err != nil {
		t.Fatalf("the caller itself: %v", err)
	}
}

func TestErrorsCarryTheirCause(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	_, err := Start(ctx, Options{Dir: reachableDir(t)})
	if err == nil || CodeOf(err) == "" {
		t.Fatalf("got %v", err)
	}
}
