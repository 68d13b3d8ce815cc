package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/rouse-run/rouse/plugins/contract"
	"github.com/rouse-run/rouse/plugins/sdk"
)

// Plugin is the transport as a plugin. It holds no key: it sends the bytes that
// the gateway has signed, with the gateway's signature.
func Plugin() sdk.Transport {
	var current atomic.Pointer[Transport]
	use := func() *Transport {
		if t := current.Load(); t != nil {
			return t
		}
		t := New(Config{})
		if !current.CompareAndSwap(nil, t) {
			return current.Load()
		}
		return t
	}
	return sdk.Transport{
		Type: "webhook", Version: "v1", Signed: true,
		TargetSchema: json.RawMessage(`{"type":"object","required":["url"],"properties":{"url":{"type":"string","description":"Where the wake is posted: https, or http where private addresses are allowed."}},` +
			`"examples":[{"type":"webhook","url":"https://agents.example/wake"}]}`),
		ConfigSchema: json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{` +
			`"allow_private":{"type":"boolean","description":"Permits loopback and private addresses, and plain http."},` +
			`"timeout":{"type":"string","description":"Bounds one POST, as in 20s."}}}`),
		Configure: func(_ context.Context, raw json.RawMessage) error {
			var c struct {
				AllowPrivate bool   `json:"allow_private"`
				Timeout      string `json:"timeout"`
			}
			if err := json.Unmarshal(raw, &c); err != nil {
				return errors.New("the settings cannot be read")
			}
			cfg := Config{AllowPrivate: c.AllowPrivate}
			if c.Timeout != "" {
				var err error
				if cfg.Timeout, err = time.ParseDuration(c.Timeout); err != nil || cfg.Timeout <= 0 {
					return errors.New("timeout is no time such as 20s")
				}
			}
			if old := current.Swap(New(cfg)); old != nil {
				old.Close()
			}
			return nil
		},
		ValidateTarget: func(ctx context.Context, target json.RawMessage) error { return use().ValidateTarget(ctx, target) },
		Deliver:        func(ctx context.Context, d contract.Delivery) contract.Result { return use().Deliver(ctx, d) },
		Close:          func() { use().Close() },
	}
}
