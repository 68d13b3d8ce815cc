//go:build !linux

package pluginhost

import (
	"io"
	"os"
)

// keep copies a program to a file of this process's own and to h: without
// memory that can be sealed, its folder is what keeps others away.
func keep(file *os.File, path string, h io.Writer) (*image, error) {
	own, err := os.CreateTemp("", "rouse-plugin-*")
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.MultiWriter(own, h), file)
	if err == nil {
		err = own.Chmod(0o500)
	}
	if closeErr := own.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = os.Remove(own.Name())
		return nil, err
	}
	return &image{path: own.Name(), name: path, copied: true}, nil
}

// self is this binary.
func self() (*image, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &image{path: path, name: "rouse"}, nil
}
