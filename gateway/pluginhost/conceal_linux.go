package pluginhost

import (
	"os"

	"golang.org/x/sys/unix"
)

// Conceal keeps what this process holds, its environment and its memory, from the
// other processes of its user: from plugins, which run as it does. It does not keep
// it from root. No core is dumped any more, and only root can attach a debugger.
func Conceal() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}
