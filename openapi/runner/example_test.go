package runner_test

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	"github.com/rouse-run/rouse/openapi/runner"
)

// A runner that answers each message.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	r, err := runner.New(runner.Config{
		ID:       "laptop",
		Servers:  []runner.Server{{URL: "http://127.0.0.1:4437", Principal: "user:kyle"}},
		Register: &runner.Registration{Label: "Kyle's laptop", IfAbsent: true},
		Cursors:  runner.CursorDir("/var/lib/my-runner"),
		Handler: func(ctx context.Context, c *runner.Claim) error {
			for message, err := range c.Unread(ctx) {
				if err != nil {
					return err
				}
				if err := c.Append(ctx, map[string]any{
					"headers": map[string]any{"operation": "insert"},
					"type":    "answer", "key": message.Offset, "value": map[string]any{"to": message.Data},
				}); err != nil {
					return err
				}
			}
			return nil // what was read is acked, the claim released
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := r.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
