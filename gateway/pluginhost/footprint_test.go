package pluginhost

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestAFootprintTellsChangedFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) error { return os.WriteFile(in(name), []byte(text), 0o600) }
	if err := errors.Join(os.Mkdir(in("one"), 0o700), write("one/a", "a"), os.Mkdir(in("two"), 0o700), write("two/a", "a"), os.Symlink("one", in("link"))); err != nil {
		t.Fatal(err)
	}
	reads := []string{in("link"), in("file")}
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"a file comes", func() error { return write("file", "x") }},
		{"it is written by a new one's name", func() error { return errors.Join(write("file~", "yy"), os.Rename(in("file~"), in("file"))) }},
		{"it goes", func() error { return os.Remove(in("file")) }},
		{"it is a folder now", func() error { return os.Mkdir(in("file"), 0o700) }},
		{"a file behind a link changes", func() error { return write("one/a", "ab") }},
		{"the link is turned", func() error { return errors.Join(os.Symlink("two", in("link~")), os.Rename(in("link~"), in("link"))) }},
		{"the link leads nowhere", func() error { return os.RemoveAll(in("two")) }},
	} {
		before := footprint(reads)
		if footprint(reads) != before {
			t.Errorf("%s: it differs without a change", c.name)
		}
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		if footprint(reads) == before {
			t.Errorf("%s: it stays", c.name)
		}
	}
}
