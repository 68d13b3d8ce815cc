package retention

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-run/rouse/gateway/pace"
	"github.com/rouse-run/rouse/gateway/store"
)

// Database is what the clean-up asks of the store.
type Database interface {
	RetentionWakeStreams(ctx context.Context, limit int, window, period time.Duration) (store.Progress, error)
	RetentionStreams(ctx context.Context, limit int, period time.Duration) (store.Progress, error)
	RetentionAdopt(ctx context.Context, limit int) (store.Progress, error)
	RetentionSweep(ctx context.Context, limit int) (store.Progress, error)
	RetentionRows(ctx context.Context, walk store.Walk, limit int, age, period time.Duration) (store.Progress, error)
	RetentionAudit(ctx context.Context, limit int, age time.Duration) (store.Progress, error)
}

// Ages say how long things are kept; zero keeps them for ever.
type Ages struct {
	// WakeEntries is the window in which entries of wake streams stay for whoever
	// looks at what happened.
	WakeEntries time.Duration
	// Claims counts from their end, Wakes, whose delivery attempts go with them,
	// from when they were resolved.
	Claims, Wakes time.Duration
	Audit         time.Duration
	// Producers counts from the last append to their stream.
	Producers time.Duration
}

// Config of [New]. DB is required.
type Config struct {
	DB   Database
	Ages Ages
	// Period is the time between two looks at the same stream; zero means 1 min.
	Period time.Duration
	// RowPeriod is the time between two walks over the rows of a table; zero means
	// 1 h.
	RowPeriod time.Duration
	// Batch is how many rows one step deletes at most; zero means 500.
	Batch    int
	Log      *slog.Logger
	Registry prometheus.Registerer
}

const (
	// streamBatch is how many streams one step looks at: each costs a few probes.
	streamBatch = 100
	// adoptBatch is how many new streams one step looks at for their entity's type.
	adoptBatch = 2000
	// turn is how many steps a job takes before the others have theirs.
	turn = 100
	// restFactor is how much longer than a step the rest behind it is.
	restFactor = 5
	restLeast  = 40 * time.Millisecond
	restMost   = 5 * time.Second
)

// job is one kind of clean-up.
type job struct {
	name string
	step func(context.Context) (store.Progress, error)
}

// Retention runs the clean-up.
type Retention struct {
	cfg     Config
	jobs    []job
	metrics *metrics
	cancel  context.CancelFunc
	done    chan struct{}
}

// New makes a Retention; Start runs it.
func New(cfg Config) (*Retention, error) {
	if cfg.DB == nil {
		return nil, errors.New("retention needs a database")
	}
	if cfg.Period <= 0 {
		cfg.Period = time.Minute
	}
	if cfg.RowPeriod <= 0 {
		cfg.RowPeriod = time.Hour
	}
	if cfg.Batch <= 0 {
		cfg.Batch = 500
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	m, err := newMetrics(cfg.Registry)
	if err != nil {
		return nil, err
	}
	return &Retention{cfg: cfg, jobs: jobs(cfg), metrics: m, done: make(chan struct{})}, nil
}

func jobs(cfg Config) []job {
	db, ages, batch := cfg.DB, cfg.Ages, cfg.Batch
	list := []job{
		{"adopt", func(ctx context.Context) (store.Progress, error) { return db.RetentionAdopt(ctx, adoptBatch) }},
		{"streams", func(ctx context.Context) (store.Progress, error) {
			return db.RetentionStreams(ctx, streamBatch, cfg.Period)
		}},
	}
	if ages.WakeEntries > 0 {
		list = append(list, job{"wake_streams", func(ctx context.Context) (store.Progress, error) {
			return db.RetentionWakeStreams(ctx, streamBatch, ages.WakeEntries, cfg.Period)
		}})
	}
	// Behind those that move heads: what they free goes in the same round.
	list = append(list, job{"messages", func(ctx context.Context) (store.Progress, error) { return db.RetentionSweep(ctx, batch) }})
	rows := func(walk store.Walk, age time.Duration) {
		if age > 0 {
			list = append(list, job{string(walk), func(ctx context.Context) (store.Progress, error) {
				return db.RetentionRows(ctx, walk, batch, age, cfg.RowPeriod)
			}})
		}
	}
	rows(store.WalkClaims, ages.Claims)
	rows(store.WalkWakes, ages.Wakes)
	if ages.Audit > 0 {
		list = append(list, job{"audit", func(ctx context.Context) (store.Progress, error) { return db.RetentionAudit(ctx, batch, ages.Audit) }})
	}
	rows(store.WalkProducers, ages.Producers)
	return list
}

// Start runs the clean-up until Stop.
func (r *Retention) Start(ctx context.Context) error {
	ctx, r.cancel = context.WithCancel(ctx)
	go func() {
		defer close(r.done)
		for wait := pace.Spread(r.cfg.Period); pace.Rest(ctx, wait); {
			wait = pace.Spread(r.cfg.Period)
			if r.Round(ctx) {
				wait = restLeast
			}
		}
	}()
	return nil
}

// Stop ends the clean-up behind the step under way, at most until ctx ends.
func (r *Retention) Stop(ctx context.Context) error {
	if r.cancel == nil {
		return nil
	}
	r.cancel()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Round does what there is to do now. A job with much to do lets the others have
// their turn in between; one that takes longer than a period is left for the next
// round, where the others are asked again. more says that there is such a job.
func (r *Retention) Round(ctx context.Context) (more bool) {
	left := r.jobs
	for end := time.Now().Add(r.cfg.Period); len(left) > 0 && ctx.Err() == nil; {
		var again []job
		for _, j := range left {
			if r.take(ctx, j) {
				again = append(again, j)
			}
		}
		left = again
		if time.Now().After(end) {
			break
		}
	}
	return len(left) > 0
}

// take takes up to a turn's steps of a job and says whether it has more to do. One
// that failed is tried in the next round.
func (r *Retention) take(ctx context.Context, j job) (more bool) {
	for range turn {
		start := time.Now()
		p, err := j.step(ctx)
		took := time.Since(start)
		if ctx.Err() != nil {
			return false
		}
		r.metrics.seconds.WithLabelValues(j.name).Observe(took.Seconds())
		if err != nil {
			r.metrics.failed.WithLabelValues(j.name).Inc()
			r.cfg.Log.Warn("a clean-up step failed; it is tried again later", "code", "RETENTION_FAILED", "job", j.name, "err", err)
			return false
		}
		r.metrics.seen.WithLabelValues(j.name).Add(float64(p.Seen))
		r.metrics.changed.WithLabelValues(j.name).Add(float64(p.Changed))
		if !p.More {
			r.metrics.behind.WithLabelValues(j.name).Set(0)
			r.metrics.finished.WithLabelValues(j.name).SetToCurrentTime()
			return false
		}
		r.metrics.behind.WithLabelValues(j.name).Set(1)
		if !pace.Rest(ctx, min(max(restFactor*took, restLeast), restMost)) {
			return false
		}
	}
	return true
}
