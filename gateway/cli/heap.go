package cli

import (
	"os"
	"runtime"
)

// heapFloor is the size of the heap below which collecting is not worth its time. A gateway at rest lives in a few
// megabytes, so at full load the collector would run at each few megabytes of garbage, and take a fifth of what an append
// costs.
const heapFloor = 32 << 20

// holdHeapFloor makes the collector count that much as live, until the returned function is called. The memory is never
// touched, so it takes address space only; what is added to the process is the garbage that may gather meanwhile, at most
// as much again. Who has set GOGC or GOMEMLIMIT knows better.
func holdHeapFloor() (release func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	floor := make([]byte, heapFloor)
	return func() { runtime.KeepAlive(floor) }
}
