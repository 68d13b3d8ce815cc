package subscription

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/e2e/world"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/gateway/soon"
)

// forgedToken is one that another key has made.
func forgedToken(t *testing.T) string {
	t.Helper()
	return mint(t, claims.NewKeys(), claims.Token{Purpose: claims.Hold, Service: 1, Consumer: 1, Epoch: 1, Wake: uuid.NewString()})
}

func mint(t *testing.T, keys string, k claims.Token) string {
	t.Helper()
	ring, err := claims.ParseKeys(keys)
	if err != nil {
		t.Fatal(err)
	}
	return claims.NewTokens(ring).Mint(k)
}

// A worker claims, says how far it has come, and finishes; what comes meanwhile
// wakes with the next generation, once.
func TestAWorkersLife(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	other := r.at(1)
	r.pool("p", object{"pattern": "jobs/**"})
	r.do(409, "NO_PENDING_WORK", "POST", subPath("p")+"/claim", object{"worker": "w1"})
	r.stream("jobs/a/1", `{"n":1}`, `{"n":2}`)
	entries := r.wake("wakes/p", 1)
	if e := entries[0]; e["type"] != "wake" || e["subscription_id"] != "p" || e["stream"] != "jobs/a/1" || e["generation"] != 1.0 || e["ts"] == nil || len(e) != 5 {
		t.Errorf("the entry is %v", e) // and there is nothing secret in it
	}
	c := other.claim("p", "w1")
	if c.Generation != 1 || c.LeaseTTL != 10_000 || c.SubscriptionID != "p" || len(c.Streams) != 1 || !c.Streams[0].Pending || c.Streams[0].Link != "glob" ||
		len(c.TriggeredBy) != 1 || c.TriggeredBy[0] != "jobs/a/1" || c.Entity != nil || c.WriteToken != "" {
		t.Errorf("%+v", c)
	}
	for range 2 {
		a := r.do(409, "ALREADY_CLAIMED", "POST", subPath("p")+"/claim", object{"worker": "w2"})
		held := world.Into[struct {
			Error struct {
				Holder     string `json:"current_holder"`
				Generation int64
			}
		}](t, a).Error
		if held.Holder != "w1" || held.Generation != 1 {
			t.Errorf("%s", a.Raw)
		}
	}
	if s := r.get("p"); s.State != "claimed" || s.Generation != 1 {
		t.Errorf("%+v", s)
	}
	// Both messages, though the wake may have been made between them.
	_, first, _, _ := r.Page(t.Context(), "/jobs/a/1", "-1")
	// Part of the work, from the other gateway; then more of it comes.
	if got := string(r.turn(200, "", "p", "ack", c, c.Token, object{"acks": acks("jobs/a/1", first)}).Raw); got != `{"ok":true,"next_wake":false}` {
		t.Errorf("%s", got)
	}
	r.append("jobs/a/1", `{"n":3}`)
	r.stream("jobs/b", `{"n":1}`)
	r.wake("wakes/p", 1) // not while somebody is at it
	got := r.at(1).turn(200, "", "p", "ack", c, c.Token, object{"acks": acks("/jobs/a/1", first), "done": true})
	if string(got.Raw) != `{"ok":true,"next_wake":true}` {
		t.Errorf("%s", got.Raw)
	}
	r.wake("wakes/p", 2)
	next := r.claim("p", "w2")
	if next.Generation != 2 || next.WakeID == c.WakeID || len(next.Streams) < 2 {
		t.Errorf("%+v", next)
	}
	// The one before is fenced, whatever it says.
	for _, action := range []string{"ack", "release"} {
		r.turn(409, "FENCED", "p", action, c, c.Token, nil)
		r.turn(409, "FENCED", "p", action, next, c.Token, nil)
	}
	r.turn(409, "FENCED", "p", "ack", c, next.Token, nil)
	if a := r.turn(204, "", "p", "release", next, next.Token, nil); len(a.Raw) != 0 {
		t.Errorf("%s", a.Raw)
	}
	// A release without acks leaves the work, so there is a third.
	r.wake("wakes/p", 3)
	third := r.claim("p", "w3")
	r.turn(200, "", "p", "ack", third, third.Token, object{"acks": acks("jobs/a/1", third.tail(t, "jobs/a/1"), "jobs/b", third.tail(t, "jobs/b")), "done": true})
	r.turn(409, "FENCED", "p", "ack", third, third.Token, object{"done": true})
	if s := r.get("p"); s.State != "idle" || s.Generation != 3 {
		t.Errorf("%+v", s)
	}
	type page struct{ Wakes []wire.Answer }
	if n := len(world.Into[page](t, r.do(200, "", "GET", subPath("p")+"/wakes?limit=2", nil)).Wakes); n != 2 {
		t.Errorf("%d wakes are listed", n)
	}
}

// Offsets that no cursor can go to are refused, and with them the whole call.
func TestOffsets(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	r.pool("p", object{"pattern": "jobs/*"})
	r.stream("jobs/a", `{"n":1}`)
	r.stream("jobs/b", `{"n":1}`)
	r.stream("other/c", `{"n":1}`)
	r.wake("wakes/p", 1)
	c := r.claim("p", "w")
	var tail string
	r.Eventually("both are there", func() bool {
		_, next, _, _ := r.Page(t.Context(), "/jobs/a", "-1")
		tail = next
		return tail != ""
	})
	r.turn(200, "", "p", "ack", c, c.Token, object{"acks": acks("jobs/a", tail)})
	r.turn(200, "", "p", "ack", c, c.Token, object{"acks": acks("jobs/a", tail)}) // the same again is no step back
	const zeros = "0000000000000000_"
	for name, list := range map[string][]object{
		"the start": acks("jobs/a", "-1"), "zero": acks("jobs/a", zeros+"0000000000000000"), "below": acks("jobs/a", zeros+"0000000000000001"),
		"beyond": acks("jobs/a", zeros+"0000000000999999"), "now": acks("jobs/a", "now"), "nothing": acks("jobs/a", ""), "words": acks("jobs/a", "a while ago"),
		"negative": acks("jobs/a", "-2"), "huge": acks("jobs/a", zeros+"9999999999999999"), "long": acks("jobs/a", strings.Repeat("0", 100)),
		"a stream that is not watched": acks("other/c", tail), "no such stream": acks("jobs/nobody", tail), "a good one first": acks("jobs/b", tail, "jobs/a", "-1"),
	} {
		r.turn(409, "INVALID_OFFSET", "p", "ack", c, c.Token, object{"acks": list})
		if a := r.turn(409, "INVALID_OFFSET", "p", "ack", c, c.Token, object{"acks": list, "done": true}); t.Failed() {
			t.Fatalf("%s: %s", name, a.Raw)
		}
	}
	for name, more := range map[string]object{
		"acks of a kind": {"acks": "all"}, "an ack of a kind": {"acks": []any{1}}, "an offset of a kind": {"acks": []object{{"stream": "jobs/a", "offset": 1}}},
		"no stream": {"acks": []object{{"offset": tail}}}, "a control character": {"acks": acks("jobs/\na", tail)}, "done of a kind": {"done": "yes"},
		"generation of a kind": {"generation": "1"}, "generation zero": {"generation": 0}, "a wake of a kind": {"wake_id": 7}, "NUL": {"error": "a\x00", "done": true},
	} {
		if r.turn(400, "INVALID_REQUEST", "p", "ack", c, c.Token, more); t.Failed() {
			t.Fatal(name)
		}
	}
	many := make([]object, 1001)
	for i := range many {
		many[i] = object{"stream": "jobs/a", "offset": tail}
	}
	r.turn(400, "INVALID_REQUEST", "p", "ack", c, c.Token, object{"acks": many})
	for name, more := range map[string]object{"another generation": {"generation": 2}, "a huge generation": {"generation": int64(1) << 61}, "another wake": {"wake_id": uuid.NewString()}, "no wake": {"wake_id": "w"}} {
		if r.turn(409, "FENCED", "p", "ack", c, c.Token, more); t.Failed() {
			t.Fatal(name)
		}
	}
	// None of it did anything.
	for _, s := range r.get("p").Streams {
		if s.Path == "jobs/b" && s.Acked == tail {
			t.Errorf("%+v", s)
		}
	}
	if s := r.get("p"); s.State != "claimed" {
		t.Errorf("%+v", s)
	}
	r.turn(200, "", "p", "ack", c, c.Token, object{"acks": acks("jobs/b", tail), "done": true})
}

// Only this subscription's own, current token speaks for its lease.
func TestTokens(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	r.pool("a", object{"pattern": "jobs/*"})
	r.pool("b", object{"pattern": "jobs/*"})
	r.stream("jobs/1", `{"n":1}`)
	r.wake("wakes/a", 1)
	r.wake("wakes/b", 1)
	a, b := r.claim("a", "w"), r.claim("b", "w")
	consumer := world.One[int64](r.World, `select consumer_id from rouse.subscriptions where id = 'a'`)
	named := claims.Token{Service: 1, Consumer: consumer, Epoch: 1, Wake: a.WakeID}
	purposed := func(p claims.Purpose, service int32) string {
		k := named
		k.Purpose, k.Service = p, service
		return mint(t, servertest.TestKeys, k)
	}
	for name, token := range map[string]string{
		"junk": "junk", "a prefix": "rouse_ht_", "cut": a.Token[:len(a.Token)-1], "longer": a.Token + "A", "another key's": forgedToken(t), "the other subscription's": b.Token,
		"a write token": purposed(claims.Write, 1), "another service's": purposed(claims.Hold, 2), "long": "rouse_ht_" + strings.Repeat("A", 10_000),
	} {
		for _, action := range []string{"ack", "release"} {
			if r.turn(401, "TOKEN_INVALID", "a", action, a, token, nil); t.Failed() {
				t.Fatal(name)
			}
		}
	}
	for _, action := range []string{"ack", "release", "callback"} {
		for _, h := range [][]string{{}, {"Authorization", "Basic eDp5"}, {"Authorization", a.Token}, {"Authorization", "Bearer"}} {
			r.as("").do(401, "TOKEN_INVALID", "POST", subPath("a")+"/"+action, object{"wake_id": a.WakeID, "generation": 1}, h...)
		}
	}
	// A token is no credential for anything else.
	if got := r.as("").Do(t.Context(), "PUT", subPath("c"), object{"type": "pull-wake", "pattern": "x", "wake_stream": "w"}, map[string]string{"Authorization": "Bearer " + a.Token}); got.Status == 201 {
		if s := r.as("system:dev-local").get("c"); s.Owner != "/principal/system%3Adev-local" {
			t.Errorf("the token made %+v", s)
		}
	}
	// Both spellings of the header, and the scheme in any case.
	r.as("").do(200, "", "POST", subPath("a")+"/ack", object{}, "electric-claim-token", a.Token)
	r.as("").do(200, "", "POST", subPath("a")+"/ack", nil, "Authorization", "bearer "+a.Token)
	// What was done to one has not touched the other.
	r.turn(200, "", "b", "ack", b, b.Token, object{"acks": acks("jobs/1", b.tail(t, "jobs/1")), "done": true})
	r.turn(200, "", "a", "ack", a, a.Token, object{"acks": acks("jobs/1", a.tail(t, "jobs/1")), "done": true})
}

// A webhook's subscription is not claimed, acked or released by workers.
func TestKindsOfSubscriptions(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	r.hook("", "h", "http://127.0.0.1:9/", object{"pattern": "jobs/*"})
	r.do(400, "INVALID_REQUEST", "POST", subPath("h")+"/claim", object{"worker": "w"})
	for _, action := range []string{"ack", "release"} {
		r.as("").do(400, "INVALID_REQUEST", "POST", subPath("h")+"/"+action, object{}, "Authorization", "Bearer "+forgedToken(t))
	}
}

// A claim whose answer was lost is asked for again by its name, and only so.
func TestALostAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	r.pool("p", object{"pattern": "jobs/*"})
	r.stream("jobs/1", `{"n":1}`)
	r.wake("wakes/p", 1)
	ask := object{"worker": "w", "claim_id": "attempt-1"}
	first := world.Into[claimed](t, r.do(200, "", "POST", subPath("p")+"/claim", ask))
	second := world.Into[claimed](t, r.do(200, "", "POST", subPath("p")+"/claim", ask))
	if first.Token == "" || first.Token != second.Token || first.WakeID != second.WakeID || second.Generation != 1 {
		t.Errorf("%+v\n%+v", first, second)
	}
	r.do(409, "ALREADY_CLAIMED", "POST", subPath("p")+"/claim", object{"worker": "w", "claim_id": "attempt-2"})
	r.do(409, "ALREADY_CLAIMED", "POST", subPath("p")+"/claim", object{"worker": "w"})
}

// A worker that dies is followed by another one when its lease is over: the
// claim is shown as expired, the work has the next generation, and the dead
// one's late answers are fenced. One that lives keeps its lease by saying so.
func TestADeadWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	r.pool("p", object{"pattern": "jobs/*", "lease_ttl_ms": 3000})
	r.stream("jobs/1", `{"n":1}`)
	r.wake("wakes/p", 1)
	c := r.claim("p", "dead")
	began := time.Now()
	// Signs of life, for more than a lease.
	for time.Since(began) < 4*time.Second {
		r.turn(200, "", "p", "ack", c, c.Token, nil)
		if left := world.One[float64](r.World, `select extract(epoch from lease_expires_at - clock_timestamp())::float8 from rouse.consumer_claims`); left < 0.2 || left > 3.01 {
			t.Fatalf("%v s of the lease are left", left)
		}
	}
	r.wake("wakes/p", 1)
	entries := r.wake("wakes/p", 2) // it dies
	if entries[1]["generation"] != 2.0 {
		t.Errorf("%v", entries[1])
	}
	if status := world.One[string](r.World, `select status::text from rouse.consumer_claims where epoch = 1`); status != "expired" {
		t.Errorf("the claim is %s", status)
	}
	r.turn(409, "FENCED", "p", "ack", c, c.Token, object{"acks": acks("jobs/1", c.tail(t, "jobs/1")), "done": true})
	next := r.at(1).claim("p", "alive")
	if next.Generation != 2 || next.TriggerHow != "lease_expired" {
		t.Errorf("%+v", next)
	}
	r.turn(200, "", "p", "ack", next, next.Token, object{"acks": acks("jobs/1", next.tail(t, "jobs/1")), "done": true})
}

// Cursors, tails and offsets move together: a worker that acks what it was told
// of is never told that it cannot be, however many append at that moment, and in
// the end it has been told of everything.
func TestAcksWhileOthersAppend(t *testing.T) {
	t.Parallel()
	const writers, each = 6, 40
	r := newRig(t, 2, nil)
	r.pool("p", object{"pattern": "jobs/*"})
	for i := range 3 {
		r.stream(fmt.Sprint("jobs/", i))
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				a := r.at(w%2).Do(t.Context(), "POST", fmt.Sprintf("/jobs/%d", (w+n)%3), fmt.Sprintf(`{"w":%d,"n":%d}`, w, n), nil)
				if a.Status != 204 {
					t.Errorf("append: %v", a)
				}
			}
		})
	}
	written := make(chan struct{})
	go func() { wg.Wait(); close(written) }()
	acked := map[string]string{}
	var generation int64
	over := false
	for deadline := time.Now().Add(soon.Bound); ; {
		if time.Now().After(deadline) {
			t.Fatalf("the worker is at %v", acked)
		}
		a := r.at(int(generation%2)).Do(t.Context(), "POST", subPath("p")+"/claim", object{"worker": "w"}, nil)
		if a.Code == "NO_PENDING_WORK" {
			if over {
				break
			}
			select {
			case <-written:
				over = true
			case <-time.After(2 * time.Millisecond):
			}
			continue
		}
		if a.Status != 200 {
			t.Fatalf("claim: %v", a)
		}
		c := world.Into[claimed](t, a)
		if c.Generation <= generation {
			t.Errorf("generation %d after %d", c.Generation, generation)
		}
		generation = c.Generation
		var list []object
		for _, s := range c.Streams {
			if s.Pending {
				list = append(list, object{"stream": s.Path, "offset": s.Tail})
				acked[s.Path] = s.Tail
			}
		}
		r.at(int(generation+1)%2).turn(200, "", "p", "ack", c, c.Token, object{"acks": list, "done": true})
	}
	<-written
	for i := range 3 {
		path := fmt.Sprint("jobs/", i)
		if _, tail, _ := r.All(t.Context(), "/"+path); acked[path] != tail {
			t.Errorf("%s: acked up to %s of %s", path, acked[path], tail)
		}
	}
	t.Logf("%d appends in %d generations", writers*each, generation)
}
