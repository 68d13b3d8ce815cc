package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// Moved is what became of a move of an entity to other targets.
type Moved struct {
	// Outcome is moved, unchanged, not_found, forbidden, not_running,
	// target_forbidden or target_not_found.
	Outcome string `json:"outcome"`
	TxID    int64  `json:"txid"`
	// ReleaseBy is when the holder's claim ends at the latest; nil: nobody holds
	// it.
	ReleaseBy *time.Time `json:"release_by"`
}

// EntityMove gives an entity another dispatch policy. Who holds it has the
// deadline to release it.
func (s *Store) EntityMove(ctx context.Context, service int32, url, principal string, trusted bool, policy json.RawMessage, deadline time.Duration, reason string) (Moved, error) {
	return document[Moved](ctx, s, `select to_jsonb(r) from rouse.entity_move($1, $2::text, $3::text, $4, $5::jsonb, $6::bigint, $7::text) r`,
		service, url, principal, trusted, jsonArg(policy), deadline.Milliseconds(), textArg(reason))
}

// OldPolicy is a dispatch policy that an entity had.
type OldPolicy struct {
	Revision       int64           `json:"revision"`
	DispatchPolicy json.RawMessage `json:"dispatch_policy"`
	MovedBy        string          `json:"moved_by" doc:"Who replaced it."`
	Reason         *string         `json:"reason,omitempty"`
	ReplacedAt     time.Time       `json:"replaced_at"`
}

// EntityPolicies lists the policies that an entity had before, newest first: at
// most limit below the revision before, 0 for all.
func (s *Store) EntityPolicies(ctx context.Context, service int32, url string, before int64, limit int) ([]OldPolicy, error) {
	return documents[OldPolicy](ctx, s, `select to_jsonb(r) from rouse.entity_policy_page($1, $2::text, nullif($3::bigint, 0), $4) r order by r.revision desc`,
		service, url, before, int32(limit))
}

// Parked is an entity whose work its policy has given up.
type Parked struct {
	EntityURL string          `json:"entity_url"`
	Type      string          `json:"type"`
	Reason    string          `json:"reason" enum:"attempts_exhausted,unclaimed,delivery_failed,no_target"`
	Attempts  int64           `json:"attempts" doc:"Wakes without progress."`
	ParkedAt  time.Time       `json:"parked_at"`
	Pending   *time.Time      `json:"pending_since,omitempty" doc:"Since when its work waits."`
	LastError *string         `json:"last_error,omitempty"`
	Policy    json.RawMessage `json:"dispatch_policy,omitempty"`
}

// ParkedList lists what is parked and the principal may manage, by url above
// after; system sees all.
func (s *Store) ParkedList(ctx context.Context, service int32, principal string, system bool, after string, limit int) ([]Parked, error) {
	return documents[Parked](ctx, s, `select to_jsonb(r) from rouse.parked_list($1, $2::text, $3, $4::text, $5) r`,
		service, principal, system, textArg(after), int32(limit))
}

// EntityRedrive wakes a parked entity again: redriven, not_parked, not_found or
// forbidden.
func (s *Store) EntityRedrive(ctx context.Context, service int32, url, principal string, trusted bool) (string, error) {
	return s.outcome(ctx, `select rouse.entity_redrive($1, $2::text, $3::text, $4)`, service, url, principal, trusted)
}

// ParkedRedrive redrives what is parked, of a type and for a reason where those
// are not empty, and counts it.
func (s *Store) ParkedRedrive(ctx context.Context, service int32, principal string, system bool, typ, reason string, limit int) (int64, error) {
	var n int32
	err := s.row(ctx, func(r pgx.Row) error { return r.Scan(&n) }, `select rouse.parked_redrive($1, $2::text, $3, $4::text, $5::text, $6)`,
		service, principal, system, textArg(typ), textArg(reason), int32(limit))
	return int64(n), err
}
