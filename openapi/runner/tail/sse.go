package tail

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// event is one server-sent event.
type event struct {
	name string
	data []byte
}

// errTooLong says that an event passed the bound on its size.
var errTooLong = errors.New("an event is larger than the tail's bound")

// decoder reads server-sent events: lines end with LF, CR or CRLF; comments and unknown fields are skipped; an event
// that the stream's end cuts off is never given out.
type decoder struct {
	r     *bufio.Reader
	limit int
	// afterCR: a LF now belongs to the line end before it.
	afterCR bool
	first   bool
}

func newDecoder(r io.Reader, limit int) *decoder {
	return &decoder{r: bufio.NewReaderSize(r, 4<<10), limit: limit, first: true}
}

// next gives the next event with data.
func (d *decoder) next() (event, error) {
	var e event
	var some bool
	for {
		line, err := d.line(d.limit - len(e.data))
		if err != nil {
			return event{}, err
		}
		if len(line) == 0 {
			if some {
				return e, nil
			}
			e = event{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			e.name = string(value)
		case "data":
			if some {
				e.data = append(e.data, '\n')
			}
			e.data = append(e.data, value...)
			some = true
		}
	}
}

// line reads one line without its end.
func (d *decoder) line(limit int) ([]byte, error) {
	var line []byte
	for {
		if _, err := d.r.Peek(1); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
				if len(line) == 0 {
					err = io.EOF
				}
			}
			return nil, err
		}
		chunk, err := d.r.Peek(d.r.Buffered())
		if err != nil {
			return nil, err
		}
		if d.afterCR {
			d.afterCR = false
			if chunk[0] == '\n' {
				_, _ = d.r.Discard(1)
				continue
			}
		}
		end := bytes.IndexAny(chunk, "\r\n")
		if end < 0 {
			line = append(line, chunk...)
			_, _ = d.r.Discard(len(chunk))
		} else {
			line = append(line, chunk[:end]...)
			d.afterCR = chunk[end] == '\r'
			_, _ = d.r.Discard(end + 1)
		}
		if len(line) > limit {
			return nil, errTooLong
		}
		if end >= 0 {
			if d.first {
				d.first = false
				line = bytes.TrimPrefix(line, []byte("\ufeff"))
			}
			return line, nil
		}
	}
}
