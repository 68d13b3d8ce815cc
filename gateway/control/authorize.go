package control

import (
	"context"
	"errors"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/plugins/contract"
)

// may asks the authorizers, after ownership and grants have said what they say,
// whether the caller may do something to a thing: an entity by its url, a type by
// its name, a runner by its id. Where a rule is compared inside the transaction
// that needs it, they can only take away: [Control.mayEntity] and
// [Control.mayTypeNamed] ask them before it.
func (c *Control) may(ctx context.Context, permission, kind, id string, builtIn bool) (bool, error) {
	who := from(ctx)
	if who.IsZero() {
		return builtIn, nil // a token speaks, for what it was made for
	}
	return c.cfg.Auth.May(ctx, who.Principal, permission, contract.Resource{Service: who.serviceName, Kind: kind, ID: id}, builtIn)
}

// mayEntity asks the authorizers, if there are any, about an entity whose rule is
// compared inside a transaction. One that is not there is left to that.
func (c *Control) mayEntity(ctx context.Context, url, permission string) error {
	if url == "" || !c.cfg.Auth.Judged() {
		return nil
	}
	_, err := c.entityFor(ctx, ref(url), permission)
	if code := problem.CodeOf(err); code == problem.NotFound || code == problem.UnknownEntityType {
		return nil
	}
	return err
}

// mayTypeNamed is mayEntity for an entity type.
func (c *Control) mayTypeNamed(ctx context.Context, name, permission string) error {
	if !c.cfg.Auth.Judged() {
		return nil
	}
	t, err := c.cfg.Store.EntityTypeGet(ctx, from(ctx).service, name)
	if errors.Is(err, store.ErrNoRow) {
		return nil
	} else if err != nil {
		return err
	}
	if ok, err := c.mayType(ctx, t, permission); err != nil || ok {
		return err
	}
	return errMayNot(permission, "entity type")
}
