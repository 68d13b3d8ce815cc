package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-run/rouse/openapi/client"
)

type streamCreateCmd struct {
	clientFlags
	Path    string        `arg:"" help:"The stream, such as notes/today."`
	Data    string        `arg:"" optional:"" help:"What it holds at first; - reads standard input."`
	Type    string        `help:"Content type. A JSON stream holds messages, any other one bytes." default:"application/json"`
	TTL     time.Duration `help:"Expires when it was neither read nor written for so long." placeholder:"DURATION"`
	Expires time.Time     `help:"Expires then (RFC 3339)." placeholder:"TIME"`
	Closed  bool          `help:"Closed from the start."`
}

func (streamCreateCmd) Help() string {
	return `Creating a stream that is there already with the same configuration is no error.

Examples:
  rouse stream create notes/today
  rouse stream create notes/today '{"text":"hello"}'
  rouse stream create logs/build --type text/plain --ttl 24h`
}

func (c *streamCreateCmd) Run(r *run) error {
	path, err := streamPath(c.Path)
	if err != nil {
		return err
	}
	var body io.Reader = strings.NewReader(c.Data)
	if c.Data == "-" {
		body = r.io.In
	}
	params := client.CreateStreamParams{}
	if c.TTL > 0 {
		seconds := strconv.FormatInt(int64((c.TTL+time.Second-1)/time.Second), 10)
		params.StreamTTL = &seconds
	}
	if !c.Expires.IsZero() {
		at := c.Expires.UTC().Format(time.RFC3339)
		params.StreamExpiresAt = &at
	}
	if c.Closed {
		params.StreamClosed = ptr("true")
	}
	return c.connected(r, func(k *caller) error { return k.create(path, c.Type, &params, body) })
}

// create makes a stream and says whether it was there already.
func (c *caller) create(path, contentType string, params *client.CreateStreamParams, body io.Reader) error {
	resp, err := c.head(func(ctx context.Context) (*http.Response, error) {
		return c.CreateStreamWithBody(ctx, path, params, contentType, body)
	})
	if err != nil {
		return err
	}
	s := stateOf(path, resp)
	s.Created = ptr(resp.StatusCode == http.StatusCreated)
	if c.json {
		return c.r.printJSON(s)
	}
	word := "created"
	if !*s.Created {
		word = "is there already:"
	}
	c.printf("%s %s at %s\n", word, s.Path, s.Offset)
	return nil
}

type streamForkCmd struct {
	clientFlags
	From      string `arg:"" help:"The stream that exists."`
	To        string `arg:"" help:"The stream to make."`
	Offset    string `help:"Fork there; default: at the tail." placeholder:"OFFSET"`
	SubOffset int    `help:"So many messages behind that offset." placeholder:"N"`
}

func (streamForkCmd) Help() string {
	return `Both share what was before the fork and grow apart from there.

Examples:
  rouse stream fork notes/today notes/what-if
  rouse stream fork notes/today notes/what-if --offset "$OFFSET" --sub-offset 2`
}

func (c *streamForkCmd) Run(r *run) error {
	from, err := streamPath(c.From)
	if err != nil {
		return err
	}
	to, err := streamPath(c.To)
	if err != nil {
		return err
	}
	params := client.CreateStreamParams{StreamForkedFrom: ptr("/" + from), StreamForkOffset: optional(c.Offset)}
	if c.SubOffset != 0 {
		params.StreamForkSubOffset = ptr(strconv.Itoa(c.SubOffset))
	}
	return c.connected(r, func(k *caller) error {
		source, err := k.stream(from)
		if err != nil {
			return err
		}
		return k.create(to, source.ContentType, &params, http.NoBody)
	})
}

type streamAppendCmd struct {
	clientFlags
	Path       string   `arg:"" help:"The stream."`
	Data       []string `arg:"" optional:"" help:"Messages, each taken as JSON if it is JSON and as text otherwise; none or - reads standard input."`
	Text       bool     `help:"Take every message as text."`
	Close      bool     `help:"Close the stream with it."`
	Producer   string   `help:"Makes a repeated append land once." placeholder:"ID:EPOCH:SEQ"`
	ClaimToken string   `help:"The write token, for an entity's stream (ROUSE_CLAIM_TOKEN)." placeholder:"TOKEN"`
}

func (streamAppendCmd) Help() string {
	return `From standard input a JSON stream takes JSON values, one after the other (with --text: lines), and appends them as they come. Any other stream takes the bytes.

Examples:
  rouse stream append notes/today '{"text":"hello"}' 'just text'
  journalctl -f | rouse stream append logs/host --text
  rouse stream append logs/build - <build.log --close`
}

// Bounds of one append of what comes from standard input.
const (
	appendRows  = 500
	appendBytes = 1 << 20
)

func (c *streamAppendCmd) Run(r *run) error {
	path, err := streamPath(c.Path)
	if err != nil {
		return err
	}
	return c.connected(r, func(k *caller) error {
		params, err := c.params(r)
		if err != nil {
			return err
		}
		s, err := k.stream(path)
		if err != nil {
			return err
		}
		w := &appending{caller: k, path: path, kind: s.ContentType, params: params, closing: c.Close}
		in, piped := r.input(c.Data)
		switch {
		case !isJSON(s.ContentType) && piped:
			err = w.bytes(in)
		case !isJSON(s.ContentType):
			err = w.send([]byte(strings.Join(c.Data, " ")), true)
		case piped:
			err = w.values(in, c.Text)
		default:
			values := make([]json.RawMessage, len(c.Data))
			for i, d := range c.Data {
				values[i] = value(d, c.Text)
			}
			body, merr := json.Marshal(values)
			if merr != nil {
				return merr
			}
			err = w.send(body, true)
		}
		if err != nil {
			return err
		}
		if k.json {
			return r.printJSON(w.last)
		}
		closed := ""
		if w.last.Closed {
			closed = " (closed)"
		}
		k.printf("%s is at %s%s\n", w.last.Path, w.last.Offset, closed)
		return nil
	})
}

func (c *streamAppendCmd) params(r *run) (client.AppendToStreamParams, error) {
	var p client.AppendToStreamParams
	if c.ClaimToken == "" {
		c.ClaimToken = r.environ()["ROUSE_CLAIM_TOKEN"]
	}
	p.ElectricClaimToken = optional(c.ClaimToken)
	if c.Producer == "" {
		return p, nil
	}
	parts := strings.Split(c.Producer, ":")
	if n := len(parts); n >= 3 {
		id, epoch, seq := strings.Join(parts[:n-2], ":"), parts[n-2], parts[n-1]
		p.ProducerID, p.ProducerEpoch, p.ProducerSeq = &id, &epoch, &seq
		return p, nil
	}
	return p, failf(ExitUsage, "--producer must be ID:EPOCH:SEQ, such as importer:1:0")
}

// appending appends to one stream in several requests. A producer's sequence rises with each.
type appending struct {
	*caller
	path, kind string
	params     client.AppendToStreamParams
	closing    bool
	last       streamState
}

func (w *appending) send(body []byte, last bool) error {
	params := w.params
	if last && w.closing {
		params.StreamClosed = ptr("true")
	}
	resp, err := w.head(func(ctx context.Context) (*http.Response, error) {
		return w.AppendToStreamWithBody(ctx, w.path, &params, w.kind, bytes.NewReader(body))
	})
	if err != nil {
		return err
	}
	w.last = stateOf(w.path, resp)
	if p := w.params.ProducerSeq; p != nil {
		n, err := strconv.ParseInt(*p, 10, 64)
		if err != nil {
			return failf(ExitUsage, "the producer's sequence is not a number")
		}
		w.params.ProducerSeq = ptr(strconv.FormatInt(n+1, 10))
	}
	return nil
}

// bytes appends what a reader gives, as it comes.
func (w *appending) bytes(in io.Reader) error {
	buf := make([]byte, appendBytes)
	sent := false
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if err := w.send(buf[:n], false); err != nil {
				return err
			}
			sent = true
		}
		switch {
		case errors.Is(err, io.EOF):
			return w.end(sent)
		case err != nil:
			return fmt.Errorf("standard input: %w", err)
		}
	}
}

// end closes the stream if that was asked for; nothing at all to append is a mistake.
func (w *appending) end(sent bool) error {
	switch {
	case w.closing:
		return w.send(nil, true)
	case !sent:
		return failf(ExitUsage, "there is nothing to append: standard input is empty")
	}
	return nil
}

// values appends the JSON values, or with asText the lines, that a reader gives: what is there by the time the append
// before is answered goes into the next one.
func (w *appending) values(in io.Reader, asText bool) error {
	read := make(chan json.RawMessage, appendRows)
	failed := make(chan error, 1)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		defer close(read)
		failed <- scanValues(in, asText, func(v json.RawMessage) bool {
			select {
			case read <- v:
				return true
			case <-stop:
				return false
			}
		})
	}()
	sent := false
	for v := range read {
		batch, size := []json.RawMessage{v}, len(v)
	more:
		for len(batch) < appendRows && size < appendBytes {
			select {
			case v, ok := <-read:
				if !ok {
					break more
				}
				batch, size = append(batch, v), size+len(v)
			default:
				break more
			}
		}
		body, err := json.Marshal(batch)
		if err != nil {
			return err
		}
		if err := w.send(body, false); err != nil {
			return err
		}
		sent = true
	}
	if err := <-failed; err != nil {
		return err
	}
	return w.end(sent)
}

func scanValues(in io.Reader, asText bool, give func(json.RawMessage) bool) error {
	if asText {
		return scanLines(in, func(line string) bool { return give(value(line, true)) })
	}
	d := json.NewDecoder(in)
	for n := 1; ; n++ {
		var v json.RawMessage
		switch err := d.Decode(&v); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return failf(ExitUsage, "standard input: value %d is not JSON (%w); --text takes lines as text", n, err)
		}
		if !give(v) {
			return nil
		}
	}
}

type streamCloseCmd struct {
	clientFlags
	Path string `arg:"" help:"The stream."`
}

func (c *streamCloseCmd) Run(r *run) error {
	path, err := streamPath(c.Path)
	if err != nil {
		return err
	}
	return c.connected(r, func(k *caller) error {
		resp, err := k.head(func(ctx context.Context) (*http.Response, error) {
			return k.AppendToStreamWithBody(ctx, path, &client.AppendToStreamParams{StreamClosed: ptr("true")}, "", http.NoBody)
		})
		if err != nil {
			return err
		}
		s := stateOf(path, resp)
		s.Closed = true
		if k.json {
			return r.printJSON(s)
		}
		k.printf("closed %s at %s\n", s.Path, s.Offset)
		return nil
	})
}

type streamDeleteCmd struct {
	clientFlags
	Path string `arg:"" help:"The stream."`
}

func (c *streamDeleteCmd) Run(r *run) error {
	path, err := streamPath(c.Path)
	if err != nil {
		return err
	}
	return c.connected(r, func(k *caller) error {
		if err := k.ask(nil, func(ctx context.Context) (*http.Response, error) { return k.DeleteStream(ctx, path, nil) }); err != nil {
			return err
		}
		if k.json {
			return r.printJSON(map[string]any{"path": "/" + path, "deleted": true})
		}
		k.printf("deleted /%s\n", path)
		return nil
	})
}
