package control

import (
	"encoding/json"
	"fmt"
	"testing"
)

// However often rows come and go, what they come to is found in time that grows
// with the stream and not with its square, in the order in which they came to be.
func TestForkRowsComeAndGo(t *testing.T) {
	t.Parallel()
	rows := newForkRows()
	apply := func(operation, key string) {
		e := rowEvent{Type: "manifest", Key: key, Value: json.RawMessage(`{"kind":"attachment","id":"` + key + `"}`)}
		e.Headers.Operation = operation
		rows.apply(e)
	}
	const many = 200_000 // the square of which would take minutes
	for _, operation := range []string{"insert", "delete"} {
		for i := range many {
			apply(operation, fmt.Sprint(i))
		}
	}
	for _, key := range []string{"a", "b", "c"} {
		apply("insert", key)
	}
	apply("delete", "a")
	apply("insert", "a")
	apply("update", "b")
	if got := fmt.Sprint(rows.attachments()); got != "[b c a]" {
		t.Errorf("%s", got)
	}
}
