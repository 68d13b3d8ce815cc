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
	"strconv"

	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/groupcommit"
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

// Config of an [Appender]. Store and Hub are required; zero limits mean
// groupcommit's defaults.
type Config struct {
	Store Database
	Hub   Hub
	// MaxBatch bounds the appends of one transaction, MaxBytes their payload,
	// MaxQueue the appends that wait, SideLanes the transactions beside the
	// batcher's that wait for a locked stream.
	MaxBatch, MaxBytes, MaxQueue, SideLanes int
}

// Appender groups appends. All methods may be called from any goroutine.
type Appender struct {
	group *groupcommit.Group[*store.AppendItem, store.AppendResult]
}

// New starts an appender; it lives until ctx ends or Stop.
func New(ctx context.Context, cfg Config) *Appender {
	return &Appender{group: groupcommit.New(ctx, groupcommit.Config[*store.AppendItem, store.AppendResult]{
		Run:       runner(cfg),
		Key:       func(i *store.AppendItem) string { return strconv.Itoa(int(i.Service)) + "/" + i.Path },
		Size:      func(i *store.AppendItem) int { return len(i.Payload) },
		Alone:     store.IsDataError,
		MaxBatch:  cfg.MaxBatch,
		MaxBytes:  cfg.MaxBytes,
		MaxQueue:  cfg.MaxQueue,
		SideLanes: cfg.SideLanes,
	})}
}

// Append carries out one append. A refusal is an outcome, not an error; an
// error means that it is not known whether the append was carried out, unless
// its code is OVERLOADED or SERVER_STOPPING. When ctx ends first, the append may
// still be carried out.
func (a *Appender) Append(ctx context.Context, item store.AppendItem) (store.AppendResult, error) {
	return a.group.Do(ctx, &item)
}

// Stop refuses new appends and waits for those inside, at most until ctx ends.
func (a *Appender) Stop(ctx context.Context) error { return a.group.Stop(ctx) }

func runner(cfg Config) func(context.Context, bool, []*store.AppendItem) ([]groupcommit.Answer[store.AppendResult], error) {
	return func(ctx context.Context, wait bool, reqs []*store.AppendItem) ([]groupcommit.Answer[store.AppendResult], error) {
		items := make([]store.AppendItem, len(reqs))
		for i, r := range reqs {
			items[i] = *r
		}
		results, err := cfg.Store.StreamAppend(ctx, items, wait)
		if err != nil {
			return nil, err
		}
		answers := make([]groupcommit.Answer[store.AppendResult], len(results))
		for i, r := range results {
			answers[i] = groupcommit.Answer[store.AppendResult]{Res: r, Busy: r.Outcome == store.Busy}
			if r.Outcome == store.Appended {
				flags := feed.Flags(0)
				if r.Closed {
					flags |= feed.Closed
				}
				cfg.Hub.Publish(r.StreamID, r.Position, flags)
			}
		}
		return answers, nil
	}
}
