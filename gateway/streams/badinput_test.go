package streams_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/streamrig"
	"github.com/rouse-run/rouse/gateway/intake"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/soon"
	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/gateway/streams"
)

// raw sends bytes as they are and reads the answer; every answer comes within
// seconds.
func raw(t testing.TB, addr, request string) (status int, code problem.Code) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		return 0, ""
	}
	method, _, _ := strings.Cut(request, " ")
	req, _ := http.NewRequest("GET", "/", nil)
	if method == "HEAD" {
		req.Method = method
	}
	res, err := http.ReadResponse(bufio.NewReader(c), req)
	if err != nil {
		t.Fatalf("%.80q: no answer: %v", request, err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	var p struct{ Code problem.Code }
	_ = json.Unmarshal(b, &p)
	return res.StatusCode, p.Code
}

func TestBadInputIsAnsweredWithACode(t *testing.T) {
	t.Parallel()
	rig, db := start(t, func(c *streams.Config) { c.MaxBodyBytes = 1 << 20; c.BodyTimeout = 300 * time.Millisecond })
	do(t, "PUT", rig.URL+"/a", "hello", ct, text).want(t, 201, "")
	do(t, "PUT", rig.URL+"/j", "", ct, jsonT).want(t, 201, "")
	get := func(target string) string {
		return "GET " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	}
	post := func(path, body string, headers ...string) string {
		s := "POST " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
		for _, h := range headers {
			s += h + "\r\n"
		}
		return s + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	put := func(path string, headers ...string) string {
		return strings.Replace(post(path, "", headers...), "POST", "PUT", 1)
	}
	const typ, js = "Content-Type: text/plain", "Content-Type: application/json"
	for _, tc := range []struct {
		request string
		status  int
		code    problem.Code // "" when the HTTP server itself refuses
	}{
		// paths
		{get("/"), 400, problem.InvalidPath}, {get("//"), 400, problem.InvalidPath}, {get("/a//b"), 400, problem.InvalidPath},
		{get("/a/../b"), 400, problem.InvalidPath}, {get("/a/%2e%2e/b"), 400, problem.InvalidPath}, {get("/%00"), 400, problem.InvalidPath},
		{get("/%ff"), 400, problem.InvalidPath}, {get("/%zz"), 400, ""}, {get("/a\xffb"), 400, problem.InvalidPath}, {get("/a\x01b"), 400, ""},
		{get("/" + strings.Repeat("a", 2000)), 414, problem.URITooLong}, {get("/" + strings.Repeat("a", 200000)), 431, ""},
		{get("/_electric/x"), 404, problem.StreamNotFound}, {get("/%5felectric/x"), 404, problem.StreamNotFound}, {put("/__ds/x", typ), 403, problem.PathReserved},
		{put("/v1/stream/_x", typ), 403, problem.PathReserved}, {put("/%5Fx", typ), 403, problem.PathReserved}, {put("/api", typ), 403, problem.PathReserved},
		{post("/runners/r/wake", "{}", js), 403, problem.PathReserved},
		// queries
		{get("/a?offset="), 400, problem.OffsetInvalid}, {get("/a?offset=0"), 400, problem.OffsetInvalid}, {get("/a?offset=-2"), 400, problem.OffsetInvalid},
		{get("/a?offset=1&offset=2"), 400, problem.OffsetInvalid}, {get("/a?offset=%00"), 400, problem.OffsetInvalid},
		{get("/a?offset=0000000000000001_0000000000000001"), 400, problem.OffsetInvalid}, {get("/a?offset=0000000000000000_000000000000000x"), 400, problem.OffsetInvalid},
		{get("/a?offset=0000000000000000_0000000000000099"), 400, problem.OffsetInvalid}, {get("/a?offset=0000000000000000_+000000000000001"), 400, problem.OffsetInvalid},
		{get("/a?offset=" + strings.Repeat("9", 3000)), 400, problem.OffsetInvalid}, {get("/a?x=" + strings.Repeat("9", 5000)), 414, problem.URITooLong},
		{get("/a?live=sse"), 400, problem.InvalidRequest}, {get("/a?live=x&offset=-1"), 400, problem.InvalidRequest}, {get("/a?live=&offset=-1"), 400, problem.InvalidRequest},
		{get("/a?offset=-1&live=sse&live=sse"), 400, problem.InvalidRequest}, {get("/a?offset=-1&live=long-poll&cursor=x"), 400, problem.InvalidRequest},
		{get("/a?offset=-1&live=long-poll&cursor=99999999999999999999"), 400, problem.InvalidRequest}, {get("/a?%zz"), 400, problem.InvalidRequest},
		{get("/a?a;b"), 400, problem.InvalidRequest}, {get("/a?service=%f0"), 404, problem.ServiceNotFound},
		// methods and the protocol below
		{"PATCH /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405, problem.MethodNotAllowed},
		{"BREW /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405, problem.MethodNotAllowed},
		{"PATCH /_electric/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405, problem.MethodNotAllowed},
		{"rubbish\r\n\r\n", 400, ""}, {"GET /a HTTP/9.9\r\nHost: x\r\n\r\n", 505, ""}, {"GET /a HTTP/1.1\r\n\r\n", 400, ""},
		{"GET /a HTTP/1.1\r\nHost: x\r\nBad Header: y\r\n\r\n", 400, ""}, {"GET /a HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n", 400, ""},
		{"GET /a HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 200000) + "\r\n\r\n", 431, ""},
		{"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400, ""}, {"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400, ""},
		{"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: banana\r\n\r\n", 501, ""},
		{"POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, problem.InvalidRequest},
		{"POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\nabc", 408, problem.RequestTimeout}, // stalls
		{"POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", 408, problem.RequestTimeout},
		{"POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 99999999999\r\n\r\n", 413, problem.PayloadTooLarge},
		{post("/a", strings.Repeat("x", 1<<20+1), typ), 413, problem.PayloadTooLarge},
		// headers of appends
		{post("/a", "x"), 400, problem.InvalidRequest}, {post("/a", "", typ), 400, problem.InvalidRequest}, {post("/a", "x", "Content-Type: nonsense"), 400, problem.InvalidRequest},
		{post("/a", "x", typ, typ), 400, problem.InvalidRequest}, {post("/a", "x", "Content-Type: text/html"), 409, problem.ContentTypeMismatch},
		{post("/a", "x", typ, "Stream-Closed: maybe"), 400, problem.InvalidRequest}, {post("/a", "x", typ, "Stream-Seq: "), 400, problem.InvalidRequest},
		{post("/a", "x", typ, "Stream-Seq: a", "Stream-Seq: b"), 400, problem.InvalidRequest}, {post("/a", "x", typ, "Stream-Seq: "+strings.Repeat("s", 257)), 400, problem.InvalidRequest},
		{post("/a", "x", typ, "Stream-Seq: \xff\xfe"), 400, problem.InvalidRequest},
		{post("/a", "x", typ, "Producer-Id: p"), 400, problem.InvalidRequest}, {post("/a", "x", typ, "Producer-Epoch: 0", "Producer-Seq: 0"), 400, problem.InvalidRequest},
		{post("/a", "x", typ, "Producer-Id: p", "Producer-Epoch: 0", "Producer-Seq: 9007199254740992"), 400, problem.InvalidRequest},
		{post("/a", "x", typ, "Producer-Id: p", "Producer-Epoch: 0", "Producer-Seq: 99999999999999999999999"), 400, problem.InvalidRequest},
		{post("/a", "x", typ, "Producer-Id: p", "Producer-Epoch: 0x1", "Producer-Seq: 0"), 400, problem.InvalidRequest},
		{post("/a", "x", typ, "Producer-Id: p", "Producer-Epoch: ", "Producer-Seq: 0"), 400, problem.InvalidRequest},
		{post("/a", "x", typ, "Producer-Id: \xff", "Producer-Epoch: 0", "Producer-Seq: 0"), 400, problem.InvalidRequest},
		{post("/a", "x", typ, "Producer-Id: "+strings.Repeat("p", 257), "Producer-Epoch: 0", "Producer-Seq: 0"), 400, problem.InvalidRequest},
		{post("/a", "x", typ, "Producer-Id: p", "Producer-Id: q", "Producer-Epoch: 0", "Producer-Seq: 0"), 400, problem.InvalidRequest},
		// headers of creates
		{put("/n", "Stream-TTL: "), 400, problem.InvalidRequest}, {put("/n", "Stream-TTL: 1.5"), 400, problem.InvalidRequest}, {put("/n", "Stream-TTL: 99999999999"), 400, problem.InvalidRequest},
		{put("/n", "Stream-TTL: 5", "Stream-TTL: 5"), 400, problem.InvalidRequest}, {put("/n", "Stream-Expires-At: tomorrow"), 400, problem.InvalidRequest},
		{put("/n", "Stream-Expires-At: 99999-01-01T00:00:00Z"), 400, problem.InvalidRequest}, {put("/n", "Stream-Expires-At: 2031-02-30T00:00:00Z"), 400, problem.InvalidRequest},
		{put("/n", "Stream-Expires-At: 0001-01-01T00:00:00Z"), 400, problem.InvalidRequest}, {put("/n", "Content-Type: \xff/x"), 400, problem.InvalidRequest},
		{put("/n", "Stream-Fork-Sub-Offset: 1"), 400, problem.InvalidRequest}, {put("/n", "Stream-Forked-From: /a", "Stream-Fork-Sub-Offset: 99999999999999999999"), 400, problem.InvalidRequest},
		{put("/n", "Stream-Forked-From: /\xff"), 400, problem.InvalidRequest}, {put("/n", "Stream-Forked-From: //"), 400, problem.InvalidRequest},
		// JSON
		{post("/j", "", js), 400, problem.InvalidRequest}, {post("/j", "[]", js), 400, problem.InvalidRequest}, {post("/j", "{", js), 400, problem.InvalidJSON},
		{post("/j", "1 2", js), 400, problem.InvalidJSON}, {post("/j", `{"a":1,"a":2}`, js), 400, problem.InvalidJSON}, {post("/j", "\"\xff\"", js), 400, problem.InvalidJSON},
		{post("/j", strings.Repeat("[", 100000), js), 400, problem.InvalidJSON}, {post("/j", strings.Repeat(`{"a":`, 1000)+"1"+strings.Repeat("}", 1000), js), 400, problem.InvalidJSON},
		{post("/j", "\x00", js), 400, problem.InvalidJSON},
	} {
		status, code := raw(t, rig.Addr, tc.request)
		if status != tc.status || code != tc.code {
			t.Errorf("%.120q: %d %q, want %d %q", tc.request, status, code, tc.status, tc.code)
		}
	}
	// None of it had an effect.
	if a := do(t, "GET", rig.URL+"/a", "").want(t, 200, ""); a.body != "hello" {
		t.Errorf("content %q", a.body)
	}
	if a := do(t, "GET", rig.URL+"/j", "").want(t, 200, ""); a.body != "[]" {
		t.Errorf("content %q", a.body)
	}
	do(t, "GET", rig.URL+"/n", "").want(t, 404, problem.StreamNotFound)
	var producers int
	if err := db.Conn(t).QueryRow(t.Context(), `select count(*) from rouse.producers`).Scan(&producers); err != nil || producers != 0 {
		t.Errorf("%d producers, %v", producers, err)
	}
}

func TestNoContentIsTooStrange(t *testing.T) {
	t.Parallel()
	rig, _ := start(t, nil)
	for i, body := range []string{"\x00", "\xff\xfe", strings.Repeat("\x00", 100000), "\r\n\r\n", "event: control\ndata: {}\n\n"} {
		url := fmt.Sprintf("%s/strange-%d", rig.URL, i)
		do(t, "PUT", url, body, ct, "application/octet-stream").want(t, 201, "")
		do(t, "POST", url, body, ct, "application/octet-stream").want(t, 204, "")
		if got := do(t, "GET", url, "").want(t, 200, "").body; got != body+body {
			t.Fatalf("read %.40q", got)
		}
	}
}

// Random requests of plausible parts: never a 5xx, never a hang.
func TestRandomRequests(t *testing.T) {
	t.Parallel()
	rig, _ := start(t, func(c *streams.Config) { c.LongPollTimeout = time.Millisecond; c.SSEMaxAge = 5 * time.Millisecond })
	values := []string{"", "0", "1", "-1", "true", "false", "now", "x", "/r0", "/v1/stream/r1", "0000000000000000_0000000000000003", "99999999999999999999",
		"2031-01-01T00:00:00Z", "text/plain", "application/json", "\x7f", "é", "a,b", strings.Repeat("z", 300), "*", `"1:0:3"`, "Bearer rouse_wt_x"}
	headers := []string{ct, "Stream-Closed", "Stream-Seq", "Stream-TTL", "Stream-Expires-At", "Stream-Forked-From", "Stream-Fork-Offset", "Stream-Fork-Sub-Offset",
		"Producer-Id", "Producer-Epoch", "Producer-Seq", "If-None-Match", "Authorization", "Electric-Claim-Token"}
	rapid.Check(t, func(rt *rapid.T) {
		method := rapid.SampledFrom([]string{"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH"}).Draw(rt, "method")
		path := rapid.SampledFrom([]string{"/r0", "/r1", "/v1/stream/r0", "/r%2F2", "/r//3", "/..", "/_x", "/runners/r/wake"}).Draw(rt, "path")
		var query []string
		for range rapid.IntRange(0, 3).Draw(rt, "queries") {
			query = append(query, rapid.SampledFrom([]string{"offset", "live", "cursor", "service", "x"}).Draw(rt, "q")+"="+
				rapid.SampledFrom([]string{"", "-1", "now", "sse", "long-poll", "0000000000000000_0000000000000003", "default", "7", "%00", "%zz"}).Draw(rt, "v"))
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s %s?%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", method, path, strings.Join(query, "&"))
		for range rapid.IntRange(0, 6).Draw(rt, "headers") {
			fmt.Fprintf(&b, "%s: %s\r\n", rapid.SampledFrom(headers).Draw(rt, "h"), rapid.SampledFrom(values).Draw(rt, "v"))
		}
		body := rapid.SampledFrom([]string{"", "x", "[]", "[1,2]", `{"headers":{"operation":"insert"}}`, "\x00\xff", "{"}).Draw(rt, "body")
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
		if status, _ := raw(t, rig.Addr, b.String()); status >= 500 || status < 200 {
			rt.Fatalf("%q: %d", b.String(), status)
		}
	})
}

// The bodies of many large requests never fill more memory than their budget.
func TestBodiesInFlightAreBounded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	budget := intake.NewBudget(8 << 20)
	rig := streamrig.Start(t, db.DSN, func(c *streams.Config) {
		c.MaxBodyBytes = 4 << 20
		c.Bodies = budget
		c.BodyTimeout = 20 * time.Second
	})
	do(t, "PUT", rig.URL+"/a", "", ct, text).want(t, 201, "")
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	// Forty bodies are announced, and one byte of each comes: they hold little.
	for range 40 {
		c, err := net.Dial("tcp", rig.Addr)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		fmt.Fprintf(c, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\nx", 4<<20)
	}
	soon.Until(t, "all are being read", func() bool { return budget.Held() >= 40*16<<10 })
	do(t, "POST", rig.URL+"/a", strings.Repeat("x", 4<<20), ct, text).want(t, 204, "")
	// Then most of each comes: a few fit and wait for their end, the rest is
	// refused in good time, and none of it fills memory.
	most, answers := bytes.Repeat([]byte("x"), 3<<20), make(chan string, len(conns))
	for _, c := range conns {
		go func() {
			_ = c.SetDeadline(time.Now().Add(30 * time.Second))
			_, _ = c.Write(most)
			line, _ := bufio.NewReader(c).ReadString('\n')
			answers <- line
		}()
	}
	for range len(conns) - 4 {
		if line := <-answers; line != "" && !strings.Contains(line, "503") { // or the connection was reset
			t.Errorf("a body that does not fit is answered %q", line)
		}
	}
	if held := budget.Held(); held > 8<<20 {
		t.Errorf("%d bytes are held", held)
	}
	// Small bodies come through all the same.
	do(t, "POST", rig.URL+"/a", "small", ct, text).want(t, 204, "")
	runtime.GC()
	runtime.ReadMemStats(&during)
	if grown := int64(during.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Fatalf("the heap grew by %d MiB", grown>>20)
	}
	for _, c := range conns {
		c.Close()
	}
	soon.Until(t, "the budget is free again", func() bool { return budget.Held() == 0 })
	do(t, "POST", rig.URL+"/a", strings.Repeat("x", 3<<20), ct, text).want(t, 204, "")
}

// held is an appender that waits for the test.
type held struct {
	streams.Appender
	waits, free chan struct{}
}

func (h held) Append(ctx context.Context, item store.AppendItem) (store.AppendResult, error) {
	h.waits <- struct{}{}
	select {
	case <-h.free:
		return h.Appender.Append(ctx, item)
	case <-ctx.Done():
		return store.AppendResult{}, ctx.Err()
	}
}

// A body whose client has left counts as long as its append waits.
func TestABodyCountsUntilItIsWritten(t *testing.T) {
	t.Parallel()
	budget, requests := intake.NewBudget(8<<20), make(chan context.Context, 1)
	ap := held{waits: make(chan struct{}), free: make(chan struct{})}
	rig := streamrig.Start(t, pgtest.New(t).DSN, func(c *streams.Config) {
		ap.Appender = c.Appender
		c.Bodies, c.Appender = budget, ap
		c.Admit = func(r *http.Request) error {
			if r.Method == http.MethodPost {
				requests <- r.Context()
			}
			return nil
		}
	})
	do(t, "PUT", rig.URL+"/a", "", ct, text).want(t, 201, "")
	c, err := net.Dial("tcp", rig.Addr)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\n%s", strings.Repeat("x", 1000))
	<-ap.waits
	c.Close()
	<-(<-requests).Done() // the server has noticed
	if held := budget.Held(); held != 1000 {
		t.Errorf("%d bytes are held", held)
	}
	close(ap.free)
	soon.Until(t, "nothing is held", func() bool { return budget.Held() == 0 })
	if got := do(t, "GET", rig.URL+"/a", "").body; len(got) != 1000 {
		t.Errorf("%d bytes were written", len(got))
	}
}
