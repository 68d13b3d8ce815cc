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
	"net/http"
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
	RetryAfter time.Duration // zero: the caller's own schedule
	StatusCode int           // of the receiver, when it has one
	Error      string        // short, without secrets
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

// Principal is who a request acts as.
type Principal struct {
	// Kind is user, agent, service or system.
	Kind string
	ID   string
	// Profile is kept on the users row: display_name, email, avatar_url.
	Profile map[string]string
}

// Key is the principal's short form, kind:id.
func (p Principal) Key() string { return p.Kind + ":" + p.ID }

// Verdict is an auth hook's answer.
type Verdict int

// The verdicts.
const (
	// NoOpinion passes the request to the next hook.
	NoOpinion Verdict = iota
	// Allow names the principal.
	Allow
	// Deny refuses the credentials.
	Deny
)

// AuthHook turns a request into a principal.
type AuthHook interface {
	// Name is used in logs and metrics.
	Name() string
	// Authenticate answers before ctx ends. An error denies with 503.
	Authenticate(ctx context.Context, h http.Header) (Principal, Verdict, error)
}
