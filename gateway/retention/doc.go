// Package retention owns the clean-up of what nobody has to keep: entries of
// wake streams, messages beyond the limits of their streams, and rows that tell
// of claims, wakes, deliveries, administration and producers long over.
//
// It promises that no step holds a lock for longer than one small batch, that
// between two steps the database has rest for five times as long as the step took,
// that several gateways share the work instead of doubling it, and that a fault
// costs nothing but a later clean-up. What may go is decided in the database,
// under the locks of those it concerns; this package only says how old is old.
// It knows nothing of HTTP, of principals, or of how anything is written.
package retention
