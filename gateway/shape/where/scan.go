package where

import (
	"strings"
	"unicode/utf8"
)

type kind uint8

const (
	end     kind = iota
	word         // keyword or plain name, lower case
	quoted       // "name"
	literal      // 'text'
	number
	param // $n
	punct
)

type token struct {
	kind kind
	text string
	pos  int
}

// scanner cuts a clause into tokens.
type scanner struct {
	src string
	pos int
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

func (s *scanner) next() (token, error) {
	for s.pos < len(s.src) && strings.IndexByte(" \t\r\n", s.src[s.pos]) >= 0 {
		s.pos++
	}
	from := s.pos
	if from == len(s.src) {
		return token{kind: end, pos: from}, nil
	}
	c := s.src[from]
	switch {
	case letter(c):
		return token{word, strings.ToLower(s.run(func(c byte) bool { return letter(c) || digit(c) })), from}, nil
	case digit(c):
		text := s.run(digit)
		if s.pos < len(s.src) && (letter(s.src[s.pos]) || s.src[s.pos] == '.') {
			return token{}, &Error{from, "only whole numbers are allowed"}
		}
		return token{number, text, from}, nil
	case c == '$':
		s.pos++
		text := s.run(digit)
		if text == "" || len(text) > 4 {
			return token{}, &Error{from, "a parameter is $ and its number"}
		}
		return token{param, text, from}, nil
	case c == '\'', c == '"':
		text, ok := s.closed(c)
		if !ok {
			return token{}, &Error{from, "a quote is not closed"}
		}
		if c == '"' {
			return token{quoted, text, from}, nil
		}
		return token{literal, text, from}, nil
	}
	for _, op := range []string{"::", "<=", ">=", "<>", "!=", "=", "<", ">", "(", ")", ",", "[", "]", "-", "+"} {
		if !strings.HasPrefix(s.src[from:], op) {
			continue
		}
		s.pos += len(op)
		if op == "-" && strings.HasPrefix(s.src[s.pos:], "-") {
			return token{}, &Error{from, "comments are not allowed"}
		}
		if op == "!=" {
			op = "<>"
		}
		return token{punct, op, from}, nil
	}
	return token{}, &Error{from, "a character is not allowed here"}
}

func (s *scanner) run(in func(byte) bool) string {
	from := s.pos
	for s.pos < len(s.src) && in(s.src[s.pos]) {
		s.pos++
	}
	return s.src[from:s.pos]
}

// closed reads a quoted text, in which the quote is doubled.
func (s *scanner) closed(quote byte) (string, bool) {
	var b strings.Builder
	for s.pos++; ; {
		i := strings.IndexByte(s.src[s.pos:], quote)
		if i < 0 {
			return "", false
		}
		b.WriteString(s.src[s.pos : s.pos+i])
		s.pos += i + 1
		if s.pos == len(s.src) || s.src[s.pos] != quote {
			return b.String(), true
		}
		b.WriteByte(quote)
		s.pos++
	}
}

// storable reports whether Postgres takes the text.
func storable(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }
