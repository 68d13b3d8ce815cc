package store

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
)

// Attachment is a file of an entity.
type Attachment struct {
	ID          string
	ContentType string // of its stream
	Bytes       []byte
	Manifest    json.RawMessage // the value of its manifest row
}

// AttachmentPut attaches a file; an empty principal may always, by is who is
// named as its giver, and event the manifest row told on the entity's stream.
// Outcomes: created, not_found, forbidden, not_running, exists, path_taken.
func (s *Store) AttachmentPut(ctx context.Context, service int32, url, principal, by string, a Attachment, event string) (outcome string, err error) {
	if a.Bytes == nil {
		a.Bytes = []byte{}
	}
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome) },
		`select rouse.attachment_put($1, $2::text, $3::text, $4::text, $5::text, $6::text, $7::bytea, $8::jsonb, $9::text)`,
		service, url, textArg(principal), by, a.ID, a.ContentType, a.Bytes, jsonArg(a.Manifest), event)
	return outcome, err
}

// AttachmentGet looks an attachment up: ok with its stream, size in bytes and
// manifest, or not_found, forbidden, no_attachment.
func (s *Store) AttachmentGet(ctx context.Context, service int32, url, principal, id string) (outcome string, stream, bytes int64, manifest json.RawMessage, err error) {
	var st, n *int64
	var raw []byte
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome, &st, &n, &raw) },
		`select * from rouse.attachment_get($1, $2::text, $3::text, $4::text)`, service, url, textArg(principal), id)
	return outcome, num(st), num(n), raw, err
}

// AttachmentDelete removes an attachment: deleted, not_found, forbidden,
// not_running or no_attachment.
func (s *Store) AttachmentDelete(ctx context.Context, service int32, url, principal, by, id, event string) (outcome string, err error) {
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome) },
		`select rouse.attachment_delete($1, $2::text, $3::text, $4::text, $5::text, $6::text)`, service, url, textArg(principal), by, id, event)
	return outcome, err
}
