package webhook

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/cli"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/gateway/soon"
)

// A wake that its receiver refused for good stays, says why, and is delivered
// again when a person says so: by the route or by the command line.
func TestAPersonRedelivers(t *testing.T) {
	t.Parallel()
	h := newHooked(t, servertest.Options{})
	var status atomic.Int32
	status.Store(410)
	posts := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, `{"done":true,"secret":"what the receiver answers"}`)
		posts <- r.Header.Get("Idempotency-Key")
	}))
	t.Cleanup(receiver.Close)
	post := func() string {
		t.Helper()
		select {
		case key := <-posts:
			return key
		case <-time.After(30 * time.Second):
			t.Fatal("nothing is posted")
			return ""
		}
	}
	rouse := func(args ...string) string {
		t.Helper()
		var out, said bytes.Buffer
		if code := cli.Run(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &said, Environ: []string{"ROUSE_SERVER=" + h.in.URL, "ROUSE_AS=user:kyle"}}); code != 0 {
			t.Fatalf("rouse %v: %d %s", args, code, said.String())
		}
		return out.String()
	}
	h.spawn("1", receiver.URL+"/hook?key=hidden")
	h.send("1", "m-1")
	wake := post()
	refused := func(times int) {
		t.Helper()
		soon.Until(t, "the refusal is recorded", func() bool {
			var n int
			err := h.in.DB.Pool(t).QueryRow(t.Context(), `select count(*) from rouse.delivery_attempts where outcome = 'permanent'`).Scan(&n)
			return err == nil && n == times
		})
	}
	refused(1)

	// Where to look, and what is found there.
	for _, args := range [][]string{{"wake", "show", wake}, {"entity", "inspect", "job/1"}} {
		out := rouse(args...)
		if !strings.Contains(out, "the receiver answered 410 Gone") || !strings.Contains(out, "failed") || strings.Contains(out, "what the receiver answers") {
			t.Errorf("rouse %v prints\n%s", args, out)
		}
	}
	if out := rouse("wake", "ls", "job/1"); !strings.Contains(out, wake) || !strings.Contains(out, "failed") {
		t.Errorf("rouse wake ls prints\n%s", out)
	}
	var file struct {
		WakeID     string `json:"wake_id"`
		Deliveries []struct {
			Attempt    int
			Outcome    string
			StatusCode int `json:"status_code"`
			Error      string
		}
	}
	if err := json.Unmarshal([]byte(rouse("wake", "show", wake, "--json")), &file); err != nil || file.WakeID != wake || len(file.Deliveries) != 1 ||
		file.Deliveries[0].StatusCode != 410 || file.Deliveries[0].Outcome != "permanent" {
		t.Errorf("%+v, %v", file, err)
	}
	at := "/_electric/wakes/" + wake
	stranger := *h.person
	stranger.Principal = "user:mallory"
	for _, c := range []struct{ method, path string }{{"GET", at}, {"POST", at + "/redeliver"}} {
		if a := stranger.Do(t.Context(), c.method, c.path, nil, nil); a.Status != 401 || a.Code != "UNAUTHORIZED" {
			t.Errorf("a stranger's %s: %v", c.method, a)
		}
		for _, id := range []string{"nobody", "0190a8f2-7a10-4c6e-9a51-0d5f5a0c1a01", strings.ToUpper("{" + wake[1:]), "%00"} {
			path := strings.Replace(c.path, wake, id, 1)
			if a := h.person.Do(t.Context(), c.method, path, nil, nil); a.Status != 404 && a.Status != 400 {
				t.Errorf("%s %s: %v", c.method, path, a)
			}
		}
	}
	h.must(h.person.Do(t.Context(), "POST", at+"/redeliver", nil, nil))
	if again := post(); again != wake {
		t.Errorf("%s, not %s", again, wake)
	}
	refused(2)
	status.Store(200)
	if out := rouse("wake", "redeliver", wake); !strings.Contains(out, wake) {
		t.Errorf("rouse wake redeliver prints\n%s", out)
	}
	if again := post(); again != wake {
		t.Errorf("%s, not %s", again, wake)
	}
	soon.Until(t, "it is done", func() bool {
		return h.person.Do(t.Context(), "POST", at+"/redeliver", nil, nil).Code == "WAKE_RESOLVED"
	})
	var epochs int
	if err := h.in.DB.Pool(t).QueryRow(t.Context(), `select epoch from rouse.consumers`).Scan(&epochs); err != nil || epochs != 1 {
		t.Errorf("%d epochs, %v", epochs, err)
	}
}

// A runner's wake is told again by an entry of the same wake; one that is held
// is not.
func TestARunnersWakeIsToldAgain(t *testing.T) {
	t.Parallel()
	h := newHooked(t, servertest.Options{})
	ctx := t.Context()
	h.must(h.person.Runner(ctx, "mac"))
	h.must(h.person.Spawn(ctx, "job", "1", "mac"))
	h.send("1", "m-1")
	type entry struct {
		WakeID string `json:"wakeId"`
		Epoch  int64
	}
	told := func(n int) (out []entry) {
		t.Helper()
		soon.Until(t, "the runner is told", func() bool {
			rows, _, a := h.person.All(ctx, "/runners/mac/wake")
			if a.Status != 200 || len(rows) != n {
				return false
			}
			out = nil
			for _, raw := range rows {
				var e entry
				if json.Unmarshal(raw, &e) != nil {
					t.Fatalf("%s", raw)
				}
				out = append(out, e)
			}
			return true
		})
		return out
	}
	first := told(1)[0]
	at := "/_electric/wakes/" + first.WakeID + "/redeliver"
	h.must(h.person.Do(ctx, "POST", at, nil, nil))
	if all := told(2); all[1] != first {
		t.Errorf("%+v", all)
	}
	held := h.must(h.person.Claim(ctx, "mac", "c"))
	if a := h.person.Do(ctx, "POST", at, nil, nil); a.Status != 409 || a.Code != "EPOCH_HELD" {
		t.Errorf("while it is held: %v", a)
	}
	h.must(h.person.Release(ctx, held.ConsumerID, held.ClaimToken, "", ""))
	if a := h.person.Do(ctx, "POST", at, nil, nil); a.Status != 409 || a.Code != "WAKE_RESOLVED" {
		t.Errorf("afterwards: %v", a)
	}
}
