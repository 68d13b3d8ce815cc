package story

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/openapi/client"
	"github.com/rouse-run/rouse/openapi/runner"
	"github.com/rouse-run/rouse/openapi/runner/call"
)

// On a gateway that asks for credentials the user's token goes beside the claim's and the write token, and somebody
// else's token opens nothing.
func TestTheStoryWithTokens(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.json")
	tokens := map[string]string{}
	for _, who := range []string{"user:kyle", "user:eve"} {
		tokens[who] = devtoken.NewToken()
		if err := devtoken.Add(file, devtoken.Entry{Principal: who, SHA256: devtoken.Hash(tokens[who])}); err != nil {
			t.Fatal(err)
		}
	}
	gw := servertest.Start(t, servertest.Options{Configure: func(c *config.Config) {
		c.Insecure, c.TokensFile, c.TypeSpawn = false, file, "registrar"
	}})
	server := func(token string) runner.Server { return runner.Server{URL: gw.URL, Token: token} }
	w := &world{t: t, gw: gw}
	var err error
	w.phone, err = server(tokens["user:kyle"]).Client()
	w.ok(err)
	resp, err := w.phone.PutEntityType(t.Context(), nil, client.EntityTypePut{Name: "task", Description: ptr("x")})
	w.ok(call.Decode(resp, err, nil))

	for _, style := range []runner.Style{runner.ClaimFirst, runner.Callback} {
		id := map[runner.Style]string{runner.ClaimFirst: "1", runner.Callback: "2"}[style]
		ctx, stop := context.WithCancel(t.Context())
		events := make(chan runner.Event, 1000)
		r, err := runner.New(runner.Config{ID: "laptop" + id, Servers: []runner.Server{server(tokens["user:kyle"])},
			Register: &runner.Registration{Label: "Kyle's laptop"}, Style: style, Observe: func(e runner.Event) { events <- e },
			Handler: func(ctx context.Context, c *runner.Claim) error {
				for m, err := range c.Unread(ctx) {
					if err != nil {
						return err
					}
					if err := c.Ack(ctx, m.Offset); err != nil {
						return err
					}
				}
				return c.Append(ctx, map[string]any{"headers": map[string]any{"operation": "insert"}, "type": "text", "key": "k", "value": map[string]any{"text": "done"}})
			}})
		w.ok(err)
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		w.until(events, runner.Connected)
		w.spawn(id, "laptop"+id)
		w.send(id, "hello")
		w.until(events, runner.Done)
		stop()
		w.ok(<-ended)
		if got := w.texts(id); !slices.Equal(got, []string{"done"}) {
			t.Errorf("%v", got)
		}
	}
	for name, token := range map[string]string{"somebody else's": tokens["user:eve"], "no": "", "a made-up": "rouse_nothing"} {
		r, err := runner.New(runner.Config{ID: "laptop1", Servers: []runner.Server{server(token)}, Handler: func(context.Context, *runner.Claim) error { return nil }})
		w.ok(err)
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		if err := r.Run(ctx); call.Status(err) != 401 && call.Status(err) != 403 {
			t.Errorf("%s token: %v", name, err)
		}
		stop()
	}
}
