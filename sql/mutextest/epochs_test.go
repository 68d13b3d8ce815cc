package mutextest

import (
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/soon"
)

// promote makes the database one that was promoted: it was on another timeline
// when it was last looked at.
func (r *rig) promote() {
	r.t.Helper()
	r.exec(`update rouse.epoch_floors set timeline = -1 where n = (select max(n) from rouse.epoch_floors)`)
}

// TestEpochsJumpOverAFailover: what a primary that is gone may have granted is
// not granted again under the same epoch, and its tokens are good for nothing.
// What was held is over, and acks nothing: its holder may have read messages
// that are not here, where others are now.
func TestEpochsJumpOverAFailover(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("mac", 0)
	held, waiting, idle := r.entity("/chat/held", toRunner("mac")), r.entity("/chat/waiting", toRunner("mac")), r.entity("/chat/idle", toRunner("mac"))
	for _, e := range []entity{held, waiting} {
		r.push(e)
		r.route(e)
	}
	h := r.want("granted", held.acquire())
	before, acked := r.state(waiting), r.acked(held)
	r.promote()

	r.want("lease_expired", held.call("heartbeat", h.Epoch, h.Wake))
	r.want("lease_expired", held.call("ack", h.Epoch, h.Wake).with("acks", held.acks(r.tail(held))))
	r.want("stale", waiting.acquire().with("wake", before.Wake).with("trusted", true))
	after := r.state(waiting)
	if after.State != "waking" || after.Wake == before.Wake || after.Epoch < 1_000_000 {
		t.Fatalf("the wake that may have been granted is followed by %+v", after)
	}
	if told := r.entries("mac"); told[len(told)-1]["epoch"] != float64(after.Epoch) {
		t.Errorf("the runner is told %v", told[len(told)-1])
	}
	g := r.want("granted", waiting.acquire().with("wake", after.Wake).with("epoch", after.Epoch).with("trusted", true))
	r.want("stale", waiting.call("heartbeat", before.Epoch, before.Wake))
	r.want("released", waiting.call("release", g.Epoch, g.Wake).with("acks", waiting.acks(r.tail(waiting))))

	// Whoever has no wake yet, and whoever goes on, is above it, too.
	r.push(idle)
	r.route(idle)
	if s := r.state(idle); s.Epoch < after.Epoch {
		t.Errorf("the first epoch is %d, below the floor", s.Epoch)
	}
	r.want("lease_expired", held.call("release", h.Epoch, h.Wake).with("acks", held.acks(r.tail(held))))
	if s := r.state(held); s.State != "waking" || s.Acked != acked || s.Epoch < after.Epoch {
		t.Errorf("after epoch %d comes %+v", h.Epoch, s)
	}
	if n := one[int](r, `select count(*) from rouse.epoch_floors`); n != 2 {
		t.Errorf("%d floors for two timelines", n)
	}
	r.hold()
}

// Whoever restores a snapshot says so.
func TestEpochsAreRaisedByHand(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("mac", 0)
	e := r.entity("/chat/a", toRunner("mac"))
	r.push(e)
	r.route(e)
	first := r.want("granted", e.acquire())
	r.want("released", e.call("release", first.Epoch, first.Wake).with("acks", e.acks(r.tail(e))))
	floor := one[int64](r, `select rouse.epochs_raise('restored')`)
	again := one[int64](r, `select rouse.epochs_raise('restored again')`)
	if again < floor+1_000_000 {
		t.Errorf("raised by hand to %d, and then to %d", floor, again)
	}
	r.push(e)
	r.route(e)
	if s := r.state(e); s.Epoch != again {
		t.Errorf("the next epoch is %d, not %d", s.Epoch, again)
	}
}

// TestTwoThatGoOnFromOneStateHaveTheirOwnEpochs: a backup that is restored twice,
// or two standbys that are promoted one after the other, know nothing of each
// other. What a holder still has of the one is not granted again by the other.
func TestTwoThatGoOnFromOneStateHaveTheirOwnEpochs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("mac", 0)
	e := r.entity("/chat/a", toRunner("mac"))
	r.push(e)
	for name, raise := range map[string]func(){"promoted": r.promote, "by hand": func() { r.exec(`select rouse.epochs_raise('restored')`) }} {
		var first, second int64
		for _, epoch := range []*int64{&first, &second} {
			r.exec(`begin`)
			raise()
			r.route(e)
			*epoch = r.state(e).Epoch
			at := one[time.Time](r, `select clock_timestamp()`)
			r.exec(`rollback`)
			soon.Until(t, "time passes", func() bool { return one[bool](r, `select clock_timestamp() > $1::timestamptz + interval '5 ms'`, at) })
		}
		if second < first+5 {
			t.Errorf("%s: after epoch %d of the first, the second begins with %d", name, first, second)
		}
	}
}

// TestTheFloorRisesOnce: whoever comes at the same moment waits for whoever
// raises it, and finds it raised.
func TestTheFloorRisesOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.promote()
	const crowd = 8
	floors := make([]int64, crowd)
	var wg sync.WaitGroup
	for i := range crowd {
		conn := r.db.Conn(t)
		wg.Go(func() {
			err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				return tx.QueryRow(t.Context(), `select rouse._epoch_floor()`).Scan(&floors[i])
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, f := range floors {
		if f != floors[0] || f < 1_000_000 {
			t.Fatalf("floors %v", floors)
		}
	}
}

// BenchmarkEpochFloor is what each grant and each batch of wakes pays.
func BenchmarkEpochFloor(b *testing.B) {
	r := newRig(b)
	const calls = 10_000
	for b.Loop() {
		began := time.Now()
		r.exec(`do $$ declare x bigint; begin for i in 1..10000 loop x := rouse._epoch_floor(); end loop; end $$`)
		b.ReportMetric(float64(time.Since(began).Microseconds())/calls, "µs/call")
	}
}
