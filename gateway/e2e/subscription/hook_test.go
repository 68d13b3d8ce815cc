package subscription

import (
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rouse-run/rouse/gateway/e2e/world"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

func accepts(claimed) (int, string)  { return 200, `{"ok":true}` }
func finishes(claimed) (int, string) { return 200, `{"done":true}` }

// path is what of a URL lies behind the gateway's address.
func path(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		t.Fatalf("%s is no URL", raw)
	}
	return u.RequestURI()
}

// A receiver that answers {"done":true} has worked what it was told of, at
// either mount.
func TestReceiversThatFinish(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	for i, mount := range mounts {
		hook := newReceiver(t, finishes)
		id := fmt.Sprint("hook:", i) // a colon, as clients of the ecosystem have them
		r.hook(mount, id, hook.url, object{"pattern": fmt.Sprintf("in%d/*", i)})
		name := fmt.Sprintf("in%d/a", i)
		r.stream(name, `{"n":1}`)
		c := hook.post()
		if c.SubscriptionID != id || c.Generation != 1 || c.WakeID == "" || c.key != c.WakeID || c.CallbackToken == "" || c.sig == "" || c.Entity != nil ||
			!strings.HasSuffix(c.CallbackURL, mount+"/__ds/subscriptions/"+id+"/callback") || len(c.Streams) != 1 || c.Streams[0].Path != name || !c.Streams[0].Pending {
			t.Errorf("%s", c.body)
		}
		r.Eventually("what it was told of is acked", func() bool {
			s := r.get(id)
			return s.State == "idle" && len(s.Streams) == 1 && s.Streams[0].Acked == c.tail(t, name) && !s.Streams[0].Pending
		})
		r.append(name, `{"n":2}`)
		if next := hook.post(); next.Generation != 2 || next.WakeID == c.WakeID {
			t.Errorf("%s", next.body)
		}
	}
}

// A receiver calls back: its first call takes the lease, each keeps it, the last
// one gives it back; two subscriptions do not disturb each other.
func TestReceiversThatCallBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	hooks, wakes := map[string]*receiver{}, map[string]claimed{}
	for i, id := range []string{"a", "b"} {
		hooks[id] = newReceiver(t, accepts)
		r.hook(mounts[i], id, hooks[id].url, object{"pattern": "in/*"})
	}
	r.stream("in/1", `{"n":1}`)
	for id := range hooks {
		wakes[id] = hooks[id].post()
	}
	a, b := wakes["a"], wakes["b"]
	if a.CallbackToken == b.CallbackToken || a.WakeID == b.WakeID {
		t.Error("they share something")
	}
	// Another's token is no good, with either's names.
	r.turn(401, "TOKEN_INVALID", "a", "callback", claimed{WakeID: b.WakeID, Generation: 1}, b.CallbackToken, nil)
	r.turn(409, "FENCED", "a", "callback", claimed{WakeID: b.WakeID, Generation: 1}, a.CallbackToken, nil)
	for _, junk := range []string{"junk", forgedToken(t), a.CallbackToken + "A"} {
		r.turn(401, "TOKEN_INVALID", "a", "callback", a, junk, object{"done": true})
	}
	if n := world.One[int](r.World, `select count(*) from rouse.consumer_claims`); n != 0 {
		t.Errorf("%d claims", n)
	}
	// The URL that came with it, and the other gateway.
	a1 := r.as("").do(200, "", "POST", path(t, a.CallbackURL), object{"wake_id": a.WakeID, "generation": 1}, "Authorization", "Bearer "+a.CallbackToken)
	if string(a1.Raw) != `{"ok":true,"next_wake":false}` {
		t.Errorf("%s", a1.Raw)
	}
	if s := r.get("a"); s.State != "claimed" {
		t.Errorf("%+v", s)
	}
	r.append("in/1", `{"n":2}`)
	r.at(1).turn(200, "", "a", "callback", a, a.CallbackToken, object{"acks": acks("in/1", a.tail(t, "in/1"))})
	if got := r.at(1).turn(200, "", "a", "callback", a, a.CallbackToken, object{"done": true}); string(got.Raw) != `{"ok":true,"next_wake":true}` {
		t.Errorf("%s", got.Raw)
	}
	r.turn(409, "FENCED", "a", "callback", a, a.CallbackToken, object{"done": true})
	r.turn(409, "FENCED", "a", "callback", a, a.CallbackToken, nil)
	next := hooks["a"].post()
	if next.Generation != 2 {
		t.Errorf("%s", next.body)
	}
	// Everything in one call, and a refused ack undoes no more than itself.
	r.turn(409, "INVALID_OFFSET", "a", "callback", next, next.CallbackToken, object{"acks": acks("in/1", "0000000000000000_0000000000999999"), "done": true})
	if got := r.turn(200, "", "a", "callback", next, next.CallbackToken, object{"acks": acks("/in/1", next.tail(t, "in/1")), "done": true}); string(got.Raw) != `{"ok":true,"next_wake":false}` {
		t.Errorf("%s", got.Raw)
	}
	// b was not touched by any of it.
	if got := r.turn(200, "", "b", "callback", b, b.CallbackToken, object{"acks": acks("in/1", b.tail(t, "in/1")), "done": true}); string(got.Raw) != `{"ok":true,"next_wake":true}` {
		t.Errorf("%s", got.Raw)
	}
}

// A receiver that says that it will call back and then dies is told again: of
// the same wake when it had not taken the lease, of the next one when it had,
// and both can be seen.
func TestReceiversThatDie(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	hook := newReceiver(t, accepts)
	r.hook("", "h", hook.url, object{"pattern": "in/*", "lease_ttl_ms": 1000})
	r.stream("in/1", `{"n":1}`)
	first := hook.post()
	again := hook.post()
	if again.WakeID != first.WakeID || again.key != first.key || again.Generation != 1 {
		t.Errorf("%s\n%s", first.body, again.body)
	}
	r.turn(200, "", "h", "callback", again, again.CallbackToken, nil)
	next := hook.post()
	for next.WakeID == first.WakeID { // told once more before the call back
		next = hook.post()
	}
	if next.Generation != 2 || next.TriggerHow != "lease_expired" {
		t.Errorf("%s", next.body)
	}
	if status := world.One[string](r.World, `select status || ' ' || error from rouse.consumer_claims where epoch = 1`); status != "expired The lease ended without a release." {
		t.Error(status)
	}
	// Its token is not worth anything any more, the next one's is.
	r.turn(409, "FENCED", "h", "callback", again, again.CallbackToken, object{"done": true})
	r.turn(200, "", "h", "callback", next, next.CallbackToken, object{"acks": acks("in/1", next.tail(t, "in/1")), "done": true})
	type file struct {
		Attempts   int
		Deliveries []struct {
			Attempt int
			Outcome string
		}
	}
	f := world.Into[file](t, r.do(200, "", "GET", "/_electric/wakes/"+first.WakeID, nil))
	if f.Attempts < 2 || len(f.Deliveries) != f.Attempts || f.Deliveries[0].Outcome != "accepted" {
		t.Errorf("%+v", f)
	}
}

// 410 ends the attempts and shows; a person, or the next message, tries again.
func TestReceiversThatAreGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	status := atomic.Int32{}
	status.Store(410)
	hook := newReceiver(t, func(claimed) (int, string) { return int(status.Load()), `{"done":true}` })
	r.hook("", "h", hook.url, object{"pattern": "in/*"})
	r.stream("in/1", `{"n":1}`)
	c := hook.post()
	r.Eventually("it is failed", func() bool { s := r.get("h"); return s.Status == "failed" && strings.Contains(s.LastError, "410") })
	if due := world.One[bool](r.World, `select exists (select from rouse.wake_notifications where next_attempt_at is not null)`); due {
		t.Error("it is tried on")
	}
	wake := "/_electric/wakes/" + c.WakeID
	r.as("user:mallory").do(401, "UNAUTHORIZED", "GET", wake, nil)
	r.as("user:mallory").do(401, "UNAUTHORIZED", "POST", wake+"/redeliver", nil)
	r.do(200, "", "POST", wake+"/redeliver", nil)
	if again := hook.post(); again.WakeID != c.WakeID || again.key != c.key {
		t.Errorf("%s", again.body)
	}
	r.Eventually("it is failed again", func() bool { return r.get("h").Status == "failed" })
	r.append("in/1", `{"n":2}`) // which its sender thinks is worth a try
	if again := hook.post(); again.WakeID != c.WakeID {
		t.Errorf("%s", again.body)
	}
	r.Eventually("it is failed once more", func() bool {
		return world.One[int](r.World, `select count(*) from rouse.delivery_attempts where outcome = 'permanent'`) == 3
	})
	status.Store(200)
	r.as("").do(200, "", "POST", wake+"/redeliver", nil) // the system may, too
	hook.post()
	r.Eventually("it is well again", func() bool { s := r.get("h"); return s.Status == "active" && s.State == "idle" || s.State == "waking" })
	r.Eventually("everything is worked", func() bool { s := r.get("h"); return s.State == "idle" && !s.Streams[0].Pending })
	r.do(409, "WAKE_RESOLVED", "POST", wake+"/redeliver", nil)
}

// A deleted subscription's receiver is left alone, and its token is worth
// nothing; a new one of the same id begins anew.
func TestADeletedSubscription(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	hook := newReceiver(t, accepts)
	r.hook("", "h", hook.url, object{"pattern": "in/*"})
	r.stream("in/1", `{"n":1}`)
	old := hook.post()
	r.do(204, "", "DELETE", subPath("h"), nil)
	r.turn(404, "SUBSCRIPTION_NOT_FOUND", "h", "callback", old, old.CallbackToken, object{"done": true})
	r.hook("", "h", hook.url, object{"pattern": "in/*"})
	for _, action := range []object{nil, {"done": true}} {
		if a := r.as("").Do(t.Context(), "POST", subPath("h")+"/callback", action, map[string]string{"Authorization": "Bearer " + old.CallbackToken}); a.Status != 401 && a.Status != 409 {
			t.Errorf("the old one's token: %v", a)
		}
	}
	r.append("in/1", `{"n":2}`)
	if c := hook.post(); c.WakeID == old.WakeID || c.ConsumerID == old.ConsumerID {
		t.Errorf("%s", c.body)
	}
}

// A wake about an entity carries the entity, as its own handler would get it;
// either callback finishes it.
func TestWakesAboutEntities(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	hook := newReceiver(t, accepts)
	r.do(201, "", "POST", "/_electric/entity-types", object{"name": "job", "description": "job"})
	r.hook("", "h", hook.url, object{"pattern": "job/**"})
	r.do(201, "", "PUT", "/_electric/entities/job/1", object{"args": object{"n": 1}, "tags": object{"team": "b"}})
	c := hook.post()
	if c.Entity == nil || c.Entity.URL != "/job/1" || c.Entity.Type != "job" || c.Entity.Tags["team"] != "b" || c.Entity.SpawnArgs["n"] != 1.0 || c.Entity.Streams.Main != "/job/1/main" ||
		c.StreamPath != "/job/1/main" || len(c.Streams) != 1 || c.Streams[0].Path != "/job/1/main" || c.Epoch != 1 || c.Wake != c.WakeID || c.ClaimToken == "" ||
		c.Principal == nil || c.Principal.Key != "user:kyle" || c.Principal.URL != "/principal/user%3Akyle" || c.Principal.Kind != "user" || c.Principal.ID != "kyle" {
		t.Errorf("%s", c.body)
	}
	if !strings.HasSuffix(c.Callback, "/_electric/wake-callbacks/"+c.WakeID) || !strings.HasSuffix(c.CallbackURL, "/__ds/subscriptions/h/callback") {
		t.Errorf("%s, %s", c.Callback, c.CallbackURL)
	}
	token := []string{"electric-claim-token", c.ClaimToken}
	at := path(t, c.Callback)
	took := r.as("").at(1).do(200, "", "POST", at, object{"epoch": 1, "wakeId": c.WakeID}, token...)
	if !took.OK || took.WriteToken == "" {
		t.Errorf("%s", took.Raw)
	}
	if took.ClaimToken != "" {
		token[1] = took.ClaimToken
	}
	r.as("").do(200, "", "POST", at, object{"epoch": 1}, token...)
	done := r.as("").do(200, "", "POST", at, object{"epoch": 1, "done": true, "acks": []object{{"path": "/job/1/main", "offset": c.Streams[0].Tail}}}, token...)
	if !done.OK || done.NextWake == nil || *done.NextWake {
		t.Errorf("%s", done.Raw)
	}
	// There, the same again has the same answer.
	r.as("").at(1).do(200, "", "POST", at, object{"epoch": 1, "done": true, "acks": []object{}}, token...)
	r.do(200, "", "POST", "/_electric/entities/job/1/send", object{"payload": "hello"})
	c = hook.post()
	if c.Generation != 2 || c.TriggerHow != "inbox" {
		t.Errorf("%s", c.body)
	}
	r.turn(200, "", "h", "callback", c, c.CallbackToken, object{"acks": acks("/job/1/main", c.Streams[0].Tail), "done": true})
	if s := r.get("h"); s.State != "idle" {
		t.Errorf("%+v", s)
	}
}

// A PUT has linked everything there was when it answers: the next append wakes.
func TestLinksAreThereWhenThePutAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	for i := range 40 {
		r.stream(fmt.Sprint("in/", i), `{"old":true}`)
	}
	hook := newReceiver(t, finishes)
	r.hook("", "h", hook.url, object{"pattern": "in/*"})
	if n := len(r.get("h").Streams); n != 40 {
		t.Errorf("%d streams are linked", n)
	}
	r.at(1).append("in/7", `{"new":true}`)
	c := hook.post()
	if len(c.TriggeredBy) != 1 || c.TriggeredBy[0] != "in/7" {
		t.Errorf("%s", c.body)
	}
	for _, s := range c.Streams {
		if s.Pending != (s.Path == "in/7") {
			t.Errorf("%+v", s)
		}
	}
}

// Subscriptions, their cursors, open wakes and leases outlive every gateway.
func TestSubscriptionsOutliveGateways(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0, nil)
	start := func() *servertest.Instance {
		r.Base = ""
		return r.Start(options(nil))
	}
	in := start()
	hook := newReceiver(t, finishes)
	r.hook("", "h", hook.url, object{"pattern": "in/*"})
	r.pool("p", object{"pattern": "in/*", "lease_ttl_ms": 60_000})
	r.stream("in/1", `{"n":1}`)
	hook.post()
	r.wake("wakes/p", 1)
	c := r.claim("p", "w")
	r.append("in/1", `{"n":2}`)
	hook.post()
	r.Eventually("the receiver's part is recorded", func() bool { return r.get("h").State == "idle" })
	if err := in.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	start()
	r.do(409, "ALREADY_CLAIMED", "POST", subPath("p")+"/claim", object{"worker": "w2"})
	if got := r.turn(200, "", "p", "ack", c, c.Token, object{"acks": acks("in/1", c.tail(t, "in/1")), "done": true}); string(got.Raw) != `{"ok":true,"next_wake":true}` {
		t.Errorf("%s", got.Raw)
	}
	r.wake("wakes/p", 2)
	r.stream("in/2", `{"n":1}`)
	if c := hook.post(); c.Generation != 3 || c.TriggeredBy[0] != "in/2" {
		t.Errorf("%s", c.body)
	}
}
