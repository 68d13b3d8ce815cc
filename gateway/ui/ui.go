// Package ui owns the dashboard that people look at, built into the binary.
//
// It promises to work offline (no script, style or font from elsewhere) under a
// strict content security policy, and to hold no data of its own: the page asks
// the API as whoever is signed in, so it shows what they may read and no more.
// It knows nothing of the gateway but its paths. Its sources are in web; `make ui`
// builds what is embedded here.
package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"
)

//go:embed page
var page embed.FS

// Path is where the page lives.
const Path = "/_electric/ui"

// policy lets the page load what is its own and speak to its gateway, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

// file is a part of the page as it is served.
type file struct {
	plain, packed []byte
	etag          string
}

// files are made ready when the page is first asked for: most gateways never are.
var files = sync.OnceValue(func() map[string]file {
	all := map[string]file{}
	entries, err := page.ReadDir("page")
	if err != nil {
		panic(err) // it is in the binary
	}
	for _, e := range entries {
		body, err := page.ReadFile("page/" + e.Name())
		if err != nil {
			panic(err)
		}
		var packed bytes.Buffer
		zip, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err == nil {
			_, err = zip.Write(body)
		}
		if err == nil {
			err = zip.Close()
		}
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(body)
		all[e.Name()] = file{body, packed.Bytes(), base64.RawURLEncoding.EncodeToString(sum[:12])}
	}
	return all
})

// Handles says whether a request is for the page, or for the root, from where a
// browser is sent to it.
func Handles(r *http.Request) bool {
	p := r.URL.EscapedPath()
	return p == Path || strings.HasPrefix(p, Path+"/") || p == "/" && wantsHTML(r)
}

func wantsHTML(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && strings.Contains(r.Header.Get("Accept"), "text/html")
}

var refusedCoding = regexp.MustCompile(`^gzip\s*;\s*q=0(\.0*)?$`)

// takesGzip says whether a client named gzip among the codings that it takes.
func takesGzip(accept []string) bool {
	for _, coding := range strings.Split(strings.Join(accept, ","), ",") {
		if coding = strings.TrimSpace(coding); strings.HasPrefix(coding, "gzip") {
			return !refusedCoding.MatchString(coding)
		}
	}
	return false
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
			to := Path + "/"
			if r.URL.RawQuery != "" {
				to += "?" + r.URL.RawQuery // which service is looked at
			}
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		name := strings.TrimPrefix(p, Path+"/")
		if name == "" {
			name = "index.html"
		}
		f, ok := files()[name]
		if !ok {
			missing.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", types[path.Ext(name)])
		h.Set("Cache-Control", "no-cache")
		h.Set("Vary", "Accept-Encoding")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Content-Security-Policy", policy)
		body, etag := f.plain, f.etag
		if takesGzip(r.Header.Values("Accept-Encoding")) {
			h.Set("Content-Encoding", "gzip")
			body, etag = f.packed, f.etag+".gz"
		}
		h.Set("ETag", `"`+etag+`"`)
		if strings.Contains(r.Header.Get("If-None-Match"), `"`+etag+`"`) {
			h.Del("Content-Encoding")
			w.WriteHeader(http.StatusNotModified)
			return
		}
		if r.Method == http.MethodGet {
			_, _ = w.Write(body)
		}
	})
}
