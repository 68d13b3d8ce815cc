package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/rouse-run/rouse/openapi/runner/call"
)

const (
	// giveUp ends the attempts to claim one wake. The gateway tells of a wake that nobody claims again.
	giveUp = 2 * time.Minute
	// unknownLease is taken for the lease's length when the gateway does not say it.
	unknownLease = 30 * time.Second
	maxFailure   = 1000 // bytes of a failure that the claim's record takes
)

// errRefused says that there is nothing to claim any more.
var errRefused = errors.New("there is nothing to do for this wake any more")

// dispatch starts work for ready wakes until ctx ends.
func (s *session) dispatch(ctx context.Context, working *sync.WaitGroup) {
	for s.queue.wait(ctx) && s.gate.through(ctx) {
		select {
		case s.r.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if !s.gate.isOpen() {
			// Slots are shared: none is kept for a server that cannot be reached.
			<-s.r.slots
			continue
		}
		l, w, superseded := s.queue.take(s.grace)
		if w == nil && !s.queue.draw() {
			<-s.r.slots
			continue
		}
		working.Go(func() {
			defer func() { <-s.r.slots }()
			if w == nil {
				s.seek(ctx)
				return
			}
			s.work(ctx, superseded, l, w)
		})
	}
}

// work claims a wake and, if it is granted, runs the handler. ctx ends when the runner drains.
func (s *session) work(ctx, superseded context.Context, l *lane, w *wake) {
	e := Event{Entity: entityOf(w.path), WakeID: w.wakeID, Epoch: w.epoch}
	c, err := s.attempt(superseded, w)
	if err != nil {
		if ctx.Err() == nil && superseded.Err() == nil && s.again(w, err) {
			s.queue.retry(l, w, w.back.Next(err))
			return
		}
		over := neverAgain(err)
		if over || ctx.Err() == nil {
			w.settle()
		}
		s.queue.finish(l, over, false)
		e.Kind, e.Err = Refused, err
		s.log.Debug("not claimed", "entity", e.Entity, "wake_id", e.WakeID, "epoch", e.Epoch, "reason", err)
		s.observe(e)
		return
	}
	s.carry(superseded, l, w, c)
}

// carry runs the handler for a wake that was granted.
func (s *session) carry(superseded context.Context, l *lane, w *wake, c *Claim) {
	e := Event{Kind: Claimed, Took: time.Since(w.received), Entity: c.Entity(), WakeID: c.hold.wakeID, Epoch: c.hold.epoch}
	if w.from != nil && w.from.progress.crowded() {
		w.settle()
	}
	stop := context.AfterFunc(superseded, func() {
		if s.grace.Err() == nil {
			c.lease.lose(fmt.Errorf("%w: a newer wake exists", ErrLost))
		}
	})
	defer stop()
	s.observe(e)

	began := time.Now()
	s.held.put(c)
	e.Kind, e.Err = s.handle(c)
	s.held.drop(c)
	stop()
	c.lease.stop()
	e.Took = time.Since(began)
	w.settle()
	s.queue.finish(l, true, e.Kind == Failed && s.r.cfg.LeaveFailed)
	s.observe(e)
}

func entityOf(path string) string {
	if n := len(path) - len("/main"); n > 0 && path[n:] == "/main" {
		return path[:n]
	}
	return path
}

// neverAgain says that a refusal holds for the wake's epoch for ever.
func neverAgain(err error) bool {
	switch call.Code(err) {
	case "EPOCH_HELD", "ALREADY_CLAIMED", "EPOCH_STALE", "FENCED", "LEASE_EXPIRED":
		return true
	}
	return false
}

// again says whether a claim that failed is worth another attempt, and doubts the gateway when it cannot be reached.
func (s *session) again(w *wake, err error) bool {
	if errors.Is(err, errRefused) || time.Since(w.received) > giveUp {
		return false
	}
	switch status := call.Status(err); {
	case call.Code(err) == "RUNNER_FULL":
		// The gateway counts more claims than this process holds. One of them ends sooner or later.
		return true
	case status == 0, call.Passing(err):
		s.gate.doubt()
		return true
	case status == http.StatusForbidden, status == http.StatusUnauthorized && call.Code(err) != "CLAIM_TOKEN_INVALID":
		s.log.Error("the gateway does not let the runner claim", "entity", entityOf(w.path), "error", err)
		return true
	}
	return false
}

// attempt takes the lease and the write token.
func (s *session) attempt(ctx context.Context, w *wake) (*Claim, error) {
	one, cancel := context.WithTimeout(ctx, s.r.cfg.Timeout)
	defer cancel()
	var g grant
	var err error
	granted := true
	sent := time.Now()
	if s.r.cfg.Style == Callback && w.token != "" && w.wakeID != "" && !w.pooled() {
		g, err = s.gw.acquire(one, w.wakeID, w.epoch, w.token, w.claimID)
		g.notification = w.raw
		if g.token == "" {
			g.token = w.token
		}
	} else {
		g, granted, err = s.gw.claim(one, w.raw, w.claimID)
	}
	if err != nil {
		return nil, err
	}
	if !granted {
		return nil, errRefused
	}
	return s.whole(g, sent, w.claimID)
}

// whole makes a claim of a grant, with its write token.
func (s *session) whole(g grant, sent time.Time, claimID string) (*Claim, error) {
	c, err := s.newClaim(g, sent)
	if err != nil {
		return nil, err
	}
	for g.writeToken == "" {
		asked := time.Now()
		err := c.try(s.base, func(ctx context.Context) (err error) {
			g, err = s.gw.acquire(ctx, c.hold.wakeID, c.hold.epoch, c.hold.token, claimID)
			return err
		})
		if err == nil && g.writeToken == "" {
			err = errors.New("the wake's callback answered no write token")
		}
		if err != nil {
			c.lease.stop()
			return nil, fmt.Errorf("%w: %w", errRefused, err)
		}
		c.extended(asked, g)
	}
	c.write = g.writeToken
	return c, nil
}

func (s *session) newClaim(g grant, sent time.Time) (*Claim, error) {
	c, err := newClaim(g.notification)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	c.Server, c.Service, c.Runner = s.srv.URL, s.srv.service(), s.r.cfg.ID
	c.gw, c.timeout, c.base = s.gw, s.r.cfg.Timeout, s.base
	c.hold = hold{consumer: c.Notification.ConsumerID, wakeID: c.Notification.WakeID, epoch: c.Notification.Epoch, token: g.token}
	c.log = s.log.With("entity", c.Entity(), "wake_id", c.hold.wakeID)
	if g.lease <= 0 {
		g.lease = unknownLease
	}
	c.lease = newLease(s.base, sent, g.lease, s.r.cfg.Margin)
	return c, nil
}

// handle runs the handler and ends the claim.
func (s *session) handle(c *Claim) (EventKind, error) {
	stopBeating := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() { c.keep(stopBeating, s.gate.doubt) })
	stopGrace := context.AfterFunc(s.grace, func() { c.lease.lose(ErrDraining) })
	err := protect(c.lease.ctx, s.r.cfg.Handler, c)
	stopGrace()
	held := c.lease.check()
	close(stopBeating)
	beating.Wait()

	cause := context.Cause(c.lease.ctx)
	wanted := errors.Is(cause, ErrDraining) || errors.Is(cause, ErrMoved)
	switch {
	case wanted && err != nil:
		// Given back as it is: what the handler acked itself stays acked, the rest wakes somebody else.
		if err := c.release(nil, nil); err != nil {
			return Lost, err
		}
		return Returned, cause
	case !held && !wanted:
		c.log.Warn("the claim was lost", "epoch", c.hold.epoch, "error", cause)
		return Lost, cause
	case err == nil:
		if err := c.release(c.results(), nil); err != nil {
			c.log.Warn("the claim could not be released", "epoch", c.hold.epoch, "error", err)
			return Lost, err
		}
		return Done, nil
	}
	c.log.Warn("the run failed", "epoch", c.hold.epoch, "error", err)
	text := err.Error()
	if werr := c.AppendError(c.base, text); werr != nil {
		c.log.Warn("the failure could not be written to the error stream", "epoch", c.hold.epoch, "error", werr)
	}
	if len(text) > maxFailure {
		text = strings.ToValidUTF8(text[:maxFailure], "")
	}
	var acks []Position
	if !s.r.cfg.LeaveFailed {
		acks = c.results()
	}
	if rerr := c.release(acks, &text); rerr != nil {
		c.log.Warn("the claim could not be released", "epoch", c.hold.epoch, "error", rerr)
		return Lost, rerr
	}
	return Failed, err
}

// protect runs the handler and turns every way in which it may end into an error. It has a goroutine of its own, since it
// may end that (runtime.Goexit) too.
func protect(ctx context.Context, h Handler, c *Claim) error {
	ended := make(chan error, 1)
	go func() {
		err := errors.New("the handler ended its goroutine")
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("the handler panicked: %v", p)
				c.log.Error("the handler panicked", "panic", p, "stack", string(debug.Stack()))
			}
			ended <- err
		}()
		err = h(ctx, c)
	}()
	return <-ended
}
