package obs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs h behind the middleware and gives its URL, its metrics and what it logs.
func serve(t *testing.T, h http.HandlerFunc) (string, *Metrics, *syncBuffer) {
	t.Helper()
	m, logged := NewMetrics("v0.0.0"), &syncBuffer{}
	s := httptest.NewServer(Middleware(h, m, NewLogger(logged, slog.LevelDebug, "json")))
	t.Cleanup(s.Close)
	return s.URL, m, logged
}

func get(t *testing.T, url string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
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

func metricsText(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func TestWriterKeepsItsAbilities(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	url, m, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		SetRoute(r.Context(), "stream.sse")
		rc := http.NewResponseController(w)
		for name, err := range map[string]error{
			"write deadline": rc.SetWriteDeadline(time.Now().Add(time.Minute)),
			"read deadline":  rc.SetReadDeadline(time.Now().Add(time.Minute)),
			"full duplex":    rc.EnableFullDuplex(),
		} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		fmt.Fprintln(w, "first")
		if err := rc.Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
		<-release
		w.(http.Flusher).Flush()
		fmt.Fprintln(w, "second")
	})
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body := bufio.NewReader(res.Body)
	if line, err := body.ReadString('\n'); err != nil || line != "first\n" {
		t.Fatalf("nothing arrives before the handler ends: %q, %v", line, err)
	}
	if !strings.Contains(metricsText(t, m), `rouse_http_requests_in_flight{method="GET"} 1`) {
		t.Error("the open stream is not in flight")
	}
	close(release)
	if line, err := body.ReadString('\n'); err != nil || line != "second\n" {
		t.Fatalf("%q, %v", line, err)
	}
	res.Body.Close()
	http.DefaultClient.CloseIdleConnections()
}

func TestHijackWorksThroughTheWriter(t *testing.T) {
	t.Parallel()
	url, _, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
		conn.Close()
	})
	if _, body := get(t, url); body != "hi" {
		t.Errorf("got %q", body)
	}
}

func TestPanicIsACodedAnswerWithoutItsText(t *testing.T) {
	t.Parallel()
	url, m, logged := serve(t, func(http.ResponseWriter, *http.Request) { panic("hunter2 at postgres://u:hunter3@h/d") })
	res, body := get(t, url, HeaderRequestID, "abc-1")
	if res.StatusCode != 500 || res.Header.Get("Content-Type") != "application/problem+json" || strings.Contains(body, "hunter") {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	var p struct{ Instance, Code string }
	if err := json.Unmarshal([]byte(body), &p); err != nil || p.Instance != "abc-1" || p.Code != "INTERNAL_SERVER_ERROR" {
		t.Errorf("%+v, %v", p, err)
	}
	if !logged.has("hunter2") || logged.has("hunter3") || !logged.has("abc-1") {
		t.Errorf("logged %s", logged.String())
	}
	if text := metricsText(t, m); !strings.Contains(text, "rouse_http_panics_total 1") || !strings.Contains(text, `status="500"} 1`) {
		t.Error(text)
	}
}

func TestPanicAfterTheAnswerBeganBreaksTheConnection(t *testing.T) {
	t.Parallel()
	url, _, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		fmt.Fprint(w, "part")
		panic("late")
	})
	res, err := http.Get(url)
	if err == nil {
		_, err = io.ReadAll(res.Body)
		res.Body.Close()
	}
	if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) && !errors.As(err, new(net.Error)) {
		t.Errorf("the client takes it for whole: %v", err)
	}
}

func TestRequestIDsThatAreNotWellFormedAreReplaced(t *testing.T) {
	t.Parallel()
	var inside string
	url, _, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) { inside = RequestID(r.Context()) })
	for given, keep := range map[string]bool{"ok-1.2_3": true, "": false, "a b": false, "<x>": false, strings.Repeat("a", 65): false} {
		res, _ := get(t, url, HeaderRequestID, given)
		got := res.Header.Get(HeaderRequestID)
		if got != inside || got == "" || (got == given) != keep {
			t.Errorf("given %q: header %q, context %q", given, got, inside)
		}
	}
	if RequestID(t.Context()) != "" {
		t.Error("an id outside of a request")
	}
}

func TestLabelsComeFromFixedSets(t *testing.T) {
	t.Parallel()
	url, m, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		SetRoute(r.Context(), "stream.append")
		w.WriteHeader(http.StatusTeapot)
	})
	req, err := http.NewRequestWithContext(t.Context(), "BREW", url+"/secret-path", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	text := metricsText(t, m)
	if !strings.Contains(text, `rouse_http_requests_total{method="other",route="stream.append",status="418"} 1`) || strings.Contains(text, "secret-path") {
		t.Error(text)
	}
	if !strings.Contains(text, `rouse_build_info{release="v0.0.0"} 1`) || !strings.Contains(text, "go_goroutines") {
		t.Error("build or runtime figures are missing")
	}
}

func TestSecretsDoNotReachTheLog(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		log := NewLogger(&out, slog.LevelInfo, format)
		log.Info("m", "claim_token", "hunter2", "Authorization", "hunter2", "url", "postgres://u:hunter2@h/d?x=1",
			"err", fmt.Errorf("dial postgres://u:hunter2@h: refused"), "header", "Bearer hunter2.abc", "stream", "/kept",
			slog.Group("g", "password", "hunter2"))
		if strings.Contains(out.String(), "hunter2") || !strings.Contains(out.String(), "/kept") {
			t.Errorf("%s: %s", format, out.String())
		}
	}
}

func TestHealthNamesEachReason(t *testing.T) {
	t.Parallel()
	h, ok := NewHealth(), false
	h.Ready("feed", func() (string, string, bool) { return "FEED_DOWN", "no slot", ok })
	h.Ready("database", func() (string, string, bool) { return "DATABASE_UNAVAILABLE", "", ok })
	h.Ready("fine", func() (string, string, bool) { return "", "", true })
	ask := func(handler http.Handler) (int, string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Code, w.Body.String()
	}
	code, body := ask(h.ReadyHandler())
	want := `"reasons":[{"check":"database","code":"DATABASE_UNAVAILABLE"},{"check":"feed","code":"FEED_DOWN","detail":"no slot"}]`
	if code != 503 || !strings.Contains(body, want) || !strings.Contains(body, "NOT_READY") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := ask(LiveHandler()); code != 200 || body != "{\"status\":\"live\"}\n" {
		t.Errorf("%d %s", code, body)
	}
	ok = true
	if code, body := ask(h.ReadyHandler()); code != 200 || body != "{\"status\":\"ready\"}\n" {
		t.Errorf("%d %s", code, body)
	}
}
