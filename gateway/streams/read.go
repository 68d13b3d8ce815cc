package streams

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/seal"
	"github.com/rouse-run/rouse/gateway/store"
)

// head answers HEAD; it does not extend a stream's life.
func (h *Handler) head(q *request) error {
	ctx, cancel := h.call(q.http)
	defer cancel()
	m, err := h.Store.StreamHead(ctx, q.service, q.path.Name)
	if err != nil {
		return err
	}
	if err := h.readable(q, &m); err != nil {
		return err
	}
	hd := q.w.Header()
	hd["Content-Type"] = []string{m.ContentType}
	hd["Cache-Control"] = vNoStore
	setTail(hd, m.Tail, m.Closed)
	if m.Head > 0 {
		hd[hEarliest] = []string{store.FormatOffset(m.Head)}
	}
	setExpiry(hd, &m)
	q.w.WriteHeader(http.StatusOK)
	return nil
}

// readable turns what a lookup found into an error, or checks the reader.
func (h *Handler) readable(q *request, m *store.StreamMeta) error {
	switch m.Outcome {
	case store.OK:
		return h.mayRead(q, m)
	case store.NotFound:
		return problem.New(problem.StreamNotFound, "There is no stream at this path.")
	case store.Gone:
		return problem.New(problem.StreamGone, "The stream was deleted.")
	case store.Beyond, store.Trimmed:
		// Who may not read must not learn where the stream ends.
		if err := h.mayRead(q, m); err != nil {
			return err
		}
		if m.Outcome == store.Trimmed {
			return offsetGone(m)
		}
		return problem.New(problem.OffsetInvalid, "The offset lies beyond the stream's end. Was the stream deleted and made again?")
	}
	return unexpected(m.Outcome)
}

// offsetGone says where a reader can go on whose offset is trimmed away.
func offsetGone(m *store.StreamMeta) error {
	earliest := store.FormatOffset(m.Head)
	return problem.Newf(problem.OffsetGone, "What follows this offset is no longer kept. Go on at %s, where what is kept begins; -1 begins there too.", earliest).
		WithMeta("earliest_offset", earliest).WithHeader(hEarliest, earliest)
}

// position is where a read begins.
type position struct {
	// from is negative for the first message that is kept.
	from int64
	// now: at the tail, whatever it is. given: the query says where.
	now, given bool
}

func readPosition(q *request) (position, error) {
	if !q.query.Has("offset") {
		return position{from: -1}, nil
	}
	v, err := single(q.query, "offset")
	if err != nil {
		return position{}, problem.New(problem.OffsetInvalid, "The offset is empty or given twice.")
	}
	switch v {
	case "now":
		return position{now: true, given: true}, nil
	case "-1":
		return position{from: -1, given: true}, nil
	}
	from, err := store.ParseOffset(v)
	return position{from: from, given: true}, err
}

// get answers GET in its three modes.
func (h *Handler) get(q *request) error {
	pos, err := readPosition(q)
	if err != nil {
		return err
	}
	live := ""
	if q.query.Has("live") {
		if live, err = single(q.query, "live"); err != nil {
			return err
		}
		if live != "long-poll" && live != "sse" {
			return problem.New(problem.InvalidRequest, "Live reads are long-poll or sse.").
				WithDetails(problem.Detail{Path: "query.live", Message: "must be long-poll or sse"})
		}
		if !pos.given {
			return problem.New(problem.InvalidRequest, "A live read needs an offset.").
				WithDetails(problem.Detail{Path: "query.offset", Message: "is required with live"})
		}
	}
	client, err := clientCursor(q.query)
	if err != nil {
		return err
	}
	p, err := h.first(q, pos)
	if err != nil {
		return err
	}
	if pos.from < 0 && p.from > 0 {
		q.w.Header()[hEarliest] = []string{store.FormatOffset(p.from)}
	}
	switch live {
	case "long-poll":
		return h.longPoll(q, p, client)
	case "sse":
		return h.sse(q, p, client)
	}
	return h.catchUp(q, p, pos)
}

// first reads the page a request begins with: it finds the stream by name,
// checks the reader, and extends the stream's life.
func (h *Handler) first(q *request, pos position) (*page, error) {
	ctx, cancel := h.call(q.http)
	defer cancel()
	r := store.ReadRequest{Service: q.service, Path: q.path.Name, MaxBytes: h.PageBytes, MaxRows: pageRows}
	if !pos.now {
		r.From = &pos.from
	}
	// The pages of a stream that has several are shared: what the name leads to
	// is looked up first, and the page read together with others.
	hint := int64(0)
	if !pos.now {
		if hint = h.pages.hinted(q.service, q.path.Name); hint != 0 {
			r.MaxBytes = 0
		}
	}
	began := h.pages.generation()
	s, err := h.Store.StreamRead(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := h.readable(q, &s.StreamMeta); err != nil {
		return nil, err
	}
	if s.Touch {
		if err := h.Store.StreamTouch(ctx, s.ID); err != nil {
			return nil, err
		}
	}
	from := pos.from
	switch {
	case pos.now:
		from = s.Tail
	case from < 0:
		from = s.Begin()
	}
	if hint != 0 && from < s.Tail {
		p, err := h.pages.long(ctx, s.ID, from, s.Tail)
		if err != nil {
			return nil, err
		}
		if err := h.still(p); err != nil {
			return nil, err
		}
		// The state is this request's own, not that of when the page was read.
		key := p.WakeKey // of the read that saw the entries
		p = &page{StreamMeta: s.StreamMeta, from: p.from, next: p.next, body: p.body, full: p.full}
		p.WakeKey = key
		p.Tail, p.Closed = max(s.Tail, p.next), s.Closed && p.next <= s.Tail
		return h.decorate(q, p)
	}
	p := newPage(from, s)
	if p.full {
		h.pages.keep(p, began)
		h.pages.hint(q.service, q.path.Name, p.ID)
	}
	return h.decorate(q, p)
}

// decorate fills in what only a wake stream's owner may see, and seals it for
// whom it is if there is a key.
func (h *Handler) decorate(q *request, p *page) (*page, error) {
	key := seal.FromBytes(p.WakeKey)
	bystander := q.pool != nil && q.pool.runner == ""
	if p.Kind != "wake" || h.WakeDecorator == nil && key == nil && q.pool == nil || p.next == p.from || !isJSON(p.ContentType) {
		return p, nil
	}
	if q.pool != nil {
		var err error
		if key, err = h.again(q); err != nil {
			return nil, err
		}
		meta := p.StreamMeta
		meta.WakeKey = key.Bytes()
		p = &page{StreamMeta: meta, from: p.from, next: p.next, body: p.body, full: p.full}
	}
	entries, err := splitMessages(p.body[1 : len(p.body)-1])
	if err != nil {
		return nil, problem.Wrap(problem.Internal, err, "An entry of the wake stream is broken.")
	}
	body := []byte{'['}
	for i, e := range entries {
		if i > 0 {
			body = append(body, ',')
		}
		switch {
		case bystander:
			if e, err = seal.Bare(e); err != nil {
				return nil, problem.Wrap(problem.Internal, err, "An entry of the wake stream is broken.")
			}
		case h.WakeDecorator != nil:
			e = h.WakeDecorator(q.service, q.serviceName, e)
		}
		if e, err = key.Entry(e); err != nil {
			return nil, problem.Wrap(problem.Internal, err, "An entry of the wake stream cannot be sealed.")
		}
		body = append(body, e...)
	}
	return &page{StreamMeta: p.StreamMeta, from: p.from, next: p.next, full: p.full, body: append(body, ']')}, nil
}

func (h *Handler) catchUp(q *request, p *page, pos position) error {
	hd := q.w.Header()
	hd["Content-Type"] = []string{p.ContentType}
	setTail(hd, p.next, p.ended())
	setExpiry(hd, &p.StreamMeta)
	if p.upToDate() {
		hd[hUpToDate] = vTrue
	}
	if pos.now {
		hd["Cache-Control"] = vNoStore
		h.writeBody(q.w, http.StatusOK, p.body)
		return nil
	}
	tag := etag(p)
	hd["Etag"] = []string{tag}
	hd["Cache-Control"] = h.cacheControl(p)
	h.startMoves(hd, p)
	if matches(q.http.Header["If-None-Match"], tag) {
		delete(hd, "Content-Type")
		q.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.writeBody(q.w, http.StatusOK, p.body)
	return nil
}

// startMoves keeps caches from holding on to what a stream begins with that was
// trimmed: it begins elsewhere soon.
func (h *Handler) startMoves(hd http.Header, p *page) {
	if hd[hEarliest] == nil {
		return
	}
	hd["Cache-Control"] = vPrivateFresh
	if !h.RequireAuth && p.Kind == "app" {
		hd["Cache-Control"] = vRevalidate
	}
}

// etag names the bytes between two positions of one stream, and whom they are
// sealed for; a close at the end is part of what the reader learns.
func etag(p *page) string {
	tag := `"` + strconv.FormatInt(p.ID, 10) + ":" + strconv.FormatInt(p.from, 10) + ":" + strconv.FormatInt(p.next, 10)
	if p.ended() {
		tag += ":c"
	}
	if key := seal.FromBytes(p.WakeKey); key != nil {
		tag += ":" + key.ID()
	}
	return tag + `"`
}

func matches(headers []string, tag string) bool {
	for _, v := range headers {
		for part := range strings.SplitSeq(v, ",") {
			part = strings.TrimPrefix(strings.TrimSpace(part), "W/")
			if part == tag || part == "*" {
				return true
			}
		}
	}
	return false
}

var (
	vPublic       = []string{"public, max-age=60, stale-while-revalidate=300"}
	vPrivate      = []string{"private, max-age=60, stale-while-revalidate=300"}
	vRevalidate   = []string{"no-cache"}
	vPrivateFresh = []string{"private, no-cache"}
)

// cacheControl lets caches keep what cannot change: a page that more follows,
// or the end of a closed stream. What ends at an open tail is checked each time,
// so that a writer reads what it wrote.
func (h *Handler) cacheControl(p *page) []string {
	private := h.RequireAuth || p.Kind != "app"
	// The entries of a wake stream look otherwise once a runner has another key.
	lasting := p.Kind != "wake" && (!p.upToDate() || p.ended())
	switch {
	case private && lasting:
		return vPrivate
	case private:
		return vPrivateFresh
	case lasting:
		return vPublic
	}
	return vRevalidate
}

const writeStep = 256 << 10

// writeBody sends a body whose reader must keep taking it.
func (h *Handler) writeBody(w http.ResponseWriter, status int, body []byte) {
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	if len(body) <= 4096 {
		_, _ = w.Write(body) // stays in the connection's buffer
		return
	}
	rc := http.NewResponseController(w)
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	for len(body) > 0 {
		n := min(len(body), writeStep)
		_ = rc.SetWriteDeadline(time.Now().Add(h.WriteTimeout))
		if _, err := w.Write(body[:n]); err != nil {
			return
		}
		body = body[n:]
	}
}
