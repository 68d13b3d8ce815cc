package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

// What one may do to an entity; manage implies all. Types know spawn and manage.
const (
	mayRead     = "read"
	mayWrite    = "write"
	mayDelete   = "delete"
	maySignal   = "signal"
	mayFork     = "fork"
	maySchedule = "schedule"
	maySpawn    = "spawn"
	mayManage   = "manage"
)

// maxGrants bounds the grants of one request.
const maxGrants = 100

// GrantRequest is one grant as clients give it.
type GrantRequest struct {
	SubjectKind    string `json:"subject_kind" enum:"principal,principal_kind"`
	SubjectValue   string `json:"subject_value" minLength:"1" maxLength:"1024" doc:"A principal, as kind:id or its URL; or a kind: user, agent, service, system."`
	Permission     string `json:"permission" enum:"read,write,delete,signal,fork,schedule,spawn,manage" doc:"manage implies all. Types know spawn and manage."`
	Propagation    string `json:"propagation,omitempty" enum:"self,descendants" doc:"Whether it holds for the entity's descendants too, those to come included."`
	CopyToChildren bool   `json:"copy_to_children,omitempty" doc:"A child gets a grant of its own like this when it is spawned."`
	ExpiresAt      string `json:"expires_at,omitempty" maxLength:"64" doc:"RFC 3339 time, by the database's clock, from which it does not count any more."`
}

// TypeGrantRequest is one grant on an entity type.
type TypeGrantRequest struct {
	SubjectKind  string `json:"subject_kind" enum:"principal,principal_kind"`
	SubjectValue string `json:"subject_value" minLength:"1" maxLength:"1024" doc:"A principal, as kind:id or its URL; or a kind: user, agent, service, system."`
	Permission   string `json:"permission" enum:"spawn,manage"`
	ExpiresAt    string `json:"expires_at,omitempty" maxLength:"64"`
}

// grantRow is a grant as the database takes it.
type grantRow struct {
	Permission     string     `json:"permission"`
	SubjectKind    string     `json:"subject_kind"`
	SubjectValue   string     `json:"subject_value"`
	Propagation    string     `json:"propagation,omitempty"`
	CopyToChildren bool       `json:"copy_to_children,omitempty"`
	ExpiresAt      *time.Time `json:"expires_at,omitempty"`
}

var (
	entityPermissions = []string{mayRead, mayWrite, mayDelete, maySignal, mayFork, maySchedule, maySpawn, mayManage}
	typePermissions   = []string{maySpawn, mayManage}
	principalKinds    = []string{auth.User, auth.Agent, auth.Service, auth.System}
)

// row checks a grant and brings it into its canonical form; at is its place in
// the body.
func (g GrantRequest) row(at string, permissions []string) (grantRow, []problem.Detail) {
	var details []problem.Detail
	refuse := func(member, why string) {
		details = append(details, problem.Detail{Path: at + "/" + member, Message: why})
	}
	r := grantRow{Permission: g.Permission, SubjectKind: g.SubjectKind, SubjectValue: g.SubjectValue, Propagation: g.Propagation, CopyToChildren: g.CopyToChildren}
	if !slices.Contains(permissions, g.Permission) {
		refuse("permission", "is not one of the permissions that can be granted here")
	}
	switch g.SubjectKind {
	case "principal":
		p, err := auth.Parse(g.SubjectValue)
		if err != nil {
			refuse("subject_value", "must be a principal: kind:id, or its URL")
		} else {
			r.SubjectValue = p.URL()
		}
	case "principal_kind":
		if !slices.Contains(principalKinds, g.SubjectValue) {
			refuse("subject_value", "must be user, agent, service or system")
		}
	default:
		refuse("subject_kind", "must be principal or principal_kind")
	}
	if g.Propagation != "" && g.Propagation != "self" && g.Propagation != "descendants" {
		refuse("propagation", "must be self or descendants")
	}
	if g.ExpiresAt != "" {
		t, err := time.Parse(time.RFC3339Nano, g.ExpiresAt)
		if t = t.UTC(); err != nil || t.Year() < 1970 || t.Year() > 9999 {
			refuse("expires_at", "must be an RFC 3339 time")
		} else {
			r.ExpiresAt = &t
		}
	}
	return r, details
}

// parseGrants reads a list of grants that may be null or absent, into the JSON
// the database takes.
func parseGrants(at string, raw json.RawMessage, permissions []string) (json.RawMessage, []problem.Detail) {
	if raw = mayBeNull(raw); raw == nil {
		return nil, nil
	}
	var list []GrantRequest
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&list); err != nil {
		return nil, []problem.Detail{{Path: at, Message: "must be a list of grants: {subject_kind, subject_value, permission, …}"}}
	}
	if len(list) > maxGrants {
		return nil, []problem.Detail{{Path: at, Message: fmt.Sprintf("must be at most %d", maxGrants)}}
	}
	var details []problem.Detail
	rows := make([]grantRow, len(list))
	for i, g := range list {
		var bad []problem.Detail
		rows[i], bad = g.row(fmt.Sprintf("%s/%d", at, i), permissions)
		if len(permissions) == len(typePermissions) && (g.Propagation != "" || g.CopyToChildren) {
			bad = append(bad, problem.Detail{Path: fmt.Sprintf("%s/%d", at, i), Message: "propagates to nothing: a type has no children"})
		}
		details = append(details, bad...)
	}
	if len(details) > 0 {
		return nil, details
	}
	out, err := json.Marshal(rows)
	if err != nil {
		return nil, []problem.Detail{{Path: at, Message: "cannot be stored"}}
	}
	return out, nil
}

// Grant is a grant as clients see it.
type Grant struct {
	ID             int64  `json:"id"`
	EntityURL      string `json:"entity_url,omitempty"`
	EntityType     string `json:"entity_type,omitempty"`
	SubjectKind    string `json:"subject_kind"`
	SubjectValue   string `json:"subject_value"`
	Permission     string `json:"permission"`
	Propagation    string `json:"propagation,omitempty"`
	CopyToChildren *bool  `json:"copy_to_children,omitempty"`
	CreatedBy      string `json:"created_by"`
	ExpiresAt      string `json:"expires_at,omitempty"`
	CreatedAt      string `json:"created_at"`
	UpdatedAt      string `json:"updated_at"`
}

func grantOf(g store.Grant) Grant {
	out := Grant{ID: g.ID, EntityURL: g.On, SubjectKind: g.SubjectKind, SubjectValue: g.SubjectValue, Permission: g.Permission,
		Propagation: g.Propagation, CopyToChildren: &g.CopyToChildren, CreatedBy: g.CreatedBy, CreatedAt: staterow.Time(g.CreatedAt), UpdatedAt: staterow.Time(g.UpdatedAt)}
	if g.ExpiresAt != nil {
		out.ExpiresAt = staterow.Time(*g.ExpiresAt)
	}
	if g.Propagation == "" { // on a type
		out.EntityURL, out.EntityType, out.CopyToChildren = "", g.On, nil
	}
	return out
}

// TypeRef names an entity type in a path.
type TypeRef struct {
	Service string `query:"service"`
	Name    string `path:"name"`
}

type (
	grantListOutput struct {
		Body struct {
			Grants []Grant `json:"grants"`
		} `nameHint:"GrantList"`
	}
	grantOutput   struct{ Body Grant }
	grantPutInput struct {
		EntityRef
		Body GrantRequest
	}
	grantRefInput struct {
		EntityRef
		Key string `path:"key" doc:"The grant's id."`
	}
	typeGrantPutInput struct {
		TypeRef
		Body TypeGrantRequest
	}
	typeGrantRefInput struct {
		TypeRef
		Grant string `path:"grant" doc:"The grant's id."`
	}
)

func (c *Control) registerGrants() {
	absent := []problem.Code{problem.NotFound, problem.UnknownEntityType, problem.Unauthorized}
	tags := []string{"entities"}
	add(c, huma.Operation{OperationID: "listEntityGrants", Method: http.MethodGet, Path: entityPath + "/grants", Tags: tags,
		Summary: "The grants on an entity"}, routeOptions{}, absent, c.listGrants)
	add(c, huma.Operation{OperationID: "putEntityGrant", Method: http.MethodPost, Path: entityPath + "/grants", Tags: tags, DefaultStatus: 201,
		Summary: "Grant a permission on an entity"}, routeOptions{}, absent, c.putGrant)
	add(c, huma.Operation{OperationID: "deleteEntityGrant", Method: http.MethodDelete, Path: entityPath + "/grants/{key}", Tags: tags, DefaultStatus: 204,
		Summary: "Take a grant back"}, routeOptions{}, absent, c.deleteGrant)
	tags = []string{"entity types"}
	const at = "/_electric/entity-types/{name}/grants"
	absent = []problem.Code{problem.NotFound, problem.Unauthorized}
	add(c, huma.Operation{OperationID: "listEntityTypeGrants", Method: http.MethodGet, Path: at, Tags: tags,
		Summary: "The grants on an entity type"}, routeOptions{}, absent, c.listTypeGrants)
	add(c, huma.Operation{OperationID: "putEntityTypeGrant", Method: http.MethodPost, Path: at, Tags: tags, DefaultStatus: 201,
		Summary: "Grant a permission on an entity type"}, routeOptions{}, absent, c.putTypeGrant)
	add(c, huma.Operation{OperationID: "deleteEntityTypeGrant", Method: http.MethodDelete, Path: at + "/{grant}", Tags: tags, DefaultStatus: 204,
		Summary: "Take a grant on an entity type back"}, routeOptions{}, absent, c.deleteTypeGrant)
}

// subject is the principal that permissions are looked up for: empty for those
// that pass every check.
func (c *caller) subject() string {
	if c.trusted() {
		return ""
	}
	return c.principal()
}

func errMayNot(permission, what string) error {
	return problem.Newf(problem.Unauthorized, "You may not do this to the %s: it needs the permission %s, which its owner can grant.", what, permission)
}

// entityFor loads an entity to which the caller may do permission, or says which
// refusal it is.
func (c *Control) entityFor(ctx context.Context, in *EntityRef, permission string) (store.Entity, error) {
	who := from(ctx)
	if why := storable(in.url()); why != "" {
		return store.Entity{}, problem.Newf(problem.InvalidPath, "The path %s.", why)
	}
	e, allowed, err := c.access(ctx, in, permission)
	switch {
	case errors.Is(err, store.ErrNoRow):
		return e, c.absent(ctx, who.service, in.Type)
	case err != nil:
		return e, err
	}
	if allowed, err = c.may(ctx, permission, "entity", in.url(), allowed); err != nil {
		return e, err
	}
	if !allowed {
		return e, errMayNot(permission, "entity")
	}
	return e, nil
}

// mayType says whether the caller has a permission on an entity type.
func (c *Control) mayType(ctx context.Context, t store.EntityType, permission string) (bool, error) {
	who := from(ctx)
	allowed := who.Owns(t.Owner) || permission == maySpawn && c.cfg.OpenTypes
	if !allowed {
		got, err := c.cfg.Store.EntityTypeAllowed(ctx, who.service, who.principal(), permission, []string{t.Name})
		if err != nil {
			return false, err
		}
		allowed = len(got) > 0
	}
	return c.may(ctx, permission, "type", t.Name, allowed)
}

func (c *Control) listGrants(ctx context.Context, in *EntityRef) (*grantListOutput, error) {
	if _, err := c.entityFor(ctx, in, mayManage); err != nil {
		return nil, err
	}
	rows, err := c.cfg.Store.GrantList(ctx, from(ctx).service, in.url())
	return grantList(rows), err
}

func grantList(rows []store.Grant) *grantListOutput {
	out := &grantListOutput{}
	out.Body.Grants = make([]Grant, len(rows))
	for i, g := range rows {
		out.Body.Grants[i] = grantOf(g)
	}
	return out
}

func errTooManyGrants() error {
	return problem.New(problem.InvalidRequest, "There are a thousand grants here already. Take some back, or grant to a kind of principals.")
}

func (c *Control) putGrant(ctx context.Context, in *grantPutInput) (*grantOutput, error) {
	row, details := in.Body.row("", entityPermissions)
	if len(details) > 0 {
		return nil, invalidFields(details...)
	}
	raw, err := json.Marshal(row)
	if err != nil {
		return nil, err
	}
	who, url := from(ctx), in.url()
	// Asked of those whom only the gateway can ask, and decided again with the write.
	if _, err := c.entityFor(ctx, &in.EntityRef, mayManage); err != nil {
		return nil, err
	}
	outcome, g, err := c.cfg.Store.GrantPut(ctx, who.service, url, who.subjectFor(mayManage, kindEntity, url), who.principal(), raw)
	if err == nil {
		err = c.entityRefusal(ctx, &in.EntityRef, mayManage, outcome)
	}
	if err != nil {
		return nil, err
	}
	return &grantOutput{grantOf(g)}, nil
}

// grantID reads the id of a grant in a path.
func grantID(s string) (int64, error) {
	id, err := strconv.ParseInt(s, 10, 64)
	if err != nil || id <= 0 {
		return 0, problem.New(problem.InvalidRequest, "A grant's id is a positive number.").
			WithDetails(problem.Detail{Path: "path.grant", Message: "must be a positive number"})
	}
	return id, nil
}

var errNoGrant = problem.New(problem.NotFound, "There is no such grant here.")

func (c *Control) deleteGrant(ctx context.Context, in *grantRefInput) (*noContent, error) {
	id, err := grantID(in.Key)
	if err != nil {
		return nil, err
	}
	if _, err := c.entityFor(ctx, &in.EntityRef, mayManage); err != nil {
		return nil, err
	}
	who := from(ctx)
	outcome, err := c.cfg.Store.GrantDelete(ctx, who.service, in.url(), who.subjectFor(mayManage, kindEntity, in.url()), who.principal(), id)
	if err == nil {
		err = c.entityRefusal(ctx, &in.EntityRef, mayManage, outcome)
	}
	if err != nil {
		return nil, err
	}
	return &noContent{}, nil
}

func (c *Control) listTypeGrants(ctx context.Context, in *typeNameInput) (*grantListOutput, error) {
	who := from(ctx)
	t, err := c.cfg.Store.EntityTypeGet(ctx, who.service, in.Name)
	if errors.Is(err, store.ErrNoRow) {
		return nil, errTypeNotFound
	} else if err != nil {
		return nil, err
	}
	if ok, err := c.mayType(ctx, t, mayManage); err != nil {
		return nil, err
	} else if !ok {
		return nil, errMayNot(mayManage, "entity type")
	}
	rows, err := c.cfg.Store.GrantTypeList(ctx, who.service, in.Name)
	return grantList(rows), err
}

func (c *Control) putTypeGrant(ctx context.Context, in *typeGrantPutInput) (*grantOutput, error) {
	b := in.Body
	row, details := GrantRequest{SubjectKind: b.SubjectKind, SubjectValue: b.SubjectValue, Permission: b.Permission, ExpiresAt: b.ExpiresAt}.row("", typePermissions)
	if len(details) > 0 {
		return nil, invalidFields(details...)
	}
	raw, err := json.Marshal(row)
	if err != nil {
		return nil, err
	}
	who := from(ctx)
	if err := c.mayTypeNamed(ctx, in.Name, mayManage); err != nil {
		return nil, err
	}
	outcome, g, err := c.cfg.Store.GrantTypePut(ctx, who.service, in.Name, who.subjectFor(mayManage, kindType, in.Name), who.principal(), raw)
	if err == nil {
		err = typeRefusal(outcome)
	}
	if err != nil {
		return nil, err
	}
	return &grantOutput{grantOf(g)}, nil
}

func (c *Control) deleteTypeGrant(ctx context.Context, in *typeGrantRefInput) (*noContent, error) {
	id, err := grantID(in.Grant)
	if err != nil {
		return nil, err
	}
	who := from(ctx)
	if err := c.mayTypeNamed(ctx, in.Name, mayManage); err != nil {
		return nil, err
	}
	outcome, err := c.cfg.Store.GrantTypeDelete(ctx, who.service, in.Name, who.subjectFor(mayManage, kindType, in.Name), who.principal(), id)
	if err == nil {
		err = typeRefusal(outcome)
	}
	if err != nil {
		return nil, err
	}
	return &noContent{}, nil
}
