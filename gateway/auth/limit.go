package auth

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/rouse-run/rouse/gateway/problem"
)

// Limit is how many requests one principal may make. Addresses count for
// nothing: many people share one, and one person has many.
type Limit struct {
	// PerSecond is the lasting rate; zero means no limit.
	PerSecond float64
	// Burst is how many may come at once; zero means PerSecond, at least 1.
	Burst int
}

// maxBuckets bounds the principals that are counted at once.
const maxBuckets = 100_000

// limits counts requests by the principal of their credentials. Nil limits
// nobody.
type limits struct {
	of  Limit
	now func() time.Time

	mu      sync.Mutex
	buckets map[seenKey]*rate.Limiter
}

func newLimits(of Limit, now func() time.Time) *limits {
	if of.PerSecond <= 0 {
		return nil
	}
	if of.Burst <= 0 {
		of.Burst = max(1, int(of.PerSecond))
	}
	return &limits{of: of, now: now, buckets: map[seenKey]*rate.Limiter{}}
}

// take counts a request. The built-in system principals, who act for others, and
// requests that need no credentials are not limited.
func (l *limits) take(p Principal) error {
	if l == nil || p.IsZero() || p.Trusted() {
		return nil
	}
	now := l.now()
	l.mu.Lock()
	key := seenKey{id: p.Key()}
	b := l.buckets[key]
	if b == nil {
		// A full bucket is as good as none.
		makeRoom(l.buckets, maxBuckets, func(b *rate.Limiter) bool { return b.TokensAt(now) >= float64(l.of.Burst) })
		b = rate.NewLimiter(rate.Limit(l.of.PerSecond), l.of.Burst)
		l.buckets[key] = b
	}
	l.mu.Unlock()
	if b.AllowN(now, 1) {
		return nil
	}
	wait := time.Duration((1 - b.TokensAt(now)) / l.of.PerSecond * float64(time.Second))
	return problem.New(problem.RateLimited, "There are too many requests of this principal. Send them more slowly.").
		WithRetryAfter(max(wait, time.Millisecond))
}
