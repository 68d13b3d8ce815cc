package streams

import (
	"context"
	"net/http"

	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/store"
)

// Database is what the protocol needs of the store.
type Database interface {
	StreamCreate(ctx context.Context, q store.CreateRequest) (store.StreamMeta, error)
	StreamHead(ctx context.Context, service int32, path string) (store.StreamMeta, error)
	StreamRead(ctx context.Context, q store.ReadRequest) (store.StreamPage, error)
	StreamDelete(ctx context.Context, service int32, path string, internal bool) (store.Outcome, int64, error)
	StreamTouch(ctx context.Context, id int64) error
	RetentionGet(ctx context.Context, service int32, path string) (store.Retention, error)
	StreamWritable(ctx context.Context, service int32, path string, claim store.WriteClaim) (store.AppendResult, error)
}

// Services knows the services of ?service=; *store.Services does.
type Services interface {
	// ID fails with SERVICE_NOT_FOUND.
	ID(ctx context.Context, name string) (int32, error)
}

// Appender carries out appends.
type Appender interface {
	Append(ctx context.Context, item store.AppendItem) (store.AppendResult, error)
}

// Hub is where readers wait; *feed.Hub is one.
type Hub interface {
	Watch(stream int64) *feed.Watcher
	Publish(stream, tail int64, flags feed.Flags)
}

// Caller is who makes a request.
type Caller struct {
	// Principal has the form of a guarded stream's owner.
	Principal string
	// System principals may read every stream.
	System bool
}

// Authorizer says who makes a request.
type Authorizer interface {
	// Authenticate fails with a coded error when credentials are missing or bad.
	// The service is the one the request selects, zero if there is none of its name.
	Authenticate(r *http.Request, service int32) (Caller, error)
}

// Readers says who may read streams of entities beside their owners.
type Readers interface {
	MayRead(ctx context.Context, service int32, principal, path string) (bool, error)
}

// SharedStates says who may use a shared state; *store.Store does.
type SharedStates interface {
	// SharedStateAdmit answers ok or forbidden; permission is read or write. With an
	// owner, an entity that the caller may write, that entity begins to use it.
	SharedStateAdmit(ctx context.Context, service int32, principal string, trusted bool, path, permission, owner string, claim *store.WriteClaim) (string, error)
}

// WriteTokens verifies write tokens: their signature, not their currency, which
// the append checks under the locks.
type WriteTokens interface {
	VerifyWrite(token string) (consumerID, epoch int64, wakeID string, err error)
}

// ErrorStreams makes an entity's error stream at its holder's first write;
// *store.Store does.
type ErrorStreams interface {
	EntityErrorStream(ctx context.Context, service int32, entityURL string, claim store.WriteClaim) (store.Outcome, error)
}
