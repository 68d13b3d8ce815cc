package cli

import (
	"runtime"
	"testing"
)

func nextCollection() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NextGC
}

// The collector is the process's own, so this test has no company.
func TestCollectorWaitsForAFloor(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	release := holdHeapFloor()
	if got := nextCollection(); got < 2*heapFloor {
		t.Errorf("the next collection comes at %d bytes, which is less than twice the floor", got)
	}
	release()
	t.Setenv("GOGC", "100")
	release = holdHeapFloor()
	defer release()
	if got := nextCollection(); got >= 2*heapFloor {
		t.Errorf("the next collection comes at %d bytes although GOGC is set", got)
	}
}
