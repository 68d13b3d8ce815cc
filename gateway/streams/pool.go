package streams

import (
	"context"
	"strings"
	"time"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/seal"
	"github.com/rouse-run/rouse/gateway/store"
)

// PoolReaders says who may read the wake streams of worker pools; *store.Store
// does.
type PoolReaders interface {
	PoolReader(ctx context.Context, service int32, pool, principal string, system bool, runner string) (store.PoolReading, error)
}

// reading is how a pool's wake stream is read: by one of its members, who gets
// what the entries are for him, or by a bystander, who gets hints.
type reading struct {
	pool, runner string
	caller       Caller
	store.PoolReading
	at time.Time
}

// readingFresh is how long what was found out of a reader counts while he reads
// on: members are drained, and keys change.
const readingFresh = time.Second

// poolOf is the pool whose wake stream has a name, or "".
func poolOf(name string) string {
	rest, ok := strings.CutPrefix(name, "worker-pools/")
	id, wake := strings.CutSuffix(rest, "/wake")
	if !ok || !wake || strings.Contains(id, "/") {
		return ""
	}
	return id
}

// mayReadPool checks the reader of a pool's wake stream; ?runner= says as which
// member he reads.
func (h *Handler) mayReadPool(q *request, c Caller, pool string) error {
	r := &reading{pool: pool, caller: c}
	if q.query.Has("runner") {
		var err error
		if r.runner, err = single(q.query, "runner"); err != nil {
			return err
		}
		if strings.ContainsRune(r.runner, 0) || strings.ToValidUTF8(r.runner, "") != r.runner {
			return errNotMember
		}
	}
	ctx, cancel := h.call(q.http)
	defer cancel()
	if err := h.look(ctx, q, r); err != nil {
		return err
	}
	q.pool = r
	return nil
}

var (
	errNotMember  = problem.New(problem.NotPoolMember, "The runner is no active member of this pool, or is not yours.")
	errPoolReader = problem.New(problem.PoolForbidden, "A pool's wake stream can be read by its owner and the owners of its active members.")
)

func (h *Handler) look(ctx context.Context, q *request, r *reading) (err error) {
	if h.PoolReaders == nil {
		return errPoolReader
	}
	if r.PoolReading, err = h.PoolReaders.PoolReader(ctx, q.service, r.pool, r.caller.Principal, r.caller.System, r.runner); err != nil {
		return err
	}
	r.at = time.Now()
	switch r.Outcome {
	case "member", "reader":
		return nil
	case "not_member":
		return errNotMember
	}
	return errPoolReader
}

// again looks anew at a reader who has read for a while, and gives the key that
// entries are sealed to for him.
func (h *Handler) again(q *request) (*seal.Key, error) {
	if time.Since(q.pool.at) > readingFresh {
		ctx, cancel := h.call(q.http)
		defer cancel()
		if err := h.look(ctx, q, q.pool); err != nil {
			return nil, err
		}
	}
	return seal.FromBytes(q.pool.WakeKey), nil
}
