// Package mutextest proves the functions of the consumer mutex, its wakes and
// its dispatch state against a real Postgres, with times of its own choosing.
//
// It holds tests only. It promises that every outcome of every function is
// reached and read back from the tables, that pairs of sessions are run through
// their interleavings, and that a model in Go agrees with the functions step by
// step. It must not be imported.
package mutextest
