package intake

import (
	"container/list"
	"context"
	"sync"
)

// smallShare of a budget is kept for reservations of at most [firstStep] bytes.
const smallShare = 8

// Budget bounds the memory of all bodies in flight.
type Budget struct {
	mu      sync.Mutex
	total   int64
	free    int64
	waiters list.List // of *waiter, oldest first
}

type waiter struct {
	n     int64
	ready chan struct{} // closed when n is reserved
}

// NewBudget makes a budget of so many bytes. Readers of it take bodies of at
// most half of that.
func NewBudget(total int64) *Budget { return &Budget{total: total, free: total} }

// Held returns how many bytes are reserved.
func (b *Budget) Held() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total - b.free
}

// wanted says whether somebody waits for some of it.
func (b *Budget) wanted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiters.Len() > 0
}

// fits says whether n bytes can be reserved now. The caller holds mu.
func (b *Budget) fits(n int64) bool {
	if n > firstStep {
		n += b.total / smallShare
	}
	return n <= b.free
}

func (b *Budget) tryAcquire(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fits(n) {
		return false
	}
	b.free -= n
	return true
}

// acquire waits for n bytes. It is not first come, first served: what fits goes
// on, so that one that waits for much does not hold up the others.
func (b *Budget) acquire(ctx context.Context, n int64) error {
	b.mu.Lock()
	if b.fits(n) {
		b.free -= n
		b.mu.Unlock()
		return nil
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	at := b.waiters.PushBack(w)
	b.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.ready:
		return nil // granted meanwhile: the caller has it
	default:
	}
	b.waiters.Remove(at)
	return ctx.Err()
}

func (b *Budget) release(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	for at := b.waiters.Front(); at != nil; {
		next := at.Next()
		if w := at.Value.(*waiter); b.fits(w.n) {
			b.free -= w.n
			b.waiters.Remove(at)
			close(w.ready)
		}
		at = next
	}
}
