// Package conformance runs the ecosystem's own test suite of the Durable
// Streams protocol against gateways started by the test.
package conformance

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/signin"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

func TestMain(m *testing.M) {
	servertest.ServePlugins()
	goleak.VerifyTestMain(m)
}

// longPoll is shortened, since many tests wait one out.
const longPoll = 2 * time.Second

// gateway is a whole one, with everything in front of the streams that users
// have there. publicURL, when not empty, is where clients find it.
func gateway(t *testing.T, db *pgtest.DB, publicURL string) *servertest.Instance {
	t.Helper()
	return servertest.Start(t, servertest.Options{DB: db, Configure: func(c *config.Config) { c.LongPollTimeout, c.PublicURL = longPoll, publicURL }})
}

func TestSuiteAgainstOneGateway(t *testing.T) {
	t.Parallel()
	suite(t, gateway(t, nil, "").URL)
}

// The suite knows of no credentials: a door gives it some. Behind it stands a
// gateway as `serve` runs it.
func TestSuiteAgainstAGatewayThatAsksWhoItIs(t *testing.T) {
	t.Parallel()
	door := signin.NewDoor(t)
	in := servertest.Start(t, door.Options(func(c *config.Config) { c.LongPollTimeout = longPoll }))
	door.Check(t, in)
	door.To(in.Addr().String())
	suite(t, door.URL)
}

func TestSuiteAgainstTwoGatewaysInTurn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	front := &alternate{transport: &http.Transport{MaxIdleConnsPerHost: 256}, ready: make(chan struct{})}
	t.Cleanup(front.transport.CloseIdleConnections)
	base := newServer(t, front)
	for range 2 {
		// What a gateway hands out leads to the front again.
		u, err := url.Parse("http://" + gateway(t, db, base).Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		front.targets = append(front.targets, u)
	}
	close(front.ready)
	suite(t, base)
}

// alternate is a proxy that sends each request to the next target.
type alternate struct {
	transport *http.Transport
	// ready is closed once the targets are there: the first may call before the last is.
	ready   chan struct{}
	targets []*url.URL
	n       atomic.Uint64
}

func (a *alternate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	<-a.ready
	proxy := httputil.ReverseProxy{
		FlushInterval: -1,
		Transport:     a.transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(a.targets[a.n.Add(1)%uint64(len(a.targets))])
			r.Out.Host = r.In.Host
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	proxy.ServeHTTP(w, r)
}

var prepared = make(chan struct{}, 1)

// suite runs the npm suite in a process of its own.
func suite(t *testing.T, base string) {
	t.Helper()
	prepare(t)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join("node_modules", ".bin", "vitest"), "run", "--reporter=dot")
	cmd.Env = append(os.Environ(), "CONFORMANCE_URL="+base, "CONFORMANCE_LONG_POLL_MS="+strconv.FormatInt(longPoll.Milliseconds(), 10), "CI=1", "NO_COLOR=1")
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the suite failed: %v\n%s", err, tail(out, 20000))
	}
	// A suite that skipped its tests must not pass.
	if m := counts.FindSubmatch(out); m == nil || string(m[1]) != "338" {
		t.Fatalf("the suite ran another number of tests:\n%s", tail(out, 2000))
	}
}

var counts = regexp.MustCompile(`Tests\s+(\d+) passed \(`)

// prepare installs the suite from its lock file, once.
func prepare(t *testing.T) {
	t.Helper()
	prepared <- struct{}{}
	defer func() { <-prepared }()
	if _, err := os.Stat(filepath.Join("node_modules", ".bin", "vitest")); err == nil {
		return
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Fatal("npm is needed for the conformance suite: install Node.js 20 or newer")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, npm, "ci", "--no-audit", "--no-fund").CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, tail(out, 4000))
	}
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }
