package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

// checkMessage checks a message against the schemas in force: nil lets
// everything pass, and an untyped message always does.
func (c *Control) checkMessage(schemas json.RawMessage, m staterow.Message, payloadAt, typeAt string) error {
	if m.Type == "" || schemas == nil {
		return nil
	}
	set := schemaMap(schemas)
	schema, ok := set[m.Type]
	if !ok {
		return problem.New(problem.UnknownMessageType, "The entity takes no message of this type.").
			WithDetails(problem.Detail{Path: typeAt, Message: "is not one of the entity's message types"})
	}
	return c.schemas.validate(schema, m.Payload, payloadAt, "this message type")
}

type sendInput struct {
	EntityRef
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"256" doc:"A send repeated with the same key lands once."`
	Body           struct {
		Payload       json.RawMessage `json:"payload" doc:"Any JSON."`
		Type          string          `json:"type,omitempty" maxLength:"256"`
		Key           string          `json:"key,omitempty" maxLength:"256" doc:"The message's key; a send repeated with the same key lands once."`
		Mode          string          `json:"mode,omitempty" enum:"immediate,queued,paused,steer"`
		Position      json.RawMessage `json:"position,omitempty"`
		AfterMS       float64         `json:"afterMs,omitempty" minimum:"0" doc:"Send it so many milliseconds from now; answered by 204."`
		From          string          `json:"from,omitempty"`
		FromPrincipal string          `json:"from_principal,omitempty"`
		FromAgent     string          `json:"from_agent,omitempty"`
	} `nameHint:"SendRequest"`
}

type sendOutput struct {
	Status     int
	NextOffset string `header:"Stream-Next-Offset"`
	Body       struct {
		TxID   string `json:"txid" format:"uuid"`
		Key    string `json:"key"`
		Offset string `json:"offset" doc:"The stream's offset behind the message."`
	} `nameHint:"SendResult"`
}

func (c *Control) registerSend() {
	add(c, huma.Operation{OperationID: "sendToEntity", Method: http.MethodPost, Path: entityPath + "/send", Tags: []string{"entities"},
		Summary:   "Send a message to an entity's inbox",
		Responses: map[string]*huma.Response{"204": {Description: "The message is scheduled (afterMs)."}}},
		routeOptions{aliases: map[string]string{"fromPrincipal": "from_principal", "fromAgent": "from_agent", "messageType": "type", "after_ms": "afterMs"}},
		[]problem.Code{problem.NotFound, problem.UnknownEntityType, problem.Unauthorized, problem.NotRunning, problem.SchemaValidationFailed,
			problem.UnknownMessageType, problem.PayloadTooLarge, problem.Overloaded}, c.send)
}

func (c *Control) send(ctx context.Context, in *sendInput) (*sendOutput, error) {
	who, b := from(ctx), &in.Body
	if b.AfterMS > maxAfter {
		return nil, invalidFields(problem.Detail{Path: "/afterMs", Message: "must be at most ten years"})
	}
	m := staterow.Message{Type: b.Type, Key: b.Key, Payload: b.Payload, From: who.principal(), Mode: b.Mode, FromPrincipal: who.principal()}
	if p := mayBeNull(b.Position); p != nil {
		if err := json.Unmarshal(p, &m.Position); err != nil {
			m.Position = string(p)
		}
	}
	for place, v := range map[string]string{"/from": b.From, "/from_principal": b.FromPrincipal} {
		if v == "" {
			continue
		}
		p, err := auth.Parse(v)
		if err != nil && place == "/from" && !strings.HasPrefix(v, "/principal/") {
			continue // a name that is no principal claims nothing: command lines send their user's
		}
		if err != nil || p.Key() != who.Key() {
			return nil, invalidFields(problem.Detail{Path: place, Message: "must be the caller's own principal"})
		}
	}
	at := in.url()
	gate, err := c.writable(ctx, &in.EntityRef)
	if err != nil {
		return nil, err
	}
	if b.FromAgent != "" {
		if m.FromAgent, err = c.provenAgent(ctx, who, b.FromAgent); err != nil {
			return nil, err
		}
	}
	if err := c.checkMessage(gate.InboxSchemas, m, "/payload", "/type"); err != nil {
		return nil, err
	}

	var producer *store.Producer
	if idem := in.IdempotencyKey; idem != "" || m.Key != "" {
		if idem == "" {
			idem = m.Key
		}
		producer = &store.Producer{ID: sendProducer(who.principal(), idem)}
		m.TxID = uuid.NewSHA1(uuid.NameSpaceURL, []byte(producer.ID+" "+who.serviceName+at)).String()
		if m.Key == "" {
			m.Key = "msg-in-" + m.TxID
		}
	}
	if b.AfterMS > 0 {
		return &sendOutput{Status: http.StatusNoContent}, c.sendLater(ctx, at, m, b.AfterMS, producer)
	}
	text, key, txid := m.Row(time.Now())
	if gate.Status == "paused" && m.Mode != "paused" {
		// Resumed first: if the append fails the entity is merely awake, while
		// the other way round it could sleep on a message.
		if _, err := c.cfg.Store.EntityResume(ctx, who.service, at); err != nil {
			return nil, err
		}
	}
	res, err := c.tell(ctx, at, text, true, producer)
	if err != nil {
		return nil, err
	}
	out := &sendOutput{Status: http.StatusOK, NextOffset: store.FormatOffset(res.Position)}
	out.Body.TxID, out.Body.Key, out.Body.Offset = txid, key, out.NextOffset
	return out, nil
}

// sendProducer is the producer of one idempotent send: one sequence, written
// once. The key is hashed, since clients put all sorts of things into it.
func sendProducer(principal, key string) string {
	sum := sha256.Sum256([]byte(principal + "\x00" + key))
	return "send-" + hex.EncodeToString(sum[:16])
}

// provenAgent lets a caller speak for an agent: the caller is that agent, or
// shows the write token of the claim that agent's entity is held under now.
func (c *Control) provenAgent(ctx context.Context, who *caller, agent string) (string, error) {
	refused := invalidFields(problem.Detail{Path: "/from_agent", Message: "must be the caller, or an entity whose live write token is shown"})
	if p, err := auth.Parse(agent); err == nil && p.Key() == who.Key() {
		return p.URL(), nil
	}
	if u, err := url.Parse(agent); err == nil && u.Host != "" {
		agent = u.Path // clients also name agents by their whole address
	}
	if who.Kind == auth.Agent && agent == "/"+who.ID {
		return agent, nil
	}
	consumer, epoch, wake, err := c.cfg.Claims.VerifyWrite(who.token)
	if who.token == "" || err != nil || storable(agent) != "" || !strings.HasPrefix(agent, "/") {
		return "", refused
	}
	e, err := c.cfg.Store.EntityGet(ctx, who.service, agent)
	if errors.Is(err, store.ErrNoRow) || err == nil && e.ConsumerID != consumer {
		return "", refused
	} else if err != nil {
		return "", err
	}
	// The token is live if its holder could write the agent's own stream with it.
	res, err := c.cfg.Store.StreamWritable(ctx, who.service, streamName(agent)+"/main", store.WriteClaim{ConsumerID: consumer, Epoch: epoch, WakeID: wake})
	if err != nil {
		return "", err
	}
	if res.Outcome != store.OK {
		return "", refused
	}
	return agent, nil
}
