package pools

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/world"
	"github.com/rouse-run/rouse/openapi/runner"
)

// R29: a thousand entities for one pool of twenty runners on two gateways, under
// limits. Each is worked by one, once; at no moment are there more claims than the
// limits say, which the claims themselves show afterwards; and none waits much
// longer than the others.
func TestACrowdSharesAPool(t *testing.T) {
	t.Parallel()
	const runners, entities, perRunner, total = 20, crowd, 3, 40
	r := newRig(t, 2, func(c *config.Config) { c.PoolSize = 12 })
	ids := make([]string, runners)
	for i := range ids {
		ids[i] = fmt.Sprintf("w%02d", i)
	}
	r.pool("crowd", object{"maxConcurrentClaimsPerRunner": perRunner, "maxTotalClaims": total}, ids...)

	var mu sync.Mutex
	worked := map[string]int{}
	var done atomic.Int64
	for i, id := range ids {
		p := r.run(id, i%2, func(c *runner.Config) { c.Capacity = 5 }, func(ctx context.Context, c *runner.Claim) error {
			got, err := unread(ctx, c)
			if err != nil {
				return err
			}
			mu.Lock()
			worked[c.Entity()] += len(got)
			mu.Unlock()
			done.Add(int64(len(got)))
			return nil
		})
		p.until(runner.Connected)
	}
	began := time.Now()
	var spawning sync.WaitGroup
	for lane := range 8 {
		spawning.Go(func() {
			c := *r.Client
			c.Base = r.Bases[lane%2]
			for i := lane; i < entities; i += 8 {
				if a := c.Do(t.Context(), "PUT", fmt.Sprintf("/_electric/entities/task/%d", i), object{"dispatch_policy": policy(toPool("crowd", nil)), "initialMessage": "go"}, nil); a.Status != 201 {
					t.Errorf("%v %s", a, a.Raw)
				}
			}
		})
	}
	spawning.Wait()
	r.Eventually("all work is done", func() bool { return done.Load() >= entities })
	took := time.Since(began)
	r.Eventually("all claims are given back", func() bool {
		return world.One[int](r.World, `select count(*) from rouse.consumer_claims where status = 'active'`) == 0
	})
	mu.Lock()
	for e, n := range worked {
		if n != 1 {
			t.Errorf("%s was worked %d times", e, n)
		}
	}
	if len(worked) != entities {
		t.Errorf("%d entities were worked", len(worked))
	}
	mu.Unlock()

	// The claims say it themselves: one for each entity, and never more at once than may be.
	if n := world.One[int](r.World, `select count(*) from rouse.consumer_claims where pool_id = 'crowd' and status = 'released'`); n != entities {
		t.Errorf("%d claims", n)
	}
	const most = `with e as (select claimed_at as at, 1 as d, runner_id from rouse.consumer_claims where pool_id = 'crowd'
		union all select released_at, -1, runner_id from rouse.consumer_claims where pool_id = 'crowd')
		select coalesce(max(n), 0) from (select sum(d) over (%s order by at, d) as n from e) x`
	all, each := world.One[int](r.World, fmt.Sprintf(most, "")), world.One[int](r.World, fmt.Sprintf(most, "partition by runner_id"))
	if all > total || each > perRunner {
		t.Errorf("%d claims at once, of one runner %d", all, each)
	}
	shares := world.One[int](r.World, `select count(distinct runner_id) from rouse.consumer_claims where pool_id = 'crowd'`)
	waits := world.One[[]float64](r.World, `select array_agg(extract(epoch from k.claimed_at - n.created_at)::float8 * 1000) from rouse.consumer_claims k join rouse.wake_notifications n using (service_id, wake_id)`)
	slices.Sort(waits)
	mean := 0.0
	for _, w := range waits {
		mean += w / float64(len(waits))
	}
	p50, p99, longest := waits[len(waits)/2], waits[len(waits)*99/100], waits[len(waits)-1]
	t.Logf("%d entities in %v by %d of %d runners; at once %d, of one %d; waits: mean %.0f ms, p50 %.0f, p99 %.0f, longest %.0f",
		entities, took.Round(time.Millisecond), shares, runners, all, each, mean, p50, p99, longest)
	if shares < runners/2 {
		t.Errorf("only %d runners got work", shares)
	}
	// First come, first served: however long the queue, nobody stands in it for several of its lengths, nor for a good
	// part of the whole.
	if bound := math.Max(8*mean, math.Max(took.Seconds()*1000/3, 2000)); p99 > bound {
		t.Errorf("p99 of the waits is %.0f ms where the mean is %.0f and all took %v", p99, mean, took)
	}
}

// A member that is drained finishes what it holds and gets nothing more; the others
// go on.
func TestADrainedMemberFinishes(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	r.pool("coding", nil, "a", "b")
	held := make(chan struct{}, 1)
	finish := make(chan struct{})
	a := r.run("a", 0, func(c *runner.Config) { c.Liveness = 100 * time.Millisecond }, func(ctx context.Context, c *runner.Claim) error {
		held <- struct{}{}
		<-finish
		_, err := unread(ctx, c)
		return err
	})
	a.until(runner.Connected)
	r.spawn("1", policy(toPool("coding", nil)))
	<-held
	r.do(200, "PUT", "/_electric/worker-pools/coding/members/a", object{"status": "disabled"})
	type seat struct {
		RunnerID string `json:"runner_id"`
		Status   string
		Claims   int `json:"active_claims"`
	}
	pool := world.Into[struct {
		Members []seat
		Active  int `json:"active_claims"`
	}](t, r.do(200, "GET", "/_electric/worker-pools/coding", nil))
	if pool.Active != 1 || pool.Members[0] != (seat{"a", "disabled", 1}) {
		t.Errorf("%+v", pool)
	}
	r.spawn("2", policy(toPool("coding", nil)))
	w := r.waits("2", "worker-pool")
	r.Refused(403, "NOT_POOL_MEMBER", "POST", "/_electric/runners/a/claim", object{"wakeId": w.WakeID})
	b := r.run("b", 0, nil, func(ctx context.Context, c *runner.Claim) error {
		_, err := unread(ctx, c)
		return err
	})
	if e := b.until(runner.Done); e.Entity != "/task/2" {
		t.Errorf("%+v", e)
	}
	close(finish)
	if e := a.until(runner.Done); e.Entity != "/task/1" {
		t.Errorf("%+v", e)
	}
}

// A member that dies with an entity in hand is followed by another, which reads what
// was not acked; nothing that the dead one writes lands any more.
func TestAMemberThatDiesIsFollowed(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, func(c *config.Config) { c.LeaseTTL = 500 * time.Millisecond })
	r.pool("coding", object{"maxTotalClaims": 1}, "a", "b")
	r.spawn("1", policy(toPool("coding", nil)))
	w := r.waits("1", "worker-pool")
	dead := r.claims("a", w.WakeID)
	var got []string
	b := r.run("b", 1, nil, func(ctx context.Context, c *runner.Claim) (err error) {
		got, err = unread(ctx, c)
		return err
	})
	if e := b.until(runner.Done); e.Epoch != 2 || len(got) != 1 || got[0] != "hello" {
		t.Errorf("%+v %q", e, got)
	}
	if a := r.callback(dead, object{}); a.Status < 400 || a.Status >= 500 {
		t.Errorf("%v %s", a, a.Raw)
	}
	late := r.Do(t.Context(), "POST", dead.StreamPath, `{"type":"text","key":"late","value":{},"headers":{"operation":"insert"}}`, map[string]string{"electric-claim-token": dead.WriteToken})
	if late.Status < 400 || late.Status >= 500 {
		t.Errorf("%v", late)
	}
}
