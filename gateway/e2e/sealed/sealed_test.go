// Package sealed listens on the wire between a gateway and a runner whose wakes are sealed.
package sealed

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/openapi/runner"
	"github.com/rouse-run/rouse/openapi/runner/sealed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const bound = 30 * time.Second

// tap is a relay of bytes that keeps all of them.
type tap struct {
	addr string
	mu   sync.Mutex
	seen bytes.Buffer
}

func (p *tap) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.Write(b)
}

func (p *tap) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.String()
}

func newTap(t *testing.T, target string) *tap {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{addr: l.Addr().String()}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to.Host)
			if err != nil {
				_ = in.Close()
				continue
			}
			stop := context.AfterFunc(ctx, func() { _, _ = in.Close(), out.Close() })
			var pair sync.WaitGroup
			pair.Go(func() { _, _ = io.Copy(out, io.TeeReader(in, p)); _ = out.Close() })
			pair.Go(func() { _, _ = io.Copy(in, io.TeeReader(out, p)); _ = in.Close() })
			all.Go(func() { pair.Wait(); stop() })
		}
	})
	t.Cleanup(func() { cancel(); _ = l.Close(); all.Wait() })
	return p
}

// detour sends the reads of wake streams through a tap, and counts what else a test wants to know.
type detour struct {
	base  http.RoundTripper
	via   *tap
	keys  atomic.Int32
	blind bool // the gateway does not know of keys
}

func (d *detour) RoundTrip(q *http.Request) (*http.Response, error) {
	if strings.HasSuffix(q.URL.Path, "/wake-key") {
		d.keys.Add(1)
		if d.blind {
			return &http.Response{StatusCode: 404, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"code":"NOT_FOUND"}`)), Request: q}, nil
		}
	}
	if d.via != nil && q.Method == http.MethodGet && strings.HasSuffix(q.URL.Path, "/wake") {
		q = q.Clone(q.Context())
		q.URL.Host = d.via.addr
	}
	return d.base.RoundTrip(q)
}

// rig is a gateway with an entity that runner "mac" works.
type rig struct {
	*servertest.Instance
	t    *testing.T
	kyle *wire.Client
}

func newRig(t *testing.T) *rig {
	t.Helper()
	in := servertest.Start(t, servertest.Options{})
	hc := wire.NewHTTP(bound)
	t.Cleanup(hc.CloseIdleConnections)
	r := &rig{in, t, &wire.Client{Base: in.URL, Principal: "user:kyle", HTTP: hc}}
	r.must("POST", "/_electric/entity-types", `{"name":"job","description":"x"}`)
	r.must("POST", "/_electric/runners", `{"id":"mac","label":"Mac"}`)
	return r
}

func (r *rig) must(method, path, body string) wire.Answer {
	r.t.Helper()
	var b any
	if body != "" {
		b = body
	}
	a := r.kyle.Do(r.t.Context(), method, path, b, nil)
	if a.Err != nil || a.Status >= 300 {
		r.t.Fatalf("%v: %v %s", a, a.Err, a.Raw)
	}
	return a
}

func (r *rig) spawn(id string) {
	r.t.Helper()
	r.must("PUT", "/_electric/entities/job/"+id, `{"args":{"password":"4rgs3cret"},"tags":{"customer":"t4gs3cret"},"dispatch_policy":{"targets":[{"type":"runner","runnerId":"mac"}]}}`)
}

func (r *rig) send(id string) {
	r.t.Helper()
	r.must("POST", "/_electric/entities/job/"+id+"/send", `{"payload":"do"}`)
}

// run starts a runner and gives what it has done.
func (r *rig) run(d *detour, change func(*runner.Config)) (done chan string) {
	r.t.Helper()
	tr := &http.Transport{}
	d.base = tr
	done = make(chan string, 100)
	cfg := runner.Config{ID: "mac", Servers: []runner.Server{{URL: r.URL, Principal: "user:kyle", HTTP: &http.Client{Transport: d}}},
		Register: &runner.Registration{Label: "Mac"}, Liveness: time.Second, Grace: time.Second,
		Handler: func(ctx context.Context, c *runner.Claim) error {
			for _, err := range c.Unread(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		Observe: func(e runner.Event) {
			if e.Kind == runner.Done {
				done <- e.Entity
			}
		}}
	change(&cfg)
	run, err := runner.New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(r.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run.Run(ctx) }()
	r.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			r.t.Error(err)
		}
		tr.CloseIdleConnections()
	})
	return done
}

func (r *rig) waits(done chan string, want string) {
	r.t.Helper()
	select {
	case got := <-done:
		if got != want {
			r.t.Fatalf("%s was worked, not %s", got, want)
		}
	case <-time.After(bound):
		r.t.Fatalf("%s is not worked", want)
	}
}

func key(t *testing.T) *sealed.Key {
	t.Helper()
	k, err := sealed.Load(filepath.Join(t.TempDir(), "mac.key"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// secrets are what nobody on the way may see of a wake.
var secrets = []string{"rouse_ct_", "claimToken", "4rgs3cret", "t4gs3cret", "spawnArgs", "job/", "wakeId", "callback"}

// R33: whoever relays or records the wake stream sees neither token nor args, whichever way the runner claims.
func TestNobodyBetweenReadsAWake(t *testing.T) {
	t.Parallel()
	for name, style := range map[string]runner.Style{"claim first": runner.ClaimFirst, "callback": runner.Callback} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			d := &detour{via: newTap(t, r.URL)}
			r.spawn("1")
			r.send("1")
			k := key(t)
			done := r.run(d, func(c *runner.Config) { c.Key, c.Style = k, style })
			r.waits(done, "/job/1")
			r.spawn("2")
			r.send("2")
			r.waits(done, "/job/2")
			seen := d.via.text()
			for _, s := range secrets {
				if strings.Contains(seen, s) {
					t.Errorf("the wire shows %q", s)
				}
			}
			if !strings.Contains(seen, `"sealed":"`) || !strings.Contains(seen, "%2Fwake?offset=") {
				t.Fatalf("the wake stream did not come this way: %.600s", seen)
			}
			for _, path := range []string{"/runners/mac/wake", "/v1/stream/runners/mac/wake?offset=-1", "/runners/mac/wake?offset=-1&live=long-poll"} {
				a := r.must("GET", path, "")
				for _, s := range secrets {
					if strings.Contains(string(a.Raw), s) {
						t.Errorf("%s shows %q", path, s)
					}
				}
			}
		})
	}
}

// A key that another process put in the place of this one's costs a look back, and no wake.
func TestAReplacedKeyLosesNoWake(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := &detour{}
	mine, other := key(t), key(t)
	done := r.run(d, func(c *runner.Config) { c.Key = mine })
	r.spawn("1")
	r.send("1")
	r.waits(done, "/job/1")
	r.must("PUT", "/_electric/runners/mac/wake-key", `{"wake_key":"`+other.Public()+`"}`)
	for range 3 {
		r.send("1")
		r.waits(done, "/job/1")
	}
	if a := r.must("GET", "/_electric/runners/mac", ""); !strings.Contains(string(a.Raw), mine.Public()) {
		t.Errorf("its key is not the gateway's: %s", a.Raw)
	}
}

// A key that is taken away costs no wake, but the runner says, once, that they come in the clear.
func TestAKeyThatIsTakenAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	said := &tap{}
	done := r.run(&detour{}, func(c *runner.Config) { c.Key, c.Log = key(t), slog.New(slog.NewTextHandler(said, nil)) })
	r.spawn("1")
	r.send("1")
	r.waits(done, "/job/1")
	const warning = "wakes come in the clear"
	if text := said.text(); strings.Contains(text, warning) {
		t.Fatal(text)
	}
	r.must("DELETE", "/_electric/runners/mac/wake-key", "")
	for range 2 {
		r.send("1")
		r.waits(done, "/job/1")
	}
	if text := said.text(); strings.Count(text, warning) != 1 {
		t.Fatal(text)
	}
}

// A runner without a key has the one before it removed, and a gateway that knows no keys is worked for in the clear.
func TestRunnersWithoutKeysAndGatewaysWithoutThem(t *testing.T) {
	t.Parallel()
	t.Run("runner", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.must("PUT", "/_electric/runners/mac/wake-key", `{"wake_key":"`+key(t).Public()+`"}`)
		r.spawn("1")
		r.send("1")
		r.waits(r.run(&detour{}, func(c *runner.Config) { c.Register.IfAbsent = true }), "/job/1")
		if a := r.must("GET", "/_electric/runners/mac", ""); strings.Contains(string(a.Raw), "wake_key") {
			t.Errorf("the key is still there: %s", a.Raw)
		}
	})
	t.Run("gateway", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		d := &detour{blind: true}
		r.spawn("1")
		r.send("1")
		r.waits(r.run(d, func(c *runner.Config) { c.Key, c.Register = key(t), nil }), "/job/1")
		if d.keys.Load() == 0 {
			t.Error("the gateway was not told the key")
		}
	})
}

// A pool's entries are sealed to each member as it reads them; who reads as no member sees neither token nor args.
func TestAPoolsWakesAreSealedToWhoeverReadsThem(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	d := &detour{via: newTap(t, r.URL)}
	r.must("PUT", "/_electric/worker-pools/crowd", `{}`)
	r.must("PUT", "/_electric/worker-pools/crowd/members/mac", `{}`)
	r.must("POST", "/_electric/runners", `{"id":"plain","label":"Plain"}`)
	r.must("PUT", "/_electric/worker-pools/crowd/members/plain", `{}`)
	mine, other := key(t), key(t)
	done := r.run(d, func(c *runner.Config) { c.Key, c.Liveness = mine, 200*time.Millisecond })
	spawn := func(id string) {
		t.Helper()
		r.must("PUT", "/_electric/entities/job/"+id, `{"args":{"password":"4rgs3cret"},"tags":{"customer":"t4gs3cret"},"dispatch_policy":{"targets":[{"type":"worker-pool","workerPoolId":"crowd"}]}}`)
		r.send(id)
	}
	spawn("1")
	r.waits(done, "/job/1")
	const stream = "/worker-pools/crowd/wake"
	for path, shown := range map[string]bool{stream + "?runner=mac": false, "/v1/stream" + stream + "?runner=mac&offset=-1": false, stream + "?runner=mac&offset=-1&live=long-poll": false,
		stream: false, stream + "?runner=plain": true} {
		a := r.must("GET", path, "")
		text := string(a.Raw)
		if shown != strings.Contains(text, "rouse_ct_") || shown != strings.Contains(text, "4rgs3cret") {
			t.Errorf("%s shows %s", path, text)
		}
		if sealed := strings.Contains(path, "runner=mac"); sealed != strings.Contains(text, `"sealed":"`) {
			t.Errorf("%s: sealed is %t: %s", path, !sealed, text)
		}
	}
	// Another key in its place is put right, and loses nothing.
	r.must("PUT", "/_electric/runners/mac/wake-key", `{"wake_key":"`+other.Public()+`"}`)
	r.must("PUT", "/_electric/worker-pools/crowd/members/plain", `{"status":"disabled"}`)
	for _, id := range []string{"2", "3"} {
		spawn(id)
		r.waits(done, "/job/"+id)
	}
	seen := d.via.text()
	for _, s := range []string{"rouse_ct_", "4rgs3cret", "t4gs3cret"} {
		if strings.Contains(seen, s) {
			t.Errorf("the wire shows %q", s)
		}
	}
	if !strings.Contains(seen, "crowd") || !strings.Contains(seen, `"sealed":"`) {
		t.Error("the pool's wake stream did not come this way")
	}
}
