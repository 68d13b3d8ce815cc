// Package where owns the filters of shapes: the part of SQL's where clause that
// a client may send, as a syntax tree.
//
// It promises that nothing of a clause reaches the database but as a parameter
// (columns and operators are the package's own words), that Match on the text
// form of a row decides as the SQL it compiles to does in Postgres, and that
// parsing and matching take time and memory in proportion to a clause of
// bounded length and depth. It knows nothing of HTTP, principals or the log.
//
// The subset: = <> != < <= > >=, IS [NOT] DISTINCT FROM, [NOT] IN, = ANY,
// [NOT] BETWEEN, [NOT] LIKE and ILIKE, IS [NOT] NULL, TRUE, FALSE, UNKNOWN,
// AND, OR, NOT, parentheses; columns, a column cast to text, literals with or
// without a cast, $n. Texts are ordered by their bytes (collation "C"), and
// ILIKE folds ASCII letters only.
package where

import "fmt"

// Type is how values of a column compare.
type Type uint8

// The types.
const (
	Text Type = iota
	Int
	Time
	UUID
	// JSON values are tested for null only, unless cast to text.
	JSON
)

func (t Type) String() string { return [...]string{"text", "int8", "timestamptz", "uuid", "jsonb"}[t] }

// Column is what a clause may name.
type Column struct {
	Name string
	Type Type
	// Index identifies the column in the rows that Match gets.
	Index int
	// SQL is the expression of the column in a query; trusted.
	SQL string
}

// Cell is a value in Postgres' text form.
type Cell struct {
	Text string
	Null bool
}

// Row answers the value of a column by its Index.
type Row func(index int) Cell

// Limits of a clause.
const (
	MaxLength = 16 << 10
	maxDepth  = 64
	maxList   = 2000
	// maxPattern bounds a LIKE pattern, in characters: matching takes up to the
	// product of its length and the text's.
	maxPattern = 256
)

// Error says what is wrong with a clause, without its values.
type Error struct {
	// Position is where, in bytes, or -1.
	Position int
	Reason   string
}

func (e *Error) Error() string {
	if e.Position < 0 {
		return e.Reason
	}
	return fmt.Sprintf("%s (at byte %d)", e.Reason, e.Position)
}

// Filter is a parsed clause. It never changes, so many may use it at once. The
// nil Filter matches every row.
type Filter struct {
	root node
	used []int
}

// Columns answers the indexes of the columns that decide.
func (f *Filter) Columns() []int {
	if f == nil {
		return nil
	}
	return f.used
}

// Match reports whether the row passes: whether the clause is true of it.
func (f *Filter) Match(row Row) bool { return f == nil || f.root.eval(row) == yes }

// Pinned answers the texts that a column must be one of for a row to pass, if the
// clause says so on its face: column = 'x', or IN, perhaps with other conditions
// that must hold too.
func (f *Filter) Pinned(index int) ([]string, bool) {
	if f == nil {
		return nil, false
	}
	return pinned(f.root, index)
}

func pinned(n node, index int) ([]string, bool) {
	is := func(o *operand) bool { return o.column != nil && o.column.Index == index && o.typ == Text }
	switch n := n.(type) {
	case *junction:
		for _, p := range n.parts {
			if vs, ok := pinned(p, index); ok && n.and {
				return vs, true
			}
		}
	case *compare:
		for _, pair := range [][2]*operand{{n.a, n.b}, {n.b, n.a}} {
			if n.op == "=" && is(pair[0]) && pair[1].column == nil && !pair[1].null {
				return []string{pair[1].text}, true
			}
		}
	case *among:
		if !is(n.a) {
			return nil, false
		}
		vs := []string{}
		for _, v := range n.list {
			if !v.null {
				vs = append(vs, v.text)
			}
		}
		return vs, true
	}
	return nil, false
}

// SQL appends the clause's values to args and returns it as an expression with
// placeholders that count on from there.
func (f *Filter) SQL(args *[]any) string {
	if f == nil {
		return "true"
	}
	w := &writer{args: args}
	f.root.sql(w)
	return w.b.String()
}
