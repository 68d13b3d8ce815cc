package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// debug serves the runtime's profiles on an address of its own, which the configuration keeps on loopback: profiles tell
// what is in memory, so they never share the public listener.
func (s *Server) debug() part {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	// A profile takes as long as it is asked to, so there is no write timeout.
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: time.Minute}
	done := make(chan struct{})
	started := false
	return part{
		name: "debug",
		start: func(ctx context.Context) error {
			l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Config.DebugListen)
			if err != nil {
				return fmt.Errorf("cannot listen on %s: %w", s.Config.DebugListen, err)
			}
			started = true
			s.Log.Info("profiles are served", "addr", l.Addr().String())
			go func() {
				defer close(done)
				if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
					s.Log.Warn("profiles are no longer served", "error", err)
				}
			}()
			return nil
		},
		stop: func(context.Context) error {
			if !started {
				return nil
			}
			err := srv.Close()
			<-done
			return err
		},
	}
}
