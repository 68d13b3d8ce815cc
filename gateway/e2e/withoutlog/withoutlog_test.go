// Package withoutlog runs whole gateways where Postgres offers no logical log:
// tails are polled and wakes come from the scan. It holds tests only.
package withoutlog

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// R23: with no signal from the log at all, two gateways come up, wake, tail,
// find lapsed leases and wake again.
func TestEverythingRunsWithoutTheLog(t *testing.T) {
	t.Parallel()
	pg := pgtest.Server(t, pgtest.Options{Settings: map[string]string{"wal_level": "replica"}})
	client := wire.NewHTTP(30 * time.Second)
	start := func() *wire.Client {
		in := servertest.Start(t, servertest.Options{DB: pg.DB, Configure: func(c *config.Config) {
			c.LeaseTTL, c.LongPollTimeout, c.ReaperPeriod = 3*time.Second, 10*time.Second, 50*time.Millisecond
		}})
		return &wire.Client{Base: in.URL, Principal: "user:kyle", HTTP: client}
	}
	began := time.Now()
	here, there := start(), start()
	t.Cleanup(client.CloseIdleConnections)
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("two gateways are ready after %v", took)
	}
	ctx := t.Context()
	must := func(a wire.Answer) wire.Answer {
		t.Helper()
		if a.Status < 200 || a.Status > 299 {
			t.Fatalf("%v: %s", a, a.Raw)
		}
		return a
	}
	// next long-polls a stream from an offset until it holds something more.
	next := func(c *wire.Client, path, offset string) (json.RawMessage, string) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
			a := must(c.Do(ctx, http.MethodGet, path+"?live=long-poll&offset="+offset, nil, nil))
			offset = a.Header.Get("Stream-Next-Offset")
			var list []json.RawMessage
			if a.Status == http.StatusOK && json.Unmarshal(a.Raw, &list) == nil && len(list) > 0 {
				return list[0], offset
			}
		}
		t.Fatalf("nothing comes on %s", path)
		return nil, ""
	}

	// Tails: by SSE and by long-poll, of what another gateway appends.
	must(here.Do(ctx, http.MethodPut, "/plain", "[]", nil))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, here.Base+"/plain?offset=-1&live=sse", nil)
	if err != nil {
		t.Fatal(err)
	}
	sse, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer sse.Body.Close()
	lines := bufio.NewScanner(sse.Body)
	upTo := func(what string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), what) {
				return
			}
		}
		t.Fatalf("the SSE ends without %s: %v", what, lines.Err())
	}
	upTo("upToDate")
	must(there.Do(ctx, http.MethodPost, "/plain", `{"n":1}`, nil))
	upTo(`{"n":1}`)
	if m, _ := next(here, "/plain", "-1"); string(m) != `{"n":1}` {
		t.Errorf("%s", m)
	}

	// Wakes: a message, a claim, a holder that dies, a second claim that finishes.
	must(here.Type(ctx, "job"))
	must(here.Runner(ctx, "mac"))
	must(here.Spawn(ctx, "job", "1", "mac"))
	must(there.Send(ctx, "job", "1", "m-1", "hello"))
	_, offset := next(here, "/runners/mac/wake", "-1")
	first := must(here.Claim(ctx, "mac", "c-1"))
	if first.Epoch != 1 || first.WriteToken == "" {
		t.Fatalf("%v", first)
	}
	must(here.Append(ctx, "/job/1/main", first.WriteToken, map[string]any{"type": "text", "key": "t", "value": 1, "headers": map[string]string{"operation": "insert"}}, nil))
	next(there, "/runners/mac/wake", offset) // the lease lapses, and the work is told again
	second := must(there.Claim(ctx, "mac", "c-2"))
	if second.Epoch <= first.Epoch {
		t.Errorf("the second claim has epoch %d after %d", second.Epoch, first.Epoch)
	}
	if a := here.Append(ctx, "/job/1/main", first.WriteToken, map[string]any{"late": true}, nil); a.Status != 401 {
		t.Errorf("the first holder still writes: %v", a)
	}
	_, tail, a := there.All(ctx, "/job/1/main")
	must(a)
	if r := must(there.Release(ctx, second.ConsumerID, second.ClaimToken, "/job/1/main", tail)); r.NextWake == nil || *r.NextWake {
		t.Errorf("%v", r)
	}

	// Subscriptions: the scan finds what no notice told of.
	must(here.Do(ctx, http.MethodPut, "/__ds/subscriptions/pool", `{"type":"pull-wake","pattern":"jobs/*","wake_stream":"wakes/pool"}`, nil))
	must(there.Do(ctx, http.MethodPut, "/jobs/1", `{"n":1}`, nil))
	if entry, _ := next(there, "/wakes/pool", "-1"); !strings.Contains(string(entry), `"stream": "jobs/1"`) {
		t.Errorf("%s", entry)
	}
	must(there.Do(ctx, http.MethodPost, "/__ds/subscriptions/pool/claim", `{"worker":"w"}`, nil))
}
