// Package plugins plays an operator with transports and auth hooks of their
// own: gateways whose plugins work, crash in a loop, are changed and are taken
// away. It holds tests only.
package plugins

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/e2e/wire"
	"github.com/rouse-run/rouse/gateway/server/servertest"
	"github.com/rouse-run/rouse/gateway/soon"
	"github.com/rouse-run/rouse/plugins/contract"
	"github.com/rouse-run/rouse/plugins/sdk"
)

// The plugins of these tests are this test binary.
const fixtureEnv = "E2E_PLUGIN"

func TestMain(m *testing.M) {
	servertest.ServePlugins()
	switch os.Getenv(fixtureEnv) {
	case "bell":
		sdk.ServeTransport(bell(false))
	case "pager":
		sdk.ServeTransport(bell(true))
	case "shut": // cannot be asked
		sdk.ServeTransport(sdk.Transport{Type: "shut", ValidateTarget: func(context.Context, json.RawMessage) error { os.Exit(1); return nil },
			Deliver: func(context.Context, contract.Delivery) contract.Result {
				return contract.Result{Outcome: contract.Done}
			}})
	case "free": // takes anything, and finishes it if it is what was written
		sdk.ServeTransport(sdk.Transport{Type: "free", Deliver: func(_ context.Context, d contract.Delivery) contract.Result {
			var t map[string]any
			if json.Unmarshal(d.Target, &t) != nil || len(t) != 7 || t["type"] != "free" || t["mount"] != 7.0 || t["url"] != "<&>é" {
				return contract.Result{Outcome: contract.Permanent, Error: "another target"}
			}
			return contract.Result{Outcome: contract.Done}
		}})
	case "crasher":
		sdk.ServeTransport(sdk.Transport{Type: "crasher", Deliver: func(context.Context, contract.Delivery) contract.Result {
			os.Exit(1)
			return contract.Result{}
		}})
	case "guard":
		sdk.ServeAuthHook(guard())
	default:
		goleak.VerifyTestMain(m)
	}
}

// bell posts notifications to the target's address, on the machine of the test.
func bell(once bool) sdk.Transport {
	return sdk.Transport{Type: "bell", Version: "v1", AtMostOnce: once,
		TargetSchema: json.RawMessage(`{"type":"object","required":["address"],"properties":{"type":{},"address":{"type":"string","pattern":"^http://127\\.0\\.0\\.1:"},"subscription_id":{}},"additionalProperties":false}`),
		Deliver: func(ctx context.Context, d contract.Delivery) contract.Result {
			var t struct {
				Address string `json:"address"`
			}
			_ = json.Unmarshal(d.Target, &t)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.Address, bytes.NewReader(d.Notification))
			if err != nil {
				return contract.Result{Outcome: contract.Permanent, Error: "no address"}
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return contract.Result{Outcome: contract.Retry, Error: "not reached"}
			}
			defer res.Body.Close()
			body, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
			if strings.Contains(string(body), "crash") {
				os.Exit(1)
			}
			if strings.Contains(string(body), "done") {
				return contract.Result{Outcome: contract.Done, StatusCode: res.StatusCode}
			}
			return contract.Result{Outcome: contract.Accepted, StatusCode: res.StatusCode}
		}}
}

// guard knows two tokens, and what else it is told to do.
func guard() sdk.AuthHook {
	return sdk.AuthHook{Name: "guard", Headers: []string{"Authorization"}, Authenticate: func(_ context.Context, r contract.Request) (contract.Decision, error) {
		switch r.Header.Get("Authorization") {
		case "Bearer ada":
			return contract.Decision{Verdict: contract.Allow, Principal: contract.Principal{Kind: "user", ID: "ada"}}, nil
		case "Bearer bob":
			return contract.Decision{Verdict: contract.Allow, Principal: contract.Principal{Kind: "user", ID: "bob"}}, nil
		case "Bearer crash":
			os.Exit(1)
		case "":
			return contract.Decision{}, nil
		}
		return contract.Decision{Verdict: contract.Deny}, nil
	}}
}

// entry of the plugins file.
func entry(t *testing.T, name, what, more string) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("  %s: {path: %q, sha256: %s, env: {%s: %s}%s}\n", name, path, hex.EncodeToString(h.Sum(nil)), fixtureEnv, what, more)
}

// world is a gateway with plugins, a person, and a receiver.
type world struct {
	t      *testing.T
	in     *servertest.Instance
	file   string
	person *wire.Client
	posts  chan map[string]any
}

func newWorld(t *testing.T, plugins string, answer func(post map[string]any) string, configure ...func(*config.Config)) (*world, string) {
	t.Helper()
	w := &world{t: t, file: filepath.Join(t.TempDir(), "plugins.yaml"), posts: make(chan map[string]any, 1000)}
	if err := os.WriteFile(w.file, []byte(plugins), 0o600); err != nil {
		t.Fatal(err)
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var post map[string]any
		if err := json.NewDecoder(r.Body).Decode(&post); err != nil {
			t.Error(err)
		}
		text := answer(post)
		w.posts <- post
		_, _ = io.WriteString(rw, text)
	}))
	w.in = servertest.Start(t, servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
		c.PluginsFile, c.ReaperPeriod = w.file, 50*time.Millisecond
		for _, f := range configure {
			f(c)
		}
	}})
	client := wire.NewHTTP(20 * time.Second)
	t.Cleanup(receiver.Close)
	t.Cleanup(client.CloseIdleConnections)
	w.person = &wire.Client{Base: w.in.URL, Principal: "user:kyle", HTTP: client}
	return w, receiver.URL
}

func (w *world) must(a wire.Answer) wire.Answer {
	w.t.Helper()
	if a.Status < 200 || a.Status > 299 {
		w.t.Fatalf("%v: %s", a, a.Raw)
	}
	return a
}

func (w *world) spawn(id string, target map[string]any) wire.Answer {
	w.t.Helper()
	return w.person.Do(w.t.Context(), "PUT", "/_electric/entities/job/"+id, map[string]any{"dispatch_policy": map[string]any{"targets": []any{target}}}, nil)
}

func (w *world) post(limit time.Duration) map[string]any {
	w.t.Helper()
	select {
	case p := <-w.posts:
		return p
	case <-time.After(limit):
		w.t.Fatal("nothing is delivered")
		return nil
	}
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	soon.Until(w.t, what, ok)
}

// text asks the database.
func (w *world) text(query string) (s string) {
	w.t.Helper()
	if err := w.in.DB.Conn(w.t).QueryRow(w.t.Context(), query).Scan(&s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

const claims = `select coalesce(string_agg(epoch || ' ' || status, ',' order by epoch), '') from rouse.consumer_claims`

// R8 over a plugin: what it is sent is what a webhook would be, its answer
// finishes the work or its receiver calls back; and its targets are checked when
// a policy is stored.
func TestAPluginCarriesWakes(t *testing.T) {
	t.Parallel()
	w, url := newWorld(t, "transports:\n"+entry(t, "bell", "bell", ""), func(p map[string]any) string {
		if p["epoch"] == 1.0 {
			return "done"
		}
		return "later"
	})
	w.must(w.person.Type(t.Context(), "job"))
	w.must(w.spawn("1", map[string]any{"type": "bell", "address": url}))
	w.must(w.person.Send(t.Context(), "job", "1", "m-1", "hello"))
	first := w.post(30 * time.Second)
	entity, _ := first["entity"].(map[string]any)
	if first["epoch"] != 1.0 || entity["url"] != "/job/1" || first["claimToken"] == "" || first["callback"] == "" {
		t.Errorf("got %v", first)
	}
	w.eventually("its answer has finished the work", func() bool { return w.text(claims) == "1 released" })
	w.must(w.person.Send(t.Context(), "job", "1", "m-2", "again"))
	second := w.post(30 * time.Second)
	receiver := &wire.Client{HTTP: w.person.HTTP}
	callback, _ := second["callback"].(string)
	token, _ := second["claimToken"].(string)
	header := map[string]string{"electric-claim-token": token}
	var acks []map[string]any
	streams, _ := second["streams"].([]any)
	for _, s := range streams {
		if at, ok := s.(map[string]any); ok {
			acks = append(acks, map[string]any{"path": at["path"], "offset": at["offset"]})
		}
	}
	w.must(receiver.Do(t.Context(), "POST", callback, map[string]any{"epoch": 2, "wakeId": second["wakeId"]}, header))
	w.must(receiver.Do(t.Context(), "POST", callback, map[string]any{"epoch": 2, "done": true, "acks": acks}, header))
	w.eventually("the callback has finished it", func() bool { return w.text(claims) == "1 released,2 released" })
	attempts := w.text(`select string_agg(transport || ' ' || outcome, ',' order by started_at) from rouse.delivery_attempts`)
	if attempts != "bell done,bell accepted" {
		t.Errorf("attempts: %s", attempts)
	}

	for name, c := range map[string]struct {
		target map[string]any
		code   string
		status int
	}{
		"not as the schema has it":   {map[string]any{"type": "bell", "address": "ftp://secret"}, "INVALID_TARGET", 400},
		"a member too many":          {map[string]any{"type": "bell", "address": url, "x": 1}, "INVALID_TARGET", 400},
		"a type that nobody carries": {map[string]any{"type": "carrier-pigeon"}, "INVALID_TARGET", 400},
	} {
		a := w.spawn("x", c.target)
		if a.Status != c.status || a.Code != c.code || strings.Contains(string(a.Raw), "secret") {
			t.Errorf("%s: %v %s", name, a, a.Raw)
		}
	}
	var types []struct {
		Type         string         `json:"type"`
		Available    bool           `json:"available"`
		TargetSchema map[string]any `json:"target_schema"`
	}
	if err := json.Unmarshal(w.must(w.person.Do(t.Context(), "GET", "/_electric/transports", nil, nil)).Raw, &types); err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, ty := range types {
		names = append(names, ty.Type)
		if !ty.Available || ty.TargetSchema["type"] != "object" {
			t.Errorf("%s: %+v", ty.Type, ty)
		}
	}
	if fmt.Sprint(names) != "[runner bell webhook]" {
		t.Errorf("types %v", names)
	}
	// How plugins are doing, and what they print, is the operator's business.
	for _, path := range []string{"/_electric/plugins", "/_electric/plugins/bell/log"} {
		if a := w.person.Do(t.Context(), "GET", path, nil, nil); a.Status != 403 {
			t.Errorf("%s: %v", path, a)
		}
	}
	operator := &wire.Client{Base: w.in.URL, Principal: "system:framework", HTTP: w.person.HTTP}
	if a := w.must(operator.Do(t.Context(), "GET", "/_electric/plugins", nil, nil)); !strings.Contains(string(a.Raw), `"name":"bell"`) || strings.Contains(string(a.Raw), fixtureEnv) {
		t.Errorf("plugins: %s", a.Raw)
	}
	w.must(operator.Do(t.Context(), "GET", "/_electric/plugins/bell/log", nil, nil))
	if a := operator.Do(t.Context(), "GET", "/_electric/plugins/none/log", nil, nil); a.Status != 404 {
		t.Errorf("a plugin that is not there: %v", a)
	}
}

// Nothing is sent twice through a transport that must not: its process dies
// after the send, and a person decides.
func TestAnUncertainSendIsLeftToAPerson(t *testing.T) {
	t.Parallel()
	crash := true
	w, url := newWorld(t, "transports:\n"+entry(t, "pager", "pager", ""), func(map[string]any) string {
		if crash { // one delivery at a time
			crash = false
			return "crash"
		}
		return "done"
	})
	w.must(w.person.Type(t.Context(), "job"))
	w.must(w.spawn("1", map[string]any{"type": "pager", "address": url}))
	w.must(w.person.Send(t.Context(), "job", "1", "m-1", "hello"))
	wake := w.post(30 * time.Second)["wakeId"].(string)
	w.eventually("it is recorded as unknown", func() bool {
		return w.text(`select coalesce(string_agg(attempt || ' ' || coalesce(outcome, 'open'), ','), '') from rouse.delivery_attempts`) == "1 unknown"
	})
	w.eventually("it is not due", func() bool {
		return w.text(`select count(*)::text from rouse.wake_notifications where next_attempt_at is not null`) == "0"
	})
	w.eventually("the plugin is back", func() bool { return len(w.in.Health.Degraded()) == 0 })
	w.must(w.person.Do(t.Context(), "POST", "/_electric/wakes/"+wake+"/redeliver", nil, nil))
	if again := w.post(30 * time.Second); again["wakeId"] != wake {
		t.Errorf("another wake: %v", again)
	}
	w.eventually("it is done", func() bool { return w.text(claims) == "1 released" })
}

// S9: with an auth plugin that is there, its verdicts count; when it ends, is
// replaced by something else or taken away, nobody is let in.
func TestAnAuthPluginFailsClosed(t *testing.T) {
	t.Parallel()
	w, _ := newWorld(t, "authhooks:\n"+entry(t, "guard", "guard", ""), func(map[string]any) string { return "" }, func(c *config.Config) {
		c.Insecure = false
		c.Auth.Hooks = []config.AuthHook{{Plugin: "guard"}}
	})
	ask := func(credentials string) wire.Answer {
		h := map[string]string{}
		if credentials != "" {
			h["Authorization"] = "Bearer " + credentials
		}
		return (&wire.Client{Base: w.in.URL, HTTP: w.person.HTTP}).Do(t.Context(), "GET", "/_electric/entities", nil, h)
	}
	w.eventually("ada is let in", func() bool { return ask("ada").Status == 200 })
	if a := ask("eve"); a.Status != 401 || a.Code != "UNAUTHENTICATED" {
		t.Errorf("eve: %v", a)
	}
	if a := ask(""); a.Status != 401 {
		t.Errorf("nobody: %v", a)
	}
	if a := ask("crash"); a.Status != 503 || a.Code != "AUTH_UNAVAILABLE" {
		t.Errorf("while it crashes: %v", a)
	}
	w.eventually("ada is let in again", func() bool { return ask("ada").Status == 200 })
	if err := os.WriteFile(w.file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is taken away", func() bool { a := ask("ada"); return a.Status == 503 && a.Code == "AUTH_UNAVAILABLE" })
	if a := ask(""); a.Status != 503 {
		t.Errorf("nobody: %v", a)
	}
	if why := w.in.Health.NotReady(); len(why) != 1 || why[0].Check != "hook guard" {
		t.Errorf("without its hook: %v", why)
	}
}
