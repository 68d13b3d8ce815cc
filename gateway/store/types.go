package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// EntityType is one row of rouse.entity_types; absent JSON is nil.
type EntityType struct {
	Name                  string
	Description           string
	CreationSchema        json.RawMessage
	InboxSchemas          json.RawMessage
	StateSchemas          json.RawMessage
	SlashCommands         json.RawMessage
	ServeEndpoint         string
	DefaultDispatchPolicy json.RawMessage
	PermissionGrants      json.RawMessage
	Collections           json.RawMessage // externally_writable_collections
	Owner                 string
	Revision              int32
	CreatedAt             time.Time
	UpdatedAt             time.Time
}

func typeCols(alias string) string {
	out := ""
	for i, c := range [...]string{"name", "description", "creation_schema", "inbox_schemas", "state_schemas", "slash_commands",
		"serve_endpoint", "default_dispatch_policy", "permission_grants", "externally_writable_collections", "owner_principal",
		"revision", "created_at", "updated_at"} {
		if i > 0 {
			out += ", "
		}
		out += alias + "." + c
	}
	return out
}

type typeScan struct {
	name, description, endpoint, owner           *string
	creation, inbox, state, slash, policy, gr, c []byte
	revision                                     *int32
	createdAt, updatedAt                         *time.Time
}

func (s *typeScan) dest() []any {
	return []any{&s.name, &s.description, &s.creation, &s.inbox, &s.state, &s.slash, &s.endpoint, &s.policy, &s.gr, &s.c, &s.owner,
		&s.revision, &s.createdAt, &s.updatedAt}
}

func (s *typeScan) entityType() EntityType {
	return EntityType{Name: str(s.name), Description: str(s.description), CreationSchema: s.creation, InboxSchemas: s.inbox,
		StateSchemas: s.state, SlashCommands: s.slash, ServeEndpoint: str(s.endpoint), DefaultDispatchPolicy: s.policy,
		PermissionGrants: s.gr, Collections: s.c, Owner: str(s.owner), Revision: num(s.revision),
		CreatedAt: num(s.createdAt), UpdatedAt: num(s.updatedAt)}
}

// EntityTypePut registers or replaces t. Outcomes: created, updated, forbidden
// and gone (deleted meanwhile: call again).
func (s *Store) EntityTypePut(ctx context.Context, service int32, principal string, system bool, t EntityType) (string, int64, EntityType, error) {
	var outcome string
	var txid *int64
	var ts typeScan
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(append([]any{&outcome, &txid}, ts.dest()...)...) },
		`select r.outcome, r.txid, `+typeCols("(r.entity_type)")+` from rouse.entity_type_put($1, $2::text, $3::text, $4, $5::text,
		$6::jsonb, $7::jsonb, $8::jsonb, $9::jsonb, $10::text, $11::jsonb, $12::jsonb, $13::jsonb) r`,
		service, t.Name, principal, system, t.Description, jsonArg(t.CreationSchema), jsonArg(t.InboxSchemas), jsonArg(t.StateSchemas),
		jsonArg(t.SlashCommands), textArg(t.ServeEndpoint), jsonArg(t.DefaultDispatchPolicy), jsonArg(t.PermissionGrants), jsonArg(t.Collections))
	return outcome, num(txid), ts.entityType(), err
}

// EntityTypeGet looks a type up; [ErrNoRow] when there is none.
func (s *Store) EntityTypeGet(ctx context.Context, service int32, name string) (EntityType, error) {
	var ts typeScan
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(ts.dest()...) },
		`select `+typeCols("t")+` from rouse.entity_type_get($1, $2::text) t`, service, name)
	return ts.entityType(), err
}

// EntityTypeList lists the types of a service, or only owner's when it is not
// empty.
func (s *Store) EntityTypeList(ctx context.Context, service int32, owner string) ([]EntityType, error) {
	out := []EntityType{}
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var ts typeScan
		if err := rows.Scan(ts.dest()...); err != nil {
			return err
		}
		out = append(out, ts.entityType())
		return nil
	}, `select `+typeCols("t")+` from rouse.entity_type_list($1, $2::text) t`, service, textArg(owner))
	return out, err
}

// EntityTypeDelete removes a registration: deleted, not_found or forbidden.
func (s *Store) EntityTypeDelete(ctx context.Context, service int32, name, principal string, system bool) (string, int64, error) {
	var outcome string
	var txid *int64
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome, &txid) },
		`select * from rouse.entity_type_delete($1, $2::text, $3::text, $4)`, service, name, principal, system)
	return outcome, num(txid), err
}

// EntityTypePatchSchemas adds schemas to a type. Outcomes: updated, not_found,
// forbidden, key_exists (with the key).
func (s *Store) EntityTypePatchSchemas(ctx context.Context, service int32, name, principal string, system bool, inbox, state json.RawMessage) (outcome, key string, t EntityType, err error) {
	var txid *int64
	var taken *string
	var ts typeScan
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(append([]any{&outcome, &txid, &taken}, ts.dest()...)...) },
		`select r.outcome, r.txid, r.taken_key, `+typeCols("(r.entity_type)")+`
		from rouse.entity_type_patch_schemas($1, $2::text, $3::text, $4, $5::jsonb, $6::jsonb) r`,
		service, name, principal, system, jsonArg(inbox), jsonArg(state))
	return outcome, str(taken), ts.entityType(), err
}
