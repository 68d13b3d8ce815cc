package pluginhost

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-run/rouse/plugins/contract"
	"github.com/rouse-run/rouse/plugins/sdk"
	"github.com/rouse-run/rouse/plugins/wire"
)

// Config of a [Host].
type Config struct {
	// File is the plugins file; it is looked at every second, and what has changed
	// in it is put to use. Empty = none.
	File string
	// Amend completes what the file says, or refuses it; it is called for every
	// version of it.
	Amend func(*Set) error
	// Builtins are the transports that this binary has.
	Builtins map[string]func() sdk.Transport
	// BuiltinHooks are the names of the auth hooks that this binary has, each to be
	// served in a process of its own.
	BuiltinHooks []string
	// SelfArgs is the command line with which this binary serves a built-in
	// transport, but for its name.
	SelfArgs []string
	// Signer signs for the plugins that want it; nil signs nothing.
	Signer   Signer
	Log      *slog.Logger
	Registry prometheus.Registerer
	// TempDir is where sockets are made; empty = the system's.
	TempDir string
}

// Host runs the plugins of a gateway. It is safe for concurrent use.
type Host struct {
	cfg    Config
	deps   *deps
	cancel context.CancelFunc
	ctx    context.Context
	wg     sync.WaitGroup
	once   sync.Once

	mu         sync.Mutex
	started    bool
	set        Set
	transports map[string]*Transport
	locals     map[string]*Local
	hooks      map[string]*AuthHook
	broken     *Error // why the file as it is now is not in use
	mark       [sha256.Size]byte
}

// filePeriod is the time between two looks at the plugins file.
const filePeriod = time.Second

// New reads the plugins file; Start runs what it says, and Stop must be called
// in any case. ctx bounds the settings of transports in this process.
func New(ctx context.Context, cfg Config) (*Host, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Amend == nil {
		cfg.Amend = func(*Set) error { return nil }
	}
	m, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, err
	}
	h := &Host{cfg: cfg, transports: map[string]*Transport{}, locals: map[string]*Local{}, hooks: map[string]*AuthHook{},
		deps: &deps{log: cfg.Log, metrics: m, signer: cfg.Signer, now: time.Now, selfArgs: cfg.SelfArgs, hostEnv: os.LookupEnv, pace: usualPace}}
	h.ctx, h.cancel = context.WithCancel(ctx)
	set, mark, err := h.read()
	if err != nil {
		return nil, err
	}
	h.set, h.mark = set, mark
	// What others are given exists before it runs.
	for name, spec := range set.AuthHooks {
		h.hooks[name] = &AuthHook{newSlot(name, wire.AuthHook, h.deps), spec.shown()}
	}
	return h, nil
}

// read gives the set as the file has it now.
func (h *Host) read() (s Set, mark [sha256.Size]byte, err error) {
	if h.cfg.File != "" {
		raw, err := os.ReadFile(h.cfg.File)
		if err != nil {
			return s, mark, wrap(CodeConfiguration, bare(err), "the plugins file "+h.cfg.File+" cannot be read")
		}
		if len(raw) > maxFile {
			return s, mark, errorf(CodeConfiguration, "the plugins file %s is larger than 1 MiB", h.cfg.File)
		}
		mark = sha256.Sum256(raw)
		if s, err = Parse(raw); err != nil {
			return s, mark, wrap(CodeConfiguration, err, "the plugins file "+h.cfg.File)
		}
	}
	if s.Transports == nil {
		s.Transports = map[string]Spec{}
	}
	if err := h.cfg.Amend(&s); err != nil {
		return s, mark, wrap(CodeConfiguration, err, "the plugins file "+h.cfg.File)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Transports)) {
		if b := s.Transports[name].Builtin; b != "" && h.cfg.Builtins[b] == nil {
			return s, mark, errorf(CodeConfiguration, "transports.%s: there is no builtin transport %q; there are %v", name, b, slices.Sorted(maps.Keys(h.cfg.Builtins)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.AuthHooks)) {
		switch b := s.AuthHooks[name].Builtin; {
		case b == "":
		case !slices.Contains(h.cfg.BuiltinHooks, b):
			return s, mark, errorf(CodeConfiguration, "authhooks.%s: there is no builtin auth hook %q; there are %v", name, b, h.cfg.BuiltinHooks)
		case len(h.cfg.SelfArgs) == 0:
			return s, mark, errorf(CodeConfiguration, "authhooks.%s: this binary serves no plugins", name)
		}
	}
	return s, mark, nil
}

// Start starts all plugins and does not wait for them: a call of one that is not
// there yet waits a little.
func (h *Host) Start(context.Context) error {
	dir, err := temporary(h.cfg.TempDir)
	if err != nil {
		return fmt.Errorf("there is no room for the plugins' sockets: %w", bare(err))
	}
	h.mu.Lock()
	h.started = true
	h.deps.dir, h.deps.starter = dir, newStarter()
	set := h.set
	h.mu.Unlock()
	for name, spec := range set.Transports {
		h.addTransport(name, spec)
	}
	for name, spec := range set.AuthHooks {
		h.hooks[name].begin(h.ctx, spec)
	}
	if h.cfg.File != "" {
		h.wg.Go(h.follow)
	}
	return nil
}

func (h *Host) addTransport(name string, spec Spec) {
	if spec.InProcess {
		l := newLocal(h.ctx, name, spec, h.cfg.Builtins[spec.Builtin](), h.deps)
		h.mu.Lock()
		h.locals[name] = l
		h.mu.Unlock()
		return
	}
	t := &Transport{slot: newSlot(name, wire.Transport, h.deps)}
	t.begin(h.ctx, spec)
	h.mu.Lock()
	h.transports[name] = t
	h.mu.Unlock()
}

// Stop ends all plugins and waits until nothing is left of them, at most until
// ctx ends.
func (h *Host) Stop(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.once.Do(h.stop)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *Host) stop() {
	h.cancel()
	h.wg.Wait()
	if !h.started {
		return
	}
	var wg sync.WaitGroup
	for _, t := range h.transports {
		wg.Go(t.end)
	}
	for _, a := range h.hooks {
		wg.Go(a.end)
	}
	for _, l := range h.locals {
		wg.Go(l.end)
	}
	wg.Wait()
	h.deps.starter.stop()
	_ = os.RemoveAll(h.deps.dir)
}

// follow puts changes of the file to use.
func (h *Host) follow() {
	tick := time.NewTicker(filePeriod)
	defer tick.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-tick.C:
			h.reload()
		}
	}
}

// reload compares the file with what runs. A file that is not valid, and an
// entry that does not work, change nothing but the health.
func (h *Host) reload() {
	set, mark, err := h.read()
	h.mu.Lock()
	old, same := h.set, mark == h.mark && h.broken == nil
	if err != nil {
		news := h.broken == nil || h.broken.Error() != err.Error()
		h.broken = &Error{Code: CodeConfiguration, Text: err.Error()}
		h.mu.Unlock()
		if news {
			h.cfg.Log.Error("the plugins file is not valid; the one before it is still in use", "code", CodeConfiguration, "err", err)
		}
		return
	}
	if same {
		var slots []*slot
		for _, t := range h.transports {
			slots = append(slots, t.slot)
		}
		for _, a := range h.hooks {
			slots = append(slots, a.slot)
		}
		h.mu.Unlock()
		for _, s := range slots {
			if spec, due := s.overdue(); due {
				s.replace(h.ctx, spec)
			}
		}
		return
	}
	h.broken, h.set, h.mark = nil, set, mark
	h.mu.Unlock()
	var wg sync.WaitGroup
	for name, spec := range set.Transports {
		was, had := old.Transports[name]
		switch {
		case had && was.equal(spec):
		case had && !was.InProcess && !spec.InProcess:
			h.mu.Lock()
			t := h.transports[name]
			h.mu.Unlock()
			wg.Go(func() { t.replace(h.ctx, spec) })
		default:
			wg.Go(func() { h.exchange(name, spec) })
		}
	}
	for name, spec := range set.AuthHooks {
		h.mu.Lock()
		a, had := h.hooks[name]
		if !had {
			a = &AuthHook{newSlot(name, wire.AuthHook, h.deps), spec.shown()}
			h.hooks[name] = a
		}
		h.mu.Unlock()
		switch {
		case !had || a.get() == nil:
			a.begin(h.ctx, spec)
		case !old.AuthHooks[name].equal(spec):
			wg.Go(func() { a.replace(h.ctx, spec) })
		}
	}
	for name := range old.Transports {
		if _, still := set.Transports[name]; !still {
			wg.Go(func() { h.removeTransport(name) })
		}
	}
	for name := range old.AuthHooks {
		if _, still := set.AuthHooks[name]; !still {
			h.mu.Lock()
			a := h.hooks[name]
			h.mu.Unlock()
			wg.Go(a.end)
		}
	}
	wg.Wait()
}

// exchange puts a transport in, in place of one that ran in another way.
func (h *Host) exchange(name string, spec Spec) {
	h.mu.Lock()
	t, l := h.transports[name], h.locals[name]
	h.mu.Unlock()
	h.addTransport(name, spec)
	h.mu.Lock()
	if spec.InProcess {
		delete(h.transports, name)
	} else {
		delete(h.locals, name)
	}
	h.mu.Unlock()
	h.letGo(t, l)
}

func (h *Host) removeTransport(name string) {
	h.mu.Lock()
	t, l := h.transports[name], h.locals[name]
	delete(h.transports, name)
	delete(h.locals, name)
	h.mu.Unlock()
	h.letGo(t, l)
}

// letGo ends what is no longer in the configuration: a process when its calls
// have ended; what is in this process lets calls under way end by itself, and is
// not waited for: how long closing a connection takes holds up no other entry.
func (h *Host) letGo(t *Transport, l *Local) {
	if t != nil {
		if c := t.get(); c != nil {
			t.retire(h.ctx, c)
		}
		t.end()
	}
	if l != nil {
		h.wg.Go(l.end)
	}
}

// Transport gives the transport of a type, or nil.
func (h *Host) Transport(typ string) contract.Transport {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.transports[typ]; t != nil {
		return t
	}
	if l := h.locals[typ]; l != nil {
		return l
	}
	return nil
}

// Transports gives all of them, by name.
func (h *Host) Transports() []contract.Transport {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []contract.Transport
	for _, t := range h.transports {
		all = append(all, t)
	}
	for name, l := range h.locals {
		if h.transports[name] == nil {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b contract.Transport) int {
		if a.Type() < b.Type() {
			return -1
		}
		return 1
	})
	return all
}

// AuthHook gives the auth hook of a name.
func (h *Host) AuthHook(name string) (*AuthHook, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.hooks[name]
	if a == nil {
		return nil, errors.New("the plugins file has no auth hook " + name)
	}
	return a, nil
}
