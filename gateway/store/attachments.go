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

// attachmentPiece is how much of a file goes to the database at once: the driver
// copies what it sends.
const attachmentPiece = 1 << 20

// AttachmentPut attaches a file; an empty principal may always, by is who is
// named as its giver, and event the manifest row told on the entity's stream.
// Outcomes: created, not_found, forbidden, not_running, exists, path_taken.
func (s *Store) AttachmentPut(ctx context.Context, service int32, url, principal, by string, a Attachment, event string) (outcome string, err error) {
	if a.Bytes == nil {
		a.Bytes = []byte{}
	}
	if len(a.Bytes) > attachmentPiece {
		err = again(func() error {
			return s.conn(ctx, s.pool, func(ctx context.Context, c *pgx.Conn) error {
				outcome, err = attachLarge(ctx, c, service, url, principal, by, a, event)
				return err
			})
		})
		return outcome, err
	}
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome) },
		`select rouse.attachment_put($1, $2::text, $3::text, $4::text, $5::text, $6::text, $7::bytea, $8::jsonb, $9::text)`,
		service, url, textArg(principal), by, a.ID, a.ContentType, a.Bytes, jsonArg(a.Manifest), event)
	return outcome, err
}

// attachLarge sends a file piece by piece, in one transaction.
func attachLarge(ctx context.Context, c *pgx.Conn, service int32, url, principal, by string, a Attachment, event string) (outcome string, err error) {
	tx, err := c.Begin(ctx)
	if err != nil {
		return "", err
	}
	defer func() {
		if outcome != "created" || err != nil {
			// What is not committed is gone; a connection that cannot even say so is closed by the pool.
			_ = tx.Rollback(context.WithoutCancel(ctx))
		}
	}()
	if origin, ok := ctx.Value(originKey{}).(string); ok {
		if _, err := tx.Exec(ctx, `select set_config('rouse.origin', $1, true)`, origin); err != nil {
			return "", err
		}
	}
	var stream *int64
	err = tx.QueryRow(ctx, `select * from rouse.attachment_begin($1, $2::text, $3::text, $4::text, $5::bigint)`,
		service, url, a.ID, a.ContentType, int64(len(a.Bytes))).Scan(&outcome, &stream)
	if err != nil || outcome != "begun" {
		return outcome, err
	}
	for at := 0; at < len(a.Bytes); {
		to := min(at+attachmentPiece, len(a.Bytes))
		if _, err := tx.Exec(ctx, `select rouse.attachment_piece($1, $2, $3::bytea)`, *stream, int64(to), a.Bytes[at:to]); err != nil {
			return "", err
		}
		at = to
	}
	err = tx.QueryRow(ctx, `select rouse.attachment_end($1, $2::text, $3::text, $4::text, $5::text, $6, $7, $8::jsonb, $9::text)`,
		service, url, textArg(principal), by, a.ID, *stream, int64(len(a.Bytes)), jsonArg(a.Manifest), event).Scan(&outcome)
	if err != nil || outcome != "created" {
		return outcome, err
	}
	return outcome, tx.Commit(ctx)
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
