package dashboard

import (
	"context"
	"testing"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// A gateway goes and comes back: the page says so both times, and has what happened in between, without a reload.
func TestAGatewayThatComesBackIsFollowedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.entityType("task")
	w.runner("mac", "Kyle's MacBook", true)
	w.spawn("/task/1", object{"dispatch_policy": toRunner("mac")})
	d := open(t, w.gw.URL, "#/entity/task/1", desk, kyle)
	d.expect(`Failed to load resource|status of 50[03]`)
	d.sees("Created", "Live")
	address := w.gw.Addr().String()
	if err := w.gw.Drain(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	d.sees("Not up to date")
	d.picture("gone")
	w.gw = servertest.Start(t, servertest.Options{DB: w.gw.DB, Configure: func(c *config.Config) { c.Listen = address }})
	w.send("/task/1", "are you back?")
	d.sees("are you back?", "Live", "Runner syncing pending work...")
	d.picture("back")
}
