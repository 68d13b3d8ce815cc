package cli

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os/signal"
	"syscall"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/obs"
	"github.com/rouse-run/rouse/gateway/pluginhost"
	"github.com/rouse-run/rouse/gateway/server"
)

type serveCmd struct {
	settingsFlags
	databaseFlags
	gatewayFlags
	Migrate bool `help:"Bring the database up to date first."`
}

func (c *serveCmd) Run(r *run) error {
	cfg, err := r.load(config.Default(), c.settingsFlags, c.databaseFlags.apply, c.gatewayFlags.apply)
	if err != nil {
		return err
	}
	if err := checkFiles(r.ctx, cfg); err != nil {
		return err
	}
	log := obs.NewLogger(r.io.Err, cfg.LogLevel, cfg.LogFormat)
	ctx, restore := untilSignalled(r.ctx)
	defer restore()
	m, err := r.migrator(cfg)
	if err != nil {
		return err
	}
	if c.Migrate {
		if _, err := m.Up(ctx); err != nil {
			return err
		}
	}
	status, err := m.Status(ctx)
	if err != nil {
		return err
	}
	if err := usable(status); err != nil {
		return err
	}
	if w := status.Warning(); w != "" {
		log.Warn(w)
	}
	if cfg.TokensFile == "" && len(cfg.Auth.Hooks) == 0 && !cfg.Insecure {
		log.Warn("nobody can call this gateway: set ROUSE_TOKENS_FILE, or hooks in ROUSE_AUTH; `rouse token create --file` makes a token for it")
	}
	if cfg.PublicURL == "" && everywhere(cfg.Listen) {
		log.Warn("runners and webhooks on other machines are handed URLs of this machine's loopback: set ROUSE_PUBLIC_URL to where they reach this gateway")
	}
	l, err := listen(ctx, cfg)
	if err != nil {
		return err
	}
	return serve(ctx, cfg, log, l, r.io.Self, nil, func(s *server.Server) {
		log.Info("listening", "addr", s.Addr().String(), "public_url", s.URL(), "release", Release())
	})
}

// everywhere says whether an address is all of this machine's.
func everywhere(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "" || ip != nil && ip.IsUnspecified())
}

// untilSignalled gives a context that ends at the first SIGINT or SIGTERM. The second one then ends the process at once.
func untilSignalled(ctx context.Context) (context.Context, func()) {
	ctx, restore := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, restore)
	return ctx, restore
}

// serve runs a gateway on l, which it closes, with this binary as self for its plugins, until ctx ends or something below it fails, and drains it. ready is called once it listens;
// broken, if not nil, is closed when the database is gone for good.
func serve(ctx context.Context, cfg config.Config, log *slog.Logger, l net.Listener, self []string, broken <-chan struct{}, ready func(*server.Server)) error {
	defer holdHeapFloor()()
	// Its keys and the database's password are not the plugins' to read.
	if err := pluginhost.Conceal(); err != nil {
		log.Warn("other processes of this user may read the gateway's environment and memory", "error", err)
	}
	// What the gateway does must not end with the signal, but with the drain.
	work := context.WithoutCancel(ctx)
	s, err := server.New(work, cfg, server.Deps{Log: log, Release: Release(), Listener: l, SelfArgs: self})
	if err != nil {
		return err
	}
	err = s.Start(work)
	if err == nil {
		ready(s)
		select {
		case <-ctx.Done():
		case err = <-s.Failed():
		case <-broken:
			err = errors.New("the database ended unexpectedly")
		}
	}
	if drainErr := s.Drain(work); drainErr != nil && err == nil {
		return fail(ExitDrainCutShort, drainErr)
	}
	return err
}
