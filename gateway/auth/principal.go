package auth

import (
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rouse-run/rouse/gateway/problem"
)

// The kinds of principals.
const (
	User    = "user"
	Agent   = "agent"
	Service = "service"
	System  = "system"
)

// maxID bounds a principal's id in bytes.
const maxID = 256

// Principal is who a request acts as.
type Principal struct {
	Kind string
	ID   string
	// Profile is what the hook tells about a person: display_name, email,
	// avatar_url, auth_provider, auth_subject.
	Profile map[string]string
	// Attributes are what the hook tells authorizers besides.
	Attributes map[string]string
}

// DevLocal is who a request without credentials acts as in `rouse dev`.
var DevLocal = Principal{Kind: System, ID: "dev-local"}

// Key is the short form, kind:id, as the header electric-principal has it.
func (p Principal) Key() string { return p.Kind + ":" + p.ID }

// URL is the canonical form, which rows and bodies hold.
func (p Principal) URL() string { return prefix + escape(p.Key()) }

// IsZero says that there is no principal.
func (p Principal) IsZero() bool { return p.Kind == "" }

// Trusted says that the principal is one of the built-in system ones, which
// pass every ownership check. In `serve` only credentials make one; the header
// alone never does.
func (p Principal) Trusted() bool {
	return p.Kind == System && (p.ID == "dev-local" || p.ID == "framework" || p.ID == "auth-sync")
}

// Owns says whether the principal may act on something of owner, a principal
// URL.
func (p Principal) Owns(owner string) bool { return p.Trusted() || p.URL() == owner }

const prefix = "/principal/"

// Parse reads kind:id or /principal/<urlencoded kind:id>.
func Parse(s string) (Principal, error) {
	key := s
	if rest, ok := strings.CutPrefix(s, prefix); ok {
		dec, err := unescape(rest)
		if err != nil {
			return Principal{}, invalid("its escapes cannot be read")
		}
		key = dec
	}
	kind, id, ok := strings.Cut(key, ":")
	if !ok {
		return Principal{}, invalid("it is not of the form kind:id")
	}
	switch kind {
	case User, Agent, Service, System:
	default:
		return Principal{}, invalid("its kind is none of user, agent, service, system")
	}
	if id == "" || len(id) > maxID || strings.Contains(id, "/") || !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) {
		return Principal{}, invalid("its id is empty, too long, or holds a slash or a control character")
	}
	return Principal{Kind: kind, ID: id}, nil
}

func invalid(why string) error {
	return problem.Newf(problem.InvalidPrincipal, "The principal is malformed: %s. Write kind:id, for example user:ada.", why)
}

// escape is encodeURIComponent, since clients of the ecosystem compare what
// that makes.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.!~*'()", c) >= 0
}

func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", hex.ErrLength
		}
		c, err := hex.DecodeString(s[i+1 : i+3])
		if err != nil {
			return "", err
		}
		b.Write(c)
		i += 2
	}
	return b.String(), nil
}
