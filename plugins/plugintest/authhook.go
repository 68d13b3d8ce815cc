package plugintest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	authhookv1 "github.com/rouse-run/rouse/plugins/proto/rouse/authhook/v1"
)

var hookCases = []testCase{
	{"nobody is let in without credentials", withoutCredentials},
	{"nobody is let in with rubbish", withRubbish},
	{"several questions at once are answered", manyQuestions},
	{"a message that is too great is refused and leaves it well", greatQuestion},
	{"a principal is authorized, refused or neither", authorizes},
}

// withHook runs a case on a hook of its own, which must be well afterwards.
func (k *kit) withHook(ctx context.Context, needs func(*authhookv1.DescribeResponse) bool, f func(*running) error) (string, error) {
	p, err := k.start(ctx, k.opts.Config)
	if err != nil {
		return "", err
	}
	defer p.end()
	if !needs(p.hookDesc) {
		return "it does not say that it does", nil
	}
	if err := f(p); err != nil {
		return "", fmt.Errorf("%w%s", err, p.said())
	}
	return "", p.healthy(ctx)
}

func authenticates(d *authhookv1.DescribeResponse) bool { return d.Authenticates }

// ask authenticates; an RPC status other than OK is a refusal, unless the
// process is gone.
func (p *running) ask(ctx context.Context, headers ...*authhookv1.Header) (authhookv1.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	a, err := p.hook.Authenticate(ctx, &authhookv1.AuthenticateRequest{Headers: headers})
	switch status.Code(err) {
	case codes.OK:
	case codes.DeadlineExceeded, codes.Unimplemented:
		return 0, broken("Authenticate", err)
	default:
		if herr := p.healthy(ctx); herr != nil {
			return 0, herr
		}
		return authhookv1.Verdict_VERDICT_DENY, nil
	}
	if a.Verdict == authhookv1.Verdict_VERDICT_UNSPECIFIED || authhookv1.Verdict_name[int32(a.Verdict)] == "" {
		return 0, errors.New("it answers without a verdict")
	}
	return a.Verdict, nil
}

func withoutCredentials(ctx context.Context, k *kit) (string, error) {
	return k.withHook(ctx, authenticates, func(p *running) error {
		for _, h := range [][]*authhookv1.Header{nil, {{Name: "Accept", Values: []string{"*/*"}}}, {{Name: "Authorization"}}, {{Name: "Authorization", Values: []string{""}}}} {
			v, err := p.ask(ctx, h...)
			if err != nil {
				return err
			}
			if v == authhookv1.Verdict_VERDICT_ALLOW {
				return fmt.Errorf("it lets in a request with the headers %v", h)
			}
		}
		return nil
	})
}

func withRubbish(ctx context.Context, k *kit) (string, error) {
	return k.withHook(ctx, authenticates, func(p *running) error {
		for _, value := range []string{"Bearer", "Bearer x", "Basic !!", strings.Repeat("A", 60_000), "Bearer eyJhbGciOiJub25lIn0.e30.", "\x00\x7f", "Bearer \u202e"} {
			v, err := p.ask(ctx, &authhookv1.Header{Name: "Authorization", Values: []string{value, value}})
			if err != nil {
				return err
			}
			if v == authhookv1.Verdict_VERDICT_ALLOW {
				return fmt.Errorf("it lets in a request with the credentials %.40q", value)
			}
		}
		return nil
	})
}

func manyQuestions(ctx context.Context, k *kit) (string, error) {
	return k.withHook(ctx, authenticates, func(p *running) error {
		const n = 32
		errs := make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				_, errs[i] = p.ask(ctx, &authhookv1.Header{Name: "Authorization", Values: []string{fmt.Sprintf("Bearer conformance-%d", i)}})
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	})
}

func greatQuestion(ctx context.Context, k *kit) (string, error) {
	return k.withHook(ctx, func(*authhookv1.DescribeResponse) bool { return true }, func(p *running) error {
		cctx, cancel := context.WithTimeout(ctx, p.timeout)
		defer cancel()
		_, err := p.hook.Authenticate(cctx, &authhookv1.AuthenticateRequest{Headers: []*authhookv1.Header{{Name: "Authorization", Values: []string{strings.Repeat("x", 5<<20)}}}})
		if status.Code(err) != codes.ResourceExhausted {
			return fmt.Errorf("it takes 5 MiB: %v", err)
		}
		return nil
	})
}

func authorizes(ctx context.Context, k *kit) (string, error) {
	return k.withHook(ctx, func(d *authhookv1.DescribeResponse) bool { return d.Authorizes }, func(p *running) error {
		for _, q := range []*authhookv1.AuthorizeRequest{
			{},
			{Principal: &authhookv1.Principal{Kind: "user", Id: "conformance"}, Verb: "read", Resource: &authhookv1.Resource{Service: "default", Kind: "entity", Id: "/a/b"}, BuiltInAllowed: true},
			{Principal: &authhookv1.Principal{Kind: "user", Id: "conformance"}, Verb: "no such verb", Resource: &authhookv1.Resource{Kind: "no such kind"}},
		} {
			cctx, cancel := context.WithTimeout(ctx, p.timeout)
			a, err := p.hook.Authorize(cctx, q)
			cancel()
			switch {
			case status.Code(err) == codes.DeadlineExceeded || status.Code(err) == codes.Unimplemented:
				return broken("Authorize", err)
			case err == nil && (a.Verdict == authhookv1.Verdict_VERDICT_UNSPECIFIED || authhookv1.Verdict_name[int32(a.Verdict)] == ""):
				return errors.New("it answers without a verdict")
			case err == nil && q.Principal == nil && a.Verdict == authhookv1.Verdict_VERDICT_ALLOW:
				return errors.New("it allows nobody in particular")
			}
		}
		return nil
	})
}
