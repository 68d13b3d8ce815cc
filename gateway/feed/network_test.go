package feed

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// proxy is a network between a gateway and Postgres that can be cut.
type proxy struct {
	dsn string

	mu    sync.Mutex
	dark  chan struct{} // non-nil while nothing passes; closed when it does again
	conns []net.Conn
}

func startProxy(t *testing.T, dsn string) *proxy {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{dsn: fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s dbname=%s sslmode=disable",
		ln.Addr().(*net.TCPAddr).Port, cfg.User, cfg.Password, cfg.Database)}
	socket := filepath.Join(cfg.Host, fmt.Sprintf(".s.PGSQL.%d", cfg.Port))
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", socket)
			if err != nil {
				client.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, client, server)
			p.mu.Unlock()
			wg.Go(func() { p.pass(client, server) })
			wg.Go(func() { p.pass(server, client) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		p.light()
		p.reset()
		wg.Wait()
	})
	return p
}

func (p *proxy) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		dark := p.dark
		p.mu.Unlock()
		if dark != nil {
			<-dark
			return // what was under way is lost with its connection
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut lets nothing pass any more; nobody is told.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dark = make(chan struct{})
}

func (p *proxy) light() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dark != nil {
		close(p.dark)
		p.dark = nil
	}
}

// reset breaks all connections.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

func TestNetworkOfTheHolderIsCut(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	net := startProxy(t, db.DSN)
	conn := db.Conn(t)
	a := startGateway(t, net.dsn, func(c *Config, _ *routerLog) {
		c.ReadTimeout, c.ConnectTimeout = 2*time.Second, 2*time.Second
	})
	eventually(t, "first holds", a.Holder)
	b := startGateway(t, db.DSN, nil)
	eventually(t, "second up", b.Up)
	tr := startTraffic(t, conn)
	eventually(t, "traffic routed", func() bool { return a.router.has(20) })
	net.cut()
	took := within(t, takeOverLimit, "take-over", b.Holder)
	t.Logf("take-over when the holder's network is cut: %v", took)
	took = within(t, 4*time.Second, "the gateway that is cut off finds out", func() bool { return !a.Up() })
	t.Logf("the gateway that is cut off found out %v later", took)
	net.light()
	eventually(t, "both up", func() bool { return allUp(a, b) })
	tr.wantAllRouted(t, a, b)
}

func TestConnectionsBreakAgainAndAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	net := startProxy(t, db.DSN)
	g := startGateway(t, net.dsn, nil)
	eventually(t, "up", g.Up)
	tr := startTraffic(t, db.Conn(t))
	for range 5 {
		before := tr.last.Load()
		eventually(t, "traffic goes on", func() bool { return g.router.has(before + 5) })
		net.reset()
		eventually(t, "noticed", func() bool { return !g.Up() || g.router.has(before+20) })
	}
	tr.wantAllRouted(t, g)
}

// A proxy that hangs up after every few bytes of an answer must not make the
// feed believe that something is there.
func TestServerThatSpeaksNonsense(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	asked := make(chan struct{}, 1)
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				if _, err := io.CopyN(io.Discard, c, 8); err == nil {
					_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
				}
				select {
				case asked <- struct{}{}:
				default:
				}
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	g := startGateway(t, fmt.Sprintf("postgres://u@%s/d?sslmode=disable", ln.Addr()), nil)
	for range 3 {
		<-asked
	}
	if code, _, ok := g.Health(); ok || code != CodeDown {
		t.Fatalf("health: %q, %v", code, ok)
	}
}
