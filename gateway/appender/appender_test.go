package appender_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/appender"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const plain = "text/plain"

func start(t *testing.T, dsn string, hub appender.Hub, tune func(*appender.Config)) (*appender.Appender, *store.Store) {
	t.Helper()
	st, err := store.Open(t.Context(), store.Options{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	cfg := appender.Config{Store: st, Hub: hub}
	if tune != nil {
		tune(&cfg)
	}
	a := appender.New(t.Context(), cfg)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		_ = a.Stop(ctx)
		st.Close()
	})
	return a, st
}

func create(t *testing.T, st *store.Store, path string) int64 {
	t.Helper()
	m, err := st.StreamCreate(t.Context(), store.CreateRequest{Service: 1, Path: path, ContentType: plain, Count: 1})
	if err != nil || m.Outcome != store.Created {
		t.Fatalf("create %s: %s %v", path, m.Outcome, err)
	}
	return m.ID
}

func content(t *testing.T, st *store.Store, path string) string {
	t.Helper()
	from := int64(0)
	p, err := st.StreamRead(t.Context(), store.ReadRequest{Service: 1, Path: path, From: &from, MaxBytes: 1 << 20, MaxRows: 1 << 20})
	if err != nil || p.Outcome != store.OK || p.Next != p.Tail {
		t.Fatalf("read %s: %s %v", path, p.Outcome, err)
	}
	return string(p.Data)
}

// Many producers over few streams, plain appends between: everything lands
// once, each producer's in order, each position answered is where it lies.
func TestConcurrentAppendsLandOnceInOrder(t *testing.T) {
	t.Parallel()
	a, st := start(t, pgtest.New(t).DSN, feed.NewHub(), nil)
	const streams, writers, each = 4, 16, 40
	for i := range streams {
		create(t, st, fmt.Sprintf("s%d", i))
	}
	type landed struct {
		position int64
		text     string
	}
	var mu sync.Mutex
	at := map[string][]landed{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			path := fmt.Sprintf("s%d", w%streams)
			for i := range each {
				text := fmt.Sprintf("<%d.%d>", w, i)
				item := store.AppendItem{Service: 1, Path: path, Type: plain, Payload: []byte(text), Count: 1}
				if w%2 == 0 {
					item.Producer = &store.Producer{ID: fmt.Sprint(w), Seq: int64(i)}
				}
				res, err := a.Append(t.Context(), item)
				if err != nil || res.Outcome != store.Appended {
					t.Errorf("%s: %s %v", text, res.Outcome, err)
					return
				}
				mu.Lock()
				at[path] = append(at[path], landed{res.Position, text})
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	for path, all := range at {
		text := content(t, st, path)
		total := 0
		for _, l := range all {
			total += len(l.text)
			if got := text[l.position-int64(len(l.text)) : l.position]; got != l.text {
				t.Fatalf("%s: at %d lies %q, want %q", path, l.position, got, l.text)
			}
		}
		if total != len(text) {
			t.Fatalf("%s holds %d bytes, %d were appended", path, len(text), total)
		}
		for w := range writers {
			last := -1
			for i := range each {
				if p := strings.Index(text, fmt.Sprintf("<%d.%d>", w, i)); p >= 0 {
					if p < last {
						t.Fatalf("writer %d is out of order in %s", w, path)
					}
					last = p
				}
			}
		}
	}
}

func TestALockedStreamWaitsAsideAndKeepsItsOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, st := start(t, db.DSN, feed.NewHub(), nil)
	create(t, st, "slow")
	create(t, st, "fast")
	tx, err := db.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select 1 from rouse.streams where path = 'slow' for update`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 10)
	begun := make(chan struct{})
	go func() {
		for i := range 10 {
			go func() {
				item := store.AppendItem{Service: 1, Path: "slow", Type: plain, Payload: []byte(fmt.Sprint(i)), Count: 1}
				res, err := a.Append(t.Context(), item)
				if err == nil && res.Outcome != store.Appended {
					err = errors.New(string(res.Outcome))
				}
				done <- err
			}()
		}
		close(begun)
	}()
	<-begun
	for range 50 {
		res, err := a.Append(t.Context(), store.AppendItem{Service: 1, Path: "fast", Type: plain, Payload: []byte("x"), Count: 1})
		if err != nil || res.Outcome != store.Appended {
			t.Fatalf("beside a locked stream: %s %v", res.Outcome, err)
		}
	}
	select {
	case err := <-done:
		t.Fatalf("an append to the locked stream came through: %v", err)
	default:
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if got := content(t, st, "slow"); len(got) != 10 {
		t.Fatalf("content %q", got)
	}
}

type published struct {
	mu  sync.Mutex
	got []string
}

func (p *published) Publish(stream, tail int64, flags feed.Flags) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, fmt.Sprintf("%d:%d:%d", stream, tail, flags))
}

func TestReadersAreToldAfterTheCommitOnly(t *testing.T) {
	t.Parallel()
	hub := &published{}
	a, st := start(t, pgtest.New(t).DSN, hub, nil)
	id := create(t, st, "a")
	for _, item := range []store.AppendItem{
		{Path: "a", Type: plain, Payload: []byte("one")},
		{Path: "a", Type: "text/html", Payload: []byte("no")},
		{Path: "none", Type: plain, Payload: []byte("no")},
		{Path: "a", Type: plain, Payload: []byte("two"), Close: true},
		{Path: "a", Close: true},
	} {
		item.Service, item.Count = 1, 1
		if _, err := a.Append(t.Context(), item); err != nil {
			t.Fatal(err)
		}
	}
	if want := fmt.Sprintf("[%d:3:0 %d:6:2]", id, id); fmt.Sprint(hub.got) != want {
		t.Fatalf("published %v, want %s", hub.got, want)
	}
}

// watching remembers what it is told of the streams it watches.
type watching struct {
	mu     sync.Mutex
	stream int64
	got    []appender.Fresh
}

func (w *watching) Watched(stream int64) bool { return stream == w.stream }

func (w *watching) Fresh(f appender.Fresh) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got = append(w.got, f)
}

// What readers are told is the stream, stretch by stretch, whatever shares the
// transactions.
func TestReadersAreToldWhatWasAppended(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a, st := start(t, db.DSN, feed.NewHub(), nil)
	w := &watching{stream: create(t, st, "a")}
	create(t, st, "b")
	a.Attach(w)
	other, _ := start(t, db.DSN, feed.NewHub(), nil)
	var wg sync.WaitGroup
	for k := range 12 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 20 {
				item := store.AppendItem{Service: 1, Path: []string{"a", "a", "b"}[k%3], Type: plain, Payload: []byte(fmt.Sprintf("<%d.%d>", k, i)), Count: 1}
				if k%4 == 0 {
					item.Producer = &store.Producer{ID: fmt.Sprint(k), Seq: int64(i)}
				}
				to := a
				if k == 10 {
					to = other // another gateway leaves gaps
				}
				if res, err := to.Append(t.Context(), item); err != nil || res.Outcome != store.Appended {
					t.Errorf("%s %v", res.Outcome, err)
				}
			}
		}()
	}
	wg.Wait()
	text := content(t, st, "a")
	told := 0
	for _, f := range w.got {
		var joined strings.Builder
		for _, i := range f.Items {
			joined.Write(i.Payload)
		}
		if f.Stream != w.stream || joined.String() != text[f.From:f.To] {
			t.Fatalf("told %q between %d and %d, where %q lies", joined.String(), f.From, f.To, text[f.From:f.To])
		}
		told += len(f.Items)
	}
	if told != 140 {
		t.Fatalf("told of %d appends", told)
	}
}

// flaky breaks like a connection does.
type flaky struct {
	appender.Database
	err error
}

func (f *flaky) StreamAppend(context.Context, []store.AppendItem, bool) ([]store.AppendResult, error) {
	return nil, f.err
}

func TestAnOutageIsAnErrorForAll(t *testing.T) {
	t.Parallel()
	a, st := start(t, pgtest.New(t).DSN, feed.NewHub(), func(c *appender.Config) {
		c.Store = &flaky{err: problem.New(problem.DatabaseUnavailable, "away")}
	})
	create(t, st, "a")
	_, err := a.Append(t.Context(), store.AppendItem{Service: 1, Path: "a", Type: plain, Payload: []byte("x")})
	if problem.CodeOf(err) != problem.DatabaseUnavailable {
		t.Fatalf("error %v", err)
	}
}

type hanging struct{ release chan struct{} }

func (h hanging) StreamAppend(_ context.Context, items []store.AppendItem, _ bool) ([]store.AppendResult, error) {
	<-h.release
	return make([]store.AppendResult, len(items)), nil
}

// Nobody waits for ever for a database that does not answer, and what waits for
// it is bounded in bytes.
func TestAnAppendIsBoundedInTimeAndBytes(t *testing.T) {
	t.Parallel()
	db := hanging{make(chan struct{})}
	ap := appender.New(t.Context(), appender.Config{Store: db, Hub: &published{}, Timeout: 20 * time.Millisecond, MaxQueueBytes: 100})
	item := store.AppendItem{Service: 1, Path: "a", Payload: make([]byte, 60)}
	if _, err := ap.Append(context.WithoutCancel(t.Context()), item); problem.CodeOf(err) != problem.DatabaseTimeout {
		t.Errorf("the database hangs: %v", err)
	}
	if _, err := ap.Append(t.Context(), item); problem.CodeOf(err) != problem.Overloaded {
		t.Errorf("beyond the bytes: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	small := item
	small.Payload = item.Payload[:1]
	if _, err := ap.Append(gone, small); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that left: %v", err)
	}
	close(db.release)
	if err := ap.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStoppingRefusesAndFinishes(t *testing.T) {
	t.Parallel()
	a, st := start(t, pgtest.New(t).DSN, feed.NewHub(), nil)
	create(t, st, "a")
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Append(t.Context(), store.AppendItem{Service: 1, Path: "a", Type: plain, Payload: []byte("x")}); problem.CodeOf(err) != problem.ServerStopping {
		t.Fatalf("error %v", err)
	}
}
