package dashboard

import (
	"testing"
)

// everything makes one of each thing that there is to see.
func everything(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, nil)
	w.entityType("chat")
	w.entityType("task")
	w.runner("mac", "Kyle's MacBook", true)
	w.runner("studio", "Studio", false)
	w.runner("ci", "CI machine", true)
	w.call("POST", "/_electric/runners/ci/disable", nil)
	w.spawn("/chat/garden", object{"dispatch_policy": toRunner("mac"), "tags": object{"team": "green"}, "args": object{"colour": "blue", "size": 3}})
	w.send("/chat/garden", "Could you plan the garden for spring? We have six raised beds and not much sun.")
	h := w.claim("mac")
	h.append(row("run", "r1", "insert", object{"status": "started"}), row("step", "s1", "insert", object{"step_number": 1, "status": "started"}),
		row("reasoning", "th1", "insert", object{"status": "completed", "text": "Beds with little sun: leafy things first."}),
		row("tool_call", "tc1", "insert", object{"tool_name": "search_plants", "status": "started", "args": object{"light": "partial shade"}}),
		row("tool_call", "tc1", "update", object{"status": "completed", "result": []string{"lettuce", "spinach", "chard"}}),
		row("text", "t1", "insert", object{"status": "streaming"}),
		object{"type": "text_delta", "key": "t1:0", "value": object{"text_id": "t1", "delta": "Six beds are plenty. "}, "headers": object{"operation": "insert"}},
		object{"type": "text_delta", "key": "t1:1", "value": object{"text_id": "t1", "delta": "Lettuce and chard by the wall, spinach in between, and the two sunnier beds for tomatoes."}, "headers": object{"operation": "insert"}},
		row("text", "t1", "update", object{"status": "completed"}),
		row("run", "r1", "update", object{"status": "completed", "finish_reason": "stop"}),
		row("state:plan", "beds", "insert", object{"beds": 6}))
	h.heartbeat()
	h.done()
	w.send("/chat/garden", "And where do the herbs go?")
	h = w.claim("mac")
	h.append(row("run", "r2", "insert", object{"status": "started"}), row("text", "t2", "insert", object{"status": "streaming"}),
		object{"type": "text_delta", "key": "t2:0", "value": object{"text_id": "t2", "delta": "Close to the kitchen door, so that"}, "headers": object{"operation": "insert"}})
	w.spawn("/chat/trip", object{"dispatch_policy": toRunner("studio")})
	w.send("/chat/trip", "Find a train to Vienna.")
	w.spawn("/task/report", object{"dispatch_policy": toRunner("mac")})
	w.send("/task/report", "Write the report.")
	w.spawn("/task/quiet", object{"dispatch_policy": toRunner("mac")})
	w.spawn("/task/held", object{"dispatch_policy": toRunner("mac")})
	w.call("POST", "/_electric/entities/task/held/signal", object{"signal": "SIGSTOP"})
	w.spawn("/task/gone", object{"dispatch_policy": toRunner("mac")})
	w.call("DELETE", "/_electric/entities/task/gone", nil)
	w.spawn("/task/lost", object{})
	w.send("/task/lost", "Nobody will do this.")
	return w
}

func TestEveryViewShowsWhatThereIs(t *testing.T) {
	t.Parallel()
	w := everything(t)
	for name, l := range map[string]look{"light": desk, "dark": night, "phone": phone, "phone dark": {width: 390, height: 844, dark: true, touch: true}} {
		d := open(t, w.gw.URL, "", l, nil)
		d.sees("/chat/garden", "Running on Kyle's MacBook", "Waiting for runner...", "Runner syncing pending work...", "Waiting for input", "Paused", "Killed", "Waiting for a dispatch target")
		d.picture(name + " entities")
		d.visit("#/entity/chat/garden")
		d.sees("Six beds are plenty. Lettuce and chard", "search_plants", "And where do the herbs go?", "Close to the kitchen door")
		d.picture(name + " entity")
		if l.touch {
			d.button("Work")
		}
		d.sees("lease", "Kyle's MacBook", "WAKE 2", "working")
		d.picture(name + " work")
		d.visit("#/runners")
		d.sees("Kyle's MacBook", "online", "Studio", "never seen", "disabled")
		d.picture(name + " runners")
		d.visit("#/system")
		d.sees("Everything is well", "webhook", "3 runners")
		d.picture(name + " system")
		d.visit("#/parked")
		d.sees("Parked")
	}
}
