package observation

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/rouse-run/rouse/gateway/staterow"
)

// MembershipRef names the membership stream of tags for a principal: the hash
// that clients of the wire make of the tags, and one of the principal, since what
// the stream shows depends on who may see it.
func MembershipRef(tags map[string]string, principal string) string {
	keys := make([]string, 0, len(tags))
	for k := range tags {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareKeys)
	var b strings.Builder
	b.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quote(k) + ":" + quote(tags[k]))
	}
	b.WriteByte('}')
	return hash(b.String()) + "-" + hash(principal)
}

// compareKeys orders as JavaScript does the members of an object whose names
// were sorted: those that are array indexes first, by number, then by UTF-16.
func compareKeys(a, b string) int {
	ia, oka := arrayIndex(a)
	ib, okb := arrayIndex(b)
	switch {
	case oka && okb:
		return cmp.Compare(ia, ib)
	case oka:
		return -1
	case okb:
		return 1
	}
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

func arrayIndex(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return n, err == nil && n < 1<<32-1 && strconv.FormatUint(n, 10) == s
}

// quote is JSON.stringify of a string: unlike Go's it leaves U+2028 and U+2029
// as they are.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for s != "" {
		n := strings.IndexAny(s, "\u2028\u2029")
		if n < 0 {
			n = len(s)
		}
		part := staterow.Encode(s[:n])
		b.WriteString(part[1 : len(part)-1])
		if s = s[n:]; s != "" {
			b.WriteString(s[:len("\u2028")])
			s = s[len("\u2028"):]
		}
	}
	b.WriteByte('"')
	return b.String()
}

// hash is the 64-bit FNV-1a of a text's UTF-16 units, as the wire has it.
func hash(s string) string {
	h := uint64(0xcbf29ce484222325)
	for _, unit := range utf16.Encode([]rune(s)) {
		h = (h ^ uint64(unit)) * 0x100000001b3
	}
	return fmt.Sprintf("%016x", h)
}
