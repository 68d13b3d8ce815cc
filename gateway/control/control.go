package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/groupcommit"
	"github.com/rouse-run/rouse/gateway/intake"
	"github.com/rouse-run/rouse/gateway/obs"
	"github.com/rouse-run/rouse/gateway/observation"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// Claims is the mutex; *claims.Service is one.
type Claims interface {
	Acquire(ctx context.Context, r claims.AcquireRequest) (claims.Grant, error)
	Heartbeat(ctx context.Context, r claims.HoldRequest) (claims.Lease, error)
	Ack(ctx context.Context, r claims.HoldRequest, acks []claims.Ack) (claims.Lease, error)
	Release(ctx context.Context, r claims.HoldRequest, acks []claims.Ack, failure *string) (claims.Released, error)
	Notify(service string, notification json.RawMessage, claimToken string) (json.RawMessage, error)
	VerifyWrite(token string) (consumerID, epoch int64, wakeID string, err error)
	JoinToken(j claims.Join) string
	VerifyJoin(token string) (claims.Join, error)
}

// Appender carries out appends.
type Appender interface {
	Append(ctx context.Context, item store.AppendItem) (store.AppendResult, error)
}

// Transports knows the dispatch targets that plugins and built-ins serve.
type Transports interface {
	// Validate refuses a target of a type it knows with a coded error, and a
	// type it does not know with INVALID_TARGET.
	Validate(ctx context.Context, typ string, target json.RawMessage) error
}

// Discoverer fetches an entity type's manifest from its serve endpoint.
type Discoverer interface {
	Discover(ctx context.Context, url string) ([]byte, error)
}

// Config of a [Control]. All but Discover, Headers and Log are needed to serve;
// describing the API needs none.
type Config struct {
	Store      *store.Store
	Services   *store.Services
	Auth       *auth.Chain
	Claims     Claims
	Appender   Appender
	Transports Transports
	Discover   Discoverer
	// Plugins may be nil: then there are none to tell of.
	Plugins Plugins
	// Lease is how long a claim of a new entity lives without a heartbeat,
	// WakeAfter when its unclaimed wake is told again; zero means 30 s.
	Lease, WakeAfter time.Duration
	// OpenTypes lets everybody spawn a type, not only its registrar.
	OpenTypes bool
	// MaxBody bounds a body in bytes; zero means 16 MiB.
	MaxBody int64
	// Bodies bounds all bodies in memory at once; nil means 256 MiB, at least
	// 2 MaxBody.
	Bodies *intake.Budget
	// BodyTimeout cuts off a body that stalls or trickles; zero means 30 s.
	BodyTimeout time.Duration
	// Poke says that something was registered or scheduled; it must not block. nil
	// is fine: it is found a little later.
	Poke func()
	// Changed says that an entity was spawned or changed, as Poke does.
	Changed func()
	// Headers sets the headers every response carries (CORS, security).
	Headers func(http.Header)
	Log     *slog.Logger
}

// Control serves the control plane.
type Control struct {
	cfg     Config
	api     huma.API
	adapter *adapter
	bodies  intake.Reader
	schemas *schemaCache
	gates   *groupcommit.Group[store.GateRequest, store.Gate]
	states  *stateGate
	// manifests are the entities whose manifest is read.
	manifests manifestGate
	docs      apiDocs
	// uploading has room for the attachments that may be written at once.
	uploading chan struct{}
	// uploads is the memory of those that are taken in.
	uploads *uploadRoom
	// leaving is closed when the gateway is going to stop.
	leaving chan struct{}
	leave   sync.Once
}

// New makes a Control; ctx bounds its group-committed lookups and Stop ends
// them.
func New(ctx context.Context, cfg Config) *Control {
	setupHuma()
	if cfg.MaxBody <= 0 {
		cfg.MaxBody = 16 << 20
	}
	if cfg.Bodies == nil {
		cfg.Bodies = intake.NewBudget(max(256<<20, 2*cfg.MaxBody))
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Poke == nil {
		cfg.Poke = func() {}
	}
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	if cfg.Headers == nil {
		cfg.Headers = func(http.Header) {}
	}
	c := &Control{cfg: cfg, bodies: intake.Reader{Budget: cfg.Bodies, MaxBytes: cfg.MaxBody, Stall: cfg.BodyTimeout}, schemas: newSchemaCache(),
		leaving: make(chan struct{})}
	c.gates = groupcommit.New(ctx, groupcommit.Config[store.GateRequest, store.Gate]{
		Run: func(ctx context.Context, _ bool, reqs []store.GateRequest) ([]groupcommit.Answer[store.Gate], error) {
			got, err := cfg.Store.EntityGate(ctx, reqs)
			if err != nil {
				return nil, err
			}
			out := make([]groupcommit.Answer[store.Gate], len(got))
			for i := range got {
				out[i].Res = got[i]
			}
			return out, nil
		},
		Key:   func(r store.GateRequest) string { return r.URL },
		Alone: store.IsDataError,
	})
	c.states = newStateGate(ctx, cfg.Store, c.schemas)
	c.adapter = &adapter{c: c, routes: map[string]map[string]*route{}, templates: map[int][]template{}}
	c.api = huma.NewAPI(huma.Config{
		OpenAPI:       openAPI(),
		Formats:       map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat},
		DefaultFormat: "application/json",
	}, c.adapter)
	c.registerTypes()
	c.registerEntities()
	c.registerEntityState()
	c.registerGrants()
	c.registerInbox()
	c.registerCollections()
	c.registerAttachments()
	c.registerFork()
	c.registerSend()
	c.registerRunners()
	c.registerPools()
	c.registerMoves()
	c.registerParked()
	c.registerCallbacks()
	c.registerConsumers()
	c.registerWakes()
	c.registerObservers()
	c.registerSchedules()
	c.registerSources()
	c.registerServices()
	c.registerPlugins()
	c.registerRetention()
	c.describeStreams()
	c.describeShapes()
	c.describeSubscriptions()
	describeJSON(c.api.OpenAPI().Components.Schemas)
	return c
}

// Drain ends what waits for others: forks whose sources are at work.
func (c *Control) Drain() { c.leave.Do(func() { close(c.leaving) }) }

// Stop ends the lookups under way.
func (c *Control) Stop(ctx context.Context) error {
	return errors.Join(c.gates.Stop(ctx), c.states.lookups.Stop(ctx))
}

// jsonFormat is JSON without HTML escaping, which would change bytes.
var jsonFormat = huma.Format{
	Marshal: func(w io.Writer, v any) error {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return e.Encode(v)
	},
	Unmarshal: json.Unmarshal,
}

// Handles says whether a request's path is this handler's: below /_electric or
// the OpenAPI's. Shared states are streams.
func Handles(r *http.Request) bool {
	p := r.URL.EscapedPath()
	if strings.HasPrefix(p, "/"+observation.SharedStatePrefix) {
		return false
	}
	return p == "/"+mount || strings.HasPrefix(p, "/"+mount+"/") || p == "/openapi.json" || p == "/openapi-3.0.json"
}

// ServeHTTP implements http.Handler.
func (c *Control) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.cfg.Headers(w.Header())
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodOptions {
		obs.SetRoute(r.Context(), "options")
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if err := c.serve(w, r); err != nil {
		obs.Problem(w, r, c.cfg.Log, err)
	}
}

func (c *Control) serve(w http.ResponseWriter, r *http.Request) error {
	segs, err := segments(r.URL.EscapedPath())
	if err != nil {
		return err
	}
	if len(segs) == 1 && segs[0] != mount {
		return c.serveDocs(w, r, segs[0])
	}
	path, params := c.adapter.match(segs)
	methods := c.adapter.routes[path]
	if methods == nil {
		return problem.New(problem.NotFound, "There is no such route. See /openapi.json for those there are.")
	}
	rt := methods[r.Method]
	if rt == nil && r.Method == http.MethodHead {
		rt = methods[http.MethodGet]
	}
	if rt == nil {
		allow := make([]string, 0, len(methods)+1)
		for m := range methods {
			allow = append(allow, m)
		}
		if methods[http.MethodGet] != nil && methods[http.MethodHead] == nil {
			allow = append(allow, http.MethodHead)
		}
		slices.Sort(allow)
		return problem.New(problem.MethodNotAllowed, "The method is not allowed here.").
			WithHeader("Allow", strings.Join(append(allow, http.MethodOptions), ", "))
	}
	obs.SetRoute(r.Context(), "control."+rt.op.OperationID)
	return rt.serve(w, r, params)
}

// caller is who makes a request, and where.
type caller struct {
	auth.Principal
	service     int32
	serviceName string
	// token is the claim, hold or write token shown, if any.
	token string
	// lent are the rights that only authorizers have allowed, in this request.
	lent map[right]bool
}

type callerKey struct{}

// from returns the caller of a handler's context.
func from(ctx context.Context) *caller { return ctx.Value(callerKey{}).(*caller) }

// trusted says that the caller passes every ownership check.
func (c *caller) trusted() bool { return c.Trusted() }

// principal is the caller's URL, or "" when only a token speaks.
func (c *caller) principal() string {
	if c.IsZero() {
		return ""
	}
	return c.URL()
}

// authenticate finds the caller. Routes where a token alone is enough get a
// caller without a principal.
func (c *Control) authenticate(r *http.Request, tokenAlone bool) (*caller, error) {
	who := &caller{token: auth.ClaimToken(r.Header)}
	p, err := c.cfg.Auth.Authenticate(r)
	if err != nil {
		code := problem.CodeOf(err)
		if !tokenAlone || who.token == "" || code != problem.Unauthorized && code != problem.OriginForbidden {
			return nil, err
		}
	}
	who.Principal = p
	var q []string
	if r.URL.RawQuery != "" {
		q = r.URL.Query()["service"]
	}
	if len(q) > 1 {
		return nil, problem.New(problem.InvalidRequest, "The query gives \"service\" more than once.").
			WithDetails(problem.Detail{Path: "query.service", Message: "is given more than once"})
	}
	who.serviceName = store.DefaultService
	if len(q) == 1 && q[0] != "" {
		who.serviceName = q[0]
	}
	if who.service, err = c.cfg.Services.ID(r.Context(), who.serviceName); err != nil {
		return nil, err
	}
	return who, c.cfg.Auth.Seen(r.Context(), who.service, p)
}

// route is one operation.
type route struct {
	c       *Control
	op      *huma.Operation
	handler func(huma.Context)
	public  bool
	alone   bool // a token alone is enough
	body    bool
	aliases map[string]string
	// raw takes the place of huma's handler where a body is not JSON.
	raw func(http.ResponseWriter, *http.Request) error
}

func (rt *route) serve(w http.ResponseWriter, r *http.Request, params []string) error {
	ctx := r.Context()
	if !rt.public {
		who, err := rt.c.authenticate(r, rt.alone)
		if err != nil {
			return err
		}
		ctx = context.WithValue(ctx, callerKey{}, who)
	}
	r = r.WithContext(ctx)
	for i := 0; i < len(params); i += 2 {
		r.SetPathValue(params[i], params[i+1])
	}
	if rt.raw != nil {
		return rt.raw(w, r)
	}
	if rt.body {
		body, release, err := rt.c.readBody(w, r)
		defer release()
		if err != nil {
			return err
		}
		if body, err = rename(body, rt.aliases); err != nil {
			return err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		// Bodies are JSON whatever they are called.
		r.Header = r.Header.Clone()
		r.Header.Set("Content-Type", "application/json")
	}
	rt.handler(quietContext{humago.NewContext(rt.op, r, w)})
	return nil
}

// quietContext keeps huma from touching the connection's deadline: the body has
// been read already.
type quietContext struct{ humaContext }

// humaContext keeps the embedded field from hiding the method Context.
type humaContext = huma.Context

func (quietContext) SetReadDeadline(time.Time) error { return nil }

// adapter is the table of routes that huma registers into.
type adapter struct {
	c         *Control
	routes    map[string]map[string]*route // by path template, then method
	templates map[int][]template           // by number of segments
}

type template struct {
	path string
	segs []string
}

// Handle implements huma.Adapter.
func (a *adapter) Handle(op *huma.Operation, handler func(huma.Context)) {
	rt := &route{c: a.c, op: op, handler: handler, body: op.RequestBody != nil}
	if m, ok := op.Metadata[routeKey].(routeOptions); ok {
		rt.public, rt.alone, rt.aliases = m.public, m.tokenAlone, m.aliases
	}
	if a.routes[op.Path] == nil {
		a.routes[op.Path] = map[string]*route{}
		segs := strings.Split(op.Path[1:], "/")
		a.templates[len(segs)] = append(a.templates[len(segs)], template{op.Path, segs})
	}
	a.routes[op.Path][op.Method] = rt
}

// ServeHTTP implements huma.Adapter.
func (a *adapter) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.c.ServeHTTP(w, r) }

const routeKey = "rouse"

// routeOptions are what a route has beside its description.
type routeOptions struct {
	public     bool
	tokenAlone bool
	aliases    map[string]string
}

// addRaw registers an operation whose bodies are not JSON, and describes it.
func addRaw(c *Control, op huma.Operation, codes []problem.Code, handler func(http.ResponseWriter, *http.Request) error) {
	describeErrors(&op, append(codes, callerCodes...))
	c.api.OpenAPI().AddOperation(&op)
	c.adapter.Handle(&op, nil)
	c.adapter.routes[op.Path][op.Method].raw = handler
}

// callerCodes are how finding the caller can fail.
var callerCodes = []problem.Code{problem.InvalidPrincipal, problem.Unauthenticated, problem.OriginForbidden, problem.ServiceNotFound, problem.Forbidden, problem.RateLimited, problem.AuthUnavailable, problem.DatabaseUnavailable}

// add registers one operation. The handler's errors reach the client as
// problems, whatever they are.
func add[I, O any](c *Control, op huma.Operation, opt routeOptions, codes []problem.Code, handler func(context.Context, *I) (*O, error)) {
	op.MaxBodyBytes = -1 // readBody has the limit
	if op.Metadata == nil {
		op.Metadata = map[string]any{}
	}
	op.Metadata[routeKey] = opt
	if !opt.public {
		codes = append(codes, callerCodes...)
	}
	describeErrors(&op, codes)
	huma.Register(c.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		if err != nil {
			e := problem.From(err)
			left := errors.Is(err, context.Canceled) && ctx.Err() != nil // nobody hears the answer
			if e.Status() >= 500 && !left {
				c.cfg.Log.ErrorContext(ctx, "request failed", "code", e.Code, "request_id", obs.RequestID(ctx), "error", err)
			}
			return nil, &wireError{e: e, instance: obs.RequestID(ctx)}
		}
		return out, nil
	})
}
