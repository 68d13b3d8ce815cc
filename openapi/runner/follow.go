package runner

import (
	"context"
	"net/http"

	"github.com/rouse-run/rouse/openapi/runner/tail"
)

// Follow gives what is appended to the primary stream while the claim is worked: from where [Claim.Unread] stopped, or
// from where the unread part begins, until ctx or the lease ends. Those of the claim's own appends are among them. What it
// gives does not count as read; see [Claim.Read].
func (c *Claim) Follow(ctx context.Context, fn func(Message) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.lease.ctx, func() { cancel(context.Cause(c.lease.ctx)) })
	defer stop()
	path := c.Notification.StreamPath
	return tail.Follow(ctx, tail.Config{
		JSON: true, Offset: c.from(path),
		Open: func(ctx context.Context, offset, cursor string) (*http.Response, error) {
			return c.gw.tail(ctx, path, offset, cursor)
		},
	}, func(_ context.Context, b tail.Batch) error {
		for _, m := range b.Messages {
			if err := fn(Message{Path: path, Data: m, Offset: stamp(m)}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Read says that the primary stream has been read up to an offset: a handler that returns nil acks it.
func (c *Claim) Read(offset string) { c.setRead(c.Notification.StreamPath, offset) }
