package subscriptiontest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// span is a range of a stream that a granted wake told of.
type span struct{ from, to int64 }

// TestACrowdLosesNothing lets appenders, workers, routers, and people who change
// what is watched run against each other by the real clock. In the end every
// position that was appended lies in the range of a granted wake of every
// subscription that watched its stream all the time, and nobody ever waited for
// somebody who waited for him.
func TestACrowdLosesNothing(t *testing.T) {
	t.Parallel()
	const streams, subscriptions, appenders, workers, changers = 6, 4, 3, 4, 2
	r := newRig(t)
	var subs []sub
	for i := range subscriptions {
		s := spec{id: fmt.Sprint("s", i), pattern: "work/*", lease: 60000}
		if i%2 == 0 {
			s.typ, s.wakeStream = "pull-wake", fmt.Sprint("wakes/", i)
		}
		subs = append(subs, r.subscribe(s))
	}
	var paths []string
	for i := range streams {
		paths = append(paths, fmt.Sprint("work/", i))
		r.make(paths[i], "")
	}
	for i := range changers { // these come and go
		r.make(fmt.Sprint("side/", i), "")
		r.subscribe(spec{id: fmt.Sprint("side", i), streams: []string{fmt.Sprint("side/", i)}})
	}
	everything := append([]string{"side/0", "side/1"}, paths...)

	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	stop := make(chan struct{})
	errs := make(chan error, 64)
	var appending, rest sync.WaitGroup
	var grants atomic.Int64
	// A victim of a deadlock was rolled back whole: the store makes the call again.
	var victims atomic.Int64
	again := func(f func() error) error {
		for try := 1; ; try++ {
			err := f()
			var pe *pgconn.PgError
			if try == 3 || !errors.As(err, &pe) || pe.Code != pgerrcode.DeadlockDetected {
				return err
			}
			victims.Add(1)
		}
	}
	run := func(wg *sync.WaitGroup, f func(c *pgx.Conn) error) {
		c := r.db.Conn(t)
		wg.Go(func() {
			if err := f(c); err != nil {
				errs <- err
			}
		})
	}
	for range appenders {
		run(&appending, func(c *pgx.Conn) error {
			for grants.Load() < 200 {
				// Two streams in one transaction, in any order, without waiting.
				i := rand.Perm(len(everything))[:2]
				if err := again(func() error {
					rows, err := c.Query(ctx, `select outcome from rouse.stream_append(array[1, 1], array[$1, $2], array['application/json', 'application/json'], array[false, false],
					array[true, true], array[8::bigint, 8], array[1, 2], array[8::bigint, 8], array['{"a": 1}'::bytea, '{"a": 1}'], array[1, 1], array[null::text, null],
					null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null, false)`, everything[i[0]], everything[i[1]])
					if err != nil {
						return err
					}
					_, err = pgx.CollectRows(rows, pgx.RowTo[string])
					return err
				}); err != nil {
					return fmt.Errorf("append: %w", err)
				}
			}
			return nil
		})
	}
	var mu sync.Mutex
	told := map[string][]span{} // by subscription and stream
	// work claims, notes what it was told of, and acks some or all of it.
	work := func(c *pgx.Conn, s sub, whole bool) (claimed bool, err error) {
		apply := func(o op) (a answer, err error) {
			err = again(func() error {
				rows, err := c.Query(ctx, `select (a).outcome, coalesce((a).epoch, 0), coalesce((a).wake_id::text, ''), coalesce((a).holder, ''), coalesce((a).lease_ms, 0),
				(a).next_wake, (a).notification from (select answer as a from rouse.claim_apply($1, $2)) t`, opsJSON(o), whole || rand.IntN(2) == 0)
				if err != nil {
					return err
				}
				a, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[answer])
				return err
			})
			return a, err
		}
		g, err := apply(s.acquire("w"))
		if err != nil || g.Outcome != "granted" {
			return false, err
		}
		grants.Add(1)
		var n notification
		if err := json.Unmarshal(g.Notification, &n); err != nil {
			return false, err
		}
		var acks []any
		mu.Lock()
		for _, x := range n.Streams {
			from, _ := strconv.ParseInt(strings.TrimPrefix(x.AckedOffset, "0000000000000000_"), 10, 64)
			to, _ := strconv.ParseInt(strings.TrimPrefix(x.TailOffset, "0000000000000000_"), 10, 64)
			told[s.id+" "+x.Path] = append(told[s.id+" "+x.Path], span{max(from, 0), to})
			if whole || rand.IntN(3) > 0 {
				acks = append(acks, ack(x.Path, to))
			}
		}
		mu.Unlock()
		for {
			a, err := apply(s.call("release", g, acks...))
			if err != nil || a.Outcome != "busy" {
				if err == nil && a.Outcome != "released" {
					err = errors.New("release: " + a.Outcome)
				}
				return true, err
			}
		}
	}
	until := func(f func() error) error {
		for {
			select {
			case <-stop:
				return nil
			default:
			}
			if err := f(); err != nil {
				return err
			}
		}
	}
	for range workers {
		run(&rest, func(c *pgx.Conn) error {
			return until(func() error {
				_, err := work(c, subs[rand.IntN(len(subs))], false)
				return err
			})
		})
	}
	route := func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, `select rouse.dispatch_route(array_agg(id), array_agg(tail)) from (select s.id, s.tail from rouse.streams s where s.watched & 1 = 1 order by random() limit 4) s`)
		return err
	}
	for range 2 {
		run(&rest, func(c *pgx.Conn) error { return until(func() error { return route(c) }) })
	}
	for i := range changers {
		run(&rest, func(c *pgx.Conn) error {
			id, path := fmt.Sprint("side", i), fmt.Sprint("side/", i)
			return until(func() error {
				for _, sql := range []string{
					`select rouse.subscription_unwatch(1, $1, 'x', $2)`,
					`select rouse.subscription_watch(1, $1, 'x', array[$2])`,
					`select rouse.subscription_settle(1, $1, null, null, length($2) + 100)`,
					`select rouse.subscription_register(1, 'x' || $1, 'webhook', 'work/*', array[$2], null, 'https://x', null, null, 1000, '', 'x', true)`,
					`select rouse.subscription_settle(1, 'x' || $1, null, null, length($2) + 100)`,
					`select rouse.subscription_delete(1, 'x' || $1, $2)`,
					`select rouse.subscription_tidy(length($1 || $2))`,
				} {
					if err := again(func() error { _, err := c.Exec(ctx, sql, id, path); return err }); err != nil {
						return fmt.Errorf("%s: %w", sql, err)
					}
				}
				return nil
			})
		})
	}
	appending.Wait()
	close(stop)
	rest.Wait()
	close(errs)
	for err := range errs {
		var pe *pgconn.PgError
		if errors.As(err, &pe) {
			err = fmt.Errorf("%w\n%s\n%s", err, pe.Detail, pe.Where)
		}
		t.Error(err)
	}
	if why := r.broken(); why != "" {
		t.Fatal(why)
	}
	// Then the scan and one worker see to what is left.
	for round := 0; ; round++ {
		r.exec(`select rouse.dispatch_route(array_agg(stream_id), array_agg("position")) from rouse.subscription_scan(0, 100) where stream_id is not null`)
		left := false
		for _, s := range subs {
			claimed, err := work(r.c, s, true)
			if err != nil {
				t.Fatal(err)
			}
			left = left || claimed
		}
		if !left {
			break
		}
		if round > 100 {
			t.Fatal("there is always more to do")
		}
	}
	if why := r.broken(); why != "" {
		t.Fatal(why)
	}
	for _, path := range paths {
		tail := one[int64](r, `select tail from rouse.streams where path = $1`, path)
		for _, s := range subs {
			at := int64(0)
			for again := true; again; {
				again = false
				for _, x := range told[s.id+" "+path] {
					if x.from <= at && x.to > at {
						at, again = x.to, true
					}
				}
			}
			if at != tail {
				t.Errorf("%s was told of %s up to %d of %d", s.id, path, at, tail)
			}
		}
	}
	t.Logf("%d grants, %d victims of deadlocks", grants.Load(), victims.Load())
}
