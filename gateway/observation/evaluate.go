package observation

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

const (
	// maxCollected bounds what a debounce collects, in changes and in bytes:
	// beyond it the changes are told before their time.
	maxCollected      = 256
	maxCollectedBytes = 256 << 10
	// maxResponse bounds the response of a run that a wake carries, and
	// maxReadBack what is read to find it, in bytes.
	maxResponse = 1 << 20
	maxReadBack = 32 << 20
	backPage    = 512 << 10
)

// collected is what a debounce keeps between two looks.
type collected struct {
	Changes []change `json:"changes"`
	Event   string   `json:"event"`
	Run     *run     `json:"run,omitempty"`
}

// evaluator reads one page of one observer's source.
type evaluator struct {
	db   Database
	now  time.Time
	o    store.Observer
	cond Condition
	out  store.ObserverMove
}

// evaluate says where an observer's cursor goes and which wakes that brings.
func evaluate(ctx context.Context, db Database, now time.Time, o store.Observer) (store.ObserverMove, error) {
	e := &evaluator{db: db, now: now, o: o, out: store.ObserverMove{ID: o.ID, From: o.Acked, Was: o.State, Due: o.Due, To: o.Tail, State: o.State, KeepDue: true}}
	if o.Ended {
		e.out.To, e.out.Over = o.Acked, true
		return e.out, nil
	}
	cond, why := ParseCondition(json.RawMessage(o.Condition))
	if why != "" {
		e.out.Over = true // nothing can match it
		return e.out, nil
	}
	e.cond = cond
	var st collected
	if o.State != "" {
		_ = json.Unmarshal([]byte(o.State), &st) // ours
	}
	had, matched := len(st.Changes) > 0, false
	for i, payload := range o.Payloads {
		for _, ev := range events(payload, o.Positions[i]) {
			ch, run := cond.match(ev)
			if ch == nil {
				continue
			}
			matched = true
			st.Changes = append(st.Changes, *ch)
			st.Event = ev.id
			if run != nil {
				st.Run = run
			}
			if o.DebounceMS == 0 || len(st.Changes) >= maxCollected {
				if err := e.tell(ctx, st.Event, &st); err != nil {
					return e.out, err
				}
			}
		}
	}
	if n := len(o.Positions); n > 0 && o.Positions[n-1] < o.Tail {
		e.out.To = o.Positions[n-1]
	}
	// The source has said its last word; what was collected is told now.
	last := o.Over && e.out.To == o.Tail
	switch {
	case len(st.Changes) > 0 && (had && o.Due || last || len(staterow.Encode(st)) > maxCollectedBytes):
		if err := e.tell(ctx, st.Event, &st); err != nil {
			return e.out, err
		}
		e.out.KeepDue = false
	case matched && len(st.Changes) > 0:
		e.out.KeepDue, e.out.DueMS = false, &o.DebounceMS
	case matched:
		e.out.KeepDue = false // the timeout is not waited for any more
	case o.Due && !last:
		e.row("timeout", wake{Timeout: true}, nil)
		e.out.KeepDue = false
	}
	e.out.State = ""
	if len(st.Changes) > 0 {
		e.out.State = staterow.Encode(st)
	}
	e.out.Over = last
	return e.out, nil
}

// wake is the value of a wake row.
type wake struct {
	Timestamp string         `json:"timestamp"`
	Source    string         `json:"source"`
	Timeout   bool           `json:"timeout"`
	Changes   []change       `json:"changes"`
	Finished  *finishedChild `json:"finished_child,omitempty"`
}

type finishedChild struct {
	URL       string  `json:"url"`
	Type      string  `json:"type"`
	RunStatus string  `json:"run_status"`
	Response  *string `json:"response,omitempty"`
	Error     *string `json:"error,omitempty"`
}

// tell makes a wake of what was collected.
func (e *evaluator) tell(ctx context.Context, id string, st *collected) error {
	var child *finishedChild
	if r := st.Run; r != nil && e.o.SourceParent != "" && e.o.SourceParent == e.o.SubscriberURL {
		child = &finishedChild{URL: e.o.SourceEntity, Type: e.o.SourceType, RunStatus: r.Status}
		if e.o.IncludeResponse && r.Key != "" {
			var err error
			if child.Response, child.Error, err = e.response(ctx, *r); err != nil {
				return err
			}
		}
	}
	e.row(id, wake{Changes: st.Changes}, child)
	*st = collected{}
	return nil
}

func (e *evaluator) row(id string, w wake, child *finishedChild) {
	w.Timestamp, w.Source, w.Finished = staterow.Time(e.now), e.o.SourceURL, child
	if w.Changes == nil {
		w.Changes = []change{}
	}
	e.out.Rows = append(e.out.Rows, staterow.Text(staterow.Headers{Operation: "insert", Timestamp: w.Timestamp}, "wake", "wake-"+strconv.FormatInt(e.o.ID, 10)+"-"+id, w))
}

// response reads back what a run said: its text, joined, and, if it failed, its
// errors.
func (e *evaluator) response(ctx context.Context, r run) (said, failed *string, err error) {
	var texts, errs []string
	total, at, read := 0, r.Position, 0
	for begun := false; !begun && at > 0 && read < maxReadBack; {
		page, err := e.db.ObserveBack(ctx, e.o.StreamID, at, backPage)
		if err != nil {
			return nil, nil, err
		}
		if len(page) == 0 {
			break
		}
		for _, m := range page {
			at = m.Position - int64(len(m.Payload))
			read += len(m.Payload)
			evs := events(m.Payload, m.Position)
			for _, ev := range slices.Backward(evs) {
				switch {
				case ev.typ == "text_delta" && text(ev.value["run_id"]) == r.Key:
					texts = append(texts, text(ev.value["delta"]))
					total += len(texts[len(texts)-1])
				case ev.typ == "error" && r.Status == "failed" && text(ev.value["run_id"]) == r.Key:
					errs = append(errs, text(ev.value["message"]))
				case ev.typ == "run" && ev.key == r.Key && ev.operation == "insert":
					begun = true
				}
			}
			if begun || total > maxResponse {
				begun = true
				break
			}
		}
	}
	join := func(parts []string, sep string) *string {
		slices.Reverse(parts)
		s := strings.Join(parts, sep)
		if len(s) > maxResponse {
			s = strings.ToValidUTF8(s[len(s)-maxResponse:], "") // its end says most
		}
		if s == "" {
			return nil
		}
		return &s
	}
	return join(texts, ""), join(errs, "\n"), nil
}
