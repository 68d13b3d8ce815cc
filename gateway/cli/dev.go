package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/devpg"
	"github.com/rouse-run/rouse/gateway/obs"
	"github.com/rouse-run/rouse/gateway/server"
)

type devCmd struct {
	settingsFlags
	gatewayFlags
	InsecureAnywhere bool   `help:"Let --listen be an address that other machines reach: everybody there may do everything."`
	DataDir          string `help:"Where everything is kept (default: /var/lib/rouse/dev for root, else ~/.local/state/rouse/dev)." placeholder:"DIR"`
}

// Run has the same steps as a real installation, each small: a database, its schema, a key ring, a gateway.
func (c *devCmd) Run(r *run) (err error) {
	began := time.Now()
	dir, err := c.dataDir(r)
	if err != nil {
		return err
	}
	ctx, restore := untilSignalled(r.ctx)
	defer restore()

	base := config.Dev()
	settings := func(dsn string) (config.Config, error) {
		return r.load(base, c.settingsFlags, c.gatewayFlags.apply, func(cfg *config.Config) {
			cfg.DatabaseURL, cfg.DirectURL = config.NewSecret(dsn), config.NewSecret(dsn)
			set(&cfg.InsecureAnywhere, c.InsecureAnywhere)
		})
	}
	// Whatever is wrong with them is said before anything is started.
	if _, err := settings("postgres://not-started"); err != nil {
		return err
	}

	r.step("Postgres")
	pg, err := devpg.Start(ctx, devpg.Options{Dir: filepath.Join(dir, "postgres"), DownloadDir: filepath.Join(dir, "download"),
		DownloadMirror: r.environ()["ROUSE_PG_MIRROR"], Progress: func(what string) { r.say("    %s", what) }})
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		err = errors.Join(err, pg.Stop(stop))
	}()

	// Only one at a time gets here, so the ring is made once.
	if base.Keys, err = keyRing(filepath.Join(dir, "keys")); err != nil {
		return fail(ExitDataDir, err)
	}
	cfg, err := settings(pg.DSN(devpg.Database))
	if err != nil {
		return err
	}

	r.step("Schema")
	m, err := r.migrator(cfg)
	if err != nil {
		return err
	}
	report, err := m.Up(ctx)
	if err != nil {
		return err
	}
	for _, a := range report.Applied {
		r.say("    migration %06d %s", a.Version, a.Name)
	}

	r.step("Gateway")
	log := obs.NewLogger(r.io.Err, cfg.LogLevel, cfg.LogFormat)
	err = serve(ctx, cfg, log, pg.Failed(), func(s *server.Server) {
		fmt.Fprintf(r.io.Out, `
  Rouse %s is up (%v).

    gateway   %s
    database  psql '%s'
    data      %s

  It takes requests without credentials%s. Ctrl-C stops it.

`, Release(), time.Since(began).Round(10*time.Millisecond), s.URL(), pg.DSN(devpg.Database), dir, reach(cfg))
	})
	if ctx.Err() != nil {
		r.step("Stopping")
	}
	return err
}

// reach says who can send requests.
func reach(cfg config.Config) string {
	if cfg.InsecureAnywhere {
		return ", FROM EVERYBODY who reaches " + cfg.Listen
	}
	return " and is meant for this machine only"
}

// step tells a person what comes next.
func (r *run) step(what string) { r.say("• %s", what) }

func (c *devCmd) dataDir(r *run) (string, error) {
	dir := c.DataDir
	if dir == "" {
		env := r.environ()
		switch {
		case env["ROUSE_DATA_DIR"] != "":
			dir = env["ROUSE_DATA_DIR"]
		case os.Geteuid() == 0:
			// Not in root's home: Postgres runs as another user, who may not enter it.
			dir = "/var/lib/rouse/dev"
		case env["XDG_STATE_HOME"] != "":
			dir = filepath.Join(env["XDG_STATE_HOME"], "rouse", "dev")
		case env["HOME"] != "":
			dir = filepath.Join(env["HOME"], ".local", "state", "rouse", "dev")
		default:
			return "", failf(ExitUsage, "there is no home directory; say --data-dir")
		}
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o711)
	}
	if err != nil {
		return "", failf(ExitDataDir, "the data directory cannot be made: %w", err)
	}
	return dir, nil
}

// keyRing gives the key ring kept at path, making one of a single random key where there is none.
func keyRing(path string) (config.Secret, error) {
	raw, err := os.ReadFile(path)
	if err == nil {
		return config.NewSecret(string(raw)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return config.Secret{}, fmt.Errorf("the key ring cannot be read: %w", err)
	}
	text := claims.NewKeys()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return config.Secret{}, fmt.Errorf("the key ring cannot be kept: %w", err)
	}
	return config.NewSecret(text), nil
}
