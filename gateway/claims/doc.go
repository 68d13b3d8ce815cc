// Package claims owns the secrets and the calls of the consumer mutex: the key
// ring, the claim, hold and write tokens made from it, and acquire, heartbeat,
// ack and release, group-committed.
//
// It promises that a token is stored nowhere (it is recomputed from the key
// ring and immutable ids), that calls which arrive together ride in one
// transaction, and that a refusal carries the code its route's wire expects.
// It knows nothing of HTTP, and it never decides who holds a mutex: Postgres
// does (rouse.claim_apply).
package claims
