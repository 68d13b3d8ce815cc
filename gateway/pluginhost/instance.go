package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"

	authhookv1 "github.com/rouse-run/rouse/plugins/proto/rouse/authhook/v1"
	transportv1 "github.com/rouse-run/rouse/plugins/proto/rouse/transport/v1"
	"github.com/rouse-run/rouse/plugins/wire"
)

const (
	// startTimeout is what a plugin gets until it is configured.
	startTimeout = 5 * time.Second
	// ownTimeout is the same for a built-in one.
	ownTimeout = 30 * time.Second
	// stopGrace is what it gets to end in an orderly way.
	stopGrace = 2500 * time.Millisecond
	// healthTimeout bounds one look at a plugin.
	healthTimeout = 4 * time.Second
)

// description is what a plugin says of itself, checked.
type description struct {
	version       string
	targetSchema  json.RawMessage
	targets       *schema
	atMostOnce    bool
	signed        bool
	maxBatch      int
	authenticates bool
	authorizes    bool
	headers       []string // that it looks at
}

// instance is one process of a plugin, configured and ready.
type instance struct {
	proc   *process
	client *plugin.Client
	dir    string
	desc   description

	transport transportv1.TransportServiceClient
	hook      authhookv1.AuthHookServiceClient
}

// launch is what it takes to start an instance.
type launch struct {
	kind     string
	spec     Spec
	img      *image
	args     []string // argv, the program's name first
	env      []string
	dir      string // where the socket's folder is made
	starter  *starter
	out      io.Writer
	timeout  time.Duration // 0 = startTimeout
	versions map[int]plugin.PluginSet
}

// start starts a process and makes it ready, or leaves nothing behind. It takes
// no longer than the timeout, whatever the plugin does.
func start(ctx context.Context, l launch) (*instance, error) {
	if l.timeout <= 0 {
		l.timeout = startTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	i := &instance{proc: &process{starter: l.starter, img: l.img, exited: make(chan struct{}),
		limits: limits{files: l.spec.files(), memory: l.spec.memory()}}}
	i.client = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: wire.Handshake(), VersionedPlugins: l.versions, AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS: true, SkipHostEnv: true, StartTimeout: l.timeout,
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard}), Stderr: l.out, SyncStdout: l.out, SyncStderr: l.out,
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: l.dir},
		GRPCDialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(wire.MaxMessage), grpc.MaxCallSendMsgSize(wire.MaxMessage))},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, dir string) (runner.Runner, error) {
			i.dir = dir
			cmd.Args = l.args
			cmd.Env = append(append([]string(nil), l.env...), cmd.Env...)
			cmd.Dir = "/"
			i.proc.cmd = cmd
			return i.proc, nil
		},
	})
	ready := make(chan error, 1)
	go func() { ready <- i.prepare(ctx, l) }()
	var err error
	select {
	case err = <-ready:
	case <-ctx.Done():
		// Whatever it waits for ends with the process.
		i.abort()
		err = <-ready
		if err == nil || CodeOf(err) == CodeStartFailed {
			err = errorf(CodeStartTimeout, "the plugin was not ready within %v", l.timeout)
		}
	}
	if err != nil {
		i.stop(0)
		return nil, err
	}
	return i, nil
}

// abort ends a process that may not have been started yet.
func (i *instance) abort() {
	select {
	case <-i.proc.exited:
	default:
		i.proc.kill()
	}
}

func (s Spec) files() uint64 {
	if s.Files == 0 {
		return defaultFiles
	}
	return s.Files
}

// prepare is the way from nothing to a configured plugin.
func (i *instance) prepare(ctx context.Context, l launch) error {
	if _, err := i.client.Start(); err != nil {
		return startError(err)
	}
	proto, err := i.client.Client()
	if err != nil {
		return wrap(CodeStartFailed, errors.New("its socket does not answer"), "the plugin cannot be talked to")
	}
	raw, err := proto.Dispense(l.kind)
	if err != nil {
		return wrap(CodeStartFailed, err, "the plugin cannot be talked to")
	}
	settings, err := l.spec.settings()
	if err != nil {
		return errorf(CodeConfigRefused, "the settings are no JSON")
	}
	var refused string
	switch l.kind {
	case wire.Transport:
		i.transport = raw.(transportv1.TransportServiceClient)
		if err := i.describeTransport(ctx, settings); err != nil {
			return err
		}
		answer, err := i.transport.Configure(ctx, &transportv1.ConfigureRequest{Config: settings})
		if err != nil {
			return wrap(CodeStartFailed, rpcError(err), "the plugin does not take its settings")
		}
		refused = answer.Error
	case wire.AuthHook:
		i.hook = raw.(authhookv1.AuthHookServiceClient)
		if err := i.describeHook(ctx, settings); err != nil {
			return err
		}
		answer, err := i.hook.Configure(ctx, &authhookv1.ConfigureRequest{Config: settings})
		if err != nil {
			return wrap(CodeStartFailed, rpcError(err), "the plugin does not take its settings")
		}
		refused = answer.Error
	}
	if refused != "" {
		return errorf(CodeConfigRefused, "the plugin refuses its settings: %s", clip(refused))
	}
	return nil
}

func startError(err error) *Error {
	text := err.Error()
	switch {
	case strings.Contains(text, "incompatible API version"), strings.Contains(text, "incompatible core API version"), strings.Contains(text, "unsupported plugin protocol"):
		return errorf(CodeVersion, "the plugin speaks no contract that this gateway speaks")
	case strings.Contains(text, "timeout while waiting"):
		return errorf(CodeStartTimeout, "the plugin said nothing in time")
	case strings.Contains(text, "cannot be executed"):
		return wrap(CodeStartFailed, err, "the plugin does not start")
	}
	// What it has printed instead may hold anything.
	return errorf(CodeStartFailed, "the plugin ended, or spoke nonsense, before it was there; see its log")
}

func (i *instance) describeTransport(ctx context.Context, settings json.RawMessage) error {
	d, err := i.transport.Describe(ctx, &transportv1.DescribeRequest{})
	if err != nil {
		return notDescribed(err, "transport")
	}
	c := d.GetCapabilities()
	i.desc = description{version: clip(d.Version), targetSchema: d.TargetSchema,
		atMostOnce: c.GetAtMostOnce(), signed: c.GetSigned(), maxBatch: int(min(max(c.GetMaxBatch(), 1), maxBatch))}
	if i.desc.targets, err = compileSchema(d.TargetSchema); err != nil {
		return wrap(CodeDescription, err, "the plugin's schema of targets cannot be used")
	}
	return checkSettings(d.ConfigSchema, settings)
}

func (i *instance) describeHook(ctx context.Context, settings json.RawMessage) error {
	d, err := i.hook.Describe(ctx, &authhookv1.DescribeRequest{})
	if err != nil {
		return notDescribed(err, "auth hook")
	}
	if !d.Authenticates && !d.Authorizes {
		return errorf(CodeDescription, "the plugin neither authenticates nor authorizes")
	}
	i.desc = description{version: clip(d.Version), authenticates: d.Authenticates, authorizes: d.Authorizes, headers: d.Headers}
	return checkSettings(d.ConfigSchema, settings)
}

func checkSettings(raw, settings json.RawMessage) error {
	s, err := compileSchema(raw)
	if err != nil {
		return wrap(CodeDescription, err, "the plugin's schema of settings cannot be used")
	}
	if err := s.check(settings); err != nil {
		return wrap(CodeConfigRefused, err, "the settings are not as the plugin's schema has them")
	}
	return nil
}

// health asks a plugin whether it can work: hung is an error of the plugin, why
// its own complaint.
func (i *instance) health(ctx context.Context) (why string, hung error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if i.transport != nil {
		answer, err := i.transport.Health(ctx, &transportv1.HealthRequest{})
		return clip(answer.GetError()), err
	}
	answer, err := i.hook.Health(ctx, &authhookv1.HealthRequest{})
	return clip(answer.GetError()), err
}

// stop ends the process, with the grace that an orderly end gets, and removes
// what it had.
func (i *instance) stop(grace time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		i.client.Kill()
	}()
	if i.proc.cmd != nil {
		t := time.NewTimer(grace)
		defer t.Stop()
		select {
		case <-done:
		case <-t.C:
			i.proc.kill()
		}
	}
	<-done
	if i.dir != "" {
		_ = os.RemoveAll(i.dir)
	}
}

// clip bounds a text of a plugin's.
func clip(s string) string {
	const most = 300
	s = strings.ToValidUTF8(s, "?")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
