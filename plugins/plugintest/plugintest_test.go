package plugintest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/rouse-run/rouse/plugins/contract"
	"github.com/rouse-run/rouse/plugins/plugintest"
	transportv1 "github.com/rouse-run/rouse/plugins/proto/rouse/transport/v1"
	"github.com/rouse-run/rouse/plugins/sdk"
	"github.com/rouse-run/rouse/plugins/wire"
)

// The plugins of these tests are this binary.
const fixtureEnv = "PLUGINTEST_FIXTURE"

func TestMain(m *testing.M) {
	if what := os.Getenv(fixtureEnv); what != "" {
		serve(what)
		return
	}
	goleak.VerifyTestMain(m)
}

const schema = `{"type":"object","examples":[{"type":"fixture"}]}`

func serve(what string) {
	t := sdk.Transport{Type: "fixture", TargetSchema: []byte(schema), MaxBatch: 8, Deliver: func(context.Context, contract.Delivery) contract.Result {
		return contract.Result{Outcome: contract.Accepted}
	}}
	a := sdk.AuthHook{Name: "fixture", Authenticate: func(_ context.Context, r contract.Request) (contract.Decision, error) {
		return contract.Decision{}, nil
	},
		Authorize: func(_ context.Context, q contract.Question) (contract.Ruling, error) {
			return contract.Ruling{Verdict: contract.Deny}, nil
		}}
	switch what {
	case "transport":
	case "says nothing useful":
		fmt.Println("hello")
		return
	case "bad schema":
		t.TargetSchema = []byte(`{"type":7}`)
	case "needs settings":
		t.ConfigSchema = []byte(`{"type":"object","required":["url"]}`)
	case "crashes at a delivery":
		t.Deliver = func(context.Context, contract.Delivery) contract.Result { os.Exit(4); panic("unreachable") }
	case "hangs at a delivery":
		t.Deliver = func(context.Context, contract.Delivery) contract.Result { <-make(chan struct{}); panic("unreachable") }
	case "no outcome":
		t.Deliver = func(context.Context, contract.Delivery) contract.Result { return contract.Result{Outcome: "perhaps"} }
	case "lives on", "takes all":
		raw(what)
		return
	case "hook":
		sdk.ServeAuthHook(a)
		return
	case "lets everybody in":
		a.Authenticate = func(context.Context, contract.Request) (contract.Decision, error) {
			return contract.Decision{Verdict: contract.Allow, Principal: contract.Principal{Kind: "user", ID: "x"}}, nil
		}
		a.Authorize = func(context.Context, contract.Question) (contract.Ruling, error) {
			return contract.Ruling{Verdict: contract.Allow}, nil
		}
		sdk.ServeAuthHook(a)
		return
	case "refuses its settings":
		a.Configure = func(context.Context, json.RawMessage) error { return errors.New("where is my url") }
		sdk.ServeAuthHook(a)
		return
	}
	sdk.ServeTransport(t)
}

// raw serves without the SDK, and so without its care.
func raw(what string) {
	most := 4 << 20
	if what == "takes all" {
		most = 1 << 30
	}
	plugin.Serve(&plugin.ServeConfig{HandshakeConfig: wire.Handshake(), VersionedPlugins: wire.Sets(&careless{}, nil),
		GRPCServer: func(o []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(o, grpc.MaxRecvMsgSize(most))...)
		}})
}

type careless struct {
	transportv1.UnimplementedTransportServiceServer
}

func (*careless) Describe(context.Context, *transportv1.DescribeRequest) (*transportv1.DescribeResponse, error) {
	return &transportv1.DescribeResponse{Type: "careless", TargetSchema: []byte(schema)}, nil
}

func (*careless) Configure(context.Context, *transportv1.ConfigureRequest) (*transportv1.ConfigureResponse, error) {
	return &transportv1.ConfigureResponse{}, nil
}

func (*careless) Health(context.Context, *transportv1.HealthRequest) (*transportv1.HealthResponse, error) {
	return &transportv1.HealthResponse{}, nil
}

func (*careless) ValidateTarget(context.Context, *transportv1.ValidateTargetRequest) (*transportv1.ValidateTargetResponse, error) {
	return &transportv1.ValidateTargetResponse{}, nil
}

func (*careless) DeliverBatch(_ context.Context, q *transportv1.DeliverBatchRequest) (*transportv1.DeliverBatchResponse, error) {
	out := &transportv1.DeliverBatchResponse{}
	for _, d := range q.Deliveries {
		out.Results = append(out.Results, &transportv1.Result{WakeId: d.WakeId, Outcome: transportv1.Outcome_OUTCOME_ACCEPTED})
	}
	return out, nil
}

// Plugins are killed by the kit, and what they leave then is its own to remove.
func TestTheKitLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "kit")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if !plugintest.Run(t.Context(), plugintest.Options{Path: path, Env: []string{fixtureEnv + "=transport", "TMPDIR=" + dir}}, func(plugintest.Result) {}) {
		t.Error("it does not conform")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// The kit finds what is wrong, and only that.
func TestTheKitFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for what, wrong := range map[string][]string{
		"transport":             nil,
		"hook":                  nil,
		"says nothing useful":   {"started by hand", "it starts"},
		"bad schema":            {"it starts"},
		"refuses its settings":  {"it starts"},
		"needs settings":        {"it starts"},
		"crashes at a delivery": {"a delivery is answered", "each delivery of a batch", "several calls", "a call that is given up", "rubbish is answered", "a great notification"},
		"hangs at a delivery":   {"a delivery is answered", "each delivery of a batch", "several calls", "rubbish is answered", "a great notification"},
		"no outcome":            {"a delivery is answered", "each delivery of a batch", "several calls", "rubbish is answered", "a great notification"},
		"lives on":              {"its target is accepted, and rubbish is not", "rubbish is answered", "it ends when its gateway is killed"},
		"takes all":             {"its target is accepted, and rubbish is not", "rubbish is answered", "a message that is too great", "it ends when its gateway is killed"},
		"lets everybody in":     {"nobody is let in without", "nobody is let in with rubbish", "a principal is authorized"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			path, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			var found []plugintest.Result
			ok := plugintest.Run(t.Context(), plugintest.Options{Path: path, Env: []string{fixtureEnv + "=" + what}, Timeout: 4 * time.Second}, func(r plugintest.Result) {
				if r.Err != nil {
					found = append(found, r)
				}
			})
			if ok != (len(wrong) == 0) {
				t.Errorf("all is well: %v", ok)
			}
			for _, w := range wrong {
				if !slices.ContainsFunc(found, func(r plugintest.Result) bool { return strings.HasPrefix(r.Name, w) }) && !(w == "a call that is given up") {
					t.Errorf("%q passes", w)
				}
			}
			for _, r := range found {
				if !slices.ContainsFunc(wrong, func(w string) bool { return strings.HasPrefix(r.Name, w) }) {
					t.Errorf("%q fails: %v", r.Name, r.Err)
				}
			}
		})
	}
}

func TestWithoutATargetNothingIsDelivered(t *testing.T) {
	t.Parallel()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	notRun := 0
	plugintest.Run(t.Context(), plugintest.Options{Path: path, Env: []string{fixtureEnv + "=transport"}, Target: []byte(`{"type":"fixture"}`)}, func(r plugintest.Result) {
		if r.NotRun() {
			notRun++
		}
	})
	if notRun != 0 {
		t.Errorf("%d cases were not run though there is a target", notRun)
	}
}
