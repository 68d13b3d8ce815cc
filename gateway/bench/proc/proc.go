// Package proc starts the servers that are compared, ends them again whatever happens, and reads what they cost from
// /proc. It must not know what they are.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Proc is a running child.
type Proc struct {
	Name string
	cmd  *exec.Cmd
	done chan struct{}
	err  error
	log  string
}

// Options of a child.
type Options struct {
	Dir  string
	Env  []string // nil: this process's
	User *syscall.Credential
	// Log is the file that gets both outputs.
	Log string
}

// Start runs a program. It dies with this process; the caller must be on a thread that lives as long as this process,
// since the kernel ties the child to the thread.
func Start(name string, o Options, program string, args ...string) (*Proc, error) {
	out, err := os.OpenFile(o.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = o.Dir, o.Env, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: o.User}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p := &Proc{Name: name, cmd: cmd, done: make(chan struct{}), log: o.Log}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID of the child.
func (p *Proc) PID() int { return p.cmd.Process.Pid }

// Until polls ready until it succeeds, the child ends, or ctx does.
func (p *Proc) Until(ctx context.Context, ready func(context.Context) error) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %w; its last words: %s", p.Name, errors.Join(p.err), p.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("%s did not get ready: %w; its last words: %s", p.Name, err, p.lastWords())
		case <-tick.C:
		}
	}
}

func (p *Proc) lastWords() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(b[max(0, len(b)-1500):]))
}

// Stop asks the child to end with the signal and kills its group 15 s later.
func (p *Proc) Stop(sig syscall.Signal) {
	if p == nil {
		return
	}
	_ = syscall.Kill(p.PID(), sig)
	t := time.NewTimer(15 * time.Second)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
		<-p.done
	}
}

// clockTick is the unit of /proc/PID/stat; it is 100 Hz on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// CPU is the time that a process and its children have spent, those that have ended included.
func CPU(pid int) time.Duration {
	total := stat(pid, true)
	for _, child := range children(pid) {
		total += stat(child, false)
	}
	return total
}

func stat(pid int, withEnded bool) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name in parentheses may hold anything; what follows it is regular.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 15 {
		return 0
	}
	ticks := 0
	for i := 11; i <= 14; i++ { // utime stime cutime cstime
		if i > 12 && !withEnded {
			break
		}
		n, _ := strconv.Atoi(f[i])
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}

func children(pid int) []int {
	var out []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, l := range lists {
		b, err := os.ReadFile(l)
		if err != nil {
			continue
		}
		for _, f := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}

// RSS is the memory of one process that is in RAM, in bytes.
func RSS(pid int) int64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	b, _ := io.ReadAll(f)
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

// Self is the CPU time of this process: what the load generator costs.
func Self() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Load is the machine's load average of the last minute.
func Load() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	v, _ := strconv.ParseFloat(strings.Fields(string(b))[0], 64)
	return v
}
