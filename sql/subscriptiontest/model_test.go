package subscriptiontest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model is subscriptions said a second time, in Go: streams by path with their
// tails, and for each subscription what it watches and its mutex.
type model struct {
	streams map[string]int64
	subs    map[string]*modelSub
}

type modelSub struct {
	sub
	pattern  string
	named    map[string]bool
	links    map[string]int64 // acked
	state    string
	epoch    int64
	wake     string
	deadline time.Time
}

func (m *model) pending(s *modelSub) bool {
	for path, acked := range s.links {
		if m.streams[path] > acked {
			return true
		}
	}
	return false
}

func (s *modelSub) matches(path string) bool {
	return s.pattern != "" && matches(strings.Split(s.pattern, "/"), strings.Split(path, "/"))
}

// next ends a claim or begins a wake, as what is pending says.
func (m *model) next(s *modelSub) {
	s.state = "idle"
	if m.pending(s) {
		s.state = "waking"
		s.epoch++
	}
}

const modelLease = 30 * time.Second

// TestAModelAgreesStepByStep runs random calls against the functions and the
// model and compares the answers and everything the tables say after each.
func TestAModelAgreesStepByStep(t *testing.T) {
	t.Parallel()
	paths := []string{"a/1", "a/2", "b/1", "a/b/1"}
	patterns := []string{"", "a/*", "**", "**/1", "b/*"}
	r := newRig(t)
	rapid.Check(t, func(rt *rapid.T) {
		r.exec(`truncate rouse.streams, rouse.consumers, rouse.subscriptions, rouse.subscription_globs, rouse.subscription_paths, rouse.subscription_removals,
			rouse.consumer_streams, rouse.consumer_claims, rouse.wake_notifications, rouse.messages cascade`)
		m := &model{streams: map[string]int64{}, subs: map[string]*modelSub{}}
		aPath := func() string { return rapid.SampledFrom(paths).Draw(rt, "path") }
		aSub := func() *modelSub {
			if len(m.subs) == 0 {
				rt.Skip("no subscription")
			}
			return m.subs[rapid.SampledFrom(slices.Sorted(maps.Keys(m.subs))).Draw(rt, "subscription")]
		}
		ask := func(o op) answer {
			got, err := r.tryApply(o)
			if err != nil {
				rt.Fatalf("%v: %v", o, err)
			}
			return got[0]
		}
		check := func(what, got, want string) {
			if got != want {
				rt.Fatalf("%s: %s, the model says %s", what, got, want)
			}
		}
		lapsed := func(s *modelSub) bool { return s.state == "claimed" && !r.now.Before(s.deadline) }
		steps := map[string]func(*rapid.T){
			"make": func(*rapid.T) {
				path := aPath()
				if _, ok := m.streams[path]; ok {
					rt.Skip("exists")
				}
				body := rapid.SampledFrom([]string{"", `{"a": 1}`}).Draw(rt, "body")
				r.make(path, body)
				m.streams[path] = int64(len(body))
				for _, s := range m.subs {
					if s.named[path] || s.matches(path) {
						s.links[path] = 0
					}
				}
			},
			"append": func(*rapid.T) {
				path := aPath()
				if _, ok := m.streams[path]; !ok {
					rt.Skip("no stream")
				}
				m.streams[path] = r.append(path)
			},
			"delete": func(*rapid.T) {
				path := aPath()
				r.exec(`select rouse._stream_delete(1, $1, false, $2)`, path, r.now)
				delete(m.streams, path)
				for _, s := range m.subs {
					delete(s.links, path)
				}
			},
			"subscribe": func(*rapid.T) {
				s := &modelSub{pattern: rapid.SampledFrom(patterns).Draw(rt, "pattern"), named: map[string]bool{}, links: map[string]int64{}, state: "idle"}
				id := rapid.SampledFrom([]string{"s1", "s2", "s3"}).Draw(rt, "id")
				if m.subs[id] != nil {
					rt.Skip("exists")
				}
				streams := rapid.SliceOfN(rapid.SampledFrom(paths), 0, 2).Draw(rt, "named")
				s.sub = r.subscribe(spec{id: id, pattern: s.pattern, streams: streams, system: true})
				for _, p := range streams {
					s.named[p] = true
				}
				for path, tail := range m.streams {
					if s.named[path] || s.matches(path) {
						s.links[path] = tail
					}
				}
				m.subs[id] = s
			},
			"unsubscribe": func(*rapid.T) {
				s := aSub()
				r.exec(`select rouse.subscription_delete(1, $1, '')`, s.id)
				delete(m.subs, s.id)
			},
			"tidy": func(*rapid.T) { r.exec(`select rouse.subscription_tidy(2)`) },
			"name": func(*rapid.T) {
				s, path := aSub(), aPath()
				check("name", one[string](r, `select rouse.subscription_watch(1, $1, 'x', array[$2])`, s.id, path), "ok")
				r.settle(s.id)
				s.named[path] = true
				if tail, ok := m.streams[path]; ok {
					if _, linked := s.links[path]; !linked {
						s.links[path] = tail
					}
				}
			},
			"forget": func(*rapid.T) {
				s, path := aSub(), aPath()
				check("forget", one[string](r, `select rouse.subscription_unwatch(1, $1, 'x', $2)`, s.id, path), "ok")
				delete(s.named, path)
				if !s.matches(path) {
					delete(s.links, path)
				}
			},
			"route": func(*rapid.T) {
				r.exec(`select rouse._dispatch_route(array_agg(id), array_agg(tail), $1) from rouse.streams where path is not null`, r.now)
				for _, s := range m.subs {
					if s.state == "idle" {
						m.next(s)
					}
				}
			},
			"acquire": func(*rapid.T) {
				s := aSub()
				got := ask(s.acquire("w"))
				if lapsed(s) {
					m.next(s)
				} else if s.state == "idle" {
					m.next(s)
				}
				switch s.state {
				case "idle":
					check("acquire", got.Outcome, "no_work")
				case "claimed":
					check("acquire", got.Outcome, "held")
				default:
					check("acquire", got.Outcome, "granted")
					s.state, s.wake, s.deadline = "claimed", got.Wake, r.now.Add(modelLease)
				}
				check("epoch", fmt.Sprint(got.Epoch), fmt.Sprint(s.epoch))
			},
			"ack or release": func(*rapid.T) {
				s := aSub()
				name := rapid.SampledFrom([]string{"ack", "release", "heartbeat"}).Draw(rt, "op")
				late := rapid.IntRange(0, 5).Draw(rt, "stale") == 0
				g := answer{Epoch: s.epoch, Wake: s.wake}
				if late {
					g.Epoch--
				}
				if g.Wake == "" {
					rt.Skip("never claimed")
				}
				var acks []any
				moved := map[string]int64{}
				want := "ok"
				if name != "heartbeat" {
					for range rapid.IntRange(0, 2).Draw(rt, "acks") {
						path, position := aPath(), 4*int64(rapid.IntRange(0, 8).Draw(rt, "position"))
						acks = append(acks, ack(path, position))
						acked, linked := s.links[path]
						switch {
						case want != "ok":
						case !linked:
							want = "unknown_stream"
						case position < acked || position > m.streams[path]:
							want = "invalid_offset"
						}
						moved[path] = max(moved[path], position)
					}
				}
				got := ask(s.call(name, g, acks...))
				live := s.state == "claimed" && !late
				switch {
				case !live:
					// A release of what has ended may be a repeat; what it answers is proved elsewhere.
					if name == "release" && !late {
						return
					}
					if name == "release" && (got.Outcome == "released" || got.Outcome == "lease_expired") {
						return
					}
					want = "stale"
				case lapsed(s):
					want = "lease_expired"
					if name == "release" {
						m.next(s)
					}
				case want != "ok":
				default:
					for path, position := range moved {
						s.links[path] = max(s.links[path], position)
					}
					if name == "heartbeat" {
						s.deadline = r.now.Add(modelLease)
					}
					if name == "release" {
						want = "released"
						m.next(s)
						if got.NextWake == nil || *got.NextWake != (s.state == "waking") {
							rt.Fatalf("next wake %v, the model is %s", got.NextWake, s.state)
						}
					}
				}
				check(name, got.Outcome, want)
			},
			"time": func(*rapid.T) { r.after(12 * time.Second) },
			"reap": func(*rapid.T) {
				r.exec(`select rouse._claim_reap(100, $1)`, r.now)
				for _, s := range m.subs {
					if lapsed(s) {
						m.next(s)
					}
				}
			},
			"": func(*rapid.T) {
				if why := r.broken(); why != "" {
					rt.Fatal(why)
				}
				for id, s := range m.subs {
					check("state of "+id, r.state(s.sub), fmt.Sprint(s.state, " ", s.epoch))
					got, want := []string{}, []string{}
					for _, l := range r.links(s.sub) {
						got = append(got, fmt.Sprint(l.Path, " ", l.Type, " ", l.Acked, " ", l.Tail))
					}
					for _, path := range slices.Sorted(maps.Keys(s.links)) {
						kind := "glob"
						if s.named[path] {
							kind = "explicit"
						}
						want = append(want, fmt.Sprint(path, " ", kind, " ", s.links[path], " ", m.streams[path]))
					}
					check("links of "+id, strings.Join(got, ", "), strings.Join(want, ", "))
				}
			},
		}
		rt.Repeat(steps)
	})
}
