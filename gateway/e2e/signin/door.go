package signin

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-run/rouse/authhooks/devtoken"
	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/gateway/server/servertest"
)

// Policy lets authors do what the built-in rules let them, and system principals
// everything. Where the rest is refused by default, nobody else may anything.
const Policy = `package rouse

decision := "allow" if { input.principal.attributes.role == "author"; input.built_in_allowed }

decision := "allow" if { input.principal.kind == "system" }
`

// PolicyFile is a file with a policy, as a gateway's setting that is in no hurry.
func PolicyFile(t testing.TB, policy string) []config.Authorizer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.rego")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	return []config.Authorizer{{OPA: &config.OPAAuthorizer{Policy: file, Deadline: 5 * time.Second}}}
}

// Door is where clients that know of no tokens find a gateway that asks for them.
// A request that shows no credentials gets those of whom its header
// electric-principal names: a user a token of the provider, as an author, everybody
// else that of a system principal. Without that header it is the user anybody's.
type Door struct {
	URL string

	provider *Provider
	file     string // of tokens
	system   string
	policy   []config.Authorizer
	mu       sync.Mutex
	target   *url.URL
	tokens   map[string]string
}

// NewDoor opens one. It leads nowhere before [Door.To].
func NewDoor(t testing.TB) *Door {
	t.Helper()
	d := &Door{provider: New(t), file: filepath.Join(t.TempDir(), "tokens.json"), system: devtoken.NewToken(), policy: PolicyFile(t, Policy), tokens: map[string]string{}}
	if err := devtoken.Add(d.file, devtoken.Entry{Principal: "system:framework", SHA256: devtoken.Hash(d.system)}); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Transport: transport, Rewrite: d.rewrite,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() { _ = srv.Serve(l); close(done) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close()
		}
		<-done
	})
	d.URL = "http://" + l.Addr().String()
	return d
}

// Options are those of a gateway behind the door as `serve` runs it: people come
// from the provider, systems from a file of tokens, a policy refuses by default, and
// each of these and of webhooks is a process of its own, for which the test's TestMain
// calls servertest.ServePlugins. more, if not nil, changes them further.
func (d *Door) Options(more func(*config.Config)) servertest.Options {
	return servertest.Options{PluginProcesses: true, Configure: func(c *config.Config) {
		c.Insecure, c.TokensFile, c.PublicURL = false, d.file, d.URL
		c.Auth = config.Auth{Hooks: []config.AuthHook{d.provider.Hook()}, Authorizers: d.policy, DenyByDefault: true}
		if more != nil {
			more(c)
		}
	}}
}

// To sets where the door leads: host and port.
func (d *Door) To(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.target = &url.URL{Scheme: "http", Host: addr}
}

// Check fails the test unless a gateway is what [Door.Options] say: it lets nobody in
// without credentials, and others judge who comes in and send its webhooks.
func (d *Door) Check(t testing.TB, in *servertest.Instance) {
	t.Helper()
	ask := func(path, token string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+in.Addr().String()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(raw)
	}
	for _, path := range []string{"/_electric/entities", "/some/stream", "/__ds/subscriptions"} {
		if status, body := ask(path, ""); status != http.StatusUnauthorized {
			t.Fatalf("%s without credentials: %d %s", path, status, body)
		}
		if status, body := ask(path, d.provider.Token(t, "nobody", time.Hour)); status != http.StatusForbidden {
			t.Fatalf("%s of somebody whom the policy does not know: %d %s", path, status, body)
		}
	}
	_, body := ask("/_electric/plugins", d.system)
	type plugin struct {
		Name      string
		InProcess bool `json:"in_process"`
	}
	var plugins []plugin
	if err := json.Unmarshal([]byte(body), &plugins); err != nil {
		t.Fatalf("%v %s", err, body)
	}
	for _, name := range []string{"webhook", "auth-tokens", "auth-jwt", "auth-opa"} {
		if !slices.Contains(plugins, plugin{name, false}) {
			t.Fatalf("%s has no process of its own: %s", name, body)
		}
	}
}

func (d *Door) rewrite(r *httputil.ProxyRequest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r.SetURL(d.target)
	r.Out.Host = r.In.Host
	if r.Out.Header.Get("Authorization") != "" {
		return
	}
	name := r.Out.Header.Get("Electric-Principal")
	user, isUser := strings.CutPrefix(name, "user:")
	token := d.system
	if name == "" {
		user, isUser = "anybody", true
	}
	if isUser {
		if token = d.tokens[user]; token == "" {
			// Should there be none, the gateway refuses and the test that asks fails.
			token, _ = d.provider.sign(user, time.Hour, "role", "author")
			d.tokens[user] = token
		}
	}
	r.Out.Header.Set("Authorization", "Bearer "+token)
}
