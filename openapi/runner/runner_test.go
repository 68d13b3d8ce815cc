package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
