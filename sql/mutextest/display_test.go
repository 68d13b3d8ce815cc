package mutextest

import (
	"testing"
	"time"
)

// TestDisplayWords is every line a UI shows for an entity, with its code. The
// RFC's are as the RFC has them.
func TestDisplayWords(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.now = time.Now()
	r.runner("mac", 0)
	r.runner("gone", 0)
	r.pool("coding", 0, 1)
	r.pool("empty", 0, 0)
	r.alive(time.Hour, "mac")
	r.member("coding", "mac", kyle, "active", false)
	said := func(e entity) string {
		t.Helper()
		return one[string](r, `select code || ': ' || display from rouse.entity_display_get(1, $1)`, e.url)
	}
	signal := func(e entity, sig string) {
		r.exec(`select rouse.entity_signal(1, $1, $2, $3, gen_random_uuid()::text, null, null)`, e.url, kyle, sig)
	}
	park := func(url, reason string) entity {
		e := r.woken(url, toRunner("mac"))
		r.exec(`select rouse._consumer_park(c, $2, clock_timestamp()) from rouse.consumers c where id = $1`, e.consumer, reason)
		return e
	}
	run := func(url, policy, runner string) (entity, answer) {
		e := r.woken(url, policy)
		return e, r.want("granted", e.by(runner))
	}

	idle := r.entity("/chat/idle", toRunner("mac"))
	equal(t, "idle", said(idle), "waiting_for_input: Waiting for input")
	equal(t, "online", said(r.woken("/chat/online", toRunner("mac"))), "runner_syncing: Runner syncing pending work...")
	equal(t, "offline", said(r.woken("/chat/offline", toRunner("gone"))), "waiting_for_runner: Waiting for runner...")
	running, _ := run("/chat/running", toRunner("mac"), "mac")
	equal(t, "running", said(running), "running: Running on Kyle's MacBook")
	signal(running, "SIGTERM")
	equal(t, "asked to stop", said(running), "stopping: Stopping...")
	signal(running, "SIGKILL")
	equal(t, "killed", said(running), "killed: Killed")
	signal(idle, "SIGSTOP")
	equal(t, "paused", said(idle), "paused: Paused")
	signal(idle, "SIGTERM")
	equal(t, "stopped", said(idle), "stopped: Stopped")
	failed, a := run("/chat/failed", toRunner("mac"), "mac")
	r.want("released", failed.call("release", a.Epoch, a.Wake).with("error", "boom").with("acks", failed.acks(r.tail(failed))))
	equal(t, "failed", said(failed), "failed: Run failed — check logs")
	hooked := r.woken("/chat/hooked", toWebhook)
	equal(t, "sent", said(hooked), "delivering: Delivering pending work...")
	r.exec(`update rouse.wake_notifications set delivery_status = 'failed' where consumer_id = $1`, hooked.name)
	equal(t, "refused", said(hooked), "delivery_failed: Delivery failed — check its wakes")
	nowhere := r.entity("/chat/nowhere", "")
	r.push(nowhere)
	equal(t, "nowhere", said(nowhere), "no_target: Waiting for a dispatch target")

	equal(t, "no member there", said(r.woken("/chat/p1", toPool("empty"))), "waiting_for_pool: Waiting for a runner of empty...")
	pooled := r.woken("/chat/p2", toPool("coding"))
	equal(t, "a member there", said(pooled), "runner_syncing: Runner syncing pending work...")
	held, _ := run("/chat/p3", toPool("coding"), "mac")
	equal(t, "held", said(held), "running: Running on Kyle's MacBook")
	equal(t, "full", said(pooled), "waiting_for_capacity: Waiting for capacity of coding...")
	r.want("pool_full", pooled.by("mac"))
	equal(t, "refused", said(pooled), "waiting_for_capacity: Waiting for capacity of coding...")
	fallen := r.woken("/chat/p4", `{"targets":[{"type":"runner","runnerId":"gone"},{"type":"worker-pool","workerPoolId":"empty"}]}`)
	equal(t, "fallen back", said(fallen), "waiting_for_pool: Waiting for a runner of empty...")
	equal(t, "facts", one[string](r, `select concat_ws(' ', target_type, target_index, attempt, pool_id, pool_name) from rouse.entity_display where url = $1`, fallen.url), "worker-pool 1 1 empty empty")
	r.move(held, kyle, toRunner("gone"), nil)
	equal(t, "to a runner", said(held), "moving: Moving to Kyle's MacBook...")
	r.move(held, kyle, toPool("empty"), nil)
	equal(t, "to a pool", said(held), "moving: Moving to empty...")
	r.move(held, kyle, macThenPool, nil)
	equal(t, "to the first of several", said(held), "moving: Moving to Kyle's MacBook...")
	r.move(held, kyle, toWebhook, nil)
	equal(t, "to a webhook", said(held), "moving: Moving to webhook...")
	for reason, words := range map[string]string{
		"attempts_exhausted": "tried once", "unclaimed": "nobody took it in time", "delivery_failed": "it could not be delivered", "no_target": "its target is gone",
	} {
		equal(t, reason, said(park("/chat/"+reason, reason)), "parked: Parked — "+words+"; redrive it")
	}
	tried := park("/chat/tried", "attempts_exhausted")
	r.exec(`update rouse.consumers set attempts = 3 where id = $1`, tried.consumer)
	equal(t, "more than once", said(tried), "parked: Parked — tried 3 times; redrive it")
	signal(tried, "SIGSTOP")
	equal(t, "parked and paused", said(tried), "paused: Paused")
	signal(tried, "SIGKILL")
	equal(t, "parked and killed", said(tried), "killed: Killed")

	// A claim that is no runner's, and a handover of one that was asked to stop.
	sent := r.woken("/chat/sent", toWebhook)
	a = r.want("granted", sent.acquire().with("proved", true))
	equal(t, "by its callback", said(sent), "running: Running")
	signal(sent, "SIGSTOP")
	equal(t, "held and paused", said(sent), "paused: Paused")
	moving, _ := run("/chat/moving", toRunner("mac"), "mac")
	r.move(moving, kyle, toPool("coding"), nil)
	signal(moving, "SIGTERM")
	equal(t, "moving and stopping", said(moving), "stopping: Stopping...")
	r.exec(`update rouse.entities set status = 'spawning' where url = $1`, sent.url)
	equal(t, "made", said(sent), "spawning: Starting...")
}
