package fault

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/cli"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// asRouse makes this test binary the rouse binary.
const asRouse = "ROUSE_TEST_BINARY"

func TestMain(m *testing.M) {
	if os.Getenv(asRouse) != "" {
		os.Exit(cli.Run(context.Background(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Environ: os.Environ()}))
	}
	goleak.VerifyTestMain(m)
}

const (
	lease    = 1500 * time.Millisecond
	patience = 45 * time.Second // for what must happen in the end
)

// process is a rouse of its own.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}

	mu  sync.Mutex
	out bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.out.String()
	return s[max(0, len(s)-6000):]
}

func launch(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(self, args...), exited: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), asRouse+"=1"), env...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("rouse %s printed at the end:\n%s", args[0], p.said())
		}
	})
	return p
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

func within(t *testing.T, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ; !ok(); <-tick.C {
		if time.Since(began) > limit {
			t.Fatalf("did not happen in %v: %s", limit, what)
		}
	}
	return time.Since(began)
}

// world is one Postgres that syncs to disk, and two gateways as processes.
type world struct {
	t        *testing.T
	pg       *pgtest.Instance
	dsn      string // as the gateways have it
	proxy    *proxy // between them, if there is one
	http     *http.Client
	ports    [2]int
	gateways [2]*process
	env      []string // of the gateways, beside what startGateway says
	clients  [2]*wire.Client
	entities []*entity
	load     *load // once it is under one

	clockJumps bool // the database's, so that its times say nothing of an order

	risky   bool    // acknowledged appends may be lost
	forgive *window // those of this time; nil: none
}

// entity with what the test knows of it.
type entity struct{ id, url, path, consumer string }

func newWorld(t *testing.T, entities int) *world {
	t.Helper()
	return newWorldThrough(t, entities, pgtest.Options{}, func(w *world) string { return w.pg.DB.DSN })
}

// newWorldThrough lets the test say what Postgres it is and how the gateways
// reach it.
func newWorldThrough(t *testing.T, entities int, opts pgtest.Options, dsn func(*world) string) *world {
	t.Helper()
	w := &world{t: t, pg: pgtest.Server(t, opts), http: wire.NewHTTP(10 * time.Second)}
	w.dsn = dsn(w)
	t.Cleanup(w.http.CloseIdleConnections)
	for i := range w.gateways {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		w.ports[i] = l.Addr().(*net.TCPAddr).Port
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		w.clients[i] = &wire.Client{Base: fmt.Sprintf("http://127.0.0.1:%d", w.ports[i]), Principal: "user:kyle", HTTP: w.http}
	}
	for i := range w.gateways {
		w.startGateway(i)
		w.ready(i)
	}
	w.must(w.clients[0].Type(t.Context(), "job"), 200, 201)
	w.must(w.clients[0].Runner(t.Context(), "mac"), 200, 201)
	for i := range entities {
		e := &entity{id: strconv.Itoa(i), url: fmt.Sprintf("/job/%d", i)}
		e.path = e.url + "/main"
		w.must(w.clients[i%2].Spawn(t.Context(), "job", e.id, "mac"), 200, 201)
		w.scan(`select name from rouse.consumers where entity_url = $1`, []any{e.url}, &e.consumer)
		w.entities = append(w.entities, e)
	}
	return w
}

func (w *world) startGateway(i int) {
	w.t.Helper()
	w.gateways[i] = launch(w.t, append([]string{
		"ROUSE_DATABASE_URL=" + w.dsn, "ROUSE_KEYS=" + servertest.TestKeys, "ROUSE_INSECURE=true", "ROUSE_TYPE_SPAWN=all",
		"ROUSE_LISTEN=127.0.0.1:" + strconv.Itoa(w.ports[i]), "ROUSE_LEASE_TTL=" + lease.String(), "ROUSE_OUTSTANDING_AFTER=2s",
		"ROUSE_REAPER_PERIOD=100ms", "ROUSE_LOG_LEVEL=info", "ROUSE_POOL_SIZE=8",
	}, w.env...), "serve")
}

func (w *world) ready(i int) time.Duration {
	w.t.Helper()
	return within(w.t, patience, fmt.Sprintf("gateway %d is ready", i), func() bool {
		select {
		case <-w.gateways[i].exited:
			w.t.Fatalf("gateway %d ended: %s", i, w.gateways[i].said())
		default:
		}
		return w.clients[i].Do(w.t.Context(), http.MethodGet, "/readyz", nil, nil).Status == http.StatusOK
	})
}

func (w *world) must(a wire.Answer, allowed ...int) {
	w.t.Helper()
	for _, s := range allowed {
		if a.Status == s {
			return
		}
	}
	w.t.Fatalf("%v: %s", a, a.Raw)
}

// scan reads one row on a connection of its own: the server may have been
// restarted since the last one.
func (w *world) scan(sql string, args []any, into ...any) {
	w.t.Helper()
	scan(w.t, w.pg.DB.DSN, sql, args, into...)
}

func scan(t *testing.T, dsn, sql string, args []any, into ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(into...); err != nil {
		t.Fatalf("%s: %v", strings.Join(strings.Fields(sql), " "), err)
	}
}

// loadTime is how long the load goes on before and after the fault.
func loadTime(t *testing.T, short time.Duration) time.Duration {
	t.Helper()
	if v := os.Getenv("ROUSE_FAULT_SECONDS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n) * time.Second / 2
	}
	return short
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
