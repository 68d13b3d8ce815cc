package dashboard

import (
	"context"
	"io"
	"net"
	"sync"
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

// wire carries connections to a gateway until it is cut.
type wire struct {
	net.Listener
	to string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l, to: to, conns: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { w.carry(in) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); w.set(true); all.Wait() })
	return w
}

func (w *wire) carry(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer out.Close()
	w.mu.Lock()
	if w.cut {
		w.mu.Unlock()
		return
	}
	w.conns[in], w.conns[out] = true, true
	w.mu.Unlock()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_, _ = in.Close(), out.Close()
		})
	}
	both.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, in)
	delete(w.conns, out)
}

// set cuts what runs and refuses what comes, or no longer does.
func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	if cut {
		for c := range w.conns {
			_ = c.Close()
		}
	}
}

// The network goes without a goodbye, as when a gateway is killed or a laptop leaves the room: everything is followed again, and
// what had been read before is there once.
func TestAConnectionThatIsCutIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.entityType("task")
	w.runner("mac", "Kyle's MacBook", true)
	w.spawn("/task/1", object{"dispatch_policy": toRunner("mac")})
	w.send("/task/1", "begin")
	h := w.claim("mac")
	delta := func(n, text string) object {
		return object{"type": "text_delta", "key": "t:" + n, "value": object{"text_id": "t", "delta": text}, "headers": object{"operation": "insert"}}
	}
	h.append(delta("0", "Beans "), delta("1", "and "))
	wire := newWire(t, w.gw.Addr().String())
	d := open(t, "http://"+wire.Addr().String(), "#/entity/task/1", desk, kyle)
	d.expect(`Failed to load resource`)
	d.sees("Beans and", "Live", "Running on Kyle's MacBook")
	for _, more := range []string{"peas", "leeks"} {
		wire.set(true)
		d.sees("Not up to date", "The stream was cut off. It is tried again.")
		h.append(delta(more, more+" "))
		d.picture("cut")
		wire.set(false)
		d.sees(more, "Live")
		d.seesNot("The stream was cut off.")
	}
	h.append(delta("end", "in May."))
	d.sees("Beans and peas leeks in May.")
	h.done()
	d.sees("Waiting for input")
}

// A gateway may say that rows must be fetched anew. What is on the page stays until they are there, and what was typed stays.
func TestRowsThatAreFetchedAnewLeaveThePageStanding(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.entityType("task")
	w.spawn("/task/1", object{})
	w.spawn("/task/2", object{})
	d := open(t, w.gw.URL, "#/entity/task/1", desk, kyle)
	d.sees("Created", "Live")
	d.fill("Message", "half a sen")
	eval[string](d, `(() => {
		window.field = document.querySelector(".composer textarea")
		const ask = fetch
		window.anew = 0
		window.fetch = (url, init) => {
			const to = new URL(url)
			if (anew > 1 || to.searchParams.get("table") !== "entities") return ask(url, init)
			// The rows take their time, so that the page is drawn before they are there.
			if (++anew > 1) return new Promise((ok) => setTimeout(ok, 800)).then(() => ask(url, init))
			return Promise.resolve(new Response('[{"headers":{"control":"must-refetch"}}]', { status: 409, headers: { "electric-handle": "another" } }))
		}
		return ""
	})()`)
	w.call("POST", "/_electric/entities/task/2/signal", object{"signal": "SIGSTOP"})
	d.until("it was told to fetch anew", `anew > 1`)
	w.call("POST", "/_electric/entities/task/1/signal", object{"signal": "SIGSTOP"})
	d.sees("Paused", "Live")
	if got := eval[string](d, `field.isConnected ? field.value : "the field is gone"`); got != "half a sen" {
		t.Error(got)
	}
	d.visit("#/entities")
	d.until("each row is there once", `document.querySelectorAll("a.entity").length === 2`)
}
