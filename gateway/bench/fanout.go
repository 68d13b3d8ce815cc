package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rouse-run/rouse/gateway/bench/proc"
)

// fanned is what many readers of one stream measured.
type fanned struct {
	latency *samples
	missing int
	cores   float64 // of the server and its database
	memory  float64 // KiB of the server a reader
	beside  *samples
}

// fan lets readers tail one stream by SSE while messages are appended at a rate. With beside, another stream has one
// reader and its own writer at the same time.
func (r *rig) fan(ctx context.Context, t *target, readers, rate int, d time.Duration, beside bool) (fanned, error) {
	paths, err := r.makeStreams(ctx, t, 1, jsonDoc)
	if err != nil {
		return fanned{}, err
	}
	n := max(1, int(d.Seconds()*float64(rate)))
	l := newLedger(n)
	out := fanned{latency: &samples{}, beside: &samples{}}
	before := proc.RSS(t.proc.PID())
	until := time.Now().Add(d + 90*time.Second)
	var ready, done sync.WaitGroup
	ready.Add(readers)
	gate := make(chan struct{}, 128) // as many dial at once
	for range readers {
		done.Go(func() {
			gate <- struct{}{}
			// What a reader did not get is counted below: one that was cut off is no failure of the measurement.
			_ = readSSE(ctx, t, paths[0], l, n, until, out.latency, sync.OnceFunc(func() { <-gate; ready.Done() }))
		})
	}
	ready.Wait()
	sleep(ctx, time.Second)
	out.memory = float64(proc.RSS(t.proc.PID())-before) / 1024 / float64(readers)

	var wg sync.WaitGroup
	var besideErr error
	gw, pg := t.cost()
	began := time.Now()
	if beside {
		wg.Go(func() {
			var s *samples
			if s, besideErr = r.tail(ctx, t, t, readSSE, liveRate, d); s != nil {
				out.beside = s
			}
		})
	}
	err = openLoop(ctx, t, paths[0], l, rate, n)
	elapsed := time.Since(began)
	gw2, pg2 := t.cost()
	wg.Wait()
	out.cores = (gw2 - gw + pg2 - pg).Seconds() / elapsed.Seconds()
	if err == nil {
		err = besideErr
	}
	if err != nil {
		return out, err
	}
	finished := make(chan struct{})
	go func() { done.Wait(); close(finished) }()
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	select {
	case <-finished:
	case <-late.C:
	}
	out.missing = n*readers - out.latency.count()
	return out, nil
}

// fanOut is B3.
func (r *rig) fanOut(ctx context.Context) {
	subjects := []string{rouse}
	if !r.NoPeers {
		// The durable reference cannot: it throttles the writer to a few messages a second.
		subjects = append(subjects, npmMem)
	}
	r.each(ctx, "B3", subjects, func(ctx context.Context, t *target) error {
		few, err := r.fan(ctx, t, 500, 20, 2*r.Duration, false)
		if err != nil {
			return fmt.Errorf("500 readers: %w", err)
		}
		r.report.add("b3.few.p50", t.subject, few.latency.quantile(0.5))
		r.report.add("b3.few.p99", t.subject, few.latency.quantile(0.99))
		r.report.add("b3.few.cores", t.subject, few.cores)
		r.report.add("b3.few.missing", t.subject, float64(few.missing))
		if t.subject != rouse {
			return nil
		}
		alone, err := r.tail(ctx, t, t, readSSE, liveRate, 2*r.Duration)
		if err != nil {
			return err
		}
		many, err := r.fan(ctx, t, r.Readers, r.ReaderRate, 2*r.Duration, true)
		if err != nil {
			return fmt.Errorf("%d readers: %w", r.Readers, err)
		}
		r.report.add("b3.many.p50", rouse, many.latency.quantile(0.5))
		r.report.add("b3.many.p99", rouse, many.latency.quantile(0.99))
		r.report.add("b3.many.cores", rouse, many.cores)
		r.report.add("b3.many.missing", rouse, float64(many.missing))
		r.report.add("b3.many.memory", rouse, many.memory)
		r.report.add("b3.beside.p99", rouse, many.beside.quantile(0.99))
		r.report.add("b3.beside.p99", "alone", alone.quantile(0.99))
		return nil
	})
}
