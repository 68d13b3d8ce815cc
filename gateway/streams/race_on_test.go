//go:build race

package streams_test

// overhead is how much larger the race detector makes everything.
const overhead = 2
