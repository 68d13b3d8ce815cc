// Package contract holds the Go interfaces of everything that can be plugged
// into a gateway: notification transports and auth hooks.
//
// Built-ins implement them in process; the plugin host adapts processes to
// them. It imports the standard library only, so that an author's build stays
// small.
package contract

import (
	"context"
	"encoding/json"
	"time"
)

// Delivery is one wake on its way to a target.
type Delivery struct {
	WakeID  string
	Service string
	// Attempt counts from 1.
	Attempt int
	// Target is the dispatch target as stored in the policy.
	Target json.RawMessage
	// Notification is the WakeNotification as the receiver reads it, callback
	// and claim token included. It is never logged or stored.
	Notification json.RawMessage
	// Signature is the value of Webhook-Signature over exactly the bytes of
	// Notification, for transports in a process of their own that ask for one; the
	// keys stay with the gateway.
	Signature string
}

// Outcome is what became of a delivery.
type Outcome string

// The outcomes.
const (
	// Accepted: the receiver has it and will call back.
	Accepted Outcome = "accepted"
	// Done: the receiver finished the work in its answer.
	Done Outcome = "done"
	// Retry: try again later.
	Retry Outcome = "retry"
	// Permanent: this target will never take this wake.
	Permanent Outcome = "permanent"
	// Unknown: the send may or may not have arrived.
	Unknown Outcome = "unknown"
)

// Result answers one delivery.
type Result struct {
	Outcome    Outcome
	RetryAfter time.Duration // zero: the caller's own schedule; NoRepeat: never
	StatusCode int           // of the receiver, when it has one
	Error      string        // short, without secrets
}

// NoRepeat as RetryAfter of an accepted delivery says that the wake is not to be
// sent again by itself, even if nobody calls back.
const NoRepeat = -time.Millisecond

// AtMostOnce is a Transport whose receivers may not be able to tell a wake that
// is sent twice from two wakes. Then one whose outcome is not known is not sent
// again by itself.
type AtMostOnce interface {
	// AtMostOnce says so; an error says that it is not known now.
	AtMostOnce(ctx context.Context) (bool, error)
}

// Transport carries wakes to targets of one type.
type Transport interface {
	// Type is the dispatch target's "type" that this transport serves.
	Type() string
	// ValidateTarget refuses a target when a policy is stored. The error's text
	// is shown to the caller.
	ValidateTarget(ctx context.Context, target json.RawMessage) error
	// Deliver sends one wake and answers before ctx ends.
	Deliver(ctx context.Context, d Delivery) Result
}
