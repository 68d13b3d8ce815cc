package pools

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/e2e/world"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/gateway/soon"
	"github.com/rouse-run/rouse/openapi/runner"
)

func TestMain(m *testing.M) {
	servertest.ServePlugins() // webhooks are sent by a process of its own
	goleak.VerifyTestMain(m)
}

type object = map[string]any

// rig is gateways and a person at the first.
type rig struct{ *world.World }

func newRig(t *testing.T, gateways int, edit func(*config.Config)) *rig {
	t.Helper()
	r := &rig{world.New(t, gateways, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
		c.ReaperPeriod = 20 * time.Millisecond
		if edit != nil {
			edit(c)
		}
	}})}
	r.do(201, "POST", "/_electric/entity-types", object{"name": "task", "description": "Something to do."})
	return r
}

// as is the same for somebody else.
func (r *rig) as(principal string) *rig { return &rig{r.As(principal)} }

// do makes a request that must have the status.
func (r *rig) do(status int, method, path string, body any) wire.Answer {
	r.T.Helper()
	return r.Must(status, method, path, body)
}

// pool makes a worker pool, with runners that it registers.
func (r *rig) pool(id string, limits object, runners ...string) {
	r.T.Helper()
	r.do(201, "PUT", "/_electric/worker-pools/"+id, object{"capacity_policy": limits})
	for _, m := range runners {
		r.runner(m)
		r.do(200, "PUT", "/_electric/worker-pools/"+id+"/members/"+m, object{})
	}
}

func (r *rig) runner(id string) {
	r.T.Helper()
	r.do(201, "POST", "/_electric/runners", object{"id": id, "label": id})
}

// alive has a runner online for so long.
func (r *rig) alive(id string, lease time.Duration) {
	r.T.Helper()
	r.do(200, "POST", "/_electric/runners/"+id+"/heartbeat", object{"lease_ms": lease.Milliseconds()})
}

func toRunner(id string, when object) object { return target("runner", "runnerId", id, when) }
func toPool(id string, when object) object   { return target("worker-pool", "workerPoolId", id, when) }
func toHook(url string, when object) object  { return target("webhook", "url", url, when) }

func target(typ, name, value string, when object) object {
	t := object{"type": typ, name: value}
	if when != nil {
		t["when"] = when
	}
	return t
}

func policy(targets ...object) object { return object{"targets": targets} }

// spawn makes task/id with a policy and sends it a message.
func (r *rig) spawn(id string, p object) {
	r.T.Helper()
	r.do(201, "PUT", "/_electric/entities/task/"+id, object{"dispatch_policy": p})
	r.send(id, "hello")
}

func (r *rig) send(id, text string) {
	r.T.Helper()
	r.do(200, "POST", "/_electric/entities/task/"+id+"/send", object{"payload": text})
}

// wake is what the API shows of one.
type wake struct {
	WakeID         string  `json:"wake_id"`
	Epoch          int64   `json:"epoch"`
	TargetType     string  `json:"target_type"`
	TargetRunnerID *string `json:"target_runner_id"`
	ClaimStatus    string  `json:"claim_status"`
	DeliveryStatus string  `json:"delivery_status"`
	TargetPoolID   *string `json:"target_pool_id"`
	TargetIndex    int     `json:"target_index"`
	Attempt        int
}

// wakes are an entity's, newest first.
func (r *rig) wakes(id string) []wake {
	r.T.Helper()
	return world.Into[[]wake](r.T, r.do(200, "GET", "/_electric/entities/task/"+id+"/wakes", nil))
}

// waits waits until the newest wake is for a type of target, and nobody has it.
func (r *rig) waits(id, typ string) wake {
	r.T.Helper()
	var w wake
	r.Eventually(id+" waits for a "+typ, func() bool {
		if all := r.wakes(id); len(all) > 0 {
			w = all[0]
		}
		return w.TargetType == typ && w.ClaimStatus == "unclaimed"
	})
	return w
}

func (r *rig) display(id string) string {
	r.T.Helper()
	return world.Into[struct{ Display string }](r.T, r.do(200, "GET", "/_electric/entities/task/"+id+"/display", nil)).Display
}

// granted is what a runner's claim answers.
type granted struct {
	WakeID      string `json:"wakeId"`
	Epoch       int64
	ConsumerID  string `json:"consumerId"`
	StreamPath  string `json:"streamPath"`
	ClaimToken  string `json:"claimToken"`
	WriteToken  string `json:"writeToken"`
	LeaseMS     int64  `json:"lease_ms"`
	Attempt     int
	TargetIndex int `json:"targetIndex"`
	Streams     []struct{ Path, Offset, AckedOffset string }
}

// claims has a runner claim a wake.
func (r *rig) claims(runner, wakeID string) granted {
	r.T.Helper()
	return world.Into[granted](r.T, r.do(200, "POST", "/_electric/runners/"+runner+"/claim", object{"wakeId": wakeID}))
}

// callback is a call of a claim's holder.
func (r *rig) callback(g granted, body object) wire.Answer {
	r.T.Helper()
	body["epoch"] = g.Epoch
	c := *r.Client
	c.Principal = ""
	return c.Do(r.T.Context(), "POST", "/_electric/wake-callbacks/"+g.WakeID, body, map[string]string{"electric-claim-token": g.ClaimToken})
}

// entries are those of a wake stream, as they are served.
func (r *rig) entries(path string) []object {
	r.T.Helper()
	return world.Into[[]object](r.T, r.do(200, "GET", path, nil))
}

// process is a runner that runs, and its events.
type process struct {
	t      *testing.T
	events chan runner.Event
	stop   context.CancelFunc
	ended  chan error
}

// run starts a runner of a gateway.
func (r *rig) run(id string, gateway int, edit func(*runner.Config), h runner.Handler) *process {
	r.T.Helper()
	p := &process{t: r.T, events: make(chan runner.Event, 8192), ended: make(chan error, 1)}
	cfg := runner.Config{ID: id, Servers: []runner.Server{{URL: r.Bases[gateway], Principal: r.Principal}}, Handler: h,
		Observe: func(e runner.Event) {
			select {
			case p.events <- e:
			default:
			}
		}}
	if edit != nil {
		edit(&cfg)
	}
	run, err := runner.New(cfg)
	if err != nil {
		r.T.Fatal(err)
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.WithoutCancel(r.T.Context()))
	done := make(chan struct{})
	go func() { defer close(done); p.ended <- run.Run(ctx) }()
	r.T.Cleanup(func() { p.stop(); <-done })
	return p
}

// until waits for an event of a kind.
func (p *process) until(kind runner.EventKind) runner.Event {
	p.t.Helper()
	deadline := time.After(soon.Bound)
	for {
		select {
		case e := <-p.events:
			if e.Kind == kind {
				return e
			}
		case err := <-p.ended:
			p.t.Fatalf("the runner has ended: %v", err)
		case <-deadline:
			p.t.Fatalf("nothing was %s", kind)
		}
	}
}

// unread gives the payloads that a claim is about.
func unread(ctx context.Context, c *runner.Claim) (out []string, err error) {
	for m, err := range c.Unread(ctx) {
		if err != nil {
			return out, err
		}
		var row struct {
			Type  string
			Value struct{ Payload string }
		}
		if json.Unmarshal(m.Data, &row) == nil && row.Type == "inbox" {
			out = append(out, row.Value.Payload)
		}
	}
	return out, nil
}

// hook is a webhook's receiver.
type hook struct {
	url   string
	posts chan object
}

// newHook answers every post with a status and text.
func newHook(t *testing.T, status int, text string) *hook {
	t.Helper()
	h := &hook{posts: make(chan object, 1000)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		raw, err := io.ReadAll(q.Body)
		var o object
		if err != nil || json.Unmarshal(raw, &o) != nil {
			t.Errorf("%s %v", raw, err)
		}
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, text)
		h.posts <- o
	}))
	t.Cleanup(srv.Close)
	h.url = srv.URL + "/hook"
	return h
}

func (h *hook) post(t *testing.T) object {
	t.Helper()
	select {
	case o := <-h.posts:
		return o
	case <-time.After(soon.Bound):
		t.Fatal("nothing is posted")
		return nil
	}
}
