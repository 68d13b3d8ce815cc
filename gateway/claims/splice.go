package claims

import (
	"bytes"
	"encoding/json"
)

// Member is a member of a JSON object: its name, which needs no escape, and its value as JSON.
type Member struct {
	Name  string
	Value []byte
}

// With returns a JSON object with the members added, in the place of those of the same names. Notifications are
// completed several times on their way to a runner, and decoding one to encode it again costs more than all else that is
// done with it: so it is not decoded unless a name occurs in it already, at whatever depth.
func With(object json.RawMessage, members ...Member) (json.RawMessage, error) {
	inner, ok := bytes.CutPrefix(bytes.TrimSpace(object), []byte("{"))
	inner = bytes.TrimLeft(inner, " \t\r\n")
	if !ok || len(inner) == 0 || inner[0] == '}' {
		return replace(object, members)
	}
	size := len(object)
	for _, m := range members {
		if bytes.Contains(inner, []byte(`"`+m.Name+`"`)) {
			return replace(object, members)
		}
		size += len(m.Name) + len(m.Value) + len(`"":,`)
	}
	out := append(make([]byte, 0, size), '{')
	for _, m := range members {
		out = append(append(append(out, '"'), m.Name...), '"', ':')
		out = append(append(out, m.Value...), ',')
	}
	return append(out, inner...), nil
}

func replace(object json.RawMessage, members []Member) (json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(object, &all); err != nil {
		return nil, err
	}
	if all == nil {
		all = map[string]json.RawMessage{} // the object was null
	}
	for _, m := range members {
		all[m.Name] = m.Value
	}
	return json.Marshal(all)
}

// Text is a string as the value of a member.
func Text(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`) // a string always marshals
	}
	return b
}
