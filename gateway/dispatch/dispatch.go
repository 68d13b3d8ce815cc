package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/pace"
	"github.com/rouse-run/rouse/plugins/contract"
)

// Database is everything dispatch asks of the store.
type Database interface {
	RouterDatabase
	DeliveryDatabase
	ClaimReap(ctx context.Context, limit int) (expired, redelivered, moved int, err error)
	StreamPurge(ctx context.Context, limit int32) (more bool, err error)
	SubscriptionTidy(ctx context.Context, limit int32) (more bool, err error)
}

// Config of [New]. Zero values take the defaults of decisions on record: scan
// every 5 s, every 1 s while the log feed is down; reap every 250 ms.
type Config struct {
	ScanPeriod     time.Duration
	ScanPeriodDown time.Duration
	ReapPeriod     time.Duration
	// ReapGrace is how long the reaper waits after the start and after an
	// outage, so that live holders speak first.
	ReapGrace     time.Duration
	JanitorPeriod time.Duration
	// FeedUp says whether the log feed is up; nil means it is not.
	FeedUp func() bool
}

// Deps of [New].
type Deps struct {
	DB         Database
	Notify     Notifier
	Transports []contract.Transport
	// Transport gives the transport of a type of target as it is now, or nil; where
	// it is set, Transports is not looked at.
	Transport func(typ string) contract.Transport
	// Observed is told of appends to streams that observers watch, on the gateway
	// that reads the log for all; it must not block. May be nil.
	Observed func()
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Dispatch runs the loops.
type Dispatch struct {
	cfg      Config
	deps     Deps
	metrics  *metrics
	router   *Router
	delivery *Delivery
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

// New makes the loops; Start runs them.
func New(cfg Config, deps Deps) (*Dispatch, error) {
	if deps.DB == nil || deps.Notify == nil {
		return nil, errors.New("dispatch needs a database and a notifier")
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	set(&cfg.ScanPeriod, 5*time.Second)
	set(&cfg.ScanPeriodDown, time.Second)
	set(&cfg.ReapPeriod, 250*time.Millisecond)
	set(&cfg.ReapGrace, 2*time.Second)
	set(&cfg.JanitorPeriod, 5*time.Second)
	if cfg.FeedUp == nil {
		cfg.FeedUp = func() bool { return false }
	}
	m, err := newMetrics(deps.Registry)
	if err != nil {
		return nil, err
	}
	router := newRouter(deps.DB, deps.Log, m)
	router.observed = deps.Observed
	delivery := newDelivery(deps.DB, deps.Notify, deps.Transports, deps.Log, m)
	if deps.Transport != nil {
		delivery.transport = deps.Transport
	}
	return &Dispatch{cfg: cfg, deps: deps, metrics: m, router: router, delivery: delivery}, nil
}

// Router is the sink for the feed's actionable notices.
func (d *Dispatch) Router() feed.RouterSink { return d.router }

// Delivery is the sink for the feed's due wakes.
func (d *Dispatch) Delivery() feed.DeliverySink { return d.delivery }

// Start runs the loops until Stop.
func (d *Dispatch) Start(ctx context.Context) error {
	ctx, d.cancel = context.WithCancel(ctx)
	for _, loop := range []func(context.Context){d.router.runRetries, d.runScan, d.runReaper, d.runJanitor, d.delivery.run} {
		d.wg.Add(1)
		go func() { defer d.wg.Done(); loop(ctx) }()
	}
	return nil
}

// Stop ends the loops and waits for deliveries under way, at most until ctx
// ends.
func (d *Dispatch) Stop(ctx context.Context) error {
	if d.cancel == nil {
		return nil
	}
	d.cancel()
	done := make(chan struct{})
	go func() { d.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// runScan is the recovery scan: at the start, when the feed says that signals
// may be missing, and periodically.
func (d *Dispatch) runScan(ctx context.Context) {
	for {
		start := time.Now()
		n, err := d.router.scan(ctx)
		d.metrics.scanSeconds.Observe(time.Since(start).Seconds())
		if err != nil && ctx.Err() == nil {
			d.deps.Log.Warn("the recovery scan failed; trying again", "code", "SCAN_FAILED", "err", err)
		}
		if n > 0 {
			d.metrics.recovered.Add(float64(n))
		}
		period := d.cfg.ScanPeriod
		if err != nil || !d.cfg.FeedUp() {
			period = min(period, d.cfg.ScanPeriodDown)
		}
		t := time.NewTimer(pace.Spread(period))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-d.router.scanNow:
			t.Stop()
		case <-t.C:
		}
	}
}

// runReaper ends lapsed leases and redelivers unclaimed wakes.
func (d *Dispatch) runReaper(ctx context.Context) {
	const limit = 500
	if !pace.Rest(ctx, d.cfg.ReapGrace) {
		return
	}
	for {
		expired, redelivered, moved, err := d.deps.DB.ClaimReap(ctx, limit)
		switch {
		case err != nil:
			if ctx.Err() != nil {
				return
			}
			d.deps.Log.Warn("the lease reaper failed; giving live holders time to speak first", "code", "REAP_FAILED", "err", err)
			if !pace.Rest(ctx, d.cfg.ReapGrace) {
				return
			}
		default:
			d.metrics.expired.Add(float64(expired))
			d.metrics.redelivered.Add(float64(redelivered))
			if expired+redelivered > 0 {
				d.deps.Log.Info("leases ended or wakes told again", "code", "REAPED", "expired", expired, "redelivered", redelivered)
			}
			if expired+redelivered+moved == limit {
				continue
			}
		}
		if !pace.Rest(ctx, pace.Spread(d.cfg.ReapPeriod)) {
			return
		}
	}
}

// runJanitor removes the rows of deleted streams and subscriptions in bounded
// batches, and finishes what an interrupted call has begun.
func (d *Dispatch) runJanitor(ctx context.Context) {
	for pace.Rest(ctx, pace.Spread(d.cfg.JanitorPeriod)) {
		d.drain(ctx, "purging deleted streams", "PURGE_FAILED", 5000, d.deps.DB.StreamPurge)
		d.drain(ctx, "tidying subscriptions", "TIDY_FAILED", 500, d.deps.DB.SubscriptionTidy)
	}
}

// drain takes steps until there is nothing more to do.
func (d *Dispatch) drain(ctx context.Context, what, code string, limit int32, step func(context.Context, int32) (bool, error)) {
	for ctx.Err() == nil {
		more, err := step(ctx, limit)
		if err != nil && ctx.Err() == nil {
			d.deps.Log.Warn(what+" failed; trying again", "code", code, "err", err)
		}
		if err != nil || !more {
			return
		}
	}
}
