//go:build race

package pools

// crowd is smaller where the race detector makes each step ten times as slow.
const crowd = 250
