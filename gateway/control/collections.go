package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

// commentsContract is what clients that show comments look for: the collection
// of that name has this contract, and no other has.
const (
	commentsName     = "comments"
	commentsContract = "comments/v1"
)

// collection is one of a type's externally_writable_collections.
type collection struct {
	Type       string   `json:"type"` // of the rows' events
	Contract   string   `json:"contract,omitempty"`
	Operations []string `json:"operations,omitempty"` // none given: insert only
}

func (c collection) allows(operation string) bool {
	if len(c.Operations) == 0 {
		return operation == "insert"
	}
	return slices.Contains(c.Operations, operation)
}

// checkCollections refuses what cannot be a type's externally writable
// collections; raw may be nil.
func checkCollections(at string, raw json.RawMessage) []problem.Detail {
	if raw == nil {
		return nil
	}
	set, err := collectionsOf(raw)
	if err != nil {
		return []problem.Detail{{Path: at, Message: "must be an object: collection name → {type, contract?, operations?}"}}
	}
	var out []problem.Detail
	for _, name := range slices.Sorted(maps.Keys(set)) {
		col, place := set[name], jsonPointer(at, []string{name})
		if name == "" || len(name) > maxKey {
			out = append(out, problem.Detail{Path: at, Message: "has a name that is empty or longer than 256 bytes"})
		}
		if col.Type == "" || len(col.Type) > maxKey {
			out = append(out, problem.Detail{Path: place + "/type", Message: "must be the event type of its rows, of at most 256 bytes"})
		}
		if builtinEvents[col.Type] {
			out = append(out, problem.Detail{Path: place + "/type", Message: "belongs to the State Protocol itself"})
		}
		if (name == commentsName) != (col.Contract == commentsContract) {
			out = append(out, problem.Detail{Path: place + "/contract", Message: fmt.Sprintf("%q and %q go together", commentsName, commentsContract)})
		}
		for i, op := range col.Operations {
			if op != "insert" && op != "update" && op != "delete" {
				out = append(out, problem.Detail{Path: fmt.Sprintf("%s/operations/%d", place, i), Message: "must be insert, update or delete"})
			}
		}
		if len(out) >= 20 {
			break
		}
	}
	return out
}

func collectionsOf(raw json.RawMessage) (map[string]collection, error) {
	var set map[string]collection
	if !isObject(raw) {
		return nil, errors.New("not an object")
	}
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.DisallowUnknownFields()
	return set, dec.Decode(&set)
}

type (
	collectionInput struct {
		EntityRef
		Key  string `path:"key" doc:"The collection's name."`
		Body struct {
			Operation string          `json:"operation" enum:"insert,update,delete"`
			Key       string          `json:"key,omitempty" maxLength:"256" doc:"The row's key; an insert without one gets one."`
			Value     json.RawMessage `json:"value,omitempty" doc:"Checked against the collection's state schema."`
		} `nameHint:"CollectionWrite"`
	}
	collectionOutput struct {
		Status int
		Body   struct {
			Key  string `json:"key"`
			TxID string `json:"txid" format:"uuid"`
		} `nameHint:"CollectionResult"`
	}
)

func (c *Control) registerCollections() {
	add(c, huma.Operation{OperationID: "writeCollection", Method: http.MethodPost, Path: entityPath + "/collections/{key}", Tags: []string{"entities"},
		Summary: "Write a row of a collection that its entity's type lets others write"}, routeOptions{},
		[]problem.Code{problem.NotFound, problem.UnknownEntityType, problem.Unauthorized, problem.Forbidden, problem.NotRunning, problem.SchemaValidationFailed,
			problem.PayloadTooLarge, problem.Overloaded}, c.writeCollection)
}

func (c *Control) writeCollection(ctx context.Context, in *collectionInput) (*collectionOutput, error) {
	who, b := from(ctx), &in.Body
	var details []problem.Detail
	if b.Key == "" && b.Operation != "insert" {
		details = append(details, problem.Detail{Path: "/key", Message: "is needed to update or delete"})
	}
	if len(b.Value) == 0 && b.Operation != "delete" {
		details = append(details, problem.Detail{Path: "/value", Message: "is needed to insert or update"})
	}
	if len(details) > 0 {
		return nil, invalidFields(details...)
	}
	gate, err := c.writable(ctx, &in.EntityRef)
	if err != nil {
		return nil, err
	}
	t, err := c.cfg.Store.EntityTypeGet(ctx, who.service, gate.Type)
	if err != nil && !errors.Is(err, store.ErrNoRow) {
		return nil, err
	}
	set, _ := collectionsOf(t.Collections) // what is stored was checked; nothing stored is no collection
	col, ok := set[in.Key]
	if !ok || !col.allows(b.Operation) {
		return nil, problem.New(problem.Forbidden, "The entity's type does not let others do this to a collection of this name.")
	}
	if b.Operation != "delete" {
		s, _, err := c.states.state(ctx, stateKey{who.service, in.url()}, true)
		if err != nil {
			return nil, err
		}
		if err := s.value(col.Type, b.Value); err != nil {
			return nil, err
		}
	}
	out := &collectionOutput{Status: http.StatusOK}
	if b.Operation == "insert" {
		out.Status = http.StatusCreated
	}
	if out.Body.Key = b.Key; b.Key == "" {
		out.Body.Key = uuid.NewString()
	}
	out.Body.TxID = uuid.NewString()
	var value any
	if b.Operation != "delete" {
		value = b.Value
	}
	row := staterow.Text(staterow.Headers{Operation: b.Operation, TxID: out.Body.TxID, Author: &staterow.Author{URL: who.principal(), Key: who.Key(), Kind: who.Kind, ID: who.ID}}, col.Type, out.Body.Key, value)
	_, err = c.tell(ctx, in.url(), row, true, nil)
	return out, err
}
