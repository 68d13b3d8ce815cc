package devpg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The server's parent is a small shell, not this process, so that the server has somebody to stop it after this process
// was killed with −9. Descriptors the shell gets: 0 = ends when this process does; 3 = inherited by the server and all
// its children, so that its end-of-file here means that the last of them is gone; 4 = to tell the server's pid. The
// shell does not reap the server before it is told to stop it, so the pid cannot come to mean another process.
const (
	tiedScript = `"$@" 4>&- </dev/null &
pid=$!
exec 3>&-
echo "$pid" >&4
exec 4>&-
read -r _
kill -INT "$pid" 2>/dev/null
(sleep 5; kill -QUIT "$pid" 2>/dev/null) 4>&- >/dev/null 2>&1 &
timer=$!
wait "$pid"
code=$?
kill "$timer" 2>/dev/null
exit "$code"
`
	// idleScript keeps a server that several processes share. $1 = a directory with one file a client, named by its pid;
	// $2 = the file that advertises the server; $3 = seconds without a client before it stops. The advert is taken away
	// before the clients are looked at for the last time, and a client registers before it reads the advert, so that one
	// of the two always sees the other.
	idleScript = `clients=$1; advert=$2; limit=$3; shift 3
"$@" 4>&- </dev/null &
pid=$!
exec 3>&-
echo "$pid" >&4
exec 4>&-
busy() {
  for f in "$clients"/*; do
    [ -e "$f" ] || continue
    p=${f##*/}
    if kill -0 "$p" 2>/dev/null || [ -d "/proc/$p" ]; then return 0; fi
    rm -f "$f"
  done
  return 1
}
idle=0
while :; do
  sleep 2
  if busy; then idle=0; else idle=$((idle + 2)); fi
  [ "$idle" -ge "$limit" ] || continue
  mv "$advert" "$advert.stopping" 2>/dev/null
  busy || break
  mv "$advert.stopping" "$advert" 2>/dev/null
  idle=0
done
rm -f "$advert.stopping"
kill -INT "$pid" 2>/dev/null
(sleep 5; kill -QUIT "$pid" 2>/dev/null) >/dev/null 2>&1 &
wait "$pid"
`
)

// IdleStop ties a server to its clients instead of to the process that starts it.
type IdleStop struct {
	Clients string        // directory, one file a client, named by the client's pid
	Advert  string        // file that tells clients of the server; taken away before it stops
	After   time.Duration // without a client; whole seconds
}

// process is a running server and the shell above it.
type process struct {
	shell *exec.Cmd
	pid   int            // of the postmaster
	tie   io.WriteCloser // closing it makes the shell stop the server
	watch *os.File       // ends when the last process of the server has
	gone  chan struct{}  // closed then
	once  sync.Once
}

// launch starts program under the account, its output going to log.
func launch(ctx context.Context, acct account, log *os.File, env []string, idle *IdleStop, program string, args ...string) (_ *process, err error) {
	script, argv := tiedScript, []string{}
	if idle != nil {
		script = idleScript
		argv = []string{idle.Clients, idle.Advert, strconv.Itoa(int(idle.After / time.Second))}
	}
	argv = append(append([]string{"-c", script, "rouse-postgres"}, argv...), append([]string{program}, args...)...)
	shell := exec.Command("/bin/sh", argv...)
	shell.Dir, shell.Env = "/", append(childEnv(), env...)
	shell.Stdout, shell.Stderr = log, log
	shell.SysProcAttr = acct.attr()

	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			files = append(files, r, w)
		}
		return r, w, err
	}
	goneR, goneW, err := pipe()
	if err != nil {
		return nil, err
	}
	pidR, pidW, err := pipe()
	if err != nil {
		return nil, err
	}
	shell.ExtraFiles = []*os.File{goneW, pidW}
	p := &process{shell: shell, gone: make(chan struct{})}
	if idle == nil {
		tieR, tieW, err := pipe()
		if err != nil {
			return nil, err
		}
		shell.Stdin, p.tie = tieR, tieW
	}
	if err := shell.Start(); err != nil {
		return nil, err
	}
	goneW.Close()
	pidW.Close()
	stop := context.AfterFunc(ctx, func() { pidR.Close() })
	line, err := bufio.NewReader(pidR).ReadString('\n')
	stop()
	if err == nil {
		p.pid, err = strconv.Atoi(strings.TrimSpace(line))
	}
	if err != nil {
		if p.tie != nil {
			p.tie.Close()
		}
		waitErr := shell.Wait()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("the server's shell did not start it: %w", errors.Join(err, waitErr))
	}
	files = []*os.File{pidR}
	if tieR, ok := shell.Stdin.(*os.File); ok {
		files = append(files, tieR)
	}
	p.watch = goneR
	go func() {
		// Nothing is ever written to it: the read ends when the last process that inherited the other end has, or
		// when detach closes this end.
		_, _ = io.Copy(io.Discard, goneR)
		goneR.Close()
		close(p.gone)
	}()
	return p, nil
}

// detach leaves a shared server to its keeper: nobody here waits for it any more.
func (p *process) detach() error {
	err := p.watch.Close()
	<-p.gone
	return errors.Join(err, p.shell.Process.Release())
}

// signal reaches the postmaster. The shell has not reaped it, so its pid is its own.
func (p *process) signal(sig syscall.Signal) error {
	err := syscall.Kill(p.pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// release ends the shell after the server is gone and reaps it.
func (p *process) release() {
	p.once.Do(func() {
		if p.tie == nil {
			// The keeper of a shared server ends by itself, and is not waited for.
			_ = p.shell.Process.Release()
			return
		}
		p.tie.Close()
		// Its exit status is the server's, which has been judged by then.
		_ = p.shell.Wait()
	})
}

// children lists the processes whose parent is pid, as /proc has them; empty where there is no /proc.
func children(pid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// pid (comm) state ppid …; comm may hold spaces and parentheses, so count from its last ')'.
		_, rest, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), '(')+1:]), ") ")
		if fields := strings.Fields(rest); ok && len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			out = append(out, child)
		}
	}
	return out
}

// childEnv is all that the server and initdb see of our environment.
func childEnv() []string {
	env := []string{"LC_ALL=C", "LANG=C"}
	for _, key := range []string{"PATH", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return env
}

// postmasterPID is what data/postmaster.pid says: the pid (0 when there is no such file) and whether the server takes
// connections.
func postmasterPID(data string) (pid int, ready bool) {
	raw, err := os.ReadFile(data + "/postmaster.pid")
	if err != nil {
		return 0, false
	}
	lines := strings.Split(string(raw), "\n")
	pid, err = strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil {
		return 0, false
	}
	if len(lines) <= 7 {
		return pid, false
	}
	status := strings.TrimSpace(lines[7])
	return pid, status == "ready" || status == "standby" // the latter answers reads
}

// stopOrphan ends a server that a dead owner left running on data. It is sure of the pid only when the process's
// command line names the directory; a recycled pid is left alone, as Postgres itself then sees the file as stale.
func stopOrphan(ctx context.Context, data string) error {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} {
		deadline := time.Now().Add(3 * time.Second)
		for first := true; ; first = false {
			pid, _ := postmasterPID(data)
			if pid == 0 || !commandNames(ctx, pid, data) {
				return nil
			}
			if first {
				if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
					return &Error{Code: CodeStop, Detail: fmt.Sprintf("cannot stop the server left running with pid %d", pid), Cause: err}
				}
			}
			if time.Now().After(deadline) {
				break
			}
			if err := pause(ctx, 20*time.Millisecond); err != nil {
				return err
			}
		}
	}
	pid, _ := postmasterPID(data)
	return &Error{Code: CodeStop, Detail: fmt.Sprintf("the server left running with pid %d does not stop", pid)}
}

// commandNames reports whether pid lives and its command line holds text.
func commandNames(ctx context.Context, pid int, text string) bool {
	if raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); err == nil {
		return strings.Contains(string(raw), text)
	}
	if _, err := os.Stat("/proc/self"); err == nil {
		return false
	}
	out, err := exec.CommandContext(ctx, "ps", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(out), text)
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
