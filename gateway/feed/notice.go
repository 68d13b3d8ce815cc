package feed

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
)

// LSN is a position in the write-ahead log.
type LSN = pglogrepl.LSN

// Prefixes of the logical messages the feed reads; any other is ignored.
const (
	PrefixStreams = "rouse"
	PrefixWakes   = "rouse.wake"
	// PrefixMembers has no content: an entity changed that membership streams tell of.
	PrefixMembers = "rouse.member"
)

// Flags say what a transaction did to a stream.
type Flags uint32

const (
	// Actionable: an append that asks for the owner's attention.
	Actionable Flags = 1
	// Closed: no append follows.
	Closed Flags = 2
	// Gone: deleted or expired.
	Gone Flags = 4
	// Created: the stream is new.
	Created Flags = 8
	// Linked: an append to a stream that subscriptions watch.
	Linked Flags = 16
	// Observed: an append to a stream that observers watch.
	Observed Flags = 32
)

// Any reports whether one of the flags of want is set.
func (f Flags) Any(want Flags) bool { return f&want != 0 }

// Has reports whether every flag of want is set.
func (f Flags) Has(want Flags) bool { return f&want == want }

// Notice says that a committed transaction changed a stream.
type Notice struct {
	Stream int64
	// Tail is the position after the stream's last byte.
	Tail  int64
	Flags Flags
	// Kind is the sender's optional label, "" without one.
	Kind string
}

// merge folds a later notice of the same stream into n.
func (n *Notice) merge(later Notice) {
	n.Tail = max(n.Tail, later.Tail)
	n.Flags |= later.Flags
	if later.Kind != "" {
		n.Kind = later.Kind
	}
}

const (
	maxKindBytes   = 64
	maxWakeIDBytes = 255
)

var errMalformed = errors.New("malformed entry")

// parseNotices calls fn for each entry of a PrefixStreams message,
// `stream:tail:flags[:kind]` joined by commas. An entry it cannot read is left
// out and reported in the error; the others are still handed on.
func parseNotices(content []byte, fn func(Notice)) error {
	return eachEntry(content, func(entry []byte) error {
		stream, rest, ok := cutInt(entry)
		if !ok || rest == nil {
			return errMalformed
		}
		tail, rest, ok := cutInt(rest)
		if !ok || rest == nil {
			return errMalformed
		}
		flags, rest, ok := cutInt(rest)
		if !ok || flags > int64(^Flags(0)) {
			return errMalformed
		}
		n := Notice{Stream: stream, Tail: tail, Flags: Flags(flags)}
		if rest != nil {
			if len(rest) == 0 || len(rest) > maxKindBytes {
				return errMalformed
			}
			n.Kind = string(rest)
		}
		fn(n)
		return nil
	})
}

// parseWakes calls fn for each wake id of a PrefixWakes message.
func parseWakes(content []byte, fn func(id string)) error {
	return eachEntry(content, func(entry []byte) error {
		if len(entry) > maxWakeIDBytes {
			return errMalformed
		}
		fn(string(entry))
		return nil
	})
}

// eachEntry splits content at commas. The error counts the entries refused.
func eachEntry(content []byte, fn func(entry []byte) error) error {
	if len(content) == 0 {
		return nil
	}
	refused := 0
	for more := true; more; {
		var entry []byte
		entry, content, more = bytes.Cut(content, []byte{','})
		if len(entry) == 0 || fn(entry) != nil {
			refused++
		}
	}
	if refused > 0 {
		return fmt.Errorf("%w: %d left out", errMalformed, refused)
	}
	return nil
}

// cutInt reads a non-negative decimal up to a colon or the end. rest is nil at
// the end, else what follows the colon.
func cutInt(b []byte) (v int64, rest []byte, ok bool) {
	const cutoff = (1<<63 - 1) / 10
	i := 0
	for ; i < len(b) && b[i] != ':'; i++ {
		d := b[i] - '0'
		if d > 9 || v > cutoff {
			return 0, nil, false
		}
		if v = v*10 + int64(d); v < 0 {
			return 0, nil, false
		}
	}
	switch {
	case i == 0:
		return 0, nil, false
	case i == len(b):
		return v, nil, true
	default:
		return v, b[i+1:], true
	}
}
