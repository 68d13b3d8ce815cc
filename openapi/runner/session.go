package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/rouse-run/rouse/openapi/runner/call"
)

// session serves one server: it keeps the runner alive there, reads its wake stream and those of its pools, and works what they ask for.
type session struct {
	r     *Runner
	srv   Server
	gw    gateway
	log   *slog.Logger
	base  context.Context // of requests that end work
	grace context.Context // of work
	gate  *gate
	queue *queue
	own   *source // the runner's own wake stream
	pools *pools
	held  *held
	clear sync.Once // says that entries come in the clear
}

func newSession(r *Runner, srv Server, gw gateway, base, grace context.Context) *session {
	s := &session{
		r: r, srv: srv, gw: gw, base: base, grace: grace,
		log:  r.cfg.Log.With("server", srv.name(), "runner", r.cfg.ID),
		gate: newGate(), queue: newQueue(), held: newHeld(),
	}
	s.own = newSource(s, "", "")
	s.pools = newPools(s)
	return s
}

func (s *session) observe(e Event) {
	e.Server = s.srv.name()
	s.r.cfg.Observe(e)
}

// run serves until ctx ends and all work has.
func (s *session) run(ctx context.Context) error {
	if err := s.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("%s refuses the runner: %w", s.srv.name(), err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var loops, working, saved sync.WaitGroup
	saving, stopSaving := context.WithCancel(s.base)
	loops.Go(func() { s.live(ctx) })
	loops.Go(func() { s.dispatch(ctx, &working) })
	loops.Go(func() { s.pools.follow(ctx, func(src *source) { saved.Go(func() { src.save(saving) }) }) })
	saved.Go(func() { s.own.save(saving) })

	err := s.own.follow(ctx)
	stop(nil)
	loops.Wait()
	working.Wait()
	stopSaving()
	saved.Wait()
	s.farewell()
	return err
}

// prepare introduces the runner and finds where its wake stream was left. It repeats what fails in passing.
func (s *session) prepare(ctx context.Context) error {
	var back call.Backoff
	for {
		err := s.introduce(ctx)
		if err == nil || (call.Status(err) != 0 && !call.Passing(err)) || errors.As(err, new(localError)) {
			return err
		}
		wait := back.Next(err)
		s.lost(err, wait)
		if err := call.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// localError is a failure that is not the gateway's.
type localError struct{ error }

func (e localError) Unwrap() error { return e.error }

func (s *session) introduce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.r.cfg.Timeout)
	defer cancel()
	reg := s.r.cfg.Register
	if reg != nil && !reg.IfAbsent {
		if err := s.gw.register(ctx, *reg); err != nil {
			return err
		}
	}
	known, err := s.gw.lookup(ctx)
	if reg != nil && reg.IfAbsent && call.Status(err) == http.StatusNotFound {
		if err := s.gw.register(ctx, *reg); err != nil {
			return err
		}
		known, err = s.gw.lookup(ctx)
	}
	if err != nil {
		return err
	}
	if err := s.agree(ctx, known); err != nil {
		return err
	}
	if !known.Enabled {
		s.log.Warn("the runner is disabled there: it is woken but may not claim")
	}
	if again, err := s.own.resume(known.Born); err != nil {
		return err
	} else if again {
		s.queue.forget()
	}
	s.own.path = known.WakeStream
	if err := s.join(ctx); err != nil {
		return err
	}
	_, offset := s.own.progress.at()
	in, err := s.gw.alive(ctx, 3*s.r.cfg.Liveness, offset)
	if err != nil {
		return err
	}
	s.pools.are(in, known.Born)
	s.gate.open()
	return nil
}

func (s *session) lost(err error, wait time.Duration) {
	s.log.Warn("the gateway cannot be reached", "error", err, "retry_in", wait.Round(time.Millisecond))
	s.observe(Event{Kind: Disconnected, Err: err})
}

// live keeps the runner's liveness lease. While it cannot, nothing new is claimed.
func (s *session) live(ctx context.Context) {
	back := call.Backoff{Max: min(30*time.Second, s.r.cfg.Liveness)}
	wait := s.r.cfg.Liveness
	for s.gate.wait(ctx, wait) {
		one, cancel := context.WithTimeout(ctx, min(s.r.cfg.Timeout, s.r.cfg.Liveness))
		born, offset := s.own.progress.at()
		in, err := s.gw.alive(one, 3*s.r.cfg.Liveness, offset)
		cancel()
		if err == nil {
			s.pools.are(in, born)
			s.gate.open()
			back.Reset()
			wait = s.r.cfg.Liveness
			continue
		}
		if ctx.Err() != nil {
			return
		}
		s.gate.close()
		wait = back.Next(err)
		s.log.Warn("the runner's heartbeat failed, nothing is claimed until one succeeds", "error", err, "retry_in", wait.Round(time.Millisecond))
	}
}

// farewell lets the liveness lease end soon, so that the runner shows as offline and not as alive for minutes.
func (s *session) farewell() {
	ctx, cancel := context.WithTimeout(s.base, time.Second)
	defer cancel()
	_, offset := s.own.progress.at()
	_, _ = s.gw.alive(ctx, time.Second, offset)
}
