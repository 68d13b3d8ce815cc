package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// hearHangups lets the commands that are started from now on get SIGHUP, until
// restore. Under nohup it is ignored, and what is started inherits that: no
// shell could trap the SIGHUP that its entity gets. Caught here, and then let
// go, it does not end this process either.
func hearHangups() (restore func()) {
	if !signal.Ignored(syscall.SIGHUP) {
		return func() {}
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return func() { signal.Ignore(syscall.SIGHUP) }
}
