package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rouse-run/rouse/gateway/problem"
)

// maxDepth bounds the nesting of a body.
const maxDepth = 128

var emptyObject = []byte("{}")

// readBody reads a body, whose absence means {}, and refuses whatever is not
// one JSON object in valid UTF-8 without duplicate keys. The function it returns
// says that the body is not needed any more.
func (c *Control) readBody(w http.ResponseWriter, r *http.Request) ([]byte, func(), error) {
	body, release, err := c.bodies.Read(w, r)
	if err != nil {
		return nil, release, err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return emptyObject, release, nil
	}
	return body, release, checkJSON(body)
}

func badJSON(why string) error {
	return problem.New(problem.InvalidRequest, "The body is not valid JSON: "+why+".").
		WithDetails(problem.Detail{Path: "/", Message: why})
}

// checkJSON refuses what encoding/json would let pass: duplicate keys, invalid
// UTF-8, unbounded depth, anything behind the value, and NUL characters, which
// Postgres cannot store.
func checkJSON(body []byte) error {
	if !utf8.Valid(body) {
		return badJSON("it is not valid UTF-8")
	}
	// A NUL can only be written as an escape.
	nul := bytes.Contains(body, []byte(`\u0000`))
	dec := jsontext.NewDecoder(bytes.NewReader(body))
	if k := dec.PeekKind(); k != '{' && k != 0 {
		return badJSON("it is not an object")
	}
	for {
		tok, err := dec.ReadToken()
		switch {
		case err == io.EOF && dec.StackDepth() == 0 && dec.InputOffset() > 0:
			return nil
		case errors.Is(err, jsontext.ErrDuplicateName):
			return badJSON("an object has a key twice")
		case err != nil:
			return badJSON("it ends early or has a syntax error")
		case dec.StackDepth() > maxDepth:
			return badJSON("it is nested too deeply")
		}
		if nul && tok.Kind() == '"' && strings.IndexByte(tok.String(), 0) >= 0 {
			return badJSON("a string holds a NUL character")
		}
		if dec.StackDepth() == 0 {
			// The one value is complete: only white space may follow.
			if _, err := dec.ReadToken(); err != io.EOF {
				return badJSON("something follows the value")
			}
			return nil
		}
	}
}

// rename gives members of the top level their canonical names, so that clients
// which spell them otherwise are understood. A member whose new name is "" is
// dropped. Giving both spellings is a duplicate key.
func rename(body []byte, names map[string]string) ([]byte, error) {
	if !mayHold(body, names) {
		return body, nil
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, badJSON("it is not an object")
	}
	changed := false
	for from, to := range names {
		v, ok := m[from]
		if !ok {
			continue
		}
		changed = true
		delete(m, from)
		if to == "" {
			continue
		}
		if _, twice := m[to]; twice {
			return nil, problem.New(problem.InvalidRequest, "The body gives one member in two spellings.").
				WithDetails(problem.Detail{Path: "/" + from, Message: "is given as " + to + " too"})
		}
		m[to] = v
	}
	if !changed {
		return body, nil
	}
	return json.Marshal(m)
}

// mayHold says that a body may hold one of the names as a member: it does not decode, so it can be wrong in one way only.
func mayHold(body []byte, names map[string]string) bool {
	if bytes.IndexByte(body, '\\') >= 0 {
		return len(names) > 0 // a name can be spelled with escapes
	}
	for name := range names {
		if bytes.Contains(body, []byte(`"`+name+`"`)) {
			return true
		}
	}
	return false
}
