package control

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

type (
	WakeRef struct {
		Service string `query:"service"`
		WakeID  string `path:"wakeId"`
	}
	wakeOutput      struct{ Body store.WakeFile }
	redeliverOutput struct {
		Body struct {
			OK     bool   `json:"ok"`
			WakeID string `json:"wakeId"`
		} `nameHint:"WakeRedelivered"`
	}
)

func (c *Control) registerWakes() {
	tags := []string{"claims"}
	const at = "/_electric/wakes/{wakeId}"
	add(c, huma.Operation{OperationID: "getWake", Method: http.MethodGet, Path: at, Tags: tags,
		Summary: "A wake and the attempts to deliver it", Description: "For the owner of its entity or subscription, and for those who may manage the entity. Of the attempts the last twenty are kept."},
		routeOptions{}, []problem.Code{problem.WakeCallbackNotFound, problem.Unauthorized}, func(ctx context.Context, in *WakeRef) (*wakeOutput, error) {
			f, err := c.wake(ctx, in)
			return &wakeOutput{f}, err
		})
	add(c, huma.Operation{OperationID: "redeliverWake", Method: http.MethodPost, Path: at + "/redeliver", Tags: tags,
		Summary: "Deliver an open wake again, now", Description: "It is the same wake with the same epoch, so its receiver sees the same idempotency key. One that the receiver had refused for good gets its retries back."},
		routeOptions{}, []problem.Code{problem.WakeCallbackNotFound, problem.Unauthorized, problem.EpochHeld, problem.WakeResolved}, c.redeliverWake)
}

// wake reads a wake for somebody who may see it.
func (c *Control) wake(ctx context.Context, in *WakeRef) (store.WakeFile, error) {
	who := from(ctx)
	id, isOne := canonicalWake(in.WakeID)
	if !isOne {
		return store.WakeFile{}, errNoWake
	}
	f, may, err := c.cfg.Store.WakeGet(ctx, who.service, id, who.principal())
	switch {
	case errors.Is(err, store.ErrNoRow):
		return f, errNoWake
	case err != nil:
		return f, err
	}
	may = may || who.trusted()
	if f.EntityURL != nil {
		if may, err = c.may(ctx, mayManage, "entity", *f.EntityURL, may); err != nil {
			return store.WakeFile{}, err
		}
	}
	if !may {
		return store.WakeFile{}, problem.New(problem.Unauthorized, "Only the owner of what the wake is for may see or redeliver it.")
	}
	return f, nil
}

func (c *Control) redeliverWake(ctx context.Context, in *WakeRef) (*redeliverOutput, error) {
	f, err := c.wake(ctx, in)
	if err != nil {
		return nil, err
	}
	outcome, err := c.cfg.Store.WakeRedeliver(ctx, from(ctx).service, f.WakeID, from(ctx).principal())
	switch {
	case err != nil:
		return nil, err
	case outcome == "not_found":
		return nil, errNoWake
	case outcome == "claimed":
		return nil, problem.New(problem.EpochHeld, "Somebody works on this wake. If the lease ends without a result, a fresh wake follows by itself.")
	case outcome == "resolved":
		return nil, problem.New(problem.WakeResolved, "The wake is over: it was worked on, or another took its place. Nothing is left to deliver.")
	}
	out := &redeliverOutput{}
	out.Body.OK, out.Body.WakeID = true, f.WakeID
	return out, nil
}
