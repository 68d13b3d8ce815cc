package control

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rouse-run/rouse/gateway/groupcommit"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

const (
	// stateFresh is how long an entity's schemas are taken from memory. A change
	// of its type made at another gateway counts here after this time at the
	// latest; nothing is refused by what memory alone says.
	stateFresh = 2 * time.Second
	// maxStates bounds the entities remembered; beyond it the memory starts anew.
	maxStates = 20_000
)

// builtinEvents are the event types of the State Protocol itself. They belong to
// the protocol and not to an entity type: they pass a type that lists only its
// own, and are checked where the type lists them.
var builtinEvents = map[string]bool{
	"run": true, "step": true, "text": true, "text_delta": true, "tool_call": true, "reasoning": true, "reasoning_delta": true,
	"error": true, "inbox": true, "wake": true, "entity_created": true, "entity_stopped": true, "signal": true, "child_status": true,
	"tags": true, "slash_command": true, "manifest": true, "context_inserted": true, "context_removed": true, "replay_watermark": true,
}

// stateGate checks what holders append to their entities' streams against the
// state schemas in force. It is safe for concurrent use.
//
// The rule: without schemas everything passes. With them, each message is a
// control message, or has a type that is listed (state:x may be listed as x) or
// built in. A listed one's value must match: the value of an insert, update or
// upsert, the old_value of a delete if it has one.
type stateGate struct {
	schemas *schemaCache
	lookups *groupcommit.Group[store.StateGateRequest, store.StateGate]

	mu      sync.Mutex
	states  map[stateKey]*entityState
	forgets int // how often forget was called
}

type stateKey struct {
	service int32
	url     string
}

// entityState is what is known of one entity; it never changes.
type entityState struct {
	consumer int64
	version  string
	// events has the schema of each listed event type; nil means anything goes.
	events map[string]*workSchema
	read   time.Time
}

func newStateGate(ctx context.Context, db *store.Store, schemas *schemaCache) *stateGate {
	g := &stateGate{schemas: schemas, states: map[stateKey]*entityState{}}
	g.lookups = groupcommit.New(ctx, groupcommit.Config[store.StateGateRequest, store.StateGate]{
		Run: func(ctx context.Context, _ bool, reqs []store.StateGateRequest) ([]groupcommit.Answer[store.StateGate], error) {
			got, err := db.EntityStateGate(ctx, reqs)
			if err != nil {
				return nil, err
			}
			out := make([]groupcommit.Answer[store.StateGate], len(got))
			for i := range got {
				out[i].Res = got[i]
			}
			return out, nil
		},
		Key:   func(r store.StateGateRequest) string { return r.URL },
		Alone: store.IsDataError,
	})
	return g
}

// forget makes the next appends look again: a type was changed here.
func (g *stateGate) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forgets++
	clear(g.states)
}

// state returns what is in force for an entity, from memory if it is fresh there
// and may be; cached says that it was.
func (g *stateGate) state(ctx context.Context, key stateKey, mayCache bool) (s *entityState, cached bool, err error) {
	g.mu.Lock()
	last, forgets := g.states[key], g.forgets
	g.mu.Unlock()
	if mayCache && last != nil && time.Since(last.read) < stateFresh {
		return last, true, nil
	}
	req := store.StateGateRequest{Service: key.service, URL: key.url}
	if last != nil {
		req.Known = last.version
	}
	now := time.Now() // before the read: what changes during it is newer
	got, err := g.lookups.Do(ctx, req)
	if err != nil {
		return nil, false, err
	}
	s = &entityState{consumer: got.ConsumerID, version: got.Version, read: now}
	switch {
	case last != nil && got.Version == last.version:
		s.events = last.events
	case got.StateSchemas != nil:
		set := schemaMap(got.StateSchemas)
		s.events = make(map[string]*workSchema, len(set))
		for name, raw := range set {
			if s.events[name], err = g.schemas.compile(raw); err != nil {
				return nil, false, problem.New(problem.SchemaValidationFailed, "A stored state schema of the entity's type cannot be used. Register the entity type anew.")
			}
		}
	}
	g.mu.Lock()
	if g.forgets == forgets {
		if len(g.states) >= maxStates {
			clear(g.states)
		}
		g.states[key] = s
	}
	g.mu.Unlock()
	return s, false, nil
}

// CheckAppend refuses what a write token's holder appends to an entity's main
// stream against its type's state schemas: UNKNOWN_EVENT_TYPE or
// SCHEMA_VALIDATION_FAILED. Whether the token may write there is not looked at.
// Anything else passes, also what the append itself is going to refuse.
func (c *Control) CheckAppend(ctx context.Context, item *store.AppendItem) error {
	name, ok := strings.CutSuffix(item.Path, "/main")
	if !ok || item.Claim == nil || len(item.Payload) == 0 || item.Type != "application/json" {
		return nil
	}
	key := stateKey{item.Service, "/" + name}
	s, cached, err := c.states.state(ctx, key, true)
	if err != nil || s.events == nil {
		return err
	}
	refusal := s.check(item)
	if refusal == nil || !cached {
		return refusal
	}
	if s, _, err = c.states.state(ctx, key, false); err != nil || s.events == nil {
		return err
	}
	return s.check(item)
}

// check looks at each message of an append.
func (s *entityState) check(item *store.AppendItem) error {
	doc, err := jsonschema.UnmarshalJSON(io.MultiReader(strings.NewReader("["), bytes.NewReader(item.Payload), strings.NewReader("]")))
	messages, ok := doc.([]any)
	if err != nil || !ok {
		return problem.New(problem.InvalidJSON, "The messages are not JSON.")
	}
	for i, m := range messages {
		at := ""
		if len(messages) > 1 {
			at = "/" + strconv.Itoa(i)
		}
		if err := s.message(m, at); err != nil {
			return err
		}
	}
	return nil
}

// value checks the value of a row of some type, if that type is listed.
func (s *entityState) value(typ string, raw json.RawMessage) error {
	schema, listed := s.events[typ]
	if !listed {
		schema, listed = s.events[strings.TrimPrefix(typ, "state:")]
	}
	if !listed {
		return nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return problem.New(problem.InvalidRequest, "The body is not valid JSON.")
	}
	return checkValue(schema, doc, "/value", "this collection")
}

func (s *entityState) message(doc any, at string) error {
	m, _ := doc.(map[string]any)
	headers, _ := m["headers"].(map[string]any)
	typ, ok := m["type"].(string)
	if !ok {
		if _, control := headers["control"].(string); control {
			return nil
		}
		return problem.New(problem.UnknownEventType, "An event of this entity needs a type.").
			WithDetails(problem.Detail{Path: at + "/type", Message: "is needed"})
	}
	schema, listed := s.events[typ]
	if !listed {
		schema, listed = s.events[strings.TrimPrefix(typ, "state:")]
	}
	if !listed {
		if builtinEvents[typ] {
			return nil
		}
		return problem.New(problem.UnknownEventType, "The entity's type knows no event of this type. Add it to its state_schemas.").
			WithDetails(problem.Detail{Path: at + "/type", Message: "is not one of the entity's event types"})
	}
	member := "value"
	if op, _ := headers["operation"].(string); op == "delete" {
		if member = "old_value"; m[member] == nil {
			return nil
		}
	}
	value, given := m[member]
	if !given {
		return problem.New(problem.SchemaValidationFailed, "An event of this type needs a value.").
			WithDetails(problem.Detail{Path: at + "/" + member, Message: "is needed"})
	}
	return checkValue(schema, value, at+"/"+member, "this event type")
}
