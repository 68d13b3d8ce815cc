package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fault is what a test makes of a request.
type fault int

const (
	none   fault = iota
	refuse       // answers 503 and does nothing
	cut          // does it, then cuts the connection before the answer
	hang         // does nothing and does not answer
)

// fake is a gateway in memory: one runner, streams, and the mutex's rules, so far as a runner can tell.
type fake struct {
	t       *testing.T
	srv     *httptest.Server
	mu      sync.Mutex
	changed chan struct{}
	streams map[string]*fakeStream
	subject map[string]*fakeConsumer
	lease   time.Duration
	born    string
	// meddle decides about each request; by its operation: register lookup alive tail read append claim acquire
	// heartbeat ack release.
	meddle func(op string, r *http.Request) fault
	status map[string]int // by operation: answer this instead
	code   string
	ops    []string
	ends   int // connections of the tail that were ended
	// pools that the runner is in, by id: its status there. via are the entities whose wakes go to a pool.
	pools   map[string]string
	via     map[string]string
	readers []string // of pools' wake streams: what they said they were
	asked   map[string]bool
	tokens  []string // shown to join
}

type fakeStream struct {
	messages  []json.RawMessage
	producers map[string]int64 // id/epoch → next sequence
}

type fakeConsumer struct {
	epoch   int64
	state   string // idle waking claimed
	claimID string
	until   time.Time
	acked   int
	wanted  int // position of the last actionable message
	failure *string
	history []string // of the mutex: granted, released, failed, expired with their epochs
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, changed: make(chan struct{}), streams: map[string]*fakeStream{}, subject: map[string]*fakeConsumer{},
		pools: map[string]string{}, via: map[string]string{}, asked: map[string]bool{}, lease: 1500 * time.Millisecond, born: "2026-01-01T00:00:00Z", status: map[string]int{}, meddle: func(string, *http.Request) fault { return none }}
	f.srv = httptest.NewServer(f)
	t.Cleanup(func() {
		f.srv.CloseClientConnections()
		f.srv.Close()
	})
	return f
}

const wakePath = "/runners/r1/wake"

func offset(n int) string { return fmt.Sprintf("%016d_%016d", 0, n) }

func position(s string) int {
	if s == "-1" {
		return 0
	}
	n, _ := strconv.Atoi(s[strings.IndexByte(s, '_')+1:])
	return n
}

func (f *fake) stream(path string) *fakeStream {
	if f.streams[path] == nil {
		f.streams[path] = &fakeStream{producers: map[string]int64{}}
	}
	return f.streams[path]
}

// push appends a message; the caller holds the lock.
func (f *fake) push(path string, m json.RawMessage) int {
	s := f.stream(path)
	s.messages = append(s.messages, m)
	close(f.changed)
	f.changed = make(chan struct{})
	return len(s.messages)
}

func (f *fake) row(path, typ, key, value string) int {
	n := len(f.stream(path).messages) + 1
	return f.push(path, json.RawMessage(fmt.Sprintf(`{"headers":{"operation":"insert","offset":%q},"type":%q,"key":%q,"value":%s}`, offset(n), typ, key, value)))
}

// send puts a message into an entity and wakes its owner.
func (f *fake) send(entity, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	path := entity + "/main"
	c := f.consumer(path)
	c.wanted = f.row(path, "inbox", text, strconv.Quote(text))
	f.settle(path, c)
}

func (f *fake) consumer(path string) *fakeConsumer {
	if f.subject[path] == nil {
		f.subject[path] = &fakeConsumer{state: "idle"}
	}
	return f.subject[path]
}

// settle ends a lapsed lease and mints a wake where work is left.
func (f *fake) settle(path string, c *fakeConsumer) {
	if c.state == "claimed" && time.Now().After(c.until) {
		c.state = "idle"
		c.history = append(c.history, fmt.Sprintf("expired %d", c.epoch))
	}
	if c.state == "idle" && c.wanted > c.acked {
		c.epoch++
		c.state = "waking"
		at := wakePath
		if pool := f.via[strings.TrimSuffix(path, "/main")]; pool != "" {
			at = poolPath(pool)
		}
		f.push(at, f.wake(path, c.epoch))
	}
}

func wakeID(path string, epoch int64) string {
	return fmt.Sprintf("%s@%d", strings.ReplaceAll(path, "/", "."), epoch)
}

func (f *fake) wake(path string, epoch int64) json.RawMessage {
	m := f.notification(path, epoch)
	m["type"], m["stream"], m["generation"] = "wake", path[1:], epoch
	m["claimToken"] = fmt.Sprintf("ct %s", wakeID(path, epoch))
	raw, _ := json.Marshal(m)
	return raw
}

func (f *fake) notification(path string, epoch int64) map[string]any {
	c := f.consumer(path)
	url := strings.TrimSuffix(path, "/main")
	return map[string]any{"consumerId": "c" + path, "epoch": epoch, "wakeId": wakeID(path, epoch), "streamPath": path,
		"streams": []any{map[string]any{"path": path, "offset": offset(len(f.stream(path).messages)), "ackedOffset": offset(c.acked)}},
		"entity":  map[string]any{"url": url, "type": "t", "spawnArgs": map[string]any{}}}
}

// reap lets leases lapse.
func (f *fake) reap() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for path, c := range f.subject {
		f.settle(path, c)
	}
}

func (f *fake) look(entity string) fakeConsumer {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := *f.consumer(entity + "/main")
	c.history = slices.Clone(c.history)
	return c
}

func (f *fake) texts(path string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, m := range f.stream(path).messages {
		var v struct {
			Type  string
			Value any
		}
		_ = json.Unmarshal(m, &v)
		out = append(out, fmt.Sprintf("%s %v", v.Type, v.Value))
	}
	return out
}

func (f *fake) count(op string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.ops {
		if o == op {
			n++
		}
	}
	return n
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	path := strings.TrimPrefix(r.URL.Path, "/v1/stream")
	op, do := f.route(w, r, path, body)
	f.mu.Lock()
	f.ops = append(f.ops, op)
	status, code, meddle := f.status[op], f.code, f.meddle
	f.mu.Unlock()
	switch meddle(op, r) {
	case refuse:
		http.Error(w, `{"code":"OVERLOADED"}`, http.StatusServiceUnavailable)
		return
	case hang:
		<-r.Context().Done()
		return
	case cut:
		do(httptest.NewRecorder())
		panic(http.ErrAbortHandler)
	}
	if status != 0 {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"code":%q,"detail":"as told"}`, code)
		return
	}
	do(w)
}

func (f *fake) route(_ http.ResponseWriter, r *http.Request, path string, body []byte) (string, func(http.ResponseWriter)) {
	locked := func(do func() (int, any)) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			f.mu.Lock()
			status, v := do()
			f.mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			if v != nil {
				_ = json.NewEncoder(w).Encode(v)
			}
		}
	}
	runner := map[string]any{"id": "r1", "wake_stream": wakePath, "created_at": f.born, "admin_status": "enabled"}
	switch rest, isWake := strings.CutPrefix(path, "/_electric/wake-callbacks/"); {
	case path == "/_electric/runners":
		return "register", locked(func() (int, any) { return 201, runner })
	case path == "/_electric/runners/r1":
		return "lookup", locked(func() (int, any) { return 200, runner })
	case path == "/_electric/runners/r1/heartbeat":
		return "alive", locked(func() (int, any) {
			runner["pools"] = f.poolDocs(false)
			return 200, runner
		})
	case path == "/_electric/runners/r1/pools":
		return "memberships", locked(func() (int, any) { return 200, f.poolDocs(true) })
	case strings.HasPrefix(path, "/_electric/worker-pools/"):
		pool := strings.TrimSuffix(strings.TrimPrefix(path, "/_electric/worker-pools/"), "/members/r1")
		return "join", locked(func() (int, any) {
			var b struct {
				JoinToken string `json:"join_token"`
			}
			_ = json.Unmarshal(body, &b)
			f.tokens = append(f.tokens, b.JoinToken)
			if f.pools[pool] != "invited" && b.JoinToken != "let me in" {
				return 403, refusal("POOL_FORBIDDEN")
			}
			f.pools[pool] = "active"
			return 200, map[string]any{"runner_id": "r1", "status": "active"}
		})
	case path == "/_electric/runners/r1/claim":
		return "claim", locked(func() (int, any) { return f.claim(body) })
	case isWake:
		var b struct {
			Epoch  int64
			WakeID *string
			Acks   []Position
			Done   bool
			Error  *string
		}
		if json.Unmarshal(body, &b) != nil {
			return "callback", locked(func() (int, any) { return 400, nil })
		}
		token := r.Header.Get("Electric-Claim-Token")
		op := "heartbeat"
		switch {
		case b.WakeID != nil:
			op = "acquire"
		case b.Done:
			op = "release"
		case len(b.Acks) > 0:
			op = "ack"
		}
		return op, locked(func() (int, any) { return f.callback(op, rest, token, b.Epoch, b.Acks, b.Error) })
	case r.Method == http.MethodPost:
		return "append", locked(func() (int, any) { return f.append(path, r, body) })
	case r.URL.Query().Get("live") == "sse":
		return "tail", func(w http.ResponseWriter) {
			if strings.HasPrefix(path, "/worker-pools/") {
				f.mu.Lock()
				f.readers = append(f.readers, r.URL.Query().Get("runner"))
				f.mu.Unlock()
			}
			f.sse(w, r, path)
		}
	}
	return "read", func(w http.ResponseWriter) {
		f.mu.Lock()
		all := f.stream(path).messages
		from := position(r.URL.Query().Get("offset"))
		to := min(from+2, len(all)) // small pages
		part := slices.Clone(all[from:to])
		f.mu.Unlock()
		w.Header().Set("Stream-Next-Offset", offset(to))
		if to == len(all) {
			w.Header().Set("Stream-Up-To-Date", "true")
		}
		_ = json.NewEncoder(w).Encode(part)
	}
}

func refusal(code string) any { return map[string]any{"code": code, "detail": code} }

func (f *fake) claim(body []byte) (int, any) {
	var b struct {
		Stream     string
		Generation int64
		ClaimID    string
	}
	_ = json.Unmarshal(body, &b)
	if b.Stream == "" {
		// What has waited longest, of the runner's own and its pools'.
		for _, at := range f.waiting() {
			return f.claim(json.RawMessage(fmt.Sprintf(`{"stream":%q,"generation":%d,"claimId":%q}`, at[1:], f.subject[at].epoch, b.ClaimID)))
		}
		return 204, nil
	}
	path := "/" + b.Stream
	c := f.consumer(path)
	f.settle(path, c)
	switch {
	case b.Generation != c.epoch:
		return 409, refusal("FENCED")
	case c.state == "claimed" && c.claimID != b.ClaimID:
		return 409, refusal("ALREADY_CLAIMED")
	case c.state == "idle":
		return 409, refusal("NO_PENDING_WORK")
	case c.state == "waking":
		c.state, c.claimID, c.until = "claimed", b.ClaimID, time.Now().Add(f.lease)
		c.history = append(c.history, fmt.Sprintf("granted %d", c.epoch))
	}
	m := f.notification(path, c.epoch)
	m["claimToken"], m["lease_ms"] = "ht "+wakeID(path, c.epoch), time.Until(c.until).Milliseconds()
	return 200, m
}

func (f *fake) callback(op, wake, token string, epoch int64, acks []Position, failure *string) (int, any) {
	var path string
	var c *fakeConsumer
	for p, x := range f.subject {
		if wakeID(p, epoch) == wake {
			path, c = p, x
		}
	}
	if c == nil {
		return 404, refusal("WAKE_CALLBACK_NOT_FOUND")
	}
	f.settle(path, c)
	mine := token == "ht "+wake || token == "wt "+wake
	if !mine && (op != "acquire" || token != "ct "+wake) {
		return 401, refusal("CLAIM_TOKEN_INVALID")
	}
	if epoch != c.epoch {
		return 409, refusal("FENCED")
	}
	if op == "acquire" && !mine {
		if c.state != "waking" {
			return 409, refusal("EPOCH_HELD")
		}
		c.state, c.until = "claimed", time.Now().Add(f.lease)
		c.history = append(c.history, fmt.Sprintf("granted %d", c.epoch))
	}
	if c.state != "claimed" {
		if op == "release" {
			return 200, map[string]any{"ok": true} // a repeat
		}
		return 409, refusal("FENCED")
	}
	for _, a := range acks {
		at := position(a.Offset)
		if at < c.acked || at > len(f.stream(path).messages) {
			return 409, refusal("INVALID_OFFSET")
		}
		c.acked = at
	}
	switch op {
	case "release":
		c.state, c.failure = "idle", failure
		c.history = append(c.history, map[bool]string{true: "released", false: "failed"}[failure == nil]+fmt.Sprintf(" %d", c.epoch))
		f.settle(path, c)
		return 200, map[string]any{"ok": true, "next_wake": c.state == "waking"}
	case "heartbeat", "acquire":
		c.until = time.Now().Add(f.lease)
	}
	a := map[string]any{"ok": true, "lease_ms": time.Until(c.until).Milliseconds()}
	if f.asked[wake] {
		a["release_by"] = time.Now().Add(time.Hour)
	}
	if op == "acquire" {
		a["writeToken"], a["claimToken"] = "wt "+wake, "ht "+wake
	}
	return 200, a
}

func (f *fake) set(meddle func(op string, r *http.Request) fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.meddle = meddle
}

// rig is a runner against fakes.
type rig struct {
	t      *testing.T
	events chan Event
	stop   context.CancelFunc
	ended  chan error
}

func start(t *testing.T, edit func(*Config), h Handler, fakes ...*fake) *rig {
	t.Helper()
	r := &rig{t: t, events: make(chan Event, 4096), ended: make(chan error, 1)}
	cfg := Config{ID: "r1", Handler: h, Liveness: 200 * time.Millisecond, Timeout: 2 * time.Second, Grace: time.Second,
		Log: slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Observe: func(e Event) {
			select {
			case r.events <- e:
			default:
			}
		}}
	for _, f := range fakes {
		cfg.Servers = append(cfg.Servers, Server{URL: f.srv.URL})
	}
	if edit != nil {
		edit(&cfg)
	}
	run, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	done := make(chan struct{})
	go func() { defer close(done); r.ended <- run.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return r
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

// until waits for an event of a kind.
func (r *rig) until(kind EventKind) Event {
	r.t.Helper()
	deadline := time.After(15 * time.Second)
	for {
		select {
		case e := <-r.events:
			if e.Kind == kind {
				return e
			}
		case <-deadline:
			r.t.Fatalf("nothing was %s in 15 s", kind)
		}
	}
}

func (r *rig) end() error {
	r.t.Helper()
	r.stop()
	return r.wait()
}

func (r *rig) wait() error {
	r.t.Helper()
	select {
	case err := <-r.ended:
		r.ended <- err
		return err
	case <-time.After(15 * time.Second):
		r.t.Fatal("the runner does not end")
		return nil
	}
}

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not in 15 s: %s", what)
		}
		<-tick.C
	}
}

// collect reads what is unread.
func collect(ctx context.Context, c *Claim) (out []string, err error) {
	for m, err := range c.Unread(ctx) {
		if err != nil {
			return out, err
		}
		var v struct{ Value any }
		if err := json.Unmarshal(m.Data, &v); err != nil {
			return out, err
		}
		out = append(out, fmt.Sprint(v.Value))
	}
	return out, nil
}

func text(key, value string) any {
	return map[string]any{"headers": map[string]any{"operation": "insert"}, "type": "text", "key": key, "value": value}
}

var errBroken = errors.New("broken")
