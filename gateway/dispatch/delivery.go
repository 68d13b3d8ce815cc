package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/pace"
	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/plugins/contract"
)

// DeliveryDatabase is what the delivery worker needs of the store.
type DeliveryDatabase interface {
	DeliveryLend(ctx context.Context, limit, each int, room map[string]int) (due []store.DueDelivery, more bool, err error)
	DeliveryUncertain(ctx context.Context, d store.DueDelivery) (bool, error)
	DeliveryResult(ctx context.Context, d store.DueDelivery, outcome string, retryAfter time.Duration, status int, errText string) (string, error)
}

// Notifier completes a notification with what is stored nowhere.
type Notifier interface {
	ClaimToken(service int32, epoch int64, wake string) string
	Callback(service, wakeID string) string
	SubscriptionCallback(service, mount, subscription string) string
	Notify(service string, notification json.RawMessage, claimToken string) (json.RawMessage, error)
}

const (
	// deliveryPage bounds what one call of the database lends.
	deliveryPage = 64
	deliveryPoll = time.Second
	resultTries  = 5
	// firstLook and lastLook bound the pauses between looks for a wake that the
	// log has told of: a commit is in the log some moments before others see it.
	firstLook = 2 * time.Millisecond
	lastLook  = 64 * time.Millisecond
)

// Delivery hands due wakes to push transports. A wake is lent by the database
// for one lease: should this gateway die, another one takes it.
type Delivery struct {
	db        DeliveryDatabase
	notify    Notifier
	transport func(typ string) contract.Transport
	log       *slog.Logger
	metrics   *metrics
	now       chan struct{}
	told      atomic.Bool // the log has told of wakes since the last look
	poll      time.Duration
	receivers *receivers
	wg        sync.WaitGroup
}

var _ feed.DeliverySink = (*Delivery)(nil)

func newDelivery(db DeliveryDatabase, n Notifier, ts []contract.Transport, log *slog.Logger, m *metrics) *Delivery {
	types := map[string]contract.Transport{}
	for _, t := range ts {
		types[t.Type()] = t
	}
	return &Delivery{db: db, notify: n, transport: func(typ string) contract.Transport { return types[typ] }, log: log, metrics: m,
		now: make(chan struct{}, 1), poll: deliveryPoll, receivers: newReceivers()}
}

// Wakes implements feed.DeliverySink: the rows decide what is due.
func (d *Delivery) Wakes(context.Context, []string) {
	d.told.Store(true)
	pace.Poke(d.now)
}

// Gap implements feed.DeliverySink.
func (d *Delivery) Gap(context.Context, feed.GapReason) { pace.Poke(d.now) }

// run takes due wakes when told and once a second, until ctx ends; deliveries
// under way are waited for. When it was told and finds nothing it looks again a
// few times: the wake is not visible yet, or another gateway has it.
func (d *Delivery) run(ctx context.Context) {
	defer d.wg.Wait()
	tick := time.NewTicker(d.poll)
	defer tick.Stop()
	again := time.NewTimer(d.poll)
	again.Stop()
	told, waiting, wait := false, false, firstLook
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.now:
		case <-tick.C:
		case <-again.C:
			waiting = false
			wait *= 2
		}
		if d.told.Swap(false) {
			told, wait = true, firstLook
		}
		switch {
		case d.drain(ctx) || wait > lastLook:
			told, wait = false, firstLook
		case told && !waiting:
			again.Reset(wait)
			waiting = true
		}
	}
}

// drain lends and sends all that is due; found is false when there was nothing
// to lend though there was room for it.
func (d *Delivery) drain(ctx context.Context) (found bool) {
	for ctx.Err() == nil {
		slots, each, room := d.receivers.free()
		if slots == 0 {
			return true // a finished delivery pokes again
		}
		due, more, err := d.db.DeliveryLend(ctx, min(slots, deliveryPage), each, room)
		if err != nil {
			if ctx.Err() == nil {
				d.log.Warn("due wakes could not be taken; trying again", "code", "DELIVERY_TAKE_FAILED", "err", err)
			}
			return true // the next tick tries again
		}
		found = found || len(due) > 0 || more
		for _, w := range due {
			d.receivers.begin(w.Receiver)
			d.wg.Add(1)
			go func() {
				defer d.wg.Done()
				d.send(ctx, w)
				pace.Poke(d.now)
			}()
		}
		if !more {
			return found
		}
	}
	return found
}

func (d *Delivery) send(ctx context.Context, w store.DueDelivery) {
	start := time.Now()
	r := d.deliver(ctx, w)
	d.receivers.end(w.Receiver, r.Outcome, time.Since(start))
	d.metrics.deliveries.WithLabelValues(string(r.Outcome)).Inc()
	d.metrics.deliverySeconds.Observe(time.Since(start).Seconds())
	// The answer is in hand, so it is recorded even while the gateway drains.
	rctx := context.WithoutCancel(ctx)
	wait := outageFirst
	for try := 1; ; try++ {
		cctx, cancel := context.WithTimeout(rctx, 5*time.Second)
		became, err := d.db.DeliveryResult(cctx, w, string(r.Outcome), r.RetryAfter, r.StatusCode, r.Error)
		cancel()
		if err == nil {
			d.log.Debug("wake delivered", "wake_id", w.WakeID, "attempt", w.Attempt, "outcome", string(r.Outcome), "became", became)
			return
		}
		if try == resultTries || !pace.Rest(ctx, wait) {
			// The loan ends by itself and the wake is sent again.
			d.log.Warn("a delivery's result was not recorded", "code", "DELIVERY_RESULT_FAILED", "wake_id", w.WakeID, "err", err)
			return
		}
		wait = min(2*wait, outageLast)
	}
}

func (d *Delivery) deliver(ctx context.Context, w store.DueDelivery) contract.Result {
	var target dispatchTarget
	err := json.Unmarshal(w.Target, &target)
	// A transport's own target may have something else under a name of ours.
	if _, other := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !other {
		return contract.Result{Outcome: contract.Permanent, Error: "the stored target cannot be read"}
	}
	handed := w.Target
	if strings.HasPrefix(w.ConsumerName, ofSubscription) && target.Target != nil {
		handed = target.Target
		var of struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(handed, &of); err != nil {
			return contract.Result{Outcome: contract.Permanent, Error: "the stored target cannot be read"}
		}
		target.Type = of.Type
	}
	t := d.transport(target.Type)
	if t == nil {
		return contract.Result{Outcome: contract.Retry, Error: "no transport of type " + target.Type + " is configured"}
	}
	body, err := d.payload(w, target)
	if err != nil {
		return contract.Result{Outcome: contract.Permanent, Error: "the notification cannot be made"}
	}
	// The loan is the lease: an answer after it would meet a second attempt.
	dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.Lease-w.Lease/10)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		// While draining, a slow receiver gets a moment, not its whole lease.
		time.AfterFunc(2*time.Second, cancel)
	})
	defer stop()
	if r, settled := d.repeated(dctx, t, w); settled {
		return r
	}
	return t.Deliver(dctx, contract.Delivery{WakeID: w.WakeID, Service: w.ServiceName, Attempt: w.Attempt, Target: handed, Notification: body})
}

// repeated settles an attempt that is not the first of a wake that must not be
// sent twice: if nobody knows what became of an earlier one, nothing is sent.
func (d *Delivery) repeated(ctx context.Context, t contract.Transport, w store.DueDelivery) (r contract.Result, settled bool) {
	o, ok := t.(contract.AtMostOnce)
	if !ok || w.Attempt <= 1 {
		return r, false
	}
	once, err := o.AtMostOnce(ctx)
	if err == nil && once {
		once, err = d.db.DeliveryUncertain(ctx, w)
	}
	switch {
	case err != nil:
		return contract.Result{Outcome: contract.Retry, Error: "it cannot be told whether it was sent before"}, true
	case once:
		return contract.Result{Outcome: contract.Unknown, Error: "an earlier attempt may have arrived"}, true
	}
	return r, false
}

// dispatchTarget is what is read of a target here.
type dispatchTarget struct {
	Type           string `json:"type"`
	SubscriptionID string `json:"subscription_id"`
	// Mount is where a subscription was made: its URLs lie below it.
	Mount string `json:"mount"`
	// Target is what a subscription's transport is handed, when that is not a
	// webhook; in an entity's target it means nothing here.
	Target json.RawMessage `json:"target"`
}

// ofSubscription begins the names of subscriptions' consumers. The target does
// not tell them apart: an entity's is written by its owner.
const ofSubscription = "s_"

// payload is the WakeNotification plus the names that subscription webhooks of
// the ecosystem look for. What the notification holds is passed on as it is
// stored.
func (d *Delivery) payload(w store.DueDelivery, target dispatchTarget) (json.RawMessage, error) {
	token := d.notify.ClaimToken(w.Service, w.Epoch, w.WakeID)
	full, err := d.notify.Notify(w.ServiceName, w.Notification, token)
	if err != nil {
		return nil, err
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(full, &m); err != nil {
		return nil, err
	}
	callback := d.notify.Callback(w.ServiceName, w.WakeID)
	if strings.HasPrefix(w.ConsumerName, ofSubscription) {
		callback = d.notify.SubscriptionCallback(w.ServiceName, target.Mount, target.SubscriptionID)
	} else if target.SubscriptionID == "" {
		target.SubscriptionID = w.ConsumerName
	}
	for name, value := range map[string]any{"subscription_id": target.SubscriptionID, "wake_id": w.WakeID, "generation": w.Epoch,
		"callback_url": callback, "callback_token": token} {
		if m[name], err = json.Marshal(value); err != nil {
			return nil, err
		}
	}
	if string(m["triggerEvent"]) == `"message_received"` {
		m["triggerEvent"] = json.RawMessage(`"inbox"`)
	}
	return json.Marshal(m)
}
