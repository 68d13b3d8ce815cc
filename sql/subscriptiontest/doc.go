// Package subscriptiontest proves the functions of subscriptions against a real
// Postgres, with times of its own choosing.
//
// It holds tests only. It promises that every outcome of every function is
// reached, that patterns match what a second implementation says, that no
// stream falls between those that existed and those that are made, that marks
// and cursors survive every interleaving of sessions, and that the statements
// keep their plans on large tables. It must not be imported.
package subscriptiontest
