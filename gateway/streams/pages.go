package streams

import (
	"container/list"
	"context"
	"encoding/base64"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rouse-run/rouse/gateway/appender"
	"github.com/rouse-run/rouse/gateway/store"
)

// page is a stretch of a stream as it goes out. What lies between from and next
// never changes; tail and closed are as they were when it was read.
type page struct {
	store.StreamMeta
	from, next int64
	// body is the wire form: for JSON an array with offsets spliced in.
	body []byte
	// full pages ended at their size limit, not at the tail.
	full bool

	sseOnce sync.Once
	sse     []byte
}

func (p *page) upToDate() bool { return p.next >= p.Tail }

// ended says that nothing follows this page, ever.
func (p *page) ended() bool { return p.Closed && p.upToDate() }

// frame returns the page as an SSE data event, encoded once for all readers.
func (p *page) frame() []byte {
	p.sseOnce.Do(func() { p.sse = dataEvent(p.body, isText(p.ContentType)) })
	return p.sse
}

func newPage(from int64, s store.StreamPage) *page {
	p := &page{StreamMeta: s.StreamMeta, from: from, next: s.Next, full: s.Next < s.Tail}
	json := isJSON(s.ContentType)
	p.body = render(s, json)
	return p
}

// render makes the wire form: JSON in brackets, with the offset of its append
// spliced into each State Protocol message.
func render(s store.StreamPage, json bool) []byte {
	if !json {
		return s.Data
	}
	const member = `"offset":"",`
	out := make([]byte, 0, len(s.Data)+2+len(s.StampAt)*(len(member)+33))
	out = append(out, '[')
	last := int32(0)
	for i, at := range s.StampAt {
		out = append(out, s.Data[last:at]...)
		out = append(out, `"offset":"`...)
		out = append(out, store.FormatOffset(s.StampPosition[i])...)
		out = append(out, `",`...)
		last = at
	}
	out = append(out, s.Data[last:]...)
	return append(out, ']')
}

// dataEvent encodes an SSE event named data. Each kind of line break of the
// text becomes a line of its own, so that no payload can forge an event.
func dataEvent(body []byte, isText bool) []byte {
	const head = "event: data\n"
	if !isText {
		out := make([]byte, 0, len(head)+8+base64.StdEncoding.EncodedLen(len(body)))
		out = append(out, head+"data:"...)
		out = base64.StdEncoding.AppendEncode(out, body)
		return append(out, "\n\n"...)
	}
	out := make([]byte, 0, len(head)+len(body)+len(body)/16+32)
	out = append(out, head...)
	for {
		out = append(out, "data:"...)
		if len(body) > 0 && body[0] == ' ' {
			out = append(out, ' ') // readers drop one space after the colon
		}
		n := 0
		for n < len(body) && body[n] != '\n' && body[n] != '\r' {
			n++
		}
		out = append(append(out, body[:n]...), '\n')
		if n == len(body) {
			return append(out, '\n')
		}
		if body[n] == '\r' && n+1 < len(body) && body[n+1] == '\n' {
			n++
		}
		body = body[n+1:]
	}
}

type pageKey struct{ stream, from int64 }

// pages lets readers at the same place share one read of the database, and
// keeps recent pages. They are keyed by stream id, which is never reused. What
// is kept is dropped when the database may have lost what it had: behind a
// failover to a standby that was behind, offsets lead to other data.
type pages struct {
	db      Database
	max     int32
	limit   int64
	timeout time.Duration
	ctx     context.Context
	// signs count what may mean that the database is not what it was.
	signs []func() uint64

	mu      sync.Mutex
	seen    uint64
	flights map[pageKey]*flight
	kept    map[pageKey]*list.Element
	order   *list.List // of *page, most recently used first
	bytes   int64
	hints   map[string]int64
	live    map[int64]*liveStream
	lives   atomic.Int64
}

// liveStream is a stream that readers of this gateway wait for.
type liveStream struct {
	meta    store.StreamMeta
	readers int
}

type flight struct {
	done chan struct{}
	page *page
	err  error
}

// pageRows bounds the appends of a page.
const pageRows = 16384

func newPages(db Database, max int32, limit int64, timeout time.Duration) *pages {
	return &pages{db: db, max: max, limit: limit, timeout: timeout, flights: map[pageKey]*flight{}, kept: map[pageKey]*list.Element{}, hints: map[string]int64{}, live: map[int64]*liveStream{}, order: list.New()}
}

// next returns the page of a stream after from, from the cache if it has data
// there. It may be empty: then the page tells the stream's state.
func (c *pages) next(ctx context.Context, stream, from int64) (*page, error) {
	if p := c.cached(stream, from); p != nil {
		return p, nil
	}
	return c.read(ctx, stream, from)
}

// read returns what the database holds after from, together with whoever asks
// for the same at this moment.
func (c *pages) read(ctx context.Context, stream, from int64) (*page, error) {
	k := pageKey{stream, from}
	c.mu.Lock()
	f := c.flights[k]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		c.flights[k] = f
		go c.fly(k, f)
	}
	c.mu.Unlock()
	select {
	case <-f.done:
		return f.page, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fly reads for all that wait; it does not end with the first of them.
func (c *pages) fly(k pageKey, f *flight) {
	ctx, cancel := context.WithTimeout(c.ctx, c.timeout)
	defer cancel()
	began := c.generation()
	s, err := c.db.StreamRead(ctx, store.ReadRequest{ID: k.stream, From: &k.from, MaxBytes: c.max, MaxRows: pageRows})
	if err == nil {
		f.page = newPage(k.from, s)
		c.keep(f.page, began)
	}
	f.err = err
	c.mu.Lock()
	delete(c.flights, k)
	c.mu.Unlock()
	close(f.done)
}

// generation changes when what is kept may no longer be true.
func (c *pages) generation() (n uint64) {
	for _, sign := range c.signs {
		n += sign()
	}
	return n
}

// current drops what an older generation has left. The caller holds mu.
func (c *pages) current() uint64 {
	if g := c.generation(); g != c.seen {
		c.seen, c.bytes = g, 0
		clear(c.kept)
		c.order.Init()
	}
	return c.seen
}

func (c *pages) cached(stream, from int64) *page {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current()
	e := c.kept[pageKey{stream, from}]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*page)
}

// wait counts a reader of a stream in; leave counts it out.
func (c *pages) wait(m store.StreamMeta) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.live[m.ID]
	if l == nil {
		l = &liveStream{meta: m}
		c.live[m.ID] = l
		c.lives.Add(1)
	}
	l.readers++
}

func (c *pages) leave(stream int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.live[stream]; l != nil {
		if l.readers--; l.readers == 0 {
			delete(c.live, stream)
			c.lives.Add(-1)
		}
	}
}

// Watched implements [appender.Readers].
func (c *pages) Watched(stream int64) bool {
	if c.lives.Load() == 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.live[stream] != nil
}

// Fresh implements [appender.Readers]: it keeps what was appended as a page, so
// that the readers who are about to wake find it here.
func (c *pages) Fresh(f appender.Fresh) {
	began := c.generation()
	c.mu.Lock()
	l := c.live[f.Stream]
	c.mu.Unlock()
	if l == nil || f.To-f.From > int64(c.max) {
		return
	}
	s := store.StreamPage{StreamMeta: l.meta, Next: f.To}
	s.Outcome, s.Tail, s.Closed = store.OK, f.To, f.Closed
	json := isJSON(l.meta.ContentType)
	if len(f.Items) == 1 {
		s.Data = f.Items[0].Payload
	}
	position := f.From
	for i, item := range f.Items {
		if len(f.Items) > 1 {
			if json && i > 0 {
				s.Data = append(s.Data, ',')
			}
			s.Data = append(s.Data, item.Payload...)
		}
		position += int64(len(item.Payload))
		start := len(s.Data) - len(item.Payload)
		for _, at := range item.Stamps {
			s.StampAt, s.StampPosition = append(s.StampAt, int32(start)+at), append(s.StampPosition, position)
		}
	}
	c.keep(newPage(f.From, s), began)
}

const maxHints = 8192

func hintKey(service int32, path string) string { return strconv.Itoa(int(service)) + "/" + path }

// hint remembers that a name leads to a stream of several pages. Whether it
// still does is asked each time.
func (c *pages) hint(service int32, path string, stream int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.hints) >= maxHints {
		clear(c.hints)
	}
	c.hints[hintKey(service, path)] = stream
}

// hinted returns the stream that a name led to before, or 0.
func (c *pages) hinted(service int32, path string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.hints) == 0 {
		return 0
	}
	return c.hints[hintKey(service, path)]
}

// long returns a page that is full or reaches tail: not one of the short ones
// that tails leave behind.
func (c *pages) long(ctx context.Context, stream, from, tail int64) (*page, error) {
	if p := c.cached(stream, from); p != nil && (p.full || p.next >= tail) {
		return p, nil
	}
	return c.read(ctx, stream, from)
}

// weight is what a page costs, with its SSE form that may be made later.
func weight(p *page) int64 { return 2*int64(len(p.body)) + 512 }

// keep caches a page that holds data and was read in this generation; a longer
// one replaces a shorter.
func (c *pages) keep(p *page, read uint64) {
	if p.Outcome != store.OK || p.next == p.from || p.Kind == "wake" || weight(p) > c.limit/4 {
		return
	}
	k := pageKey{p.ID, p.from}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current() != read {
		return
	}
	if e := c.kept[k]; e != nil {
		if e.Value.(*page).next >= p.next {
			return
		}
		c.drop(e)
	}
	c.kept[k] = c.order.PushFront(p)
	c.bytes += weight(p)
	for c.bytes > c.limit {
		c.drop(c.order.Back())
	}
}

func (c *pages) drop(e *list.Element) {
	p := c.order.Remove(e).(*page)
	delete(c.kept, pageKey{p.ID, p.from})
	c.bytes -= weight(p)
}
