package streams

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/rouse-run/rouse/gateway/problem"
)

const (
	bodyStep = 64 << 10
	// bodiesWait is how long a body waits for others to leave memory.
	bodiesWait = 5 * time.Second
)

// body reads the request's body and returns it with a function that gives its
// share of the memory budget back. A known length is refused before a byte is
// read; an unknown one grows, and its share with it. A client that stalls for
// BodyTimeout is cut off.
func (h *Handler) body(w http.ResponseWriter, r *http.Request) (data []byte, release func(), err error) {
	release = func() {}
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
		return nil, release, nil
	}
	tooLarge := problem.Newf(problem.PayloadTooLarge, "The body has at most %d bytes.", h.MaxBodyBytes)
	if r.ContentLength > h.MaxBodyBytes {
		w.Header()["Connection"] = []string{"close"}
		return nil, release, tooLarge
	}
	held := int64(0)
	release = func() { h.bodies.Release(held) }
	hold := func(n int64) error {
		if h.bodies.TryAcquire(n) {
			held += n
			return nil
		}
		ctx, cancel := context.WithTimeout(r.Context(), bodiesWait)
		defer cancel()
		if h.bodies.Acquire(ctx, n) != nil {
			w.Header()["Connection"] = []string{"close"}
			return problem.New(problem.Overloaded, "Too many large bodies are in flight. Try again.")
		}
		held += n
		return nil
	}
	size := r.ContentLength
	if size < 0 {
		size = bodyStep
	}
	if err = hold(size); err != nil {
		return nil, release, err
	}
	rc := http.NewResponseController(w)
	deadline := func(d time.Duration) {
		t := time.Time{}
		if d > 0 {
			t = time.Now().Add(d)
		}
		_ = rc.SetReadDeadline(t) // not every connection has deadlines
	}
	deadline(h.BodyTimeout)
	buf := make([]byte, size)
	n, since := 0, 0
	for {
		var m int
		m, err = r.Body.Read(buf[n:min(len(buf), n+bodyStep)])
		n, since = n+m, since+m
		if err != nil {
			break
		}
		if int64(n) > h.MaxBodyBytes {
			w.Header()["Connection"] = []string{"close"}
			return nil, release, tooLarge
		}
		if since >= bodyStep {
			since = 0
			deadline(h.BodyTimeout)
		}
		if n == len(buf) {
			if r.ContentLength >= 0 {
				// Everything is here; the next read answers io.EOF.
				buf = append(buf, 0)[:n+1]
				continue
			}
			grow := min(int64(len(buf)), h.MaxBodyBytes+1-int64(len(buf)))
			if grow <= 0 {
				return nil, release, tooLarge
			}
			if err = hold(grow); err != nil {
				return nil, release, err
			}
			buf = append(buf, make([]byte, grow)...)
		}
	}
	if !errors.Is(err, io.EOF) {
		w.Header()["Connection"] = []string{"close"}
		var ne net.Error
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &ne) && ne.Timeout() {
			return nil, release, problem.Wrap(problem.RequestTimeout, err, "The body arrived too slowly.")
		}
		return nil, release, problem.Wrap(problem.InvalidRequest, err, "The body ended early or is malformed.")
	}
	deadline(0)
	if n == 0 {
		return nil, release, nil
	}
	return buf[:n], release, nil
}
