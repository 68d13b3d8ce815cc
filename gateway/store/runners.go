package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// Runner is one row of rouse.runners with what is derived of it.
type Runner struct {
	ID              string
	Owner           string
	Label           string
	Kind            string
	AdminStatus     string
	WakeStream      string
	SandboxProfiles json.RawMessage
	Capacity        *int32
	CreatedAt       time.Time
	UpdatedAt       time.Time
	// WakeKey is the X25519 public key its wake streams are sealed to; nil for
	// none. WakeKeyID names it in the audit.
	WakeKey   []byte
	WakeKeyID string

	// WakeStreamOffset is the cursor the runner last reported.
	WakeStreamOffset *string
	LastSeenAt       *time.Time
	LeaseExpiresAt   *time.Time
	// LeaseRemaining is in milliseconds, negative once the liveness lease has
	// ended, nil before the first heartbeat.
	LeaseRemaining *int64
	Diagnostics    json.RawMessage
	ActiveClaims   []ActiveClaim
}

// Online says whether the liveness lease runs.
func (r Runner) Online() bool { return r.LeaseRemaining != nil && *r.LeaseRemaining > 0 }

// ActiveClaim is a claim a runner holds now, from the mutex and not from the
// runner's word.
type ActiveClaim struct {
	EntityURL      string    `json:"entity_url"`
	ConsumerID     string    `json:"consumer_id"`
	Epoch          int64     `json:"epoch"`
	WakeID         string    `json:"wake_id"`
	ClaimedAt      time.Time `json:"claimed_at"`
	LeaseExpiresAt time.Time `json:"lease_expires_at"`
}

const runnerCols = `(r.runner).id, (r.runner).owner_principal, (r.runner).label, (r.runner).kind, (r.runner).admin_status,
	(r.runner).wake_stream, (r.runner).sandbox_profiles, (r.runner).capacity, (r.runner).created_at, (r.runner).updated_at,
	(r.runner).wake_key`

const runnerDerived = `, (r.diagnostics).wake_stream_offset, (r.diagnostics).last_seen_at, (r.diagnostics).liveness_lease_expires_at,
	r.lease_remaining_ms, (r.diagnostics).diagnostics, r.active_claims`

type runnerScan struct {
	id, owner, label, kind, status, stream *string
	profiles, diagnostics, claims          []byte
	createdAt, updatedAt                   *time.Time
	r                                      Runner
}

func (s *runnerScan) dest() []any {
	return []any{&s.id, &s.owner, &s.label, &s.kind, &s.status, &s.stream, &s.profiles, &s.r.Capacity, &s.createdAt, &s.updatedAt, &s.r.WakeKey}
}

func (s *runnerScan) derived() []any {
	return append(s.dest(), &s.r.WakeStreamOffset, &s.r.LastSeenAt, &s.r.LeaseExpiresAt, &s.r.LeaseRemaining, &s.diagnostics, &s.claims)
}

func (s *runnerScan) runner() (Runner, error) {
	r := s.r
	r.ID, r.Owner, r.Label, r.Kind, r.AdminStatus, r.WakeStream = str(s.id), str(s.owner), str(s.label), str(s.kind), str(s.status), str(s.stream)
	r.SandboxProfiles, r.Diagnostics, r.CreatedAt, r.UpdatedAt = s.profiles, s.diagnostics, num(s.createdAt), num(s.updatedAt)
	r.ActiveClaims = []ActiveClaim{}
	if s.claims != nil {
		if err := json.Unmarshal(s.claims, &r.ActiveClaims); err != nil {
			return r, err
		}
	}
	return r, nil
}

// RunnerRegister makes or changes a runner of r.Owner; empty Kind,
// AdminStatus, nil SandboxProfiles, Capacity and WakeKey keep their values.
// Outcomes: created, updated, forbidden, path_taken.
func (s *Store) RunnerRegister(ctx context.Context, service int32, principal string, system bool, r Runner) (string, int64, Runner, error) {
	var outcome string
	var txid *int64
	var rs runnerScan
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(append([]any{&outcome, &txid}, rs.dest()...)...) },
		`select r.outcome, r.txid, `+runnerCols+` from rouse.runner_enroll($1, $2::text, $3::text, $4, $5::text, $6::text, $7::text,
		$8::text, $9::jsonb, $10::int, $11::bytea, $12::text) r`,
		service, r.ID, principal, system, r.Owner, r.Label, textArg(r.Kind), textArg(r.AdminStatus), jsonArg(r.SandboxProfiles), r.Capacity, r.WakeKey, textArg(r.WakeKeyID))
	if err != nil {
		return "", 0, Runner{}, err
	}
	out, err := rs.runner()
	return outcome, num(txid), out, err
}

// RunnerGet reads a runner; [ErrNoRow] when there is none.
func (s *Store) RunnerGet(ctx context.Context, service int32, id string) (Runner, error) {
	var rs runnerScan
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(rs.derived()...) },
		`select `+runnerCols+runnerDerived+` from rouse.runner_get($1, $2::text) r`, service, id)
	if err != nil {
		return Runner{}, err
	}
	return rs.runner()
}

// RunnerList lists owner's runners (empty: everybody's) by id, above after.
func (s *Store) RunnerList(ctx context.Context, service int32, owner, after string, limit int) ([]Runner, error) {
	out := []Runner{}
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var rs runnerScan
		if err := rows.Scan(rs.derived()...); err != nil {
			return err
		}
		r, err := rs.runner()
		out = append(out, r)
		return err
	}, `select `+runnerCols+runnerDerived+` from rouse.runner_list($1, $2::text, $3::text, $4) r`,
		service, textArg(owner), textArg(after), int32(limit))
	return out, err
}

// RunnerSetStatus enables or disables a runner: updated, unchanged, not_found
// or forbidden.
func (s *Store) RunnerSetStatus(ctx context.Context, service int32, id, principal string, system bool, status string) (string, int64, error) {
	var outcome string
	var txid *int64
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome, &txid) },
		`select * from rouse.runner_set_status($1, $2::text, $3::text, $4, $5::text)`, service, id, principal, system, status)
	return outcome, num(txid), err
}

// RunnerWakeKey sets the public key that a runner's wake streams are sealed to,
// or removes it (nil): updated, unchanged, not_found or forbidden.
func (s *Store) RunnerWakeKey(ctx context.Context, service int32, id, principal string, system bool, key []byte, keyID string) (string, int64, error) {
	var outcome string
	var txid *int64
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome, &txid) },
		`select * from rouse.runner_wake_key_put($1, $2::text, $3::text, $4, $5::bytea, $6::text)`, service, id, principal, system, key, textArg(keyID))
	return outcome, num(txid), err
}

// RunnerHealth is what dispatch holds for a runner.
type RunnerHealth struct {
	Active      int64
	Outstanding int64
	// OldestOutstanding is the age of the oldest unclaimed wake, in
	// milliseconds; nil when there is none.
	OldestOutstanding *int64
}

// RunnerHealth counts what dispatch holds for a runner.
func (s *Store) RunnerHealth(ctx context.Context, service int32, id string) (RunnerHealth, error) {
	var h RunnerHealth
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(&h.Active, &h.Outstanding, &h.OldestOutstanding) },
		`select * from rouse.runner_health($1, $2::text)`, service, id)
	return h, err
}
