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
}

// EntityDispatch reads an entity's dispatch state; [ErrNoRow] when there is
// no such entity.
func (s *Store) EntityDispatch(ctx context.Context, service int32, url string) (DispatchState, error) {
	var d DispatchState
	var pending, target []byte
	err := s.row(ctx, func(row pgx.Row) error {
		return row.Scan(&d.EntityURL, &pending, &d.PendingReason, &d.PendingSince, &d.OutstandingWakeID, &target,
			&d.OutstandingCreatedAt, &d.ActiveConsumerID, &d.ActiveRunnerID, &d.ActiveEpoch, &d.ActiveClaimedAt,
			&d.ActiveLeaseExpiresAt, &d.LastWakeID, &d.LastClaimedAt, &d.LastReleasedAt, &d.LastCompletedAt, &d.LastError, &d.UpdatedAt)
	}, `select entity_url, pending_source_streams, pending_reason, pending_since, outstanding_wake_id::text, outstanding_wake_target,
		outstanding_wake_created_at, active_consumer_id, active_runner_id, active_epoch, active_claimed_at, active_lease_expires_at,
		last_wake_id::text, last_claimed_at, last_released_at, last_completed_at, last_error, updated_at
		from rouse.entity_dispatch($1, $2::text)`, service, url)
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
			&c.ClaimedAt, &c.LastHeartbeatAt, &c.LeaseExpiresAt, &c.ReleasedAt, &acked, &c.NextWake, &c.Error, &c.UpdatedAt); err != nil {
			return err
		}
		c.AckedStreams = acked
		out = append(out, c)
		return nil
	}, `select consumer_id, epoch, wake_id::text, entity_url, stream_path, runner_id, holder, status, claimed_at, last_heartbeat_at,
		lease_expires_at, released_at, acked_streams, next_wake, error, updated_at from rouse.entity_claims($1, $2::text, $3, $4)`,
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
	Attempts               int32           `json:"attempts"`
	CreatedAt              time.Time       `json:"created_at"`
	DeliveredAt            *time.Time      `json:"delivered_at"`
	ClaimedAt              *time.Time      `json:"claimed_at"`
	ResolvedAt             *time.Time      `json:"resolved_at"`
}

// EntityWakes lists the wakes of an entity, newest first, with an epoch below
// before (zero: from the newest).
func (s *Store) EntityWakes(ctx context.Context, service int32, url string, before int64, limit int) ([]Wake, error) {
	out := []Wake{}
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var w Wake
		var public []byte
		if err := rows.Scan(&w.WakeID, &w.ConsumerID, &w.Epoch, &w.EntityURL, &w.TargetType, &w.TargetRunnerID, &w.TargetWebhookURL,
			&w.RunnerWakeStream, &w.RunnerWakeStreamOffset, &public, &w.DeliveryStatus, &w.ClaimStatus, &w.Attempts,
			&w.CreatedAt, &w.DeliveredAt, &w.ClaimedAt, &w.ResolvedAt); err != nil {
			return err
		}
		w.NotificationPublic = public
		out = append(out, w)
		return nil
	}, `select wake_id::text, consumer_id, epoch, entity_url, target_type, target_runner_id, target_webhook_url, runner_wake_stream,
		runner_wake_stream_offset, notification_public, delivery_status, claim_status, attempts, created_at, delivered_at, claimed_at, resolved_at
		from rouse.entity_wakes($1, $2::text, $3, $4)`, service, url, beforeArg(before), int32(limit))
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
