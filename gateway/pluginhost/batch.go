package pluginhost

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rouse-run/rouse/plugins/contract"
)

// batcher lets deliveries that come while its calls are under way ride together
// in the next one.
type batcher struct {
	mu      sync.Mutex
	waiting []*rider
	calls   int
}

// rider is a delivery that waits: either it gets its result from the call that
// took it along, or it is told to make the next call.
type rider struct {
	d    contract.Delivery
	done chan contract.Result
	lead chan struct{}
}

// notSent is the result of a delivery that was given up before a call had it.
var notSent = contract.Result{Outcome: contract.Retry, RetryAfter: time.Second, Error: CodeTimeout + ": it was given up before it was sent"}

var errGivenUp = errorf(CodeTimeout, "it was given up while it was being sent")

// deliver makes one call at most, with whoever waits by then: however many keep
// coming, a delivery's result is told when it is there, and a process that has
// been replaced is let go. The call is nobody's: it has a deadline of its own, so
// that a delivery which is given up costs those that ride with it nothing.
func (b *batcher) deliver(ctx context.Context, t *Transport, c *child, i *instance, d contract.Delivery) contract.Result {
	r := &rider{d: d, done: make(chan contract.Result, 1), lead: make(chan struct{})}
	if !b.begin(r) {
		select {
		case res := <-r.done:
			return res
		case <-r.lead:
		case <-ctx.Done():
			if b.leave(r) {
				return notSent
			}
			select {
			case <-r.lead:
			default: // it is on its way
				return r.result(ctx, i)
			}
		}
	}
	if ctx.Err() != nil {
		b.handOn()
		return notSent
	}
	batch := b.board(r, i.desc.maxBatch)
	ds := make([]contract.Delivery, len(batch))
	for k, other := range batch {
		ds[k] = other.d
	}
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.timeout(deliverTimeout))
	c.hold()
	go func() {
		defer c.give()
		defer cancel()
		defer b.handOn()
		results := t.call(own, c, i, ds)
		for k, other := range batch {
			other.done <- results[k]
		}
	}()
	return r.result(ctx, i)
}

// result waits for the call that has the delivery.
func (r *rider) result(ctx context.Context, i *instance) contract.Result {
	select {
	case res := <-r.done:
		return res
	case <-ctx.Done():
	}
	select {
	case res := <-r.done:
		return res
	default:
		return i.uncertain(errGivenUp)
	}
}

// begin lets a delivery make a call of its own, or has it wait.
func (b *batcher) begin(r *rider) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.calls < batchCalls {
		b.calls++
		return true
	}
	b.waiting = append(b.waiting, r)
	return false
}

// leave takes a delivery back that still waits.
func (b *batcher) leave(r *rider) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := slices.Index(b.waiting, r)
	if n < 0 {
		return false
	}
	b.waiting = slices.Delete(b.waiting, n, n+1)
	return true
}

// board takes along as many of those that wait as one call holds.
func (b *batcher) board(r *rider, most int) []*rider {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch, size := []*rider{r}, r.size()
	for len(b.waiting) > 0 && len(batch) < most {
		if size += b.waiting[0].size(); size > tooLarge {
			break
		}
		batch = append(batch, b.waiting[0])
		b.waiting = b.waiting[1:]
	}
	return batch
}

func (r *rider) size() int { return len(r.d.Notification) + len(r.d.Target) + 1<<10 }

// handOn lets the first of those that wait make the next call.
func (b *batcher) handOn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.calls--
		return
	}
	close(b.waiting[0].lead)
	b.waiting = b.waiting[1:]
}
