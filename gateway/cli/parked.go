package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

type parkedCmd struct {
	Ls      parkedLsCmd      `cmd:"" aliases:"list" help:"List work that its policy has given up, and why."`
	Redrive parkedRedriveCmd `cmd:"" help:"Wake it again, from the first target on."`
}

// parkedWork is an entity whose work was given up.
type parkedWork struct {
	EntityURL      string          `json:"entity_url"`
	Type           string          `json:"type"`
	Reason         string          `json:"reason"`
	Attempts       int64           `json:"attempts"`
	ParkedAt       time.Time       `json:"parked_at"`
	PendingSince   *time.Time      `json:"pending_since,omitempty"`
	LastError      *string         `json:"last_error,omitempty"`
	DispatchPolicy json.RawMessage `json:"dispatch_policy,omitempty"`
}

// pageOf is how much a list answers at most.
const pageOf = 1000

type parkedLsCmd struct {
	clientFlags
	Limit int64 `help:"At most so many." default:"100"`
}

func (parkedLsCmd) Help() string {
	return `Examples:
  rouse parked ls
  rouse parked ls --json | jq -r '.[].entity_url'`
}

func (c *parkedLsCmd) Run(r *run) error {
	if c.Limit < 1 {
		return failf(ExitUsage, "--limit must be at least 1")
	}
	return c.connected(r, func(k *caller) error {
		list := []parkedWork{}
		for left, after := c.Limit, ""; left > 0; left = c.Limit - int64(len(list)) {
			most := min(left, pageOf)
			var page []parkedWork
			if err := k.ask(&page, k.plain(http.MethodGet, fmt.Sprintf("/_electric/parked?limit=%d&after=%s", most, url.QueryEscape(after)), nil)); err != nil {
				return err
			}
			list = append(list, page...)
			if int64(len(page)) < most {
				break
			}
			after = page[len(page)-1].EntityURL
		}
		if k.json {
			return r.printJSON(list)
		}
		if len(list) == 0 {
			r.say("Nothing is parked.")
			return nil
		}
		rows := make([][]string, len(list))
		for i, p := range list {
			rows[i] = []string{printable(p.EntityURL), k.paint(red, printable(p.Reason)), fmt.Sprint(p.Attempts), age(p.ParkedAt), oneLine(text(p.LastError), 80)}
		}
		k.table([]string{"ENTITY", "REASON", "ATTEMPTS", "PARKED", "LAST ERROR"}, rows)
		return nil
	})
}

type parkedRedriveCmd struct {
	clientFlags
	Entity []string `arg:"" optional:"" help:"TYPE/ID of the entity, or of several."`
	All    bool     `help:"Everything that is parked."`
	Type   string   `help:"With --all: only entities of this type." placeholder:"TYPE"`
	Reason string   `help:"With --all: only what was parked for this reason: attempts_exhausted, unclaimed, delivery_failed or no_target." placeholder:"REASON"`
}

func (parkedRedriveCmd) Help() string {
	return `Examples:
  rouse parked redrive task/1
  rouse parked redrive --all --reason unclaimed`
}

func (c *parkedRedriveCmd) Run(r *run) error {
	switch {
	case c.All == (len(c.Entity) > 0):
		return failf(ExitUsage, "name entities, or say --all")
	case !c.All && c.Type+c.Reason != "":
		return failf(ExitUsage, "--type and --reason go with --all")
	}
	return c.connected(r, func(k *caller) error {
		if c.All {
			return k.redriveAll(c.Type, c.Reason)
		}
		done := []string{}
		var errs []error
		for _, e := range c.Entity {
			typ, id, err := entityName(e)
			if err == nil {
				err = k.ask(nil, k.plain(http.MethodPost, entityPath(typ, id)+"/redrive", map[string]any{}))
			}
			if err != nil {
				errs = append(errs, k.explain(err))
				continue
			}
			done = append(done, "/"+typ+"/"+id)
			if !k.json {
				k.printf("redriven /%s/%s\n", printable(typ), printable(id))
			}
		}
		if k.json {
			errs = append(errs, r.printJSON(done))
		}
		return errors.Join(errs...)
	})
}

// redriveAll asks until nothing is left.
func (c *caller) redriveAll(typ, reason string) error {
	const each = 500
	body := map[string]any{"limit": each}
	if typ != "" {
		body["type"] = typ
	}
	if reason != "" {
		body["reason"] = reason
	}
	var sum int64
	for {
		var a struct{ Redriven int64 }
		if err := c.ask(&a, c.plain(http.MethodPost, "/_electric/parked/redrive", body)); err != nil {
			return err
		}
		if sum += a.Redriven; a.Redriven < each {
			break
		}
	}
	if c.json {
		return c.r.printJSON(map[string]any{"ok": true, "redriven": sum})
	}
	c.printf("redriven %d\n", sum)
	return nil
}

type entityMoveCmd struct {
	clientFlags
	targetFlags
	Entity   string        `arg:"" help:"TYPE/ID of the entity."`
	Deadline time.Duration `help:"How long whoever holds it may go on; it is asked to give it up at once. 0 fences it now." default:"30s"`
	Reason   string        `help:"Why; kept with the policy that it had." placeholder:"TEXT"`
}

func (entityMoveCmd) Help() string {
	return `The new policy takes the place of the one there is. What nobody has claimed goes to the new target at once. The cursor stays where it is: what was acked is not worked again.

Examples:
  rouse entity move task/1 --to pool:coding
  rouse entity move task/1 --to runner:laptop,offline --to pool:coding --deadline 2m --reason 'back home'
  rouse entity move task/1 --runner desktop --deadline 0s`
}

func (c *entityMoveCmd) Run(r *run) error {
	typ, id, err := entityName(c.Entity)
	if err != nil {
		return err
	}
	policy, err := c.policy()
	switch {
	case err != nil:
		return err
	case policy == nil:
		return failf(ExitUsage, "say where it goes: --to runner:ID, --to pool:ID, --to URL, or --policy")
	case c.Deadline < 0:
		return failf(ExitUsage, "--deadline must not be negative")
	}
	body := map[string]any{"dispatch_policy": policy, "deadline_ms": c.Deadline.Milliseconds()}
	if c.Reason != "" {
		body["reason"] = c.Reason
	}
	return c.connected(r, func(k *caller) error {
		var m struct {
			OK        bool       `json:"ok"`
			Outcome   string     `json:"outcome"`
			TxID      int64      `json:"txid,omitempty"`
			ReleaseBy *time.Time `json:"release_by,omitempty"`
		}
		if err := k.ask(&m, k.plain(http.MethodPost, entityPath(typ, id)+"/move", body)); err != nil {
			return err
		}
		switch {
		case k.json:
			return r.printJSON(m)
		case m.Outcome == "unchanged":
			k.printf("/%s/%s goes there already\n", printable(typ), printable(id))
		case m.ReleaseBy != nil:
			k.printf("moving /%s/%s → %s; whoever holds it has until %s\n", printable(typ), printable(id), targets(policy), m.ReleaseBy.Local().Format("15:04:05"))
		default:
			k.printf("moved /%s/%s → %s\n", printable(typ), printable(id), targets(policy))
		}
		return nil
	})
}

// entityPath is an entity's control route, whose id may hold slashes.
func entityPath(typ, id string) string {
	segs := strings.Split(id, "/")
	for i, s := range segs {
		segs[i] = url.PathEscape(s)
	}
	return "/_electric/entities/" + url.PathEscape(typ) + "/" + strings.Join(segs, "/")
}
