package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/rouse-run/rouse/openapi/runner/call"
	"github.com/rouse-run/rouse/openapi/runner/sealed"
	"github.com/rouse-run/rouse/openapi/runner/tail"
)

// source is a wake stream that a session reads: the runner's own, or a worker pool's. Each has a cursor of its own.
type source struct {
	s    *session
	pool string // empty = the runner's own
	path string // only follow's goroutine uses it, once it runs

	progress *progress
}

func newSource(s *session, pool, path string) *source {
	return &source{s: s, pool: pool, path: path, progress: newProgress()}
}

// key tells the cursors of a runner's wake streams apart.
func (f *source) key() string {
	if f.pool == "" {
		return f.s.srv.key()
	}
	return f.s.srv.key() + " worker-pool " + f.pool
}

// resume finds where the stream was left, unless that is known. again says that it was not: what is born is the wake
// stream, or the gateway's memory with it.
func (f *source) resume(born string) (again bool, err error) {
	was, offset := f.progress.at()
	if offset != "" && was == born {
		return false, nil
	}
	cursor, err := f.s.r.cfg.Cursors.Load(f.s.r.cfg.ID, f.key())
	if err != nil {
		return false, localError{err}
	}
	offset = "-1"
	if cursor.Offset != "" && cursor.Born == born {
		offset = cursor.Offset
	}
	f.progress.reset(born, offset)
	return true, nil
}

// connected and cut tell of the connection that the runner stands on: what becomes of a pool's is in the log.
func (f *source) connected() {
	if f.pool == "" {
		f.s.observe(Event{Kind: Connected})
	}
}

func (f *source) cut(err error) {
	if f.pool == "" {
		f.s.observe(Event{Kind: Disconnected, Err: err})
	}
}

// follow reads the wake stream until ctx ends. It fails only if the gateway refuses before the stream was ever read.
func (f *source) follow(ctx context.Context) error {
	s := f.s
	var back call.Backoff
	opened := false
	for {
		born, offset := f.progress.at()
		err := tail.Follow(ctx, tail.Config{
			JSON: true, Offset: offset,
			Open: func(ctx context.Context, offset, cursor string) (*http.Response, error) {
				return s.gw.tail(ctx, f.path, offset, cursor)
			},
			OnOpen: func() {
				opened = true
				f.connected()
			},
			OnLost: func(err error, wait time.Duration) {
				s.log.Debug("the wake stream was cut off", "pool", f.pool, "error", err, "retry_in", wait)
				f.cut(err)
			},
		}, func(ctx context.Context, b tail.Batch) error {
			err := f.accept(ctx, b)
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
			f.progress.reset(born, "-1")
			continue
		}
		if !opened && f.pool == "" {
			return fmt.Errorf("%s does not let the runner read its wake stream: %w", s.srv.name(), err)
		}
		wait := back.Next(err)
		if status := call.Status(err); f.pool != "" && (status == http.StatusForbidden || status == http.StatusNotFound || status == http.StatusGone) {
			s.log.Info("the runner may not read the pool's wake stream any more", "pool", f.pool, "error", err)
		} else {
			s.log.Error("the wake stream cannot be read", "pool", f.pool, "error", err, "retry_in", wait)
		}
		f.cut(err)
		if call.Sleep(ctx, wait) != nil {
			return nil
		}
		if f.pool != "" {
			if errors.Is(err, sealed.ErrOtherKey) {
				s.agreeAgain(ctx)
			}
			continue // whether the runner is still in it, the heartbeats tell
		}
		if err := s.prepare(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("the gateway refuses the runner", "error", err)
		}
	}
}

// accept queues what a batch asks for.
func (f *source) accept(ctx context.Context, b tail.Batch) error {
	s := f.s
	wakes := make([]*wake, 0, len(b.Messages))
	for _, m := range b.Messages {
		m, err := s.open(m)
		if err != nil {
			return err
		}
		if w, ok := parseWake(m); ok {
			w.from = f
			wakes = append(wakes, w)
		} else if wakeID, ok := parseRelease(m); ok {
			s.held.ask(wakeID)
		} else if f.pool == "" && tellsOfPools(m) {
			s.gate.refresh()
		}
	}
	at := f.progress.add(b.Offset, len(wakes))
	for _, w := range wakes {
		w.settle = sync.OnceFunc(func() { f.progress.settle(at) })
		put := s.queue.put
		if w.pooled() {
			put = s.queue.hint
		}
		if err := put(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

// saveEvery is the least time between two writes of the cursor.
const saveEvery = 100 * time.Millisecond

// save writes the cursor whenever it has moved.
func (f *source) save(ctx context.Context) {
	s := f.s
	var last Cursor
	failing := false
	write := func() {
		at := Cursor{Runner: s.r.cfg.ID, Server: f.key()}
		at.Born, at.Offset = f.progress.at()
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
		case <-f.progress.moved:
			write()
			_ = call.Sleep(ctx, saveEvery)
		case <-ctx.Done():
			write()
			return
		}
	}
}
