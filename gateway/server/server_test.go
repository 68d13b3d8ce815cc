package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bare gives a server of nothing but what a test adds, not started.
func bare(t *testing.T) *Server {
	t.Helper()
	cfg := config.Dev()
	cfg.Listen, cfg.DrainTimeout = "127.0.0.1:0", 2*time.Second
	s, err := newServer(t.Context(), cfg, Deps{Release: "v0.0.0"}, func(s *Server) error { s.operational(); return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Drain(context.Background()) })
	return s
}

func request(t *testing.T, method, url string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func TestOperationalRoutes(t *testing.T) {
	t.Parallel()
	s := bare(t)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/livez": `"live"`, "/readyz": `"ready"`, "/metrics": "rouse_build_info"} {
		res, body := request(t, http.MethodGet, s.URL()+path)
		if res.StatusCode != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
		res, _ = request(t, http.MethodPost, s.URL()+path)
		if res.StatusCode != 405 || res.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("POST %s: %d, Allow %q", path, res.StatusCode, res.Header.Get("Allow"))
		}
	}
}

func TestUnknownRouteIsACodedProblem(t *testing.T) {
	t.Parallel()
	s := bare(t)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	res, body := request(t, http.MethodGet, s.URL()+"/_electric/nowhere")
	var p struct {
		Code, Instance string
		Status         int
		Error          struct{ Code string }
	}
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != 404 || res.Header.Get("Content-Type") != "application/problem+json" || p.Code != "NOT_FOUND" || p.Error.Code != "NOT_FOUND" ||
		p.Instance == "" || p.Instance != res.Header.Get("X-Request-Id") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

func TestPartsStartInOrderAndStopInTheOpposite(t *testing.T) {
	t.Parallel()
	s := bare(t)
	var log []string
	for _, name := range []string{"store", "feed", "dispatch"} {
		s.add(part{name: name,
			start: func(context.Context) error { log = append(log, "+"+name); return nil },
			stop:  func(context.Context) error { log = append(log, "-"+name); return nil }})
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"+store", "+feed", "+dispatch", "-dispatch", "-feed", "-store"}; !slices.Equal(log, want) {
		t.Errorf("got %v, want %v", log, want)
	}
}

func TestPartThatDoesNotStartLeavesTheRestToDrain(t *testing.T) {
	t.Parallel()
	s := bare(t)
	var stopped []string
	for _, name := range []string{"first", "second", "third"} {
		s.add(part{name: name,
			start: func(context.Context) error {
				if name == "second" {
					return errors.New("no")
				}
				return nil
			},
			stop: func(context.Context) error { stopped = append(stopped, name); return nil }})
	}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "second does not start") {
		t.Fatalf("got %v", err)
	}
	if err := s.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"third", "second", "first"}; !slices.Equal(stopped, want) {
		t.Errorf("stopped %v, want %v", stopped, want)
	}
}

func TestDrainEndsStreamsFinishesRequestsAndRefusesNewOnes(t *testing.T) {
	t.Parallel()
	s := bare(t)
	entered, finish := make(chan string, 2), make(chan struct{})
	s.mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		entered <- "stream"
		<-s.Draining()
		_, _ = io.WriteString(w, "resume elsewhere")
	})
	s.mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		entered <- "slow"
		<-finish
		_, _ = io.WriteString(w, "done")
	})
	stopped := make(chan struct{})
	s.add(part{name: "worker", stop: func(context.Context) error { close(stopped); return nil }})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers := make(chan string, 2)
	for _, path := range []string{"/stream", "/slow"} {
		go func() {
			_, body := request(t, http.MethodGet, s.URL()+path)
			answers <- body
		}()
		<-entered
	}
	drained := make(chan error, 1)
	go func() { drained <- s.Drain(context.WithoutCancel(t.Context())) }()
	if got := <-answers; got != "resume elsewhere" {
		t.Fatalf("the stream ended with %q", got)
	}
	if reasons := s.Health.NotReady(); len(reasons) != 1 || reasons[0].Code != "SERVER_STOPPING" {
		t.Errorf("reasons %+v", reasons)
	}
	select {
	case <-stopped:
		t.Error("the worker was stopped while a request was in flight")
	default:
	}
	for deadline := time.Now().Add(time.Second); ; {
		conn, err := net.DialTimeout("tcp", s.Addr().String(), time.Second)
		if err != nil {
			break
		}
		conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("new connections are taken while draining")
		}
	}
	close(finish)
	if got := <-answers; got != "done" {
		t.Errorf("the request in flight got %q", got)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
	<-stopped
}

func TestDrainCutsOffWhatDoesNotEndAndStillStopsTheWorkers(t *testing.T) {
	t.Parallel()
	s := bare(t)
	s.Config.DrainTimeout = 200 * time.Millisecond
	entered := make(chan struct{})
	s.mux.HandleFunc("/stuck", func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	})
	stopped := false
	s.add(part{name: "worker", stop: func(ctx context.Context) error { stopped = true; return ctx.Err() }})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		res, err := http.Get(s.URL() + "/stuck")
		if err == nil {
			res.Body.Close()
		}
		ended <- err
	}()
	<-entered
	began := time.Now()
	if err := s.Drain(t.Context()); err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %v", took)
	}
	if err := <-ended; err == nil {
		t.Error("the stuck request got an answer")
	}
	if !stopped {
		t.Error("the worker was not stopped")
	}
}

func TestListenAddressInUseIsSaid(t *testing.T) {
	t.Parallel()
	s := bare(t)
	cfg := config.Dev()
	cfg.Listen = s.Addr().String()
	if _, err := New(t.Context(), cfg, Deps{}); err == nil || !strings.Contains(err.Error(), "cannot listen on "+cfg.Listen) {
		t.Fatalf("got %v", err)
	}
}

func TestPublicURLOfAnUnspecifiedAddressIsLoopback(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{"0.0.0.0:80": "http://127.0.0.1:80", "[::]:81": "http://127.0.0.1:81", "10.1.2.3:82": "http://10.1.2.3:82", "[::1]:83": "http://[::1]:83"} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := baseURL(a); got != want {
			t.Errorf("%s gave %s, want %s", addr, got, want)
		}
	}
}

// A part that waits for what never comes is left behind when the time is over.
func TestDrainLeavesAPartThatDoesNotStop(t *testing.T) {
	t.Parallel()
	s := bare(t)
	release, stopped := make(chan struct{}), make(chan struct{})
	first := false
	s.add(part{name: "below", stop: func(context.Context) error { first = true; return nil }})
	s.add(part{name: "stuck", stop: func(context.Context) error { defer close(stopped); <-release; return nil }})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err := s.Drain(t.Context())
	if took := time.Since(began); took > s.Config.DrainTimeout+3*time.Second {
		t.Errorf("the drain took %v of %v", took, s.Config.DrainTimeout)
	}
	if err == nil || !strings.Contains(err.Error(), "stuck does not stop") {
		t.Errorf("the drain said %v", err)
	}
	if !first {
		t.Error("the parts below were not asked to stop")
	}
	close(release)
	<-stopped
}
