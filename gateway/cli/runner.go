package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/rouse-run/rouse/openapi/client"
)

type runnerCmd struct {
	Register runnerRegisterCmd `cmd:"" help:"Register a runner, or change it."`
	Ls       runnerLsCmd       `cmd:"" aliases:"ps,list" help:"List your runners."`
	Health   runnerHealthCmd   `cmd:"" help:"Show how a runner does."`
	Run      runnerRunCmd      `cmd:"" help:"Be a runner: run a command for each wake."`
	Enable   runnerEnableCmd   `cmd:"" help:"Let a runner claim again."`
	Disable  runnerDisableCmd  `cmd:"" help:"Let a runner claim nothing any more."`
	Key      runnerKeyCmd      `cmd:"" help:"Show, set or remove the key that a runner's wakes are sealed to."`
}

type runnerRegisterCmd struct {
	clientFlags
	ID       string `arg:"" help:"The runner's id. It belongs to whoever registers it first."`
	Label    string `help:"What people see; default: the id." placeholder:"TEXT"`
	Kind     string `help:"local, cloud-worker, sandbox, ci or server." enum:",local,cloud-worker,sandbox,ci,server" default:"" placeholder:"KIND"`
	Capacity int32  `help:"How many claims it may hold at once; default: any number." placeholder:"N"`
}

func (runnerRegisterCmd) Help() string {
	return `Examples:
  rouse runner register laptop --label "Kyle's MacBook"
  rouse runner register ci-7 --kind ci --capacity 2`
}

func (c *runnerRegisterCmd) Run(r *run) error {
	body := client.RunnerRegister{ID: c.ID, Label: c.Label, Capacity: optional(c.Capacity), Kind: optional(client.RunnerRegisterKind(c.Kind))}
	if body.Label == "" {
		body.Label = c.ID
	}
	return c.connected(r, func(k *caller) error {
		var out client.Runner
		if err := k.ask(&out, func(ctx context.Context) (*http.Response, error) { return k.RegisterRunner(ctx, nil, body) }); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(out)
		}
		k.printf("registered runner %s of %s\n", out.ID, principal(out.OwnerPrincipal))
		return nil
	})
}

type runnerLsCmd struct{ clientFlags }

func (c *runnerLsCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		list := []client.Runner{}
		if err := k.ask(&list, func(ctx context.Context) (*http.Response, error) { return k.ListRunners(ctx, nil) }); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(list)
		}
		if len(list) == 0 {
			r.say(`You have none. "rouse runner run --id ID --exec COMMAND" makes this machine one.`)
			return nil
		}
		rows := make([][]string, len(list))
		for i, x := range list {
			capacity := "any"
			if x.Capacity != nil {
				capacity = fmt.Sprint(*x.Capacity)
			}
			seen := "never"
			if x.LastSeenAt != nil {
				seen = age(*x.LastSeenAt)
			}
			rows[i] = []string{x.ID, k.status(string(x.Liveness)), k.status(string(x.AdminStatus)), fmt.Sprintf("%d of %s", len(x.ActiveClaims), capacity), seen, string(x.Kind), principal(x.OwnerPrincipal), oneLine(x.Label, 40)}
		}
		k.table([]string{"RUNNER", "LIVENESS", "ADMIN", "CLAIMS", "SEEN", "KIND", "OWNER", "LABEL"}, rows)
		return nil
	})
}

type runnerHealthCmd struct {
	clientFlags
	ID string `arg:"" help:"The runner's id."`
}

func (c *runnerHealthCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		var raw json.RawMessage
		if err := k.ask(&raw, func(ctx context.Context) (*http.Response, error) { return k.GetRunnerHealth(ctx, c.ID, nil) }); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(raw)
		}
		var h client.RunnerHealthDoc
		if err := json.Unmarshal(raw, &h); err != nil {
			return err
		}
		k.fields("runner", k.paint(bold, c.ID), "health", k.status(string(h.Health.Status)), "liveness", k.status(string(h.Runner.LivenessStatus)),
			"active claims", fmt.Sprint(h.Claims.ActiveCount), "open wakes", fmt.Sprint(h.Dispatch.EntitiesWithOutstandingWake),
			"unread entities", fmt.Sprint(h.Dispatch.EntitiesWithPendingWork))
		for _, i := range h.Health.Issues {
			k.printf("%s\n", k.paint(yellow, "! "+printable(i.Code+": "+i.Message)))
		}
		for _, a := range h.Claims.Active {
			k.printf("  %s  epoch %d  for %s\n", printable(a.EntityURL), a.Epoch, time.Since(a.ClaimedAt).Round(time.Second))
		}
		return nil
	})
}

type runnerEnableCmd struct {
	clientFlags
	ID string `arg:"" help:"The runner's id."`
}

func (c *runnerEnableCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		return k.admin(func(ctx context.Context) (*http.Response, error) { return k.EnableRunner(ctx, c.ID, nil) })
	})
}

type runnerDisableCmd struct {
	clientFlags
	ID string `arg:"" help:"The runner's id."`
}

func (c *runnerDisableCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		return k.admin(func(ctx context.Context) (*http.Response, error) { return k.DisableRunner(ctx, c.ID, nil) })
	})
}

func (c *caller) admin(ask func(context.Context) (*http.Response, error)) error {
	var out client.Runner
	if err := c.ask(&out, ask); err != nil {
		return err
	}
	if c.json {
		return c.r.printJSON(out)
	}
	c.printf("runner %s is %s\n", out.ID, c.status(string(out.AdminStatus)))
	return nil
}
