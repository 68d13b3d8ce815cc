package shape

import (
	"context"
	"slices"
	"strconv"

	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/pace"
	"github.com/rouse-run/rouse/gateway/shape/where"
)

// batch is what transactions mean for one shape.
type batch struct {
	// messages, each a JSON object.
	messages [][]byte
	// refetch: the caller's rights have changed, so the shape has to be fetched
	// anew.
	refetch bool
	// more follows at once: this is not the present yet.
	more bool
}

// follower turns transactions into messages of one shape.
type follower struct {
	*definition
	handle handle
	room   *Handler
	// types remembers which types the caller may spawn, or pools see, for one
	// request.
	types map[string]bool
}

// changes looks at transactions in their order.
func (f *follower) changes(ctx context.Context, txs []*transaction) (batch, error) {
	var fresh []*transaction
	for _, t := range txs {
		if f.handle.shown(t) {
			continue
		}
		if f.regranted(t) {
			return batch{refetch: true}, nil
		}
		if t.touched&(1<<f.table.number) != 0 {
			fresh = append(fresh, t)
		}
	}
	if len(fresh) == 0 {
		return batch{}, nil
	}
	may, err := f.rights(ctx, fresh)
	if err != nil {
		return batch{}, err
	}
	var b batch
	for _, t := range fresh {
		var ms []message
		for i := range t.changes {
			if c := &t.changes[i]; f.concerns(c) {
				m, err := f.messages(ctx, c, may)
				if err != nil {
					return batch{}, err
				}
				ms = append(ms, m...)
			}
		}
		for i := range ms {
			h := `,"txids":[` + strconv.FormatUint(uint64(t.xid), 10) + `],"lsn":"` + strconv.FormatUint(t.end, 10) + `","op_position":` + strconv.Itoa(i)
			if i == len(ms)-1 {
				h += `,"last":true`
			}
			b.messages = append(b.messages, ms[i].write(nil, f.table, h))
		}
	}
	return b, nil
}

// concerns reports whether a change is one of the shape's table and service. A
// key that does not hold the service may be anybody's.
func (f *follower) concerns(c *change) bool {
	return c.table == f.table && (c.service == f.service || c.service == 0)
}

// regranted reports whether a transaction changed what the caller may see of
// rows that it did not make itself. When an entity type has gone nothing says
// any more who might spawn it, when a pool has, who might see its members.
func (f *follower) regranted(t *transaction) bool {
	grants := f.grants()
	if grants == nil {
		return false
	}
	if f.table.scope == spawners && slices.ContainsFunc(t.changes, func(c change) bool { return c.op == feed.RowDelete && f.concerns(&c) }) {
		return true
	}
	if f.table.scope == sharers && slices.ContainsFunc(t.changes, func(c change) bool {
		return c.op == feed.RowDelete && c.table == workerPools && (c.service == f.service || c.service == 0)
	}) {
		return true
	}
	if t.touched&(1<<grants.number) == 0 {
		return false
	}
	permission := grants.find("permission")
	for i := range t.changes {
		c := &t.changes[i]
		if c.table != grants || c.service != f.service && c.service != 0 {
			continue
		}
		for _, row := range [][]feed.Value{c.new, c.old} {
			v, ok := c.cell(row, grants.subject)
			if !ok || v.Kind != feed.Present || v.Text != f.me && v.Text != f.caller.Kind {
				continue
			}
			if permission >= 0 {
				if p, ok := c.cell(row, permission); ok && !opens[p.Text] {
					continue
				}
			}
			if grants == permissions && c.op == feed.RowInsert {
				if url, _ := c.cell(row, grantedURL); t.made(f.service, url.Text) {
					continue
				}
			}
			return true
		}
	}
	return false
}

// opens are the permissions that let a caller see more: to read an entity, to
// spawn a type.
var opens = map[string]bool{"read": true, "spawn": true, "manage": true}

// made reports whether the transaction made the entity.
func (t *transaction) made(service int32, url string) bool {
	for i := range t.changes {
		if c := &t.changes[i]; c.table == entities && c.op == feed.RowInsert && c.service == service {
			if v, ok := c.cell(c.new, entities.by); ok && v.Text == url {
				return true
			}
		}
	}
	return false
}

// rights finds out what the caller may see of what the transactions changed.
func (f *follower) rights(ctx context.Context, txs []*transaction) (func(cells []cell) bool, error) {
	t := f.table
	switch {
	case f.all || t.scope == everybody:
		return func([]cell) bool { return true }, nil
	case t.scope == owners:
		return func(cells []cell) bool { return cells[t.by].Text == f.me }, nil
	case t.scope == subjects:
		return func(cells []cell) bool { return cells[t.by].Text == f.me || cells[t.by].Text == f.caller.Kind }, nil
	}
	names := map[string]uint32{}
	for _, tx := range txs {
		for i := range tx.changes {
			c := &tx.changes[i]
			if !f.concerns(c) {
				continue
			}
			for _, row := range [][]feed.Value{c.new, c.old} {
				if t.creator >= 0 {
					if v, ok := c.cell(row, t.creator); ok && v.Kind == feed.Present && v.Text == f.me {
						continue
					}
				}
				if v, ok := c.cell(row, t.by); ok && v.Kind == feed.Present {
					names[v.Text] = tx.xid
				}
			}
		}
	}
	mine := func(cells []cell) bool { return t.creator >= 0 && cells[t.creator].Text == f.me }
	if len(names) == 0 {
		return mine, nil
	}
	if t.scope == spawners || t.scope == sharers {
		if err := f.named(ctx, names); err != nil {
			return nil, err
		}
		return func(cells []cell) bool { return mine(cells) || f.types[cells[t.by].Text] }, nil
	}
	facts, err := f.room.access.of(ctx, f.service, names)
	if err != nil {
		return nil, err
	}
	return func(cells []cell) bool {
		return mine(cells) || !cells[t.by].Null && facts[cells[t.by].Text].allows(f.me, f.caller.Kind)
	}, nil
}

// named finds out which of the types the caller may spawn, or which pools it may
// see.
func (f *follower) named(ctx context.Context, names map[string]uint32) error {
	ask := f.room.Store.ShapeTypes
	if f.table.scope == sharers {
		ask = f.room.Store.ShapePools
	}
	var list []string
	show := map[uint32]struct{}{}
	for name, xid := range names {
		list = append(list, name)
		show[xid] = struct{}{}
	}
	for lag := lagMin; ; lag = min(2*lag, lagMax) {
		snap, may, err := ask(ctx, f.service, f.me, list)
		if err != nil {
			return err
		}
		if showsAll(snap, show) {
			f.types = make(map[string]bool, len(may))
			for _, name := range may {
				f.types[name] = true
			}
			return nil
		}
		if !pace.Rest(ctx, lag) {
			return ctx.Err()
		}
	}
}

// row brings a row of the log into the order of the table's columns.
func (f *follower) row(c *change, values []feed.Value) []cell {
	if values == nil {
		return nil
	}
	out := make([]cell, len(f.table.columns))
	for i := range out {
		v, ok := c.cell(values, i)
		switch {
		case i == 0:
			out[i] = cell{Cell: where.Cell{Text: f.tenant}}
		case ok && f.table.columns[i].millis:
			out[i] = millisOf(v)
		case ok:
			out[i] = cellOf(v)
		default:
			out[i] = cell{missing: true}
		}
	}
	return out
}

func (f *follower) matches(cells []cell) bool {
	// A value that the log leaves out is not null, whatever else it is.
	return f.filter.Match(func(i int) where.Cell { return cells[i].Cell })
}

// messages says what a change means for the shape.
func (f *follower) messages(ctx context.Context, c *change, may func([]cell) bool) ([]message, error) {
	row, old := f.row(c, c.new), f.row(c, c.old)
	whole := c.whole && old != nil
	switch {
	case c.op == feed.RowInsert:
		if may(row) && f.matches(row) {
			return []message{f.insert(row)}, nil
		}
		return nil, nil
	case c.op == feed.RowDelete:
		// Of a key alone it is not known whether the row was in the shape.
		if whole && may(old) && f.matches(old) || !whole && (f.all || f.keyTells(may, old)) {
			return []message{f.remove(old, whole)}, nil
		}
		return nil, nil
	case whole:
		for i := range row {
			if row[i].missing {
				row[i] = old[i]
			}
		}
		return f.between(old, row, may), nil
	}
	if old != nil && rowKey(f.table, old) != rowKey(f.table, row) {
		// The row has another name: the log tells the old one.
		ms, err := f.update(ctx, row, may)
		return append([]message{f.remove(old, false)}, ms...), err
	}
	return f.update(ctx, row, may)
}

// keyTells reports whether a row's key alone shows that the caller may see it.
func (f *follower) keyTells(may func([]cell) bool, key []cell) bool {
	return f.table.by < 0 || !key[f.table.by].Null && !key[f.table.by].missing && may(key)
}

// between compares a row with what it was.
func (f *follower) between(old, row []cell, may func([]cell) bool) []message {
	was, is := may(old) && f.matches(old), may(row) && f.matches(row)
	if was && rowKey(f.table, old) != rowKey(f.table, row) {
		was = false
		if !is {
			return []message{f.remove(old, true)}
		}
		return []message{f.remove(old, true), f.insert(row)}
	}
	switch {
	case was && is:
		var changed []int
		for _, i := range f.columns {
			if row[i] != old[i] {
				changed = append(changed, i)
			}
		}
		if len(changed) == 0 {
			return nil
		}
		m := message{op: "update", cells: row}
		if m.columns = f.withKey(changed); f.full {
			m.columns, m.old, m.was = f.columns, changed, old
		}
		return []message{m}
	case is:
		return []message{f.insert(row)}
	case was:
		return []message{f.remove(old, true)}
	}
	return nil
}

// update deals with a row of which it is not known what it was: what matches is
// sent whole, for it may be new to the shape; what does not is taken back, for
// it may have been in it.
func (f *follower) update(ctx context.Context, row []cell, may func([]cell) bool) ([]message, error) {
	if !may(row) {
		return nil, nil
	}
	if (f.drifts || f.full) && f.lacks(row) {
		found, err := f.room.current(ctx, f.definition, row)
		if err != nil || found == nil {
			return nil, err
		}
		for i := range row {
			if row[i].missing {
				row[i] = found[i]
			}
		}
	}
	switch {
	case f.matches(row):
		return []message{{op: "update", cells: row, columns: f.columns}}, nil
	case f.drifts:
		return []message{f.remove(row, false)}, nil
	}
	return nil, nil
}

func (f *follower) lacks(row []cell) bool {
	for _, i := range f.columns {
		if row[i].missing {
			return true
		}
	}
	for _, i := range f.filter.Columns() {
		if row[i].missing {
			return true
		}
	}
	return false
}

// withKey adds the key's columns that the shape has.
func (f *follower) withKey(columns []int) []int {
	var out []int
	for _, i := range f.columns {
		if contains(columns, i) || contains(f.table.key, i) {
			out = append(out, i)
		}
	}
	return out
}

func contains(list []int, v int) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}

func (f *follower) insert(row []cell) message {
	return message{op: "insert", cells: row, columns: f.columns}
}

// remove names the row, and if all of it is known and wanted, all of it.
func (f *follower) remove(row []cell, whole bool) message {
	m := message{op: "delete", cells: row, columns: f.withKey(nil)}
	if whole && f.full {
		m.columns = f.columns
	}
	return m
}

var _ feed.RowSink = (*ring)(nil)
