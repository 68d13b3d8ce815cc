package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-run/rouse/gateway/bench/proc"
	"github.com/rouse-run/rouse/gateway/bench/wire"
)

const catchUpReaders = 4

// fill appends count messages of size bytes to a stream, over several connections.
func fill(ctx context.Context, t *target, path string, size, count int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req := wire.Request("POST", t.addr, path, message(0, size), wire.Header{Name: "Content-Type", Value: octets})
	var left atomic.Int64
	left.Store(int64(count))
	var wg sync.WaitGroup
	for range 16 {
		c, err := wire.Dial(ctx, t.addr, time.Now().Add(2*time.Minute))
		if err != nil {
			return err
		}
		defer c.Close()
		wg.Go(func() {
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				if _, err := c.Expect(req, 200, 204); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// catchUpLoad lets each reader read its stream from the start to the end, again and again, and returns the bytes read a
// second.
func catchUpLoad(ctx context.Context, t *target, paths []string, d time.Duration) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var total atomic.Int64
	end := time.Now().Add(d)
	began := time.Now()
	for i := range catchUpReaders {
		c, err := wire.Dial(ctx, t.addr, end.Add(time.Minute))
		if err != nil {
			return 0, err
		}
		defer c.Close()
		c.Discard = true
		wg.Go(func() {
			offset := "-1"
			for time.Now().Before(end) && ctx.Err() == nil {
				r, err := c.Expect(wire.Request("GET", t.addr, paths[i%len(paths)]+"?offset="+offset, nil), 200)
				if err != nil {
					cancel(err)
					return
				}
				total.Add(r.Size)
				if offset = string(r.NextOffset); r.UpToDate {
					offset = "-1"
				}
			}
		})
	}
	wg.Wait()
	return float64(total.Load()) / time.Since(began).Seconds(), context.Cause(ctx)
}

// catchUp is B4.
func (r *rig) catchUp(ctx context.Context) {
	shapes := []struct {
		name        string
		size, count int
	}{{"large", 64 << 10, 512}, {"small", 256, 20000}}
	r.each(ctx, "B4", r.subjects(), func(ctx context.Context, t *target) error {
		for _, s := range shapes {
			paths, err := r.makeStreams(ctx, t, catchUpReaders, octets)
			if err != nil {
				return err
			}
			if err := fill(ctx, t, paths[0], s.size, s.count); err != nil {
				return err
			}
			rate, err := catchUpLoad(ctx, t, paths[:1], r.Duration)
			if err != nil {
				return err
			}
			r.report.add("b4."+s.name, t.subject, rate/1e6)
			if t.subject != rouse {
				continue
			}
			// A stream for each reader, together more than any cache of the gateway.
			for _, p := range paths {
				if err := fill(ctx, t, p, s.size, s.count); err != nil {
					return err
				}
			}
			if rate, err = catchUpLoad(ctx, t, paths, r.Duration); err != nil {
				return err
			}
			r.report.add("b4."+s.name+".apart", rouse, rate/1e6)
			r.report.add("b4."+s.name+".rss", rouse, float64(proc.RSS(t.proc.PID()))/(1<<20))
		}
		return nil
	})
}
