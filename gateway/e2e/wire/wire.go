// Package wire speaks to gateways as a client of no library does: plain HTTP,
// one call a method, answers as they came. It is for tests that judge what the
// gateway says, and so must not share code with it.
package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Client calls one gateway as one principal.
type Client struct {
	Base      string
	Principal string // as in user:kyle; empty sends none
	HTTP      *http.Client
}

// NewHTTP makes the connections that clients share; Close them with
// CloseIdleConnections.
func NewHTTP(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{MaxIdleConnsPerHost: 256, MaxIdleConns: 512}}
}

// Answer is what came back. Status 0 means that nothing definite did: the call
// may have been carried out or not.
type Answer struct {
	Status int
	Code   string // of a problem
	Header http.Header
	Raw    []byte
	Err    error

	OK         bool   `json:"ok"`
	ConsumerID string `json:"consumerId"`
	Epoch      int64  `json:"epoch"`
	WakeID     string `json:"wakeId"`
	WriteToken string `json:"writeToken"`
	ClaimToken string `json:"claimToken"`
	LeaseMS    int64  `json:"lease_ms"`
	NextWake   *bool  `json:"next_wake"`
	StreamPath string `json:"streamPath"`
}

// Indefinite says that the call may have been carried out or not: the
// connection broke, or the gateway itself does not know.
func (a Answer) Indefinite() bool { return a.Status == 0 || a.Status >= 500 }

// String is for failure messages; it shows no token.
func (a Answer) String() string {
	return fmt.Sprintf("status %d code %q epoch %d lease %d ms err %v", a.Status, a.Code, a.Epoch, a.LeaseMS, a.Err)
}

// Malformed says what an answer lacks of the form of all refusals; "" is nothing.
func (a Answer) Malformed() string {
	var p struct {
		Status int
		Code   string
		Error  struct{ Code, Message string }
	}
	if err := json.Unmarshal(a.Raw, &p); err != nil || p.Status != a.Status || p.Error.Code != p.Code || p.Code == "" || p.Error.Message == "" {
		return fmt.Sprintf("not the envelope of a refusal: %d %s", a.Status, a.Raw)
	}
	if ct := a.Header.Get("Content-Type"); ct != "application/problem+json" {
		return fmt.Sprintf("a refusal of type %q: %s", ct, a.Raw)
	}
	return ""
}

// Header makes headers of pairs.
func Header(pairs ...string) map[string]string {
	h := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		h[pairs[i]] = pairs[i+1]
	}
	return h
}

// Do sends one request with a JSON body (nil sends none) and reads the answer.
func (c *Client) Do(ctx context.Context, method, path string, body any, header map[string]string) Answer {
	var raw []byte
	switch b := body.(type) {
	case nil:
	case []byte:
		raw = b
	case string:
		raw = []byte(b)
	default:
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return Answer{Err: err}
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, bytes.NewReader(raw))
	if err != nil {
		return Answer{Err: err}
	}
	if raw != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Principal != "" {
		req.Header.Set("electric-principal", c.Principal)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return Answer{Err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	a := Answer{Header: resp.Header}
	if a.Raw, err = io.ReadAll(resp.Body); err != nil {
		return Answer{Err: err}
	}
	a.Status = resp.StatusCode
	if json.Unmarshal(a.Raw, &a) != nil {
		a.OK = false // not every answer is an object
	}
	if a.Status >= 400 {
		var p struct {
			Code string `json:"code"`
		}
		_ = json.Unmarshal(a.Raw, &p)
		a.Code = p.Code
	}
	return a
}

func token(t string) map[string]string { return map[string]string{"electric-claim-token": t} }

// Type registers an entity type.
func (c *Client) Type(ctx context.Context, name string) Answer {
	return c.Do(ctx, http.MethodPost, "/_electric/entity-types", map[string]any{"name": name, "description": name}, nil)
}

// Runner registers a runner.
func (c *Client) Runner(ctx context.Context, id string) Answer {
	return c.Do(ctx, http.MethodPost, "/_electric/runners", map[string]any{"id": id, "label": id}, nil)
}

// Spawn makes an entity of a type for a runner.
func (c *Client) Spawn(ctx context.Context, typ, id, runner string) Answer {
	return c.Do(ctx, http.MethodPut, "/_electric/entities/"+typ+"/"+id, map[string]any{
		"dispatch_policy": map[string]any{"targets": []any{map[string]any{"type": "runner", "runnerId": runner}}}}, nil)
}

// Send sends a message to an entity. key makes a repeat land once.
func (c *Client) Send(ctx context.Context, typ, id, key string, payload any) Answer {
	return c.Do(ctx, http.MethodPost, "/_electric/entities/"+typ+"/"+id+"/send", map[string]any{"payload": payload},
		map[string]string{"Idempotency-Key": key})
}

// Acquire takes a consumer's mutex directly.
func (c *Client) Acquire(ctx context.Context, consumer, claimID string) Answer {
	return c.Do(ctx, http.MethodPost, "/_electric/consumers/"+consumer+"/acquire", map[string]any{"claimId": claimID}, nil)
}

// Claim takes the oldest waiting wake of a runner.
func (c *Client) Claim(ctx context.Context, runner, claimID string) Answer {
	return c.Do(ctx, http.MethodPost, "/_electric/runners/"+runner+"/claim", map[string]any{"claimId": claimID}, nil)
}

// Heartbeat extends a lease.
func (c *Client) Heartbeat(ctx context.Context, consumer, hold string) Answer {
	return c.Do(ctx, http.MethodPost, "/_electric/consumers/"+consumer+"/heartbeat", map[string]any{}, token(hold))
}

// Ack moves a cursor.
func (c *Client) Ack(ctx context.Context, consumer, hold, path, offset string) Answer {
	return c.Do(ctx, http.MethodPost, "/_electric/consumers/"+consumer+"/ack",
		map[string]any{"acks": []any{map[string]any{"path": path, "offset": offset}}}, token(hold))
}

// Release acks, if offset is not empty, and gives the lease back.
func (c *Client) Release(ctx context.Context, consumer, hold, path, offset string) Answer {
	body := map[string]any{}
	if offset != "" {
		body["acks"] = []any{map[string]any{"path": path, "offset": offset}}
	}
	return c.Do(ctx, http.MethodPost, "/_electric/consumers/"+consumer+"/release", body, token(hold))
}

// Append appends to a stream; write may be a write token, header more headers.
func (c *Client) Append(ctx context.Context, path, write string, body any, header map[string]string) Answer {
	h := map[string]string{}
	for k, v := range header {
		h[k] = v
	}
	if write != "" {
		h["electric-claim-token"] = write
	}
	return c.Do(ctx, http.MethodPost, path, body, h)
}

// Page reads a stream of JSON messages from an offset ("-1" is the start) as far
// as one answer goes.
func (c *Client) Page(ctx context.Context, path, offset string) (messages []json.RawMessage, next string, last bool, a Answer) {
	a = c.Do(ctx, http.MethodGet, path+"?offset="+url.QueryEscape(offset), nil, nil)
	if a.Status != http.StatusOK {
		return nil, offset, true, a
	}
	if err := json.Unmarshal(a.Raw, &messages); err != nil {
		a.Err = err
	}
	return messages, a.Header.Get("Stream-Next-Offset"), a.Header.Get("Stream-Up-To-Date") != "" || len(messages) == 0, a
}

// All reads a whole stream of JSON messages.
func (c *Client) All(ctx context.Context, path string) (messages []json.RawMessage, tail string, a Answer) {
	for at := "-1"; ; {
		part, next, last, a := c.Page(ctx, path, at)
		if a.Status != http.StatusOK || a.Err != nil {
			return messages, at, a
		}
		messages = append(messages, part...)
		if last {
			return messages, next, a
		}
		at = next
	}
}
