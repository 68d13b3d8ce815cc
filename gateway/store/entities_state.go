package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// DispatchState is an entity's row of rouse.entity_dispatch_state; absent
// times are nil.
type DispatchState struct {
	EntityURL             string          `json:"entity_url"`
	PendingSourceStreams  json.RawMessage `json:"pending_source_streams"`
	PendingReason         *string         `json:"pending_reason"`
	PendingSince          *time.Time      `json:"pending_since"`
	OutstandingWakeID     *string         `json:"outstanding_wake_id"`
	OutstandingWakeTarget json.RawMessage `json:"outstanding_wake_target"`
	OutstandingCreatedAt  *time.Time      `json:"outstanding_wake_created_at"`
	ActiveConsumerID      *string         `json:"active_consumer_id"`
	ActiveRunnerID        *string         `json:"active_runner_id"`
	ActiveEpoch           *int64          `json:"active_epoch"`
	ActiveClaimedAt       *time.Time      `json:"active_claimed_at"`
	ActiveLeaseExpiresAt  *time.Time      `json:"active_lease_expires_at"`
	LastWakeID            *string         `json:"last_wake_id"`
	LastClaimedAt         *time.Time      `json:"last_claimed_at"`
	LastReleasedAt        *time.Time      `json:"last_released_at"`
	LastCompletedAt       *time.Time      `json:"last_completed_at"`
	LastError             *string         `json:"last_error"`
	UpdatedAt             time.Time       `json:"updated_at"`

	TargetIndex  int32      `json:"target_index" doc:"Which target of its policy its wake or claim is for, from 0."`
	Attempts     int32      `json:"attempts" doc:"Wakes since it last got on."`
	PoolID       *string    `json:"pool_id,omitempty" doc:"The worker pool its wake or claim is for."`
	ParkedAt     *time.Time `json:"parked_at,omitempty" doc:"Given up since; see parked_reason."`
	ParkedReason *string    `json:"parked_reason,omitempty"`
	ReleaseBy    *time.Time `json:"release_by,omitempty" doc:"Its holder was asked to hand it over until then."`
}

// EntityDispatch reads an entity's dispatch state; [ErrNoRow] when there is
// no such entity.
func (s *Store) EntityDispatch(ctx context.Context, service int32, url string) (DispatchState, error) {
	var d DispatchState
	var pending, target []byte
	err := s.row(ctx, func(row pgx.Row) error {
		return row.Scan(&d.EntityURL, &pending, &d.PendingReason, &d.PendingSince, &d.OutstandingWakeID, &target,
			&d.OutstandingCreatedAt, &d.ActiveConsumerID, &d.ActiveRunnerID, &d.ActiveEpoch, &d.ActiveClaimedAt,
			&d.ActiveLeaseExpiresAt, &d.LastWakeID, &d.LastClaimedAt, &d.LastReleasedAt, &d.LastCompletedAt, &d.LastError, &d.UpdatedAt,
			&d.TargetIndex, &d.Attempts, &d.PoolID, &d.ParkedAt, &d.ParkedReason, &d.ReleaseBy)
	}, `select entity_url, pending_source_streams, pending_reason, pending_since, outstanding_wake_id::text, outstanding_wake_target,
		outstanding_wake_created_at, active_consumer_id, active_runner_id, active_epoch, active_claimed_at, active_lease_expires_at,
		last_wake_id::text, last_claimed_at, last_released_at, last_completed_at, last_error, updated_at,
		coalesce(r.target_index, 0), coalesce(r.attempts, 0), r.pool_id, r.parked_at, r.parked_reason, r.release_by
		from rouse.entity_dispatch($1, $2::text) left join rouse.entity_route($1, $2::text) r on true`, service, url)
	d.PendingSourceStreams, d.OutstandingWakeTarget = pending, target
	return d, err
}

// Claim is a row of rouse.consumer_claims.
type Claim struct {
	ConsumerID      string          `json:"consumer_id"`
	Epoch           int64           `json:"epoch"`
	WakeID          *string         `json:"wake_id"`
	EntityURL       *string         `json:"entity_url"`
	StreamPath      string          `json:"stream_path"`
	RunnerID        *string         `json:"runner_id"`
	Holder          *string         `json:"holder"`
	Status          string          `json:"status"`
	ClaimedAt       time.Time       `json:"claimed_at"`
	LastHeartbeatAt *time.Time      `json:"last_heartbeat_at"`
	LeaseExpiresAt  *time.Time      `json:"lease_expires_at"`
	ReleasedAt      *time.Time      `json:"released_at"`
	AckedStreams    json.RawMessage `json:"acked_streams"`
	PoolID          *string         `json:"pool_id,omitempty"`
	NextWake        *bool           `json:"next_wake"`
	Error           *string         `json:"error"`
	UpdatedAt       time.Time       `json:"updated_at"`
}

// EntityClaims lists the grants of an entity's mutex, newest first, with an
// epoch below before (zero: from the newest).
func (s *Store) EntityClaims(ctx context.Context, service int32, url string, before int64, limit int) ([]Claim, error) {
	out := []Claim{}
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var c Claim
		var acked []byte
		if err := rows.Scan(&c.ConsumerID, &c.Epoch, &c.WakeID, &c.EntityURL, &c.StreamPath, &c.RunnerID, &c.Holder, &c.Status,
			&c.ClaimedAt, &c.LastHeartbeatAt, &c.LeaseExpiresAt, &c.ReleasedAt, &acked, &c.NextWake, &c.Error, &c.UpdatedAt, &c.PoolID); err != nil {
			return err
		}
		c.AckedStreams = acked
		out = append(out, c)
		return nil
	}, `select consumer_id, epoch, wake_id::text, entity_url, stream_path, runner_id, holder, status, claimed_at, last_heartbeat_at,
		lease_expires_at, released_at, acked_streams, next_wake, error, updated_at, pool_id from rouse.entity_claims($1, $2::text, $3, $4)`,
		service, url, beforeArg(before), int32(limit))
	return out, err
}

// Wake is a row of rouse.wake_notifications; it holds no token.
type Wake struct {
	WakeID                 string          `json:"wake_id"`
	ConsumerID             string          `json:"consumer_id"`
	Epoch                  int64           `json:"epoch"`
	EntityURL              *string         `json:"entity_url"`
	TargetType             string          `json:"target_type"`
	TargetRunnerID         *string         `json:"target_runner_id"`
	TargetWebhookURL       *string         `json:"target_webhook_url"`
	RunnerWakeStream       *string         `json:"runner_wake_stream"`
	RunnerWakeStreamOffset *string         `json:"runner_wake_stream_offset"`
	NotificationPublic     json.RawMessage `json:"notification_public"`
	DeliveryStatus         string          `json:"delivery_status"`
	ClaimStatus            string          `json:"claim_status"`
	Attempts               int32           `json:"attempts" doc:"Deliveries that were tried."`
	TargetPoolID           *string         `json:"target_pool_id,omitempty"`
	TargetIndex            int32           `json:"target_index" doc:"Which target of the policy it is for, from 0."`
	Attempt                int32           `json:"attempt" doc:"The how-manieth wake since progress."`
	CreatedAt              time.Time       `json:"created_at"`
	DeliveredAt            *time.Time      `json:"delivered_at"`
	ClaimedAt              *time.Time      `json:"claimed_at"`
	ResolvedAt             *time.Time      `json:"resolved_at"`
}

// EntityWakes lists the wakes of an entity, newest first, with an epoch below
// before (zero: from the newest).
func (s *Store) EntityWakes(ctx context.Context, service int32, url string, before int64, limit int) ([]Wake, error) {
	return s.wakes(ctx, `rouse.entity_wakes($1, $2::text, $3, $4)`, service, url, before, limit)
}

// wakes reads a page of those that a function finds for what has a name.
func (s *Store) wakes(ctx context.Context, from string, service int32, name string, before int64, limit int) ([]Wake, error) {
	out := []Wake{}
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var w Wake
		if err := rows.Scan(w.places()...); err != nil {
			return err
		}
		out = append(out, w)
		return nil
	}, `select `+wakeColumns+` from `+from, service, name, beforeArg(before), int32(limit))
	return out, err
}

func beforeArg(before int64) any {
	if before == 0 {
		return nil
	}
	return before
}

// Display is what a UI says about an entity.
type Display struct {
	URL            string  `json:"url"`
	Type           string  `json:"type"`
	Status         string  `json:"status"`
	Pending        bool    `json:"pending"`
	TargetType     *string `json:"target_type"`
	RunnerID       *string `json:"runner_id"`
	RunnerLabel    *string `json:"runner_label"`
	RunnerLiveness *string `json:"runner_liveness"`
	Code           string  `json:"code"`
	Display        string  `json:"display"`
}

// EntityDisplay reads an entity's display row; [ErrNoRow] when there is none.
func (s *Store) EntityDisplay(ctx context.Context, service int32, url string) (Display, error) {
	var d Display
	err := s.row(ctx, func(row pgx.Row) error {
		return row.Scan(&d.URL, &d.Type, &d.Status, &d.Pending, &d.TargetType, &d.RunnerID, &d.RunnerLabel, &d.RunnerLiveness, &d.Code, &d.Display)
	}, `select url, type, status, pending, target_type, runner_id, runner_label, runner_liveness, code, display
		from rouse.entity_display_get($1, $2::text)`, service, url)
	return d, err
}

// EntityDisplays gives, of those of the entities that are there, what a UI says.
func (s *Store) EntityDisplays(ctx context.Context, service int32, urls []string, give func(url, code, display string)) error {
	return s.rows(ctx, func(rows pgx.Rows) error {
		var url, code, display string
		if err := rows.Scan(&url, &code, &display); err != nil {
			return err
		}
		give(url, code, display)
		return nil
	}, `select url, code, display from rouse.entity_display_list($1, $2::text[])`, service, urls)
}
