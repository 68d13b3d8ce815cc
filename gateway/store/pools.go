package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// Pool is one row of rouse.worker_pools.
type Pool struct {
	ID          string `json:"id"`
	Owner       string `json:"owner_principal"`
	Name        string `json:"name"`
	AdminStatus string `json:"admin_status"`
	WakeStream  string `json:"wake_stream"`
	// MaxPerRunner and MaxTotal bound the claims that its members hold of its
	// wakes; nil: they do not.
	MaxPerRunner *int32 `json:"max_concurrent_claims_per_runner"`
	MaxTotal     *int32 `json:"max_total_claims"`
	// JoinGeneration is that of the join tokens that count.
	JoinGeneration int64     `json:"join_generation"`
	CreatedAt      time.Time `json:"created_at"`
	UpdatedAt      time.Time `json:"updated_at"`
}

// PoolMember is a runner in a pool, with what the mutex says of it.
type PoolMember struct {
	RunnerID     string `json:"runnerId"`
	Label        string `json:"label"`
	Owner        string `json:"ownerPrincipal"`
	Status       string `json:"status"`       // invited, active or disabled
	Online       *bool  `json:"online"`       // nil, as label and capacity are empty: its owner has not agreed to be in the pool
	ActiveClaims int64  `json:"activeClaims"` // of the pool's wakes
	Capacity     *int32 `json:"capacity"`
}

// PoolFile is a pool with its members and load.
type PoolFile struct {
	Pool         Pool         `json:"pool"`
	Members      []PoolMember `json:"members"`
	ActiveClaims int64        `json:"active_claims"`
	// Waiting counts its unclaimed wakes.
	Waiting int64 `json:"waiting"`
}

// PoolOf is a pool as one of its members sees it.
type PoolOf struct {
	PoolID     string `json:"pool_id"`
	WakeStream string `json:"wake_stream"`
	Status     string `json:"status"` // the member's
}

// documents reads rows of one JSON value each.
func documents[T any](ctx context.Context, s *Store, sql string, args ...any) ([]T, error) {
	out := []T{}
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var raw []byte
		if err := rows.Scan(&raw); err != nil {
			return err
		}
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return err
		}
		out = append(out, v)
		return nil
	}, sql, args...)
	return out, err
}

// document is documents where there is one row; [ErrNoRow] when there is none.
func document[T any](ctx context.Context, s *Store, sql string, args ...any) (v T, err error) {
	list, err := documents[T](ctx, s, sql, args...)
	switch {
	case err != nil:
		return v, err
	case len(list) == 0:
		return v, ErrNoRow
	}
	return list[0], nil
}

// PoolPut makes or changes a pool; empty Name and AdminStatus keep their values,
// and so do the limits unless limits. Outcomes: created, updated, forbidden,
// path_taken.
func (s *Store) PoolPut(ctx context.Context, service int32, principal string, system bool, p Pool, limits bool) (string, int64, error) {
	r, err := document[struct {
		Outcome string `json:"outcome"`
		TxID    int64  `json:"txid"`
	}](ctx, s, `select to_jsonb(r) from rouse.pool_put($1, $2::text, $3::text, $4, $5::text, $6::text, $7::text, $8::int, $9::int, $10) r`,
		service, p.ID, principal, system, p.Owner, textArg(p.Name), textArg(p.AdminStatus), p.MaxPerRunner, p.MaxTotal, limits)
	return r.Outcome, r.TxID, err
}

// PoolGet reads a pool; [ErrNoRow] when there is none.
func (s *Store) PoolGet(ctx context.Context, service int32, id string) (PoolFile, error) {
	return document[PoolFile](ctx, s, `select to_jsonb(r) from rouse.pool_get($1, $2::text) r`, service, id)
}

// PoolList lists by id, above after, the pools that a principal owns or has a
// runner in; system sees all.
func (s *Store) PoolList(ctx context.Context, service int32, principal string, system bool, after string, limit int) ([]PoolFile, error) {
	return documents[PoolFile](ctx, s, `select to_jsonb(r) from rouse.pool_list($1, $2::text, $3, $4::text, $5) r`,
		service, principal, system, textArg(after), int32(limit))
}

// PoolDelete removes a pool: deleted, forbidden or not_found. Wakes that wait in
// it move on, or are parked.
func (s *Store) PoolDelete(ctx context.Context, service int32, id, principal string, system bool) (string, error) {
	return s.outcome(ctx, `select (to_jsonb(r))->>'outcome' from rouse.pool_delete($1, $2::text, $3::text, $4) r`, service, id, principal, system)
}

// PoolMemberPut makes a runner a member, or changes it; invited says that the
// caller showed a join token of the pool. Outcomes: active, disabled, invited,
// accepted, forbidden, pool_not_found, runner_not_found.
func (s *Store) PoolMemberPut(ctx context.Context, service int32, pool, runner, principal string, system bool, status string, invited bool) (string, error) {
	return s.outcome(ctx, `select (to_jsonb(r))->>'outcome' from rouse.pool_member_put($1, $2::text, $3::text, $4::text, $5, $6::text, $7) r`,
		service, pool, runner, principal, system, status, invited)
}

// PoolMemberDelete takes a runner out of a pool: deleted, forbidden or
// not_found.
func (s *Store) PoolMemberDelete(ctx context.Context, service int32, pool, runner, principal string, system bool) (string, error) {
	return s.outcome(ctx, `select (to_jsonb(r))->>'outcome' from rouse.pool_member_delete($1, $2::text, $3::text, $4::text, $5) r`,
		service, pool, runner, principal, system)
}

// PoolJoinRotate ends every join token made so far: rotated, forbidden or
// not_found.
func (s *Store) PoolJoinRotate(ctx context.Context, service int32, pool, principal string, system bool) (string, error) {
	return s.outcome(ctx, `select (to_jsonb(r))->>'outcome' from rouse.pool_join_rotate($1, $2::text, $3::text, $4) r`, service, pool, principal, system)
}

// RunnerPools lists the pools that a runner is in.
func (s *Store) RunnerPools(ctx context.Context, service int32, runner string) ([]PoolOf, error) {
	return documents[PoolOf](ctx, s, `select to_jsonb(r) from rouse.runner_pools($1, $2::text) r`, service, runner)
}

func (s *Store) outcome(ctx context.Context, sql string, args ...any) (string, error) {
	var v *string
	err := s.row(ctx, func(r pgx.Row) error { return r.Scan(&v) }, sql, args...)
	return str(v), err
}

// PoolReading is how somebody may read a pool's wake stream.
type PoolReading struct {
	// Outcome is member, reader, not_member, forbidden, or not_found.
	Outcome string
	// WakeKey is the public key that entries are sealed to for a member; nil for
	// none.
	WakeKey []byte
}

// PoolReader finds out how a principal may read a pool's wake stream: as one of
// its members when it names a runner, else as a bystander.
func (s *Store) PoolReader(ctx context.Context, service int32, pool, principal string, system bool, runner string) (PoolReading, error) {
	p := PoolReading{Outcome: "not_found"}
	err := s.rows(ctx, func(rows pgx.Rows) error { return rows.Scan(&p.Outcome, &p.WakeKey) },
		`select outcome, wake_key from rouse.pool_reader($1, $2::text, $3::text, $4, $5::text)`, service, pool, principal, system, textArg(runner))
	return p, err
}
