package pluginhost

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// keep copies a program to sealed memory and to h. It is executed from there,
// so what happens to the file afterwards, even to its bytes in place, has no
// effect.
func keep(file *os.File, path string, h io.Writer) (*image, error) {
	fd, err := unix.MemfdCreate("rouse-plugin", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if err == unix.EINVAL { // a kernel that knows no other kind than executable
		fd, err = unix.MemfdCreate("rouse-plugin", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	mem := os.NewFile(uintptr(fd), "rouse-plugin")
	if _, err := io.Copy(io.MultiWriter(mem, h), file); err != nil {
		_ = mem.Close()
		return nil, err
	}
	if _, err := unix.FcntlInt(mem.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		_ = mem.Close()
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &image{file: mem, path: fmt.Sprintf("/proc/self/fd/%d", mem.Fd()), name: path}, nil
}

// self is this binary, also after its file has been replaced by a newer one.
func self() (*image, error) { return &image{path: "/proc/self/exe", name: "rouse"}, nil }
