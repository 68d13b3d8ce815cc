package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

type (
	inboxPatchInput struct {
		EntityRef
		Key  string `path:"key" doc:"The message's key."`
		Body struct {
			Payload  json.RawMessage `json:"payload,omitempty" doc:"Any JSON."`
			Position *string         `json:"position,omitempty" maxLength:"256" doc:"Queued messages are taken in the byte order of their positions."`
			Mode     string          `json:"mode,omitempty" enum:"immediate,queued,paused,steer"`
			Status   string          `json:"status,omitempty" enum:"pending,processed,cancelled"`
		} `nameHint:"InboxPatch"`
	}
	inboxKeyInput struct {
		EntityRef
		Key string `path:"key" doc:"The message's key."`
	}
	rowOutput struct {
		Body struct {
			TxID string `json:"txid" format:"uuid" doc:"The txid in the headers of the row on the entity's stream."`
		} `nameHint:"RowTxid"`
	}
)

func (c *Control) registerInbox() {
	tags := []string{"entities"}
	codes := []problem.Code{problem.NotFound, problem.UnknownEntityType, problem.Unauthorized, problem.NotRunning, problem.PayloadTooLarge, problem.Overloaded}
	add(c, huma.Operation{OperationID: "patchInboxMessage", Method: http.MethodPatch, Path: entityPath + "/inbox/{key}", Tags: tags,
		Summary: "Edit a message that waits in an entity's inbox"}, routeOptions{}, codes, c.patchInbox)
	add(c, huma.Operation{OperationID: "deleteInboxMessage", Method: http.MethodDelete, Path: entityPath + "/inbox/{key}", Tags: tags,
		Summary: "Take a message out of an entity's inbox"}, routeOptions{}, codes, c.deleteInbox)
}

// maxKey bounds the key of a row, in bytes.
const maxKey = 256

func checkKey(at, key string) []problem.Detail {
	if why := storable(key); why != "" || key == "" || len(key) > maxKey {
		return []problem.Detail{{Path: at, Message: "must not be empty or longer than 256 bytes"}}
	}
	return nil
}

func (c *Control) patchInbox(ctx context.Context, in *inboxPatchInput) (*rowOutput, error) {
	b := &in.Body
	value := struct {
		Payload     json.RawMessage `json:"payload,omitempty"`
		Position    *string         `json:"position,omitempty"`
		Mode        string          `json:"mode,omitempty"`
		Status      string          `json:"status,omitempty"`
		ProcessedAt string          `json:"processed_at,omitempty"`
		CancelledAt string          `json:"cancelled_at,omitempty"`
	}{Payload: b.Payload, Position: b.Position, Mode: b.Mode, Status: b.Status}
	details := checkKey("path.key", in.Key)
	if len(b.Payload) == 0 && b.Position == nil && b.Mode == "" && b.Status == "" {
		details = append(details, problem.Detail{Path: "/", Message: "changes nothing: give payload, position, mode or status"})
	}
	if len(details) > 0 {
		return nil, invalidFields(details...)
	}
	switch now := staterow.Time(time.Now()); b.Status {
	case "processed":
		value.ProcessedAt = now
	case "cancelled":
		value.CancelledAt = now
	}
	// What takes a message away leaves nothing to wake anybody for.
	return c.tellInbox(ctx, &in.EntityRef, "update", in.Key, value, b.Status != "processed" && b.Status != "cancelled")
}

func (c *Control) deleteInbox(ctx context.Context, in *inboxKeyInput) (*rowOutput, error) {
	if details := checkKey("path.key", in.Key); details != nil {
		return nil, invalidFields(details...)
	}
	return c.tellInbox(ctx, &in.EntityRef, "delete", in.Key, nil, false)
}

func (c *Control) tellInbox(ctx context.Context, in *EntityRef, operation, key string, value any, actionable bool) (*rowOutput, error) {
	if _, err := c.writable(ctx, in); err != nil {
		return nil, err
	}
	out := &rowOutput{}
	out.Body.TxID = uuid.NewString()
	_, err := c.tell(ctx, in.url(), staterow.Text(staterow.Headers{Operation: operation, TxID: out.Body.TxID}, "inbox", key, value), actionable, nil)
	return out, err
}

// writable looks at an entity before a row is written to its stream on the
// caller's behalf: that it is there, the caller may write to it, and it runs.
func (c *Control) writable(ctx context.Context, in *EntityRef) (store.Gate, error) {
	who, url := from(ctx), in.url()
	if why := storable(url); why != "" {
		return store.Gate{}, problem.Newf(problem.InvalidPath, "The path %s.", why)
	}
	if in.Type == principalType {
		if err := c.ensurePrincipal(ctx, in); err != nil {
			return store.Gate{}, err
		}
	}
	gate, err := c.gates.Do(ctx, store.GateRequest{Service: who.service, URL: url, Type: in.Type, Principal: who.subject()})
	switch {
	case err != nil:
		return gate, err
	case !gate.Found && (gate.TypeExists || in.Type == principalType):
		return gate, errEntityNotFound
	case !gate.Found:
		return gate, errUnknownType
	}
	if gate.Allowed, err = c.may(ctx, mayWrite, "entity", url, gate.Allowed); err != nil {
		return gate, err
	}
	switch {
	case !gate.Allowed:
		return gate, errMayNot(mayWrite, "entity")
	case gate.Status == "stopping" || gate.Status == "stopped" || gate.Status == "killed":
		return gate, errNotRunning
	}
	return gate, nil
}

// tell appends one State Protocol row to an entity's stream.
func (c *Control) tell(ctx context.Context, url, row string, actionable bool, producer *store.Producer) (store.AppendResult, error) {
	item := store.AppendItem{Service: from(ctx).service, Path: streamName(url) + "/main", Type: "application/json", Count: 1, Stamps: []int32{staterow.HeadersAt},
		Internal: true, Actionable: actionable, Payload: []byte(row), Producer: producer}
	// The body's memory counts until it is written, also when the client has left.
	res, err := c.cfg.Appender.Append(context.WithoutCancel(ctx), item)
	if err != nil {
		return res, err
	}
	switch res.Outcome {
	case store.Appended, store.Duplicate:
		return res, nil
	case store.Closed:
		return res, errNotRunning
	case store.NotFound, store.Gone:
		return res, errEntityNotFound
	}
	return res, problem.Wrap(problem.Internal, errors.New("unexpected append outcome "+string(res.Outcome)), "The append gave an unexpected answer.")
}
