// Package observation wakes entities by what happens elsewhere and at certain
// times: it follows the streams they asked to be woken by, reads their
// manifests, carries out schedules, ticks cron streams and keeps membership
// streams.
//
// Everything it waits for is a row with a cursor or a due time, so it promises
// that a crash anywhere loses nothing and delivers nothing twice: what it finds
// is written in the transaction that moves the cursor, and whoever comes second
// finds the cursor moved. Any number of gateways may run it at once. What it
// reads was written by others: no shape of a message stops a cursor. It knows
// the store, and nothing of HTTP, of who may ask, or of how an entity is woken.
package observation
