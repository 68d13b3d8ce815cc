package subscriptiontest

import (
	"testing"
	"time"
)

// promote makes the database one that was promoted: it was on another timeline
// when it was last looked at.
func (r *rig) promote() {
	r.t.Helper()
	r.exec(`update rouse.epoch_floors set timeline = -1 where n = (select max(n) from rouse.epoch_floors)`)
}

// TestGenerationsJumpOverAFailover: a wake that may have been granted by the
// primary that is gone is replaced, by one that is told on the wake stream, and a
// claim that was held acks nothing any more.
func TestGenerationsJumpOverAFailover(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.subscribe(spec{id: "jobs", typ: "pull-wake", wakeStream: "wakes/jobs", pattern: "events/*"})
	r.wantRoute(r.make("events/a", `{"a": 1}`), "minted")
	before, _ := r.wakeOf(s)
	r.promote()
	r.want("stale", s.acquire("w1"))
	after, n := r.wakeOf(s)
	if after == before || n.Epoch < 1_000_000 || len(r.entries("wakes/jobs")) != 2 {
		t.Fatalf("wake %s of generation 1 is followed by %s of %d; told %v", before, after, n.Epoch, r.entries("wakes/jobs"))
	}
	g := r.want("granted", s.acquire("w1"))
	if g.Wake != after || g.Epoch != n.Epoch {
		t.Errorf("granted %+v", g)
	}

	r.promote()
	r.want("lease_expired", s.call("ack", g, ack("events/a", 8)))
	r.want("lease_expired", s.call("heartbeat", g))
	// Whoever comes takes it over at once, above the new floor.
	next := r.want("granted", s.acquire("w2"))
	if next.Epoch < g.Epoch+1_000_000 {
		t.Errorf("generation %d is followed by %d", g.Epoch, next.Epoch)
	}
	r.want("lease_expired", s.call("release", g, ack("events/a", 8)))
	r.want("released", s.call("release", next, ack("events/a", 8)))

	// A holder that is gone leaves it to the reaper.
	r.append("events/a")
	r.route(one[int64](r, `select id from rouse.streams where path = 'events/a'`))
	last := r.want("granted", s.acquire("w1"))
	r.promote()
	r.after(31 * time.Second)
	if n := one[int](r, `select expired from rouse._claim_reap(10, $1)`, r.now); n != 1 {
		t.Errorf("%d claims ended", n)
	}
	if _, n := r.wakeOf(s); n.Epoch < last.Epoch+1_000_000 {
		t.Errorf("generation %d is followed by %d", last.Epoch, n.Epoch)
	}
}
