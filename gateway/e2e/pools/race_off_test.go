//go:build !race

package pools

const crowd = 1000
