package control

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// maxWork bounds one validation: a unit is one schema looked at in one
	// place, or sixteen values of an enum. Choices that lead into each other
	// double the work at every level, so that a schema of a kilobyte can ask for
	// years of it.
	maxWork = 200_000
	// maxNumber bounds a number's digits, maxExponent its power of ten: exact
	// arithmetic pays for both.
	maxNumber, maxExponent = 400, 400

	workFormat = "rouse:work"
)

// errWork ends a validation that would cost too much.
var errWork = errors.New("the schema and the value together ask for too much work")

// workSchema is a compiled schema whose validations are bounded. It is safe for
// concurrent use, one validation at a time.
type workSchema struct {
	schema *jsonschema.Schema
	tuples bool // items is a list somewhere, which drafts before 2020-12 know

	mu   sync.Mutex
	unit int // of one look at the schema, by the size of its enums
	left int
}

// compileWork compiles doc with a meter in every schema object: a format,
// since that is looked at before anything a schema leads into. Formats assert
// nothing otherwise.
func compileWork(doc any) (*workSchema, error) {
	w := &workSchema{unit: 1}
	doc = w.meter(doc)
	comp := jsonschema.NewCompiler()
	if w.tuples {
		comp.DefaultDraft(jsonschema.Draft7)
	}
	comp.UseLoader(refuseLoader{})
	comp.AssertFormat()
	comp.RegisterFormat(&jsonschema.Format{Name: workFormat, Validate: w.spend})
	const at = "rouse:schema"
	if err := comp.AddResource(at, doc); err != nil {
		return nil, err
	}
	var err error
	w.schema, err = comp.Compile(at)
	return w, err
}

// meter puts the format into a schema and those below it, and leaves values
// (enum, const, default, examples) alone.
func (w *workSchema) meter(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	out := maps.Clone(m)
	out["format"] = workFormat
	for k, x := range m {
		switch x := x.(type) {
		case map[string]any:
			switch k {
			case "properties", "$defs", "definitions":
				named := make(map[string]any, len(x))
				for name, s := range x {
					named[name] = w.meter(s)
				}
				out[k] = named
			case "items", "additionalProperties", "propertyNames", "not":
				out[k] = w.meter(x)
			}
		case []any:
			switch k {
			case "anyOf", "oneOf", "allOf", "items":
				list := slices.Clone(x)
				for i := range list {
					list[i] = w.meter(list[i])
				}
				out[k] = list
				w.tuples = w.tuples || k == "items"
			case "enum":
				w.unit += len(x) / 16
			}
		}
	}
	return out
}

// spend is the format's check: it counts, and ends a validation that has spent
// what it had. What a value holds is counted before it is looked at.
func (w *workSchema) spend(v any) error {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		n += len(v)
	case []any:
		n += len(v)
	}
	if w.left -= n * w.unit; w.left < 0 {
		panic(errWork)
	}
	return nil
}

// validate is Validate within bounds.
func (w *workSchema) validate(doc any) (err error) {
	if !plainNumbers(doc) {
		return errWork
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = maxWork
	defer func() {
		switch fault := recover(); fault {
		case nil:
		case errWork:
			err = errWork
		default:
			panic(fault)
		}
	}()
	return w.schema.Validate(doc)
}

// plainNumbers says whether every number of a value can be computed with.
func plainNumbers(v any) bool {
	switch v := v.(type) {
	case json.Number:
		s := string(v)
		i := strings.IndexAny(s, "eE")
		if i < 0 {
			return len(s) <= maxNumber
		}
		power, err := strconv.Atoi(s[i+1:])
		return err == nil && i <= maxNumber && power >= -maxExponent && power <= maxExponent
	case map[string]any:
		for _, x := range v {
			if !plainNumbers(x) {
				return false
			}
		}
	case []any:
		for _, x := range v {
			if !plainNumbers(x) {
				return false
			}
		}
	}
	return true
}
