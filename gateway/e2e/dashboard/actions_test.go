package dashboard

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/laptop"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

func contains(raw []byte, s string) bool { return bytes.Contains(raw, []byte(s)) }

// What a person does with an entity, from its birth to its end.
func TestAnEntityIsSpawnedSentToSignalledAndKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.entityType("task")
	w.runner("mac", "Kyle's MacBook", true)
	d := open(t, w.gw.URL, "", desk, kyle)
	d.sees("No entities yet.", "Live")

	// A refusal stays in the dialog, in the gateway's words.
	d.expect(`status of 404`)
	d.button("Spawn")
	d.sees("runner Kyle's MacBook")
	d.fill("type", "nothing")
	d.fill("id", "1")
	d.click(`//dialog//button[normalize-space()="Spawn"]`)
	d.sees("(UNKNOWN_ENTITY_TYPE)")
	d.picture("refused")
	d.fill("type", "task")
	d.fill("message", "plant the beans")
	d.click(`//summary[normalize-space()="Arguments and tags"]`)
	d.fill("args", "not json")
	d.click(`//dialog//button[normalize-space()="Spawn"]`)
	d.sees("Arguments must be a JSON object.")
	d.fill("args", `{"colour":"blue"}`)
	d.fill("tags", `{"team":"red"}`)
	d.choose("Target 1", "Kyle's MacBook")
	d.picture("spawn")
	d.click(`//dialog//button[normalize-space()="Spawn"]`)
	d.sees("/task/1 is there.", "plant the beans", "team: red", "Runner syncing pending work...")
	d.until("the dialog is gone", `!document.querySelector("dialog")`)

	h := w.claim("mac")
	d.sees("Running on Kyle's MacBook")
	h.append(row("text", "a", "insert", object{"text": "Beans are planted."}))
	d.sees("Beans are planted.")
	h.done()
	d.sees("Waiting for input", "released")

	// Sending: what was typed goes when it is on the stream.
	d.fill("Message", `{"beans":12}`)
	d.button("Send")
	d.sees(`"beans": 12`)
	d.until("the field is empty", `document.querySelector(".composer textarea").value === ""`)
	w.claim("mac").done()
	d.sees("Waiting for input")

	for _, s := range []struct{ signal, then string }{{"SIGSTOP", "Paused"}, {"SIGCONT", "Runner syncing pending work..."}, {"SIGKILL", "Killed"}} {
		d.button("Signal")
		d.click(`//input[@value="` + s.signal + `"]`)
		d.fill("reason", "because of "+s.signal)
		if s.signal == "SIGKILL" {
			d.picture("kill")
			d.click(`//dialog//button[normalize-space()="Kill"]`)
		} else {
			d.click(`//dialog//button[normalize-space()="Send"]`)
		}
		d.sees(s.then, "because of "+s.signal)
		d.until("the dialog is gone", `!document.querySelector("dialog")`)
	}
	d.until("a dead entity is not written to", `!document.querySelector(".composer")`)
	d.picture("killed")
}

func TestARunnerIsDisabledAndEnabled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.runner("mac", "Kyle's MacBook", true)
	d := open(t, w.gw.URL, "#/runners", night, kyle)
	d.sees("Kyle's MacBook", "online")
	d.button("Disable")
	d.sees("Kyle's MacBook is disabled", "disabled")
	if _, raw := w.try("GET", "/_electric/runners/mac", nil); !contains(raw, `"admin_status":"disabled"`) {
		t.Errorf("%s", raw)
	}
	d.button("Enable")
	d.sees("Kyle's MacBook is enabled.", "online")
	// What only system principals may see is not there, and said so.
	d.expect(`status of 403 .*/_electric/plugins`)
	d.visit("#/system")
	d.sees("Only a system principal", "READING THE LOG")
	if _, raw := w.try("GET", "/_electric/runners/mac", nil); !contains(raw, `"admin_status":"enabled"`) {
		t.Errorf("%s", raw)
	}
}

// A receiver refuses; the wake shows why, and is delivered again by hand.
func TestARefusedDeliveryIsShownAndTriedAgain(t *testing.T) {
	t.Parallel()
	var ok atomic.Bool
	got := make(chan struct{}, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ok.Load() {
			http.Error(w, "no such garden", http.StatusGone)
			return
		}
		got <- struct{}{}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"done":true}`))
	}))
	t.Cleanup(hook.Close)
	w := newWorld(t, nil)
	w.entityType("task")
	w.spawn("/task/1", object{"dispatch_policy": object{"targets": []any{object{"type": "webhook", "url": hook.URL}}}})
	d := open(t, w.gw.URL, "#/entity/task/1", desk, kyle)
	d.sees("Created")
	w.send("/task/1", "hello")
	d.sees("Delivery failed — check its wakes", "410")
	d.picture("refused")
	ok.Store(true)
	d.button("Deliver again")
	select {
	case <-got:
	case <-time.After(bound):
		d.fail("it was not delivered again")
	}
	d.sees("It is delivered again.", "Waiting for input")
	d.seesNot("Deliver again")
}

// "Run failed — check logs" is said where the logs are.
func TestAFailedRunLeadsToItsLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.entityType("task")
	laptop.Start(t, laptop.Spec{Server: w.gw.URL, ID: "mac", Label: "Kyle's MacBook", Command: `echo "half a fence"; echo "no such shed" >&2; exit 7`, Liveness: time.Second})
	w.online("mac")
	w.spawn("/task/1", object{"dispatch_policy": toRunner("mac")})
	d := open(t, w.gw.URL, "#/entity/task/1", night, kyle)
	d.sees("Created")
	w.send("/task/1", "paint")
	d.sees("Run failed — check logs", "half a fence", "exit status 7", "failed")
	d.click(`//summary[normalize-space()="The log of failed runs"]`)
	d.until("the log is there", `[...document.querySelectorAll("details[open] pre")].some((p) => p.textContent.includes("no such shed"))`)
	d.picture("failed run")
	d.visit("#/entities")
	d.click(`//button[@data-code="failed"]`)
	d.sees("/task/1", "Run failed — check logs")
}

// In serve nothing is shown to nobody.
func TestSigningIn(t *testing.T) {
	t.Parallel()
	token, file := devtoken.NewToken(), filepath.Join(t.TempDir(), "tokens.json")
	if err := devtoken.Add(file, devtoken.Entry{Principal: "user:kyle", SHA256: devtoken.Hash(token)}); err != nil {
		t.Fatal(err)
	}
	gw := servertest.Start(t, servertest.Options{Configure: func(c *config.Config) { c.Insecure, c.TokensFile = false, file }})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	w := &world{t: t, gw: gw, http: &http.Client{Transport: transport, Timeout: bound}}
	as := []string{"Authorization", "Bearer " + token}
	w.call("POST", "/_electric/entity-types", object{"name": "task", "description": "x"}, as...)
	w.call("PUT", "/_electric/entities/task/secret", object{}, as...)

	d := open(t, gw.URL, "", phone, nil)
	d.expect(`status of 401`)
	d.sees("Sign in", "Token", "This gateway asks who you are.")
	d.seesNot("/task/secret")
	d.picture("sign in")
	d.fill("token", "rouse_nonsense")
	d.button("Sign in")
	d.sees("The credentials are not valid.")
	d.seesNot("/task/secret")
	d.fill("token", token)
	d.button("Sign in")
	d.sees("/task/secret", "Waiting for input")
	if at := eval[string](d, `location.href + document.cookie + JSON.stringify(localStorage)`); contains([]byte(at), token) {
		t.Error("the token is kept where it does not belong: " + at)
	}
	d.visit("#/entity/task/secret")
	d.sees("Created")
	d.fill("Message", "hello")
	d.button("Send")
	d.sees("user:kyle")
	eval[string](d, `(sessionStorage.clear(), location.reload(), "")`)
	d.sees("Sign in", "This gateway asks who you are.")
	d.seesNot("/task/secret")
}

// Keys do what the mouse does.
func TestTheKeyboardIsEnough(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.entityType("task")
	for _, id := range []string{"a", "b", "c"} {
		w.spawn("/task/"+id, object{"tags": object{"letter": id}})
	}
	d := open(t, w.gw.URL, "", look{width: 1000, height: 700, still: true}, kyle)
	d.sees("/task/a", "/task/b", "/task/c")
	d.keys("/")
	d.until("the search has the focus", `document.activeElement.type === "search"`)
	d.fill("Search entities", "letter:b")
	d.until("only one matches", `document.querySelectorAll("a.entity").length === 1`)
	d.sees("/task/b")
	d.fill("Search entities", "task")
	d.until("all match", `document.querySelectorAll("a.entity").length === 3`)
	eval[string](d, `(document.querySelector("a.entity").focus(), "")`)
	d.keys("ArrowDown", "ArrowDown", "ArrowUp")
	d.until("the second row has the focus", `document.activeElement === document.querySelectorAll("a.entity")[1]`)
	d.keys("Enter")
	d.sees("Created")
	if n := eval[float64](d, `[...document.querySelectorAll("button, a, input, select, textarea, [role=log], [role=list]")]
		.filter((e) => !(e.innerText?.trim() || e.getAttribute("aria-label") || e.closest("label")?.innerText.trim() || e.title)).length`); n > 0 {
		t.Errorf("%v controls have no name", n)
	}
	if got := eval[bool](d, `document.getAnimations().some((a) => a.playState === "running")`); got {
		t.Error("something moves for somebody who asked for stillness")
	}
}
