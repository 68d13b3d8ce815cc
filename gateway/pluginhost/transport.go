package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
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
		// It may have been sent: whether it may be sent again, the transport has said.
		r := contract.Result{Outcome: contract.Retry, Error: CodeOf(err) + ": " + err.Error()}
		if i.desc.atMostOnce {
			r.Outcome = contract.Unknown
		}
		results = make([]contract.Result, len(ds))
		for n := range results {
			results[n] = r
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

// batcher lets deliveries that come while its calls are under way ride together
// in the next one.
type batcher struct {
	mu      sync.Mutex
	waiting []*rider
	calls   int
}

// rider is a delivery that waits: either it gets its result from the call that
// took it along, or it is told to make the next call.
type rider struct {
	d    contract.Delivery
	ctx  context.Context
	done chan contract.Result
	lead chan struct{}
}

// deliver makes one call at most, with whoever waits by then: however many keep
// coming, a delivery's result is told when it is there, and a process that has
// been replaced is let go.
func (b *batcher) deliver(ctx context.Context, t *Transport, c *child, i *instance, d contract.Delivery) contract.Result {
	r := &rider{d: d, ctx: ctx, done: make(chan contract.Result, 1), lead: make(chan struct{})}
	b.mu.Lock()
	if b.calls < batchCalls {
		b.calls++
		b.mu.Unlock()
	} else {
		b.waiting = append(b.waiting, r)
		b.mu.Unlock()
		select {
		case res := <-r.done:
			return res
		case <-r.lead:
		}
	}
	batch := b.board(r, i.desc.maxBatch)
	ds := make([]contract.Delivery, len(batch))
	for k, other := range batch {
		ds[k] = other.d
	}
	// All have the same limit but for the moment they came: the last one's is
	// nobody's loss. They have the caller's process, which counts its call.
	results := t.call(batch[len(batch)-1].ctx, c, i, ds)
	for k, other := range batch[1:] {
		other.done <- results[k+1]
	}
	b.handOn()
	return results[0]
}

// board takes along as many of those that wait as one call holds.
func (b *batcher) board(r *rider, most int) []*rider {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch, size := []*rider{r}, r.size()
	for len(b.waiting) > 0 && len(batch) < most {
		if size += b.waiting[0].size(); size > tooLarge {
			break
		}
		batch = append(batch, b.waiting[0])
		b.waiting = b.waiting[1:]
	}
	return batch
}

func (r *rider) size() int { return len(r.d.Notification) + len(r.d.Target) + 1<<10 }

// handOn lets the first of those that wait make the next call.
func (b *batcher) handOn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.calls--
		return
	}
	close(b.waiting[0].lead)
	b.waiting = b.waiting[1:]
}
