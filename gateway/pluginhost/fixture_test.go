package pluginhost

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-plugin"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/rouse-run/rouse/gateway/soon"
	"github.com/rouse-run/rouse/plugins/contract"
	transportv1 "github.com/rouse-run/rouse/plugins/proto/rouse/transport/v1"
	"github.com/rouse-run/rouse/plugins/sdk"
	"github.com/rouse-run/rouse/plugins/wire"
)

// The plugins of these tests are this test binary, told by its environment
// which of them to be.
const fixtureEnv = "PLUGINHOST_FIXTURE"

func TestMain(m *testing.M) {
	if what := os.Getenv(fixtureEnv); what != "" {
		fixture(what)
		return
	}
	goleak.VerifyTestMain(m)
}

const fixtureSchema = `{"type":"object","required":["type","do"],"properties":{"do":{"type":"string","minLength":1}},"additionalProperties":true}`

// flooded is how much a plugin prints that does not stop, in bytes.
const flooded = 1 << 30

// hang never returns.
func hang() { <-make(chan struct{}) }

func fixture(what string) {
	if marker := os.Getenv("MARKER"); marker != "" {
		_ = os.WriteFile(marker, []byte("executed"), 0o600)
	}
	switch what {
	case "exit":
		os.Exit(7)
	case "mute":
		hang()
	case "rubbish":
		fmt.Println("hello, I am no plugin")
		hang()
	case "longline":
		fmt.Println(strings.Repeat("x", 1<<20))
		hang()
	case "nosocket":
		fmt.Println("1|1|unix|/nonexistent/socket|grpc|")
		hang()
	case "version":
		plugin.Serve(&plugin.ServeConfig{HandshakeConfig: wire.Handshake(), GRPCServer: plugin.DefaultGRPCServer,
			VersionedPlugins: map[int]plugin.PluginSet{99: wire.Sets(&liar{}, nil)[wire.V1]}})
	case "liar":
		plugin.Serve(&plugin.ServeConfig{HandshakeConfig: wire.Handshake(), GRPCServer: func(o []grpc.ServerOption) *grpc.Server { return grpc.NewServer(o...) },
			VersionedPlugins: wire.Sets(&liar{}, nil)})
	case "flood":
		line := strings.Repeat("spam ", 200) + "\n"
		go func() {
			for range flooded / len(line) {
				fmt.Fprint(os.Stderr, line)
			}
			fmt.Fprintln(os.Stderr, "the flood is over")
		}()
		sdk.ServeTransport(fixtureTransport(false))
	case "transport":
		sdk.ServeTransport(fixtureTransport(false))
	case "once":
		sdk.ServeTransport(fixtureTransport(true))
	case "batch":
		t := fixtureTransport(false)
		t.MaxBatch = 16
		sdk.ServeTransport(t)
	case "hook":
		sdk.ServeAuthHook(fixtureHook())
	case "host":
		fixtureHost()
	case "keeper":
		fixtureKeeper()
	}
}

// fixtureTransport does what a target says.
func fixtureTransport(once bool) sdk.Transport {
	var settings struct {
		Answer string `json:"answer"`
		Refuse string `json:"refuse"`
		Sick   string `json:"sick"`
		Hang   bool   `json:"hang"`
	}
	var mu sync.Mutex
	seen := 0
	t := sdk.Transport{Type: "fixture", Version: "v1.2.3", TargetSchema: json.RawMessage(fixtureSchema), Signed: true, AtMostOnce: once}
	t.ConfigSchema = json.RawMessage(`{"type":"object","properties":{"answer":{"type":"string"}}}`)
	t.Configure = func(_ context.Context, raw json.RawMessage) error {
		if err := json.Unmarshal(raw, &settings); err != nil {
			return err
		}
		if settings.Hang {
			hang()
		}
		if settings.Refuse != "" {
			return errors.New(settings.Refuse)
		}
		return nil
	}
	t.Health = func(context.Context) error {
		if settings.Sick != "" {
			return errors.New(settings.Sick)
		}
		return nil
	}
	t.ValidateTarget = func(_ context.Context, raw json.RawMessage) error {
		if strings.Contains(string(raw), "forbidden") {
			return errors.New("it is forbidden")
		}
		return nil
	}
	t.Deliver = func(ctx context.Context, d contract.Delivery) contract.Result {
		var target struct {
			Do   string `json:"do"`
			File string `json:"file"`
			PID  int    `json:"pid"`
		}
		_ = json.Unmarshal(d.Target, &target)
		mu.Lock()
		seen++
		n := seen
		mu.Unlock()
		if target.File != "" {
			f, err := os.OpenFile(target.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err == nil {
				_, _ = fmt.Fprintln(f, d.WakeID)
				_ = f.Close()
			}
		}
		switch target.Do {
		case "crash":
			os.Exit(3)
		case "panic":
			panic("fixture")
		case "hang":
			hang()
		case "slow":
			tick := time.NewTimer(300 * time.Millisecond)
			defer tick.Stop()
			<-tick.C
		case "permanent":
			return contract.Result{Outcome: contract.Permanent, StatusCode: 410, Error: "gone"}
		case "later":
			return contract.Result{Outcome: contract.Retry, RetryAfter: 90 * time.Second}
		case "done":
			return contract.Result{Outcome: contract.Done, Error: d.Signature}
		case "env":
			return contract.Result{Outcome: contract.Done, Error: strings.Join(os.Environ(), " ")}
		case "spy":
			return contract.Result{Outcome: contract.Done, Error: spy(cmp.Or(target.PID, os.Getppid()))}
		case "memory":
			hoard = make([]byte, 200<<20)
			for i := 0; i < len(hoard); i += 4096 {
				hoard[i] = 1
			}
		case "child":
			cmd := exec.Command("sleep", "600")
			cmd.Stdout, cmd.Stderr = os.NewFile(1, "stdout"), os.NewFile(2, "stderr")
			if err := cmd.Start(); err != nil {
				return contract.Result{Outcome: contract.Permanent, Error: err.Error()}
			}
			return contract.Result{Outcome: contract.Accepted, StatusCode: 200, Error: fmt.Sprint(cmd.Process.Pid)}
		}
		return contract.Result{Outcome: contract.Accepted, StatusCode: n % 1000, Error: settings.Answer}
	}
	return t
}

var hoard []byte

// liar breaks the contract in the way that the wake's id says.
type liar struct {
	transportv1.UnimplementedTransportServiceServer
}

func (*liar) Describe(context.Context, *transportv1.DescribeRequest) (*transportv1.DescribeResponse, error) {
	return &transportv1.DescribeResponse{Type: "liar"}, nil
}

func (*liar) Configure(context.Context, *transportv1.ConfigureRequest) (*transportv1.ConfigureResponse, error) {
	return &transportv1.ConfigureResponse{}, nil
}

func (*liar) Health(context.Context, *transportv1.HealthRequest) (*transportv1.HealthResponse, error) {
	return &transportv1.HealthResponse{}, nil
}

func (*liar) DeliverBatch(_ context.Context, q *transportv1.DeliverBatchRequest) (*transportv1.DeliverBatchResponse, error) {
	id := q.Deliveries[0].WakeId
	one := func(r *transportv1.Result) (*transportv1.DeliverBatchResponse, error) {
		return &transportv1.DeliverBatchResponse{Results: []*transportv1.Result{r}}, nil
	}
	switch id {
	case "none":
		return &transportv1.DeliverBatchResponse{}, nil
	case "another":
		return one(&transportv1.Result{WakeId: "x", Outcome: transportv1.Outcome_OUTCOME_DONE})
	case "no outcome":
		return one(&transportv1.Result{WakeId: id})
	case "a new outcome":
		return one(&transportv1.Result{WakeId: id, Outcome: 77})
	case "twice":
		r := &transportv1.Result{WakeId: id, Outcome: transportv1.Outcome_OUTCOME_DONE}
		return &transportv1.DeliverBatchResponse{Results: []*transportv1.Result{r, r}}, nil
	case "huge":
		return one(&transportv1.Result{WakeId: id, Outcome: transportv1.Outcome_OUTCOME_DONE, Error: strings.Repeat("x", 100<<20)})
	case "wild numbers":
		return one(&transportv1.Result{WakeId: id, Outcome: transportv1.Outcome_OUTCOME_RETRY, RetryAfterMs: 1 << 62, StatusCode: -5, Error: strings.Repeat("\xff", 0) + strings.Repeat("y", 10_000)})
	}
	return one(&transportv1.Result{WakeId: id, Outcome: transportv1.Outcome_OUTCOME_DONE})
}

// fixtureHook reads its answer from the credentials.
func fixtureHook() sdk.AuthHook {
	return sdk.AuthHook{Name: "fixture", Headers: []string{"Authorization"},
		Authenticate: func(ctx context.Context, r contract.Request) (contract.Decision, error) {
			switch a := r.Header.Get("Authorization"); a {
			case "allow":
				return contract.Decision{Verdict: contract.Allow, Principal: contract.Principal{Kind: "user", ID: "ada", Profile: map[string]string{"email": "a@b.c"}}, CacheFor: time.Minute}, nil
			case "deny":
				return contract.Decision{Verdict: contract.Deny, Why: "it is on the list"}, nil
			case "error":
				return contract.Decision{Verdict: contract.Allow}, errors.New("down")
			case "panic":
				panic("fixture")
			case "crash":
				os.Exit(1)
			case "hang":
				hang()
			case "nonsense":
				return contract.Decision{Verdict: contract.Verdict(9)}, nil
			}
			return contract.Decision{}, nil
		},
		Authorize: func(_ context.Context, q contract.Question) (contract.Ruling, error) {
			switch q.Verb {
			case "read":
				return contract.Ruling{Verdict: contract.Allow, CacheFor: time.Second, Revision: "r7"}, nil
			case "crash":
				os.Exit(1)
			case "error":
				return contract.Ruling{Verdict: contract.Allow}, errors.New("down")
			}
			if !q.BuiltInAllowed || q.Resource.ID != "x" || q.Resource.Kind != "entity" || q.Resource.Service != "default" || q.Principal.ID != "ada" {
				return contract.Ruling{Verdict: contract.Deny, Why: "not that"}, nil
			}
			return contract.Ruling{}, nil
		}}
}

// fixtureHost is a gateway that is about to be killed.
func fixtureHost() {
	set := Set{Transports: map[string]Spec{"fixture": ownSpec("transport")}}
	h, err := New(context.Background(), Config{Amend: func(s *Set) error { *s = set; return nil }, TempDir: os.Getenv("HOST_DIR")})
	if err == nil {
		err = h.Start(context.Background())
	}
	if err == nil {
		for begun := time.Now(); time.Since(begun) < 30*time.Second; {
			if _, _, err = h.transports["fixture"].take(context.Background()); err == nil {
				break
			}
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(h.Plugins()[0].PID)
	hang()
}

var own struct {
	once      sync.Once
	path, sum string
}

// ownSpec makes a plugin of this binary.
func ownSpec(what string) Spec {
	own.once.Do(func() {
		own.path, _ = os.Executable()
		if f, err := os.Open(own.path); err == nil {
			h := sha256.New()
			_, _ = io.Copy(h, f)
			own.sum = hex.EncodeToString(h.Sum(nil))
			_ = f.Close()
		}
	})
	return Spec{Path: own.path, SHA256: own.sum, Env: map[string]string{fixtureEnv: what}}
}

// with sets the settings of a spec.
func (p Spec) with(config map[string]any) Spec {
	p.Config = config
	return p
}

// fast is a pace that tests can wait for.
var fast = pace{window: time.Minute, open: 400 * time.Millisecond, backoff: 5 * time.Millisecond, backoffMost: 50 * time.Millisecond, health: 50 * time.Millisecond, look: 10 * time.Millisecond}

// fakeSigner shows what was signed.
type fakeSigner struct{}

func (fakeSigner) Sign(body []byte, _ time.Time) string { return "signed:" + string(body) }

// shortDir is a folder whose name leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ph")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left := tracesLeft(t, dir); len(left) > 0 {
			t.Errorf("the host has left %v", left)
		}
		_ = os.RemoveAll(dir)
	})
	return dir
}

// newHost runs plugins until the test ends.
func newHost(t *testing.T, set Set, change ...func(*Host)) *Host {
	t.Helper()
	h, err := New(context.WithoutCancel(t.Context()), Config{Amend: func(s *Set) error {
		s.Transports, s.AuthHooks = maps.Clone(set.Transports), maps.Clone(set.AuthHooks)
		return nil
	}, TempDir: shortDir(t), Signer: fakeSigner{}, Registry: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))})
	if err != nil {
		t.Fatal(err)
	}
	h.deps.pace = fast
	for _, f := range change {
		f(h)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopHost(t, h) })
	return h
}

func stopHost(t *testing.T, h *Host) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	if err := h.Stop(ctx); err != nil {
		t.Errorf("the host does not stop: %v", err)
	}
}

func one(t *testing.T, what string, change ...func(*Host)) (*Host, *Transport) {
	t.Helper()
	h := newHost(t, Set{Transports: map[string]Spec{"fixture": ownSpec(what)}}, change...)
	switch what {
	case "transport", "once", "liar", "batch", "flood":
		up(t, h)
	}
	return h, h.transports["fixture"]
}

// send delivers one wake to a target that says what to do with it.
func send(t *testing.T, tr contract.Transport, id, do string, limit time.Duration) contract.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return tr.Deliver(ctx, contract.Delivery{WakeID: id, Service: "default", Attempt: 1, Target: json.RawMessage(`{"type":"fixture","do":"` + do + `"}`), Notification: json.RawMessage(`{"n":1}`)})
}

// info is how the only plugin of a host is doing.
func info(h *Host) Info { return h.Plugins()[0] }

// up waits until the plugin runs, and gives the number of its process.
func up(t *testing.T, h *Host) int {
	t.Helper()
	soon.Within(t, 30*time.Second, "the plugin is up", func() bool { return info(h).State == stateUp })
	return info(h).PID
}

// gone waits until a process is no more, not even as a zombie.
func gone(t *testing.T, pid int, limit time.Duration) {
	t.Helper()
	soon.Within(t, limit, fmt.Sprintf("process %d is gone", pid), func() bool { return !running(pid) })
}

// tracesLeft lists what a host has left in its folder.
func tracesLeft(t *testing.T, dir string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}
