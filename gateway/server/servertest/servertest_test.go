package servertest_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/server/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func do(t *testing.T, method, url, body string, header ...string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return client.Do(req)
}

func expect(t *testing.T, status int, method, url, body string, header ...string) string {
	t.Helper()
	res, err := do(t, method, url, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != status {
		t.Fatalf("%s %s: %d %s", method, url, res.StatusCode, raw)
	}
	return string(raw)
}

func TestTwoGatewaysOnOneDatabase(t *testing.T) {
	t.Parallel()
	a := servertest.Start(t, servertest.Options{})
	b := servertest.Start(t, servertest.Options{DB: a.DB})
	expect(t, http.StatusCreated, http.MethodPut, a.URL+"/v1/stream/hello", "", "Content-Type", "text/plain")
	expect(t, http.StatusNoContent, http.MethodPost, b.URL+"/v1/stream/hello", "world", "Content-Type", "text/plain")
	if got := expect(t, http.StatusOK, http.MethodGet, a.URL+"/v1/stream/hello?offset=-1", ""); got != "world" {
		t.Errorf("read %q", got)
	}
	if got := expect(t, http.StatusOK, http.MethodGet, a.URL+"/readyz", ""); !strings.Contains(got, "ready") {
		t.Error(got)
	}
	if got := expect(t, http.StatusOK, http.MethodGet, a.URL+"/metrics", ""); !strings.Contains(got, `rouse_http_requests_total{method="PUT"`) {
		t.Error("the request is not in the metrics")
	}
}

func TestDrainEndsAnOpenSSEAndALongPollAtOnce(t *testing.T) {
	t.Parallel()
	in := servertest.Start(t, servertest.Options{})
	expect(t, http.StatusCreated, http.MethodPut, in.URL+"/v1/stream/s", "", "Content-Type", "text/plain")
	sse, err := do(t, http.MethodGet, in.URL+"/v1/stream/s?offset=-1&live=sse", "")
	if err != nil {
		t.Fatal(err)
	}
	defer sse.Body.Close()
	if _, err := bufio.NewReader(sse.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	polled := make(chan error, 1)
	go func() {
		res, err := do(t, http.MethodGet, in.URL+"/v1/stream/s?offset=0000000000000000_0000000000000000&live=long-poll", "")
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		polled <- err
	}()
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(expect(t, 200, http.MethodGet, in.URL+"/metrics", ""), `rouse_http_requests_in_flight{method="GET"} 3`); {
		if time.Now().After(deadline) {
			t.Fatal("the long-poll does not arrive")
		}
	}
	began := time.Now()
	if err := in.Drain(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the drain took %v", took)
	}
	if _, err := io.Copy(io.Discard, sse.Body); err != nil {
		t.Errorf("the SSE was cut and not ended: %v", err)
	}
	if err := <-polled; err != nil {
		t.Errorf("the long-poll was cut and not answered: %v", err)
	}
}
