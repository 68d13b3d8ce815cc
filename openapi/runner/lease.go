package runner

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// lease counts down what is left of a claim. Its context ends with the cause [ErrLost] a margin before the lease can end
// at the gateway, or at once when the gateway says that it is over.
type lease struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	margin time.Duration // zero = a tenth of the lease

	mu sync.Mutex
	// end is the lease's end less the margin; it holds a monotonic and a wall-clock reading, and the first to pass counts.
	end time.Time
	// length is what was left at the last extension.
	length time.Duration
	timer  *time.Timer
}

// newLease starts the countdown. sent is when the request was sent whose answer said that remaining was left.
func newLease(ctx context.Context, sent time.Time, remaining, margin time.Duration) *lease {
	l := &lease{margin: margin}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(sent, remaining)
	l.timer = time.AfterFunc(l.next(), func() { l.check() })
	return l
}

// next is when to look at the clocks again: the monotonic one alone would not notice that the machine slept.
func (l *lease) next() time.Duration { return min(max(time.Until(l.end), 0), time.Second) }

func (l *lease) set(sent time.Time, remaining time.Duration) {
	margin := l.margin
	if margin <= 0 {
		margin = min(remaining/10, 2*time.Second)
	}
	l.length = remaining
	l.end = sent.Add(remaining - margin)
}

// extend takes an answer that came in time. An answer never shortens the countdown: answers may overtake each other, and
// each of them was true when it was made.
func (l *lease) extend(sent time.Time, remaining time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil || l.over(now()) {
		return
	}
	before := l.end
	l.set(sent, remaining)
	if l.end.Before(before) {
		l.end = before
	}
}

// over asks both clocks: a time of Go's compares by the monotonic one while it has a reading of it.
func (l *lease) over(monotonic, wall time.Time) bool {
	return !monotonic.Before(l.end) || !wall.Round(0).Before(l.end.Round(0))
}

func now() (monotonic, wall time.Time) {
	t := time.Now()
	return t, t
}

// check ends the context if the time has come. It answers whether the lease still holds.
func (l *lease) check() bool {
	l.mu.Lock()
	over := l.over(now())
	if !over && l.ctx.Err() == nil {
		l.timer.Reset(l.next())
	}
	l.mu.Unlock()
	if over {
		l.lose(fmt.Errorf("%w: the lease could not be extended in time", ErrLost))
	}
	return l.ctx.Err() == nil
}

// lose ends the context now. The first reason given stays.
func (l *lease) lose(reason error) { l.cancel(reason) }

// stop ends the countdown.
func (l *lease) stop() {
	l.mu.Lock()
	l.timer.Stop()
	l.mu.Unlock()
	l.cancel(context.Canceled)
}

// left is the time until the context ends by itself, and the length of the lease.
func (l *lease) left() (left, length time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.end), l.length
}

// call gives a context for one request under the lease: it ends with the lease, and after the timeout.
func (l *lease) call(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	left, _ := l.left()
	c, cancel := context.WithTimeout(ctx, min(timeout, max(left, 0)))
	stop := context.AfterFunc(l.ctx, cancel)
	return c, func() { stop(); cancel() }
}
