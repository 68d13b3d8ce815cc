// Package config owns the settings of a gateway: one struct, filled from defaults, then a file, then ROUSE_* variables,
// then flags, each over the one before.
//
// It promises that a Config it returns is valid, that every complaint names the setting in all its spellings and comes
// together with the others, and that no secret can be printed by accident. It must not know what the settings do.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"go.yaml.in/yaml/v3"
)

// Config is everything a gateway can be told. Names in files are the yaml names, variables are ROUSE_ + the env names.
type Config struct {
	// Listen is the address of the HTTP server, host:port. Port 0 takes a free one.
	Listen string `yaml:"listen" env:"LISTEN"`
	// PublicURL is the base of the URLs handed out to runners and webhooks; empty = made from Listen.
	PublicURL string `yaml:"public_url" env:"PUBLIC_URL"`

	// DatabaseURL may go through a pooler in transaction mode.
	DatabaseURL Secret `yaml:"database_url" env:"DATABASE_URL"`
	// DirectURL goes around the pooler, for replication and migrations; empty = DatabaseURL.
	DirectURL Secret `yaml:"direct_url" env:"DIRECT_URL"`
	// Pooled avoids named prepared statements on DatabaseURL, for poolers that cannot keep them.
	Pooled bool `yaml:"pooled" env:"POOLED"`
	// PoolSize is the greatest number of connections to DatabaseURL.
	PoolSize int `yaml:"pool_size" env:"POOL_SIZE"`

	// Keys is the key ring of claim and write tokens: the ring itself, or the path of a file that holds it. All gateways
	// of a database share it.
	Keys Secret `yaml:"keys" env:"KEYS"`
	// TokensFile lists the hashed tokens of users; empty = no such users.
	TokensFile string `yaml:"tokens_file" env:"TOKENS_FILE"`
	// Auth are the hooks that authenticate and authorize besides.
	Auth Auth `yaml:"auth" env:"AUTH"`
	// TLSCert and TLSKey are the files, in PEM, of the certificate chain and its key that the gateway serves https with;
	// without them it serves http. They are read again when they change.
	TLSCert string `yaml:"tls_cert" env:"TLS_CERT"`
	TLSKey  string `yaml:"tls_key" env:"TLS_KEY"`
	// TLSClientCA is the file of the authorities that client certificates are verified with; empty = none are asked for.
	TLSClientCA string `yaml:"tls_client_ca" env:"TLS_CLIENT_CA"`
	// TLSClientRequired refuses connections without a client certificate.
	TLSClientRequired bool `yaml:"tls_client_required" env:"TLS_CLIENT_REQUIRED"`
	// Insecure lets requests in without credentials. Only `dev` sets it by itself.
	Insecure bool `yaml:"insecure" env:"INSECURE"`
	// InsecureAnywhere lets an insecure gateway listen where other machines reach it.
	InsecureAnywhere bool `yaml:"insecure_anywhere" env:"INSECURE_ANYWHERE"`
	// TypeSpawn says who may spawn an entity of a type: "all", or the "registrar" of the type only.
	TypeSpawn string `yaml:"type_spawn" env:"TYPE_SPAWN"`
	// AllowPrivateWebhooks lets webhooks, and looks at serve endpoints, go to loopback and private addresses and over
	// plain http, to every host.
	AllowPrivateWebhooks bool `yaml:"allow_private_webhooks" env:"ALLOW_PRIVATE_WEBHOOKS"`

	// PluginsFile says which transports and auth hooks run in processes of their own; empty = the built-in webhook only.
	// It is read again when it changes.
	PluginsFile string `yaml:"plugins_file" env:"PLUGINS_FILE"`

	// MaxBodyBytes is the greatest request body; more answers 413.
	MaxBodyBytes Bytes `yaml:"max_body_bytes" env:"MAX_BODY_BYTES"`
	// LongPollTimeout is how long a long-poll waits for data.
	LongPollTimeout time.Duration `yaml:"long_poll_timeout" env:"LONG_POLL_TIMEOUT"`
	// SSEMaxAge is when an SSE response is ended so that the client reconnects and caches can be shared.
	SSEMaxAge time.Duration `yaml:"sse_max_age" env:"SSE_MAX_AGE"`

	// LeaseTTL is how long a claim lives without a heartbeat, unless its policy says otherwise.
	LeaseTTL time.Duration `yaml:"lease_ttl" env:"LEASE_TTL"`
	// OutstandingAfter is when an unclaimed wake is delivered again.
	OutstandingAfter time.Duration `yaml:"outstanding_after" env:"OUTSTANDING_AFTER"`
	// ScanPeriod is the time between two recovery scans.
	ScanPeriod time.Duration `yaml:"scan_period" env:"SCAN_PERIOD"`
	// ReaperPeriod is the time between two looks for lapsed leases.
	ReaperPeriod time.Duration `yaml:"reaper_period" env:"REAPER_PERIOD"`

	// RetentionPeriod is the time between two looks at the same stream for what may go.
	RetentionPeriod time.Duration `yaml:"retention_period" env:"RETENTION_PERIOD"`
	// RetentionWakeEntries is how long entries of wake streams stay at least, for whoever looks at what happened; 0 = for
	// ever, as for all that follow.
	RetentionWakeEntries time.Duration `yaml:"retention_wake_entries" env:"RETENTION_WAKE_ENTRIES"`
	// RetentionClaims is how long a claim is known after its end, RetentionWakes a wake and its delivery attempts after it
	// was resolved.
	RetentionClaims time.Duration `yaml:"retention_claims" env:"RETENTION_CLAIMS"`
	RetentionWakes  time.Duration `yaml:"retention_wakes" env:"RETENTION_WAKES"`
	// RetentionAudit is how long audit rows stay.
	RetentionAudit time.Duration `yaml:"retention_audit" env:"RETENTION_AUDIT"`
	// RetentionProducers is how long the producers of a stream are known that nothing is appended to.
	RetentionProducers time.Duration `yaml:"retention_producers" env:"RETENTION_PRODUCERS"`

	// LogLevel is debug, info, warn or error; LogFormat is text or json.
	LogLevel  slog.Level `yaml:"log_level" env:"LOG_LEVEL"`
	LogFormat string     `yaml:"log_format" env:"LOG_FORMAT"`
	// DrainTimeout bounds an orderly shutdown.
	DrainTimeout time.Duration `yaml:"drain_timeout" env:"DRAIN_TIMEOUT"`
	// DebugListen is a loopback address that serves the runtime's profiles (pprof); empty = nowhere.
	DebugListen string `yaml:"debug_listen" env:"DEBUG_LISTEN"`
}

// EnvPrefix begins the name of every variable.
const EnvPrefix = "ROUSE_"

// Default is what `serve` starts from.
func Default() Config {
	return Config{
		Listen:           "127.0.0.1:4437",
		PoolSize:         16,
		TypeSpawn:        "registrar",
		MaxBodyBytes:     16 * MiB,
		LongPollTimeout:  20 * time.Second,
		SSEMaxAge:        60 * time.Second,
		LeaseTTL:         30 * time.Second,
		OutstandingAfter: 30 * time.Second,
		ScanPeriod:       5 * time.Second,
		ReaperPeriod:     500 * time.Millisecond,
		RetentionPeriod:  time.Minute,

		RetentionWakeEntries: 24 * time.Hour,
		RetentionClaims:      30 * 24 * time.Hour,
		RetentionWakes:       30 * 24 * time.Hour,
		RetentionAudit:       365 * 24 * time.Hour,
		RetentionProducers:   30 * 24 * time.Hour,

		LogLevel:     slog.LevelInfo,
		LogFormat:    "json",
		DrainTimeout: 10 * time.Second,
	}
}

// Dev is what `dev` starts from: everything on this machine, nothing to set up.
func Dev() Config {
	c := Default()
	c.TypeSpawn = "all"
	c.Insecure = true
	c.AllowPrivateWebhooks = true
	c.LogFormat = "text"
	c.LogLevel = slog.LevelWarn
	return c
}

// Sources are where Load looks, in order.
type Sources struct {
	File    string            // JSON or YAML; empty = none
	Environ map[string]string // nil = this process's
	Apply   func(*Config)     // flags; nil = none
}

// Load fills base from the sources and validates the outcome.
func Load(base Config, from Sources) (Config, error) {
	c := base
	if from.File != "" {
		raw, err := os.ReadFile(from.File)
		if err != nil {
			return c, fmt.Errorf("the configuration file cannot be read: %w", err)
		}
		if err := parse(raw, &c); err != nil {
			return c, fmt.Errorf("the configuration file %s: %w", from.File, err)
		}
	}
	if err := env.ParseWithOptions(&c, env.Options{Prefix: EnvPrefix, Environment: from.Environ}); err != nil {
		return c, envError(err)
	}
	if from.Apply != nil {
		from.Apply(&c)
	}
	if c.DirectURL.IsZero() {
		c.DirectURL = c.DatabaseURL
	}
	return c, c.Validate()
}

// parse reads YAML, of which JSON is a part, and quotes none of it. An unknown name is an error: a setting that does nothing by a slip of the
// pen is worse than a refusal.
func parse(raw []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		var typeErr *yaml.TypeError
		if errors.As(err, &typeErr) {
			// Its lines quote what they could not read, which may be a secret: keep the place only.
			places := make([]string, len(typeErr.Errors))
			for i, line := range typeErr.Errors {
				places[i] = InWords(unknownName.ReplaceAllString(withoutQuotes(line), "there is no setting $1 here"))
			}
			return errors.New(strings.Join(places, "; "))
		}
		return NoYAML(err)
	}
	return nil
}

// NoYAML says why a text is none, of what the parser says only that which quotes nothing: a secret that is written
// without quotes may look like an anchor or a tag.
func NoYAML(err error) error {
	if text, ok := strings.CutPrefix(err.Error(), "yaml: line "); ok {
		return errors.New("line " + text)
	}
	return errors.New("it is no YAML; what begins with a sign such as * or ! must be in quotes")
}

// unknownName is how the parser says that a name is none of a section's, by a Go type that means nothing to who wrote it.
var unknownName = regexp.MustCompile(`field (\S+) not found in type \S+`)

// withoutQuotes cuts what stands between backquotes, which may have some of its own.
func withoutQuotes(s string) string {
	first, last := strings.Index(s, "`"), strings.LastIndex(s, "`")
	if first < 0 {
		return s
	}
	return s[:first] + "…" + s[last+1:]
}

// envError names the variables without the values that could not be read.
func envError(err error) error {
	var all env.AggregateError
	if !errors.As(err, &all) {
		return errors.New("the ROUSE_* variables cannot be read")
	}
	var names, whys []string
	t := reflect.TypeFor[Config]()
	for _, one := range all.Errors {
		var p env.ParseError
		if errors.As(one, &p) {
			f, ok := t.FieldByName(p.Name)
			name := EnvPrefix + f.Tag.Get("env")
			if why, said := errors.AsType[sectionError](p.Err); ok && said {
				whys = append(whys, name+": "+why.Error())
			} else if ok {
				names = append(names, name)
			}
		}
	}
	if len(names) > 0 {
		whys = append(whys, fmt.Sprintf("cannot be read as %s should be", strings.Join(names, ", ")))
	}
	return errors.New(strings.Join(whys, "; "))
}

// Validate lists everything that is wrong.
func (c Config) Validate() error {
	var wrong []error
	t := reflect.TypeFor[Config]()
	bad := func(field, why string) {
		f, _ := t.FieldByName(field)
		wrong = append(wrong, fmt.Errorf("%s (%s%s) %s", f.Tag.Get("yaml"), EnvPrefix, f.Tag.Get("env"), why))
	}
	if _, port, err := net.SplitHostPort(c.Listen); err != nil || port == "" {
		bad("Listen", "must be host:port")
	} else if c.Insecure && !c.InsecureAnywhere && !onLoopback(c.Listen) {
		bad("Listen", "must be an address of this machine only, such as 127.0.0.1:4437, while requests need no credentials (insecure): "+
			"everybody who reaches another one could do everything. Run `rouse serve` with credentials (ROUSE_TOKENS_FILE); "+
			"if it is really meant, say so with insecure_anywhere (ROUSE_INSECURE_ANYWHERE=true, --insecure-anywhere of `rouse dev`)")
	}
	if c.DebugListen != "" && !onLoopback(c.DebugListen) {
		bad("DebugListen", "must be host:port on this machine, such as 127.0.0.1:6060")
	}
	if c.PublicURL != "" {
		if u, err := url.Parse(c.PublicURL); err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			bad("PublicURL", "must be an http or https URL without query, fragment or user")
		}
	}
	if c.DatabaseURL.IsZero() {
		bad("DatabaseURL", "is needed")
	}
	if c.PoolSize < 2 || c.PoolSize > 1000 {
		bad("PoolSize", "must be 2 to 1000")
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		bad("TLSCert", "and tls_key (ROUSE_TLS_KEY) go together")
	}
	if c.TLSClientCA != "" && c.TLSCert == "" {
		bad("TLSClientCA", "needs tls_cert (ROUSE_TLS_CERT): client certificates are shown over TLS only")
	}
	if c.TLSClientRequired && c.TLSClientCA == "" {
		bad("TLSClientRequired", "needs tls_client_ca (ROUSE_TLS_CLIENT_CA)")
	}
	for _, h := range c.Auth.Hooks {
		if h.MTLS != nil && c.TLSClientCA == "" {
			bad("TLSClientCA", "is needed by the auth hook mtls")
		}
	}
	wrong = append(wrong, c.Auth.validate()...)
	if c.TypeSpawn != "all" && c.TypeSpawn != "registrar" {
		bad("TypeSpawn", "must be all or registrar")
	}
	if c.MaxBodyBytes < KiB || c.MaxBodyBytes > GiB {
		bad("MaxBodyBytes", "must be 1KiB to 1GiB")
	}
	if c.LogFormat != "text" && c.LogFormat != "json" {
		bad("LogFormat", "must be text or json")
	}
	for _, d := range []struct {
		field    string
		value    time.Duration
		min, max time.Duration
	}{
		{"LongPollTimeout", c.LongPollTimeout, 10 * time.Millisecond, 10 * time.Minute},
		{"SSEMaxAge", c.SSEMaxAge, 10 * time.Millisecond, 24 * time.Hour},
		{"LeaseTTL", c.LeaseTTL, 50 * time.Millisecond, time.Hour},
		{"OutstandingAfter", c.OutstandingAfter, 50 * time.Millisecond, time.Hour},
		{"ScanPeriod", c.ScanPeriod, 10 * time.Millisecond, 10 * time.Minute},
		{"ReaperPeriod", c.ReaperPeriod, 10 * time.Millisecond, 10 * time.Minute},
		{"RetentionPeriod", c.RetentionPeriod, 10 * time.Millisecond, 24 * time.Hour},
		{"DrainTimeout", c.DrainTimeout, 100 * time.Millisecond, 10 * time.Minute},
	} {
		if d.value < d.min || d.value > d.max {
			bad(d.field, fmt.Sprintf("must be %v to %v", d.min, d.max))
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"RetentionWakeEntries", c.RetentionWakeEntries},
		{"RetentionClaims", c.RetentionClaims},
		{"RetentionWakes", c.RetentionWakes},
		{"RetentionAudit", c.RetentionAudit},
		{"RetentionProducers", c.RetentionProducers},
	} {
		if d.value != 0 && d.value < time.Minute {
			bad(d.field, "must be 1m or more, or 0 to keep everything")
		}
	}
	return errors.Join(wrong...)
}

// onLoopback says whether an address can be reached from this machine only.
func onLoopback(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && port != "" && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// KeyRing gives the key ring's text, read from the file if Keys is a path.
func (c Config) KeyRing() (Secret, error) {
	v := c.Keys.Reveal()
	if !strings.HasPrefix(v, "/") && !strings.HasPrefix(v, "./") && !strings.HasPrefix(v, "../") {
		return c.Keys, nil
	}
	raw, err := os.ReadFile(v)
	if err != nil {
		return Secret{}, fmt.Errorf("keys (%sKEYS): the file cannot be read: %w", EnvPrefix, err)
	}
	return NewSecret(strings.TrimSpace(string(raw))), nil
}
