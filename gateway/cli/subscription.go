package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

type subscriptionCmd struct {
	Put    subscriptionPutCmd    `cmd:"" aliases:"create" help:"Make a subscription: be woken for streams by name or pattern."`
	Ls     subscriptionLsCmd     `cmd:"" aliases:"list" help:"List your subscriptions."`
	Show   subscriptionShowCmd   `cmd:"" help:"Show a subscription, how far it is on each stream, and who holds it."`
	Add    subscriptionAddCmd    `cmd:"" help:"Add streams to a subscription."`
	Remove subscriptionRemoveCmd `cmd:"" help:"Take a stream that was named out of a subscription."`
	Rm     subscriptionRmCmd     `cmd:"" aliases:"delete" help:"Delete subscriptions."`
}

// subscription is one as the gateway shows it.
type subscription struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Pattern string `json:"pattern,omitempty"`
	Streams []struct {
		Path    string `json:"path"`
		Link    string `json:"link_type"`
		Acked   string `json:"acked_offset"`
		Tail    string `json:"tail_offset"`
		Pending bool   `json:"has_pending"`
	} `json:"streams,omitempty"`
	Webhook *struct {
		URL     string `json:"url"`
		Signing any    `json:"signing,omitempty"`
	} `json:"webhook,omitempty"`
	WakeStream  string          `json:"wake_stream,omitempty"`
	Target      json.RawMessage `json:"target,omitempty"`
	Lease       int64           `json:"lease_ttl_ms"`
	CreatedAt   time.Time       `json:"created_at"`
	Status      string          `json:"status"`
	LastError   string          `json:"last_error,omitempty"`
	Description string          `json:"description,omitempty"`
	Owner       string          `json:"owner_principal"`
	Generation  int64           `json:"generation"`
	State       string          `json:"state"`
	Holder      string          `json:"current_holder,omitempty"`
	Pending     bool            `json:"has_pending"`
}

// target says where its wakes go.
func (s subscription) target() string {
	if s.Webhook != nil {
		return strings.TrimSpace("webhook " + receiver(s.Webhook.URL))
	}
	if s.Target != nil {
		// What it holds is its transport's to know, secrets among it perhaps.
		return "plugin " + printable(s.Type)
	}
	return "stream " + printable(s.WakeStream)
}

// receiver names a webhook by its url without the query, which may hold a secret.
func receiver(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	return printable(u.Scheme + "://" + u.Host + u.Path)
}

func subscriptionPath(id string) string { return "/__ds/subscriptions/" + url.PathEscape(id) }

type subscriptionPutCmd struct {
	clientFlags
	ID          string        `arg:"" help:"The subscription's id."`
	Pattern     string        `help:"Paths to watch: * is one segment, ** any number." placeholder:"PATTERN"`
	Stream      []string      `help:"A stream to watch; may be given several times." placeholder:"PATH"`
	Webhook     string        `help:"Wake by a signed POST to this URL." placeholder:"URL"`
	WakeStream  string        `help:"Wake by an entry of this stream, whose readers claim." placeholder:"PATH"`
	Target      string        `help:"Wake by a transport plugin: a target as in dispatch policies, with its type." placeholder:"JSON"`
	Lease       time.Duration `help:"How long a claim lives without a sign of life." default:"30s"`
	Description string        `placeholder:"TEXT"`
}

func (subscriptionPutCmd) Help() string {
	return `Streams that exist begin at their end; those that are made later, at their beginning.

Examples:
  rouse subscription put orders --pattern 'orders/*' --webhook https://example.com/wake
  rouse subscription put pool --pattern 'jobs/**' --wake-stream wakes/pool --lease 1m
  rouse subscription put nightly --pattern 'builds/*' --target '{"type":"exec","command":"nightly"}'`
}

func (c *subscriptionPutCmd) Run(r *run) error {
	ways := 0
	for _, v := range []string{c.Webhook, c.WakeStream, c.Target} {
		if v != "" {
			ways++
		}
	}
	switch {
	case ways > 1:
		return failf(ExitUsage, "--webhook, --wake-stream and --target can't be used together")
	case ways == 0:
		return failf(ExitUsage, "say where wakes go: --webhook, --wake-stream or --target")
	}
	body := map[string]any{"type": "pull-wake", "lease_ttl_ms": c.Lease.Milliseconds()}
	for name, v := range map[string]string{"pattern": c.Pattern, "wake_stream": c.WakeStream, "description": c.Description} {
		if v != "" {
			body[name] = v
		}
	}
	if c.Webhook != "" {
		body["type"], body["webhook"] = "webhook", map[string]string{"url": c.Webhook}
	}
	if c.Target != "" {
		typ, target, err := splitTarget(c.Target)
		if err != nil {
			return err
		}
		body["type"], body["target"] = typ, target
	}
	if len(c.Stream) > 0 {
		body["streams"] = c.Stream
	}
	return c.connected(r, func(k *caller) error {
		var s subscription
		k.advice = map[string]string{"SUBSCRIPTION_ALREADY_EXISTS": `"rouse subscription show ID" shows it; "rouse subscription rm ID" deletes it`}
		if err := k.ask(&s, k.plain(http.MethodPut, subscriptionPath(c.ID), body)); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(s)
		}
		k.printf("subscription %s → %s\n", printable(s.ID), s.target())
		return nil
	})
}

// splitTarget takes a dispatch target apart into its type and its other members.
func splitTarget(text string) (typ string, rest map[string]json.RawMessage, err error) {
	if json.Unmarshal([]byte(text), &rest) != nil || json.Unmarshal(rest["type"], &typ) != nil || typ == "" {
		return "", nil, failf(ExitUsage, `--target must be a JSON object with a type, such as '{"type":"exec","command":"nightly"}'`)
	}
	if typ == "webhook" || typ == "pull-wake" || typ == "runner" {
		return "", nil, failf(ExitUsage, "--target is for transport plugins: use --webhook or --wake-stream")
	}
	delete(rest, "type")
	return typ, rest, nil
}

type subscriptionLsCmd struct {
	clientFlags
	Limit int `help:"At most so many." default:"100"`
}

func (c *subscriptionLsCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		var page struct {
			Subscriptions []subscription `json:"subscriptions"`
		}
		if err := k.ask(&page, k.plain(http.MethodGet, fmt.Sprintf("/__ds/subscriptions?limit=%d", c.Limit), nil)); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(page.Subscriptions)
		}
		if len(page.Subscriptions) == 0 {
			r.say(`There are none. "rouse subscription put ID" makes one.`)
			return nil
		}
		rows := make([][]string, len(page.Subscriptions))
		for i, s := range page.Subscriptions {
			rows[i] = []string{printable(s.ID), k.status(s.Status), printable(s.Pattern), s.target(), printable(s.State), principal(s.Owner), age(s.CreatedAt)}
		}
		k.table([]string{"SUBSCRIPTION", "STATUS", "PATTERN", "WAKES GO TO", "NOW", "OWNER", "AGE"}, rows)
		return nil
	})
}

type subscriptionShowCmd struct {
	clientFlags
	ID string `arg:"" help:"The subscription's id."`
}

func (c *subscriptionShowCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		var s subscription
		if err := k.ask(&s, k.plain(http.MethodGet, subscriptionPath(c.ID), nil)); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(s)
		}
		k.fields("subscription", k.paint(bold, printable(s.ID)), "status", k.status(s.Status), "last error", k.paint(red, oneLine(s.LastError, 200)),
			"pattern", printable(s.Pattern), "wakes go to", s.target(), "lease", (time.Duration(s.Lease) * time.Millisecond).String(),
			"now", strings.TrimSpace(printable(s.State+" "+s.Holder)), "generation", fmt.Sprint(s.Generation), "owner", principal(s.Owner),
			"made", ago(s.CreatedAt), "about", oneLine(s.Description, 200))
		if len(s.Streams) > 0 {
			k.printf("\n")
			rows := make([][]string, len(s.Streams))
			for i, l := range s.Streams {
				pending := ""
				if l.Pending {
					pending = "yes"
				}
				rows[i] = []string{printable(l.Path), l.Link, l.Acked, l.Tail, pending}
			}
			k.table([]string{"STREAM", "LINK", "ACKED", "TAIL", "UNREAD"}, rows)
		}
		return nil
	})
}

type subscriptionAddCmd struct {
	clientFlags
	ID     string   `arg:"" help:"The subscription's id."`
	Stream []string `arg:"" help:"The streams."`
}

func (c *subscriptionAddCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		if _, err := k.head(k.plain(http.MethodPost, subscriptionPath(c.ID)+"/streams", map[string]any{"streams": c.Stream})); err != nil {
			return err
		}
		if !k.json {
			k.printf("added to %s: %s\n", printable(c.ID), printable(strings.Join(c.Stream, " ")))
		}
		return nil
	})
}

type subscriptionRemoveCmd struct {
	clientFlags
	ID     string `arg:"" help:"The subscription's id."`
	Stream string `arg:"" help:"The stream."`
}

func (c *subscriptionRemoveCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		if _, err := k.head(k.plain(http.MethodDelete, subscriptionPath(c.ID)+"/streams/"+url.PathEscape(c.Stream), nil)); err != nil {
			return err
		}
		if !k.json {
			k.printf("removed from %s: %s\n", printable(c.ID), printable(c.Stream))
		}
		return nil
	})
}

type subscriptionRmCmd struct {
	clientFlags
	ID []string `arg:"" help:"The subscription's id, or several."`
}

func (c *subscriptionRmCmd) Run(r *run) error {
	return c.connected(r, func(k *caller) error {
		for _, id := range c.ID {
			if _, err := k.head(k.plain(http.MethodDelete, subscriptionPath(id), nil)); err != nil {
				return err
			}
			if !k.json {
				k.printf("deleted %s\n", printable(id))
			}
		}
		return nil
	})
}
