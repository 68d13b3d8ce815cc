// Package sealed owns a runner's key: the file it is kept in, and how entries of a wake stream that were sealed to it are
// opened.
//
// A gateway seals an entry to the public key that the runner registered, as a libsodium sealed box. The private key never
// leaves the machine; it is made here, and printed nowhere. The package knows nothing of gateways or of what entries mean.
package sealed

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/crypto/curve25519"
	"golang.org/x/crypto/nacl/box"
)

// Key is an X25519 key pair.
type Key struct{ public, private [32]byte }

// ErrOtherKey says that an entry is sealed to a key that is not at hand.
var ErrOtherKey = errors.New("the entry is sealed to another key")

// New makes a key.
func New() (*Key, error) {
	public, private, err := box.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return &Key{*public, *private}, nil
}

// Load reads the key from a file that only its owner may read. Where there is none it makes one, and the directory.
func Load(path string) (*Key, error) {
	for {
		raw, err := os.ReadFile(path)
		switch {
		case err == nil:
			return parse(path, raw)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
		if err := create(path); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("a key file cannot be made: %w", err)
		}
	}
}

const comment = "# The private key that wakes are sealed to. Remove the file to have another one made.\n"

func parse(path string, raw []byte) (*Key, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("the key file %s can be read by others than its owner; say: chmod 600 %s", path, path)
	}
	text := ""
	for line := range strings.Lines(string(raw)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			text += line
		}
	}
	secret, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(secret) != 32 {
		return nil, fmt.Errorf("the key file %s is damaged; remove it to have another one made", path)
	}
	public, err := curve25519.X25519(secret, curve25519.Basepoint)
	if err != nil {
		return nil, fmt.Errorf("the key file %s holds no usable key; remove it to have another one made", path)
	}
	return &Key{[32]byte(public), [32]byte(secret)}, nil
}

// create makes a key file: whole or not at all, and never over one that is there.
func create(path string) error {
	k, err := New()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".key-*") // for its owner only
	if err != nil {
		return err
	}
	_, err = f.WriteString(comment + base64.StdEncoding.EncodeToString(k.private[:]) + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Link(f.Name(), path)
	}
	return errors.Join(err, os.Remove(f.Name()))
}

// Public is the key that a gateway is told, in base64.
func (k *Key) Public() string { return base64.StdEncoding.EncodeToString(k.public[:]) }

// String is Public, so that no log shows the rest.
func (k *Key) String() string { return k.Public() }

// GoString is Public.
func (k *Key) GoString() string { return k.Public() }

// Open opens an entry of a wake stream. One that is not sealed is given as it is; one that is sealed to another key, or
// to this one while k is nil, is [ErrOtherKey].
func (k *Key) Open(entry json.RawMessage) (json.RawMessage, error) {
	var e struct {
		Sealed *string `json:"sealed"`
	}
	if json.Unmarshal(entry, &e) != nil || e.Sealed == nil {
		return entry, nil
	}
	raw, err := base64.StdEncoding.DecodeString(*e.Sealed)
	if err != nil {
		return nil, fmt.Errorf("a sealed entry is damaged: %w", err)
	}
	if k == nil {
		return nil, ErrOtherKey
	}
	plain, ok := box.OpenAnonymous(nil, raw, &k.public, &k.private)
	if !ok {
		return nil, ErrOtherKey
	}
	return bytes.TrimRight(plain, " "), nil
}
