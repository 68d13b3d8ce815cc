package shape

import (
	"context"
	"strconv"
	"strings"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/shape/where"
	"github.com/rouse-run/rouse/gateway/store"
)

// query selects the rows of a shape that the caller may see; extra is a further
// filter, order and page come after. $1 is the service, $2 the tenant's name.
func (d *definition) query(extra *where.Filter, rest string) (string, []any) {
	args := []any{d.service, d.tenant}
	var b strings.Builder
	with, scope := d.scope(&args)
	b.WriteString(with + "select ")
	for i, c := range d.table.columns {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(c.sql + "::text")
	}
	b.WriteString(" from " + schema + "." + d.table.name + " t where t.service_id = $1::integer and $2::text is not null")
	b.WriteString(scope)
	for _, f := range []*where.Filter{d.filter, extra} {
		if f == nil {
			continue
		}
		if urls, ok := f.Pinned(d.table.by); ok && d.table.consumer {
			args = append(args, urls)
			b.WriteString(" and " + byConsumer("$"+strconv.Itoa(len(args))+"::text[]"))
		}
		b.WriteString(" and " + f.SQL(&args))
	}
	b.WriteString(rest)
	return b.String(), args
}

// byConsumer finds the rows of entities' mutexes by an index; those of urls, an
// array.
func byConsumer(urls string) string {
	return "t.consumer_id = any (array(select k.name from rouse.entities c join rouse.consumers k on k.id = c.consumer_id where c.url = any (" +
		urls + ") and c.service_id = $1::integer))"
}

// scope is the caller's rights as a condition, and what it needs before the
// query. The functions that decide are those of the routes; the candidates they
// are asked about come from indexes, and so do the rows then, so that nobody pays
// for the rows of others.
func (d *definition) scope(args *[]any) (with, condition string) {
	arg := func(v any) string {
		*args = append(*args, v)
		return "$" + strconv.Itoa(len(*args)) + "::text"
	}
	by := ""
	if d.table.by >= 0 {
		by = d.table.columns[d.table.by].sql
	}
	switch {
	case d.all:
		return "", ""
	case d.table.scope == owners:
		return "", " and " + by + " = " + arg(d.me)
	case d.table.scope == subjects:
		return "", " and " + by + " in (" + arg(d.me) + ", " + arg(d.caller.Kind) + ")"
	case d.table.scope == spawners:
		me := arg(d.me)
		return "", " and " + by + " in (select rouse.entity_type_allowed($1::integer, " + me +
			", 'spawn', array(select c.name from rouse.entity_types c where c.service_id = $1::integer)))"
	case d.table.scope == sharers:
		me := arg(d.me)
		return "", " and " + by + " = any (array(select c.id from rouse.worker_pools c where c.owner_principal = " + me + " and c.service_id = $1::integer" +
			" union select c.pool_id from rouse.worker_pool_members c where c.owner_principal = " + me + " and c.service_id = $1::integer))"
	case d.table.scope == readers:
		me, kind := arg(d.me), arg(d.caller.Kind)
		with = "with readable as materialized (select rouse.entity_allowed($1::integer, " + me + ", 'read', array(" +
			"select c.url from rouse.entities c where c.created_by = " + me + " and c.service_id = $1::integer" +
			" union select c.entity_url from rouse.entity_effective_permissions c where c.subject_value in (" + me + ", " + kind + ") and c.service_id = $1::integer)) as url) "
		const readable = "array(select r.url from readable r)"
		if d.table.consumer {
			return with, " and t.entity_url is not null and " + byConsumer(readable)
		}
		return with, " and " + by + " = any (" + readable + ")"
	}
	return "", ""
}

// snapshot reads the rows of a shape. begin gets its handle and the offset from
// which the log goes on; row gets each row, valid during the call only.
func (h *Handler) snapshot(ctx context.Context, d *definition, extra *where.Filter, rest string, rows bool,
	begin func(store.ShapeSnapshot, uint64) error, row func([]cell) error) error {
	select {
	case h.snapshots <- struct{}{}:
		defer func() { <-h.snapshots }()
	case <-ctx.Done():
		return problem.New(problem.Overloaded, "Too many snapshots are being read. Try again.")
	}
	h.metrics.snapshots.Inc()
	query, args := "", []any(nil)
	if rows {
		query, args = d.query(extra, rest)
	}
	before := h.ring.after(0)
	cells := make([]cell, len(d.table.columns))
	return h.Store.ShapeRead(ctx, query, args, func(s store.ShapeSnapshot) error {
		start := uint64(0)
		if before.up {
			start = h.ring.start(before.reached, s.Shows)
		}
		return begin(s, start)
	}, func(raw [][]byte) error {
		for i, v := range raw {
			cells[i] = cell{Cell: where.Cell{Text: string(v), Null: v == nil}}
		}
		return row(cells)
	})
}

// current reads what a row is now; nil when it is not there.
func (h *Handler) current(ctx context.Context, d *definition, row []cell) ([]cell, error) {
	whole := *d
	whole.filter, whole.all = nil, true
	query, args := whole.query(nil, "")
	for _, i := range d.table.key[1:] {
		c := d.table.columns[i]
		args = append(args, row[i].Text)
		query += " and " + c.sql + " = $" + strconv.Itoa(len(args)) + "::text::" + c.pg
	}
	var out []cell
	err := h.Store.ShapeRead(ctx, query, args, func(store.ShapeSnapshot) error { return nil }, func(raw [][]byte) error {
		out = make([]cell, len(raw))
		for i, v := range raw {
			out[i] = cell{Cell: where.Cell{Text: string(v), Null: v == nil}}
		}
		return nil
	})
	return out, err
}
