//go:build !linux

package feed

import (
	"syscall"
	"time"
)

// userTimeout has no counterpart here: the read timeout notices a cut network.
func userTimeout(time.Duration) func(network, address string, c syscall.RawConn) error {
	return nil
}
