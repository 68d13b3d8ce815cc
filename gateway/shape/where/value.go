package where

import (
	"cmp"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"
)

// operand is a column or a constant.
type operand struct {
	column *Column
	// asText: the column is cast to text.
	asText bool
	typ    Type

	text string
	null bool
	// untyped constants take the type of what they are compared with.
	untyped bool
	parsed  value
}

// value is a constant or a cell, ready to compare: ints and times by n, texts and
// uuids by s.
type value struct {
	s string
	n int64
}

var errNotOfType = errors.New("not of the type")

// settle gives a constant its type.
func (o *operand) settle(t Type) error {
	o.typ, o.untyped = t, false
	if o.null {
		return nil
	}
	v, err := parse(t, o.text)
	if err != nil {
		return err
	}
	o.parsed, o.text = v, canonical(t, v)
	return nil
}

func (o *operand) cast(pos int, t Type) (*operand, error) {
	out := *o
	switch {
	case o.column != nil && (o.typ == t || o.asText && t == Text):
	case o.column != nil && t == Text:
		out.asText, out.typ = true, Text
	case o.column == nil && o.untyped:
		if err := out.settle(t); err != nil {
			return nil, &Error{pos, "a value is not of the type it is cast to"}
		}
	case o.column == nil && o.typ == t:
	case o.column == nil && t == Text:
		if err := out.settle(Text); err != nil {
			return nil, &Error{pos, "a value is not of the type it is cast to"}
		}
	default:
		return nil, &Error{pos, "this cast is not allowed"}
	}
	return &out, nil
}

// get answers the operand's value for a row. A cell that is not of its column's
// type cannot be.
func (o *operand) get(row Row) (v value, null bool) {
	if o.column == nil {
		return o.parsed, o.null
	}
	c := row(o.column.Index)
	if c.Null {
		return value{}, true
	}
	v, err := parse(o.typ, c.Text)
	return v, err != nil
}

func parse(t Type, s string) (value, error) {
	switch t {
	case Int:
		n, err := strconv.ParseInt(strings.Trim(s, " \t\r\n"), 10, 64)
		return value{n: n}, err
	case Time:
		n, err := parseTime(s)
		return value{n: n}, err
	case UUID:
		s, err := parseUUID(s)
		return value{s: s}, err
	}
	return value{s: s}, nil
}

// order compares values of one type; texts by their bytes.
func order(t Type, a, b value) int {
	if t == Int || t == Time {
		return cmp.Compare(a.n, b.n)
	}
	return strings.Compare(a.s, b.s)
}

func canonical(t Type, v value) string {
	switch t {
	case Int:
		return strconv.FormatInt(v.n, 10)
	case Time:
		switch v.n {
		case forever:
			return "infinity"
		case -forever:
			return "-infinity"
		}
		return time.UnixMicro(v.n).UTC().Format("2006-01-02 15:04:05.000000+00")
	}
	return v.s
}

// forever stands for infinity.
const forever = 1<<63 - 1

// timeForms are what is read as a time; one without a zone is in UTC.
var timeForms = []string{"2006-01-02 15:04:05-07", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05-0700", "2006-01-02 15:04:05", "2006-01-02"}

// parseTime answers microseconds since 1970.
func parseTime(s string) (int64, error) {
	switch s {
	case "infinity":
		return forever, nil
	case "-infinity":
		return -forever, nil
	}
	if len(s) > 10 && (s[10] == 'T' || s[10] == 't') {
		s = s[:10] + " " + s[11:]
	}
	if i := strings.IndexByte(s, '.'); i >= 0 {
		n := 0
		for i+1+n < len(s) && digit(s[i+1+n]) {
			n++
		}
		if n == 0 || n > 6 {
			return 0, errNotOfType
		}
	}
	for _, form := range timeForms {
		if t, err := time.Parse(form, s); err == nil {
			if t.Year() < 1 || t.UTC().Year() < 1 || t.UTC().Year() > 9999 {
				return 0, errNotOfType
			}
			return t.UnixMicro(), nil
		}
	}
	return 0, errNotOfType
}

// Millis answers the milliseconds since 1970 of a timestamptz in Postgres' text
// form, rounded down.
func Millis(s string) (int64, error) {
	n, err := parseTime(s)
	if err != nil || n == forever || n == -forever {
		return 0, errNotOfType
	}
	ms := n / 1000
	if n%1000 < 0 {
		ms--
	}
	return ms, nil
}

func parseUUID(s string) (string, error) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return "", errNotOfType
	}
	if _, err := hex.DecodeString(strings.ReplaceAll(s, "-", "")); err != nil || strings.Count(s, "-") != 4 {
		return "", errNotOfType
	}
	return strings.ToLower(s), nil
}

// parseArray reads a one-dimensional array in Postgres' text form.
func parseArray(s string) ([]*operand, error) {
	s = strings.Trim(s, " \t\r\n")
	if len(s) < 2 || s[0] != '{' || s[len(s)-1] != '}' {
		return nil, errNotOfType
	}
	s = s[1 : len(s)-1]
	if strings.Trim(s, " \t\r\n") == "" {
		return nil, nil
	}
	var out []*operand
	for i := 0; ; {
		var b strings.Builder
		for i < len(s) && strings.IndexByte(" \t\r\n", s[i]) >= 0 {
			i++
		}
		quoted := i < len(s) && s[i] == '"'
		if quoted {
			for i++; ; i++ {
				if i >= len(s) {
					return nil, errNotOfType
				}
				if s[i] == '"' {
					i++
					break
				}
				if s[i] == '\\' {
					if i++; i >= len(s) {
						return nil, errNotOfType
					}
				}
				b.WriteByte(s[i])
			}
			for i < len(s) && strings.IndexByte(" \t\r\n", s[i]) >= 0 {
				i++
			}
			if i < len(s) && s[i] != ',' {
				return nil, errNotOfType
			}
		} else {
			for i < len(s) && s[i] != ',' {
				if strings.IndexByte(`{}"\`, s[i]) >= 0 {
					return nil, errNotOfType
				}
				b.WriteByte(s[i])
				i++
			}
		}
		text := b.String()
		if !quoted {
			if text = strings.Trim(text, " \t\r\n"); text == "" {
				return nil, errNotOfType
			}
		}
		out = append(out, &operand{text: text, untyped: true, null: !quoted && strings.EqualFold(text, "null")})
		if i >= len(s) {
			return out, nil
		}
		i++
	}
}
