package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// EntityType is a type as clients see it.
type EntityType struct {
	Name                  string                     `json:"name"`
	Description           string                     `json:"description"`
	CreationSchema        json.RawMessage            `json:"creation_schema" doc:"JSON schema of the spawn arguments, or null."`
	InboxSchemas          map[string]json.RawMessage `json:"inbox_schemas" nullable:"true" doc:"Message type → JSON schema. null: anything goes; {}: no typed message."`
	StateSchemas          map[string]json.RawMessage `json:"state_schemas" nullable:"true"`
	SlashCommands         json.RawMessage            `json:"slash_commands,omitempty"`
	ServeEndpoint         string                     `json:"serve_endpoint,omitempty"`
	DefaultDispatchPolicy DispatchPolicy             `json:"default_dispatch_policy,omitempty"`
	PermissionGrants      json.RawMessage            `json:"permission_grants,omitempty"`
	Collections           json.RawMessage            `json:"externally_writable_collections,omitempty"`
	OwnerPrincipal        string                     `json:"owner_principal" doc:"Who registered it first."`
	Revision              int32                      `json:"revision"`
	CreatedAt             time.Time                  `json:"created_at"`
	UpdatedAt             time.Time                  `json:"updated_at"`
}

func typeOf(t store.EntityType) EntityType {
	out := EntityType{Name: t.Name, Description: t.Description, CreationSchema: t.CreationSchema, SlashCommands: t.SlashCommands,
		ServeEndpoint: t.ServeEndpoint, DefaultDispatchPolicy: DispatchPolicy(t.DefaultDispatchPolicy), PermissionGrants: t.PermissionGrants,
		Collections: t.Collections, OwnerPrincipal: t.Owner, Revision: t.Revision, CreatedAt: t.CreatedAt.UTC(), UpdatedAt: t.UpdatedAt.UTC()}
	if out.CreationSchema == nil {
		out.CreationSchema = json.RawMessage("null")
	}
	out.InboxSchemas, out.StateSchemas = schemaMap(t.InboxSchemas), schemaMap(t.StateSchemas)
	return out
}

func schemaMap(raw json.RawMessage) map[string]json.RawMessage {
	var m map[string]json.RawMessage
	if raw == nil || json.Unmarshal(raw, &m) != nil {
		return nil
	}
	return m
}

type typeBody struct {
	Body EntityType
}

type typePutInput struct {
	Service string `query:"service" doc:"The service; default is \"default\"."`
	Body    struct {
		Name                  string                     `json:"name" doc:"Begins neither with _ nor a dot and is no reserved name."`
		Description           *string                    `json:"description,omitempty" doc:"Required, unless the type is discovered at serve_endpoint."`
		CreationSchema        json.RawMessage            `json:"creation_schema,omitempty"`
		InboxSchemas          map[string]json.RawMessage `json:"inbox_schemas,omitempty"`
		StateSchemas          map[string]json.RawMessage `json:"state_schemas,omitempty" doc:"Event type → JSON schema of its value. With it, what a claim's holder appends must be of a listed type or one of the State Protocol's own, and match where listed."`
		SlashCommands         json.RawMessage            `json:"slash_commands,omitempty"`
		ServeEndpoint         string                     `json:"serve_endpoint,omitempty"`
		DefaultDispatchPolicy DispatchPolicy             `json:"default_dispatch_policy,omitempty"`
		PermissionGrants      json.RawMessage            `json:"permission_grants,omitempty"`
		Collections           json.RawMessage            `json:"externally_writable_collections,omitempty"`
	} `nameHint:"EntityTypePut"`
}

type typeNameInput struct {
	Service string `query:"service"`
	Name    string `path:"name"`
}

type typePatchInput struct {
	Service string `query:"service"`
	Name    string `path:"name"`
	Body    struct {
		InboxSchemas map[string]json.RawMessage `json:"inbox_schemas,omitempty"`
		StateSchemas map[string]json.RawMessage `json:"state_schemas,omitempty"`
	} `nameHint:"EntityTypeSchemas"`
}

type typeListInput struct {
	Service string `query:"service"`
}

type typeListOutput struct {
	Body []EntityType
}

type noContent struct{}

// typeAliases are the RFC's spellings of a registration.
var typeAliases = map[string]string{
	"entityType": "name", "defaultDispatchPolicy": "default_dispatch_policy", "creationSchema": "creation_schema",
	"inboxSchemas": "inbox_schemas", "stateSchemas": "state_schemas", "serveEndpoint": "serve_endpoint",
	"slashCommands": "slash_commands", "streamPrefix": "",
}

func (c *Control) registerTypes() {
	tags := []string{"entity types"}
	add(c, huma.Operation{OperationID: "putEntityType", Method: http.MethodPost, Path: "/_electric/entity-types", Tags: tags, DefaultStatus: 201,
		Summary: "Register or replace an entity type"}, routeOptions{aliases: typeAliases},
		[]problem.Code{problem.Unauthorized, problem.ServeEndpointFailed, problem.ServeEndpointMismatch, problem.InvalidTarget, problem.WebhookURLRejected, problem.PayloadTooLarge,
			problem.RunnerForbidden, problem.PoolForbidden},
		c.putType)
	add(c, huma.Operation{OperationID: "listEntityTypes", Method: http.MethodGet, Path: "/_electric/entity-types", Tags: tags,
		Summary: "The entity types the caller may spawn"}, routeOptions{}, nil, c.listTypes)
	add(c, huma.Operation{OperationID: "getEntityType", Method: http.MethodGet, Path: "/_electric/entity-types/{name}", Tags: tags,
		Summary: "An entity type"}, routeOptions{}, []problem.Code{problem.NotFound, problem.Unauthorized}, c.getType)
	add(c, huma.Operation{OperationID: "deleteEntityType", Method: http.MethodDelete, Path: "/_electric/entity-types/{name}", Tags: tags, DefaultStatus: 204,
		Summary: "Remove an entity type; its entities stay"}, routeOptions{}, []problem.Code{problem.NotFound, problem.Unauthorized}, c.deleteType)
	add(c, huma.Operation{OperationID: "patchEntityTypeSchemas", Method: http.MethodPatch, Path: "/_electric/entity-types/{name}/schemas", Tags: tags,
		Summary: "Add schemas to an entity type"}, routeOptions{aliases: map[string]string{"inboxSchemas": "inbox_schemas", "stateSchemas": "state_schemas"}},
		[]problem.Code{problem.NotFound, problem.Unauthorized, problem.SchemaKeyExists}, c.patchType)
}

func invalidFields(details ...problem.Detail) error {
	return problem.New(problem.InvalidRequest, "The request is not valid. See errors for the places.").WithDetails(details...)
}

// mayBeNull reads a member that clients also send as null.
func mayBeNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	return raw
}

func schemasJSON(m map[string]json.RawMessage) json.RawMessage {
	if m == nil {
		return nil
	}
	out, err := json.Marshal(m)
	if err != nil { // the values are JSON that was parsed before
		return nil
	}
	return out
}

func (c *Control) putType(ctx context.Context, in *typePutInput) (*typeBody, error) {
	who, b := from(ctx), &in.Body
	if why := checkTypeName(b.Name); why != "" {
		return nil, invalidFields(problem.Detail{Path: "/name", Message: why})
	}
	t := store.EntityType{Name: b.Name, ServeEndpoint: b.ServeEndpoint, CreationSchema: mayBeNull(b.CreationSchema),
		InboxSchemas: schemasJSON(b.InboxSchemas), StateSchemas: schemasJSON(b.StateSchemas), SlashCommands: mayBeNull(b.SlashCommands),
		Collections: mayBeNull(b.Collections)}
	if t.ServeEndpoint != "" {
		if u, err := url.Parse(t.ServeEndpoint); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || len(t.ServeEndpoint) > 2048 {
			return nil, invalidFields(problem.Detail{Path: "/serve_endpoint", Message: "must be an absolute http or https URL"})
		}
	}
	inbox, state := b.InboxSchemas, b.StateSchemas
	switch {
	case b.Description != nil:
		t.Description = *b.Description
	case t.ServeEndpoint != "" && t.CreationSchema == nil:
		m, err := c.discover(ctx, t.ServeEndpoint, b.Name)
		if err != nil {
			return nil, err
		}
		t.Description, t.CreationSchema = m.Description, mayBeNull(m.CreationSchema)
		if inbox == nil {
			inbox, t.InboxSchemas = m.InboxSchemas, schemasJSON(m.InboxSchemas)
		}
		if state == nil {
			state, t.StateSchemas = m.StateSchemas, schemasJSON(m.StateSchemas)
		}
	default:
		return nil, invalidFields(problem.Detail{Path: "/description", Message: "is required"})
	}
	var details []problem.Detail
	if len(t.Description) > 64<<10 {
		details = append(details, problem.Detail{Path: "/description", Message: "must be at most 65536 bytes"})
	}
	if t.CreationSchema != nil {
		details = append(details, c.schemas.checkSchema("/creation_schema", t.CreationSchema)...)
	}
	details = append(details, c.schemas.checkSchemas("/inbox_schemas", inbox)...)
	details = append(details, c.schemas.checkSchemas("/state_schemas", state)...)
	details = append(details, checkCommands("/slash_commands", t.SlashCommands)...)
	details = append(details, checkCollections("/externally_writable_collections", t.Collections)...)
	var bad []problem.Detail
	t.PermissionGrants, bad = parseGrants("/permission_grants", b.PermissionGrants, typePermissions)
	details = append(details, bad...)
	if len(details) > 0 {
		return nil, invalidFields(details...)
	}
	policy := b.DefaultDispatchPolicy
	if mayBeNull(json.RawMessage(policy)) == nil && t.ServeEndpoint != "" {
		target, err := json.Marshal(map[string]any{"targets": []any{map[string]string{"type": "webhook", "url": t.ServeEndpoint}}})
		if err != nil {
			return nil, err
		}
		policy = target
	}
	var err error
	if t.DefaultDispatchPolicy, err = c.checkPolicy(ctx, "/default_dispatch_policy", policy); err != nil {
		return nil, err
	}
	if err := c.mayTypeNamed(ctx, b.Name, mayManage); err != nil {
		return nil, err
	}
	if _, _, err := c.mayTarget(ctx, t.DefaultDispatchPolicy); err != nil {
		return nil, err
	}
	for range 3 {
		outcome, _, row, err := c.cfg.Store.EntityTypePut(ctx, who.service, who.principal(), who.trustedFor(mayManage, kindType, b.Name), t)
		switch {
		case err != nil:
			return nil, err
		case outcome == "forbidden":
			return nil, errMayNot(mayManage, "entity type")
		case outcome != "gone":
			c.states.forget()
			return &typeBody{Body: typeOf(row)}, nil
		}
	}
	return nil, problem.New(problem.Overloaded, "The type is being deleted and made at once by others. Try again.")
}

// maxCommands bounds a type's slash commands, which are rows of each entity.
const maxCommands = 100

// checkCommands refuses what cannot be a type's slash commands; raw may be nil.
func checkCommands(at string, raw json.RawMessage) []problem.Detail {
	if raw == nil {
		return nil
	}
	var list []map[string]json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) > maxCommands || len(raw) > maxSchema {
		return []problem.Detail{{Path: at, Message: fmt.Sprintf("must be a list of at most %d commands: {name, description, …}", maxCommands)}}
	}
	names := map[string]bool{}
	for i, c := range list {
		var name string
		if json.Unmarshal(c["name"], &name) != nil || name == "" || len(name) > 128 || names[name] {
			return []problem.Detail{{Path: fmt.Sprintf("%s/%d/name", at, i), Message: "must be a text of at most 128 bytes that no other command has"}}
		}
		names[name] = true
	}
	return nil
}

type manifest struct {
	Name           string                     `json:"name"`
	Description    string                     `json:"description"`
	CreationSchema json.RawMessage            `json:"creation_schema"`
	InboxSchemas   map[string]json.RawMessage `json:"inbox_schemas"`
	StateSchemas   map[string]json.RawMessage `json:"state_schemas"`
}

// discover asks a serve endpoint what the type is.
func (c *Control) discover(ctx context.Context, at, name string) (manifest, error) {
	var m manifest
	if c.cfg.Discover == nil {
		return m, problem.New(problem.ServeEndpointFailed, "This server asks no serve endpoints. Send a description.")
	}
	body, err := c.cfg.Discover.Discover(ctx, at)
	if err != nil {
		return m, problem.Wrap(problem.ServeEndpointFailed, err, "The serve endpoint did not answer with a manifest. Check that it runs and can be reached from here.")
	}
	if checkJSON(body) != nil || json.Unmarshal(body, &m) != nil {
		return m, problem.New(problem.ServeEndpointFailed, "The serve endpoint's answer is not a manifest.")
	}
	if m.Name != name {
		return m, problem.New(problem.ServeEndpointMismatch, "The serve endpoint announces another type's name.")
	}
	return m, nil
}

func (c *Control) listTypes(ctx context.Context, _ *typeListInput) (*typeListOutput, error) {
	who := from(ctx)
	rows, err := c.cfg.Store.EntityTypeList(ctx, who.service, "")
	if err != nil {
		return nil, err
	}
	if !who.trusted() && !c.cfg.OpenTypes {
		names := make([]string, len(rows))
		for i, t := range rows {
			names[i] = t.Name
		}
		if names, err = c.cfg.Store.EntityTypeAllowed(ctx, who.service, who.principal(), maySpawn, names); err != nil {
			return nil, err
		}
		rows = slices.DeleteFunc(rows, func(t store.EntityType) bool { return !slices.Contains(names, t.Name) })
	}
	out := &typeListOutput{Body: make([]EntityType, len(rows))}
	for i, t := range rows {
		out.Body[i] = typeOf(t)
	}
	return out, nil
}

var errTypeNotFound = problem.New(problem.NotFound, "There is no such entity type. Register it first.")

func (c *Control) getType(ctx context.Context, in *typeNameInput) (*typeBody, error) {
	who := from(ctx)
	t, err := c.cfg.Store.EntityTypeGet(ctx, who.service, in.Name)
	switch {
	case errors.Is(err, store.ErrNoRow):
		return nil, errTypeNotFound
	case err != nil:
		return nil, err
	}
	if ok, err := c.mayType(ctx, t, maySpawn); err != nil {
		return nil, err
	} else if !ok {
		return nil, errMayNot(maySpawn, "entity type")
	}
	return &typeBody{Body: typeOf(t)}, nil
}

// typeRefusal gives the outcomes that change nothing of a type or its grants their
// codes.
func typeRefusal(outcome string) error {
	switch outcome {
	case "not_found":
		return errTypeNotFound
	case "forbidden":
		return errMayNot(mayManage, "entity type")
	case "key_exists":
		return problem.New(problem.SchemaKeyExists, "Schemas are only added, and one of these keys exists. Leave it out, or use a new key.")
	case "too_many":
		return errTooManyGrants()
	case "no_grant":
		return errNoGrant
	}
	return nil
}

func (c *Control) deleteType(ctx context.Context, in *typeNameInput) (*noContent, error) {
	who := from(ctx)
	if err := c.mayTypeNamed(ctx, in.Name, mayManage); err != nil {
		return nil, err
	}
	outcome, _, err := c.cfg.Store.EntityTypeDelete(ctx, who.service, in.Name, who.principal(), who.trustedFor(mayManage, kindType, in.Name))
	if err == nil {
		err = typeRefusal(outcome)
	}
	if err != nil {
		return nil, err
	}
	c.states.forget()
	return &noContent{}, nil
}

func (c *Control) patchType(ctx context.Context, in *typePatchInput) (*typeBody, error) {
	who := from(ctx)
	details := c.schemas.checkSchemas("/inbox_schemas", in.Body.InboxSchemas)
	if details = append(details, c.schemas.checkSchemas("/state_schemas", in.Body.StateSchemas)...); len(details) > 0 {
		return nil, invalidFields(details...)
	}
	if err := c.mayTypeNamed(ctx, in.Name, mayManage); err != nil {
		return nil, err
	}
	outcome, _, t, err := c.cfg.Store.EntityTypePatchSchemas(ctx, who.service, in.Name, who.principal(), who.trustedFor(mayManage, kindType, in.Name),
		schemasJSON(in.Body.InboxSchemas), schemasJSON(in.Body.StateSchemas))
	if err == nil {
		err = typeRefusal(outcome)
	}
	if err != nil {
		return nil, err
	}
	c.states.forget()
	return &typeBody{Body: typeOf(t)}, nil
}
