// Package authhookv1 is the generated Go of the contract in authhook.proto beside it,
// which says what it promises. Nothing in it is written by hand but this.
package authhookv1
