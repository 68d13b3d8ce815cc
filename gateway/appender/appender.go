// Package appender turns concurrent appends into few transactions: it owns the
// group commit of stream_append.
//
// It promises that an append answered with [store.Appended] is committed, that
// appends of one stream keep the order in which they came, that each gets its
// own outcome, and that local readers are told right after the commit. It knows
// nothing of HTTP, of JSON, or of who may write.
package appender

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/groupcommit"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// Database is what the appender needs of the store.
type Database interface {
	StreamAppend(ctx context.Context, items []store.AppendItem, wait bool) ([]store.AppendResult, error)
}

// Hub learns of committed appends; the log tells everybody else.
type Hub interface {
	Publish(stream, tail int64, flags feed.Flags)
}

// Fresh is what one transaction appended to one stream, without a gap.
type Fresh struct {
	// From and To are the positions before and after Items.
	Stream, From, To int64
	// Closed says that nothing follows.
	Closed bool
	Items  []*store.AppendItem
}

// Readers are told what was appended, so that they need not read it back.
type Readers interface {
	// Watched says whether anybody here waits for the stream.
	Watched(stream int64) bool
	// Fresh comes after the commit and before the hub is told.
	Fresh(Fresh)
}

// Config of an [Appender]. Store and Hub are required; zero limits mean
// groupcommit's defaults.
type Config struct {
	Store Database
	Hub   Hub
	// MaxBatch bounds the appends of one transaction, MaxBytes their payload,
	// MaxQueue and MaxQueueBytes the appends that wait, SideLanes the transactions
	// beside the batcher's that wait for a locked stream.
	MaxBatch, MaxBytes, MaxQueue, MaxQueueBytes, SideLanes int
	// Timeout bounds how long a caller waits for its append; zero means 15 s.
	Timeout time.Duration
}

// Appender groups appends. All methods may be called from any goroutine.
type Appender struct {
	cfg     Config
	group   *groupcommit.Group[*store.AppendItem, store.AppendResult]
	readers atomic.Pointer[Readers]
}

// New starts an appender; it lives until ctx ends or Stop.
func New(ctx context.Context, cfg Config) *Appender {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 15 * time.Second
	}
	a := &Appender{cfg: cfg}
	a.group = groupcommit.New(ctx, groupcommit.Config[*store.AppendItem, store.AppendResult]{
		Run:   a.run,
		Key:   func(i *store.AppendItem) string { return strconv.Itoa(int(i.Service)) + "/" + i.Path },
		Size:  func(i *store.AppendItem) int { return len(i.Payload) },
		Alone: store.IsDataError,

		MaxBatch: cfg.MaxBatch, MaxBytes: cfg.MaxBytes, MaxQueue: cfg.MaxQueue, MaxQueueBytes: cfg.MaxQueueBytes, SideLanes: cfg.SideLanes,
	})
	return a
}

// Attach names the readers of this process; there is at most one.
func (a *Appender) Attach(r Readers) { a.readers.Store(&r) }

// Append carries out one append. A refusal is an outcome, not an error; an
// error means that it is not known whether the append was carried out, unless
// its code is OVERLOADED or SERVER_STOPPING. When ctx or Config.Timeout ends
// first, the append may still be carried out.
func (a *Appender) Append(ctx context.Context, item store.AppendItem) (store.AppendResult, error) {
	bound, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
	defer cancel()
	res, err := a.group.Do(bound, &item)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && problem.CodeOf(err) == "" {
		err = problem.Wrap(problem.DatabaseTimeout, err, "The append took too long; it may or may not have been carried out.")
	}
	return res, err
}

// Stop refuses new appends and waits for those inside, at most until ctx ends.
func (a *Appender) Stop(ctx context.Context) error { return a.group.Stop(ctx) }

func (a *Appender) run(ctx context.Context, wait bool, reqs []*store.AppendItem) ([]groupcommit.Answer[store.AppendResult], error) {
	items := make([]store.AppendItem, len(reqs))
	for i, r := range reqs {
		items[i] = *r
	}
	results, err := a.cfg.Store.StreamAppend(ctx, items, wait)
	if err != nil {
		return nil, err
	}
	if r := a.readers.Load(); r != nil {
		tell(*r, reqs, results)
	}
	answers := make([]groupcommit.Answer[store.AppendResult], len(results))
	for i, r := range results {
		answers[i] = groupcommit.Answer[store.AppendResult]{Res: r, Busy: r.Outcome == store.Busy}
		if r.Outcome == store.Appended {
			flags := feed.Flags(0)
			if r.Closed {
				flags |= feed.Closed
			}
			a.cfg.Hub.Publish(r.StreamID, r.Position, flags)
		}
	}
	return answers, nil
}

// tell hands what was appended to watched streams over, joined as far as it has
// no gap. The results of one stream are in the order of their positions.
func tell(readers Readers, reqs []*store.AppendItem, results []store.AppendResult) {
	var open map[int64]*Fresh
	for i, r := range results {
		if r.Outcome != store.Appended || len(reqs[i].Payload) == 0 || !readers.Watched(r.StreamID) {
			continue
		}
		from := r.Position - int64(len(reqs[i].Payload))
		f := open[r.StreamID]
		if f != nil && f.To == from {
			f.To, f.Closed, f.Items = r.Position, r.Closed, append(f.Items, reqs[i])
			continue
		}
		if f != nil {
			readers.Fresh(*f)
		}
		if open == nil {
			open = map[int64]*Fresh{}
		}
		open[r.StreamID] = &Fresh{Stream: r.StreamID, From: from, To: r.Position, Closed: r.Closed, Items: []*store.AppendItem{reqs[i]}}
	}
	for _, f := range open {
		readers.Fresh(*f)
	}
}
