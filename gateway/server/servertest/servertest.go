// Package servertest owns gateways for tests: the real composition, in this process, on a database of the test's own.
//
// It promises that what it starts is drained with the test and that a drain that fails, fails the test. It must not be
// imported by anything but tests.
package servertest

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/obs"
	"github.com/rouse-run/rouse/gateway/pluginhost"
	"github.com/rouse-run/rouse/gateway/server"
	"github.com/rouse-run/rouse/plugins/sdk"
)

// TestKeys is a key ring for tests only.
const TestKeys = "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

const pluginServe = "plugin-serve"

// ServePlugins is the first call of a TestMain: it serves a built-in transport or auth hook, and does not return, if this process is
// one of a gateway's with PluginProcesses.
func ServePlugins() {
	if len(os.Args) == 3 && os.Args[1] == pluginServe {
		if hook := server.BuiltinHooks(context.Background())[os.Args[2]]; hook != nil {
			sdk.ServeAuthHook(hook())
		} else {
			sdk.ServeTransport(server.Builtins()[os.Args[2]]())
		}
		os.Exit(0)
	}
}

// Options of Start. The zero value is a gateway as `dev` runs it on a new database.
type Options struct {
	DB *pgtest.DB // nil = a new one; give the same to several gateways
	// Configure changes the settings before the gateway is built.
	Configure func(*config.Config)
	// PluginProcesses runs the built-in transports as `serve` does: each in a process of its own, which is the test's
	// binary. Its TestMain calls ServePlugins.
	PluginProcesses bool
	// Log nil = the test's own log, at warn.
	Log *slog.Logger
}

// Instance is a running gateway.
type Instance struct {
	*server.Server
	URL string // base, without a slash at the end
	DB  *pgtest.DB
}

// Start boots a gateway and waits until it is ready.
func Start(t testing.TB, opts Options) *Instance {
	t.Helper()
	if opts.DB == nil {
		opts.DB = pgtest.New(t)
	}
	cfg := config.Dev()
	cfg.Listen = "127.0.0.1:0"
	cfg.DatabaseURL, cfg.DirectURL = config.NewSecret(opts.DB.DSN), config.NewSecret(opts.DB.DirectDSN())
	cfg.Keys = config.NewSecret(TestKeys)
	cfg.PoolSize = 8
	if opts.Configure != nil {
		opts.Configure(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	if opts.Log == nil {
		opts.Log = obs.NewLogger(t.Output(), slog.LevelWarn, "text")
	}
	// Not the test's context: it ends before the cleanup that drains.
	ctx := context.WithoutCancel(t.Context())
	deps := server.Deps{Log: opts.Log, Release: "v0.0.0-test"}
	if opts.PluginProcesses {
		deps.SelfArgs = []string{"rouse", pluginServe}
	}
	s, err := server.New(ctx, cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	in := &Instance{Server: s, URL: s.URL(), DB: opts.DB}
	t.Cleanup(in.stop(t))
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		reasons := s.Health.NotReady()
		for _, r := range s.Health.Degraded() {
			if r.Code == pluginhost.CodeStarting {
				reasons = append(reasons, r)
			}
		}
		if len(reasons) == 0 {
			return in
		}
		if time.Now().After(deadline) {
			t.Fatalf("the gateway is not ready after a minute: %+v", reasons)
		}
		<-tick.C
	}
}

func (in *Instance) stop(t testing.TB) func() {
	return func() {
		if err := in.Drain(context.Background()); err != nil {
			t.Errorf("draining the gateway: %v", err)
		}
	}
}
