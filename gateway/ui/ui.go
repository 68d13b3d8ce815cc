// Package ui owns the page people look at, built into the binary.
//
// It promises to work offline (no script, style or font from elsewhere) under a
// strict content security policy, and to hold no data of its own: the page asks
// the API as whoever is signed in, so it shows what they may read and no more.
// It knows nothing of the gateway but its paths.
package ui

import (
	"embed"
	"net/http"
	"path"
	"strings"
)

//go:embed page
var page embed.FS

// Path is where the page lives.
const Path = "/_electric/ui"

var types = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}

// Handles says whether a request is for the page, or for the root, from where a
// browser is sent to it.
func Handles(r *http.Request) bool {
	p := r.URL.EscapedPath()
	return p == Path || strings.HasPrefix(p, Path+"/") || p == "/" && wantsHTML(r)
}

func wantsHTML(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// Handler serves the page; missing answers what is not part of it.
func Handler(missing http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := r.URL.EscapedPath()
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			missing.ServeHTTP(w, r)
			return
		}
		if p == "/" || p == Path {
			http.Redirect(w, r, Path+"/", http.StatusFound)
			return
		}
		name := strings.TrimPrefix(p, Path+"/")
		if name == "" {
			name = "index.html"
		}
		body, err := page.ReadFile(path.Join("page", name))
		if err != nil {
			missing.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", types[path.Ext(name)])
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		if r.Method == http.MethodGet {
			_, _ = w.Write(body)
		}
	})
}
