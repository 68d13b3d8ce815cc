package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rouse-run/rouse/gateway/bench/proc"
	"github.com/rouse-run/rouse/gateway/bench/wire"
)

// rig starts servers for scenarios and remembers what to stop.
type rig struct {
	options
	dir     string
	pg      *proc.Postgres
	report  *report
	streams atomic.Int64 // for names that were never used
	ports   int
	say     func(format string, args ...any)
}

func newRig(ctx context.Context, o options, rep *report) (*rig, error) {
	dir, err := os.MkdirTemp("", "rouse-bench-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // Postgres runs as another user
		return nil, err
	}
	r := &rig{options: o, dir: dir, report: rep, say: func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%s  "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
	}}
	keys, err := exec.CommandContext(ctx, o.Binary, "keys", "new").Output()
	if err != nil {
		return r, fmt.Errorf("%s keys new: %w", o.Binary, err)
	}
	if err := os.WriteFile(r.keys(), keys, 0o600); err != nil {
		return r, err
	}
	r.say("starting Postgres")
	r.pg, err = proc.StartPostgres(ctx, filepath.Join(dir, "pg"))
	return r, err
}

func (r *rig) keys() string { return filepath.Join(r.dir, "keys") }

// close stops what runs and removes every file.
func (r *rig) close() {
	r.pg.Stop()
	if r.Keep {
		r.say("kept %s", r.dir)
		return
	}
	_ = os.RemoveAll(r.dir)
}

// target is a server under load.
type target struct {
	subject string
	addr    string
	proc    *proc.Proc
	pg      *proc.Postgres // nil where there is none
}

// cost is the CPU that a server's processes have spent so far.
func (t *target) cost() (gateway, postgres time.Duration) {
	gateway = proc.CPU(t.proc.PID())
	if t.pg != nil {
		postgres = proc.CPU(t.pg.PID())
	}
	return gateway, postgres
}

func (t *target) stop() { t.proc.Stop(syscall.SIGTERM) }

func (r *rig) port() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func (r *rig) log(name string) string {
	r.ports++
	return filepath.Join(r.dir, fmt.Sprintf("%02d-%s.log", r.ports, strings.ReplaceAll(name, " ", "-")))
}

// gateway starts `rouse serve` on a database, which it brings up to date, and waits until it is ready. More variables
// may set it up.
func (r *rig) gateway(ctx context.Context, database string, more ...string) (*target, error) {
	port, err := r.port()
	if err != nil {
		return nil, err
	}
	addr := "127.0.0.1:" + strconv.Itoa(port)
	env := append(os.Environ(),
		"ROUSE_DATABASE_URL="+r.pg.DSN(database), "ROUSE_KEYS="+r.keys(), "ROUSE_LISTEN="+addr, "ROUSE_PUBLIC_URL=http://"+addr,
		"ROUSE_INSECURE=true", "ROUSE_TYPE_SPAWN=all", "ROUSE_LOG_LEVEL=warn",
		// Readers stay for a whole scenario: reconnects are no part of what is measured.
		"ROUSE_SSE_MAX_AGE=30m")
	env = append(env, more...)
	if r.Debug != "" {
		env = append(env, "ROUSE_DEBUG_LISTEN="+r.Debug)
	}
	p, err := proc.Start("gateway", proc.Options{Env: env, Log: r.log("gateway")}, r.Binary, "serve", "--migrate")
	if err != nil {
		return nil, err
	}
	t := &target{subject: rouse, addr: addr, proc: p, pg: r.pg}
	return t, r.ready(ctx, t, "/readyz")
}

// reference starts the ecosystem's npm server, durable or in memory.
func (r *rig) reference(ctx context.Context, subject string) (*target, error) {
	port, err := r.port()
	if err != nil {
		return nil, err
	}
	args := []string{filepath.Join(r.Peer, "server.mjs"), strconv.Itoa(port)}
	if subject == npmFile {
		dir, err := os.MkdirTemp(r.dir, "npm-")
		if err != nil {
			return nil, err
		}
		args = append(args, dir)
	}
	p, err := proc.Start(subject, proc.Options{Log: r.log(subject)}, "node", args...)
	if err != nil {
		return nil, err
	}
	t := &target{subject: subject, addr: "127.0.0.1:" + strconv.Itoa(port), proc: p}
	return t, r.ready(ctx, t, "/bench-ready")
}

// start gives a target of the subject that nobody has used yet.
func (r *rig) start(ctx context.Context, subject string) (*target, error) {
	if subject == rouse {
		return r.gateway(ctx, "postgres")
	}
	return r.reference(ctx, subject)
}

// ready waits until path is answered, whatever a server without such a path answers below 500.
func (r *rig) ready(ctx context.Context, t *target, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	err := t.proc.Until(ctx, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.addr+path, nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode >= 500 {
			return errors.New(res.Status)
		}
		return nil
	})
	if err != nil {
		t.stop()
	}
	return err
}

// subjects are those that are compared in a run.
func (r *rig) subjects() []string {
	if r.NoPeers {
		return []string{rouse}
	}
	return []string{rouse, npmFile, npmMem}
}

// each runs a scenario against each subject, as often as asked, in turns: so that what else the machine does falls on
// all of them alike. A subject that fails is reported and the others go on.
func (r *rig) each(ctx context.Context, id string, subjects []string, scenario func(context.Context, *target) error) {
	for i := range r.Repeat {
		for _, s := range subjects {
			if ctx.Err() != nil {
				return
			}
			r.say("%s %s %d/%d", id, s, i+1, r.Repeat)
			t, err := r.start(ctx, s)
			if err == nil {
				err = scenario(ctx, t)
				t.stop()
			}
			if err != nil {
				r.report.fail(id+" "+s, err)
			}
		}
	}
}

// makeStreams creates n streams of a content type and returns their paths.
func (r *rig) makeStreams(ctx context.Context, t *target, n int, contentType string) ([]string, error) {
	c, err := wire.Dial(ctx, t.addr, time.Now().Add(time.Minute))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	paths := make([]string, n)
	for i := range paths {
		paths[i] = fmt.Sprintf("/bench/s%d-%d", time.Now().UnixMilli(), r.streams.Add(1))
		if _, err := c.Expect(wire.Request("PUT", t.addr, paths[i], []byte{}, wire.Header{Name: "Content-Type", Value: contentType}), 201); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// message is JSON of exactly size bytes that carries the number n.
func message(n int64, size int) []byte {
	head := `{"type":"text_delta","key":"bench","n":` + strconv.FormatInt(n, 10) + `,"value":"`
	return []byte(head + strings.Repeat("x", max(0, size-len(head)-2)) + `"}`)
}
