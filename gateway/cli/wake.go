package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rouse-run/rouse/openapi/client"
)

type wakeCmd struct {
	Ls        wakeLsCmd        `cmd:"" aliases:"list" help:"List the wakes of an entity or of a subscription, newest first."`
	Show      wakeShowCmd      `cmd:"" help:"Show a wake and the attempts to deliver it."`
	Redeliver wakeRedeliverCmd `cmd:"" help:"Deliver an open wake again, now."`
}

// wakeFile is a wake with the attempts to deliver it.
type wakeFile struct {
	routedWake
	NextAttemptAt *time.Time `json:"next_attempt_at"`
	Deliveries    []struct {
		Attempt    int        `json:"attempt"`
		Transport  string     `json:"transport"`
		StartedAt  time.Time  `json:"started_at"`
		FinishedAt *time.Time `json:"finished_at"`
		Outcome    *string    `json:"outcome"`
		StatusCode *int       `json:"status_code"`
		Error      *string    `json:"error"`
	} `json:"deliveries"`
}

// routedWake is a wake with which target of a policy it was for.
type routedWake struct {
	client.Wake
	TargetPoolID *string `json:"target_pool_id,omitempty"`
	TargetIndex  int     `json:"target_index"`
	Attempt      int     `json:"attempt"`
}

// target says where it goes.
func (f routedWake) target() string {
	at := printable(text(f.RunnerWakeStream))
	switch {
	case f.TargetPoolID != nil:
		at = printable(*f.TargetPoolID)
	case f.TargetRunnerID != nil:
		at = printable(*f.TargetRunnerID)
	case f.TargetWebhookURL != nil:
		at = receiver(*f.TargetWebhookURL)
	}
	return strings.TrimSpace(printable(f.TargetType) + " " + at)
}

type wakeLsCmd struct {
	clientFlags
	Entity       string `arg:"" optional:"" help:"TYPE/ID of the entity."`
	Subscription string `help:"Those of this subscription instead." placeholder:"ID"`
	Limit        int64  `help:"At most so many." default:"20"`
}

func (wakeLsCmd) Help() string {
	return `Examples:
  rouse wake ls task/1
  rouse wake ls --subscription orders --json | jq -r '.[] | select(.delivery_status=="failed") | .wake_id'`
}

func (c *wakeLsCmd) Run(r *run) error {
	if (c.Entity == "") == (c.Subscription == "") {
		return failf(ExitUsage, "name an entity, or a subscription with --subscription")
	}
	return c.connected(r, func(k *caller) error {
		list := []routedWake{}
		if c.Subscription != "" {
			var page struct {
				Wakes []routedWake `json:"wakes"`
			}
			if err := k.ask(&page, k.plain(http.MethodGet, subscriptionPath(c.Subscription)+fmt.Sprintf("/wakes?limit=%d", c.Limit), nil)); err != nil {
				return err
			}
			list = page.Wakes
		} else {
			typ, id, err := entityName(c.Entity)
			if err != nil {
				return err
			}
			if err := k.ask(&list, func(ctx context.Context) (*http.Response, error) {
				return k.ListEntityWakes(ctx, typ, id, &client.ListEntityWakesParams{Limit: &c.Limit})
			}); err != nil {
				return err
			}
		}
		if k.json {
			return r.printJSON(list)
		}
		if len(list) == 0 {
			r.say("There are none.")
			return nil
		}
		k.wakeTable(list)
		return nil
	})
}

func (c *printer) wakeTable(list []routedWake) {
	rows := make([][]string, len(list))
	for i, w := range list {
		rows[i] = []string{fmt.Sprint(w.Epoch), c.status(w.DeliveryStatus), c.status(w.ClaimStatus), w.target(), age(w.CreatedAt), fmt.Sprint(w.Attempts), w.WakeID}
	}
	c.table([]string{"WAKE", "DELIVERY", "CLAIM", "GOES TO", "AGE", "TRIES", "ID"}, rows)
}

type wakeShowCmd struct {
	clientFlags
	Wake string `arg:"" help:"The wake's id."`
}

func (c *wakeShowCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		f, err := k.wake(c.Wake)
		if err != nil {
			return err
		}
		if k.json {
			return r.printJSON(f)
		}
		due := ""
		if f.NextAttemptAt != nil {
			due = f.NextAttemptAt.Local().Format("15:04:05")
		}
		k.fields("wake", k.paint(bold, printable(f.WakeID)), "for", printable(text(f.EntityURL)), "consumer", printable(f.ConsumerID), "epoch", fmt.Sprint(f.Epoch),
			"goes to", f.target(), "attempt", nth(f.Attempt), "delivery", k.status(f.DeliveryStatus), "claim", k.status(f.ClaimStatus),
			"made", ago(f.CreatedAt), "next attempt", due)
		if len(f.Deliveries) > 0 {
			k.printf("\n")
			k.deliveries(f)
		}
		return nil
	})
}

// nth is what there is to say of an attempt: of the first one nothing.
func nth(n int) string {
	if n < 2 {
		return ""
	}
	return fmt.Sprintf("%d since it last got on", n)
}

// wake reads a wake and the attempts to deliver it.
func (c *caller) wake(id string) (f wakeFile, err error) {
	return f, c.ask(&f, c.plain(http.MethodGet, "/_electric/wakes/"+url.PathEscape(id), nil))
}

func (c *printer) deliveries(f wakeFile) {
	rows := make([][]string, len(f.Deliveries))
	for i, d := range f.Deliveries {
		took, status := "", ""
		if d.FinishedAt != nil {
			took = d.FinishedAt.Sub(d.StartedAt).Round(time.Millisecond).String()
		}
		if d.StatusCode != nil {
			status = fmt.Sprint(*d.StatusCode)
		}
		rows[i] = []string{fmt.Sprint(d.Attempt), printable(text(d.Outcome)), status, age(d.StartedAt), took, oneLine(text(d.Error), 80)}
	}
	c.table([]string{"TRY", "OUTCOME", "STATUS", "AGE", "TOOK", "ERROR"}, rows)
}

type wakeRedeliverCmd struct {
	clientFlags
	Wake []string `arg:"" help:"The wake's id, or several."`
}

func (wakeRedeliverCmd) Help() string {
	return `The same wake is sent, so its receiver sees the idempotency key it knows. One that the receiver had refused for good (410) gets its retries back.

Examples:
  rouse wake redeliver 0190a8f2-7a10-4c6e-9a51-0d5f5a0c1a01
  rouse wake ls task/1 --json | jq -r '.[] | select(.delivery_status=="failed") | .wake_id' | xargs rouse wake redeliver`
}

func (c *wakeRedeliverCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		type redelivered struct {
			OK     bool   `json:"ok"`
			WakeID string `json:"wakeId"`
		}
		all := []redelivered{}
		var errs []error
		for _, id := range c.Wake {
			var done redelivered
			if err := k.ask(&done, k.plain(http.MethodPost, "/_electric/wakes/"+url.PathEscape(id)+"/redeliver", nil)); err != nil {
				errs = append(errs, k.explain(err))
				continue
			}
			all = append(all, done)
			if !k.json {
				k.printf("redelivering %s\n", printable(done.WakeID))
			}
		}
		if k.json {
			errs = append(errs, r.printJSON(all))
		}
		return errors.Join(errs...)
	})
}
