package call

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func answer(status int, body string, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		resp    *http.Response
		code    string
		text    string
		after   time.Duration
		passing bool
	}{
		"problem": {answer(409, `{"status":409,"title":"T","detail":"D","code":"EPOCH_HELD","retry_after_ms":250,"error":{"code":"X","message":"Y"}}`), "EPOCH_HELD", "EPOCH_HELD: D", 250 * time.Millisecond, false},
		"member":  {answer(404, `{"error":{"code":"NOT_FOUND","message":"no such thing"}}`), "NOT_FOUND", "NOT_FOUND: no such thing", 0, false},
		"text":    {answer(502, `<html>bad gateway`), "", "HTTP 502: Bad Gateway", 0, true},
		"empty":   {answer(429, ``, "Retry-After", "3"), "", "HTTP 429: Too Many Requests", 3 * time.Second, true},
		"array":   {answer(503, `[1]`, "Retry-After", "soon"), "", "HTTP 503: Service Unavailable", 0, true},
	} {
		err := Decode(c.resp, nil, nil)
		var e *Error
		if !errors.As(err, &e) || e.Code != c.code || err.Error() != c.text || e.RetryAfter != c.after || Passing(err) != c.passing {
			t.Errorf("%s: %+v, passing %v", name, err, Passing(err))
		}
	}
	if !Passing(io.ErrUnexpectedEOF) || Passing(context.Canceled) || Passing(nil) {
		t.Error("passing")
	}
}

func TestDecodeRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	var out struct{ A int }
	if err := Decode(answer(200, `{"A":1`), nil, &out); err == nil {
		t.Error("a cut answer was taken")
	}
	if err := Decode(answer(200, `{"A":7}`), nil, &out); err != nil || out.A != 7 {
		t.Error(err, out)
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := Backoff{Min: 100 * time.Millisecond, Max: 30 * time.Second}
	bound := b.Min
	for range 100 {
		if got := b.Next(nil); got <= 0 || got > bound {
			t.Fatalf("%v is outside of (0, %v]", got, bound)
		}
		bound = min(2*bound, b.Max)
	}
	b.Reset()
	if got := b.Next(nil); got > b.Min {
		t.Errorf("after a reset: %v", got)
	}
	if got := b.Next(&Error{RetryAfter: time.Hour}); got != b.Max {
		t.Errorf("a wait that was asked for: %v", got)
	}
}
