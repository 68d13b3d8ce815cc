package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rouse-run/rouse/openapi/runner/call"
)

// Claim is a lease on an entity, or on another stream that wakes somebody, and all that may be done under it. Its
// methods may be called from several goroutines.
type Claim struct {
	Notification Notification
	// Raw is the notification as it came, without its tokens.
	Raw json.RawMessage
	// Server is the gateway's base URL, Service the service there, Runner this runner's id.
	Server  string
	Service string
	Runner  string

	gw      gateway
	hold    hold
	write   string // the write token
	lease   *lease
	timeout time.Duration
	log     *slog.Logger
	base    context.Context // outlives the lease: the release is made with it

	mu    sync.Mutex
	read  map[string]string // by path: up to where messages were handed out
	acked map[string]string // by path: up to where the handler acked
	main  *writer
	errs  *writer
}

// Message is one message of a stream.
type Message struct {
	Path string
	// Data is the JSON value.
	Data json.RawMessage
	// Offset is the position after the append which carried the message; empty for values that the gateway does not
	// stamp, which are those that are not State Protocol messages.
	Offset string
}

// Entity is the entity's URL; for what is no entity's, the stream's path.
func (c *Claim) Entity() string {
	if c.Notification.Entity != nil && c.Notification.Entity.URL != "" {
		return c.Notification.Entity.URL
	}
	return c.Notification.StreamPath
}

// Epoch is the claim's epoch: higher than that of every claim before.
func (c *Claim) Epoch() int64 { return c.hold.epoch }

// Unread gives the messages beyond what was acked before, up to the end of the stream as it is when it is reached; those
// of the claim's own appends are among them. Called again it goes on where it stopped. What it has given counts as read:
// a handler that returns nil acks it. An append that was given only in part counts as not read and comes again.
func (c *Claim) Unread(ctx context.Context) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for _, path := range c.paths() {
			for {
				p, err := c.page(ctx, path)
				if err != nil {
					yield(Message{}, err)
					return
				}
				if !c.give(path, p, yield) {
					return
				}
				if p.end || len(p.messages) == 0 {
					break
				}
			}
		}
	}
}

// give hands a page out and keeps account of it.
func (c *Claim) give(path string, p page, yield func(Message, error) bool) bool {
	stamps := make([]string, len(p.messages))
	for i, m := range p.messages {
		stamps[i] = stamp(m)
	}
	last := ""
	for i, m := range p.messages {
		if stamps[i] != "" {
			last = stamps[i]
		}
		more := yield(Message{Path: path, Data: m, Offset: stamps[i]}, nil)
		switch {
		case i == len(p.messages)-1:
			c.setRead(path, p.next)
		case stamps[i+1] != "" && stamps[i+1] != last:
			// The next message is another append's, so the one of the last stamp has been given whole. A value without a
			// stamp may belong to either.
			c.setRead(path, last)
		}
		if !more {
			return false
		}
	}
	if len(p.messages) == 0 {
		c.setRead(path, p.next)
	}
	return true
}

// stamp is the offset that the gateway wrote into a State Protocol message.
func stamp(m json.RawMessage) string {
	var s struct {
		Headers struct {
			Offset string `json:"offset"`
		} `json:"headers"`
	}
	if json.Unmarshal(m, &s) != nil {
		return ""
	}
	return s.Headers.Offset
}

// paths lists the claim's streams, the primary one first.
func (c *Claim) paths() []string {
	paths := []string{c.Notification.StreamPath}
	for _, s := range c.Notification.Streams {
		if p := "/" + strings.TrimLeft(s.Path, "/"); p != paths[0] {
			paths = append(paths, p)
		}
	}
	return paths
}

// from is where the unread part of a stream begins.
func (c *Claim) from(path string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.read[path]; at != "" {
		return at
	}
	for _, s := range c.Notification.Streams {
		if "/"+strings.TrimLeft(s.Path, "/") == path && s.Acked != "" {
			return s.Acked
		}
	}
	return "-1"
}

func (c *Claim) setRead(path, offset string) {
	if offset == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read[path] = offset
}

// page reads on, for as long as the lease allows to try.
func (c *Claim) page(ctx context.Context, path string) (page, error) {
	var p page
	err := c.try(ctx, func(ctx context.Context) (err error) {
		p, err = c.gw.read(ctx, path, c.from(path))
		return err
	})
	return p, err
}

// try repeats a call that may be repeated until it is answered, ctx ends, or the lease does.
func (c *Claim) try(ctx context.Context, do func(context.Context) error) error {
	back := call.Backoff{Max: 2 * time.Second}
	for {
		if !c.lease.check() {
			return context.Cause(c.lease.ctx)
		}
		one, cancel := c.lease.call(ctx, c.timeout)
		err := do(one)
		cancel()
		switch {
		case err == nil:
			return nil
		case c.lease.ctx.Err() != nil:
			return context.Cause(c.lease.ctx)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case call.Status(err) != 0 && !call.Passing(err):
			return err
		}
		wait, cancel := c.lease.call(ctx, back.Next(err))
		<-wait.Done()
		cancel()
	}
}

// Append writes events, each a JSON value, to the entity's main stream: all or none, and once, however often it has to
// be sent. A refusal of the events themselves is a *call.Error and leaves the claim as it is; after anything else that goes
// wrong, [ErrLost], the claim takes no more events, since nobody knows what was written.
func (c *Claim) Append(ctx context.Context, events ...any) error {
	if len(events) == 0 {
		return nil
	}
	body, err := json.Marshal(events)
	if err != nil {
		return fmt.Errorf("the events are not JSON: %w", err)
	}
	return c.main.append(ctx, c, body)
}

// AppendError writes a failure to the entity's error stream.
func (c *Claim) AppendError(ctx context.Context, message string) error {
	if c.errs == nil {
		return nil
	}
	message = strings.ToValidUTF8(message, "�")
	event := map[string]any{
		"headers": map[string]any{"operation": "insert"},
		"type":    "error",
		"key":     fmt.Sprintf("error-%d-%d", c.hold.epoch, c.errs.next()),
		"value": map[string]any{
			"message": message, "runner": c.Runner, "epoch": c.hold.epoch, "wake_id": c.hold.wakeID,
			"timestamp": time.Now().UTC().Format(time.RFC3339Nano),
		},
	}
	body, err := json.Marshal([]any{event})
	if err != nil {
		return err
	}
	return c.errs.append(ctx, c, body)
}

// writer appends to one stream as one producer.
type writer struct {
	path string
	mu   sync.Mutex
	id   string
	seq  int64
	// unknown: an append got no answer. Its sequence may be taken, so another append under it could vanish.
	unknown error
}

func (w *writer) next() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seq
}

func (w *writer) append(ctx context.Context, c *Claim, body []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.unknown != nil {
		return w.unknown
	}
	sent := false
	err := c.try(ctx, func(ctx context.Context) error {
		sent = true
		return c.gw.append(ctx, w.path, body, c.write, producer{w.id, c.hold.epoch, w.seq})
	})
	if err == nil {
		w.seq++
		return nil
	}
	switch status := call.Status(err); {
	case !sent:
		return err
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge, status == http.StatusUnprocessableEntity:
		return err
	case status != 0:
		w.unknown = fmt.Errorf("%w: %w", ErrLost, err)
		if w == c.main {
			c.lease.lose(w.unknown)
		}
	default:
		w.unknown = fmt.Errorf("%w: an append was not answered: %w", ErrLost, err)
	}
	return w.unknown
}

// Ack says that the primary stream is worked up to an offset, which a later claim then begins behind, whatever becomes of
// this one.
func (c *Claim) Ack(ctx context.Context, offset string) error {
	return c.AckAt(ctx, Position{Path: c.Notification.StreamPath, Offset: offset})
}

// AckAt is Ack for any of the claim's streams.
func (c *Claim) AckAt(ctx context.Context, at ...Position) error {
	var sent time.Time
	var g grant
	err := c.try(ctx, func(ctx context.Context) (err error) {
		sent = time.Now()
		g, err = c.gw.ack(ctx, c.holding(), at)
		return err
	})
	if err != nil {
		if stale(err) {
			c.lease.lose(fmt.Errorf("%w: %w", ErrLost, err))
		}
		return err
	}
	c.extended(sent, g)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range at {
		c.acked["/"+strings.TrimLeft(a.Path, "/")] = a.Offset
	}
	return nil
}

func (c *Claim) holding() hold {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hold
}

// extended takes what an answer says of the lease.
func (c *Claim) extended(sent time.Time, g grant) {
	if g.lease > 0 {
		c.lease.extend(sent, g.lease)
	}
	if g.release {
		c.handOver()
	}
	if g.token != "" {
		c.mu.Lock()
		c.hold.token = g.token
		c.mu.Unlock()
	}
}

// keep heartbeats until stop or until the lease is gone.
func (c *Claim) keep(stop <-chan struct{}, doubt func()) {
	_, length := c.lease.left()
	back := call.Backoff{Max: max(length/6, time.Millisecond)}
	wait := length / 3
	for {
		t := time.NewTimer(wait)
		select {
		case <-stop:
			t.Stop()
			return
		case <-c.lease.ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		if !c.lease.check() {
			return
		}
		ctx, cancel := c.lease.call(c.base, min(c.timeout, max(length/6, 50*time.Millisecond)))
		sent := time.Now()
		g, err := c.gw.heartbeat(ctx, c.holding())
		cancel()
		switch {
		case err == nil:
			if g.lease <= 0 {
				g.lease = length
			}
			c.extended(sent, g)
			_, length = c.lease.left()
			wait = length / 3
			back.Reset()
		case call.Status(err) != 0 && !call.Passing(err):
			c.lease.lose(fmt.Errorf("%w: %w", ErrLost, err))
			return
		default:
			// Nobody knows whether it arrived. Go on trying; the lease's own countdown ends the work in time.
			c.log.Warn("a heartbeat failed, the claim may be lost", "epoch", c.hold.epoch, "error", err)
			doubt()
			wait = back.Next(err)
		}
	}
}

// results says what to ack at the end: what was read; without any reading or ack of the handler's own, what the wake
// told of.
func (c *Claim) results() []Position {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Position
	for _, path := range c.paths() {
		if at := c.read[path]; at != "" {
			out = append(out, Position{path, at})
		}
	}
	if len(out) > 0 || len(c.acked) > 0 {
		return out
	}
	for _, s := range c.Notification.Streams {
		if s.Offset != "" && s.Offset != "-1" {
			out = append(out, Position{"/" + strings.TrimLeft(s.Path, "/"), s.Offset})
		}
	}
	return out
}

// release gives the lease back, for as long as it lasts.
func (c *Claim) release(acks []Position, failure *string) error {
	back := call.Backoff{Max: 2 * time.Second}
	for {
		left, _ := c.lease.left()
		if left <= 0 {
			return fmt.Errorf("%w: it could not be released in time", ErrLost)
		}
		ctx, cancel := context.WithTimeout(c.base, min(c.timeout, left))
		_, err := c.gw.release(ctx, c.holding(), acks, failure)
		cancel()
		switch {
		case err == nil:
			return nil
		case c.base.Err() != nil:
			return context.Cause(c.base)
		case call.Status(err) == 0, call.Passing(err):
			if call.Sleep(c.base, min(back.Next(err), left)) != nil {
				return err
			}
		case !stale(err) && len(acks) > 0:
			// The acks were refused, so the handler acked what it cannot have read. The lease must not stay with us for that.
			text := fmt.Sprintf("the acks were refused: %v", err)
			c.log.Error("a run's acks were refused", "epoch", c.hold.epoch, "error", err)
			acks, failure = nil, &text
		default:
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
	}
}

// stale says that err means the end of the claim.
func stale(err error) bool {
	switch call.Code(err) {
	case "EPOCH_STALE", "FENCED", "LEASE_EXPIRED", "EPOCH_HELD", "ALREADY_CLAIMED", "CLAIM_TOKEN_INVALID", "WAKE_CALLBACK_NOT_FOUND":
		return true
	}
	status := call.Status(err)
	return status == http.StatusUnauthorized || status == http.StatusNotFound || status == http.StatusGone
}

// newClaim makes a claim of what was granted.
func newClaim(raw json.RawMessage) (*Claim, error) {
	c := &Claim{read: map[string]string{}, acked: map[string]string{}}
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&c.Notification); err != nil {
		return nil, fmt.Errorf("the notification cannot be read: %w", err)
	}
	n := &c.Notification
	if n.StreamPath == "" || n.WakeID == "" || n.Epoch <= 0 {
		return nil, errors.New("the notification names no stream, wake or epoch")
	}
	n.StreamPath = "/" + strings.TrimLeft(n.StreamPath, "/")
	var public map[string]json.RawMessage
	if err := json.Unmarshal(raw, &public); err != nil {
		return nil, err
	}
	delete(public, "claimToken")
	delete(public, "writeToken")
	c.Raw, _ = json.Marshal(public)
	n.ClaimToken = ""
	id := "entity-" + c.Entity()
	c.main = &writer{path: n.StreamPath, id: id}
	if n.Entity != nil && n.Entity.URL != "" {
		c.errs = &writer{path: n.Entity.URL + "/error", id: id}
	}
	return c, nil
}
