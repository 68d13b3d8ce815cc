package sdk

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rouse-run/rouse/plugins/contract"
	authhookv1 "github.com/rouse-run/rouse/plugins/proto/rouse/authhook/v1"
)

// AuthHook says who requests act as, or what principals may do, or both.
type AuthHook struct {
	// Name is for people and metrics; the gateway's configuration has the last
	// word.
	Name    string
	Version string
	// ConfigSchema is a JSON Schema (2020-12) of the settings.
	ConfigSchema json.RawMessage
	// Headers are the fields of a request that Authenticate looks at. Which it is
	// shown, and by which its answers are remembered, the plugin's entry in the
	// plugins file says (headers; Authorization if it says nothing); the gateway
	// logs when one of these is not among them.
	Headers []string

	// Configure takes the settings before anything is asked. An error refuses
	// them; its text is shown to the operator.
	Configure func(ctx context.Context, config json.RawMessage) error
	// Authenticate turns a request into a principal. An error refuses the request
	// as not decidable now (503), as does a verdict that is none.
	Authenticate func(ctx context.Context, r contract.Request) (contract.Decision, error)
	// Authorize says whether a principal may do something. An error refuses it.
	Authorize func(ctx context.Context, q contract.Question) (contract.Ruling, error)
	// Health says whether the hook can work now.
	Health func(ctx context.Context) error
}

type authHookServer struct {
	authhookv1.UnimplementedAuthHookServiceServer
	h   AuthHook
	log *slog.Logger
}

var _ authhookv1.AuthHookServiceServer = (*authHookServer)(nil)

func (s *authHookServer) Describe(context.Context, *authhookv1.DescribeRequest) (*authhookv1.DescribeResponse, error) {
	return &authhookv1.DescribeResponse{Name: s.h.Name, Version: s.h.Version, ConfigSchema: s.h.ConfigSchema, Headers: s.h.Headers,
		Authenticates: s.h.Authenticate != nil, Authorizes: s.h.Authorize != nil}, nil
}

func (s *authHookServer) Configure(ctx context.Context, q *authhookv1.ConfigureRequest) (*authhookv1.ConfigureResponse, error) {
	return &authhookv1.ConfigureResponse{Error: ask(ctx, s.log, "Configure", s.h.Configure, q.Config)}, nil
}

func (s *authHookServer) Authenticate(ctx context.Context, q *authhookv1.AuthenticateRequest) (out *authhookv1.AuthenticateResponse, err error) {
	if s.h.Authenticate == nil {
		return nil, status.Error(codes.Unimplemented, "the hook does not authenticate")
	}
	defer guard(ctx, s.log, "Authenticate", func(e error) { out, err = nil, status.Error(codes.Internal, e.Error()) })
	h := http.Header{}
	for _, f := range q.Headers {
		h[f.GetName()] = f.GetValues()
	}
	d, err := s.h.Authenticate(ctx, contract.Request{Header: h, Certificate: q.Certificate})
	if err != nil {
		return nil, status.Error(codes.Unavailable, text(err))
	}
	out = &authhookv1.AuthenticateResponse{Verdict: verdict(d.Verdict), CacheForMs: max(d.CacheFor, 0).Milliseconds(), Reason: valid(d.Why)}
	if d.Verdict == contract.Allow {
		out.Principal = &authhookv1.Principal{Kind: d.Principal.Kind, Id: d.Principal.ID, Profile: d.Principal.Profile, Attributes: d.Principal.Attributes}
	}
	return out, nil
}

func (s *authHookServer) Authorize(ctx context.Context, q *authhookv1.AuthorizeRequest) (out *authhookv1.AuthorizeResponse, err error) {
	if s.h.Authorize == nil {
		return nil, status.Error(codes.Unimplemented, "the hook does not authorize")
	}
	defer guard(ctx, s.log, "Authorize", func(e error) { out, err = nil, status.Error(codes.Internal, e.Error()) })
	p, r := q.GetPrincipal(), q.GetResource()
	d, err := s.h.Authorize(ctx, contract.Question{Principal: contract.Principal{Kind: p.GetKind(), ID: p.GetId(), Profile: p.GetProfile(), Attributes: p.GetAttributes()}, Verb: q.Verb,
		Resource: contract.Resource{Service: r.GetService(), Kind: r.GetKind(), ID: r.GetId()}, BuiltInAllowed: q.BuiltInAllowed})
	if err != nil {
		return nil, status.Error(codes.Unavailable, text(err))
	}
	return &authhookv1.AuthorizeResponse{Verdict: verdict(d.Verdict), CacheForMs: max(d.CacheFor, 0).Milliseconds(), Reason: valid(d.Why), Revision: valid(d.Revision)}, nil
}

func (s *authHookServer) Health(ctx context.Context, _ *authhookv1.HealthRequest) (*authhookv1.HealthResponse, error) {
	return &authhookv1.HealthResponse{Error: askHealth(ctx, s.log, s.h.Health)}, nil
}

// valid is a text as the wire holds it.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// verdict leaves what is none unspecified, which the gateway refuses.
func verdict(v contract.Verdict) authhookv1.Verdict {
	switch v {
	case contract.NoOpinion:
		return authhookv1.Verdict_VERDICT_NO_OPINION
	case contract.Allow:
		return authhookv1.Verdict_VERDICT_ALLOW
	case contract.Deny:
		return authhookv1.Verdict_VERDICT_DENY
	}
	return authhookv1.Verdict_VERDICT_UNSPECIFIED
}
