package access

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/soon"
)

const (
	// owners is in the names of everything that kyle has.
	owners = "kyles"
	// hidden is what nobody else must see.
	hidden = "hidden-from-others"
)

// world makes what the operations of the matrix are about: kyle's things in the
// service default, a few of mallory's, and the service elsewhere, which is empty.
type world struct {
	*testing.T
	url    string
	client *http.Client
	policy bool
	// Tokens: JSON Web Tokens, and two of a file.
	kyle, mallory, roleless, expired string
	stranger, system                 string

	hook      *httptest.Server // of webhooks
	delivered chan delivery
	foreign   lease // mallory's
}

// delivery is what a webhook of a subscription brings.
type delivery struct {
	Wake       string `json:"wake_id"`
	Generation int64
	Token      string `json:"callback_token"`
}

// lease is a claim as its taker knows it.
type lease struct {
	Streams              []struct{ Offset string }
	entity, runner       string
	ConsumerID           string `json:"consumerId"`
	WakeID               string `json:"wakeId"`
	Epoch                int64
	ClaimToken           string `json:"claimToken"`
	WriteToken           string `json:"writeToken"`
	overClaim, overWrite string // of the claim before
	Token                string // of a subscription's
	Wake                 string `json:"wake_id"`
	Generation           int64
}

// on does as a token's bearer what must succeed, and reads the answer into v.
func (w *world) on(token, method, path, body string, v any, header ...string) {
	w.Helper()
	a := do(w.T, w.client, method, w.url+path, body, append(header, bearer(token)...)...)
	if a.status >= 300 {
		w.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
	}
	if v != nil {
		if err := json.Unmarshal([]byte(a.body), v); err != nil {
			w.Fatalf("%s %s: %v: %s", method, path, err, a.body)
		}
	}
}

func (w *world) do(method, path, body string, header ...string) {
	w.Helper()
	w.on(w.kyle, method, path, body, nil, header...)
}

// eventually polls until ok.
func (w *world) eventually(what string, ok func() bool) {
	w.Helper()
	soon.Until(w, what, ok)
}

// found makes what all rows share.
func (w *world) found() {
	w.Helper()
	w.on(w.system, "POST", "/_electric/services", `{"name":"elsewhere"}`, nil)
	for _, token := range []string{w.kyle, w.mallory} { // their rows are made on first sight
		w.on(token, "GET", "/_electric/entities", "", nil)
		w.on(token, "GET", "/_electric/entities?service=elsewhere", "", nil)
	}
	if !w.policy {
		w.on(w.stranger, "GET", "/_electric/entities", "", nil)
	}
	w.kind(owners + "-task")
	w.runner(owners + "-runner")
	w.on(w.mallory, "POST", "/_electric/entity-types", `{"name":"foreign-task","description":"x"}`, nil)
	w.on(w.mallory, "POST", "/_electric/runners", `{"id":"foreign-runner","label":"x"}`, nil)
	w.foreign = lease{entity: "/foreign-task/1", runner: "foreign-runner"}
	w.waits(w.mallory, &w.foreign)
	w.claim(w.mallory, &w.foreign)
	w.delivered = make(chan delivery, 100)
	w.hook = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var d delivery
		if err := json.NewDecoder(r.Body).Decode(&d); err != nil {
			w.Error(err)
		}
		w.delivered <- d
		_, _ = io.WriteString(rw, `{"ok":true}`)
	}))
	w.Cleanup(w.hook.Close)
}

// kind registers a type.
func (w *world) kind(name string) string {
	w.Helper()
	w.do("POST", "/_electric/entity-types", fmt.Sprintf(`{"name":%q,"description":%q,"externally_writable_collections":{"notes":{"type":"note"}}}`, name, hidden))
	return name
}

func (w *world) runner(id string) string {
	w.Helper()
	w.do("POST", "/_electric/runners", fmt.Sprintf(`{"id":%q,"label":%q}`, id, hidden))
	return id
}

// entity spawns one that nothing is to do on, and is its id.
func (w *world) entity(id string) string {
	w.Helper()
	w.do("PUT", "/_electric/entities/"+owners+"-task/"+id, fmt.Sprintf(`{"tags":{"secret":%q},"args":{"secret":%q}}`, hidden, hidden))
	return id
}

// waits spawns an entity with a message, and finds the wake of it.
func (w *world) waits(token string, l *lease) {
	w.Helper()
	w.on(token, "PUT", "/_electric/entities"+l.entity,
		fmt.Sprintf(`{"dispatch_policy":{"targets":[{"type":"runner","runnerId":%q}]},"initialMessage":%q}`, l.runner, hidden), nil)
	w.wake(token, l, 1)
}

// wake finds the wake of an epoch.
func (w *world) wake(token string, l *lease, epoch int64) {
	w.Helper()
	w.eventually("a wake of "+l.entity, func() bool {
		var got []struct {
			WakeID string `json:"wake_id"`
			Epoch  int64
		}
		w.on(token, "GET", "/_electric/entities"+l.entity+"/wakes", "", &got)
		for _, g := range got {
			if l.WakeID, l.Epoch = g.WakeID, g.Epoch; l.Epoch == epoch {
				return true
			}
		}
		return false
	})
}

func (w *world) claim(token string, l *lease) {
	w.Helper()
	w.on(token, "POST", "/_electric/runners/"+l.runner+"/claim", fmt.Sprintf(`{"wakeId":%q}`, l.WakeID), l)
	if len(l.Streams) == 0 || l.ClaimToken == "" || l.WriteToken == "" || l.ConsumerID == "" {
		w.Fatalf("the claim of %s is not whole", l.entity)
	}
}

// waiting is an entity of kyle's with a wake that nobody has taken.
func (w *world) waiting(id string) lease {
	w.Helper()
	l := lease{entity: "/" + owners + "-task/" + id, runner: owners + "-runner"}
	w.waits(w.kyle, &l)
	return l
}

// held is an entity of kyle's under its second claim.
func (w *world) held(id string) lease {
	w.Helper()
	l := w.waiting(id)
	w.claim(w.kyle, &l)
	must(w.T, 200, w.client, "POST", w.url+"/_electric/wake-callbacks/"+l.WakeID, fmt.Sprintf(`{"epoch":%d,"done":true,"acks":[]}`, l.Epoch), "Electric-Claim-Token", l.ClaimToken)
	l.overClaim, l.overWrite = l.ClaimToken, l.WriteToken
	w.do("POST", "/_electric/entities"+l.entity+"/send", `{"payload":1}`)
	w.wake(w.kyle, &l, 2)
	w.claim(w.kyle, &l)
	return l
}

// stream makes a JSON stream with one message.
func (w *world) stream(path string) string {
	w.Helper()
	w.do("PUT", "/"+path, `[{"secret":"`+hidden+`"}]`, "Content-Type", "application/json")
	return path
}

// subscription is one of kyle's with work to do, at <id>.
func (w *world) subscription(id string) string {
	w.Helper()
	w.do("PUT", "/__ds/subscriptions/"+id, fmt.Sprintf(`{"type":"pull-wake","pattern":"jobs-%s/*","wake_stream":"wakes-%s","lease_ttl_ms":600000,"description":%q}`, id, id, hidden))
	w.stream("jobs-" + id + "/1")
	return id
}

// taken is a subscription of kyle's under its second claim.
func (w *world) taken(id string) lease {
	w.Helper()
	w.subscription(id)
	var l lease
	at := "/__ds/subscriptions/" + id
	w.claimed(at, &l)
	must(w.T, 204, w.client, "POST", w.url+at+"/release", "", bearer(l.Token)...)
	l.overClaim = l.Token
	w.claimed(at, &l)
	return l
}

func (w *world) claimed(at string, l *lease) {
	w.Helper()
	w.eventually("work of "+at, func() bool {
		a := do(w.T, w.client, "POST", w.url+at+"/claim", `{"worker":"kyles"}`, bearer(w.kyle)...)
		if a.status == 200 {
			*l = lease{overClaim: l.overClaim}
			if err := json.Unmarshal([]byte(a.body), l); err != nil || l.Token == "" {
				w.Fatalf("%v: %s", err, a.body)
			}
		} else if a.code() != "NO_PENDING_WORK" {
			w.Fatalf("%d %s", a.status, a.body)
		}
		return a.status == 200
	})
}

// hooked is a subscription of kyle's whose webhook was told, twice.
func (w *world) hooked(id string) (now delivery, over string) {
	w.Helper()
	w.do("PUT", "/__ds/subscriptions/"+id, fmt.Sprintf(`{"type":"webhook","pattern":"jobs-%s/*","webhook":{"url":%q},"lease_ttl_ms":600000}`, id, w.hook.URL))
	w.stream("jobs-" + id + "/1")
	next := func() delivery {
		select {
		case d := <-w.delivered:
			return d
		case <-time.After(bound):
			w.Fatal("no webhook comes")
		}
		return delivery{}
	}
	first := next()
	must(w.T, 200, w.client, "POST", w.url+"/__ds/subscriptions/"+id+"/callback", `{"done":true}`, bearer(first.Token)...)
	return next(), first.Token
}

// form is a multipart body with a file.
func form(id string) (contentType, body string) {
	const edge = "edge"
	var b strings.Builder
	for _, f := range [][2]string{{"subjectType", "inbox"}, {"subjectKey", "m"}, {"id", id}} {
		fmt.Fprintf(&b, "--%s\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n", edge, f[0], f[1])
	}
	fmt.Fprintf(&b, "--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\n%s\r\n--%s--\r\n", edge, hidden, edge)
	return "multipart/form-data; boundary=" + edge, b.String()
}
