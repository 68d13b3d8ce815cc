package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/obs"
	"github.com/rouse-run/rouse/gateway/pluginhost"
)

// Deps are what a gateway gets from its process.
type Deps struct {
	Log     *slog.Logger // nil = silent
	Release string       // of this binary, as in "v1.2.3"
	// Listener replaces listening on Config.Listen; for tests.
	Listener net.Listener
	// SelfArgs is the command line with which this binary serves a built-in transport in a process of its own, but for
	// its name. Empty = they run in this process.
	SelfArgs []string
}

// part is one piece of the gateway with a life of its own. stop is called once, also when start was not.
type part struct {
	name  string
	start func(context.Context) error // nil = nothing to start
	stop  func(context.Context) error // nil = nothing to stop
}

// Server is one gateway.
type Server struct {
	Config  config.Config
	Metrics *obs.Metrics
	Health  *obs.Health
	Log     *slog.Logger
	Release string

	base     context.Context // lives as long as the server
	mux      *http.ServeMux  // operational routes
	root     http.Handler    // what compose puts in front; nil = mux
	http     *http.Server
	listener net.Listener

	selfArgs []string
	plugins  *pluginhost.Host
	parts    []part
	onDrain  []func()      // called when the drain begins
	everUp   atomic.Bool   // whether the log feed has been up once
	draining chan struct{} // closed when the drain begins
	drained  chan struct{} // closed when it is over
	served   chan error    // how the HTTP server ended
	once     sync.Once
	drainErr error
}

// Limits of the HTTP server. There is no write timeout: streams stay open, and set deadlines of their own for each
// write; a request's body has the read timeout of its handler.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
)

// New listens and builds all parts; nothing runs before Start. Drain must be called whatever Start answers.
func New(ctx context.Context, cfg config.Config, deps Deps) (*Server, error) {
	return newServer(ctx, cfg, deps, func(s *Server) error { return s.compose(ctx) })
}

func newServer(ctx context.Context, cfg config.Config, deps Deps, compose func(*Server) error) (*Server, error) {
	s := &Server{
		Config: cfg, Release: deps.Release, Log: deps.Log,
		Metrics: obs.NewMetrics(deps.Release), Health: obs.NewHealth(),
		mux: http.NewServeMux(), draining: make(chan struct{}), drained: make(chan struct{}), served: make(chan error, 1),
		selfArgs: deps.SelfArgs,
		listener: deps.Listener, base: context.WithoutCancel(ctx),
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.listener == nil {
		var err error
		if s.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen); err != nil {
			return nil, fmt.Errorf("cannot listen on %s: %w", cfg.Listen, err)
		}
	}
	secure, err := newTLS(cfg, s.Log)
	if err != nil {
		return nil, errors.Join(err, s.listener.Close())
	}
	if s.Config.PublicURL == "" {
		s.Config.PublicURL = baseURL(s.listener.Addr())
		if secure != nil {
			s.Config.PublicURL = "https" + strings.TrimPrefix(s.Config.PublicURL, "http")
		}
	}
	s.Health.Ready("server", func() (string, string, bool) {
		select {
		case <-s.draining:
			return "SERVER_STOPPING", "the gateway is shutting down", false
		default:
			return "", "", true
		}
	})
	if err := compose(s); err != nil {
		return nil, errors.Join(err, s.listener.Close(), s.stopParts(ctx))
	}
	if s.root == nil {
		s.root = s.mux
	}
	s.http = &http.Server{
		Handler:           obs.Middleware(s.root, s.Metrics, s.Log),
		TLSConfig:         secure,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return s.base },
	}
	return s, nil
}

// baseURL is where a client on this machine finds a listener.
func baseURL(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return "http://" + addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// add puts a part behind those it depends on: parts start in the order of add and stop in the opposite one.
func (s *Server) add(p part) { s.parts = append(s.parts, p) }

// Draining is closed when the gateway begins to shut down: whoever waits on behalf of a client answers and ends.
func (s *Server) Draining() <-chan struct{} { return s.draining }

// Addr is where the gateway listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// URL is the public base URL.
func (s *Server) URL() string { return s.Config.PublicURL }

// Start starts the parts in order and then takes connections. When one does not start, Drain stops the others.
func (s *Server) Start(ctx context.Context) error {
	for _, p := range s.parts {
		if p.start == nil {
			continue
		}
		if err := p.start(ctx); err != nil {
			return fmt.Errorf("%s does not start: %w", p.name, err)
		}
	}
	go func() {
		var err error
		if s.http.TLSConfig != nil {
			err = s.http.ServeTLS(s.listener, "", "")
		} else {
			err = s.http.Serve(s.listener)
		}
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		s.served <- err
	}()
	return nil
}

// Failed gives the error with which the HTTP server ended, nil when it was drained. One receiver gets it.
func (s *Server) Failed() <-chan error { return s.served }

// Drain shuts the gateway down in the time ctx and Config.DrainTimeout leave. Calling it again waits for the first.
func (s *Server) Drain(ctx context.Context) error {
	s.once.Do(func() {
		s.drainErr = s.drain(ctx)
		close(s.drained)
	})
	<-s.drained
	return s.drainErr
}

func (s *Server) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.Config.DrainTimeout)
	defer cancel()
	close(s.draining)
	for _, f := range s.onDrain {
		f()
	}
	s.Log.Info("draining", "timeout", s.Config.DrainTimeout)
	// Most of the time is for the requests, what is left of it for the workers: they must have some in any case.
	requests, cancelRequests := context.WithTimeout(ctx, s.Config.DrainTimeout*7/10)
	defer cancelRequests()
	err := s.http.Shutdown(requests)
	if err != nil {
		s.Log.Warn("requests were cut off", "error", err)
		err = errors.Join(fmt.Errorf("requests were cut off: %w", err), s.http.Close())
	}
	if closeErr := s.listener.Close(); closeErr != nil && !errors.Is(closeErr, net.ErrClosed) {
		err = errors.Join(err, closeErr)
	}
	return errors.Join(err, s.stopParts(ctx))
}

// stopGrace is what a part gets to notice that its time is over.
const stopGrace = 100 * time.Millisecond

// stopParts stops all parts, last to first, in the time that ctx leaves.
func (s *Server) stopParts(ctx context.Context) error {
	var errs []error
	for _, p := range slices.Backward(s.parts) {
		if p.stop == nil {
			continue
		}
		// A part that waits for a database that does not answer is left behind: the process ends without it.
		stopped := make(chan error, 1)
		go func() { stopped <- p.stop(ctx) }()
		var err error
		select {
		case err = <-stopped:
		case <-ctx.Done():
			select {
			case err = <-stopped:
			case <-time.After(stopGrace):
				err = ctx.Err()
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s does not stop: %w", p.name, err))
		}
	}
	return errors.Join(errs...)
}
