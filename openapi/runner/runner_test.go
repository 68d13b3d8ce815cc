package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rouse-run/rouse/openapi/runner/call"
)

func TestWorksOneWake(t *testing.T) {
	t.Parallel()
	for _, style := range []Style{ClaimFirst, Callback} {
		f := newFake(t)
		for i := range 5 { // several pages
			f.mu.Lock()
			f.row("/t/1/main", "entity_created", fmt.Sprint(i), "0")
			f.consumer("/t/1/main").acked = i + 1
			f.mu.Unlock()
		}
		f.send("/t/1", "hello")
		f.send("/t/1", "there")
		f.send("/t/1", "again")
		var got []string
		dir := CursorDir(t.TempDir())
		r := start(t, func(c *Config) { c.Style, c.Cursors, c.Register = style, dir, &Registration{Label: "laptop"} },
			func(ctx context.Context, c *Claim) (err error) {
				if got, err = collect(ctx, c); err != nil {
					return err
				}
				if strings.Contains(string(c.Raw), "ct ") || c.Notification.ClaimToken != "" {
					t.Error("the handler sees a token")
				}
				if err := c.Append(ctx, text("a", "working")); err != nil {
					return err
				}
				return c.Append(ctx, text("b", "done"), text("c", "really"))
			}, f)
		claimed, done := r.until(Claimed), r.until(Done)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if want := []string{"hello", "there", "again"}; !slices.Equal(got, want) {
			t.Errorf("unread: %v", got)
		}
		if texts := f.texts("/t/1/main"); !slices.Equal(texts[8:], []string{"text working", "text done", "text really"}) {
			t.Errorf("written: %v", texts)
		}
		c := f.look("/t/1")
		if want := []string{"granted 1", "released 1"}; !slices.Equal(c.history, want) || c.acked != 8 {
			t.Errorf("mutex: %v, acked %d", c.history, c.acked)
		}
		if claimed.Entity != "/t/1" || claimed.Epoch != 1 || done.Epoch != 1 || f.count("register") != 1 {
			t.Errorf("events: %+v %+v", claimed, done)
		}
		cur, err := dir.Load("r1", f.srv.URL+" default")
		if err != nil || cur.Offset != offset(1) || cur.Born != "2026-01-01T00:00:00Z" {
			t.Errorf("cursor %+v, %v", cur, err)
		}
	}
}

func TestAnswersThatAreLostAreGivenAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var once sync.Map
	f.set(func(op string, _ *http.Request) fault {
		if op == "tail" {
			return none
		}
		if _, again := once.LoadOrStore(op, true); !again {
			return cut
		}
		return none
	})
	f.send("/t/1", "hello")
	runs := 0
	r := start(t, func(c *Config) { c.Register = &Registration{Label: "x"} }, func(ctx context.Context, c *Claim) error {
		runs++
		in, err := collect(ctx, c)
		if err != nil {
			return err
		}
		if err := c.Append(ctx, text("a", in[0])); err != nil {
			return err
		}
		if err := c.Ack(ctx, offset(1)); err != nil {
			return err
		}
		return c.Append(ctx, text("b", in[0]))
	}, f)
	r.until(Done)
	if got := f.texts("/t/1/main"); !slices.Equal(got, []string{"inbox hello", "text hello", "text hello"}) || runs != 1 {
		t.Errorf("%v, %d runs", got, runs)
	}
	if got := f.look("/t/1").history; !slices.Equal(got, []string{"granted 1", "released 1"}) {
		t.Error(got)
	}
}

func TestHeartbeatsKeepALongRunAlive(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.send("/t/1", "hello")
	r := start(t, nil, func(ctx context.Context, c *Claim) error {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for began := time.Now(); time.Since(began) < 3*f.lease/2; f.reap() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return c.Append(ctx, text("a", "late"))
	}, f)
	r.until(Done)
	if got := f.look("/t/1").history; !slices.Equal(got, []string{"granted 1", "released 1"}) {
		t.Error(got)
	}
}

// A holder that cannot heartbeat stops before its lease ends, and the next claim has a higher epoch.
func TestLostHeartbeatsEndTheWorkBeforeTheLease(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]fault{"refused": refuse, "unanswered": hang, "answer cut, and the lease extended": cut} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			var sick atomic.Bool
			sick.Store(true)
			f.set(func(op string, _ *http.Request) fault {
				if op == "heartbeat" && sick.Load() {
					return how
				}
				return none
			})
			f.send("/t/1", "hello")
			var early, wrote error
			r := start(t, nil, func(ctx context.Context, c *Claim) error {
				if !sick.Load() {
					return nil
				}
				<-ctx.Done()
				if until := f.look("/t/1").until; !time.Now().Before(until) {
					early = fmt.Errorf("the context ended %v after the lease", time.Since(until))
				}
				before := f.count("append")
				wrote = c.Append(c.base, text("a", "late"))
				if f.count("append") != before {
					t.Error("an append was sent after the claim was lost")
				}
				sick.Store(false)
				return ctx.Err()
			}, f)
			if lost := r.until(Lost); !errors.Is(lost.Err, ErrLost) || early != nil || !errors.Is(wrote, ErrLost) {
				t.Errorf("lost %v, early %v, wrote %v", lost.Err, early, wrote)
			}
			eventually(t, "the next claim", func() bool { f.reap(); return len(f.look("/t/1").history) >= 4 })
			if got := f.look("/t/1").history; !slices.Equal(got, []string{"granted 1", "expired 1", "granted 2", "released 2"}) {
				t.Error(got)
			}
		})
	}
}

func TestARefusedHeartbeatEndsTheWorkAtOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.lease, f.code = 6*time.Second, "FENCED"
	f.status["heartbeat"] = 409
	f.send("/t/1", "hello")
	r := start(t, nil, func(ctx context.Context, _ *Claim) error { <-ctx.Done(); return ctx.Err() }, f)
	if lost := r.until(Lost); call.Code(lost.Err) != "FENCED" || lost.Took > 4*time.Second {
		t.Errorf("%+v", lost)
	}
	if f.count("release") != 0 || f.count("heartbeat") != 1 {
		t.Error("it went on after it had lost")
	}
}

// A handler that does not heed its context keeps its entity: the next wake waits until it is out.
func TestAnEntityIsNeverWorkedTwiceAtOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.lease = 500 * time.Millisecond
	f.set(func(op string, _ *http.Request) fault {
		if op == "heartbeat" && f.look("/t/1").epoch == 1 {
			return refuse
		}
		return none
	})
	f.send("/t/1", "hello")
	var inside, twice atomic.Int32
	free := make(chan struct{})
	r := start(t, nil, func(_ context.Context, c *Claim) error {
		if c.Entity() != "/t/1" {
			return nil
		}
		if inside.Add(1) > 1 {
			twice.Add(1)
		}
		defer inside.Add(-1)
		if c.Epoch() == 1 {
			<-free
		}
		return nil
	}, f)
	r.until(Claimed)
	eventually(t, "a second wake", func() bool { f.reap(); return f.look("/t/1").epoch == 2 })
	f.send("/t/2", "behind it")
	eventually(t, "the second wake was read", func() bool { return f.look("/t/2").acked > 0 })
	close(free)
	r.until(Lost)
	eventually(t, "the second run", func() bool { return slices.Contains(f.look("/t/1").history, "released 2") })
	if twice.Load() != 0 {
		t.Error("two runs at once")
	}
}

func TestDuplicatedAndReorderedWakesAreHarmless(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	again := func(epoch int64) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.push(wakePath, f.wake("/t/1/main", epoch))
	}
	hold, entered := make(chan struct{}), make(chan int64, 10)
	r := start(t, nil, func(_ context.Context, c *Claim) error {
		entered <- c.Epoch()
		if c.Epoch() == 1 {
			<-hold
		}
		return nil
	}, f)
	f.mu.Lock()
	f.push(wakePath, []byte(`{"type":"note"}`))
	f.push(wakePath, []byte(`"text"`))
	f.push(wakePath, []byte(`{"type":"wake","generation":"x"}`))
	f.mu.Unlock()
	f.send("/t/1", "one")
	<-entered
	again(1)
	again(1)
	f.send("/t/1", "two") // rides with the claim
	close(hold)
	r.until(Done)
	f.send("/t/1", "three")
	r.until(Done)
	again(1)
	again(2)
	again(1)
	f.send("/t/2", "mark")
	eventually(t, "the mark", func() bool { return f.look("/t/2").acked == 1 })
	last := f.look("/t/1")
	var grants int
	for _, h := range last.history {
		if strings.HasPrefix(h, "granted") {
			grants++
		}
	}
	if int64(grants) != last.epoch || last.acked != 3 {
		t.Errorf("%+v", last)
	}
	if claims := f.count("claim"); claims != grants+1 {
		t.Errorf("%d claims were asked for %d grants", claims, grants+1)
	}
}

func TestALoserMovesOn(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"EPOCH_HELD", "ALREADY_CLAIMED", "NO_PENDING_WORK", "FENCED", "NOT_RUNNING"} {
		f := newFake(t)
		f.status["claim"], f.code = 409, code
		f.send("/t/1", "hello")
		dir := CursorDir(t.TempDir())
		r := start(t, func(c *Config) { c.Cursors = dir }, func(context.Context, *Claim) error { t.Error("it ran"); return nil }, f)
		if e := r.until(Refused); call.Code(e.Err) != code {
			t.Errorf("%v", e.Err)
		}
		_ = r.end()
		if cur, err := dir.Load("r1", f.srv.URL+" default"); err != nil || cur.Offset != offset(1) || f.count("claim") != 1 {
			t.Errorf("%s: cursor %+v, %v, %d claims", code, cur, err, f.count("claim"))
		}
	}
}

func TestAFullRunnerIsAskedForAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.status["claim"], f.code = 409, "RUNNER_FULL"
	f.send("/t/1", "hello")
	r := start(t, nil, func(context.Context, *Claim) error { return nil }, f)
	eventually(t, "a second attempt", func() bool { return f.count("claim") >= 2 })
	f.mu.Lock()
	delete(f.status, "claim")
	f.mu.Unlock()
	r.until(Done)
}

func TestATailThatIsCutLosesNothing(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r := start(t, nil, func(context.Context, *Claim) error { return nil }, f)
	r.until(Connected)
	for i := range 10 {
		f.send(fmt.Sprintf("/t/%d", i), "x")
		f.cutTails()
	}
	for i := range 10 {
		eventually(t, "each entity is worked", func() bool { return f.look(fmt.Sprintf("/t/%d", i)).acked == 1 })
		if got := f.look(fmt.Sprintf("/t/%d", i)).history; len(got) != 2 {
			t.Error(got)
		}
	}
}

func TestCapacityAndParallelism(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.lease = 5 * time.Second
	for i := range 12 {
		f.send(fmt.Sprintf("/t/%d", i), "x")
	}
	var inside, most atomic.Int32
	full := make(chan struct{})
	r := start(t, func(c *Config) { c.Capacity = 3 }, func(ctx context.Context, _ *Claim) error {
		n := inside.Add(1)
		defer inside.Add(-1)
		if n > most.Load() {
			most.Store(n)
		}
		if n == 3 {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		<-full
		return nil
	}, f)
	for range 12 {
		r.until(Done)
	}
	if most.Load() != 3 {
		t.Errorf("at most %d at once", most.Load())
	}
}

func TestARunnerThatIsCutOffClaimsNothing(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var sick atomic.Bool
	f.set(func(op string, _ *http.Request) fault {
		if op == "alive" && sick.Load() {
			return refuse
		}
		return none
	})
	r := start(t, func(c *Config) { c.Liveness = 20 * time.Millisecond }, func(context.Context, *Claim) error { return nil }, f)
	r.until(Connected)
	sick.Store(true)
	n := f.count("alive")
	eventually(t, "two heartbeats fail", func() bool { return f.count("alive") >= n+2 })
	f.send("/t/1", "x")
	n = f.count("alive")
	eventually(t, "two more fail", func() bool { return f.count("alive") >= n+2 })
	if f.count("claim") != 0 {
		t.Error("it claimed")
	}
	sick.Store(false)
	r.until(Done)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"error": func() error { return errBroken },
		"panic": func() error { panic(errBroken) },
		"exit":  func() error { runtime.Goexit(); return nil },
		"long":  func() error { return errors.New("broken " + strings.Repeat("ü", 3000)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.send("/t/1", "hello")
			r := start(t, nil, func(context.Context, *Claim) error { return fail() }, f)
			r.until(Failed)
			c := f.look("/t/1")
			if c.failure == nil || (name != "exit" && !strings.Contains(*c.failure, "broken")) || len(*c.failure) > maxFailure || c.acked != 1 {
				t.Errorf("%+v", c)
			}
			if got := f.texts("/t/1/error"); len(got) != 1 || !strings.HasPrefix(got[0], "error map[epoch:1 message:") {
				t.Errorf("%v", got)
			}
		})
	}
}

func TestFailedRunsMayComeAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.send("/t/1", "hello")
	r := start(t, func(c *Config) { c.LeaveFailed = true }, func(_ context.Context, c *Claim) error {
		if c.Epoch() < 3 {
			return errBroken
		}
		return nil
	}, f)
	r.until(Done)
	if got := f.look("/t/1").history; !slices.Equal(got, []string{"granted 1", "failed 1", "granted 2", "failed 2", "granted 3", "released 3"}) {
		t.Error(got)
	}
}

func TestARefusedEventIsTheHandlersToHandle(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.send("/t/1", "hello")
	var refused error
	r := start(t, nil, func(ctx context.Context, c *Claim) error {
		refused = c.Append(ctx, text("a", "bad event"))
		if err := c.Append(ctx, make(chan int)); err == nil {
			t.Error("what is no JSON was taken")
		}
		return c.Append(ctx, text("b", "good"))
	}, f)
	r.until(Done)
	if call.Code(refused) != "SCHEMA_VALIDATION_FAILED" {
		t.Error(refused)
	}
	if got := f.texts("/t/1/main"); !slices.Equal(got, []string{"inbox hello", "text good"}) {
		t.Error(got)
	}
}

func TestAWrongAckDoesNotKeepTheLease(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.lease = 10 * time.Second
	f.send("/t/1", "hello")
	r := start(t, func(c *Config) { c.LeaveFailed = true }, func(ctx context.Context, c *Claim) error {
		if c.Epoch() > 1 {
			return nil
		}
		c.setRead("/t/1/main", offset(99))
		return nil
	}, f)
	r.until(Done)
	r.until(Done)
	if got := f.look("/t/1").history; !slices.Equal(got, []string{"granted 1", "failed 1", "granted 2", "released 2"}) {
		t.Error(got)
	}
}

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
