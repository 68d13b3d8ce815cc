package feed

import (
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"time"
)

const (
	// eagerFor is how long after a holder was terminated, or has let go, the
	// slot is tried again every eagerStep: its backend needs a moment to exit.
	eagerFor  = time.Second
	eagerStep = 20 * time.Millisecond
	// maxPatience bounds the factor on the silence timeouts.
	maxPatience = 16
)

// supervisor keeps one session going: on the router's slot if it is to be had,
// else on a temporary one. All its fields belong to its goroutine.
type supervisor struct {
	f       *Feed
	control *control
	server  server
	slot    string
	freeze  freezeWatch

	// attempt is a session in the making, which waits for open transactions.
	attempt *attempt
	// failures in a row, for the backoff.
	failures int
	// retryAt is when the next attempt may be made after one that failed.
	retryAt time.Time
	eager   time.Time
	// shortLived counts sessions in a row that ended soon; resumeAt is when the
	// next may begin.
	shortLived int
	resumeAt   time.Time
	// gap is what the router is told at the next take-over; stolen says that the
	// holder was frozen.
	gap    GapReason
	stolen bool
	// victim is the backend that is being ended.
	victim int32
	// slotReason says why the router's slot has to be made.
	slotReason string
	// patience multiplies the silence timeouts after sessions that ended without
	// any progress: a transaction that takes the server longer to decode than the
	// timeout must not be started over for ever.
	patience time.Duration
}

type attempt struct {
	router bool
	cancel context.CancelFunc
	result chan attemptResult
}

type attemptResult struct {
	session *session
	err     error
}

func newSupervisor(f *Feed) *supervisor {
	return &supervisor{
		f:          f,
		control:    &control{cfg: f.sqlCfg, timeout: f.cfg.ConnectTimeout},
		freeze:     freezeWatch{after: f.cfg.FreezeAfter},
		gap:        GapStart,
		slotReason: "absent",
		patience:   1,
	}
}

func (s *supervisor) run(ctx context.Context) {
	defer s.stop(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var ended <-chan struct{}
		if cur := s.f.current.Load(); cur != nil {
			ended = cur.done
		}
		var result <-chan attemptResult
		if s.attempt != nil {
			result = s.attempt.result
		}
		select {
		case <-ctx.Done():
			return
		case <-ended:
			s.ended(ctx)
		case r := <-result:
			s.attempted(ctx, r)
		case <-timer.C:
		}
		timer.Reset(s.step(ctx))
	}
}

// stop gives everything back: the slot to a standby, a waiting attempt up.
func (s *supervisor) stop(ctx context.Context) {
	if cur := s.f.current.Load(); cur != nil {
		cur.close()
	}
	s.abandon()
	s.control.close(ctx)
	s.f.state.broadcast()
}

// abandon gives the attempt up without waiting for it.
func (s *supervisor) abandon() {
	a := s.attempt
	if a == nil {
		return
	}
	s.attempt = nil
	a.cancel()
	s.f.wg.Go(func() {
		if r := <-a.result; r.session != nil {
			r.session.finish(errClosed)
		}
	})
}

// ended takes note of the current session's end.
func (s *supervisor) ended(ctx context.Context) {
	cur := s.f.current.Swap(nil)
	cur.wg.Wait()
	err := cur.err
	if sqlState(err) == stateUndefinedObject {
		err = s.noPublication(ctx, cur, err)
	}
	if cur.progressed() {
		s.patience = 1
	} else if time.Since(cur.began) >= s.f.cfg.HolderTimeout/2 {
		s.patience = min(2*s.patience, maxPatience)
	}
	s.failed(ctx, "the log feed's session ended", err)
	s.f.metrics.ends.WithLabelValues(diagnose(err).code).Inc()
	// The first reconnect is at once; sessions that end as soon as they have begun
	// must not go round without a pause.
	s.failures = 0
	if time.Since(cur.began) > s.f.cfg.RetryMax {
		s.shortLived = 0
	} else if s.shortLived++; s.shortLived > 1 {
		s.failures = s.shortLived - 2
		s.resumeAt = time.Now().Add(s.backoff())
	}
}

// noPublication deals with the publication missing at the point of the log that
// is being decoded. If it exists by now the slot would still stumble over the
// older log for ever, so it is made anew.
func (s *supervisor) noPublication(ctx context.Context, cur *session, err error) error {
	ok, queryErr := s.control.hasPublication(ctx, s.f.cfg.Publication)
	if queryErr != nil {
		return err
	}
	if !ok {
		return errNoPublication
	}
	if cur.holder {
		s.dropRouterSlot(ctx, "publication", false)
	}
	return err
}

func (s *supervisor) failed(ctx context.Context, what string, err error) {
	if ctx.Err() != nil {
		return
	}
	t := diagnose(err)
	s.f.trouble.Store(&t)
	s.f.state.broadcast()
	s.f.log.WarnContext(ctx, what, "code", t.code, "err", err)
}

// backoff returns the wait after one more failure, with jitter.
func (s *supervisor) backoff() time.Duration {
	d := s.f.cfg.RetryMin << min(s.failures, 16)
	s.failures++
	d = min(d, s.f.cfg.RetryMax)
	return d/2 + rand.N(d/2+1)
}

// step looks at the world, does what it can do now, and says when to look again.
func (s *supervisor) step(ctx context.Context) time.Duration {
	if ctx.Err() != nil {
		return s.f.cfg.StandbyInterval
	}
	cur := s.f.current.Load()
	if cur == nil {
		if rest := time.Until(s.resumeAt); rest > 0 {
			return rest
		}
		// The server may have become another one: after a failover, or a restart
		// with other settings.
		if err := s.identify(ctx); err != nil {
			s.failed(ctx, "the log feed cannot start", err)
			return s.backoff()
		}
	}
	state, err := s.control.slot(ctx, s.slot)
	if err != nil {
		if cur == nil {
			s.failed(ctx, "the log feed cannot look at its slot", err)
		}
		return s.backoff()
	}
	s.observe(cur, state)
	switch {
	case cur != nil && (cur.holder || s.f.sink == nil):
		s.failures = 0
		return s.f.cfg.MonitorInterval
	case s.f.sink == nil:
		return s.tail(ctx)
	case s.attempt != nil && s.attempt.router:
		return s.f.cfg.StandbyInterval
	case state.lost && state.pid == 0:
		s.dropRouterSlot(ctx, "lost", true)
		return eagerStep
	case !state.exists:
		return s.create(ctx)
	case state.pid == 0:
		return s.take(ctx, state)
	}
	return s.standBy(ctx, cur, state)
}

// identify asks the server who it is.
func (s *supervisor) identify(ctx context.Context) error {
	srv, err := s.control.server(ctx)
	switch {
	case err != nil:
		return err
	case srv.recovery:
		// With several hosts in the DSN another connection may reach the primary.
		s.control.close(ctx)
		return errReadOnly
	case srv.walLevel != "logical":
		return errWALLevel
	}
	s.server = srv
	s.slot = slotName(s.f.cfg.RouterSlot, srv.oid)
	return nil
}

func (s *supervisor) observe(cur *session, state slotState) {
	var received LSN
	if cur != nil {
		received = LSN(cur.received.Load())
	}
	s.f.metrics.slot(state, received)
}

// dropRouterSlot removes the router's slot, to be made anew.
func (s *supervisor) dropRouterSlot(ctx context.Context, reason string, lostOnly bool) {
	if err := s.control.drop(ctx, s.slot, lostOnly); err != nil {
		s.f.log.WarnContext(ctx, "the router's slot cannot be dropped", "slot", s.slot, "code", sqlState(err), "err", err)
		return
	}
	s.slotReason = reason
	s.f.log.WarnContext(ctx, "the router's slot was dropped to be made anew", "slot", s.slot, "reason", reason)
}

// standBy watches the holder, and sees to it that tails are served meanwhile.
func (s *supervisor) standBy(ctx context.Context, cur *session, state slotState) time.Duration {
	if s.freeze.frozen(state, time.Now()) {
		s.f.log.WarnContext(ctx, "the holder of the router's slot is frozen, its backend is told to end",
			"slot", s.slot, "pid", state.pid)
		s.stolen, s.victim = true, state.pid
		s.eager = time.Now().Add(eagerFor)
		s.freeze = freezeWatch{after: s.f.cfg.FreezeAfter}
	}
	if s.victim == state.pid && state.waiting {
		// More than once: a backend whose client reads nothing gets stuck in telling
		// it why it ends, and the next request frees it.
		if err := s.control.terminate(ctx, s.slot, state.pid); err != nil {
			s.f.log.WarnContext(ctx, "the backend cannot be ended", "slot", s.slot, "pid", state.pid, "err", err)
			s.victim = 0
		}
	}
	wait := min(s.jittered(s.f.cfg.StandbyInterval), s.freeze.due(time.Now()))
	if cur == nil {
		wait = min(wait, s.tail(ctx))
	}
	if time.Now().Before(s.eager) {
		return eagerStep
	}
	s.victim = 0
	return wait
}

func (s *supervisor) jittered(d time.Duration) time.Duration {
	return d - rand.N(d/10+1)
}

// tail starts to make a session on a temporary slot.
func (s *supervisor) tail(ctx context.Context) time.Duration {
	if rest := time.Until(s.retryAt); rest > 0 {
		return rest
	}
	if s.attempt == nil {
		name := s.f.cfg.TailSlot + "_" + randomName()
		opts := openOptions{
			make: true, temporary: true,
			senderTimeout: s.f.cfg.TailTimeout * s.patience,
			readTimeout:   s.f.cfg.ReadTimeout * s.patience,
		}
		s.begin(ctx, false, func(ctx context.Context) (*session, error) { return s.f.open(ctx, name, opts) })
	}
	return s.jittered(s.f.cfg.StandbyInterval)
}

// create starts to make the router's slot and a session on it. A tail that is in
// the making is given up: it waits for the same transactions.
func (s *supervisor) create(ctx context.Context) time.Duration {
	if rest := time.Until(s.retryAt); rest > 0 {
		return rest
	}
	s.abandon()
	name, opts := s.slot, s.holderOptions()
	opts.make, opts.failover = true, s.server.version >= 170000
	s.begin(ctx, true, func(ctx context.Context) (*session, error) { return s.f.open(ctx, name, opts) })
	return s.jittered(s.f.cfg.StandbyInterval)
}

func (s *supervisor) holderOptions() openOptions {
	return openOptions{
		holder:        true,
		senderTimeout: s.f.cfg.HolderTimeout * s.patience,
		readTimeout:   s.f.cfg.ReadTimeout * s.patience,
	}
}

// begin runs open in a goroutine, which must not touch the supervisor.
func (s *supervisor) begin(ctx context.Context, router bool, open func(context.Context) (*session, error)) {
	ctx, cancel := context.WithCancel(ctx)
	a := &attempt{router: router, cancel: cancel, result: make(chan attemptResult, 1)}
	s.attempt = a
	if s.f.current.Load() == nil {
		s.f.trouble.Store(&trouble{CodeSlotWaiting, "a replication slot is being made; it waits for open write transactions"})
	}
	s.f.wg.Go(func() {
		defer cancel()
		session, err := open(ctx)
		a.result <- attemptResult{session, err}
	})
}

// attempted takes the result of an attempt.
func (s *supervisor) attempted(ctx context.Context, r attemptResult) {
	router := s.attempt.router
	s.attempt = nil
	if r.err != nil {
		// Another gateway was quicker with the same slot: no failure.
		if code := sqlState(r.err); !router || code != stateDuplicateObject && code != stateObjectInUse {
			s.failed(ctx, "no replication slot could be made", r.err)
			s.retryAt = time.Now().Add(s.backoff())
		}
		return
	}
	if router {
		s.f.metrics.slots.WithLabelValues(s.slotReason).Inc()
		s.f.log.InfoContext(ctx, "the router's slot was made", "slot", s.slot, "reason", s.slotReason)
		s.slotReason = "absent"
		s.gap = GapSlot
	}
	s.adopt(ctx, r.session)
}

// take tries to get the router's slot, which was free a moment ago.
func (s *supervisor) take(ctx context.Context, state slotState) time.Duration {
	opened, err := s.f.open(ctx, s.slot, s.holderOptions())
	switch sqlState(err) {
	case stateObjectInUse, stateUndefinedObject:
		return eagerStep
	}
	if err != nil {
		s.failed(ctx, "the router's slot cannot be taken", err)
		return s.backoff()
	}
	if s.stolen {
		s.f.metrics.takeovers.WithLabelValues("frozen").Inc()
	} else {
		s.f.metrics.takeovers.WithLabelValues("free").Inc()
	}
	opened.target = state.flushed
	s.adopt(ctx, opened)
	return s.f.cfg.MonitorInterval
}

// adopt makes a session the current one. First the signals flow, then everybody
// is told to read the database, so that nothing falls in between.
func (s *supervisor) adopt(ctx context.Context, opened *session) {
	role := "tail"
	if opened.holder {
		role = "holder"
		s.f.router.begin(s.gap)
		s.gap = GapStart
	}
	s.stolen, s.victim, s.failures = false, 0, 0
	s.abandon()
	opened.run()
	old := s.f.current.Swap(opened)
	s.f.trouble.Store(nil)
	s.f.state.broadcast()
	s.f.hub.Resync()
	s.f.wakes.missed(GapStart)
	if old != nil {
		old.close()
	}
	s.f.metrics.sessions.WithLabelValues(role).Inc()
	s.f.log.InfoContext(ctx, "the log feed is up", "role", role, "slot", opened.slot)
}

// openOptions say how a session comes about.
type openOptions struct {
	holder                     bool
	make, temporary, failover  bool
	senderTimeout, readTimeout time.Duration
}

// open connects, makes the slot if wanted, and starts to stream from it.
func (f *Feed) open(ctx context.Context, slot string, opts openOptions) (*session, error) {
	pc, err := f.dial(ctx, opts.senderTimeout)
	if err != nil {
		return nil, err
	}
	if opts.make {
		if err := makeSlot(ctx, pc, slot, opts.temporary, opts.failover); err != nil {
			closeConn(ctx, pc)
			return nil, err
		}
	}
	return f.stream(ctx, pc, slot, opts.holder, opts.readTimeout)
}

func randomName() string {
	var b [8]byte
	_, _ = crand.Read(b[:])
	return strings.ToLower(hex.EncodeToString(b[:]))
}
