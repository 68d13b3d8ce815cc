package clients

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// agentsTests is how many tests agents.test.mjs has.
const agentsTests = "7"

// Runners and webhook handlers as the ecosystem's runtime makes them, in Node,
// on leases short enough that one can be killed.
func TestTheEcosystemsAgents(t *testing.T) {
	t.Parallel()
	installed(t)
	in := servertest.Start(t, servertest.Options{Configure: func(c *config.Config) {
		c.LeaseTTL, c.ReaperPeriod, c.LongPollTimeout = 3*time.Second, 50*time.Millisecond, 5*time.Second
	}})
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "--test", "--test-reporter=tap", "--test-force-exit", "agents.test.mjs")
	cmd.Env = append(os.Environ(), "ROUSE_URL="+in.URL, "NO_COLOR=1")
	cmd.WaitDelay = 5 * time.Second
	allPass(t, cmd, agentsTests)
}
