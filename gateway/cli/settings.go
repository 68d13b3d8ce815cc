package cli

import (
	"log/slog"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
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
	return c, fail(ExitUsage, err)
}
