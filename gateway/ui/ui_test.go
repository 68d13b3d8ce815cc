package ui

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

func TestABrowserIsSentToThePage(t *testing.T) {
	t.Parallel()
	missing := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) })
	for _, c := range []struct {
		method, path, accept string
		handles              bool
		status               int
	}{
		{"GET", "/", "text/html,*/*", true, 302},
		{"GET", "/", "application/json", false, 0},
		{"POST", "/", "text/html", false, 0},
		{"GET", "/_electric/ui", "", true, 302},
		{"GET", "/_electric/ui/", "", true, 200},
		{"HEAD", "/_electric/ui/app.js", "", true, 200},
		{"GET", "/_electric/ui?service=other", "", true, 302},
		{"GET", "/_electric/ui/%2e%2e/app.js", "", true, 404},
		{"GET", "/_electric/ui/page/app.js", "", true, 404},
		{"GET", "/_electric/ui/../../etc/passwd", "", true, 404},
		{"GET", "/_electric/ui/nothing", "", true, 404},
		{"POST", "/_electric/ui/", "", true, 404},
		{"GET", "/_electric/uix", "", false, 0},
	} {
		r := httptest.NewRequest(c.method, "http://x"+c.path, nil)
		r.Header.Set("Accept", c.accept)
		if got := Handles(r); got != c.handles {
			t.Errorf("%s %s: handled %v", c.method, c.path, got)
			continue
		}
		if !c.handles {
			continue
		}
		w := httptest.NewRecorder()
		Handler(missing).ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s %s: %d, not %d", c.method, c.path, w.Code, c.status)
		}
		if w.Code == 302 && w.Header().Get("Location") != "/_electric/ui/"+strings.TrimPrefix(c.path, strings.SplitN(c.path, "?", 2)[0]) {
			t.Errorf("%s %s: sent to %s", c.method, c.path, w.Header().Get("Location"))
		}
		if w.Code == 200 && !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s %s: no policy", c.method, c.path)
		}
	}
}

// The page works offline: whatever its document and style name is its own, and nothing is written into the document
// that its policy would refuse. Its script is held to the same by the policy, and by the browser tests.
func TestThePageLoadsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	own := regexp.MustCompile(`^(?:\./|#|data:)?[a-z./-]*$`)
	for _, name := range []string{"index.html", "index.css"} {
		body := string(files()[name].plain)
		for _, m := range regexp.MustCompile(`(?:src|href)="([^"]*)"|url\(([^)]*)\)`).FindAllStringSubmatch(body, -1) {
			if at := m[1] + m[2]; !own.MatchString(at) || strings.HasPrefix(at, "//") {
				t.Errorf("%s names %q", name, at)
			}
		}
		if m := regexp.MustCompile(`(?i)<script>|<style|style=|\son[a-z]+=|@import`).FindString(body); m != "" {
			t.Errorf("%s holds %q", name, m)
		}
	}
}

func TestThePageIsSmall(t *testing.T) {
	t.Parallel()
	total := 0
	for name, f := range files() {
		if types[path.Ext(name)] == "" {
			t.Errorf("%s has no type", name)
		}
		total += len(f.packed)
	}
	if total > 120<<10 || total < 10<<10 {
		t.Errorf("the page is %d bytes, packed", total)
	}
}

func TestAFileIsSentPackedAndOnce(t *testing.T) {
	t.Parallel()
	ask := func(header ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "http://x/_electric/ui/app.js", nil)
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		Handler(http.NotFoundHandler()).ServeHTTP(w, r)
		return w
	}
	plain, packed := ask(), ask("Accept-Encoding", "br, gzip")
	if plain.Header().Get("Content-Encoding") != "" || packed.Header().Get("Content-Encoding") != "gzip" {
		t.Fatal(plain.Header(), packed.Header())
	}
	zip, err := gzip.NewReader(packed.Body)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(zip); err != nil || !bytes.Equal(body, plain.Body.Bytes()) {
		t.Error("the packed file is another", err)
	}
	if w := ask("Accept-Encoding", "gzip", "If-None-Match", packed.Header().Get("ETag")); w.Code != 304 || w.Body.Len() > 0 {
		t.Error(w.Code, w.Body.Len())
	}
	if w := ask("Accept-Encoding", "br, gzip; q=0"); w.Header().Get("Content-Encoding") != "" {
		t.Error("packed for a client that takes no gzip")
	}
	if w := ask("If-None-Match", `"another"`); w.Code != 200 {
		t.Error(w.Code)
	}
}
