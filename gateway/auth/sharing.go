package auth

import (
	"context"

	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/plugins/contract"
)

// SharedStates says who may use a shared state; *store.Store does.
type SharedStates interface {
	// SharedStateAdmit answers ok or forbidden; permission is read or write. With an
	// owner, an entity, that one begins to use it.
	SharedStateAdmit(ctx context.Context, service int32, principal string, trusted bool, path, permission, owner string, claim *store.WriteClaim) (string, error)
}

// The answers of SharedStates.
const (
	admitted  = "ok"
	forbidden = "forbidden"
)

// Sharing adds the authorizers' opinions to what db says of shared states.
func (c *Chain) Sharing(db SharedStates) SharedStates {
	if len(c.judges) == 0 {
		return db
	}
	return sharing{db, c}
}

type sharing struct {
	db     SharedStates
	policy *Chain
}

// SharedStateAdmit implements [SharedStates]. A token speaks for what it was made
// for; about everybody else the authorizers are asked, before an entity is linked.
func (s sharing) SharedStateAdmit(ctx context.Context, service int32, principal string, trusted bool, path, permission, owner string, claim *store.WriteClaim) (string, error) {
	p, name := visitor(ctx)
	if p.IsZero() {
		return s.db.SharedStateAdmit(ctx, service, principal, trusted, path, permission, owner, claim)
	}
	if claim != nil {
		if outcome, err := s.db.SharedStateAdmit(ctx, service, "", false, path, permission, owner, claim); err != nil || outcome == admitted {
			return outcome, err
		}
	}
	on := contract.Resource{Service: name, Kind: "shared-state", ID: "/" + path}
	if owner != "" {
		// Whether the caller may link it is found out by linking it.
		if ok, err := s.policy.May(ctx, p, permission, on, true); err != nil || !ok {
			return forbidden, err
		}
	}
	outcome, err := s.db.SharedStateAdmit(ctx, service, principal, trusted, path, permission, owner, claim)
	if err != nil || owner != "" && outcome == admitted {
		return outcome, err
	}
	if ok, err := s.policy.May(ctx, p, permission, on, outcome == admitted); err != nil || !ok {
		return forbidden, err
	}
	if owner != "" {
		return s.db.SharedStateAdmit(ctx, service, principal, true, path, permission, owner, claim)
	}
	return admitted, nil
}

// visitor is who makes the request under way, and the name of the service that it
// selects; nobody, if that has not been asked.
func visitor(ctx context.Context) (Principal, string) {
	v, _ := ctx.Value(visitKey{}).(*visit)
	if v == nil {
		return Principal{}, ""
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.p, v.service
}
