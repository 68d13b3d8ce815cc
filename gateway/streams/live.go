package streams

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// maxLag bounds the pause between reads while the log is ahead of what a new
// snapshot of the database shows.
const maxLag = 50 * time.Millisecond

// await waits at the position from until there is data or an end, and reads it.
// It returns nil when ctx ends first.
func (h *Handler) await(ctx context.Context, w *feed.Watcher, stream, from int64) (*page, error) {
	lag := time.Duration(0)
	for {
		st, err := w.Wait(ctx, from)
		if err != nil {
			return nil, nil
		}
		p, err := h.pages.next(ctx, stream, from)
		if err != nil {
			if ctx.Err() != nil {
				return nil, nil
			}
			return nil, err
		}
		if p.Outcome != store.OK || p.next > from || p.ended() {
			return p, nil
		}
		if st.Tail <= from && !st.Closed && !st.Gone {
			continue // a resync: the database was read again, and holds nothing new
		}
		lag = min(max(time.Millisecond, 2*lag), maxLag)
		t := time.NewTimer(lag)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, nil
		}
	}
}

// watch begins to watch the stream of p and reads again what follows it, so
// that nothing falls between the first read and the watch. The caller calls
// leave in any case.
func (h *Handler) watch(ctx context.Context, p *page) (w *feed.Watcher, np *page, leave func(), err error) {
	w = h.Hub.Watch(p.ID)
	h.pages.wait(p.StreamMeta)
	leave = func() { h.pages.leave(p.ID); w.Close() }
	np, err = h.pages.next(ctx, p.ID, p.next)
	return w, np, leave, err
}

// lifetime bounds a live read by time and by the gateway's drain.
func (h *Handler) lifetime(r *http.Request, d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(r.Context(), d)
	stop := context.AfterFunc(h.drain, cancel)
	return ctx, func() { stop(); cancel() }
}

// longPoll answers as soon as there is data after the position, or 204.
func (h *Handler) longPoll(q *request, p *page, client int64) error {
	if p.next == p.from && !p.ended() {
		ctx, done := h.lifetime(q.http, h.LongPollTimeout)
		defer done()
		np, err := h.pollOnce(ctx, p)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if np != nil && err == nil {
			if err := h.still(np); err != nil {
				return err
			}
			if p, err = h.decorate(q, np); err != nil {
				return err
			}
		}
	}
	hd := q.w.Header()
	setTail(hd, p.next, p.ended())
	if p.upToDate() {
		hd[hUpToDate] = vTrue
	}
	hd[hCursor] = []string{strconv.FormatInt(cursor(time.Now(), client), 10)}
	if p.next == p.from {
		hd["Cache-Control"] = vNoStore
		q.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	hd["Content-Type"] = []string{p.ContentType}
	hd["Etag"] = []string{etag(p)}
	// Data between two offsets never changes and the cursor is part of the
	// address: caches may answer all readers at this place.
	hd["Cache-Control"] = vPublic
	switch {
	case p.Kind == "wake":
		hd["Cache-Control"] = vPrivateFresh
	case h.RequireAuth || p.Kind != "app":
		hd["Cache-Control"] = vPrivate
	}
	h.startMoves(hd, p)
	h.writeBody(q.w, http.StatusOK, p.body)
	return nil
}

func (h *Handler) pollOnce(ctx context.Context, p *page) (*page, error) {
	w, np, leave, err := h.watch(ctx, p)
	defer leave()
	if err != nil {
		return nil, err
	}
	if np.Outcome != store.OK || np.next > p.from || np.ended() {
		return np, nil
	}
	return h.await(ctx, w, p.ID, p.from)
}

// still says what happened to a stream that was there when the read began.
func (h *Handler) still(p *page) error {
	switch p.Outcome {
	case store.OK:
		return nil
	case store.Gone:
		return problem.New(problem.StreamGone, "The stream was deleted.")
	case store.Trimmed:
		return offsetGone(&p.StreamMeta)
	case store.Beyond: // the database was set back: failed over to a standby that was behind, or restored
		return problem.New(problem.OffsetInvalid, "The offset lies beyond the stream's end. Was the stream deleted and made again?")
	}
	return problem.New(problem.StreamNotFound, "The stream was deleted or has expired.")
}

var vNoCache = []string{"no-cache, no-store, no-transform"}

// sse streams data events, each followed by a control event that says where to
// resume. It ends after SSEMaxAge, at the stream's end, when the gateway drains,
// or when the reader stops taking what is written.
func (h *Handler) sse(q *request, p *page, client int64) error {
	hd := q.w.Header()
	hd["Content-Type"] = []string{"text/event-stream"}
	hd["Cache-Control"] = vNoCache
	hd["X-Accel-Buffering"] = []string{"no"}
	if !isText(p.ContentType) {
		hd["Stream-SSE-Data-Encoding"] = []string{"base64"}
	}
	// Readers that came together need not come back together.
	age := h.SSEMaxAge - time.Duration(rand.Int64N(int64(h.SSEMaxAge)/10+1))
	ctx, done := h.lifetime(q.http, age)
	defer done()
	s := &sseWriter{w: q.w, rc: http.NewResponseController(q.w), timeout: h.WriteTimeout, client: client}
	defer func() { _ = s.rc.SetWriteDeadline(time.Time{}) }()
	q.w.WriteHeader(http.StatusOK)
	if err := h.follow(ctx, q, s, p); err != nil && ctx.Err() == nil {
		s.fail(q.w.Header().Get("X-Request-Id"), err)
	}
	return nil
}

// follow writes page after page until the reader's time is up. The first page
// has been checked and decorated.
func (h *Handler) follow(ctx context.Context, q *request, s *sseWriter, p *page) (err error) {
	var w *feed.Watcher
	leave := func() {}
	defer func() { leave() }()
	id := p.ID
	for first := true; ; first = false {
		if !first {
			if err = h.still(p); err != nil {
				return err
			}
			if p, err = h.decorate(q, p); err != nil {
				return err
			}
		}
		if first || p.next > p.from || p.ended() {
			tail := p.Tail
			if w != nil {
				tail = max(tail, w.State().Tail)
			}
			if !s.page(p, p.next >= tail) || p.ended() {
				return nil
			}
		}
		switch {
		case !p.upToDate():
			p, err = h.pages.next(ctx, id, p.next)
		case w == nil:
			w, p, leave, err = h.watch(ctx, p)
		default:
			p, err = h.idle(ctx, s, w, id, p.next)
		}
		if err != nil || p == nil {
			return err
		}
	}
}

// idle waits like await and keeps the connection alive with comments.
func (h *Handler) idle(ctx context.Context, s *sseWriter, w *feed.Watcher, stream, from int64) (*page, error) {
	for {
		kctx, cancel := context.WithTimeout(ctx, h.SSEKeepAlive)
		p, err := h.await(kctx, w, stream, from)
		cancel()
		if p != nil || err != nil || ctx.Err() != nil {
			return p, err
		}
		if !s.write([]byte(":\n\n")) {
			return nil, nil
		}
	}
}

// sseWriter writes events to one reader.
type sseWriter struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
	// client is the last cursor given or received, -1 for none; begun says
	// that the first one was given.
	client int64
	begun  bool
}

// write sends parts at once and reports whether the reader is still there.
func (s *sseWriter) write(parts ...[]byte) bool {
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.timeout))
	for _, b := range parts {
		if _, err := s.w.Write(b); err != nil {
			return false
		}
	}
	return s.rc.Flush() == nil
}

// page sends a page, if it holds data, and its control event.
func (s *sseWriter) page(p *page, upToDate bool) bool {
	if now := time.Now(); !s.begun {
		s.client, s.begun = cursor(now, s.client), true
	} else {
		s.client = max(s.client, cursor(now, -1))
	}
	b := make([]byte, 0, 160)
	b = append(b, "event: control\ndata:{\"streamNextOffset\":\""...)
	b = append(b, store.FormatOffset(p.next)...)
	b = append(b, '"')
	if p.ended() {
		b = append(b, `,"upToDate":true,"streamClosed":true`...)
	} else {
		b = append(b, `,"streamCursor":"`...)
		b = strconv.AppendInt(b, s.client, 10)
		b = append(b, '"')
		if upToDate {
			b = append(b, `,"upToDate":true`...)
		}
	}
	b = append(b, "}\n\n"...)
	if p.next == p.from {
		return s.write(b)
	}
	return s.write(p.frame(), b)
}

// fail ends a stream that has begun: the same JSON as an error response, as an
// event of its own.
func (s *sseWriter) fail(instance string, err error) {
	body, merr := json.Marshal(problem.From(err).Body(instance))
	if merr == nil {
		s.write([]byte("event: error\ndata:"), body, []byte("\n\n"))
	}
}
