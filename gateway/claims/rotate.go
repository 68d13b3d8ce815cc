package claims

import (
	"slices"
	"strings"

	"github.com/rouse-run/rouse/gateway/problem"
)

// IDs names the ring's keys, the signing one first.
func (k *Keys) IDs() []string {
	out := make([]string, len(k.ring))
	for i, e := range k.ring {
		out[i] = e.id
	}
	return out
}

// ringText is a ring as it is written: what stands above the first key, then the
// keys, one a line.
type ringText struct {
	head []string
	keys []string // "id:base64"
}

func readRing(text string) (ringText, error) {
	if _, err := ParseKeys(text); err != nil {
		return ringText{}, err
	}
	var r ringText
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			if len(r.keys) == 0 {
				r.head = append(r.head, line)
			}
			continue
		}
		r.keys = append(r.keys, strings.FieldsFunc(line, func(c rune) bool { return c == ',' || c == ' ' || c == '\t' })...)
	}
	return r, nil
}

func (r ringText) String() string { return strings.Join(append(r.head, r.keys...), "\n") + "\n" }

// readRingAt is readRing with the place of a key.
func readRingAt(text, id string) (r ringText, at int, err error) {
	if r, err = readRing(text); err != nil {
		return r, -1, err
	}
	at = slices.IndexFunc(r.keys, func(k string) bool { return strings.HasPrefix(k, id+":") })
	if id == "" || at < 0 {
		return r, -1, problem.New(problem.InvalidRequest, "The ring has no such key. `rouse keys ls` shows those it has.")
	}
	return r, at, nil
}

// AddKey gives the ring's text with a fresh key that only verifies, at the end,
// and its id.
func AddKey(text string) (ring, id string, err error) {
	r, err := readRing(text)
	if err != nil {
		return "", "", err
	}
	fresh := strings.TrimSpace(NewKeys())
	id, _, _ = strings.Cut(fresh, ":")
	r.keys = append(r.keys, fresh)
	return r.String(), id, nil
}

// SignWith gives the ring's text with the key of the id in front, where it signs.
// The others stay, and verify.
func SignWith(text, id string) (string, error) {
	r, at, err := readRingAt(text, id)
	if err != nil {
		return "", err
	}
	key := r.keys[at]
	r.keys = append([]string{key}, slices.Delete(r.keys, at, at+1)...)
	return r.String(), nil
}

// Retire gives the ring's text without the key of the id, with which nothing
// verifies any more. The key that signs cannot be retired.
func Retire(text, id string) (string, error) {
	r, at, err := readRingAt(text, id)
	if err != nil {
		return "", err
	}
	if at == 0 {
		return "", problem.New(problem.InvalidRequest, "The key signs. Let another one sign first: `rouse keys rotate`.")
	}
	r.keys = slices.Delete(r.keys, at, at+1)
	return r.String(), nil
}
