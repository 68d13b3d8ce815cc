package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rouse-run/rouse/openapi/client"
	"github.com/rouse-run/rouse/openapi/runner/call"
	"github.com/rouse-run/rouse/openapi/runner/tail"
)

type streamCmd struct {
	Create streamCreateCmd `cmd:"" help:"Create a stream."`
	Append streamAppendCmd `cmd:"" help:"Append to a stream."`
	Read   streamReadCmd   `cmd:"" help:"Print what a stream holds."`
	Tail   streamTailCmd   `cmd:"" help:"Print a stream as it grows."`
	Info   streamInfoCmd   `cmd:"" help:"Show a stream's tail and configuration."`
	Close  streamCloseCmd  `cmd:"" help:"Close a stream: nothing can be appended any more."`
	Delete streamDeleteCmd `cmd:"" aliases:"rm" help:"Delete a stream."`
	Fork   streamForkCmd   `cmd:"" help:"Make a stream that begins as a copy of another one."`
	Trim   streamTrimCmd   `cmd:"" help:"Delete the oldest part of a stream."`
}

const jsonType = "application/json"

// streamPath is a stream's name without slashes around it.
func streamPath(text string) (string, error) {
	name := strings.Trim(strings.TrimPrefix(text, "/v1/stream/"), "/")
	if name == "" {
		return "", failf(ExitUsage, "a stream's path must not be empty")
	}
	return name, nil
}

// streamState is what the headers of an answer say of a stream.
type streamState struct {
	Path        string `json:"path"`
	ContentType string `json:"content_type,omitempty"`
	Offset      string `json:"offset,omitempty"`
	Earliest    string `json:"earliest_offset,omitempty"` // empty: nothing is missing before it
	Closed      bool   `json:"closed,omitempty"`
	TTL         string `json:"ttl,omitempty"`
	Expires     string `json:"expires_at,omitempty"`
	Created     *bool  `json:"created,omitempty"`
}

func stateOf(path string, resp *http.Response) streamState {
	h := resp.Header
	return streamState{Path: "/" + path, ContentType: h.Get("Content-Type"), Offset: h.Get("Stream-Next-Offset"), Earliest: h.Get("Stream-Earliest-Offset"),
		Closed: strings.EqualFold(h.Get("Stream-Closed"), "true"), TTL: h.Get("Stream-TTL"), Expires: h.Get("Stream-Expires-At")}
}

func (c *caller) stream(path string) (streamState, error) {
	resp, err := c.head(func(ctx context.Context) (*http.Response, error) { return c.HeadStream(ctx, path, nil) })
	switch {
	case err == nil:
		return stateOf(path, resp), nil
	case call.Status(err) >= 400 && call.Status(err) != http.StatusNotFound && call.Code(err) == "":
		// What a HEAD is refused for is in the answer to a GET.
		if _, why := c.page(path, "now"); why != nil {
			err = why
		}
	}
	return streamState{}, c.nameStatus(err)
}

// nameStatus gives the refusal of a HEAD, which has no body, the code that others have there.
func (c *caller) nameStatus(err error) error {
	if call.Status(err) == http.StatusNotFound && call.Code(err) == "" {
		return &call.Error{Status: http.StatusNotFound, Code: "STREAM_NOT_FOUND", Detail: "There is no such stream."}
	}
	return err
}

func isJSON(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	return kind == jsonType
}

type streamReadCmd struct {
	clientFlags
	Path   string `arg:"" help:"The stream, such as notes/today."`
	Offset string `help:"Where to begin: start, or an offset that was printed before." default:"start"`
}

func (streamReadCmd) Help() string {
	return `A JSON stream's messages come one on a line; any other stream comes as it is. With --json each line is an object with what was read, and with the offset behind it wherever reading can go on from there: messages that were appended together share one, so it stands on their last. Bytes that are no text are base64, and the line says so in "encoding".

Examples:
  rouse stream read notes/today
  rouse stream read task/1/main --json | jq .message`
}

func (c *streamReadCmd) Run(r *run) error {
	path, err := streamPath(c.Path)
	if err != nil {
		return err
	}
	return c.connected(r, func(k *caller) error {
		for at := wireOffset(c.Offset); ; {
			resp, err := k.page(path, at)
			if err != nil {
				return err
			}
			b := tail.Batch{Offset: resp.state.Offset}
			if isJSON(resp.state.ContentType) {
				if err := json.Unmarshal(resp.body, &b.Messages); err != nil {
					return fmt.Errorf("the gateway's answer cannot be read: %w", err)
				}
			} else {
				b.Data = resp.body
			}
			if err := k.batch(resp.state.ContentType, b); err != nil {
				return err
			}
			if resp.end || resp.state.Offset == at || resp.state.Offset == "" {
				return nil
			}
			at = resp.state.Offset
		}
	})
}

// wireOffset is an offset as the protocol has it.
func wireOffset(text string) string {
	if text == "start" {
		return "-1"
	}
	return text
}

// streamPage is one answer to a read.
type streamPage struct {
	state streamState
	body  []byte
	end   bool
}

func (c *caller) page(path, offset string) (streamPage, error) {
	ctx, cancel := context.WithTimeout(c.ctx, 10*requestTimeout)
	defer cancel()
	resp, err := c.ReadStream(ctx, path, &client.ReadStreamParams{Offset: &offset})
	body, err := call.Bytes(resp, err)
	if err != nil {
		return streamPage{}, err
	}
	return streamPage{state: stateOf(path, resp), body: body, end: strings.EqualFold(resp.Header.Get("Stream-Up-To-Date"), "true")}, nil
}

// batch prints what was read of a stream.
func (c *caller) batch(contentType string, b tail.Batch) error {
	if !c.json {
		for _, m := range b.Messages {
			c.printf("%s\n", m)
		}
		_, err := c.out.Write(b.Data)
		return err
	}
	offsets := resumable(b)
	for i, m := range b.Messages {
		if err := c.r.line(struct {
			Offset  string          `json:"offset,omitempty"`
			Message json.RawMessage `json:"message"`
		}{offsets[i], m}); err != nil {
			return err
		}
	}
	if len(b.Data) == 0 {
		return nil
	}
	type chunk struct {
		Offset   string `json:"offset"`
		Data     any    `json:"data"`
		Encoding string `json:"encoding,omitempty"`
	}
	if isText(contentType) && utf8.Valid(b.Data) {
		return c.r.line(chunk{b.Offset, string(b.Data), ""})
	}
	return c.r.line(chunk{b.Offset, b.Data, "base64"})
}

func isText(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	return strings.HasPrefix(kind, "text/")
}

// resumable gives for each message of a batch the offset at which reading can go on behind it, or "" where there is none
// that is known. The batch's own is behind its last message. State Protocol messages carry the offset of the append that
// they came with, which is behind the last of its messages: the one whose successor carries another.
func resumable(b tail.Batch) []string {
	out := make([]string, len(b.Messages))
	next := ""
	for i := len(b.Messages) - 1; i >= 0; i-- {
		own := stateOffset(b.Messages[i])
		if i == len(b.Messages)-1 {
			out[i] = b.Offset
		} else if own != "" && next != "" && own != next {
			out[i] = own
		}
		next = own
	}
	return out
}

// stateOffset is the offset that the gateway has put into a State Protocol message; "" for any other message.
func stateOffset(m json.RawMessage) string {
	// Maps, as a struct would take "Offset" for "offset" too, which is its writer's.
	var s map[string]json.RawMessage
	var headers map[string]any
	if json.Unmarshal(m, &s) != nil || json.Unmarshal(s["headers"], &headers) != nil {
		return ""
	}
	operation, _ := headers["operation"].(string)
	control, _ := headers["control"].(string)
	if operation == "" && control == "" {
		return ""
	}
	offset, _ := headers["offset"].(string)
	return offset
}

type streamTailCmd struct {
	clientFlags
	Path   string `arg:"" help:"The stream."`
	Offset string `help:"Where to begin: now, start, or an offset that was printed before." default:"now"`
}

func (streamTailCmd) Help() string {
	return `Goes on until the stream is closed or Ctrl-C. A connection that breaks is replaced where it broke.

Examples:
  rouse stream tail notes/today
  rouse stream tail notes/today --offset start`
}

func (c *streamTailCmd) Run(r *run) error {
	path, err := streamPath(c.Path)
	if err != nil {
		return err
	}
	return c.connected(r, func(k *caller) error { return k.follow(path, c.Offset, k.batch) })
}

// follow gives do what a stream holds and gets, until it is closed or the person ends it.
func (c *caller) follow(path, offset string, do func(contentType string, b tail.Batch) error) error {
	state, err := c.stream(path)
	if err != nil {
		return err
	}
	if offset = wireOffset(offset); offset == "now" {
		offset = state.Offset
	}
	lost := false
	err = tail.Follow(c.ctx, tail.Config{
		JSON: isJSON(state.ContentType), Offset: offset,
		Open: func(ctx context.Context, offset, cursor string) (*http.Response, error) {
			sse := client.Sse
			return c.ReadStream(ctx, path, &client.ReadStreamParams{Offset: &offset, Live: &sse, Cursor: optional(cursor)})
		},
		OnOpen: func() {
			if lost {
				c.r.say("connected again")
			}
			lost = false
		},
		OnLost: func(err error, wait time.Duration) {
			if wait > time.Second/5 && !lost {
				lost = true
				c.r.say("the connection is lost (%s); it is tried again", scrub(err.Error()))
			}
		},
	}, func(_ context.Context, b tail.Batch) error { return do(state.ContentType, b) })
	if c.ctx.Err() != nil {
		return nil // it was told to end, and did
	}
	return err
}

type streamInfoCmd struct {
	clientFlags
	Path string `arg:"" help:"The stream."`
}

func (c *streamInfoCmd) Run(r *run) error {
	path, err := streamPath(c.Path)
	if err != nil {
		return err
	}
	return c.connected(r, func(k *caller) error {
		s, err := k.stream(path)
		if err != nil {
			return err
		}
		return k.showStream(s)
	})
}

func (c *caller) showStream(s streamState) error {
	if c.json {
		return c.r.printJSON(s)
	}
	closed := ""
	if s.Closed {
		closed = "yes"
	}
	ttl := s.TTL
	if ttl != "" {
		ttl += " s without a read or write"
	}
	c.fields("stream", s.Path, "type", printable(s.ContentType), "offset", s.Offset, "earliest", s.Earliest, "closed", closed, "expires after", ttl, "expires at", printable(s.Expires))
	return nil
}

// input is what a person gives to be written: arguments, or standard input for "-" and for none at all.
func (r *run) input(args []string) (io.Reader, bool) {
	if len(args) == 0 || (len(args) == 1 && args[0] == "-") {
		return r.io.In, true
	}
	return nil, false
}
