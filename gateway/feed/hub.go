package feed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	hubShards = 64
	// recentWindow is how long at least a change of a stream nobody watches is
	// remembered. The log can show a commit some milliseconds before a new
	// snapshot does: a reader who starts to watch in between reads the older
	// tail from the tables, and would miss the change.
	recentWindow = 2 * time.Second
	// recentPerShard bounds that memory; beyond it the window gets shorter.
	recentPerShard = 4096
)

// State is what the hub knows about a stream.
type State struct {
	// Tail is the highest position seen, 0 when none was.
	Tail int64
	// Closed: no append follows. Gone: deleted or expired.
	Closed, Gone bool
	// Resync: signals may have been lost; read the database before the next Wait.
	Resync bool
}

// Hub is where readers wait for streams to grow. All methods may be called from
// any goroutine; none but Watcher.Wait blocks.
type Hub struct {
	shards   [hubShards]hubShard
	resyncs  atomic.Uint64
	watchers atomic.Int64
	now      func() time.Time
}

type hubShard struct {
	mu     sync.Mutex
	topics map[int64]*topic
	// recent holds changes of streams without a topic: this window's and the
	// previous one's.
	recent, older map[int64]mark
	rotated       time.Time
}

type mark struct {
	tail  int64
	flags Flags
}

func (m *mark) merge(tail int64, flags Flags) (changed bool) {
	flags = m.flags | flags&(Closed|Gone)
	changed = tail > m.tail || flags != m.flags
	m.tail, m.flags = max(m.tail, tail), flags
	return changed
}

// topic is a stream that somebody watches. Its shard's lock guards it.
type topic struct {
	mark
	refs int32
	id   int64
	// changed is closed at the next change; nil while nobody waits.
	changed chan struct{}
}

// NewHub returns an empty hub.
func NewHub() *Hub {
	h := &Hub{now: time.Now}
	for i := range h.shards {
		h.shards[i].topics = make(map[int64]*topic)
		h.shards[i].recent = make(map[int64]mark)
		h.shards[i].rotated = h.now()
	}
	return h
}

func (h *Hub) shard(stream int64) *hubShard {
	// Ids are consecutive: their low bits spread well.
	return &h.shards[uint64(stream)%hubShards]
}

// Publish tells the hub that the stream has reached tail. It may be called late,
// repeatedly and out of order: a tail only rises, Closed and Gone stay.
func (h *Hub) Publish(stream, tail int64, flags Flags) { h.publish(stream, tail, flags) }

// publish reports whether a watched stream changed.
func (h *Hub) publish(stream, tail int64, flags Flags) (changed bool) {
	s := h.shard(stream)
	s.mu.Lock()
	t := s.topics[stream]
	if t == nil {
		s.remember(h.now(), stream, mark{tail, flags & (Closed | Gone)})
		s.mu.Unlock()
		return false
	}
	var wake chan struct{}
	if changed = t.merge(tail, flags); changed {
		wake, t.changed = t.changed, nil
	}
	s.mu.Unlock()
	if wake != nil {
		close(wake)
	}
	return changed
}

func (s *hubShard) remember(now time.Time, stream int64, m mark) {
	if len(s.recent) >= recentPerShard || now.Sub(s.rotated) > recentWindow {
		s.recent, s.older = s.older, s.recent
		if s.recent == nil {
			s.recent = make(map[int64]mark)
		}
		clear(s.recent)
		s.rotated = now
	}
	have := s.recent[stream]
	have.merge(m.tail, m.flags)
	s.recent[stream] = have
}

// Resync makes every watcher's next (or current) Wait return with State.Resync.
// The feed calls it whenever the log may have skipped something, after it is up
// again, so that: signals flow, everybody reads the database, everybody waits.
func (h *Hub) Resync() {
	h.resyncs.Add(1)
	for i := range h.shards {
		s := &h.shards[i]
		var wake []chan struct{}
		s.mu.Lock()
		for _, t := range s.topics {
			if t.changed != nil {
				wake = append(wake, t.changed)
				t.changed = nil
			}
		}
		s.mu.Unlock()
		for _, c := range wake {
			close(c)
		}
	}
}

// Resyncs counts the calls of Resync.
func (h *Hub) Resyncs() uint64 { return h.resyncs.Load() }

// Watched returns the ids of the streams that somebody watches, without order.
func (h *Hub) Watched() []int64 {
	var ids []int64
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		for id := range s.topics {
			ids = append(ids, id)
		}
		s.mu.Unlock()
	}
	return ids
}

// Watchers returns how many watchers are open.
func (h *Hub) Watchers() int { return int(h.watchers.Load()) }

// Watch begins to watch a stream. Watch first, then read the database, then
// Wait from the position that was read: nothing falls in between.
func (h *Hub) Watch(stream int64) *Watcher {
	s := h.shard(stream)
	s.mu.Lock()
	t := s.topics[stream]
	if t == nil {
		t = &topic{id: stream}
		for _, gen := range []map[int64]mark{s.older, s.recent} {
			if m, ok := gen[stream]; ok {
				t.merge(m.tail, m.flags)
			}
		}
		s.topics[stream] = t
	}
	t.refs++
	s.mu.Unlock()
	h.watchers.Add(1)
	return &Watcher{hub: h, topic: t, resyncs: h.resyncs.Load()}
}

// Watcher is one reader's interest in one stream. It belongs to one goroutine,
// only Close may be called from another.
type Watcher struct {
	hub     *Hub
	topic   *topic
	resyncs uint64
	closed  atomic.Bool
}

// State returns what is known now, without waiting and without Resync.
func (w *Watcher) State() State {
	s := w.hub.shard(w.topic.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.topic.state()
}

func (t *topic) state() State {
	return State{Tail: t.tail, Closed: t.flags.Has(Closed), Gone: t.flags.Has(Gone)}
}

// Wait returns as soon as the stream has grown beyond after, is closed or gone,
// or a resync is asked for. It returns the context's error when that ends first,
// with the state as it is known then.
//
// The returned tail may be ahead of what a new snapshot of the database shows:
// read again until it is reached.
func (w *Watcher) Wait(ctx context.Context, after int64) (State, error) {
	s := w.hub.shard(w.topic.id)
	for {
		s.mu.Lock()
		state := w.topic.state()
		// Read under the lock: a Resync that is not seen here finds the channel
		// that is taken below.
		if n := w.hub.resyncs.Load(); n != w.resyncs {
			s.mu.Unlock()
			w.resyncs = n
			state.Resync = true
			return state, nil
		}
		if state.Tail > after || state.Closed || state.Gone {
			s.mu.Unlock()
			return state, nil
		}
		if w.topic.changed == nil {
			w.topic.changed = make(chan struct{})
		}
		changed := w.topic.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return state, ctx.Err()
		}
	}
}

// Close ends the interest. The topic goes with its last watcher.
func (w *Watcher) Close() {
	if w.closed.Swap(true) {
		return
	}
	w.hub.watchers.Add(-1)
	s := w.hub.shard(w.topic.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.topic.refs--; w.topic.refs == 0 {
		delete(s.topics, w.topic.id)
		s.remember(w.hub.now(), w.topic.id, w.topic.mark)
	}
}
