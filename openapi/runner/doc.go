// Package runner owns the loop of a runner: it tails the runner's wake stream, claims what it is woken for, hands the
// claim to a handler, heartbeats, acks and releases.
//
// The model. A wake says that an entity has work. A claim is a lease on that entity, with an epoch that only rises; the
// database's clock decides when it ends. The runner learns what is left of it with each answer and counts that down
// itself, from before the request was sent and by the monotonic clock as well as the wall clock (a machine that sleeps
// stops the first one), less a margin. So the handler's context ends, and its writes are refused here, before the lease
// can end there.
//
// It promises that an entity is never worked twice at once by a process, that a heartbeat which fails for whatever
// reason counts as a lease that may be lost, that a runner which cannot reach its gateway takes no new work, that a
// retried append lands once, and that the cursor never passes a wake that is not settled. It promises nothing about what
// a handler does outside of the gateway: that must be idempotent, as a second claim can follow a crash.
//
// It is built on the generated client and must not know the gateway's code.
package runner
