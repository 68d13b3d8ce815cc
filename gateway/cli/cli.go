package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/obs"
)

// Streams are what a process is connected to.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Environ  []string // KEY=value
	// Self is the command line with which this process's binary is rouse again and serves a built-in transport, but for
	// its name; empty where it is another one, as a test's: then they run in this process.
	Self []string
}

// root is the command line. Each command has a file of its own.
type root struct {
	Dev          devCmd          `cmd:"" help:"Run a gateway and a Postgres of its own, with nothing to set up."`
	Demo         demoCmd         `cmd:"" help:"Play the story: a phone, a laptop, a laptop that dies, and one that goes on."`
	Serve        serveCmd        `cmd:"" help:"Run a gateway on an existing Postgres."`
	Migrate      migrateCmd      `cmd:"" help:"Bring a database up to date, or say where it stands."`
	Stream       streamCmd       `cmd:"" help:"Streams: create, append, read, tail, close, fork."`
	Retention    retentionCmd    `cmd:"" help:"What is kept of streams, and for how long."`
	Entity       entityCmd       `cmd:"" help:"Entities: spawn, send, list, inspect, signal, move, watch."`
	Type         typeCmd         `cmd:"" help:"Entity types: register, list, remove."`
	Runner       runnerCmd       `cmd:"" help:"Runners: be one, register, list, enable, disable."`
	Pool         poolCmd         `cmd:"" help:"Worker pools: make, list, add runners, drain, invite, join."`
	Parked       parkedCmd       `cmd:"" help:"Work that its policy has given up: list, wake again."`
	Wake         wakeCmd         `cmd:"" help:"Wakes: list, show why one was not delivered, deliver it again."`
	Subscription subscriptionCmd `cmd:"" help:"Subscriptions: be woken for streams by name or pattern."`
	Service      serviceCmd      `cmd:"" help:"Services: scopes with their own streams, entities and runners."`
	Doctor       doctorCmd       `cmd:"" help:"Check whether a database is fit for a gateway."`
	Plugin       pluginCmd       `cmd:"" help:"Plugins: list, check, print logs, write a new one, test one."`
	PluginServe  pluginServeCmd  `cmd:"" hidden:"" name:"plugin-serve"`
	Keys         keysCmd         `cmd:"" help:"The key ring of claim and write tokens and webhook signatures: make, list, rotate, retire."`
	Token        tokenCmd        `cmd:"" help:"The tokens that users show to a gateway: make, list, revoke."`
	OpenAPI      openapiCmd      `cmd:"" name:"openapi" help:"Print the description of the HTTP API."`
	Version      versionCmd      `cmd:"" help:"Print the release of this binary."`

	ShowVersion kong.VersionFlag `name:"version" help:"Print the release of this binary."`
}

// run is what every command gets.
type run struct {
	ctx context.Context
	io  Streams
}

// environ is the environment as a map.
func (r *run) environ() map[string]string {
	m := make(map[string]string, len(r.io.Environ))
	for _, kv := range r.io.Environ {
		if k, v, ok := strings.Cut(kv, "="); ok {
			m[k] = v
		}
	}
	return m
}

// say writes a line for a person to standard error.
func (r *run) say(format string, args ...any) { fmt.Fprintf(r.io.Err, format+"\n", args...) }

// printJSON writes one value to standard output.
func (r *run) printJSON(v any) error {
	enc := json.NewEncoder(r.io.Out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Run carries out one command line and gives the exit code. ctx ends a long-running command in an orderly way.
func Run(ctx context.Context, args []string, streams Streams) int {
	code := -1
	var cmd root
	parser, err := kong.New(&cmd,
		kong.Name("rouse"),
		kong.Description("Durable streams and wakes for agents, on Postgres."),
		kong.Help(func(o kong.HelpOptions, c *kong.Context) error {
			err := kong.DefaultHelpPrinter(o, c)
			if err == nil && c.Selected() == nil {
				_, err = fmt.Fprintln(c.Stdout, "\n"+helpFooter)
			}
			return err
		}),
		kong.Writers(streams.Out, streams.Err),
		kong.Exit(func(c int) { code = c; panic(helpShown{}) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(duration)),
		kong.TypeMapper(reflect.TypeFor[time.Time](), kong.MapperFunc(instant)),
		kong.Vars{"listen": config.Default().Listen, "server": defaultServer, "version": versionLine()},
	)
	if err != nil {
		fmt.Fprintf(streams.Err, "rouse: %v\n", err)
		return ExitFailed
	}
	parsed, err := parse(parser, args)
	if code >= 0 {
		return code // --help
	}
	if err != nil {
		fmt.Fprintf(streams.Err, "rouse: %s\nRun \"%s --help\" for what there is.\n", scrub(err.Error()), mistaken(err))
		return ExitUsage
	}
	if err := parsed.Run(&run{ctx: ctx, io: streams}); err != nil {
		fmt.Fprintf(streams.Err, "rouse: %s\n", scrub(err.Error()))
		return exitCode(err)
	}
	return ExitOK
}

// duration reads a time as people are told to write it.
func duration(ctx *kong.DecodeContext, target reflect.Value) error {
	var s string
	if err := ctx.Scan.PopValueInto("duration", &s); err != nil {
		return err
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("must be a number with its unit: ms, s, m or h, as in 90s, 1h30m or 720h")
	}
	target.SetInt(int64(d))
	return nil
}

// instant reads a moment.
func instant(ctx *kong.DecodeContext, target reflect.Value) error {
	var s string
	if err := ctx.Scan.PopValueInto("time", &s); err != nil {
		return err
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return errors.New("must be a time such as 2027-01-31T09:00:00Z")
	}
	target.Set(reflect.ValueOf(t))
	return nil
}

// mistaken is the command that a mistake on the command line was made in.
func mistaken(err error) string {
	name := "rouse"
	if e, ok := errors.AsType[*kong.ParseError](err); ok && e.Context != nil {
		for _, p := range e.Context.Path {
			if p.Command != nil {
				name += " " + p.Command.Name // its path would show its aliases too, which a shell stumbles over
			}
		}
	}
	return name
}

// scheme is where a sentence speaks of bearer tokens and shows none.
var scheme = regexp.MustCompile(`(?i)\bbearer\s+(with|tokens?)\b(\s|[.,;:]|$)`)

// scrub is obs.Scrub for what a person reads: it leaves such a sentence whole.
func scrub(s string) string {
	var b strings.Builder
	at := 0
	for _, m := range scheme.FindAllStringIndex(s, -1) {
		b.WriteString(obs.Scrub(s[at:m[0]]) + s[m[0]:m[1]])
		at = m[1]
	}
	return b.String() + obs.Scrub(s[at:])
}

// helpShown unwinds kong after it has printed what was asked for: kong knows no other way to end than its exit hook.
type helpShown struct{}

func parse(parser *kong.Kong, args []string) (parsed *kong.Context, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			if _, ok := fault.(helpShown); !ok {
				panic(fault)
			}
		}
	}()
	args = inPlace(parser.Model.Node, args)
	if len(args) > 0 && args[0] == "help" {
		args = append(inPlace(parser.Model.Node, args[1:]), "--help")
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	return parser.Parse(args)
}
