package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

type retentionCmd struct {
	Show  retentionShowCmd  `cmd:"" help:"Show what is kept of a stream, or the limits of an entity type."`
	Set   retentionSetCmd   `cmd:"" help:"Limit what is kept of a stream, or of the main streams of a type's entities."`
	Unset retentionUnsetCmd `cmd:"" help:"Take the limits away again."`
}

// retentionLimits are limits as the gateway has them.
type retentionLimits struct {
	MaxAgeSeconds *int64 `json:"max_age_seconds,omitempty"`
	MaxBytes      *int64 `json:"max_bytes,omitempty"`
	MaxMessages   *int64 `json:"max_messages,omitempty"`
}

// streamRetention is what a gateway keeps of a stream.
type streamRetention struct {
	Stream     string `json:"stream"`
	EntityType string `json:"entity_type,omitempty"`
	Source     string `json:"source"`
	retentionLimits
	Earliest string `json:"earliest_offset"`
	Next     string `json:"next_offset"`
	Bytes    int64  `json:"bytes"`
	Deleting bool   `json:"deleting,omitempty"`
}

func (l retentionLimits) String() string {
	var parts []string
	if l.MaxAgeSeconds != nil {
		parts = append(parts, longTime(time.Duration(*l.MaxAgeSeconds)*time.Second))
	}
	if l.MaxBytes != nil {
		parts = append(parts, fmt.Sprintf("%d bytes", *l.MaxBytes))
	}
	if l.MaxMessages != nil {
		parts = append(parts, fmt.Sprintf("%d messages", *l.MaxMessages))
	}
	if len(parts) == 0 {
		return "everything"
	}
	return "at most " + strings.Join(parts, ", ")
}

// longTime writes whole days as such.
func longTime(d time.Duration) string {
	if day := 24 * time.Hour; d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	return d.String()
}

// lifetime reads a duration that may be in days.
func lifetime(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 64)
		if err != nil || n < 1 || n > 36500 {
			return 0, failf(ExitUsage, "--age is not a time: give one such as 7d or 12h")
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		return 0, failf(ExitUsage, "--age is not a time of a second or more: give one such as 7d or 12h")
	}
	return d, nil
}

// retained names a stream or a type.
type retained struct {
	Path string `arg:"" optional:"" help:"The stream, such as notes/today or task/1/main."`
	Type string `help:"The main streams of this type's entities instead." placeholder:"NAME"`
}

// at is its address.
func (t retained) at() (string, error) {
	switch {
	case (t.Path == "") == (t.Type == ""):
		return "", failf(ExitUsage, "give the path of a stream, or --type NAME")
	case t.Type != "":
		return "/_electric/retention/types/" + url.PathEscape(t.Type), nil
	}
	return streamRetentionPath(t.Path)
}

func streamRetentionPath(text string) (string, error) {
	name, err := streamPath(text)
	return "/_electric/retention/streams/" + url.PathEscape(name), err
}

// show prints what a gateway answers about it.
func (k *caller) showRetention(t retained, do func(out any) error) error {
	if t.Type != "" {
		var l retentionLimits
		if err := do(&l); err != nil {
			return err
		}
		if k.json {
			return k.r.printJSON(l)
		}
		k.printf("of the entities of type %s is kept: %s\n", printable(t.Type), l)
		return nil
	}
	var s streamRetention
	if err := do(&s); err != nil {
		return err
	}
	if k.json {
		return k.r.printJSON(s)
	}
	by := ""
	if s.Source == "type" {
		by = " (the limits of type " + printable(s.EntityType) + ")"
	}
	k.printf("%s: %d bytes, from %s to %s\nkept: %s%s\n", printable(s.Stream), s.Bytes, s.Earliest, s.Next, s.retentionLimits, by)
	if s.Deleting {
		k.printf("what was trimmed is still being deleted, or is read by forks\n")
	}
	return nil
}

type retentionShowCmd struct {
	clientFlags
	retained
}

func (retentionShowCmd) Help() string {
	return `Examples:
  rouse retention show notes/today
  rouse retention show --type task
  rouse retention show runners/laptop/wake --json | jq .bytes`
}

func (c *retentionShowCmd) Run(r *run) error {
	at, err := c.at()
	if err != nil {
		return err
	}
	return c.connected(r, func(k *caller) error {
		return k.showRetention(c.retained, func(out any) error { return k.ask(out, k.plain(http.MethodGet, at, nil)) })
	})
}

type retentionSetCmd struct {
	clientFlags
	retained
	Age      string `help:"Messages older than this may go, such as 7d or 12h." placeholder:"TIME"`
	Bytes    int64  `help:"The oldest go while there are more bytes." placeholder:"N"`
	Messages int64  `help:"The oldest go while there are more messages." placeholder:"N"`
	All      bool   `help:"Keep everything of this stream, whatever the limits of its entity's type are."`
}

func (retentionSetCmd) Help() string {
	return `The limits given replace those there are; a message goes when one of them says so, but never before whoever waits for it has read it: subscriptions, observers, and the entity whose stream it is.

Examples:
  rouse retention set logs/web --age 7d --bytes 100000000
  rouse retention set --type task --messages 10000
  rouse retention set task/1/main --all`
}

func (c *retentionSetCmd) Run(r *run) error {
	at, err := c.at()
	if err != nil {
		return err
	}
	var l retentionLimits
	if c.Age != "" {
		d, err := lifetime(c.Age)
		if err != nil {
			return err
		}
		seconds := int64(d / time.Second)
		l.MaxAgeSeconds = &seconds
	}
	for _, n := range []struct {
		flag string
		in   int64
		out  **int64
	}{{"--bytes", c.Bytes, &l.MaxBytes}, {"--messages", c.Messages, &l.MaxMessages}} {
		if n.in < 0 {
			return failf(ExitUsage, "%s must be above zero", n.flag)
		} else if n.in > 0 {
			*n.out = &n.in
		}
	}
	limited := l != (retentionLimits{})
	if limited == c.All || c.All && c.Type != "" {
		return failf(ExitUsage, "give one or more of --age, --bytes and --messages, or --all for a stream")
	}
	return c.connected(r, func(k *caller) error {
		return k.showRetention(c.retained, func(out any) error { return k.ask(out, k.plain(http.MethodPut, at, l)) })
	})
}

type retentionUnsetCmd struct {
	clientFlags
	retained
}

func (retentionUnsetCmd) Help() string {
	return `A stream of an entity then has the limits of the entity's type, if there are any.

Examples:
  rouse retention unset logs/web
  rouse retention unset --type task`
}

func (c *retentionUnsetCmd) Run(r *run) error {
	at, err := c.at()
	if err != nil {
		return err
	}
	return c.connected(r, func(k *caller) error {
		if err := k.ask(nil, k.plain(http.MethodDelete, at, nil)); err != nil {
			return err
		}
		return k.showRetention(c.retained, func(out any) error { return k.ask(out, k.plain(http.MethodGet, at, nil)) })
	})
}

type streamTrimCmd struct {
	clientFlags
	Path   string `arg:"" help:"The stream, such as notes/today."`
	Before string `xor:"what" help:"Everything before this offset goes." placeholder:"OFFSET"`
	All    bool   `xor:"what" help:"Everything goes."`
	Force  bool   `help:"Also what somebody has still to read: subscriptions, observers, the entity. That work is lost."`
}

func (streamTrimCmd) Help() string {
	return `What goes cannot be read any more at once; a read from before it is answered with where the stream begins now. "rouse stream read --json" prints offsets.

Examples:
  rouse stream trim logs/web --all
  rouse stream trim logs/web --before 0000000000000000_0000000000001024`
}

func (c *streamTrimCmd) Run(r *run) error {
	at, err := streamRetentionPath(c.Path)
	if err != nil {
		return err
	}
	before := c.Before
	switch {
	case c.All:
		before = "now"
	case before == "":
		return failf(ExitUsage, "give --before OFFSET, or --all")
	}
	return c.connected(r, func(k *caller) error {
		var out struct {
			Trimmed   bool   `json:"trimmed"`
			Earliest  string `json:"earliest_offset"`
			Next      string `json:"next_offset"`
			LimitedBy string `json:"limited_by,omitempty"`
		}
		if err := k.ask(&out, k.plain(http.MethodPost, at, map[string]any{"before": before, "force": c.Force})); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(out)
		}
		if out.Trimmed {
			k.printf("%s begins at %s now\n", printable(c.Path), out.Earliest)
		} else {
			k.printf("%s begins at %s, as before\n", printable(c.Path), out.Earliest)
		}
		if out.LimitedBy == "cursor" {
			r.say("Somebody has still to read what follows. --force trims it all the same.")
		}
		return nil
	})
}
