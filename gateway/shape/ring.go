package shape

import (
	"context"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/rouse-run/rouse/gateway/feed"
)

// ring keeps the latest transactions that changed the tables, in commit order.
// It is the sink of the row session, so nothing in it waits for anybody. What it
// hands out never changes.
type ring struct {
	max int

	mu sync.Mutex
	// up: a session streams; since when not.
	up    bool
	since time.Time
	// floor is the least offset from which nothing is missing; reached is up to
	// where the log is read.
	floor, reached uint64
	txs            []*transaction
	// bytes of txs, and of what was dropped from its front but is still in memory.
	bytes, dead int
	// dropped are the latest that were forgotten, drops counts them.
	dropped [1024]dropped
	drops   int
	// invalid is told which entities' readers may have changed.
	invalid func(service int32, url string, xid uint32)

	layouts map[*feed.Table]*layout
	bells   []bell // by number of table
	state   bell   // up or floor changed
	moved   bell   // reached changed
}

// transaction is one that changed the tables.
type transaction struct {
	xid     uint32
	end     uint64
	changes []change
	bytes   int
	// touched are the tables, by number.
	touched uint32
}

// change of one row.
type change struct {
	op      feed.RowOp
	table   *table
	service int32
	*layout
	new, old []feed.Value
}

// layout says where a table's columns are in the log's rows.
type layout struct {
	table *table
	// at are the places by column, -1 for one that the log does not have.
	at      []int
	service int
	whole   bool
}

// bell wakes everybody who waits for the next ring.
type bell struct{ c chan struct{} }

func (b *bell) wait() <-chan struct{} {
	if b.c == nil {
		b.c = make(chan struct{})
	}
	return b.c
}

func (b *bell) ring() {
	if b.c != nil {
		close(b.c)
		b.c = nil
	}
}

func newRing(max int, invalid func(int32, string, uint32)) *ring {
	return &ring{max: max, invalid: invalid, bells: make([]bell, len(tables))}
}

// Begin implements feed.RowSink: what was before is void, and with it what is
// remembered of rights, for nobody was told of the changes meanwhile.
func (r *ring) Begin(at feed.LSN) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.up, r.layouts = true, map[*feed.Table]*layout{}
	r.reset(uint64(at))
	r.invalid(0, "", 0)
	r.state.ring()
}

// wanted says that a session is wanted from now on.
func (r *ring) wanted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = time.Now()
}

// late answers for how long a session has been wanted in vain.
func (r *ring) late() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.up {
		return 0
	}
	return time.Since(r.since)
}

// down says that the session has ended.
func (r *ring) down() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.up {
		r.since = time.Now()
	}
	r.up = false
	r.reset(r.reached)
	r.state.ring()
}

func (r *ring) reset(at uint64) {
	r.txs, r.bytes, r.dead, r.drops = nil, 0, 0, 0
	r.floor, r.reached = at, at
}

// Commit implements feed.RowSink.
func (r *ring) Commit(tx *feed.RowTx) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if tx.Lost {
		// Nobody can go on from before it. A grant may be among what is lost.
		r.reset(uint64(tx.End))
		r.invalid(0, "", tx.XID)
		for i := range r.bells {
			r.bells[i].ring()
		}
		r.state.ring()
		return
	}
	t := &transaction{xid: tx.XID, end: uint64(tx.End), bytes: tx.Bytes, changes: make([]change, 0, len(tx.Changes))}
	for _, c := range tx.Changes {
		l := r.layout(c.Table)
		if l == nil {
			continue
		}
		mine := change{op: c.Op, table: l.table, layout: l, new: c.New, old: c.Old}
		row := c.New
		if row == nil {
			row = c.Old
		}
		if l.service >= 0 && l.service < len(row) && row[l.service].Kind == feed.Present {
			n, _ := strconv.ParseInt(row[l.service].Text, 10, 32)
			mine.service = int32(n)
		}
		t.changes = append(t.changes, mine)
		t.touched |= 1 << l.table.number
		if l.table == permissions || l.table == entities && c.Op == feed.RowInsert {
			url := grantedURL
			if l.table == entities {
				url = entities.by
			}
			for _, values := range [][]feed.Value{c.New, c.Old} {
				if u, ok := l.cell(values, url); ok && u.Kind == feed.Present {
					r.invalid(mine.service, u.Text, tx.XID)
				}
			}
		}
	}
	if len(t.changes) == 0 {
		return
	}
	r.txs = append(r.txs, t)
	r.bytes += t.bytes
	for r.bytes > r.max {
		r.drop()
	}
	r.compact()
	r.reached = max(r.reached, t.end)
	r.moved.ring()
	for i := range r.bells {
		if t.touched&(1<<i) != 0 {
			r.bells[i].ring()
		}
	}
}

// Reached implements feed.RowSink.
func (r *ring) Reached(at feed.LSN) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if uint64(at) <= r.reached {
		return
	}
	r.reached = uint64(at)
	for len(r.txs) > 0 && r.txs[0].end+horizon < r.reached {
		r.drop()
	}
	r.compact()
	r.moved.ring()
}

// horizon is how far back the ring reaches, in bytes of log: less than 2^31
// transactions can write, so that the ids of those in it can be compared with a
// snapshot.
const horizon = 16 << 30

// drop forgets the oldest transaction.
func (r *ring) drop() {
	first := r.txs[0]
	r.txs, r.floor = r.txs[1:], first.end
	r.bytes, r.dead = r.bytes-first.bytes, r.dead+first.bytes
	r.dropped[r.drops%len(r.dropped)] = dropped{first.xid, first.end}
	r.drops++
}

// dropped is what is remembered of a transaction that was forgotten.
type dropped struct {
	xid uint32
	end uint64
}

// compact lets go of the memory that the slice's front still refers to.
func (r *ring) compact() {
	if r.dead > r.max/8 {
		r.txs, r.dead = slices.Clone(r.txs), 0
	}
}

func (r *ring) layout(t *feed.Table) *layout {
	if l, ok := r.layouts[t]; ok {
		return l
	}
	var l *layout
	if mine := tables[t.Name]; mine != nil && t.Schema == schema {
		l = &layout{table: mine, whole: t.Whole, service: slices.Index(t.Columns, "service_id"), at: make([]int, len(mine.columns))}
		for i, c := range mine.columns {
			l.at[i] = slices.Index(t.Columns, c.name)
		}
	}
	r.layouts[t] = l
	return l
}

// cell answers a column's value in a row of the log.
func (l *layout) cell(row []feed.Value, column int) (feed.Value, bool) {
	at := l.at[column]
	if at < 0 || at >= len(row) {
		return feed.Value{}, false
	}
	return row[at], true
}

// size answers the memory that the ring takes, in bytes.
func (r *ring) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes + r.dead
}

// view is a look at the ring.
type view struct {
	up bool
	// gone: from this offset on, something is missing.
	gone bool
	// behind: the log is not read up to the offset yet.
	behind  bool
	txs     []*transaction
	reached uint64
}

// after looks at what ended after an offset.
func (r *ring) after(offset uint64) view {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.look(offset)
}

func (r *ring) look(offset uint64) view {
	v := view{up: r.up, reached: r.reached}
	if !r.up {
		return v
	}
	v.gone, v.behind = offset < r.floor, offset > r.reached
	if !v.gone {
		i := sort.Search(len(r.txs), func(i int) bool { return r.txs[i].end > offset })
		v.txs = r.txs[i:]
	}
	return v
}

// watch looks, and answers bells that ring when there may be more to see: in the
// tables a and b, or in the state of the ring.
func (r *ring) watch(offset uint64, a, b *table) (v view, more [3]<-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	more[0] = r.bells[a.number].wait()
	if b != nil {
		more[1] = r.bells[b.number].wait()
	}
	more[2] = r.state.wait()
	return r.look(offset), more
}

// settle waits until the ring can tell what comes after the offset, or that it
// cannot.
func (r *ring) settle(ctx context.Context, offset uint64) view {
	for {
		r.mu.Lock()
		v := r.look(offset)
		state, moved := r.state.wait(), r.moved.wait()
		r.mu.Unlock()
		if v.up && !v.behind {
			return v
		}
		select {
		case <-state:
		case <-moved:
		case <-ctx.Done():
			return v
		}
	}
}

// start answers from which offset on a snapshot is followed by the log: nothing
// that it does not show ended before. To be asked for with the position that
// was reached before the snapshot was taken.
func (r *ring) start(before uint64, shows func(xid uint32) bool) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	start := before
	for _, d := range r.dropped[:min(r.drops, len(r.dropped))] {
		// It is not shown and can be told no more: the snapshot is of no use.
		if d.end+horizon > r.reached && !shows(d.xid) {
			return d.end - 1
		}
	}
	for i, t := range r.txs {
		if t.end > before {
			break
		}
		if shows(t.xid) {
			continue
		}
		// A commit can be in the log a moment before new snapshots show it.
		start = r.floor
		if i > 0 {
			start = r.txs[i-1].end
		}
		break
	}
	return start
}
