package streams_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/streamrig"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/soon"
	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/gateway/streams"
)

// reader is an SSE client.
type reader struct {
	t      testing.TB
	res    *http.Response
	lines  *bufio.Scanner
	cancel context.CancelFunc
}

type event struct {
	name, data string
	comment    bool
	control    struct {
		StreamNextOffset, StreamCursor string
		UpToDate, StreamClosed         bool
	}
}

func follow(t testing.TB, url string, headers ...string) *reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != 200 {
		t.Fatalf("SSE answers %d", res.StatusCode)
	}
	t.Cleanup(func() { cancel(); res.Body.Close() })
	sc := bufio.NewScanner(res.Body)
	sc.Buffer(nil, 32<<20)
	return &reader{t: t, res: res, lines: sc, cancel: cancel}
}

// next returns the next event or comment; ok is false at the end.
func (r *reader) next() (e event, ok bool) {
	var data []string
	for r.lines.Scan() {
		line := r.lines.Text()
		switch {
		case strings.HasPrefix(line, ":"):
			e.comment = true
		case strings.HasPrefix(line, "event:"):
			e.name = strings.TrimSpace(line[6:])
		case strings.HasPrefix(line, "data:"):
			data = append(data, strings.TrimPrefix(line[5:], " "))
		case line == "" && (e.name != "" || e.comment):
			e.data = strings.Join(data, "\n")
			if e.name == "control" {
				if err := json.Unmarshal([]byte(e.data), &e.control); err != nil {
					r.t.Fatalf("control %q: %v", e.data, err)
				}
			}
			return e, true
		}
	}
	return e, false
}

func (r *reader) want(name string) event {
	r.t.Helper()
	for {
		e, ok := r.next()
		if !ok {
			r.t.Fatalf("the stream ended, want %s: %v", name, r.lines.Err())
		}
		if e.comment && name != "comment" {
			continue
		}
		if name == "comment" && e.comment {
			return e
		}
		if e.name != name {
			r.t.Fatalf("event %s %q, want %s", e.name, e.data, name)
		}
		return e
	}
}

func TestTailsSeeEachAppendOnceOnEitherGateway(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	one, two := streamrig.Start(t, db.DSN, nil), streamrig.Start(t, db.DSN, nil)
	do(t, "PUT", one.URL+"/a", "", ct, jsonT).want(t, 201, "")
	const n = 200
	var readers []*reader
	for _, rig := range []*streamrig.Rig{one, two} {
		for range 3 {
			r := follow(t, rig.URL+"/a?offset=-1&live=sse")
			if !r.want("control").control.UpToDate {
				t.Fatal("an empty stream is not up to date")
			}
			readers = append(readers, r)
		}
	}
	var wg sync.WaitGroup
	polled := make([][]int, 2)
	for i, rig := range []*streamrig.Rig{one, two} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			offset, cursor := "-1", ""
			for len(polled[i]) < n {
				url := rig.URL + "/a?live=long-poll&offset=" + offset
				if cursor != "" {
					url += "&cursor=" + cursor
				}
				a, err := try(t.Context(), "GET", url, "")
				if err != nil || a.status != 200 && a.status != 204 {
					t.Errorf("long-poll: %d %v", a.status, err)
					return
				}
				var page []int
				if a.status == 200 {
					if err := json.Unmarshal([]byte(a.body), &page); err != nil {
						t.Errorf("long-poll: %q", a.body)
						return
					}
				}
				polled[i] = append(polled[i], page...)
				offset, cursor = a.header.Get("Stream-Next-Offset"), a.header.Get("Stream-Cursor")
			}
		}()
	}
	for i := range n {
		rig := one
		if i%2 == 1 {
			rig = two
		}
		headers := []string{ct, jsonT}
		if i == n-1 {
			headers = append(headers, "Stream-Closed", "true")
		}
		do(t, "POST", rig.URL+"/a", fmt.Sprint(i), headers...).want(t, 204, "")
	}
	for k, r := range readers {
		var got []int
		for closed := false; !closed; {
			var page []int
			if err := json.Unmarshal([]byte(r.want("data").data), &page); err != nil {
				t.Fatal(err)
			}
			got = append(got, page...)
			c := r.want("control").control
			closed = c.StreamClosed
			if closed != (c.StreamCursor == "") {
				t.Fatalf("control %+v", c)
			}
			if len(got) == n && !closed { // the data came first, the close after it
				closed = r.want("control").control.StreamClosed
			}
		}
		if e, ok := r.next(); ok {
			t.Fatalf("after the end comes %+v", e)
		}
		inOrder(t, fmt.Sprintf("reader %d", k), got, n)
	}
	wg.Wait()
	inOrder(t, "long-poll one", polled[0], n)
	inOrder(t, "long-poll two", polled[1], n)
}

func inOrder(t *testing.T, who string, got []int, n int) {
	t.Helper()
	if len(got) != n {
		t.Fatalf("%s saw %d of %d", who, len(got), n)
	}
	for i, v := range got {
		if v != i {
			t.Fatalf("%s saw %d at place %d", who, v, i)
		}
	}
}

func TestSSEResumesWhereItEnded(t *testing.T) {
	t.Parallel()
	rig, _ := start(t, func(c *streams.Config) {
		c.SSEMaxAge, c.SSEKeepAlive = 300*time.Millisecond, 50*time.Millisecond
	})
	do(t, "PUT", rig.URL+"/a", "one", ct, text).want(t, 201, "")
	r := follow(t, rig.URL+"/a?offset=-1&live=sse")
	if got := r.want("data").data; got != "one" {
		t.Fatalf("data %q", got)
	}
	first := r.want("control").control
	r.want("comment")
	for {
		if _, ok := r.next(); !ok {
			break
		}
	}
	do(t, "POST", rig.URL+"/a", "two", ct, text).want(t, 204, "")
	r = follow(t, rig.URL+"/a?live=sse&offset="+first.StreamNextOffset+"&cursor="+first.StreamCursor)
	if got := r.want("data").data; got != "two" {
		t.Fatalf("data %q", got)
	}
	if second := r.want("control").control; len(second.StreamCursor) < len(first.StreamCursor) || second.StreamCursor <= first.StreamCursor {
		t.Fatalf("cursor %s after %s", second.StreamCursor, first.StreamCursor)
	}
	if r.res.Header.Get("X-Accel-Buffering") != "no" {
		t.Fatal("proxies may buffer the stream")
	}
}

func TestDrainEndsLiveReadsAtOnce(t *testing.T) {
	t.Parallel()
	rig, _ := start(t, nil)
	do(t, "PUT", rig.URL+"/a", "", ct, text).want(t, 201, "")
	sse := follow(t, rig.URL+"/a?offset=-1&live=sse")
	sse.want("control")
	poll := make(chan answer, 1)
	go func() {
		a, _ := try(t.Context(), "GET", rig.URL+"/a?offset=-1&live=long-poll", "")
		poll <- a
	}()
	soon.Until(t, "both wait", func() bool { return rig.Hub.Watchers() == 2 })
	start := time.Now()
	rig.Handler.Drain()
	if _, ok := sse.next(); ok {
		t.Fatal("the SSE stream goes on")
	}
	if a := <-poll; a.status != 204 || a.header.Get("Stream-Next-Offset") == "" || a.header.Get("Stream-Cursor") == "" {
		t.Fatalf("the long-poll answers %+v", a)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Fatalf("draining took %v", took)
	}
	soon.Until(t, "nobody watches", func() bool { return rig.Hub.Watchers() == 0 })
}

func TestAStreamThatGoesEndsItsReaders(t *testing.T) {
	t.Parallel()
	rig, _ := start(t, nil)
	do(t, "PUT", rig.URL+"/a", "", ct, text).want(t, 201, "")
	sse := follow(t, rig.URL+"/a?offset=-1&live=sse")
	sse.want("control")
	poll := make(chan answer, 1)
	go func() {
		a, _ := try(t.Context(), "GET", rig.URL+"/a?offset=-1&live=long-poll", "")
		poll <- a
	}()
	soon.Until(t, "both wait", func() bool { return rig.Hub.Watchers() == 2 })
	do(t, "DELETE", rig.URL+"/a", "").want(t, 204, "")
	if e := sse.want("error"); !strings.Contains(e.data, string(problem.StreamNotFound)) {
		t.Fatalf("error event %q", e.data)
	}
	(<-poll).want(t, 404, problem.StreamNotFound)
}

func TestAReaderThatLeavesIsForgotten(t *testing.T) {
	t.Parallel()
	rig, _ := start(t, nil)
	do(t, "PUT", rig.URL+"/a", "", ct, text).want(t, 201, "")
	for range 5 {
		r := follow(t, rig.URL+"/a?offset=-1&live=sse")
		r.want("control")
		soon.Until(t, "it waits", func() bool { return rig.Hub.Watchers() == 1 })
		r.cancel()
		soon.Until(t, "it is gone", func() bool { return rig.Hub.Watchers() == 0 })
	}
}

// A reader that takes nothing is cut off, and nobody else notices.
func TestASlowReaderIsCutOff(t *testing.T) {
	t.Parallel()
	rig, _ := start(t, func(c *streams.Config) { c.WriteTimeout = 200 * time.Millisecond })
	do(t, "PUT", rig.URL+"/a", "", ct, text).want(t, 201, "")
	slow, err := net.Dial("tcp", rig.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	_ = slow.(*net.TCPConn).SetReadBuffer(4 << 10)
	fmt.Fprintf(slow, "GET /a?offset=-1&live=sse HTTP/1.1\r\nHost: x\r\n\r\n")
	soon.Until(t, "it waits", func() bool { return rig.Hub.Watchers() == 1 })
	fast := follow(t, rig.URL+"/a?offset=-1&live=sse")
	fast.want("control")
	payload := strings.Repeat("x", 1<<20)
	for range 16 {
		start := time.Now()
		do(t, "POST", rig.URL+"/a", payload, ct, text).want(t, 204, "")
		if took := time.Since(start); took > 5*time.Second {
			t.Fatalf("an append took %v", took)
		}
		if got := fast.want("data"); len(got.data) != len(payload) {
			t.Fatalf("the fast reader got %d bytes", len(got.data))
		}
		fast.want("control")
	}
	soon.Until(t, "only the fast reader is left", func() bool { return rig.Hub.Watchers() == 1 })
}

// Many readers at one place cost about one read of the database, and none for
// what was appended here.
func TestReadersShareReads(t *testing.T) {
	t.Parallel()
	var reads counted
	db := pgtest.New(t)
	here := streamrig.Start(t, db.DSN, func(c *streams.Config) { reads.Database = c.Store; c.Store = &reads })
	there := streamrig.Start(t, db.DSN, nil)
	do(t, "PUT", here.URL+"/a", "", ct, jsonT).want(t, 201, "")
	var readers []*reader
	for range 100 {
		r := follow(t, here.URL+"/a?offset=-1&live=sse")
		r.want("control")
		readers = append(readers, r)
	}
	soon.Until(t, "all wait", func() bool { return here.Hub.Watchers() == 100 })
	const n = 20
	round := func(rig *streamrig.Rig) int64 {
		before := reads.n.Load()
		for range n {
			offset := do(t, "POST", rig.URL+"/a", `[{"headers":{"operation":"insert"}},7]`, ct, jsonT).want(t, 204, "").header.Get("Stream-Next-Offset")
			for _, r := range readers {
				if got, want := r.want("data").data, `[{"headers":{"offset":"`+offset+`","operation":"insert"}},7]`; got != want {
					t.Fatalf("data %s, want %s", got, want)
				}
				if got := r.want("control").control; got.StreamNextOffset != offset {
					t.Fatalf("control %+v, want %s", got, offset)
				}
			}
		}
		return reads.n.Load() - before
	}
	// The log is sometimes quicker than the answer of the commit; then one read serves all.
	if got := round(here); got > 2*n {
		t.Fatalf("%d reads for %d appends to this gateway", got, n)
	}
	if got := round(there); got < n/2 || got > 10*n {
		t.Fatalf("%d reads for %d appends to the other gateway and 100 readers", got, n)
	}
}

// counted counts reads.
type counted struct {
	streams.Database
	n atomic.Int64
}

func (c *counted) StreamRead(ctx context.Context, q store.ReadRequest) (store.StreamPage, error) {
	c.n.Add(1)
	return c.Database.StreamRead(ctx, q)
}

// When the gateway itself ends a request, its client learns that nothing is
// certain; it is never left with an empty success.
func TestACutOffRequestIsNoSuccess(t *testing.T) {
	t.Parallel()
	rig, _ := start(t, nil)
	do(t, "PUT", rig.URL+"/a", "", ct, text).want(t, 201, "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, method := range []string{"POST", "GET", "HEAD", "PUT", "DELETE"} {
		rec := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(ctx, method, "/a", strings.NewReader("x"))
		r.Header.Set(ct, text)
		rig.Handler.ServeHTTP(rec, r)
		if method == "POST" && rec.Code == 204 { // what has begun is finished, and told as it is
			if got := do(t, "GET", rig.URL+"/a", "").body; got != "x" {
				t.Errorf("an append answered 204 is not there: %q", got)
			}
		} else if rec.Code != 503 {
			t.Errorf("%s answers %d %s", method, rec.Code, rec.Body)
		}
	}
}
