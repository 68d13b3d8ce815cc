package control

import (
	"slices"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// holds is an append of somebody who holds the entity's mutex, as far as the
// gate can tell.
func (r *rig) holds(url string, messages ...string) *store.AppendItem {
	r.t.Helper()
	id := r.count(`select consumer_id from rouse.entities where url = $1`, url)
	return &store.AppendItem{Service: 1, Path: url[1:] + "/main", Type: "application/json", Payload: []byte(strings.Join(messages, ",")),
		Count: int32(len(messages)), Claim: &store.WriteClaim{ConsumerID: id, Epoch: 1}}
}

func TestStateSchemasInForce(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"free","description":""}`)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"none","description":"","state_schemas":{}}`)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"own","description":"","state_schemas":{
		"note":{"type":"object","required":["text"],"properties":{"text":{"type":"string"}}}, "state:score":{"type":"integer"}, "text":{"type":"object","required":["id"]}}}`)
	for _, typ := range []string{"free", "none", "own"} {
		r.must(201, kyle, "PUT", "/_electric/entities/"+typ+"/1", "")
	}
	const (
		insert   = `"headers":{"operation":"insert"}`
		note     = `{"type":"note","key":"n","value":{"text":"hi"},` + insert + `}`
		wideNote = `{"type":"note","key":"n","value":{"text":"secret","text2":1,"x":0},` + insert + `}`
		textless = `{"type":"note","key":"n","value":{"secret":1},` + insert + `}`
		unknown  = `{"type":"nothing","key":"n","value":1,` + insert + `}`
		step     = `{"type":"step","key":"s","value":{"anything":1},` + insert + `}`
	)
	refused := func(code problem.Code, path string, item *store.AppendItem) {
		t.Helper()
		err := r.c.CheckAppend(t.Context(), item)
		if problem.CodeOf(err) != code {
			t.Errorf("%s: %v, want %q", item.Payload, err, code)
			return
		}
		if e := problem.From(err); code != "" && (len(e.Details) == 0 || e.Details[0].Path != path || strings.Contains(e.Error()+e.Details[0].Message, "secret")) {
			t.Errorf("%s: details %+v, want one at %s", item.Payload, e.Details, path)
		}
	}
	for _, url := range []string{"/free/1", "/own/1", "/none/1"} {
		for name := range builtinEvents {
			if name != "text" {
				refused("", "", r.holds(url, `{"type":"`+name+`","key":"k","value":7,`+insert+`}`))
			}
		}
		refused("", "", r.holds(url, `{"headers":{"control":"snapshot-start"}}`))
	}
	for _, anything := range []string{unknown, textless, `7`, `{}`, `null`, `[1]`} {
		refused("", "", r.holds("/free/1", anything))
		refused(problem.UnknownEventType, "/type", r.holds("/none/1", anything))
	}
	refused("", "", r.holds("/own/1", note, wideNote, step, `{"type":"state:score","key":"s","value":12345678901234567890,`+insert+`}`))
	refused(problem.UnknownEventType, "/type", r.holds("/own/1", unknown))
	refused(problem.UnknownEventType, "/1/type", r.holds("/own/1", note, unknown))
	refused(problem.UnknownEventType, "/2/type", r.holds("/own/1", note, note, `"text"`))
	refused(problem.UnknownEventType, "/type", r.holds("/own/1", `{"type":7,"value":1}`))
	refused(problem.UnknownEventType, "/type", r.holds("/own/1", `{"type":"score","value":1}`))
	refused(problem.SchemaValidationFailed, "/value", r.holds("/own/1", textless))
	refused(problem.SchemaValidationFailed, "/value/text", r.holds("/own/1", strings.Replace(note, `"hi"`, `5`, 1)))
	refused(problem.SchemaValidationFailed, "/1/value/text", r.holds("/own/1", note, strings.Replace(note, `"hi"`, `5`, 1)))
	refused(problem.SchemaValidationFailed, "/value", r.holds("/own/1", `{"type":"state:score","value":"1"}`))
	refused(problem.SchemaValidationFailed, "/value", r.holds("/own/1", `{"type":"note","key":"n"}`))
	refused(problem.SchemaValidationFailed, "/value", r.holds("/own/1", `{"type":"note","key":"n","value":null,"headers":{"operation":"upsert"}}`))
	// A built-in type that is listed is checked like any other.
	refused(problem.SchemaValidationFailed, "/value", r.holds("/own/1", `{"type":"text","key":"t","value":{},`+insert+`}`))
	refused("", "", r.holds("/own/1", `{"type":"state:note","key":"n","value":{"text":"listed without its prefix"},`+insert+`}`))
	for _, del := range []string{`"headers":{"operation":"delete"}`, `"old_value":null,"headers":{"operation":"delete"}`, `"old_value":{"text":"x"},"headers":{"operation":"delete"}`} {
		refused("", "", r.holds("/own/1", `{"type":"note","key":"n",`+del+`}`))
	}
	refused(problem.SchemaValidationFailed, "/old_value", r.holds("/own/1", `{"type":"note","key":"n","old_value":{"secret":1},"headers":{"operation":"delete"}}`))
	refused(problem.UnknownEventType, "/type", r.holds("/own/1", `{"type":"nothing","key":"n","headers":{"operation":"delete"}}`))

	// Not this gate's business: other streams, other holders, no claim.
	for name, change := range map[string]func(*store.AppendItem){
		"the error stream":  func(i *store.AppendItem) { i.Path = "own/1/error" },
		"no claim":          func(i *store.AppendItem) { i.Claim = nil },
		"no entity":         func(i *store.AppendItem) { i.Path = "own/2/main" },
		"another service":   func(i *store.AppendItem) { i.Service = 2 },
		"another type":      func(i *store.AppendItem) { i.Type = "text/plain" },
		"a close, and only": func(i *store.AppendItem) { i.Payload, i.Count = nil, 1 },
	} {
		item := r.holds("/own/1", unknown)
		change(item)
		if err := r.c.CheckAppend(t.Context(), item); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Whose claim it is, the append decides: a subscription's may write, too.
	other := r.holds("/own/1", unknown)
	other.Claim.ConsumerID++
	if err := r.c.CheckAppend(t.Context(), other); problem.CodeOf(err) != problem.UnknownEventType {
		t.Errorf("another's claim: %v", err)
	}
}

// What a type adds counts at once here, and at other gateways before they
// refuse anything; what is replaced leaves an entity what it was spawned with.
func TestStateSchemasFollowTheType(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	other := newRigOn(t, r.db, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"own","description":"","state_schemas":{"note":{"type":"string"}}}`)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"late","description":""}`)
	for _, typ := range []string{"own", "late"} {
		r.must(201, kyle, "PUT", "/_electric/entities/"+typ+"/1", "")
	}
	check := func(g *rig, url, event string) problem.Code {
		t.Helper()
		if err := g.c.CheckAppend(t.Context(), g.holds(url, event)); err != nil {
			return problem.CodeOf(err)
		}
		return ""
	}
	const note, more, badMore = `{"type":"note","value":"x"}`, `{"type":"more","value":"x"}`, `{"type":"more","value":1}`
	gateways := []*rig{r, other}
	for _, g := range gateways { // remembered from here on
		if got := []problem.Code{check(g, "/own/1", note), check(g, "/own/1", more), check(g, "/late/1", badMore)}; !slices.Equal(got, []problem.Code{"", problem.UnknownEventType, ""}) {
			t.Fatalf("%v", got)
		}
	}
	r.must(200, kyle, "PATCH", "/_electric/entity-types/own/schemas", `{"state_schemas":{"more":{"type":"string"}}}`)
	r.must(200, kyle, "PATCH", "/_electric/entity-types/late/schemas", `{"state_schemas":{"more":{"type":"string"}}}`)
	for _, g := range gateways {
		if got := []problem.Code{check(g, "/own/1", more), check(g, "/own/1", badMore)}; !slices.Equal(got, []problem.Code{"", problem.SchemaValidationFailed}) {
			t.Errorf("after the addition: %v", got)
		}
	}
	if got := check(r, "/late/1", badMore); got != problem.SchemaValidationFailed {
		t.Errorf("a first schema does not count at once: %q", got)
	}
	other.c.states.forget() // as time would
	if got := check(other, "/late/1", badMore); got != problem.SchemaValidationFailed {
		t.Errorf("a first schema does not count elsewhere: %q", got)
	}
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"own","description":"","state_schemas":{"note":{"type":"integer"}}}`)
	if got := []problem.Code{check(r, "/own/1", note), check(r, "/own/1", more)}; !slices.Equal(got, []problem.Code{"", problem.UnknownEventType}) {
		t.Errorf("after the replacement: %v", got)
	}
	r.must(204, kyle, "DELETE", "/_electric/entity-types/own", "")
	if got := []problem.Code{check(r, "/own/1", note), check(r, "/own/1", `{"type":"note","value":1}`)}; !slices.Equal(got, []problem.Code{"", problem.SchemaValidationFailed}) {
		t.Errorf("without the type: %v", got)
	}
	// A type of the same name and revision, made anew, is another one.
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"own","description":"","state_schemas":{"again":{"type":"integer"}}}`)
	if got := check(r, "/own/1", `{"type":"again","value":1}`); got != "" {
		t.Errorf("with a new type: %v", got)
	}
}

// Many appends of one entity cost few looks at the database.
func TestStateSchemasAreRemembered(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"own","description":"","state_schemas":{"note":{"type":"string"}}}`)
	r.must(201, kyle, "PUT", "/_electric/entities/own/1", "")
	item := r.holds("/own/1", `{"type":"note","value":"x"}`)
	if err := r.c.CheckAppend(t.Context(), item); err != nil {
		t.Fatal(err)
	}
	key := stateKey{1, "/own/1"}
	first, cached, err := r.c.states.state(t.Context(), key, true)
	if err != nil || !cached {
		t.Fatalf("not remembered: %v", err)
	}
	// Looked at again, the schemas are not sent or compiled again.
	again, cached, err := r.c.states.state(t.Context(), key, false)
	if err != nil || cached || again == first || again.events["note"] != first.events["note"] {
		t.Errorf("read again: cached %v, %v", cached, err)
	}
}
