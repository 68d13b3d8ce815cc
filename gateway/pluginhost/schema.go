package pluginhost

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// maxSchema bounds a schema in bytes.
const maxSchema = 256 << 10

// schema is what a plugin says of targets or settings; nil allows everything.
type schema struct{ compiled *jsonschema.Schema }

// nothingLoads keeps schemas from reading files or the network.
type nothingLoads struct{}

func (nothingLoads) Load(string) (any, error) {
	return nil, errors.New("only references inside the schema are allowed")
}

func compileSchema(raw json.RawMessage) (*schema, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	if len(raw) > maxSchema {
		return nil, errors.New("it is larger than 256 KiB")
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, errors.New("it is no JSON")
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(nothingLoads{})
	if err := c.AddResource("plugin:schema", doc); err != nil {
		return nil, errors.New("it is no JSON Schema")
	}
	s, err := c.Compile("plugin:schema")
	if err != nil {
		return nil, errors.New("it is no JSON Schema of draft 2020-12, or refers to something outside itself")
	}
	return &schema{s}, nil
}

// check says what is wrong with a document, without a value of it.
func (s *schema) check(doc json.RawMessage) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return errors.New("it is no JSON")
	}
	if s == nil {
		return nil
	}
	err = s.compiled.Validate(v)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return errors.New(explain(e))
	}
	return errors.New("it is not as the schema has it")
}

// explain speaks of the first thing that is wrong.
func explain(e *jsonschema.ValidationError) string {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	at := "it"
	if len(e.InstanceLocation) > 0 {
		at = strings.Join(e.InstanceLocation, "/")
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		return fmt.Sprintf("%s lacks %s", at, strings.Join(k.Missing, ", "))
	case *kind.Type:
		return fmt.Sprintf("%s must be of type %s", at, strings.Join(k.Want, " or "))
	case *kind.AdditionalProperties:
		return fmt.Sprintf("%s has a member that is not known", at)
	case *kind.Pattern, *kind.Format:
		return fmt.Sprintf("%s has not the form it must have", at)
	}
	return fmt.Sprintf("%s is not as the schema has it (%s)", at, strings.Join(e.ErrorKind.KeywordPath(), "/"))
}
