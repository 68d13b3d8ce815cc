// Package dispatch makes sure that whoever owns an entity is told of its work:
// the wake router, the recovery scan, the lease reaper, the delivery worker and
// the janitor.
//
// It promises latency from the log (the router) and certainty from the tables
// (scan and reaper): with every signal lost, everything still runs within a
// scan period; with every signal doubled, nothing runs twice, because each
// decision is made in Postgres under the consumer's row lock. Every loop is
// correct when several gateways run it. It knows the store, the feed and the
// Transport interface, and nothing of HTTP routes. It has nothing to do with
// entities that observe other entities.
package dispatch
