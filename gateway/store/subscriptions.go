package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// SubscriptionSpec is a subscription as it is asked for. Paths and patterns are
// relative to the root, without a leading slash.
type SubscriptionSpec struct {
	Service int32
	ID      string
	// Type is webhook, pull-wake, or the type of another transport's targets.
	Type    string
	Pattern string // "" is none
	Streams []string
	// WakeStream is for pull-wake, WebhookURL for webhook.
	WakeStream string
	WebhookURL string
	// Target is for the other types: what the transport is handed, its type
	// included.
	Target      json.RawMessage
	Description string
	Lease       time.Duration
	// Mount is the path prefix it is made through: "" or "/v1/stream".
	Mount string
	// Owner is the principal that registers it; System says that it is one of
	// the server's own, which may watch every stream.
	Owner  string
	System bool
}

// SubscriptionStream is a stream that a subscription watches.
type SubscriptionStream struct {
	Path string `json:"path"`
	// LinkType is explicit (named) or glob (found by the pattern).
	LinkType    string `json:"link_type"`
	AckedOffset string `json:"acked_offset"`
	TailOffset  string `json:"tail_offset"`
	HasPending  bool   `json:"has_pending"`
}

// Subscription is a subscription with its mutex.
type Subscription struct {
	ConsumerID int64
	// ConsumerName is new for each life of an ID.
	ConsumerName string
	ID           string
	Type         string
	Pattern      *string
	WakeStream   *string
	WebhookURL   *string
	Target       json.RawMessage
	Description  *string
	Lease        time.Duration
	Mount        string
	Owner        string
	System       bool
	// Status is active, or failed while the receiver's last answer was a
	// refusal; LastError says which.
	Status    string
	LastError *string
	CreatedAt time.Time
	// State is idle, waking, claimed or expired.
	State     string
	Epoch     int64
	WakeID    *string
	Holder    *string
	LeaseLeft time.Duration
	Pending   bool
	Streams   []SubscriptionStream
}

const (
	// settleStep bounds the streams that one transaction looks at.
	settleStep = 2000
	// settleWait is how long to wait before looking again for those who make
	// streams at this moment; each is at it for some milliseconds.
	settleWait = 2 * time.Millisecond
	// unsettledAge is when a subscription that nobody has finished is taken to
	// be abandoned.
	unsettledAge = 15 * time.Second
	// tidyWait bounds what is done for one of these at a time: a stream may be
	// locked for long, and others wait to be tidied.
	tidyWait = 2 * time.Second
)

// SubscriptionPut registers or confirms a subscription and returns once every
// stream that existed is linked. Should ctx end before, the next call for it or
// [Store.SubscriptionTidy] goes on. The outcome is created, confirmed, conflict,
// forbidden, stream_forbidden, stream_reserved, wake_stream_guarded,
// wake_stream_type or wake_stream_own.
func (s *Store) SubscriptionPut(ctx context.Context, q SubscriptionSpec) (string, error) {
	var outcome string
	err := s.row(ctx, func(r pgx.Row) error { return r.Scan(&outcome) },
		`select rouse.subscription_register($1, $2, $3, nullif($4, ''), $5, nullif($6, ''), nullif($7, ''), $8, nullif($9, ''), $10, $11, $12, $13)`,
		q.Service, q.ID, q.Type, q.Pattern, nonNil(q.Streams), q.WakeStream, q.WebhookURL, jsonArg(q.Target), q.Description, q.Lease.Milliseconds(), q.Mount, q.Owner, q.System)
	if err != nil || outcome != "created" && outcome != "confirmed" {
		return outcome, err
	}
	return outcome, s.settle(ctx, q.Service, q.ID)
}

func nonNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

// settle links what existed, step by step.
func (s *Store) settle(ctx context.Context, service int32, id string) error {
	var outcome string
	var change *int32
	var creators []string
	for {
		err := s.row(ctx, func(r pgx.Row) error { return r.Scan(&outcome, &change, &creators) },
			`select outcome, change, creators from rouse.subscription_settle($1, $2, $3, $4, $5)`, service, id, change, creators, settleStep)
		if err != nil {
			return err
		}
		switch outcome {
		case "done", "not_found":
			return nil
		case "waiting":
			t := time.NewTimer(settleWait)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return ctx.Err()
			}
		}
	}
}

// withTarget adds its target to what is read of a subscription.
const withTarget = `select g.*, case when g.type not in ('webhook', 'pull-wake') then rouse.subscription_target(g.consumer_id) end from `

// settleFor is settle for a while; done says that it came to its end, else
// whoever comes next goes on.
func (s *Store) settleFor(ctx context.Context, wait time.Duration, service int32, id string) (done bool, err error) {
	some, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if err = s.settle(some, service, id); err != nil && some.Err() != nil {
		return false, ctx.Err()
	}
	return err == nil, err
}

// SubscriptionGet reads a subscription with at most streams of what it watches,
// the named ones first; [ErrNoRow] when there is none.
func (s *Store) SubscriptionGet(ctx context.Context, service int32, id string, streams int) (Subscription, error) {
	var b Subscription
	err := s.row(ctx, func(r pgx.Row) error { return b.scan(r) }, withTarget+`rouse.subscription_get($1, $2, $3) g`, service, id, streams)
	return b, err
}

// SubscriptionList reads subscriptions in order of their ids, those of owner or,
// when that is empty, all; without their streams.
func (s *Store) SubscriptionList(ctx context.Context, service int32, owner, after string, limit int) ([]Subscription, error) {
	var out []Subscription
	err := s.rows(ctx, func(r pgx.Rows) error {
		var b Subscription
		if err := b.scan(r); err != nil {
			return err
		}
		out = append(out, b)
		return nil
	}, withTarget+`rouse.subscription_list($1, nullif($2, ''), $3, $4) g`, service, owner, after, limit)
	return out, err
}

func (b *Subscription) scan(r pgx.Row) error {
	var lease int64
	var left *int64
	var streams []byte
	if err := r.Scan(&b.ConsumerID, &b.ConsumerName, &b.ID, &b.Type, &b.Pattern, &b.WakeStream, &b.WebhookURL, &b.Description, &lease,
		&b.Mount, &b.Owner, &b.System, &b.Status, &b.LastError, &b.CreatedAt, &b.State, &b.Epoch, &b.WakeID, &b.Holder, &left,
		&b.Pending, &streams, (*[]byte)(&b.Target)); err != nil {
		return err
	}
	b.Lease = time.Duration(lease) * time.Millisecond
	if left != nil {
		b.LeaseLeft = time.Duration(*left) * time.Millisecond
	}
	return json.Unmarshal(streams, &b.Streams)
}

// SubscriptionDelete ends a subscription at once, its claim and wake too; false
// when there is none.
func (s *Store) SubscriptionDelete(ctx context.Context, service int32, id, principal string) (bool, error) {
	var ok bool
	err := s.row(ctx, func(r pgx.Row) error { return r.Scan(&ok) }, `select rouse.subscription_delete($1, $2, $3)`, service, id, principal)
	return ok, err
}

// SubscriptionStreamsAdd names more streams for a principal and returns once those that exist
// are linked. The outcome is ok, not_found, stream_forbidden, stream_reserved,
// wake_stream_own or too_many.
func (s *Store) SubscriptionStreamsAdd(ctx context.Context, service int32, id, principal string, paths []string) (string, error) {
	var outcome string
	err := s.row(ctx, func(r pgx.Row) error { return r.Scan(&outcome) }, `select rouse.subscription_watch($1, $2, $3, $4)`, service, id, principal, nonNil(paths))
	if err != nil || outcome != "ok" {
		return outcome, err
	}
	return outcome, s.settle(ctx, service, id)
}

// SubscriptionStreamRemove takes a stream's name back. The outcome is ok, also
// when it was not named, or not_found.
func (s *Store) SubscriptionStreamRemove(ctx context.Context, service int32, id, principal, path string) (string, error) {
	var outcome string
	err := s.row(ctx, func(r pgx.Row) error { return r.Scan(&outcome) }, `select rouse.subscription_unwatch($1, $2, $3, $4)`, service, id, principal, path)
	return outcome, err
}

// SubscriptionScan steps through subscriptions with unread streams beyond the
// consumer after: a stream of each that is idle. next is where to go on, zero at
// the end.
func (s *Store) SubscriptionScan(ctx context.Context, after int64, limit int) (at []StreamAt, next int64, err error) {
	n := 0
	err = s.rows(ctx, func(r pgx.Rows) error {
		var stream, position *int64
		if err := r.Scan(&next, &stream, &position); err != nil {
			return err
		}
		n++
		if stream != nil {
			at = append(at, StreamAt{*stream, *position})
		}
		return nil
	}, `select consumer_id, stream_id, "position" from rouse.subscription_scan($1, $2)`, after, limit)
	if n < limit {
		next = 0
	}
	return at, next, err
}

// SubscriptionTidy does one bounded step of what deleted subscriptions leave,
// and finishes those whose maker has gone before everything was linked; more
// says that there is more to do.
func (s *Store) SubscriptionTidy(ctx context.Context, limit int32) (more bool, err error) {
	if err := s.row(ctx, func(r pgx.Row) error { return r.Scan(&more) }, `select rouse.subscription_tidy($1)`, limit); err != nil || more {
		return more, err
	}
	type key struct {
		service int32
		id      string
	}
	var left []key
	err = s.rows(ctx, func(r pgx.Rows) error {
		var k key
		if err := r.Scan(&k.service, &k.id); err != nil {
			return err
		}
		left = append(left, k)
		return nil
	}, `select service_id, id from rouse.subscription_unsettled($1, 16)`, unsettledAge.Milliseconds())
	more = len(left) == 16
	for _, k := range left {
		if err == nil {
			var done bool
			done, err = s.settleFor(ctx, tidyWait, k.service, k.id)
			more = more && done
		}
	}
	return more && err == nil, err
}
