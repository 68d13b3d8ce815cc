package runner

import (
	"context"
	"sync"
	"time"

	"github.com/rouse-run/rouse/openapi/runner/call"
)

// Bounds of what is remembered.
const (
	maxWaiting = 10_000 // wakes that wait for a free slot; beyond it the wake stream is not read
	maxDone    = 8_192  // entities whose last epoch is remembered
)

// queue orders wakes: first come first served, one at a time for each entity, and of an entity's wakes only the newest.
type queue struct {
	mu    sync.Mutex
	lanes map[string]*lane
	ready []*lane
	// done holds the highest epoch of a stream that can never be claimed again. It saves requests and is nothing more.
	done map[string]int64
	// hints are wakes of pools, which others may have claimed by now: each says only that there may be something to claim.
	hints  hints
	filled chan struct{} // has a value when ready may have grown
	taken  chan struct{} // has a value when ready has shrunk
}

// lane is an entity that is worked, or waits to be.
type lane struct {
	path   string
	next   *wake
	queued bool
	// current is the epoch that is being claimed or worked; zero = none.
	current int64
	// supersede is told that a newer wake than the current one exists, so that the current claim must have ended.
	supersede context.CancelFunc
	back      call.Backoff // of failed runs that come again
}

func newQueue() *queue {
	return &queue{
		lanes: map[string]*lane{}, done: map[string]int64{}, hints: newHints(),
		filled: make(chan struct{}, 1), taken: make(chan struct{}, 1),
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// put takes a wake, or settles it if nothing is to be done for it. It waits while too many wait.
func (q *queue) put(ctx context.Context, w *wake) error {
	q.mu.Lock()
	for len(q.ready) >= maxWaiting {
		q.mu.Unlock()
		select {
		case <-q.taken:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		q.mu.Lock()
	}
	defer q.mu.Unlock()
	if q.done[w.path] >= w.epoch {
		w.settle()
		return nil
	}
	l := q.lanes[w.path]
	if l == nil {
		l = &lane{path: w.path}
		q.lanes[w.path] = l
	}
	switch {
	case l.current >= w.epoch, l.next != nil && l.next.epoch >= w.epoch:
		w.settle()
		return nil
	case l.next != nil:
		l.next.settle()
	}
	l.next = w
	if l.current != 0 {
		l.supersede()
		return nil
	}
	q.push(l)
	return nil
}

// push makes a lane ready; the caller holds the lock.
func (q *queue) push(l *lane) {
	if l.queued || l.next == nil {
		return
	}
	l.queued = true
	q.ready = append(q.ready, l)
	signal(q.filled)
}

// wait returns when a wake may be ready, or ctx has ended (false).
func (q *queue) wait(ctx context.Context) bool {
	for {
		q.mu.Lock()
		some := len(q.ready) > 0 || q.hints.open()
		q.mu.Unlock()
		if some {
			return ctx.Err() == nil
		}
		select {
		case <-q.filled:
		case <-ctx.Done():
			return false
		}
	}
}

// take gives the next wake and its lane, nil if there is none. superseded ends when a newer wake of the lane arrives.
func (q *queue) take(ctx context.Context) (l *lane, w *wake, superseded context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for l == nil {
		if len(q.ready) == 0 {
			return nil, nil, nil
		}
		l, q.ready = q.ready[0], q.ready[1:]
		signal(q.taken)
		l.queued = false
		if l.next == nil || l.current != 0 { // it was granted otherwise
			if l.current == 0 {
				delete(q.lanes, l.path)
			}
			l = nil
		}
	}
	w, l.next = l.next, nil
	l.current = w.epoch
	superseded, l.supersede = context.WithCancel(ctx)
	return l, w, superseded
}

// finish frees a lane. over: the wake's epoch can never be claimed again. again: the run failed and its messages come
// again, so the next one waits a little longer than the one before.
func (q *queue) finish(l *lane, over, again bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.supersede()
	if over {
		if len(q.done) >= maxDone {
			clear(q.done)
		}
		q.done[l.path] = max(q.done[l.path], l.current)
	}
	if !again {
		l.back.Reset()
		q.free(l)
		return
	}
	// The lane stays taken while it waits: newer wakes replace each other in it.
	time.AfterFunc(l.back.Next(nil), func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		l.current = 0
		q.push(l)
	})
}

// retry brings a wake that could not be claimed in passing back after a while, unless a newer one has come by then.
func (q *queue) retry(l *lane, w *wake, after time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.supersede()
	time.AfterFunc(after, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		l.current = 0
		if l.next == nil {
			l.next = w
		} else {
			w.settle()
		}
		q.push(l)
	})
}

func (q *queue) free(l *lane) {
	l.current = 0
	if l.next != nil {
		q.push(l)
	} else {
		delete(q.lanes, l.path)
	}
}

// forget drops what was learned of epochs: the wake stream is another one than before.
func (q *queue) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.done)
}

// gate is open while the runner knows that it can reach its gateway.
type gate struct {
	mu   sync.Mutex
	pass chan struct{} // closed while the gate is open
	kick chan struct{}
}

func newGate() *gate { return &gate{pass: make(chan struct{}), kick: make(chan struct{}, 1)} }

func (g *gate) isOpen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.passable()
}

func (g *gate) passable() bool {
	select {
	case <-g.pass:
		return true
	default:
		return false
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.passable() {
		close(g.pass)
	}
}

func (g *gate) close() (was bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if was = g.passable(); was {
		g.pass = make(chan struct{})
	}
	return was
}

// doubt closes the gate until a heartbeat, which it asks for now, has succeeded.
func (g *gate) doubt() {
	if g.close() {
		signal(g.kick)
	}
}

// refresh asks for a heartbeat now, and doubts nothing.
func (g *gate) refresh() { signal(g.kick) }

// through waits for the gate to be open; false when ctx has ended.
func (g *gate) through(ctx context.Context) bool {
	g.mu.Lock()
	pass := g.pass
	g.mu.Unlock()
	select {
	case <-pass:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// wait lasts d or until somebody asks for a heartbeat; false when ctx has ended.
func (g *gate) wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-g.kick:
		return true
	case <-ctx.Done():
		return false
	}
}
