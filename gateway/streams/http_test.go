package streams_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/streamrig"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/gateway/streams"
)

// answer is a response read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends a request; headers come in pairs.
func do(t testing.TB, method, url, body string, headers ...string) answer {
	t.Helper()
	a, err := try(t.Context(), method, url, body, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return a
}

func try(ctx context.Context, method, url, body string, headers ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(b)}, err
}

// want fails unless the answer has the status and, for errors, the code.
func (a answer) want(t testing.TB, status int, code problem.Code) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	if code != "" {
		var p struct {
			Code   problem.Code
			Status int
			Error  struct{ Code problem.Code }
		}
		if a.header.Get("Content-Type") != "application/problem+json" || json.Unmarshal([]byte(a.body), &p) != nil || p.Code != code || p.Error.Code != code || p.Status != status {
			t.Fatalf("answer %s, want code %s", a.body, code)
		}
	}
	if a.header.Get("X-Content-Type-Options") != "nosniff" || a.header.Get("Access-Control-Allow-Origin") != "*" {
		t.Fatalf("security headers are missing: %v", a.header)
	}
	return a
}

const (
	ct    = "Content-Type"
	text  = "text/plain"
	jsonT = "application/json"
)

func start(t testing.TB, tune func(*streams.Config)) (*streamrig.Rig, *pgtest.DB) {
	t.Helper()
	db := pgtest.New(t)
	return streamrig.Start(t, db.DSN, tune), db
}

func TestTheSameStreamUnderEachOfItsNames(t *testing.T) {
	t.Parallel()
	rig, _ := start(t, nil)
	a := do(t, "PUT", rig.URL+"/v1/stream/a/b%20c", "hi", ct, text).want(t, 201, "")
	if want := rig.URL + "/v1/stream/a/b%20c"; a.header.Get("Location") != want {
		t.Fatalf("location %q", a.header.Get("Location"))
	}
	for _, path := range []string{"/a/b%20c", "/a%2Fb%20c", "/v1/stream/a%2fb%20c"} {
		if got := do(t, "GET", rig.URL+path, "").want(t, 200, "").body; got != "hi" {
			t.Fatalf("%s reads %q", path, got)
		}
	}
}

func TestServicesAreApart(t *testing.T) {
	t.Parallel()
	rig, db := start(t, nil)
	db.Exec(t, `insert into rouse.services (name) values ('other')`)
	do(t, "PUT", rig.URL+"/a", "one", ct, text).want(t, 201, "")
	do(t, "PUT", rig.URL+"/a?service=other", "two", ct, text).want(t, 201, "")
	if got := do(t, "GET", rig.URL+"/a?service=other", "").want(t, 200, "").body; got != "two" {
		t.Fatalf("the other service reads %q", got)
	}
	if got := do(t, "GET", rig.URL+"/a?service=default", "").want(t, 200, "").body; got != "one" {
		t.Fatalf("the default service reads %q", got)
	}
	for _, name := range []string{"none", "%00", "%ff", strings.Repeat("x", 64)} {
		do(t, "GET", rig.URL+"/a?service="+name, "").want(t, 404, problem.ServiceNotFound)
	}
	do(t, "GET", rig.URL+"/a?service=", "").want(t, 400, problem.InvalidRequest)
}

func TestJSONReadsCarryTheOffsetOfTheirAppend(t *testing.T) {
	t.Parallel()
	rig, _ := start(t, nil)
	do(t, "PUT", rig.URL+"/j", "", ct, jsonT).want(t, 201, "")
	first := do(t, "POST", rig.URL+"/j", `[{"headers":{"operation":"insert","offset":"forged"},"key":"a"}, {"plain":  1}]`, ct, jsonT).want(t, 204, "")
	second := do(t, "POST", rig.URL+"/j", `{"headers":{"control":"reset"}}`, ct, jsonT).want(t, 204, "")
	want := fmt.Sprintf(`[{"headers":{"offset":"%s","operation":"insert"},"key":"a"},{"plain":  1},{"headers":{"offset":"%s","control":"reset"}}]`,
		first.header.Get("Stream-Next-Offset"), second.header.Get("Stream-Next-Offset"))
	if got := do(t, "GET", rig.URL+"/j", "").want(t, 200, "").body; got != want {
		t.Fatalf("read %s\nwant %s", got, want)
	}
	if got := do(t, "GET", rig.URL+"/j?offset="+first.header.Get("Stream-Next-Offset"), "").want(t, 200, "").body; !strings.HasPrefix(got, `[{"headers":{"offset":"`+second.header.Get("Stream-Next-Offset")) {
		t.Fatalf("read %s", got)
	}
}

func TestCatchUpInPagesIsCompleteCachedOrNot(t *testing.T) {
	t.Parallel()
	rig, _ := start(t, func(c *streams.Config) { c.PageBytes = 100 })
	do(t, "PUT", rig.URL+"/p", "", ct, jsonT).want(t, 201, "")
	const n = 60
	for i := range n {
		do(t, "POST", rig.URL+"/p", fmt.Sprintf(`{"headers":{"operation":"insert"},"n":%d}`, i), ct, jsonT).want(t, 204, "")
	}
	read := func() (all []map[string]any, pages int) {
		offset := "-1"
		for {
			a := do(t, "GET", rig.URL+"/p?offset="+offset, "").want(t, 200, "")
			var page []map[string]any
			if err := json.Unmarshal([]byte(a.body), &page); err != nil {
				t.Fatalf("%s: %v", a.body, err)
			}
			all, pages = append(all, page...), pages+1
			cache := a.header.Get("Cache-Control")
			offset = a.header.Get("Stream-Next-Offset")
			if a.header.Get("Stream-Up-To-Date") == "true" {
				if cache != "no-cache" {
					t.Fatalf("a page at an open tail has Cache-Control %q", cache)
				}
				return all, pages
			}
			if !strings.HasPrefix(cache, "public") {
				t.Fatalf("a full page has Cache-Control %q", cache)
			}
		}
	}
	for round := range 3 {
		all, pages := read()
		if len(all) != n || pages < 10 {
			t.Fatalf("round %d: %d messages on %d pages", round, len(all), pages)
		}
		for i, m := range all {
			if m["n"] != float64(i) || m["headers"].(map[string]any)["offset"] == nil {
				t.Fatalf("message %d is %v", i, m)
			}
		}
		if round == 1 { // what follows a page that was the last one is found
			do(t, "POST", rig.URL+"/p", `{"headers":{"operation":"insert"},"n":`+fmt.Sprint(n)+`}`, ct, jsonT).want(t, 204, "")
			if all, _ := read(); len(all) != n+1 {
				t.Fatalf("%d messages after one more", len(all))
			}
			do(t, "DELETE", rig.URL+"/p", "").want(t, 204, "")
			do(t, "PUT", rig.URL+"/p", "", ct, jsonT).want(t, 201, "")
			for i := range n {
				do(t, "POST", rig.URL+"/p", fmt.Sprintf(`{"headers":{"operation":"insert"},"n":%d}`, i), ct, jsonT).want(t, 204, "")
			}
		}
	}
}

func TestETagsTellAClose(t *testing.T) {
	t.Parallel()
	rig, _ := start(t, nil)
	do(t, "PUT", rig.URL+"/a", "x", ct, text).want(t, 201, "")
	open := do(t, "GET", rig.URL+"/a", "").want(t, 200, "").header.Get("Etag")
	do(t, "GET", rig.URL+"/a", "", "If-None-Match", open).want(t, 304, "")
	do(t, "POST", rig.URL+"/a", "", "Stream-Closed", "true").want(t, 204, "")
	a := do(t, "GET", rig.URL+"/a", "", "If-None-Match", open).want(t, 200, "")
	if a.header.Get("Stream-Closed") != "true" {
		t.Fatal("the close is not told")
	}
	a = do(t, "GET", rig.URL+"/a", "", "If-None-Match", a.header.Get("Etag")).want(t, 304, "")
	if a.body != "" || a.header.Get("Stream-Next-Offset") == "" {
		t.Fatalf("304 answers %+v", a)
	}
}

func TestForksOverHTTP(t *testing.T) {
	t.Parallel()
	rig, db := start(t, nil)
	do(t, "PUT", rig.URL+"/src", `[1,2]`, ct, jsonT).want(t, 201, "")
	// The body of a fork without a type is read as its source's.
	do(t, "PUT", rig.URL+"/f", `[3,4]`, "Stream-Forked-From", "/v1/stream/src").want(t, 201, "")
	if got := do(t, "GET", rig.URL+"/f", "").body; got != `[1,2,3,4]` {
		t.Fatalf("the fork reads %s", got)
	}
	do(t, "PUT", rig.URL+"/g", `[3`, "Stream-Forked-From", "/src").want(t, 400, problem.InvalidJSON)
	do(t, "PUT", rig.URL+"/g", `3`, "Stream-Forked-From", "/none").want(t, 404, problem.StreamNotFound)
	do(t, "PUT", rig.URL+"/g", ``, "Stream-Forked-From", "/src", "Stream-Fork-Offset", "0000000000000000_0000000000000002").want(t, 400, problem.OffsetInvalid)
	for _, bad := range [][]string{
		{"Stream-Forked-From", "src"}, {"Stream-Forked-From", "/a/../b"}, {"Stream-Forked-From", "/src?x=1"}, {"Stream-Forked-From", ""},
		{"Stream-Fork-Offset", "-1"}, {"Stream-Forked-From", "/src", "Stream-Fork-Offset", "now"}, {"Stream-Forked-From", "/src", "Stream-Forked-From", "/src"},
	} {
		do(t, "PUT", rig.URL+"/g", "", bad...).want(t, 400, problem.InvalidRequest)
	}
	db.Exec(t, `insert into rouse.streams (service_id, path, kind, owner, content_type, is_json) values (1, 'chat/a/main', 'entity', 'x', 'application/json', true)`)
	do(t, "PUT", rig.URL+"/g", "", "Stream-Forked-From", "/chat/a/main").want(t, 403, problem.PathReserved)
	do(t, "DELETE", rig.URL+"/src", "").want(t, 204, "")
	do(t, "DELETE", rig.URL+"/src", "").want(t, 410, problem.StreamGone)
	do(t, "PUT", rig.URL+"/src", "", ct, jsonT).want(t, 409, problem.StreamHasForks)
	do(t, "GET", rig.URL+"/src", "").want(t, 410, problem.StreamGone)
	do(t, "POST", rig.URL+"/src", "1", ct, jsonT).want(t, 410, problem.StreamGone)
}

// people answers with the caller named by a header.
type people struct{}

func (people) Authenticate(r *http.Request, _ int32) (streams.Caller, error) {
	switch name := r.Header.Get("Electric-Principal"); name {
	case "":
		return streams.Caller{}, problem.New(problem.Unauthenticated, "Who are you?")
	case "system":
		return streams.Caller{Principal: "system", System: true}, nil
	default:
		return streams.Caller{Principal: name}, nil
	}
}

// tokens knows the holder of consumer 1.
type tokens struct{ wake string }

func (k tokens) VerifyWrite(token string) (int64, int64, string, error) {
	var consumer, epoch int64
	if _, err := fmt.Sscanf(token, "rouse_wt_%d_%d", &consumer, &epoch); err != nil {
		return 0, 0, "", errors.New("forged")
	}
	return consumer, epoch, k.wake, nil
}

const wake = "018f0000-0000-7000-8000-000000000001"

// guarded sets up an entity of kyle's, claimed at epoch 3.
func guarded(t *testing.T, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, `insert into rouse.consumers (id, service_id, name, kind, state, epoch, wake_id, lease_expires_at, due_at)
		overriding system value values (1, 1, 'c', 'entity', 'claimed', 3, $1, clock_timestamp() + interval '1 hour', now())`, wake)
	db.Exec(t, `insert into rouse.streams (service_id, path, kind, owner, content_type, is_json, consumer_id) values
		(1, 'chat/a/main', 'entity', 'kyle', 'application/json', true, 1),
		(1, 'runners/r/wake', 'wake', 'kyle', 'application/json', true, null)`)
}

func TestGuardedStreams(t *testing.T) {
	t.Parallel()
	made := make(chan string, 1)
	answers := map[string]store.Outcome{"/chat/a": store.NotFound, "/chat/b": store.Guarded, "/chat/c": store.TokenStale, "/chat/d": store.LeaseExpired,
		"/chat/e": store.PathTaken, "/chat/f": store.Created}
	rig, db := start(t, func(c *streams.Config) {
		c.Auth, c.Tokens = people{}, tokens{wake}
		c.ErrorStreams = ensure(func(url string, claim store.WriteClaim) (store.Outcome, error) {
			made <- url
			if claim != (store.WriteClaim{ConsumerID: 1, Epoch: 3, WakeID: wake}) {
				t.Errorf("the claim %+v makes it", claim)
			}
			return answers[url], nil
		})
		c.WakeDecorator = func(_ int32, name string, entry []byte) []byte {
			return append(append([]byte(`{"service":"`+name+`","entry":`), entry...), '}')
		}
	})
	guarded(t, db)
	main, errs, wakes := rig.URL+"/chat/a/main", rig.URL+"/chat/a/error", rig.URL+"/runners/r/wake"

	for _, method := range []string{"GET", "HEAD"} {
		do(t, method, main, "", "Electric-Principal", "kyle").want(t, 200, "")
		do(t, method, main, "", "Electric-Principal", "system").want(t, 200, "")
		do(t, method, wakes, "", "Electric-Principal", "kyle").want(t, 200, "")
	}
	do(t, "GET", main, "").want(t, 401, problem.Unauthenticated)
	do(t, "GET", main, "", "Electric-Principal", "mallory").want(t, 401, problem.Unauthorized)
	do(t, "GET", main+"?offset=0000000000000000_0000000000000009", "", "Electric-Principal", "mallory").want(t, 401, problem.Unauthorized)
	do(t, "GET", main+"?offset=-1&live=sse", "", "Electric-Principal", "mallory").want(t, 401, problem.Unauthorized)
	do(t, "GET", wakes, "", "Electric-Principal", "mallory").want(t, 403, problem.RunnerForbidden)
	do(t, "PUT", main, "", ct, jsonT).want(t, 403, problem.PathReserved)
	do(t, "DELETE", main, "", "Electric-Principal", "kyle").want(t, 403, problem.PathReserved)
	for _, method := range []string{"PUT", "POST", "DELETE"} {
		do(t, method, wakes, "{}", ct, jsonT, "Electric-Principal", "kyle").want(t, 403, problem.PathReserved)
	}
	for _, bad := range [][]string{{}, {"Electric-Claim-Token", "rouse_wt_x"}, {"Authorization", "Bearer user-token"}, {"Authorization", "rouse_wt_1_3"}, {"Electric-Claim-Token", "rouse_wt_9_3"}} {
		a := do(t, "POST", main, "{}", append(bad, ct, jsonT, "Electric-Principal", "kyle")...).want(t, 401, problem.Unauthorized)
		if !strings.Contains(a.body, "Invalid write token") {
			t.Fatalf("body %s", a.body)
		}
	}
	if a := do(t, "POST", main, "{}", ct, jsonT, "Electric-Claim-Token", "rouse_wt_1_2").want(t, 401, problem.Unauthorized); !strings.Contains(a.body, `"reason":"EPOCH_STALE"`) {
		t.Fatalf("body %s", a.body)
	}
	do(t, "POST", main, `{"n":1}`, ct, jsonT, "Electric-Claim-Token", "rouse_wt_1_3").want(t, 204, "")
	// A holder does not end its entity's streams: it would leave one that runs and hears nothing.
	for _, body := range []string{"", `{"n":9}`} {
		do(t, "POST", main, body, ct, jsonT, "Electric-Claim-Token", "rouse_wt_1_3", "Stream-Closed", "true").want(t, 403, problem.Forbidden)
	}
	// The claim header wins over the user's own credentials.
	do(t, "POST", main, `{"n":2}`, ct, jsonT, "Electric-Claim-Token", "rouse_wt_1_3", "Authorization", "Bearer user").want(t, 204, "")
	do(t, "POST", main, `{"n":3}`, ct, jsonT, "Authorization", "bearer rouse_wt_1_3", "Producer-Id", "entity-/chat/a", "Producer-Epoch", "3", "Producer-Seq", "0").want(t, 200, "")
	db.Exec(t, `update rouse.consumers set lease_expires_at = clock_timestamp()`)
	if a := do(t, "POST", main, "{}", ct, jsonT, "Electric-Claim-Token", "rouse_wt_1_3").want(t, 401, problem.Unauthorized); !strings.Contains(a.body, `"reason":"LEASE_EXPIRED"`) {
		t.Fatalf("body %s", a.body)
	}
	a := do(t, "GET", main, "", "Electric-Principal", "kyle").want(t, 200, "")
	if a.body != `[{"n":1},{"n":2},{"n":3}]` || a.header.Get("Cache-Control") != "private, no-cache" {
		t.Fatalf("content %s, cache %s", a.body, a.header.Get("Cache-Control"))
	}

	do(t, "POST", errs, "{}", ct, jsonT).want(t, 404, problem.StreamNotFound)
	for url, refusal := range map[string]struct {
		status int
		code   problem.Code
	}{
		"/chat/a": {404, problem.StreamNotFound}, "/chat/b": {401, problem.Unauthorized}, "/chat/c": {401, problem.Unauthorized},
		"/chat/d": {401, problem.Unauthorized}, "/chat/e": {409, problem.StreamExists},
		"/chat/f": {404, problem.StreamNotFound}, // said to be made, but is not there
	} {
		do(t, "POST", rig.URL+url+"/error", "{}", ct, jsonT, "Electric-Claim-Token", "rouse_wt_1_3").want(t, refusal.status, refusal.code)
		if got := <-made; got != url {
			t.Fatalf("the error stream of %q was asked for, not %q", got, url)
		}
	}

	db.Exec(t, `select rouse._stream_push(id, '{"headers":{"operation":"insert"},"wake":1}', false) from rouse.streams where kind = 'wake'`)
	db.Exec(t, `select rouse._stream_push(id, '{"wake":2}', false) from rouse.streams where kind = 'wake'`)
	a = do(t, "GET", wakes, "", "Electric-Principal", "kyle").want(t, 200, "")
	var entries []struct {
		Service string
		Entry   map[string]any
	}
	if err := json.Unmarshal([]byte(a.body), &entries); err != nil || len(entries) != 2 || entries[1].Service != "default" || entries[1].Entry["wake"] != 2.0 ||
		entries[0].Entry["headers"].(map[string]any)["offset"] == nil {
		t.Fatalf("wake stream %s: %v", a.body, err)
	}
	a = do(t, "GET", wakes+"?offset=-1&live=long-poll", "", "Electric-Principal", "kyle").want(t, 200, "")
	if err := json.Unmarshal([]byte(a.body), &entries); err != nil || len(entries) != 2 || entries[0].Service != "default" {
		t.Fatalf("wake stream by long-poll %s: %v", a.body, err)
	}
}

type ensure func(string, store.WriteClaim) (store.Outcome, error)

func (f ensure) EntityErrorStream(_ context.Context, _ int32, url string, claim store.WriteClaim) (store.Outcome, error) {
	return f(url, claim)
}

func TestRequireAuthAsksForPlainStreamsToo(t *testing.T) {
	t.Parallel()
	rig, db := start(t, func(c *streams.Config) { c.Auth, c.Tokens, c.RequireAuth = people{}, tokens{wake}, true })
	guarded(t, db)
	do(t, "PUT", rig.URL+"/a", "x", ct, text).want(t, 401, problem.Unauthenticated)
	do(t, "PUT", rig.URL+"/a", "x", ct, text, "Electric-Principal", "kyle").want(t, 201, "")
	do(t, "GET", rig.URL+"/a", "").want(t, 401, problem.Unauthenticated)
	a := do(t, "GET", rig.URL+"/a", "", "Electric-Principal", "kyle").want(t, 200, "")
	if a.header.Get("Cache-Control") != "private, no-cache" {
		t.Fatalf("cache %s", a.header.Get("Cache-Control"))
	}
	// A write token opens its entity's stream, not others.
	do(t, "POST", rig.URL+"/chat/a/main", "{}", ct, jsonT, "Electric-Claim-Token", "rouse_wt_1_3").want(t, 204, "")
	do(t, "POST", rig.URL+"/a", "x", ct, text, "Electric-Claim-Token", "rouse_wt_1_3").want(t, 401, problem.Unauthenticated)
	do(t, "OPTIONS", rig.URL+"/a", "").want(t, 204, "")
}

func TestTheGateSeesWhatAHolderAppends(t *testing.T) {
	t.Parallel()
	rig, db := start(t, func(c *streams.Config) {
		c.Auth, c.Tokens = people{}, tokens{wake}
		c.AppendGate = func(_ context.Context, item *store.AppendItem) error {
			if item.Claim == nil || bytes.Contains(item.Payload, []byte("bad")) {
				return problem.New(problem.UnknownEventType, "not that")
			}
			return nil
		}
	})
	guarded(t, db)
	main, token := rig.URL+"/chat/a/main", []string{ct, jsonT, "Electric-Claim-Token", "rouse_wt_1_3"}
	do(t, "POST", main, `["good"]`, token...).want(t, 204, "")
	do(t, "POST", main, `["good","bad"]`, token...).want(t, 422, problem.UnknownEventType)
	// Whether the token holds is said first, whatever is appended.
	for name, stranger := range map[string]string{"an epoch that is over": "rouse_wt_1_2", "another's": "rouse_wt_9_3"} {
		if a := do(t, "POST", main, `["bad"]`, ct, jsonT, "Electric-Claim-Token", stranger); a.status != 401 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	do(t, "POST", rig.URL+"/none/b/main", `["bad"]`, token...).want(t, 404, problem.StreamNotFound)
	db.Exec(t, `update rouse.streams set closed_at = now() where path = 'chat/a/main'`)
	do(t, "POST", main, `["bad"]`, token...).want(t, 409, problem.StreamClosed)
	db.Exec(t, `update rouse.consumers set lease_expires_at = clock_timestamp()`)
	if a := do(t, "POST", main, `["bad"]`, token...).want(t, 401, problem.Unauthorized); !strings.Contains(a.body, `"reason":"LEASE_EXPIRED"`) {
		t.Errorf("body %s", a.body)
	}
	do(t, "POST", main, `["bad"]`, ct, jsonT).want(t, 401, problem.Unauthorized) // no token, no gate
}

func TestAPoisonedAppendHarmsNoNeighbour(t *testing.T) {
	t.Parallel()
	rig, _ := start(t, nil)
	do(t, "PUT", rig.URL+"/a", "", ct, text).want(t, 201, "")
	// A text the database cannot hold fails the whole call; each member is then
	// tried alone. Such a Producer-Id never passes the handler.
	done := make(chan error, 20)
	for i := range 20 {
		go func() {
			item := store.AppendItem{Service: 1, Path: "a", Type: text, Payload: []byte("x"), Count: 1}
			if i%5 == 0 {
				item.Producer = &store.Producer{ID: "\x00"}
			}
			res, err := rig.Appender.Append(t.Context(), item)
			switch {
			case i%5 == 0 && err == nil:
				err = errors.New("a poisoned append was accepted")
			case i%5 == 0:
				err = nil
			case err == nil && res.Outcome != store.Appended:
				err = fmt.Errorf("outcome %s", res.Outcome)
			}
			done <- err
		}()
	}
	for range 20 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := do(t, "GET", rig.URL+"/a", "").body; got != strings.Repeat("x", 16) {
		t.Fatalf("content %q", got)
	}
}

func TestADatabaseThatIsAwayIsA503(t *testing.T) {
	t.Parallel()
	in := pgtest.Server(t, pgtest.Options{})
	rig := streamrig.Start(t, in.DB.DSN, nil)
	do(t, "PUT", rig.URL+"/a", "x", ct, text).want(t, 201, "")
	if err := in.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"GET", "POST", "PUT", "DELETE"} {
		a := do(t, method, rig.URL+"/a", "x", ct, text)
		if a.status != 503 || a.header.Get("Retry-After") == "" {
			t.Fatalf("%s answers %d %s", method, a.status, a.body)
		}
	}
	if err := in.Restart(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for do(t, "POST", rig.URL+"/a", "y", ct, text).status != 204 {
		if time.Now().After(deadline) {
			t.Fatal("appends do not come back")
		}
	}
	if got := do(t, "GET", rig.URL+"/a", "").body; !strings.HasPrefix(got, "x") || !strings.HasSuffix(got, "y") {
		t.Fatalf("content %q", got)
	}
}
