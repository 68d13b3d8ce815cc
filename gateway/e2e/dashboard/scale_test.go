package dashboard

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Ten thousand entities and two hundred runners: the list is there in seconds, a change is seen in well under one, what is not on
// the screen is not in the document, and the page's memory stays small. The log has the figures.
func TestManyEntitiesStaySmooth(t *testing.T) {
	w := newWorld(t, nil)
	w.entityType("task")
	const entities, runners = 10_000, 200
	w.runner("r0", "Runner 0", true)
	w.spawn("/task/model", object{"dispatch_policy": toRunner("r0")})
	db := w.gw.DB.Conn(t)
	for _, sql := range []string{
		fmt.Sprintf(`insert into rouse.runners select (jsonb_populate_record(r, jsonb_build_object('id', 'r' || i, 'label', 'Runner ' || i, 'wake_stream', '/runners/r' || i || '/wake'))).*
			from rouse.runners r, generate_series(1, %d) i where r.id = 'r0'`, runners-1),
		fmt.Sprintf(`insert into rouse.runner_runtime_diagnostics select (jsonb_populate_record(g, jsonb_build_object('runner_id', 'r' || i, 'liveness_lease_expires_at', clock_timestamp() + case when i %% 4 = 0 then '-1 minute' else '1 hour' end::interval))).*
			from rouse.runner_runtime_diagnostics g, generate_series(1, %d) i where g.runner_id = 'r0'`, runners-1),
		`insert into rouse.consumers overriding system value select (jsonb_populate_record(c, jsonb_build_object('id', c.id + i, 'name', c.name || i, 'entity_url', '/task/' || i))).*
			from rouse.consumers c, generate_series(1, 9998) i where c.entity_url = '/task/model'`,
		`select setval(pg_get_serial_sequence('rouse.consumers', 'id'), max(id)) from rouse.consumers`,
		`insert into rouse.entities select (jsonb_populate_record(e, jsonb_build_object('url', '/task/' || i, 'consumer_id', e.consumer_id + i, 'tags', jsonb_build_object('team', 'team ' || i % 17),
				'status', case when i % 50 = 0 then 'paused' when i % 997 = 0 then 'killed' else 'idle' end,
				'dispatch_policy', jsonb_build_object('targets', jsonb_build_array(jsonb_build_object('type', 'runner', 'runnerId', 'r' || i % 200)))))).*
			from rouse.entities e, generate_series(1, 9998) i where e.url = '/task/model'`,
		`insert into rouse.entity_dispatch_state select (jsonb_populate_record(d, jsonb_build_object('entity_url', '/task/' || i, 'last_error', case when i % 400 = 7 then 'boom' end))).*
			from rouse.entity_dispatch_state d, generate_series(1, 9998) i where d.entity_url = '/task/model'`,
	} {
		if _, err := db.Exec(t.Context(), sql); err != nil {
			t.Fatal(sql, err)
		}
	}
	w.spawn("/task/watched", object{"dispatch_policy": toRunner("r0")})

	d := open(t, w.gw.URL, "", desk, nil)
	began := time.Now()
	d.until("all entities", `[...document.querySelectorAll(".facets b")].some((b) => b.textContent.replace(/\D/g, "") === "10000")`)
	// From the navigation's start, by the page's own clock, to now.
	load := time.Duration(eval[float64](d, `performance.now()`)) * time.Millisecond
	d.sees("Live")
	t.Logf("%d entities are listed %v after the navigation began (waited %v)", entities, load.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	rows := eval[float64](d, `document.querySelectorAll(".entity").length`)
	nodes := eval[float64](d, `document.querySelectorAll("*").length`)
	heap := eval[float64](d, `performance.memory.usedJSHeapSize / 1048576`)
	t.Logf("%v rows in the document, %v elements, %.1f MiB of JavaScript heap", rows, nodes, heap)
	if rows > 60 || heap > 150 || load > 15*time.Second {
		t.Errorf("too much: %v rows, %.1f MiB, %v", rows, heap, load)
	}
	d.picture("ten thousand")

	// From the request of a change to the words on the screen.
	var took []time.Duration
	for i := range 20 {
		signal, word := "SIGSTOP", "Paused"
		if i%2 == 1 {
			signal, word = "SIGCONT", "Runner syncing pending work..."
		}
		at := time.Now()
		w.call("POST", "/_electric/entities/task/watched/signal", object{"signal": signal})
		d.until("the change is seen", fmt.Sprintf(`[...document.querySelectorAll("a.entity")].some((a) => a.textContent.includes("/task/watched") && a.textContent.includes(%s))`, quoted(word)))
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	t.Logf("from a change's request to its words: median %v, worst of 20 %v", took[10].Round(time.Millisecond), took[19].Round(time.Millisecond))
	if took[10] > 2*time.Second {
		t.Errorf("a change takes %v to be seen", took[10])
	}

	// Typing and scrolling: the longest time in which the page drew nothing, while it also takes in a thousand changes.
	eval[string](d, `(() => { let last = performance.now(); window.__worst = 0; const f = (t) => { window.__worst = Math.max(window.__worst, t - last); last = t; requestAnimationFrame(f) }; requestAnimationFrame(f); return "" })()`)
	if _, err := db.Exec(t.Context(), `update rouse.entity_dispatch_state set last_error = 'boom', updated_at = clock_timestamp() where entity_url like '/task/1%'`); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		eval[string](d, `(() => { const v = document.querySelector(".virtual"); v.scrollTop += 7919; return "" })()`)
		d.until("rows where it was scrolled to", `(() => { const v = document.querySelector(".virtual"), b = v.getBoundingClientRect(); return !!document.elementFromPoint(b.left + 80, b.top + b.height / 2)?.closest("a.entity") })()`)
	}
	d.fill("Search entities", "team 3 r20")
	d.until("the search has found", `document.querySelectorAll("a.entity").length > 0 && [...document.querySelectorAll("a.entity")].every((a) => a.textContent.includes("Runner 20"))`)
	worst := eval[float64](d, `window.__worst`)
	heap = eval[float64](d, `performance.memory.usedJSHeapSize / 1048576`)
	t.Logf("scrolling and searching while 1111 rows change: the longest frame %.0f ms, then %.1f MiB", worst, heap)
	if worst > 3000 {
		t.Errorf("the page stood still for %.0f ms", worst)
	}
	d.visit("#/runners")
	d.sees("200", "151 online")
	if n := eval[float64](d, `document.querySelectorAll(".runner").length`); n > 60 {
		t.Errorf("%v runners in the document", n)
	}
	d.picture("two hundred runners")
}
