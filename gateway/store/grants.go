package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// Grant is one row of rouse.entity_grants or, without propagation, of
// rouse.entity_type_grants. Times are the database's.
type Grant struct {
	ID             int64
	On             string // url of the entity, or name of the type
	Permission     string
	SubjectKind    string // principal or principal_kind
	SubjectValue   string // a principal's URL, or a kind
	Propagation    string // self or descendants
	CopyToChildren bool
	ExpiresAt      *time.Time
	CreatedBy      string
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// grantScan holds the columns of a grant that may be absent as a whole.
type grantScan struct {
	id                              *int64
	on, permission, kind, value, by *string
	propagation                     *string
	copies                          *bool
	expires, created, updated       *time.Time
}

const (
	grantCols     = "id, entity_url, permission, subject_kind, subject_value, propagation, copy_to_children, expires_at, created_by, created_at, updated_at"
	typeGrantCols = "id, entity_type, permission, subject_kind, subject_value, null::text, null::boolean, expires_at, created_by, created_at, updated_at"
	// The same of the composite that a function answers.
	grantRowCols = "(r.grant_row).id, (r.grant_row).entity_url, (r.grant_row).permission, (r.grant_row).subject_kind, (r.grant_row).subject_value, " +
		"(r.grant_row).propagation, (r.grant_row).copy_to_children, (r.grant_row).expires_at, (r.grant_row).created_by, (r.grant_row).created_at, (r.grant_row).updated_at"
	typeGrantRowCols = "(r.grant_row).id, (r.grant_row).entity_type, (r.grant_row).permission, (r.grant_row).subject_kind, (r.grant_row).subject_value, " +
		"null::text, null::boolean, (r.grant_row).expires_at, (r.grant_row).created_by, (r.grant_row).created_at, (r.grant_row).updated_at"
)

func (g *grantScan) dest() []any {
	return []any{&g.id, &g.on, &g.permission, &g.kind, &g.value, &g.propagation, &g.copies, &g.expires, &g.by, &g.created, &g.updated}
}

func (g *grantScan) grant() Grant {
	return Grant{ID: num(g.id), On: str(g.on), Permission: str(g.permission), SubjectKind: str(g.kind), SubjectValue: str(g.value),
		Propagation: str(g.propagation), CopyToChildren: num(g.copies), ExpiresAt: g.expires, CreatedBy: str(g.by),
		CreatedAt: num(g.created), UpdatedAt: num(g.updated)}
}

func (s *Store) grants(ctx context.Context, sql string, args ...any) ([]Grant, error) {
	out := []Grant{}
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var g grantScan
		if err := rows.Scan(g.dest()...); err != nil {
			return err
		}
		out = append(out, g.grant())
		return nil
	}, sql, args...)
	return out, err
}

// GrantPut adds a grant on an entity; an empty principal may always, by is who
// is named as its giver. Outcomes: granted, not_found, forbidden, too_many.
func (s *Store) GrantPut(ctx context.Context, service int32, url, principal, by string, grant json.RawMessage) (string, Grant, error) {
	var outcome string
	var g grantScan
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(append([]any{&outcome}, g.dest()...)...) },
		`select r.outcome, `+grantRowCols+` from rouse.grant_put($1, $2::text, $3::text, $4::text, $5::jsonb) r`,
		service, url, textArg(principal), by, jsonArg(grant))
	return outcome, g.grant(), err
}

// GrantList lists the grants on an entity itself, oldest first.
func (s *Store) GrantList(ctx context.Context, service int32, url string) ([]Grant, error) {
	return s.grants(ctx, `select `+grantCols+` from rouse.grant_list($1, $2::text)`, service, url)
}

// GrantDelete takes a grant back: deleted, not_found (no entity), no_grant or
// forbidden.
func (s *Store) GrantDelete(ctx context.Context, service int32, url, principal, by string, id int64) (outcome string, err error) {
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome) },
		`select r.outcome from rouse.grant_delete($1, $2::text, $3::text, $4::text, $5) r`, service, url, textArg(principal), by, id)
	return outcome, err
}

// GrantTypePut is GrantPut for an entity type.
func (s *Store) GrantTypePut(ctx context.Context, service int32, name, principal, by string, grant json.RawMessage) (string, Grant, error) {
	var outcome string
	var g grantScan
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(append([]any{&outcome}, g.dest()...)...) },
		`select r.outcome, `+typeGrantRowCols+` from rouse.grant_type_put($1, $2::text, $3::text, $4::text, $5::jsonb) r`,
		service, name, textArg(principal), by, jsonArg(grant))
	return outcome, g.grant(), err
}

// GrantTypeList lists the grants on an entity type, oldest first.
func (s *Store) GrantTypeList(ctx context.Context, service int32, name string) ([]Grant, error) {
	return s.grants(ctx, `select `+typeGrantCols+` from rouse.grant_type_list($1, $2::text)`, service, name)
}

// GrantTypeDelete is GrantDelete for an entity type.
func (s *Store) GrantTypeDelete(ctx context.Context, service int32, name, principal, by string, id int64) (outcome string, err error) {
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome) },
		`select rouse.grant_type_delete($1, $2::text, $3::text, $4::text, $5)`, service, name, textArg(principal), by, id)
	return outcome, err
}

// EntityTypeAllowed returns the types on which the principal has a permission,
// spawn or manage.
func (s *Store) EntityTypeAllowed(ctx context.Context, service int32, principal, permission string, names []string) ([]string, error) {
	var out []string
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		out = append(out, name)
		return nil
	}, `select * from rouse.entity_type_allowed($1, $2::text, $3::text, $4::text[])`, service, principal, permission, names)
	return out, err
}
