package observation

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/rouse-run/rouse/gateway/store"
)

// event is one State Protocol message of a source, read leniently: a member of
// the wrong type counts as absent.
type event struct {
	typ, key, operation string
	value               map[string]json.RawMessage
	raw                 json.RawMessage // the value as it came
	// id tells the event from every other of its stream.
	id       string
	position int64
}

// events reads what one append brought. What is no JSON brings none.
func events(payload []byte, position int64) []event {
	var list []json.RawMessage
	if json.Unmarshal(bytes.Join([][]byte{{'['}, payload, {']'}}, nil), &list) != nil {
		return nil
	}
	out := make([]event, 0, len(list))
	for i, raw := range list {
		m := object(raw)
		if m == nil {
			continue
		}
		e := event{typ: text(m["type"]), key: text(m["key"]), operation: text(object(m["headers"])["operation"]),
			raw: m["value"], value: object(m["value"]), id: store.FormatOffset(position), position: position}
		if i > 0 {
			e.id += ":" + strconv.Itoa(i)
		}
		out = append(out, e)
	}
	return out
}

// object reads a JSON object's members, exactly by their names; nil for
// anything else.
func object(raw json.RawMessage) map[string]json.RawMessage {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil {
		return nil
	}
	return m
}

// text reads a JSON string; "" for anything else.
func text(raw json.RawMessage) string {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// number reads a JSON number as a whole one between 0 and max; 0 for anything
// else.
func number(raw json.RawMessage, most int64) int64 {
	var f float64
	if len(raw) == 0 || json.Unmarshal(raw, &f) != nil || f <= 0 {
		return 0
	}
	return int64(min(f, float64(most)))
}
