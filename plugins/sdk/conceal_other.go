//go:build !linux

package sdk

// conceal does nothing: only Linux can.
func conceal() {}
