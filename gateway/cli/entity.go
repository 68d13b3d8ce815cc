package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rouse-run/rouse/openapi/client"
	"github.com/rouse-run/rouse/openapi/runner/call"
)

type entityCmd struct {
	Spawn   entitySpawnCmd   `cmd:"" help:"Spawn an entity."`
	Send    entitySendCmd    `cmd:"" help:"Send a message to an entity, which wakes its owner."`
	Ps      entityPsCmd      `cmd:"" aliases:"ls" help:"List entities, and say what each of them does or waits for."`
	Inspect entityInspectCmd `cmd:"" help:"Show an entity: what it waits for, who holds it, its last wakes and claims."`
	Signal  entitySignalCmd  `cmd:"" help:"Signal an entity."`
	Move    entityMoveCmd    `cmd:"" help:"Send an entity's work somewhere else, from whoever holds it too."`
	Kill    entityKillCmd    `cmd:"" help:"Kill an entity: its claim ends, its stream is closed."`
	Tail    entityTailCmd    `cmd:"" help:"Watch an entity's stream."`
}

type entitySpawnCmd struct {
	clientFlags
	targetFlags
	Entity  string            `arg:"" help:"TYPE/ID of the entity, such as task/1."`
	Args    string            `help:"Its arguments, an object." placeholder:"JSON"`
	Tag     map[string]string `mapsep:"none" help:"A tag; may be given several times." placeholder:"KEY=VALUE"`
	Parent  string            `help:"Its parent, whose dispatch policy it inherits." placeholder:"ENTITY"`
	Message string            `short:"m" help:"A first message: JSON if it is JSON, text otherwise." placeholder:"MESSAGE"`
}

func (entitySpawnCmd) Help() string {
	return `Where its wakes go is fixed when it is spawned: what is said here, else its parent's policy, else its type's.

Examples:
  rouse entity spawn task/1 --runner laptop
  rouse entity spawn task/1 --to runner:laptop,offline,unclaimed=15s --to pool:coding --to https://example.com/wake --give-up-attempts 20
  rouse entity spawn task/2 --args '{"colour":"blue"}' -m 'paint the shed'
  rouse entity spawn coding-session/team/a/7 --webhook https://example.com/wake`
}

func (c *entitySpawnCmd) Run(r *run) error {
	typ, id, err := entityName(c.Entity)
	if err != nil {
		return err
	}
	policy, err := c.policy()
	if err != nil {
		return err
	}
	body := client.SpawnRequest{}
	if c.Args != "" {
		if !json.Valid([]byte(c.Args)) {
			return failf(ExitUsage, "--args is not JSON")
		}
		body.Args = ptr(json.RawMessage(c.Args))
	}
	if len(c.Tag) > 0 {
		body.Tags = &c.Tag
	}
	if c.Parent != "" {
		ptyp, pid, err := entityName(c.Parent)
		if err != nil {
			return err
		}
		body.Parent = ptr("/" + ptyp + "/" + pid)
	}
	if c.Message != "" {
		body.InitialMessage = ptr(value(c.Message, false))
	}
	return c.connected(r, func(k *caller) error {
		var e client.EntityTx
		k.advice = map[string]string{"UNAUTHORIZED": "act as who registered the type: with that token in ROUSE_TOKEN or --token, or --as user:NAME in `rouse dev`"}
		whole := struct {
			client.SpawnRequest
			DispatchPolicy json.RawMessage `json:"dispatch_policy,omitempty"`
		}{body, policy}
		if err := k.ask(&e, k.plain(http.MethodPut, entityPath(typ, id), whole)); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(e)
		}
		k.printf("spawned %s\n", printable(e.URL))
		if e.DispatchPolicy == nil {
			r.say("Nobody is woken for it: neither it nor its parent or type has a dispatch policy.")
		}
		return nil
	})
}

type entitySendCmd struct {
	clientFlags
	Entity  string `arg:"" help:"TYPE/ID of the entity."`
	Message string `arg:"" help:"The message: JSON if it is JSON, text otherwise; - reads standard input."`
	Text    bool   `help:"Take the message as text in any case."`
	Type    string `help:"The message's type, where the entity's type knows several." placeholder:"NAME"`
	Key     string `help:"The message's key: sent again with the same key, it lands once." placeholder:"KEY"`
}

func (entitySendCmd) Help() string {
	return `Examples:
  rouse entity send task/1 'paint the shed'
  rouse entity send task/1 '{"do":"paint","what":"shed"}' --key order-4711
  git diff | rouse entity send task/1 - --text`
}

func (c *entitySendCmd) Run(r *run) error {
	typ, id, err := entityName(c.Entity)
	if err != nil {
		return err
	}
	text := c.Message
	if text == "-" {
		raw, err := io.ReadAll(io.LimitReader(r.io.In, 256<<20))
		if err != nil {
			return err
		}
		text = string(raw)
	}
	body := client.SendRequest{Payload: value(text, c.Text), Type: optional(c.Type), Key: optional(c.Key)}
	return c.connected(r, func(k *caller) error {
		var sent client.SendResult
		if err := k.ask(&sent, func(ctx context.Context) (*http.Response, error) { return k.SendToEntity(ctx, typ, id, nil, body) }); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(sent)
		}
		k.printf("sent to /%s/%s at %s\n", typ, printable(id), sent.Offset)
		return nil
	})
}

type entityPsCmd struct {
	clientFlags
	Type   string `help:"Only this type." placeholder:"TYPE"`
	Status string `help:"Only this status: spawning, running, idle, paused, stopping, stopped or killed." placeholder:"STATUS"`
	Parent string `help:"Only children of this entity." placeholder:"ENTITY"`
	All    bool   `short:"a" help:"Stopped and killed ones too."`
	Limit  int    `help:"At most so many." default:"100"`
}

func (entityPsCmd) Help() string {
	return `Newest first; without --all or --status those that have ended are left out.

Examples:
  rouse entity ps
  rouse entity ps --type task --status running
  rouse entity ps --all --json | jq -r '.[].url'`
}

func (c *entityPsCmd) Run(r *run) error {
	c.Status = strings.ToLower(c.Status)
	if c.Status != "" && !client.EntityStatus(c.Status).Valid() {
		return failf(ExitUsage, "no entity has the status %s: name spawning, running, idle, paused, stopping, stopped or killed", printable(c.Status))
	}
	if c.Limit < 1 {
		return failf(ExitUsage, "--limit must be at least 1")
	}
	params := client.ListEntitiesParams{Type: optional(c.Type), Status: optional(c.Status), Limit: ptr(int64(1000))}
	if c.Parent != "" {
		typ, id, err := entityName(c.Parent)
		if err != nil {
			return err
		}
		params.Parent = ptr("/" + typ + "/" + id)
	}
	return c.connected(r, func(k *caller) error {
		list := []listed{}
		for pages := 0; len(list) < c.Limit; pages++ {
			if pages == psPages {
				r.say("There are more, but the newest %d thousand have ended. --all or --status shows them.", pages)
				break
			}
			var page []listed
			ctx, cancel := context.WithTimeout(k.ctx, requestTimeout)
			resp, err := k.ListEntities(ctx, &params, withDisplay)
			err = call.Decode(resp, err, &page)
			cancel()
			if err != nil {
				return err
			}
			for _, e := range page {
				if ended := e.Status == client.EntityStatusStopped || e.Status == client.EntityStatusKilled; ended && !c.All && c.Status == "" {
					continue
				}
				list = append(list, e)
			}
			next := resp.Header.Get("Electric-Next-Cursor")
			if next == "" {
				break
			}
			params.Cursor = &next
		}
		list = list[:min(len(list), c.Limit)]
		if k.json {
			return r.printJSON(list)
		}
		if len(list) == 0 {
			switch hidden := !c.All && c.Status == ""; {
			case c.Type+c.Status+c.Parent == "" && hidden:
				r.say(`There are none. "rouse entity spawn TYPE/ID" makes one; --all shows those that have ended.`)
			case hidden:
				r.say("There are none such; --all shows those that have ended.")
			default:
				r.say("There are none such.")
			}
			return nil
		}
		rows := make([][]string, len(list))
		for i, e := range list {
			rows[i] = []string{printable(e.URL), k.words(e), targets(e.DispatchPolicy), principal(text(e.CreatedBy)),
				age(time.UnixMilli(e.CreatedAt)), age(time.UnixMilli(e.UpdatedAt)), tags(e.Tags)}
		}
		k.table([]string{"ENTITY", "STATUS", "WAKES GO TO", "CREATED BY", "AGE", "CHANGED", "TAGS"}, rows)
		return nil
	})
}

// listed is an entity with what a UI says about it.
type listed struct {
	client.Entity
	DispatchPolicy json.RawMessage `json:"dispatch_policy,omitempty"`
	Display        *words          `json:"display,omitempty"`
}

type words struct {
	Code    string `json:"code"`
	Display string `json:"display"`
}

// withDisplay asks a list for them.
func withDisplay(_ context.Context, req *http.Request) error {
	q := req.URL.Query()
	q.Set("display", "true")
	req.URL.RawQuery = q.Encode()
	return nil
}

// words are what the gateway says about an entity; of one that says nothing, the status.
func (p *printer) words(e listed) string {
	if e.Display == nil {
		return p.status(string(e.Status))
	}
	colour := ""
	switch e.Display.Code {
	case "running":
		colour = green
	case "killed", "failed", "delivery_failed", "parked":
		colour = red
	case "stopped", "waiting_for_input":
		colour = dim
	default:
		colour = yellow
	}
	return p.paint(colour, oneLine(e.Display.Display, 60))
}

// psPages bounds how many pages of a thousand are looked through for entities that live.
const psPages = 20

func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

func tags(m map[string]string) string {
	out := make([]string, 0, len(m))
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return oneLine(strings.Join(out, " "), 60)
}

type entitySignalCmd struct {
	clientFlags
	Entity  string `arg:"" help:"TYPE/ID of the entity."`
	Signal  string `arg:"" help:"SIGINT, SIGHUP, SIGTERM, SIGKILL, SIGSTOP, SIGCONT or SIGUSR; SIG may be left out."`
	Reason  string `help:"Why." placeholder:"TEXT"`
	Payload string `help:"Goes along: JSON if it is JSON, text otherwise." placeholder:"MESSAGE"`
}

func (entitySignalCmd) Help() string {
	return `SIGSTOP pauses an entity until SIGCONT or the next message resumes it, SIGTERM stops it (a running one when its run is over), SIGKILL kills it. The others are for its owner to make something of.

Examples:
  rouse entity signal task/1 STOP
  rouse entity signal task/1 SIGUSR --payload '{"level":"debug"}'`
}

func (c *entitySignalCmd) Run(r *run) error {
	name := strings.ToUpper(c.Signal)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	body := client.SignalRequest{Signal: client.SignalRequestSignal(name), Reason: optional(c.Reason)}
	if !body.Signal.Valid() {
		return failf(ExitUsage, "there is no signal %s for entities: name SIGINT, SIGHUP, SIGTERM, SIGKILL, SIGSTOP, SIGCONT or SIGUSR", printable(name))
	}
	if c.Payload != "" {
		body.Payload = ptr(value(c.Payload, false))
	}
	return c.connected(r, func(k *caller) error { return k.signal(c.Entity, body) })
}

func (c *caller) signal(entity string, body client.SignalRequest) error {
	s, err := c.signalled(entity, body)
	if err == nil && c.json {
		return c.r.printJSON(s)
	}
	return err
}

// signalled signals, and tells a person of it.
func (c *caller) signalled(entity string, body client.SignalRequest) (s client.SignalResult, err error) {
	typ, id, err := entityName(entity)
	if err != nil {
		return s, err
	}
	if err := c.ask(&s, func(ctx context.Context) (*http.Response, error) { return c.SignalEntity(ctx, typ, id, nil, body) }); err != nil {
		return s, err
	}
	if !c.json {
		c.printf("%s to %s: %s → %s\n", s.Signal, printable(s.URL), c.status(s.PreviousState), c.status(s.NewState))
	}
	return s, nil
}

type entityKillCmd struct {
	clientFlags
	Entity []string `arg:"" help:"TYPE/ID of the entity, or of several."`
	Reason string   `help:"Why." placeholder:"TEXT"`
}

func (c *entityKillCmd) Run(r *run) error {
	body := client.SignalRequest{Signal: client.SIGKILL, Reason: optional(c.Reason)}
	return c.connected(r, func(k *caller) error {
		if len(c.Entity) == 1 {
			return k.signal(c.Entity[0], body)
		}
		all := []client.SignalResult{}
		var errs []error
		for _, e := range c.Entity {
			s, err := k.signalled(e, body)
			if err == nil {
				all = append(all, s)
			}
			errs = append(errs, k.explain(err))
		}
		if k.json {
			errs = append(errs, r.printJSON(all))
		}
		return errors.Join(errs...)
	})
}
