package mutextest

import (
	"testing"
	"time"
)

// settle runs the recovery scan and the router until nothing changes.
func (r *rig) settle() {
	r.t.Helper()
	for range 20 {
		r.exec(`select rouse._dispatch_route(array_agg(stream_id), array_agg("position"), $1) from rouse.dispatch_scan(0, 1000)`, r.now)
		if one[int](r, `select count(*) from rouse.dispatch_scan(0, 1000) s join rouse.streams t on t.id = s.stream_id
			join rouse.entities e on e.consumer_id = t.consumer_id where e.dispatch_policy is not null`) == 0 {
			return
		}
	}
	r.t.Fatal("the scan finds work for ever")
}

func TestRouteOutcomes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("mac", 0)
	e := r.entity("/chat/a", toRunner("mac"))
	plain := one[int64](r, `insert into rouse.streams (service_id, path, content_type, is_json) values (1, 'plain', 'text/plain', false) returning id`)
	route := func(stream, position int64) string {
		t.Helper()
		return one[string](r, `select outcome from rouse._dispatch_route(array[$1::bigint], array[$2::bigint], $3)`, stream, position, r.now)
	}
	equal(t, "a plain stream", route(plain, 0), "idle")
	equal(t, "an append to a plain stream not visible yet", route(plain, 5), "retry")
	equal(t, "a stream not visible yet", route(999999, 5), "retry")
	equal(t, "an append not visible yet", route(e.stream, r.tail(e)+5), "retry")
	tail := r.push(e)
	equal(t, "an append", route(e.stream, tail), "minted")
	equal(t, "the same again", route(e.stream, tail), "coalesced")
	equal(t, "an earlier one", route(e.stream, 1), "coalesced")
	equal(t, "one beyond", route(e.stream, tail+1), "retry")
	g := r.want("granted", e.acquire())
	r.want("ok", e.call("ack", g.Epoch, g.Wake).with("acks", e.acks(tail)))
	equal(t, "acked already", route(e.stream, tail), "idle")
	s := r.state(e)
	equal(t, "wakes", len(s.Wakes), 1)
	equal(t, "pending", string(s.Dispatch.PendingStreams), "[]")
	r.hold()
}

// R11: notices doubled, reordered and lost change nothing.
func TestNoticesDoubledReorderedLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("mac", 0)
	e := r.entity("/chat/a", toRunner("mac"))
	var tails []int64
	for range 5 {
		tails = append(tails, r.push(e))
	}
	for i := len(tails) - 1; i >= 0; i-- {
		for range 3 {
			r.exec(`select rouse._dispatch_route(array[$1::bigint, $1], array[$2::bigint, $2], $3)`, e.stream, tails[i], r.now)
		}
	}
	equal(t, "wakes", len(r.state(e).Wakes), 1)
	g := r.want("granted", e.acquire())
	r.want("released", e.call("release", g.Epoch, g.Wake).with("acks", e.acks(tails[4])))
	for _, p := range tails {
		r.exec(`select rouse._dispatch_route(array[$1::bigint], array[$2::bigint], $3)`, e.stream, p, r.now)
	}
	equal(t, "late notices mint nothing", len(r.state(e).Wakes), 1)
	r.push(e) // its notice is lost
	r.settle()
	s := r.state(e)
	equal(t, "the scan wakes", s.State, "waking")
	equal(t, "wakes", len(s.Wakes), 2)
	r.hold()
}

// R23: the scan finds unread work without a wake or a claim, and nothing else.
func TestScanFindsExactlyWhatIsForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("mac", 0)
	mk := func(u string) entity { return r.entity(u, toRunner("mac")) }
	read, waking, held, paused, stopped, forgotten := mk("/chat/read"), mk("/chat/waking"), mk("/chat/held"), mk("/chat/paused"), mk("/chat/stopped"), mk("/chat/forgotten")
	_ = read
	for _, e := range []entity{waking, held, paused, stopped, forgotten} {
		r.push(e)
	}
	r.route(waking)
	r.route(held)
	r.want("granted", held.acquire())
	r.exec(`select rouse.entity_signal(1, $1, $2, 'SIGSTOP', 'k', null, null)`, paused.url, kyle)
	r.exec(`select rouse.entity_signal(1, $1, $2, 'SIGKILL', 'k', null, null)`, stopped.url, kyle)
	equal(t, "found", one[string](r, `select string_agg(s.path, ' ') from rouse.dispatch_scan(0, 100) d join rouse.streams s on s.id = d.stream_id`), forgotten.path)
	equal(t, "after it", one[int](r, `select count(*) from rouse.dispatch_scan($1, 100)`, forgotten.stream), 0)
	r.settle()
	equal(t, "woken", r.state(forgotten).State, "waking")
	r.hold()
}

func TestScanPages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("mac", 0)
	for _, u := range []string{"/chat/1", "/chat/2", "/chat/3", "/chat/4", "/chat/5"} {
		r.push(r.entity(u, toRunner("mac")))
	}
	var after, seen int64
	for {
		var n int64
		var last *int64
		if err := r.c.QueryRow(r.ctx(), `select count(*), max(stream_id) from rouse.dispatch_scan($1, 2)`, after).Scan(&n, &last); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		if n > 2 {
			t.Fatalf("a page of %d", n)
		}
		seen, after = seen+n, *last
	}
	equal(t, "found", seen, 5)
}

// Decision 6: a wake nobody claims is told again, the same wake, while its
// runner is online or when it comes back.
func TestUnclaimedWakeIsToldAgain(t *testing.T) {
	t.Parallel()
	r, e := woken(t)
	wake := r.state(e).Wake
	same := func(what string, entries int) {
		t.Helper()
		s := r.state(e)
		equal(t, what+": wake", s.Wake, wake)
		equal(t, what+": epoch", s.Epoch, 1)
		equal(t, what+": wakes", len(s.Wakes), 1)
		equal(t, what+": attempts", s.lastWake().Attempts, entries)
		got := r.entries("mac")
		equal(t, what+": entries", len(got), entries)
		for _, x := range got {
			equal(t, what+": entry", x["wakeId"], any(wake))
			equal(t, what+": entry's epoch", x["epoch"], any(float64(1)))
		}
		r.hold()
	}
	r.after(wakeTTL)
	equal(t, "offline", r.reap(), reaped{})
	same("offline", 1)
	equal(t, "back online", r.beat("mac", 45*time.Second), 1)
	same("back online", 2)
	r.after(wakeTTL - time.Millisecond)
	equal(t, "not yet", r.reap(), reaped{})
	r.after(time.Millisecond)
	equal(t, "online, unclaimed for a while", r.reap(), reaped{Redelivered: 1})
	same("unclaimed", 3)
	r.after(wakeTTL)
	equal(t, "liveness has lapsed", r.reap(), reaped{})
	same("lapsed", 3)
	r.want("granted", e.acquire().with("wake", wake))
	r.after(time.Minute)
	equal(t, "nothing unclaimed waits", r.beat("mac", time.Minute), 0)
	same("claimed", 3)
}

// A wake that nobody claims is told less and less often: twice as long after
// each telling beyond the third, up to 32 times.
func TestToldLessAndLessOften(t *testing.T) {
	t.Parallel()
	r, e := woken(t)
	r.exec(`select rouse._runner_heartbeat(1, 'mac', $1, false, 3600000, null, null, $2)`, kyle, r.now)
	alive := func() { // without coming back online
		r.exec(`update rouse.runner_runtime_diagnostics set liveness_lease_expires_at = $1`, r.now.Add(time.Hour))
	}
	told := 2 // when it was minted, and when the runner came online
	for _, factor := range []time.Duration{1, 1, 2, 4, 8, 16, 32, 32, 32} {
		alive()
		r.after(factor*wakeTTL - time.Millisecond)
		alive()
		equal(t, "too early", r.reap(), reaped{})
		r.after(time.Millisecond)
		equal(t, "told", r.reap(), reaped{Redelivered: 1})
		told++
		equal(t, "attempts", r.state(e).lastWake().Attempts, told)
		r.hold()
	}
	// A disabled runner is not told; what it waits for is not forgotten.
	r.exec(`select rouse.runner_set_status(1, 'mac', $1, false, 'disabled')`, kyle)
	r.after(32 * wakeTTL)
	alive()
	equal(t, "disabled", r.reap(), reaped{})
	before := len(r.entries("mac"))
	r.exec(`select rouse.runner_set_status(1, 'mac', $1, false, 'enabled')`, kyle)
	equal(t, "told when enabled", len(r.entries("mac")), before+1)
	r.after(32 * wakeTTL)
	alive()
	equal(t, "enabled again", r.reap(), reaped{Redelivered: 1})
	r.want("granted", e.acquire())
	r.hold()
}

func TestHeartbeatOfARunner(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("mac", 0)
	beat := func(runner, who string, trusted bool, ms any, offset, diagnostics any) (out string) {
		t.Helper()
		return one[string](r, `select outcome from rouse._runner_heartbeat(1, $1, $2, $3, $4, $5, $6::jsonb, $7)`, runner, who, trusted, ms, offset, diagnostics, r.now)
	}
	equal(t, "nobody's", beat("toaster", kyle, false, nil, nil, nil), "not_found")
	equal(t, "another user's", beat("mac", mallory, false, nil, nil, nil), "not_owner")
	equal(t, "unseen", one[bool](r, `select last_seen_at is null from rouse.runner_runtime_diagnostics where runner_id = 'mac'`), true)
	equal(t, "trusted", beat("mac", "/principal/system%3Aframework", true, 5000, "0000000000000000_0000000000000010", `{"v":1}`), "ok")
	equal(t, "owner stays", one[string](r, `select owner_principal from rouse.runner_runtime_diagnostics where runner_id = 'mac'`), kyle)
	r.after(time.Second)
	equal(t, "nulls keep", beat("mac", kyle, false, nil, nil, nil), "ok")
	equal(t, "offset", one[string](r, `select wake_stream_offset from rouse.runner_runtime_diagnostics where runner_id = 'mac'`), "0000000000000000_0000000000000010")
	equal(t, "diagnostics", one[string](r, `select diagnostics::text from rouse.runner_runtime_diagnostics where runner_id = 'mac'`), `{"v": 1}`)
	for ms, want := range map[int64]time.Duration{1: time.Second, 999_999_999: time.Hour, 60_000: time.Minute} {
		beat("mac", kyle, false, ms, nil, nil)
		got := one[time.Time](r, `select liveness_lease_expires_at from rouse.runner_runtime_diagnostics where runner_id = 'mac'`)
		when(t, "liveness", &got, r.now.Add(want))
	}
}

// Pausing takes an outstanding wake back; resuming wakes for what is pending.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	r, e := woken(t)
	wake := r.state(e).Wake
	pause := func(on bool) { r.exec(`select rouse._consumer_pause($1, $2, $3)`, e.consumer, on, r.now) }
	status := func(s string) { r.exec(`update rouse.entities set status = $2 where url = $1`, e.url, s) }
	pause(true)
	status("paused")
	s := r.state(e)
	equal(t, "mutex", s.State, "idle")
	equal(t, "wake", s.lastWake().Delivery, "superseded")
	equal(t, "outstanding", s.Dispatch.Outstanding == nil, true)
	r.hold()
	r.want("paused", e.acquire())
	r.want("paused", e.acquire().with("wake", wake))
	r.push(e)
	equal(t, "route", r.route(e), "idle")
	equal(t, "scan", one[int](r, `select count(*) from rouse.dispatch_scan(0, 100)`), 0)
	equal(t, "flagged", r.state(e).Pending, true)
	pause(true)
	pause(false)
	status("idle")
	s = r.state(e)
	equal(t, "mutex", s.State, "waking")
	equal(t, "epoch", s.Epoch, 2)
	equal(t, "wakes", len(s.Wakes), 2)
	equal(t, "told", len(r.entries("mac")), 2)
	r.want("stale", e.acquire().with("wake", wake))
	r.hold()

	// A live claim runs to its end, and then nothing is granted.
	g := r.want("granted", e.acquire())
	pause(true)
	status("paused")
	r.hold()
	r.want("ok", e.call("heartbeat", g.Epoch, g.Wake))
	equal(t, "append", r.write(e, g), "appended")
	a := r.want("released", e.call("release", g.Epoch, g.Wake))
	equal(t, "next wake", val(a.NextWake), any(false))
	r.want("paused", e.acquire())
	r.hold()
	pause(false)
	status("idle")
	h := r.want("granted", e.acquire())
	pause(true)
	status("paused")
	r.after(lease)
	equal(t, "reap", r.reap(), reaped{Expired: 1})
	equal(t, "mutex", r.state(e).State, "idle")
	r.want("stale", e.call("heartbeat", h.Epoch, h.Wake))
	r.hold()
	pause(false)
	status("idle")
	equal(t, "mutex", r.state(e).State, "waking")
	r.hold()
	pause(true)
	status("paused")
	// With nothing pending resuming wakes nobody.
	r.exec(`update rouse.consumer_streams set acked = (select tail from rouse.streams where id = $1) where stream_id = $1`, e.stream)
	pause(false)
	status("idle")
	equal(t, "mutex", r.state(e).State, "idle")
	r.hold()
	r.exec(`select rouse._consumer_pause(987654, true, $1)`, r.now)
}

// An entity that is asked to stop while it runs is stopped when its claim ends.
func TestStoppingFinishes(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"release", "expiry", "lapsed release", "acquire"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			r, e, g := claimed(t)
			// entity_signal reads the real clock, by which the lease is far off.
			equal(t, "signal", one[string](r, `select new_state from rouse.entity_signal(1, $1, $2, 'SIGTERM', 'k1', null, null)`, e.url, kyle), "stopping")
			s := r.state(e)
			equal(t, "mutex", s.State, "claimed")
			r.want("ok", e.call("heartbeat", g.Epoch, g.Wake))
			equal(t, "append", r.write(e, g), "appended")
			r.hold()
			switch how {
			case "release":
				a := r.want("released", e.call("release", g.Epoch, g.Wake))
				equal(t, "next wake", val(a.NextWake), any(false))
				equal(t, "answer's status", a.EntityStatus, "stopped")
				r.want("released", e.call("release", g.Epoch, g.Wake))
			case "expiry":
				r.after(lease)
				equal(t, "reap", r.reap(), reaped{Expired: 1})
			case "lapsed release":
				r.after(lease)
				r.want("lease_expired", e.call("release", g.Epoch, g.Wake))
			case "acquire":
				r.after(lease)
				r.want("stopped", e.acquire())
			}
			s = r.state(e)
			equal(t, "mutex", s.State, "stopped")
			equal(t, "status", s.EntityStatus, "stopped")
			equal(t, "flag", s.Pending, false)
			equal(t, "wakes", len(s.Wakes), 1)
			equal(t, "closed", one[bool](r, `select closed_at is not null from rouse.streams where id = $1`, e.stream), true)
			r.want("stopped", e.acquire())
			r.hold()
		})
	}
}

// R27 over every route that grants.
func TestRunnerLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.runner("mac", 2)
	var es []entity
	for _, u := range []string{"/chat/a", "/chat/b", "/chat/c", "/chat/d"} {
		e := r.entity(u, toRunner("mac"))
		r.push(e)
		r.route(e)
		es = append(es, e)
	}
	wake := r.state(es[2]).Wake
	routes := map[string]op{
		"runner, naming nothing": {"op": "acquire", "runner": "mac", "holder": kyle},
		"runner, by path":        {"op": "acquire", "runner": "mac", "holder": kyle, "path": "/" + es[2].path},
		"consumer":               es[2].acquire(),
		"callback":               {"op": "acquire", "wake": wake, "holder": kyle, "proved": true},
		"system":                 es[2].acquire().with("trusted", true),
	}
	all := func(outcome string) {
		t.Helper()
		for name, o := range routes {
			if got := r.apply(o); got.Outcome != outcome {
				t.Errorf("%s: %s, not %s", name, got.Outcome, outcome)
			}
		}
	}
	set := func(s string) { r.exec(`select rouse.runner_set_status(1, 'mac', $1, false, $2)`, kyle, s) }
	set("disabled")
	all("runner_disabled")
	set("enabled")
	a := r.want("granted", es[0].acquire().with("claim_id", "a"))
	r.want("granted", es[1].acquire())
	all("runner_full")
	r.want("not_owner", es[2].acquire().with("holder", mallory))
	r.want("held", es[0].acquire())
	r.want("repeated", es[0].acquire().with("claim_id", "a"))
	r.hold()
	// What is held runs to its end while the runner is disabled.
	set("disabled")
	r.want("ok", es[0].call("heartbeat", a.Epoch, a.Wake))
	r.want("released", es[0].call("release", a.Epoch, a.Wake).with("acks", es[0].acks(r.tail(es[0]))))
	set("enabled")
	r.want("granted", es[2].acquire())
	r.want("runner_full", es[3].acquire())
	// Lapsed leases use no capacity, reaped or not.
	r.after(lease)
	r.want("granted", es[3].acquire())
	r.want("granted", es[1].acquire())
	r.want("runner_full", es[2].acquire())
	r.hold()
}
