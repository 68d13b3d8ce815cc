package control

import (
	"context"
	"errors"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// principalType is the type of the entities that stand for principals. They are
// built in: made when they are first looked at, never spawned, signalled, forked
// or tagged.
const principalType = "principal"

var errPrincipalEntity = problem.New(problem.InvalidRequest, "The entities of principals are built in: they are not spawned, killed, signalled, tagged or forked.").
	WithDetails(problem.Detail{Path: "path.type", Message: "is built in"})

// ensurePrincipal makes the entity of a principal if its url names one and the
// caller is that principal, or a system one. Nobody else makes rows for people
// who may not exist.
func (c *Control) ensurePrincipal(ctx context.Context, in *EntityRef) error {
	p, err := auth.Parse(in.ID)
	if err != nil {
		return problem.New(problem.InvalidRequest, "The url names no principal.").
			WithDetails(problem.Detail{Path: "path.id", Message: "must be a principal's key, kind:id"})
	}
	who := from(ctx)
	if !who.Owns(p.URL()) {
		return nil
	}
	made, err := c.cfg.Store.EntityPrincipal(ctx, who.service, p.URL(), streamName(p.URL())+"/main", p.Kind, p.ID)
	if made {
		c.cfg.Changed()
	}
	return err
}

// access looks an entity up, and makes it if it is a principal's that is not
// there yet.
func (c *Control) access(ctx context.Context, in *EntityRef, permission string) (store.Entity, bool, error) {
	who := from(ctx)
	e, allowed, err := c.cfg.Store.EntityAccess(ctx, who.service, in.url(), who.subject(), permission)
	if in.Type != principalType || !errors.Is(err, store.ErrNoRow) {
		return e, allowed, err
	}
	if err := c.ensurePrincipal(ctx, in); err != nil {
		return e, false, err
	}
	return c.cfg.Store.EntityAccess(ctx, who.service, in.url(), who.subject(), permission)
}

// streamName is the name below which an entity's streams lie: its url without
// the leading slash, and for a principal's with the escapes read.
func streamName(url string) string {
	if p, err := auth.Parse(url); err == nil && url == p.URL() {
		return principalType + "/" + p.Key()
	}
	return url[1:]
}
