package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-run/rouse/openapi/runner/call"
)

type wire struct {
	srv  Server
	id   string
	http *http.Client
}

func dial(s Server, c Config) (gateway, error) {
	h := s.HTTP
	if h == nil {
		h = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	return &wire{srv: s, id: c.ID, http: h}, nil
}

func (w *wire) do(ctx context.Context, method, path string, query url.Values, body any, header ...string) (*http.Response, error) {
	var raw []byte
	switch b := body.(type) {
	case nil:
	case []byte:
		raw = b
	case json.RawMessage:
		raw = b
	default:
		raw, _ = json.Marshal(b)
	}
	u, err := url.Parse(w.srv.URL)
	if err != nil {
		return nil, err
	}
	u.Path = strings.TrimRight(u.Path, "/") + path
	q := u.Query()
	for k, v := range query {
		q[k] = v
	}
	if w.srv.Service != "" {
		q.Set("service", w.srv.Service)
	}
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if w.srv.Token != "" {
		req.Header.Set("Authorization", "Bearer "+w.srv.Token)
	}
	if w.srv.Principal != "" {
		req.Header.Set("Electric-Principal", w.srv.Principal)
	}
	req.Header.Set("Electric-Runner-Id", w.id)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return w.http.Do(req)
}

func (w *wire) register(ctx context.Context, reg Registration) error {
	body := map[string]any{"id": w.id, "label": reg.Label}
	if reg.Kind != "" {
		body["kind"] = reg.Kind
	}
	if reg.Capacity > 0 {
		body["capacity"] = reg.Capacity
	}
	resp, err := w.do(ctx, http.MethodPost, "/_electric/runners", nil, body)
	return call.Decode(resp, err, nil)
}

func (w *wire) lookup(ctx context.Context) (registered, error) {
	var r struct {
		WakeStream  string `json:"wake_stream"`
		CreatedAt   any    `json:"created_at"`
		AdminStatus string `json:"admin_status"`
	}
	resp, err := w.do(ctx, http.MethodGet, "/_electric/runners/"+w.id, nil, nil)
	err = call.Decode(resp, err, &r)
	born, _ := json.Marshal(r.CreatedAt)
	return registered{WakeStream: r.WakeStream, Born: string(born), Enabled: r.AdminStatus != "disabled"}, err
}

func (w *wire) alive(ctx context.Context, lease time.Duration, offset string, diagnostics map[string]any) error {
	body := map[string]any{"lease_ms": lease.Milliseconds(), "wake_stream_offset": offset}
	if diagnostics != nil {
		body["diagnostics"] = diagnostics
	}
	resp, err := w.do(ctx, http.MethodPost, "/_electric/runners/"+w.id+"/heartbeat", nil, body)
	return call.Decode(resp, err, nil)
}

func (w *wire) tail(ctx context.Context, path, offset, cursor string) (*http.Response, error) {
	q := url.Values{"offset": {offset}, "live": {"sse"}}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	return w.do(ctx, http.MethodGet, path, q, nil)
}

func (w *wire) read(ctx context.Context, path, offset string) (page, error) {
	resp, err := w.do(ctx, http.MethodGet, path, url.Values{"offset": {offset}}, nil)
	var p page
	if err := call.Decode(resp, err, &p.messages); err != nil {
		return page{}, err
	}
	p.next = resp.Header.Get("Stream-Next-Offset")
	p.end = strings.EqualFold(resp.Header.Get("Stream-Up-To-Date"), "true")
	return p, nil
}

func (w *wire) append(ctx context.Context, path string, body []byte, token string, p producer) error {
	resp, err := w.do(ctx, http.MethodPost, path, nil, body, "Electric-Claim-Token", token, "Producer-Id", p.id,
		"Producer-Epoch", strconv.FormatInt(p.epoch, 10), "Producer-Seq", strconv.FormatInt(p.seq, 10))
	return call.Decode(resp, err, nil)
}

type holdAnswer struct {
	LeaseMS      int64           `json:"lease_ms"`
	ClaimToken   string          `json:"claimToken"`
	WriteToken   string          `json:"writeToken"`
	NextWake     bool            `json:"next_wake"`
	Done         bool            `json:"done"`
	Notification json.RawMessage `json:"-"`
}

func (a holdAnswer) grant() grant {
	return grant{lease: time.Duration(a.LeaseMS) * time.Millisecond, token: a.ClaimToken, writeToken: a.WriteToken}
}

func (w *wire) claim(ctx context.Context, entry json.RawMessage, claimID string) (grant, bool, error) {
	var body map[string]json.RawMessage
	if err := json.Unmarshal(entry, &body); err != nil {
		return grant{}, false, err
	}
	delete(body, "claimToken")
	body["claimId"], _ = json.Marshal(claimID)
	resp, err := w.do(ctx, http.MethodPost, "/_electric/runners/"+w.id+"/claim", nil, body)
	raw, err := call.Bytes(resp, err)
	if err != nil || len(raw) == 0 {
		return grant{}, false, err
	}
	var a holdAnswer
	if err := json.Unmarshal(raw, &a); err != nil {
		return grant{}, false, err
	}
	g := a.grant()
	g.notification = raw
	return g, !a.Done, nil
}

func (w *wire) callback(ctx context.Context, wakeID, token string, body any) (holdAnswer, error) {
	var a holdAnswer
	resp, err := w.do(ctx, http.MethodPost, "/_electric/wake-callbacks/"+wakeID, nil, body, "Electric-Claim-Token", token)
	err = call.Decode(resp, err, &a)
	return a, err
}

func (w *wire) acquire(ctx context.Context, wakeID string, epoch int64, token, claimID string) (grant, error) {
	a, err := w.callback(ctx, wakeID, token, map[string]any{"epoch": epoch, "wakeId": wakeID, "claimId": claimID})
	return a.grant(), err
}

func (w *wire) heartbeat(ctx context.Context, h hold) (grant, error) {
	a, err := w.callback(ctx, h.wakeID, h.token, map[string]any{"epoch": h.epoch})
	return a.grant(), err
}

func (w *wire) ack(ctx context.Context, h hold, acks []Position) (grant, error) {
	a, err := w.callback(ctx, h.wakeID, h.token, map[string]any{"epoch": h.epoch, "acks": acks})
	return a.grant(), err
}

func (w *wire) release(ctx context.Context, h hold, acks []Position, failure *string) (bool, error) {
	body := map[string]any{"epoch": h.epoch, "acks": acks, "done": true}
	if acks == nil {
		body["acks"] = []Position{}
	}
	if failure != nil {
		body["error"] = *failure
	}
	a, err := w.callback(ctx, h.wakeID, h.token, body)
	return a.NextWake, err
}
