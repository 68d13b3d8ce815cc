package call

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Backoff says how long to wait before the next try: a random part of a bound that doubles (full jitter), so that
// callers who failed together do not come back together. The zero value waits up to 100 ms first and 30 s at most. It is
// not for concurrent use.
type Backoff struct {
	Min, Max time.Duration
	n        int
}

// Next is the wait before the next try. A gateway that asked for a longer one in err is obeyed, within the maximum.
func (b *Backoff) Next(err error) time.Duration {
	low, high := b.Min, b.Max
	if low <= 0 {
		low = 100 * time.Millisecond
	}
	if high <= 0 {
		high = 30 * time.Second
	}
	bound := high
	if b.n < 30 && low<<b.n < high {
		bound = low << b.n
	}
	b.n++
	wait := rand.N(bound) + 1
	var e *Error
	if errors.As(err, &e) && e.RetryAfter > wait {
		wait = min(e.RetryAfter, high)
	}
	return wait
}

// Reset begins anew after a success.
func (b *Backoff) Reset() { b.n = 0 }

// Sleep waits, or answers why ctx ended before.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
