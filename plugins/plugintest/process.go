package plugintest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	authhookv1 "github.com/rouse-run/rouse/plugins/proto/rouse/authhook/v1"
	transportv1 "github.com/rouse-run/rouse/plugins/proto/rouse/transport/v1"
	"github.com/rouse-run/rouse/plugins/wire"
)

// running is a plugin that has been started.
type running struct {
	client    *plugin.Client
	cmd       *exec.Cmd
	kind      string
	summary   string
	transport transportv1.TransportServiceClient
	hook      authhookv1.AuthHookServiceClient
	described *transportv1.DescribeResponse
	hookDesc  *authhookv1.DescribeResponse
	timeout   time.Duration
	out       *tail
}

// tail keeps the end of what a plugin prints.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - 2000; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.buf))
}

func (k *kit) command(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), k.opts.Path, k.opts.Args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), plugin.EnvUnixSocketDir + "=" + k.dir}, k.opts.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// connect starts a process and speaks the handshake with it.
func (k *kit) connect(cmd *exec.Cmd, versions map[int]plugin.PluginSet) (*running, error) {
	p := &running{cmd: cmd, timeout: k.opts.Timeout, out: &tail{}}
	p.client = plugin.NewClient(&plugin.ClientConfig{HandshakeConfig: wire.Handshake(), VersionedPlugins: versions,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC}, AutoMTLS: true, SkipHostEnv: true, Cmd: cmd, StartTimeout: k.opts.Timeout,
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard}), Stderr: p.out, SyncStdout: p.out, SyncStderr: p.out,
		GRPCDialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxMessage), grpc.MaxCallSendMsgSize(16<<20))}})
	if _, err := p.client.Start(); err != nil {
		p.end()
		return p, fmt.Errorf("it does not start as a plugin: %w%s", err, p.said())
	}
	return p, nil
}

// said quotes what the plugin has printed.
func (p *running) said() string {
	if s := p.out.String(); s != "" {
		return "\nit printed: " + s
	}
	return ""
}

// start gives a configured plugin, of whichever kind it is.
func (k *kit) start(ctx context.Context, config json.RawMessage) (*running, error) {
	p, err := k.connect(k.command(ctx), wire.Sets(nil, nil))
	if err != nil {
		return nil, err
	}
	if err := p.introduce(ctx, config); err != nil {
		p.end()
		return nil, fmt.Errorf("%w%s", err, p.said())
	}
	return p, nil
}

func (p *running) introduce(ctx context.Context, config json.RawMessage) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	proto, err := p.client.Client()
	if err != nil {
		return fmt.Errorf("its socket does not answer: %w", err)
	}
	raw, err := proto.Dispense(wire.Transport)
	if err != nil {
		return err
	}
	p.transport = raw.(transportv1.TransportServiceClient)
	p.described, err = p.transport.Describe(ctx, &transportv1.DescribeRequest{})
	if status.Code(err) == codes.Unimplemented {
		p.transport = nil
		if raw, err = proto.Dispense(wire.AuthHook); err != nil {
			return err
		}
		p.hook = raw.(authhookv1.AuthHookServiceClient)
		return p.introduceHook(ctx, config)
	}
	if err != nil {
		return broken("Describe", err)
	}
	p.kind = wire.Transport
	p.summary = fmt.Sprintf("transport %q %s", p.described.Type, p.described.Version)
	if p.described.Type == "" {
		return errors.New("it names no type in Describe")
	}
	if _, err := compiled("target_schema", p.described.TargetSchema); err != nil {
		return err
	}
	if err := fits(p.described.ConfigSchema, config); err != nil {
		return err
	}
	answer, err := p.transport.Configure(ctx, &transportv1.ConfigureRequest{Config: config})
	if err != nil {
		return broken("Configure", err)
	}
	return refused(answer.Error)
}

func (p *running) introduceHook(ctx context.Context, config json.RawMessage) (err error) {
	if p.hookDesc, err = p.hook.Describe(ctx, &authhookv1.DescribeRequest{}); err != nil {
		return broken("Describe", err)
	}
	p.kind = wire.AuthHook
	p.summary = fmt.Sprintf("auth hook %q %s", p.hookDesc.Name, p.hookDesc.Version)
	if p.hookDesc.Name == "" {
		return errors.New("it gives no name in Describe")
	}
	if !p.hookDesc.Authenticates && !p.hookDesc.Authorizes {
		return errors.New("it neither authenticates nor authorizes")
	}
	if err := fits(p.hookDesc.ConfigSchema, config); err != nil {
		return err
	}
	answer, err := p.hook.Configure(ctx, &authhookv1.ConfigureRequest{Config: config})
	if err != nil {
		return broken("Configure", err)
	}
	return refused(answer.Error)
}

func refused(why string) error {
	if why == "" {
		return nil
	}
	return fmt.Errorf("it refuses its settings (give them with --config): %s", why)
}

// compiled is a schema, or why it is none; nil = there is none.
func compiled(what string, raw []byte) (*jsonschema.Schema, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("%s is no JSON: %w", what, err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(jsonschema.SchemeURLLoader{})
	var s *jsonschema.Schema
	if err = c.AddResource("plugin:schema", doc); err == nil {
		s, err = c.Compile("plugin:schema")
	}
	if err != nil {
		return nil, fmt.Errorf("%s is no JSON Schema (2020-12) of its own: %w", what, err)
	}
	return s, nil
}

// fits says whether settings are as the plugin's own schema has them: a gateway
// starts none with others.
func fits(schema, config []byte) error {
	s, err := compiled("config_schema", schema)
	if err != nil || s == nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(config))
	if err != nil {
		return fmt.Errorf("the settings are no JSON: %w", err)
	}
	if err := s.Validate(doc); err != nil {
		return fmt.Errorf("the settings (give them with --config) are not as its own config_schema has them: %w", err)
	}
	return nil
}

// healthy asks for the health.
func (p *running) healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	var why string
	var err error
	if p.transport != nil {
		var a *transportv1.HealthResponse
		a, err = p.transport.Health(ctx, &transportv1.HealthRequest{})
		why = a.GetError()
	} else {
		var a *authhookv1.HealthResponse
		a, err = p.hook.Health(ctx, &authhookv1.HealthRequest{})
		why = a.GetError()
	}
	if err != nil {
		return fmt.Errorf("%w%s", broken("Health", err), p.said())
	}
	if why != "" {
		return fmt.Errorf("it says that it is not well: %s", why)
	}
	return nil
}

// end ends the process and what it has started.
func (p *running) end() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.client.Kill()
	}()
	t := time.NewTimer(4 * time.Second)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		p.kill()
		<-done
	}
	p.kill()
}

func (p *running) kill() {
	if p.cmd.Process != nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// byHand starts the program without a gateway.
func byHand(ctx context.Context, k *kit) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, k.opts.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, k.opts.Path, k.opts.Args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, k.opts.Env...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", errors.New("it goes on as if it had a gateway")
	case err == nil:
		return "", errors.New("it ends with code 0, as if it had done something")
	case cmd.ProcessState == nil:
		return "", fmt.Errorf("it cannot be executed: %w", err)
	case said.Len() == 0:
		return "", errors.New("it says nothing")
	}
	return "", nil
}

// otherVersion offers only a version that there will never be.
func otherVersion(ctx context.Context, k *kit) (string, error) {
	set := wire.Sets(nil, nil)[wire.V1]
	p, err := k.connect(k.command(ctx), map[int]plugin.PluginSet{99_999: set})
	if err == nil {
		p.end()
		return "", errors.New("it claims to speak version 99999")
	}
	if strings.Contains(err.Error(), "timeout") {
		return "", errors.New("it says nothing at all")
	}
	return "", nil
}

// crash kills the process and starts it again.
func crash(ctx context.Context, k *kit) (string, error) {
	p, err := k.start(ctx, k.opts.Config)
	if err != nil {
		return "", err
	}
	p.kill()
	p.end()
	q, err := k.start(ctx, k.opts.Config)
	if err != nil {
		return "", fmt.Errorf("after it was killed: %w", err)
	}
	defer q.end()
	return "", q.healthy(ctx)
}

// endsWhenTold measures the orderly end.
func endsWhenTold(ctx context.Context, k *kit) (string, error) {
	p, err := k.start(ctx, k.opts.Config)
	if err != nil {
		return "", err
	}
	began := time.Now()
	p.end()
	if took := time.Since(began); took > 1900*time.Millisecond {
		return "", errors.New("it had to be killed: it ended neither by itself nor within 2 s")
	}
	return "", nil
}

// endsWithParent starts the plugin as the child of a shell that is then killed.
func endsWithParent(ctx context.Context, k *kit) (string, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", append([]string{"-c", `"$@" & echo $! >&2; wait`, "sh", k.opts.Path}, k.opts.Args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), plugin.EnvUnixSocketDir + "=" + k.dir}, k.opts.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p, err := k.connect(cmd, wire.Sets(nil, nil))
	if err != nil {
		return "", err
	}
	defer p.end()
	if err := p.introduce(ctx, k.opts.Config); err != nil {
		return "", err
	}
	if err := cmd.Process.Kill(); err != nil {
		return "", err
	}
	// Its socket is gone with it.
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(2 * time.Second)
	defer late.Stop()
	for {
		hctx, cancel := context.WithTimeout(ctx, time.Second)
		var err error
		if p.transport != nil {
			_, err = p.transport.Health(hctx, &transportv1.HealthRequest{})
		} else {
			_, err = p.hook.Health(hctx, &authhookv1.HealthRequest{})
		}
		cancel()
		if status.Code(err) == codes.Unavailable {
			return "", nil
		}
		select {
		case <-tick.C:
		case <-late.C:
			return "", errors.New("it still runs 2 s after its gateway was killed: serve it with the SDK, or look at the parent's process id")
		}
	}
}
