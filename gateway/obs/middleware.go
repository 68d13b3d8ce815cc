package obs

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/rouse-run/rouse/gateway/problem"
)

// HeaderRequestID carries the id of a request, taken from the client if it is well formed.
const HeaderRequestID = "X-Request-Id"

type requestKey struct{}

// request is what the middleware and the handlers below it share. One goroutine at a time uses it.
type request struct {
	id    string
	route string
}

// RequestID is the id of the request that ctx belongs to, "" outside of one.
func RequestID(ctx context.Context) string {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r.id
	}
	return ""
}

// SetRoute names the route for metrics and logs. name comes from a fixed set ("stream.append"), never from the path.
func SetRoute(ctx context.Context, name string) {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		r.route = name
	}
}

// Problem answers err as problem+json with the request's id, and logs what is our fault.
func Problem(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	if clientGone(r, err) {
		w.WriteHeader(statusClientGone)
		return
	}
	e := problem.From(err)
	if e.Status() >= 500 {
		level := slog.LevelWarn
		if e.Code == problem.Internal {
			level = slog.LevelError
		}
		log.LogAttrs(r.Context(), level, "request failed", slog.String("code", string(e.Code)),
			slog.String("request_id", RequestID(r.Context())), slog.Any("error", err))
	}
	problem.Write(w, RequestID(r.Context()), err)
}

// Middleware gives each request an id, measures it, logs it at debug, and turns a panic into INTERNAL.
func Middleware(next http.Handler, m *Metrics, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		req := &request{id: requestID(r.Header.Get(HeaderRequestID)), route: "other"}
		method := methodLabel(r.Method)
		rec := &recorder{ResponseWriter: w}
		w.Header().Set(HeaderRequestID, req.id)
		m.inFlight.WithLabelValues(method).Inc()
		boundBody(w, r)
		defer func() {
			defer m.inFlight.WithLabelValues(method).Dec()
			fault := recover()
			if fault != nil {
				recovered(rec, r, req, m, log, fault)
			}
			first := rec.first
			if first.IsZero() {
				first = time.Now()
			}
			m.requests.WithLabelValues(req.route, method, strconv.Itoa(rec.statusOr200())).Inc()
			m.latency.WithLabelValues(req.route, method).Observe(first.Sub(began).Seconds())
			if log.Enabled(r.Context(), slog.LevelDebug) {
				log.LogAttrs(r.Context(), slog.LevelDebug, "request", slog.String("request_id", req.id), slog.String("method", method),
					slog.String("route", req.route), slog.String("path", r.URL.Path), slog.Int("status", rec.statusOr200()),
					slog.Int64("bytes", rec.bytes), slog.Duration("took", time.Since(began)))
			}
			if fault != nil && rec.status != 0 && !rec.answeredPanic {
				// The answer had begun: only a broken connection tells the client that it is not whole.
				panic(http.ErrAbortHandler)
			}
		}()
		next.ServeHTTP(rec, r.WithContext(context.WithValue(r.Context(), requestKey{}, req)))
	})
}

// unreadBody is how long a body may take that no handler reads.
const unreadBody = 2 * time.Second

// boundBody keeps a body that nobody reads, and that does not come, from holding the answer back: the server reads what
// is left of it before it sends one. Handlers that read the body set deadlines of their own.
func boundBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	// The recorder and every other wrapper pass this on; a test's recorder that cannot has no body to wait for.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unreadBody))
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
	default:
		w.Header().Set("Connection", "close")
	}
}

// clientGone says that a request ended since its client left: nobody is there to be answered, and nothing is wrong.
func clientGone(r *http.Request, err error) bool {
	return errors.Is(err, context.Canceled) && r.Context().Err() != nil
}

// statusClientGone is what logs and metrics show for it (nginx's word for it).
const statusClientGone = 499

func recovered(rec *recorder, r *http.Request, req *request, m *Metrics, log *slog.Logger, fault any) {
	if err, ok := fault.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		return // the handler's way of saying: cut the connection
	}
	m.panics.Inc()
	stack := make([]byte, 16<<10)
	stack = stack[:runtime.Stack(stack, false)]
	log.LogAttrs(r.Context(), slog.LevelError, "panic", slog.String("code", string(problem.Internal)), slog.String("request_id", req.id),
		slog.String("route", req.route), slog.String("panic", Scrub(fmt.Sprint(fault))), slog.String("stack", string(stack)))
	if rec.status == 0 {
		rec.answeredPanic = true
		problem.Write(rec, req.id, fmt.Errorf("panic"))
	}
}

// requestID keeps a client's id of up to 64 unreserved characters, and makes one otherwise.
func requestID(given string) string {
	if len(given) > 0 && len(given) <= 64 {
		ok := true
		for _, c := range []byte(given) {
			ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.')
		}
		if ok {
			return given
		}
	}
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// methodLabel keeps what a client sends as a method from becoming label values without bound.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

// recorder remembers status and size. Flush, deadlines and hijacking go through Unwrap, as http.ResponseController does.
type recorder struct {
	http.ResponseWriter
	status        int
	bytes         int64
	first         time.Time // when the header was written
	answeredPanic bool
}

// Unwrap lets http.ResponseController find the writer below.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Flush is for handlers that look for http.Flusher.
func (r *recorder) Flush() {
	if r.status == 0 {
		r.note(http.StatusOK)
	}
	_ = http.NewResponseController(r.ResponseWriter).Flush()
}

// WriteHeader notes the first final status.
func (r *recorder) WriteHeader(status int) {
	r.note(status)
	r.ResponseWriter.WriteHeader(status)
}

// Write notes the size.
func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.note(http.StatusOK)
	}
	n, err := r.ResponseWriter.Write(b)
	r.bytes += int64(n)
	return n, err
}

func (r *recorder) note(status int) {
	if r.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		r.status, r.first = status, time.Now()
	}
}

func (r *recorder) statusOr200() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

var (
	_ http.Flusher                              = (*recorder)(nil)
	_ interface{ Unwrap() http.ResponseWriter } = (*recorder)(nil)
)
