package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// forkRows are the rows of an entity's stream that name other entities, so that
// a fork has to say them anew, by type. Of each key the newest value counts.
type forkRows map[string]*rowSet

type rowSet struct {
	vals map[string]rowValue
	made int // rows that ever came to be
}

type rowValue struct {
	json  json.RawMessage
	place int // in the order in which rows came to be
}

// keys are the rows' keys in the order in which they came to be.
func (s *rowSet) keys() []string {
	return slices.SortedFunc(maps.Keys(s.vals), func(a, b string) int { return s.vals[a].place - s.vals[b].place })
}

var forkTypes = [...]string{"manifest", "child_status", "replay_watermark"}

func newForkRows() forkRows {
	r := forkRows{}
	for _, t := range forkTypes {
		r[t] = &rowSet{vals: map[string]rowValue{}}
	}
	return r
}

// rowEvent is what is read of one message.
type rowEvent struct {
	Type    string          `json:"type"`
	Key     string          `json:"key"`
	Value   json.RawMessage `json:"value"`
	Headers struct {
		Operation string `json:"operation"`
	} `json:"headers"`
}

func (r forkRows) apply(e rowEvent) {
	set := r[e.Type]
	if set == nil || e.Key == "" {
		return
	}
	switch {
	case e.Headers.Operation == "delete":
		delete(set.vals, e.Key)
	case isObject(e.Value):
		v, there := set.vals[e.Key]
		if !there {
			v.place = set.made
			set.made++
		}
		v.json = bytes.Clone(e.Value)
		set.vals[e.Key] = v
	}
}

// forkCut is where a fork leaves its source: behind the append that ends at At,
// and behind the first messages of the next one, if Prefix is not nil.
type forkCut struct {
	At     int64
	Prefix []byte
	Count  int32
	Stamps []int32
}

// forkReader reads an entity's main stream for a fork, once, however often the
// fork is tried.
type forkReader struct {
	stream, pos int64
	rows        forkRows
	// For the root of a fork at an earlier point: which it is.
	pointer *forkPointer
	lastRun bool
	cut     *forkCut
	// since are the row events behind the last completed run.
	since []rowEvent
	// counted are the messages behind the pointer's offset; found says that an
	// append ends there.
	counted int64
	found   bool
}

type forkPointer struct {
	offset int64
	sub    int64
}

var (
	errNoPointer = problem.New(problem.InvalidRequest, "The entity's stream has no such place. Take an offset that a read of it gave, and a message behind it.").
			WithDetails(problem.Detail{Path: "/fork_pointer", Message: "points at no message of the stream"})
	errNoRun = problem.New(problem.InvalidRequest, "The entity has completed no run yet.").
			WithDetails(problem.Detail{Path: "/anchor", Message: "there is no completed run"})
	errForkRead = problem.New(problem.Internal, "The entity's stream cannot be read.")
)

// done says that nothing more need be read: the pointer's place is found.
func (f *forkReader) done() bool { return f.pointer != nil && f.cut != nil }

// read goes on to a position of the stream.
func (f *forkReader) read(ctx context.Context, db *store.Store, to int64) error {
	if f.pointer != nil && f.pointer.offset == f.pos && f.pos == 0 {
		f.found = true
	}
	for f.pos < to && !f.done() {
		page, err := db.StreamRead(ctx, store.ReadRequest{ID: f.stream, From: &f.pos, MaxBytes: int32(min(1<<20, to-f.pos)), MaxRows: 4096})
		if err != nil {
			return err
		}
		if page.Outcome != store.OK || len(page.Positions) == 0 || page.Next <= f.pos {
			return errForkRead
		}
		at := 0
		for _, end := range page.Positions {
			n := int(end - f.pos)
			if n <= 0 || at+n > len(page.Data) {
				return errForkRead
			}
			if err := f.append(page.Data[at:at+n], f.pos, end, appendStamps(page, at, n)); err != nil {
				return err
			}
			at += n + 1
			f.pos = end
			if f.done() {
				return nil
			}
		}
	}
	return nil
}

// appendStamps are the stamps of the append that lies at a place of the page.
func appendStamps(page store.StreamPage, at, n int) []int32 {
	var out []int32
	for _, s := range page.StampAt {
		if int(s) >= at && int(s) < at+n {
			out = append(out, s-int32(at))
		}
	}
	return out
}

// telling are the words without one of which an append changes nothing here.
var telling = [][]byte{[]byte(`manifest`), []byte(`child_status`), []byte(`replay_watermark`)}

func (f *forkReader) append(payload []byte, start, end int64, stamps []int32) error {
	tells := f.lastRun && bytes.Contains(payload, []byte(`completed`)) || bytes.IndexByte(payload, '\\') >= 0
	for _, word := range telling {
		tells = tells || bytes.Contains(payload, word)
	}
	counts := f.pointer != nil && start >= f.pointer.offset
	if tells || counts {
		if counts && !f.found {
			return errNoPointer // no append ends at the pointer's offset
		}
		messages, ends, err := splitAppend(payload)
		if err != nil {
			return nil // what is no JSON tells nothing
		}
		cut := func(i int) *forkCut {
			if i == len(messages)-1 {
				return &forkCut{At: end}
			}
			c := &forkCut{At: start, Prefix: bytes.Clone(payload[:ends[i]]), Count: int32(i + 1)}
			for _, s := range stamps {
				if int(s) < len(c.Prefix) {
					c.Stamps = append(c.Stamps, s)
				}
			}
			return c
		}
		for i, m := range messages {
			var e rowEvent
			if json.Unmarshal(m, &e) == nil {
				switch {
				case !f.lastRun:
					f.rows.apply(e)
				case f.rows[e.Type] != nil:
					e.Value = bytes.Clone(e.Value)
					f.since = append(f.since, e)
				case e.Type == "run" && e.Headers.Operation == "update" && completed(e.Value):
					f.cut = cut(i)
					for _, past := range f.since {
						f.rows.apply(past)
					}
					f.since = f.since[:0]
				}
			}
			if counts {
				if f.counted++; f.counted == f.pointer.sub {
					f.cut = cut(i)
					return nil
				}
			}
		}
	}
	if f.pointer != nil && end == f.pointer.offset {
		f.found = true
	}
	return nil
}

func completed(value json.RawMessage) bool {
	var v struct {
		Status string `json:"status"`
	}
	return json.Unmarshal(value, &v) == nil && v.Status == "completed"
}

// splitAppend finds the messages of an append and where each ends in it.
func splitAppend(payload []byte) (messages []json.RawMessage, ends []int, err error) {
	whole := make([]byte, 0, len(payload)+2)
	whole = append(append(append(whole, '['), payload...), ']')
	dec := jsontext.NewDecoder(bytes.NewReader(whole), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := dec.ReadToken(); err != nil {
		return nil, nil, err
	}
	for dec.PeekKind() != ']' {
		v, err := dec.ReadValue()
		if err != nil {
			return nil, nil, err
		}
		end := int(dec.InputOffset())
		messages, ends = append(messages, whole[end-len(v):end]), append(ends, end-1)
	}
	if len(messages) == 0 {
		return nil, nil, errors.New("an append without messages")
	}
	return messages, ends, nil
}
