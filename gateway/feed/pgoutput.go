package feed

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// pgoutput messages of protocol version 1 that matter here. Their layout is
// described in the Postgres manual, "Logical Replication Message Formats".
const (
	frameBegin   = 'B'
	frameCommit  = 'C'
	frameMessage = 'M'
)

var errShortFrame = errors.New("pgoutput message is shorter than its layout")

// frames reads the pgoutput messages of one session.
type frames interface {
	// decode reads one message. An error means that the stream as a whole cannot
	// be trusted.
	decode(frame []byte) error
	// open reports whether a transaction has begun and not ended.
	open() bool
}

// decoder reads pgoutput messages and calls the handler of each logical
// message's prefix. It holds no data between calls but whether it is inside a
// transaction.
type decoder struct {
	// handlers by prefix; content is valid during the call only.
	handlers map[string]func(content []byte) error
	// commit is called with the position after a transaction's commit record.
	commit func(end LSN)
	// refused is called when a handler could not read some of a message.
	refused func(prefix string, err error)

	inside bool
}

func (d *decoder) open() bool { return d.inside }

// decode reads one message; what a handler refuses is not an error.
func (d *decoder) decode(frame []byte) error {
	if len(frame) == 0 {
		return errShortFrame
	}
	body := frame[1:]
	switch frame[0] {
	case frameBegin:
		d.inside = true
	case frameCommit:
		// flags, LSN of the commit record, LSN after it, time.
		if len(body) < 1+8+8+8 {
			return fmt.Errorf("commit: %w", errShortFrame)
		}
		d.inside = false
		d.commit(LSN(binary.BigEndian.Uint64(body[9:])))
	case frameMessage:
		return d.message(body)
	}
	return nil
}

// message reads flags, LSN, the prefix ended by a zero, a length, the content.
func (d *decoder) message(body []byte) error {
	if len(body) < 1+8 {
		return fmt.Errorf("message: %w", errShortFrame)
	}
	transactional := body[0]&1 != 0
	body = body[9:]
	end := bytes.IndexByte(body, 0)
	if end < 0 || len(body) < end+1+4 {
		return fmt.Errorf("message prefix: %w", errShortFrame)
	}
	prefix, body := body[:end], body[end+1:]
	size := binary.BigEndian.Uint32(body)
	body = body[4:]
	if uint64(len(body)) < uint64(size) {
		return fmt.Errorf("message content: %w", errShortFrame)
	}
	handle := d.handlers[string(prefix)]
	// A message outside the transaction is sent even when that rolls back.
	if handle == nil || !transactional {
		return nil
	}
	if err := handle(body[:size]); err != nil {
		d.refused(string(prefix), err)
	}
	return nil
}
