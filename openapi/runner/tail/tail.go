// Package tail follows a stream of a gateway over server-sent events.
//
// It promises that every message reaches its reader in order, that a reader's offset moves only past messages that it
// was given whole, that a broken, silent or ended connection is replaced from that offset with jitter, and that no
// connection lives longer than its absolute deadline, so that a socket which died while the machine slept is noticed. It
// must not know what the messages mean.
package tail

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/rouse-run/rouse/openapi/runner/call"
)

// Config of [Follow].
type Config struct {
	// Open asks for the live stream from an offset: GET with offset, live=sse and, when not empty, cursor. It answers
	// the raw response.
	Open func(ctx context.Context, offset, cursor string) (*http.Response, error)
	// JSON: the stream holds JSON values, which come apart into Batch.Messages.
	JSON bool
	// Offset is where to begin: -1, now, or one that the gateway handed out.
	Offset string
	// Idle is the longest silence on a connection; gateways send a comment each 15 s. Zero = 45 s.
	Idle time.Duration
	// MaxAge ends and replaces a connection, whatever it does. Zero = 10 min.
	MaxAge time.Duration
	// MaxEvent bounds the size of one event in bytes. Zero = 64 MiB.
	MaxEvent int
	// Backoff before a connection is replaced after a failure.
	Backoff call.Backoff
	// OnOpen is told of each connection; OnLost of each failure and the wait until the next try. May be nil.
	OnOpen func()
	OnLost func(err error, wait time.Duration)
}

// Batch is what came between two positions.
type Batch struct {
	// Messages are JSON values of a JSON stream; nil on any other stream.
	Messages []json.RawMessage
	// Data is the raw content of a stream that is not JSON.
	Data []byte
	// Offset is the position after the batch.
	Offset string
	// UpToDate: there was nothing more when the batch was sent. Closed: nothing more will ever come.
	UpToDate, Closed bool
}

// control is the event that ends each batch.
type control struct {
	Next     string `json:"streamNextOffset"`
	Cursor   string `json:"streamCursor"`
	UpToDate bool   `json:"upToDate"`
	Closed   bool   `json:"streamClosed"`
}

var (
	errIdle  = errors.New("the connection was silent for too long")
	errAged  = errors.New("the connection reached its age limit")
	errEnded = errors.New("the gateway ended the connection")
)

// Follow gives fn each batch until the stream is closed (nil), fn fails (its error), ctx ends (its cause), or the
// gateway refuses for good (a *call.Error). fn may block: nothing is read ahead of it but what the connection buffers.
func Follow(ctx context.Context, cfg Config, fn func(context.Context, Batch) error) error {
	if cfg.Idle <= 0 {
		cfg.Idle = 45 * time.Second
	}
	if cfg.MaxAge <= 0 {
		cfg.MaxAge = 10 * time.Minute
	}
	if cfg.MaxEvent <= 0 {
		cfg.MaxEvent = 64 << 20
	}
	f := follower{cfg: cfg, offset: cfg.Offset, fn: fn}
	for {
		err := f.connect(ctx)
		var stop stopped
		switch {
		case errors.As(err, &stop):
			return stop.err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errEnded) && f.moved:
			// An orderly end, as gateways do after a while and when they drain: come back at once, but not in step with
			// everybody else who was sent away.
			f.cfg.Backoff.Reset()
		case !call.Passing(err) || errors.Is(err, errTooLong):
			return err
		}
		wait := f.cfg.Backoff.Next(err)
		if cfg.OnLost != nil {
			cfg.OnLost(err, wait)
		}
		if call.Sleep(ctx, wait) != nil {
			return context.Cause(ctx)
		}
	}
}

// stopped carries an end that is not the connection's.
type stopped struct{ err error }

func (s stopped) Error() string { return fmt.Sprintf("stopped: %v", s.err) }

type follower struct {
	cfg            Config
	fn             func(context.Context, Batch) error
	offset, cursor string
	// moved: the connection at hand has given at least one whole batch or position.
	moved bool
}

// connect runs one connection.
func (f *follower) connect(ctx context.Context) error {
	f.moved = false
	opened, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	age := time.AfterFunc(f.cfg.MaxAge, func() { cancel(errAged) })
	defer age.Stop()
	idle := time.AfterFunc(f.cfg.Idle, func() { cancel(errIdle) })
	defer idle.Stop()

	resp, err := f.cfg.Open(opened, f.offset, f.cursor)
	if err := call.Check(resp, err); err != nil {
		return cause(ctx, opened, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		return fmt.Errorf("the gateway answered %q where an event stream was expected", kind)
	}
	if f.cfg.OnOpen != nil {
		f.cfg.OnOpen()
	}
	encoded := strings.EqualFold(resp.Header.Get("Stream-SSE-Data-Encoding"), "base64")
	d := newDecoder(&watched{r: resp.Body, timer: idle, idle: f.cfg.Idle}, f.cfg.MaxEvent)
	var parts [][]byte
	for {
		e, err := d.next()
		if errors.Is(err, io.EOF) {
			err = errEnded
		}
		if err != nil {
			return cause(ctx, opened, err)
		}
		switch e.name {
		case "data":
			parts = append(parts, e.data)
		case "control":
			b, c, err := batch(parts, e.data, encoded, f.cfg.JSON)
			if err != nil {
				return err
			}
			parts = nil
			if err := f.fn(ctx, b); err != nil {
				return stopped{err}
			}
			f.offset, f.cursor, f.moved = b.Offset, c.Cursor, true
			f.cfg.Backoff.Reset()
			if b.Closed {
				return stopped{nil}
			}
		case "error":
			return fmt.Errorf("the gateway ended the stream: %s", bytes.TrimSpace(e.data))
		}
	}
}

// cause prefers why the connection's own context ended to what the transport made of it.
func cause(ctx, opened context.Context, err error) error {
	if ctx.Err() == nil && opened.Err() != nil {
		return context.Cause(opened)
	}
	return err
}

// batch reads what came up to a control event.
func batch(parts [][]byte, raw []byte, encoded, isJSON bool) (Batch, control, error) {
	var c control
	if err := json.Unmarshal(raw, &c); err != nil || c.Next == "" {
		return Batch{}, c, errors.New("the gateway sent a control event without a position")
	}
	b := Batch{Offset: c.Next, UpToDate: c.UpToDate, Closed: c.Closed}
	for _, p := range parts {
		var messages []json.RawMessage
		switch {
		case encoded:
			raw, err := base64.StdEncoding.DecodeString(string(bytes.ReplaceAll(p, []byte("\n"), nil)))
			if err != nil {
				return Batch{}, c, errors.New("the gateway sent data that is not base64")
			}
			b.Data = append(b.Data, raw...)
		case isJSON:
			if err := json.Unmarshal(p, &messages); err != nil {
				return Batch{}, c, errors.New("the gateway sent data that is not an array of JSON values")
			}
			b.Messages = append(b.Messages, messages...)
		default:
			b.Data = append(b.Data, p...)
		}
	}
	return b, c, nil
}

// watched arms the idle timer while somebody waits for bytes, and only then: a slow reader is not a silent gateway.
type watched struct {
	r     io.Reader
	timer *time.Timer
	idle  time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	w.timer.Reset(w.idle)
	n, err := w.r.Read(p)
	w.timer.Stop()
	return n, err
}
