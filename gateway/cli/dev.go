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
	first, err := settings("postgres://not-started")
	if err != nil {
		return err
	}
	check := checkFiles
	if first.Keys.IsZero() {
		check = checkAuth // the ring is made below
	}
	if err := check(r.ctx, first); err != nil {
		return err
	}
	if err := checkDir(dir); err != nil {
		return err
	}
	l, err := listen(ctx, first)
	if err != nil {
		return err
	}
	defer l.Close() // serve has closed it where it got that far
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return failf(ExitDataDir, "the data directory cannot be made: %w", err)
	}

	r.step("Postgres")
	pg, err := devpg.Start(ctx, devpg.Options{Dir: filepath.Join(dir, "postgres"), DownloadDir: filepath.Join(dir, "download"),
		DownloadMirror: r.environ()["ROUSE_PG_MIRROR"], Progress: func(what string) { r.say("    %s", what) }})
	if err != nil {
		if ctx.Err() != nil {
			r.step("Stopping")
			return nil // it was told to end, and did: what that broke off is no news
		}
		if e, ok := errors.AsType[*devpg.Error](err); ok && e.Code == devpg.CodeInUse {
			e.Hint = "Use that one, stop it first, or give this one a directory of its own with --data-dir."
		}
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
	err = serve(ctx, cfg, log, l, r.io.Self, pg.Failed(), func(s *server.Server) {
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
	return dir, fail(ExitDataDir, err)
}

// checkDir makes sure that a directory which is there is empty or a data directory of dev.
func checkDir(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, "postgres", "lock")); err == nil {
		return nil // every start has left that
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failf(ExitDataDir, "the data directory cannot be read: %w", err)
	}
	for _, e := range entries {
		// A start that ended very early leaves "postgres"; file systems come with the other one.
		if name := e.Name(); name != "postgres" && name != "lost+found" {
			return failf(ExitDataDir, "%s is no data directory of rouse and is not empty: name a new or an empty one with --data-dir", dir)
		}
	}
	return nil
}

// keyRing gives the key ring kept at path, making one of a single random key where there is none.
func keyRing(path string) (config.Secret, error) {
	raw, err := os.ReadFile(path)
	if err == nil {
		if _, err := claims.ParseKeys(string(raw)); err != nil {
			return config.Secret{}, fmt.Errorf("the key ring in %s cannot be read: %w", path, err)
		}
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
