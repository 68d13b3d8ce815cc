package sdk

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rouse-run/rouse/plugins/contract"
	transportv1 "github.com/rouse-run/rouse/plugins/proto/rouse/transport/v1"
)

// Transport is a notification transport. Only Type and Deliver are needed.
type Transport struct {
	// Type is the usual "type" of the targets it serves; the gateway's
	// configuration has the last word.
	Type    string
	Version string
	// TargetSchema is a JSON Schema (2020-12) of a target, which has a "type"
	// beside what the transport needs. Give it one "examples" entry: the
	// conformance kit sends there.
	TargetSchema json.RawMessage
	// ConfigSchema is a JSON Schema of the settings.
	ConfigSchema json.RawMessage
	// AtMostOnce says that a receiver cannot tell a wake that is sent twice from
	// two wakes. Then one whose outcome is not known is left to a person.
	AtMostOnce bool
	// Signed asks for contract.Delivery.Signature.
	Signed bool
	// MaxBatch lets the gateway hand over several deliveries at once, each of
	// which is a call of Deliver, at the same time. Zero means one.
	MaxBatch int

	// Configure takes the settings before anything is delivered. An error refuses
	// them; its text is shown to the operator.
	Configure func(ctx context.Context, config json.RawMessage) error
	// ValidateTarget looks at what the schema cannot say. The error's text is shown
	// to the caller, as the end of a sentence.
	ValidateTarget func(ctx context.Context, target json.RawMessage) error
	// Deliver sends one wake and answers when ctx ends, at the latest; that is some
	// moments before the gateway gives the call up. Several run at once.
	Deliver func(ctx context.Context, d contract.Delivery) contract.Result
	// Health says whether the transport can work now.
	Health func(ctx context.Context) error
	// Close frees what the transport holds, where it runs in the gateway's own
	// process; a process of its own just ends.
	Close func()
}

type transportServer struct {
	transportv1.UnimplementedTransportServiceServer
	t   Transport
	log *slog.Logger
}

var _ transportv1.TransportServiceServer = (*transportServer)(nil)

func (s *transportServer) Describe(context.Context, *transportv1.DescribeRequest) (*transportv1.DescribeResponse, error) {
	return &transportv1.DescribeResponse{Type: s.t.Type, Version: s.t.Version, TargetSchema: s.t.TargetSchema, ConfigSchema: s.t.ConfigSchema,
		Capabilities: &transportv1.Capabilities{AtMostOnce: s.t.AtMostOnce, Signed: s.t.Signed, MaxBatch: int32(s.t.MaxBatch)}}, nil
}

func (s *transportServer) Configure(ctx context.Context, q *transportv1.ConfigureRequest) (*transportv1.ConfigureResponse, error) {
	return &transportv1.ConfigureResponse{Error: ask(ctx, s.log, "Configure", s.t.Configure, q.Config)}, nil
}

func (s *transportServer) ValidateTarget(ctx context.Context, q *transportv1.ValidateTargetRequest) (*transportv1.ValidateTargetResponse, error) {
	if !json.Valid(q.Target) {
		return &transportv1.ValidateTargetResponse{Error: "the target is not JSON"}, nil
	}
	return &transportv1.ValidateTargetResponse{Error: ask(ctx, s.log, "ValidateTarget", s.t.ValidateTarget, q.Target)}, nil
}

func (s *transportServer) DeliverBatch(ctx context.Context, q *transportv1.DeliverBatchRequest) (*transportv1.DeliverBatchResponse, error) {
	out := &transportv1.DeliverBatchResponse{Results: make([]*transportv1.Result, len(q.Deliveries))}
	var wg sync.WaitGroup
	for i, d := range q.Deliveries {
		if d == nil {
			return nil, status.Error(codes.InvalidArgument, "a delivery is empty")
		}
		wg.Go(func() { out.Results[i] = s.deliver(ctx, d) })
	}
	wg.Wait()
	return out, nil
}

func (s *transportServer) deliver(ctx context.Context, d *transportv1.Delivery) (out *transportv1.Result) {
	out = &transportv1.Result{WakeId: d.WakeId}
	defer guard(ctx, s.log, "Deliver", func(err error) {
		out.Outcome, out.Error = transportv1.Outcome_OUTCOME_RETRY, err.Error()
		if s.t.AtMostOnce {
			out.Outcome = transportv1.Outcome_OUTCOME_UNKNOWN
		}
	})
	if !json.Valid(d.Target) || !json.Valid(d.Notification) {
		out.Outcome, out.Error = transportv1.Outcome_OUTCOME_PERMANENT, "the target or the notification is not JSON"
		return out
	}
	ctx, cancel := within(ctx)
	defer cancel()
	r := s.t.Deliver(ctx, contract.Delivery{WakeID: d.WakeId, Service: d.Service, Attempt: int(d.Attempt), Target: d.Target,
		Notification: d.Notification, Signature: d.Signature})
	out.Outcome = outcomes[r.Outcome]
	out.RetryAfterMs, out.StatusCode, out.Error = millis(r.RetryAfter), int32(r.StatusCode), r.Error
	return out
}

var outcomes = map[contract.Outcome]transportv1.Outcome{
	contract.Accepted: transportv1.Outcome_OUTCOME_ACCEPTED, contract.Done: transportv1.Outcome_OUTCOME_DONE,
	contract.Retry: transportv1.Outcome_OUTCOME_RETRY, contract.Permanent: transportv1.Outcome_OUTCOME_PERMANENT,
	contract.Unknown: transportv1.Outcome_OUTCOME_UNKNOWN,
}

func (s *transportServer) Health(ctx context.Context, _ *transportv1.HealthRequest) (*transportv1.HealthResponse, error) {
	return &transportv1.HealthResponse{Error: askHealth(ctx, s.log, s.t.Health)}, nil
}

// ask calls an optional function that refuses with an error.
func ask(ctx context.Context, log *slog.Logger, call string, f func(context.Context, json.RawMessage) error, in []byte) (why string) {
	defer guard(ctx, log, call, func(err error) { why = err.Error() })
	if f == nil {
		return ""
	}
	if err := f(ctx, in); err != nil {
		return text(err)
	}
	return ""
}

func askHealth(ctx context.Context, log *slog.Logger, f func(context.Context) error) (why string) {
	defer guard(ctx, log, "Health", func(err error) { why = err.Error() })
	if f == nil {
		return ""
	}
	if err := f(ctx); err != nil {
		return text(err)
	}
	return ""
}

// text is an error's, never empty: that would be consent.
func text(err error) string {
	if s := err.Error(); s != "" {
		return s
	}
	return "an error without a text"
}

// within leaves a tenth of the time, at most lastWord, for the answer's way to
// the gateway: that a receiver did not answer in time is the transport's to say,
// and no sign that the plugin hangs.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, end.Add(-min(time.Until(end)/10, lastWord)))
}

const lastWord = 250 * time.Millisecond

// millis rounds up, so that nothing positive becomes "never".
func millis(d time.Duration) int64 {
	return int64((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}
