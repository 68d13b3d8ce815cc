package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	// maxLine is where a line of output is cut into several rows, in bytes.
	maxLine = 1 << 20
	// maxBatch and maxRows bound one append.
	maxBatch = 1 << 20
	maxRows  = 500
)

// copyOut appends the command's output as it comes: what is there by the time the append before is answered goes into
// the next one.
func (r *run) copyOut(ctx context.Context, out io.Reader) error {
	lines := make(chan []byte, maxRows)
	read := make(chan error, 1)
	stopped := make(chan struct{})
	defer close(stopped)
	go func() {
		read <- split(out, func(line []byte) bool {
			select {
			case lines <- line:
				return true
			case <-stopped:
				return false
			}
		})
		close(lines)
	}()
	for line := range lines {
		rows, size := []any{r.row(line)}, len(line)
	more:
		for len(rows) < maxRows && size < maxBatch {
			select {
			case line, ok := <-lines:
				if !ok {
					break more
				}
				rows, size = append(rows, r.row(line)), size+len(line)
			default:
				break more
			}
		}
		if err := r.claim.Append(ctx, rows...); err != nil {
			return fmt.Errorf("the command's output could not be appended: %w", err)
		}
	}
	return <-read
}

// split gives lines without their ends; one that is too long comes in pieces, an empty one not at all.
func split(r io.Reader, give func([]byte) bool) error {
	var line []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		rest := buf[:n]
		for len(rest) > 0 {
			i := bytes.IndexByte(rest, '\n')
			part := rest
			if i >= 0 {
				part = rest[:i]
			}
			line = append(line, part...)
			rest = rest[len(part):]
			if i < 0 && len(line) < maxLine {
				continue
			}
			if i >= 0 {
				rest = rest[1:]
			}
			if line = bytes.TrimSuffix(line, []byte("\r")); len(line) > 0 && !give(line) {
				return nil
			}
			line = nil
		}
		if err != nil {
			if len(line) > 0 {
				give(line)
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// row makes a State Protocol message of a line, if it is none yet.
func (r *run) row(line []byte) any {
	if isRow(line) {
		return json.RawMessage(line)
	}
	r.rows++
	return textRow{
		Headers: map[string]string{"operation": "insert"}, Type: "text",
		Key:   fmt.Sprintf("out-%d-%d", r.claim.Epoch(), r.rows),
		Value: map[string]string{"text": strings.ToValidUTF8(string(line), "�")},
	}
}

type textRow struct {
	Headers map[string]string `json:"headers"`
	Type    string            `json:"type"`
	Key     string            `json:"key"`
	Value   map[string]string `json:"value"`
}

// isRow says that a line is a State Protocol message: a change with a type, a key and an operation, or a control.
func isRow(line []byte) bool {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] != '{' {
		return false
	}
	var m struct {
		Type    *string `json:"type"`
		Key     *string `json:"key"`
		Headers struct {
			Operation *string `json:"operation"`
			Control   *string `json:"control"`
		} `json:"headers"`
	}
	if json.Unmarshal(line, &m) != nil {
		return false
	}
	return m.Headers.Control != nil || (m.Headers.Operation != nil && m.Type != nil && m.Key != nil)
}
