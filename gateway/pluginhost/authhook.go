package pluginhost

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/rouse-run/rouse/plugins/contract"
	authhookv1 "github.com/rouse-run/rouse/plugins/proto/rouse/authhook/v1"
)

// AuthHook is an auth plugin as the gateway sees it. Whatever goes wrong is an
// error, which refuses the request.
type AuthHook struct {
	*slot
	headers []string
}

var (
	_ contract.AuthHook     = (*AuthHook)(nil)
	_ contract.HeaderReader = (*AuthHook)(nil)
	_ contract.Authorizer   = (*AuthHook)(nil)
)

// Name implements contract.AuthHook.
func (h *AuthHook) Name() string { return h.name }

// Headers implements contract.HeaderReader: what the configuration showed the
// plugin at the start, by default the credentials' usual place.
func (h *AuthHook) Headers() []string { return h.headers }

// Generation tells the plugin's configurations apart: what was answered under
// another one is not to be remembered.
func (h *AuthHook) Generation() uint64 { return h.generation.Load() }

// Does tells what the plugin says that it does; known: it has come up and said so,
// or it is no more.
func (h *AuthHook) Does() (authenticates, authorizes, known bool) {
	c := h.get()
	if c == nil {
		return false, false, true
	}
	d, up := c.describe()
	return d.authenticates, d.authorizes, up
}

// longestCache bounds what a plugin may ask for.
const longestCache = 24 * time.Hour

var verdicts = map[authhookv1.Verdict]contract.Verdict{
	authhookv1.Verdict_VERDICT_NO_OPINION: contract.NoOpinion, authhookv1.Verdict_VERDICT_ALLOW: contract.Allow, authhookv1.Verdict_VERDICT_DENY: contract.Deny,
}

var errVerdict = errorf(CodeRubbish, "the plugin answered without a verdict")

// ask makes one call of a running instance.
func (h *AuthHook) ask(ctx context.Context, call string, f func(context.Context, *instance) error) error {
	ctx, cancel := context.WithTimeout(ctx, h.timeout(hookTimeout))
	defer cancel()
	c, i, err := h.take(ctx)
	if err != nil {
		return err
	}
	defer c.give()
	began := time.Now()
	err = f(ctx, i)
	if err != nil && CodeOf(err) == "" {
		e := rpcError(err)
		if e.Code == CodeTimeout {
			c.doubt()
		}
		err = e
	}
	h.deps.metrics.called(h.name, call, began, err)
	return err
}

// Authenticate implements contract.AuthHook.
func (h *AuthHook) Authenticate(ctx context.Context, r contract.Request) (contract.Decision, error) {
	q := &authhookv1.AuthenticateRequest{Certificate: r.Certificate, Headers: make([]*authhookv1.Header, 0, len(r.Header))}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		q.Headers = append(q.Headers, &authhookv1.Header{Name: name, Values: r.Header[name]})
	}
	var d contract.Decision
	err := h.ask(ctx, "authenticate", func(ctx context.Context, i *instance) error {
		if !i.desc.authenticates {
			return errorf(CodeDescription, "the plugin does not authenticate")
		}
		a, err := i.hook.Authenticate(ctx, q)
		if err != nil {
			return err
		}
		verdict, ok := verdicts[a.Verdict]
		if !ok || verdict == contract.Allow && a.Principal == nil {
			return errVerdict
		}
		d = contract.Decision{Verdict: verdict, CacheFor: cacheFor(a.CacheForMs), Why: clip(a.Reason)}
		if verdict == contract.Allow {
			d.Principal = contract.Principal{Kind: a.Principal.Kind, ID: a.Principal.Id, Profile: a.Principal.Profile, Attributes: a.Principal.Attributes}
		}
		return nil
	})
	if err != nil {
		return contract.Decision{Verdict: contract.Deny}, err
	}
	return d, nil
}

// Authorize implements contract.Authorizer.
func (h *AuthHook) Authorize(ctx context.Context, q contract.Question) (contract.Ruling, error) {
	var d contract.Ruling
	err := h.ask(ctx, "authorize", func(ctx context.Context, i *instance) error {
		if !i.desc.authorizes {
			return errorf(CodeDescription, "the plugin does not authorize")
		}
		a, err := i.hook.Authorize(ctx, &authhookv1.AuthorizeRequest{
			Principal: &authhookv1.Principal{Kind: q.Principal.Kind, Id: q.Principal.ID, Profile: q.Principal.Profile, Attributes: q.Principal.Attributes}, Verb: q.Verb,
			Resource:       &authhookv1.Resource{Service: q.Resource.Service, Kind: q.Resource.Kind, Id: q.Resource.ID},
			BuiltInAllowed: q.BuiltInAllowed})
		if err != nil {
			return err
		}
		verdict, ok := verdicts[a.Verdict]
		if !ok {
			return errVerdict
		}
		d = contract.Ruling{Verdict: verdict, CacheFor: cacheFor(a.CacheForMs), Why: clip(a.Reason), Revision: clip(a.Revision)}
		return nil
	})
	if err != nil {
		return contract.Ruling{Verdict: contract.Deny}, err
	}
	return d, nil
}

func cacheFor(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), longestCache.Milliseconds())) * time.Millisecond
}
