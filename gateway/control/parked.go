package control

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

type (
	parkedInput struct {
		Service string `query:"service"`
		After   string `query:"after" doc:"Only urls behind this one."`
		Limit   int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	}
	parkedOutput   struct{ Body []store.Parked }
	redriveAllBody struct {
		Type   string `json:"type,omitempty" maxLength:"128" doc:"Only entities of this type."`
		Reason string `json:"reason,omitempty" enum:"attempts_exhausted,unclaimed,delivery_failed,no_target" doc:"Only what was parked for this reason."`
		Limit  int    `json:"limit,omitempty" minimum:"1" maximum:"1000" doc:"At most so many. Default 1000."`
	}
	redriveAllInput struct {
		Service string         `query:"service"`
		Body    redriveAllBody `nameHint:"RedriveParked"`
	}
	redriveAllOutput struct {
		Body struct {
			OK       bool  `json:"ok"`
			Redriven int64 `json:"redriven" doc:"How many were woken again."`
		} `nameHint:"RedriveResult"`
	}
	redriveOutput struct {
		Body struct {
			OK bool `json:"ok"`
		} `nameHint:"Redriven"`
	}
)

// maxRedrive bounds what one call redrives.
const maxRedrive = 1000

func (c *Control) registerParked() {
	tags := []string{"claims"}
	add(c, huma.Operation{OperationID: "listParked", Method: http.MethodGet, Path: "/_electric/parked", Tags: tags,
		Summary: "Work that its policy has given up", Description: "What the caller may manage, with the reason. Messages are still taken and wait."},
		routeOptions{}, nil, func(ctx context.Context, in *parkedInput) (*parkedOutput, error) {
			who := from(ctx)
			if why := storable(in.After); why != "" {
				return nil, invalidFields(problem.Detail{Path: "query.after", Message: why})
			}
			list, err := c.cfg.Store.ParkedList(ctx, who.service, who.principal(), who.trusted(), in.After, in.Limit)
			return &parkedOutput{list}, err
		})
	add(c, huma.Operation{OperationID: "redriveParked", Method: http.MethodPost, Path: "/_electric/parked/redrive", Tags: tags,
		Summary: "Wake parked work again", Description: "From the first target, with no attempt counted. The oldest first; ask again while as many as the limit were woken. What has no target that is there stays parked."},
		routeOptions{}, nil, func(ctx context.Context, in *redriveAllInput) (*redriveAllOutput, error) {
			who := from(ctx)
			if why := storable(in.Body.Type); why != "" {
				return nil, invalidFields(problem.Detail{Path: "/type", Message: why})
			}
			limit := in.Body.Limit
			if limit == 0 {
				limit = maxRedrive
			}
			n, err := c.cfg.Store.ParkedRedrive(ctx, who.service, who.principal(), who.trusted(), in.Body.Type, in.Body.Reason, limit)
			if err != nil {
				return nil, err
			}
			if n > 0 {
				c.cfg.Poke()
			}
			out := &redriveAllOutput{}
			out.Body.OK, out.Body.Redriven = true, n
			return out, nil
		})
	add(c, huma.Operation{OperationID: "redriveEntity", Method: http.MethodPost, Path: entityPath + "/redrive", Tags: []string{"entities"},
		Summary: "Wake a parked entity again"}, routeOptions{},
		[]problem.Code{problem.NotFound, problem.UnknownEntityType, problem.Unauthorized, problem.NotParked, problem.InvalidTarget}, func(ctx context.Context, in *EntityRef) (*redriveOutput, error) {
			who := from(ctx)
			if _, err := c.entityFor(ctx, in, mayManage); err != nil {
				return nil, err
			}
			outcome, err := c.cfg.Store.EntityRedrive(ctx, who.service, in.url(), who.principal(), who.trustedFor(mayManage, kindEntity, in.url()))
			switch {
			case err != nil:
				return nil, err
			case outcome == "redriven":
				c.cfg.Poke()
				out := &redriveOutput{}
				out.Body.OK = true
				return out, nil
			case outcome == "not_parked":
				return nil, problem.New(problem.NotParked, "The entity is not parked. Its dispatch state says what it waits for.")
			}
			if outcome == "no_target" {
				return nil, problem.New(problem.InvalidTarget, "Every target of its policy is gone. Move the entity to another one, or make the pool again.")
			}
			return nil, moveRefusal(outcome, nil)
		})
}
