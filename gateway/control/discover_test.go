package control

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
)

func TestDiscovery(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /ok", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"name":"chat"}`)) })
	mux.HandleFunc("PUT /moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusTemporaryRedirect) })
	mux.HandleFunc("PUT /broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
	mux.HandleFunc("PUT /huge", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(strings.Repeat("x", maxManifest+10)))
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	d := NewDiscoverer(nil)
	if body, err := d.Discover(t.Context(), srv.URL+"/ok"); err != nil || string(body) != `{"name":"chat"}` {
		t.Errorf("%s, %v", body, err)
	}
	for _, path := range []string{"/moved", "/broken", "/huge", "/none"} {
		if _, err := d.Discover(t.Context(), srv.URL+path); err == nil {
			t.Errorf("%s is taken", path)
		}
	}
	refused := errors.New("an internal address")
	guarded := NewDiscoverer(func(string, string, syscall.RawConn) error { return refused })
	if _, err := guarded.Discover(t.Context(), srv.URL+"/ok"); !errors.Is(err, refused) {
		t.Errorf("the address was not judged: %v", err)
	}
}
