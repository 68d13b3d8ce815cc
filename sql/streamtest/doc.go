// Package streamtest proves the functions of streams against a real Postgres,
// with times of its own choosing.
//
// It holds tests only. It promises that every outcome of every function is
// reached, that sessions that meet on a row are run through their
// interleavings, that the hot statements keep their plans on a large table, and
// that a model in Go agrees with the functions step by step. It must not be
// imported.
package streamtest
