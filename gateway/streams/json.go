package streams

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rouse-run/rouse/gateway/problem"
)

// maxDepth bounds the nesting of JSON values.
const maxDepth = 512

// Messages is a flattened JSON body: the messages joined by commas.
type Messages struct {
	Data  []byte
	Count int32
	// Stamps are byte positions in Data right after the opening brace of the
	// member "headers" of State Protocol messages: there a read splices in the
	// offset.
	Stamps []int32
}

type flattener struct {
	dec jsontext.Decoder
	src bytes.Buffer
}

var flatteners = sync.Pool{New: func() any { return new(flattener) }}

func badJSON(reason string) error {
	return problem.New(problem.InvalidJSON, "The body is not valid JSON: "+reason+".")
}

// Flatten checks a JSON body and splits one level of array: [a,b] is two
// messages, anything else is one. Messages keep their bytes, except that a State
// Protocol message loses its own headers.offset, which only the server sets.
// Duplicate keys, invalid UTF-8, depth over 512 and trailing data are refused.
func Flatten(body []byte) (Messages, error) {
	if tooDeep(body) {
		return Messages{}, badJSON("it is nested too deeply")
	}
	f := flatteners.Get().(*flattener)
	defer func() {
		f.src = bytes.Buffer{} // never keep a body alive
		f.dec.Reset(&f.src)
		flatteners.Put(f)
	}()
	f.src = *bytes.NewBuffer(body)
	f.dec.Reset(&f.src)
	m, err := f.flatten(body)
	if err != nil {
		var coded *problem.Error
		if errors.As(err, &coded) {
			return Messages{}, err
		}
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return Messages{}, badJSON("an object has a key twice")
		}
		return Messages{}, badJSON("its syntax or its UTF-8 is broken")
	}
	return m, nil
}

func (f *flattener) flatten(body []byte) (Messages, error) {
	var out builder
	out.src = body
	if f.dec.PeekKind() == '[' {
		if _, err := f.dec.ReadToken(); err != nil {
			return Messages{}, err
		}
		for f.dec.PeekKind() != ']' {
			if err := f.message(&out); err != nil {
				return Messages{}, err
			}
		}
		if _, err := f.dec.ReadToken(); err != nil {
			return Messages{}, err
		}
	} else if err := f.message(&out); err != nil {
		return Messages{}, err
	}
	if _, err := f.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return Messages{}, badJSON("data follows the value")
	}
	return out.messages(), nil
}

// message reads one value and adds it to out.
func (f *flattener) message(out *builder) error {
	if f.dec.PeekKind() != '{' {
		v, err := f.dec.ReadValue()
		if err != nil {
			return err
		}
		end := int(f.dec.InputOffset())
		out.add(end-len(v), end)
		return nil
	}
	if _, err := f.dec.ReadToken(); err != nil {
		return err
	}
	start := int(f.dec.InputOffset()) - 1
	var stamp headers
	for f.dec.PeekKind() != '}' {
		name, err := f.name(out.src)
		if err != nil {
			return err
		}
		if string(name) == "headers" && f.dec.PeekKind() == '{' {
			if stamp, err = f.headers(out.src); err != nil {
				return err
			}
			continue
		}
		if err := f.dec.SkipValue(); err != nil {
			return err
		}
	}
	if _, err := f.dec.ReadToken(); err != nil {
		return err
	}
	end := int(f.dec.InputOffset())
	if !stamp.state {
		out.add(start, end)
		return nil
	}
	out.addStamped(start, end, stamp)
	return nil
}

// name reads a member's name, unescaped.
func (f *flattener) name(src []byte) ([]byte, error) {
	from := f.dec.InputOffset()
	tok, err := f.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	raw := src[from:f.dec.InputOffset()]
	raw = raw[bytes.IndexByte(raw, '"')+1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') >= 0 {
		return []byte(tok.String()), nil
	}
	return raw, nil
}

// headers is what is known of a message's member of that name.
type headers struct {
	// at is the position after its opening brace.
	at int
	// state says that it has a string "operation" or "control".
	state bool
	// from, to is the member "offset" with one comma, if there is one.
	from, to int
}

func (f *flattener) headers(src []byte) (headers, error) {
	if _, err := f.dec.ReadToken(); err != nil {
		return headers{}, err
	}
	h := headers{at: int(f.dec.InputOffset())}
	before := h.at
	for f.dec.PeekKind() != '}' {
		name, err := f.name(src)
		if err != nil {
			return headers{}, err
		}
		offset := string(name) == "offset"
		if (string(name) == "operation" || string(name) == "control") && f.dec.PeekKind() == '"' {
			h.state = true
		}
		if err := f.dec.SkipValue(); err != nil {
			return headers{}, err
		}
		after := int(f.dec.InputOffset())
		if offset {
			h.from, h.to = before, after
			if before == h.at { // first member: its comma follows it
				for h.to < len(src) && (src[h.to] == ' ' || src[h.to] == '\t' || src[h.to] == '\n' || src[h.to] == '\r') {
					h.to++
				}
				if h.to < len(src) && src[h.to] == ',' {
					h.to++
				} else {
					h.to = after
				}
			}
		}
		before = after
	}
	_, err := f.dec.ReadToken()
	return h, err
}

// builder joins messages; it copies only when it must.
type builder struct {
	src, buf []byte
	// start, end of the first message in src while there is just one, unchanged.
	start, end int
	count      int32
	stamps     []int32
}

func (b *builder) materialize() {
	if b.count == 1 && b.buf == nil {
		b.buf = append(make([]byte, 0, len(b.src)), b.src[b.start:b.end]...)
	}
	if b.count >= 1 {
		b.buf = append(b.buf, ',')
	}
}

func (b *builder) add(start, end int) {
	if b.count == 0 {
		b.start, b.end, b.count = start, end, 1
		return
	}
	b.materialize()
	b.buf = append(b.buf, b.src[start:end]...)
	b.count++
}

func (b *builder) addStamped(start, end int, h headers) {
	if h.to == 0 {
		b.add(start, end)
		b.stamps = append(b.stamps, int32(b.size()-(end-start)+h.at-start))
		return
	}
	b.materialize()
	if b.buf == nil {
		b.buf = make([]byte, 0, len(b.src))
	}
	at := len(b.buf) + h.at - start
	b.buf = append(append(b.buf, b.src[start:h.from]...), b.src[h.to:end]...)
	b.count++
	b.stamps = append(b.stamps, int32(at))
}

func (b *builder) size() int {
	if b.buf == nil {
		return b.end - b.start
	}
	return len(b.buf)
}

func (b *builder) messages() Messages {
	m := Messages{Data: b.buf, Count: b.count, Stamps: b.stamps}
	if b.buf == nil && b.count == 1 {
		m.Data = b.src[b.start:b.end:b.end]
	}
	return m
}

// tooDeep says that the value is nested more than maxDepth. It looks closely
// only at bodies with that many brackets.
func tooDeep(body []byte) bool {
	if bytes.Count(body, []byte("{"))+bytes.Count(body, []byte("[")) <= maxDepth {
		return false
	}
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// splitMessages cuts joined messages apart.
func splitMessages(joined []byte) ([][]byte, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(append(append([]byte{'['}, joined...), ']')), jsontext.AllowDuplicateNames(true))
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	var out [][]byte
	for dec.PeekKind() != ']' {
		v, err := dec.ReadValue()
		if err != nil {
			return nil, err
		}
		out = append(out, bytes.Clone(v))
	}
	return out, nil
}
