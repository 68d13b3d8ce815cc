package control

import (
	"encoding/json"
	"fmt"
	"strings"
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

// A shared state whose fork would have a path that nobody can ask for is not
// forked, nor is anything with it.
func TestForksOfLongNames(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/p", "")
	id := strings.Repeat("x", maxPath-len(sharedStates)+1)
	r.db.Exec(t, `with s as (insert into rouse.streams (service_id, path, kind, content_type, is_json) values (1, '_electric/shared-state/' || $1, 'shared', 'application/json', true))
		insert into rouse.shared_state_links (service_id, path, entity_url, manifest_key) values (1, '_electric/shared-state/' || $1, '/chat/p', 'k')`, id)
	r.write("/chat/p", event("insert", "manifest", "k", `{"kind":"shared-state","id":"`+id+`"}`))
	r.refused(400, "INVALID_PATH", kyle, "POST", "/_electric/entities/chat/p/fork", "")
	if n := r.count(`select count(*) from rouse.entities`); n != 1 {
		t.Errorf("%d entities", n)
	}
}
