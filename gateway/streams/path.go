package streams

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/reserved"
)

const (
	// maxPath bounds a stream's name in bytes, decoded.
	maxPath   = 1024
	streamsAt = "v1/stream/"
)

// Path is a stream's name.
type Path struct {
	// Name is decoded and has no leading slash.
	Name string
	// Reserved names belong to the gateway: nobody creates, writes or deletes
	// them here. Readable says that guarded streams of the control plane may
	// live under the name.
	Reserved, Readable bool
}

// ParsePath reads the escaped path of a request. It is decoded once, so %2F is
// a slash; the mount /v1/stream is cut off. Segments are neither empty nor dots,
// and hold neither control characters nor invalid UTF-8.
func ParsePath(escaped string) (Path, error) {
	if len(escaped) > 3*maxPath+len(streamsAt)+1 {
		return Path{}, problem.Newf(problem.URITooLong, "A stream's path has at most %d bytes.", maxPath)
	}
	name := escaped
	if strings.IndexByte(escaped, '%') >= 0 {
		var err error
		if name, err = url.PathUnescape(escaped); err != nil {
			return Path{}, problem.New(problem.InvalidPath, "The path holds a malformed percent escape.")
		}
	}
	if name == "" || name[0] != '/' {
		return Path{}, problem.New(problem.InvalidPath, "The path must begin with a slash.")
	}
	name = strings.TrimPrefix(name[1:], streamsAt)
	switch {
	case name == "":
		return Path{}, problem.New(problem.InvalidPath, "The path names no stream.")
	case len(name) > maxPath:
		return Path{}, problem.Newf(problem.URITooLong, "A stream's path has at most %d bytes.", maxPath)
	case !utf8.ValidString(name):
		return Path{}, problem.New(problem.InvalidPath, "The path is not valid UTF-8.")
	}
	first := ""
	for seg := range strings.SplitSeq(name, "/") {
		if seg == "" || seg == "." || seg == ".." {
			return Path{}, problem.New(problem.InvalidPath, "A path segment is empty, a dot, or two dots.")
		}
		if first == "" {
			first = seg
		}
	}
	for i := range len(name) {
		if name[i] < 0x20 || name[i] == 0x7f {
			return Path{}, problem.New(problem.InvalidPath, "The path holds a control character.")
		}
	}
	p := Path{Name: name}
	p.Reserved, p.Readable = reserved.Root(first)
	return p, nil
}
