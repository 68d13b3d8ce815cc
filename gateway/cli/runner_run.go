package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rouse-run/rouse/gateway/obs"
	"github.com/rouse-run/rouse/openapi/runner"
	shell "github.com/rouse-run/rouse/openapi/runner/command"
	"github.com/rouse-run/rouse/openapi/runner/sealed"
)

type runnerRunCmd struct {
	ID         string        `required:"" help:"The runner's id." placeholder:"ID"`
	Exec       string        `required:"" help:"What to run for each wake, by sh -c." placeholder:"COMMAND"`
	Server     []string      `group:"gateway" sep:"none" help:"A gateway's address; may be given several times, and end in ?service=NAME (ROUSE_SERVER; default: ${server})." placeholder:"URL"`
	Service    string        `group:"gateway" help:"The service, where an address names none (ROUSE_SERVICE)." placeholder:"NAME"`
	As         string        `group:"gateway" help:"Act as this principal, where a gateway lets callers say who they are (ROUSE_AS)." placeholder:"KIND:NAME"`
	Token      []string      `group:"gateway" sep:"none" help:"The owner's token (ROUSE_TOKEN). With several servers: one for all, or one for each in their order (in ROUSE_TOKEN with commas between). The command does not get it." placeholder:"TOKEN"`
	JSON       bool          `help:"Print what happens as JSON lines."`
	Label      string        `help:"What people see; default: the host's name." placeholder:"TEXT"`
	Kind       string        `help:"local, cloud-worker, sandbox, ci or server." enum:",local,cloud-worker,sandbox,ci,server" default:"" placeholder:"KIND"`
	NoRegister bool          `help:"The runner is registered already; change nothing."`
	Pool       []string      `sep:"none" help:"A worker pool to join first; may be given several times. The wakes of every pool that it is in are worked in any case." placeholder:"ID"`
	JoinToken  string        `help:"What lets it into the pools where it was not invited (ROUSE_JOIN_TOKEN)." placeholder:"TOKEN"`
	Capacity   int           `help:"How many wakes are worked at once." default:"4"`
	CursorDir  string        `help:"Where it keeps how far it has read, and its key (default: ~/.local/state/rouse/runners)." placeholder:"DIR"`
	Seal       bool          `help:"Have wakes sealed to a key of this machine, so that nothing between it and the gateway reads them." default:"true" negatable:""`
	Dir        string        `help:"Where the command runs." placeholder:"DIR"`
	Messages   []string      `help:"Types of messages the command gets." default:"inbox,signal,wake"`
	All        bool          `help:"The command gets every message, those of its own earlier runs too."`
	Retry      bool          `help:"A failed run's messages come again instead of counting as read."`
	Callback   bool          `help:"Claim by the wake's callback, as the RFC has it."`
	Grace      time.Duration `help:"How long running commands may go on after Ctrl-C." default:"10s"`
	Verbose    bool          `short:"v" help:"Say more."`
}

func (runnerRunCmd) Help() string {
	return `The command gets the unread messages on standard input, one JSON value on a line. Each line that it prints is appended to the entity's stream as it comes: a State Protocol message as it is, anything else as a message of type text. When it ends with 0 the messages count as read; otherwise the run is recorded as failed, with the end of its standard error.

Its environment names the work: ROUSE_ENTITY, ROUSE_ENTITY_TYPE, ROUSE_SPAWN_ARGS, ROUSE_STREAM, ROUSE_WAKE_ID, ROUSE_EPOCH, ROUSE_SERVER, ROUSE_SERVICE and ROUSE_RUNNER. When the claim is lost, it and everything it started in its process group are ended.

Examples:
  rouse runner run --id laptop --exec 'jq -r .value.payload | sed "s/^/done: /"'
  rouse runner run --id sandbox-1 --exec ./agent.sh --pool coding
  rouse runner run --id laptop --exec ./agent.sh --server https://a.example --server 'https://b.example?service=team'
  ROUSE_TOKEN=token-of-a,token-of-b rouse runner run --id laptop --exec ./agent.sh --server https://a.example --server https://b.example`
}

func (c *runnerRunCmd) Run(r *run) error {
	if err := runner.CheckID(c.ID); err != nil {
		return fail(ExitUsage, err)
	}
	servers, err := c.servers(r)
	if err != nil {
		return err
	}
	cursors, err := c.cursorDir(r)
	if err != nil {
		return err
	}
	level := slog.LevelWarn
	if c.Verbose {
		level = slog.LevelDebug
	}
	log := &reporter{r: r, p: newPrinter(r), json: c.JSON}
	log.p.out = r.io.Err
	log.p.colour = isTerminal(r.io.Err) && r.environ()["NO_COLOR"] == ""
	cfg := runner.Config{
		ID: c.ID, Servers: servers, Capacity: c.Capacity, Cursors: runner.CursorDir(cursors), LeaveFailed: c.Retry, Grace: c.Grace,
		Log: obs.NewLogger(r.io.Err, level, "text"), Observe: log.event,
		Handler: shell.Handler(shell.Config{Command: c.Exec, Dir: c.Dir, Environ: r.commandEnviron(), Types: c.Messages, All: c.All, Stderr: r.io.Err}),
	}
	if c.Seal {
		if cfg.Key, err = sealed.Load(filepath.Join(cursors, c.ID+".key")); err != nil {
			return failf(ExitFailed, "%w (--cursor-dir says where it is kept; with --no-seal wakes come in the clear and no key is needed)", err)
		}
	}
	for _, id := range c.Pool {
		cfg.Pools = append(cfg.Pools, runner.Pool{ID: id, JoinToken: joinToken(r, c.JoinToken)})
	}
	if c.Callback {
		cfg.Style = runner.Callback
	}
	if !c.NoRegister {
		label := c.Label
		if label == "" {
			if label, err = os.Hostname(); err != nil || label == "" {
				label = c.ID
			}
		}
		cfg.Register = &runner.Registration{Label: label, Kind: c.Kind, IfAbsent: c.Label == "" && c.Kind == ""}
	}
	run, err := runner.New(cfg)
	if err != nil {
		return fail(ExitUsage, err)
	}
	ctx, restore := untilSignalled(r.ctx)
	defer restore()
	defer hearHangups()()
	if err := run.Run(ctx); err != nil {
		k := &caller{r: r, printer: log.p, server: servers[0], ctx: context.WithoutCancel(ctx)}
		return k.explain(err)
	}
	return nil
}

// servers are all addresses that are named, each with its service.
func (c *runnerRunCmd) servers(r *run) ([]runner.Server, error) {
	addresses := c.Server
	if len(addresses) == 0 {
		addresses = []string{""}
	}
	tokens := c.Token
	if len(tokens) == 0 && r.environ()["ROUSE_TOKEN"] != "" {
		tokens = strings.Split(r.environ()["ROUSE_TOKEN"], ",")
	}
	if n := len(tokens); n > 1 && (n != len(addresses) || slices.Contains(tokens, "")) {
		return nil, failf(ExitUsage, "there are %d tokens for %d servers: give one for all, or one for each in their order", n, len(addresses))
	}
	out := make([]runner.Server, len(addresses))
	for i, a := range addresses {
		token := ""
		if len(tokens) > 0 {
			token = tokens[min(i, len(tokens)-1)]
		}
		s, err := clientFlags{Server: a, Service: c.Service, As: c.As, Token: token}.server(r)
		if err != nil {
			return nil, err
		}
		if u, err := url.Parse(s.URL); err == nil && u.Query().Get("service") != "" {
			q := u.Query()
			s.Service = q.Get("service")
			q.Del("service")
			u.RawQuery = q.Encode()
			s.URL = u.String()
		}
		out[i] = s
	}
	return out, nil
}

func (c *runnerRunCmd) cursorDir(r *run) (string, error) {
	env := r.environ()
	switch {
	case c.CursorDir != "":
		return c.CursorDir, nil
	case env["XDG_STATE_HOME"] != "":
		return filepath.Join(env["XDG_STATE_HOME"], "rouse", "runners"), nil
	case env["HOME"] != "":
		return filepath.Join(env["HOME"], ".local", "state", "rouse", "runners"), nil
	}
	return "", failf(ExitUsage, "there is no home directory; say --cursor-dir")
}

// commandEnviron is this process's environment without the credentials that are the runner's and not the work's.
func (r *run) commandEnviron() []string {
	var out []string
	for _, kv := range r.io.Environ {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "ROUSE_TOKEN", "ROUSE_JOIN_TOKEN", "ROUSE_CLAIM_TOKEN", "ROUSE_KEYS", "ROUSE_DATABASE_URL", "ROUSE_DIRECT_URL":
		default:
			out = append(out, kv)
		}
	}
	return out
}

// reporter tells what a runner does: to a person on standard error, or as JSON lines on standard output.
type reporter struct {
	r    *run
	p    *printer
	json bool
	mu   sync.Mutex
	down map[string]bool
}

func (l *reporter) event(e runner.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	reason := ""
	if e.Err != nil {
		reason = obs.Scrub(e.Err.Error())
	}
	if l.json {
		_ = l.r.line(struct {
			At     time.Time `json:"at"`
			Event  string    `json:"event"`
			Server string    `json:"server"`
			Entity string    `json:"entity,omitempty"`
			WakeID string    `json:"wake_id,omitempty"`
			Epoch  int64     `json:"epoch,omitempty"`
			TookMS float64   `json:"took_ms,omitempty"`
			Reason string    `json:"reason,omitempty"`
		}{time.Now().UTC(), string(e.Kind), e.Server, e.Entity, e.WakeID, e.Epoch, float64(e.Took.Microseconds()) / 1000, reason})
		return
	}
	if l.down == nil {
		l.down = map[string]bool{}
	}
	who := fmt.Sprintf("%s epoch %d", printable(e.Entity), e.Epoch)
	took := e.Took.Round(100 * time.Microsecond)
	switch e.Kind {
	case runner.Connected:
		if down, known := l.down[e.Server]; !known || down {
			l.p.printf("%s %s\n", l.p.paint(green, "●"), "waiting for work from "+printable(e.Server))
		}
		l.down[e.Server] = false
	case runner.Disconnected:
		// The log says so, too, when it lasts.
	case runner.Claimed:
		l.p.printf("%s %s %s\n", l.p.paint(blue, "→"), "claimed "+who, l.p.paint(dim, took.String()))
	case runner.Done:
		l.p.printf("%s %s %s\n", l.p.paint(green, "✓"), "done "+who, l.p.paint(dim, took.String()))
	case runner.Failed:
		l.p.printf("%s %s: %s\n", l.p.paint(red, "✗"), "failed "+who, oneLine(reason, 200))
	case runner.Lost:
		l.p.printf("%s %s: %s\n", l.p.paint(red, "!"), "lost "+who, oneLine(reason, 200))
	case runner.Returned:
		l.p.printf("%s %s\n", l.p.paint(yellow, "←"), "given back "+who)
	case runner.Refused:
		// Somebody else has it: nothing to see.
	}
}
