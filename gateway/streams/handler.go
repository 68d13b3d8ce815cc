package streams

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rouse-run/rouse/gateway/appender"
	"github.com/rouse-run/rouse/gateway/intake"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// Config of a [Handler]. Store, Services, Appender and Hub are required.
type Config struct {
	Store    Database
	Services Services
	Appender Appender
	Hub      Hub
	// Auth decides who may read guarded streams; nil means nobody.
	Auth Authorizer
	// Readers may let others than its owner read a guarded stream; nil lets nobody.
	Readers Readers
	// PoolReaders may be nil; then nobody reads a pool's wake stream.
	PoolReaders PoolReaders
	// RequireAuth asks for credentials on plain streams too.
	RequireAuth bool
	// Admit may refuse a request that would change a stream and shows no write
	// token. May be nil.
	Admit func(*http.Request) error
	// Tokens verifies write tokens; nil means that none is valid.
	Tokens WriteTokens
	// ErrorStreams may be nil.
	ErrorStreams ErrorStreams
	// SharedStates may be nil; then nobody has any.
	SharedStates SharedStates
	// AppendGate may refuse what somebody with a write token appends, wherever
	// that is; the payload is flattened. A token that is no good for the stream
	// is told so first. May be nil.
	AppendGate func(ctx context.Context, item *store.AppendItem) error
	// WakeDecorator adds to each entry of a wake stream what only its owner may
	// see. May be nil.
	WakeDecorator func(service int32, serviceName string, entry []byte) []byte
	// PublicURL is the base of Location headers, without a trailing slash; empty
	// means the request's own host.
	PublicURL string
	// MaxBodyBytes bounds one body (default 16 MiB), Bodies all bodies in memory
	// at once (nil: 256 MiB, at least 2 MaxBodyBytes).
	MaxBodyBytes int64
	Bodies       *intake.Budget
	// PageBytes bounds a page of a read beyond its first append (default 1 MiB),
	// CacheBytes the pages kept for other readers (default 64 MiB).
	PageBytes  int32
	CacheBytes int64
	// LongPollTimeout (default 20 s), SSEMaxAge (default 60 s) and SSEKeepAlive
	// (default 15 s) time live reads; WriteTimeout (default 30 s) ends a reader
	// that does not take what is written, BodyTimeout (default 30 s) a writer that
	// stalls or trickles: see intake.
	LongPollTimeout, SSEMaxAge, SSEKeepAlive, WriteTimeout, BodyTimeout time.Duration
	// CallTimeout bounds a database call (default 15 s).
	CallTimeout time.Duration
	// Log may be nil.
	Log *slog.Logger
}

// Handler serves streams. Mount it at / and below /v1/stream.
type Handler struct {
	Config
	bodies intake.Reader
	pages  *pages
	drain  context.Context
	stop   context.CancelFunc
}

// New makes a handler; live reads end when ctx does, or at Drain.
func New(ctx context.Context, cfg Config) *Handler {
	def := func(p *time.Duration, v time.Duration) {
		if *p <= 0 {
			*p = v
		}
	}
	def(&cfg.LongPollTimeout, 20*time.Second)
	def(&cfg.SSEMaxAge, time.Minute)
	def(&cfg.SSEKeepAlive, 15*time.Second)
	def(&cfg.WriteTimeout, 30*time.Second)
	def(&cfg.BodyTimeout, 30*time.Second)
	def(&cfg.CallTimeout, 15*time.Second)
	if cfg.MaxBodyBytes <= 0 {
		cfg.MaxBodyBytes = 16 << 20
	}
	if cfg.Bodies == nil {
		cfg.Bodies = intake.NewBudget(max(256<<20, 2*cfg.MaxBodyBytes))
	}
	if cfg.PageBytes <= 0 {
		cfg.PageBytes = 1 << 20
	}
	if cfg.CacheBytes <= 0 {
		cfg.CacheBytes = 64 << 20
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.PublicURL = strings.TrimRight(cfg.PublicURL, "/")
	h := &Handler{Config: cfg, bodies: intake.Reader{Budget: cfg.Bodies, MaxBytes: cfg.MaxBodyBytes, Stall: cfg.BodyTimeout},
		pages: newPages(cfg.Store, cfg.PageBytes, cfg.CacheBytes, cfg.CallTimeout)}
	h.drain, h.stop = context.WithCancel(ctx)
	h.pages.ctx = ctx
	if s, ok := cfg.Store.(interface{ Generation() uint64 }); ok {
		h.pages.signs = append(h.pages.signs, s.Generation)
	}
	if s, ok := cfg.Hub.(interface{ Resyncs() uint64 }); ok {
		h.pages.signs = append(h.pages.signs, s.Resyncs)
	}
	if a, ok := cfg.Appender.(interface{ Attach(appender.Readers) }); ok {
		a.Attach(h.pages)
	}
	return h
}

// Drain ends every live read at once: a long-poll answers 204, an SSE stream
// ends, and clients resume elsewhere by their offset.
func (h *Handler) Drain() { h.stop() }

const allowed = "GET, HEAD, PUT, POST, DELETE, OPTIONS"

// request is what the methods share.
type request struct {
	http        *http.Request
	w           http.ResponseWriter
	path        Path
	query       url.Values
	service     int32
	serviceName string
	// shared: the stream is a shared state, and the caller may do to it what it
	// asks for.
	shared bool
	// pool: the stream is a worker pool's wake stream, and this is how it is read.
	pool *reading
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setHeaders(w.Header())
	if r.Method == http.MethodOptions {
		SetHeaders(w.Header())
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if err := h.serve(w, r); err != nil {
		h.fail(w, r, err)
	}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) error {
	q := request{http: r, w: w, service: 1, serviceName: "default"}
	var err error
	if q.path, err = ParsePath(r.URL.EscapedPath()); err != nil {
		return err
	}
	if r.URL.RawQuery != "" {
		if len(r.URL.RawQuery) > 4096 {
			return problem.New(problem.URITooLong, "The query has at most 4096 bytes.")
		}
		if q.query, err = url.ParseQuery(r.URL.RawQuery); err != nil {
			return problem.New(problem.InvalidRequest, "The query string is malformed.")
		}
		if q.query.Has("service") {
			if q.serviceName, err = single(q.query, "service"); err != nil {
				return err
			}
			if q.service, err = h.Services.ID(r.Context(), q.serviceName); err != nil {
				return h.noService(r, err)
			}
		}
	}
	if isShared(q.path.Name) {
		return h.serveShared(&q)
	}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	if q.path.Reserved && !(read && q.path.Readable) {
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			return problem.New(problem.StreamNotFound, "There is no stream at this path.")
		case http.MethodPut, http.MethodPost, http.MethodDelete:
			return problem.New(problem.PathReserved, "The path is reserved for the gateway.")
		}
	}
	if h.RequireAuth {
		if err := h.admit(&q); err != nil {
			return err
		}
	}
	if h.Admit != nil && !read && h.claim(r) == nil {
		if err := h.Admit(r); err != nil {
			return err
		}
	}
	return h.method(&q)
}

// noService refuses a request whose service was not found. Which services there
// are is not for those whom the gateway does not know.
func (h *Handler) noService(r *http.Request, err error) error {
	if h.RequireAuth && h.Auth != nil && h.claim(r) == nil {
		if _, refused := h.Auth.Authenticate(r, 0); refused != nil {
			return refused
		}
	}
	return err
}

// method carries out an admitted request.
func (h *Handler) method(q *request) error {
	switch q.http.Method {
	case http.MethodGet:
		return h.get(q)
	case http.MethodHead:
		return h.head(q)
	case http.MethodPost:
		return h.append(q)
	case http.MethodPut:
		return h.create(q)
	case http.MethodDelete:
		return h.delete(q)
	}
	return problem.New(problem.MethodNotAllowed, "Streams know GET, HEAD, PUT, POST and DELETE.").WithHeader("Allow", allowed)
}

// admit asks for credentials. A write token is one for the stream it is made
// for, whose append checks it; a plain stream would not.
func (h *Handler) admit(q *request) error {
	_, err := h.caller(q)
	if err == nil || q.http.Method != http.MethodPost || h.claim(q.http) == nil {
		return err
	}
	ctx, cancel := h.call(q.http)
	defer cancel()
	m, herr := h.Store.StreamHead(ctx, q.service, q.path.Name)
	if herr != nil {
		return herr
	}
	if m.Kind == "app" {
		return err
	}
	return nil
}

func (h *Handler) caller(q *request) (Caller, error) {
	if h.Auth == nil {
		return Caller{}, problem.New(problem.Unauthenticated, "Credentials are required.")
	}
	return h.Auth.Authenticate(q.http, q.service)
}

// mayRead checks that the caller owns a guarded stream, or is let read it.
func (h *Handler) mayRead(q *request, m *store.StreamMeta) error {
	if m.Kind == "app" || m.Kind == "cron" || q.shared {
		return nil
	}
	c, err := h.caller(q)
	if err != nil {
		return err
	}
	if pool := poolOf(q.path.Name); pool != "" && m.Kind == "wake" {
		return h.mayReadPool(q, c, pool)
	}
	if c.System || c.Principal != "" && c.Principal == m.Owner {
		return nil
	}
	if m.Kind == "wake" {
		return problem.New(problem.RunnerForbidden, "The runner's wake stream can be read by its owner only.")
	}
	if h.Readers != nil {
		ctx, cancel := h.call(q.http)
		defer cancel()
		if ok, err := h.Readers.MayRead(ctx, q.service, c.Principal, q.path.Name); ok || err != nil {
			return err
		}
	}
	return problem.New(problem.Unauthorized, "You may not read this entity's streams.")
}

// call bounds a database call by the request and the configured time.
func (h *Handler) call(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), h.CallTimeout)
}

// fail answers a coded error. A request that was cut off gets one too: its
// client may still be there when it is the gateway that ends, and must not take
// silence for success.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	cut := r.Context().Err() != nil
	switch {
	case cut && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		err = problem.Wrap(problem.ServerStopping, err, "The request was cut off; it may or may not have been carried out.")
	case errors.Is(err, context.DeadlineExceeded) && problem.CodeOf(err) == "":
		err = problem.Wrap(problem.DatabaseTimeout, err, "The database took too long. Try again.")
	}
	e := problem.From(err)
	if e.Status() >= 500 && !cut {
		h.Log.WarnContext(r.Context(), "stream request failed", "method", r.Method, "code", e.Code, "error", e.Error())
	}
	problem.Write(w, w.Header().Get("X-Request-Id"), e)
}

// single returns the only value of a query parameter.
func single(q url.Values, name string) (string, error) {
	v := q[name]
	if len(v) != 1 || v[0] == "" {
		return "", problem.New(problem.InvalidRequest, "A query parameter is empty or given twice.").
			WithDetails(problem.Detail{Path: "query." + name, Message: "give it once, with a value"})
	}
	return v[0], nil
}
