package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-run/rouse/gateway/bench/wire"
)

// ledger remembers when each numbered message was sent, for whoever sees it arrive.
type ledger struct {
	began time.Time
	sent  []atomic.Int64 // ns after began, +1
}

func newLedger(n int) *ledger { return &ledger{began: time.Now(), sent: make([]atomic.Int64, n)} }

func (l *ledger) send(n int) { l.sent[n].Store(int64(time.Since(l.began)) + 1) }

// age is how long ago message n was sent; false where it was not.
func (l *ledger) age(n int) (time.Duration, bool) {
	if n < 0 || n >= len(l.sent) {
		return 0, false
	}
	at := l.sent[n].Load()
	return time.Since(l.began) - time.Duration(at-1), at != 0
}

var marker = []byte(`"n":`)

// numbers calls f with every message number in data.
func numbers(data []byte, f func(n int)) {
	for {
		i := bytes.Index(data, marker)
		if i < 0 {
			return
		}
		data = data[i+len(marker):]
		end := bytes.IndexByte(data, ',')
		if end < 0 {
			return
		}
		if n, err := strconv.Atoi(string(data[:end])); err == nil {
			f(n)
		}
	}
}

// pace calls f for 0, 1, 2, … at a fixed rate a second until it has been called n times. A late call does not delay the
// ones after it.
func pace(ctx context.Context, rate, n int, f func(i int)) {
	began := time.Now()
	for i := range n {
		due := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
		if wait := time.Until(due); wait > 0 {
			sleep(ctx, wait)
		}
		if ctx.Err() != nil {
			return
		}
		f(i)
	}
}

// writers is how many connections share an open loop, so that a slow answer does not hold the next message back.
const writers = 4

// openLoop appends n numbered messages at a fixed rate and notes in the ledger when each was sent.
func openLoop(ctx context.Context, t *target, path string, l *ledger, rate, n int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan int, n)
	var wg sync.WaitGroup
	for range writers {
		c, err := wire.Dial(ctx, t.addr, time.Now().Add(time.Duration(n/rate)*time.Second+30*time.Second))
		if err != nil {
			return err
		}
		defer c.Close()
		wg.Go(func() {
			for i := range queue {
				req := wire.Request("POST", t.addr, path, message(int64(i), payload), wire.Header{Name: "Content-Type", Value: jsonDoc})
				l.send(i)
				if _, err := c.Expect(req, 200, 204); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	pace(ctx, rate, n, func(i int) { queue <- i })
	close(queue)
	wg.Wait()
	return context.Cause(ctx)
}

// readSSE tails path until all n messages were seen, and notes how long each took.
func readSSE(ctx context.Context, t *target, path string, l *ledger, n int, until time.Time, into *samples, ready func()) error {
	e, err := wire.Subscribe(ctx, t.addr, until, path+"?offset=-1&live=sse")
	if err != nil {
		ready()
		return err
	}
	defer e.Close()
	defer context.AfterFunc(ctx, func() { _ = e.Close() })()
	ready()
	mine := make([]time.Duration, 0, n)
	defer func() { into.add(mine...) }()
	for len(mine) < n {
		kind, data, err := e.Next()
		if err != nil {
			return fmt.Errorf("after %d of %d messages: %w", len(mine), n, err)
		}
		if string(kind) == "data" {
			numbers(data, func(i int) {
				if d, ok := l.age(i); ok {
					mine = append(mine, d)
				}
			})
		}
	}
	return nil
}

// readLongPoll is readSSE by long-poll.
func readLongPoll(ctx context.Context, t *target, path string, l *ledger, n int, until time.Time, into *samples, ready func()) error {
	c, err := wire.Dial(ctx, t.addr, until)
	if err != nil {
		ready()
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	offset, cursor := "-1", ""
	mine := make([]time.Duration, 0, n)
	defer func() { into.add(mine...) }()
	for first := true; len(mine) < n; first = false {
		target := path + "?offset=" + offset
		if !first {
			target += "&live=long-poll"
			if cursor != "" {
				target += "&cursor=" + cursor
			}
		}
		r, err := c.Expect(wire.Request("GET", t.addr, target, nil), 200, 204)
		if first {
			ready()
		}
		if err != nil {
			return fmt.Errorf("after %d of %d messages: %w", len(mine), n, err)
		}
		numbers(r.Body, func(i int) {
			if d, ok := l.age(i); ok {
				mine = append(mine, d)
			}
		})
		if len(r.NextOffset) == 0 {
			return errors.New("a long-poll answer without Stream-Next-Offset")
		}
		offset, cursor = string(r.NextOffset), string(r.Cursor)
	}
	return nil
}

type reader func(ctx context.Context, t *target, path string, l *ledger, n int, until time.Time, into *samples, ready func()) error

// tail appends to one server at a rate and reads from another, which may be the same, and returns the latencies.
func (r *rig) tail(ctx context.Context, from, to *target, read reader, rate int, d time.Duration) (*samples, error) {
	paths, err := r.makeStreams(ctx, to, 1, jsonDoc)
	if err != nil {
		return nil, err
	}
	n := int(d.Seconds() * float64(rate))
	l, into := newLedger(n), &samples{}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ready := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- read(ctx, from, paths[0], l, n, time.Now().Add(d+20*time.Second), into, sync.OnceFunc(func() { close(ready) }))
	}()
	<-ready
	if err := openLoop(ctx, to, paths[0], l, rate, n); err != nil {
		cancel(err)
		<-done
		return nil, err
	}
	return into, <-done
}

const liveRate = 100

// live is B2.
func (r *rig) live(ctx context.Context) {
	d := 2 * r.Duration
	ways := []struct {
		name string
		read reader
	}{{"sse", readSSE}, {"poll", readLongPoll}}
	r.each(ctx, "B2", r.subjects(), func(ctx context.Context, t *target) error {
		for _, way := range ways {
			got, err := r.tail(ctx, t, t, way.read, liveRate, d)
			if err != nil {
				return err
			}
			r.report.add("b2."+way.name+".p50", t.subject, got.quantile(0.5))
			r.report.add("b2."+way.name+".p99", t.subject, got.quantile(0.99))
		}
		if t.subject != rouse {
			return nil
		}
		second, err := r.gateway(ctx, "postgres")
		if err != nil {
			return err
		}
		defer second.stop()
		for _, way := range ways {
			got, err := r.tail(ctx, second, t, way.read, liveRate, d)
			if err != nil {
				return err
			}
			r.report.add("b2."+way.name+".two.p50", rouse, got.quantile(0.5))
			r.report.add("b2."+way.name+".two.p99", rouse, got.quantile(0.99))
		}
		return nil
	})
}
