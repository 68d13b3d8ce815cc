package subscription

import (
	"strings"
	"testing"

	"github.com/rouse-run/rouse/gateway/e2e/world"
)

// A worker that claims a wake about an entity gets what the entity's handler
// would: the entity, its callback, and a token to write with.
func TestClaimsAboutEntities(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	r.do(201, "", "POST", "/_electric/entity-types", object{"name": "job", "description": "job", "state_schemas": object{"result": object{"type": "object", "required": []string{"ok"}}}})
	r.pool("p", object{"pattern": "job/**"})
	r.do(201, "", "PUT", "/_electric/entities/job/1", object{"args": object{"n": 12345678901234567}})
	r.wake("wakes/p", 1)
	c := r.claim("p", "w")
	if c.Entity == nil || c.Entity.URL != "/job/1" || c.StreamPath != "/job/1/main" || c.Principal == nil || c.Principal.Key != "user:kyle" || c.WriteToken == "" || c.ClaimToken == "" ||
		c.Callback == "" || c.Epoch != c.Generation || c.Wake != c.WakeID || len(c.Streams) != 1 {
		t.Errorf("%+v", c)
	}
	event := func(typ, value string) string {
		return `{"type":"` + typ + `","key":"k","value":` + value + `,"headers":{"operation":"insert"}}`
	}
	write := func(status int, code, token, body string) {
		t.Helper()
		r.as("").at(1).do(status, code, "POST", "/job/1/main", body, "electric-claim-token", token)
	}
	write(204, "", c.WriteToken, event("result", `{"ok":true}`))
	write(422, "SCHEMA_VALIDATION_FAILED", c.WriteToken, event("result", `{}`))
	write(422, "UNKNOWN_EVENT_TYPE", c.WriteToken, event("other", `{}`))
	for _, token := range []string{c.Token, c.ClaimToken, forgedToken(t), ""} {
		write(401, "UNAUTHORIZED", token, event("result", `{"ok":true}`))
	}
	// A write to a stream that the wake is not about.
	r.do(201, "", "PUT", "/_electric/entities/job/2", object{"dispatch_policy": object{"targets": []object{{"type": "webhook", "url": "http://127.0.0.1:9/"}}}})
	r.as("").do(401, "UNAUTHORIZED", "POST", "/job/2/main", event("result", `{"ok":true}`), "electric-claim-token", c.WriteToken)
	at := path(t, c.Callback)
	r.as("").do(200, "", "POST", at, object{"epoch": c.Epoch}, "electric-claim-token", c.ClaimToken)
	_, tail, _ := r.All(t.Context(), "/job/1/main")
	if got := r.turn(200, "", "p", "ack", c, c.Token, object{"acks": acks("/job/1/main", tail), "done": true}); !strings.Contains(string(got.Raw), `"ok":true`) {
		t.Errorf("%s", got.Raw)
	}
	write(401, "UNAUTHORIZED", c.WriteToken, event("result", `{"ok":true}`))
}

// However many subscriptions watch an entity, one of them may write to it: the
// first; and none where the entity has a handler of its own.
func TestAnEntityHasOneWriter(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	r.do(201, "", "POST", "/_electric/entity-types", object{"name": "job", "description": "job"})
	r.do(201, "", "POST", "/_electric/runners", object{"id": "mac", "label": "mac"})
	r.pool("first", object{"pattern": "job/**"})
	r.pool("second", object{"pattern": "job/*/main"})
	write := func(status int, code, url string, c claimed) {
		t.Helper()
		r.as("").do(status, code, "POST", url+"/main", `{"type":"text","key":"k","value":{},"headers":{"operation":"insert"}}`, "electric-claim-token", c.WriteToken)
	}
	finish := func(id string, c claimed) {
		t.Helper()
		_, tail, _ := r.All(t.Context(), c.StreamPath)
		r.turn(200, "", id, "ack", c, c.Token, object{"acks": acks(c.StreamPath, tail), "done": true})
	}
	r.do(201, "", "PUT", "/_electric/entities/job/free", object{})
	r.wake("wakes/first", 1)
	r.wake("wakes/second", 1)
	first, second := r.claim("first", "w"), r.claim("second", "w")
	write(204, "", "/job/free", first)
	write(401, "UNAUTHORIZED", "/job/free", second)
	finish("first", first)
	finish("second", second)
	// The second is the first once that is gone.
	r.do(204, "", "DELETE", subPath("first"), nil)
	r.do(200, "", "POST", "/_electric/entities/job/free/send", object{"payload": "hello"})
	r.Eventually("there is work", func() bool {
		a := r.Do(t.Context(), "POST", subPath("second")+"/claim", object{"worker": "w"}, nil)
		if a.Status == 200 {
			second = world.Into[claimed](t, a)
		}
		return a.Status == 200
	})
	write(204, "", "/job/free", second)
	finish("second", second)
	// One that has a runner.
	r.do(201, "", "PUT", "/_electric/entities/job/own", object{"dispatch_policy": object{"targets": []object{{"type": "runner", "runnerId": "mac"}}}})
	r.do(200, "", "POST", "/_electric/entities/job/own/send", object{"payload": "hello"})
	r.Eventually("there is work of the other one", func() bool {
		a := r.Do(t.Context(), "POST", subPath("second")+"/claim", object{"worker": "w"}, nil)
		if a.Status == 200 {
			if second = world.Into[claimed](t, a); second.StreamPath == "/job/own/main" {
				return true
			}
			finish("second", second)
		}
		return false
	})
	write(401, "UNAUTHORIZED", "/job/own", second)
	var own claimed
	r.Eventually("its runner claims", func() bool {
		a := r.Do(t.Context(), "POST", "/_electric/runners/mac/claim", object{}, nil)
		if a.Status == 200 {
			own = world.Into[claimed](t, a)
		}
		return a.Status == 200
	})
	write(204, "", "/job/own", own)
	if own.Entity == nil || own.WakeID == second.WakeID {
		t.Errorf("%+v", own)
	}
}

// A receiver that answers {"done":true} about an entity has worked what it was
// told of that entity, and no other's.
func TestReceiversThatFinishAnEntity(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	hook := newReceiver(t, finishes)
	r.do(201, "", "POST", "/_electric/entity-types", object{"name": "job", "description": "job"})
	r.hook("/v1/stream", "h", hook.url, object{"pattern": "job/**"})
	for _, id := range []string{"1", "2"} {
		r.do(201, "", "PUT", "/_electric/entities/job/"+id, object{"initialMessage": "hello"})
	}
	told := map[string]int{}
	for len(told) < 2 {
		c := hook.post()
		if c.Entity == nil || len(c.Streams) != 1 || c.Streams[0].Path != c.Entity.URL+"/main" || c.StreamPath != c.Streams[0].Path {
			t.Fatalf("%s", c.body)
		}
		told[c.Entity.URL]++
	}
	r.Eventually("all is acked", func() bool {
		s := r.get("h")
		for _, l := range s.Streams {
			if l.Pending || l.Acked != l.Tail {
				return false
			}
		}
		return s.State == "idle" && len(s.Streams) == 2
	})
	if n := world.One[int](r.World, `select count(*) from rouse.consumer_claims where status <> 'released'`); n != 0 {
		t.Errorf("%d claims are open or failed", n)
	}
}
