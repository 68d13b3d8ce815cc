package shape

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/shape/where"
	"github.com/rouse-run/rouse/gateway/store"
)

// held is how much of a snapshot is collected in memory; the rest waits in a file,
// so that a slow client holds no connection of the database, nobody's turn, and
// little memory.
const held = 1 << 20

// chunk is how much is written at once.
const chunk = 256 << 10

// answer is a body that is sent when all of it has been read.
type answer struct {
	h    *Handler
	q    *request
	buf  []byte
	file *os.File
	size int64
}

// grow puts what there is into a file, if it is much.
func (a *answer) grow() error {
	if len(a.buf) < held {
		return nil
	}
	return a.spill()
}

func (a *answer) spill() error {
	if a.file == nil {
		f, err := os.CreateTemp("", "rouse-shape-")
		if err != nil {
			return problem.Wrap(problem.Overloaded, err, "The snapshot is too large to be sent: there is no room for a file.")
		}
		a.file = f
		// Its room is free again when it is closed, however that comes.
		if err := os.Remove(f.Name()); err != nil {
			return err
		}
	}
	n, err := a.file.Write(a.buf)
	a.size, a.buf = a.size+int64(n), a.buf[:0]
	if err != nil {
		return problem.Wrap(problem.Overloaded, err, "The snapshot is too large to be sent: there is no room for a file.")
	}
	return nil
}

// end sends the body, or answers the error that kept it from being read.
func (a *answer) end(err error) error {
	if a.file != nil {
		defer a.file.Close()
		if err == nil {
			err = a.spill()
		}
		if err == nil {
			_, err = a.file.Seek(0, io.SeekStart)
		}
	}
	if err != nil {
		forget(a.q.w.Header())
		return err
	}
	a.q.w.Header().Set("Content-Length", strconv.FormatInt(a.size+int64(len(a.buf)), 10))
	if a.file == nil {
		a.h.write(a.q, a.buf)
		return nil
	}
	buf := make([]byte, chunk)
	for {
		n, err := a.file.Read(buf)
		if n > 0 && !a.h.write(a.q, buf[:n]) || errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			panic(http.ErrAbortHandler) // the answer has begun: only a cut connection tells
		}
	}
}

// session waits a moment for the row session to begin. A snapshot can do
// without; what follows it then begins with another.
func (h *Handler) session(ctx context.Context) {
	wait, cancel := context.WithTimeout(ctx, h.SessionWait-h.ring.late())
	defer cancel()
	if h.ring.settle(wait, 0).up {
		h.catchUp(ctx)
	}
}

// maxCatchUp bounds the wait for the log to be read up to the present.
const maxCatchUp = 500 * time.Millisecond

// catchUp waits until what has been committed by now has been read, if that is
// soon. So a snapshot goes on from a place that other gateways have read too, and
// who writes and then asks for changes finds their own.
func (h *Handler) catchUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxCatchUp)
	defer cancel()
	if at, err := h.Store.ShapePosition(ctx); err == nil {
		h.ring.settle(ctx, at)
	}
}

// serveFirst answers a shape's first rows.
func (h *Handler) serveFirst(q *request) error {
	ctx, cancel := context.WithTimeout(q.http.Context(), h.SnapshotTimeout)
	defer cancel()
	h.session(ctx)
	rows := q.first && !q.changesOnly && q.http.Method != http.MethodHead
	a := &answer{h: h, q: q}
	var start uint64
	err := h.snapshot(ctx, q.definition, nil, "", rows, func(s store.ShapeSnapshot, from uint64) error {
		start = from
		hd := q.headers(newHandle(q.id, s).String(), start)
		hd.Set("Electric-Up-To-Date", "") // and no cursor: a client that has seen it takes the answer for a cache's
		a.buf = append(a.buf, '[')
		return nil
	}, func(cells []cell) error {
		m := message{op: "insert", cells: cells, columns: q.columns}
		a.buf = append(m.write(a.buf, q.table, ""), ',')
		return a.grow()
	})
	a.buf = append(upToDate(a.buf, start), ']')
	return a.end(err)
}

// forget takes back headers of an answer that is not given.
func forget(hd http.Header) {
	for _, name := range []string{"Electric-Handle", "Electric-Offset", "Electric-Schema", "Electric-Up-To-Date", "Electric-Cursor", "Vary"} {
		hd.Del(name)
	}
}

// subset is a part of a shape that a client asks for by itself.
type subset struct {
	filter *where.Filter
	rest   string
}

// Limits of a subset.
const (
	maxLimit = 100_000
	maxOrder = 16
)

// readSubset reads the subset__ parameters of the query, or a body.
func (d *definition) readSubset(q url.Values, body map[string]json.RawMessage, posted bool) (*subset, error) {
	asked := posted
	for name := range q {
		asked = asked || strings.HasPrefix(name, "subset__")
	}
	if !asked {
		return nil, nil
	}
	get := func(name string) (string, error) {
		v, err := one(q, "subset__"+name)
		if raw := body[name]; err == nil && v == "" && len(raw) > 0 && string(raw) != "null" {
			if json.Unmarshal(raw, &v) != nil {
				v = string(raw) // a number
			}
		}
		return v, err
	}
	params, err := readParams(q, "subset__params")
	if err != nil {
		return nil, err
	}
	if raw := body["params"]; len(raw) > 0 && string(raw) != "null" {
		if err := paramsFromJSON(raw, params); err != nil || len(params) > maxParams {
			return nil, bad("params", "a JSON object of values by number, or an array")
		}
	}
	src, err := get("where")
	if err != nil {
		return nil, err
	}
	s := &subset{}
	if s.filter, err = d.parse(src, params); err != nil {
		return nil, err
	}
	order, err := get("order_by")
	if err != nil {
		return nil, err
	}
	if s.rest, err = d.order(order); err != nil {
		return nil, err
	}
	for _, part := range []string{"limit", "offset"} {
		v, err := get(part)
		if err != nil {
			return nil, err
		}
		if v == "" {
			continue
		}
		n, err := strconv.ParseUint(v, 10, 31)
		if err != nil || part == "limit" && n > maxLimit {
			return nil, bad("subset__"+part, "a whole number that is not too large")
		}
		s.rest += " " + part + " " + strconv.FormatUint(n, 10)
	}
	return s, nil
}

// order reads "column [asc|desc] [nulls first|last], …". Texts are ordered by
// their bytes.
func (d *definition) order(src string) (string, error) {
	if strings.TrimSpace(src) == "" {
		return "", nil
	}
	var out []string
	for _, term := range strings.Split(src, ",") {
		words := strings.Fields(term)
		if len(words) == 0 || len(out) == maxOrder {
			return "", bad("subset__order_by", "columns, each with asc or desc")
		}
		name := words[0]
		if len(name) >= 2 && name[0] == '"' && name[len(name)-1] == '"' {
			name = name[1 : len(name)-1]
		}
		i := d.table.find(name)
		if i < 0 || d.table.columns[i].typ == where.JSON {
			return "", bad("subset__order_by", "a column is not one to order by")
		}
		sql := d.table.columns[i].sql
		if d.table.columns[i].typ == where.Text {
			sql = "(" + sql + `)::text collate "C"`
		}
		switch rest := strings.ToLower(strings.Join(words[1:], " ")); rest {
		case "", "asc", "desc", "asc nulls first", "asc nulls last", "desc nulls first", "desc nulls last", "nulls first", "nulls last":
			out = append(out, sql+" "+rest)
		default:
			return "", bad("subset__order_by", "columns, each with asc or desc")
		}
	}
	return " order by " + strings.Join(out, ", "), nil
}

// serveSubset answers {metadata, data}: rows, and which transactions they show,
// so that the client can tell what the log repeats.
func (h *Handler) serveSubset(q *request) error {
	ctx, cancel := context.WithTimeout(q.http.Context(), h.SnapshotTimeout)
	defer cancel()
	a := &answer{h: h, q: q}
	first := true
	err := h.snapshot(ctx, q.definition, q.subset.filter, q.subset.rest, true, func(s store.ShapeSnapshot, start uint64) error {
		handle := q.handle
		if handle == "" {
			handle = newHandle(q.id, s).String()
		}
		q.headers(handle, start).Set("Cache-Control", "no-store")
		xip := make([]string, len(s.InProgress))
		for i, x := range s.InProgress {
			xip[i] = strconv.FormatUint(x, 10)
		}
		mark, err := json.Marshal(map[string]any{
			"snapshot_mark": s.At.UnixMicro() & (1<<52 - 1), "database_lsn": strconv.FormatUint(s.LSN, 10),
			"xmin": strconv.FormatUint(s.XMin, 10), "xmax": strconv.FormatUint(s.XMax, 10), "xip_list": xip,
		})
		a.buf = append(append(append(a.buf, `{"metadata":`...), mark...), `,"data":[`...)
		return err
	}, func(cells []cell) error {
		if !first {
			a.buf = append(a.buf, ',')
		}
		first = false
		m := message{op: "insert", cells: cells, columns: q.columns}
		a.buf = m.write(a.buf, q.table, "")
		return a.grow()
	})
	a.buf = append(a.buf, ']', '}')
	return a.end(err)
}
