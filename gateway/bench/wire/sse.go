package wire

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http/httputil"
	"time"
)

// eventBuffer is small, so that thousands of readers fit beside the server.
const eventBuffer = 1 << 10

// Events is an open text/event-stream response.
type Events struct {
	conn *Conn
	br   *bufio.Reader
	kind []byte
	data []byte
}

// Subscribe sends a GET on a connection of its own and waits for the answer's head.
func Subscribe(ctx context.Context, addr string, until time.Time, target string, headers ...Header) (*Events, error) {
	c, err := dial(ctx, addr, until, eventBuffer)
	if err != nil {
		return nil, err
	}
	headers = append([]Header{{"Accept", "text/event-stream"}}, headers...)
	r, err := c.begin(Request("GET", addr, target, nil, headers...))
	if err == nil && r.Status != 200 {
		err = fmt.Errorf("GET %s: status %d", target, r.Status)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	var body io.Reader = c.br
	if r.chunked {
		body = httputil.NewChunkedReader(c.br)
	}
	return &Events{conn: c, br: bufio.NewReaderSize(body, eventBuffer)}, nil
}

// Close ends the response, and with it a Next that waits.
func (e *Events) Close() error { return e.conn.Close() }

// Next returns the next event's type and data, its lines joined by line feeds; both are valid until the call after.
func (e *Events) Next() (kind, data []byte, err error) {
	e.kind, e.data = e.kind[:0], e.data[:0]
	for {
		line, field, err := e.line()
		if err != nil {
			return nil, nil, err
		}
		switch {
		case field == 0 && len(line) == 0:
			if len(e.kind) == 0 && len(e.data) == 0 {
				continue
			}
			return e.kind, bytes.TrimSuffix(e.data, []byte("\n")), nil
		case field == 'e':
			e.kind = append(e.kind, line...)
		}
	}
}

// line reads a line and returns the value of an event field ('e'); the value of data is gathered on the way, since it
// may be longer than the buffer.
func (e *Events) line() (value []byte, field byte, err error) {
	part, err := e.br.ReadSlice('\n')
	if rest, ok := bytes.CutPrefix(part, []byte("data:")); ok {
		if len(rest) > 0 && rest[0] == ' ' {
			rest = rest[1:]
		}
		e.data = append(e.data, rest...)
		for err == bufio.ErrBufferFull {
			part, err = e.br.ReadSlice('\n')
			e.data = append(e.data, part...)
		}
		return nil, 'd', err
	}
	if err != nil {
		return nil, 0, err
	}
	part = bytes.TrimRight(part, "\r\n")
	if rest, ok := bytes.CutPrefix(part, []byte("event:")); ok {
		return bytes.TrimSpace(rest), 'e', nil
	}
	if len(part) > 0 && part[0] == ':' {
		return nil, 'c', nil
	}
	return part, 0, nil
}
