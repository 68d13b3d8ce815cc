package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/rouse-run/rouse/gateway/config"
	"github.com/rouse-run/rouse/openapi/runner"
	"github.com/rouse-run/rouse/openapi/runner/call"
	"github.com/rouse-run/rouse/openapi/runner/tail"
)

// demo is the stage: the processes of the story, and what is seen of them.
type demo struct {
	*caller
	*printer
	r      *run
	ctx    context.Context
	server runner.Server
	entity string // TYPE/ID
	runner string
	began  time.Time
	number int

	dir     string
	gateway *child
	laptops []*child
	watcher sync.WaitGroup
	unwatch context.CancelFunc

	state  demoState
	lines  chan string
	broken chan error
	steps  map[string]int
}

func (d *demo) step(what string) {
	d.number++
	d.printf("  %s  %s\n", d.paint(blue, fmt.Sprint(d.number)), d.paint(bold, what))
}

func (d *demo) note(format string, args ...any) { d.printf("     %s\n", fmt.Sprintf(format, args...)) }

// show prints what somebody wrote into the entity's stream.
func (d *demo) show(line string) {
	who, text, _ := strings.Cut(line, "\t")
	colour := green
	if who == "phone" {
		colour = yellow
	} else if work, _, ok := strings.Cut(text, ": step "); ok {
		d.steps[work]++
	}
	d.printf("     %s %s %s\n", d.paint(dim, "│"), d.paint(colour, pad(who, 6)), text)
}

// done counts the steps that were seen of a work.
func (d *demo) done(work string) int { return d.steps[work] }

// child is a process of the story.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error
	mu    sync.Mutex
	log   bytes.Buffer
}

func (c *child) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.log.Len() > 256<<10 {
		c.log.Reset()
	}
	return c.log.Write(p)
}

// tail is the end of what it wrote.
func (c *child) tail(lines int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := strings.Split(strings.TrimSpace(c.log.String()), "\n")
	return strings.Join(all[max(len(all)-lines, 0):], "\n    ")
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// kill is kill -9.
func (c *child) kill() error {
	err := c.cmd.Process.Signal(syscall.SIGKILL)
	<-c.ended
	return err
}

// end asks for an end, and makes one when it does not come.
func (c *child) end(limit time.Duration) {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails when it has ended
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-c.ended:
	case <-t.C:
		_ = c.kill()
	}
}

// launch starts this binary with other arguments.
func (d *demo) launch(out io.Writer, environ []string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self, args...), ended: make(chan struct{})}
	c.cmd.Env = append(d.environ(), environ...)
	c.cmd.Stderr = c
	c.cmd.Stdout = c
	if out != nil {
		c.cmd.Stdout = out
	}
	attach(c.cmd)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

// environ is the environment without what would lead the processes elsewhere: every setting of a gateway, and of those
// who ask one.
func (d *demo) environ() []string {
	foreign := map[string]bool{"SERVER": true, "SERVICE": true, "AS": true, "TOKEN": true, "CLAIM_TOKEN": true, "DATA_DIR": true}
	settings := reflect.TypeFor[config.Config]()
	for i := range settings.NumField() {
		foreign[settings.Field(i).Tag.Get("env")] = true
	}
	var out []string
	for _, kv := range d.r.io.Environ {
		name, _, _ := strings.Cut(kv, "=")
		if rest, ours := strings.CutPrefix(name, config.EnvPrefix); !ours || !foreign[rest] {
			out = append(out, kv)
		}
	}
	return out
}

// openGateway starts a gateway, or looks at the one that was named.
func (d *demo) openGateway(c *demoCmd) error {
	d.lines, d.broken, d.steps = make(chan string, 1024), make(chan error, 4), map[string]int{}
	var err error
	if d.dir, err = os.MkdirTemp("", "rouse-demo-"); err != nil {
		return err
	}
	// Postgres may run as another user, who must get through.
	if err := os.Chmod(d.dir, 0o711); err != nil {
		return err
	}
	url := c.Server
	d.entity, d.runner = "task/demo", "laptop"
	if url != "" {
		// Names of its own: the demo is not the first thing that happens there, and not the last.
		mark := uuid.NewString()[:8]
		d.entity, d.runner = "rouse-demo/"+mark, "demo-laptop-"+mark
	}
	if url == "" {
		if url, err = d.startGateway(c.Lease); err != nil {
			return err
		}
	}
	flags := clientFlags{Server: url, As: demoUser}
	if d.server, err = flags.server(d.r); err != nil {
		return err
	}
	d.server.Principal = demoUser
	rouse, err := d.server.Client()
	if err != nil {
		return fail(ExitUsage, err)
	}
	d.caller = &caller{Client: rouse, printer: d.printer, r: d.r, server: d.server, ctx: d.ctx}
	return d.ready()
}

// startGateway starts one on the usual port, or where that is taken on a free one, and gives the address that it says it
// has: whoever else may answer there is not it.
func (d *demo) startGateway(lease time.Duration) (string, error) {
	usual := strings.TrimPrefix(defaultServer, "http://")
	for _, listen := range []string{usual, "127.0.0.1:0"} {
		if listen == usual && !isFree(usual) {
			continue
		}
		g, err := d.launch(nil, []string{config.EnvPrefix + "LEASE_TTL=" + lease.String()}, "dev", "--listen", listen, "--data-dir", filepath.Join(d.dir, "dev"))
		if err != nil {
			return "", err
		}
		d.gateway = g
		var url string
		err = d.poll(2*time.Minute, func() error {
			if m := gatewayLine.FindStringSubmatch(g.tail(1000)); m != nil {
				url = m[1]
				return nil
			}
			return errors.New("it has not said where it listens")
		})
		if err == nil {
			return url, nil
		}
		if listen != usual || !strings.Contains(g.tail(12), "cannot listen") {
			return "", err
		}
	}
	return "", errors.New("no port is free")
}

// gatewayLine is where `rouse dev` says its address.
var gatewayLine = regexp.MustCompile(`(?m)^\s*gateway\s+(http://\S+)`)

func isFree(address string) bool {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// ready waits for the gateway.
func (d *demo) ready() error {
	return d.poll(20*time.Second, func() error {
		ctx, cancel := context.WithTimeout(d.ctx, 2*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(d.server.URL, "/")+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		return call.Decode(resp, err, nil)
	})
}

// poll tries until it succeeds, the gateway has ended, or the time is over.
func (d *demo) poll(limit time.Duration, try func() error) error {
	ended := make(<-chan struct{})
	if d.gateway != nil {
		ended = d.gateway.ended
	}
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ended:
			code := ExitFailed
			if exit, ok := errors.AsType[*exec.ExitError](d.gateway.err); ok && exit.ExitCode() > 0 {
				code = exit.ExitCode()
			}
			return failf(code, "the gateway did not start:\n    %s", d.gateway.tail(12))
		case <-deadline.C:
			return fmt.Errorf("the gateway is not ready after %v: %w", limit, err)
		case <-d.ctx.Done():
			return context.Cause(d.ctx)
		}
	}
}

// openLaptop starts a runner process and waits until it reads its wake stream.
func (d *demo) openLaptop() (*child, error) {
	events, in := io.Pipe()
	c, err := d.launch(in, nil, "runner", "run", "--id", d.runner, "--label", "the laptop", "--server", d.server.URL, "--as", demoUser,
		"--cursor-dir", filepath.Join(d.dir, "cursors"), "--all", "--json", "--exec", demoScript)
	if err != nil {
		return nil, err
	}
	d.laptops = append(d.laptops, c)
	connected := make(chan struct{})
	go func() {
		s := bufio.NewScanner(events)
		once := sync.OnceFunc(func() { close(connected) })
		for s.Scan() {
			var e struct{ Event string }
			if json.Unmarshal(s.Bytes(), &e) == nil && e.Event == string(runner.Connected) {
				once()
			}
		}
		_ = events.Close()
	}()
	go func() { <-c.ended; _ = in.Close() }()
	t := time.NewTimer(20 * time.Second)
	defer t.Stop()
	select {
	case <-connected:
		return c, nil
	case <-c.ended:
		return nil, fmt.Errorf("the laptop did not start:\n    %s", c.tail(12))
	case <-t.C:
		return nil, errors.New("the laptop did not reach its wake stream in 20 s")
	case <-d.ctx.Done():
		return nil, context.Cause(d.ctx)
	}
}

// watch follows the entity's stream.
func (d *demo) watch() {
	ctx, cancel := context.WithCancel(d.ctx)
	d.unwatch = cancel
	k := *d.caller
	k.ctx = ctx
	d.watcher.Go(func() {
		err := k.follow(d.entity+"/main", "-1", func(_ string, b tail.Batch) error {
			for _, m := range b.Messages {
				if line := demoLine(m); line != "" {
					select {
					case d.lines <- line:
					case <-ctx.Done():
					}
				}
			}
			return nil
		})
		if err != nil {
			d.broken <- err
		}
	})
}

// demoLine is who wrote a message, and what.
func demoLine(m json.RawMessage) string {
	var row struct {
		Type  string
		Value struct {
			Text    string
			Payload string
		}
	}
	if json.Unmarshal(m, &row) != nil {
		return ""
	}
	switch row.Type {
	case "inbox":
		return "phone\t" + printable(row.Value.Payload)
	case "text":
		return "laptop\t" + printable(row.Value.Text)
	}
	return ""
}

// explainFailure adds what the processes said.
func (d *demo) explainFailure(err error) error {
	if d.caller != nil {
		err = d.explain(err)
	}
	code := exitCode(err)
	text := err.Error()
	if d.gateway != nil && code == ExitFailed {
		text += "\n  the gateway's last words:\n    " + d.gateway.tail(8)
	}
	if n := len(d.laptops); n > 0 {
		if words := d.laptops[n-1].tail(8); strings.TrimSpace(words) != "" {
			text += "\n  the laptop's last words:\n    " + words
		}
	}
	return failf(code, "the demo failed: %s", text)
}

// stop ends what was started, in order.
func (d *demo) stop() error {
	if d.unwatch != nil {
		d.unwatch()
	}
	d.watcher.Wait()
	for _, l := range d.laptops {
		l.end(15 * time.Second)
	}
	if d.gateway != nil {
		d.gateway.end(30 * time.Second)
	}
	if d.dir == "" {
		return nil
	}
	if err := os.RemoveAll(d.dir); err != nil {
		return fmt.Errorf("the demo's directory could not be removed: %w", err)
	}
	return nil
}
