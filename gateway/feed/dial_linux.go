package feed

import (
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, which the syscall package does not name.
const tcpUserTimeout = 18

// userTimeout makes the kernel give up a TCP connection whose sent data stays
// unacknowledged for d, so that a cut network is noticed by the writer too. A
// kernel that refuses is no reason not to connect.
func userTimeout(d time.Duration) func(network, address string, c syscall.RawConn) error {
	return func(network, _ string, c syscall.RawConn) error {
		if network == "unix" {
			return nil
		}
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds()))
		})
	}
}
