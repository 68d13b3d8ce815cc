package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-run/rouse/gateway/bench/wire"
)

const (
	octets  = "application/octet-stream"
	jsonDoc = "application/json"
	// payload is the size of a message, in bytes, where nothing else is said.
	payload = 256
	warmUp  = time.Second
)

// closedLoop appends to the streams over conns connections, each with one stream.
func closedLoop(ctx context.Context, t *target, paths []string, conns int, contentType string, d time.Duration) (load, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg        sync.WaitGroup
		measuring atomic.Bool
		count     atomic.Int64
		out       = load{latency: &samples{}}
	)
	body := message(0, payload)
	for i := range conns {
		c, err := wire.Dial(ctx, t.addr, time.Now().Add(warmUp+d+30*time.Second))
		if err != nil {
			return out, err
		}
		defer c.Close()
		req := wire.Request("POST", t.addr, paths[i%len(paths)], body, wire.Header{Name: "Content-Type", Value: contentType})
		wg.Go(func() {
			var mine []time.Duration
			for ctx.Err() == nil {
				inside := measuring.Load()
				began := time.Now()
				if _, err := c.Expect(req, 200, 204); err != nil {
					cancel(err)
					return
				}
				if inside && measuring.Load() {
					mine = append(mine, time.Since(began))
				}
			}
			count.Add(int64(len(mine)))
			out.latency.add(mine...)
		})
	}
	per := out.watch(ctx, t, d, &measuring)
	err := context.Cause(ctx)
	cancel(nil)
	wg.Wait()
	if err != nil {
		return out, err
	}
	if count.Load() == 0 {
		return out, fmt.Errorf("nothing was appended in %v", d)
	}
	per(count.Load())
	return out, nil
}

// appends is B1 and B8. Bytes and JSON have a server each: the npm reference with files loses sight of streams once there
// are more than a hundred.
func (r *rig) appends(ctx context.Context) {
	for _, contentType := range []string{octets, jsonDoc} {
		r.each(ctx, "B1 "+contentType, r.subjects(), func(ctx context.Context, t *target) error {
			return r.appendsTo(ctx, t, contentType)
		})
	}
	for i := range r.Repeat {
		for _, conns := range []int{1, r.Connections} {
			r.say("B1 pgbench, %d connections %d/%d", conns, i+1, r.Repeat)
			rate, err := r.pgbench(ctx, conns)
			if err != nil {
				r.report.fail("B1 pgbench", err)
				return
			}
			if conns == 1 {
				r.report.add("b1.one", pgbench, rate)
				r.report.add("b1.one.p50", pgbench, 1000/rate)
			} else {
				r.report.add("b1.many", pgbench, rate)
			}
		}
	}
}

func (r *rig) appendsTo(ctx context.Context, t *target, contentType string) error {
	paths, err := r.makeStreams(ctx, t, r.Connections, contentType)
	if err != nil {
		return err
	}
	one, err := closedLoop(ctx, t, paths[:1], 1, contentType, r.Duration)
	if err != nil {
		return err
	}
	many, err := closedLoop(ctx, t, paths, r.Connections, contentType, r.Duration)
	if err != nil {
		return err
	}
	suffix := ""
	if contentType == jsonDoc {
		suffix = ".json"
	}
	r.report.add("b1.one.p50"+suffix, t.subject, one.latency.quantile(0.5))
	r.report.add("b1.many"+suffix, t.subject, many.rate)
	r.report.add("b8.server"+suffix, t.subject, many.gateway)
	if t.pg != nil {
		r.report.add("b8.postgres"+suffix, t.subject, many.postgres)
	}
	if contentType != octets {
		return nil
	}
	r.report.add("b1.one", t.subject, one.rate)
	r.report.add("b1.many.p50", t.subject, many.latency.quantile(0.5))
	r.report.add("b1.many.p99", t.subject, many.latency.quantile(0.99))
	r.report.add("b1.generator", t.subject, many.generator)
	hot, err := closedLoop(ctx, t, paths[:1], r.Connections, contentType, r.Duration)
	if err != nil {
		return err
	}
	r.report.add("b1.hot", t.subject, hot.rate)
	wide, err := closedLoop(ctx, t, paths, 4*r.Connections, contentType, r.Duration)
	if err != nil {
		return err
	}
	r.report.add("b1.wide", t.subject, wide.rate)
	return nil
}
