package observation

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/rouse-run/rouse/gateway/staterow"
)

// MaxDelay bounds a debounce, a timeout and a delay, in milliseconds: what an
// int of Postgres holds, 24 days.
const MaxDelay = 1<<31 - 1

// Condition is what an entity is woken by.
type Condition struct {
	// RunFinished: a run of the source ended. Otherwise: any change.
	RunFinished bool
	// Collections and Ops narrow changes; empty means all. Collections are types of
	// rows, or the names that the agents runtime has for them. Ops are insert, update
	// and delete.
	Collections, Ops []string
}

type changeCondition struct {
	On          string   `json:"on"`
	Collections []string `json:"collections,omitempty"`
	Ops         []string `json:"ops,omitempty"`
}

// ParseCondition reads the wire's form: "runFinished" or {on: "change", …}. why
// says what is wrong, without the value, and is "" when nothing is.
func ParseCondition(raw json.RawMessage) (c Condition, why string) {
	if text(raw) == "runFinished" {
		return Condition{RunFinished: true}, ""
	}
	m := object(raw)
	switch text(m["on"]) {
	case "runFinished":
		return Condition{RunFinished: true}, ""
	case "change":
	default:
		return c, `must be "runFinished" or an object whose member on is "change"`
	}
	var ok bool
	if c.Collections, ok = list(m["collections"]); !ok {
		return c, "has a member collections that is not a list of strings"
	}
	if c.Ops, ok = list(m["ops"]); !ok || slices.ContainsFunc(c.Ops, func(op string) bool { return op != "insert" && op != "update" && op != "delete" }) {
		return c, "has a member ops that is not a list of insert, update and delete"
	}
	if len(c.Collections) > 256 {
		return c, "has more than 256 collections"
	}
	return c, ""
}

// list reads a JSON list of strings; absent and null are an empty one.
func list(raw json.RawMessage) ([]string, bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, true
	}
	var s []string
	return s, json.Unmarshal(raw, &s) == nil
}

// String is the stored form: JSON text, the same for the same condition.
func (c Condition) String() string {
	if c.RunFinished {
		return `"runFinished"`
	}
	return staterow.Encode(changeCondition{"change", sorted(c.Collections), sorted(c.Ops)})
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return slices.Compact(s)
}

// silent are the rows of the gateway itself, which wake nobody, or two entities
// that observe each other would keep each other awake for ever. quiet ones are
// told only to who names them.
var (
	silent = map[string]bool{"inbox": true, "wake": true, "entity_created": true, "tags": true}
	quiet  = map[string]bool{"manifest": true, "slash_command": true, "replay_watermark": true}
)

// rowTypes are the types of the rows in the collections of the agents runtime,
// by their names there: what handlers read, and so what they ask for. What an
// entity keeps for itself is called state:<name> unless it says otherwise.
var rowTypes = map[string]string{
	"runs": "run", "steps": "step", "texts": "text", "textDeltas": "text_delta", "toolCalls": "tool_call", "reasoningDeltas": "reasoning_delta",
	"errors": "error", "entityStopped": "entity_stopped", "signals": "signal", "childStatus": "child_status", "slashCommands": "slash_command",
	"manifests": "manifest", "contextInserted": "context_inserted", "contextRemoved": "context_removed", "replayWatermarks": "replay_watermark",
}

const statePrefix = "state:"

// names reports whether a type of rows is one of the condition's collections.
func (c Condition) names(typ string) bool {
	state, ok := strings.CutPrefix(typ, statePrefix)
	return slices.ContainsFunc(c.Collections, func(name string) bool {
		return name == typ || rowTypes[name] == typ || ok && name == state
	})
}

// change is what a wake says of one event.
type change struct {
	Collection    string          `json:"collection"`
	Kind          string          `json:"kind"`
	Key           string          `json:"key"`
	Value         json.RawMessage `json:"value,omitempty"`
	OldValue      json.RawMessage `json:"oldValue,omitempty"`
	From          string          `json:"from,omitempty"`
	FromPrincipal string          `json:"from_principal,omitempty"`
	FromAgent     string          `json:"from_agent,omitempty"`
	Payload       json.RawMessage `json:"payload,omitempty"`
	Timestamp     string          `json:"timestamp,omitempty"`
	MessageType   string          `json:"message_type,omitempty"`
}

// run is a finished run.
type run struct {
	Key      string `json:"key"`
	Status   string `json:"status"`
	Position int64  `json:"position"`
}

// match says what an event means to the condition; nil means nothing.
func (c Condition) match(e event) (*change, *run) {
	if c.RunFinished {
		status := text(e.value["status"])
		if e.typ != "run" || e.operation != "update" || status != "completed" && status != "failed" {
			return nil, nil
		}
		key := e.key
		if key == "" {
			key = "run"
		}
		return &change{Collection: "runs", Kind: "update", Key: key}, &run{e.key, status, e.position}
	}
	named := c.names(e.typ)
	if e.typ == "" || silent[e.typ] || len(c.Collections) > 0 && !named || quiet[e.typ] && !named {
		return nil, nil
	}
	kind := e.operation
	if kind != "update" && kind != "delete" {
		kind = "insert"
	}
	if len(c.Ops) > 0 && !slices.Contains(c.Ops, kind) {
		return nil, nil
	}
	ch := &change{Collection: e.typ, Kind: kind, Key: e.key, Value: e.value["value"], OldValue: e.value["oldValue"]}
	if ch.OldValue == nil {
		ch.OldValue = e.value["old_value"]
	}
	return ch, nil
}
