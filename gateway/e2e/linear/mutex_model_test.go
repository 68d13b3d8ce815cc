package linear

import (
	"fmt"
	"strings"

	"github.com/anishathalye/porcupine"
)

// mutexCall is one call on one consumer; epoch is the lease it speaks for.
type mutexCall struct {
	consumer string
	op       string // acquire, heartbeat, ack, append, release
	epoch    int64
}

// mutexAnswer is how it ended: granted, held, none, ok, stale, or unknown when
// nothing definite came back.
type mutexAnswer struct {
	outcome string
	epoch   int64
}

// mutexState: the last epoch granted, whether its lease lives, and which epochs
// were given back properly. A lease may end at any moment.
type mutexState struct {
	epoch    int64
	live     bool
	released string // ",1,4," so that the state is comparable
}

func (s mutexState) gaveBack(epoch int64) bool {
	return strings.Contains(s.released, fmt.Sprintf(",%d,", epoch))
}

// stepMutex says which states may follow. Every wake of these tests is granted
// before the next one is minted, so epochs come without gaps.
func stepMutex(s mutexState, c mutexCall, a mutexAnswer) (next []mutexState) {
	before := []mutexState{s}
	if s.live { // the lease may have ended just before
		lapsed := s
		lapsed.live = false
		before = append(before, lapsed)
	}
	for _, s := range before {
		mine := s.live && c.epoch == s.epoch
		switch c.op {
		case "acquire":
			switch a.outcome {
			case "granted":
				if !s.live && a.epoch == s.epoch+1 {
					next = append(next, mutexState{epoch: a.epoch, live: true, released: s.released})
				}
			case "held":
				if s.live {
					next = append(next, s)
				}
			case "none": // nothing is pending, or the wake named is over
				if !s.live {
					next = append(next, s)
				}
			case "unknown":
				next = append(next, s)
				if !s.live {
					next = append(next, mutexState{epoch: s.epoch + 1, live: true, released: s.released})
				}
			}
		case "heartbeat", "ack", "append":
			switch a.outcome {
			case "ok":
				if mine {
					next = append(next, s)
				}
			case "stale":
				if !mine {
					next = append(next, s)
				}
			case "unknown":
				next = append(next, s)
			}
		case "release":
			done := mutexState{epoch: s.epoch, released: s.released + fmt.Sprintf(",%d,", c.epoch)}
			switch a.outcome {
			case "ok":
				if mine {
					next = append(next, done)
				} else if s.gaveBack(c.epoch) {
					next = append(next, s)
				}
			case "stale":
				if !mine && !s.gaveBack(c.epoch) {
					next = append(next, s)
				}
			case "unknown":
				next = append(next, s)
				if mine {
					next = append(next, done)
				}
			}
		}
	}
	return next
}

func mutexModel() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: func(h []porcupine.Operation) [][]porcupine.Operation {
			by := map[string][]porcupine.Operation{}
			for _, o := range h {
				k := o.Input.(mutexCall).consumer
				by[k] = append(by[k], o)
			}
			var out [][]porcupine.Operation
			for _, part := range by {
				out = append(out, part)
			}
			return out
		},
		Init: func() []any { return []any{mutexState{}} },
		Step: func(state, input, output any) []any {
			var out []any
			for _, s := range stepMutex(state.(mutexState), input.(mutexCall), output.(mutexAnswer)) {
				out = append(out, s)
			}
			return out
		},
		DescribeOperation: func(input, output any) string {
			c, a := input.(mutexCall), output.(mutexAnswer)
			return fmt.Sprintf("%s(%d) → %s %d", c.op, c.epoch, a.outcome, a.epoch)
		},
		DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
	}
	return m.ToModel()
}

// logCall and logAnswer are appends to and reads of one stream.
type logCall struct {
	stream string
	value  string // of an append; empty reads
	bytes  int64  // what the append adds
}

type logAnswer struct {
	ok       bool
	unknown  bool
	position int64  // after the append, or the tail that was read to
	read     string // values read, each followed by a space
}

type logState struct {
	values   string
	position int64
}

// logModel is a log: an append answers the position after it, and a read shows
// everything before the position it answers.
func logModel() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: func(h []porcupine.Operation) [][]porcupine.Operation {
			by := map[string][]porcupine.Operation{}
			for _, o := range h {
				k := o.Input.(logCall).stream
				by[k] = append(by[k], o)
			}
			var out [][]porcupine.Operation
			for _, part := range by {
				out = append(out, part)
			}
			return out
		},
		Init: func() []any { return []any{logState{}} },
		Step: func(state, input, output any) []any {
			s, c, a := state.(logState), input.(logCall), output.(logAnswer)
			if c.value == "" {
				if a.unknown || a.read == s.values && a.position == s.position {
					return []any{s}
				}
				return nil
			}
			after := logState{values: s.values + c.value + " ", position: s.position + c.bytes}
			switch {
			case a.unknown:
				return []any{s, after}
			case a.ok && a.position == after.position:
				return []any{after}
			}
			return nil
		},
		DescribeOperation: func(input, output any) string {
			c, a := input.(logCall), output.(logAnswer)
			if c.value == "" {
				return fmt.Sprintf("read → %d", a.position)
			}
			return fmt.Sprintf("append(%s) → %v %d", c.value, a.ok, a.position)
		},
	}
	return m.ToModel()
}
