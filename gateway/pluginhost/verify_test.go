package pluginhost

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/soon"
)

// program is a copy of this binary that tells when it has been executed.
type program struct{ dir, path, marker, sum string }

func newProgram(t *testing.T) program {
	t.Helper()
	p := program{dir: t.TempDir(), sum: ownSpec("").SHA256}
	if err := os.Chmod(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	p.path, p.marker = filepath.Join(p.dir, "plugin"), filepath.Join(t.TempDir(), "executed")
	copyFile(t, own.path, p.path)
	return p
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func (p program) spec() Spec {
	return Spec{Path: p.path, SHA256: p.sum, Env: map[string]string{fixtureEnv: "transport", "MARKER": p.marker}}
}

func (p program) executed() bool {
	_, err := os.Stat(p.marker)
	return err == nil
}

// F21: what is not to be trusted is refused with its code and never executed.
func TestAProgramThatOthersMayHaveChangedIsNotExecuted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code  string
		spoil func(t *testing.T, p *program)
	}{
		"other bytes":          {CodeChecksum, func(t *testing.T, p *program) { appendTo(t, p.path) }},
		"another checksum":     {CodeChecksum, func(_ *testing.T, p *program) { p.sum = "00" + p.sum[2:] }},
		"a link":               {CodeSymlink, func(t *testing.T, p *program) { link(t, p) }},
		"a folder for all":     {CodeWritable, func(t *testing.T, p *program) { mode(t, p.dir, 0o777) }},
		"a sticky folder":      {CodeWritable, func(t *testing.T, p *program) { mode(t, p.dir, 0o777|os.ModeSticky) }},
		"a folder for a group": {CodeWritable, func(t *testing.T, p *program) { mode(t, p.dir, 0o775) }},
		"a file for all":       {CodeWritable, func(t *testing.T, p *program) { mode(t, p.path, 0o757) }},
		"another's file":       {CodeWritable, func(t *testing.T, p *program) { give(t, p.path) }},
		"another's folder":     {CodeWritable, func(t *testing.T, p *program) { give(t, p.dir) }},
		"a file to read":       {CodeNotFound, func(t *testing.T, p *program) { mode(t, p.path, 0o644) }},
		"nothing":              {CodeNotFound, func(_ *testing.T, p *program) { _ = os.Remove(p.path) }},
		"a folder":             {CodeNotFound, func(t *testing.T, p *program) { _ = os.Remove(p.path); _ = os.Mkdir(p.path, 0o755) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProgram(t)
			c.spoil(t, &p)
			h := newHost(t, Set{Transports: map[string]Spec{"fixture": p.spec()}})
			soon.Within(t, 20*time.Second, "it is refused", func() bool { return info(h).Failures > 0 })
			stopHost(t, h)
			if got := h.deps.metrics; got == nil || p.executed() {
				t.Error("it was executed")
			}
			if _, err := verify(p.path, p.sum, nil); CodeOf(err) != c.code {
				t.Errorf("got %v, want %s", err, c.code)
			}
		})
	}
}

func appendTo(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("x")
		_ = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, p *program) {
	t.Helper()
	real := filepath.Join(p.dir, "real")
	if err := os.Rename(p.path, real); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, p.path); err != nil {
		t.Fatal(err)
	}
}

func mode(t *testing.T, path string, m os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, m); err != nil {
		t.Fatal(err)
	}
}

// give makes a file another user's, where this process may do that; where it may
// not, nobody but root could have.
func give(t *testing.T, path string) {
	t.Helper()
	if err := os.Chown(path, 12345, -1); err != nil {
		mode(t, path, 0o777)
	}
}

// F21: the program is exchanged, or written to in place, after it was looked at.
func TestWhatIsExecutedIsWhatWasVerified(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(t *testing.T, p program){
		"exchanged": func(t *testing.T, p program) {
			copyFile(t, "/bin/true", p.path+".new")
			rename(t, p.path+".new", p.path)
		},
		"linked elsewhere": func(t *testing.T, p program) { _ = os.Remove(p.path); _ = os.Symlink("/bin/true", p.path) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProgram(t)
			h := newHost(t, Set{Transports: map[string]Spec{"fixture": p.spec()}}, func(h *Host) { h.deps.between = func() { strike(t, p) } })
			up(t, h)
			if !p.executed() {
				t.Error("what was verified was not executed")
			}
		})
	}
	t.Run("written in place before it is read", func(t *testing.T) {
		t.Parallel()
		p := newProgram(t)
		if _, err := verify(p.path, p.sum, func() { appendTo(t, p.path) }); CodeOf(err) != CodeChecksum {
			t.Errorf("got %v", err)
		}
	})
	t.Run("written in place after it is read", func(t *testing.T) {
		t.Parallel()
		p := newProgram(t)
		img, err := verify(p.path, p.sum, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer img.close()
		if err := os.Truncate(p.path, 10); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Stat(img.path); err != nil || got.Size() < 1000 {
			t.Errorf("what will be executed has changed: %v", err)
		}
		if f, err := os.OpenFile(img.path, os.O_WRONLY, 0); err == nil {
			_, err = f.WriteString("x")
			_ = f.Close()
			if err == nil {
				t.Error("what will be executed can be written")
			}
		}
	})
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestAChecksumIsToldOfWhatMayBeUsed(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	if sum, err := Checksum(p.path); err != nil || sum != p.sum {
		t.Errorf("%s %v", sum, err)
	}
	script := filepath.Join(p.dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Checksum(script); CodeOf(err) != CodeNotFound || !strings.Contains(err.Error(), "is a script") {
		t.Error(err)
	}
	mode(t, p.dir, 0o777)
	if _, err := Checksum(p.path); CodeOf(err) != CodeWritable {
		t.Error(err)
	}
}
