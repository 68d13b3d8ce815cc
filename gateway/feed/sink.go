package feed

import (
	"context"
	"sync"
)

// GapReason says why signals may be missing; it labels metrics and logs.
type GapReason string

const (
	// GapStart: the gateway became the router slot's holder (first start,
	// take-over or reconnect). The slot has kept the log, so little is missing
	// but what the holder before had taken and not finished.
	GapStart GapReason = "start"
	// GapSlot: the router's slot was made anew, changes before it are not in it.
	GapSlot GapReason = "slot"
	// GapOverflow: more signals than the bound came while the sink was busy.
	GapOverflow GapReason = "overflow"
	// GapMalformed: a signal could not be read.
	GapMalformed GapReason = "malformed"
)

// RouterSink gets the actionable notices, only while this gateway holds the
// router's slot. Its methods are called from one goroutine of the feed and may
// block: what arrives meanwhile is merged by stream (highest tail, all flags).
type RouterSink interface {
	// Notices hands over the streams that committed transactions touched, in
	// the order of their first commit. Call b.Confirm once the work they ask
	// for is committed (or found to be none); until then the log is retained
	// and is sent again after a reconnect. A later Confirm covers earlier batches.
	Notices(ctx context.Context, b Batch)
	// Gap says that notices may be missing: the recovery scan closes the gap.
	// It comes before the notices that follow the gap.
	Gap(ctx context.Context, reason GapReason)
}

// DeliverySink gets the ids of wakes whose delivery is due, on every gateway.
// Its methods are called from one goroutine of the feed and may block: ids that
// arrive meanwhile are collected without duplicates.
type DeliverySink interface {
	// Wakes hands over wake ids in commit order. Every gateway gets the same
	// ids: the rows decide who delivers.
	Wakes(ctx context.Context, ids []string)
	// Gap says that ids may be missing: look for due deliveries in the tables.
	Gap(ctx context.Context, reason GapReason)
}

// Batch is what the router's sink gets.
type Batch struct {
	// LSN: everything committed before this position is in this batch or an
	// earlier one.
	LSN     LSN
	Notices []Notice

	confirm func()
}

// NewBatch makes a batch for tests of sinks.
func NewBatch(lsn LSN, notices []Notice, confirm func()) Batch {
	return Batch{LSN: lsn, Notices: notices, confirm: confirm}
}

// Confirm says that the batch and all before it are dealt with, so that the
// slot may let go of the log up to LSN. It may be called from any goroutine,
// late or twice; after a reconnect it has no effect, as the log is sent again.
func (b Batch) Confirm() {
	if b.confirm != nil {
		b.confirm()
	}
}

// Bounds of what is kept for a busy sink. Beyond them the sink is told of a gap.
const (
	maxPendingNotices = 1 << 18
	maxPendingWakes   = 1 << 16
)

// signal is a condition that one goroutine waits for; set never blocks.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// routerQueue holds what the router's sink has not taken yet, and knows up to
// where the slot may let go of the log.
type routerQueue struct {
	kick  signal
	limit int

	mu      sync.Mutex
	pending []Notice
	index   map[int64]int
	gap     GapReason
	// epoch counts the sessions on the router's slot; 0 is none yet. A
	// confirmation of an earlier session says nothing about the current one.
	epoch uint64
	// received: the log is complete up to here. confirmed: up to here it is no
	// longer needed.
	received, confirmed LSN
	// taken and done count batches: they differ while the sink owes one.
	taken, done uint64
}

func newRouterQueue(limit int) *routerQueue {
	return &routerQueue{kick: newSignal(), limit: limit, index: make(map[int64]int)}
}

// begin starts a session on the router's slot. What is still pending stays: it
// is true whoever routes it.
func (q *routerQueue) begin(reason GapReason) {
	q.mu.Lock()
	q.epoch++
	q.received, q.confirmed = 0, 0
	q.done = q.taken
	q.gap = reason
	q.mu.Unlock()
	q.kick.set()
}

// add merges a notice. It is not handed over before the next complete.
func (q *routerQueue) add(n Notice) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i, ok := q.index[n.Stream]; ok {
		q.pending[i].merge(n)
		return
	}
	if len(q.pending) >= q.limit {
		q.gap = GapOverflow
		q.kick.set()
		return
	}
	q.index[n.Stream] = len(q.pending)
	q.pending = append(q.pending, n)
}

// missed records that a signal could not be read.
func (q *routerQueue) missed(reason GapReason) {
	q.mu.Lock()
	q.gap = reason
	q.mu.Unlock()
	q.kick.set()
}

// complete says that everything before lsn has been received.
func (q *routerQueue) complete(lsn LSN) {
	q.mu.Lock()
	q.received = max(q.received, lsn)
	work := len(q.pending) > 0
	q.mu.Unlock()
	if work {
		q.kick.set()
	}
}

// take empties the queue. It may include notices of a transaction that is not
// complete yet: they are committed, only the batch's LSN does not cover them.
func (q *routerQueue) take() (b Batch, gap GapReason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	gap, q.gap = q.gap, ""
	b.Notices, q.pending = q.pending, nil
	clear(q.index)
	if len(b.Notices) == 0 {
		return b, gap
	}
	q.taken++
	b.LSN = q.received
	epoch, number, lsn := q.epoch, q.taken, q.received
	b.confirm = func() { q.confirm(epoch, number, lsn) }
	return b, gap
}

func (q *routerQueue) confirm(epoch, number uint64, lsn LSN) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if epoch == q.epoch {
		q.done = max(q.done, number)
		q.confirmed = max(q.confirmed, lsn)
	}
}

// positions returns up to where the log has been received, and up to where it
// is no longer needed: all of it while the sink owes nothing.
func (q *routerQueue) positions() (received, done LSN) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pending) == 0 && q.taken == q.done {
		q.confirmed = q.received
	}
	return q.received, q.confirmed
}

func (q *routerQueue) backlog() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pending)
}

// run hands over until ctx ends.
func (q *routerQueue) run(ctx context.Context, sink RouterSink) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.kick:
		}
		batch, gap := q.take()
		if gap != "" {
			sink.Gap(ctx, gap)
		}
		if len(batch.Notices) > 0 {
			sink.Notices(ctx, batch)
		}
	}
}

// wakeQueue holds the wake ids that the delivery sink has not taken yet.
type wakeQueue struct {
	kick  signal
	limit int

	mu      sync.Mutex
	pending []string
	known   map[string]struct{}
	gap     GapReason
}

func newWakeQueue(limit int) *wakeQueue {
	return &wakeQueue{kick: newSignal(), limit: limit, known: make(map[string]struct{})}
}

func (q *wakeQueue) add(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.known[id]; ok {
		return
	}
	if len(q.pending) >= q.limit {
		q.gap = GapOverflow
		return
	}
	q.known[id] = struct{}{}
	q.pending = append(q.pending, id)
}

func (q *wakeQueue) missed(reason GapReason) {
	q.mu.Lock()
	q.gap = reason
	q.mu.Unlock()
	q.kick.set()
}

func (q *wakeQueue) take() (ids []string, gap GapReason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	gap, q.gap = q.gap, ""
	ids, q.pending = q.pending, nil
	clear(q.known)
	return ids, gap
}

func (q *wakeQueue) run(ctx context.Context, sink DeliverySink) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.kick:
		}
		ids, gap := q.take()
		if gap != "" {
			sink.Gap(ctx, gap)
		}
		if len(ids) > 0 {
			sink.Wakes(ctx, ids)
		}
	}
}
