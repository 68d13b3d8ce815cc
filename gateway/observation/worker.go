package observation

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-run/rouse/gateway/pace"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

// Database is what the worker asks of the store.
type Database interface {
	ObserveTake(ctx context.Context, after int64, limit, bytes int32) ([]store.Observer, error)
	ObserveApply(ctx context.Context, moves []store.ObserverMove, wait bool) ([]string, error)
	ObserveBack(ctx context.Context, stream, position int64, bytes int32) ([]store.AppendedRow, error)
	ObserveAttach(ctx context.Context, after int64, limit int32) (last int64, waiting int32, err error)
	ManifestApply(ctx context.Context, id, from, to int64, effects json.RawMessage) (string, error)
	ObservationNext(ctx context.Context) (time.Duration, bool, error)
	ScheduleTake(ctx context.Context, limit int32) ([]store.Task, error)
	SchedulePlan(ctx context.Context, t store.Task, next time.Time) (bool, error)
	SchedulePostpone(ctx context.Context, t store.Task, after time.Duration) (bool, error)
	ScheduleTick(ctx context.Context, t store.Task, row string, next time.Time) (string, error)
	ScheduleSend(ctx context.Context, t store.Task, row, sent string, failed []string, resume bool) (string, error)
	MembershipApply(ctx context.Context, limit int32) (int32, error)
	MembershipCheck(ctx context.Context, older time.Duration, limit int32) (string, error)
}

const (
	// A page may be one message of the greatest size, so few are in memory at once.
	takeLimit = 16
	takeBytes = 256 << 10
	applySize = 16
	taskLimit = 50
	// A commit seen in the log is visible to new snapshots within about 10 ms.
	lookFirst = 2 * time.Millisecond
	lookTries = 4
	// A row that others hold is tried again from busyFirst to busyLast apart; one
	// that was busy busyTries times is waited for, and then again after as many.
	busyFirst = 2 * time.Millisecond
	busyLast  = 250 * time.Millisecond
	busyTries = 8
	// A task that cannot be carried out is tried again after postponed, or, when
	// no retry seems to mend it, after poisoned.
	postponed = time.Second
	poisoned  = 10 * time.Minute
	// membershipAge is how old a comparison of a membership stream may become:
	// what a grant or its end changes shows within it.
	membershipAge = time.Minute
	showLimit     = 500
)

// Config of a [Worker]. DB is required.
type Config struct {
	DB Database
	// Scan is how often everything is looked at without a signal; zero means 3 s.
	// While the log feed is down it is 1 s at most.
	Scan time.Duration
	// FeedUp says whether the log feed is up; nil means that it is.
	FeedUp   func() bool
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Worker runs the loops. Its methods are safe for concurrent use.
type Worker struct {
	cfg    Config
	cancel context.CancelFunc
	wg     sync.WaitGroup

	observers, tasks, members chan struct{}

	// lag, late: the last signal, to observers and to memberships, is from the log,
	// which may be ahead of what can be seen.
	// attach: sources that were waited for may be there now. waiting, shown: the
	// last look found cursors without a source, and membership streams; until then
	// they may be.
	lag, late, attach, waiting, shown atomic.Bool

	told, fired *prometheus.CounterVec

	// The observers' loop's own: by observer, how often it was busy; the last attaching.
	busy     map[int64]int
	attached time.Time
}

// New makes a worker; Start runs it.
func New(cfg Config) (*Worker, error) {
	if cfg.DB == nil {
		return nil, errors.New("observation needs a database")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Scan <= 0 {
		cfg.Scan = 3 * time.Second
	}
	if cfg.FeedUp == nil {
		cfg.FeedUp = func() bool { return true }
	}
	w := &Worker{cfg: cfg, observers: make(chan struct{}, 1), tasks: make(chan struct{}, 1), members: make(chan struct{}, 1), busy: map[int64]int{},
		told: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rouse_observers_total",
			Help: "Cursors of observers looked at, by what became of the look."}, []string{"outcome"}),
		fired: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rouse_scheduled_tasks_total",
			Help: "Due tasks carried out, by kind and outcome."}, []string{"kind", "outcome"})}
	for _, b := range []*atomic.Bool{&w.attach, &w.waiting, &w.shown} {
		b.Store(true)
	}
	if cfg.Registry != nil {
		if err := errors.Join(cfg.Registry.Register(w.told), cfg.Registry.Register(w.fired)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// Start runs the loops until Stop.
func (w *Worker) Start(ctx context.Context) error {
	ctx, w.cancel = context.WithCancel(ctx)
	w.run(ctx, w.observers, &w.lag, func(ctx context.Context) bool { return w.observe(ctx) })
	w.run(ctx, w.tasks, new(atomic.Bool), func(ctx context.Context) bool { return w.schedule(ctx) })
	w.run(ctx, w.members, &w.late, func(ctx context.Context) bool { return w.memberships(ctx) })
	return nil
}

// Stop ends the loops and waits for them, at most until ctx ends.
func (w *Worker) Stop(ctx context.Context) error {
	if w.cancel == nil {
		return nil
	}
	w.cancel()
	done := make(chan struct{})
	go func() { w.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Observed says that a stream which observers watch got an append. It does not
// block.
func (w *Worker) Observed() {
	w.lag.Store(true)
	pace.Poke(w.observers)
}

// Members says that membership streams have something to tell, on whatever
// gateway it came to be. It does not block.
func (w *Worker) Members() {
	w.late.Store(true)
	pace.Poke(w.members)
}

// Poke says that something was registered or scheduled. It does not block.
func (w *Worker) Poke() {
	w.attach.Store(true)
	pace.Poke(w.observers)
	pace.Poke(w.tasks)
	pace.Poke(w.members)
}

// Changed says that an entity was spawned or changed; it costs nothing while
// nobody waits for that. It does not block.
func (w *Worker) Changed() {
	if w.waiting.Load() {
		w.attach.Store(true)
		pace.Poke(w.observers)
	}
	if w.shown.Load() {
		pace.Poke(w.members)
	}
}

// run calls round when poked, when something is due and once a scan. A signal of
// the log whose round finds nothing to do looks again for a moment: what it is
// about may not be visible yet.
func (w *Worker) run(ctx context.Context, signal chan struct{}, logged *atomic.Bool, round func(context.Context) bool) {
	w.wg.Add(1)
	go func() {
		defer w.wg.Done()
		least := busyFirst
		for ctx.Err() == nil {
			w.sleep(ctx, signal, least)
			lag := logged.Swap(false)
			did, wait := round(ctx), lookFirst
			for try := 0; !did && lag && try < lookTries && pace.Rest(ctx, wait); try++ {
				did = round(ctx)
				wait *= 2
			}
			// What is overdue but cannot be done must not keep the loop spinning.
			if least = busyFirst; !did {
				least = busyLast
			}
		}
	}()
}

// sleep waits for a signal, the next due time (at least for least), or a scan's
// period, after which everything is looked at.
func (w *Worker) sleep(ctx context.Context, signal chan struct{}, least time.Duration) {
	scan := w.cfg.Scan
	if !w.cfg.FeedUp() {
		scan = min(scan, time.Second)
	}
	wait := scan - scan/10 + rand.N(scan/5+1)
	full := true
	if next, ok, err := w.cfg.DB.ObservationNext(ctx); err == nil && ok && max(next, least) < wait {
		wait, full = max(next, least), false
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-signal:
	case <-t.C:
		if full {
			w.attach.Store(true)
		}
	}
}

// observe moves cursors until none has anything to do, attaching whenever that is
// due, and says whether any had.
func (w *Worker) observe(ctx context.Context) bool {
	found, wait := false, busyFirst
	for ctx.Err() == nil {
		// A loop that never sleeps has no scan to find what other gateways have made.
		if w.attach.Swap(false) || time.Since(w.attached) > w.cfg.Scan {
			w.attached = time.Now()
			w.attachAll(ctx)
		}
		n, moved, err := w.page(ctx)
		if err != nil {
			w.failed(ctx, "observers could not be moved; trying again", "OBSERVE_FAILED", err)
			return found
		}
		if n == 0 {
			clear(w.busy)
			return found
		}
		found = true
		if moved {
			wait = busyFirst
			continue
		}
		if !pace.Rest(ctx, wait) {
			return found
		}
		wait = min(2*wait, busyLast)
	}
	return found
}

// attachAll gives cursors that wait for their source its stream, if it is there.
func (w *Worker) attachAll(ctx context.Context) {
	left := false
	for after := int64(0); ctx.Err() == nil; {
		last, waiting, err := w.cfg.DB.ObserveAttach(ctx, after, 500)
		if err != nil {
			w.failed(ctx, "observers could not be attached; trying again", "OBSERVE_ATTACH_FAILED", err)
			w.attach.Store(true)
			return
		}
		left = left || waiting > 0
		if last == 0 {
			break
		}
		after = last
	}
	w.waiting.Store(left)
}

// page goes once through all cursors with something to do: how many there were,
// and whether any moved.
func (w *Worker) page(ctx context.Context) (n int, moved bool, err error) {
	for after := int64(0); ; {
		list, err := w.cfg.DB.ObserveTake(ctx, after, takeLimit, takeBytes)
		if err != nil || len(list) == 0 {
			return n, moved, err
		}
		n += len(list)
		after = list[len(list)-1].ID
		var moves []store.ObserverMove
		for _, o := range list {
			var did bool
			var failed error
			if n := w.busy[o.ID]; o.Kind == "manifest" && n > 0 && n < busyTries {
				w.busy[o.ID]++
			} else if o.Kind == "manifest" {
				did, failed = w.manifest(ctx, o)
			} else {
				var m store.ObserverMove
				if m, failed = evaluate(ctx, w.cfg.DB, time.Now(), o); failed == nil {
					moves = append(moves, m)
				}
			}
			moved = moved || did
			if problem.CodeOf(failed) == problem.DatabaseTimeout {
				w.busy[o.ID] = 1 // waited for in vain, which is not to keep the others
			} else if failed != nil {
				if !hopeless(failed) {
					return n, moved, failed
				}
				w.cfg.Log.Error("an observer cannot be moved; trying again", "code", "OBSERVE_FAILED", "observer", o.ID, "err", failed)
			}
		}
		did, err := w.apply(ctx, moves)
		moved = moved || did
		if err != nil {
			return n, moved, err
		}
		if len(list) < takeLimit {
			return n, moved, nil
		}
	}
}

// hopeless says that an error is the call's own: others fare better, and it no
// better when it is made again.
func hopeless(err error) bool {
	return store.IsDataError(err) || problem.CodeOf(err) == problem.Internal
}

// apply carries moves out, a few a transaction, and says whether any moved.
func (w *Worker) apply(ctx context.Context, moves []store.ObserverMove) (moved bool, err error) {
	for len(moves) > 0 {
		n := min(len(moves), applySize)
		batch := moves[:n]
		moves = moves[n:]
		alone := -1
		for i, m := range batch {
			if w.busy[m.ID] >= busyTries {
				alone = i
			}
		}
		if alone >= 0 {
			moves = slices.Concat(batch[:alone], batch[alone+1:], moves)
			batch = batch[alone : alone+1]
		}
		outcomes, err := w.cfg.DB.ObserveApply(ctx, batch, alone >= 0)
		if err != nil && hopeless(err) {
			outcomes, err = w.applyAlone(ctx, batch)
		}
		if alone >= 0 && problem.CodeOf(err) == problem.DatabaseTimeout {
			w.busy[batch[0].ID] = 0
			outcomes, err = []string{"busy"}, nil
		}
		if err != nil {
			return moved, err
		}
		for i, outcome := range outcomes {
			m := batch[i]
			w.told.WithLabelValues(outcome).Inc()
			switch {
			case outcome == "busy":
				w.busy[m.ID]++
			case outcome == "gone", outcome == "applied" && (m.To > m.From || len(m.Rows) > 0 || !m.KeepDue):
				delete(w.busy, m.ID)
				moved = true
			}
		}
	}
	return moved, nil
}

// applyAlone carries moves out one by one, for one of them fails whatever it is
// together with. That one passes what it cannot tell, since what comes after it
// can be told.
func (w *Worker) applyAlone(ctx context.Context, moves []store.ObserverMove) ([]string, error) {
	var out []string
	for _, m := range moves {
		got, err := w.cfg.DB.ObserveApply(ctx, []store.ObserverMove{m}, false)
		if err != nil && hopeless(err) {
			w.cfg.Log.Error("a wake cannot be written; it is passed over", "code", "OBSERVE_POISONED", "observer", m.ID, "err", err)
			m.Rows = nil
			got, err = w.cfg.DB.ObserveApply(ctx, []store.ObserverMove{m}, false)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, got...)
	}
	return out, nil
}

// manifest carries out a page of an entity's manifest.
func (w *Worker) manifest(ctx context.Context, o store.Observer) (moved bool, err error) {
	to := o.Tail
	if n := len(o.Positions); n > 0 {
		to = o.Positions[n-1]
	}
	list := effects(o)
	if list == nil {
		list = []effect{}
	}
	outcome, err := w.cfg.DB.ManifestApply(ctx, o.ID, o.Acked, to, json.RawMessage(staterow.Encode(list)))
	if err != nil && hopeless(err) {
		// No retry mends it, and the rows behind it are waiting.
		w.cfg.Log.Error("manifest rows cannot be carried out; they are passed over", "code", "MANIFEST_POISONED", "entity", o.SubscriberURL, "err", err)
		outcome, err = w.cfg.DB.ManifestApply(ctx, o.ID, o.Acked, to, json.RawMessage("[]"))
	}
	if err != nil {
		return false, err
	}
	w.told.WithLabelValues("manifest_" + outcome).Inc()
	if len(list) > 0 {
		pace.Poke(w.tasks)
		pace.Poke(w.members)
	}
	return outcome == "gone" || outcome == "applied" && to > o.Acked, nil
}

// memberships tells membership streams what has changed, and says whether
// anything had.
func (w *Worker) memberships(ctx context.Context) bool {
	found := false
	// By turns: neither keeps the other waiting.
	for ctx.Err() == nil {
		n, err := w.cfg.DB.MembershipApply(ctx, showLimit)
		if err != nil {
			w.failed(ctx, "membership streams could not be told; trying again", "MEMBERSHIP_FAILED", err)
			return found
		}
		outcome, err := w.cfg.DB.MembershipCheck(ctx, membershipAge, showLimit)
		if err != nil {
			w.failed(ctx, "a membership stream could not be compared; trying again", "MEMBERSHIP_FAILED", err)
			return found
		}
		compared := outcome != "none" && outcome != "empty"
		found = found || n > 0 || compared
		if !compared && n < showLimit {
			w.shown.Store(outcome == "none")
			break
		}
	}
	if found {
		pace.Poke(w.observers)
	}
	return found
}

func (w *Worker) failed(ctx context.Context, msg, code string, err error) {
	if ctx.Err() == nil {
		w.cfg.Log.Warn(msg, "code", code, "err", err)
	}
}
