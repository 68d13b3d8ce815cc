// Package story owns the tests of the main story over the wire: a phone, a laptop and a gateway. A message wakes the
// laptop, which claims, works, acks and releases; the laptop dies in the middle of it and another process goes on with
// a higher epoch. Also the shell command as a handler, which needs a gateway to be tried on.
//
// It must not look into the gateway but through its public surface.
package story
