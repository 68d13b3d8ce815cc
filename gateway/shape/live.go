package shape

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const (
	// Clients that wait within one interval send the same cursor, which goes into
	// the address, so that caches can tell the intervals apart.
	cursorInterval = 20
	cursorEpoch    = 1728432000 // 2024-10-09T00:00:00Z
	cursorJump     = 180
)

// cursor answers the next cursor after the client's: it never stands still.
func cursor(client int64) int64 {
	c := (time.Now().Unix() - cursorEpoch) / cursorInterval
	if client < c {
		return c
	}
	return client + 1 + rand.Int64N(cursorJump)
}

// serveLog answers what has happened to a shape since an offset.
func (h *Handler) serveLog(q *request) error {
	hd, ok := parseHandle(q.handle)
	if !ok || hd.id != q.id {
		return h.refetch(q)
	}
	wait := h.SessionWait
	if q.live {
		wait = h.LongPollTimeout
	}
	ctx, done := h.lifetime(q, wait)
	defer done()
	// A log that is not read, or for so long not up to the offset (then it is
	// another log), tells nothing: another snapshot does.
	if v := h.ring.settle(ctx, q.offset); !v.up || v.gone || v.behind {
		return h.refetch(q)
	}
	if q.grants() != nil {
		lapsed, err := h.Store.ShapeLapsed(q.http.Context(), q.service, q.me, hd.snap.At)
		if err != nil {
			return err
		}
		if lapsed {
			return h.refetch(q)
		}
	}
	f := &follower{definition: q.definition, handle: hd, room: h}
	if q.sse {
		return h.serveSSE(q, f)
	}
	b, offset, err := h.poll(q, f)
	if err != nil {
		return err
	}
	if b.refetch {
		return h.refetch(q)
	}
	head := q.headers(q.handle, offset)
	if !b.more {
		head.Set("Electric-Up-To-Date", "")
	}
	tag := `"` + q.id + ":" + strconv.FormatUint(q.offset, 36) + ":" + strconv.FormatUint(offset, 36) + `"`
	head.Set("Etag", tag)
	if q.live {
		head["Electric-Cursor"] = []string{strconv.FormatInt(cursor(q.cursor), 10)}
		head.Set("Cache-Control", "no-store")
	} else if q.http.Header.Get("If-None-Match") == tag {
		q.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	body := []byte{'['}
	for i, m := range b.messages {
		if i > 0 {
			body = append(body, ',')
		}
		body = append(body, m...)
	}
	if !b.more {
		if len(b.messages) > 0 {
			body = append(body, ',')
		}
		body = upToDate(body, offset)
	}
	body = append(body, ']')
	head.Set("Content-Length", strconv.Itoa(len(body)))
	h.write(q, body)
	return nil
}

// lifetime bounds a live request by time and by the drain.
func (h *Handler) lifetime(q *request, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(q.http.Context(), d)
	stop := context.AfterFunc(h.drain, cancel)
	return ctx, func() { stop(); cancel() }
}

// poll answers what follows the request's offset; a live request waits for it.
func (h *Handler) poll(q *request, f *follower) (batch, uint64, error) {
	if !q.live || q.http.Method == http.MethodHead {
		h.catchUp(q.http.Context())
		for offset := q.offset; ; {
			b, next, err := h.digest(q.http.Context(), f, offset, h.ring.after(offset))
			if err != nil || !b.more || b.refetch || len(b.messages) > 0 {
				return b, next, err
			}
			offset = next
		}
	}
	ctx, done := h.lifetime(q, h.LongPollTimeout)
	defer done()
	offset := q.offset
	for {
		b, next, ok, err := h.await(ctx, q, f, offset)
		if err != nil || !ok || b.refetch || len(b.messages) > 0 {
			return b, next, err
		}
		offset = next
	}
}

// digest turns a look at the ring into messages.
func (h *Handler) digest(ctx context.Context, f *follower, offset uint64, v view) (batch, uint64, error) {
	if !v.up || v.gone {
		return batch{refetch: true}, offset, nil
	}
	txs, next, size := v.txs, max(offset, v.reached), 0
	for i, t := range txs {
		if size += t.bytes; size > maxBatch && i > 0 {
			txs, next = txs[:i], txs[i-1].end
			break
		}
	}
	b, err := f.changes(ctx, txs)
	b.more = len(txs) < len(v.txs)
	return b, next, err
}

// maxBatch bounds what one answer is made of, in bytes of changes; a transaction
// is never divided.
const maxBatch = 4 << 20

// await waits until there may be more after the offset, and looks. ok is false
// when ctx ended first.
func (h *Handler) await(ctx context.Context, q *request, f *follower, offset uint64) (b batch, next uint64, ok bool, err error) {
	for {
		v, more := h.ring.watch(offset, f.table, f.grants())
		if len(v.txs) > 0 || !v.up || v.gone {
			if !v.up {
				// The session begins again in a moment, and says that it has a gap.
				v = h.ring.settle(ctx, offset)
			}
			if !v.up && ctx.Err() != nil {
				return batch{}, offset, false, nil
			}
			// The client's own patience, not the poll's: what has begun is finished.
			b, next, err := h.digest(q.http.Context(), f, offset, v)
			return b, next, true, err
		}
		select {
		case <-more[0]:
		case <-more[1]:
		case <-more[2]:
		case <-ctx.Done():
			return batch{}, max(offset, v.reached), false, nil
		}
	}
}

// grants is the table whose changes may change what the caller sees, or nil.
func (d *definition) grants() *table {
	switch {
	case d.all:
	case d.table.scope == readers:
		return permissions
	case d.table.scope == spawners:
		return typeGrants
	case d.table.scope == sharers:
		return poolMembers
	}
	return nil
}

// serveSSE sends changes as they come, each batch with the message that ends it.
// It ends after SSEMaxAge, at the drain, when the shape has to be fetched anew,
// and when the client does not take what is written.
func (h *Handler) serveSSE(q *request, f *follower) error {
	head := q.headers(q.handle, q.offset)
	head.Set("Content-Type", "text/event-stream")
	head.Set("Cache-Control", "no-cache, no-store, no-transform")
	head.Set("X-Accel-Buffering", "no")
	head["Electric-Cursor"] = []string{strconv.FormatInt(cursor(q.cursor), 10)}
	if q.http.Method == http.MethodHead {
		return nil
	}
	// Clients that came together need not come back together.
	ctx, done := h.lifetime(q, h.SSEMaxAge-rand.N(h.SSEMaxAge/10+1))
	defer done()
	q.w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(q.w)
	send := func(b []byte) bool { return h.write(q, b) && rc.Flush() == nil }
	offset := q.offset
	var b batch
	var err error
	if b, offset, err = h.digest(q.http.Context(), f, offset, h.ring.after(offset)); err != nil || b.refetch || !send(events(b, offset)) {
		return nil
	}
	for {
		wait, cancel := context.WithTimeout(ctx, h.SSEKeepAlive)
		var ok bool
		b, offset, ok, err = h.await(wait, q, f, offset)
		cancel()
		switch {
		case err != nil, ctx.Err() != nil && !ok, b.refetch:
			// Its next request is told what is the matter.
			return nil
		case !ok:
			if !send([]byte(": keep-alive\n\n")) {
				return nil
			}
		case len(b.messages) > 0 || b.more:
			if !send(events(b, offset)) {
				return nil
			}
		}
	}
}

// events writes a batch as events; clients take them up with the message that
// says they are up to date.
func events(b batch, offset uint64) []byte {
	var out bytes.Buffer
	all := b.messages
	if !b.more {
		all = append(all, upToDate(nil, offset))
	}
	for _, m := range all {
		out.WriteString("data: ")
		out.Write(m)
		out.WriteString("\n\n")
	}
	return out.Bytes()
}
