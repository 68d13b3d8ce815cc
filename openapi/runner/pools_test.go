package runner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// A runner reads the wake streams of its pools as long as it is in them, each with a cursor of its own, and says as whom
// it reads.
func TestPoolsAreRead(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.via["/t/1"], f.via["/t/2"], f.via["/t/3"] = "a", "b", "a"
	f.pools["a"] = "active"
	dir := CursorDir(t.TempDir())
	run := func() *rig {
		return start(t, func(c *Config) { c.Cursors = dir }, func(ctx context.Context, c *Claim) error {
			_, err := collect(ctx, c)
			return err
		}, f)
	}
	r := run()
	f.send("/t/0", "its own")
	f.send("/t/1", "of a")
	f.send("/t/2", "of b")
	got := []string{r.until(Done).Entity, r.until(Done).Entity}
	slices.Sort(got)
	if !slices.Equal(got, []string{"/t/0", "/t/1"}) || f.look("/t/2").state != "waking" {
		t.Errorf("%v", got)
	}
	// It learns of another pool by a heartbeat.
	f.put("b", "active")
	if e := r.until(Done).Entity; e != "/t/2" {
		t.Error(e)
	}
	// And of one that it is out of: nothing of it is claimed any more.
	f.put("a", "disabled")
	tails := func() (n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.readers)
	}
	n := f.count("alive")
	eventually(t, "two more heartbeats", func() bool { return f.count("alive") >= n+2 })
	f.send("/t/3", "while it is out")
	f.send("/t/2", "again")
	if e := r.until(Done).Entity; e != "/t/2" || f.look("/t/3").state != "waking" {
		t.Error(e, f.look("/t/3"))
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if before := tails(); before != 2 || f.readers[0] != "r1" || f.readers[1] != "r1" {
		t.Errorf("pools' wake streams were read as %q", f.readers)
	}
	if c, err := dir.Load("r1", f.srv.URL+" default worker-pool a"); err != nil || c.Offset != offset(1) {
		t.Errorf("%+v %v", c, err)
	}
	if c, err := dir.Load("r1", f.srv.URL+" default worker-pool b"); err != nil || c.Offset != offset(2) {
		t.Errorf("%+v %v", c, err)
	}
	// The next process goes on where this one stopped.
	f.put("a", "active")
	claims := f.count("claim")
	r = run()
	if e := r.until(Done).Entity; e != "/t/3" {
		t.Error(e)
	}
	if n := f.count("claim") - claims; n != 1 {
		t.Errorf("%d claims for one wake", n)
	}
}

// Told on its wake stream that it is in another pool, a runner asks which at once, and goes on claiming meanwhile.
func TestARunnerIsToldOfAPool(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.via["/t/1"] = "a"
	r := start(t, func(c *Config) { c.Liveness = time.Hour }, func(context.Context, *Claim) error { return nil }, f)
	r.until(Connected)
	n := f.count("alive")
	f.send("/t/1", "of a")
	f.put("a", "active")
	for range 20 {
		f.tell()
	}
	if e := r.until(Done).Entity; e != "/t/1" {
		t.Error(e)
	}
	if n := f.count("alive") - n; n < 1 || n > 20 {
		t.Errorf("%d heartbeats", n)
	}
	f.put("a", "disabled")
	n = f.count("alive")
	f.tell()
	eventually(t, "it asks again", func() bool { return f.count("alive") > n })
	f.send("/t/2", "its own")
	if e := r.until(Done).Entity; e != "/t/2" {
		t.Error(e)
	}
}

func TestJoiningPools(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status, token string
		shown         []string
		refused       bool
	}{
		"already in":            {"active", "old", nil, false},
		"drained":               {"disabled", "old", nil, false},
		"invited":               {"invited", "old", []string{""}, false},
		"by a token":            {"", "let me in", []string{"let me in"}, false},
		"neither":               {"", "", []string{""}, true},
		"by a token that is no": {"", "old", []string{"old"}, true},
	} {
		f := newFake(t)
		f.pools["a"] = tc.status
		r := start(t, func(c *Config) { c.Pools = []Pool{{ID: "a", JoinToken: tc.token}} }, func(context.Context, *Claim) error { return nil }, f)
		if tc.refused {
			if err := r.wait(); err == nil || !strings.Contains(err.Error(), "cannot join the pool a") {
				t.Errorf("%s: %v", name, err)
			}
		} else {
			r.until(Connected)
			if err := r.end(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if !slices.Equal(f.tokens, tc.shown) {
			t.Errorf("%s: it showed %q", name, f.tokens)
		}
	}
	_, err := New(Config{ID: "r1", Servers: []Server{{URL: "http://x"}}, Handler: func(context.Context, *Claim) error { return nil }, Pools: []Pool{{}}})
	if err == nil || !strings.Contains(err.Error(), "pool") {
		t.Error(err)
	}
}

// Where others are faster, or the pool has no room, one question answers for all that was told before; the gateway tells
// of what is left once there is room.
func TestAnEmptyPoolIsNotAskedOverAndOver(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.pools["a"] = "active"
	for i := range 50 {
		f.via[fmt.Sprintf("/t/%d", i)] = "a"
		f.send(fmt.Sprintf("/t/%d", i), "hello")
		f.mu.Lock()
		f.consumer(fmt.Sprintf("/t/%d/main", i)).state = "claimed" // by somebody else
		f.consumer(fmt.Sprintf("/t/%d/main", i)).until = time.Now().Add(time.Hour)
		f.mu.Unlock()
	}
	dir := CursorDir(t.TempDir())
	r := start(t, func(c *Config) { c.Cursors = dir }, func(ctx context.Context, c *Claim) error {
		_, err := collect(ctx, c)
		return err
	}, f)
	eventually(t, "it asks", func() bool { return f.count("claim") > 0 })
	n := f.count("alive")
	eventually(t, "two more heartbeats", func() bool { return f.count("alive") >= n+2 })
	if n := f.count("claim"); n > 8 { // as many as it may work at once, and a few that were told of a little later
		t.Errorf("%d claims for what is gone", n)
	}
	if c, err := dir.Load("r1", f.srv.URL+" default worker-pool a"); err != nil || c.Offset != offset(50) {
		t.Errorf("the cursor stays at %+v %v", c, err)
	}
	f.mu.Lock()
	f.consumer("/t/7/main").state = "waking"
	f.push(poolPath("a"), f.wake("/t/7/main", 1)) // the same wake again
	f.mu.Unlock()
	if e := r.until(Done); e.Entity != "/t/7" {
		t.Errorf("%+v", e)
	}
}

// A refusal is not taken for an answer: it is asked again, a little later each time.
func TestWhatIsRefusedIsAskedForAgainLater(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"RUNNER_FULL", "OVERLOADED"} {
		f := newFake(t)
		f.via["/t/1"], f.pools["a"] = "a", "active"
		f.mu.Lock()
		f.status["claim"], f.code = 409, code
		f.mu.Unlock()
		r := start(t, nil, func(ctx context.Context, c *Claim) error {
			_, err := collect(ctx, c)
			return err
		}, f)
		f.send("/t/1", "hello")
		eventually(t, "it asks again", func() bool { return f.count("claim") > 2 })
		n := f.count("alive")
		eventually(t, "two more heartbeats", func() bool { return f.count("alive") >= n+2 })
		if n := f.count("claim"); n > 20 {
			t.Errorf("%s: %d claims", code, n)
		}
		f.mu.Lock()
		delete(f.status, "claim")
		f.mu.Unlock()
		r.until(Done)
	}
}

// Many entities of a pool and of its own: each is worked once at a time, none is left, whoever was faster.
func TestPoolAndOwnWorkTogether(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.pools["a"] = "active"
	for i := range 30 {
		if i%3 > 0 {
			f.via[fmt.Sprintf("/t/%d", i)] = "a"
		}
	}
	var busy sync.Map
	r := start(t, func(c *Config) { c.Capacity = 3 }, func(ctx context.Context, c *Claim) error {
		if _, twice := busy.LoadOrStore(c.Entity(), true); twice {
			t.Errorf("%s is worked twice at once", c.Entity())
		}
		defer busy.Delete(c.Entity())
		_, err := collect(ctx, c)
		return err
	}, f)
	for round := range 3 {
		for i := range 30 {
			f.send(fmt.Sprintf("/t/%d", i), fmt.Sprint(round))
		}
	}
	eventually(t, "all is worked", func() bool {
		for i := range 30 {
			if c := f.look(fmt.Sprintf("/t/%d", i)); c.acked != 3 || c.state != "idle" {
				return false
			}
		}
		return true
	})
	if err := r.end(); err != nil {
		t.Error(err)
	}
	for i := range 30 {
		for _, h := range f.look(fmt.Sprintf("/t/%d", i)).history {
			if strings.HasPrefix(h, "expired") || strings.HasPrefix(h, "failed") {
				t.Errorf("/t/%d: %s", i, h)
			}
		}
	}
}

// Who is asked for a claim, on the wake stream or in an answer, stops at once and gives it back: what was not acked stays
// unread.
func TestAClaimIsHandedOver(t *testing.T) {
	t.Parallel()
	for _, entry := range []bool{true, false} {
		f := newFake(t)
		f.send("/t/1", "first")
		f.send("/t/1", "second")
		started := make(chan error, 1)
		r := start(t, nil, func(ctx context.Context, c *Claim) error {
			if c.Epoch() > 1 { // what it becomes here is not looked at
				<-ctx.Done()
				return context.Cause(ctx)
			}
			if _, err := collect(ctx, c); err != nil {
				return err
			}
			started <- c.Ack(ctx, offset(1))
			<-ctx.Done()
			return context.Cause(ctx)
		}, f)
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		f.recall("/t/1", entry)
		began := time.Now()
		e := r.until(Returned)
		if !errors.Is(e.Err, ErrMoved) || e.Entity != "/t/1" || time.Since(began) > 10*time.Second {
			t.Errorf("%+v", e)
		}
		if c := f.look("/t/1"); c.acked != 1 || !slices.Equal(c.history[:2], []string{"granted 1", "released 1"}) {
			t.Errorf("%+v", c)
		}
	}
}

// A handler that is done by the time it is asked has done its work; a request for a claim that is over asks nobody.
func TestAClaimThatIsDoneIsNotReturned(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.send("/t/1", "first")
	asked := make(chan struct{})
	r := start(t, nil, func(ctx context.Context, c *Claim) error {
		if _, err := collect(ctx, c); err != nil {
			return err
		}
		if c.Epoch() == 1 {
			close(asked)
			<-ctx.Done()
		}
		return nil
	}, f)
	<-asked
	f.recall("/t/1", true)
	r.until(Done)
	if c := f.look("/t/1"); !slices.Equal(c.history, []string{"granted 1", "released 1"}) || c.acked != 1 {
		t.Errorf("%+v", c)
	}
	f.recall("/t/1", true)
	f.send("/t/1", "second")
	if e := r.until(Done); e.Epoch != 2 {
		t.Errorf("%+v", e)
	}
}

func TestParseRelease(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"type":"release","wakeId":"w","epoch":3,"releaseBy":"2030-01-01T00:00:00Z"}`: "w",
		`{"type":"release"}`: "", `{"type":"wake","wakeId":"w"}`: "", `[]`: "", ``: "", `{"type":"release","wakeId":7}`: "",
	} {
		if id, ok := parseRelease([]byte(raw)); id != want || ok != (want != "") {
			t.Errorf("%s: %q %v", raw, id, ok)
		}
	}
}

// Another gateway's streams are not asked as whom they are read.
func TestOnlyPoolsAreReadAsAMember(t *testing.T) {
	t.Parallel()
	w := &wire{id: "r1"}
	for path, want := range map[string]string{
		"/worker-pools/a/wake?live=sse": "live=sse&runner=r1", "/base/v1/stream/worker-pools/a/wake": "runner=r1",
		"/runners/r1/wake?offset=-1": "offset=-1", "/chat/1/main": "", "/chat/worker-pools/main": "",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.asMember(t.Context(), req); err != nil || req.URL.RawQuery != want {
			t.Errorf("%s: %q %v", path, req.URL.RawQuery, err)
		}
	}
}
