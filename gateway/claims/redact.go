package claims

import (
	"fmt"
	"log/slog"
)

// Whatever holds a token prints without it, so that no log, error or panic can
// carry one.

// String hides the ring.
func (Tokens) String() string { return "tokens" }

// GoString is String.
func (t Tokens) GoString() string { return t.String() }

// String hides the ring.
func (*Service) String() string { return "claims service" }

// GoString is String.
func (s *Service) GoString() string { return s.String() }

// String names the grant without its tokens.
func (g Grant) String() string {
	return fmt.Sprintf("grant(%s epoch %d, wake %s, lease %s)", g.ConsumerID, g.Epoch, g.WakeID, g.Lease)
}

// GoString is String.
func (g Grant) GoString() string { return g.String() }

// LogValue is String, for slog.
func (g Grant) LogValue() slog.Value { return slog.StringValue(g.String()) }

// String names the request without its token.
func (r AcquireRequest) String() string {
	return fmt.Sprintf("acquire(service %d, consumer %q, wake %q, path %q, epoch %d, holder %q, runner %q, token %t)",
		r.Service, r.Consumer, r.Wake, r.Path, r.Epoch, r.Holder, r.Runner, r.Token != "")
}

// GoString is String.
func (r AcquireRequest) GoString() string { return r.String() }

// LogValue is String, for slog.
func (r AcquireRequest) LogValue() slog.Value { return slog.StringValue(r.String()) }

// String names the request without its token.
func (r HoldRequest) String() string {
	return fmt.Sprintf("hold(service %d, consumer %q, wake %q, epoch %d, token %t)", r.Service, r.Consumer, r.Wake, r.Epoch, r.Token != "")
}

// GoString is String.
func (r HoldRequest) GoString() string { return r.String() }

// LogValue is String, for slog.
func (r HoldRequest) LogValue() slog.Value { return slog.StringValue(r.String()) }
