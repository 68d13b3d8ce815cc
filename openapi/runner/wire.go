package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-run/rouse/openapi/client"
	"github.com/rouse-run/rouse/openapi/runner/call"
)

// wire speaks to a server through the generated client.
type wire struct {
	id  string
	key string // the public key to register with; empty = none
	c   *client.Client
}

var _ gateway = (*wire)(nil)

func dial(s Server, cfg Config) (gateway, error) {
	c, err := s.Client()
	return &wire{id: cfg.ID, key: cfg.publicKey(), c: c}, err
}

// name tells the server which runner it is that calls.
func (w *wire) name(_ context.Context, req *http.Request) error {
	req.Header.Set("Electric-Runner-Id", w.id)
	return nil
}

func (w *wire) register(ctx context.Context, reg Registration) error {
	body := client.RunnerRegister{ID: w.id, Label: reg.Label}
	if reg.Kind != "" {
		kind := client.RunnerRegisterKind(reg.Kind)
		body.Kind = &kind
	}
	if n := int32(min(reg.Capacity, 1024)); n > 0 {
		body.Capacity = &n
	}
	raw, err := json.Marshal(struct {
		client.RunnerRegister
		WakeKey string `json:"wake_key,omitempty"`
	}{body, w.key})
	if err != nil {
		return err
	}
	resp, err := w.c.RegisterRunnerWithBody(ctx, nil, "application/json", bytes.NewReader(raw))
	return call.Decode(resp, err, nil)
}

func (w *wire) lookup(ctx context.Context) (registered, error) {
	var r struct {
		client.Runner
		WakeKey string `json:"wake_key"`
	}
	resp, err := w.c.GetRunner(ctx, w.id, nil)
	err = call.Decode(resp, err, &r)
	return registered{WakeKey: r.WakeKey, WakeStream: r.WakeStream, Born: r.CreatedAt.UTC().Format(time.RFC3339Nano), Enabled: r.AdminStatus != client.RunnerAdminStatusDisabled}, err
}

func (w *wire) alive(ctx context.Context, lease time.Duration, offset string) ([]membership, error) {
	ms := min(lease, time.Hour).Milliseconds()
	body := client.RunnerHeartbeat{LeaseMs: &ms}
	if offset != "" && offset != "-1" {
		body.WakeStreamOffset = &offset
	}
	resp, err := w.c.HeartbeatRunner(ctx, w.id, nil, body)
	var a struct{ Pools []poolDoc }
	err = call.Decode(resp, err, &a)
	return memberships(a.Pools), err
}

// streamName is a path as the client wants it.
func streamName(path string) string { return strings.TrimLeft(path, "/") }

func (w *wire) tail(ctx context.Context, path, offset, cursor string) (*http.Response, error) {
	sse := client.Sse
	params := client.ReadStreamParams{Offset: &offset, Live: &sse}
	if cursor != "" {
		params.Cursor = &cursor
	}
	return w.c.ReadStream(ctx, streamName(path), &params, w.asMember)
}

func (w *wire) read(ctx context.Context, path, offset string) (page, error) {
	resp, err := w.c.ReadStream(ctx, streamName(path), &client.ReadStreamParams{Offset: &offset})
	var p page
	if err := call.Decode(resp, err, &p.messages); err != nil {
		return page{}, err
	}
	p.next = resp.Header.Get("Stream-Next-Offset")
	p.end = strings.EqualFold(resp.Header.Get("Stream-Up-To-Date"), "true")
	return p, nil
}

func (w *wire) append(ctx context.Context, path string, body []byte, token string, p producer) error {
	epoch, seq := strconv.FormatInt(p.epoch, 10), strconv.FormatInt(p.seq, 10)
	resp, err := w.c.AppendToStreamWithBody(ctx, streamName(path), &client.AppendToStreamParams{
		ElectricClaimToken: &token, ProducerID: &p.id, ProducerEpoch: &epoch, ProducerSeq: &seq,
	}, "application/json", bytes.NewReader(body), w.name)
	return call.Decode(resp, err, nil)
}

func (w *wire) claim(ctx context.Context, entry json.RawMessage, claimID string) (grant, bool, error) {
	// The entry goes back as it came, but for what only its callback needs to see.
	var body map[string]json.RawMessage
	if err := json.Unmarshal(entry, &body); err != nil {
		return grant{}, false, err
	}
	delete(body, "claimToken")
	body["claimId"], _ = json.Marshal(claimID)
	raw, err := json.Marshal(body)
	if err != nil {
		return grant{}, false, err
	}
	resp, err := w.c.ClaimForRunnerWithBody(ctx, w.id, nil, "application/json", bytes.NewReader(raw), w.name)
	notification, err := call.Bytes(resp, err)
	if err != nil || len(notification) == 0 {
		return grant{}, false, err
	}
	var n client.WakeNotification
	if err := json.Unmarshal(notification, &n); err != nil {
		return grant{}, false, err
	}
	g := grant{lease: milliseconds(n.LeaseMs), token: value(n.ClaimToken), writeToken: value(n.WriteToken), notification: notification}
	return g, !value(n.Done), nil
}

// answer is what the callback says, with what the generated client does not know yet.
type answer struct {
	client.CallbackAnswer
	ReleaseBy *time.Time `json:"release_by"`
}

func (w *wire) callback(ctx context.Context, wakeID, token string, body client.WakeCallback) (answer, error) {
	var a answer
	resp, err := w.c.WakeCallback(ctx, wakeID, &client.WakeCallbackParams{ElectricClaimToken: &token}, body, w.name)
	err = call.Decode(resp, err, &a)
	return a, err
}

func (w *wire) acquire(ctx context.Context, wakeID string, epoch int64, token, claimID string) (grant, error) {
	return granted(w.callback(ctx, wakeID, token, client.WakeCallback{Epoch: &epoch, WakeID: &wakeID, ClaimID: &claimID}))
}

func (w *wire) heartbeat(ctx context.Context, h hold) (grant, error) {
	return granted(w.callback(ctx, h.wakeID, h.token, client.WakeCallback{Epoch: &h.epoch}))
}

func (w *wire) ack(ctx context.Context, h hold, acks []Position) (grant, error) {
	return granted(w.callback(ctx, h.wakeID, h.token, client.WakeCallback{Epoch: &h.epoch, Acks: acksOf(acks)}))
}

func (w *wire) release(ctx context.Context, h hold, acks []Position, failure *string) (bool, error) {
	done := true
	a, err := w.callback(ctx, h.wakeID, h.token, client.WakeCallback{Epoch: &h.epoch, Acks: acksOf(acks), Done: &done, Error: failure})
	return value(a.NextWake), err
}

func acksOf(acks []Position) *[]client.AckBody {
	out := make([]client.AckBody, len(acks))
	for i, a := range acks {
		out[i] = client.AckBody{Path: &a.Path, Offset: a.Offset}
	}
	return &out
}

func granted(a answer, err error) (grant, error) {
	g := grant{lease: milliseconds(a.LeaseMs), token: value(a.ClaimToken), writeToken: value(a.WriteToken), release: a.ReleaseBy != nil}
	if g.token == "" {
		g.token = value(a.Token)
	}
	return g, err
}

func milliseconds(ms *int64) time.Duration { return time.Duration(value(ms)) * time.Millisecond }

// value is what p points to, or the zero value.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
