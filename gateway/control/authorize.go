package control

import (
	"context"

	"github.com/rouse-run/rouse/plugins/contract"
)

// may asks the authorizers, after ownership and grants have said what they say,
// whether the caller may do something to a thing: an entity by its url, a type by
// its name, a runner by its id. Where a rule is compared inside the transaction
// that needs it, that rule alone decides.
func (c *Control) may(ctx context.Context, permission, kind, id string, builtIn bool) (bool, error) {
	who := from(ctx)
	if who.IsZero() {
		return builtIn, nil // a token speaks, for what it was made for
	}
	return c.cfg.Auth.May(ctx, who.Principal, permission, contract.Resource{Service: who.serviceName, Kind: kind, ID: id}, builtIn)
}
