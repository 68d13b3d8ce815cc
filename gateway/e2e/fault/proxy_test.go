package fault

import (
	"context"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// proxy stands between gateways and Postgres, and misbehaves when told to.
type proxy struct {
	to       atomic.Pointer[string]
	listener net.Listener
	wg       sync.WaitGroup

	// swallow: the next answer of the server on some connections is lost, and
	// the connection with it. What was asked has been done, or not.
	swallow atomic.Int32
	// frozen: nothing passes in either direction; nobody is told.
	frozen atomic.Bool

	mu    sync.Mutex
	conns map[net.Conn]net.Conn
	lost  int
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, conns: map[net.Conn]net.Conn{}}
	p.lead(to)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.frozen.Store(false)
		p.cutAll()
		p.wg.Wait()
	})
	return p
}

// lead has new connections go to another server.
func (p *proxy) lead(to string) { p.to.Store(&to) }

// through puts the proxy's address into a DSN.
func (p *proxy) through(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.listener.Addr().String()
	return u.String()
}

func (p *proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", *p.to.Load())
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in] = out
		p.mu.Unlock()
		p.wg.Go(func() { p.pass(in, out, false) })
		p.wg.Go(func() { p.pass(out, in, true) })
	}
}

func (p *proxy) pass(from, to net.Conn, answers bool) {
	defer func() {
		_ = from.Close()
		_ = to.Close()
		p.mu.Lock()
		delete(p.conns, from)
		delete(p.conns, to)
		p.mu.Unlock()
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		for p.frozen.Load() {
			pause(context.Background(), 5*time.Millisecond)
		}
		if n > 0 {
			if answers && p.swallow.Load() > 0 && rand.IntN(4) == 0 && p.swallow.Add(-1) >= 0 {
				p.mu.Lock()
				p.lost++
				p.mu.Unlock()
				return
			}
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cutAll closes every connection.
func (p *proxy) cutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for a, b := range p.conns {
		_ = a.Close()
		_ = b.Close()
	}
}

// behindProxy has the gateways reach the database through a proxy.
func behindProxy(w *world) string {
	tcp := w.pg.TCPURL("rouse")
	w.proxy = newProxy(w.t, hostOf(w.t, tcp))
	return w.proxy.through(w.t, tcp)
}

func hostOf(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// F11, F12: answers of the database are lost after it has committed,
// connections are cut, and for a while nothing passes at all. What was
// acknowledged is there once; what is repeated lands once.
func TestDatabaseAnswersLostUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorldThrough(t, 6, pgtest.Options{}, behindProxy)
	underLoad(t, w, 4, 100, func() {
		for range 8 {
			w.proxy.swallow.Store(3)
			pause(t.Context(), 150*time.Millisecond)
		}
		w.proxy.swallow.Store(0)
		w.proxy.cutAll()
		pause(t.Context(), 200*time.Millisecond)
		w.proxy.frozen.Store(true)
		pause(t.Context(), time.Second)
		w.proxy.frozen.Store(false)
	})
	w.proxy.mu.Lock()
	defer w.proxy.mu.Unlock()
	t.Logf("%d answers of the database were lost", w.proxy.lost)
	if w.proxy.lost < 8 {
		t.Error("too few for this to mean anything")
	}
	for i, g := range w.gateways {
		if s := g.said(); strings.Contains(s, "panic") {
			t.Errorf("gateway %d: %s", i, s)
		}
	}
}
