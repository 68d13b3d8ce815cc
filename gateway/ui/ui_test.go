package ui

import (
	"net/http"
	"net/http/httptest"
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
		if w.Code == 302 && w.Header().Get("Location") != "/_electric/ui/" {
			t.Errorf("%s %s: sent to %s", c.method, c.path, w.Header().Get("Location"))
		}
		if w.Code == 200 && !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s %s: no policy", c.method, c.path)
		}
	}
}

// The page works offline: whatever it names is its own or the gateway's.
func TestThePageLoadsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	entries, err := page.ReadDir("page")
	if err != nil || len(entries) != 3 {
		t.Fatal(err, entries)
	}
	foreign := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9.-]+\.[a-z]{2,}|<script>|style=|onclick=`)
	for _, e := range entries {
		body, err := page.ReadFile("page/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if m := foreign.Find(body); m != nil {
			t.Errorf("%s holds %q", e.Name(), m)
		}
	}
}
