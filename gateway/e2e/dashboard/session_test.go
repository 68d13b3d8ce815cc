package dashboard

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// A token that is taken back while its page is open ends what the page shows; whoever signs in next sees what they may read, and
// nothing of what was there before.
func TestATokenThatEndsEndsThePage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.json")
	token := func(principal string) string {
		t.Helper()
		token := devtoken.NewToken()
		if err := devtoken.Add(file, devtoken.Entry{Principal: principal, SHA256: devtoken.Hash(token)}); err != nil {
			t.Fatal(err)
		}
		return token
	}
	kyles, adas := token("user:kyle"), token("user:ada")
	gw := servertest.Start(t, servertest.Options{Configure: func(c *config.Config) { c.Insecure, c.TokensFile = false, file }})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	w := &world{t: t, gw: gw, http: &http.Client{Transport: transport, Timeout: bound}}
	as := []string{"Authorization", "Bearer " + kyles}
	w.call("POST", "/_electric/entity-types", object{"name": "task", "description": "x"}, as...)
	w.call("PUT", "/_electric/entities/task/secret", object{"tags": object{"colour": "ultramarine"}}, as...)

	d := open(t, gw.URL, "#/entity/task/secret", desk, map[string]string{"token": kyles})
	d.expect(`status of 40[13]`)
	d.expect(`status of 404 .*/task/secret`)
	d.sees("Created", "ultramarine", "Live")
	if _, err := devtoken.Remove(file, func(e devtoken.Entry) bool { return e.Principal == "user:kyle" }); err != nil {
		t.Fatal(err)
	}
	d.sees("Token", "The credentials are not valid.")
	d.seesNot("ultramarine")
	d.picture("ended")

	d.fill("token", adas+" ☃")
	d.button("Sign in")
	d.sees("That is no token")
	d.fill("token", adas)
	d.button("Sign in")
	d.sees("There is no entity /task/secret that you may see.", "Live")
	d.visit("#/entities")
	d.sees("No entities yet.")
	d.visit("#/runners")
	d.sees("No runners yet.")
	d.visit("#/parked")
	d.sees("Nothing is parked.")
	d.seesNot("secret")
	d.picture("somebody else")
	if at := eval[string](d, `document.documentElement.outerHTML + location.href + JSON.stringify(localStorage)`); contains([]byte(at), kyles) || contains([]byte(at), adas) {
		t.Error("a token is on the page")
	}
}

// No row of an entity without a target changes when work comes; whoever sends it is told all the same.
func TestWhoeverSendsIsToldThatNobodyIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.entityType("task")
	w.spawn("/task/alone", object{})
	d := open(t, w.gw.URL, "#/entity/task/alone", phone, kyle)
	d.sees("Created", "Waiting for input")
	d.fill("Message", "is anybody there?")
	d.keys("Enter")
	d.sees("Waiting for a dispatch target")
	d.button("Work")
	d.sees("None: its work waits until it is moved to one.")
	d.picture("nobody")
}
