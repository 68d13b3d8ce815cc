package subscriptions

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rouse-run/rouse/gateway/problem"
)

// target is the dispatch target of a webhook subscription, as a transport sees it.
func target(u string) (json.RawMessage, error) {
	return json.Marshal(map[string]string{"type": webhookType, "url": u})
}

// maxTargetDepth bounds the nesting of a target, as that of the bodies that hold
// dispatch policies.
const maxTargetDepth = 128

// transportTarget is the target of any other transport's subscription, as that
// transport sees it: what the body says, and the type. raw is JSON without
// duplicate keys.
func transportTarget(typ string, raw json.RawMessage) (json.RawMessage, error) {
	if !printable(typ, 64) {
		return nil, invalid("/type", "must be the name of a target type")
	}
	var m map[string]json.RawMessage
	switch {
	case len(raw) > maxTarget:
		return nil, invalid("/target", "is too large")
	case json.Unmarshal(raw, &m) != nil || m == nil:
		return nil, invalid("/target", "must be an object")
	case m["type"] != nil:
		return nil, invalid("/target/type", "is the subscription's own: leave it out of the target")
	}
	if why := storable(raw); why != "" {
		return nil, invalid("/target", why)
	}
	name, err := json.Marshal(typ)
	if err != nil {
		return nil, err
	}
	m["type"] = name
	return json.Marshal(m)
}

// storable says what Postgres would refuse of a JSON value, or "".
func storable(raw []byte) (why string) {
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	for {
		tok, err := dec.ReadToken()
		switch {
		case err != nil:
			return "is not valid JSON"
		case dec.StackDepth() > maxTargetDepth:
			return "is nested too deeply"
		case tok.Kind() == '"' && strings.IndexByte(tok.String(), 0) >= 0:
			return "holds a NUL character"
		case tok.Kind() == '0' && !plain(tok.String()):
			return "holds a number of no use"
		}
		if dec.StackDepth() == 0 {
			return ""
		}
	}
}

// plain says that a number has at most some hundred digits when it is written out.
func plain(number string) bool {
	exponent := 0
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(number[i+1:]); err != nil {
			return false
		}
	}
	return len(number) <= 400 && -400 <= exponent && exponent <= 400
}

// checkTarget asks the transport of type typ.
func (h *Handler) checkTarget(ctx context.Context, typ string, target json.RawMessage) error {
	err := h.Transports.Validate(ctx, typ, target)
	if err == nil {
		return nil
	}
	e := problem.From(err)
	if len(e.Details) == 0 && e.Code == problem.InvalidTarget {
		e.WithDetails(problem.Detail{Path: "/target", Message: "is refused by its transport"})
	}
	return e
}

// ownMembers is a stored target without what the subscription says anyway.
func ownMembers(stored json.RawMessage) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(stored, &m) != nil {
		return nil
	}
	delete(m, "type")
	out, err := json.Marshal(m)
	if err != nil {
		return nil
	}
	return out
}
