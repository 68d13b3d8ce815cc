package subscriptiontest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rouse-run/rouse/sql/interleave"
)

// invariants are queries that find what must never be there.
var invariants = []struct{ name, sql string }{
	{"whatever is unread is marked",
		`select k.consumer_id from rouse.consumer_streams k join rouse.streams s on s.id = k.stream_id where k.link_type <> 'own' and s.tail > k.acked and not k.behind and s.path is not null`},
	{"the cursor is within the stream",
		`select k.consumer_id from rouse.consumer_streams k join rouse.streams s on s.id = k.stream_id where k.acked > s.tail or k.acked < 0`},
	{"a stream that is watched says so",
		`select k.consumer_id from rouse.consumer_streams k join rouse.streams s on s.id = k.stream_id where k.link_type <> 'own' and s.watched & 1 = 0 and s.path is not null`},
	{"a stream that has gone is watched by nobody",
		`select k.consumer_id from rouse.consumer_streams k join rouse.streams s on s.id = k.stream_id where k.link_type <> 'own' and s.deleted_at is not null`},
	{"a waking or claimed mutex has exactly its wake open; no other has one",
		`select c.id from rouse.consumers c
		  left join rouse.wake_notifications n on n.service_id = c.service_id and n.consumer_id = c.name and n.resolved_at is null
		 where (c.state in ('waking', 'claimed')) <> (n.wake_id is not null) or n.wake_id <> c.wake_id or n.epoch <> c.epoch
		    or (n.claim_status = 'claimed') <> (c.state = 'claimed')`},
	{"a claimed mutex has its one active claim; no other has one",
		`select c.id from rouse.consumers c left join rouse.consumer_claims k on k.service_id = c.service_id and k.consumer_id = c.name and k.status = 'active'
		 where (c.state = 'claimed') <> (k.epoch is not null) or k.epoch <> c.epoch`},
}

// broken says which invariant does not hold, or "".
func (r *rig) broken() string {
	r.t.Helper()
	for _, v := range invariants {
		if n := one[int](r, `select count(*) from (`+v.sql+`) q`); n > 0 {
			return fmt.Sprintf("%s: %d findings", v.name, n)
		}
	}
	return ""
}

// nothingLost scans as the gateway does and then demands that whatever is unread
// has somebody who was told.
func (r *rig) nothingLost() {
	r.t.Helper()
	r.exec(`select rouse._claim_reap(100, $1)`, r.now)
	r.exec(`select rouse._dispatch_route(array_agg(stream_id), array_agg("position"), $1) from rouse.subscription_scan(0, 10000) where stream_id is not null`, r.now)
	if why := r.broken(); why != "" {
		r.t.Fatal("after the scan: " + why)
	}
	if n := one[int](r, `select count(*) from rouse.consumers c where c.kind = 'subscription' and c.state = 'idle' and rouse._consumer_pending(c.id)`); n > 0 {
		r.t.Fatalf("%d subscriptions have something unread and nobody is told", n)
	}
}

// call is one statement of a session; it answers a word.
type call = interleave.Call

func sqlCall(name, sql string, args ...any) call { return call{Name: name, SQL: sql, Args: args} }

// world is what a pair of sessions meets on: a subscription, claimed and with an
// unread stream, fresh for each schedule.
type world struct {
	s       sub
	g       answer
	path    string
	stream  int64
	tail    int64
	n       int
	second  string // another stream of the subscription's, up to date
	wStream string
}

func (r *rig) world(n int) world {
	w := world{n: n, path: fmt.Sprintf("p%d/a", n), second: fmt.Sprintf("p%d/b", n), wStream: fmt.Sprintf("w%d", n)}
	r.make(w.second, `{"a": 1}`)
	w.s = r.subscribe(spec{id: fmt.Sprint("s", n), typ: "pull-wake", wakeStream: w.wStream, pattern: fmt.Sprintf("p%d/*", n), streams: []string{w.path}})
	w.stream, w.tail = r.make(w.path, `{"a": 1}`), 8
	r.wantRoute(w.stream, "minted")
	w.g = r.want("granted", w.s.acquire("w"))
	return w
}

// gates are rows that a third session holds while both others queue up.
var gates = []string{
	`select 1 from rouse.consumers where id = :consumer for update`,
	`select 1 from rouse.streams where id = :stream for no key update`,
	`select 1 from rouse.streams where path = ':wake' for no key update`,
}

// schedules takes two sessions through every schedule of their statements. A busy
// or retry answer is asked again afterwards, as the gateway does.
func schedules(t *testing.T, a, b func(w world) []call) {
	t.Parallel()
	r := newRig(t)
	again := func(out []string, calls []call) {
		for i, o := range out {
			args := slices.Clone(calls[i].Args)
			switch o {
			case "busy":
				args[len(args)-1] = true // wait
			case "retry":
			default:
				continue
			}
			one[*string](r, calls[i].SQL, args...)
		}
	}
	interleave.Run(t, r.db, len(a(world{})), len(b(world{})), gates, func(n int) interleave.Meeting {
		w := r.world(n)
		m := interleave.Meeting{A: a(w), B: b(w),
			Gate: strings.NewReplacer(":consumer", fmt.Sprint(w.s.consumer), ":stream", fmt.Sprint(w.stream), ":wake", w.wStream)}
		m.Check = func(_ context.Context, outA, outB []string) error {
			if why := r.broken(); why != "" {
				return errors.New(why)
			}
			again(outA, m.A)
			again(outB, m.B)
			if why := r.broken(); why != "" {
				return errors.New("after asking again: " + why)
			}
			r.nothingLost()
			return nil
		}
		return m
	})
}
