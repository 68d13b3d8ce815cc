package clients

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/signin"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// agentsTests is how many tests agents.test.mjs has.
const agentsTests = "7"

// Runners and webhook handlers as the ecosystem's runtime makes them, in Node,
// on leases short enough that one can be killed.
func TestTheEcosystemsAgents(t *testing.T) {
	t.Parallel()
	installed(t)
	bothWays(t, func(t *testing.T, door *signin.Door) {
		opts := options(door, func(c *config.Config) {
			c.LeaseTTL, c.ReaperPeriod, c.LongPollTimeout = 3*time.Second, 50*time.Millisecond, 5*time.Second
		})
		in := servertest.Start(t, opts)
		base := in.URL
		if door != nil {
			door.Check(t, in)
			door.To(in.Addr().String())
			base = door.URL
		}
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		cmd := exec.CommandContext(ctx, "node", "--test", "--test-reporter=tap", "--test-force-exit", "agents.test.mjs")
		cmd.Env = append(os.Environ(), "ROUSE_URL="+base, "NO_COLOR=1")
		cmd.WaitDelay = 5 * time.Second
		allPass(t, cmd, agentsTests)
	})
}

// bothWays runs a test against a gateway as `dev` runs it, and one as `serve` does:
// behind an identity provider and a policy, with transports in processes of their
// own. The clients are the same.
func bothWays(t *testing.T, test func(t *testing.T, door *signin.Door)) {
	t.Helper()
	t.Run("dev", func(t *testing.T) {
		t.Parallel()
		test(t, nil)
	})
	t.Run("serve", func(t *testing.T) {
		t.Parallel()
		test(t, signin.NewDoor(t))
	})
}

// options are a gateway's, behind a door unless that is nil.
func options(door *signin.Door, configure func(*config.Config)) servertest.Options {
	if door == nil {
		return servertest.Options{Configure: configure}
	}
	return door.Options(configure)
}
