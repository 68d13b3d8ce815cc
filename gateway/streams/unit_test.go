package streams

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rouse-run/rouse/gateway/problem"
)

func TestParsePath(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in, name           string
		reserved, readable bool
	}{
		{"/a", "a", false, false},
		{"/a/b/c", "a/b/c", false, false},
		{"/v1/stream/a/b", "a/b", false, false},
		{"/v1/stream/a%2Fb", "a/b", false, false},
		{"/a%2fb", "a/b", false, false},
		{"/v1%2Fstream%2Fa", "a", false, false},
		{"/a%20b/%C3%A9", "a b/é", false, false},
		{"/a%252Fb", "a%2Fb", false, false}, // decoded once
		{"/a+b:c@d;e=f,g~", "a+b:c@d;e=f,g~", false, false},
		{"/...", "...", false, false},
		{"/_electric/x", "_electric/x", true, false},
		{"/%5felectric/x", "_electric/x", true, false},
		{"/v1/stream/__ds/x", "__ds/x", true, false},
		{"/v1/stream/v1/stream/x", "v1/stream/x", true, false},
		{"/livez", "livez", true, false},
		{"/metrics/x", "metrics/x", true, false},
		{"/.well-known/x", ".well-known/x", true, false},
		{"/runners/r/wake", "runners/r/wake", true, true},
		{"/runners%2Fr%2Fwake", "runners/r/wake", true, true},
		{"/runner", "runner", false, false},
	} {
		p, err := ParsePath(tc.in)
		if err != nil || p.Name != tc.name || p.Reserved != tc.reserved || p.Readable != tc.readable {
			t.Errorf("%s: %+v, %v", tc.in, p, err)
		}
	}
	for in, code := range map[string]problem.Code{
		"": problem.InvalidPath, "a": problem.InvalidPath, "/": problem.InvalidPath, "//": problem.InvalidPath, "/a/": problem.InvalidPath,
		"/a//b": problem.InvalidPath, "/a%2F": problem.InvalidPath, "/%2Fa": problem.InvalidPath, "/.": problem.InvalidPath,
		"/a/../b": problem.InvalidPath, "/a/%2e%2e/b": problem.InvalidPath, "/a/%2E/b": problem.InvalidPath, "/a%00": problem.InvalidPath,
		"/a%0a": problem.InvalidPath, "/a%7f": problem.InvalidPath, "/%ff": problem.InvalidPath, "/%c0%af": problem.InvalidPath,
		"/%zz": problem.InvalidPath, "/a%": problem.InvalidPath, "/v1/stream/": problem.InvalidPath,
		"/" + strings.Repeat("a", 1025): problem.URITooLong, "/" + strings.Repeat("%61", 1025): problem.URITooLong, "/" + strings.Repeat("a", 9999): problem.URITooLong,
	} {
		if _, err := ParsePath(in); problem.CodeOf(err) != code {
			t.Errorf("%.40q: %v, want %s", in, err, code)
		}
	}
	if _, err := ParsePath("/v1/stream/" + strings.Repeat("a", 1024)); err != nil {
		t.Errorf("1024 bytes: %v", err)
	}
}

func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"/a", "/v1/stream/%2e%2e", "/%5F", "/a%2Fb", "/a//", "/%00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		p, err := ParsePath(in)
		if err != nil {
			if s := problem.From(err).Status(); s < 400 || s > 499 {
				t.Fatalf("%q: status %d", in, s)
			}
			return
		}
		if p.Name == "" || len(p.Name) > maxPath || !utf8.ValidString(p.Name) || strings.ContainsAny(p.Name, "\x00\n\r") ||
			strings.HasPrefix(p.Name, "/") || strings.HasSuffix(p.Name, "/") || strings.Contains(p.Name, "//") {
			t.Fatalf("%q became %q", in, p.Name)
		}
		for _, seg := range strings.Split(p.Name, "/") {
			if seg == "." || seg == ".." || seg == "" {
				t.Fatalf("%q became %q", in, p.Name)
			}
		}
		if strings.HasPrefix(p.Name, "_") && !p.Reserved {
			t.Fatalf("%q became %q, not reserved", in, p.Name)
		}
	})
}

// parseSSE reads events as a browser does.
func parseSSE(t testing.TB, in []byte) (types, data []string) {
	t.Helper()
	text := strings.ReplaceAll(strings.ReplaceAll(string(in), "\r\n", "\n"), "\r", "\n")
	sc := bufio.NewScanner(strings.NewReader(text))
	sc.Buffer(nil, 1<<24)
	event, lines, any := "", []string{}, false
	for sc.Scan() {
		line := sc.Text()
		if line == "" {
			if any {
				types, data = append(types, event), append(data, strings.Join(lines, "\n"))
			}
			event, lines, any = "", nil, false
			continue
		}
		if strings.HasPrefix(line, ":") {
			continue
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		any = true
		switch name {
		case "event":
			event = value
		case "data":
			lines = append(lines, value)
		}
	}
	return types, data
}

func FuzzDataEvent(f *testing.F) {
	for _, s := range []string{"a", " a", "a\nb", "a\r\n\r\nevent: control\r\ndata: {}\r\n\r\n", "\r\r", "", "\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		types, data := parseSSE(t, dataEvent(in, true))
		want := strings.ReplaceAll(strings.ReplaceAll(string(in), "\r\n", "\n"), "\r", "\n")
		if len(types) != 1 || types[0] != "data" || data[0] != want {
			t.Fatalf("%q became %q %q", in, types, data)
		}
		types, data = parseSSE(t, dataEvent(in, false))
		back, err := base64.StdEncoding.DecodeString(data[0])
		if len(types) != 1 || err != nil || !bytes.Equal(back, in) {
			t.Fatalf("%q became %q", in, data)
		}
	})
}

func TestCursorsOnlyRise(t *testing.T) {
	t.Parallel()
	now := time.Date(2031, 5, 1, 12, 0, 7, 0, time.UTC)
	base := cursor(now, -1)
	if cursor(now.Add(12*time.Second), -1) != base || cursor(now.Add(13*time.Second), -1) != base+1 {
		t.Fatal("the interval is not 20 s")
	}
	if cursor(now, base-1) != base {
		t.Fatal("a client behind does not get the current cursor")
	}
	for range 100 {
		if c := cursor(now, base); c <= base || c > base+cursorJump {
			t.Fatalf("after %d comes %d", base, c)
		}
		if c := cursor(now, base+500); c <= base+500 {
			t.Fatalf("after %d comes %d", base+500, c)
		}
	}
}

func TestContentTypes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][2]string{
		"":                                {"", ""},
		"text/plain":                      {"text/plain", "text/plain"},
		"TEXT/Plain":                      {"text/plain", "text/plain"},
		"Application/JSON; Charset=UTF-8": {"application/json; Charset=UTF-8", "application/json"},
		"application/vnd.x+json":          {"application/vnd.x+json", "application/vnd.x+json"},
	} {
		r := &http.Request{Header: http.Header{}}
		if in != "" {
			r.Header.Set("Content-Type", in)
		}
		full, media, err := contentType(r)
		if err != nil || full != want[0] || media != want[1] {
			t.Errorf("%q: %q %q %v", in, full, media, err)
		}
	}
	for _, in := range []string{"text", "text/", "/plain", "text/plain; =", "a b/c", "text/*", "text/pläin", "text/plain; charset", "text/" + strings.Repeat("a", 300), ";", "text/plain;;"} {
		r := &http.Request{Header: http.Header{"Content-Type": {in}}}
		if full, _, err := contentType(r); problem.CodeOf(err) != problem.InvalidRequest {
			t.Errorf("%q: %q %v", in, full, err)
		}
	}
}

func TestMatchesETags(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in   []string
		want bool
	}{{nil, false}, {[]string{`"1:0:5"`}, true}, {[]string{`W/"1:0:5"`}, true}, {[]string{`"x", "1:0:5"`}, true}, {[]string{`"x"`, `"1:0:5"`}, true}, {[]string{"*"}, true}, {[]string{`"1:0:55"`}, false}} {
		if matches(tc.in, `"1:0:5"`) != tc.want {
			t.Errorf("%v", tc.in)
		}
	}
}
