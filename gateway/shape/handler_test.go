package shape

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/soon"
	"github.com/rouse-run/rouse/gateway/store"
)

// table of rows that a snapshot reads; it fails after so many if told to.
type many struct {
	nothing
	rows, failAt int
	size         int
	// held is told when the read has begun, and go on awaited, if set.
	held, resume chan struct{}
}

func (m many) ShapeRead(ctx context.Context, query string, _ []any, begin func(store.ShapeSnapshot) error, row func([][]byte) error) error {
	if err := begin(store.ShapeSnapshot{XMin: 10, XMax: 10, LSN: 1, At: time.UnixMilli(1)}); err != nil || query == "" {
		return err
	}
	if m.held != nil {
		m.held <- struct{}{}
		<-m.resume
	}
	for i := range m.rows {
		if m.failAt > 0 && i == m.failAt {
			return errors.New("the database went away")
		}
		cells := make([][]byte, 7)
		cells[0], cells[1], cells[2] = []byte("default"), fmt.Append(nil, i), bytes.Repeat([]byte("x"), m.size)
		if err := row(cells); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// rig serves a handler with a session that the test plays.
type rig struct {
	*Handler
	url    string
	server *httptest.Server
	ring   *ring
}

func newRig(t *testing.T, db Database, up bool, tune func(*Config)) *rig {
	t.Helper()
	cfg := Config{Store: db, Services: nothing{}, Auth: nothing{}, LongPollTimeout: bound, SSEMaxAge: time.Minute, SessionWait: 50 * time.Millisecond,
		Rows: func(ctx context.Context, sink feed.RowSink, _ int) error {
			if up {
				sink.Begin(100)
			}
			<-ctx.Done()
			return ctx.Err()
		}}
	if up {
		cfg.SessionWait = bound // it comes, however busy the machine is
	}
	if tune != nil {
		tune(&cfg)
	}
	h, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(func() {
		h.Drain()
		srv.Close()
		if err := h.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return &rig{h, srv.URL, srv, h.ring}
}

func (r *rig) get(t *testing.T, query string) (*http.Response, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := r.server.Client().Do(req)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res, string(body), err
}

// A long snapshot waits in a file, and is whole.
func TestALongSnapshotIsWhole(t *testing.T) {
	t.Parallel()
	r := newRig(t, many{rows: 20_000, size: 500}, true, nil)
	res, body, err := r.get(t, "table=users&offset=-1")
	if err != nil || res.StatusCode != 200 || res.ContentLength != int64(len(body)) {
		t.Fatalf("%v %+v", err, res)
	}
	var ms []json.RawMessage
	if err := json.Unmarshal([]byte(body), &ms); err != nil || len(ms) != 20_001 {
		t.Errorf("%v, %d messages", err, len(ms))
	}
}

// A read that fails is an error, however much has been read before.
func TestASnapshotThatFails(t *testing.T) {
	t.Parallel()
	for _, failAt := range []int{15, 15_000} {
		r := newRig(t, many{rows: 20_000, size: 500, failAt: failAt}, true, nil)
		if res, body, err := r.get(t, "table=users&offset=-1"); err != nil || res.StatusCode != 500 || res.Header.Get("Electric-Handle") != "" || strings.Contains(body, "xxx") {
			t.Errorf("%v %+v %.200s", err, res, body)
		}
	}
}

// Clients that do not take their snapshot keep nobody from getting theirs.
func TestASlowSnapshotTakesNobodysTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t, many{rows: 40_000, size: 500}, true, func(c *Config) { c.Snapshots, c.WriteTimeout = 1, time.Minute })
	for range 3 {
		slow, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer slow.Close()
		if _, err := fmt.Fprint(slow, "GET /?table=users&offset=-1 HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		// It has been answered, and reads no further.
		if _, err := slow.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if res, body, err := r.get(t, "table=users&offset=-1"); err != nil || res.StatusCode != 200 || len(body) < 20_000_000 {
		t.Errorf("%v %+v, %d bytes", err, res, len(body))
	}
	soon.Until(t, "only the slow ones are being served", func() bool { return r.source.busy() == 3 })
}

// The same part of the log is not sent twice to who has it.
func TestWhatAClientHasIsNotSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, many{rows: 1}, true, nil)
	res, _, err := r.get(t, "table=users&offset=-1")
	if err != nil {
		t.Fatal(err)
	}
	r.ring.Commit(userTx(100, 1000, 10))
	query := "table=users&handle=" + res.Header.Get("Electric-Handle") + "&offset=" + res.Header.Get("Electric-Offset")
	first, body, err := r.get(t, query)
	if err != nil || first.StatusCode != 200 || !strings.Contains(body, `"txids":[100]`) || first.Header.Get("Etag") == "" || first.Header.Get("Cache-Control") != "private, no-cache" {
		t.Fatalf("%v %+v %s", err, first, body)
	}
	for tag, want := range map[string]int{first.Header.Get("Etag"): 304, `"another"`: 200} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("If-None-Match", tag)
		again, err := r.server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		again.Body.Close()
		if again.StatusCode != want || again.Header.Get("Electric-Offset") == "" {
			t.Errorf("%s: %d %v", tag, again.StatusCode, again.Header)
		}
	}
}

// So many snapshots are read at once; whoever waits for too long is told.
func TestSnapshotsTakeTurns(t *testing.T) {
	t.Parallel()
	db := many{rows: 1, held: make(chan struct{}, 10), resume: make(chan struct{})}
	r := newRig(t, db, true, func(c *Config) { c.Snapshots, c.SnapshotTimeout = 2, 300*time.Millisecond })
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { _, _, _ = r.get(t, "table=users&offset=-1") })
		<-db.held
	}
	if res, body, err := r.get(t, "table=users&offset=-1"); err != nil || res.StatusCode != 503 || !strings.Contains(body, "OVERLOADED") || res.Header.Get("Retry-After") == "" {
		t.Errorf("%v %+v %s", err, res, body)
	}
	close(db.resume)
	wg.Wait()
	if res, _, err := r.get(t, "table=users&offset=-1"); err != nil || res.StatusCode != 200 {
		t.Errorf("%v %+v", err, res)
	}
}

// Without a row session there are snapshots, which say nothing wrong of what
// follows; whoever wants to follow is told to fetch another, not too soon.
func TestWithoutASession(t *testing.T) {
	t.Parallel()
	r := newRig(t, many{rows: 1}, false, func(c *Config) { c.LongPollTimeout, c.SessionWait = 200*time.Millisecond, time.Second })
	res, body, err := r.get(t, "table=users&offset=-1")
	if err != nil || res.StatusCode != 200 || !strings.Contains(body, `"insert"`) {
		t.Fatalf("%v %+v %s", err, res, body)
	}
	follow := "table=users&handle=" + res.Header.Get("Electric-Handle") + "&offset=" + res.Header.Get("Electric-Offset")
	for _, live := range []string{"", "&live=true", "&live=true&live_sse=true"} {
		began := time.Now()
		if res, body, err := r.get(t, follow+live); err != nil || res.StatusCode != 409 || !strings.Contains(body, "must-refetch") {
			t.Errorf("%q: %v %+v %s", live, err, res, body)
		}
		if took := time.Since(began); live != "" && took < 200*time.Millisecond {
			t.Errorf("%q: after %v", live, took)
		}
	}
	// It has been late for a while: nobody waits for it any more.
	began := time.Now()
	if _, _, err := r.get(t, "table=users&offset=-1"); err != nil || time.Since(began) > r.SessionWait {
		t.Errorf("%v, after %v", err, time.Since(began))
	}
	// When it comes, it cannot know what happened before.
	r.ring.Begin(1000)
	if res, body, err := r.get(t, follow); err != nil || res.StatusCode != 409 || !strings.Contains(body, "must-refetch") {
		t.Errorf("%v %+v %s", err, res, body)
	}
}

// A session that ends and begins again while clients wait has a gap: they are
// told, by long-poll at once, by SSE at their next request.
func TestAGapIsToldToThoseWhoWait(t *testing.T) {
	t.Parallel()
	r := newRig(t, many{rows: 1}, true, nil)
	res, _, err := r.get(t, "table=users&offset=-1")
	if err != nil {
		t.Fatal(err)
	}
	follow := "table=users&live=true&handle=" + res.Header.Get("Electric-Handle") + "&offset=" + res.Header.Get("Electric-Offset")
	type outcome struct {
		status int
		body   string
	}
	out := make(chan outcome, 2)
	for _, sse := range []string{"", "&live_sse=true"} {
		go func() {
			res, body, err := r.get(t, follow+sse)
			if err != nil {
				out <- outcome{0, err.Error()}
				return
			}
			out <- outcome{res.StatusCode, body}
		}()
	}
	soon.Until(t, "two who wait", func() bool {
		r.ring.mu.Lock()
		defer r.ring.mu.Unlock()
		return r.ring.bells[tables["users"].number].c != nil && r.source.busy() == 2
	})
	r.ring.down()
	r.ring.Begin(5000)
	for range 2 {
		if o := <-out; o.status == 409 && !strings.Contains(o.body, "must-refetch") || o.status == 200 && strings.Contains(o.body, `"operation"`) || o.status != 409 && o.status != 200 {
			t.Errorf("%+v", o)
		}
	}
	if res, _, err := r.get(t, follow+"&live_sse=true"); err != nil || res.StatusCode != 409 {
		t.Errorf("%v %+v", err, res)
	}
}

// A client that does not take what it is sent is let go, and delays nobody.
func TestASlowReaderDelaysNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, many{rows: 1}, true, func(c *Config) { c.WriteTimeout = 200 * time.Millisecond })
	res, _, err := r.get(t, "table=users&offset=-1")
	if err != nil {
		t.Fatal(err)
	}
	follow := "/?table=users&live=true&live_sse=true&handle=" + res.Header.Get("Electric-Handle") + "&offset=" + res.Header.Get("Electric-Offset")
	slow, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if _, err := fmt.Fprintf(slow, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", follow); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+follow, nil)
	if err != nil {
		t.Fatal(err)
	}
	quick, err := r.server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer quick.Body.Close()
	lines := bufio.NewScanner(quick.Body)
	lines.Buffer(nil, 1<<21)
	soon.Until(t, "two who wait", func() bool { return r.source.busy() == 2 })
	for i := range 64 {
		tx := userTx(uint32(100+i), feed.LSN(1000+i), 100)
		tx.Changes[0].New[2] = value(strings.Repeat("y", 1<<20))
		began := time.Now()
		r.ring.Commit(tx)
		for !strings.Contains(lines.Text(), fmt.Sprintf(`"txids":[%d]`, 100+i)) {
			if !lines.Scan() {
				t.Fatalf("the quick one has ended: %v", lines.Err())
			}
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Fatalf("change %d took %v", i, took)
		}
	}
	soon.Until(t, "the slow one to be let go", func() bool { return r.source.busy() == 1 })
}
