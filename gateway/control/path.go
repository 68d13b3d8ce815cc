package control

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/reserved"
)

const (
	mount = "_electric"
	// maxPath bounds a decoded path in bytes.
	maxPath = 1024
)

// segments decodes an escaped path once, so that %2F is a slash, and splits it.
// One trailing slash is allowed.
func segments(escaped string) ([]string, error) {
	if len(escaped) > 3*maxPath {
		return nil, problem.Newf(problem.URITooLong, "The path is longer than %d bytes.", maxPath)
	}
	// The prefix itself is never escaped: two spellings of a control route would
	// be two routes for whatever filters them on the way.
	if escaped != "/"+mount && !strings.HasPrefix(escaped, "/"+mount+"/") {
		if escaped == "/openapi.json" || escaped == "/openapi-3.0.json" {
			return []string{escaped[1:]}, nil
		}
		return nil, problem.New(problem.InvalidPath, "The reserved prefix of a control route must not be escaped.")
	}
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, problem.New(problem.InvalidPath, "The path holds a malformed percent escape.")
	}
	switch {
	case len(path) > maxPath:
		return nil, problem.Newf(problem.URITooLong, "The path is longer than %d bytes.", maxPath)
	case !utf8.ValidString(path):
		return nil, problem.New(problem.InvalidPath, "The path is not valid UTF-8.")
	}
	for i := range len(path) {
		if path[i] < 0x20 || path[i] == 0x7f {
			return nil, problem.New(problem.InvalidPath, "The path holds a control character.")
		}
	}
	path = strings.TrimSuffix(path[1:], "/")
	segs := strings.Split(path, "/")
	for _, s := range segs {
		if s == "" || s == "." || s == ".." {
			return nil, problem.New(problem.InvalidPath, "A path segment is empty, a dot, or two dots.")
		}
	}
	return segs, nil
}

// entityVerbs end the path of an operation on an entity. They are reserved as
// the third and later segments of an entity's url, also those that later
// releases serve.
var entityVerbs = map[string]bool{
	"send": true, "signal": true, "display": true, "dispatch": true, "claims": true, "wakes": true, "fork": true,
	"grants": true, "attachments": true, "move": true, "redrive": true, "policies": true,
}

// entityItems are followed by the name of one item, which may hold slashes.
var entityItems = map[string]bool{
	"tags": true, "inbox": true, "schedules": true, "attachments": true, "grants": true, "collections": true,
	"webhook-source-subscriptions": true, "event-source-subscriptions": true, "pg-sync-observations": true,
}

const entityRoot = "/" + mount + "/entities"

// match finds the route template of a path and its parameters; "" when no
// route has this shape.
func (a *adapter) match(segs []string) (template string, params []string) {
	if len(segs) >= 2 && segs[1] == "entities" && len(segs) != 2 {
		return matchEntity(segs[2:])
	}
	if len(segs) > 3 && segs[1] == "retention" && segs[2] == "streams" {
		// The name of a stream, which may hold slashes.
		return "/" + mount + "/retention/streams/{path}", []string{"path", strings.Join(segs[3:], "/")}
	}
	for _, t := range a.templates[len(segs)] {
		params = params[:0]
		hit := true
		for i, s := range t.segs {
			if s[0] == '{' {
				params = append(params, s[1:len(s)-1], segs[i])
			} else if s != segs[i] {
				hit = false
				break
			}
		}
		if hit {
			return t.path, params
		}
	}
	return "", nil
}

// matchEntity reads {type}/{id…}[/verb | /items/{key…}]: an entity's url has two
// segments or more, so a verb is one only behind them.
func matchEntity(segs []string) (string, []string) {
	n := len(segs)
	if n < 2 {
		return "", nil
	}
	base := entityRoot + "/{type}/{id}"
	for i := 2; i < n-1; i++ {
		if entityItems[segs[i]] {
			return base + "/" + segs[i] + "/{key}", []string{"type", segs[0], "id", strings.Join(segs[1:i], "/"), "key", strings.Join(segs[i+1:], "/")}
		}
	}
	if n > 2 && entityVerbs[segs[n-1]] {
		return base + "/" + segs[n-1], []string{"type", segs[0], "id", strings.Join(segs[1:n-1], "/")}
	}
	return base, []string{"type", segs[0], "id", strings.Join(segs[1:], "/")}
}

// checkTypeName says why a name cannot be an entity type's, or "".
func checkTypeName(name string) string {
	taken, _ := reserved.Root(name)
	switch {
	case name == "":
		return "must not be empty"
	case len(name) > 128:
		return "must be at most 128 bytes long"
	case name[0] == '_' || name[0] == '.':
		return "must not begin with _ or a dot"
	case taken:
		return "is reserved"
	case strings.ContainsAny(name, "/*?#\\") || strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		return "must not hold a slash, a backslash, an asterisk, ?, # or control characters"
	}
	return ""
}

// checkEntityURL says why a url cannot be an entity's, or "". Its segments have
// passed [segments].
func checkEntityURL(typ, id string) string {
	if why := checkTypeName(typ); why != "" {
		return "its type " + why
	}
	if len(typ)+len(id)+len("//main/") > maxPath {
		return "it is too long"
	}
	if strings.Contains(id, "*") {
		return "it holds an asterisk"
	}
	for i, s := range strings.Split(id, "/") {
		if i > 0 && (entityVerbs[s] || entityItems[s]) {
			return "a segment after the second is the name of an operation"
		}
	}
	return ""
}

// storable says why a text of a query or path cannot be stored, or "".
func storable(s string) string {
	switch {
	case len(s) > maxPath:
		return "is too long"
	case strings.IndexByte(s, 0) >= 0:
		return "holds a NUL character"
	case strings.ToValidUTF8(s, "") != s:
		return "is not valid UTF-8"
	}
	return ""
}
