package server

import (
	"net"
	"net/http"
	"testing"
)

func TestProfilesHaveAnAddressOfTheirOwn(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s := bare(t)
	s.Config.DebugListen = addr
	s.add(s.debug())
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res, body := request(t, http.MethodGet, "http://"+addr+"/debug/pprof/goroutine?debug=1"); res.StatusCode != http.StatusOK || body == "" {
		t.Errorf("the goroutine profile answers %d %q", res.StatusCode, body)
	}
	if res, _ := request(t, http.MethodGet, s.URL()+"/debug/pprof/goroutine"); res.StatusCode != http.StatusNotFound {
		t.Errorf("the public listener answers %d for a profile", res.StatusCode)
	}
}
