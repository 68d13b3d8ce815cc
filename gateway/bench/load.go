package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rouse-run/rouse/gateway/bench/proc"
)

// load is what a closed loop measured: each of its lanes does the next thing when the last one has been answered.
type load struct {
	rate              float64 // things done a second
	latency           *samples
	gateway, postgres float64 // µs of CPU a thing
	generator         float64 // cores
}

// watch lets a loop warm up and measures it for d. per sets what that comes to when n things were done.
func (l *load) watch(ctx context.Context, t *target, d time.Duration, measuring *atomic.Bool) (per func(n int64)) {
	sleep(ctx, warmUp)
	gw, pg := t.cost()
	self, began := proc.Self(), time.Now()
	measuring.Store(true)
	sleep(ctx, d)
	measuring.Store(false)
	elapsed := time.Since(began)
	gw2, pg2 := t.cost()
	self2 := proc.Self()
	return func(n int64) {
		l.rate = float64(n) / elapsed.Seconds()
		l.gateway = float64((gw2 - gw).Microseconds()) / float64(n)
		l.postgres = float64((pg2 - pg).Microseconds()) / float64(n)
		l.generator = (self2 - self).Seconds() / elapsed.Seconds()
	}
}

// sleep waits for d, at most until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
