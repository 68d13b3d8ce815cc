// Package subscriptions serves the reserved routes of the Durable Streams
// protocol: /__ds/subscriptions and /__ds/jwks.json, at the root and below
// /v1/stream.
//
// It owns their wire: who may register, what a configuration is, which codes
// conflicts have. It promises that a subscription belongs to whoever registered
// it first, that nothing of a refused request takes effect, and that a callback
// is one transaction. It knows nothing of how streams are matched, wakes made
// or leases kept: subscriptions are consumers like entities', and the mutex is
// the same.
package subscriptions

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/intake"
	"github.com/rouse-run/rouse/gateway/obs"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// Database is what the routes need of the store.
type Database interface {
	SubscriptionPut(ctx context.Context, spec store.SubscriptionSpec) (string, error)
	SubscriptionGet(ctx context.Context, service int32, id string, streams int) (store.Subscription, error)
	SubscriptionList(ctx context.Context, service int32, owner, after string, limit int) ([]store.Subscription, error)
	SubscriptionDelete(ctx context.Context, service int32, id, principal string) (bool, error)
	SubscriptionStreamsAdd(ctx context.Context, service int32, id, principal string, paths []string) (string, error)
	SubscriptionStreamRemove(ctx context.Context, service int32, id, principal, path string) (string, error)
	ConsumerWakes(ctx context.Context, service int32, consumer string, before int64, limit int) ([]store.Wake, error)
}

// Services resolves the names of ?service=.
type Services interface {
	ID(ctx context.Context, name string) (int32, error)
}

// Authenticator says who asks.
type Authenticator interface {
	Authenticate(r *http.Request) (auth.Principal, error)
	Seen(ctx context.Context, service int32, p auth.Principal) error
}

// Mutex is the leases' side; *claims.Service is one.
type Mutex interface {
	Turn(ctx context.Context, t claims.Turn) (claims.Turned, error)
	Genuine(token string) bool
	Take(ctx context.Context, service int32, consumer, worker, attempt string) (claims.Taken, error)
	Notify(service string, notification json.RawMessage, claimToken string) (json.RawMessage, error)
}

// Transports refuses targets that a transport would not send to.
type Transports interface {
	Validate(ctx context.Context, typ string, target json.RawMessage) error
}

// Keys are those that deliveries are signed with.
type Keys interface {
	// Kid names the key that signs now.
	Kid() string
	// JWKS are all keys that signatures may be verified with.
	JWKS() []byte
}

// Config of a [Handler]. All but Headers and Log are needed.
type Config struct {
	Store      Database
	Services   Services
	Auth       Authenticator
	Mutex      Mutex
	Transports Transports
	Keys       Keys
	// PublicURL is the base of the URLs handed out, without a trailing slash.
	PublicURL string
	// Bodies bounds all bodies in memory at once.
	Bodies *intake.Budget
	// Headers sets the headers every response carries (CORS, security).
	Headers func(http.Header)
	Log     *slog.Logger
}

// Handler serves the routes.
type Handler struct {
	Config
	bodies intake.Reader
}

// maxBody bounds a body in bytes.
const maxBody = 1 << 20

// New makes a handler.
func New(cfg Config) *Handler {
	if cfg.Headers == nil {
		cfg.Headers = func(http.Header) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.PublicURL = strings.TrimRight(cfg.PublicURL, "/")
	return &Handler{Config: cfg, bodies: intake.Reader{Budget: cfg.Bodies, MaxBytes: maxBody}}
}

const (
	root = "/__ds"
	// streamsMount is where streams are served beside the root; a subscription's
	// URLs are those of the mount it was made through.
	streamsMount = "/v1/stream"
)

// Handles says whether a request's path is one of this handler's.
func Handles(r *http.Request) bool {
	p := strings.TrimPrefix(r.URL.EscapedPath(), streamsMount)
	return p == root || strings.HasPrefix(p, root+"/")
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.Headers(w.Header())
	if r.Method == http.MethodOptions {
		obs.SetRoute(r.Context(), "options")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if err := h.serve(w, r); err != nil {
		obs.Problem(w, r, h.Log, err)
	}
}

// request is what the routes share.
type request struct {
	*http.Request
	w           http.ResponseWriter
	mount       string
	service     int32
	serviceName string
	id          string // of the subscription
	rest        string // of the path behind the action, decoded
}

// route is one path's methods.
type route struct {
	name    string
	methods map[string]func(*request) error
}

var errNoRoute = problem.New(problem.NotFound, "There is no such route below /__ds.")

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) error {
	q := &request{Request: r, w: w}
	path, mounted := strings.CutPrefix(r.URL.EscapedPath(), streamsMount)
	if mounted {
		q.mount = streamsMount
	}
	if len(path) > 3*maxPath {
		return problem.Newf(problem.URITooLong, "The path is longer than %d bytes.", maxPath)
	}
	segs := strings.Split(strings.TrimSuffix(path[1:], "/"), "/")[1:]
	if len(segs) == 1 && segs[0] == "jwks.json" {
		obs.SetRoute(r.Context(), "subscriptions.jwks")
		return h.allow(q, map[string]func(*request) error{http.MethodGet: h.jwks})
	}
	if len(segs) == 0 || segs[0] != "subscriptions" {
		return errNoRoute
	}
	if err := h.read(q, segs[1:]); err != nil {
		return err
	}
	rt, err := h.route(segs[1:])
	if err != nil {
		return err
	}
	obs.SetRoute(r.Context(), "subscriptions."+rt.name)
	w.Header().Set("Cache-Control", "no-store")
	return h.allow(q, rt.methods)
}

// route finds what lies at /__ds/subscriptions/…
func (h *Handler) route(segs []string) (route, error) {
	type methods = map[string]func(*request) error
	switch {
	case len(segs) == 0:
		return route{"list", methods{http.MethodGet: h.list}}, nil
	case len(segs) == 1:
		return route{"one", methods{http.MethodPut: h.put, http.MethodGet: h.get, http.MethodDelete: h.delete}}, nil
	case segs[1] == "streams" && len(segs) == 2:
		return route{"streams", methods{http.MethodPost: h.addStreams}}, nil
	case segs[1] == "streams":
		return route{"stream", methods{http.MethodDelete: h.removeStream}}, nil
	case len(segs) > 2:
		return route{}, errNoRoute
	}
	switch segs[1] {
	case "callback":
		return route{"callback", methods{http.MethodPost: h.callback}}, nil
	case "claim":
		return route{"claim", methods{http.MethodPost: h.claim}}, nil
	case "ack":
		return route{"ack", methods{http.MethodPost: h.ack}}, nil
	case "release":
		return route{"release", methods{http.MethodPost: h.release}}, nil
	case "wakes":
		return route{"wakes", methods{http.MethodGet: h.wakes}}, nil
	}
	return route{}, errNoRoute
}

// allow calls the method's handler, or says which methods there are.
func (h *Handler) allow(q *request, methods map[string]func(*request) error) error {
	method := q.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if f := methods[method]; f != nil {
		return f(q)
	}
	var names []string
	for _, m := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete} {
		if methods[m] != nil {
			names = append(names, m)
		}
		if m == http.MethodGet && methods[m] != nil {
			names = append(names, http.MethodHead)
		}
	}
	return problem.New(problem.MethodNotAllowed, "The method is not allowed here.").WithHeader("Allow", strings.Join(append(names, http.MethodOptions), ", "))
}

// read takes the service, the subscription's id and what follows it from the URL.
func (h *Handler) read(q *request, segs []string) error {
	q.serviceName = store.DefaultService
	if q.URL.RawQuery != "" {
		query, err := url.ParseQuery(q.URL.RawQuery)
		if err != nil {
			return problem.New(problem.InvalidRequest, "The query string is malformed.")
		}
		if given := query["service"]; len(given) > 1 {
			return invalid("query.service", "is given more than once")
		} else if len(given) == 1 && given[0] != "" {
			q.serviceName = given[0]
		}
	}
	var err error
	if q.service, err = h.Services.ID(q.Context(), q.serviceName); err != nil {
		return h.tell(q, err)
	}
	if len(segs) == 0 {
		return nil
	}
	if q.id, err = url.PathUnescape(segs[0]); err != nil || !printable(q.id, maxID) || strings.Contains(q.id, "/") {
		return problem.Newf(problem.InvalidRequest, "A subscription's id is 1 to %d bytes of text without slashes or control characters.", maxID).
			WithDetails(problem.Detail{Path: "path.id", Message: "is not valid"})
	}
	if len(segs) > 2 {
		if q.rest, err = url.PathUnescape(strings.Join(segs[2:], "/")); err != nil {
			return problem.New(problem.InvalidPath, "The path holds a malformed percent escape.")
		}
	}
	return nil
}

const (
	maxID   = 256
	maxPath = 1024
)

// tell is what somebody may know who asked about what is not there: strangers are
// refused as they are where it is.
func (h *Handler) tell(q *request, absent error) error {
	token := auth.ClaimToken(q.Header)
	if token != "" && h.Mutex.Genuine(token) {
		return absent
	}
	switch _, refused := h.Auth.Authenticate(q.Request); {
	case refused == nil:
		return absent
	case token != "":
		return claims.ErrTurnToken
	default:
		return refused
	}
}

// printable says that s is text that can be stored: 1 to limit bytes of UTF-8
// without control characters.
func printable(s string, limit int) bool {
	return s != "" && len(s) <= limit && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

// invalid points at one part of a request.
func invalid(path, message string) *problem.Error {
	return problem.New(problem.InvalidRequest, "The request is not valid. See errors for the places.").
		WithDetails(problem.Detail{Path: path, Message: message})
}

// caller asks for credentials.
func (h *Handler) caller(q *request) (auth.Principal, error) {
	p, err := h.Auth.Authenticate(q.Request)
	if err != nil {
		return p, err
	}
	return p, h.Auth.Seen(q.Context(), q.service, p)
}

// answer writes v as JSON; HEAD gets its headers only.
func (q *request) answer(status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "application/json")
	q.w.WriteHeader(status)
	if q.Method != http.MethodHead {
		_, _ = q.w.Write(body) // a client that went away needs no answer
	}
	return nil
}

// jwks serves the public keys: anybody may verify.
func (h *Handler) jwks(q *request) error {
	q.w.Header().Set("Content-Type", "application/jwk-set+json")
	q.w.Header().Set("Cache-Control", "public, max-age=300")
	if q.Method != http.MethodHead {
		_, _ = q.w.Write(h.Keys.JWKS())
	}
	return nil
}
