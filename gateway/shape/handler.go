package shape

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/obs"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// Path is where the endpoint is.
const Path = "/_electric/electric/v1/shape"

// Database is what shapes need of the store.
type Database interface {
	ShapeRead(ctx context.Context, query string, args []any, begin func(store.ShapeSnapshot) error, row func([][]byte) error) error
	ShapePosition(ctx context.Context) (uint64, error)
	ShapeAccess(ctx context.Context, service int32, urls []string) (store.ShapeSnapshot, map[string]store.ShapeReaders, error)
	ShapePools(ctx context.Context, service int32, principal string, ids []string) (store.ShapeSnapshot, []string, error)
	ShapeTypes(ctx context.Context, service int32, principal string, names []string) (store.ShapeSnapshot, []string, error)
	ShapeLapsed(ctx context.Context, service int32, principal string, since time.Time) (bool, error)
}

// Services knows the services of ?service=.
type Services interface {
	// ID fails with SERVICE_NOT_FOUND.
	ID(ctx context.Context, name string) (int32, error)
}

// Authorizer says who asks; *auth.Chain does.
type Authorizer interface {
	Authenticate(r *http.Request) (auth.Principal, error)
	Seen(ctx context.Context, service int32, p auth.Principal) error
}

// Config of the endpoint. Store, Services, Auth and Rows have no default.
type Config struct {
	Store    Database
	Services Services
	Auth     Authorizer
	// Rows runs one row session; (*feed.Feed).Rows.
	Rows func(ctx context.Context, sink feed.RowSink, maxBytes int) error
	// OpenTypes: everybody may spawn every type, and so sees it.
	OpenTypes bool
	// Headers sets the headers that every response has.
	Headers func(http.Header)
	// Registry for metrics; nil keeps them private.
	Registry prometheus.Registerer
	Log      *slog.Logger

	// LongPollTimeout is how long a live request waits for a change.
	LongPollTimeout time.Duration
	// SSEMaxAge is when an SSE response is ended so that its client comes back.
	SSEMaxAge time.Duration
	// SSEKeepAlive is the greatest silence of an SSE response.
	SSEKeepAlive time.Duration
	// WriteTimeout is how long a client may take to accept what is written.
	WriteTimeout time.Duration
	// Idle is how long the row session goes on when nobody asks.
	Idle time.Duration
	// SessionWait is how long a request waits for the session to begin, which
	// waits for the transactions that write. Until it has begun there are
	// snapshots, and live requests end with the advice to fetch another.
	SessionWait time.Duration
	// SnapshotTimeout bounds the reading of a shape's first rows, and the wait for
	// a turn; Snapshots is how many are read at once.
	SnapshotTimeout time.Duration
	Snapshots       int
	// RingBytes bounds the changes that are kept for clients to go on from. After a
	// transaction of more than an eighth of it, everybody fetches anew.
	RingBytes int
}

func (c *Config) complete() error {
	if c.Store == nil || c.Services == nil || c.Auth == nil || c.Rows == nil {
		return errors.New("shape: the configuration is not complete")
	}
	for v, def := range map[*time.Duration]time.Duration{
		&c.LongPollTimeout: 20 * time.Second, &c.SSEMaxAge: time.Minute, &c.SSEKeepAlive: 15 * time.Second, &c.WriteTimeout: 10 * time.Second,
		&c.Idle: 5 * time.Minute, &c.SessionWait: 3 * time.Second, &c.SnapshotTimeout: time.Minute,
	} {
		if *v <= 0 {
			*v = def
		}
	}
	if c.Snapshots <= 0 {
		c.Snapshots = 3
	}
	if c.RingBytes <= 0 {
		c.RingBytes = 64 << 20
	}
	if c.Headers == nil {
		c.Headers = func(http.Header) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Handler serves the endpoint.
type Handler struct {
	Config
	ring      *ring
	access    *access
	source    *source
	metrics   *metrics
	snapshots chan struct{}
	// drain is done when live requests must end.
	drain context.Context
	stop  context.CancelFunc
}

// New makes the endpoint; it reads nothing before the first request.
func New(ctx context.Context, cfg Config) (*Handler, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	h := &Handler{Config: cfg, snapshots: make(chan struct{}, cfg.Snapshots)}
	h.access = newAccess(cfg.Store.ShapeAccess)
	h.ring = newRing(cfg.RingBytes, h.access.invalid)
	h.source = &source{cfg: &h.Config, ring: h.ring}
	var err error
	if h.metrics, err = newMetrics(cfg.Registry, h); err != nil {
		return nil, fmt.Errorf("shape: metrics: %w", err)
	}
	h.source.begun = h.metrics.sessions.Inc
	h.drain, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	return h, nil
}

// Drain ends live requests.
func (h *Handler) Drain() { h.stop() }

// Stop ends the row session.
func (h *Handler) Stop(context.Context) error {
	h.stop()
	h.source.stop()
	return nil
}

// request is one request, understood.
type request struct {
	*definition
	w    http.ResponseWriter
	http *http.Request
	// first: the shape's first rows are wanted; now: none of them, but what comes
	// from now on.
	first, now bool
	offset     uint64
	handle     string
	live, sse  bool
	cursor     int64
	subset     *subset
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	obs.SetRoute(r.Context(), "shape")
	h.Headers(w.Header())
	if err := h.serve(w, r); err != nil {
		w.Header().Set("Cache-Control", "no-store")
		obs.Problem(w, r, h.Log, err)
	}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) error {
	switch r.Method {
	case http.MethodOptions:
		w.WriteHeader(http.StatusNoContent)
		return nil
	case http.MethodGet, http.MethodHead, http.MethodPost:
	default:
		return problem.New(problem.MethodNotAllowed, "Only GET, HEAD and POST are answered here.").WithHeader("Allow", "GET, HEAD, POST, OPTIONS")
	}
	p, err := h.Auth.Authenticate(r)
	if err != nil {
		return err
	}
	service, tenant, err := h.service(r)
	if err != nil {
		return err
	}
	if err := h.Auth.Seen(r.Context(), service, p); err != nil {
		return err
	}
	if len(r.URL.RawQuery) > maxQuery {
		return problem.New(problem.URITooLong, "The query is too long.")
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return problem.New(problem.InvalidRequest, "The query cannot be read: is it escaped?")
	}
	req, err := h.read(w, r, q)
	if err != nil {
		return err
	}
	req.belongs(service, tenant, p, h.OpenTypes)
	defer h.source.use(r.Context())()
	switch {
	case req.subset != nil:
		return h.serveSubset(req)
	case req.first || req.now:
		return h.serveFirst(req)
	}
	return h.serveLog(req)
}

func (h *Handler) service(r *http.Request) (int32, string, error) {
	name := r.URL.Query().Get("service")
	if name == "" {
		name = store.DefaultService
	}
	id, err := h.Services.ID(r.Context(), name)
	return id, name, err
}

// read understands a request but for who makes it.
func (h *Handler) read(w http.ResponseWriter, r *http.Request, q url.Values) (*request, error) {
	d, err := readDefinition(q)
	if err != nil {
		return nil, err
	}
	req := &request{definition: d, w: w, http: r, cursor: -1}
	body, err := h.body(r)
	if err != nil {
		return nil, err
	}
	if req.subset, err = d.readSubset(q, body, r.Method == http.MethodPost); err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, name := range []string{"offset", "handle", "live", "live_sse", "experimental_live_sse", "cursor"} {
		if values[name], err = one(q, name); err != nil {
			return nil, err
		}
	}
	req.handle = values["handle"]
	req.live = values["live"] == "true"
	req.sse = req.live && (values["live_sse"] == "true" || values["experimental_live_sse"] == "true")
	if n, err := strconv.ParseInt(values["cursor"], 10, 53); err == nil && n > 0 {
		req.cursor = n
	}
	if req.subset != nil {
		return req, nil
	}
	switch offset := values["offset"]; offset {
	case "", "-1":
		req.first = true
	case "now":
		req.now = true
	default:
		var ok bool
		if req.offset, ok = parseOffset(offset); !ok {
			return nil, bad("offset", "-1, now, or an offset that the server handed out")
		}
		if req.handle == "" {
			return nil, bad("handle", "an offset needs its handle")
		}
	}
	if req.live && (req.first || req.now) {
		return nil, bad("live", "a live request needs an offset that the server handed out")
	}
	return req, nil
}

// maxBody bounds the body of a subset request.
const maxBody = 64 << 10

func (h *Handler) body(r *http.Request) (map[string]json.RawMessage, error) {
	if r.Method != http.MethodPost {
		return nil, nil
	}
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, problem.Wrap(problem.InvalidRequest, err, "The body could not be read.")
	}
	if len(raw) > maxBody {
		return nil, problem.New(problem.PayloadTooLarge, "The body is too large.")
	}
	if len(raw) == 0 {
		return nil, nil
	}
	var body map[string]json.RawMessage
	if err := json.Unmarshal(raw, &body); err != nil {
		return nil, problem.New(problem.InvalidRequest, "The body is not a JSON object.")
	}
	return body, nil
}

// headers sets what every answer of a shape carries.
func (q *request) headers(handle string, offset uint64) http.Header {
	hd := q.w.Header()
	hd.Set("Content-Type", "application/json")
	hd.Set("Electric-Handle", handle)
	hd.Set("Electric-Offset", formatOffset(offset))
	hd.Set("Electric-Schema", q.describe())
	hd.Set("Vary", "Authorization, Electric-Principal, Cookie")
	hd.Set("Cache-Control", "private, no-cache")
	return hd
}

// refetch tells the client to start anew.
func (h *Handler) refetch(q *request) error {
	h.metrics.refetches.Inc()
	hd := q.w.Header()
	hd.Set("Content-Type", "application/json")
	hd.Set("Electric-Handle", q.id+"-"+nonce())
	hd.Set("Cache-Control", "no-store")
	hd.Set("Content-Length", strconv.Itoa(len(mustRefetch)))
	q.w.WriteHeader(http.StatusConflict)
	h.write(q, []byte(mustRefetch))
	return nil
}

// write sends bytes to a client that has WriteTimeout to take them.
func (h *Handler) write(q *request, b []byte) bool {
	if q.http.Method == http.MethodHead {
		return true
	}
	rc := http.NewResponseController(q.w)
	_ = rc.SetWriteDeadline(time.Now().Add(h.WriteTimeout))
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	_, err := q.w.Write(b)
	return err == nil
}
