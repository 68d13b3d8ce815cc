package shape

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/shape/where"
)

// message is one change as a client gets it, before it is written.
type message struct {
	op    string
	cells []cell // by column
	// columns to send.
	columns []int
	// old values to send, in a whole update.
	old []int
	was []cell
}

// cell is a value; missing is what the log left out.
type cell struct {
	where.Cell
	missing bool
}

func cellOf(v feed.Value) cell {
	return cell{where.Cell{Text: v.Text, Null: v.Kind == feed.Null}, v.Kind == feed.Unchanged}
}

// millisOf is a value of the log that is served as milliseconds.
func millisOf(v feed.Value) cell {
	c := cellOf(v)
	if c.Null || c.missing {
		return c
	}
	n, err := where.Millis(c.Text)
	if err != nil {
		return cell{missing: true}
	}
	c.Text = strconv.FormatInt(n, 10)
	return c
}

// write appends a message as JSON. headers are those after the operation.
func (m *message) write(b []byte, t *table, headers string) []byte {
	b = append(b, `{"key":`...)
	b = appendString(b, rowKey(t, m.cells))
	b = append(b, `,"value":{`...)
	b = appendCells(b, t, m.columns, m.cells)
	b = append(b, '}')
	if len(m.old) > 0 {
		b = append(b, `,"old_value":{`...)
		b = appendCells(b, t, m.old, m.was)
		b = append(b, '}')
	}
	b = append(b, `,"headers":{"operation":"`...)
	b = append(b, m.op...)
	b = append(b, `","relation":["`...)
	b = append(b, schema...)
	b = append(b, `","`...)
	b = append(b, t.name...)
	b = append(b, `"]`...)
	b = append(b, headers...)
	return append(b, '}', '}')
}

func appendCells(b []byte, t *table, columns []int, cells []cell) []byte {
	first := true
	for _, i := range columns {
		if cells[i].missing {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, '"')
		b = append(b, t.columns[i].name...)
		b = append(b, '"', ':')
		if cells[i].Null {
			b = append(b, "null"...)
		} else {
			b = appendString(b, cells[i].Text)
		}
	}
	return b
}

// rowKey names a row: "schema"."table"/"tenant"/"key".
func rowKey(t *table, cells []cell) string {
	var b strings.Builder
	b.WriteString(`"` + schema + `"."` + t.name + `"`)
	for _, i := range t.key {
		b.WriteString(`/"`)
		b.WriteString(strings.ReplaceAll(cells[i].Text, `"`, `""`))
		b.WriteByte('"')
	}
	return b.String()
}

const hexDigits = "0123456789abcdef"

// appendString writes a JSON string.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				b = append(append(b, s[from:i]...), `\ufffd`...)
				i++
				from = i
				continue
			}
			i += size
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, s[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	return append(append(b, s[from:]...), '"')
}

// upToDate is the message that ends a batch.
func upToDate(b []byte, lsn uint64) []byte {
	b = append(b, `{"headers":{"control":"up-to-date","global_last_seen_lsn":"`...)
	b = strconv.AppendUint(b, lsn, 10)
	return append(b, `"}}`...)
}

// mustRefetch is the body that tells a client to start anew.
const mustRefetch = `[{"headers":{"control":"must-refetch"}}]`
