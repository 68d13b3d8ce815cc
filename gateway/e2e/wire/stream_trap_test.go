package wire_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
)

// event is one event of an SSE answer.
type event struct {
	kind, data string
}

// control reads a control event's members.
func (e event) control(t *testing.T) (m struct {
	StreamNextOffset string
	StreamCursor     string
	UpToDate         bool
	StreamClosed     bool
}) {
	t.Helper()
	if e.kind != "control" {
		t.Fatalf("%s is no control event: %s", e.kind, e.data)
	}
	if err := json.Unmarshal([]byte(e.data), &m); err != nil {
		t.Fatalf("%s: %v", e.data, err)
	}
	return m
}

// sse reads a stream live until stop says so or it ends.
func (r *rig) sse(path string, stop func(events []event) bool) []event {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", r.kyle.Base+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Electric-Principal", "user:kyle")
	resp, err := r.hc.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		r.t.Fatalf("%s: status %d, type %s", path, resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	var events []event
	var e event
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "event:"):
			e.kind = strings.TrimSpace(line[6:])
		case strings.HasPrefix(line, "data:"):
			e.data += strings.TrimPrefix(line[5:], " ")
		case line == "" && e.kind != "":
			events = append(events, e)
			e = event{}
			if stop(events) {
				return events
			}
		}
	}
	if err := lines.Err(); err != nil {
		r.t.Fatalf("%s: %v after %d events", path, err, len(events))
	}
	return events
}

// raw sends a request as bytes and reads what comes, so that what a client
// library would forgive is seen.
func (r *rig) raw(request string) string {
	r.t.Helper()
	u, err := url.Parse(r.kyle.Base)
	if err != nil {
		r.t.Fatal(err)
	}
	conn, err := (&net.Dialer{Timeout: patience}).DialContext(r.t.Context(), "tcp", u.Host)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		r.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "%s\r\nHost: %s\r\nElectric-Principal: user:kyle\r\nConnection: close\r\n\r\n", request, u.Host); err != nil {
		r.t.Fatal(err)
	}
	var b strings.Builder
	if _, err := bufio.NewReader(conn).WriteTo(&b); err != nil {
		r.t.Fatal(err)
	}
	return b.String()
}

// An answer that has no body has none: not a byte behind the head, and no
// length that says otherwise.
func TestAnswersWithoutABodyHaveNone(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *config.Config) { c.LongPollTimeout = time.Second })
	f := r.fresh()
	r.must(201, r.kyle, "PUT", "/plain/a", `[{"n":1}]`)
	etag := r.must(200, r.kyle, "GET", "/plain/a", "").Header.Get("Etag")
	tail := r.tail("/plain/a")
	for request, status := range map[string]string{
		"OPTIONS /_electric/entities HTTP/1.1": "204", "OPTIONS /plain/a HTTP/1.1": "204",
		"POST " + f.claim() + " HTTP/1.1\r\nContent-Length: 0":     "204",
		"DELETE /_electric/entity-types/" + f.Type + " HTTP/1.1":   "204",
		"GET /plain/a?offset=" + tail + "&live=long-poll HTTP/1.1": "204",
		"GET /plain/a HTTP/1.1\r\nIf-None-Match: " + etag:          "304",
	} {
		head, body, _ := strings.Cut(r.raw(request), "\r\n\r\n")
		if !strings.HasPrefix(head, "HTTP/1.1 "+status) || body != "" {
			t.Errorf("%s: %s with the body %q", request, head, body)
		}
		if lower := strings.ToLower(head); strings.Contains(lower, "transfer-encoding") || strings.Contains(lower, "content-length") && status == "204" {
			t.Errorf("%s: a length is said: %s", request, head)
		}
	}
}

// A reader that is caught up gets the last message before it hears that the
// stream ended, also when both come in one request.
func TestTheLastMessageComesBeforeTheEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for i := range 10 {
		path := fmt.Sprintf("/plain/end%d", i)
		r.must(201, r.kyle, "PUT", path, `[{"n":0}]`)
		closing := make(chan wire.Answer, 1)
		events := r.sse(path+"?offset=-1&live=sse", func(events []event) bool {
			last := events[len(events)-1]
			if len(events) == 2 && last.control(t).UpToDate { // caught up: now the last one comes, with the end
				closed := map[string]string{"Stream-Closed": "true"}
				if i%2 == 0 {
					go func() { closing <- r.kyle.Do(t.Context(), "POST", path, `{"n":1}`, closed) }()
				} else {
					go func() {
						if a := r.kyle.Do(t.Context(), "POST", path, `{"n":1}`, nil); a.Status != 204 {
							t.Errorf("%v", a)
						}
						closing <- r.kyle.Do(t.Context(), "POST", path, nil, closed)
					}()
				}
			}
			return last.kind == "control" && last.control(t).StreamClosed
		})
		if a := <-closing; a.Status != 204 {
			t.Fatalf("%v: %s", a, a.Raw)
		}
		var got []string
		for _, e := range events {
			if e.kind == "data" {
				got = append(got, e.data)
			}
		}
		if joined := strings.Join(got, " "); !strings.Contains(joined, `"n":0`) || !strings.Contains(joined, `"n":1`) || !events[len(events)-1].control(t).StreamClosed {
			t.Fatalf("%v", events)
		}
	}
}

// Each data event is followed by the control event that says where it ended,
// also while an old stream is read from its start in many pages.
func TestEachDataEventHasItsControlEvent(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, r.kyle, "PUT", "/plain/long", `[]`)
	big := strings.Repeat("x", 64<<10)
	for i := range 40 {
		r.must(204, r.kyle, "POST", "/plain/long", fmt.Sprintf(`{"n":%d,"pad":%q}`, i, big))
	}
	tail := r.tail("/plain/long")
	events := r.sse("/plain/long?offset=-1&live=sse", func(events []event) bool {
		e := events[len(events)-1]
		return e.kind == "control" && e.control(t).StreamNextOffset == tail
	})
	n, last := 0, ""
	for i, e := range events {
		if i%2 == 0 {
			var list []struct{ N int }
			if e.kind != "data" || json.Unmarshal([]byte(e.data), &list) != nil {
				t.Fatalf("event %d is %s", i, e.kind)
			}
			for _, m := range list {
				if m.N != n {
					t.Fatalf("message %d where %d was due", m.N, n)
				}
				n++
			}
			continue
		}
		m := e.control(t)
		if m.StreamNextOffset <= last || m.StreamCursor == "" && !m.StreamClosed || m.UpToDate != (m.StreamNextOffset == tail) {
			t.Errorf("control event %d: %s behind %s", i, e.data, last)
		}
		last = m.StreamNextOffset
	}
	if n != 40 || len(events) < 4 {
		t.Errorf("%d messages in %d events", n, len(events))
	}
}

// Whatever reads or writes a stream renews its sliding life: a read of nothing
// and a POST that only closes as well. HEAD looks without touching.
func TestEveryAccessRenewsASlidingLife(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	const ttl = 1000
	r.must(201, r.kyle, "PUT", "/plain/ttl", `[]`, "Stream-TTL", strconv.Itoa(ttl))
	left := func() (seconds float64) {
		r.scan(`select extract(epoch from expires_at - clock_timestamp()) from rouse.streams where path = 'plain/ttl'`, nil, &seconds)
		return seconds
	}
	for _, q := range []struct {
		method, query, body string
		header              []string
		status              int
	}{
		{"GET", "?offset=now", "", nil, 200},
		{"GET", "", "", nil, 200},
		{"POST", "", `{"n":1}`, nil, 204},
		{"POST", "", "", []string{"Stream-Closed", "true"}, 204},
	} {
		r.db.Exec(t, `update rouse.streams set expires_at = clock_timestamp() + interval '100 s' where path = 'plain/ttl'`)
		r.must(q.status, r.kyle, q.method, "/plain/ttl"+q.query, q.body, q.header...)
		r.eventually(q.method+" "+q.query+" renews it", func() bool { return left() > ttl-100 })
	}
	r.db.Exec(t, `update rouse.streams set expires_at = clock_timestamp() + interval '100 s' where path = 'plain/ttl'`)
	r.must(200, r.kyle, "HEAD", "/plain/ttl", "")
	if s := left(); s > 200 {
		t.Errorf("HEAD renewed it to %f s", s)
	}
}

// A fork that is refused leaves its source as it was: deleting that ends it at
// once, and its name can be used again. One that names no content type has its
// source's.
func TestForksTakeAReferenceOnlyWhenTheyAreMade(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.must(201, r.kyle, "PUT", "/plain/src", `[{"n":1}]`)
	from := []string{"Stream-Forked-From", "/plain/src"}
	r.refused(409, "CONTENT_TYPE_MISMATCH", r.kyle, "PUT", "/plain/bad", `x`, append(from, "Content-Type", "text/plain")...)
	r.refused(404, "STREAM_NOT_FOUND", r.kyle, "GET", "/plain/bad", "")
	r.refused(400, "OFFSET_INVALID", r.kyle, "PUT", "/plain/bad", "", append(from, "Stream-Fork-Offset", "0000000000000000_0000000099999999")...)
	if n := r.count(`select count(*) from rouse.streams where forked_from is not null`); n != 0 {
		t.Errorf("%d forks", n)
	}
	r.must(204, r.kyle, "DELETE", "/plain/src", "")
	r.refused(404, "STREAM_NOT_FOUND", r.kyle, "GET", "/plain/src", "") // 410 if something still referred to it
	r.must(201, r.kyle, "PUT", "/plain/src", `[{"n":2}]`)
	a := r.must(201, r.kyle, "PUT", "/plain/fork", "", from...)
	if ct := a.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("the fork is of type %s", ct)
	}
	if a := r.must(200, r.kyle, "GET", "/plain/fork", ""); string(a.Raw) != `[{"n":2}]` || a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %v", a.Raw, a.Header)
	}
}

// A stream whose time is over is not there: it is neither read nor written, and
// its name can be used again. A time that cannot be read makes no stream.
func TestAnExpiredStreamIsAbsent(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for _, bad := range []string{"soon", "", "2030-13-01T00:00:00Z", "2030-01-01", "1893456000", "tomorrow 12:00"} {
		r.refused(400, "INVALID_REQUEST", r.kyle, "PUT", "/plain/old", `[]`, "Stream-Expires-At", bad)
	}
	for _, bad := range []string{"-1", "1.5", "1e3", "01", "+1", "one", ""} {
		r.refused(400, "INVALID_REQUEST", r.kyle, "PUT", "/plain/old", `[]`, "Stream-TTL", bad)
	}
	r.refused(404, "STREAM_NOT_FOUND", r.kyle, "GET", "/plain/old", "")
	r.must(201, r.kyle, "PUT", "/plain/old", `[{"n":1}]`, "Stream-Expires-At", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	r.db.Exec(t, `update rouse.streams set expires_at = clock_timestamp() - interval '1 ms' where path = 'plain/old'`)
	for _, method := range []string{"GET", "POST", "DELETE"} {
		r.refused(404, "STREAM_NOT_FOUND", r.kyle, method, "/plain/old", `{"n":2}`)
	}
	r.must(201, r.kyle, "PUT", "/plain/old", `[{"n":3}]`)
	if a := r.must(200, r.kyle, "GET", "/plain/old", ""); string(a.Raw) != `[{"n":3}]` {
		t.Errorf("%s", a.Raw)
	}
}

// A producer's batches are taken in order, whichever arrives first: a repeat is
// told so, a gap says what was expected, an older epoch is refused with the
// newer one, and a new epoch begins at its first.
func TestAProducersBatchesStayInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, c := r.worked()
	r.must(201, r.kyle, "PUT", "/plain/producer", `[]`)
	for _, at := range []struct {
		path   string
		header []string
	}{{"/plain/producer", nil}, {f.main(), tokenHeader(c.WriteToken)}} {
		n := 0
		post := func(epoch, seq int) wire.Answer {
			n++
			return r.call(r.kyle, "POST", at.path, row("text", fmt.Sprint("p", n), `{}`), append([]string{"Producer-Id", "entity-/x", "Producer-Epoch", strconv.Itoa(epoch), "Producer-Seq", strconv.Itoa(seq)}, at.header...)...)
		}
		want := func(a wire.Answer, status int, code string, header ...string) {
			t.Helper()
			if a.Status != status || a.Code != code {
				t.Errorf("%s: %v, want %d %s: %s", at.path, a, status, code, a.Raw)
			}
			for i := 0; i+1 < len(header); i += 2 {
				if got := a.Header.Get(header[i]); got != header[i+1] {
					t.Errorf("%s: %s is %q, want %q", at.path, header[i], got, header[i+1])
				}
			}
		}
		want(post(1, 0), 200, "", "Producer-Epoch", "1", "Producer-Seq", "0")
		want(post(1, 0), 204, "", "Producer-Seq", "0")
		want(post(1, 2), 409, "PRODUCER_GAP", "Producer-Expected-Seq", "1", "Producer-Received-Seq", "2")
		want(post(1, 1), 200, "", "Producer-Seq", "1")
		// A later batch of the next epoch comes first: it does not claim the epoch.
		if a := post(2, 1); a.Status != 400 && a.Status != 409 {
			t.Errorf("%s: %v", at.path, a)
		}
		want(post(1, 2), 200, "", "Producer-Seq", "2")
		want(post(2, 0), 200, "", "Producer-Epoch", "2")
		want(post(1, 3), 403, "PRODUCER_FENCED", "Producer-Epoch", "2")
		want(post(2, 1), 200, "", "Producer-Seq", "1")
		if a := r.call(r.kyle, "POST", at.path, row("text", "k", `{}`), append([]string{"Producer-Id", "entity-/x", "Producer-Epoch", "2"}, at.header...)...); a.Status != 400 {
			t.Errorf("%s: %v", at.path, a)
		}
	}
}

// A live read has a cursor as long as its stream is open, and it moves on when
// the client's is already there or ahead, so that no cache answers it twice.
func TestALiveReadsCursorMovesOn(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *config.Config) { c.LongPollTimeout = time.Second })
	r.must(201, r.kyle, "PUT", "/plain/live", `[{"n":1}]`)
	number := func(s string) int64 {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatalf("the cursor %q is no number", s)
		}
		return n
	}
	poll := func(offset string, status int, cursor string) int64 {
		return number(r.must(status, r.kyle, "GET", "/plain/live?offset="+offset+"&live=long-poll"+cursor, "").Header.Get("Stream-Cursor"))
	}
	first := poll("-1", 200, "")
	for _, mine := range []int64{first, first + 1, first + 1_000_000} {
		if got := poll("-1", 200, fmt.Sprint("&cursor=", mine)); got <= mine {
			t.Errorf("after %d the cursor is %d", mine, got)
		}
		events := r.sse(fmt.Sprintf("/plain/live?offset=-1&live=sse&cursor=%d", mine), func(events []event) bool { return len(events) == 2 })
		if got := number(events[1].control(t).StreamCursor); got <= mine {
			t.Errorf("after %d the cursor of an event is %d", mine, got)
		}
	}
	if got := poll(r.tail("/plain/live"), 204, fmt.Sprint("&cursor=", first)); got <= first {
		t.Errorf("after %d the cursor of a poll without news is %d", first, got)
	}
}

// What is read as JSON says of each State Protocol row where it ended, whatever
// the writer said, and leaves other JSON alone.
func TestRowsAreStampedWithTheirOffset(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, c := r.worked()
	at := r.must(204, r.kyle, "POST", f.main(), `[`+row("text", "a", `{}`)+`,{"type":"text","key":"b","headers":{"offset":"forged","operation":"update"}},{"headers":{"control":"reset"}},{"headers":{"x":1}},{"n":1}]`,
		tokenHeader(c.WriteToken)...).Header.Get("Stream-Next-Offset")
	messages, _, _ := r.kyle.All(t.Context(), f.main())
	var got []string
	for _, m := range messages[2:] {
		var v struct{ Headers struct{ Offset string } }
		if err := json.Unmarshal(m, &v); err != nil {
			t.Fatal(err)
		}
		got = append(got, v.Headers.Offset)
	}
	if want := []string{at, at, at, "", ""}; strings.Join(got, ",") != strings.Join(want, ",") {
		t.Errorf("%v, want %v", got, want)
	}
	for i, m := range messages[:2] { // what the gateway wrote is stamped, too, and rises
		var v struct{ Headers struct{ Offset string } }
		if err := json.Unmarshal(m, &v); err != nil || v.Headers.Offset == "" || v.Headers.Offset >= at {
			t.Errorf("row %d: %s", i, m)
		}
	}
}
