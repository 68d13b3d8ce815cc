package observation

import (
	"encoding/json"
	"testing"
)

// Handlers know collections by the names that the agents runtime has for them,
// not by the types of their rows.
func TestCollectionsGoByTypeAndByName(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		collection, typ string
		want            bool
	}{
		{"run", "run", true}, {"runs", "run", true}, {"texts", "text", true}, {"textDeltas", "text_delta", true}, {"toolCalls", "tool_call", true},
		{"childStatus", "child_status", true}, {"reasoning", "reasoning", true}, {"manifests", "manifest", true},
		{"status", "state:status", true}, {"state:status", "state:status", true}, {"status", "status", true},
		{"runs", "runs", true}, {"run", "runs", false}, {"texts", "text_delta", false}, {"status", "state:other", false}, {"", "state:", true},
		{"state:status", "status", false}, {"inbox", "inbox", false}, {"wakes", "wake", false}, {"tags", "tags", false},
	} {
		c, why := ParseCondition(json.RawMessage(`{"on":"change","collections":["other thing","` + tc.collection + `"]}`))
		if why != "" {
			t.Fatal(why)
		}
		ch, _ := c.match(event{typ: tc.typ, operation: "insert", key: "k"})
		if (ch != nil) != tc.want {
			t.Errorf("%q of a row of type %q: %v, want %v", tc.collection, tc.typ, ch != nil, tc.want)
		}
		if ch != nil && ch.Collection != tc.typ {
			t.Errorf("%q: told as %q", tc.collection, ch.Collection)
		}
	}
}
