package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rouse-run/rouse/gateway/pluginhost"
	"github.com/rouse-run/rouse/gateway/server"
	"github.com/rouse-run/rouse/plugins/plugintest"
	"github.com/rouse-run/rouse/plugins/sdk"
	"github.com/rouse-run/rouse/plugins/skeleton"
)

type pluginCmd struct {
	Ls    pluginLsCmd    `cmd:"" aliases:"list" help:"List the plugins of a gateway and how they are doing."`
	Logs  pluginLogsCmd  `cmd:"" help:"Print the end of what a plugin of a gateway has printed."`
	Check pluginCheckCmd `cmd:"" help:"Start the plugins of a plugins file as a gateway would, or print the entry of a program."`
	New   pluginNewCmd   `cmd:"" help:"Write a new transport or auth hook: a Go module that builds and is tested."`
	Test  pluginTestCmd  `cmd:"" help:"Run the conformance kit against a plugin's program."`
}

// operatorOnly says how to be allowed to see plugins.
var operatorOnly = map[string]string{
	"FORBIDDEN":        systemOnly["FORBIDDEN"] + `; or have the gateway's settings name you among auth.operators`,
	"AUTH_UNAVAILABLE": "whom the gateway's settings name among auth.operators, and its file of tokens knows, sees plugins while others are down",
}

// pluginServeCmd is what the gateway starts of itself.
type pluginServeCmd struct {
	Name string `arg:""`
}

func (c *pluginServeCmd) Run(r *run) error {
	if hook := server.BuiltinHooks(r.ctx)[c.Name]; hook != nil {
		sdk.ServeAuthHook(hook())
		return nil
	}
	make := server.Builtins()[c.Name]
	if make == nil {
		return failf(ExitUsage, "there is no built-in plugin %q", c.Name)
	}
	sdk.ServeTransport(make())
	return nil
}

type pluginLsCmd struct{ clientFlags }

// pluginState is a plugin as a gateway tells of it.
type pluginState struct {
	Name      string     `json:"name"`
	Kind      string     `json:"kind"`
	Builtin   bool       `json:"builtin"`
	InProcess bool       `json:"in_process"`
	Version   string     `json:"version"`
	State     string     `json:"state"`
	Code      string     `json:"code,omitempty"`
	Detail    string     `json:"detail,omitempty"`
	PID       int        `json:"pid,omitempty"`
	Starts    int        `json:"starts"`
	Failures  int        `json:"failures"`
	NextStart *time.Time `json:"next_start,omitempty"`
}

func (c *pluginLsCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		k.advice = operatorOnly
		list := []pluginState{}
		if err := k.ask(&list, k.plain(http.MethodGet, "/_electric/plugins", nil)); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(list)
		}
		if len(list) == 0 {
			r.say("There are none.")
			return nil
		}
		rows := make([][]string, len(list))
		for i, p := range list {
			where := fmt.Sprint("pid ", p.PID)
			switch {
			case p.InProcess:
				where = "in the gateway"
			case p.PID == 0:
				where = ""
			}
			rows[i] = []string{printable(p.Name), p.Kind, printable(p.Version), k.status(p.State), where, fmt.Sprint(p.Starts), fmt.Sprint(p.Failures), oneLine(strings.TrimSpace(p.Code+" "+p.Detail), 300)}
		}
		k.table([]string{"NAME", "KIND", "VERSION", "STATE", "WHERE", "STARTS", "FAILED", "WHY"}, rows)
		return nil
	})
}

type pluginLogsCmd struct {
	clientFlags
	Name string `arg:"" help:"The plugin's name."`
}

func (c *pluginLogsCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		k.advice = operatorOnly
		lines := []struct {
			At   time.Time `json:"at"`
			Text string    `json:"text"`
		}{}
		if err := k.ask(&lines, k.plain(http.MethodGet, "/_electric/plugins/"+url.PathEscape(c.Name)+"/log", nil)); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(lines)
		}
		for _, l := range lines {
			k.printf("%s %s\n", l.At.Local().Format("15:04:05.000"), printable(l.Text))
		}
		return nil
	})
}

type pluginCheckCmd struct {
	What string `arg:"" optional:"" help:"A plugins file (default: ROUSE_PLUGINS_FILE), or the program of a plugin." placeholder:"FILE"`
	JSON bool   `help:"Print JSON." name:"json"`
}

func (pluginCheckCmd) Help() string {
	return `Examples:
  rouse plugin check ./pager                    # the entry of a program for the plugins file
  rouse plugin check /etc/rouse/plugins.yaml    # start each, describe, configure, ask for its health, end it`
}

func (c *pluginCheckCmd) Run(r *run) error {
	what := c.What
	if what == "" {
		what = r.environ()["ROUSE_PLUGINS_FILE"]
	}
	if what == "" {
		return failf(ExitUsage, "name a plugins file or a program")
	}
	switch filepath.Ext(what) {
	case ".yaml", ".yml", ".json":
		return c.file(r, what)
	}
	return c.program(r, what)
}

// program prints the entry of a program, which is not executed.
func (c *pluginCheckCmd) program(r *run, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fail(ExitUsage, err)
	}
	sum, err := pluginhost.Checksum(path)
	if err != nil {
		return refusal(err)
	}
	name := strings.ToLower(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))
	if c.JSON {
		return r.printJSON(map[string]string{"name": name, "path": path, "sha256": sum})
	}
	_, err = fmt.Fprintf(r.io.Out, "  %s:\n    path: %s\n    sha256: %s\n", name, path, sum)
	return err
}

// file tries each plugin of a plugins file.
func (c *pluginCheckCmd) file(r *run, path string) error {
	set, err := pluginhost.Load(path)
	if err != nil {
		return refusal(err)
	}
	results, err := pluginhost.Check(r.ctx, pluginhost.Config{Builtins: server.Builtins(), SelfArgs: r.io.Self}, set)
	if err != nil {
		return refusal(err)
	}
	bad := 0
	type shown struct {
		Name    string `json:"name"`
		Kind    string `json:"kind"`
		OK      bool   `json:"ok"`
		Version string `json:"version,omitempty"`
		Code    string `json:"code,omitempty"`
		Detail  string `json:"detail,omitempty"`
		// Printed is the end of what it printed, since no gateway keeps it.
		Printed []string `json:"printed,omitempty"`
	}
	all := []shown{}
	for _, p := range results {
		s := shown{Name: p.Name, Kind: p.Kind, OK: p.Err == nil, Version: p.Version}
		if p.Err != nil {
			bad++
			s.Code, s.Detail = pluginhost.CodeOf(p.Err), p.Err.Error()
			s.Printed = p.Printed
		}
		all = append(all, s)
	}
	if c.JSON {
		if err := r.printJSON(all); err != nil {
			return err
		}
	} else {
		for _, s := range all {
			if s.OK {
				fmt.Fprintf(r.io.Out, "ok      %-9s %s %s\n", s.Kind, s.Name, printable(s.Version))
				continue
			}
			fmt.Fprintf(r.io.Out, "FAILED  %-9s %s  %s: %s\n", s.Kind, s.Name, s.Code, printable(s.Detail))
			for _, line := range s.Printed {
				fmt.Fprintf(r.io.Out, "        | %s\n", printable(line))
			}
		}
	}
	if bad > 0 {
		return failf(ExitFindings, "%d of %d plugins cannot be used", bad, len(all))
	}
	return nil
}

// refusal shows the code of what is wrong with a plugin.
func refusal(err error) error {
	if code := pluginhost.CodeOf(err); code != "" {
		return failf(ExitFindings, "%s: %w", code, err)
	}
	return err
}

type pluginNewCmd struct {
	Kind  string `arg:"" enum:"transport,authhook" help:"transport or authhook."`
	Name  string `arg:"" help:"Lower-case letters, digits and dashes; a transport's is the type of its targets."`
	Dir   string `help:"Where to write it (default: ./NAME)." type:"path" placeholder:"DIR"`
	Rouse string `help:"Build it with this checkout of Rouse instead of a released version." type:"existingdir" placeholder:"DIR"`
}

func (c *pluginNewCmd) Run(r *run) error {
	dir := c.Dir
	if dir == "" {
		dir = c.Name
	}
	p := skeleton.Plugin{Kind: c.Kind, Name: c.Name, Version: Release()}
	if c.Rouse != "" {
		root, err := filepath.Abs(c.Rouse)
		if err != nil {
			return fail(ExitUsage, err)
		}
		if _, err := os.Stat(filepath.Join(root, "plugins", "sdk")); err != nil {
			return failf(ExitUsage, "%s is no checkout of Rouse", root)
		}
		p.Rouse, p.Version = root, "v0.0.0"
	} else if !strings.HasPrefix(p.Version, "v") {
		return failf(ExitUsage, "this binary is no release, so a plugin cannot name one to build with: give a checkout with --rouse DIR")
	}
	names, err := skeleton.Write(dir, p)
	if err != nil {
		return fail(ExitUsage, err)
	}
	r.say("Written to %s: %s.", dir, strings.Join(names, ", "))
	r.say("Next:\n  cd %s\n  go mod tidy && go test ./... && go build -o %s .\n  rouse plugin test ./%s", dir, c.Name, c.Name)
	return nil
}

type pluginTestCmd struct {
	Program string            `arg:"" type:"existingfile" help:"The plugin's program."`
	Args    []string          `arg:"" optional:"" help:"Its arguments."`
	Config  string            `help:"Its settings, a JSON object or the path of a file with one." placeholder:"JSON"`
	Target  string            `help:"Where a transport delivers to, JSON (default: the first example of its schema)." placeholder:"JSON"`
	Env     map[string]string `help:"Its environment." placeholder:"NAME=VALUE"`
	Timeout time.Duration     `help:"Bound of a start and of a call." default:"5s"`
	JSON    bool              `help:"Print JSON, a line a case." name:"json"`
}

func (c *pluginTestCmd) Run(r *run) error {
	config, err := jsonOrFile(c.Config)
	if err != nil {
		return failf(ExitUsage, "--config %w", err)
	}
	if c.Target != "" && !json.Valid([]byte(c.Target)) {
		return failf(ExitUsage, "--target is no JSON")
	}
	path, err := filepath.Abs(c.Program)
	if err != nil {
		return fail(ExitUsage, err)
	}
	opts := plugintest.Options{Path: path, Args: c.Args, Config: config, Target: json.RawMessage(c.Target), Timeout: c.Timeout}
	for k, v := range c.Env {
		opts.Env = append(opts.Env, k+"="+v)
	}
	failed := 0
	ok := plugintest.Run(context.WithoutCancel(r.ctx), opts, func(t plugintest.Result) {
		word, detail := "ok", t.Note
		switch {
		case t.NotRun():
			word, detail = "not run", t.Err.Error()
		case t.Err != nil:
			failed++
			word, detail = "FAILED", t.Err.Error()
		}
		if c.JSON {
			line, _ := json.Marshal(map[string]any{"case": t.Name, "result": word, "detail": detail, "ms": t.Took.Milliseconds()})
			fmt.Fprintf(r.io.Out, "%s\n", line)
			return
		}
		fmt.Fprintf(r.io.Out, "%-8s %s (%v)\n", word, t.Name, t.Took.Round(time.Millisecond))
		if detail != "" {
			fmt.Fprintf(r.io.Out, "         %s\n", strings.ReplaceAll(strings.TrimSpace(detail), "\n", "\n         "))
		}
	})
	if !ok {
		return failf(ExitFindings, "the plugin does not conform: %d cases failed", max(failed, 1))
	}
	return nil
}

// jsonOrFile reads JSON that is given or named.
func jsonOrFile(s string) (json.RawMessage, error) {
	if s == "" {
		return nil, nil
	}
	raw := []byte(s)
	if !strings.HasPrefix(strings.TrimSpace(s), "{") {
		var err error
		if raw, err = os.ReadFile(s); err != nil {
			return nil, errors.New("names no file that can be read")
		}
	}
	if !json.Valid(raw) {
		return nil, errors.New("is no JSON")
	}
	return raw, nil
}
