package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Cursor is where the wake stream of one runner at one server was left.
type Cursor struct {
	Runner string `json:"runner"`
	Server string `json:"server"`
	// Born tells the wake stream from a later one of the same name, as after a database was made anew: a cursor of
	// another one counts for nothing.
	Born   string `json:"born"`
	Offset string `json:"offset"`
}

// Cursors keeps cursors. Save must be atomic: after a crash the cursor is the old one or the new one.
type Cursors interface {
	Load(runner, server string) (Cursor, error) // the zero Cursor when there is none
	Save(Cursor) error
}

// noCursors forgets.
type noCursors struct{}

func (noCursors) Load(string, string) (Cursor, error) { return Cursor{}, nil }
func (noCursors) Save(Cursor) error                   { return nil }

// CursorDir keeps each cursor in a file of its own in a directory, which it makes.
type CursorDir string

func (d CursorDir) path(runner, server string) string {
	sum := sha256.Sum256([]byte(server))
	return filepath.Join(string(d), runner+"-"+hex.EncodeToString(sum[:6])+".json")
}

// Load reads a cursor. A file that cannot be understood is an error, not a beginning: whoever damaged it should know.
func (d CursorDir) Load(runner, server string) (Cursor, error) {
	path := d.path(runner, server)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Cursor{}, nil
	}
	if err != nil {
		return Cursor{}, err
	}
	var c Cursor
	if err := json.Unmarshal(raw, &c); err != nil {
		return Cursor{}, fmt.Errorf("the cursor file %s is damaged (remove it to read the wake stream from its start): %w", path, err)
	}
	if c.Runner != runner || c.Server != server {
		return Cursor{}, fmt.Errorf("the cursor file %s belongs to runner %q at %q", path, c.Runner, c.Server)
	}
	return c, nil
}

// Save replaces the file: written beside it, on disk, then renamed over it.
func (d CursorDir) Save(c Cursor) error {
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(string(d), ".cursor-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(raw, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), d.path(c.Runner, c.Server))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
