package observation

import (
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/store"
)

// Two gateways that find the same due time, each before the other has told it,
// tell it once: what is due moves no cursor, so the cursor alone does not show it.
func TestADueTimeIsToldOnceByTwoGateways(t *testing.T) {
	t.Parallel()
	const hour = 3_600_000
	todo := Condition{Collections: []string{"todo"}}.String()
	for name, c := range map[string]struct {
		request store.ObserverRequest
		// collected is written before the due time comes, between after the first
		// gateway has looked and before the second one does.
		collected, between string
		// second: the second gateway's look is the one that is carried out first.
		second bool
		// keys are the changes that are told, a string a wake.
		told []string
	}{
		"debounce":                         {store.ObserverRequest{DebounceMS: hour}, "a", "", false, []string{"a"}},
		"debounce, and something new":      {store.ObserverRequest{DebounceMS: hour}, "a", "b", false, []string{"a"}}, // b waits for its own time
		"debounce, what is new told first": {store.ObserverRequest{DebounceMS: hour}, "a", "b", true, []string{"ab"}},
		"timeout":                          {store.ObserverRequest{TimeoutMS: hour}, "", "", false, []string{""}},
		"timeout, and something new":       {store.ObserverRequest{TimeoutMS: hour}, "", "b", false, []string{"", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.spawn("/chat/a", "")
			r.spawn("/chat/b", "")
			q := c.request
			q.Subscriber, q.Source, q.Condition = "/chat/a", "/chat/b", todo
			r.register(q)
			if c.collected != "" {
				r.write("chat/b/main", row("insert", "todo", c.collected, `{}`))
				r.settle(r.worker())
			}
			r.db.Exec(t, `update rouse.observers set due_at = clock_timestamp() where due_at is not null`)
			look := func() store.ObserverMove {
				t.Helper()
				list, err := r.s.ObserveTake(t.Context(), 0, 10, takeBytes)
				if err != nil || len(list) != 1 {
					t.Fatalf("%d cursors, %v", len(list), err)
				}
				m, err := evaluate(t.Context(), r.s, time.Now(), list[0])
				if err != nil {
					t.Fatal(err)
				}
				return m
			}
			first := look()
			if c.between != "" {
				r.write("chat/b/main", row("insert", "todo", c.between, `{}`))
			}
			second := look()
			if c.second {
				first, second = second, first
			}
			for i, m := range []store.ObserverMove{first, second} {
				want := [...]string{"applied", "stale"}[i]
				if got, err := r.s.ObserveApply(t.Context(), []store.ObserverMove{m}, false); err != nil || got[0] != want {
					t.Errorf("gateway %d: %v %v, want %s", i+1, got, err, want)
				}
			}
			r.settle(r.worker())
			var told []string
			for _, e := range r.wakes("/chat/a") {
				keys := ""
				for _, ch := range decode(t, e)["changes"].([]any) {
					keys += ch.(map[string]any)["key"].(string)
				}
				told = append(told, keys)
			}
			if len(told) != len(c.told) {
				t.Fatalf("told %q, want %q", told, c.told)
			}
			for i := range told {
				if told[i] != c.told[i] {
					t.Errorf("told %q, want %q", told, c.told)
				}
			}
		})
	}
}
