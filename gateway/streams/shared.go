package streams

import (
	"context"
	"net/http"
	"strings"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// sharedAt begins the names of shared states: JSON streams that belong to
// entities, and whose readers and writers are those of the entities.
const sharedAt = "_electric/shared-state/"

const hOwnerEntity = "Electric-Owner-Entity"

func isShared(name string) bool { return strings.HasPrefix(name, sharedAt) }

// serveShared serves a shared state to whom it belongs to. What makes one is
// admitted once the request is known to be whole: that is when it is linked to
// its first entity.
func (h *Handler) serveShared(q *request) error {
	permission := "write"
	switch q.http.Method {
	case http.MethodGet, http.MethodHead:
		permission = "read"
	case http.MethodPut, http.MethodPost:
		if h.Admit != nil && h.claim(q.http) == nil {
			if err := h.Admit(q.http); err != nil {
				return err
			}
		}
	case http.MethodDelete:
		return problem.New(problem.Unauthorized, "A shared state is not deleted: it belongs to every entity that uses it.")
	default:
		return h.method(q)
	}
	if q.http.Method == http.MethodPut {
		if _, err := h.sharedCaller(q); err != nil {
			return err
		}
	} else {
		ctx, cancel := h.call(q.http)
		defer cancel()
		if err := h.admitShared(ctx, q, permission, ""); err != nil {
			return err
		}
	}
	q.shared = true
	return h.method(q)
}

// sharedCaller is who uses a shared state; a write token alone is enough.
func (h *Handler) sharedCaller(q *request) (Caller, error) {
	c, err := h.caller(q)
	if err != nil && h.claim(q.http) != nil && problem.CodeOf(err) != problem.AuthUnavailable {
		return Caller{}, nil
	}
	return c, err
}

func (h *Handler) admitShared(ctx context.Context, q *request, permission, owner string) error {
	c, err := h.sharedCaller(q)
	if err != nil {
		return err
	}
	outcome := "forbidden"
	if h.SharedStates != nil {
		if outcome, err = h.SharedStates.SharedStateAdmit(ctx, q.service, c.Principal, c.System, q.path.Name, permission, owner, h.claim(q.http)); err != nil {
			return err
		}
	}
	if outcome != "ok" {
		return problem.New(problem.Unauthorized, "You may not use this shared state. Whoever may write an entity that uses it may; "+
			"to make one, name such an entity in Electric-Owner-Entity.").WithMeta("permission", permission)
	}
	return nil
}

// createShared checks what makes a shared state, and admits it.
func (h *Handler) createShared(ctx context.Context, q *request, c *store.CreateRequest) error {
	if c.ForkPath != nil {
		return badHeader(hForkedFrom, "a shared state is no fork")
	}
	if !isJSON(c.ContentType) {
		return badHeader("Content-Type", "a shared state is JSON")
	}
	owner, ok, err := text(q.http, hOwnerEntity, maxPath)
	if err != nil {
		return err
	}
	if ok && !strings.HasPrefix(owner, "/") {
		return badHeader(hOwnerEntity, "it must be an entity's url")
	}
	c.Kind = "shared"
	return h.admitShared(ctx, q, "write", owner)
}
