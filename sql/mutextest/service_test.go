package mutextest

import (
	"testing"
	"time"
)

// R28: two services with equal names share nothing of the mutex.
func TestServicesDoNotLeak(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(`insert into rouse.services (id, name) values (2, 'other')`)
	r.exec(`select rouse.entity_type_put(2, 'chat', $1, false, '', null, null, null, null, null, null, null, null)`, kyle)
	r.runner("mac", 1)
	r.exec(`select rouse.runner_register(2, 'mac', $1, false, $1, 'Mac', 'local', 'enabled', '[]', 1)`, kyle)
	a := r.entity("/chat/a", toRunner("mac"))
	if got := one[string](r, `select outcome from rouse.entity_spawn(2, '/chat/a', 'chat', 1, $1, false, false, '{}', '{}', null, $2, null,
		'{"headers":{"operation":"insert"},"type":"entity_created","key":"entity-created","value":{}}', null)`, kyle, toRunner("mac")); got != "spawned" {
		t.Fatal(got)
	}
	b := entity{url: a.url, path: a.path}
	if err := r.c.QueryRow(r.ctx(), `select c.id, c.name, s.id from rouse.consumers c join rouse.streams s on s.consumer_id = c.id where c.service_id = 2`).
		Scan(&b.consumer, &b.name, &b.stream); err != nil {
		t.Fatal(err)
	}
	if a.name == b.name {
		t.Error("two services share a consumer's name")
	}
	r.push(a)
	r.route(a)
	wake := r.state(a).Wake
	in := func(service int, o op) op { return o.with("service", service) }
	for name, o := range map[string]op{
		"naming nothing": {"op": "acquire", "runner": "mac", "holder": kyle},
		"by path":        {"op": "acquire", "path": "/" + a.path, "holder": kyle},
	} {
		if got := r.apply(in(2, o)); got.Outcome != "no_work" {
			t.Errorf("%s: %s", name, got.Outcome)
		}
	}
	for name, o := range map[string]op{
		"by id":   a.acquire(),
		"by name": {"op": "acquire", "consumer": a.name, "holder": kyle},
		"by wake": {"op": "acquire", "wake": wake, "holder": kyle, "proved": true},
	} {
		if got := r.apply(in(2, o)); got.Outcome != "not_found" {
			t.Errorf("%s: %s", name, got.Outcome)
		}
	}
	if got := r.apply(in(2, b.acquire().with("wake", wake))); got.Outcome != "wrong_wake" {
		t.Errorf("another service's wake: %s", got.Outcome)
	}
	g := r.want("granted", in(1, a.acquire()))
	for _, name := range []string{"heartbeat", "ack", "release"} {
		if got := r.apply(in(2, a.call(name, g.Epoch, g.Wake).with("acks", a.acks(r.tail(a))))); got.Outcome != "not_found" {
			t.Errorf("%s from another service: %s", name, got.Outcome)
		}
	}
	equal(t, "still held", r.state(a).State, "claimed")

	// One runner is full in one service only.
	r.push(b)
	r.exec(`select rouse._dispatch_route(array[$1::bigint], array[$2::bigint], $3)`, b.stream, r.tail(b), r.now)
	equal(t, "entries here", one[int](r, `select count(*) from rouse.messages m join rouse.streams s on s.id = m.stream_id where s.service_id = 1 and s.path = 'runners/mac/wake'`), 1)
	equal(t, "entries there", one[int](r, `select count(*) from rouse.messages m join rouse.streams s on s.id = m.stream_id where s.service_id = 2 and s.path = 'runners/mac/wake'`), 1)
	equal(t, "told again there", one[int](r, `select redelivered from rouse._runner_heartbeat(2, 'mac', $1, false, null, null, null, $2)`, kyle, r.now), 1)
	equal(t, "told again here", r.beat("mac", time.Minute), 0)
	if got := r.apply(in(2, op{"op": "acquire", "runner": "mac", "holder": kyle})); got.Outcome != "granted" || got.ConsumerID != b.consumer {
		t.Errorf("the other one's wake: %s", got.Outcome)
	}
	r.hold()
}
