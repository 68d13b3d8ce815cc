package feed

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// takeOverLimit is what the architecture promises.
const takeOverLimit = 2 * time.Second

// traffic emits notices of streams 1, 2, 3, … until it is stopped, so that a
// hand-over that loses something is found out.
type traffic struct {
	stop chan struct{}
	wg   sync.WaitGroup
	last atomic.Int64
}

func startTraffic(t *testing.T, conn *pgx.Conn) *traffic {
	t.Helper()
	tr := &traffic{stop: make(chan struct{})}
	ctx := t.Context()
	tr.wg.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tr.stop:
				return
			case <-tick.C:
			}
			next := tr.last.Load() + 1
			if _, err := conn.Exec(ctx, `select pg_logical_emit_message(true, 'rouse', $1::bigint || ':1:1')`, next); err != nil {
				t.Errorf("emit: %v", err)
				return
			}
			tr.last.Store(next)
		}
	})
	t.Cleanup(tr.end)
	return tr
}

func (tr *traffic) end() {
	select {
	case <-tr.stop:
	default:
		close(tr.stop)
	}
	tr.wg.Wait()
}

// wantAllRouted stops the traffic and checks that each of its notices was
// routed by one of the gateways.
func (tr *traffic) wantAllRouted(t *testing.T, gateways ...*gateway) {
	t.Helper()
	tr.end()
	last := tr.last.Load()
	if last < 20 {
		t.Fatalf("only %d notices were sent: nothing was tested", last)
	}
	missing := func() (ids []int64) {
		routed := make(map[int64]bool)
		for _, g := range gateways {
			for _, n := range g.router.seen() {
				routed[n.Stream] = true
			}
		}
		for id := int64(1); id <= last; id++ {
			if !routed[id] {
				ids = append(ids, id)
			}
		}
		return ids
	}
	eventually(t, "every notice routed", func() bool { return len(missing()) == 0 })
}

// pair starts two gateways, the first of which holds the router's slot.
func pair(t *testing.T, dsn string, set func(*Config, *routerLog)) (first, second *gateway) {
	t.Helper()
	first = startGateway(t, dsn, set)
	eventually(t, "first holds", first.Holder)
	second = startGateway(t, dsn, nil)
	eventually(t, "second up", second.Up)
	return first, second
}

func TestStandbyTakesOverFromOneThatStops(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, b := pair(t, db.DSN, nil)
	tr := startTraffic(t, db.Conn(t))
	eventually(t, "traffic", func() bool { return tr.last.Load() > 20 })
	w := b.hub.Watch(1 << 40)
	defer w.Close()
	a.stop(t)
	if a.Up() || a.Holder() {
		t.Fatal("a stopped feed says it is up")
	}
	took := within(t, takeOverLimit, "take-over", b.Holder)
	t.Logf("take-over after stop: %v", took)
	if s, err := w.Wait(t.Context(), 0); err != nil || !s.Resync {
		t.Fatalf("readers were not told to read again: %+v, %v", s, err)
	}
	eventually(t, "the router is told to scan", func() bool { return b.router.gapCount(GapStart) == 1 })
	tr.wantAllRouted(t, a, b)
}

func TestSomebodyTakesOverFromATerminatedBackend(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, b := pair(t, db.DSN, nil)
	conn := db.Conn(t)
	tr := startTraffic(t, db.Conn(t))
	slot := routerSlot(t, conn)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		before := tr.last.Load()
		eventually(t, "traffic", func() bool { return tr.last.Load() > before+int64(rng.IntN(20)) })
		pid := query[int32](t, conn, `select coalesce(max(active_pid), 0) from pg_replication_slots where slot_name = $1`, slot)
		exec(t, conn, `select pg_terminate_backend($1)`, pid)
		took := within(t, takeOverLimit, "take-over", func() bool {
			now := query[int32](t, conn, `select coalesce(max(active_pid), 0) from pg_replication_slots where slot_name = $1`, slot)
			return now != 0 && now != pid && holder(a, b) != nil
		})
		t.Logf("take-over after pg_terminate_backend: %v", took)
	}
	eventually(t, "both up", func() bool { return allUp(a, b) })
	tr.wantAllRouted(t, a, b)
}

// freeze makes a gateway stop in the middle of everything, as SIGSTOP does, as
// far as the server can see: it reads nothing and says nothing.
type freeze struct {
	frozen atomic.Bool
	thaw   chan struct{}
	once   sync.Once
}

// newFreeze returns one that ends with the test at the latest. It is to be made
// before the gateway, whose stop comes first otherwise.
func newFreeze(t *testing.T) *freeze {
	f := &freeze{thaw: make(chan struct{})}
	context.AfterFunc(t.Context(), f.end)
	return f
}

func (f *freeze) end() {
	f.frozen.Store(false)
	f.once.Do(func() { close(f.thaw) })
}

func (f *freeze) hooks() Hooks {
	return Hooks{
		Status: func() bool { return !f.frozen.Load() },
		Receive: func() {
			if f.frozen.Load() {
				<-f.thaw
			}
		},
	}
}

func TestStandbyTakesOverFromAFrozenHolder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ice := newFreeze(t)
	a, b := pair(t, db.DSN, func(c *Config, _ *routerLog) {
		c.Hooks = ice.hooks()
		c.HolderTimeout = time.Minute // only the standby can end it
	})
	tr := startTraffic(t, db.Conn(t))
	eventually(t, "traffic routed", func() bool { return a.router.has(20) })
	ice.frozen.Store(true)
	took := within(t, takeOverLimit, "take-over", b.Holder)
	t.Logf("take-over from a frozen holder: %v", took)
	if got := b.metric(t, "rouse_feed_takeovers_total", "frozen"); got != 1 {
		t.Errorf("metric: %v take-overs from a frozen holder", got)
	}
	// It thaws, finds out and stands by.
	ice.end()
	eventually(t, "the former holder stands by", func() bool { return a.Up() && !a.Holder() })
	if !b.Holder() {
		t.Error("the slot went back")
	}
	tr.wantAllRouted(t, a, b)
}

func TestServerEndsAFrozenHolderWithoutAnyStandby(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t)
	ice := newFreeze(t)
	a := startGateway(t, db.DSN, func(c *Config, _ *routerLog) {
		c.Hooks = ice.hooks()
		c.HolderTimeout = 500 * time.Millisecond
	})
	eventually(t, "up", a.Up)
	slot := routerSlot(t, conn)
	ice.frozen.Store(true)
	eventually(t, "the slot is free", func() bool {
		return query[bool](t, conn, `select active_pid is null from pg_replication_slots where slot_name = $1`, slot)
	})
	ice.end()
	emitNotice(t, conn, 1, 1, Actionable)
	eventually(t, "routed after the thaw", func() bool { return a.router.has(1) })
}

// A wrong clock, a busy backend or a new backend must not look like a freeze.
func TestFreezeWatch(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	holder := func(reply string) slotState { return slotState{exists: true, pid: 7, reply: reply, waiting: true} }
	busy := holder("r1")
	busy.waiting = false
	other := holder("r1")
	other.pid = 8
	type look struct {
		at    float64
		state slotState
		want  bool
	}
	for name, looks := range map[string][]look{
		"silent":        {{0, holder("r1"), false}, {0.5, holder("r1"), false}, {1, holder("r1"), true}},
		"talking":       {{0, holder("r1"), false}, {1, holder("r2"), false}, {2, holder("r3"), false}},
		"clock back":    {{0, holder("r9"), false}, {1, holder("r1"), false}, {1.5, holder("r1"), false}},
		"busy":          {{0, busy, false}, {5, busy, false}, {6, holder("r1"), true}},
		"new backend":   {{0, holder("r1"), false}, {1, other, false}, {1.9, other, false}, {2, other, true}},
		"not streaming": {{0, holder(""), false}, {9, holder(""), false}},
		"free":          {{0, slotState{exists: true}, false}, {9, slotState{exists: true}, false}},
	} {
		w := freezeWatch{after: time.Second}
		for i, l := range looks {
			if got := w.frozen(l.state, at(l.at)); got != l.want {
				t.Errorf("%s, look %d: frozen %v, want %v", name, i, got, l.want)
			}
		}
	}
}

func TestGatewaysStartedTogetherShareOneRouterSlot(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t)
	var all []*gateway
	for range 4 {
		all = append(all, startGateway(t, db.DSN, nil))
	}
	eventually(t, "all up", func() bool { return allUp(all...) })
	holders := 0
	for _, g := range all {
		if g.Holder() {
			holders++
		}
	}
	if holders != 1 {
		t.Fatalf("%d holders", holders)
	}
	tr := startTraffic(t, conn)
	eventually(t, "traffic", func() bool { return tr.last.Load() > 20 })
	tr.wantAllRouted(t, all...)
}
