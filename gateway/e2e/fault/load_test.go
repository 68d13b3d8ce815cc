package fault

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rouse-run/rouse/gateway/e2e/wire"
)

// acked is an append that was acknowledged.
type acked struct {
	key    string
	offset string
	at     time.Time
}

// window is a time in which what is acknowledged may be lost, as the commits of
// a primary that is lost before they have reached its standby.
type window struct{ from, to time.Time }

func (w *window) holds(t time.Time) bool { return w != nil && t.After(w.from) && !t.After(w.to) }

// load is what clients do all the while, and what they were told.
type load struct {
	w      *world
	ctx    context.Context // ends when no new work is to be begun
	finish context.Context // ends when even the last retries are given up
	wg     sync.WaitGroup

	mu      sync.Mutex
	sent    map[string][]acked // by entity id
	logged  map[string][]acked // by producer
	grants  map[string]string  // consumer/epoch → claim id
	retries int
	refused map[string]int // by code: what was answered that was tried again
	okSends []time.Time
	okGrant []time.Time
	lost    []string // what should not have been answered
	follows string   // the offset that whoever follows the log has reached
	saw     []string // and what it has seen, since it has restarted
	// restarted: it found its offset beyond the end.
	restarted bool
}

const logPath = "/log/plain"

func (w *world) startLoad(ctx, finish context.Context, senders, producers, workers int) *load {
	w.t.Helper()
	l := &load{w: w, ctx: ctx, finish: finish, sent: map[string][]acked{}, logged: map[string][]acked{}, grants: map[string]string{}, refused: map[string]int{}}
	w.must(w.clients[0].Do(ctx, "PUT", logPath, nil, map[string]string{"Content-Type": "application/json"}), 200, 201)
	for i := range senders {
		l.wg.Go(func() { l.send(i) })
	}
	for i := range producers {
		l.wg.Go(func() { l.produce(i) })
	}
	for i := range workers {
		l.wg.Go(func() { l.work(i) })
	}
	l.wg.Go(l.follow)
	return l
}

// insist repeats a call at either gateway until something definite comes back.
func (l *load) insist(f func(*wire.Client) wire.Answer) wire.Answer {
	for n := rand.IntN(2); ; n++ {
		a := f(l.w.clients[n%2])
		if !a.Indefinite() || l.finish.Err() != nil {
			return a
		}
		l.mu.Lock()
		l.retries++
		if a.Status != 0 {
			l.refused[fmt.Sprintf("%d %s", a.Status, a.Code)]++
		}
		l.mu.Unlock()
		pause(l.finish, 10*time.Millisecond)
	}
}

func (l *load) unexpected(what string, a wire.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = append(l.lost, fmt.Sprintf("%s: %v %.200s", what, a, a.Raw))
}

// send sends messages with keys, each until it is acknowledged.
func (l *load) send(i int) {
	for n := 0; l.ctx.Err() == nil; n++ {
		e := l.w.entities[(i+n)%len(l.w.entities)]
		key := fmt.Sprintf("k%d-%d", i, n)
		a := l.insist(func(c *wire.Client) wire.Answer { return c.Send(l.finish, "job", e.id, key, key) })
		if a.Status != 200 {
			l.unexpected("send "+key, a)
			continue
		}
		l.mu.Lock()
		l.sent[e.id] = append(l.sent[e.id], acked{key, a.Header.Get("Stream-Next-Offset"), time.Now()})
		l.okSends = append(l.okSends, time.Now())
		l.mu.Unlock()
		pause(l.ctx, 5*time.Millisecond)
	}
}

// produce is an idempotent producer of a plain stream.
func (l *load) produce(i int) {
	id := fmt.Sprintf("p%d", i)
	for n, seq, epoch := 0, 0, 0; l.ctx.Err() == nil; n, seq = n+1, seq+1 {
		key := fmt.Sprintf("%s-%d", id, n)
		a := l.insist(func(c *wire.Client) wire.Answer {
			return c.Append(l.finish, logPath, "", strconv.Quote(key),
				map[string]string{"Producer-Id": id, "Producer-Epoch": strconv.Itoa(epoch), "Producer-Seq": strconv.Itoa(seq)})
		})
		if a.Status == 409 && l.w.risky {
			epoch, seq = epoch+1, -1
			continue
		}
		if a.Status != 200 && a.Status != 204 {
			l.unexpected("append "+key, a)
			return // a later one would be a gap
		}
		l.mu.Lock()
		l.logged[id] = append(l.logged[id], acked{key, a.Header.Get("Stream-Next-Offset"), time.Now()})
		l.mu.Unlock()
		pause(l.ctx, 3*time.Millisecond)
	}
}

// follow is a reader of the plain stream who waits for what comes, and reads
// from the start again if what it has seen is no longer there.
func (l *load) follow() {
	at := "-1"
	for n := 0; l.finish.Err() == nil; n++ {
		a := l.w.clients[n%2].Do(l.finish, "GET", logPath+"?live=long-poll&offset="+at, nil, nil)
		var keys []string
		switch {
		case a.Status == 400 && l.w.risky:
			at = "-1"
			l.mu.Lock()
			l.saw, l.restarted = nil, true
			l.mu.Unlock()
			continue
		case a.Status == 200 && json.Unmarshal(a.Raw, &keys) != nil, a.Status != 200 && a.Status != 204 && !a.Indefinite():
			l.unexpected("follow", a)
			return
		case a.Indefinite():
			pause(l.finish, 10*time.Millisecond)
			continue
		}
		at = a.Header.Get("Stream-Next-Offset")
		l.mu.Lock()
		l.saw = append(l.saw, keys...)
		l.follows = at
		l.mu.Unlock()
	}
}

// work is a runner: claim, read, answer each message, ack, release. It goes on
// until the very end, so that what is left over gets done.
func (l *load) work(i int) {
	for n := 0; l.finish.Err() == nil; n++ {
		claimID := fmt.Sprintf("w%d-%d", i, n)
		g := l.insist(func(c *wire.Client) wire.Answer { return c.Claim(l.finish, "mac", claimID) })
		if g.Status != 200 || g.WriteToken == "" {
			pause(l.finish, 10*time.Millisecond)
			continue
		}
		l.mu.Lock()
		k := fmt.Sprintf("%s/%d", g.ConsumerID, g.Epoch)
		if other, ok := l.grants[k]; ok && other != claimID {
			l.lost = append(l.lost, fmt.Sprintf("%s was granted to %s and to %s", k, other, claimID))
		}
		l.grants[k] = claimID
		l.okGrant = append(l.okGrant, time.Now())
		l.mu.Unlock()
		l.handle(g)
	}
}

func (l *load) handle(g wire.Answer) {
	var n struct {
		Streams []struct{ AckedOffset string }
	}
	if err := json.Unmarshal(g.Raw, &n); err != nil || len(n.Streams) != 1 {
		l.unexpected("claim", g)
		return
	}
	at := n.Streams[0].AckedOffset
	for last := false; !last; {
		var messages []json.RawMessage
		var a wire.Answer
		l.insist(func(c *wire.Client) wire.Answer {
			messages, at, last, a = c.Page(l.finish, g.StreamPath, at)
			return a
		})
		if a.Status != 200 {
			return
		}
		for _, m := range messages {
			if key := inboxKey(m); key != "" {
				if a := l.insist(func(c *wire.Client) wire.Answer {
					return c.Append(l.finish, g.StreamPath, g.WriteToken, map[string]any{"done": key, "epoch": g.Epoch}, nil)
				}); a.Status/100 != 2 {
					return // fenced: somebody else goes on
				}
			}
		}
		if a := l.insist(func(c *wire.Client) wire.Answer { return c.Heartbeat(l.finish, g.ConsumerID, g.ClaimToken) }); a.Status != 200 {
			return
		}
	}
	l.insist(func(c *wire.Client) wire.Answer {
		return c.Release(l.finish, g.ConsumerID, g.ClaimToken, g.StreamPath, at)
	})
}

// inboxKey is the payload of a sent message, or "".
func inboxKey(m json.RawMessage) string {
	var v struct {
		Type  string
		Value struct{ Payload any }
	}
	if json.Unmarshal(m, &v) != nil || v.Type != "inbox" {
		return ""
	}
	s, _ := v.Value.Payload.(string)
	return s
}

// firstAfter is how long after t the first of the times came.
func firstAfter(times []time.Time, t time.Time) time.Duration {
	for _, x := range times {
		if x.After(t) {
			return x.Sub(t).Round(time.Millisecond)
		}
	}
	return -1
}

// gap is the longest time between two of them.
func gap(times []time.Time) (g time.Duration) {
	for i := 1; i < len(times); i++ {
		g = max(g, times[i].Sub(times[i-1]))
	}
	return g.Round(time.Millisecond)
}

// quiet waits until everything that was sent is worked: no wake was lost.
func (w *world) quiet() time.Duration {
	w.t.Helper()
	return within(w.t, patience, "all work is done and given back", func() bool {
		var left int
		w.scan(`select count(*) from rouse.consumers c join rouse.consumer_streams k on k.consumer_id = c.id join rouse.streams s on s.id = k.stream_id
			where s.actionable > k.acked or c.state <> 'idle'`, nil, &left)
		return left == 0
	})
}

// audit compares what the clients were told with what is there.
func (l *load) audit(minimum int) {
	w := l.w
	t := w.t
	t.Helper()
	for _, s := range l.lost {
		t.Error(s)
	}
	sends := 0
	for _, e := range w.entities {
		messages, _, a := w.clients[0].All(t.Context(), e.path)
		w.must(a, 200)
		var keys []string
		done := map[string]int{}
		last := int64(0)
		for _, m := range messages {
			if k := inboxKey(m); k != "" {
				keys = append(keys, k)
			}
			var v struct {
				Done  string
				Epoch int64
				Type  string
				Value struct{ Text string }
			}
			if json.Unmarshal(m, &v) != nil {
				continue
			}
			if v.Type == "text" { // from a runner process: "KEY done by epoch N"
				if key, epoch, ok := strings.Cut(v.Value.Text, " done by epoch "); ok {
					v.Done = key
					v.Epoch, _ = strconv.ParseInt(epoch, 10, 64)
				}
			}
			if v.Done != "" {
				done[v.Done]++
				if v.Epoch < last {
					t.Errorf("%s: a line of epoch %d stands behind one of epoch %d", e.url, v.Epoch, last)
				}
				last = max(last, v.Epoch)
			}
		}
		l.inOrder(e.url, l.sent[e.id], keys)
		sends += len(l.sent[e.id])
		for _, k := range keys {
			if done[k] == 0 {
				t.Errorf("%s: %s was never worked", e.url, k)
			}
		}
	}
	messages, _, a := w.clients[1].All(t.Context(), logPath)
	w.must(a, 200)
	by := map[string][]string{}
	var all []string
	offsets := map[string]string{} // of what is there, where they were told
	for _, m := range messages {
		var key string
		if err := json.Unmarshal(m, &key); err != nil {
			t.Fatal(err)
		}
		all = append(all, key)
		offsets[key] = ""
		id, _, _ := strings.Cut(key, "-")
		by[id] = append(by[id], key)
	}
	if (!w.risky || l.restarted) && !slices.Equal(all, l.saw) {
		t.Errorf("whoever followed saw %d of %d appends; the first difference is at %d", len(l.saw), len(all), firstDifference(all, l.saw))
	}
	for _, acks := range l.logged {
		for _, a := range acks {
			if _, ok := offsets[a.key]; ok {
				offsets[a.key] = a.offset
			}
		}
	}
	w.fromEverywhere(all, offsets)
	appends := 0
	for id, acks := range l.logged {
		l.inOrder("producer "+id, acks, by[id])
		appends += len(acks)
	}
	for answer, n := range l.refused {
		// A fault has a code, and says that another try may help.
		if !strings.HasPrefix(answer, "503 ") && !strings.HasPrefix(answer, "504 ") || strings.HasSuffix(answer, " ") {
			t.Errorf("%d calls were answered %q", n, answer)
		}
	}
	t.Logf("answers that were tried again: %v", l.refused)
	var bad, claims, expired int
	w.scan(`select (select count(*) from rouse.consumer_claims k1 join rouse.consumer_claims k2
			on k1.consumer_id = k2.consumer_id and k1.epoch < k2.epoch and k1.claimed_at > k2.claimed_at and $1)
		+ (select count(*) from (select consumer_id from rouse.consumer_claims where status = 'active' group by 1 having count(*) > 1) x)
		+ (select count(*) from rouse.consumers c where (select max(epoch) from rouse.wake_notifications n where n.consumer_id = c.name) > c.epoch)`, []any{!w.clockJumps}, &bad)
	w.scan(`select count(*), count(*) filter (where status = 'expired') from rouse.consumer_claims`, nil, &claims, &expired)
	if bad != 0 {
		t.Errorf("%d claims break the order of epochs, or live beside another", bad)
	}
	t.Logf("%d sends, %d plain appends, %d claims (%d expired), %d retries; longest gap between sends %v, between grants %v",
		sends, appends, claims, expired, l.retries, gap(l.okSends), gap(l.okGrant))
	if sends < minimum || appends < minimum || claims < minimum/10 {
		t.Errorf("too little was done for this to mean anything")
	}
}

// fromEverywhere demands that whoever goes on at the offset of an append of the
// log gets, at each gateway, what follows it; a hundred are tried.
func (w *world) fromEverywhere(all []string, offsets map[string]string) {
	w.t.Helper()
	for i := 0; i < len(all)-1; i += 1 + len(all)/100 {
		key := all[i]
		if offsets[key] == "" {
			continue // its answer got lost
		}
		for n, c := range w.clients {
			var got []string
			a := c.Do(w.t.Context(), "GET", logPath+"?live=long-poll&offset="+offsets[key], nil, nil)
			if a.Status != 200 || json.Unmarshal(a.Raw, &got) != nil || len(got) == 0 || !slices.Equal(got, all[i+1:min(len(all), i+1+len(got))]) {
				w.t.Errorf("gateway %d answers what follows %s with %v: %.100s, not %s", n, key, a, a.Raw, all[i+1])
				return
			}
		}
	}
}

// inOrder demands that what was acknowledged is there once, in the order of the
// offsets that were answered, and that nothing else is there. What was
// acknowledged while it might be lost is left out of it.
func (l *load) inOrder(what string, acks []acked, there []string) {
	t := l.w.t
	t.Helper()
	var sorted []acked
	forgiven := map[string]bool{}
	for _, a := range acks {
		if forgiven[a.key] = l.w.forgive.holds(a.at); !forgiven[a.key] {
			sorted = append(sorted, a)
		}
	}
	survived := 0
	there = slices.DeleteFunc(slices.Clone(there), func(key string) bool {
		if forgiven[key] {
			survived++
		}
		return forgiven[key]
	})
	if n := len(acks) - len(sorted); n > 0 {
		t.Logf("%s: %d were acknowledged while they might be lost, of which %d are there", what, n, survived)
	}
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].offset < sorted[j].offset })
	want := make([]string, len(sorted))
	for i, a := range sorted {
		want[i] = a.key
		if i > 0 && sorted[i-1].offset == a.offset {
			t.Errorf("%s: %s and %s were told the same offset %s", what, sorted[i-1].key, a.key, a.offset)
		}
	}
	if !slices.Equal(want, there) {
		t.Errorf("%s: %d acknowledged, %d there; the first difference is at %d", what, len(want), len(there), firstDifference(want, there))
	}
}

func firstDifference(a, b []string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
