package pluginhost

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-plugin/runner"
)

// starter starts every child on one thread that lives as long as the host: the
// kernel sends the parent-death signal when the thread that forked ends.
type starter struct {
	jobs chan func()
	once sync.Once
}

func newStarter() *starter {
	s := &starter{jobs: make(chan func())}
	go func() {
		// Never unlocked: the thread ends with this goroutine, and with it whatever
		// child is still there.
		runtime.LockOSThread()
		for f := range s.jobs {
			f()
		}
	}()
	return s
}

func (s *starter) do(f func() error) error {
	done := make(chan error, 1)
	s.jobs <- func() { done <- f() }
	return <-done
}

func (s *starter) stop() { s.once.Do(func() { close(s.jobs) }) }

// pipesGrace is how long a dead plugin's output is still read: a descendant that
// has left its process group may hold it open.
const pipesGrace = 500 * time.Millisecond

// process is a child in a process group of its own.
type process struct {
	cmd            *exec.Cmd
	starter        *starter
	limits         limits
	img            *image
	stdout, stderr *os.File
	exited         chan struct{} // closed when it has ended and has been waited for

	mu    sync.Mutex
	alive bool
	err   error
}

var _ runner.Runner = (*process)(nil)

// limits of a child's process.
type limits struct {
	files  uint64 // open files; 0 = as the host
	memory int64  // bytes that it may have resident; 0 = no limit
}

// Start implements runner.Runner.
func (p *process) Start(context.Context) error {
	outR, outW, err := os.Pipe()
	if err != nil {
		return err
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		_, _ = outR.Close(), outW.Close()
		return err
	}
	p.stdout, p.stderr = outR, errR
	p.cmd.Path, p.cmd.Err = p.img.path, nil
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = nil, outW, errW
	p.cmd.SysProcAttr = childAttributes()
	p.mu.Lock()
	err = p.starter.do(func() error { return p.cmd.Start() })
	p.alive = err == nil
	p.mu.Unlock()
	_, _ = outW.Close(), errW.Close()
	if err != nil {
		_, _ = outR.Close(), errR.Close()
		close(p.exited)
		return fmt.Errorf("the program cannot be executed: %w", bare(err))
	}
	p.limits.apply(p.cmd.Process.Pid)
	go p.reap()
	return nil
}

// reap waits for the end of the child, ends what it has left in its group, and
// only then lets go of its number.
func (p *process) reap() {
	waited, err := awaitExit(p.cmd)
	p.mu.Lock()
	killGroup(p.cmd.Process.Pid)
	p.alive = false
	p.mu.Unlock()
	if !waited {
		err = p.cmd.Wait()
	}
	p.err = err
	close(p.exited)
	time.AfterFunc(pipesGrace, func() { _, _ = p.stdout.Close(), p.stderr.Close() })
}

// kill ends the whole group at once, if it is still this child's.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alive {
		killGroup(p.cmd.Process.Pid)
	}
}

// Wait implements runner.Runner.
func (p *process) Wait(context.Context) error {
	<-p.exited
	return p.err
}

// Kill implements runner.Runner.
func (p *process) Kill(context.Context) error {
	p.kill()
	return nil
}

// Stdout implements runner.Runner.
func (p *process) Stdout() io.ReadCloser { return p.stdout }

// Stderr implements runner.Runner.
func (p *process) Stderr() io.ReadCloser { return p.stderr }

// Name implements runner.Runner.
func (p *process) Name() string { return p.img.name }

// ID implements runner.Runner.
func (p *process) ID() string {
	if p.cmd.Process == nil {
		return ""
	}
	return strconv.Itoa(p.cmd.Process.Pid)
}

// Diagnose implements runner.Runner.
func (p *process) Diagnose(context.Context) string { return "" }

// PluginToHost implements runner.Runner: both are on one machine.
func (p *process) PluginToHost(network, addr string) (string, string, error) {
	return network, addr, nil
}

// HostToPlugin implements runner.Runner.
func (p *process) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}
