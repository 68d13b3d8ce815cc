package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rouse-run/rouse/plugins/contract"
	"github.com/rouse-run/rouse/plugins/sdk"
)

// Local is a built-in transport in the gateway's own process.
type Local struct {
	name string
	spec Spec
	deps *deps
	t    sdk.Transport
	desc description
	err  *Error // why it cannot be used
}

var (
	_ contract.Transport  = (*Local)(nil)
	_ contract.AtMostOnce = (*Local)(nil)
)

// newLocal configures a built-in transport here. One that cannot be used says
// so at every call.
func newLocal(ctx context.Context, name string, spec Spec, t sdk.Transport, d *deps) *Local {
	l := &Local{name: name, spec: spec, deps: d, t: t, desc: description{version: t.Version,
		targetSchema: t.TargetSchema, atMostOnce: t.AtMostOnce, signed: t.Signed, maxBatch: 1}}
	fail := func(err error) {
		if e, ok := errors.AsType[*Error](err); ok {
			l.err = e
		} else {
			l.err = wrap(CodeConfigRefused, err, "the transport refuses its settings")
		}
		d.log.Error("plugin cannot be used", "plugin", name, "code", l.err.Code, "err", l.err)
	}
	var err error
	if l.desc.targets, err = compileSchema(t.TargetSchema); err != nil {
		fail(wrap(CodeDescription, err, "the schema of targets cannot be used"))
		return l
	}
	settings, err := spec.settings()
	if err == nil {
		err = checkSettings(t.ConfigSchema, settings)
	}
	if err == nil && t.Configure != nil {
		err = t.Configure(ctx, settings)
	}
	if err != nil {
		fail(err)
	}
	return l
}

// Type implements contract.Transport.
func (l *Local) Type() string { return l.name }

// AtMostOnce implements contract.AtMostOnce.
func (l *Local) AtMostOnce(context.Context) (bool, error) { return l.desc.atMostOnce, nil }

// ValidateTarget implements contract.Transport.
func (l *Local) ValidateTarget(ctx context.Context, target json.RawMessage) error {
	if l.err != nil {
		return unavailable(l.err)
	}
	if err := l.desc.targets.check(target); err != nil {
		return err
	}
	if l.t.ValidateTarget == nil {
		return nil
	}
	return l.t.ValidateTarget(ctx, target)
}

// Deliver implements contract.Transport.
func (l *Local) Deliver(ctx context.Context, d contract.Delivery) (r contract.Result) {
	if l.err != nil {
		return contract.Result{Outcome: contract.Retry, RetryAfter: time.Second, Error: l.err.Code + ": the transport is not available"}
	}
	began := time.Now()
	defer func() {
		var err error
		if v := recover(); v != nil {
			err = errorf(CodeCrashed, "the transport panicked")
			l.deps.log.Error("a transport panicked", "plugin", l.name, "code", CodeCrashed, "panic", fmt.Sprint(v))
			r = contract.Result{Outcome: contract.Retry, Error: CodeCrashed + ": the transport panicked"}
			if l.desc.atMostOnce {
				r.Outcome = contract.Unknown
			}
		}
		if l.desc.atMostOnce && r.Outcome == contract.Accepted {
			r.RetryAfter = contract.NoRepeat
		}
		l.deps.metrics.called(l.name, "deliver", began, err)
	}()
	ctx, cancel := context.WithTimeout(ctx, l.timeout())
	defer cancel()
	if l.desc.signed && l.deps.signer != nil && d.Signature == "" {
		d.Signature = l.deps.signer.Sign(d.Notification, l.deps.now())
	}
	return l.t.Deliver(ctx, d)
}

func (l *Local) timeout() time.Duration {
	if l.spec.Timeout > 0 {
		return l.spec.Timeout
	}
	return deliverTimeout
}

func (l *Local) end() {
	if l.t.Close != nil {
		l.t.Close()
	}
}
