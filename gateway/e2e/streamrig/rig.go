// Package streamrig boots what serves streams (store, log feed, appender,
// handler) on a test database, for tests of the protocol alone. It promises
// that several rigs may share one database, as several gateways do, and that
// everything ends with the test. It knows nothing of the control plane.
package streamrig

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rouse-run/rouse/gateway/appender"
	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/gateway/streams"
)

// Rig is one gateway's worth of streams.
type Rig struct {
	URL      string
	Addr     string
	Store    *store.Store
	Hub      *feed.Hub
	Appender *appender.Appender
	Handler  *streams.Handler
}

// Start boots a rig on the database at dsn; tune may change the handler's
// configuration.
func Start(t testing.TB, dsn string, tune func(*streams.Config)) *Rig {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	st, err := store.Open(ctx, store.Options{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	r := &Rig{Store: st, Hub: feed.NewHub()}
	f, err := feed.New(feed.Config{DSN: dsn}, feed.Deps{Hub: r.Hub, Registry: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx); err != nil {
		t.Fatal(err)
	}
	r.Appender = appender.New(ctx, appender.Config{Store: st, Hub: r.Hub})
	cfg := streams.Config{Store: st, Services: store.NewServices(st), Appender: r.Appender, Hub: r.Hub}
	if tune != nil {
		tune(&cfg)
	}
	r.Handler = streams.New(ctx, cfg)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.Addr = l.Addr().String()
	r.URL = "http://" + r.Addr
	srv := &http.Server{Handler: r.Handler, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	served := make(chan struct{})
	go func() { _ = srv.Serve(l); close(served) }()
	t.Cleanup(func() {
		r.Handler.Drain()
		stop, done := context.WithTimeout(ctx, 10*time.Second)
		defer done()
		if err := srv.Shutdown(stop); err != nil {
			_ = srv.Close()
		}
		<-served
		_ = r.Appender.Stop(stop)
		_ = f.Stop(stop)
		cancel()
		st.Close()
	})
	return r
}
