// Package pace is how the gateway's loops wait: for a time, until they are stopped, or until there is something to do. It
// promises to block nobody for longer. It knows nothing of what the loops do.
package pace

import (
	"context"
	"math/rand/v2"
	"time"
)

// Rest waits for d; false when ctx ended first.
func Rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Spread is d, give or take a tenth, so that several gateways do not all do a
// thing at once.
func Spread(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// Poke tells whoever receives from c, which has room for one, that there is
// something to do. It does not block: one that was not heard yet is enough.
func Poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
