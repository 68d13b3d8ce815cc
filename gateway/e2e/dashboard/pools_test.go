package dashboard

import (
	"encoding/json"
	"testing"
	"time"
)

// pool makes a worker pool of registered runners.
func (w *world) pool(id, name string, limits object, members ...string) {
	w.t.Helper()
	w.call("PUT", "/_electric/worker-pools/"+id, object{"name": name, "capacity_policy": limits})
	for _, m := range members {
		w.call("PUT", "/_electric/worker-pools/"+id+"/members/"+m, object{})
	}
}

func toPool(id string) object {
	return object{"type": "worker-pool", "workerPoolId": id}
}

// Who is in a pool, what it has to do, and a member that is drained.
func TestPoolsAreShownAndAMemberIsDrained(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.entityType("task")
	w.runner("anvil", "Anvil", true)
	w.runner("bellows", "Bellows", true)
	w.runner("chisel", "Chisel", false)
	w.pool("coding", "Coding", object{"maxTotalClaims": 4, "maxConcurrentClaimsPerRunner": 2}, "anvil", "bellows", "chisel")
	for _, id := range []string{"1", "2", "3"} {
		w.spawn("/task/"+id, object{"dispatch_policy": object{"targets": []any{toPool("coding")}}})
		w.send("/task/"+id, "hammer")
	}
	h := w.claim("anvil")
	for name, l := range map[string]look{"desk": desk, "phone dark": {width: 390, height: 844, dark: true, touch: true}} {
		d := open(t, w.gw.URL, "#/runners", l, kyle)
		d.sees("Coding", "of 4 held", "2 a runner", "Anvil online, 1 held", "Bellows online, 0 held", "Chisel offline, 0 held", "never seen")
		d.picture(name)
	}
	d := open(t, w.gw.URL, "#/runners", desk, kyle)
	d.button("Drain Anvil")
	d.sees("Anvil is drained", "Anvil draining, 1 held")
	h.done()
	d.sees("Anvil disabled, 0 held")
	if status, raw := w.try("POST", "/_electric/runners/anvil/claim", object{}); status == 200 {
		t.Errorf("a drained member was granted %s", raw)
	}
	d.button("Undrain Anvil")
	d.sees("Anvil online, 0 held")
	d.visit("#/entities")
	d.sees("/task/1", "Coding")
	w.claim("bellows")
	d.sees("Running on Bellows")
	d.picture("a pool's work")
}

// Nobody takes it, so it is given up, shown with the reason, and tried again.
func TestParkedWorkIsShownAndRedriven(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.entityType("task")
	w.runner("anvil", "Anvil", false)
	policy := object{"targets": toRunner("anvil")["targets"], "giveUp": object{"afterMs": 1000}}
	for _, id := range []string{"1", "2", "3"} {
		w.spawn("/task/"+id, object{"dispatch_policy": policy})
		w.send("/task/"+id, "hammer")
	}
	d := open(t, w.gw.URL, "#/parked", desk, kyle)
	d.sees("/task/1", "/task/2", "/task/3", "nobody took it in time")
	d.picture("parked")
	d.visit("#/entity/task/1")
	d.sees("Parked — nobody took it in time; redrive it")
	d.picture("entity")
	// A runner that is there takes it this time, for it is claimed at once.
	d.button("Redrive")
	d.sees("/task/1 is tried again.")
	w.claim("anvil").done()
	d.sees("Waiting for input", "released")
	d.visit("#/parked")
	d.until("two are left", `document.querySelectorAll(".parked li").length === 2`)
	d.button("Redrive…")
	d.choose("reason", "nobody took it in time")
	d.click(`//dialog//button[normalize-space()="Redrive"]`)
	d.sees("2 tried again.", "Nothing is parked.")
}

// An entity is moved while somebody works it: the holder is asked, then fenced, and the next goes on.
func TestAnEntityIsMoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.entityType("task")
	w.runner("anvil", "Anvil", true)
	w.runner("bellows", "Bellows", true)
	w.spawn("/task/1", object{"dispatch_policy": toRunner("anvil")})
	w.send("/task/1", "hammer")
	w.claim("anvil")
	d := open(t, w.gw.URL, "#/entity/task/1", desk, kyle)
	d.sees("Running on Anvil")
	d.button("Move")
	d.choose("Target 1", "Bellows")
	d.fill("deadline", "1")
	d.fill("reason", "the anvil is hot")
	d.sees("Whoever holds it now is asked to release")
	d.picture("move")
	d.click(`//dialog//button[normalize-space()="Move"]`)
	d.sees("It moves as soon as its holder lets go.", "Runner syncing pending work...", "expired")
	w.claim("bellows").done()
	d.sees("Waiting for input", "Moved once", "the anvil is hot")
	d.picture("moved")
}

// Words that hang on what is not synced come from the gateway: who waits for room, and who for a runner.
func TestWhatAPoolsWorkWaitsFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.entityType("task")
	w.runner("anvil", "Anvil", true)
	w.runner("chisel", "Chisel", false)
	w.pool("small", "Small", object{"maxTotalClaims": 1}, "anvil")
	w.pool("away", "Away", object{}, "chisel")
	for id, pool := range map[string]string{"1": "small", "2": "small", "3": "away"} {
		w.spawn("/task/"+id, object{"dispatch_policy": object{"targets": []any{toPool(pool)}}})
		w.send("/task/"+id, "hammer")
	}
	h := w.claim("anvil")
	// The wakes of those that nobody holds yet are asked for by name, and there is no room.
	var entries []object
	deadline := time.Now().Add(bound)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for len(entries) < 2 {
		status, raw := w.try("GET", "/worker-pools/small/wake?offset=-1&runner=anvil", nil)
		if err := json.Unmarshal(raw, &entries); err != nil || status != 200 || time.Now().After(deadline) {
			t.Fatalf("%v, %d with %d entries", err, status, len(entries))
		}
		<-tick.C
	}
	for _, e := range entries {
		if status, raw := w.try("POST", "/_electric/runners/anvil/claim", e); status == 200 {
			t.Fatalf("a full pool granted %s", raw)
		}
	}
	d := open(t, w.gw.URL, "", desk, kyle)
	d.sees("Running on Anvil", "Waiting for a runner of Away...", "Waiting for capacity of Small...")
	d.picture("waiting")
	h.done()
	w.claim("anvil").done()
	d.seesNot("Waiting for capacity of Small...")
	d.seesNot("Running on Anvil")
}
