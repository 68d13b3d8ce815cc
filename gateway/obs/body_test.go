package obs

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A body that is announced, never comes and is read by nobody must not keep
// the answer back.
func TestABodyNobodyReadsHoldsNoAnswerBack(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}), NewMetrics("test"), slog.New(slog.DiscardHandler)))
	t.Cleanup(s.Close)
	for _, method := range []string{"GET", "HEAD", "DELETE", "OPTIONS", "POST", "PUT", "PATCH"} {
		for _, body := range []string{"Content-Length: 10", "Content-Length: 100000", "Transfer-Encoding: chunked"} {
			t.Run(method+" "+body, func(t *testing.T) {
				t.Parallel()
				c, err := net.Dial("tcp", s.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
				if err := c.SetDeadline(time.Now().Add(4 * unreadBody)); err != nil {
					t.Fatal(err)
				}
				if _, err := fmt.Fprintf(c, "%s /x HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", method, body); err != nil {
					t.Fatal(err)
				}
				r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
				if err != nil {
					t.Fatalf("no answer: %v", err)
				}
				if r.StatusCode != http.StatusTeapot {
					t.Errorf("status %d", r.StatusCode)
				}
				_ = r.Body.Close()
			})
		}
	}
}

// A client that leaves is no failure of the gateway.
func TestAClientThatLeftIsNoServerError(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	leave()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/x", nil)
	w := httptest.NewRecorder()
	Problem(w, r, slog.New(slog.DiscardHandler), fmt.Errorf("read: %w", context.Canceled))
	if w.Code != statusClientGone {
		t.Errorf("status %d", w.Code)
	}
	w = httptest.NewRecorder()
	Problem(w, httptest.NewRequest(http.MethodGet, "/x", nil), slog.New(slog.DiscardHandler), context.Canceled)
	if w.Code != http.StatusInternalServerError {
		t.Errorf("a call that was cancelled for another reason: status %d", w.Code)
	}
}
