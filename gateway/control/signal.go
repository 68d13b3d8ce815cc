package control

import (
	"context"
	"encoding/json"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

type signalInput struct {
	EntityRef
	Body struct {
		Signal  string          `json:"signal" enum:"SIGINT,SIGHUP,SIGTERM,SIGKILL,SIGSTOP,SIGCONT,SIGUSR"`
		Reason  string          `json:"reason,omitempty" maxLength:"4096"`
		Payload json.RawMessage `json:"payload,omitempty"`
	} `nameHint:"SignalRequest"`
}

type signalOutput struct {
	Body struct {
		URL           string `json:"url"`
		Signal        string `json:"signal"`
		PreviousState string `json:"previous_state"`
		NewState      string `json:"new_state"`
		CreatedAt     int64  `json:"created_at" doc:"Milliseconds since 1970."`
		TxID          int64  `json:"txid"`
	} `nameHint:"SignalResult"`
}

func (c *Control) sendSignal(ctx context.Context, in *EntityRef, permission, signal, reason string, payload json.RawMessage) (store.SignalResult, error) {
	if in.Type == principalType {
		return store.SignalResult{}, errPrincipalEntity
	}
	if _, err := c.entityFor(ctx, in, permission); err != nil {
		return store.SignalResult{}, err
	}
	who := from(ctx)
	res, err := c.cfg.Store.EntitySignal(ctx, who.service, in.url(), who.principal(), signal, "sig-"+staterow.RandomID(), reason, payload)
	switch {
	case err != nil:
		return res, err
	case res.Outcome == "not_found":
		return res, errEntityNotFound
	case res.Outcome == "terminal":
		return res, problem.New(problem.InvalidSignal, "The entity is stopped for good; it takes no signals.")
	}
	c.cfg.Changed()
	return res, nil
}

func (c *Control) kill(ctx context.Context, in *EntityRef) (*txidOutput, error) {
	res, err := c.sendSignal(ctx, in, mayDelete, "SIGKILL", "", nil)
	if err != nil {
		return nil, err
	}
	out := &txidOutput{}
	out.Body.TxID = res.TxID
	return out, nil
}

func (c *Control) signal(ctx context.Context, in *signalInput) (*signalOutput, error) {
	res, err := c.sendSignal(ctx, &in.EntityRef, maySignal, in.Body.Signal, in.Body.Reason, mayBeNull(in.Body.Payload))
	if err != nil {
		return nil, err
	}
	out := &signalOutput{}
	b := &out.Body
	b.URL, b.Signal, b.PreviousState, b.NewState = in.url(), in.Body.Signal, res.PreviousState, res.NewState
	b.CreatedAt, b.TxID = res.CreatedAt.UnixMilli(), res.TxID
	return out, nil
}
