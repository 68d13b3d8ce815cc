package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rouse-run/rouse/gateway/appender"
	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/control"
	"github.com/rouse-run/rouse/gateway/dispatch"
	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/intake"
	"github.com/rouse-run/rouse/gateway/obs"
	"github.com/rouse-run/rouse/gateway/observation"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/retention"
	"github.com/rouse-run/rouse/gateway/shape"
	"github.com/rouse-run/rouse/gateway/signing"
	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/gateway/streams"
	"github.com/rouse-run/rouse/gateway/subscriptions"
	"github.com/rouse-run/rouse/gateway/ui"
	"github.com/rouse-run/rouse/transports/webhook"
)

// healthTimeout bounds a readiness check's look at the database.
const healthTimeout = 2 * time.Second

// feedGrace is how long a new gateway waits for its log feed before it takes
// requests without one.
const feedGrace = 5 * time.Second

// bodiesMemory bounds the request bodies that are read at once, and the appends
// that wait to be written, each; two bodies of the greatest size always fit.
const bodiesMemory = 256 << 20

// compose builds every part, in the order in which they depend on each other: the store below, then the feed with its
// hub, what writes (appender, claims), what wakes (dispatch), and the HTTP rooms on top.
func (s *Server) compose(ctx context.Context) error {
	db, err := store.Open(ctx, store.Options{DSN: s.Config.DatabaseURL.Reveal(), MaxConns: s.Config.PoolSize, Pooled: s.Config.Pooled})
	if err != nil {
		return err
	}
	if s.Config.DebugListen != "" {
		s.add(s.debug())
	}
	s.add(part{name: "store", stop: func(context.Context) error { db.Close(); return nil }})

	ring, err := s.keyRing()
	if err != nil {
		return err
	}
	signer, err := signing.Derive(ring.Secrets())
	if err != nil {
		return err
	}
	if s.plugins, err = s.pluginHost(ctx, signer); err != nil {
		return err
	}
	s.add(part{name: "plugins", start: s.plugins.Start, stop: s.plugins.Stop})
	s.Health.Note(s.plugins.Health)
	s.Health.Ready("auth plugins", s.plugins.HooksReady)
	carriers := carriers{s.plugins}
	guard := webhook.New(webhook.Config{AllowPrivate: s.Config.AllowPrivateWebhooks}).Control()

	hub := feed.NewHub()
	mutex := claims.New(ctx, db, claims.NewTokens(ring), claims.Config{PublicURL: s.Config.PublicURL})
	var log *feed.Feed
	watcher, err := observation.New(observation.Config{DB: db, FeedUp: func() bool { return log.Up() }, Log: s.Log, Registry: s.Metrics.Registry})
	if err != nil {
		return err
	}
	waker, err := dispatch.New(dispatch.Config{ScanPeriod: s.Config.ScanPeriod, ReapPeriod: s.Config.ReaperPeriod,
		FeedUp: func() bool { return log.Up() }},
		dispatch.Deps{DB: db, Notify: mutex, Transport: s.plugins.Transport, Observed: watcher.Observed, Log: s.Log, Registry: s.Metrics.Registry})
	if err != nil {
		return err
	}
	cleaner, err := retention.New(retention.Config{DB: db, Period: s.Config.RetentionPeriod, Log: s.Log, Registry: s.Metrics.Registry, Ages: retention.Ages{
		WakeEntries: s.Config.RetentionWakeEntries, Claims: s.Config.RetentionClaims, Wakes: s.Config.RetentionWakes,
		Audit: s.Config.RetentionAudit, Producers: s.Config.RetentionProducers,
	}})
	if err != nil {
		return err
	}
	log, err = feed.New(feed.Config{DSN: s.Config.DirectURL.Reveal()},
		feed.Deps{Hub: hub, Router: waker.Router(), Delivery: waker.Delivery(), Members: watcher.Members, Registry: s.Metrics.Registry, Log: s.Log})
	if err != nil {
		return err
	}
	memory := max(bodiesMemory, 2*int64(s.Config.MaxBodyBytes))
	writer := appender.New(ctx, appender.Config{Store: db, Hub: hub, MaxQueueBytes: int(memory)})

	s.add(part{name: "feed", start: log.Start, stop: log.Stop})
	s.add(part{name: "dispatch", start: waker.Start, stop: waker.Stop})
	s.add(part{name: "observation", start: watcher.Start, stop: watcher.Stop})
	s.add(part{name: "retention", start: cleaner.Start, stop: cleaner.Stop})
	s.add(part{name: "claims", stop: mutex.Stop})
	s.add(part{name: "appender", stop: writer.Stop})
	s.readiness(db, log)

	chain, err := s.authChain(db)
	if err != nil {
		return err
	}
	services := store.NewServices(db)
	bodies := intake.NewBudget(memory)
	desk := control.New(ctx, control.Config{
		Store: db, Services: services, Auth: chain, Claims: mutex, Appender: writer, Transports: carriers, Discover: control.NewDiscoverer(guard), Plugins: plugged{s.plugins},
		Lease: s.Config.LeaseTTL, WakeAfter: s.Config.OutstandingAfter, OpenTypes: s.Config.TypeSpawn == "all",
		MaxBody: int64(s.Config.MaxBodyBytes), Bodies: bodies, Poke: watcher.Poke, Changed: watcher.Changed, Headers: streams.SetHeaders, Log: s.Log,
	})
	s.add(part{name: "control", stop: desk.Stop})
	room := streams.New(ctx, streams.Config{
		Store: db, Services: services, Appender: writer, Hub: hub, Auth: caller{chain}, Readers: chain.Reading(auth.NewReaders(db)), PoolReaders: db, RequireAuth: !s.Config.Insecure, Admit: chain.Admit,
		Tokens: mutex, ErrorStreams: db, SharedStates: chain.Sharing(db), AppendGate: desk.GateAppend, WakeDecorator: mutex.DecorateWake, PublicURL: s.Config.PublicURL,
		MaxBodyBytes: int64(s.Config.MaxBodyBytes), Bodies: bodies, LongPollTimeout: s.Config.LongPollTimeout, SSEMaxAge: s.Config.SSEMaxAge, Log: s.Log,
	})
	s.onDrain = append(s.onDrain, room.Drain, desk.Drain)
	shapes, err := shape.New(ctx, shape.Config{
		Store: db, Services: services, Auth: chain, Rows: log.Rows, OpenTypes: s.Config.TypeSpawn == "all", Headers: streams.SetHeaders,
		LongPollTimeout: s.Config.LongPollTimeout, SSEMaxAge: s.Config.SSEMaxAge, Registry: s.Metrics.Registry, Log: s.Log,
	})
	if err != nil {
		return err
	}
	s.add(part{name: "shapes", stop: shapes.Stop})
	s.onDrain = append(s.onDrain, shapes.Drain)

	subs := subscriptions.New(subscriptions.Config{
		Store: db, Services: services, Auth: chain, Mutex: mutex, Transports: carriers, Keys: signer, PublicURL: s.Config.PublicURL,
		Bodies: bodies, Headers: streams.SetHeaders, Log: s.Log,
	})

	s.operational()
	s.root = chain.Handler(front{operational: s.mux, subscriptions: subs, ui: named("ui", ui.Handler(http.HandlerFunc(s.notFound))), control: desk, shapes: shapes, streams: named("streams", room)})
	return nil
}

// keyRing reads the ring that tokens and signatures are made with.
func (s *Server) keyRing() (*claims.Keys, error) {
	text, err := s.Config.KeyRing()
	if err != nil {
		return nil, err
	}
	if text.IsZero() {
		return nil, errors.New("there is no key ring: set ROUSE_KEYS to a ring or to a file that holds one; `rouse keys new` makes one")
	}
	ring, err := claims.ParseKeys(text.Reveal())
	if err != nil {
		return nil, fmt.Errorf("the key ring cannot be read: %w", err)
	}
	return ring, nil
}

// readiness says when this gateway should get requests: the database takes writes. A feed that is down costs latency,
// not correctness, so it holds up the start for a moment, unless it cannot come up at all, and nothing afterwards.
func (s *Server) readiness(db *store.Store, log *feed.Feed) {
	s.Health.Ready("database", func() (string, string, bool) {
		ctx, cancel := context.WithTimeout(s.base, healthTimeout)
		defer cancel()
		if err := db.Ping(ctx); err != nil {
			return "DATABASE_UNAVAILABLE", "the database does not answer or is read-only", false
		}
		return "", "", true
	})
	began := time.Now()
	s.Health.Ready("feed", func() (string, string, bool) {
		code, detail, ok := log.Health()
		if ok || code == feed.CodeWALLevel || code == feed.CodePermission || time.Since(began) > feedGrace {
			s.everUp.Store(true)
		}
		if s.everUp.Load() {
			return "", "", true
		}
		return code, detail, false
	})
}

// operational hangs up the routes that every gateway has.
func (s *Server) operational() {
	s.mux.Handle("/livez", readOnly(obs.LiveHandler()))
	s.mux.Handle("/readyz", readOnly(s.Health.ReadyHandler()))
	s.mux.Handle("/metrics", readOnly(named("metrics", s.Metrics.Handler())))
	s.mux.Handle("/", http.HandlerFunc(s.notFound))
}

// caller shows the auth chain to the streams room.
type caller struct{ chain *auth.Chain }

func (c caller) Authenticate(r *http.Request, service int32) (streams.Caller, error) {
	p, err := c.chain.Authenticate(r)
	if err != nil {
		return streams.Caller{}, err
	}
	if service != 0 {
		if err := c.chain.Seen(r.Context(), service, p); err != nil {
			return streams.Caller{}, err
		}
	}
	return streams.Caller{Principal: p.URL(), System: p.Trusted()}, nil
}

// front is the pre-router: the root is the namespace of streams, and technical routes lie under reserved first
// segments. It reads the escaped path, so that nothing is cleaned, redirected or decoded twice on the way.
type front struct {
	operational   http.Handler
	ui            http.Handler
	subscriptions http.Handler
	control       http.Handler
	shapes        http.Handler
	streams       http.Handler
}

func (f front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	r = withOrigin(r, path)
	switch {
	case r.Method == http.MethodOptions: // a preflight has the same answer everywhere
		f.streams.ServeHTTP(w, r)
	case path == "/livez", path == "/readyz", path == "/metrics":
		f.operational.ServeHTTP(w, r)
	case ui.Handles(r):
		f.ui.ServeHTTP(w, r)
	case subscriptions.Handles(r):
		f.subscriptions.ServeHTTP(w, r)
	case path == shape.Path:
		f.shapes.ServeHTTP(w, r)
	case control.Handles(r):
		f.control.ServeHTTP(w, r)
	case path == "/":
		f.operational.ServeHTTP(w, r)
	default:
		f.streams.ServeHTTP(w, r)
	}
}

// notFound answers what no route takes.
func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	obs.Problem(w, r, s.Log, problem.New(problem.NotFound, "There is no such route."))
}

// named sets the route's label.
func named(route string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		obs.SetRoute(r.Context(), route)
		h.ServeHTTP(w, r)
	})
}

// readOnly refuses everything but GET and HEAD.
func readOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			problem.Write(w, obs.RequestID(r.Context()), problem.New(problem.MethodNotAllowed, "Only GET and HEAD are answered here.").WithHeader("Allow", "GET, HEAD"))
			return
		}
		h.ServeHTTP(w, r)
	})
}
