package streamtest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// modelStream is what a stream is, in Go: its appends with the sources' in
// front, so that it needs no chains.
type modelStream struct {
	appends   []string
	source    *modelStream
	forkAt    *int64
	forkSub   int64
	forks     int
	closed    bool
	deleted   bool
	lastSeq   string
	producers map[string]*modelProducer
	ttl       int64
	expires   time.Time
	path      string
}

type modelProducer struct{ epoch, seq, position int64 }

func (s *modelStream) tail() int64 { return int64(len(s.content())) }

func (s *modelStream) content() string {
	var b bytes.Buffer
	for _, a := range s.appends {
		b.WriteString(a)
	}
	return b.String()
}

func (s *modelStream) boundary(at int64) (index int, ok bool) {
	sum := int64(0)
	for i, a := range s.appends {
		if sum == at {
			return i, true
		}
		sum += int64(len(a))
	}
	return len(s.appends), sum == at
}

type model struct {
	streams map[string]*modelStream
	now     time.Time
}

func (m *model) live(path string) (s *modelStream, outcome string) {
	s = m.streams[path]
	switch {
	case s == nil:
		return nil, "not_found"
	case s.deleted:
		return s, "gone"
	case s.ttl > 0 && !s.expires.After(m.now):
		return nil, "not_found"
	}
	return s, ""
}

func (m *model) slide(s *modelStream) {
	if s.ttl == 0 {
		return
	}
	slack := min(float64(s.ttl)*0.05, 60)
	if s.expires.Before(m.now.Add(time.Duration((float64(s.ttl) - slack) * float64(time.Second)))) {
		s.expires = m.now.Add(time.Duration(s.ttl) * time.Second)
	}
}

func (m *model) retire(s *modelStream) {
	if s.forks > 0 {
		s.deleted = true
		return
	}
	delete(m.streams, s.path)
	for src := s.source; src != nil; src = src.source {
		src.forks--
		if src.forks > 0 || !src.deleted {
			return
		}
		delete(m.streams, src.path)
	}
}

func (m *model) create(c created) string {
	if s := m.streams[c.path]; s != nil {
		if !s.deleted && s.ttl > 0 && !s.expires.After(m.now) {
			m.retire(s)
			if s.deleted {
				return "gone"
			}
		} else if s.deleted {
			return "gone"
		} else if m.same(s, c) {
			return "exists"
		} else {
			return "conflict"
		}
	}
	n := &modelStream{path: c.path, closed: c.closed, producers: map[string]*modelProducer{}}
	if c.ttl != nil {
		n.ttl = *c.ttl
	}
	if c.fork != "" {
		src, refusal := m.live(c.fork)
		if refusal != "" {
			return "source_" + refusal
		}
		at := src.tail()
		if c.forkAt != nil {
			at = *c.forkAt
		}
		i, ok := src.boundary(at)
		if !ok {
			return "fork_offset"
		}
		n.appends = slices.Clone(src.appends[:i])
		if c.forkSub != nil && *c.forkSub > 0 {
			if c.forkAt == nil || i == len(src.appends) || *c.forkSub > int64(len(src.appends[i])) {
				return "fork_sub"
			}
			n.appends = append(n.appends, src.appends[i][:*c.forkSub])
			n.forkSub = *c.forkSub
		}
		n.source, n.forkAt = src, c.forkAt
		if n.ttl == 0 {
			n.ttl = src.ttl
		}
		src.forks++
	}
	n.expires = m.now.Add(time.Duration(n.ttl) * time.Second)
	if c.payload != "" {
		n.appends = append(n.appends, c.payload)
	}
	m.streams[c.path] = n
	return "created"
}

func (m *model) same(s *modelStream, c created) bool {
	ttl, sub := int64(0), int64(0)
	if c.ttl != nil {
		ttl = *c.ttl
	}
	if c.forkSub != nil {
		sub = *c.forkSub
	}
	if s.closed != c.closed || (c.fork != "") != (s.source != nil) || (c.fork == "" || ttl > 0) && s.ttl != ttl {
		return false
	}
	return c.fork == "" || s.source.path == c.fork && m.streams[c.fork] == s.source && s.forkSub == sub &&
		(s.forkAt == nil) == (c.forkAt == nil) && (s.forkAt == nil || *s.forkAt == *c.forkAt)
}

func (m *model) append(it item) answer {
	s, refusal := m.live(it.path)
	if refusal != "" {
		return answer{outcome: refusal}
	}
	p := s.producers[it.producer]
	if it.producer != "" {
		switch {
		case p == nil && it.seq > 0, p != nil && it.epoch == p.epoch && it.seq > p.seq+1:
			if s.closed {
				return answer{outcome: "closed"}
			}
			return answer{outcome: "producer_gap"}
		case p == nil:
		case it.epoch < p.epoch:
			return answer{outcome: "producer_fenced"}
		case it.epoch > p.epoch && it.seq > 0:
			return answer{outcome: "producer_epoch_seq"}
		case it.epoch == p.epoch && it.seq <= p.seq:
			return answer{outcome: "duplicate", tail: p.position}
		}
	}
	switch {
	case s.closed && it.payload == "" && it.producer == "":
		return answer{outcome: "duplicate", tail: s.tail()}
	case s.closed:
		return answer{outcome: "closed"}
	case it.streamSeq != "" && s.lastSeq != "" && it.streamSeq <= s.lastSeq:
		return answer{outcome: "seq"}
	}
	if it.payload != "" {
		s.appends = append(s.appends, it.payload)
	}
	if it.streamSeq != "" {
		s.lastSeq = it.streamSeq
	}
	s.closed = it.close
	if it.producer != "" {
		s.producers[it.producer] = &modelProducer{it.epoch, it.seq, s.tail()}
	}
	m.slide(s)
	return answer{outcome: "appended", tail: s.tail()}
}

// TestFunctionsAgreeWithTheModel runs random calls against the functions and
// the model, and compares every answer and, in the end, every stream.
func TestFunctionsAgreeWithTheModel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		prefix := fmt.Sprintf("run%d/", run)
		m := &model{streams: map[string]*modelStream{}, now: epochStart.Add(time.Duration(run) * 24 * time.Hour)}
		path := rapid.Custom(func(t *rapid.T) string {
			return prefix + rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "path")
		})
		payload := rapid.StringMatching(`[a-z]{1,5}`)
		small := func(limit int64) *rapid.Generator[*int64] {
			return rapid.Ptr(rapid.Int64Range(0, limit), true)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { r.now = m.now },
			"create": func(t *rapid.T) {
				c := created{path: path.Draw(t, "p"), contentType: plain, closed: rapid.IntRange(0, 9).Draw(t, "closed") == 0}
				if rapid.Bool().Draw(t, "body") {
					c.payload = payload.Draw(t, "payload")
				}
				if rapid.IntRange(0, 3).Draw(t, "ttl?") == 0 {
					c.ttl = ptr(rapid.Int64Range(1, 40).Draw(t, "ttl"))
				}
				if rapid.Bool().Draw(t, "fork") {
					c.fork, c.forkAt = path.Draw(t, "source"), small(12).Draw(t, "at")
					if c.forkAt != nil {
						c.forkSub = small(4).Draw(t, "sub")
					}
				}
				if got, want := r.create(c).outcome, m.create(c); got != want {
					t.Fatalf("create %+v: %s, want %s", c, got, want)
				}
			},
			"append": func(t *rapid.T) {
				it := item{path: path.Draw(t, "p"), typ: plain, payload: payload.Draw(t, "payload"), close: rapid.IntRange(0, 15).Draw(t, "close") == 0}
				if it.close && rapid.Bool().Draw(t, "no data") {
					it.payload = ""
				}
				if rapid.Bool().Draw(t, "producer?") {
					it.producer = rapid.SampledFrom([]string{"p", "q"}).Draw(t, "producer")
					it.epoch, it.seq = rapid.Int64Range(0, 1).Draw(t, "epoch"), rapid.Int64Range(0, 3).Draw(t, "seq")
				}
				if rapid.IntRange(0, 3).Draw(t, "seq?") == 0 {
					it.streamSeq = rapid.StringMatching(`[0-9aB]{1,2}`).Draw(t, "stream-seq")
				}
				got, want := r.append(false, it)[0], m.append(it)
				if got.outcome != want.outcome || want.tail != 0 && got.tail != want.tail {
					t.Fatalf("append %+v: %+v, want %+v", it, got, want)
				}
			},
			"group": func(t *rapid.T) {
				g := group{path: path.Draw(t, "p"), typ: plain, payloads: rapid.SliceOfN(payload, 1, 4).Draw(t, "payloads")}
				got, want := r.appendGroups(g)[0], answer{}
				for _, p := range g.payloads {
					want = m.append(item{path: g.path, typ: plain, payload: p})
				}
				if got.outcome != want.outcome || want.outcome == "appended" && got.tail != want.tail {
					t.Fatalf("group %+v: %+v, want %+v", g, got, want)
				}
			},
			"delete": func(t *rapid.T) {
				p := path.Draw(t, "p")
				s, want := m.live(p)
				switch {
				case want == "":
					want = "deleted"
					m.retire(s)
				case want == "not_found" && m.streams[p] != nil:
					m.retire(m.streams[p]) // expired
				}
				if got := r.delete(p, false); got != want {
					t.Fatalf("delete %s: %s, want %s", p, got, want)
				}
			},
			"read": func(t *rapid.T) {
				p := path.Draw(t, "p")
				s, want := m.live(p)
				if want == "" {
					from := rapid.Int64Range(0, s.tail()).Draw(t, "from")
					got := r.read(p, from, rapid.IntRange(1, 20).Draw(t, "bytes"), rapid.IntRange(1, 9).Draw(t, "rows"))
					// From inside an append, the next whole one follows; its start is before.
					start := got.next - int64(len(got.data))
					if got.outcome != "ok" || got.tail != s.tail() || start > from || got.data != s.content()[start:got.next] || from < s.tail() && got.next <= from {
						t.Fatalf("read %s from %d: %+v, want of %q", p, from, got, s.content())
					}
				} else if got := r.read(p, 0, 9, 9).outcome; got != want {
					t.Fatalf("read %s: %s, want %s", p, got, want)
				}
			},
			"time": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.Int64Range(0, 15).Draw(t, "seconds")) * time.Second)
			},
			"purge": func(t *rapid.T) {
				r.purge(rapid.IntRange(1, 5).Draw(t, "limit"))
				for again := true; again; {
					again = false
					for _, s := range m.streams {
						if !s.deleted && s.ttl > 0 && !s.expires.After(m.now) {
							m.retire(s)
							again = true
						}
					}
				}
			},
		})
		r.now = m.now
		for p := range m.streams {
			if s, refusal := m.live(p); refusal == "" {
				if got := r.all(p); got != s.content() {
					rt.Fatalf("%s reads %q, want %q", p, got, s.content())
				}
			}
		}
	})
	r.exec(`update rouse.streams set deleted_at = now(), path = null, expires_at = null, forked_from = null, fork_at = null`)
	r.purge(10000)
	if n := one[int](r, `select (select count(*) from rouse.messages) + (select count(*) from rouse.streams) + (select count(*) from rouse.producers)`); n != 0 {
		t.Fatalf("%d rows are left by the clean-up", n)
	}
}
