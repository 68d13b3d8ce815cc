package dashboard

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// world is a gateway with kyle's phone.
type world struct {
	t    *testing.T
	gw   *servertest.Instance
	http *http.Client
	as   string
}

func newWorld(t *testing.T, configure func(*config.Config)) *world {
	t.Helper()
	gw := servertest.Start(t, servertest.Options{Configure: func(c *config.Config) {
		// A lease ends when a test wants it to, however slow the machine.
		c.ReaperPeriod, c.LeaseTTL = 50*time.Millisecond, 5*time.Minute
		if configure != nil {
			configure(c)
		}
	}})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &world{t: t, gw: gw, http: &http.Client{Transport: transport, Timeout: bound}, as: "user:kyle"}
}

// try makes a call and answers what came.
func (w *world) try(method, path string, body any, header ...string) (int, json.RawMessage) {
	w.t.Helper()
	var in io.Reader = http.NoBody
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			w.t.Fatal(err)
		}
		in = strings.NewReader(string(raw))
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.gw.URL+path, in)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if w.as != "" {
		req.Header.Set("Electric-Principal", w.as)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := w.http.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, raw
}

// call makes a call that must succeed, and answers the body's members.
func (w *world) call(method, path string, body any, header ...string) map[string]any {
	w.t.Helper()
	status, raw := w.try(method, path, body, header...)
	if status >= 300 {
		w.t.Fatalf("%s %s: %d %s", method, path, status, raw)
	}
	var out map[string]any
	_ = json.Unmarshal(raw, &out)
	return out
}

type object = map[string]any

func (w *world) entityType(name string) {
	w.t.Helper()
	w.call("POST", "/_electric/entity-types", object{"name": name, "description": "Something to do."})
}

// runner registers one; online gives it a liveness lease that outlives the test.
func (w *world) runner(id, label string, online bool) {
	w.t.Helper()
	w.call("POST", "/_electric/runners", object{"id": id, "label": label})
	if online {
		w.call("POST", "/_electric/runners/"+id+"/heartbeat", object{"lease_ms": 600_000})
	}
}

func toRunner(ids ...string) object {
	var targets []any
	for _, id := range ids {
		targets = append(targets, object{"type": "runner", "runnerId": id})
	}
	return object{"targets": targets}
}

func (w *world) spawn(url string, body object) {
	w.t.Helper()
	w.call("PUT", "/_electric/entities"+url, body)
}

func (w *world) send(url string, payload any) {
	w.t.Helper()
	w.call("POST", "/_electric/entities"+url+"/send", object{"payload": payload})
}

// held is a claim that a test works by hand.
type held struct {
	w                         *world
	runner, callback          string
	epoch                     float64
	claimToken, writeToken    string
	stream, offset, entityURL string
}

// claim takes the oldest work of a runner, waiting for it.
func (w *world) claim(runnerID string) *held {
	w.t.Helper()
	deadline := time.Now().Add(bound)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		status, raw := w.try("POST", "/_electric/runners/"+runnerID+"/claim", object{})
		if status == 200 {
			var n struct {
				Callback, ClaimToken, WriteToken, StreamPath string
				Epoch                                        float64
				Streams                                      []struct{ Path, Offset string }
				Entity                                       struct{ URL string }
			}
			if err := json.Unmarshal(raw, &n); err != nil {
				w.t.Fatal(err)
			}
			h := &held{w: w, runner: runnerID, callback: strings.TrimPrefix(n.Callback, w.gw.URL), epoch: n.Epoch, claimToken: n.ClaimToken, writeToken: n.WriteToken,
				stream: n.StreamPath, entityURL: n.Entity.URL}
			for _, s := range n.Streams {
				h.offset = s.Offset
			}
			return h
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("nothing to claim in %v: %d %s", bound, status, raw)
		}
		<-tick.C
	}
}

func row(kind, key, operation string, value any) object {
	return object{"type": kind, "key": key, "value": value, "headers": object{"operation": operation, "timestamp": time.Now().UTC().Format(time.RFC3339Nano)}}
}

func (h *held) append(rows ...object) {
	h.w.t.Helper()
	h.w.call("POST", h.stream, rows, "electric-claim-token", h.writeToken)
}

func (h *held) heartbeat() {
	h.w.t.Helper()
	h.w.call("POST", h.callback, object{"epoch": h.epoch}, "electric-claim-token", h.claimToken)
}

func (h *held) done() {
	h.w.t.Helper()
	h.w.call("POST", h.callback, object{"epoch": h.epoch, "done": true, "acks": []any{object{"path": h.stream, "offset": h.offset}}}, "electric-claim-token", h.claimToken)
}

// kyle is how the dashboard is used here: as kyle.
var kyle = map[string]string{"principal": "user:kyle"}
