package control

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/problem"
)

func TestSegments(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in   string
		want string // segments joined by a bar, or a code
	}{
		{"/_electric/entities/chat/1", "_electric|entities|chat|1"},
		{"/_electric/entities/chat%2Fteam%2fa/7", "_electric|entities|chat|team|a|7"},
		{"/_electric/entities/", "_electric|entities"},
		{"/_electric/entities/a/b/", "_electric|entities|a|b"},
		{"/_electric", "_electric"},
		{"/_electric/", "_electric"},
		{"/_electric/x/%20y", "_electric|x| y"},
		{"/openapi.json", "openapi.json"},
		{"/%5Felectric/entities", "INVALID_PATH"},
		{"/_electric%2Fentities", "INVALID_PATH"},
		{"/_electrical", "INVALID_PATH"},
		{"/_electric//entities", "INVALID_PATH"},
		{"/_electric/entities/a//b", "INVALID_PATH"},
		{"/_electric/entities/a/b//", "INVALID_PATH"},
		{"/_electric/entities/./a", "INVALID_PATH"},
		{"/_electric/entities/../entity-types", "INVALID_PATH"},
		{"/_electric/entities/%2e%2e/x", "INVALID_PATH"},
		{"/_electric/entities/a%252Fb/c", "_electric|entities|a%2Fb|c"}, // decoded once
		{"/_electric/entities/a%00b", "INVALID_PATH"},
		{"/_electric/entities/a%0Ab", "INVALID_PATH"},
		{"/_electric/entities/a%ffb", "INVALID_PATH"},
		{"/_electric/entities/a%zzb", "INVALID_PATH"},
		{"/_electric/" + strings.Repeat("x", 1100), "URI_TOO_LONG"},
		{"/_electric/" + strings.Repeat("%41", 1100), "URI_TOO_LONG"},
	} {
		segs, err := segments(tc.in)
		got := strings.Join(segs, "|")
		if err != nil {
			got = string(problem.CodeOf(err))
		}
		if got != tc.want {
			t.Errorf("%s: %s, want %s", short(tc.in), got, tc.want)
		}
	}
}

func FuzzSegments(f *testing.F) {
	for _, s := range []string{"/_electric/entities/a/b", "/_electric/%2e%2e/x", "/_electric/%", "/_electric/a%2F%2Fb", "/_electric/\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		segs, err := segments(s)
		if err != nil {
			if st := problem.From(err).Status(); st < 400 || st >= 500 {
				t.Fatalf("%q: status %d", s, st)
			}
			return
		}
		for _, g := range segs {
			if g == "" || g == "." || g == ".." || strings.ContainsAny(g, "/\x00") {
				t.Fatalf("%q passed the segment %q", s, g)
			}
		}
	})
}

func TestMatchEntity(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ in, want string }{
		{"a", " []"},
		{"a/b", "/{type}/{id} [type a id b]"},
		{"a/send", "/{type}/{id} [type a id send]"},
		{"a/send/send", "/{type}/{id}/send [type a id send]"},
		{"a/b/c/d/e/f/g/h", "/{type}/{id} [type a id b/c/d/e/f/g/h]"},
		{"a/b/c/d/e/f/g/h/signal", "/{type}/{id}/signal [type a id b/c/d/e/f/g/h]"},
		{"a/b/tags/k", "/{type}/{id}/tags/{key} [type a id b key k]"},
		{"a/b/tags/k/l", "/{type}/{id}/tags/{key} [type a id b key k/l]"},
		{"a/tags/tags/k", "/{type}/{id}/tags/{key} [type a id tags key k]"},
		{"a/tags/k", "/{type}/{id} [type a id tags/k]"},
		{"a/b/tags/send", "/{type}/{id}/tags/{key} [type a id b key send]"},
		{"a/b/attachments/x", "/{type}/{id}/attachments/{key} [type a id b key x]"},
	} {
		path, params := matchEntity(strings.Split(tc.in, "/"))
		if got := fmt.Sprint(strings.TrimPrefix(path, entityRoot), " ", params); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.in, got, tc.want)
		}
	}
}

// R1: entities of two to eight segments, written both ways.
func TestEntitiesOfManySegments(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"coding-session","description":""}`)
	url := "/coding-session"
	for n := 2; n <= 8; n++ {
		url += fmt.Sprintf("/s%d", n)
		plain := "/_electric/entities" + url
		escaped := "/_electric/entities/coding-session/" + strings.ReplaceAll(url[len("/coding-session/"):], "/", "%2F")
		if a := r.must(201, kyle, "PUT", escaped, ""); a.str("url") != url || a.str("streams.main") != url+"/main" || a.str("streams.error") != url+"/error" {
			t.Errorf("%s: %s", url, a.body)
		}
		r.refused(409, "DUPLICATE_URL", kyle, "PUT", plain, "")
		for _, p := range []string{plain, escaped} {
			if a := r.must(200, kyle, "GET", p, ""); a.str("url") != url {
				t.Errorf("%s: %s", p, a.body)
			}
			r.must(200, kyle, "POST", p+"/send", `{"payload":1}`)
			r.must(200, kyle, "POST", p+"/tags/a%2Fb", `{"value":"v"}`)
			if a := r.must(200, kyle, "DELETE", p+"/tags/a/b", ""); a.get("tags.a/b") != nil {
				t.Errorf("%s: %s", p, a.body)
			}
			r.must(200, kyle, "GET", p+"/display", "")
		}
		if n := r.count(`select count(*) from rouse.streams where path = $1`, url[1:]+"/main"); n != 1 {
			t.Errorf("%s has %d main streams", url, n)
		}
	}
}

func TestReservedNamesAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, name := range []string{"principal", "_x", ".x", "runners", "worker-pools", "v1", "api", ".well-known", "livez", "readyz", "metrics", "openapi.json", "a*", "a/b", "", strings.Repeat("x", 129)} {
		a := r.refused(400, "INVALID_REQUEST", kyle, "POST", "/_electric/entity-types", fmt.Sprintf(`{"name":%q,"description":""}`, name))
		if !strings.Contains(string(a.body), `"/name"`) {
			t.Errorf("%s: %s", name, a.body)
		}
	}
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	for path, code := range map[string]string{
		"/chat/a/tags": "INVALID_PATH", "/chat/a/tags/b/c/main": "METHOD_NOT_ALLOWED", "/chat/a/send/b": "INVALID_PATH",
		"/chat/a*": "INVALID_PATH", "/_x/a": "INVALID_PATH", "/runners/a": "INVALID_PATH",
	} {
		if a := r.as(kyle, "PUT", "/_electric/entities"+path, ""); a.code() != code {
			t.Errorf("%s: %d %s, want %s", short(path), a.status, a.str("code"), code)
		}
	}
	r.refused(400, "INVALID_REQUEST", kyle, "PUT", "/_electric/entities/principal/x", "")
}

func TestUnknownRoutesAndMethods(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, path := range []string{"/_electric", "/_electric/", "/_electric/none", "/_electric/entities/one", "/_electric/runners/a/none",
		"/_electric/entity-types/a/b/c/d", "/_electric/worker-pools/a/none"} {
		r.refused(404, "NOT_FOUND", kyle, "GET", path, "")
	}
	for path, allow := range map[string]string{
		"/_electric/health":            "GET, HEAD, OPTIONS",
		"/_electric/entities":          "GET, HEAD, OPTIONS",
		"/_electric/entities/a/b/move": "POST, OPTIONS",
		"/_electric/entities/a/b":      "DELETE, GET, HEAD, PUT, OPTIONS",
		"/_electric/entities/a/b/send": "POST, OPTIONS",
		"/_electric/wake-callbacks/x":  "POST, OPTIONS",
		"/_electric/runners":           "GET, POST, HEAD, OPTIONS",
		"/openapi.json":                "GET, HEAD, OPTIONS",
	} {
		a := r.refused(405, "METHOD_NOT_ALLOWED", kyle, "PATCH", path, "")
		got := strings.Split(a.header.Get("Allow"), ", ")
		want := strings.Split(allow, ", ")
		if len(got) != len(want) || !sameSet(got, want) {
			t.Errorf("%s allows %v, want %v", path, got, want)
		}
	}
	for _, path := range []string{"/_electric/entities/a/b", "/_electric/none", "/openapi.json"} {
		if a := r.do("OPTIONS", path, ""); a.status != 204 || len(a.body) != 0 {
			t.Errorf("OPTIONS %s: %d %s", path, a.status, a.body)
		}
	}
	if a := r.do("HEAD", "/_electric/health", ""); a.status != 200 || len(a.body) != 0 {
		t.Errorf("HEAD health: %d", a.status)
	}
	for _, path := range []string{"/openapi.json", "/openapi-3.0.json"} {
		if a := r.do("GET", path, ""); a.status != 200 || a.str("info.title") != "Rouse" {
			t.Errorf("%s: %d", path, a.status)
		}
	}
}

func sameSet(a, b []string) bool {
	m := map[string]int{}
	for _, x := range a {
		m[x]++
	}
	for _, x := range b {
		m[x]--
	}
	for _, n := range m {
		if n != 0 {
			return false
		}
	}
	return true
}

// No raw path gives a 5xx, a redirect or a hang.
func TestRawPaths(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	host := strings.TrimPrefix(r.url, "http://")
	for _, target := range []string{"/_electric/entities/%", "/_electric/entities/%ff%fe", "/_electric/../_electric/health", "/_electric/./health", "/_electric//health",
		"/_electric/entities/a/b?service=%zz", "/_electric/entities/a/b?service=%00", "/_electric/health?" + strings.Repeat("a=1&", 500), "/_electric/entities/a\\b/c"} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", target)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: %v", target, err)
		} else {
			if resp.StatusCode >= 500 || resp.StatusCode >= 300 && resp.StatusCode < 400 {
				t.Errorf("%s: status %d", target, resp.StatusCode)
			}
			resp.Body.Close()
		}
		conn.Close()
	}
}
