package control

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// Entity is an entity as clients see it; times are milliseconds since 1970.
type Entity struct {
	URL            string            `json:"url"`
	Type           string            `json:"type"`
	Status         string            `json:"status" enum:"spawning,running,idle,paused,stopping,stopped,killed"`
	Streams        EntityStreams     `json:"streams"`
	DispatchPolicy DispatchPolicy    `json:"dispatch_policy,omitempty"`
	Tags           map[string]string `json:"tags"`
	SpawnArgs      json.RawMessage   `json:"spawn_args,omitempty"`
	Sandbox        json.RawMessage   `json:"sandbox,omitempty"`
	Parent         string            `json:"parent,omitempty"`
	CreatedBy      string            `json:"created_by,omitempty"`
	Collections    json.RawMessage   `json:"externally_writable_collections,omitempty"`
	CreatedAt      int64             `json:"created_at" doc:"Milliseconds since 1970."`
	UpdatedAt      int64             `json:"updated_at" doc:"Milliseconds since 1970."`
	Display        *EntityWords      `json:"display,omitempty" doc:"In a list that asks for it."`
}

// EntityWords are what a UI says about an entity.
type EntityWords struct {
	Code    string `json:"code"`
	Display string `json:"display"`
}

// EntityStreams are the paths of an entity's streams.
type EntityStreams struct {
	Main  string `json:"main"`
	Error string `json:"error" doc:"Where a runner's failures go; made at the first write."`
}

// EntityTx is an entity after a change, with the change's transaction id.
type EntityTx struct {
	Entity
	TxID int64 `json:"txid" doc:"The 32-bit id of the transaction, as a shape's headers.txids has it."`
}

func entityOf(e store.Entity) Entity {
	out := Entity{URL: e.URL, Type: e.Type, Status: e.Status, Streams: EntityStreams{e.URL + "/main", e.URL + "/error"},
		DispatchPolicy: DispatchPolicy(e.DispatchPolicy), SpawnArgs: e.SpawnArgs, Sandbox: e.Sandbox, Parent: e.Parent,
		CreatedBy: e.CreatedBy, CreatedAt: e.CreatedAt.UnixMilli(), UpdatedAt: e.UpdatedAt.UnixMilli()}
	if json.Unmarshal(e.Tags, &out.Tags) != nil || out.Tags == nil {
		out.Tags = map[string]string{}
	}
	return out
}

// EntityRef names an entity in a path.
type EntityRef struct {
	Service string `query:"service"`
	Type    string `path:"type" doc:"The first segment of the entity's url."`
	ID      string `path:"id" doc:"The rest of the entity's url; it may hold slashes, escaped or not."`
}

func (in *EntityRef) url() string {
	if in.Type == principalType {
		// Its id is a principal's key, which urls hold escaped.
		if p, err := auth.Parse(in.ID); err == nil {
			return p.URL()
		}
	}
	return "/" + in.Type + "/" + in.ID
}

type entityTxOutput struct {
	Body EntityTx
}

type entityOutput struct {
	Body Entity
}

type txidOutput struct {
	Body struct {
		TxID int64 `json:"txid"`
	} `nameHint:"Txid"`
}

type listInput struct {
	Service   string `query:"service"`
	Type      string `query:"type"`
	Status    string `query:"status"`
	Parent    string `query:"parent"`
	CreatedBy string `query:"created_by"`
	Limit     int    `query:"limit" minimum:"1" maximum:"1000" default:"1000"`
	Display   bool   `query:"display" doc:"Each with what a UI says about it."`
	Cursor    string `query:"cursor" doc:"From the header Electric-Next-Cursor of the page before."`
}

type listOutput struct {
	NextCursor string `header:"Electric-Next-Cursor" doc:"Where the next page begins; absent on the last page."`
	Body       []Entity
}

type tagInput struct {
	EntityRef
	Key  string `path:"key"`
	Body struct {
		Value string `json:"value"`
	} `nameHint:"TagValue"`
}

type tagKeyInput struct {
	EntityRef
	Key string `path:"key"`
}

const entityPath = "/_electric/entities/{type}/{id}"

func (c *Control) registerEntities() {
	tags := []string{"entities"}
	absent := []problem.Code{problem.NotFound, problem.UnknownEntityType, problem.Unauthorized}
	add(c, huma.Operation{OperationID: "listEntities", Method: http.MethodGet, Path: "/_electric/entities", Tags: tags,
		Summary: "Entities the caller may see, newest first"}, routeOptions{}, nil, c.listEntities)
	add(c, huma.Operation{OperationID: "spawnEntity", Method: http.MethodPut, Path: entityPath, Tags: tags, DefaultStatus: 201,
		Summary: "Spawn an entity"}, routeOptions{aliases: spawnAliases},
		append([]problem.Code{problem.DuplicateURL, problem.StreamExists, problem.NotRunning, problem.SchemaValidationFailed, problem.UnknownMessageType,
			problem.RunnerForbidden, problem.PoolForbidden, problem.InvalidTarget, problem.WebhookURLRejected, problem.PayloadTooLarge}, absent...), c.spawn)
	add(c, huma.Operation{OperationID: "getEntity", Method: http.MethodGet, Path: entityPath, Tags: tags, Summary: "An entity"},
		routeOptions{}, absent, c.getEntity)
	add(c, huma.Operation{OperationID: "headEntity", Method: http.MethodHead, Path: entityPath, Tags: tags, Summary: "Whether an entity exists"},
		routeOptions{}, absent, func(ctx context.Context, in *EntityRef) (*noContent, error) {
			_, err := c.getEntity(ctx, in)
			return &noContent{}, err
		})
	add(c, huma.Operation{OperationID: "killEntity", Method: http.MethodDelete, Path: entityPath, Tags: tags,
		Summary: "Kill an entity (SIGKILL)"}, routeOptions{}, append([]problem.Code{problem.InvalidSignal}, absent...), c.kill)
	add(c, huma.Operation{OperationID: "signalEntity", Method: http.MethodPost, Path: entityPath + "/signal", Tags: tags,
		Summary: "Signal an entity"}, routeOptions{}, append([]problem.Code{problem.InvalidSignal}, absent...), c.signal)
	add(c, huma.Operation{OperationID: "putEntityTag", Method: http.MethodPost, Path: entityPath + "/tags/{key}", Tags: tags,
		Summary: "Set a tag"}, routeOptions{}, append([]problem.Code{problem.NotRunning}, absent...), c.putTag)
	add(c, huma.Operation{OperationID: "deleteEntityTag", Method: http.MethodDelete, Path: entityPath + "/tags/{key}", Tags: tags,
		Summary: "Remove a tag"}, routeOptions{}, append([]problem.Code{problem.NotRunning}, absent...), c.deleteTag)
}

// entity loads an entity the caller may read, or says which 404 it is.
func (c *Control) entity(ctx context.Context, in *EntityRef) (store.Entity, error) {
	return c.entityFor(ctx, in, mayRead)
}

// absent tells an unknown entity from one of an unknown type.
func (c *Control) absent(ctx context.Context, service int32, typ string) error {
	if typ == principalType {
		return errEntityNotFound
	}
	_, err := c.cfg.Store.EntityTypeGet(ctx, service, typ)
	if errors.Is(err, store.ErrNoRow) {
		return unknownType(typ)
	} else if err != nil {
		return err
	}
	return errEntityNotFound
}

// entityRefusal gives the outcomes that change nothing of an entity, its grants
// or attachments, for want of a permission or otherwise, their codes.
func (c *Control) entityRefusal(ctx context.Context, in *EntityRef, permission, outcome string) error {
	switch outcome {
	case "not_found":
		return c.absent(ctx, from(ctx).service, in.Type)
	case "forbidden":
		return errMayNot(permission, "entity")
	case "not_running":
		return errNotRunning
	case "too_many":
		return errTooManyGrants()
	case "no_grant":
		return errNoGrant
	case "no_attachment":
		return errNoAttachment
	}
	return nil
}

// unknownType words its refusal as the ecosystem's servers do: people and their
// scripts look for it.
func unknownType(name string) error {
	if checkTypeName(name) != "" {
		return errUnknownType
	}
	return problem.Newf(problem.UnknownEntityType, "Entity type %q not found. Register it first.", name)
}

var (
	errUnknownType    = problem.New(problem.UnknownEntityType, "There is no such entity type. Register it first.")
	errEntityNotFound = problem.New(problem.NotFound, "There is no such entity. Spawn it first.")
	errNotRunning     = problem.New(problem.NotRunning, "The entity is stopped or stopping.")
)

// encodeCursor and decodeCursor carry a page's last row.
func encodeCursor(e store.Entity) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(e.CreatedAt.UnixMicro(), 10) + " " + e.URL))
}

func decodeCursor(s string) (at time.Time, url string, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(s)
	micros, url, found := strings.Cut(string(raw), " ")
	n, perr := strconv.ParseInt(micros, 10, 64)
	if err != nil || !found || perr != nil || n < 0 || n > 1<<53 || storable(url) != "" {
		return at, "", false
	}
	return time.UnixMicro(n), url, true
}

func (c *Control) listEntities(ctx context.Context, in *listInput) (*listOutput, error) {
	who := from(ctx)
	f := store.EntityFilter{Type: in.Type, Status: in.Status, Parent: in.Parent, CreatedBy: in.CreatedBy, Limit: in.Limit + 1}
	for name, v := range map[string]string{"type": in.Type, "status": in.Status, "parent": in.Parent, "created_by": in.CreatedBy} {
		if why := storable(v); why != "" {
			return nil, invalidFields(problem.Detail{Path: "query." + name, Message: why})
		}
	}
	if !who.trusted() {
		f.VisibleTo = who.principal()
	}
	if in.Type == principalType {
		if err := c.ensurePrincipal(ctx, &EntityRef{ID: who.Key()}); err != nil {
			return nil, err
		}
	}
	if in.Cursor != "" {
		var ok bool
		if f.BeforeAt, f.BeforeURL, ok = decodeCursor(in.Cursor); !ok {
			return nil, invalidFields(problem.Detail{Path: "query.cursor", Message: "is not one the server handed out"})
		}
	}
	rows, err := c.cfg.Store.EntityList(ctx, who.service, f)
	if err != nil {
		return nil, err
	}
	out := &listOutput{}
	if len(rows) > in.Limit {
		rows = rows[:in.Limit]
		out.NextCursor = encodeCursor(rows[in.Limit-1])
	}
	out.Body = make([]Entity, len(rows))
	at := make(map[string]int, len(rows))
	for i, e := range rows {
		out.Body[i], at[e.URL] = entityOf(e), i
	}
	if !in.Display || len(rows) == 0 {
		return out, nil
	}
	err = c.cfg.Store.EntityDisplays(ctx, who.service, slices.Collect(maps.Keys(at)), func(url, code, display string) {
		out.Body[at[url]].Display = &EntityWords{code, display}
	})
	return out, err
}

func (c *Control) getEntity(ctx context.Context, in *EntityRef) (*entityOutput, error) {
	e, err := c.entity(ctx, in)
	if err != nil {
		return nil, err
	}
	out := &entityOutput{Body: entityOf(e)}
	if t, err := c.cfg.Store.EntityTypeGet(ctx, from(ctx).service, e.Type); err == nil {
		out.Body.Collections = t.Collections
	} else if !errors.Is(err, store.ErrNoRow) {
		return nil, err
	}
	return out, nil
}
