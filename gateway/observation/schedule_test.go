package observation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

const everyMinute = "* * * * *"

// listen makes a cron stream and an entity that is woken by it.
func (r *rig) listen(url, expression, zone string) Cron {
	r.t.Helper()
	c, err := ParseCron(expression, zone)
	if err != nil {
		r.t.Fatal(err)
	}
	r.register(store.ObserverRequest{Subscriber: url, Source: "/" + c.Path(), Condition: Condition{}.String(), Expression: c.Expression, Timezone: c.Timezone})
	return c
}

// now makes every task due.
func (r *rig) now() {
	r.t.Helper()
	r.db.Exec(r.t, `update rouse.scheduled_tasks set due_at = clock_timestamp() - interval '1 second' where due_at is not null and planned`)
}

func TestACronStreamTicksAndWakes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/a", "")
	c := r.listen("/chat/a", everyMinute, "Europe/Berlin")
	w := r.worker()
	r.settle(w)
	if n := r.count(`select count(*) from rouse.scheduled_tasks where planned and due_at between clock_timestamp() and clock_timestamp() + interval '61 s'
		and extract(second from due_at) = 0`); n != 1 {
		t.Fatal("the first tick is not planned")
	}
	if n := len(r.wakes("/chat/a")); n != 0 {
		t.Fatalf("%d wakes before the first tick", n)
	}
	for tick := 1; tick <= 2; tick++ {
		r.now()
		r.settle(w)
		ticks := r.rows("/"+c.Path(), "cron_tick")
		if len(ticks) != tick {
			t.Fatalf("%d ticks, want %d", len(ticks), tick)
		}
		v := decode(t, ticks[tick-1])
		if ticks[tick-1].key != fmt.Sprintf("tick-%d", tick) || v["tickNumber"] != float64(tick) || v["expression"] != everyMinute || v["timezone"] != "Europe/Berlin" {
			t.Errorf("%s %v", ticks[tick-1].key, v)
		}
		if _, err := time.Parse(time.RFC3339, v["firedAt"].(string)); err != nil {
			t.Error(err)
		}
		wakes := r.wakes("/chat/a")
		if len(wakes) != tick {
			t.Fatalf("%d wakes, want %d", len(wakes), tick)
		}
		last := decode(t, wakes[tick-1])
		if ch := last["changes"].([]any)[0].(map[string]any); last["source"] != "/"+c.Path() || ch["collection"] != "cron_tick" || ch["key"] != ticks[tick-1].key {
			t.Errorf("%v", last)
		}
	}
}

// After an outage a cron stream ticks once, however many ticks were missed, and
// goes on with the next of its times.
func TestMissedTicksAreOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/a", "")
	c := r.listen("/chat/a", everyMinute, "")
	w := r.worker()
	r.settle(w)
	r.db.Exec(t, `update rouse.scheduled_tasks set due_at = clock_timestamp() - interval '3 days'`)
	r.settle(w)
	if n := len(r.rows("/"+c.Path(), "cron_tick")); n != 1 {
		t.Errorf("%d ticks make up for an outage", n)
	}
	if n := r.count(`select count(*) from rouse.scheduled_tasks where due_at > clock_timestamp()`); n != 1 {
		t.Error("the next tick is not in the future")
	}
}

// A chain ends without anybody listening, and begins again with its numbers.
func TestAChainEndsWithItsLastListener(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/a", "")
	r.spawn("/chat/b", "")
	c := r.listen("/chat/a", everyMinute, "")
	r.listen("/chat/b", everyMinute, "")
	w := r.worker()
	r.settle(w)
	r.now()
	r.settle(w)
	if _, err := r.s.EntitySignal(t.Context(), 1, "/chat/b", kyle, "SIGKILL", "sig", "", nil); err != nil {
		t.Fatal(err)
	}
	if got, err := r.s.ObserveUnregister(t.Context(), 1, kyle, false, "/chat/a", "/"+c.Path(), ""); err != nil || got != "ok" {
		t.Fatal(got, err)
	}
	r.now()
	r.settle(w)
	r.now()
	r.settle(w)
	if n := len(r.rows("/"+c.Path(), "cron_tick")); n != 1 {
		t.Errorf("it ticks on: %d", n)
	}
	if n := r.count(`select count(*) from rouse.scheduled_tasks where due_at is not null`); n != 0 {
		t.Error("a tick is planned that nobody hears")
	}
	r.listen("/chat/a", everyMinute, "")
	r.settle(w)
	r.now()
	r.settle(w)
	if ticks := r.rows("/"+c.Path(), "cron_tick"); len(ticks) != 2 || ticks[1].key != "tick-2" {
		t.Errorf("%v", ticks)
	}
}

// dying is a database whose calls are lost on their way: before they arrive, or
// with their answer.
type dying struct {
	*store.Store
	before, after map[string]bool
}

var errDied = errors.New("the gateway has died")

func (d *dying) ScheduleTick(ctx context.Context, t store.Task, row string, next time.Time) (string, error) {
	if d.before["tick"] {
		return "", errDied
	}
	out, err := d.Store.ScheduleTick(ctx, t, row, next)
	if d.after["tick"] {
		return "", errDied
	}
	return out, err
}

func (d *dying) ScheduleSend(ctx context.Context, t store.Task, row, sent string, failed []string, resume bool) (string, error) {
	if d.before["send"] {
		return "", errDied
	}
	out, err := d.Store.ScheduleSend(ctx, t, row, sent, failed, resume)
	if d.after["send"] {
		return "", errDied
	}
	return out, err
}

func (d *dying) SchedulePostpone(context.Context, store.Task, time.Duration) (bool, error) {
	return false, errDied
}

func (d *dying) ObserveApply(ctx context.Context, moves []store.ObserverMove, wait bool) ([]string, error) {
	if d.before["apply"] {
		return nil, errDied
	}
	out, err := d.Store.ObserveApply(ctx, moves, wait)
	if d.after["apply"] {
		return nil, errDied
	}
	return out, err
}

func (d *dying) ManifestApply(ctx context.Context, id, from, to int64, effects json.RawMessage) (string, error) {
	if d.before["manifest"] {
		return "", errDied
	}
	out, err := d.Store.ManifestApply(ctx, id, from, to, effects)
	if d.after["manifest"] {
		return "", errDied
	}
	return out, err
}

// A gateway that dies at any step loses nothing and doubles nothing: the next
// one goes on where it stopped.
func TestDyingAtAnyStepLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"tick", "send", "apply", "manifest"} {
		for _, where := range []string{"before", "after"} {
			t.Run(step+" "+where, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.spawn("/chat/a", "")
				r.spawn("/chat/b", "")
				c := r.listen("/chat/a", everyMinute, "")
				r.register(store.ObserverRequest{Subscriber: "/chat/a", Source: "/chat/b"})
				if err := r.s.ScheduleAdd(t.Context(), 1, kyle, false, "/chat/b", staterow.Message{Payload: []byte(`1`), From: kyle}.Encode(), time.Hour, ""); err != nil {
					t.Fatal(err)
				}
				if _, err := r.s.ObserveManifest(t.Context(), 1, "/chat/b"); err != nil {
					t.Fatal(err)
				}
				r.settle(r.worker())
				r.write("chat/b/main", runEnded, row("insert", "manifest", "m", `{"kind":"observe","entity_url":"/chat/a","wake":{"on":"change","collections":["x"]}}`))
				r.now()
				d := &dying{Store: r.s, before: map[string]bool{}, after: map[string]bool{}}
				if where == "before" {
					d.before[step] = true
				} else {
					d.after[step] = true
				}
				w, err := New(Config{DB: d})
				if err != nil {
					t.Fatal(err)
				}
				w.schedule(t.Context())
				w.observe(t.Context())
				r.settle(r.worker()) // another gateway's
				if n := len(r.rows("/"+c.Path(), "cron_tick")); n != 1 {
					t.Errorf("%d ticks", n)
				}
				if n := len(r.rows("/chat/b", "inbox")); n != 1 {
					t.Errorf("%d messages", n)
				}
				if n := len(r.wakes("/chat/a")); n != 2 {
					t.Errorf("%d wakes, want one by the run and one by the tick", n)
				}
				if n := r.count(`select count(*) from rouse.observers where manifest_key = 'm'`); n != 1 {
					t.Errorf("%d registrations by the manifest", n)
				}
			})
		}
	}
}

// Tasks that cannot be carried out, however many, keep no other from its time.
func TestPoisonedTasksKeepNobodyFromHisTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/a", "")
	r.db.Exec(t, `insert into rouse.scheduled_tasks (service_id, kind, due_at, entity_url, message, principal)
		select 1, 'delayed_send', clock_timestamp() - interval '1 hour', '/chat/a', 'no message', $1 from generate_series(1, $2) i`, kyle, taskLimit+10)
	r.db.Exec(t, `insert into rouse.scheduled_tasks (service_id, kind, due_at, stream_id, expression, timezone)
		select 1, 'cron_tick', clock_timestamp() - interval '1 hour', id, 'every day', 'UTC' from rouse.streams where path = 'chat/a/main'`)
	if err := r.s.ScheduleAdd(t.Context(), 1, kyle, false, "/chat/a", staterow.Message{Payload: []byte(`1`), From: kyle}.Encode(), 0, ""); err != nil {
		t.Fatal(err)
	}
	r.settle(r.worker())
	if n := len(r.rows("/chat/a", "inbox")); n != 1 {
		t.Errorf("%d messages", n)
	}
	if n := r.count(`select count(*) from rouse.scheduled_tasks where due_at < clock_timestamp()`); n != 0 {
		t.Errorf("%d tasks are due all the time", n)
	}
}

// Several gateways at once: each task is carried out once.
func TestTwoGatewaysCarryOutEachTaskOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/a", "")
	c := r.listen("/chat/a", everyMinute, "")
	r.settle(r.worker())
	const n = 40
	for i := range n {
		if err := r.s.ScheduleAdd(t.Context(), 1, kyle, false, "/chat/a", staterow.Message{Payload: []byte(fmt.Sprint(i)), From: kyle}.Encode(), time.Hour, ""); err != nil {
			t.Fatal(err)
		}
	}
	r.now()
	var wg sync.WaitGroup
	for range 3 {
		w := rigOn(t, r.db).worker()
		wg.Add(1)
		go func() {
			defer wg.Done()
			for w.schedule(t.Context()) {
			}
		}()
	}
	wg.Wait()
	r.settle(r.worker())
	seen := map[string]bool{}
	for _, e := range r.rows("/chat/a", "inbox") {
		seen[string(e.value["payload"])] = true
	}
	if got := len(r.rows("/chat/a", "inbox")); got != n || len(seen) != n {
		t.Errorf("%d messages, %d different, want %d", got, len(seen), n)
	}
	if got := len(r.rows("/"+c.Path(), "cron_tick")); got != 1 {
		t.Errorf("%d ticks", got)
	}
	if got := len(r.wakes("/chat/a")); got != 1 {
		t.Errorf("%d wakes", got)
	}
}

func TestADelayedSendLooksWhenItIsDue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, url := range []string{"/chat/ok", "/chat/paused", "/chat/sleeps", "/chat/dead"} {
		r.spawn(url, "")
	}
	later := func(url, by string, m staterow.Message, producer string) {
		t.Helper()
		m.Payload, m.From = []byte(`{"n":1e999,"s":"\u0000"}`), by
		if err := r.s.ScheduleAdd(t.Context(), 1, by, false, url, m.Encode(), time.Hour, producer); err != nil {
			t.Fatal(err)
		}
	}
	signal := func(url, s string) {
		t.Helper()
		if _, err := r.s.EntitySignal(t.Context(), 1, url, kyle, s, "sig-"+s, "", nil); err != nil {
			t.Fatal(err)
		}
	}
	later("/chat/ok", kyle, staterow.Message{Type: "note", Key: "k"}, "send-1")
	later("/chat/ok", kyle, staterow.Message{Type: "note", Key: "k"}, "send-1") // a repeat
	later("/chat/ok", "/principal/user%3Amallory", staterow.Message{}, "")      // may not any more
	later("/chat/none", kyle, staterow.Message{}, "")
	later("/chat/paused", kyle, staterow.Message{}, "")
	later("/chat/sleeps", kyle, staterow.Message{Mode: "paused"}, "")
	later("/chat/dead", kyle, staterow.Message{}, "")
	signal("/chat/paused", "SIGSTOP")
	signal("/chat/sleeps", "SIGSTOP")
	signal("/chat/dead", "SIGKILL")
	w := r.worker()
	r.settle(w)
	if n := len(r.rows("/chat/ok", "inbox")); n != 0 {
		t.Fatalf("%d messages before their time", n)
	}
	r.now()
	r.settle(w)
	got := r.rows("/chat/ok", "inbox")
	if len(got) != 1 || got[0].key != "k" {
		t.Fatalf("%v", got)
	}
	if raw := string(got[0].raw); !strings.Contains(raw, `"payload":{"n":1e999,"s":"\u0000"}`) || !strings.Contains(raw, `"message_type":"note"`) ||
		!strings.Contains(raw, `"status":"processed"`) {
		t.Error(raw)
	}
	// Repeated when it has been sent, it is not sent again.
	later("/chat/ok", kyle, staterow.Message{Type: "note", Key: "k"}, "send-1")
	if n := r.count(`select count(*) from rouse.scheduled_tasks`); n != 0 {
		t.Errorf("%d tasks are left", n)
	}
	for url, want := range map[string]string{"/chat/paused": "idle", "/chat/sleeps": "paused"} {
		if n := len(r.rows(url, "inbox")); n != 1 {
			t.Errorf("%s has %d messages", url, n)
		}
		if n := r.count(`select count(*) from rouse.entities where url = $1 and status = $2`, url, want); n != 1 {
			t.Errorf("%s is not %s", url, want)
		}
	}
	if v := r.rows("/chat/sleeps", "inbox")[0].value; text(v["status"]) != "pending" || text(v["position"]) == "" || text(v["mode"]) != "paused" {
		t.Errorf("%s", v)
	}
	if n := len(r.rows("/chat/dead", "inbox")); n != 0 {
		t.Error("a dead entity got a message")
	}
}
