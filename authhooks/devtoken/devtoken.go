// Package devtoken is the auth hook of a static token file: each line or entry
// names a principal and the SHA-256 of a token that acts as it.
//
// It promises that the file holds no token, that a change of the file is seen
// within seconds without a restart, and that a file which cannot be read lets
// nobody in. It knows nothing of the gateway.
package devtoken

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rouse-run/rouse/plugins/contract"
)

// Entry is one token of the file.
type Entry struct {
	// Principal is kind:id.
	Principal string `json:"principal"`
	// SHA256 is the hash of the token in hex.
	SHA256 string `json:"sha256"`
	// Name reminds people what the token is for.
	Name string `json:"name,omitempty"`
	// ExpiresAt ends the token; zero means never.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// Prefix begins every token that [NewToken] makes, so that leaked ones are found.
const Prefix = "rouse_pat_"

// NewToken makes a token with 256 random bits.
func NewToken() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return Prefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// Hash is what the file holds of a token.
func Hash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Parse reads a token file: a JSON object with a list "tokens", or lines
// "kind:id sha256:HEX [name]" where # begins a comment. Errors name the place,
// never a value.
func Parse(data []byte) ([]Entry, error) {
	var out []Entry
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '{' {
		var doc struct {
			Tokens []Entry `json:"tokens"`
		}
		dec := json.NewDecoder(bytes.NewReader(trimmed))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&doc); err != nil {
			return nil, errors.New("the token file is not the JSON it should be")
		}
		// A line put below the object would look as if it counted.
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			return nil, errors.New("the token file goes on after its JSON object: put the entry into the list \"tokens\"")
		}
		out = doc.Tokens
	} else {
		sc := bufio.NewScanner(bytes.NewReader(data))
		for n := 1; sc.Scan(); n++ {
			line, _, _ := strings.Cut(sc.Text(), "#")
			f := strings.Fields(line)
			if len(f) == 0 {
				continue
			}
			if len(f) < 2 || !strings.HasPrefix(f[1], "sha256:") {
				return nil, fmt.Errorf("line %d of the token file is not \"kind:id sha256:HEX [name]\"", n)
			}
			out = append(out, Entry{Principal: f[0], SHA256: strings.TrimPrefix(f[1], "sha256:"), Name: strings.Join(f[2:], " ")})
		}
		if err := sc.Err(); err != nil {
			return nil, fmt.Errorf("the token file cannot be read: %w", err)
		}
	}
	for i, e := range out {
		if raw, err := hex.DecodeString(e.SHA256); err != nil || len(raw) != sha256.Size {
			return nil, fmt.Errorf("token %d of the file has no SHA-256 in hex", i+1)
		}
		kind, id, ok := strings.Cut(e.Principal, ":")
		if !ok || id == "" || strings.Contains(id, "/") || (kind != "user" && kind != "agent" && kind != "service" && kind != "system") {
			return nil, fmt.Errorf("token %d of the file has no principal of the form kind:id", i+1)
		}
	}
	return out, nil
}

// Add appends an entry to the JSON file at path, which it makes if need be.
func Add(path string, e Entry) error {
	var all []Entry
	data, err := os.ReadFile(path)
	if err == nil {
		if all, err = Parse(data); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := json.MarshalIndent(map[string]any{"tokens": append(all, e)}, "", "  ")
	if err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, append(out, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// Hook authenticates bearer tokens against a file.
type Hook struct {
	path  string
	every time.Duration
	now   func() time.Time

	mu      sync.Mutex
	checked time.Time
	stamp   fileStamp
	byHash  map[[sha256.Size]byte]Entry
	err     error
}

type fileStamp struct {
	mtime time.Time
	size  int64
}

var _ contract.AuthHook = (*Hook)(nil)

// Options tune a [Hook]; the zero value is fine.
type Options struct {
	// Recheck is how often the file is looked at; zero means 2 s.
	Recheck time.Duration
	// Now is the clock; nil means the system's.
	Now func() time.Time
}

// Open reads the file at path.
func Open(path string, o Options) (*Hook, error) {
	if o.Recheck <= 0 {
		o.Recheck = 2 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	h := &Hook{path: path, every: o.Recheck, now: o.Now}
	h.load()
	return h, h.err
}

// Name implements contract.AuthHook.
func (h *Hook) Name() string { return "devtoken" }

// load reads the file; the caller holds the lock or is alone.
func (h *Hook) load() {
	h.checked = h.now()
	st, err := os.Stat(h.path)
	if err != nil {
		h.err, h.byHash = fmt.Errorf("the token file cannot be read: %w", err), nil
		return
	}
	stamp := fileStamp{st.ModTime(), st.Size()}
	if stamp == h.stamp && h.err == nil {
		return
	}
	h.byHash = nil
	data, err := os.ReadFile(h.path)
	if err != nil {
		h.err = fmt.Errorf("the token file cannot be read: %w", err)
		return
	}
	entries, err := Parse(data)
	if h.err = err; err != nil {
		return
	}
	h.stamp, h.byHash = stamp, make(map[[sha256.Size]byte]Entry, len(entries))
	for _, e := range entries {
		var k [sha256.Size]byte
		raw, _ := hex.DecodeString(e.SHA256) // Parse has checked it
		copy(k[:], raw)
		h.byHash[k] = e
	}
}

// Authenticate implements contract.AuthHook: no bearer token, no opinion; an
// unknown or ended one is refused.
func (h *Hook) Authenticate(_ context.Context, header http.Header) (contract.Principal, contract.Verdict, error) {
	scheme, token, ok := strings.Cut(header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return contract.Principal{}, contract.NoOpinion, nil
	}
	h.mu.Lock()
	now := h.now()
	if now.Sub(h.checked) >= h.every {
		h.load()
	}
	e, found := h.byHash[sha256.Sum256([]byte(strings.TrimSpace(token)))]
	err := h.err
	h.mu.Unlock()
	if err != nil {
		return contract.Principal{}, contract.Deny, err
	}
	if !found || (!e.ExpiresAt.IsZero() && !now.Before(e.ExpiresAt)) {
		return contract.Principal{}, contract.Deny, nil
	}
	kind, id, _ := strings.Cut(e.Principal, ":")
	return contract.Principal{Kind: kind, ID: id, Profile: map[string]string{"auth_provider": "devtoken"}}, contract.Allow, nil
}
