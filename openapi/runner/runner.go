package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Runner is one identity that serves one or several servers.
type Runner struct {
	cfg   Config
	slots chan struct{}
	dial  func(Server, Config) (gateway, error)
}

// New checks the configuration; nothing runs before Run.
func New(cfg Config) (*Runner, error) { return newRunner(cfg, dial) }

func newRunner(cfg Config, dial func(Server, Config) (gateway, error)) (*Runner, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Runner{cfg: cfg, slots: make(chan struct{}, cfg.Capacity), dial: dial}, nil
}

// strayGrace is how long a handler whose context has ended is waited for.
const strayGrace = 5 * time.Second

// Run serves until ctx ends, and then drains: nothing new is claimed, handlers have the grace to finish, and what they
// have not finished is given back. It fails early only if a server refuses the runner itself.
func (r *Runner) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// Work outlives ctx by the grace, requests that end it by a little more.
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	grace, cut := context.WithCancel(base)
	defer cut()
	context.AfterFunc(ctx, func() { time.AfterFunc(r.cfg.Grace, cut) })

	sessions := make([]*session, len(r.cfg.Servers))
	for i, srv := range r.cfg.Servers {
		gw, err := r.dial(srv, r.cfg)
		if err != nil {
			return err
		}
		sessions[i] = newSession(r, srv, gw, base, grace)
	}
	var all sync.WaitGroup
	errs := make([]error, len(sessions))
	for i, s := range sessions {
		all.Go(func() {
			if errs[i] = s.run(ctx); errs[i] != nil {
				stop(errs[i])
			}
		})
	}
	over := make(chan struct{})
	go func() { all.Wait(); close(over) }()
	select {
	case <-over:
		return errors.Join(errs...)
	case <-grace.Done():
	}
	t := time.NewTimer(strayGrace)
	defer t.Stop()
	select {
	case <-over:
		return errors.Join(errs...)
	case <-t.C:
		return fmt.Errorf("a handler does not return %v after its context has ended", strayGrace)
	}
}
