package pluginhost

import (
	"context"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// Supervision. The first restart is at once; five failures within a minute open
// the circuit, and then one try at a time shows whether it is over.
const (
	failuresWindow = time.Minute
	failuresMost   = 5
	circuitOpen    = 30 * time.Second
	backoffFirst   = 50 * time.Millisecond
	backoffMost    = time.Second
	healthPeriod   = 2 * time.Second
	lookPeriod     = 300 * time.Millisecond
	missesMost     = 2
	// exitSeen bounds how much later than at its socket the end of a process is seen.
	exitSeen = 250 * time.Millisecond
)

// The states of a plugin.
const (
	stateStarting = "starting"
	stateUp       = "up"
	stateWaiting  = "waiting" // for its next start
	stateOpen     = "circuit_open"
	stateStopped  = "stopped"
)

// pace are the times of the supervision; tests have shorter ones.
type pace struct {
	window, open, backoff, backoffMost, health time.Duration
	// look is the time between two looks at the files that a plugin which does not run reads.
	look time.Duration
}

var usualPace = pace{failuresWindow, circuitOpen, backoffFirst, backoffMost, healthPeriod, lookPeriod}

// child keeps one plugin process running under one Spec.
type child struct {
	name  string
	kind  string
	spec  Spec
	deps  *deps
	out   *output
	pace  pace
	begin func(ctx context.Context) (*instance, error)

	cancel context.CancelFunc
	done   chan struct{} // closed when nothing of it is left

	mu       sync.Mutex
	state    string
	current  *instance
	last     *Error
	unwell   string        // its own complaint
	changed  chan struct{} // closed and replaced at every change of the above
	calls    int
	closing  bool          // no further calls: another one has taken its place
	replaced bool          // its figures are another one's
	idle     chan struct{} // non-nil while somebody waits for calls to end
	starts   int
	failures []time.Time
	nextTry  time.Time
	suspect  chan struct{} // a call was not answered: look at once
}

func newChild(name, kind string, spec Spec, d *deps, out *output) *child {
	return &child{name: name, kind: kind, spec: spec, deps: d, out: out, pace: d.pace, state: stateStarting, done: make(chan struct{}),
		changed: make(chan struct{}), suspect: make(chan struct{}, 1)}
}

// run supervises until ctx ends.
func (c *child) run(ctx context.Context) {
	defer close(c.done)
	defer c.set(stateStopped, nil, nil)
	for ctx.Err() == nil {
		c.set(stateStarting, nil, nil)
		c.deps.metrics.starts.WithLabelValues(c.name).Inc()
		found := footprint(c.spec.Reads)
		inst, err := c.begin(ctx)
		if err == nil {
			c.set(stateUp, inst, nil)
			c.deps.log.Info("plugin is up", "plugin", c.name, "version", inst.desc.version, "pid", inst.proc.ID())
			if hidden := c.spec.hides(inst.desc.headers); len(hidden) > 0 {
				c.deps.log.Warn("the plugin looks at header fields that it is not shown; its entry's headers must list them, and the gateway be restarted",
					"plugin", c.name, "headers", hidden)
			}
			err = c.watch(ctx, inst)
			c.set(stateStarting, nil, nil)
			inst.stop(c.grace(ctx, err))
		}
		if ctx.Err() != nil {
			return
		}
		c.failed(ctx, err, found)
	}
}

// grace is what an instance gets to end: one that is broken gets none.
func (c *child) grace(ctx context.Context, err error) time.Duration {
	if ctx.Err() != nil && err == nil {
		return stopGrace
	}
	return 0
}

// failed counts a failure and waits until the next start: no longer than until
// the files that it reads are not those any more that were found at the last one.
func (c *child) failed(ctx context.Context, err error, found [sha256.Size]byte) {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = wrap(CodeStartFailed, err, "the plugin does not run")
	}
	c.deps.metrics.failures.WithLabelValues(c.name, e.Code).Inc()
	now := time.Now()
	c.mu.Lock()
	recent := c.failures[:0]
	for _, t := range append(c.failures, now) {
		if now.Sub(t) < c.pace.window {
			recent = append(recent, t)
		}
	}
	c.failures = recent
	n := len(recent)
	c.mu.Unlock()
	state, wait := stateWaiting, min(c.pace.backoff<<min(n-1, 16), c.pace.backoffMost)
	wait = wait/2 + rand.N(wait/2+1)
	if n >= failuresMost {
		// The window is as good as over when the circuit closes for a try; that one
		// opens it again if it fails.
		state, wait = stateOpen, c.pace.open
	}
	c.deps.log.Warn("plugin failed", "plugin", c.name, "code", e.Code, "err", e, "failures", n, "next_start", wait)
	c.mu.Lock()
	c.nextTry = now.Add(wait)
	if state == stateOpen {
		c.failures = c.failures[len(c.failures)-failuresMost:]
		for i := range c.failures {
			c.failures[i] = now.Add(wait) // they count until the try has lasted
		}
	}
	c.mu.Unlock()
	c.set(state, nil, e)
	t := time.NewTimer(wait)
	defer t.Stop()
	var look <-chan time.Time
	if len(c.spec.Reads) > 0 {
		tick := time.NewTicker(c.pace.look)
		defer tick.Stop()
		look = tick.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			return
		case <-look:
			if footprint(c.spec.Reads) != found {
				c.mu.Lock()
				c.failures = nil // which were for what those files held
				c.mu.Unlock()
				return
			}
		}
	}
}

// watch returns when the instance cannot be used any more, with why, or when ctx
// ends.
func (c *child) watch(ctx context.Context, i *instance) error {
	tick := time.NewTicker(c.pace.health)
	defer tick.Stop()
	misses := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-i.proc.exited:
			return wrap(CodeCrashed, i.proc.err, "the plugin's process ended")
		case <-tick.C:
		case <-c.suspect:
		}
		if pid := i.proc.cmd.Process.Pid; i.proc.limits.memory > 0 && resident(pid) > i.proc.limits.memory {
			return errorf(CodeMemory, "the plugin uses more than %d bytes of memory", i.proc.limits.memory)
		}
		why, err := i.health(ctx)
		if err != nil && rpcError(err).Code == CodeCallFailed {
			i.proc.awaited(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-i.proc.exited:
			return wrap(CodeCrashed, i.proc.err, "the plugin's process ended")
		default:
		}
		if err == nil {
			misses = 0
			c.complains(why)
			continue
		}
		if misses++; misses >= missesMost {
			return wrap(CodeHung, rpcError(err), "the plugin does not answer when asked for its health")
		}
		select {
		case c.suspect <- struct{}{}:
		default:
		}
	}
}

// awaited gives a process whose socket does not answer the moment in which its
// end is seen: what has crashed is not to be called hung.
func (p *process) awaited(ctx context.Context) {
	t := time.NewTimer(exitSeen)
	defer t.Stop()
	select {
	case <-p.exited:
	case <-t.C:
	case <-ctx.Done():
	}
}

// complains keeps what a plugin says of its own health.
func (c *child) complains(why string) {
	c.mu.Lock()
	was := c.unwell
	c.unwell = why
	c.mu.Unlock()
	if why != "" && was == "" {
		c.deps.log.Warn("plugin is not well", "plugin", c.name, "code", CodeUnhealthy, "says", why)
	}
}

func (c *child) set(state string, i *instance, err *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state, c.current = state, i
	if i != nil {
		c.starts++
		c.unwell = ""
	}
	if err != nil || i != nil {
		c.last = err
	}
	if !c.replaced {
		up := 0.0
		if i != nil {
			up = 1
		}
		c.deps.metrics.up.WithLabelValues(c.name).Set(up)
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// comesBack is how long a call waits for a plugin that is being started.
const comesBack = 2 * time.Second

// take gives the running instance for one call, waiting a little for one that
// is being started; give must follow. Errors have the code of what is wrong.
func (c *child) take(ctx context.Context) (*instance, error) {
	var late <-chan time.Time
	for {
		c.mu.Lock()
		state, inst, last, changed := c.state, c.current, c.last, c.changed
		if c.closing {
			state, inst = stateStopped, nil
		}
		if inst != nil {
			c.calls++
			c.mu.Unlock()
			return inst, nil
		}
		c.mu.Unlock()
		switch state {
		case stateStopped:
			return nil, errorf(CodeStopped, "the plugin is not running any more")
		case stateOpen:
			return nil, wrap(CodeCircuitOpen, last, "the plugin failed too often and is left alone for a while")
		}
		if late == nil {
			t := time.NewTimer(comesBack)
			defer t.Stop()
			late = t.C
		}
		select {
		case <-changed:
			continue
		case <-late:
		case <-ctx.Done():
		}
		if last != nil {
			return nil, last
		}
		return nil, errorf(CodeStarting, "the plugin is being started")
	}
}

// hold counts one more call, for who has one already; give must follow.
func (c *child) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
}

// give ends a call.
func (c *child) give() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls--; c.calls == 0 && c.idle != nil {
		close(c.idle)
		c.idle, c.closing = nil, true
	}
}

// doubt has the plugin looked at, because a call of it was not answered.
func (c *child) doubt() {
	select {
	case c.suspect <- struct{}{}:
	default:
	}
}

// quiet waits until no call is under way, at most until ctx ends; from then on
// none begins.
func (c *child) quiet(ctx context.Context) {
	c.mu.Lock()
	c.replaced = true
	if c.calls == 0 {
		c.closing = true
		c.mu.Unlock()
		return
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// settled waits until the first start has gone one way or the other, and says
// which.
func (c *child) settled(ctx context.Context) error {
	for {
		c.mu.Lock()
		state, inst, last, changed := c.state, c.current, c.last, c.changed
		c.mu.Unlock()
		switch {
		case inst != nil:
			return nil
		case last != nil:
			return last
		case state == stateStopped:
			return errorf(CodeStopped, "the plugin has been stopped")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// describe gives what the running instance says of itself.
func (c *child) describe() (description, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return description{}, false
	}
	return c.current.desc, true
}
