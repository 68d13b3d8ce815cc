// Package groupcommit lets concurrent calls share database transactions: while
// one batch is under way, the calls that come in gather into the one after it.
// Nothing waits for a clock, so an idle group adds no latency.
//
// It promises first-in-first-out order for each key, an answer or an error for
// every call, bounded memory, and that a member whose row somebody else holds
// neither delays its neighbours nor is overtaken by later members of its key.
// It knows nothing of SQL, of HTTP, or of what a call means.
package groupcommit

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/rouse-run/rouse/gateway/problem"
)

// Answer is what one member of a batch gets.
type Answer[R any] struct {
	Res R
	Err error
	// Busy sends the member to its key's side lane, which may wait.
	Busy bool
}

// Config says how to run batches. Run and Key are required.
type Config[Q, R any] struct {
	// Run executes the members in one transaction and answers each, in order.
	// With wait it may block, bounded, on rows; all members then share one key.
	// An error means that nothing is known about any member.
	Run func(ctx context.Context, wait bool, reqs []Q) ([]Answer[R], error)
	// Key names what a member contends for.
	Key func(Q) string
	// Size is a member's weight in bytes; nil means 0.
	Size func(Q) int
	// Alone says that err may be one member's own fault: members of the failed
	// batch are then run one by one. nil means never.
	Alone func(error) bool
	// MaxBatch bounds the members of a batch (default 512), MaxBytes their
	// weight (default 8 MiB; one member may exceed it), MaxQueue all members
	// without an answer (default 16384), MaxQueueBytes their weight (default
	// 256 MiB; one alone may exceed it), SideLanes the lanes that run at once
	// (default 4). A member counts until its answer, whether its caller waits or
	// not.
	MaxBatch, MaxBytes, MaxQueue, MaxQueueBytes, SideLanes int
	// Timeout bounds each Run; default 15 s.
	Timeout time.Duration
}

// busyRounds is how often a side lane tries before it gives up.
const busyRounds = 5

type call[Q, R any] struct {
	req  Q
	size int
	ans  Answer[R]
	done chan struct{}
}

type lane[Q, R any] struct {
	key   string
	queue []*call[Q, R]
}

// Group runs one batch at a time, and side lanes beside it.
type Group[Q, R any] struct {
	cfg    Config[Q, R]
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{}
	idle   chan struct{} // closed when stopping and nothing is left
	wg     sync.WaitGroup

	mu       sync.Mutex
	queue    []*call[Q, R]
	lanes    map[string]*lane[Q, R]
	parked   []*lane[Q, R] // lanes that wait for a slot, in order
	running  int           // lanes that run
	pending  int           // members without an answer
	weight   int           // theirs
	stopping bool
}

// New starts a group. It lives until ctx ends or Stop.
func New[Q, R any](ctx context.Context, cfg Config[Q, R]) *Group[Q, R] {
	def := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	def(&cfg.MaxBatch, 512)
	def(&cfg.MaxBytes, 8<<20)
	def(&cfg.MaxQueue, 16384)
	def(&cfg.MaxQueueBytes, 256<<20)
	def(&cfg.SideLanes, 4)
	if cfg.Timeout <= 0 {
		cfg.Timeout = 15 * time.Second
	}
	if cfg.Size == nil {
		cfg.Size = func(Q) int { return 0 }
	}
	if cfg.Alone == nil {
		cfg.Alone = func(error) bool { return false }
	}
	ctx, cancel := context.WithCancel(ctx)
	g := &Group[Q, R]{cfg: cfg, ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1), idle: make(chan struct{}), lanes: map[string]*lane[Q, R]{}}
	g.wg.Add(1)
	go g.batcher()
	return g
}

// Do runs req in a batch with others. When ctx ends first, it returns at once
// and req may still be carried out.
func (g *Group[Q, R]) Do(ctx context.Context, req Q) (R, error) {
	c := &call[Q, R]{req: req, size: g.cfg.Size(req), done: make(chan struct{})}
	var zero R
	g.mu.Lock()
	switch {
	case g.stopping || g.ctx.Err() != nil:
		g.mu.Unlock()
		return zero, problem.New(problem.ServerStopping, "The gateway is shutting down. Try again, at another gateway if there is one.")
	case g.pending >= g.cfg.MaxQueue, g.weight > 0 && g.weight+c.size > g.cfg.MaxQueueBytes:
		g.mu.Unlock()
		return zero, problem.New(problem.Overloaded, "Too many writes are waiting. Try again.")
	}
	g.pending++
	g.weight += c.size
	g.queue = append(g.queue, c)
	first := len(g.queue) == 1
	g.mu.Unlock()
	if first {
		select {
		case g.wake <- struct{}{}:
		default:
		}
	}
	select {
	case <-c.done:
		return c.ans.Res, c.ans.Err
	case <-ctx.Done():
		return zero, ctx.Err()
	case <-g.ctx.Done():
		// The batcher answers what it has taken; the rest is answered here.
		select {
		case <-c.done:
			return c.ans.Res, c.ans.Err
		default:
			return zero, problem.New(problem.ServerStopping, "The gateway is shutting down; the write may or may not have been carried out.")
		}
	}
}

// Pending returns how many calls wait for their answer.
func (g *Group[Q, R]) Pending() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pending
}

// Stop refuses new calls and waits for the answers of those inside, at most
// until ctx ends; then what is left is cut off. It may be called repeatedly.
func (g *Group[Q, R]) Stop(ctx context.Context) error {
	g.mu.Lock()
	if !g.stopping {
		g.stopping = true
		if g.pending == 0 {
			close(g.idle)
		}
	}
	g.mu.Unlock()
	var err error
	select {
	case <-g.idle:
	case <-ctx.Done():
		err = ctx.Err()
	}
	g.cancel()
	g.wg.Wait()
	return err
}

func (g *Group[Q, R]) batcher() {
	defer g.wg.Done()
	batch := make([]*call[Q, R], 0, g.cfg.MaxBatch)
	for {
		select {
		case <-g.wake:
		case <-g.ctx.Done():
			return
		}
		for {
			// Callers that were answered by the last batch are about to call
			// again: let those that can run join this one.
			runtime.Gosched()
			batch = g.collect(batch[:0])
			if len(batch) == 0 {
				break
			}
			g.divert(g.run(false, batch))
			clear(batch)
			if g.ctx.Err() != nil {
				return
			}
		}
	}
}

// collect takes the next batch from the queue. Members whose key has a side
// lane go there, behind those before them.
func (g *Group[Q, R]) collect(batch []*call[Q, R]) []*call[Q, R] {
	g.mu.Lock()
	defer g.mu.Unlock()
	bytes, i := 0, 0
	for ; i < len(g.queue) && len(batch) < g.cfg.MaxBatch; i++ {
		c := g.queue[i]
		if len(g.lanes) > 0 {
			if l := g.lanes[g.cfg.Key(c.req)]; l != nil {
				l.queue = append(l.queue, c)
				continue
			}
		}
		if len(batch) > 0 && bytes+c.size > g.cfg.MaxBytes {
			break
		}
		bytes += c.size
		batch = append(batch, c)
	}
	rest := copy(g.queue, g.queue[i:])
	clear(g.queue[rest:])
	g.queue = g.queue[:rest]
	if cap(g.queue) > 4*g.cfg.MaxBatch && rest == 0 {
		g.queue = nil
	}
	return batch
}

// run executes a batch, answers its members and returns those that are busy.
func (g *Group[Q, R]) run(wait bool, batch []*call[Q, R]) (busy []*call[Q, R]) {
	reqs := make([]Q, len(batch))
	for i, c := range batch {
		reqs[i] = c.req
	}
	ctx, cancel := context.WithTimeout(g.ctx, g.cfg.Timeout)
	answers, err := g.cfg.Run(ctx, wait, reqs)
	cancel()
	if err == nil && len(answers) != len(batch) {
		err = problem.New(problem.Internal, "A batch was answered in part.")
	}
	if err != nil && len(batch) > 1 && g.cfg.Alone(err) {
		for i := range batch {
			busy = append(busy, g.run(wait, batch[i:i+1])...)
		}
		return busy
	}
	answered, weight := 0, 0
	for i, c := range batch {
		switch {
		case err != nil:
			c.ans.Err = err
		case answers[i].Busy:
			busy = append(busy, c)
			continue
		default:
			c.ans = answers[i]
		}
		answered++
		weight += c.size
		close(c.done)
	}
	g.answered(answered, weight)
	return busy
}

func (g *Group[Q, R]) answered(n, weight int) {
	g.mu.Lock()
	g.pending -= n
	g.weight -= weight
	if g.stopping && g.pending == 0 && n > 0 {
		close(g.idle)
	}
	g.mu.Unlock()
}

// divert opens side lanes for busy members.
func (g *Group[Q, R]) divert(busy []*call[Q, R]) {
	if len(busy) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range busy {
		key := g.cfg.Key(c.req)
		l := g.lanes[key]
		if l == nil {
			l = &lane[Q, R]{key: key}
			g.lanes[key] = l
			g.parked = append(g.parked, l)
		}
		l.queue = append(l.queue, c)
	}
	g.unpark()
}

// unpark starts waiting lanes while there are slots. The caller holds mu.
func (g *Group[Q, R]) unpark() {
	for g.running < g.cfg.SideLanes && len(g.parked) > 0 {
		l := g.parked[0]
		g.parked = g.parked[1:]
		g.running++
		g.wg.Add(1)
		go g.runLane(l)
	}
}

// runLane runs all members of one key, in order, until none is left.
func (g *Group[Q, R]) runLane(l *lane[Q, R]) {
	defer g.wg.Done()
	rounds := 0
	for {
		g.mu.Lock()
		n := min(len(l.queue), g.cfg.MaxBatch)
		if n == 0 || g.ctx.Err() != nil {
			delete(g.lanes, l.key)
			g.running--
			g.unpark()
			g.mu.Unlock()
			return
		}
		batch := l.queue[:n:n]
		l.queue = l.queue[n:]
		g.mu.Unlock()

		busy := g.run(true, batch)
		if len(busy) == 0 {
			rounds = 0
			continue
		}
		if rounds++; rounds < busyRounds {
			g.mu.Lock()
			l.queue = append(busy, l.queue...)
			g.mu.Unlock()
			continue
		}
		rounds = 0
		weight := 0
		for _, c := range busy {
			weight += c.size
			c.ans.Err = problem.New(problem.DatabaseTimeout, "The row stayed locked by somebody else. Try again.")
			close(c.done)
		}
		g.answered(len(busy), weight)
	}
}
