package subscription

import (
	"strings"
	"sync"
	"testing"

	"github.com/rouse-run/rouse/gateway/e2e/world"
)

// A service's subscriptions see its streams, and its tokens count there.
func TestServices(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1, nil)
	r.as("").do(201, "", "POST", "/_electric/services", object{"name": "blue"})
	hook, plain := newReceiver(t, accepts), newReceiver(t, accepts)
	r.do(201, "", "PUT", subPath("h")+"?service=blue", object{"type": "webhook", "pattern": "in/*", "webhook": object{"url": hook.url}})
	r.hook("", "h", plain.url, object{"pattern": "in/*"}) // the same id, elsewhere
	r.do(201, "", "PUT", "/in/1?service=blue", `{"n":1}`, "Content-Type", "application/json")
	c := hook.post()
	if !strings.HasSuffix(c.CallbackURL, "/__ds/subscriptions/h/callback?service=blue") {
		t.Errorf("%s", c.CallbackURL)
	}
	r.turn(401, "TOKEN_INVALID", "h", "callback", c, c.CallbackToken, object{"done": true})
	r.as("").do(200, "", "POST", path(t, c.CallbackURL), object{"acks": acks("in/1", c.tail(t, "in/1")), "done": true}, "Authorization", "Bearer "+c.CallbackToken)
	if s := world.Into[subscription](t, r.do(200, "", "GET", subPath("h")+"?service=blue", nil)); s.State != "idle" || s.Generation != 1 {
		t.Errorf("%+v", s)
	}
	if s := r.get("h"); s.Generation != 0 || len(s.Streams) != 0 {
		t.Errorf("%+v", s)
	}
	select {
	case got := <-plain.posts:
		t.Errorf("the other service's receiver is told: %s", got.body)
	default:
	}
	r.do(204, "", "DELETE", subPath("h")+"?service=blue", nil)
	r.get("h")
}

// Many who make the same subscription at once make one.
func TestARaceToRegister(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2, nil)
	for i := range 20 {
		r.stream("in/"+string(rune('a'+i)), `{"n":1}`)
	}
	statuses := make([]int, 24)
	var wg sync.WaitGroup
	for i := range statuses {
		wg.Go(func() {
			body := object{"type": "pull-wake", "pattern": "in/*", "wake_stream": "wakes/p"}
			if i%4 == 3 {
				body["pattern"] = "other/*"
			}
			statuses[i] = r.at(i%2).Do(t.Context(), "PUT", subPath("p"), body, nil).Status
		})
	}
	wg.Wait()
	count := map[int]int{}
	for _, s := range statuses {
		count[s]++
	}
	if count[201] != 1 || count[200]+count[409] != len(statuses)-1 || count[200] != 17 && count[200] != 5 {
		t.Errorf("%v", count)
	}
	if n := world.One[int](r.World, `select count(*) from rouse.subscriptions`); n != 1 {
		t.Errorf("%d subscriptions", n)
	}
	s := r.get("p")
	if s.Pattern == "in/*" && len(s.Streams) != 20 || s.Pattern == "other/*" && len(s.Streams) != 0 {
		t.Errorf("%s links %d streams", s.Pattern, len(s.Streams))
	}
	// Registering and deleting, over and over, leaves what the last one said.
	for i := range 12 {
		wg.Go(func() {
			if i%3 == 0 {
				r.at(i%2).Do(t.Context(), "DELETE", subPath("p"), nil, nil)
			} else {
				r.at(i%2).Do(t.Context(), "PUT", subPath("p"), object{"type": "pull-wake", "pattern": "in/*", "wake_stream": "wakes/p"}, nil)
			}
		})
	}
	wg.Wait()
	r.do(204, "", "DELETE", subPath("p"), nil)
	r.pool("p", object{"pattern": "in/*"})
	r.append("in/a", `{"n":2}`)
	r.wake("wakes/p", 1)
	c := r.claim("p", "w")
	if c.Generation != 1 || c.TriggeredBy[0] != "in/a" {
		t.Errorf("%+v", c)
	}
	r.turn(200, "", "p", "ack", c, c.Token, object{"acks": acks("in/a", c.tail(t, "in/a")), "done": true})
	r.Eventually("nothing is left of those before", func() bool {
		return world.One[int](r.World, `select count(*) from rouse.consumer_streams l where not exists (select from rouse.consumers c where c.id = l.consumer_id)`) == 0
	})
}
