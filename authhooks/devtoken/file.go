package devtoken

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rouse-run/rouse/authhooks/wholefile"
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

// ID names an entry to people: the first digits of its hash, of which nobody can
// make the token.
func (e Entry) ID() string { return strings.ToLower(e.SHA256[:min(len(e.SHA256), 12)]) }

// ErrNoEntry says that no entry of the file is meant.
var ErrNoEntry = errors.New("the token file has no such token")

// List reads the file at path.
func List(path string) ([]Entry, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(data)
}

// Add appends an entry to the file at path, which it makes, of the JSON form, if
// need be. A file of lines cannot hold a time.
func Add(path string, e Entry) error {
	return wholefile.Change(path, func(data []byte) ([]byte, error) {
		all, err := Parse(data)
		if err != nil {
			return nil, err
		}
		if isJSON(data) || len(bytes.TrimSpace(data)) == 0 {
			return encode(append(all, e))
		}
		if !e.ExpiresAt.IsZero() {
			return nil, errors.New("the token file has lines, which hold no time: make a new file, or leave the time out")
		}
		if len(data) > 0 && data[len(data)-1] != '\n' {
			data = append(data, '\n')
		}
		return append(data, e.Line()+"\n"...), nil
	})
}

// Line is the entry as a line of a token file.
func (e Entry) Line() string {
	return strings.TrimSpace(e.Principal + " sha256:" + e.SHA256 + " " + e.Name)
}

// Remove takes the entries out that match and returns them; when there are none,
// it fails with ErrNoEntry and leaves the file alone. Comments of other lines stay.
func Remove(path string, match func(Entry) bool) ([]Entry, error) {
	var gone []Entry
	err := wholefile.Change(path, func(data []byte) ([]byte, error) {
		all, err := Parse(data)
		if err != nil {
			return nil, err
		}
		for _, e := range all {
			if match(e) {
				gone = append(gone, e)
			}
		}
		if len(gone) == 0 {
			return nil, ErrNoEntry
		}
		if isJSON(data) {
			return encode(slices.DeleteFunc(all, match))
		}
		var kept bytes.Buffer
		for line := range bytes.Lines(data) {
			if e, err := Parse(line); err != nil || len(e) == 0 || !match(e[0]) {
				kept.Write(line)
			}
		}
		return kept.Bytes(), nil
	})
	return gone, err
}

func isJSON(data []byte) bool {
	trimmed := bytes.TrimSpace(data)
	return len(trimmed) > 0 && trimmed[0] == '{'
}

func encode(all []Entry) ([]byte, error) {
	if all == nil {
		all = []Entry{}
	}
	out, err := json.MarshalIndent(map[string]any{"tokens": all}, "", "  ")
	return append(out, '\n'), err
}
