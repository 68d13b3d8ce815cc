// Package transportv1 is the generated Go of the contract in transport.proto beside it,
// which says what it promises. Nothing in it is written by hand but this.
package transportv1
