package clients

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/signin"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// ecosystemTests is how many tests the Node package has: one that is skipped
// must not pass for one that ran.
const ecosystemTests = "21"

// The ecosystem's own clients, unchanged, in Node.
func TestTheEcosystemsClients(t *testing.T) {
	t.Parallel()
	installed(t)
	bothWays(t, func(t *testing.T, door *signin.Door) {
		site := newSite(t, door)
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		cmd := exec.CommandContext(ctx, "node", "--test", "--test-reporter=tap", "--test-force-exit", "--test-concurrency=1", "shapes.test.mjs", "streams.test.mjs")
		cmd.Env = append(os.Environ(), "ROUSE_URL="+site.url, "ROUSE_CONTROL="+site.control, "NO_COLOR=1")
		cmd.WaitDelay = 5 * time.Second
		allPass(t, cmd, ecosystemTests)
	})
}

var installing sync.Mutex

// installed installs the Node packages once.
func installed(t *testing.T) {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
	if _, err := os.Stat(filepath.Join("node_modules", "libsodium-wrappers")); err == nil { // the youngest of them
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund").CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
}

// allPass runs Node's tests: as many as there are have to pass.
func allPass(t *testing.T, cmd *exec.Cmd, tests string) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out[max(0, len(out)-30000):])
	}
	if m := passed.FindSubmatch(out); m == nil || string(m[1]) != tests || !bytes.Contains(out, []byte("\n# skipped 0\n")) {
		t.Fatalf("another number of tests ran:\n%s", out[max(0, len(out)-2000):])
	}
}

var passed = regexp.MustCompile(`\n# pass (\d+)\n`)

// site is an address behind which the gateway can be replaced.
type site struct {
	url, control string
	t            *testing.T
	door         *signin.Door // nil: none
	db           *pgtest.DB
	mu           sync.Mutex
	current      *servertest.Instance
	target       atomic.Pointer[url.URL]
}

func newSite(t *testing.T, door *signin.Door) *site {
	t.Helper()
	// A server of its own: a row session waits for whoever writes on the server.
	s := &site{t: t, door: door, db: pgtest.Server(t, pgtest.Options{Settings: map[string]string{"fsync": "off"}}).DB}
	s.start()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	front := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1, Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(s.target.Load())
			r.Out.Host = r.In.Host
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/restart" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		s.restart(w)
	}))
	t.Cleanup(control.Close)
	t.Cleanup(front.Close)
	s.url, s.control = front.URL, control.URL
	if door != nil {
		door.Check(t, s.current)
		door.To(front.Listener.Addr().String())
		s.url = door.URL
	}
	return s
}

func (s *site) start() {
	opts := options(s.door, func(c *config.Config) { c.LongPollTimeout = 5 * time.Second })
	opts.DB = s.db
	s.current = servertest.Start(s.t, opts)
	target, err := url.Parse("http://" + s.current.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.target.Store(target)
}

func (s *site) restart(w http.ResponseWriter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.current.Drain(context.WithoutCancel(s.t.Context())); err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	s.start()
	w.WriteHeader(http.StatusNoContent)
}
