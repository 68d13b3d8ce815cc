package shape

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// source runs the row session while shapes are asked for.
type source struct {
	cfg  *Config
	ring *ring
	// begun counts sessions.
	begun func()

	mu      sync.Mutex
	users   int
	idle    time.Time // since when there have been none
	running bool
	stopped bool
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

// use keeps the session running, starting it if need be, until leave is called
// and for a while after.
func (s *source) use(ctx context.Context) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
	if !s.running && !s.stopped {
		s.running = true
		s.ring.wanted()
		ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
		s.wg.Go(func() { s.run(ctx) })
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.users--; s.users == 0 {
			s.idle = time.Now()
		}
	}
}

// unused reports whether nobody has needed the session for a while.
func (s *source) unused() bool {
	return s.stopped || s.users == 0 && time.Since(s.idle) >= s.cfg.Idle
}

// busy answers how many requests are being served.
func (s *source) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.users
}

func (s *source) due() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unused()
}

// retired ends the run if it is still unused: whoever comes now starts another.
func (s *source) retired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unused() {
		s.running = false
	}
	return !s.running
}

// Waits between two attempts to get a session.
const (
	retryMin = 100 * time.Millisecond
	retryMax = 5 * time.Second
)

func (s *source) run(ctx context.Context) {
	look := time.NewTicker(max(s.cfg.Idle/4, 10*time.Millisecond))
	defer look.Stop()
	retry := retryMin
	for !s.retired() {
		began := time.Now()
		wanted, err := s.session(ctx, look.C)
		switch {
		case ctx.Err() != nil:
			return
		case !wanted:
			continue
		case time.Since(began) > retryMax:
			retry = retryMin
		}
		s.cfg.Log.Warn("the session that reads rows for shapes ended", slog.Any("err", err))
		pause := time.NewTimer(retry/2 + rand.N(retry/2+1))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
		retry = min(2*retry, retryMax)
	}
}

// session runs one session, until it fails or is not wanted any more.
func (s *source) session(ctx context.Context, look <-chan time.Time) (wanted bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.begun()
	ended := make(chan error, 1)
	s.wg.Go(func() {
		err := s.cfg.Rows(ctx, s.ring, s.cfg.RingBytes/8)
		s.ring.down()
		ended <- err
	})
	for {
		select {
		case err := <-ended:
			return true, err
		case <-look:
			if s.due() {
				cancel()
				return false, <-ended
			}
		}
	}
}

// stop ends the session for good.
func (s *source) stop() {
	s.mu.Lock()
	s.stopped = true
	if s.cancel != nil {
		s.cancel()
	}
	s.mu.Unlock()
	s.wg.Wait()
}
