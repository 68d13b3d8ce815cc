package where

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// truth is a value of three-valued logic; and is the least, or the greatest.
type truth int8

const (
	no truth = iota
	unknown
	yes
)

func truthOf(b bool) truth {
	if b {
		return yes
	}
	return no
}

type node interface {
	eval(Row) truth
	sql(*writer)
}

// writer collects SQL with its parameters.
type writer struct {
	b    strings.Builder
	args *[]any
}

func (w *writer) put(parts ...string) {
	for _, p := range parts {
		w.b.WriteString(p)
	}
}

func (w *writer) arg(v any) string {
	*w.args = append(*w.args, v)
	return "$" + strconv.Itoa(len(*w.args))
}

// value writes an operand of type t; ordered texts compare by their bytes.
func (w *writer) value(o *operand, t Type, ordered bool) {
	switch {
	case o.column != nil && (o.asText || t == Text):
		w.put("(", o.column.SQL, ")::text")
	case o.column != nil:
		w.put(o.column.SQL)
	case o.null:
		w.put("null::", t.String())
	case t == Text:
		w.put(w.arg(o.text), "::text")
	default:
		w.put(w.arg(o.text), "::text::", t.String())
	}
	if ordered && t == Text {
		w.put(` collate "C"`)
	}
}

type constant truth

func (c constant) eval(Row) truth { return truth(c) }
func (c constant) sql(w *writer)  { w.put([...]string{"false", "null::boolean", "true"}[c]) }

type junction struct {
	and   bool
	parts []node
}

func (j *junction) eval(row Row) truth {
	out := truthOf(j.and)
	for _, p := range j.parts {
		if t := p.eval(row); j.and {
			out = min(out, t)
		} else {
			out = max(out, t)
		}
		if out == truthOf(!j.and) {
			break
		}
	}
	return out
}

func (j *junction) sql(w *writer) {
	w.put("(")
	for i, p := range j.parts {
		if i > 0 && j.and {
			w.put(" and ")
		} else if i > 0 {
			w.put(" or ")
		}
		p.sql(w)
	}
	w.put(")")
}

type negation struct{ n node }

func (n *negation) eval(row Row) truth { return yes - n.n.eval(row) }
func (n *negation) sql(w *writer)      { w.put("(not "); n.n.sql(w); w.put(")") }

type compare struct {
	op   string
	a, b *operand
	typ  Type
}

func (c *compare) eval(row Row) truth {
	a, an := c.a.get(row)
	b, bn := c.b.get(row)
	if an || bn {
		return unknown
	}
	o := order(c.typ, a, b)
	switch c.op {
	case "=":
		return truthOf(o == 0)
	case "<>":
		return truthOf(o != 0)
	case "<":
		return truthOf(o < 0)
	case "<=":
		return truthOf(o <= 0)
	case ">":
		return truthOf(o > 0)
	}
	return truthOf(o >= 0)
}

func (c *compare) sql(w *writer) {
	ordered := c.op != "=" && c.op != "<>"
	w.put("(")
	w.value(c.a, c.typ, ordered)
	w.put(" ", c.op, " ")
	w.value(c.b, c.typ, ordered)
	w.put(")")
}

type distinct struct {
	a, b *operand
	typ  Type
}

func (d *distinct) eval(row Row) truth {
	a, an := d.a.get(row)
	b, bn := d.b.get(row)
	if an || bn {
		return truthOf(an != bn)
	}
	return truthOf(order(d.typ, a, b) != 0)
}

func (d *distinct) sql(w *writer) {
	w.put("(")
	w.value(d.a, d.typ, false)
	w.put(" is distinct from ")
	w.value(d.b, d.typ, false)
	w.put(")")
}

type among struct {
	a    *operand
	list []*operand
	typ  Type

	set  map[value]struct{}
	null bool // the list holds a null
}

func (m *among) index() {
	m.set = make(map[value]struct{}, len(m.list))
	for _, v := range m.list {
		if v.null {
			m.null = true
		} else {
			m.set[v.parsed] = struct{}{}
		}
	}
}

func (m *among) eval(row Row) truth {
	v, null := m.a.get(row)
	if len(m.list) == 0 {
		return no
	}
	if null {
		return unknown
	}
	if _, ok := m.set[v]; ok {
		return yes
	}
	if m.null {
		return unknown
	}
	return no
}

func (m *among) sql(w *writer) {
	list := make([]*string, len(m.list))
	for i, v := range m.list {
		if !v.null {
			list[i] = &v.text
		}
	}
	w.put("(")
	w.value(m.a, m.typ, false)
	w.put(" = any (", w.arg(list), "::text[]")
	if m.typ != Text {
		w.put("::", m.typ.String(), "[]")
	}
	w.put("))")
}

type nullTest struct{ v *operand }

func (n *nullTest) eval(row Row) truth {
	if n.v.column == nil {
		return truthOf(n.v.null)
	}
	return truthOf(row(n.v.column.Index).Null)
}

func (n *nullTest) sql(w *writer) {
	w.put("(")
	w.value(n.v, n.v.typ, false)
	w.put(" is null)")
}

type truthTest struct {
	n    node
	want truth
}

func (t *truthTest) eval(row Row) truth { return truthOf(t.n.eval(row) == t.want) }

func (t *truthTest) sql(w *writer) {
	w.put("(")
	t.n.sql(w)
	w.put(" is ", [...]string{"false", "unknown", "true"}[t.want], ")")
}

// like matches a constant pattern, taken apart once.
type like struct {
	a, b *operand
	fold bool
	// parts of the pattern: what must be found one after another.
	parts []part
}

// part is one piece of a pattern: any run of characters, any one, or a text.
type part struct {
	run, one bool
	text     rune
}

func newLike(pos int, a, b *operand, fold bool) (*like, error) {
	l := &like{a: a, b: b, fold: fold}
	if b.null {
		return l, nil
	}
	if utf8.RuneCountInString(b.text) > maxPattern {
		return nil, &Error{pos, "the pattern is too long"}
	}
	escaped := false
	for _, r := range b.text {
		switch {
		case escaped:
			l.parts = append(l.parts, part{text: lower(r, fold)})
			escaped = false
		case r == '\\':
			escaped = true
		case r == '%':
			if n := len(l.parts); n == 0 || !l.parts[n-1].run {
				l.parts = append(l.parts, part{run: true})
			}
		case r == '_':
			l.parts = append(l.parts, part{one: true})
		default:
			l.parts = append(l.parts, part{text: lower(r, fold)})
		}
	}
	if escaped {
		return nil, &Error{pos, "a pattern must not end with its escape character"}
	}
	return l, nil
}

func lower(r rune, fold bool) rune {
	if fold && r >= 'A' && r <= 'Z' {
		return r + 'a' - 'A'
	}
	return r
}

func (l *like) eval(row Row) truth {
	v, null := l.a.get(row)
	if null || l.b.null {
		return unknown
	}
	return truthOf(l.match(v.s))
}

// match walks text and pattern together and falls back to the last run only, so
// it takes at most the product of their lengths.
func (l *like) match(s string) bool {
	i, p := 0, 0
	backS, backP := -1, -1
	for i < len(s) {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case p < len(l.parts) && l.parts[p].run:
			backS, backP = i, p
			p++
			continue
		case p < len(l.parts) && (l.parts[p].one || l.parts[p].text == lower(r, l.fold)):
			i, p = i+size, p+1
			continue
		case backP < 0:
			return false
		}
		_, size = utf8.DecodeRuneInString(s[backS:])
		backS += size
		i, p = backS, backP+1
	}
	for p < len(l.parts) && l.parts[p].run {
		p++
	}
	return p == len(l.parts)
}

func (l *like) sql(w *writer) {
	w.put("(")
	w.value(l.a, Text, true)
	if l.fold {
		w.put(" ilike ")
	} else {
		w.put(" like ")
	}
	w.value(l.b, Text, false)
	w.put(")")
}
