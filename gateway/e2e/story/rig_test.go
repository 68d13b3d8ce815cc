package story

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/laptop"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/gateway/soon"
	"github.com/rouse-run/rouse/openapi/client"
	"github.com/rouse-run/rouse/openapi/runner"
	"github.com/rouse-run/rouse/openapi/runner/call"
)

func TestMain(m *testing.M) {
	laptop.Serve()
	goleak.VerifyTestMain(m)
}

// world is a gateway with a phone: kyle's client.
type world struct {
	t     *testing.T
	gw    *servertest.Instance
	phone *client.Client
}

func newWorld(t *testing.T, lease time.Duration) *world {
	t.Helper()
	gw := servertest.Start(t, servertest.Options{Configure: func(c *config.Config) {
		c.LeaseTTL = lease
		c.ReaperPeriod = 50 * time.Millisecond
	}})
	w := &world{t: t, gw: gw}
	var err error
	if w.phone, err = w.server("").Client(); err != nil {
		t.Fatal(err)
	}
	resp, err := w.phone.PutEntityType(t.Context(), nil, client.EntityTypePut{Name: "task", Description: ptr("Something to do.")})
	w.ok(call.Decode(resp, err, nil))
	return w
}

func (w *world) server(service string) runner.Server {
	return runner.Server{URL: w.gw.URL, Service: service, Principal: "user:kyle"}
}

func ptr[T any](v T) *T { return &v }

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) register(id string) {
	w.t.Helper()
	resp, err := w.phone.RegisterRunner(w.t.Context(), nil, client.RunnerRegister{ID: id, Label: "Kyle's laptop"})
	w.ok(call.Decode(resp, err, nil))
}

func (w *world) spawn(id, runnerID string) {
	w.t.Helper()
	resp, err := w.phone.SpawnEntity(w.t.Context(), "task", id, nil, client.SpawnEntityJSONRequestBody{
		Args:           ptr(json.RawMessage(`{"colour":"blue"}`)),
		DispatchPolicy: &client.DispatchPolicy{Targets: []client.DispatchTarget{{Type: "runner", RunnerID: &runnerID}}},
	})
	w.ok(call.Decode(resp, err, nil))
}

func (w *world) send(id, text string) {
	w.t.Helper()
	payload, _ := json.Marshal(text)
	resp, err := w.phone.SendToEntity(w.t.Context(), "task", id, nil, client.SendToEntityJSONRequestBody{Payload: payload})
	w.ok(call.Decode(resp, err, nil))
}

// row is a State Protocol message as a test looks at it.
type row struct {
	Type    string          `json:"type"`
	Key     string          `json:"key"`
	Value   json.RawMessage `json:"value"`
	Headers struct {
		Operation string `json:"operation"`
		Offset    string `json:"offset"`
	} `json:"headers"`
}

func (w *world) rows(path string) []row {
	w.t.Helper()
	var out []row
	for at := "-1"; ; {
		var part []row
		resp, err := w.phone.ReadStream(w.t.Context(), strings.TrimPrefix(path, "/"), &client.ReadStreamParams{Offset: &at})
		w.ok(call.Decode(resp, err, &part))
		out = append(out, part...)
		if resp.Header.Get("Stream-Up-To-Date") != "" || len(part) == 0 {
			return out
		}
		at = resp.Header.Get("Stream-Next-Offset")
	}
}

// texts are the text rows' texts.
func (w *world) texts(id string) []string {
	w.t.Helper()
	var out []string
	for _, r := range w.rows("/task/" + id + "/main") {
		var v struct{ Text string }
		if r.Type == "text" && json.Unmarshal(r.Value, &v) == nil {
			out = append(out, v.Text)
		}
	}
	return out
}

func (w *world) claims(id string) []client.Claim {
	w.t.Helper()
	var out []client.Claim
	resp, err := w.phone.ListEntityClaims(w.t.Context(), "task", id, nil)
	w.ok(call.Decode(resp, err, &out))
	return out
}

func (w *world) display(id string) string {
	w.t.Helper()
	var out client.Display
	resp, err := w.phone.GetEntityDisplay(w.t.Context(), "task", id, nil)
	w.ok(call.Decode(resp, err, &out))
	return out.Display
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	soon.Until(w.t, what, ok)
}

// run starts a runner in this process.
func (w *world) run(edit func(*runner.Config)) chan runner.Event {
	w.t.Helper()
	events := make(chan runner.Event, 10_000)
	cfg := runner.Config{ID: "laptop", Servers: []runner.Server{w.server("")}, Register: &runner.Registration{Label: "Kyle's laptop"},
		Log:     slog.New(slog.NewTextHandler(testLog{w.t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Observe: func(e runner.Event) { events <- e }}
	edit(&cfg)
	r, err := runner.New(cfg)
	w.ok(err)
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.t.Errorf("the runner ended with %v", err)
		}
	})
	w.until(events, runner.Connected)
	return events
}

func (w *world) until(events chan runner.Event, kind runner.EventKind) runner.Event {
	w.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case e := <-events:
			if e.Kind == kind {
				return e
			}
		case <-deadline:
			w.t.Fatalf("nothing was %s in 30 s", kind)
		}
	}
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}
