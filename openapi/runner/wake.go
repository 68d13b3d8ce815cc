package runner

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/rouse-run/rouse/openapi/runner/call"
)

// wake is an entry of the wake stream that asks for a claim.
type wake struct {
	raw json.RawMessage
	// path of the stream to claim, with a slash in front; epoch of the wake. Together they name it: hints of other
	// servers have no wake id.
	path     string
	epoch    int64
	wakeID   string
	token    string
	received time.Time
	// claimID makes all attempts to claim it one attempt for the gateway.
	claimID string
	back    call.Backoff
	// settle lets the cursor pass; more than once is once.
	settle func()
	// from is the wake stream that it was read from; nil in tests of the queue.
	from *source
}

// parseWake reads an entry; false for one that is no wake.
func parseWake(raw json.RawMessage) (*wake, bool) {
	var e struct {
		Type       string `json:"type"`
		Stream     string `json:"stream"`
		StreamPath string `json:"streamPath"`
		Generation int64  `json:"generation"`
		Epoch      int64  `json:"epoch"`
		WakeID     string `json:"wakeId"`
		ClaimToken string `json:"claimToken"`
	}
	if json.Unmarshal(raw, &e) != nil || e.Type != "wake" {
		return nil, false
	}
	w := &wake{raw: raw, path: e.StreamPath, epoch: e.Epoch, wakeID: e.WakeID, token: e.ClaimToken, received: time.Now(), claimID: uuid.NewString(), settle: func() {}}
	if w.path == "" {
		w.path = e.Stream
	}
	if w.epoch == 0 {
		w.epoch = e.Generation
	}
	if w.path == "" || w.epoch <= 0 {
		return nil, false
	}
	w.path = "/" + strings.TrimLeft(w.path, "/")
	return w, true
}

// maxPlaces bounds how many batches of the wake stream the cursor may stay behind. Beyond it a wake that was granted
// counts as settled: its lease carries it from there on, since one that lapses is followed by a fresh wake.
const maxPlaces = 4096

// place is a batch of the wake stream: the cursor may pass it when all of its wakes are settled.
type place struct {
	offset string
	open   int
}

// pooled says that others may claim the wake too.
func (w *wake) pooled() bool { return w.from != nil && w.from.pool != "" }

// progress finds how far the cursor may move. Wakes settle in any order; the cursor moves past the settled ones in front.
type progress struct {
	mu     sync.Mutex
	born   string // of the wake stream
	offset string
	places []*place
	moved  chan struct{} // has a value when the cursor has changed
}

func newProgress() *progress { return &progress{moved: make(chan struct{}, 1)} }

// reset begins at an offset of a wake stream. What is still open from before moves nothing any more.
func (p *progress) reset(born, offset string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.born, p.offset, p.places = born, offset, nil
}

// add takes note of a batch with so many wakes.
func (p *progress) add(offset string, wakes int) *place {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.places); wakes == 0 && n > 0 && p.places[n-1].open <= 0 {
		p.places[n-1].offset = offset
		return p.places[n-1]
	}
	at := &place{offset: offset, open: wakes}
	p.places = append(p.places, at)
	p.advance()
	return at
}

// settle says that a wake of the place needs no more care.
func (p *progress) settle(at *place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at.open--
	p.advance()
}

// crowded says that more is unsettled than should be.
func (p *progress) crowded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.places) > maxPlaces
}

func (p *progress) advance() {
	n := 0
	for n < len(p.places) && p.places[n].open <= 0 {
		p.offset = p.places[n].offset
		n++
	}
	if n == 0 {
		return
	}
	p.places = append(p.places[:0], p.places[n:]...)
	select {
	case p.moved <- struct{}{}:
	default:
	}
}

// at is the cursor: the wake stream's birth and the offset in it.
func (p *progress) at() (born, offset string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.born, p.offset
}
