package control

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/staterow"
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

type spawnInput struct {
	EntityRef
	Body struct {
		Args               json.RawMessage   `json:"args,omitempty" doc:"An object, checked against the type's creation_schema."`
		Tags               map[string]string `json:"tags,omitempty"`
		Parent             string            `json:"parent,omitempty" doc:"Url of the parent, whose dispatch policy is inherited."`
		DispatchPolicy     DispatchPolicy    `json:"dispatch_policy,omitempty" doc:"Fixed at spawn."`
		Sandbox            json.RawMessage   `json:"sandbox,omitempty"`
		InitialMessage     json.RawMessage   `json:"initialMessage,omitempty" doc:"A first message's payload."`
		InitialMessageType string            `json:"initialMessageType,omitempty"`
		Wake               *SpawnWake        `json:"wake,omitempty" doc:"Wakes another entity by what happens on this one, from its first moment."`
		Grants             json.RawMessage   `json:"grants,omitempty" doc:"Grants on the new entity, as in POST …/grants. A child's broad ones (manage, to a kind, for descendants or children) need manage on its parent."`
	} `nameHint:"SpawnRequest"`
}

var spawnAliases = map[string]string{
	"dispatchPolicy": "dispatch_policy", "initial_message": "initialMessage", "initial_message_type": "initialMessageType",
	"spawnArgs": "args", "spawn_args": "args",
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

type signalInput struct {
	EntityRef
	Body struct {
		Signal  string          `json:"signal" enum:"SIGINT,SIGHUP,SIGTERM,SIGKILL,SIGSTOP,SIGCONT,SIGUSR"`
		Reason  string          `json:"reason,omitempty" maxLength:"4096"`
		Payload json.RawMessage `json:"payload,omitempty"`
	} `nameHint:"SignalRequest"`
}

type signalOutput struct {
	Body struct {
		URL           string `json:"url"`
		Signal        string `json:"signal"`
		PreviousState string `json:"previous_state"`
		NewState      string `json:"new_state"`
		CreatedAt     int64  `json:"created_at" doc:"Milliseconds since 1970."`
		TxID          int64  `json:"txid"`
	} `nameHint:"SignalResult"`
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

const (
	// maxCarried bounds an entity's arguments and its sandbox, in bytes each.
	maxCarried = 256 << 10
	// maxTags bounds the tags of an entity; entity_tag_put has it too.
	maxTags = 64
)

// isObject says whether raw is a JSON object.
func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

func (c *Control) spawn(ctx context.Context, in *spawnInput) (*entityTxOutput, error) {
	who, b, url := from(ctx), &in.Body, in.url()
	if in.Type == principalType {
		return nil, errPrincipalEntity
	}
	if why := checkEntityURL(in.Type, in.ID); why != "" {
		return nil, problem.Newf(problem.InvalidPath, "This url cannot be an entity's: %s.", why)
	}
	var details []problem.Detail
	args := mayBeNull(b.Args)
	if args != nil && !isObject(args) {
		details = append(details, problem.Detail{Path: "/args", Message: "must be an object"})
	}
	sandbox := mayBeNull(b.Sandbox)
	if sandbox != nil && !isObject(sandbox) {
		details = append(details, problem.Detail{Path: "/sandbox", Message: "must be an object"})
	}
	// What an entity carries is copied into every wake it ever gets.
	if len(args) > maxCarried {
		details = append(details, problem.Detail{Path: "/args", Message: fmt.Sprintf("must be at most %d bytes; send more as messages", maxCarried)})
	}
	if len(sandbox) > maxCarried {
		details = append(details, problem.Detail{Path: "/sandbox", Message: fmt.Sprintf("must be at most %d bytes", maxCarried)})
	}
	if len(b.Tags) > maxTags {
		details = append(details, problem.Detail{Path: "/tags", Message: fmt.Sprintf("must be at most %d", maxTags)})
	}
	for k, v := range b.Tags {
		if why := checkTag(k, v); why != "" {
			details = append(details, problem.Detail{Path: jsonPointer("/tags", []string{k}), Message: why})
		}
	}
	if why := storable(b.Parent); why != "" {
		details = append(details, problem.Detail{Path: "/parent", Message: why})
	}
	grants, bad := parseGrants("/grants", b.Grants, entityPermissions)
	details = append(details, bad...)
	wake, bad := spawnWake(who, url, b.Wake)
	if details = append(details, bad...); len(details) > 0 {
		return nil, invalidFields(details...)
	}
	if err := c.mayWake(ctx, wake); err != nil {
		return nil, err
	}
	policy, err := c.checkPolicy(ctx, "/dispatch_policy", b.DispatchPolicy)
	if err != nil {
		return nil, err
	}
	tags, err := json.Marshal(b.Tags)
	if err != nil {
		return nil, err
	}
	if b.Tags == nil {
		tags = []byte("{}")
	}
	allowed, err := c.maySpawnOf(ctx, in.Type, b.Parent, policy, grants)
	if err != nil {
		return nil, err
	}
	// The arguments are checked against one revision of the type; when that has
	// moved by the time of the transaction, they are checked again.
	for range 4 {
		t, err := c.cfg.Store.EntityTypeGet(ctx, who.service, in.Type)
		if errors.Is(err, store.ErrNoRow) {
			return nil, unknownType(in.Type)
		} else if err != nil {
			return nil, err
		}
		if args != nil && t.CreationSchema != nil {
			if err := c.schemas.validate(t.CreationSchema, args, "/args", "the spawn arguments"); err != nil {
				return nil, err
			}
		}
		req := store.SpawnRequest{Service: who.service, URL: url, Type: in.Type, TypeRevision: t.Revision, Principal: who.principal(),
			System: allowed.system, Open: allowed.open, Args: args, Tags: tags, Parent: b.Parent, Policy: policy, Sandbox: sandbox,
			Grants: grants, Wake: wake, Created: createdEvent(in.Type, args, b.Parent), Lease: c.cfg.Lease, WakeAfter: c.cfg.WakeAfter}
		if len(b.InitialMessage) > 0 {
			m := staterow.Message{Type: b.InitialMessageType, Payload: b.InitialMessage, From: who.principal(), Mode: "immediate"}
			if err := c.checkMessage(t.InboxSchemas, m, "/initialMessage", "/initialMessageType"); err != nil {
				return nil, err
			}
			req.Message, _, _ = m.Row(time.Now())
		}
		res, err := c.cfg.Store.EntitySpawn(ctx, req)
		if err != nil {
			return nil, err
		}
		if res.Outcome == "spawned" {
			c.cfg.Changed()
			if wake != nil {
				c.cfg.Poke()
			}
			return &entityTxOutput{Body: EntityTx{entityOf(res.Entity), res.TxID}}, nil
		}
		if res.Outcome == "path_taken" {
			return nil, c.taken(ctx, url)
		}
		if res.Outcome != "type_changed" {
			return nil, spawnRefusal(res.Outcome, policy)
		}
	}
	return nil, problem.New(problem.Overloaded, "The entity type keeps changing. Try again.")
}

// taken says which plain stream stands where an entity's would. Its content is
// somebody else's, so it is never made the entity's.
func (c *Control) taken(ctx context.Context, url string) error {
	for _, name := range []string{url + "/main", url + "/error"} {
		m, err := c.cfg.Store.StreamHead(ctx, from(ctx).service, streamName(name))
		if err != nil {
			return err
		}
		why := ""
		switch {
		case m.Kind != "app" || m.Outcome == store.NotFound:
			continue
		case m.Outcome == store.Gone:
			why = fmt.Sprintf("The plain stream %s has the name of a stream of this entity. It is deleted, but forks of it still read it: delete those, or choose another url.", name)
		default:
			why = fmt.Sprintf("The plain stream %s has the name of a stream of this entity. Fork it if it is wanted, delete it and spawn again, or choose another url.", name)
		}
		return problem.New(problem.StreamExists, why).WithMeta("stream", name)
	}
	return spawnRefusal("path_taken", nil)
}

func spawnRefusal(outcome string, policy json.RawMessage) error {
	switch outcome {
	case "duplicate":
		return problem.New(problem.DuplicateURL, "An entity with this url exists, perhaps a stopped one: urls are not used twice.")
	case "path_taken":
		return problem.New(problem.StreamExists, "A plain stream has the name of this entity's main or error stream. Delete it, or choose another url.")
	case "unknown_type":
		return errUnknownType
	case "type_forbidden":
		return problem.New(problem.Unauthorized, "You may not spawn this entity type. Its registrar can, and can grant it.")
	case "parent_not_found":
		return problem.New(problem.NotFound, "There is no such parent entity.").WithDetails(problem.Detail{Path: "/parent", Message: "does not exist"})
	case "parent_forbidden":
		return errMayNot(maySpawn, "parent entity")
	case "grants_forbidden":
		return problem.New(problem.Unauthorized, "Grants this broad need the permission manage on the parent entity.").
			WithDetails(problem.Detail{Path: "/grants", Message: "needs manage on the parent"})
	case "parent_not_running":
		return problem.New(problem.NotRunning, "The parent entity is stopped.")
	}
	if err := targetRefusal(outcome, policy); err != nil {
		return err
	}
	return problem.Wrap(problem.Internal, errors.New("unexpected spawn outcome "+outcome), "The spawn gave an unexpected answer.")
}

// createdEvent is the first row of every entity's stream.
func createdEvent(typ string, args json.RawMessage, parent string) string {
	return staterow.Text(staterow.Headers{Operation: "insert"}, "entity_created", "entity-created", createdValue(typ, args, parent, time.Now()))
}

func createdValue(typ string, args json.RawMessage, parent string, at time.Time) any {
	if args == nil {
		args = emptyObject
	}
	return struct {
		EntityType string          `json:"entity_type"`
		Timestamp  string          `json:"timestamp"`
		Args       json.RawMessage `json:"args"`
		ParentURL  string          `json:"parent_url,omitempty"`
	}{typ, staterow.Time(at), args, parent}
}

// storable says why a text of a query or path cannot be stored, or "".
func storable(s string) string {
	switch {
	case len(s) > maxPath:
		return "is too long"
	case strings.IndexByte(s, 0) >= 0:
		return "holds a NUL character"
	case strings.ToValidUTF8(s, "") != s:
		return "is not valid UTF-8"
	}
	return ""
}

func (c *Control) sendSignal(ctx context.Context, in *EntityRef, permission, signal, reason string, payload json.RawMessage) (store.SignalResult, error) {
	if in.Type == principalType {
		return store.SignalResult{}, errPrincipalEntity
	}
	if _, err := c.entityFor(ctx, in, permission); err != nil {
		return store.SignalResult{}, err
	}
	who := from(ctx)
	res, err := c.cfg.Store.EntitySignal(ctx, who.service, in.url(), who.principal(), signal, "sig-"+staterow.RandomID(), reason, payload)
	switch {
	case err != nil:
		return res, err
	case res.Outcome == "not_found":
		return res, errEntityNotFound
	case res.Outcome == "terminal":
		return res, problem.New(problem.InvalidSignal, "The entity is stopped for good; it takes no signals.")
	}
	c.cfg.Changed()
	return res, nil
}

func (c *Control) kill(ctx context.Context, in *EntityRef) (*txidOutput, error) {
	res, err := c.sendSignal(ctx, in, mayDelete, "SIGKILL", "", nil)
	if err != nil {
		return nil, err
	}
	out := &txidOutput{}
	out.Body.TxID = res.TxID
	return out, nil
}

func (c *Control) signal(ctx context.Context, in *signalInput) (*signalOutput, error) {
	res, err := c.sendSignal(ctx, &in.EntityRef, maySignal, in.Body.Signal, in.Body.Reason, mayBeNull(in.Body.Payload))
	if err != nil {
		return nil, err
	}
	out := &signalOutput{}
	b := &out.Body
	b.URL, b.Signal, b.PreviousState, b.NewState = in.url(), in.Body.Signal, res.PreviousState, res.NewState
	b.CreatedAt, b.TxID = res.CreatedAt.UnixMilli(), res.TxID
	return out, nil
}

var errNotRunning = problem.New(problem.NotRunning, "The entity is stopped or stopping.")
