package dispatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/pace"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// RouterDatabase is what the router needs of the store.
type RouterDatabase interface {
	DispatchRoute(ctx context.Context, at []store.StreamAt) ([]store.Routed, error)
	DispatchScan(ctx context.Context, after int64, limit int) ([]store.StreamAt, error)
	SubscriptionScan(ctx context.Context, after int64, limit int) (at []store.StreamAt, next int64, err error)
}

const (
	routeBatch = 512
	// An append seen in the log is visible to new snapshots within about 10 ms,
	// and a consumer's row is locked for one transaction: a stream that cannot
	// be routed for routeTries rounds is left to the scan.
	routeTries   = 12
	retryFirst   = 2 * time.Millisecond
	retryLast    = 250 * time.Millisecond
	outageFirst  = 50 * time.Millisecond
	outageLast   = time.Second
	scanPageSize = 500
)

// Router turns the log's notices into wakes: one dispatch_route call for
// everything a batch of the log touched. It is fed only on the gateway that
// holds the router's slot.
type Router struct {
	db      RouterDatabase
	log     *slog.Logger
	metrics *metrics

	scanNow chan struct{}
	// observed is told of appends to streams that observers watch; it must not
	// block. May be nil.
	observed func()

	mu    sync.Mutex
	later map[int64]*retry
	kick  chan struct{}
}

type retry struct {
	position int64
	tries    int
	due      time.Time
}

var _ feed.RouterSink = (*Router)(nil)

func newRouter(db RouterDatabase, log *slog.Logger, m *metrics) *Router {
	return &Router{db: db, log: log, metrics: m, later: map[int64]*retry{}, kick: make(chan struct{}, 1), scanNow: make(chan struct{}, 1)}
}

// Notices implements feed.RouterSink. The log is confirmed once the decision is
// committed; what has to be tried again is backed by the pending flag on the
// stream's row, which the scan reads.
func (r *Router) Notices(ctx context.Context, b feed.Batch) {
	at, observed := make([]store.StreamAt, 0, len(b.Notices)), false
	for _, n := range b.Notices {
		if n.Flags.Any(feed.Actionable | feed.Linked) {
			at = append(at, store.StreamAt{Stream: n.Stream, Position: n.Tail})
		}
		observed = observed || n.Flags.Has(feed.Observed)
	}
	if observed && r.observed != nil {
		r.observed()
	}
	wait := outageFirst
	for len(at) > 0 {
		n := min(len(at), routeBatch)
		if err := r.route(ctx, at[:n]); err != nil {
			if !pace.Rest(ctx, wait) {
				return
			}
			wait = min(2*wait, outageLast)
			continue
		}
		at, wait = at[n:], outageFirst
	}
	b.Confirm()
}

// Gap implements feed.RouterSink: the scan closes it.
func (r *Router) Gap(_ context.Context, reason feed.GapReason) {
	r.log.Info("log signals may be missing; scanning", "code", "FEED_GAP", "reason", string(reason))
	pace.Poke(r.scanNow)
}

func (r *Router) route(ctx context.Context, at []store.StreamAt) error {
	start := time.Now()
	got, err := r.db.DispatchRoute(ctx, at)
	if err != nil && problem.CodeOf(err) == problem.Internal || store.IsDataError(err) {
		return r.routeAlone(ctx, at, err)
	}
	if err != nil {
		if ctx.Err() == nil {
			r.log.Warn("routing failed; trying again", "code", "ROUTE_FAILED", "err", err)
		}
		return err
	}
	r.metrics.routeSeconds.Observe(time.Since(start).Seconds())
	position := make(map[int64]int64, len(at))
	for _, a := range at {
		position[a.Stream] = a.Position
	}
	for _, g := range got {
		r.metrics.routed.WithLabelValues(g.Outcome).Inc()
		if g.Outcome == "retry" {
			r.again(g.Stream, position[g.Stream])
		} else {
			r.done(g.Stream, position[g.Stream])
		}
	}
	return nil
}

// routeAlone finds the stream that makes a whole call fail, which no retry of
// the call can mend, so that it does not keep the others from being woken.
func (r *Router) routeAlone(ctx context.Context, at []store.StreamAt, cause error) error {
	if len(at) == 1 {
		r.metrics.routed.WithLabelValues("poisoned").Inc()
		r.log.Error("a stream cannot be routed; its owner is not woken", "code", "ROUTE_POISONED", "stream_id", at[0].Stream, "err", cause)
		r.done(at[0].Stream, at[0].Position)
		return nil
	}
	for _, half := range [][]store.StreamAt{at[:len(at)/2], at[len(at)/2:]} {
		if err := r.route(ctx, half); err != nil {
			return err
		}
	}
	return nil
}

func (r *Router) again(stream, position int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.later[stream]
	if e == nil {
		e = &retry{}
		r.later[stream] = e
	}
	e.position = max(e.position, position)
	e.tries++
	if e.tries > routeTries {
		delete(r.later, stream)
		pace.Poke(r.scanNow)
		return
	}
	e.due = time.Now().Add(min(retryFirst<<(e.tries-1), retryLast))
	pace.Poke(r.kick)
}

func (r *Router) done(stream, position int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.later[stream]; e != nil && e.position <= position {
		delete(r.later, stream)
	}
}

// runRetries routes again what was locked or not visible yet.
func (r *Router) runRetries(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.kick:
		case <-timer.C:
		}
		now, next := time.Now(), time.Hour
		var due []store.StreamAt
		r.mu.Lock()
		for id, e := range r.later {
			if !e.due.After(now) {
				due = append(due, store.StreamAt{Stream: id, Position: e.position})
				// Should the call fail, it is due again after a while.
				e.due = now.Add(retryLast)
			}
			next = min(next, e.due.Sub(now))
		}
		r.mu.Unlock()
		for len(due) > 0 && ctx.Err() == nil {
			n := min(len(due), routeBatch)
			_ = r.route(ctx, due[:n]) // logged there; still in r.later
			due = due[n:]
		}
		r.mu.Lock()
		for _, e := range r.later {
			next = min(next, max(time.Until(e.due), time.Millisecond))
		}
		r.mu.Unlock()
		timer.Reset(next)
	}
}

// scan routes every idle consumer with pending work, entities and then
// subscriptions, page by page, and returns how many it handed on.
func (r *Router) scan(ctx context.Context) (int, error) {
	var after int64
	total := 0
	for {
		page, err := r.db.DispatchScan(ctx, after, scanPageSize)
		if err != nil {
			return total, err
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].Stream
		if err := r.route(ctx, page); err != nil {
			return total, err
		}
		total += len(page)
		if len(page) < scanPageSize {
			break
		}
	}
	for after = 0; ; {
		page, next, err := r.db.SubscriptionScan(ctx, after, scanPageSize)
		if err == nil && len(page) > 0 {
			err = r.route(ctx, page)
		}
		if err != nil {
			return total, err
		}
		total += len(page)
		if next == 0 {
			return total, nil
		}
		after = next
	}
}
