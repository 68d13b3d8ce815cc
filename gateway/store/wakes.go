package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// DeliveryAttempt is one send of a wake by a push transport. What the receiver
// answered is not kept, its status is.
type DeliveryAttempt struct {
	Attempt    int        `json:"attempt"`
	Transport  string     `json:"transport"`
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
	Outcome    *string    `json:"outcome"`
	StatusCode *int       `json:"status_code"`
	Error      *string    `json:"error"`
}

// WakeFile is a wake with its last delivery attempts, oldest first.
type WakeFile struct {
	Wake
	// NextAttemptAt is when a push transport sends it next; nil when nothing is
	// due.
	NextAttemptAt *time.Time        `json:"next_attempt_at"`
	Deliveries    []DeliveryAttempt `json:"deliveries"`
}

const wakeColumns = `wake_id::text, consumer_id, epoch, entity_url, target_type, target_runner_id, target_webhook_url, runner_wake_stream,
	runner_wake_stream_offset, notification_public, delivery_status, claim_status, attempts, created_at, delivered_at, claimed_at, resolved_at,
	target_pool_id, target_index, attempt`

// places are where a row of wakeColumns is scanned to.
func (w *Wake) places() []any {
	return []any{&w.WakeID, &w.ConsumerID, &w.Epoch, &w.EntityURL, &w.TargetType, &w.TargetRunnerID, &w.TargetWebhookURL,
		&w.RunnerWakeStream, &w.RunnerWakeStreamOffset, &w.NotificationPublic, &w.DeliveryStatus, &w.ClaimStatus, &w.Attempts,
		&w.CreatedAt, &w.DeliveredAt, &w.ClaimedAt, &w.ResolvedAt, &w.TargetPoolID, &w.TargetIndex, &w.Attempt}
}

// WakeGet reads a wake; may says whether the principal owns what it is for, or
// manages it. [ErrNoRow] when there is none. wake is a UUID.
func (s *Store) WakeGet(ctx context.Context, service int32, wake, principal string) (f WakeFile, may bool, err error) {
	var attempts []byte
	err = s.row(ctx, func(row pgx.Row) error {
		return row.Scan(append(f.places(), &f.NextAttemptAt, &may, &attempts)...)
	}, `select (w.wake).wake_id::text, (w.wake).consumer_id, (w.wake).epoch, (w.wake).entity_url, (w.wake).target_type, (w.wake).target_runner_id,
		(w.wake).target_webhook_url, (w.wake).runner_wake_stream, (w.wake).runner_wake_stream_offset, (w.wake).notification_public,
		(w.wake).delivery_status, (w.wake).claim_status, (w.wake).attempts, (w.wake).created_at, (w.wake).delivered_at, (w.wake).claimed_at,
		(w.wake).resolved_at, (w.wake).target_pool_id, (w.wake).target_index, (w.wake).attempt, (w.wake).next_attempt_at, coalesce(w.may, false), w.attempts
		from rouse.wake_get($1, $2::uuid, $3::text) w`, service, wake, principal)
	if err != nil {
		return f, false, err
	}
	return f, may, json.Unmarshal(attempts, &f.Deliveries)
}

// WakeRedeliver tells an open wake again at once: redelivered, claimed,
// resolved or not_found. wake is a UUID.
func (s *Store) WakeRedeliver(ctx context.Context, service int32, wake, principal string) (outcome string, err error) {
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome) }, `select rouse.wake_redeliver($1, $2::uuid, $3::text)`, service, wake, principal)
	return outcome, err
}

// ConsumerWakes lists the wakes of a consumer, newest first, with an epoch below
// before (zero: from the newest).
func (s *Store) ConsumerWakes(ctx context.Context, service int32, consumer string, before int64, limit int) ([]Wake, error) {
	return s.wakes(ctx, `rouse.consumer_wakes($1, $2::text, $3, $4)`, service, consumer, before, limit)
}
