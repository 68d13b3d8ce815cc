package linear

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/devpg"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

const lease = 400 * time.Millisecond

// known is what a holder was told: until when, at least, its lease lives.
type known struct {
	consumer string
	epoch    int64
	granted  time.Time // the grant's answer came
	until    time.Time
	gone     time.Time // the release was called; zero if never
}

type holders struct {
	mu sync.Mutex
	by map[string]*known
}

func (h *holders) told(e entity, epoch int64, called, answered time.Time, leaseMS int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := fmt.Sprintf("%s/%d", e.consumer, epoch)
	if h.by[k] == nil {
		h.by[k] = &known{consumer: e.consumer, epoch: epoch, granted: answered}
	}
	// The server read its clock after the call: the lease lives at least that long.
	if until := called.Add(time.Duration(leaseMS) * time.Millisecond); until.After(h.by[k].until) {
		h.by[k].until = until
	}
}

func (h *holders) leaves(e entity, epoch int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.by[fmt.Sprintf("%s/%d", e.consumer, epoch)].gone = time.Now()
}

// worker is one client that wants the mutexes of all entities.
type worker struct {
	w    *world
	id   int
	r    *rand.Rand
	es   []entity
	hold *holders
	n    int
}

func (k *worker) gateway() *wire.Client { return k.w.clients[k.r.IntN(len(k.w.clients))] }

// classify makes an outcome of an answer.
func classify(a wire.Answer, ok string) string {
	switch {
	case a.Indefinite():
		return "unknown"
	case a.Status < 300:
		return ok
	}
	switch a.Code {
	case "EPOCH_HELD", "ALREADY_CLAIMED":
		return "held"
	case "NO_PENDING_WORK":
		return "none"
	case "EPOCH_STALE", "LEASE_EXPIRED", "FENCED", "UNAUTHORIZED", "CLAIM_TOKEN_INVALID":
		return "stale"
	}
	return "unexpected " + a.Code
}

func (k *worker) call(e entity, op string, epoch int64, ok string, f func(*wire.Client) wire.Answer) (wire.Answer, string) {
	began := time.Now()
	a := f(k.gateway())
	ended := time.Now()
	out := classify(a, ok)
	k.w.record(k.id, began, ended, mutexCall{consumer: e.consumer, op: op, epoch: epoch}, mutexAnswer{outcome: out, epoch: a.Epoch}, out == "unknown", op+" "+out)
	if out == "granted" || op == "heartbeat" && out == "ok" {
		k.hold.told(e, a.Epoch, began, ended, a.LeaseMS)
	}
	if len(out) > 10 && out[:10] == "unexpected" {
		k.w.t.Errorf("%s: %v", op, a)
	}
	return a, out
}

// append writes one message of its own name under the grant.
func (k *worker) append(ctx context.Context, e entity, g wire.Answer) (wire.Answer, string) {
	k.n++
	name := fmt.Sprintf("%d.%d", k.id, k.n)
	a, out := k.call(e, "append", g.Epoch, "ok", func(c *wire.Client) wire.Answer {
		return c.Append(ctx, e.path, g.WriteToken, map[string]any{"epoch": g.Epoch, "n": name}, nil)
	})
	if out == "ok" {
		k.w.mu.Lock()
		if k.w.acked[e.consumer] == nil {
			k.w.acked[e.consumer] = map[string]bool{}
		}
		k.w.acked[e.consumer][name] = true
		k.w.mu.Unlock()
	}
	return a, out
}

// run takes mutexes and does what good and bad holders do until ctx ends.
func (k *worker) run(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		e := k.es[k.r.IntN(len(k.es))]
		g, out := k.call(e, "acquire", 0, "granted", func(c *wire.Client) wire.Answer {
			return c.Acquire(context.WithoutCancel(ctx), e.consumer, fmt.Sprintf("%d-%d", k.id, n))
		})
		switch out {
		case "granted":
			k.work(ctx, e, g)
		case "unknown": // each such call may have been carried out: make few
			pause(ctx, 250*time.Millisecond)
		default:
			pause(ctx, time.Duration(k.r.IntN(30))*time.Millisecond)
		}
	}
}

func (k *worker) work(ctx context.Context, e entity, g wire.Answer) {
	offset := ""
	alive := context.WithoutCancel(ctx)
	for range k.r.IntN(6) {
		switch k.r.IntN(4) {
		case 0:
			k.call(e, "heartbeat", g.Epoch, "ok", func(c *wire.Client) wire.Answer { return c.Heartbeat(alive, e.consumer, g.ClaimToken) })
		case 1:
			if offset != "" {
				k.call(e, "ack", g.Epoch, "ok", func(c *wire.Client) wire.Answer { return c.Ack(alive, e.consumer, g.ClaimToken, e.path, offset) })
			}
		default:
			if a, out := k.append(alive, e, g); out == "ok" {
				offset = a.Header.Get("Stream-Next-Offset")
			}
		}
		if k.r.IntN(8) == 0 { // a pause that may outlast the lease
			pause(ctx, time.Duration(k.r.Int64N(int64(2*lease))))
		}
	}
	if k.r.IntN(4) == 0 {
		return // dies without a word
	}
	k.hold.leaves(e, g.Epoch)
	for range 1 + k.r.IntN(2) { // at times twice
		k.call(e, "release", g.Epoch, "ok", func(c *wire.Client) wire.Answer { return c.Release(alive, e.consumer, g.ClaimToken, e.path, offset) })
	}
	if k.r.IntN(3) == 0 { // and at times it goes on as if nothing was
		k.append(alive, e, g)
		k.call(e, "heartbeat", g.Epoch, "ok", func(c *wire.Client) wire.Answer { return c.Heartbeat(alive, e.consumer, g.ClaimToken) })
	}
}

// contend lets workers and a sender at the entities until ctx ends; it returns
// what was told to holders, and how many messages were acknowledged.
func (w *world) contend(ctx context.Context, s uint64, workers int, es []entity) (*holders, map[string]int) {
	hold := &holders{by: map[string]*known{}}
	var wg sync.WaitGroup
	for i := range workers {
		k := &worker{w: w, id: i, r: rng(s, i), es: es, hold: hold}
		wg.Go(func() { k.run(ctx) })
	}
	sent := map[string]int{}
	wg.Go(func() { // there is always work
		for n := 0; ctx.Err() == nil; n++ {
			e := es[n%len(es)]
			for try := 0; ; try++ {
				a := w.clients[(n+try)%2].Send(context.WithoutCancel(ctx), "chat", e.id, fmt.Sprintf("m%d", n), n)
				if a.Status == 200 {
					sent[e.id]++
				} else if a.Indefinite() && try < 1000 {
					pause(ctx, 20*time.Millisecond)
					continue
				} else {
					w.t.Errorf("send: %v %s", a, a.Raw)
				}
				break
			}
			pause(ctx, 15*time.Millisecond)
		}
	})
	wg.Wait()
	return hold, sent
}

// TestMutexIsLinearizable: workers over two gateways, checked call by call.
func TestMutexIsLinearizable(t *testing.T) {
	t.Parallel()
	s := seed(t)
	w := newWorld(t, lease)
	es := []entity{w.spawn("a"), w.spawn("b"), w.spawn("c")}
	ctx, cancel := context.WithTimeout(t.Context(), duration(t, 6*time.Second))
	defer cancel()
	hold, sent := w.contend(ctx, s, 8, es)
	w.atLeast(map[string]int{"acquire granted": 30, "acquire held": 30, "append ok": 40, "heartbeat ok": 10, "release ok": 20, "append stale": 5})
	if n := w.indefinite(); n*20 > len(w.history) {
		t.Errorf("%d of %d calls ended without an answer", n, len(w.history))
	}
	w.linearizable(mutexModel())
	hold.oneAtATime(t)
	w.streamsAreWhole(es, sent)
}

// TestMutexIsLinearizableAcrossRestarts: the same while Postgres goes down and
// comes back. Calls without an answer may have been carried out or not.
func TestMutexIsLinearizableAcrossRestarts(t *testing.T) {
	t.Parallel()
	s := seed(t)
	pg := pgtest.Server(t, pgtest.Options{})
	w := newWorldOn(t, pg.DB, lease, slog.New(slog.DiscardHandler)) // they have much to say meanwhile
	es := []entity{w.spawn("a"), w.spawn("b"), w.spawn("c")}
	half := duration(t, 5*time.Second) / 2
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		for _, mode := range []devpg.Mode{devpg.Immediate, devpg.Crash} {
			pause(ctx, half/2)
			if err := pg.Restart(t.Context(), mode); err != nil {
				t.Error(err)
				return
			}
		}
		pause(ctx, half)
	}()
	hold, sent := w.contend(ctx, s, 4, es)
	w.atLeast(map[string]int{"acquire granted": 12, "append ok": 15, "release ok": 8})
	w.linearizable(mutexModel())
	hold.oneAtATime(t)
	w.streamsAreWhole(es, sent)
}

// oneAtATime: by the clients' own clocks, no two leases of one mutex lived at
// once.
func (h *holders) oneAtATime(t *testing.T) {
	t.Helper()
	var all []*known
	for _, k := range h.by {
		all = append(all, k)
	}
	sort.Slice(all, func(i, j int) bool {
		return all[i].consumer < all[j].consumer || all[i].consumer == all[j].consumer && all[i].epoch < all[j].epoch
	})
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if a.consumer == b.consumer && b.granted.Before(a.until) && (a.gone.IsZero() || a.gone.After(b.granted)) {
			t.Errorf("epoch %d was granted %v before epoch %d had to end", b.epoch, a.until.Sub(b.granted), a.epoch)
		}
	}
}

// indefinite counts the calls that ended without a definite answer.
func (w *world) indefinite() (n int) {
	for k, c := range w.counts {
		if strings.HasSuffix(k, " unknown") {
			n += c
		}
	}
	return n
}

// streamsAreWhole: every acknowledged append is there once; epochs never go
// back.
func (w *world) streamsAreWhole(es []entity, sent map[string]int) {
	t := w.t
	t.Helper()
	appended, maybe := map[string]int{}, map[string]int{}
	for _, o := range w.history {
		c, a := o.Input.(mutexCall), o.Output.(mutexAnswer)
		if c.op == "append" && a.outcome == "ok" {
			appended[c.consumer]++
		} else if c.op == "append" && a.outcome == "unknown" {
			maybe[c.consumer]++
		}
	}
	for _, e := range es {
		messages, _, a := w.clients[1].All(t.Context(), e.path)
		w.must(a, 200)
		last, own, inbox := int64(0), 0, 0
		seen := map[string]bool{}
		for _, m := range messages {
			var v struct {
				Epoch int64
				N     string
				Type  string
			}
			if err := json.Unmarshal(m, &v); err != nil {
				t.Fatal(err)
			}
			switch {
			case v.Epoch > 0:
				own++
				if v.Epoch < last {
					t.Errorf("%s: a message of epoch %d behind one of epoch %d", e.id, v.Epoch, last)
				}
				last = v.Epoch
				if seen[v.N] {
					t.Errorf("%s: %s is there twice", e.id, v.N)
				}
				seen[v.N] = true
			case v.Type == "inbox":
				inbox++
			}
		}
		for n := range w.acked[e.consumer] {
			if !seen[n] {
				t.Errorf("%s: %s was acknowledged and is not there", e.id, n)
			}
		}
		if own < appended[e.consumer] || own > appended[e.consumer]+maybe[e.consumer] || inbox != sent[e.id] {
			t.Errorf("%s holds %d of %d (and perhaps %d) appends and %d of %d messages", e.id, own, appended[e.consumer], maybe[e.consumer], inbox, sent[e.id])
		}
	}
}

// TestStreamIsLinearizable: appends and reads of plain streams over two gateways.
func TestStreamIsLinearizable(t *testing.T) {
	t.Parallel()
	s := seed(t)
	w := newWorld(t, lease)
	streams := []string{"/log/a", "/log/b"}
	for _, path := range streams {
		w.must(w.clients[0].Do(t.Context(), "PUT", path, nil, map[string]string{"Content-Type": "application/json"}), 201)
	}
	ctx, cancel := context.WithTimeout(t.Context(), duration(t, 3*time.Second))
	defer cancel()
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			r := rng(s, 100+i)
			for n := 0; ctx.Err() == nil && n < 150; n++ {
				path, c := streams[r.IntN(len(streams))], w.clients[r.IntN(2)]
				if r.IntN(3) == 0 {
					began := time.Now()
					messages, tail, a := c.All(context.WithoutCancel(ctx), path)
					out := logAnswer{ok: a.Status == 200, unknown: a.Status != 200}
					if out.ok {
						for _, m := range messages {
							var v string
							if err := json.Unmarshal(m, &v); err != nil {
								t.Error(err)
							}
							out.read += v + " "
						}
						out.position = position(tail)
					}
					w.record(i, began, time.Now(), logCall{stream: path}, out, false, "read")
				} else {
					value := fmt.Sprintf("%d.%d", i, n)
					body, _ := json.Marshal(value)
					began := time.Now()
					a := c.Append(context.WithoutCancel(ctx), path, "", body, nil)
					out := logAnswer{ok: a.Status == 200 || a.Status == 204, unknown: a.Indefinite()}
					if out.ok {
						out.position = position(a.Header.Get("Stream-Next-Offset"))
					}
					// The separator between flattened messages is counted in none.
					w.record(i, began, time.Now(), logCall{stream: path, value: value, bytes: int64(len(body))}, out, out.unknown, "append")
				}
				pause(ctx, time.Duration(r.IntN(4))*time.Millisecond)
			}
		})
	}
	wg.Wait()
	w.atLeast(map[string]int{"append": 100, "read": 50})
	w.linearizable(logModel())
}

// TestFiftyRacersOverHTTP: one wake, fifty callers at two gateways, one grant;
// nobody waits for the lease. The losers are answered in 50 ms, or, where the
// machine itself is slower than that, in about the time of fifty calls at once
// that have nothing to race for. All have their answers before the winner gives
// its lease back, so who would wait for that is seen.
func TestFiftyRacersOverHTTP(t *testing.T) {
	t.Parallel()
	const (
		longLease = 30 * time.Second
		racers    = 50
		rounds    = 7
	)
	w := newWorld(t, longLease)
	e := w.spawn("a")
	// together calls fifty times at once, at both gateways in turn.
	together := func(call func(c *wire.Client, i int) wire.Answer) (answers []wire.Answer, slowest time.Duration) {
		start := make(chan struct{})
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range racers {
			wg.Go(func() {
				<-start
				began := time.Now()
				a := call(w.clients[i%2], i)
				took := time.Since(began)
				mu.Lock()
				defer mu.Unlock()
				answers, slowest = append(answers, a), max(slowest, took)
			})
		}
		close(start)
		wg.Wait()
		return answers, slowest
	}
	var races, baselines []time.Duration
	for round := range rounds {
		w.must(w.clients[0].Send(t.Context(), "chat", e.id, fmt.Sprintf("r%d", round), round), 200, 202, 204)
		nothing, took := together(func(c *wire.Client, i int) wire.Answer {
			return c.Acquire(t.Context(), fmt.Sprintf("none-%d", i), fmt.Sprintf("n%d-%d", round, i))
		})
		for _, a := range nothing {
			w.must(a, 404)
		}
		baselines = append(baselines, took)
		answers, took := together(func(c *wire.Client, i int) wire.Answer {
			return c.Acquire(t.Context(), e.consumer, fmt.Sprintf("%d-%d", round, i))
		})
		races = append(races, took)
		var granted []wire.Answer
		codes := map[string]int{}
		for _, a := range answers {
			if a.Status == 200 {
				granted = append(granted, a)
			} else {
				codes[a.Code]++
			}
		}
		if len(granted) != 1 || codes["EPOCH_HELD"] != racers-1 {
			t.Fatalf("round %d: %d grants, %v", round, len(granted), codes)
		}
		if took > longLease/3 {
			t.Errorf("round %d: an answer took %v: it waited for the lease", round, took)
		}
		if g := granted[0]; g.Epoch != int64(round+1) {
			t.Errorf("epoch %d in round %d", g.Epoch, round)
		}
		_, tail, a := w.clients[0].All(t.Context(), e.path)
		w.must(a, 200)
		w.must(w.clients[1].Release(t.Context(), e.consumer, granted[0].ClaimToken, e.path, tail), 200)
	}
	slices.Sort(races)
	slices.Sort(baselines)
	race, baseline := races[rounds/2], baselines[rounds/2]
	t.Logf("slowest of fifty answers, median of %d rounds: %v; with nothing to race for %v", rounds, race, baseline)
	if bound := max(50*time.Millisecond, 3*baseline); race > bound {
		t.Errorf("losers are answered in %v, want %v", race, bound)
	}
}

// TestALapsedLeaseIsClaimableWithinASecond: holders that fall silent lose their
// entities by a fresh wake with the next epoch, at most a second behind the end
// of their leases. Both times are the database's, so that what is measured is
// the gateways' and not the test's. The reaper's period is the default.
func TestALapsedLeaseIsClaimableWithinASecond(t *testing.T) {
	t.Parallel()
	const (
		shortLease = time.Second
		entities   = 12
		within     = time.Second
	)
	db := pgtest.New(t)
	configure := func(c *config.Config) { c.LeaseTTL = shortLease }
	gw := servertest.Start(t, servertest.Options{DB: db, Configure: configure})
	servertest.Start(t, servertest.Options{DB: db, Configure: configure})
	hc := wire.NewHTTP(20 * time.Second)
	t.Cleanup(hc.CloseIdleConnections)
	c := &wire.Client{Base: gw.URL, Principal: "user:kyle", HTTP: hc}
	w := &world{t: t, db: db, clients: []*wire.Client{c}}
	w.must(c.Type(t.Context(), "chat"), 201)
	w.must(c.Runner(t.Context(), "mac"), 201)
	for i := range entities {
		e := w.spawn(fmt.Sprint(i))
		w.must(c.Send(t.Context(), "chat", e.id, "m", i), 200)
		w.must(c.Acquire(t.Context(), e.consumer, "first"), 200)
		pause(t.Context(), 60*time.Millisecond) // the leases end one after the other, at any phase of the reaper's period
	}
	conn := db.Conn(t)
	var late []float64
	deadline := time.Now().Add(30 * time.Second)
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		if err := conn.QueryRow(t.Context(), `select coalesce(array_agg(x order by x), '{}') from (
			select extract(epoch from n.created_at - k.lease_expires_at)::float8 as x
			from rouse.consumer_claims k join rouse.wake_notifications n on n.consumer_id = k.consumer_id and n.epoch = k.epoch + 1
			where k.status = 'expired' and k.epoch = 1) x`).Scan(&late); err != nil {
			t.Fatal(err)
		}
		if len(late) == entities {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d leases were followed by a wake", len(late), entities)
		}
	}
	t.Logf("a fresh wake came %.3f s (median), %.3f s (latest) behind the end of a lease", late[entities/2], late[entities-1])
	if late[0] < 0 {
		t.Errorf("a wake came %.3f s before its predecessor's lease had ended", -late[0])
	}
	// The median, since a machine that stands still for a moment delays one or
	// another of them; none is off by more than that.
	if late[entities/2] > within.Seconds() || late[entities-1] > 3*within.Seconds() {
		t.Errorf("leases are followed by a wake in %v", late)
	}
	for i := range entities {
		var consumer string
		if err := conn.QueryRow(t.Context(), `select name from rouse.consumers where entity_url = $1`, fmt.Sprintf("/chat/%d", i)).Scan(&consumer); err != nil {
			t.Fatal(err)
		}
		if a := w.must(c.Acquire(t.Context(), consumer, "second"), 200); a.Epoch != 2 {
			t.Errorf("the second grant has epoch %d", a.Epoch)
		}
	}
}
