//go:build !race

package streams_test

const overhead = 1
