package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

const (
	// maxCarried bounds an entity's arguments and its sandbox, in bytes each.
	maxCarried = 256 << 10
	// maxTags bounds the tags of an entity; entity_tag_put has it too.
	maxTags = 64
)

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
			why = fmt.Sprintf("The plain stream %s has the name of a stream of this entity. Fork it if it is wanted, delete it and try again, or choose another url.", name)
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

// isObject says whether raw is a JSON object.
func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }
