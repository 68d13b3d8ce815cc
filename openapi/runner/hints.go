package runner

import (
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/rouse-run/rouse/openapi/runner/call"
)

// Work of a pool is not claimed wake by wake: all members read the same entries, and most would ask for what another has
// got already. An entry is a hint that there may be something. A member with a free slot asks for whatever has waited
// longest, until there is nothing.

// hints are wakes of pools that may be unclaimed yet, in their order, the newest of each entity.
type hints struct {
	order *list.List // of *wake
	at    map[string]*list.Element
	// seeking counts the requests under way: there are no more of them than hints.
	seeking int
	pause   time.Time // nothing is asked for before
	back    call.Backoff
}

func newHints() hints { return hints{order: list.New(), at: map[string]*list.Element{}} }

// open says that something may be asked for.
func (h *hints) open() bool {
	return h.order.Len() > h.seeking && !time.Now().Before(h.pause)
}

func (h *hints) drop(e *list.Element) {
	w := h.order.Remove(e).(*wake)
	delete(h.at, w.path)
	w.settle()
}

// hint takes a pool's wake. It waits while too many wait.
func (q *queue) hint(ctx context.Context, w *wake) error {
	q.mu.Lock()
	for q.hints.order.Len() >= maxWaiting {
		q.mu.Unlock()
		select {
		case <-q.taken:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		q.mu.Lock()
	}
	defer q.mu.Unlock()
	l := q.lanes[w.path]
	if q.done[w.path] >= w.epoch || l != nil && l.current >= w.epoch {
		w.settle()
		return nil
	}
	if l != nil && l.current != 0 {
		l.supersede()
	}
	if e := q.hints.at[w.path]; e != nil {
		if e.Value.(*wake).epoch >= w.epoch {
			w.settle()
			signal(q.filled)
			return nil
		}
		q.hints.drop(e)
	}
	q.hints.at[w.path] = q.hints.order.PushBack(w)
	signal(q.filled)
	return nil
}

// draw begins a request, if one may be worth it.
func (q *queue) draw() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.hints.open() {
		return false
	}
	q.hints.seeking++
	if q.hints.open() {
		signal(q.filled)
	}
	return true
}

// drawn ends a request.
func (q *queue) drawn() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hints.seeking--
	signal(q.filled)
}

// dry says that nothing waited at a time: hints from before it are no news.
func (q *queue) dry(at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for e := q.hints.order.Front(); e != nil; {
		next := e.Next()
		if e.Value.(*wake).received.Before(at) {
			q.hints.drop(e)
		}
		e = next
	}
	q.hints.back.Reset()
	signal(q.taken)
}

// lull has nothing asked for for a while, longer each time in a row.
func (q *queue) lull(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait := q.hints.back.Next(err)
	q.hints.pause = time.Now().Add(wait)
	time.AfterFunc(wait, func() { signal(q.filled) })
}

// adopt takes the lane of what was granted, and the wake that told of it, nil for none. No lane: the entity is being
// worked, or claimed, here.
func (q *queue) adopt(ctx context.Context, path string, epoch int64) (l *lane, w *wake, superseded context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l = q.lanes[path]; l == nil {
		l = &lane{path: path}
		q.lanes[path] = l
	}
	if l.current != 0 {
		if l.current < epoch {
			l.supersede()
		}
		return nil, nil, nil
	}
	q.hints.back.Reset()
	if e := q.hints.at[path]; e != nil && e.Value.(*wake).epoch <= epoch {
		w = q.hints.order.Remove(e).(*wake)
		delete(q.hints.at, path)
		signal(q.taken)
	}
	if l.next != nil && l.next.epoch <= epoch { // of the runner's own wake stream
		if w != nil {
			w.settle()
		}
		w, l.next = l.next, nil
	}
	l.current = epoch
	superseded, l.supersede = context.WithCancel(ctx)
	return l, w, superseded
}

// Bounds of a request for whatever waits.
const (
	seekTries = 3
	adoptWait = 10 * time.Millisecond // between two looks whether the entity's last run here is over
	adoptFor  = 2 * time.Second
)

// seek claims what has waited longest, for the runner or for one of its pools, and runs the handler if there is something.
func (s *session) seek(ctx context.Context) {
	over := false
	end := func() {
		if !over {
			s.queue.drawn()
		}
		over = true
	}
	defer end()
	claimID := uuid.NewString() // the same each time: an answer that is lost is given again
	entry, _ := json.Marshal(struct{}{})
	var sent time.Time
	var g grant
	var err error
	granted := false
	for try := range seekTries {
		one, cancel := context.WithTimeout(s.grace, s.r.cfg.Timeout)
		sent = time.Now()
		g, granted, err = s.gw.claim(one, entry, claimID)
		cancel()
		if err == nil || call.Status(err) != 0 && !call.Passing(err) || ctx.Err() != nil {
			break
		}
		if try < seekTries-1 && call.Sleep(ctx, time.Duration(try+1)*100*time.Millisecond) != nil {
			return
		}
	}
	switch {
	case err != nil && neverAgain(err):
		return // somebody else was a little faster: there may be more
	case err != nil && call.Code(err) == "NO_PENDING_WORK", err == nil && !granted:
		s.queue.dry(sent)
		return
	case err != nil:
		if call.Status(err) == 0 || call.Passing(err) {
			s.gate.doubt()
		}
		if ctx.Err() == nil {
			s.log.Debug("a pool's work cannot be claimed", "error", err)
			s.queue.lull(err)
		}
		return
	}
	c, err := s.whole(g, sent, claimID)
	if err != nil {
		s.log.Warn("what was granted cannot be worked", "error", err)
		s.queue.lull(err)
		return
	}
	l, w, superseded := s.adopted(c)
	if l == nil {
		c.log.Warn("an entity was granted that is still worked here; it is given back")
		c.lease.lose(ErrDraining)
		if err := c.release(nil, nil); err != nil && !errors.Is(err, ErrLost) {
			c.log.Warn("the claim could not be released", "epoch", c.hold.epoch, "error", err)
		}
		c.lease.stop()
		return
	}
	if w == nil {
		w = &wake{path: l.path, epoch: c.hold.epoch, wakeID: c.hold.wakeID, received: sent, settle: func() {}}
	}
	end()
	s.carry(superseded, l, w, c)
}

// adopted is adopt, which waits a while for the entity's last run here to end.
func (s *session) adopted(c *Claim) (*lane, *wake, context.Context) {
	for deadline := time.Now().Add(adoptFor); ; {
		l, w, superseded := s.queue.adopt(s.grace, c.Notification.StreamPath, c.hold.epoch)
		if l != nil || time.Now().After(deadline) || call.Sleep(s.grace, adoptWait) != nil {
			return l, w, superseded
		}
	}
}
