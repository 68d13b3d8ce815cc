package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/plugins/contract"
	transportv1 "github.com/rouse-run/rouse/plugins/proto/rouse/transport/v1"
	"github.com/rouse-run/rouse/plugins/wire"
)

const (
	// maxBatch bounds the deliveries of one call, whatever a plugin wants.
	maxBatch = 256
	// batchCalls is how many calls with several deliveries each are under way at
	// once; what comes meanwhile rides in the next one.
	batchCalls = 4
	// tooLarge is the notification that no call can hold.
	tooLarge = wire.MaxMessage - 64<<10
	// maxRetryAfter bounds what a plugin may ask for.
	maxRetryAfter = time.Hour
)

// Transport is a transport plugin as the gateway sees it: the same value, while
// processes come and go and configurations change.
type Transport struct {
	*slot
	batch batcher
}

var (
	_ contract.Transport  = (*Transport)(nil)
	_ contract.AtMostOnce = (*Transport)(nil)
)

// Type implements contract.Transport: the name in the configuration.
func (t *Transport) Type() string { return t.name }

// AtMostOnce implements contract.AtMostOnce: as the plugin says.
func (t *Transport) AtMostOnce(ctx context.Context) (bool, error) {
	c, i, err := t.take(ctx)
	if err != nil {
		return false, err
	}
	defer c.give()
	return i.desc.atMostOnce, nil
}

// ValidateTarget implements contract.Transport: the plugin's schema, then the
// plugin. A plugin that cannot be asked is PLUGIN_UNAVAILABLE, not a refusal.
func (t *Transport) ValidateTarget(ctx context.Context, target json.RawMessage) error {
	ctx, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	c, i, err := t.take(ctx)
	if err != nil {
		return unavailable(err)
	}
	defer c.give()
	if err := i.desc.targets.check(target); err != nil {
		return err
	}
	began := time.Now()
	answer, err := i.transport.ValidateTarget(ctx, &transportv1.ValidateTargetRequest{Target: target})
	if err != nil {
		e := rpcError(err)
		t.deps.metrics.called(t.name, "validate_target", began, e)
		c.doubt()
		return unavailable(e)
	}
	t.deps.metrics.called(t.name, "validate_target", began, nil)
	if answer.Error != "" {
		return errors.New(clip(answer.Error))
	}
	return nil
}

func unavailable(err error) error {
	p := problem.Wrap(problem.PluginUnavailable, err, "The transport of this type of target cannot be asked now. Try again.")
	if code := CodeOf(err); code != "" {
		p = p.WithMeta("plugin_code", code)
	}
	return p
}

// Deliver implements contract.Transport.
func (t *Transport) Deliver(ctx context.Context, d contract.Delivery) contract.Result {
	limit := t.timeout(deliverTimeout)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, i, err := t.take(ctx)
	if err != nil {
		// Nothing has been sent, so nothing is uncertain.
		// Who reads the attempt is no operator: why is in the plugin's state.
		return contract.Result{Outcome: contract.Retry, RetryAfter: time.Second, Error: CodeOf(err) + ": the transport is not available"}
	}
	defer c.give()
	if len(d.Notification)+len(d.Target) > tooLarge {
		return contract.Result{Outcome: contract.Permanent, Error: CodeTooLarge + ": the notification is greater than a plugin takes"}
	}
	if i.desc.signed && t.deps.signer != nil && d.Signature == "" {
		d.Signature = t.deps.signer.Sign(d.Notification, t.deps.now())
	}
	if i.desc.maxBatch > 1 {
		return t.batch.deliver(ctx, t, c, i, d)
	}
	return t.call(ctx, c, i, []contract.Delivery{d})[0]
}

// call sends some deliveries in one call and answers each of them.
func (t *Transport) call(ctx context.Context, c *child, i *instance, ds []contract.Delivery) []contract.Result {
	q := &transportv1.DeliverBatchRequest{Deliveries: make([]*transportv1.Delivery, len(ds))}
	for n, d := range ds {
		q.Deliveries[n] = &transportv1.Delivery{WakeId: d.WakeID, Service: d.Service, Attempt: int32(d.Attempt), Target: d.Target,
			Notification: d.Notification, Signature: d.Signature}
	}
	began := time.Now()
	answer, err := i.transport.DeliverBatch(ctx, q)
	var results []contract.Result
	if err != nil {
		err = rpcError(err)
		c.doubt()
	} else if results, err = read(ds, answer); err != nil {
		c.deps.log.Warn("a plugin's answer is none", "plugin", t.name, "code", CodeRubbish, "err", err)
	}
	t.deps.metrics.called(t.name, "deliver", began, err)
	if err != nil {
		results = make([]contract.Result, len(ds))
		for n := range results {
			results[n] = i.uncertain(err)
		}
	}
	if i.desc.atMostOnce {
		for n := range results {
			if results[n].Outcome == contract.Accepted {
				results[n].RetryAfter = contract.NoRepeat
			}
		}
	}
	return results
}

// uncertain is the result of what may have been sent: whether it may be sent again,
// the transport has said.
func (i *instance) uncertain(err error) contract.Result {
	r := contract.Result{Outcome: contract.Retry, Error: CodeOf(err) + ": " + err.Error()}
	if i.desc.atMostOnce {
		r.Outcome = contract.Unknown
	}
	return r
}

var outcomes = map[transportv1.Outcome]contract.Outcome{
	transportv1.Outcome_OUTCOME_ACCEPTED: contract.Accepted, transportv1.Outcome_OUTCOME_DONE: contract.Done,
	transportv1.Outcome_OUTCOME_RETRY: contract.Retry, transportv1.Outcome_OUTCOME_PERMANENT: contract.Permanent,
	transportv1.Outcome_OUTCOME_UNKNOWN: contract.Unknown,
}

// read gives the results in the order of the deliveries: one for each, none
// twice, with an outcome that is one.
func read(ds []contract.Delivery, answer *transportv1.DeliverBatchResponse) ([]contract.Result, error) {
	if len(answer.Results) != len(ds) {
		return nil, errorf(CodeRubbish, "the plugin answered %d of %d deliveries", len(answer.Results), len(ds))
	}
	at := make(map[string]int, len(ds))
	for n, d := range ds {
		at[d.WakeID] = n
	}
	out := make([]contract.Result, len(ds))
	for _, r := range answer.Results {
		n, ok := at[r.GetWakeId()]
		outcome := outcomes[r.GetOutcome()]
		if !ok || outcome == "" {
			return nil, errorf(CodeRubbish, "the plugin answered a wake that is not its, twice, or without an outcome")
		}
		delete(at, r.WakeId)
		out[n] = contract.Result{Outcome: outcome, RetryAfter: min(max(time.Duration(min(r.RetryAfterMs, int64(maxRetryAfter/time.Millisecond)))*time.Millisecond, 0), maxRetryAfter),
			StatusCode: int(min(max(r.StatusCode, 0), 999)), Error: clip(r.Error)}
	}
	return out, nil
}
