package control

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/rouse-run/rouse/gateway/problem"
)

// schemaKeywords are those that the ecosystem's servers accept in an entity
// type's schemas, and propertyNames, which newer generators write for records.
var schemaKeywords = map[string]bool{
	"type": true, "properties": true, "required": true, "enum": true, "const": true,
	"minimum": true, "maximum": true, "exclusiveMinimum": true, "exclusiveMaximum": true, "multipleOf": true,
	"minLength": true, "maxLength": true, "minProperties": true, "maxProperties": true, "uniqueItems": true,
	"pattern": true, "items": true, "minItems": true, "maxItems": true, "$ref": true,
	"anyOf": true, "oneOf": true, "allOf": true, "not": true, "format": true,
	"title": true, "description": true, "default": true, "additionalProperties": true, "propertyNames": true, "nullable": true,
	"$schema": true, "$id": true, "$defs": true, "definitions": true, "examples": true,
}

const (
	// maxSchema bounds one schema in bytes.
	maxSchema = 256 << 10
	// maxCompiled bounds the compiled schemas kept; beyond it the cache starts anew.
	maxCompiled = 2000
)

// schemaCache compiles JSON schemas once. It is safe for concurrent use.
type schemaCache struct {
	mu sync.Mutex
	m  map[[sha256.Size]byte]*workSchema
}

func newSchemaCache() *schemaCache {
	return &schemaCache{m: map[[sha256.Size]byte]*workSchema{}}
}

// refuseLoader keeps schemas from reading files or the network.
type refuseLoader struct{}

func (refuseLoader) Load(string) (any, error) {
	return nil, errors.New("only references inside the schema are allowed")
}

var errSchema = errors.New("it does not compile")

// compile compiles a schema, or takes it from the cache.
func (c *schemaCache) compile(raw json.RawMessage) (*workSchema, error) {
	sum := sha256.Sum256(raw)
	c.mu.Lock()
	s := c.m[sum]
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, errSchema
	}
	doc = withNullable(doc)
	if m, ok := doc.(map[string]any); ok {
		// The schema's own address is of no use here and could name a place to
		// load from; draft 7 and 2020-12 agree on the keywords allowed.
		delete(m, "$id")
		delete(m, "$schema")
		doc = m
	}
	if !plainNumbers(doc) {
		return nil, errSchema
	}
	if s, err = compileWork(doc); err != nil {
		return nil, errSchema
	}
	c.mu.Lock()
	if len(c.m) >= maxCompiled {
		c.m = map[[sha256.Size]byte]*workSchema{}
	}
	c.m[sum] = s
	c.mu.Unlock()
	return s, nil
}

// withNullable gives "nullable" the meaning it has in OpenAPI 3.0, which the
// validator does not know.
func withNullable(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = withNullable(x)
		}
		if n, ok := v["nullable"].(bool); ok {
			delete(v, "nullable")
			if n {
				return map[string]any{"anyOf": []any{v, map[string]any{"type": "null"}}}
			}
		}
		return v
	case []any:
		for i, x := range v {
			v[i] = withNullable(x)
		}
	}
	return v
}

// validate checks a value against a schema. A refusal is
// SCHEMA_VALIDATION_FAILED with places below base and the keywords that failed,
// never with values.
func (c *schemaCache) validate(schema, value json.RawMessage, base, what string) error {
	s, err := c.compile(schema)
	if err != nil {
		return problem.Newf(problem.SchemaValidationFailed, "The stored schema of %s cannot be used. Register the entity type anew.", what)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return problem.New(problem.InvalidRequest, "The body is not valid JSON.")
	}
	return checkValue(s, doc, base, what)
}

// checkValue is validate for a decoded value and a compiled schema.
func checkValue(s *workSchema, doc any, base, what string) error {
	verr := s.validate(doc)
	if verr == nil {
		return nil
	}
	if errors.Is(verr, errWork) {
		return problem.Newf(problem.SchemaValidationFailed, "Checking the value against the schema of %s takes too much work. Send less at once, use numbers of fewer digits, or make the schema simpler.", what)
	}
	e := problem.Newf(problem.SchemaValidationFailed, "The value does not match the schema of %s.", what)
	var ve *jsonschema.ValidationError
	if !errors.As(verr, &ve) {
		return e
	}
	var walk func(v *jsonschema.ValidationError)
	walk = func(v *jsonschema.ValidationError) {
		if len(e.Details) >= 20 {
			return
		}
		if len(v.Causes) == 0 {
			e.WithDetails(problem.Detail{Path: jsonPointer(base, v.InstanceLocation), Message: unmet(v)})
		}
		for _, cause := range v.Causes {
			walk(cause)
		}
	}
	walk(ve)
	return e
}

// unmet says what a value does not satisfy, in the schema's words: names that
// only the value holds are not repeated.
func unmet(v *jsonschema.ValidationError) string {
	switch k := v.ErrorKind.(type) {
	case *kind.Required:
		if names := strings.Join(k.Missing, ", "); len(names) <= maxNames {
			return "lacks " + names
		}
	case *kind.Type:
		return "must be of type " + strings.Join(k.Want, " or ")
	}
	if p := v.ErrorKind.KeywordPath(); len(p) > 0 {
		return "does not satisfy " + p[0]
	}
	return "does not satisfy the schema"
}

// maxNames bounds the names of missing members that a refusal lists, in bytes.
const maxNames = 500

func jsonPointer(base string, loc []string) string {
	esc := strings.NewReplacer("~", "~0", "/", "~1")
	for _, s := range loc {
		base += "/" + esc.Replace(s)
	}
	return base
}

// checkSchema refuses a schema that cannot be stored: unknown keywords, too
// large, or not compiling. at is its place in the body.
func (c *schemaCache) checkSchema(at string, raw json.RawMessage) []problem.Detail {
	if len(raw) > maxSchema {
		return []problem.Detail{{Path: at, Message: fmt.Sprintf("must be at most %d bytes", maxSchema)}}
	}
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return []problem.Detail{{Path: at, Message: "is not JSON"}}
	}
	switch doc.(type) {
	case map[string]any, bool:
	default:
		return []problem.Detail{{Path: at, Message: "must be a JSON schema: an object or a boolean"}}
	}
	if out := unknownKeywords(at, doc, nil); len(out) > 0 {
		return out
	}
	if _, err := c.compile(raw); err != nil {
		return []problem.Detail{{Path: at, Message: "is not a schema that compiles (references must stay inside it, patterns are RE2)"}}
	}
	return nil
}

// unknownKeywords walks schemas, not the names of properties nor plain values.
func unknownKeywords(at string, v any, out []problem.Detail) []problem.Detail {
	m, ok := v.(map[string]any)
	if !ok || len(out) >= 20 {
		return out
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		place := jsonPointer(at, []string{k})
		if !schemaKeywords[k] {
			out = append(out, problem.Detail{Path: place, Message: "is not a supported JSON schema keyword"})
			continue
		}
		switch k {
		case "properties", "$defs", "definitions":
			if sub, ok := m[k].(map[string]any); ok {
				for _, name := range slices.Sorted(maps.Keys(sub)) {
					out = unknownKeywords(jsonPointer(place, []string{name}), sub[name], out)
				}
			}
		case "anyOf", "oneOf", "allOf":
			if list, ok := m[k].([]any); ok {
				for i, sub := range list {
					out = unknownKeywords(fmt.Sprintf("%s/%d", place, i), sub, out)
				}
			}
		case "items":
			if list, ok := m[k].([]any); ok {
				for i, sub := range list {
					out = unknownKeywords(fmt.Sprintf("%s/%d", place, i), sub, out)
				}
				continue
			}
			out = unknownKeywords(place, m[k], out)
		case "not", "additionalProperties", "propertyNames":
			out = unknownKeywords(place, m[k], out)
		}
	}
	return out
}

// checkSchemas is checkSchema for a map of name → schema.
func (c *schemaCache) checkSchemas(at string, set map[string]json.RawMessage) []problem.Detail {
	var out []problem.Detail
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if name == "" || len(name) > 256 {
			out = append(out, problem.Detail{Path: at, Message: "has a name that is empty or longer than 256 bytes"})
			continue
		}
		out = append(out, c.checkSchema(jsonPointer(at, []string{name}), set[name])...)
	}
	return out
}
