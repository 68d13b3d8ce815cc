package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Limits say how much of a stream is kept; zero is no limit.
type Limits struct {
	Age      time.Duration
	Bytes    int64
	Messages int64
}

// Retention is what is kept of a stream.
type Retention struct {
	// Kind, Owner are the stream's; EntityType is its entity's if that has limits.
	Kind, Owner, EntityType string
	// Head is where what is kept begins, Tail where it ends.
	Head, Tail int64
	// Source says whose the limits are: stream, type or none.
	Source string
	Limits
	// Sweeping says that rows below Head are still to be deleted, or are read by forks.
	Sweeping bool
}

// Trim is what a trim came to.
type Trim struct {
	// Outcome is trimmed, unchanged, not_found, guarded, beyond or busy.
	Outcome    Outcome
	Head, Tail int64
	// LimitedBy says what held it back: cursor, or "" for nothing.
	LimitedBy string
}

// Progress is one step of a clean-up.
type Progress struct {
	// Seen rows were looked at, Changed of them trimmed or deleted.
	Seen, Changed int
	// More says that there is more to do now.
	More bool
}

// StreamTrim trims a stream by hand, up to a position or, if that is nil, its tail.
func (s *Store) StreamTrim(ctx context.Context, service int32, path string, to *int64, force bool, principal string) (Trim, error) {
	var t Trim
	var head, tail *int64
	var limit *string
	err := s.row(ctx, func(r pgx.Row) error { return r.Scan(&t.Outcome, &head, &tail, &limit) },
		`select outcome, head, tail, limited_by from rouse.stream_trim($1, $2::text, $3, $4, $5::text)`, service, path, to, force, principal)
	t.Head, t.Tail, t.LimitedBy = deref(head), deref(tail), deref(limit)
	return t, err
}

// args are the limits as the functions take them: null for none.
func (l Limits) args() (age, bytes, messages *int64) {
	positive := func(n int64) *int64 {
		if n <= 0 {
			return nil
		}
		return &n
	}
	return positive(l.Age.Milliseconds()), positive(l.Bytes), positive(l.Messages)
}

func limitsOf(age, bytes, messages *int64) Limits {
	return Limits{Age: time.Duration(deref(age)) * time.Millisecond, Bytes: deref(bytes), Messages: deref(messages)}
}

// RetentionPut sets a stream's limits: set, same, not_found, guarded; with onlyNew
// also conflict, where it has others.
func (s *Store) RetentionPut(ctx context.Context, service int32, path string, l Limits, onlyNew bool, principal string) (outcome string, err error) {
	age, bytes, messages := l.args()
	err = s.row(ctx, func(r pgx.Row) error { return r.Scan(&outcome) },
		`select rouse.retention_put($1, $2::text, $3, $4, $5, $6, $7::text)`, service, path, age, bytes, messages, onlyNew, principal)
	return outcome, err
}

// RetentionDelete removes a stream's own limits: deleted, unchanged or not_found.
func (s *Store) RetentionDelete(ctx context.Context, service int32, path, principal string) (outcome string, err error) {
	err = s.row(ctx, func(r pgx.Row) error { return r.Scan(&outcome) },
		`select rouse.retention_delete($1, $2::text, $3::text)`, service, path, principal)
	return outcome, err
}

// RetentionGet says what is kept of a stream; [ErrNoRow] when there is none.
func (s *Store) RetentionGet(ctx context.Context, service int32, path string) (Retention, error) {
	var x Retention
	var owner, typ *string
	var age, bytes, messages *int64
	err := s.row(ctx, func(r pgx.Row) error {
		return r.Scan(&x.Kind, &owner, &typ, &x.Head, &x.Tail, &x.Source, &age, &bytes, &messages, &x.Sweeping)
	}, `select kind, owner, entity_type, head, tail, source, max_age_ms, max_bytes, max_count, sweeping from rouse.retention_get($1, $2::text)`, service, path)
	x.Owner, x.EntityType, x.Limits = deref(owner), deref(typ), limitsOf(age, bytes, messages)
	return x, err
}

// RetentionTypePut sets the limits of the main streams of a type's entities; none
// at all removes them. Outcomes: set, deleted, unchanged.
func (s *Store) RetentionTypePut(ctx context.Context, service int32, typ string, l Limits, principal string) (outcome string, err error) {
	age, bytes, messages := l.args()
	err = s.row(ctx, func(r pgx.Row) error { return r.Scan(&outcome) },
		`select rouse.retention_type_put($1, $2::text, $3, $4, $5, $6::text)`, service, typ, age, bytes, messages, principal)
	return outcome, err
}

// RetentionTypeGet gives the limits of a type; [ErrNoRow] when it has none.
func (s *Store) RetentionTypeGet(ctx context.Context, service int32, typ string) (Limits, error) {
	var age, bytes, messages *int64
	err := s.row(ctx, func(r pgx.Row) error { return r.Scan(&age, &bytes, &messages) },
		`select max_age_ms, max_bytes, max_count from rouse.retention_type_get($1, $2::text)`, service, typ)
	return limitsOf(age, bytes, messages), err
}

// maintenanceTimeout bounds a statement of the clean-up, which may take longer
// than anybody would wait for an answer.
const maintenanceTimeout = time.Minute

// step runs one step of a clean-up.
func (s *Store) step(ctx context.Context, sql string, args ...any) (p Progress, err error) {
	ctx, cancel := context.WithTimeout(ctx, maintenanceTimeout+5*time.Second)
	defer cancel()
	err = again(func() error {
		return s.conn(ctx, s.pool, func(ctx context.Context, c *pgx.Conn) (err error) {
			var b pgx.Batch
			b.Queue(`select set_config('statement_timeout', $1, true)`, "60s")
			b.Queue(sql, args...)
			got := c.SendBatch(ctx, &b)
			defer func() {
				if closed := got.Close(); err == nil {
					err = closed
				}
			}()
			if _, err := got.Exec(); err != nil {
				return err
			}
			return got.QueryRow().Scan(&p.Seen, &p.Changed, &p.More)
		})
	})
	return p, err
}

// RetentionWakeStreams compacts some of the runners' and pools' wake streams.
func (s *Store) RetentionWakeStreams(ctx context.Context, limit int, window, period time.Duration) (Progress, error) {
	return s.step(ctx, `select seen, trimmed, more from rouse.retention_wake_streams($1, $2, $3)`, limit, window.Milliseconds(), period.Milliseconds())
}

// RetentionStreams trims some of the streams that have limits.
func (s *Store) RetentionStreams(ctx context.Context, limit int, period time.Duration) (Progress, error) {
	return s.step(ctx, `select seen, trimmed, more from rouse.retention_streams($1, $2)`, limit, period.Milliseconds())
}

// RetentionAdopt gives new entities' streams the limits of their type.
func (s *Store) RetentionAdopt(ctx context.Context, limit int) (Progress, error) {
	return s.step(ctx, `select seen, adopted, more from rouse.retention_adopt($1)`, limit)
}

// RetentionSweep deletes messages below the head of a trimmed stream.
func (s *Store) RetentionSweep(ctx context.Context, limit int) (Progress, error) {
	return s.step(ctx, `select deleted, deleted, more from rouse.retention_sweep($1)`, limit)
}

// Walk names a table whose rows a clean-up walks over.
type Walk string

// The walks.
const (
	WalkClaims    Walk = "claims"    // that ended
	WalkWakes     Walk = "wakes"     // that were resolved
	WalkProducers Walk = "producers" // of streams that are idle
)

// RetentionRows removes rows of a walk that have been over for age; a walk begins
// anew once in a period.
func (s *Store) RetentionRows(ctx context.Context, walk Walk, limit int, age, period time.Duration) (Progress, error) {
	return s.step(ctx, `select seen, deleted, more from rouse.retention_rows($1, $2, $3, $4)`, walk, limit, age.Milliseconds(), period.Milliseconds())
}

// RetentionAudit removes audit rows older than age.
func (s *Store) RetentionAudit(ctx context.Context, limit int, age time.Duration) (Progress, error) {
	return s.step(ctx, `select deleted, deleted, more from rouse.retention_audit($1, $2)`, limit, age.Milliseconds())
}
