package cli

import (
	"context"
	"errors"
	"log/slog"
	"os/signal"
	"syscall"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/obs"
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
	if err := status.Usable(); err != nil {
		return err
	}
	if w := status.Warning(); w != "" {
		log.Warn(w)
	}
	return serve(ctx, cfg, log, nil, func(s *server.Server) {
		log.Info("listening", "addr", s.Addr().String(), "public_url", s.URL(), "release", Release())
	})
}

// untilSignalled gives a context that ends at the first SIGINT or SIGTERM. The second one then ends the process at once.
func untilSignalled(ctx context.Context) (context.Context, func()) {
	ctx, restore := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, restore)
	return ctx, restore
}

// serve runs a gateway until ctx ends or something below it fails, and drains it. ready is called once it listens;
// broken, if not nil, is closed when the database is gone for good.
func serve(ctx context.Context, cfg config.Config, log *slog.Logger, broken <-chan struct{}, ready func(*server.Server)) error {
	defer holdHeapFloor()()
	// What the gateway does must not end with the signal, but with the drain.
	work := context.WithoutCancel(ctx)
	s, err := server.New(work, cfg, server.Deps{Log: log, Release: Release()})
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
