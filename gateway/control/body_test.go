package control

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/intake"
	"github.com/rouse-run/rouse/gateway/soon"
	"github.com/rouse-run/rouse/plugins/contract"
)

// Every malformed body is a 400 with a place, never an effect and never an echo.
func TestBadBodies(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", "")
	const secret = "s3cr3t-value"
	for name, body := range map[string]string{
		"syntax":            `{"payload":` + `"` + secret,
		"rubbish behind":    `{"payload":1} ` + secret,
		"two values":        `{"payload":1}{"payload":2}`,
		"an array":          `["` + secret + `"]`,
		"a string":          `"` + secret + `"`,
		"null":              `null`,
		"duplicate key":     `{"payload":1,"payload":"` + secret + `"}`,
		"deep duplicate":    `{"payload":{"a":1,"a":"` + secret + `"}}`,
		"escaped duplicate": `{"payload":1,"\u0070ayload":2}`,
		"invalid UTF-8":     "{\"payload\":\"\xff" + secret + "\"}",
		"lone surrogate":    `{"payload":"\ud800` + secret + `"}`,
		"NUL":               `{"payload":"\u0000` + secret + `"}`,
		"NUL in a key":      `{"payload":{"\u0000` + secret + `":1}}`,
		"deep":              `{"payload":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`,
		"very deep":         strings.Repeat(`{"a":`, 100_000),
		"unknown member":    `{"payload":1,"nope":"` + secret + `"}`,
		"wrong case":        `{"Payload":"` + secret + `"}`,
		"wrong type":        `{"payload":1,"type":{"x":"` + secret + `"}}`,
		"not in the enum":   `{"payload":1,"mode":"` + secret + `"}`,
		"missing":           `{"type":"` + secret + `"}`,
		"empty":             ``,
		"two spellings":     `{"payload":1,"type":"x","messageType":"` + secret + `"}`,
		"too long":          `{"payload":1,"key":"` + strings.Repeat("k", 300) + secret + `"}`,
		"delayed too long":  `{"payload":1,"afterMs":1e12}`,
		"not oneself":       `{"payload":1,"from":"/principal/user%3A` + secret + `"}`,
		"negative":          `{"payload":1,"afterMs":-1}`,
	} {
		a := r.refused(400, "INVALID_REQUEST", kyle, "POST", "/_electric/entities/chat/1/send", body)
		if strings.Contains(string(a.body), secret) {
			t.Errorf("%s: the value is echoed: %s", name, a.body)
		}
		if list, ok := a.get("errors").([]any); !ok || len(list) == 0 {
			t.Errorf("%s: no place is named: %s", name, a.body)
		}
	}
	if n := r.count(`select count(*) from rouse.messages`); n != 1 {
		t.Errorf("%d messages: a refused body had an effect", n)
	}
	a := r.refused(400, "INVALID_REQUEST", kyle, "PUT", "/_electric/entities/chat/2", `{"tags":{"a":1},"args":[]}`)
	if !strings.Contains(string(a.body), `"path":"/tags/a"`) {
		t.Errorf("the place is not a JSON pointer: %s", a.body)
	}
}

func TestBodiesAreTakenUnderAnyContentType(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for i, ct := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8", "application/cbor", "rubbish"} {
		h := []string{"Content-Type", ct}
		if ct == "" {
			h = nil
		}
		r.must(201, kyle, "POST", "/_electric/entity-types", fmt.Sprintf(`{"name":"t%d","description":"x"}`, i), h...)
	}
	// The RFC's spellings.
	if a := r.must(201, kyle, "POST", "/_electric/entity-types", `{"entityType":"rfc","description":"","streamPrefix":"/rfc","defaultDispatchPolicy":{"targets":[{"type":"webhook","url":"https://x.example/h"}]}}`); a.str("name") != "rfc" || a.get("default_dispatch_policy.targets") == nil {
		t.Errorf("%s", a.body)
	}
	r.must(201, kyle, "PUT", "/_electric/entities/rfc/1", "  \n ") // an empty body is {}
	r.must(200, kyle, "GET", "/_electric/entities", "", "Accept", "text/html")
}

func TestOversizeBodies(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.MaxBody = 1000 })
	big := `{"name":"x","description":"` + strings.Repeat("a", 1000) + `"}`
	r.refused(413, "PAYLOAD_TOO_LARGE", kyle, "POST", "/_electric/entity-types", big)
	// Without a length, too.
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.url+"/_electric/entity-types", struct{ *strings.Reader }{strings.NewReader(big)})
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = -1
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 413 {
		t.Errorf("chunked: status %d", resp.StatusCode)
	}
}

func TestServiceSelectsTheScope(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	const root = "system:dev-local"
	r.must(201, root, "POST", "/_electric/services", `{"name":"blue"}`)
	r.must(201, root, "POST", "/_electric/services", `{"name":"blue"}`)
	r.refused(400, "INVALID_REQUEST", root, "POST", "/_electric/services", `{"name":"Not a name"}`)
	r.refused(403, "FORBIDDEN", kyle, "POST", "/_electric/services", `{"name":"green"}`)
	r.refused(403, "FORBIDDEN", kyle, "GET", "/_electric/services", "")
	r.must(200, root, "GET", "/_electric/services", "")
	for _, q := range []string{"?service=none", "?service=" + strings.Repeat("x", 100)} {
		r.refused(404, "SERVICE_NOT_FOUND", kyle, "GET", "/_electric/entities"+q, "")
	}
	r.refused(400, "INVALID_REQUEST", kyle, "GET", "/_electric/entities?service=blue&service=default", "")

	// Equal names in both, each its own.
	for _, q := range []string{"", "?service=blue"} {
		r.must(201, kyle, "POST", "/_electric/entity-types"+q, `{"name":"chat","description":"`+q+`"}`)
		r.must(201, kyle, "POST", "/_electric/runners"+q, `{"id":"mac","label":"Mac"}`)
		r.must(201, kyle, "PUT", "/_electric/entities/chat/1"+q, `{"dispatch_policy":{"targets":[{"type":"runner","runnerId":"mac"}]},"tags":{"in":"`+q+`"}}`)
	}
	r.must(200, kyle, "POST", "/_electric/entities/chat/1/send?service=blue", `{"payload":1}`)
	r.route()
	r.must(204, kyle, "POST", "/_electric/runners/mac/claim", `{}`)
	a := r.must(200, kyle, "POST", "/_electric/runners/mac/claim?service=blue", `{}`)
	if !strings.HasSuffix(a.str("callback"), "?service=blue") || a.get("entity.tags.in") != "?service=blue" {
		t.Errorf("%s", a.body)
	}
	// The token of one service is worth nothing in another.
	r.refused(401, "CLAIM_TOKEN_INVALID", kyle, "POST", "/_electric/wake-callbacks/"+a.str("wakeId"), `{"epoch":1}`, "electric-claim-token", a.str("claimToken"))
	r.must(200, kyle, "POST", "/_electric/wake-callbacks/"+a.str("wakeId")+"?service=blue", `{"epoch":1}`, "electric-claim-token", a.str("claimToken"))
	r.refused(404, "UNKNOWN_ENTITY_TYPE", kyle, "GET", "/_electric/entities/other/1?service=blue", "")
}

// serve: nothing without credentials, and health for everybody.
func TestServeDeniesByDefault(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) {
		c.Auth = auth.New(auth.Config{Hooks: []contract.AuthHook{denyAll{}}, Timeout: time.Second})
	})
	if a := r.do("GET", "/_electric/health", ""); a.status != 200 {
		t.Errorf("health: %d", a.status)
	}
	for _, tc := range [][2]string{{"GET", "/_electric/entities"}, {"PUT", "/_electric/entities/a/b"}, {"GET", "/_electric/runners"}, {"POST", "/_electric/runners/a/claim"},
		{"GET", "/_electric/entity-types"}, {"POST", "/_electric/services"}, {"GET", "/_electric/consumers/x"}, {"POST", "/_electric/consumers/x/acquire"}, {"POST", "/_electric/wake-callbacks/x"}} {
		a := r.as(kyle, tc[0], tc[1], "{rubbish")
		if a.status != 401 || a.code() != "UNAUTHORIZED" || a.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%v: %d %s", tc, a.status, a.body)
		}
	}
	// A token alone reaches the mutex, which judges it.
	a := r.do("POST", "/_electric/wake-callbacks/00000000-0000-0000-0000-000000000000", `{"epoch":1}`, "Authorization", "Bearer rouse_ct_junk")
	if a.status != 401 || a.code() != "CLAIM_TOKEN_INVALID" {
		t.Errorf("junk token: %d %s", a.status, a.body)
	}
	bad := newRig(t, nil)
	bad.refused(400, "INVALID_PRINCIPAL", "kyle", "GET", "/_electric/entities", "")
}

// Bodies count against a budget that is shared with other rooms, until their
// requests end, however those end.
func TestBodiesCountAgainstTheBudget(t *testing.T) {
	t.Parallel()
	budget := intake.NewBudget(1 << 20)
	r := newRig(t, func(c *Config) { c.Bodies, c.MaxBody = budget, 256<<10 })
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /_electric/entity-types HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"name\":")
	soon.Until(t, "a body is being read", func() bool { return budget.Held() == 1000 })
	conn.Close()
	soon.Until(t, "it was given up", func() bool { return budget.Held() == 0 })
	for _, body := range []string{"", "{", `{"name":"chat","description":""}`, `{"name":"` + strings.Repeat("x", 300<<10) + `"}`} {
		r.as(kyle, "POST", "/_electric/entity-types", body)
	}
	r.must(201, kyle, "PUT", "/_electric/entities/chat/1", "")
	r.must(200, kyle, "POST", "/_electric/entities/chat/1/send", `{"payload":1}`)
	soon.Until(t, "nothing is held", func() bool { return budget.Held() == 0 })
}

// A body that does not come is given up, and so is its connection.
func TestSlowBodies(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.BodyTimeout = 50 * time.Millisecond })
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(conn, "POST /_electric/entity-types HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"name\":")
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 408 || resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("status %d", resp.StatusCode)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if _, err := br.ReadByte(); err == nil {
		t.Error("the connection stays open")
	}
}

// Skipping the decoder for bodies without another spelling never changes what a body means.
func TestRenameFindsEverySpelling(t *testing.T) {
	t.Parallel()
	names := map[string]string{"wake_id": "wakeId", "old": ""}
	for body, want := range map[string]string{
		`{"epoch":1}`:                 `{"epoch":1}`,
		`{"wake_id":"x"}`:             `{"wakeId":"x"}`,
		`{"w\u0061ke_id":"x"}`:        `{"wakeId":"x"}`,
		`{"old":1,"a":2}`:             `{"a":2}`,
		`{"a":{"wake_id":1}}`:         `{"a":{"wake_id":1}}`,
		`{"a":"wake_id"}`:             `{"a":"wake_id"}`,
		`{ "text" : "say \"old\"." }`: `{ "text" : "say \"old\"." }`,
	} {
		if got, err := rename([]byte(body), names); err != nil || string(got) != want {
			t.Errorf("%s gave %s %v, want %s", body, got, err, want)
		}
	}
	if got, err := rename([]byte(`{"wake_id":1}`), nil); err != nil || string(got) != `{"wake_id":1}` {
		t.Errorf("without names: %s %v", got, err)
	}
}

// Who leaves while it waits is no failure of ours.
func TestWhoLeavesIsNotLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	r := newRig(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	r.must(201, kyle, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	r.must(201, kyle, "PUT", "/_electric/entities/chat/p", "")
	r.db.Exec(t, `update rouse.entities set status = 'running' where url = '/chat/p'`)
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.c.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "POST", "/_electric/entities/chat/p/fork", strings.NewReader(`{"waitTimeoutMs":60000}`)))
	}()
	soon.Until(t, "the fork waits", func() bool {
		return r.count(`select count(*) from pg_stat_activity where datname = current_database() and state = 'idle' and query like '%entity_tree%'`) > 0
	})
	leave()
	<-done
	if log.Len() > 0 {
		t.Error(log.String())
	}
}
