package devpg

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// The range of major versions Rouse works on.
const (
	MinMajor = 15
	MaxMajor = 18
)

// needed are the programs a directory must hold to count as a Postgres.
var needed = []string{"initdb", "postgres", "pg_ctl"}

// Binaries is one installation of Postgres.
type Binaries struct {
	Dir     string // holds initdb, postgres, pg_ctl
	Version string // as the server prints it, e.g. "15.18"
	Major   int
}

// Path gives the path of one of the programs.
func (b Binaries) Path(program string) string { return filepath.Join(b.Dir, program) }

// Find lists the installations of a supported version on this machine, the preferred first: ROUSE_PG_BIN if set (and
// then nothing else), the one PATH leads to, then the newest of the usual places (Debian and Ubuntu packages, Homebrew,
// Postgres.app, RPM packages). The error, CodeNotFound, says what was looked at.
func Find(ctx context.Context) ([]Binaries, error) {
	if dir := os.Getenv("ROUSE_PG_BIN"); dir != "" {
		b, err := inspect(ctx, dir)
		if err != nil {
			return nil, &Error{Code: CodeNotFound, Detail: "ROUSE_PG_BIN names no usable Postgres", Cause: err,
				Hint: fmt.Sprintf("ROUSE_PG_BIN must be the directory that holds initdb, postgres and pg_ctl of version %d to %d.", MinMajor, MaxMajor)}
		}
		return []Binaries{b}, nil
	}
	return find(ctx, filepath.SplitList(os.Getenv("PATH")), usualPlaces(runtime.GOOS))
}

// find looks at the directories of a PATH first and then at the usual places, newest version first.
func find(ctx context.Context, path, places []string) ([]Binaries, error) {
	var found []Binaries
	var looked []string
	add := func(b Binaries) {
		if !slices.ContainsFunc(found, func(o Binaries) bool { return o.Dir == b.Dir }) {
			found = append(found, b)
		}
	}
	for _, dir := range path {
		// A link in PATH (/usr/local/bin/postgres) stands for the directory it points into: initdb looks for its
		// share files relative to the real one.
		target, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
		if err != nil {
			continue
		}
		if b, err := inspect(ctx, filepath.Dir(target)); err == nil {
			add(b)
		} else {
			looked = append(looked, err.Error())
		}
	}
	var usual []Binaries
	for _, pattern := range places {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			continue
		}
		for _, dir := range dirs {
			if b, err := inspect(ctx, dir); err == nil {
				usual = append(usual, b)
			} else if !os.IsNotExist(err) {
				looked = append(looked, err.Error())
			}
		}
	}
	slices.SortStableFunc(usual, func(a, b Binaries) int { return b.Major - a.Major })
	for _, b := range usual {
		add(b)
	}
	if len(found) == 0 {
		detail := fmt.Sprintf("no Postgres %d to %d on PATH or in %s", MinMajor, MaxMajor, strings.Join(places, ", "))
		if len(looked) > 0 {
			detail += " (" + strings.Join(looked, "; ") + ")"
		}
		return nil, &Error{Code: CodeNotFound, Detail: detail, Hint: installHint(runtime.GOOS)}
	}
	return found, nil
}

func usualPlaces(goos string) []string {
	if goos == "darwin" {
		return []string{
			"/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin",
			"/Applications/Postgres.app/Contents/Versions/*/bin",
		}
	}
	return []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin"}
}

func installHint(goos string) string {
	how := "Install it: `apt-get install postgresql` on Debian and Ubuntu, `dnf install postgresql-server` on Fedora"
	if goos == "darwin" {
		how = "Install it: `brew install postgresql@17`, or Postgres.app"
	}
	return how + "; or set ROUSE_PG_BIN to the directory that holds initdb, postgres and pg_ctl."
}

var versionText = regexp.MustCompile(`\(PostgreSQL\) ((\d+)[.\w]*)`)

// inspect checks that dir holds all programs of a supported version. It runs `postgres --version`.
func inspect(ctx context.Context, dir string) (Binaries, error) {
	for _, program := range needed {
		info, err := os.Stat(filepath.Join(dir, program))
		if err != nil {
			return Binaries{}, err
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return Binaries{}, fmt.Errorf("%s is not executable", filepath.Join(dir, program))
		}
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("%s --version: %w", filepath.Join(dir, "postgres"), err)
	}
	m := versionText.FindStringSubmatch(string(out))
	if m == nil {
		return Binaries{}, fmt.Errorf("%s printed %q for a version", filepath.Join(dir, "postgres"), strings.TrimSpace(string(out)))
	}
	major, err := strconv.Atoi(m[2])
	if err != nil {
		return Binaries{}, err
	}
	if major < MinMajor || major > MaxMajor {
		return Binaries{}, fmt.Errorf("%s is version %s; %d to %d are supported", dir, m[1], MinMajor, MaxMajor)
	}
	return Binaries{Dir: dir, Version: m[1], Major: major}, nil
}
