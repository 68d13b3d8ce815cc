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
	"github.com/rouse-run/rouse/openapi/runner/tail"
)

// session serves one server: it keeps the runner alive there, reads its wake stream, and works what that asks for.
type session struct {
	r     *Runner
	srv   Server
	gw    gateway
	log   *slog.Logger
	base  context.Context // of requests that end work
	grace context.Context // of work
	gate  *gate
	queue *queue

	progress *progress
	path     string // of the wake stream; only follow's goroutine uses it
}

func newSession(r *Runner, srv Server, gw gateway, base, grace context.Context) *session {
	return &session{
		r: r, srv: srv, gw: gw, base: base, grace: grace,
		log:  r.cfg.Log.With("server", srv.name(), "runner", r.cfg.ID),
		gate: newGate(), queue: newQueue(), progress: newProgress(),
	}
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
	var loops, working sync.WaitGroup
	loops.Go(func() { s.live(ctx) })
	loops.Go(func() { s.dispatch(ctx, &working) })
	saved := make(chan struct{})
	saving, stopSaving := context.WithCancel(s.base)
	go func() { defer close(saved); s.save(saving) }()

	err := s.follow(ctx)
	stop(nil)
	loops.Wait()
	working.Wait()
	stopSaving()
	<-saved
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
	born, offset := s.progress.at()
	if offset == "" || born != known.Born {
		cursor, err := s.r.cfg.Cursors.Load(s.r.cfg.ID, s.srv.key())
		if err != nil {
			return localError{err}
		}
		offset = "-1"
		if cursor.Offset != "" && cursor.Born == known.Born {
			offset = cursor.Offset
		}
		s.progress.reset(known.Born, offset)
		s.queue.forget()
	}
	s.path = known.WakeStream
	if err := s.gw.alive(ctx, 3*s.r.cfg.Liveness, offset); err != nil {
		return err
	}
	s.gate.open()
	return nil
}

func (s *session) lost(err error, wait time.Duration) {
	s.log.Warn("the gateway cannot be reached", "error", err, "retry_in", wait.Round(time.Millisecond))
	s.observe(Event{Kind: Disconnected, Err: err})
}

// follow reads the wake stream until ctx ends. It fails only if the gateway refuses before the stream was ever read.
func (s *session) follow(ctx context.Context) error {
	var back call.Backoff
	opened := false
	for {
		born, offset := s.progress.at()
		err := tail.Follow(ctx, tail.Config{
			JSON: true, Offset: offset,
			Open: func(ctx context.Context, offset, cursor string) (*http.Response, error) {
				return s.gw.tail(ctx, s.path, offset, cursor)
			},
			OnOpen: func() {
				opened = true
				s.observe(Event{Kind: Connected})
			},
			OnLost: func(err error, wait time.Duration) {
				s.log.Debug("the wake stream was cut off", "error", err, "retry_in", wait)
				s.observe(Event{Kind: Disconnected, Err: err})
			},
		}, func(ctx context.Context, b tail.Batch) error {
			err := s.accept(ctx, b)
			if err == nil {
				back.Reset()
			}
			return err
		})
		if ctx.Err() != nil {
			return nil
		}
		if status := call.Status(err); (status == http.StatusBadRequest || status == http.StatusGone) && offset != "-1" {
			// The cursor's position is no longer kept. What waits beyond is told again, so begin where there is something.
			s.log.Warn("the cursor is not known there any more, the wake stream is read from its start", "offset", offset, "error", err)
			s.progress.reset(born, "-1")
			continue
		}
		if !opened {
			return fmt.Errorf("%s does not let the runner read its wake stream: %w", s.srv.name(), err)
		}
		wait := back.Next(err)
		s.log.Error("the wake stream cannot be read", "error", err, "retry_in", wait)
		s.observe(Event{Kind: Disconnected, Err: err})
		if call.Sleep(ctx, wait) != nil {
			return nil
		}
		if err := s.prepare(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("the gateway refuses the runner", "error", err)
		}
	}
}

// accept queues what a batch asks for.
func (s *session) accept(ctx context.Context, b tail.Batch) error {
	wakes := make([]*wake, 0, len(b.Messages))
	for _, m := range b.Messages {
		m, err := s.open(m)
		if err != nil {
			return err
		}
		if w, ok := parseWake(m); ok {
			wakes = append(wakes, w)
		}
	}
	at := s.progress.add(b.Offset, len(wakes))
	for _, w := range wakes {
		w.settle = sync.OnceFunc(func() { s.progress.settle(at) })
		if err := s.queue.put(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// live keeps the runner's liveness lease. While it cannot, nothing new is claimed.
func (s *session) live(ctx context.Context) {
	back := call.Backoff{Max: min(30*time.Second, s.r.cfg.Liveness)}
	wait := s.r.cfg.Liveness
	for s.gate.wait(ctx, wait) {
		one, cancel := context.WithTimeout(ctx, min(s.r.cfg.Timeout, s.r.cfg.Liveness))
		_, offset := s.progress.at()
		err := s.gw.alive(one, 3*s.r.cfg.Liveness, offset)
		cancel()
		if err == nil {
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
	_, offset := s.progress.at()
	_ = s.gw.alive(ctx, time.Second, offset)
}

// saveEvery is the least time between two writes of the cursor.
const saveEvery = 100 * time.Millisecond

// save writes the cursor whenever it has moved.
func (s *session) save(ctx context.Context) {
	var last Cursor
	failing := false
	write := func() {
		at := Cursor{Runner: s.r.cfg.ID, Server: s.srv.key()}
		at.Born, at.Offset = s.progress.at()
		if at == last || at.Offset == "-1" {
			return
		}
		if err := s.r.cfg.Cursors.Save(at); err != nil {
			if !failing {
				s.log.Error("the cursor cannot be written; wakes may be asked for again after a restart", "error", err)
			}
			failing = true
			return
		}
		last, failing = at, false
	}
	for {
		select {
		case <-s.progress.moved:
			write()
			_ = call.Sleep(ctx, saveEvery)
		case <-ctx.Done():
			write()
			return
		}
	}
}
