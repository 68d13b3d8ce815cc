package control

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/problem"
)

// chain is a schema whose choices lead into each other, n times: 2^n ways.
func chain(n int, leaf string) string {
	defs := make([]string, 0, n+1)
	for i := range n {
		next := fmt.Sprintf(`{"$ref":"#/$defs/a%d"}`, i+1)
		defs = append(defs, fmt.Sprintf(`"a%d":{"anyOf":[%s,%s]}`, i, next, next))
	}
	defs = append(defs, fmt.Sprintf(`"a%d":%s`, n, leaf))
	return `{"$defs":{` + strings.Join(defs, ",") + `},"$ref":"#/$defs/a0"}`
}

// A small schema and a small value must not be able to ask for much time or
// memory, however they lead into each other.
func TestValidationIsBounded(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60)
	words := make([]string, 20_000)
	for i := range words {
		words[i] = fmt.Sprintf(`"w%d"`, i)
	}
	enum := `{"type":"array","items":{"enum":[` + strings.Join(words, ",") + `]}}`
	for name, c := range map[string]struct{ schema, value string }{
		"choices that double":         {chain(40, `{"type":"string"}`), `{}`},
		"the same below a negation":   {`{"not":` + strings.Replace(chain(40, `{"type":"string"}`), `"#/$defs`, `"#/not/$defs`, -1) + `}`, `{}`},
		"recursion that doubles":      {`{"type":"object","properties":{"a":{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}},"additionalProperties":false}`, deep},
		"tiny powers of ten":          {`{"type":"array","items":{"minimum":0}}`, `[1e-1000000,1e-1000000]`},
		"many digits":                 {`{"multipleOf":3}`, strings.Repeat("9", 5000)},
		"names of members":            {`{"propertyNames":` + strings.Replace(chain(40, `{"type":"number"}`), `"#/$defs`, `"#/propertyNames/$defs`, -1) + `}`, `{"a":1}`},
		"a long list against an enum": {enum, `[` + strings.TrimSuffix(strings.Repeat(`"x",`, 50_000), ",") + `]`},
	} {
		err := newSchemaCache().validate(json.RawMessage(c.schema), json.RawMessage(c.value), "/args", "the test")
		if problem.CodeOf(err) != problem.SchemaValidationFailed || !strings.Contains(err.Error(), "too much work") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Ordinary schemas keep their meaning, formats in them included.
func TestBoundsDoNotChangeAnAnswer(t *testing.T) {
	t.Parallel()
	recursive := `{"$defs":{"json":{"anyOf":[{"type":"string"},{"type":"number"},{"type":"array","items":{"$ref":"#/$defs/json"}},
		{"type":"object","additionalProperties":{"$ref":"#/$defs/json"}}]}},"$ref":"#/$defs/json"}`
	list := `[` + strings.TrimSuffix(strings.Repeat(`{"a":["b",1.5e-3]},`, 1000), ",") + `]`
	for i, c := range []struct {
		schema, value string
		ok            bool
	}{
		{recursive, list, true},
		{recursive, `{"a":true}`, false},
		{`{"type":"object","properties":{"format":{"type":"string","format":"email"}},"required":["format"]}`, `{"format":"x"}`, true},
		{`{"type":"object","properties":{"format":{"type":"string"}},"required":["format"]}`, `{"format":1}`, false},
		{`{"enum":[{"format":"a"},{"items":{"b":1}}]}`, `{"items":{"b":1}}`, true},
		{`{"const":{"not":{"x":1}}}`, `{"not":{"x":1}}`, true},
		{`{"type":"string","nullable":true}`, `null`, true},
		{`{"type":"number","minimum":0}`, `1e300`, true},
		{`{"type":"number","minimum":0}`, `-1e-300`, false},
		{`true`, `[]`, true},
	} {
		err := newSchemaCache().validate(json.RawMessage(c.schema), json.RawMessage(c.value), "/args", "the test")
		if (err == nil) != c.ok {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// A record as newer generators write it: its names are checked, and a refusal
// does not repeat them.
func TestNamesOfARecordAreChecked(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
		"propertyNames":{"type":"string","pattern":"^[a-z]+$"},"additionalProperties":{"type":"number"}}`)
	cache := newSchemaCache()
	if d := cache.checkSchema("/creation_schema", schema); len(d) > 0 {
		t.Fatalf("%v", d)
	}
	if err := cache.validate(schema, json.RawMessage(`{"a":1,"bc":2}`), "/args", "the test"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{`{"s3cret":1}`, `{"a":"x"}`} {
		err := cache.validate(schema, json.RawMessage(bad), "/args", "the test")
		e := problem.From(err)
		if problem.CodeOf(err) != problem.SchemaValidationFailed || len(e.Details) != 1 || strings.Contains(fmt.Sprint(err, e.Details), "s3cret") {
			t.Errorf("%s: %v %v", bad, err, e.Details)
		}
	}
}
