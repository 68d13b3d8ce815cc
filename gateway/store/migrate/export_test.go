package migrate

import "time"

// LockKey is the advisory lock, for tests that hold it.
const LockKey = lockKey

// SetLockWait changes how long m waits for another migrator.
func SetLockWait(m *Migrator, d time.Duration) { m.opts.LockWait = d }
