package store

import (
	"sync"
	"time"
)

// clockSlack is by how much the database's clock may fall behind this process's
// own, between two looks at it, without having been set back.
const clockSlack = time.Second

// databaseClock finds out that the database's clock was set back, by this
// process's monotonic one. What happened before the first look is not known, so
// it begins with a suspicion.
type databaseClock struct {
	mu     sync.Mutex
	right  bool // it has been looked at, and was not set back since
	last   time.Time
	lastAt time.Time // when last was seen, by the monotonic clock
}

func (c *databaseClock) suspect() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.right
}

// settled: what a clock that was set back has left is dealt with.
func (c *databaseClock) settled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.right = true
}

// saw takes note of the database's time, seen at a time of this process.
func (c *databaseClock) saw(database, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.IsZero() && database.Before(c.last.Add(at.Sub(c.lastAt)-clockSlack)) {
		c.right = false
	}
	c.last, c.lastAt = database, at
}
