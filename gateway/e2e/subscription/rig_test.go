// Package subscription plays those who subscribe: workers of a pool and
// receivers of webhooks, against whole gateways. It holds tests only.
package subscription

import (
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
)

func TestMain(m *testing.M) {
	servertest.ServePlugins() // webhooks are sent by a process of its own
	goleak.VerifyTestMain(m)
}

// mounts are where streams and their subscriptions are served.
var mounts = []string{"", "/v1/stream"}

// rig is gateways and a person at the first.
type rig struct{ *world.World }

func newRig(t *testing.T, gateways int, edit func(*config.Config)) *rig {
	t.Helper()
	return &rig{world.New(t, gateways, options(edit))}
}

func options(edit func(*config.Config)) servertest.Options {
	return servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
		c.ReaperPeriod = 50 * time.Millisecond
		if edit != nil {
			edit(c)
		}
	}}
}

func (r *rig) as(principal string) *rig { return &rig{r.As(principal)} }
func (r *rig) at(gateway int) *rig      { return &rig{r.At(gateway)} }

// do makes a request that must have the status, and be refused by code where
// that is not "".
func (r *rig) do(status int, code, method, path string, body any, headers ...string) wire.Answer {
	r.T.Helper()
	if code != "" {
		return r.Refused(status, code, method, path, body, headers...)
	}
	return r.Must(status, method, path, body, headers...)
}

type object = map[string]any

type stream struct {
	Path    string `json:"path"`
	Link    string `json:"link_type"`
	Acked   string `json:"acked_offset"`
	Tail    string `json:"tail_offset"`
	Pending bool   `json:"has_pending"`
}

// subscription is what a GET answers.
type subscription struct {
	ID             string
	SubscriptionID string `json:"subscription_id"`
	Type, Pattern  string
	Streams        []stream
	Webhook        *struct {
		URL     string
		Signing struct {
			Alg, Kid string
			JWKSURL  string `json:"jwks_url"`
		}
	}
	WakeStream  string `json:"wake_stream"`
	Lease       int64  `json:"lease_ttl_ms"`
	CreatedAt   string `json:"created_at"`
	Status      string
	LastError   string `json:"last_error"`
	Description string
	Owner       string `json:"owner_principal"`
	State       string
	Generation  int64
}

// claimed is what a claim answers, and what a webhook gets.
type claimed struct {
	WakeID         string `json:"wake_id"`
	Generation     int64
	Token          string
	SubscriptionID string `json:"subscription_id"`
	Streams        []stream
	TriggeredBy    []string `json:"triggered_by"`
	LeaseTTL       int64    `json:"lease_ttl_ms"`
	CallbackURL    string   `json:"callback_url"`
	CallbackToken  string   `json:"callback_token"`

	ConsumerID  string `json:"consumerId"`
	Epoch       int64  `json:"epoch"`
	Wake        string `json:"wakeId"`
	StreamPath  string `json:"streamPath"`
	Callback    string `json:"callback"`
	ClaimToken  string `json:"claimToken"`
	WriteToken  string `json:"writeToken"`
	TriggerHow  string `json:"triggerEvent"`
	Entity      *entity
	Principal   *struct{ URL, Key, Kind, ID string }
	key, sig    string
	body        []byte
	deliveredAt time.Time
}

type entity struct {
	URL, Type, Status string
	Streams           struct{ Main string }
	Tags              map[string]string
	SpawnArgs         object `json:"spawnArgs"`
	CreatedBy         string `json:"createdBy"`
}

// tail is the end of a stream as the wake says it.
func (c claimed) tail(t *testing.T, path string) string {
	t.Helper()
	for _, s := range c.Streams {
		if s.Path == path {
			return s.Tail
		}
	}
	t.Fatalf("%s is not among %+v", path, c.Streams)
	return ""
}

func subPath(id string) string { return "/__ds/subscriptions/" + id }

// stream makes a JSON stream with messages.
func (r *rig) stream(path string, messages ...string) {
	r.T.Helper()
	r.do(201, "", "PUT", "/"+path, nil, "Content-Type", "application/json")
	r.append(path, messages...)
}

func (r *rig) append(path string, messages ...string) {
	r.T.Helper()
	for _, m := range messages {
		r.do(204, "", "POST", "/"+path, m)
	}
}

// pool makes a pull-wake subscription.
func (r *rig) pool(id string, more object) subscription {
	r.T.Helper()
	body := object{"type": "pull-wake", "wake_stream": "wakes/" + id, "lease_ttl_ms": 10_000}
	for k, v := range more {
		body[k] = v
	}
	return world.Into[subscription](r.T, r.do(201, "", "PUT", subPath(id), body))
}

func (r *rig) claim(id, worker string) claimed {
	r.T.Helper()
	return world.Into[claimed](r.T, r.do(200, "", "POST", subPath(id)+"/claim", object{"worker": worker}))
}

// turn is a worker's ack.
func (r *rig) turn(status int, code, id, action string, c claimed, token string, more object) wire.Answer {
	r.T.Helper()
	body := object{"wake_id": c.WakeID, "generation": c.Generation}
	for k, v := range more {
		body[k] = v
	}
	return r.as("").do(status, code, "POST", subPath(id)+"/"+action, body, "Authorization", "Bearer "+token)
}

func acks(pairs ...string) []object {
	var out []object
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, object{"stream": pairs[i], "offset": pairs[i+1]})
	}
	return out
}

// wakes are the entries of a wake stream.
func (r *rig) wakes(path string) []object {
	r.T.Helper()
	rows, _, a := r.All(r.T.Context(), "/"+path)
	if a.Status != 200 {
		r.T.Fatalf("%v: %s", a, a.Raw)
	}
	var out []object
	for _, raw := range rows {
		var o object
		if err := json.Unmarshal(raw, &o); err != nil {
			r.T.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

// wake waits until the wake stream has n entries.
func (r *rig) wake(path string, n int) []object {
	r.T.Helper()
	var got []object
	r.Eventually(fmt.Sprintf("%s has %d entries", path, n), func() bool { got = r.wakes(path); return len(got) >= n })
	if len(got) != n {
		r.T.Fatalf("%d entries, not %d: %v", len(got), n, got)
	}
	return got
}

func (r *rig) get(id string) subscription {
	r.T.Helper()
	return world.Into[subscription](r.T, r.do(200, "", "GET", subPath(id), nil))
}

// receiver is a webhook's.
type receiver struct {
	t     *testing.T
	url   string
	posts chan claimed
}

// newReceiver answers as told.
func newReceiver(t *testing.T, answer func(claimed) (int, string)) *receiver {
	t.Helper()
	r := &receiver{t: t, posts: make(chan claimed, 1000)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		c := claimed{key: q.Header.Get("Idempotency-Key"), sig: q.Header.Get("Webhook-Signature"), body: body, deliveredAt: time.Now()}
		if err != nil || json.Unmarshal(body, &c) != nil {
			t.Errorf("%s %v", body, err)
		}
		status, text := answer(c)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
		r.posts <- c
	}))
	t.Cleanup(srv.Close)
	r.url = srv.URL + "/hook"
	return r
}

func (r *receiver) post() claimed {
	r.t.Helper()
	select {
	case c := <-r.posts:
		return c
	case <-time.After(soon.Bound):
		r.t.Fatal("nothing is posted")
		return claimed{}
	}
}

// hook makes a webhook subscription through a mount.
func (r *rig) hook(mount, id, url string, more object) subscription {
	r.T.Helper()
	body := object{"type": "webhook", "webhook": object{"url": url}, "lease_ttl_ms": 10_000}
	for k, v := range more {
		body[k] = v
	}
	return world.Into[subscription](r.T, r.do(201, "", "PUT", mount+subPath(id), body))
}
