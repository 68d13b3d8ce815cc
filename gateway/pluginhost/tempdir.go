package pluginhost

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const dirName = "rouse-"

// longestBase leaves room for a socket's name, which a kernel cuts at 104 bytes
// or so.
const longestBase = 40

// temporary makes the folder of this process's plugins, and removes those that
// killed ones have left behind.
func temporary(base string) (string, error) {
	if base == "" {
		base = os.TempDir()
	}
	if len(base) > longestBase {
		base = "/tmp"
	}
	sweep(base)
	return os.MkdirTemp(base, prefix())
}

// prefix names the folders of this process.
func prefix() string { return fmt.Sprintf("%s%d-p", dirName, os.Getpid()) }

// sweep removes the folders of this user's processes that are no more.
func sweep(base string) {
	all, err := filepath.Glob(filepath.Join(base, dirName+"*"))
	if err != nil {
		return
	}
	for _, dir := range all {
		number, rest, ok := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirName), "-")
		pid, err := strconv.Atoi(number)
		if !ok || err != nil || !strings.HasPrefix(rest, "p") || pid == os.Getpid() || !ended(pid) {
			continue
		}
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() {
			_ = os.RemoveAll(dir)
		}
	}
}
