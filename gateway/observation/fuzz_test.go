package observation

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

// nothing is a database in which nothing was said.
type nothing struct{ Database }

func (nothing) ObserveBack(context.Context, int64, int64, int32) ([]store.AppendedRow, error) {
	return nil, nil
}

// Whatever a holder appends: reading it neither panics nor stops, what comes of it
// is JSON that the database can store, and a page is always passed.
func FuzzWhatHoldersAppend(f *testing.F) {
	for _, s := range []string{``, `{}`, `[]`, `1,2`, `null`, `{"type":"run","key":"r","headers":{"operation":"update"},"value":{"status":"failed"}}`,
		`{"type":"manifest","key":"k","value":{"kind":"child","entity_url":"/a/b","wake":{"on":"change","collections":["x"],"ops":["insert"],"debounceMs":1e99}}}`,
		`{"type":"manifest","key":"k","value":{"kind":"schedule","scheduleType":"future_send","fireAt":"2026-01-01T00:00:00Z","targetUrl":"/a/b","producerId":"p","payload":"\u0000"}}`,
		`{"type":"manifest","key":"k","value":{"kind":"schedule","scheduleType":"cron","expression":"* * * * 7","timezone":"Europe/Berlin"}},{"type":"manifest","key":"k","headers":{"operation":"delete"}}`,
		`{"type":"manifest","key":"k","value":{"kind":"source","sourceType":"entities","config":{"tags":{"a":"\ud800"}},"wake":"runFinished"}}`,
		`{"type":"x","key":"\u0000","value":{"value":"\u0000","oldValue":[1e999]}}`, "\xff\xfe", `{"type":"x"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		o := store.Observer{ID: 1, SubscriberURL: "/chat/a", SourceURL: "/chat/b", SourceEntity: "/chat/b", SourceParent: "/chat/a", IncludeResponse: true,
			Principal: kyle, Tail: 10, Positions: []int64{10}, Payloads: [][]byte{payload}}
		for _, c := range []Condition{{RunFinished: true}, {}, {Collections: []string{"x", "manifest"}, Ops: []string{"insert"}}} {
			for _, ms := range []int32{0, 5} {
				o.Condition, o.DebounceMS = c.String(), ms
				m, err := evaluate(t.Context(), nothing{}, time.Unix(0, 0), o)
				if err != nil || m.To != 10 {
					t.Fatal(m, err)
				}
				for _, text := range append(m.Rows, m.State) {
					if text != "" && (!json.Valid([]byte(text)) || strings.IndexByte(text, 0) >= 0) {
						t.Errorf("%q", text)
					}
				}
			}
		}
		list := effects(o)
		seen := map[string]bool{}
		for _, e := range list {
			if seen[e.Key] {
				t.Errorf("%q has two effects", e.Key)
			}
			seen[e.Key] = true
		}
		if text := staterow.Encode(list); !json.Valid([]byte(text)) || strings.Contains(strings.ReplaceAll(text, `\\`, ""), `\u0000`) {
			t.Errorf("jsonb cannot hold %q", text)
		}
	})
}
