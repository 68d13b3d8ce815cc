package plugintest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	transportv1 "github.com/rouse-run/rouse/plugins/proto/rouse/transport/v1"
)

var transportCases = []testCase{
	{"its target is accepted, and rubbish is not", validates},
	{"a delivery is answered", delivers},
	{"each delivery of a batch is answered once", batch},
	{"several calls at once are answered", concurrent},
	{"a call that is given up leaves it well", givenUp},
	{"rubbish is answered and leaves it well", rubbish},
	{"a message that is too great is refused and leaves it well", oversize},
	{"a great notification is answered", great},
}

// target is where to deliver to.
func (k *kit) target(p *running) (json.RawMessage, error) {
	if len(k.opts.Target) > 0 {
		return k.opts.Target, nil
	}
	var s struct {
		Examples []json.RawMessage `json:"examples"`
	}
	if json.Unmarshal(p.described.TargetSchema, &s) == nil && len(s.Examples) > 0 {
		return s.Examples[0], nil
	}
	return nil, fmt.Errorf("%w: give a target with --target, or an example in the schema", errNotRun)
}

// withPlugin runs a case on a plugin of its own, which must be well afterwards.
func (k *kit) withPlugin(ctx context.Context, f func(*running, json.RawMessage) (string, error)) (string, error) {
	p, err := k.start(ctx, k.opts.Config)
	if err != nil {
		return "", err
	}
	defer p.end()
	target, err := k.target(p)
	if err != nil {
		return "", err
	}
	note, err := f(p, target)
	if err != nil {
		return "", fmt.Errorf("%w%s", err, p.said())
	}
	return note, p.healthy(ctx)
}

func notification(size int) json.RawMessage {
	n := map[string]any{"type": "wake", "epoch": 1, "consumerId": "conformance", "padding": string(bytes.Repeat([]byte("x"), size))}
	raw, _ := json.Marshal(n)
	return raw
}

func delivery(id string, target json.RawMessage) *transportv1.Delivery {
	return &transportv1.Delivery{WakeId: id, Service: "default", Attempt: 1, Target: target, Notification: notification(0), Signature: "t=0,kid=none,ed25519=none"}
}

// send makes one call and checks its answer.
func (p *running) send(ctx context.Context, ds ...*transportv1.Delivery) ([]*transportv1.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	a, err := p.transport.DeliverBatch(ctx, &transportv1.DeliverBatchRequest{Deliveries: ds})
	if err != nil {
		return nil, broken("DeliverBatch", err)
	}
	left := map[string]bool{}
	for _, d := range ds {
		left[d.WakeId] = true
	}
	for _, r := range a.Results {
		switch {
		case !left[r.WakeId]:
			return nil, fmt.Errorf("it answers %q, which was not asked or is answered already", r.WakeId)
		case r.Outcome == transportv1.Outcome_OUTCOME_UNSPECIFIED || transportv1.Outcome_name[int32(r.Outcome)] == "":
			return nil, errors.New("it answers without an outcome")
		case r.RetryAfterMs < 0:
			return nil, errors.New("it asks to try again in the past")
		}
		delete(left, r.WakeId)
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("%d deliveries are not answered", len(left))
	}
	return a.Results, nil
}

func validates(ctx context.Context, k *kit) (string, error) {
	return k.withPlugin(ctx, func(p *running, target json.RawMessage) (string, error) {
		ask := func(t []byte) (string, error) {
			cctx, cancel := context.WithTimeout(ctx, p.timeout)
			defer cancel()
			a, err := p.transport.ValidateTarget(cctx, &transportv1.ValidateTargetRequest{Target: t})
			if err != nil {
				return "", broken("ValidateTarget", err)
			}
			return a.Error, nil
		}
		if why, err := ask(target); err != nil || why != "" {
			return "", errors.Join(err, fmt.Errorf("it refuses %s: %s", target, why))
		}
		for _, t := range []string{"", "{", "\x00\xff"} {
			if why, err := ask([]byte(t)); err != nil {
				return "", err
			} else if why == "" {
				return "", fmt.Errorf("it accepts %q, which is no JSON", t)
			}
		}
		for _, t := range []string{"null", "[]", `{"type":7}`, `{}`} {
			if _, err := ask([]byte(t)); err != nil {
				return "", fmt.Errorf("%s: %w", t, err)
			}
		}
		return "", nil
	})
}

func delivers(ctx context.Context, k *kit) (string, error) {
	return k.withPlugin(ctx, func(p *running, target json.RawMessage) (string, error) {
		rs, err := p.send(ctx, delivery("conformance-1", target))
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s %d %s", rs[0].Outcome, rs[0].StatusCode, rs[0].Error), nil
	})
}

func batch(ctx context.Context, k *kit) (string, error) {
	return k.withPlugin(ctx, func(p *running, target json.RawMessage) (string, error) {
		n := int(min(max(p.described.GetCapabilities().GetMaxBatch(), 1), 16))
		ds := make([]*transportv1.Delivery, n)
		for i := range ds {
			ds[i] = delivery(fmt.Sprintf("conformance-batch-%d", i), target)
		}
		_, err := p.send(ctx, ds...)
		return fmt.Sprintf("%d in one call", n), err
	})
}

func concurrent(ctx context.Context, k *kit) (string, error) {
	return k.withPlugin(ctx, func(p *running, target json.RawMessage) (string, error) {
		const n = 16
		errs := make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { _, errs[i] = p.send(ctx, delivery(fmt.Sprintf("conformance-at-once-%d", i), target)) })
		}
		wg.Wait()
		return "", errors.Join(errs...)
	})
}

func givenUp(ctx context.Context, k *kit) (string, error) {
	return k.withPlugin(ctx, func(p *running, target json.RawMessage) (string, error) {
		for i := range 5 {
			cctx, cancel := context.WithTimeout(ctx, time.Duration(i)*time.Millisecond)
			_, err := p.transport.DeliverBatch(cctx, &transportv1.DeliverBatchRequest{Deliveries: []*transportv1.Delivery{delivery(fmt.Sprintf("conformance-given-up-%d", i), target)}})
			cancel()
			if c := status.Code(err); err != nil && c != codes.DeadlineExceeded && c != codes.Canceled {
				return "", broken("DeliverBatch", err)
			}
		}
		return "", nil
	})
}

func rubbish(ctx context.Context, k *kit) (string, error) {
	return k.withPlugin(ctx, func(p *running, target json.RawMessage) (string, error) {
		for i, d := range []*transportv1.Delivery{
			{WakeId: "conformance-rubbish-a", Target: []byte("{"), Notification: notification(0)},
			{WakeId: "conformance-rubbish-b", Target: target, Notification: []byte("\x00")},
			{WakeId: "conformance-rubbish-c", Target: []byte("null"), Notification: []byte("null"), Attempt: -1},
			{WakeId: "conformance-rubbish-d", Target: []byte(`{"type":[]}`), Notification: []byte("[]"), Attempt: 1 << 30},
		} {
			rs, err := p.send(ctx, d)
			if err != nil {
				return "", err
			}
			if o := rs[0].Outcome; i < 2 && (o == transportv1.Outcome_OUTCOME_ACCEPTED || o == transportv1.Outcome_OUTCOME_DONE) {
				return "", fmt.Errorf("it says that rubbish was delivered: %s", d.WakeId)
			}
		}
		return "", nil
	})
}

func oversize(ctx context.Context, k *kit) (string, error) {
	return k.withPlugin(ctx, func(p *running, target json.RawMessage) (string, error) {
		cctx, cancel := context.WithTimeout(ctx, p.timeout)
		defer cancel()
		d := delivery("conformance-too-great", target)
		d.Notification = notification(5 << 20)
		if _, err := p.transport.DeliverBatch(cctx, &transportv1.DeliverBatchRequest{Deliveries: []*transportv1.Delivery{d}}); status.Code(err) != codes.ResourceExhausted {
			return "", fmt.Errorf("it takes 5 MiB: %v", err)
		}
		return "", nil
	})
}

func great(ctx context.Context, k *kit) (string, error) {
	return k.withPlugin(ctx, func(p *running, target json.RawMessage) (string, error) {
		d := delivery("conformance-great", target)
		d.Notification = notification(1 << 20)
		rs, err := p.send(ctx, d)
		if err != nil {
			return "", err
		}
		return rs[0].Outcome.String(), nil
	})
}
