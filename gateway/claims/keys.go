package claims

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/rouse-run/rouse/gateway/problem"
)

const keyBytes = 32

// urlToStd lets a secret be written in either alphabet of base64.
var urlToStd = strings.NewReplacer("-", "+", "_", "/")

// Keys is the ring that tokens are made with. The first key signs, all verify:
// a rotation adds a key in front and drops the last once no lease made with it
// can still live.
type Keys struct{ ring []key }

type key struct {
	id     string
	secret []byte
}

// NewKeys returns the text of a ring with one fresh key.
func NewKeys() string {
	secret, id := make([]byte, keyBytes), make([]byte, 4)
	_, _ = rand.Read(secret)
	_, _ = rand.Read(id)
	return fmt.Sprintf("%x:%s\n", id, base64.StdEncoding.EncodeToString(secret))
}

// ParseKeys reads a ring: "id:base64" entries separated by newlines, commas or
// spaces; lines beginning with # are comments. Each secret has at least 32
// bytes. The error never shows a secret.
func ParseKeys(text string) (*Keys, error) {
	ks := &Keys{}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, f := range strings.FieldsFunc(line, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\r' || r == '\t' }) {
			id, enc, ok := strings.Cut(f, ":")
			if !ok || id == "" || len(id) > 32 {
				return nil, problem.Newf(problem.InvalidRequest, "Key %d of ROUSE_KEYS is not of the form id:base64.", len(ks.ring)+1)
			}
			secret, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(urlToStd.Replace(enc), "="))
			if err != nil || len(secret) < keyBytes {
				return nil, problem.Newf(problem.InvalidRequest, "Key %d of ROUSE_KEYS is not base64 of at least %d bytes.", len(ks.ring)+1, keyBytes)
			}
			for _, k := range ks.ring {
				if k.id == id {
					return nil, problem.Newf(problem.InvalidRequest, "Key id %q stands twice in ROUSE_KEYS.", id)
				}
			}
			ks.ring = append(ks.ring, key{id, secret})
		}
	}
	if len(ks.ring) == 0 {
		return nil, problem.New(problem.InvalidRequest, "ROUSE_KEYS holds no key. Make one with `rouse keys new`.")
	}
	return ks, nil
}

// String hides the secrets, of a copy too.
func (k Keys) String() string { return fmt.Sprintf("keys(%d)", len(k.ring)) }

// GoString hides the secrets.
func (k Keys) GoString() string { return k.String() }

// String hides the secret.
func (k key) String() string { return "key(" + k.id + ")" }

// GoString hides the secret.
func (k key) GoString() string { return k.String() }

// Secrets returns copies of the ring's secrets, the signing one first, for
// deriving keys of other kinds.
func (k *Keys) Secrets() [][]byte {
	out := make([][]byte, len(k.ring))
	for i, e := range k.ring {
		out[i] = append([]byte(nil), e.secret...)
	}
	return out
}
