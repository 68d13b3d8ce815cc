package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rouse-run/rouse/openapi/client"
	"github.com/rouse-run/rouse/openapi/runner/call"
	"github.com/rouse-run/rouse/openapi/runner/tail"
)

type entityInspectCmd struct {
	clientFlags
	Entity string `arg:"" help:"TYPE/ID of the entity."`
}

// entityFile is all there is to say of an entity.
type entityFile struct {
	Entity   client.Entity  `json:"entity"`
	Display  client.Display `json:"display"`
	Dispatch routedState    `json:"dispatch"`
	Claims   []client.Claim `json:"claims"`
	Wakes    []routedWake   `json:"wakes"`
	// Delivery is the open wake with the attempts to deliver it, where it is pushed.
	Delivery *wakeFile `json:"delivery,omitempty"`
}

// routedState is a dispatch state with where it stands among the policy's targets.
type routedState struct {
	client.DispatchState
	TargetIndex  int        `json:"target_index"`
	Attempts     int        `json:"attempts"`
	PoolID       *string    `json:"pool_id,omitempty"`
	ParkedAt     *time.Time `json:"parked_at,omitempty"`
	ParkedReason *string    `json:"parked_reason,omitempty"`
	ReleaseBy    *time.Time `json:"release_by,omitempty"`
}

func (c *entityInspectCmd) Run(r *run) error {
	typ, id, err := entityName(c.Entity)
	if err != nil {
		return err
	}
	return c.connected(r, func(k *caller) error {
		var f entityFile
		ten := ptr(int64(10))
		for _, part := range []struct {
			out any
			ask func(context.Context) (*http.Response, error)
		}{
			{&f.Entity, func(ctx context.Context) (*http.Response, error) { return k.GetEntity(ctx, typ, id, nil) }},
			{&f.Display, func(ctx context.Context) (*http.Response, error) { return k.GetEntityDisplay(ctx, typ, id, nil) }},
			{&f.Dispatch, func(ctx context.Context) (*http.Response, error) { return k.GetEntityDispatch(ctx, typ, id, nil) }},
			{&f.Claims, func(ctx context.Context) (*http.Response, error) {
				return k.ListEntityClaims(ctx, typ, id, &client.ListEntityClaimsParams{Limit: ten})
			}},
			{&f.Wakes, func(ctx context.Context) (*http.Response, error) {
				return k.ListEntityWakes(ctx, typ, id, &client.ListEntityWakesParams{Limit: ten})
			}},
		} {
			if err := k.ask(part.out, part.ask); err != nil {
				return err
			}
		}
		if len(f.Wakes) > 0 && f.Wakes[0].ResolvedAt == nil && f.Wakes[0].TargetType != "runner" {
			// Who may read the entity only does not see where its wakes fail.
			if w, err := k.wake(f.Wakes[0].WakeID); err == nil {
				f.Delivery = &w
			} else if call.Status(err) != http.StatusUnauthorized {
				return err
			}
		}
		if k.json {
			return r.printJSON(f)
		}
		k.showEntity(f)
		return nil
	})
}

func (c *caller) showEntity(f entityFile) {
	e, d := f.Entity, f.Dispatch
	pending := ""
	if d.PendingSince != nil {
		pending = "since " + age(*d.PendingSince)
	}
	outstanding := ""
	if d.OutstandingWakeID != nil {
		outstanding = *d.OutstandingWakeID
	}
	held := ""
	if d.ActiveEpoch != nil {
		held = fmt.Sprintf("epoch %d", *d.ActiveEpoch)
		if d.ActiveRunnerID != nil {
			held += " by runner " + printable(*d.ActiveRunnerID)
		}
		if d.ActiveLeaseExpiresAt != nil {
			held += ", lease until " + d.ActiveLeaseExpiresAt.Local().Format("15:04:05.000")
		}
		if d.ReleaseBy != nil {
			held += ", to hand over until " + d.ReleaseBy.Local().Format("15:04:05")
		}
	}
	parked := ""
	if d.ParkedAt != nil {
		parked = text(d.ParkedReason) + ", " + ago(*d.ParkedAt) + `; "rouse parked redrive" wakes it again`
	}
	args := ""
	if e.SpawnArgs != nil {
		args = notNull(*e.SpawnArgs)
	}
	c.fields("entity", c.paint(bold, printable(e.URL)), "status", c.status(string(e.Status)), "", c.paint(blue, printable(f.Display.Display)),
		"wakes go to", target(e.DispatchPolicy), "held", held, "open wake", outstanding, "attempt", nth(d.Attempts), "unread", pending, "parked", c.paint(red, parked),
		"last error", c.paint(red, oneLine(text(d.LastError), 200)), "arguments", oneLine(args, 200), "tags", tags(e.Tags),
		"parent", printable(text(e.Parent)), "created by", principal(text(e.CreatedBy)), "created", ago(time.UnixMilli(e.CreatedAt)),
		"stream", printable(e.Streams.Main))
	if len(f.Claims) > 0 {
		c.printf("\n")
		rows := make([][]string, len(f.Claims))
		for i, k := range f.Claims {
			ended := k.UpdatedAt
			if k.ReleasedAt != nil {
				ended = *k.ReleasedAt
			}
			took := ""
			if k.Status != "active" {
				took = ended.Sub(k.ClaimedAt).Round(time.Millisecond).String()
			}
			rows[i] = []string{fmt.Sprint(k.Epoch), c.status(k.Status), printable(text(k.RunnerID)), principal(text(k.Holder)), age(k.ClaimedAt), took, oneLine(text(k.Error), 60)}
		}
		c.table([]string{"CLAIM", "STATUS", "RUNNER", "HOLDER", "AGE", "TOOK", "ERROR"}, rows)
	}
	if len(f.Wakes) > 0 {
		c.printf("\n")
		c.wakeTable(f.Wakes)
	}
	if f.Delivery != nil && len(f.Delivery.Deliveries) > 0 {
		c.printf("\n")
		c.deliveries(*f.Delivery)
	}
}

type entityTailCmd struct {
	clientFlags
	Entity string `arg:"" help:"TYPE/ID of the entity."`
	Offset string `help:"Where to begin: start, now, or an offset." default:"start"`
	Errors bool   `help:"Its error stream instead of the main one."`
	Until  bool   `name:"no-follow" help:"Print what is there and end."`
}

func (entityTailCmd) Help() string {
	return `Goes on until the entity ends or Ctrl-C. With --json each line is an object with the message, and with the offset behind it wherever reading can go on from there.

Examples:
  rouse entity tail task/1
  rouse entity tail task/1 --offset now --json
  rouse entity tail task/1 --errors`
}

func (c *entityTailCmd) Run(r *run) error {
	typ, id, err := entityName(c.Entity)
	if err != nil {
		return err
	}
	return c.connected(r, func(k *caller) error {
		path := typ + "/" + id + "/main"
		if c.Errors {
			path = typ + "/" + id + "/error"
		} else {
			k.advice = map[string]string{"STREAM_NOT_FOUND": fmt.Sprintf(`"rouse entity spawn %s/%s" makes this entity`, typ, id)}
		}
		show := k.rows
		if k.json {
			show = k.batch
		}
		if c.Until {
			p, err := k.page(path, wireOffset(c.Offset))
			for ; err == nil; p, err = k.page(path, p.state.Offset) {
				b := tail.Batch{Offset: p.state.Offset}
				if err := json.Unmarshal(p.body, &b.Messages); err != nil {
					return err
				}
				if err := show(p.state.ContentType, b); err != nil {
					return err
				}
				if p.end || len(b.Messages) == 0 {
					return nil
				}
			}
			return err
		}
		if err := k.follow(path, c.Offset, show); err != nil {
			if c.Errors && call.Status(err) == http.StatusNotFound {
				return failf(ExitServerNotFound, "/%s/%s has no error stream: no run of it has failed yet", typ, printable(id))
			}
			return err
		}
		return nil
	})
}

// rows prints State Protocol messages for people.
func (c *caller) rows(_ string, b tail.Batch) error {
	for _, m := range b.Messages {
		c.printf("%s\n", c.row(m))
	}
	return nil
}

func (c *printer) row(m json.RawMessage) string {
	var s struct {
		Type    string          `json:"type"`
		Key     string          `json:"key"`
		Value   json.RawMessage `json:"value"`
		Headers struct {
			Operation string `json:"operation"`
			Control   string `json:"control"`
		} `json:"headers"`
	}
	if json.Unmarshal(m, &s) != nil || (s.Headers.Operation == "" && s.Headers.Control == "") {
		return printable(compact(m))
	}
	if s.Headers.Control != "" {
		return c.paint(dim, "("+printable(s.Headers.Control)+")")
	}
	var v struct {
		From      string          `json:"from"`
		Payload   json.RawMessage `json:"payload"`
		Text      *string         `json:"text"`
		Message   *string         `json:"message"`
		Signal    string          `json:"signal"`
		Reason    string          `json:"reason"`
		Entity    string          `json:"entity_type"`
		Timestamp string          `json:"timestamp"`
	}
	_ = json.Unmarshal(s.Value, &v) // what does not fit is printed as it is
	head, body := c.paint(dim, pad(printable(s.Type), 8)), ""
	switch {
	case s.Type == "inbox":
		head, body = c.paint(blue, pad("inbox", 8)), c.paint(dim, principal(v.From)+": ")+printable(compact(v.Payload))
	case s.Type == "signal":
		head, body = c.paint(yellow, pad("signal", 8)), strings.TrimSpace(printable(v.Signal+" "+v.Reason))
	case s.Type == "error" && v.Message != nil:
		head, body = c.paint(red, pad("error", 8)), printable(*v.Message)
	case s.Type == "entity_created":
		body = printable(v.Entity)
	case v.Text != nil:
		head, body = c.paint(green, pad(printable(s.Type), 8)), printable(*v.Text)
	default:
		body = printable(s.Key + " " + compact(s.Value))
	}
	if s.Headers.Operation != "insert" {
		body = c.paint(dim, printable(s.Headers.Operation)+" ") + body
	}
	return head + "  " + strings.TrimRight(body, "\n ")
}
