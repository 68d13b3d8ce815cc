package control

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/problem"
)

// What passes is one JSON object that Postgres can store; what does not is a 400.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1,{"b":null}]}`, `{"a":1,"a":2}`, `{"a":"\u0000"}`, `{"a":"\ud800"}`, "{\"\xff\":1}", `{} {}`, `[`, strings.Repeat(`{"a":`, 200), ` {"a":1e400} `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		err := checkJSON(body)
		if err != nil {
			if problem.CodeOf(err) != problem.InvalidRequest {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		var m map[string]any
		if !json.Valid(body) || strings.Contains(string(body), `\u0000`) && !strings.Contains(string(body), `\\u0000`) {
			t.Fatalf("%q passed", body)
		}
		if err := json.Unmarshal(body, &m); err != nil && !strings.Contains(err.Error(), "cannot unmarshal number") {
			t.Fatalf("%q passed: %v", body, err)
		}
	})
}

func FuzzRename(f *testing.F) {
	f.Add([]byte(`{"wake_id":"x","epoch":1}`))
	f.Add([]byte(`{"wake_id":"x","wakeId":"y"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if checkJSON(body) != nil {
			return
		}
		out, err := rename(body, map[string]string{"wake_id": "wakeId", "streamPrefix": ""})
		if err != nil {
			if st := problem.From(err).Status(); st != 400 {
				t.Fatalf("%q: %v", body, err)
			}
			return
		}
		if !json.Valid(out) || checkJSON(out) != nil {
			t.Fatalf("%q became %q", body, out)
		}
	})
}

// Numbers that neither Go nor Postgres can hold are refused, not a 500.
func TestHugeNumbers(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "POST", "/_electric/runners", `{"id":"mac","label":"Mac"}`)
	for _, n := range []string{"1e999999", "-1e400", strings.Repeat("9", 400), "1e-999999", strings.Repeat("9", 140_000) + "e-139000"} {
		for _, tc := range [][3]string{
			{"PUT", "/_electric/entities/chat/x" + n[:3], `{"args":{"n":` + n + `}}`},
			{"PUT", "/_electric/entities/chat/y" + n[:3], `{"sandbox":{"n":` + n + `}}`},
			{"POST", "/_electric/entity-types", `{"name":"t","description":"","creation_schema":{"default":` + n + `}}`},
			{"POST", "/_electric/runners/mac/heartbeat", `{"diagnostics":{"n":` + n + `}}`},
			{"POST", "/_electric/runners/mac/claim", `{"x":` + n + `}`},
			{"PUT", "/_electric/entities/chat/z" + n[:3], `{"initialMessage":{"n":` + n + `}}`},
			{"POST", "/_electric/entities/chat/1/signal", `{"signal":"SIGINT","payload":` + n + `}`},
		} {
			if a := r.as(kyle, tc[0], tc[1], tc[2]); a.status >= 500 {
				t.Errorf("%s %s %s: %d %s", tc[0], tc[1], short(tc[2]), a.status, a.body)
			}
		}
	}
}
