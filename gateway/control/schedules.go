package control

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/observation"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

type scheduleInput struct {
	EntityRef
	Key  string `path:"key" doc:"The schedule's id."`
	Body struct {
		ScheduleType string          `json:"scheduleType" enum:"cron,future_send"`
		Payload      json.RawMessage `json:"payload" doc:"Any JSON."`
		Expression   string          `json:"expression,omitempty" maxLength:"256" doc:"cron: five fields."`
		Timezone     string          `json:"timezone,omitempty" maxLength:"64" doc:"cron: an IANA time zone; UTC if absent."`
		DebounceMS   float64         `json:"debounceMs,omitempty" minimum:"0" maximum:"2147483647"`
		TimeoutMS    float64         `json:"timeoutMs,omitempty" minimum:"0" maximum:"2147483647"`
		FireAt       string          `json:"fireAt,omitempty" maxLength:"64" doc:"future_send: an RFC 3339 time."`
		TargetURL    string          `json:"targetUrl,omitempty" maxLength:"1024" doc:"future_send: the entity it is sent to; the schedule's own if absent."`
		MessageType  string          `json:"messageType,omitempty" maxLength:"256"`
		From         string          `json:"from,omitempty" maxLength:"1024" doc:"future_send: the entity itself, or the caller's principal."`
	} `nameHint:"ScheduleRequest"`
}

type scheduleRefInput struct {
	EntityRef
	Key string `path:"key" doc:"The schedule's id."`
}

var scheduleAliases = map[string]string{
	"schedule_type": "scheduleType", "debounce_ms": "debounceMs", "timeout_ms": "timeoutMs", "fire_at": "fireAt", "target_url": "targetUrl",
	"message_type": "messageType", "senderUrl": "from",
}

func (c *Control) registerSchedules() {
	tags := []string{"schedules"}
	codes := []problem.Code{problem.NotFound, problem.UnknownEntityType, problem.Unauthorized, problem.NotRunning}
	add(c, huma.Operation{OperationID: "putSchedule", Method: http.MethodPut, Path: entityPath + "/schedules/{key}", Tags: tags,
		Summary: "Wake an entity by a cron expression, or send a message at a time"}, routeOptions{aliases: scheduleAliases},
		append([]problem.Code{problem.SchemaValidationFailed, problem.UnknownMessageType, problem.PayloadTooLarge}, codes...), c.putSchedule)
	add(c, huma.Operation{OperationID: "deleteSchedule", Method: http.MethodDelete, Path: entityPath + "/schedules/{key}", Tags: tags,
		Summary: "Remove a schedule; one that is not there is fine"}, routeOptions{}, codes, c.deleteSchedule)
}

// scheduleRow is what a manifest says of a schedule.
type scheduleRow struct {
	Key          string          `json:"key"`
	Kind         string          `json:"kind"`
	ID           string          `json:"id"`
	ScheduleType string          `json:"scheduleType"`
	Expression   string          `json:"expression,omitempty"`
	Timezone     string          `json:"timezone,omitempty"`
	FireAt       string          `json:"fireAt,omitempty"`
	TargetURL    string          `json:"targetUrl,omitempty"`
	SenderURL    string          `json:"senderUrl,omitempty"`
	Payload      json.RawMessage `json:"payload"`
	ProducerID   string          `json:"producerId,omitempty"`
	MessageType  string          `json:"messageType,omitempty"`
	Status       string          `json:"status,omitempty"`
	Wake         *scheduleWake   `json:"wake,omitempty"`
}

type scheduleWake struct {
	On         string `json:"on"`
	DebounceMS int64  `json:"debounceMs,omitempty"`
	TimeoutMS  int64  `json:"timeoutMs,omitempty"`
}

func (c *Control) putSchedule(ctx context.Context, in *scheduleInput) (*rowOutput, error) {
	b, who := &in.Body, from(ctx)
	details := checkKey("path.key", in.Key)
	refuse := func(member, why string) { details = append(details, problem.Detail{Path: "/" + member, Message: why}) }
	key := "schedule:" + in.Key
	row := scheduleRow{Key: key, Kind: "schedule", ID: in.Key, ScheduleType: b.ScheduleType, Payload: b.Payload}
	if len(b.Payload) == 0 {
		refuse("payload", "is needed")
	}
	target := ""
	if b.ScheduleType == "cron" {
		spec, err := observation.ParseCron(b.Expression, b.Timezone)
		if err != nil {
			member := "expression"
			if _, zoneless := observation.ParseCron(b.Expression, ""); zoneless == nil {
				member = "timezone"
			}
			refuse(member, err.Error())
		}
		row.Expression, row.Timezone = spec.Expression, spec.Timezone
		row.Wake = &scheduleWake{"change", int64(math.Ceil(b.DebounceMS)), int64(math.Ceil(b.TimeoutMS))}
	} else {
		at, err := time.Parse(time.RFC3339Nano, b.FireAt)
		if err != nil || at.Year() < 1970 || at.Year() > 9000 {
			refuse("fireAt", "must be an RFC 3339 time")
		}
		target = in.url()
		if b.TargetURL != "" {
			target = b.TargetURL
		}
		if why := checkSource(target); why != "" || strings.Count(target, "/") < 2 {
			refuse("targetUrl", "must be an entity's url")
		}
		row.SenderURL = in.url()
		if b.From != "" && b.From != row.SenderURL {
			p, err := auth.Parse(b.From)
			if err != nil || p.Key() != who.Key() {
				refuse("from", "must be the entity itself or the caller's own principal")
			}
			row.SenderURL = who.principal()
		}
		row.FireAt, row.TargetURL, row.MessageType, row.Status = staterow.Time(at), target, b.MessageType, "pending"
		row.ProducerID = "future-send-" + uuid.NewString()
	}
	if len(details) > 0 {
		return nil, invalidFields(details...)
	}
	if target != "" && b.MessageType != "" {
		typ, _, _ := strings.Cut(target[1:], "/")
		gate, err := c.gates.Do(ctx, store.GateRequest{Service: who.service, URL: target, Type: typ, Principal: who.subject()})
		if err != nil {
			return nil, err
		}
		if gate.Found && gate.Allowed {
			if err := c.checkMessage(gate.InboxSchemas, staterow.Message{Type: b.MessageType, Payload: b.Payload}, "/payload", "/messageType"); err != nil {
				return nil, err
			}
		}
	}
	return c.writeManifest(ctx, &in.EntityRef, maySchedule, "upsert", key, row, target)
}

func (c *Control) deleteSchedule(ctx context.Context, in *scheduleRefInput) (*rowOutput, error) {
	if details := checkKey("path.key", in.Key); details != nil {
		return nil, invalidFields(details...)
	}
	return c.writeManifest(ctx, &in.EntityRef, maySchedule, "delete", "schedule:"+in.Key, nil, "")
}

// writeManifest appends a row to an entity's manifest, which is what is carried
// out.
func (c *Control) writeManifest(ctx context.Context, in *EntityRef, permission, operation, key string, value any, target string) (*rowOutput, error) {
	who := from(ctx)
	if _, err := c.entityFor(ctx, in, permission); err != nil {
		return nil, err
	}
	if target != "" {
		if err := c.maySubscribe(ctx, target); err != nil {
			return nil, err
		}
	}
	out := &rowOutput{}
	out.Body.TxID = uuid.NewString()
	outcome, err := c.cfg.Store.ScheduleWrite(ctx, store.ManifestWrite{Service: who.service, Principal: who.principal(), Trusted: true,
		URL: in.url(), Permission: permission, Key: key, Row: staterow.Text(staterow.Headers{Operation: operation, TxID: out.Body.TxID}, "manifest", key, value),
		Removed: operation == "delete", Target: target})
	if err != nil {
		return nil, err
	}
	switch outcome {
	case "ok":
		c.cfg.Poke()
		return out, nil
	case "not_found":
		return nil, c.absent(ctx, who.service, in.Type)
	case "forbidden":
		return nil, errMayNot(permission, "entity")
	case "not_running":
		return nil, errNotRunning
	case "target_not_found":
		return nil, problem.New(problem.NotFound, "There is no such entity to send to.").WithDetails(problem.Detail{Path: "/targetUrl", Message: "does not exist"})
	case "target_forbidden":
		return nil, errMayNot(mayWrite, "entity to send to")
	}
	return nil, problem.Wrap(problem.Internal, errors.New("unexpected manifest outcome "+outcome), "The write gave an unexpected answer.")
}

// maxAfter bounds a delay, in milliseconds: ten years.
const maxAfter = 10 * 366 * 86_400_000

// sendLater schedules a message that was checked as one that is sent now. A
// message with an idempotency key is sent once.
func (c *Control) sendLater(ctx context.Context, url string, m staterow.Message, after float64, producer *store.Producer) error {
	who, id := from(ctx), ""
	if producer != nil {
		id = producer.ID
	}
	err := c.cfg.Store.ScheduleAdd(ctx, who.service, who.principal(), who.trustedFor(mayWrite, kindEntity, url), url,
		m.Encode(), time.Duration(math.Ceil(after))*time.Millisecond, id)
	if err == nil {
		c.cfg.Poke()
	}
	return err
}
