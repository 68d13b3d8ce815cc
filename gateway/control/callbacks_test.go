package control

import (
	"net/url"
	"strings"
	"testing"
)

// claimed is a claim of /chat/1 by mac.
func claimed(t *testing.T, r *rig) answer {
	t.Helper()
	r.work("/chat/1")
	return r.must(200, kyle, "POST", "/_electric/runners/mac/claim", `{}`)
}

func token(t string) []string { return []string{"electric-claim-token", t} }

func TestCallbackCycle(t *testing.T) {
	t.Parallel()
	r := laptop(t, nil)
	c := claimed(t, r)
	at := "/_electric/wake-callbacks/" + c.str("wakeId")
	tok := token(c.str("claimToken"))
	confirm := r.must(200, kyle, "POST", at, `{"epoch":1,"wakeId":"`+c.str("wakeId")+`"}`, tok...)
	if confirm.get("ok") != true || confirm.str("writeToken") != c.str("writeToken") || confirm.str("token") == "" {
		t.Errorf("%s", confirm.body)
	}
	// Snake case, bearer, and without a principal of one's own.
	if a := r.do("POST", at, `{"generation":1,"wake_id":"`+c.str("wakeId")+`"}`, "Authorization", "Bearer "+c.str("claimToken")); a.status != 200 || a.str("writeToken") != c.str("writeToken") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := r.must(200, kyle, "POST", at, `{"epoch":1}`, tok...); a.get("ok") != true || a.get("lease_ms").(float64) < 20000 || a.get("writeToken") != nil {
		t.Errorf("%s", a.body)
	}
	r.must(200, kyle, "POST", at, `{"epoch":1}`, token(c.str("writeToken"))...) // a write token keeps its lease, too

	var tail string
	if err := r.db.Conn(t).QueryRow(t.Context(), `select rouse._offset(tail) from rouse.streams where path = 'chat/1/main'`).Scan(&tail); err != nil {
		t.Fatal(err)
	}
	r.must(200, kyle, "POST", at, `{"epoch":1,"acks":[{"path":"/chat/1/main","offset":"`+tail+`"}]}`, tok...)
	for body, code := range map[string]string{
		`{"epoch":1,"acks":[{"path":"/chat/1/main","offset":"0000000000000000_0000000000000001"}]}`: "INVALID_OFFSET",
		`{"epoch":1,"acks":[{"path":"/chat/1/main","offset":"0000000000000000_0000000009999999"}]}`: "INVALID_OFFSET",
		`{"epoch":1,"acks":[{"path":"/chat/1/main","offset":"-1"}]}`:                                "INVALID_REQUEST",
		`{"epoch":1,"acks":[{"path":"/chat/1/main","offset":"now"}]}`:                               "INVALID_REQUEST",
		`{"epoch":1,"acks":[{"path":"/chat/1/main","offset":"junk"}]}`:                              "INVALID_REQUEST",
		`{"epoch":1,"acks":[{"path":"/other","offset":"` + tail + `"}]}`:                            "INVALID_REQUEST",
		`{"epoch":1,"acks":[{"offset":"` + tail + `"}]}`:                                            "INVALID_REQUEST",
		`{"epoch":1,"acks":[{"path":"/chat/1/main"}]}`:                                              "INVALID_REQUEST",
		`{"epoch":1,"wakeId":"00000000-0000-0000-0000-000000000000"}`:                               "INVALID_REQUEST",
		`{"epoch":9}`:          "FENCED",
		`{"epoch":1,"more":1}`: "INVALID_REQUEST",
		`{"epoch":-1}`:         "INVALID_REQUEST",
	} {
		if a := r.as(kyle, "POST", at, body, tok...); a.code() != code {
			t.Errorf("%s: %d %s, want %s", body, a.status, a.str("code"), code)
		}
	}
	done := r.must(200, kyle, "POST", at, `{"epoch":1,"acks":[{"stream":"chat/1/main","offset":"`+tail+`"}],"done":true}`, tok...)
	if done.get("next_wake") != false {
		t.Errorf("%s", done.body)
	}
	if again := r.must(200, kyle, "POST", at, `{"epoch":1,"acks":[],"done":true}`, tok...); again.get("next_wake") != false {
		t.Errorf("a second done: %s", again.body)
	}
	r.refused(409, "FENCED", kyle, "POST", at, `{"epoch":1}`, tok...)
	if e := r.must(200, kyle, "GET", "/_electric/entities/chat/1", ""); e.str("status") != "idle" {
		t.Errorf("%s", e.body)
	}
	// Work that came meanwhile makes the next wake.
	c = claimed(t, r)
	if c.get("epoch") != 2.0 {
		t.Errorf("%s", c.body)
	}
	r.must(200, kyle, "POST", "/_electric/entities/chat/1/send", `{"payload":1}`)
	if a := r.must(200, kyle, "POST", "/_electric/wake-callbacks/"+c.str("wakeId"), `{"epoch":2,"done":true,"error":"exit 1"}`, token(c.str("claimToken"))...); a.get("next_wake") != true {
		t.Errorf("%s", a.body)
	}
	list := r.must(200, kyle, "GET", "/_electric/entities/chat/1/claims", "")
	if !strings.Contains(string(list.body), `"epoch":2`) || !strings.Contains(string(list.body), `"status":"failed"`) || !strings.Contains(string(list.body), `"error":"exit 1"`) {
		t.Errorf("%s", list.body)
	}
	for _, secret := range []string{c.str("claimToken"), c.str("writeToken"), "rouse_"} {
		for _, path := range []string{"/claims", "/wakes", "/dispatch", ""} {
			if a := r.must(200, kyle, "GET", "/_electric/entities/chat/1"+path, ""); strings.Contains(string(a.body), secret) {
				t.Errorf("%s shows a token", path)
			}
		}
	}
}

// R4: what the callback does with every kind of token.
func TestCallbackTokens(t *testing.T) {
	t.Parallel()
	r := laptop(t, nil)
	c := claimed(t, r)
	r.spawn("/chat/2")
	r.work("/chat/2")
	other := r.must(200, kyle, "POST", "/_electric/runners/mac/claim", `{}`)
	at := "/_electric/wake-callbacks/" + c.str("wakeId")
	claim := `{"epoch":1,"wakeId":"` + c.str("wakeId") + `"}`
	for name, tc := range map[string]struct{ token, code string }{
		"none":               {"", "UNAUTHORIZED"},
		"junk":               {"junk", "CLAIM_TOKEN_INVALID"},
		"junk with a prefix": {"rouse_ct_junk", "CLAIM_TOKEN_INVALID"},
		"flipped":            {c.str("claimToken")[:len(c.str("claimToken"))-1] + "!", "CLAIM_TOKEN_INVALID"},
		"another wake's":     {other.str("claimToken"), "CLAIM_TOKEN_INVALID"},
	} {
		for _, body := range []string{claim, `{"epoch":1}`, `{"epoch":1,"done":true}`} {
			h := token(tc.token)
			if tc.token == "" {
				h = nil
			}
			if a := r.as(kyle, "POST", at, body, h...); a.status != 401 || a.code() != tc.code {
				t.Errorf("%s %s: %d %s", name, body, a.status, a.body)
			}
		}
	}
	if n := r.count(`select count(*) from rouse.consumer_claims where status = 'active'`); n != 2 {
		t.Errorf("%d live claims: a refused token changed something", n)
	}
	r.refused(401, "CLAIM_TOKEN_INVALID", kyle, "POST", "/_electric/wake-callbacks/00000000-0000-0000-0000-000000000000", `{"epoch":1}`, token(c.str("claimToken"))...)
	// The header wins over the bearer.
	r.must(200, kyle, "POST", at, `{"epoch":1}`, "electric-claim-token", c.str("claimToken"), "Authorization", "Bearer rouse_ct_junk")
}

// An RFC-style runner never calls /claim: it takes the wake through its
// callback with the token of the entry.
func TestCallbackAcquires(t *testing.T) {
	t.Parallel()
	for _, body := range []string{``, `{}`, `WAKE`} {
		r := laptop(t, nil)
		r.work("/chat/1")
		wake := r.str(`select wake_id::text from rouse.consumers`)
		at := "/_electric/wake-callbacks/" + wake
		tok := token(r.claimToken(wake))
		b := strings.ReplaceAll(body, "WAKE", `{"epoch":1,"wakeId":"`+wake+`"}`)
		r.refused(403, "RUNNER_FORBIDDEN", mallory, "POST", at, b, tok...)
		g := r.must(200, kyle, "POST", at, b, tok...)
		if g.str("writeToken") == "" || g.get("epoch") != 1.0 || !strings.HasPrefix(g.str("claimToken"), "rouse_ht_") {
			t.Errorf("%s", g.body)
		}
		r.refused(409, "EPOCH_HELD", kyle, "POST", at, b, tok...)
		r.must(200, kyle, "POST", at, `{"epoch":1,"done":true}`, token(g.str("claimToken"))...)
		// Granted once, it never grants again.
		r.refused(409, "EPOCH_STALE", kyle, "POST", at, b, tok...)
	}
}

func (r *rig) str(sql string, args ...any) (s string) {
	r.t.Helper()
	if err := r.db.Conn(r.t).QueryRow(r.t.Context(), sql, args...).Scan(&s); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return s
}

// R7: the RFC's names of the same engine.
func TestConsumerRoutes(t *testing.T) {
	t.Parallel()
	r := laptop(t, nil)
	id := r.str(`select name from rouse.consumers`)
	at := "/_electric/consumers/" + id
	if a := r.must(200, kyle, "GET", at, ""); a.str("state") != "idle" || a.str("entityUrl") != "/chat/1" || a.get("pending") != false {
		t.Errorf("%s", a.body)
	}
	r.refused(401, "UNAUTHORIZED", mallory, "GET", at, "")
	r.refused(404, "NOT_FOUND", kyle, "GET", "/_electric/consumers/none", "")
	r.refused(404, "NOT_FOUND", kyle, "POST", "/_electric/consumers/none/acquire", "")
	r.refused(409, "NO_PENDING_WORK", kyle, "POST", at+"/acquire", "")
	r.work("/chat/1")
	r.refused(403, "RUNNER_FORBIDDEN", mallory, "POST", at+"/acquire", "")
	g := r.must(200, kyle, "POST", at+"/acquire", `{"claimId":"x"}`)
	if g.str("writeToken") == "" || g.str("claimToken") == "" || g.get("epoch") != 1.0 || g.str("consumerId") != id {
		t.Errorf("%s", g.body)
	}
	if again := r.must(200, kyle, "POST", at+"/acquire", `{"claimId":"x"}`); again.str("writeToken") != g.str("writeToken") {
		t.Errorf("%s", again.body)
	}
	r.refused(409, "EPOCH_HELD", kyle, "POST", at+"/acquire", "")
	tok := token(g.str("claimToken"))
	if a := r.must(200, kyle, "GET", at, ""); a.str("state") != "claimed" || a.str("holder") != "/principal/user%3Akyle" || strings.Contains(string(a.body), "rouse_") {
		t.Errorf("%s", a.body)
	}
	for _, verb := range []string{"heartbeat", "ack", "release"} {
		body := `{"acks":[{"path":"chat/1/main","offset":"0000000000000000_0000000000000161"}]}`
		if verb == "heartbeat" {
			body = `{}`
		}
		r.refused(401, "UNAUTHORIZED", kyle, "POST", at+"/"+verb, body)
		r.refused(401, "CLAIM_TOKEN_INVALID", kyle, "POST", at+"/"+verb, body, token("junk")...)
		r.refused(401, "CLAIM_TOKEN_INVALID", kyle, "POST", "/_electric/consumers/none/"+verb, body, tok...)
		stale := `{"epoch":7,` + body[1:]
		if verb == "heartbeat" {
			stale = `{"epoch":7}`
		}
		r.refused(409, "EPOCH_STALE", kyle, "POST", at+"/"+verb, stale, tok...)
	}
	tail := r.str(`select rouse._offset(tail) from rouse.streams where path = 'chat/1/main'`)
	if a := r.must(200, kyle, "POST", at+"/heartbeat", ``, tok...); a.get("lease_ms").(float64) < 20000 {
		t.Errorf("%s", a.body)
	}
	r.refused(400, "INVALID_REQUEST", kyle, "POST", at+"/ack", `{}`, tok...)
	r.must(200, kyle, "POST", at+"/ack", `{"epoch":1,"acks":[{"path":"/chat/1/main","offset":"`+tail+`"}]}`, tok...)
	r.refused(409, "INVALID_OFFSET", kyle, "POST", at+"/ack", `{"acks":[{"path":"/chat/1/main","offset":"0000000000000000_0000000099999999"}]}`, tok...)
	for range 2 {
		if a := r.must(200, kyle, "POST", at+"/release", `{"epoch":1}`, tok...); a.get("next_wake") != false {
			t.Errorf("%s", a.body)
		}
	}
	r.refused(409, "EPOCH_STALE", kyle, "POST", at+"/heartbeat", ``, tok...)
	r.must(200, kyle, "DELETE", "/_electric/entities/chat/1", "")
	r.refused(409, "NOT_RUNNING", kyle, "POST", at+"/acquire", "")
}

// R3, R6: a lapsed lease is refused by its own holder's calls, and the next
// acquire has a higher epoch.
func TestLapsedLease(t *testing.T) {
	t.Parallel()
	r := laptop(t, nil)
	c := claimed(t, r)
	id := c.str("consumerId")
	r.spawn("/chat/2")
	speak := `{"payload":1,"from_agent":"/chat/1"}`
	r.must(200, kyle, "POST", "/_electric/entities/chat/2/send", speak, token(c.str("writeToken"))...)
	r.db.Exec(t, `update rouse.consumers set lease_expires_at = clock_timestamp() - interval '1 ms' where entity_url = '/chat/1'`)
	r.refused(400, "INVALID_REQUEST", kyle, "POST", "/_electric/entities/chat/2/send", speak, token(c.str("writeToken"))...) // nor does it speak for the entity
	if a := r.must(200, kyle, "GET", "/_electric/consumers/"+id, ""); a.str("state") != "expired" {
		t.Errorf("%s", a.body)
	}
	r.refused(409, "LEASE_EXPIRED", kyle, "POST", "/_electric/consumers/"+id+"/heartbeat", ``, token(c.str("claimToken"))...)
	g := r.must(200, kyle, "POST", "/_electric/consumers/"+id+"/acquire", ``)
	if g.get("epoch") != 2.0 {
		t.Errorf("%s", g.body)
	}
	r.refused(409, "FENCED", kyle, "POST", "/_electric/wake-callbacks/"+c.str("wakeId"), `{"epoch":1,"done":true}`, token(c.str("claimToken"))...)
	if n := r.count(`select count(*) from rouse.consumer_claims where status = 'expired' and epoch = 1`); n != 1 {
		t.Error("the claim row does not say expired")
	}
}

// A wake's id is the same in capital letters, and in no other spelling.
func TestSpellingsOfAWake(t *testing.T) {
	t.Parallel()
	r := laptop(t, nil)
	r.work("/chat/1")
	var wake string
	if err := r.db.Conn(t).QueryRow(t.Context(), `select wake_id::text from rouse.wake_notifications`).Scan(&wake); err != nil {
		t.Fatal(err)
	}
	bare := strings.ReplaceAll(wake, "-", "")
	for _, s := range []string{"urn:uuid:" + wake, "URN:UUID:" + wake, "{" + wake + "}", bare, " " + wake, wake + " ", wake[:35], wake + "0"} {
		path := "/_electric/wake-callbacks/" + url.PathEscape(s)
		r.refused(404, "WAKE_CALLBACK_NOT_FOUND", kyle, "POST", "/_electric/runners/mac/claim", `{"wakeId":"`+s+`"}`)
		r.refused(404, "WAKE_CALLBACK_NOT_FOUND", kyle, "POST", path, `{"wakeId":"`+s+`"}`, token(r.claimToken(wake))...)
		r.refused(404, "WAKE_CALLBACK_NOT_FOUND", kyle, "POST", path, `{}`, token(r.claimToken(wake))...)
		r.refused(400, "INVALID_REQUEST", kyle, "POST", "/_electric/wake-callbacks/"+wake, `{"wakeId":"`+s+`"}`, token(r.claimToken(wake))...)
		r.refused(404, "WAKE_CALLBACK_NOT_FOUND", kyle, "POST", "/_electric/consumers/"+r.consumer("/chat/1")+"/acquire", `{"wakeId":"`+s+`"}`)
	}
	loud := strings.ToUpper(wake)
	c := r.must(200, kyle, "POST", "/_electric/runners/mac/claim", `{"wakeId":"`+loud+`"}`)
	if c.str("wakeId") != wake {
		t.Errorf("the wake is answered as %s", c.body)
	}
	hold := token(c.str("claimToken"))
	r.must(200, kyle, "POST", "/_electric/wake-callbacks/"+loud, `{"epoch":1,"wakeId":"`+wake+`"}`, hold...)
	r.must(200, kyle, "POST", "/_electric/wake-callbacks/"+wake, `{"epoch":1,"wakeId":"`+loud+`"}`, hold...)
	r.must(200, kyle, "POST", "/_electric/wake-callbacks/"+loud, `{"epoch":1}`, hold...)
	r.must(200, kyle, "POST", "/_electric/consumers/"+c.str("consumerId")+"/heartbeat", `{"wakeId":"`+loud+`"}`, hold...)
	r.refused(401, "CLAIM_TOKEN_INVALID", kyle, "POST", "/_electric/consumers/"+c.str("consumerId")+"/heartbeat", `{"wakeId":"urn:uuid:`+wake+`"}`, hold...)
	r.must(200, kyle, "POST", "/_electric/wake-callbacks/"+loud, `{"epoch":1,"done":true}`, hold...)
}

// consumer is the name of an entity's mutex.
func (r *rig) consumer(url string) (name string) {
	r.t.Helper()
	if err := r.db.Conn(r.t).QueryRow(r.t.Context(), `select name from rouse.consumers where entity_url = $1`, url).Scan(&name); err != nil {
		r.t.Fatal(err)
	}
	return name
}
