package feed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

// RowsPublication is the publication that [Feed.Rows] reads: the tables that UIs
// sync.
const RowsPublication = "rouse_rows"

// rowsSlot is the prefix of the temporary slots of row sessions.
const rowsSlot = "rouse_rows"

// Table is a table as the log describes it. It never changes; a table that was
// altered is another Table.
type Table struct {
	Schema, Name string
	Columns      []string
	// Whole says that old rows come whole (replica identity full).
	Whole bool
}

// Value is one column's value in Postgres' text form.
type Value struct {
	Text string
	Kind ValueKind
}

// ValueKind says whether a value is there.
type ValueKind uint8

const (
	// Null is SQL's null, and what a key-only old row has beyond its key.
	Null ValueKind = iota
	// Present: Text holds the value.
	Present
	// Unchanged: a large value that an update did not touch; the log leaves it out.
	Unchanged
)

// RowOp is what happened to a row.
type RowOp byte

// The operations, as pgoutput names them.
const (
	RowInsert RowOp = 'I'
	RowUpdate RowOp = 'U'
	RowDelete RowOp = 'D'
)

// RowChange is one change of one row. Values are in the order of Table.Columns.
type RowChange struct {
	Op    RowOp
	Table *Table
	// New is nil for a delete. Old is nil for an insert, and for an update whose
	// key did not change of a table that is not Whole.
	New, Old []Value
}

// RowTx is a committed transaction.
type RowTx struct {
	// XID is the transaction's 32-bit id.
	XID uint32
	// End is the position after the commit record; it identifies the transaction
	// on every gateway.
	End     LSN
	Changes []RowChange
	// Bytes estimates the memory that the transaction takes.
	Bytes int
	// Lost: some changes are missing, because the transaction was above the limit
	// or emptied a table.
	Lost bool
}

// RowSink gets transactions in commit order. Its methods are called by the
// goroutine that drains the socket: they must not block.
type RowSink interface {
	// Begin comes once, first: every transaction that commits after at follows.
	Begin(at LSN)
	// Commit hands over a transaction that changed published tables. It may come
	// before new snapshots of the database show it.
	Commit(tx *RowTx)
	// Reached says that all transactions up to at have been handed over.
	Reached(at LSN)
}

// Rows streams the changes of published rows to sink until ctx ends or the
// session fails, in which case it returns the error. It uses a connection and a
// temporary slot of its own, so that who does not call it pays for nothing, and
// nothing is retained for it. Making the slot waits for all transactions that
// write now. A transaction of more than maxBytes comes without its changes.
func (f *Feed) Rows(ctx context.Context, sink RowSink, maxBytes int) error {
	pc, err := f.dialRows(ctx)
	if err != nil {
		return err
	}
	slot := rowsSlot + "_" + randomName()
	err = wantRowsPublication(ctx, pc)
	var at LSN
	if err == nil {
		at, err = makeRowsSlot(ctx, pc, slot)
	}
	if err != nil {
		closeConn(ctx, pc)
		return err
	}
	ended := make(chan struct{})
	d := &rowDecoder{max: maxBytes, commit: sink.Commit}
	s := &session{
		slot: slot, timeout: f.cfg.ReadTimeout, cfg: &f.cfg, hub: f.hub, metrics: f.metrics, dec: d,
		reached: sink.Reached, onEnd: func(error) { close(ended) }, refused: f.refused,
	}
	d.finish = s.complete
	started, cancel := context.WithTimeout(ctx, f.cfg.ConnectTimeout)
	defer cancel()
	err = pglogrepl.StartReplication(started, pc, slot, 0, pglogrepl.StartReplicationOptions{
		Mode:       pglogrepl.LogicalReplication,
		PluginArgs: []string{"proto_version '1'", fmt.Sprintf("publication_names '%s'", RowsPublication)},
	})
	if err == nil {
		err = s.start(pc)
	}
	if err != nil {
		closeConn(ctx, pc)
		return err
	}
	sink.Begin(at)
	s.run()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	s.close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.err
}

// dialRows connects with the settings that fix the text form of values: those of
// snapshots are the same.
func (f *Feed) dialRows(ctx context.Context) (*pgconn.PgConn, error) {
	cfg := f.replCfg.Copy()
	cfg.RuntimeParams["application_name"] = "rouse-rows"
	cfg.RuntimeParams["wal_sender_timeout"] = fmt.Sprint(f.cfg.TailTimeout.Milliseconds())
	cfg.RuntimeParams["timezone"] = "UTC"
	cfg.RuntimeParams["datestyle"] = "ISO"
	ctx, cancel := context.WithTimeout(ctx, f.cfg.ConnectTimeout)
	defer cancel()
	return pgconn.ConnectConfig(ctx, cfg)
}

// wantRowsPublication asks whether the publication exists: from Postgres 18 on a
// session without it begins all the same, and never gets a row.
func wantRowsPublication(ctx context.Context, pc *pgconn.PgConn) error {
	res, err := pc.Exec(ctx, fmt.Sprintf("select from pg_publication where pubname = '%s'", RowsPublication)).ReadAll()
	if err == nil && (len(res) != 1 || len(res[0].Rows) != 1) {
		err = errNoPublication
	}
	return err
}

// makeRowsSlot returns the position from which on the slot sees every commit.
func makeRowsSlot(ctx context.Context, pc *pgconn.PgConn, slot string) (LSN, error) {
	res, err := pc.Exec(ctx, fmt.Sprintf("CREATE_REPLICATION_SLOT %s TEMPORARY LOGICAL pgoutput (SNAPSHOT 'nothing')", slot)).ReadAll()
	if err != nil {
		return 0, err
	}
	if len(res) != 1 || len(res[0].Rows) != 1 || len(res[0].Rows[0]) < 2 {
		return 0, errors.New("feed: the server does not say where its slot begins")
	}
	return pglogrepl.ParseLSN(string(res[0].Rows[0][1]))
}

// pgoutput messages that carry rows.
const (
	frameRelation = 'R'
	frameInsert   = 'I'
	frameUpdate   = 'U'
	frameDelete   = 'D'
	frameTruncate = 'T'
)

// valueOverhead estimates what a value takes beside its text.
const valueOverhead = 24

// rowDecoder collects the rows of each transaction.
type rowDecoder struct {
	max    int
	commit func(*RowTx)
	finish func(LSN)

	tables map[uint32]*Table
	tx     *RowTx
}

func (d *rowDecoder) open() bool { return d.tx != nil }

func (d *rowDecoder) decode(frame []byte) error {
	if len(frame) == 0 {
		return errShortFrame
	}
	r := reader{b: frame[1:]}
	switch frame[0] {
	case frameBegin:
		r.skip(8 + 8) // final LSN, time
		d.tx = &RowTx{XID: r.uint32()}
	case frameCommit:
		r.skip(1 + 8) // flags, LSN of the record
		end := LSN(r.uint64())
		if r.short || d.tx == nil {
			return fmt.Errorf("commit: %w", errShortFrame)
		}
		tx := d.tx
		tx.End, d.tx = end, nil
		if len(tx.Changes) > 0 || tx.Lost {
			d.commit(tx)
		}
		d.finish(end)
	case frameRelation:
		d.relation(&r)
	case frameInsert, frameUpdate, frameDelete:
		d.change(RowOp(frame[0]), &r)
	case frameTruncate:
		if d.tx != nil {
			d.tx.lose()
		}
	}
	if r.short {
		return fmt.Errorf("message %q: %w", frame[0], errShortFrame)
	}
	return nil
}

// lose drops what was collected.
func (tx *RowTx) lose() { tx.Changes, tx.Bytes, tx.Lost = nil, 0, true }

func (d *rowDecoder) relation(r *reader) {
	id := r.uint32()
	t := &Table{Schema: r.text(), Name: r.text()}
	t.Whole = r.byte() == 'f'
	n := int(r.uint16())
	for i := 0; i < n && !r.short; i++ {
		r.skip(1) // part of the key
		t.Columns = append(t.Columns, r.text())
		r.skip(4 + 4) // type, modifier
	}
	if old := d.tables[id]; old != nil && old.Schema == t.Schema && old.Name == t.Name && old.Whole == t.Whole && slices.Equal(old.Columns, t.Columns) {
		return // described again, as after each analysis
	}
	if d.tables == nil {
		d.tables = map[uint32]*Table{}
	}
	d.tables[id] = t
}

func (d *rowDecoder) change(op RowOp, r *reader) {
	t := d.tables[r.uint32()]
	if t == nil || d.tx == nil {
		r.short = true
		return
	}
	if d.tx.Lost {
		return
	}
	size := len(r.b)
	c := RowChange{Op: op, Table: t}
	kind := r.byte()
	if kind == 'K' || kind == 'O' {
		c.Old = r.tuple()
		if op == RowUpdate {
			kind = r.byte()
		}
	}
	if kind == 'N' {
		c.New = r.tuple()
	}
	if r.short || c.New == nil && op != RowDelete || c.Old == nil && op == RowDelete {
		r.short = true
		return
	}
	d.tx.Changes = append(d.tx.Changes, c)
	d.tx.Bytes += size + valueOverhead*(len(c.New)+len(c.Old)+4)
	if d.tx.Bytes > d.max {
		d.tx.lose()
	}
}

// reader takes a message apart. Once it was too short it answers zeros.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || len(r.b) < n {
		r.short, r.b = true, nil
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) skip(n int) { r.take(n) }

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// text reads a string that a zero ends.
func (r *reader) text() string {
	for i, c := range r.b {
		if c == 0 {
			s := string(r.b[:i])
			r.b = r.b[i+1:]
			return s
		}
	}
	r.short, r.b = true, nil
	return ""
}

// tuple reads a row. All values share one string.
func (r *reader) tuple() []Value {
	n := int(r.uint16())
	if r.short || n > len(r.b) {
		r.short = true
		return nil
	}
	vs := make([]Value, n)
	var all strings.Builder
	ends := make([]int, n)
	for i := range vs {
		switch r.byte() {
		case 'n':
		case 'u':
			vs[i].Kind = Unchanged
		case 't':
			vs[i].Kind = Present
			all.Write(r.take(int(r.uint32())))
		default:
			r.short = true
		}
		if r.short {
			return nil
		}
		ends[i] = all.Len()
	}
	whole, begin := all.String(), 0
	for i := range vs {
		vs[i].Text = whole[begin:ends[i]]
		begin = ends[i]
	}
	return vs
}
