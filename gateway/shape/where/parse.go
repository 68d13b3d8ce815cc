package where

import (
	"slices"
	"strconv"
	"strings"
)

// Parse reads a clause. Params are the values of $1, $2 …; columns finds a
// column by its name. Errors are of type *Error.
func Parse(src string, params map[int]string, columns func(name string) (Column, bool)) (*Filter, error) {
	if len(src) > MaxLength {
		return nil, &Error{-1, "the clause is too long"}
	}
	if !storable(src) {
		return nil, &Error{-1, "the clause is not valid text"}
	}
	p := &parser{scan: scanner{src: src}, params: params, columns: columns}
	if err := p.advance(); err != nil {
		return nil, err
	}
	root, err := p.boolean(p.or)
	if err != nil {
		return nil, err
	}
	if p.tok.kind != end {
		return nil, p.fail("the clause should end here")
	}
	slices.Sort(p.used)
	return &Filter{root: root, used: slices.Compact(p.used)}, nil
}

type parser struct {
	scan    scanner
	tok     token
	params  map[int]string
	columns func(string) (Column, bool)
	used    []int
	depth   int
}

// item is what a part of a clause stands for: a truth value or another value.
type item struct {
	node node
	val  *operand
}

func (p *parser) fail(reason string) error { return &Error{p.tok.pos, reason} }

func (p *parser) advance() (err error) {
	p.tok, err = p.scan.next()
	return err
}

// take goes past a keyword or a sign if it is next.
func (p *parser) take(text string) (bool, error) {
	if !p.at(text) {
		return false, nil
	}
	return true, p.advance()
}

func (p *parser) at(text string) bool {
	return (p.tok.kind == word || p.tok.kind == punct) && p.tok.text == text
}

func (p *parser) must(text string) error {
	ok, err := p.take(text)
	if err == nil && !ok {
		err = p.fail("expected " + strings.ToUpper(text))
	}
	return err
}

func (p *parser) nested(f func() (item, error)) (item, error) {
	if p.depth++; p.depth > maxDepth {
		return item{}, p.fail("the clause is nested too deeply")
	}
	defer func() { p.depth-- }()
	return f()
}

// boolean parses what must be a truth value.
func (p *parser) boolean(f func() (item, error)) (node, error) {
	pos := p.tok.pos
	it, err := f()
	if err != nil {
		return nil, err
	}
	return it.truth(pos)
}

func (it item) truth(pos int) (node, error) {
	switch {
	case it.node != nil:
		return it.node, nil
	case it.val.column == nil && it.val.null:
		return constant(unknown), nil
	}
	return nil, &Error{pos, "a condition is expected"}
}

func (p *parser) or() (item, error)  { return p.chain("or", p.and) }
func (p *parser) and() (item, error) { return p.chain("and", p.not) }

func (p *parser) chain(op string, next func() (item, error)) (item, error) {
	pos := p.tok.pos
	first, err := next()
	if err != nil || !p.at(op) {
		return first, err
	}
	n, err := first.truth(pos)
	if err != nil {
		return item{}, err
	}
	parts := []node{n}
	for {
		ok, err := p.take(op)
		if err != nil {
			return item{}, err
		}
		if !ok {
			break
		}
		n, err := p.boolean(next)
		if err != nil {
			return item{}, err
		}
		parts = append(parts, n)
	}
	return item{node: &junction{and: op == "and", parts: parts}}, nil
}

func (p *parser) not() (item, error) {
	ok, err := p.take("not")
	if err != nil || !ok {
		if err != nil {
			return item{}, err
		}
		return p.is()
	}
	n, err := p.boolean(func() (item, error) { return p.nested(p.not) })
	return item{node: &negation{n}}, err
}

// is parses the postfix tests, which bind less than comparisons.
func (p *parser) is() (item, error) {
	pos := p.tok.pos
	it, err := p.comparison()
	for err == nil && p.at("is") {
		if err = p.advance(); err == nil {
			it, err = p.test(it, pos)
		}
	}
	return it, err
}

func (p *parser) test(it item, pos int) (item, error) {
	not, err := p.take("not")
	if err != nil {
		return item{}, err
	}
	switch {
	case p.at("null"):
		if it.node != nil {
			return item{node: negate(not, &truthTest{it.node, unknown})}, p.advance()
		}
		return item{node: negate(not, &nullTest{it.val})}, p.advance()
	case p.at("true"), p.at("false"), p.at("unknown"):
		want := map[string]truth{"true": yes, "false": no, "unknown": unknown}[p.tok.text]
		n, err := it.truth(pos)
		if err != nil {
			return item{}, err
		}
		return item{node: negate(not, &truthTest{n, want})}, p.advance()
	case p.at("distinct"):
		if err := p.advance(); err != nil {
			return item{}, err
		}
		if err := p.must("from"); err != nil {
			return item{}, err
		}
		other, err := p.value()
		if err != nil {
			return item{}, err
		}
		if it.val == nil {
			return item{}, &Error{pos, "conditions cannot be compared"}
		}
		t, err := p.agree(pos, it.val, other)
		return item{node: negate(not, &distinct{it.val, other, t})}, err
	}
	return item{}, p.fail("expected NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM")
}

func negate(not bool, n node) node {
	if not {
		return &negation{n}
	}
	return n
}

var comparisons = []string{"=", "<>", "<", "<=", ">", ">="}

func (p *parser) comparison() (item, error) {
	pos := p.tok.pos
	left, err := p.primary()
	if err != nil {
		return item{}, err
	}
	if p.tok.kind == punct && slices.Contains(comparisons, p.tok.text) {
		op := p.tok.text
		if err := p.advance(); err != nil {
			return item{}, err
		}
		a, err := left.value(pos)
		if err != nil {
			return item{}, err
		}
		if p.at("any") {
			if op != "=" {
				return item{}, p.fail("only = ANY is allowed")
			}
			return p.any(pos, a)
		}
		b, err := p.value()
		if err != nil {
			return item{}, err
		}
		t, err := p.agree(pos, a, b)
		return item{node: &compare{op, a, b, t}}, err
	}
	not := false
	if p.at("not") {
		if not, err = p.take("not"); err != nil {
			return item{}, err
		}
		if !p.at("in") && !p.at("like") && !p.at("ilike") && !p.at("between") {
			return item{}, p.fail("expected IN, LIKE, ILIKE or BETWEEN")
		}
	}
	if p.tok.kind != word || !slices.Contains([]string{"in", "like", "ilike", "between"}, p.tok.text) {
		return left, nil
	}
	a, err := left.value(pos)
	if err != nil {
		return item{}, err
	}
	op := p.tok.text
	if err := p.advance(); err != nil {
		return item{}, err
	}
	var n node
	switch op {
	case "in":
		n, err = p.in(pos, a)
	case "between":
		n, err = p.between(pos, a)
	default:
		n, err = p.like(pos, a, op == "ilike")
	}
	return item{node: negate(not, n)}, err
}

func (p *parser) in(pos int, a *operand) (node, error) {
	if err := p.must("("); err != nil {
		return nil, err
	}
	list, err := p.list(")")
	if err != nil {
		return nil, err
	}
	return p.among(pos, a, list)
}

// list reads values up to the closing sign.
func (p *parser) list(closing string) (list []*operand, err error) {
	for {
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		if list = append(list, v); len(list) > maxList {
			return nil, p.fail("the list is too long")
		}
		if ok, err := p.take(","); err != nil {
			return nil, err
		} else if !ok {
			return list, p.must(closing)
		}
	}
}

func (p *parser) among(pos int, a *operand, list []*operand) (node, error) {
	n := &among{a: a}
	all := append([]*operand{a}, list...)
	t, err := p.agree(pos, all...)
	if err != nil {
		return nil, err
	}
	n.typ = t
	for _, v := range list {
		if v.column != nil {
			return nil, &Error{pos, "a list may hold constants only"}
		}
		n.list = append(n.list, v)
	}
	n.index()
	return n, nil
}

// any parses what follows = ANY: a parameter or literal that holds an array in
// Postgres' text form, or ARRAY[…].
func (p *parser) any(pos int, a *operand) (item, error) {
	if err := p.advance(); err != nil {
		return item{}, err
	}
	if err := p.must("("); err != nil {
		return item{}, err
	}
	if p.at("array") {
		if err := p.advance(); err != nil {
			return item{}, err
		}
		if err := p.must("["); err != nil {
			return item{}, err
		}
		list, err := p.list("]")
		if err != nil {
			return item{}, err
		}
		if err := p.arrayCast(); err != nil {
			return item{}, err
		}
		if err := p.must(")"); err != nil {
			return item{}, err
		}
		n, err := p.among(pos, a, list)
		return item{node: n}, err
	}
	v, err := p.primary()
	if err != nil {
		return item{}, err
	}
	if v.val == nil || v.val.column != nil || !v.val.untyped || v.val.null {
		return item{}, &Error{pos, "ANY takes a parameter, an array literal or ARRAY[…]"}
	}
	if err := p.arrayCast(); err != nil {
		return item{}, err
	}
	if err := p.must(")"); err != nil {
		return item{}, err
	}
	elements, err := parseArray(v.val.text)
	if err != nil {
		return item{}, &Error{pos, "the array is malformed"}
	}
	if len(elements) > maxList {
		return item{}, &Error{pos, "the list is too long"}
	}
	n, err := p.among(pos, a, elements)
	return item{node: n}, err
}

// arrayCast goes past ::type[], which says nothing new.
func (p *parser) arrayCast() error {
	ok, err := p.take("::")
	if err != nil || !ok {
		return err
	}
	if _, err := p.typeName(); err != nil {
		return err
	}
	if err := p.must("["); err != nil {
		return err
	}
	return p.must("]")
}

func (p *parser) between(pos int, a *operand) (node, error) {
	low, err := p.value()
	if err != nil {
		return nil, err
	}
	if err := p.must("and"); err != nil {
		return nil, err
	}
	high, err := p.value()
	if err != nil {
		return nil, err
	}
	t, err := p.agree(pos, a, low, high)
	return &junction{and: true, parts: []node{&compare{">=", a, low, t}, &compare{"<=", a, high, t}}}, err
}

func (p *parser) like(pos int, a *operand, fold bool) (node, error) {
	b, err := p.value()
	if err != nil {
		return nil, err
	}
	t, err := p.agree(pos, a, b)
	if err != nil {
		return nil, err
	}
	if t != Text || b.column != nil {
		return nil, &Error{pos, "LIKE compares a text with a constant pattern"}
	}
	return newLike(pos, a, b, fold)
}

// value parses what must not be a condition.
func (p *parser) value() (*operand, error) {
	pos := p.tok.pos
	it, err := p.primary()
	if err != nil {
		return nil, err
	}
	return it.value(pos)
}

func (it item) value(pos int) (*operand, error) {
	if it.val == nil {
		return nil, &Error{pos, "a value is expected"}
	}
	return it.val, nil
}

func (p *parser) primary() (item, error) {
	pos := p.tok.pos
	it, err := p.atom()
	for err == nil && p.at("::") {
		// A cast to an array type belongs to ANY.
		save, saved := p.scan, p.tok
		if err = p.advance(); err != nil {
			break
		}
		var t Type
		if t, err = p.typeName(); err != nil {
			break
		}
		if p.at("[") {
			p.scan, p.tok = save, saved
			break
		}
		if it.val == nil {
			return item{}, &Error{pos, "a condition cannot be cast"}
		}
		it.val, err = it.val.cast(pos, t)
	}
	return it, err
}

func (p *parser) atom() (item, error) {
	t := p.tok
	switch {
	case p.at("("):
		if err := p.advance(); err != nil {
			return item{}, err
		}
		it, err := p.nested(p.or)
		if err != nil {
			return item{}, err
		}
		return it, p.must(")")
	case p.at("-"), p.at("+"):
		if err := p.advance(); err != nil {
			return item{}, err
		}
		if p.tok.kind != number {
			return item{}, p.fail("a number is expected")
		}
		sign := ""
		if t.text == "-" {
			sign = "-"
		}
		return p.number(sign + p.tok.text)
	case t.kind == number:
		return p.number(t.text)
	case t.kind == literal:
		return item{val: &operand{text: t.text, untyped: true}}, p.advance()
	case t.kind == param:
		n, _ := strconv.Atoi(t.text)
		text, ok := p.params[n]
		if !ok {
			return item{}, p.fail("a parameter has no value")
		}
		if !storable(text) {
			return item{}, p.fail("a parameter is not valid text")
		}
		return item{val: &operand{text: text, untyped: true}}, p.advance()
	case p.at("null"):
		return item{val: &operand{null: true, untyped: true}}, p.advance()
	case p.at("true"):
		return item{node: constant(yes)}, p.advance()
	case p.at("false"):
		return item{node: constant(no)}, p.advance()
	case t.kind == quoted, t.kind == word && !reserved[t.text]:
		c, ok := p.columns(t.text)
		if !ok {
			return item{}, p.fail("there is no such column")
		}
		p.used = append(p.used, c.Index)
		return item{val: &operand{column: &c, typ: c.Type}}, p.advance()
	}
	return item{}, p.fail("a column, a value or a condition is expected")
}

var reserved = map[string]bool{"and": true, "or": true, "not": true, "is": true, "in": true, "like": true, "ilike": true,
	"between": true, "any": true, "array": true, "distinct": true, "from": true, "unknown": true}

func (p *parser) number(text string) (item, error) {
	v := &operand{text: text, typ: Int}
	if err := v.settle(Int); err != nil {
		return item{}, p.fail("the number is too large")
	}
	return item{val: v}, p.advance()
}

var typeNames = map[string]Type{"text": Text, "varchar": Text, "int": Int, "integer": Int, "int2": Int, "int4": Int, "int8": Int, "smallint": Int,
	"bigint": Int, "timestamptz": Time, "uuid": UUID}

func (p *parser) typeName() (Type, error) {
	if p.tok.kind == word && p.tok.text == "timestamp" {
		for _, w := range []string{"timestamp", "with", "time", "zone"} {
			if err := p.must(w); err != nil {
				return 0, err
			}
		}
		return Time, nil
	}
	t, ok := typeNames[p.tok.text]
	if p.tok.kind != word || !ok {
		return 0, p.fail("casts are to text, int4, int8, timestamptz or uuid")
	}
	return t, p.advance()
}

// agree finds the type in which the values are compared, and brings those that
// have none yet into it.
func (p *parser) agree(pos int, vs ...*operand) (Type, error) {
	t, known := Text, false
	for _, v := range vs {
		if v.untyped {
			continue
		}
		if known && v.typ != t {
			return 0, &Error{pos, "values of these types cannot be compared"}
		}
		t, known = v.typ, true
	}
	if t == JSON {
		return 0, &Error{pos, "a jsonb column can be tested for null only, or cast to text"}
	}
	for _, v := range vs {
		if v.untyped {
			if err := v.settle(t); err != nil {
				return 0, &Error{pos, "a value is not of the type it is compared with"}
			}
		}
	}
	return t, nil
}
