//go:build !linux

package pluginhost

// Conceal does nothing: only Linux can.
func Conceal() error { return nil }
