package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// ClaimOp is one mutex call of a batch. Zero members are not sent.
type ClaimOp struct {
	// Op is acquire, heartbeat, ack or release.
	Op      string `json:"op"`
	Service int32  `json:"service"`
	// One of ID, Consumer, Path and Wake finds the consumer.
	ID       int64  `json:"id,omitempty"`
	Consumer string `json:"consumer,omitempty"`
	Path     string `json:"path,omitempty"`
	Wake     string `json:"wake,omitempty"`
	Epoch    int64  `json:"epoch,omitempty"`
	Holder   string `json:"holder,omitempty"`
	Runner   string `json:"runner,omitempty"`
	ClaimID  string `json:"claim_id,omitempty"`
	// Trusted callers may take anything; Proved ones showed the wake's token.
	Trusted bool       `json:"trusted,omitempty"`
	Proved  bool       `json:"proved,omitempty"`
	Acks    []ClaimAck `json:"acks,omitempty"`
	// Error, when not nil, records the run as failed.
	Error *string `json:"error,omitempty"`
}

// ClaimAck says how far a stream has been worked.
type ClaimAck struct {
	Path     string `json:"path"`
	Position int64  `json:"position"`
}

// ClaimAnswer is what the mutex decided.
type ClaimAnswer struct {
	// Outcome is granted, repeated, held, stale, no_work, stopped, paused, ok,
	// released, lease_expired, invalid_offset, unknown_stream, not_found, busy,
	// not_owner, runner_not_found, runner_disabled, runner_full or
	// runner_mismatch; for a worker pool's wake not_member, pool_disabled or
	// pool_full.
	Outcome      string
	ConsumerID   int64
	ConsumerName string
	Epoch        int64
	WakeID       string
	Holder       string
	RunnerID     string
	// Lease is what is left of it, by the database's clock.
	Lease        time.Duration
	EntityURL    string
	EntityStatus string
	StreamPath   string
	NextWake     bool
	Notification json.RawMessage
	// ReleaseBy is when the lease ends at the latest, since its holder was asked
	// to hand over; nil: nobody has asked.
	ReleaseBy *time.Time
}

// ClaimApply runs a batch of mutex calls in one transaction and answers them in
// order. Without wait, a contended member answers busy.
func (s *Store) ClaimApply(ctx context.Context, ops []ClaimOp, wait bool) ([]ClaimAnswer, error) {
	body, err := json.Marshal(ops)
	if err != nil {
		return nil, err
	}
	out := make([]ClaimAnswer, 0, len(ops))
	err = s.rowsOn(ctx, s.lane(wait), func(r pgx.Rows) error {
		var a ClaimAnswer
		var ms int64
		if err := r.Scan(&a.Outcome, &a.ConsumerID, &a.ConsumerName, &a.Epoch, &a.WakeID, &a.Holder, &a.RunnerID, &ms,
			&a.EntityURL, &a.EntityStatus, &a.StreamPath, &a.NextWake, &a.Notification, &a.ReleaseBy); err != nil {
			return err
		}
		a.Lease = time.Duration(ms) * time.Millisecond
		out = append(out, a)
		return nil
	}, `select (a).outcome, coalesce((a).consumer_id, 0), coalesce((a).consumer_name, ''), coalesce((a).epoch, 0),
	           coalesce((a).wake_id::text, ''), coalesce((a).holder, ''), coalesce((a).runner_id, ''), coalesce((a).lease_ms, 0),
	           coalesce((a).entity_url, ''), coalesce((a).entity_status, ''), coalesce((a).stream_path, ''),
	           coalesce((a).next_wake, false), (a).notification, (a).release_by
	      from (select ord, answer as a from rouse.claim_apply($1, $2)) t order by ord`, body, wait)
	return out, err
}

// ClaimReap ends lapsed claims and redelivers unclaimed wakes, at most limit of
// them. When the database's clock was set back since the last call, leases that
// end in what is the far future again are shortened first.
func (s *Store) ClaimReap(ctx context.Context, limit int) (expired, redelivered, moved int, err error) {
	if s.clock.suspect() {
		for n := 1; n > 0; {
			if err := s.row(ctx, func(r pgx.Row) error { return r.Scan(&n) }, `select rouse.leases_clip()`); err != nil {
				return 0, 0, 0, err
			}
		}
		s.clock.settled()
	}
	var at time.Time
	err = s.row(ctx, func(r pgx.Row) error { return r.Scan(&expired, &redelivered, &moved, &at) },
		`select expired, redelivered, moved, clock_timestamp() from rouse.claim_reap($1)`, limit)
	if err == nil {
		s.clock.saw(at, time.Now())
	}
	return
}

// StreamAt is a stream and a position in it.
type StreamAt struct{ Stream, Position int64 }

// Routed is what became of one stream handed to DispatchRoute: minted,
// coalesced, idle, no_target or retry.
type Routed struct {
	Stream  int64
	Outcome string
}

// DispatchRoute wakes the owners of streams that got actionable appends.
func (s *Store) DispatchRoute(ctx context.Context, at []StreamAt) ([]Routed, error) {
	ids, positions := make([]int64, len(at)), make([]int64, len(at))
	for i, a := range at {
		ids[i], positions[i] = a.Stream, a.Position
	}
	out := make([]Routed, 0, len(at))
	err := s.rowsOn(ctx, s.hot, func(r pgx.Rows) error {
		var x Routed
		if err := r.Scan(&x.Stream, &x.Outcome); err != nil {
			return err
		}
		out = append(out, x)
		return nil
	}, `select stream_id, outcome from rouse.dispatch_route($1, $2)`, ids, positions)
	return out, err
}

// DispatchScan lists streams beyond after whose idle consumers have work nobody
// was told about.
func (s *Store) DispatchScan(ctx context.Context, after int64, limit int) ([]StreamAt, error) {
	var out []StreamAt
	err := s.rows(ctx, func(r pgx.Rows) error {
		var a StreamAt
		if err := r.Scan(&a.Stream, &a.Position); err != nil {
			return err
		}
		out = append(out, a)
		return nil
	}, `select stream_id, "position" from rouse.dispatch_scan($1, $2)`, after, limit)
	return out, err
}

// DueDelivery is a wake lent to a delivery worker.
type DueDelivery struct {
	Service      int32
	ServiceName  string
	WakeID       string
	ConsumerID   int64
	ConsumerName string
	Epoch        int64
	Attempt      int
	Target       json.RawMessage
	Notification json.RawMessage
	// Lease is how long the loan lasts: afterwards the wake is due again.
	Lease time.Duration
	// Receiver is what shares its fate with others: a webhook's host and port.
	Receiver string
}

// DeliveryLend lends due wakes to the caller: it looks at limit at most and
// lends a receiver's up to its room, each for receivers that room does not have.
// more says that there may be others for receivers that have room left.
func (s *Store) DeliveryLend(ctx context.Context, limit, each int, room map[string]int) (due []DueDelivery, more bool, err error) {
	if room == nil {
		room = map[string]int{}
	}
	text, err := json.Marshal(room)
	if err != nil {
		return nil, false, err
	}
	err = s.rows(ctx, func(r pgx.Rows) error {
		var d DueDelivery
		var ms int64
		if err := r.Scan(&d.Service, &d.ServiceName, &d.WakeID, &d.ConsumerID, &d.ConsumerName, &d.Epoch, &d.Attempt,
			&d.Target, &d.Notification, &ms, &d.Receiver, &more); err != nil {
			return err
		}
		d.Lease = time.Duration(ms) * time.Millisecond
		due = append(due, d)
		return nil
	}, `select service_id, service_name, wake_id::text, consumer_id, consumer_name, epoch, attempt, target, notification, lease_ms::bigint, receiver, more
	      from rouse.delivery_lend($1, $2, $3::jsonb)`, limit, each, string(text))
	return due, more, err
}

// DeliveryResult records how an attempt ended and returns what became of the
// wake.
func (s *Store) DeliveryResult(ctx context.Context, d DueDelivery, outcome string, retryAfter time.Duration, status int, errText string) (string, error) {
	var became string
	err := s.row(ctx, func(r pgx.Row) error { return r.Scan(&became) },
		`select rouse.delivery_result($1, $2, $3, $4, $5, nullif($6, 0), nullif($7, ''))`,
		d.Service, d.WakeID, d.Attempt, outcome, retryAfter.Milliseconds(), status, errText)
	return became, err
}

// Heartbeat is a runner's sign of life.
type Heartbeat struct {
	Service          int32
	Runner           string
	Principal        string
	Trusted          bool
	Lease            time.Duration // zero: the default
	WakeStreamOffset string
	Diagnostics      json.RawMessage
}

// Liveness is a runner's liveness after a heartbeat.
type Liveness struct {
	// Outcome is ok, not_found or not_owner.
	Outcome          string
	LastSeenAt       *time.Time
	LeaseExpiresAt   *time.Time
	Lease            time.Duration
	WakeStreamOffset *string
	Diagnostics      json.RawMessage
	// Redelivered counts wakes told again since the runner came back online.
	Redelivered int
	// Pools are the worker pools that it is an active member of.
	Pools []PoolOf
}

// RunnerHeartbeat extends a runner's liveness lease.
func (s *Store) RunnerHeartbeat(ctx context.Context, h Heartbeat) (Liveness, error) {
	var l Liveness
	var ms *int64
	var lease *int64
	if h.Lease > 0 {
		v := h.Lease.Milliseconds()
		lease = &v
	}
	var diag *string
	if len(h.Diagnostics) > 0 {
		v := string(h.Diagnostics)
		diag = &v
	}
	err := s.row(ctx, func(r pgx.Row) error {
		var pools []byte
		if err := r.Scan(&l.Outcome, &l.LastSeenAt, &l.LeaseExpiresAt, &ms, &l.WakeStreamOffset, &l.Diagnostics, &l.Redelivered, &pools); err != nil || pools == nil {
			return err
		}
		var active []struct {
			ID         string `json:"id"`
			WakeStream string `json:"wakeStream"`
		}
		if err := json.Unmarshal(pools, &active); err != nil {
			return err
		}
		for _, p := range active {
			l.Pools = append(l.Pools, PoolOf{PoolID: p.ID, WakeStream: p.WakeStream, Status: "active"})
		}
		return nil
	}, `select outcome, last_seen_at, liveness_lease_expires_at, lease_ms, wake_stream_offset, diagnostics, redelivered, pools
	      from rouse.runner_beat($1, $2, $3, $4, $5, nullif($6, ''), $7::jsonb)`,
		h.Service, h.Runner, h.Principal, h.Trusted, lease, h.WakeStreamOffset, diag)
	if ms != nil {
		l.Lease = time.Duration(*ms) * time.Millisecond
	}
	return l, err
}
