package server

import (
	"context"
	"net/http"

	"github.com/rouse-run/rouse/gateway/obs"
	"github.com/rouse-run/rouse/gateway/problem"
)

// compose builds every part, in the order in which they depend on each other, and hangs their routes on the mux.
func (s *Server) compose(context.Context) error {
	s.operational()
	return nil
}

// operational hangs up the routes that every gateway has.
func (s *Server) operational() {
	s.mux.Handle("/livez", readOnly(s.Health.LiveHandler()))
	s.mux.Handle("/readyz", readOnly(s.Health.ReadyHandler()))
	s.mux.Handle("/metrics", readOnly(named("metrics", s.Metrics.Handler())))
	s.mux.Handle("/", http.HandlerFunc(s.notFound))
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
