// Package soon waits in tests for what comes in its own time. It promises to look often and to fail the test when it
// does not come. It knows nothing of what is waited for.
package soon

import (
	"testing"
	"time"
)

// Bound is how long Until waits: a machine that tests is busy.
const Bound = time.Minute

// Until waits until ok, and fails the test when that takes longer than Bound.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Within(t, Bound, what, ok)
}

// Within is Until with a limit of its own. It returns how long it took.
func Within(t testing.TB, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ; !ok(); <-tick.C {
		if time.Since(began) > limit {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
	return time.Since(began)
}
