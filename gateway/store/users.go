package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// User is what an auth hook tells about a person; empty fields are not told.
type User struct {
	ID           string
	DisplayName  string
	Email        string
	AvatarURL    string
	AuthProvider string
	AuthSubject  string
}

// UserSeen makes the person's row on first sight, or refreshes it; true when
// it is new.
func (s *Store) UserSeen(ctx context.Context, service int32, u User) (bool, error) {
	var created bool
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(&created) },
		`select rouse.user_seen($1, $2::text, $3::text, $4::text, $5::text, $6::text, $7::text)`,
		service, u.ID, textArg(u.DisplayName), textArg(u.Email), textArg(u.AvatarURL), textArg(u.AuthProvider), textArg(u.AuthSubject))
	return created, err
}

// AuditRow is one line of who changed what.
type AuditRow struct {
	ID        int64           `json:"id"`
	At        time.Time       `json:"at"`
	Principal string          `json:"principal"`
	Action    string          `json:"action"`
	Resource  string          `json:"resource"`
	Detail    json.RawMessage `json:"detail"`
}

// AuditList reads a resource's audit rows, newest first, with an id below
// before (zero: from the newest).
func (s *Store) AuditList(ctx context.Context, service int32, resource string, before int64, limit int) ([]AuditRow, error) {
	out := []AuditRow{}
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var a AuditRow
		var detail []byte
		if err := rows.Scan(&a.ID, &a.At, &a.Principal, &a.Action, &a.Resource, &detail); err != nil {
			return err
		}
		a.Detail = detail
		out = append(out, a)
		return nil
	}, `select id, at, principal, action, resource, detail from rouse.audit_list($1, $2::text, $3, $4)`,
		service, resource, beforeArg(before), int32(limit))
	return out, err
}

// EntityPrincipal makes the entity that stands for a principal, whose stream is
// at path; true when it is new.
func (s *Store) EntityPrincipal(ctx context.Context, service int32, url, path, kind, id string) (bool, error) {
	var created bool
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(&created) },
		`select rouse.entity_principal($1, $2::text, $3::text, $4::text, $5::text)`, service, url, path, kind, id)
	return created, err
}
