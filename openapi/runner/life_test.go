package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-run/rouse/openapi/runner/call"
)

func TestDrain(t *testing.T) {
	t.Parallel()
	t.Run("in time", func(t *testing.T) {
		t.Parallel()
		f := newFake(t)
		f.send("/t/1", "hello")
		in, out := make(chan struct{}), make(chan struct{})
		r := start(t, nil, func(ctx context.Context, c *Claim) error { close(in); <-out; return c.Append(ctx, text("a", "x")) }, f)
		<-in
		r.stop()
		f.send("/t/2", "not any more")
		close(out)
		if err := r.wait(); err != nil {
			t.Fatal(err)
		}
		r.until(Done)
		if f.count("claim") != 1 {
			t.Error("it claimed while it drained")
		}
	})
	t.Run("given back", func(t *testing.T) {
		t.Parallel()
		f := newFake(t)
		f.lease = 10 * time.Second
		f.send("/t/1", "one")
		f.send("/t/1", "two")
		in := make(chan struct{})
		r := start(t, func(c *Config) { c.Grace = 30 * time.Millisecond }, func(ctx context.Context, c *Claim) error {
			if _, err := collect(ctx, c); err != nil {
				return err
			}
			if err := c.Ack(ctx, offset(1)); err != nil {
				return err
			}
			close(in)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrDraining) {
				t.Error(context.Cause(ctx))
			}
			return ctx.Err()
		}, f)
		<-in
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		r.until(Returned)
		if c := f.look("/t/1"); c.acked != 1 || c.epoch != 2 || c.state != "waking" || c.failure != nil {
			t.Errorf("%+v", c)
		}
	})
}

func TestSeveralServers(t *testing.T) {
	t.Parallel()
	up, down := newFake(t), newFake(t)
	var sick atomic.Bool
	sick.Store(true)
	down.set(func(string, *http.Request) fault {
		if sick.Load() {
			return refuse
		}
		return none
	})
	up.send("/t/1", "a")
	down.send("/t/1", "b")
	dir := CursorDir(t.TempDir())
	r := start(t, func(c *Config) { c.Capacity, c.Cursors = 1, dir }, func(context.Context, *Claim) error { return nil }, up, down)
	if e := r.until(Done); e.Server != up.srv.URL {
		t.Error(e)
	}
	sick.Store(false)
	if e := r.until(Done); e.Server != down.srv.URL {
		t.Error(e)
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(string(dir), "r1-*.json")); len(files) != 2 {
		t.Error(files)
	}
}

func TestCursors(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	dir := CursorDir(t.TempDir())
	key := f.srv.URL + " default"
	run := func() (*rig, func() int) {
		before := f.count("claim")
		r := start(t, func(c *Config) { c.Cursors = dir }, func(context.Context, *Claim) error { return nil }, f)
		return r, func() int { return f.count("claim") - before }
	}
	f.send("/t/1", "x")
	r, _ := run()
	r.until(Done)
	_ = r.end()

	// A temporary file of a writer that was killed changes nothing; a start goes on behind what is settled.
	if err := os.WriteFile(filepath.Join(string(dir), ".cursor-123"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.send("/t/2", "x")
	r, claims := run()
	if e := r.until(Done); e.Entity != "/t/2" || claims() != 1 {
		t.Errorf("%+v, %d claims", e, claims())
	}
	_ = r.end()

	// The cursor of another wake stream counts for nothing.
	f.mu.Lock()
	f.born = "2026-02-02T00:00:00Z"
	f.streams[wakePath] = nil
	f.mu.Unlock()
	f.send("/t/3", "x")
	r, _ = run()
	if e := r.until(Done); e.Entity != "/t/3" {
		t.Errorf("%+v", e)
	}
	_ = r.end()
	if c, err := dir.Load("r1", key); err != nil || c.Born != "2026-02-02T00:00:00Z" || c.Offset != offset(1) {
		t.Errorf("%+v %v", c, err)
	}

	// A damaged one is an error with what to do.
	if err := os.WriteFile(dir.path("r1", key), []byte(`{"offset":`), 0o600); err != nil {
		t.Fatal(err)
	}
	r, _ = run()
	if err := r.wait(); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Error(err)
	}
}

// The cursor stays behind a wake that is still worked, whatever has settled beyond it.
func TestTheCursorNeverPassesOpenWork(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.lease = 10 * time.Second
	f.send("/t/1", "slow")
	hold := make(chan struct{})
	dir := CursorDir(t.TempDir())
	r := start(t, func(c *Config) { c.Cursors = dir }, func(_ context.Context, c *Claim) error {
		if c.Entity() == "/t/1" {
			<-hold
		}
		return nil
	}, f)
	r.until(Claimed)
	for i := range 5 {
		f.send(fmt.Sprintf("/u/%d", i), "x")
		r.until(Done)
	}
	if c, _ := dir.Load("r1", f.srv.URL+" default"); c.Offset != "" {
		t.Errorf("the cursor is at %s", c.Offset)
	}
	close(hold)
	r.until(Done)
	eventually(t, "the cursor moves", func() bool {
		c, _ := dir.Load("r1", f.srv.URL+" default")
		return c.Offset == offset(6)
	})
}

func TestARunnerThatIsRefusedEnds(t *testing.T) {
	t.Parallel()
	for op, status := range map[string]int{"lookup": 404, "alive": 403, "tail": 401, "register": 401} {
		f := newFake(t)
		f.status[op], f.code = status, "SOME_CODE"
		r := start(t, func(c *Config) { c.Register = &Registration{Label: "x"} }, func(context.Context, *Claim) error { return nil }, f)
		if err := r.wait(); call.Code(err) != "SOME_CODE" {
			t.Errorf("%s: %v", op, err)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	h := func(context.Context, *Claim) error { return nil }
	for name, c := range map[string]Config{
		"no id":      {Handler: h, Servers: []Server{{URL: "http://x"}}},
		"slash":      {ID: "a/b", Handler: h, Servers: []Server{{URL: "http://x"}}},
		"no handler": {ID: "a", Servers: []Server{{URL: "http://x"}}},
		"no server":  {ID: "a", Handler: h},
		"scheme":     {ID: "a", Handler: h, Servers: []Server{{URL: "ftp://x"}}},
		"twice":      {ID: "a", Handler: h, Servers: []Server{{URL: "http://x"}, {URL: "http://x/", Service: "default"}}},
		"capacity":   {ID: "a", Handler: h, Servers: []Server{{URL: "http://x"}}, Capacity: 5000},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no complaint", name)
		}
	}
	if s := (Server{URL: "https://u:p@h/base/?secret=s", Service: "x"}); s.name() != "https://h/base?service=x" || strings.Contains(s.key(), "secret") {
		t.Error(s.name(), s.key())
	}
}
