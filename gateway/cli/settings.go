package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/pluginhost"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/server"
)

// settingsFlags are the flags that every command with a configuration has. A flag that is not given leaves the file's or
// the variable's value alone.
type settingsFlags struct {
	Config    string `help:"Configuration file, JSON or YAML." type:"existingfile" placeholder:"FILE"`
	LogLevel  string `help:"debug, info, warn or error." placeholder:"LEVEL"`
	LogFormat string `help:"text or json." placeholder:"FORMAT"`
}

// databaseFlags say which database.
type databaseFlags struct {
	DatabaseURL string `help:"Where the data is (or ROUSE_DATABASE_URL); may go through a pooler." placeholder:"URL"`
	DirectURL   string `help:"The same database around the pooler (or ROUSE_DIRECT_URL)." placeholder:"URL"`
}

// gatewayFlags are those of dev and serve.
type gatewayFlags struct {
	Listen       string        `help:"Address to listen on (default ${listen})." placeholder:"HOST:PORT"`
	PublicURL    string        `help:"Base of the URLs handed out to runners and webhooks." placeholder:"URL"`
	DrainTimeout time.Duration `help:"Bound of an orderly shutdown (default 10s)." placeholder:"TIME"`
}

func (f settingsFlags) apply(c *config.Config, level *error) {
	if f.LogLevel != "" {
		var l slog.Level
		*level = l.UnmarshalText([]byte(f.LogLevel))
		c.LogLevel = l
	}
	set(&c.LogFormat, f.LogFormat)
}

func (f databaseFlags) apply(c *config.Config) {
	if f.DatabaseURL != "" {
		c.DatabaseURL = config.NewSecret(f.DatabaseURL)
	}
	if f.DirectURL != "" {
		c.DirectURL = config.NewSecret(f.DirectURL)
	}
}

func (f gatewayFlags) apply(c *config.Config) {
	set(&c.Listen, f.Listen)
	set(&c.PublicURL, f.PublicURL)
	set(&c.DrainTimeout, f.DrainTimeout)
}

func set[T comparable](field *T, given T) {
	var zero T
	if given != zero {
		*field = given
	}
}

// load reads the configuration of a command; every failure is one of usage.
func (r *run) load(base config.Config, s settingsFlags, apply ...func(*config.Config)) (config.Config, error) {
	var level error
	c, err := config.Load(base, config.Sources{File: s.Config, Environ: r.environ(), Apply: func(c *config.Config) {
		s.apply(c, &level)
		for _, f := range apply {
			f(c)
		}
	}})
	if level != nil {
		return c, failf(ExitUsage, "--log-level must be debug, info, warn or error")
	}
	if err == nil {
		err = databaseURL("database_url (ROUSE_DATABASE_URL)", c.DatabaseURL)
		if c.DirectURL.Reveal() != c.DatabaseURL.Reveal() {
			err = errors.Join(err, databaseURL("direct_url (ROUSE_DIRECT_URL)", c.DirectURL))
		}
	}
	return c, fail(ExitUsage, err)
}

// databaseURL refuses what cannot name a database. It quotes nothing: a part of it may be a password.
func databaseURL(name string, given config.Secret) error {
	text := strings.TrimSpace(given.Reveal())
	if text == "" {
		return nil // whether it is needed is for config to say
	}
	u, err := url.Parse(text)
	if err == nil && (u.Scheme == "postgres" || u.Scheme == "postgresql") {
		return nil
	}
	if !strings.Contains(text, "://") && strings.Contains(text, "=") {
		return nil // host=… dbname=…
	}
	return fmt.Errorf("%s must be a Postgres URL, such as postgres://rouse@127.0.0.1/app", name)
}

// checkFiles looks at what the settings of a gateway lead to, so that a mistake is said before anything is started.
func checkFiles(ctx context.Context, c config.Config) error {
	ring, err := c.KeyRing()
	if err != nil {
		return fail(ExitUsage, err)
	}
	if ring.IsZero() {
		return failf(ExitUsage, "there is no key ring: set ROUSE_KEYS to a ring or to a file that holds one; `rouse keys new` makes one")
	}
	if _, err := claims.ParseKeys(ring.Reveal()); err != nil {
		if p, ok := errors.AsType[*problem.Error](err); ok {
			err = errors.New(p.Public) // its code is for the wire
		}
		return failf(ExitUsage, "the key ring cannot be read: %w", err)
	}
	return checkAuth(ctx, c)
}

// checkPlugged looks whether the plugins file has the auth hooks that are named.
func checkPlugged(a config.Auth, plugins pluginhost.Set) error {
	missing := func(place string, i int, name string) error {
		if _, there := plugins.AuthHooks[name]; name == "" || there {
			return nil
		}
		if _, transport := plugins.Transports[name]; transport {
			return failf(ExitUsage, "auth (ROUSE_AUTH): %s[%d].plugin: %s is a transport in the plugins file, and must stand under authhooks", place, i, name)
		}
		return failf(ExitUsage, "auth (ROUSE_AUTH): %s[%d].plugin: the plugins file (ROUSE_PLUGINS_FILE) has no auth hook %s", place, i, name)
	}
	for i, h := range a.Hooks {
		if err := missing("hooks", i, h.Plugin); err != nil {
			return err
		}
	}
	for i, h := range a.Authorizers {
		if err := missing("authorizers", i, h.Plugin); err != nil {
			return err
		}
	}
	return nil
}

// checkAuth looks at who may call, and at the plugins that may be asked.
func checkAuth(ctx context.Context, c config.Config) error {
	var plugins pluginhost.Set
	var err error
	if c.PluginsFile != "" {
		if plugins, err = pluginhost.Load(c.PluginsFile); err != nil {
			return failf(ExitUsage, "plugins_file (ROUSE_PLUGINS_FILE): %w", err)
		}
	}
	if err := checkPlugged(c.Auth, plugins); err != nil {
		return err
	}
	if c.TokensFile != "" {
		if _, err := devtoken.Open(c.TokensFile, devtoken.Options{}); err != nil {
			return failf(ExitUsage, "the tokens file (ROUSE_TOKENS_FILE) %s: %w", c.TokensFile, err)
		}
	}
	return fail(ExitUsage, server.CheckAuth(ctx, c))
}

// listen takes the gateway's address.
func listen(ctx context.Context, c config.Config) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err == nil {
		return l, nil
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return nil, failf(ExitUsage, "cannot listen on %s: %w\n→ choose another with --listen", c.Listen, err)
}
