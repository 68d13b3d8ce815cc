package control

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

type historyInput struct {
	EntityRef
	Before int64 `query:"before" minimum:"1" doc:"Only epochs below this one."`
	Limit  int   `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type (
	displayOutput  struct{ Body store.Display }
	dispatchOutput struct{ Body store.DispatchState }
	claimsOutput   struct{ Body []store.Claim }
	wakesOutput    struct{ Body []store.Wake }
)

func (c *Control) registerEntityState() {
	tags := []string{"entities"}
	absent := []problem.Code{problem.NotFound, problem.UnknownEntityType, problem.Unauthorized}
	add(c, huma.Operation{OperationID: "getEntityDisplay", Method: http.MethodGet, Path: entityPath + "/display", Tags: tags,
		Summary: "What a UI says about an entity"}, routeOptions{}, absent, func(ctx context.Context, in *EntityRef) (*displayOutput, error) {
		if _, err := c.entity(ctx, in); err != nil {
			return nil, err
		}
		d, err := c.cfg.Store.EntityDisplay(ctx, from(ctx).service, in.url())
		return &displayOutput{d}, found(err)
	})
	add(c, huma.Operation{OperationID: "getEntityDispatch", Method: http.MethodGet, Path: entityPath + "/dispatch", Tags: tags,
		Summary: "An entity's dispatch state"}, routeOptions{}, absent, func(ctx context.Context, in *EntityRef) (*dispatchOutput, error) {
		if _, err := c.entity(ctx, in); err != nil {
			return nil, err
		}
		d, err := c.cfg.Store.EntityDispatch(ctx, from(ctx).service, in.url())
		return &dispatchOutput{d}, found(err)
	})
	add(c, huma.Operation{OperationID: "listEntityClaims", Method: http.MethodGet, Path: entityPath + "/claims", Tags: tags,
		Summary: "The grants of an entity's mutex, newest first"}, routeOptions{}, absent, func(ctx context.Context, in *historyInput) (*claimsOutput, error) {
		if _, err := c.entity(ctx, &in.EntityRef); err != nil {
			return nil, err
		}
		list, err := c.cfg.Store.EntityClaims(ctx, from(ctx).service, in.url(), in.Before, in.Limit)
		return &claimsOutput{list}, err
	})
	add(c, huma.Operation{OperationID: "listEntityWakes", Method: http.MethodGet, Path: entityPath + "/wakes", Tags: tags,
		Summary: "The wakes of an entity, newest first"}, routeOptions{}, absent, func(ctx context.Context, in *historyInput) (*wakesOutput, error) {
		if _, err := c.entity(ctx, &in.EntityRef); err != nil {
			return nil, err
		}
		list, err := c.cfg.Store.EntityWakes(ctx, from(ctx).service, in.url(), in.Before, in.Limit)
		return &wakesOutput{list}, err
	})
}

// found words a missing row as a missing entity.
func found(err error) error {
	if errors.Is(err, store.ErrNoRow) {
		return errEntityNotFound
	}
	return err
}
