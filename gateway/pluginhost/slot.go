package pluginhost

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-run/rouse/plugins/wire"
)

// Signer makes the value of Webhook-Signature. The keys stay here.
type Signer interface {
	Sign(body []byte, at time.Time) string
}

// deps are what every plugin of a host shares.
type deps struct {
	log      *slog.Logger
	metrics  *metrics
	signer   Signer
	now      func() time.Time
	starter  *starter
	dir      string
	selfArgs []string
	hostEnv  func(string) (string, bool)
	pace     pace
	timeout  time.Duration // of a start; 0 = startTimeout
	between  func()        // tests: between the look at a file and its reading
}

// slot is the place of a plugin in the configuration: its child changes with
// its entry, and those who call it do not notice.
type slot struct {
	name string
	kind string
	deps *deps
	out  *output

	// generation counts the configurations that have been put to use or taken away.
	generation atomic.Uint64

	mu    sync.Mutex
	child *child
	stale *Error // why a changed entry is not in use
	// wanted is that entry, tried again at retryAt: what stood in its way may pass.
	wanted  Spec
	retryAt time.Time
}

func newSlot(name, kind string, d *deps) *slot {
	return &slot{name: name, kind: kind, deps: d, out: newOutput(d.log.With("plugin", name))}
}

func (s *slot) get() *child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child
}

func (s *slot) spec() Spec {
	if c := s.get(); c != nil {
		return c.spec
	}
	return Spec{}
}

func (s *slot) timeout(usual time.Duration) time.Duration {
	if t := s.spec().Timeout; t > 0 {
		return t
	}
	return usual
}

// take gives a running instance and its child, for one call; the child's give
// must follow.
func (s *slot) take(ctx context.Context) (*child, *instance, error) {
	for {
		c := s.get()
		if c == nil {
			return nil, nil, errorf(CodeStopped, "the plugin is not running")
		}
		i, err := c.take(ctx)
		if CodeOf(err) == CodeStopped && s.get() != c {
			continue // it has just been replaced
		}
		return c, i, err
	}
}

// launch makes a child for a spec and runs it until ctx ends.
func (s *slot) launch(ctx context.Context, spec Spec) *child {
	c := newChild(s.name, s.kind, spec, s.deps, s.out)
	if spec.Builtin != "" && s.kind == wire.AuthHook {
		s.out.allow(ownLines)
	} else {
		s.out.allow(passedLines)
	}
	ctx, c.cancel = context.WithCancel(ctx)
	var img *image
	c.begin = func(ctx context.Context) (*instance, error) {
		if img == nil {
			var err error
			if img, err = s.image(spec); err != nil {
				return nil, err
			}
		}
		return s.start(ctx, spec, img)
	}
	go func() {
		defer func() {
			if img != nil {
				img.close()
			}
		}()
		c.run(ctx)
	}()
	return c
}

// start starts one process.
func (s *slot) start(ctx context.Context, spec Spec, img *image) (*instance, error) {
	args, timeout := append([]string{s.name}, spec.Args...), s.deps.timeout
	if spec.Builtin != "" {
		// What is started is this program: if it is late, so is everything on this machine.
		timeout = ownTimeout
		args = append(append([]string(nil), s.deps.selfArgs...), spec.Builtin)
	}
	return start(ctx, launch{kind: s.kind, spec: spec, img: img, args: args, env: spec.environment(s.deps.hostEnv), dir: s.deps.dir,
		starter: s.deps.starter, out: s.out, timeout: timeout, versions: wire.Sets(nil, nil)})
}

func (s *slot) image(spec Spec) (*image, error) {
	if spec.Builtin != "" {
		return self()
	}
	return verify(spec.Path, spec.SHA256, s.deps.between)
}

// begin puts the first child in place.
func (s *slot) begin(ctx context.Context, spec Spec) {
	c := s.launch(ctx, spec)
	s.mu.Lock()
	s.child = c
	s.mu.Unlock()
}

// drainTime bounds how long calls of a replaced plugin may go on.
const drainTime = time.Minute

// replace starts a child for a changed spec beside the one that runs, and puts
// it in its place once it is ready. If it does not become so, nothing changes.
func (s *slot) replace(ctx context.Context, spec Spec) {
	next := s.launch(ctx, spec)
	patience := startTimeout
	if spec.Builtin != "" {
		patience = ownTimeout
	}
	wait, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	if err := next.settled(wait); err != nil {
		next.cancel()
		<-next.done
		if ctx.Err() != nil {
			return
		}
		e := wrap(CodeReloadFailed, err, "the changed entry does not work; the one before it is still in use")
		s.deps.log.Error("plugin keeps its old configuration", "plugin", s.name, "code", e.Code, "why", CodeOf(err), "err", err)
		s.mu.Lock()
		s.stale, s.wanted, s.retryAt = e, spec, time.Now().Add(s.deps.pace.open)
		old := s.child
		s.mu.Unlock()
		if _, up := old.describe(); up {
			s.deps.metrics.up.WithLabelValues(s.name).Set(1)
		}
		return
	}
	s.mu.Lock()
	old := s.child
	s.child, s.stale = next, nil
	s.mu.Unlock()
	s.generation.Add(1)
	s.deps.log.Info("plugin has its new configuration", "plugin", s.name)
	s.retire(ctx, old)
}

// overdue gives the changed entry that is to be tried again by now.
func (s *slot) overdue() (Spec, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted, s.stale != nil && s.child != nil && !time.Now().Before(s.retryAt)
}

// retire ends a child when its calls have.
func (s *slot) retire(ctx context.Context, c *child) {
	quiet, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	c.quiet(quiet)
	c.cancel()
	<-c.done
}

// end ends the plugin: its entry is gone. What it has said ends with it.
func (s *slot) end() {
	s.mu.Lock()
	c := s.child
	s.child = nil
	s.mu.Unlock()
	s.generation.Add(1)
	if c != nil {
		c.cancel()
		<-c.done
	}
}
