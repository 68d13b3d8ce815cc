package dashboard

import (
	"fmt"
	"strings"
	"testing"
)

// What people and runners write is shown as what they wrote: no field becomes a part of the page, or leaves its place in it.
func TestWhatOthersWriteIsText(t *testing.T) {
	t.Parallel()
	const evil = `<img src=x onerror="document.title='taken over'"><script>document.title='taken over'</script>`
	w := newWorld(t, nil)
	w.call("POST", "/_electric/entity-types", object{"name": "task", "description": evil})
	w.runner("mac", evil, true)
	w.pool("pool", evil, object{}, "mac")
	w.spawn("/task/%3Cimg%20src=x%20onerror=alert(1)%3E", object{})
	w.spawn("/task/1", object{"tags": object{evil: evil}, "args": object{evil: evil, "dangerouslySetInnerHTML": object{"__html": evil}}, "dispatch_policy": toRunner("mac")})
	w.call("POST", "/_electric/entities/task/1/signal", object{"signal": "SIGHUP", "reason": evil})
	w.send("/task/1", object{"type": "script", "props": object{"dangerouslySetInnerHTML": object{"__html": evil}}})
	h := w.claim("mac")
	for kind, value := range map[string]object{
		"inbox": {"payload": evil, "from": evil, "message_type": evil, "mode": evil, "status": evil}, "text": {"text": evil}, "reasoning": {"text": evil},
		"tool_call": {"tool_name": evil, "status": evil, "args": object{evil: evil}, "result": evil, "error": evil}, "run": {"status": evil, "finish_reason": evil},
		"step": {"step_number": evil}, "signal": {"signal": evil, "sender": evil, "reason": evil}, "error": {"error_code": evil, "message": evil},
		"wake": {"source": evil, "changes": []any{object{"collection": evil, "kind": object{"a": 1}}, nil}}, "entity_created": {"args": evil},
		"child_status": {"entity_url": evil}, "tags": {"value": evil}, "slash_command": {"name": evil}, "constructor": {"x": evil}, "__proto__": {"x": evil}, evil: {evil: evil},
	} {
		h.append(row(kind, "evil", "insert", value))
	}
	h.append(row("text", "last", "insert", object{"text": "the last of it"}))

	for name, l := range map[string]look{"desk": desk, "phone": phone} {
		d := open(t, w.gw.URL, "", l, nil)
		for _, view := range []struct{ hash, sees string }{
			{"#/entities", "/task/1"}, {"#/entity/task/1", "the last of it"}, {"#/runners", "waiting"}, {"#/entity/task/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "Created"},
			{"#/%3Cimg%20src=x%20onerror=alert(1)%3E", "/task/1"},
		} {
			d.visit(view.hash)
			d.sees(view.sees, "<img src=x")
			if got := eval[string](d, `[...document.querySelectorAll("#app script, #app [onerror], #app img:not([src='icon.svg'])")].map((e) => e.outerHTML).join()`); got != "" {
				t.Errorf("%s, %s: a part of the page is %s", name, view.hash, got)
			}
			if by := eval[float64](d, `document.documentElement.scrollWidth - innerWidth`); by > 0 {
				t.Errorf("%s, %s: the page is too wide by %v", name, view.hash, by)
			}
			if got := eval[string](d, `document.title`); strings.Contains(got, "taken over") {
				t.Errorf("%s, %s: a script ran", name, view.hash)
			}
			if got := eval[string](d, `[...document.querySelectorAll(".conversation > *")].filter((e) => e.getBoundingClientRect().right > e.parentElement.getBoundingClientRect().right).map((e) => e.className).join()`); got != "" {
				t.Errorf("%s, %s: beyond the stream's edge: %s", name, view.hash, got)
			}
		}
		d.visit("#/entity/task/1")
		d.sees("the last of it")
		d.picture(name)
	}
}

// Two thousand entries: each keeps its height, and the place that is read stays where it is when earlier ones come in above it.
func TestALongStreamIsRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.entityType("chat")
	w.runner("mac", "Kyle's MacBook", true)
	w.spawn("/chat/long", object{"dispatch_policy": toRunner("mac")})
	w.send("/chat/long", "begin")
	h := w.claim("mac")
	for i := 0; i < 2000; i += 250 {
		var rows []object
		for n := i; n < i+250; n += 2 {
			rows = append(rows, row("text", fmt.Sprint(n), "insert", object{"text": fmt.Sprintf("entry %d: %s", n, strings.Repeat("and more ", n%40))}),
				row("tool_call", fmt.Sprint(n), "insert", object{"tool_name": "search", "status": "completed", "args": object{"n": n}, "result": strings.Repeat("x", 500)}))
		}
		h.append(rows...)
	}
	d := open(t, w.gw.URL, "#/entity/chat/long", desk, kyle)
	d.sees("entry 1998:", "2002 entries")
	if n := eval[float64](d, `document.querySelectorAll(".conversation > *").length`); n > 310 {
		t.Errorf("%v entries are drawn at once", n)
	}
	if least := eval[float64](d, `Math.min(...[...document.querySelectorAll(".entry.tool")].map((e) => e.clientHeight - e.querySelector("summary").clientHeight))`); least < 0 {
		t.Errorf("a tool's entry lacks %v pixels for its name", -least)
	}
	eval[string](d, `(window.read = document.querySelector(".conversation .entry.text"), document.querySelector(".conversation").scrollTop = 0, "")`)
	before := eval[float64](d, `read.getBoundingClientRect().top`)
	d.click(`//button[starts-with(normalize-space(), "Show earlier")]`)
	d.until("earlier ones are there", `document.querySelectorAll(".conversation > *").length > 500`)
	if after := eval[float64](d, `read.getBoundingClientRect().top`); after < before-60 || after > before+60 {
		t.Errorf("what was read at %v is at %v", before, after)
	}
	d.picture("earlier")
}
