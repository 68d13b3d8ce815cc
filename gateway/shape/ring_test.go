package shape

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/feed"
	"github.com/rouse-run/rouse/gateway/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const bound = 20 * time.Second

var userTable = &feed.Table{Schema: schema, Name: "users", Columns: []string{"service_id", "id", "display_name"}, Whole: true}

func value(s string) feed.Value { return feed.Value{Text: s, Kind: feed.Present} }

func userTx(xid uint32, end feed.LSN, bytes int) *feed.RowTx {
	return &feed.RowTx{XID: xid, End: end, Bytes: bytes, Changes: []feed.RowChange{
		{Op: feed.RowInsert, Table: userTable, New: []feed.Value{value("1"), value(fmt.Sprint(xid)), {}}},
	}}
}

func ignore(int32, string, uint32) {}

func ends(v view) (out []uint64) {
	for _, t := range v.txs {
		out = append(out, t.end)
	}
	return out
}

// Memory is bounded: what no longer fits is forgotten, and who would need it is
// told so.
func TestTheRingForgetsItsOldest(t *testing.T) {
	t.Parallel()
	r := newRing(1000, ignore)
	if r.after(0).up {
		t.Fatal("up before a session has begun")
	}
	r.Begin(100)
	for i := range 50 {
		r.Commit(userTx(uint32(i), feed.LSN(200+i*10), 100))
		if r.bytes > 1000 || r.dead > 1000 || len(r.txs) > 10 {
			t.Fatalf("%d bytes, %d dead, %d transactions", r.bytes, r.dead, len(r.txs))
		}
	}
	if v := r.after(100); !v.gone {
		t.Error("the past is not gone")
	}
	if v := r.after(590); v.gone || !slices.Equal(ends(v), []uint64{600, 610, 620, 630, 640, 650, 660, 670, 680, 690}) {
		t.Errorf("from the floor: %v %v", v.gone, ends(v))
	}
	if v := r.after(595); v.gone || len(v.txs) != 10 {
		t.Errorf("between two: %v", ends(v))
	}
	if v := r.after(689); !slices.Equal(ends(v), []uint64{690}) {
		t.Errorf("the last: %v", ends(v))
	}
	if v := r.after(690); v.gone || v.behind || len(v.txs) != 0 || v.reached != 690 {
		t.Errorf("the end: %+v", v)
	}
	if v := r.after(691); !v.behind {
		t.Errorf("beyond the end: %+v", v)
	}
	// Views of before stay what they were.
	old := r.after(680)
	r.Commit(userTx(90, 1000, 900))
	if !slices.Equal(ends(old), []uint64{690}) {
		t.Errorf("a view changed: %v", ends(old))
	}
	// Of a transaction that was too large, nothing is known: nobody goes on across it.
	r.Commit(&feed.RowTx{XID: 91, End: 1100, Lost: true})
	if v := r.after(1099); !v.gone {
		t.Error("across a gap")
	}
	if v := r.after(1100); v.gone {
		t.Error("after a gap")
	}
	r.down()
	if v := r.after(1100); v.up {
		t.Error("up after the end")
	}
	r.Begin(1200)
	if v := r.after(1100); !v.gone || !v.up {
		t.Error("a new session does not say that there is a gap")
	}
}

// A commit that the snapshot does not show, though the log has it, is told.
func TestTheLogBeginsWhereTheSnapshotEnds(t *testing.T) {
	t.Parallel()
	r := newRing(1<<20, ignore)
	r.Begin(100)
	for i, xid := range []uint32{10, 11, 12, 13} {
		r.Commit(userTx(xid, feed.LSN(200+i*100), 100))
	}
	hides := func(hidden ...uint32) func(uint32) bool {
		return func(xid uint32) bool { return !slices.Contains(hidden, xid) }
	}
	for _, c := range []struct {
		shows func(uint32) bool
		want  uint64
	}{{hides(), 500}, {hides(13), 400}, {hides(12), 300}, {hides(11, 13), 200}, {hides(10), 100}} {
		if got := r.start(500, c.shows); got != c.want {
			t.Errorf("begins at %d, want %d", got, c.want)
		}
	}
	if got := r.start(350, hides(13)); got != 350 {
		t.Errorf("what came after the look does not count: %d", got)
	}
}

// Nobody goes on from a snapshot that misses what has been forgotten, and ids
// are not compared with those of long ago.
func TestWhatIsForgottenIsNotTakenForShown(t *testing.T) {
	t.Parallel()
	r := newRing(1000, ignore)
	r.Begin(100)
	for i := range 20 {
		r.Commit(userTx(uint32(i), feed.LSN(200+i*10), 100))
	}
	shows := func(uint32) bool { return true }
	if got := r.start(390, shows); got != 390 || r.after(got).gone {
		t.Errorf("begins at %d", got)
	}
	if got := r.start(390, func(xid uint32) bool { return xid != 3 }); !r.after(got).gone {
		t.Errorf("begins at %d, though transaction 3 is not shown", got)
	}
	r.Reached(390 + horizon)
	if v := r.after(390); len(v.txs) != 0 || v.gone {
		t.Errorf("what is beyond the horizon is kept: %v", ends(v))
	}
	if got := r.start(390+horizon, func(xid uint32) bool { return xid != 3 }); got != 390+horizon {
		t.Errorf("begins at %d for the sake of what is beyond the horizon", got)
	}
}

// Ids of transactions wrap around.
func TestSnapshotsShowTransactions(t *testing.T) {
	t.Parallel()
	const turn = uint64(1 << 32)
	const shownBefore = (5*turn - 1) & (turn - 1)
	s := store.ShapeSnapshot{XMin: 5*turn - 2, XMax: 5*turn + 3, InProgress: []uint64{5*turn - 2, 5 * turn}}
	for full, want := range map[uint64]bool{5*turn - 3: true, 5*turn - 2: false, 5*turn - 1: true, 5 * turn: false, 5*turn + 1: true, 5*turn + 3: false, 5*turn + 100: false, 4*turn + turn/2 + 100: true} {
		if got := s.Shows(uint32(full)); got != want {
			t.Errorf("%d: %v", full, got)
		}
	}
	h := newHandle("abc", s)
	h.snap.LSN, h.snap.At = 1<<50, time.UnixMilli(1_796_000_000_000)
	back, ok := parseHandle(h.String())
	if !ok || back.id != "abc" || back.snap.XMin != s.XMin || back.snap.XMax != s.XMax || !slices.Equal(back.snap.InProgress, s.InProgress) || back.snap.LSN != 1<<50 || !back.snap.At.Equal(h.snap.At) {
		t.Errorf("%s is read as %+v", h, back)
	}
	// Long after the snapshot the id has come round to one that it shows.
	if h.shown(&transaction{xid: uint32(shownBefore), end: 1<<50 + 1}) || !h.shown(&transaction{xid: uint32(shownBefore), end: 1 << 50}) {
		t.Error("a transaction after the snapshot passes for one before it")
	}
	for _, bad := range []string{"", "abc", "a-b", "a-b-c", "a-b-1.2.3", "a-b-1.2.3.4.-1", "a-b-zzzzzzzzzzzzzzzz.1.1.1", "a-b-1.2.3.4-5"} {
		if _, ok := parseHandle(bad); ok {
			t.Errorf("%q passes", bad)
		}
	}
}

// Whoever waits for the log to be read up to a place is woken by the transaction
// that ends there.
func TestACommitSettles(t *testing.T) {
	t.Parallel()
	r := newRing(1<<20, ignore)
	r.Begin(100)
	settled := make(chan view)
	go func() { settled <- r.settle(context.WithoutCancel(t.Context()), 200) }()
	for deadline := time.Now().Add(bound); ; {
		r.mu.Lock()
		waits := r.moved.c != nil
		r.mu.Unlock()
		if waits {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody waits")
		}
	}
	tx := userTx(1, 200, 10)
	r.Commit(tx)
	r.Reached(tx.End)
	if v := <-settled; v.behind || v.reached != 200 {
		t.Errorf("%+v", v)
	}
}

func TestWaitersAreWokenForTheirTables(t *testing.T) {
	t.Parallel()
	r := newRing(1<<20, ignore)
	r.Begin(100)
	_, mine := r.watch(100, tables["users"], permissions)
	_, others := r.watch(100, entities, nil)
	r.Commit(userTx(1, 200, 10))
	<-mine[0]
	select {
	case <-others[0]:
		t.Error("woken for another table")
	case <-others[2]:
		t.Error("woken for the state")
	default:
	}
	r.down()
	<-others[2]
}

// reader stands in for the database of access.
type reader struct {
	mu    sync.Mutex
	calls int
	snap  store.ShapeSnapshot
	rows  map[string]store.ShapeReaders
	// entered is told of each call, and leave is awaited, if set.
	entered, leave chan struct{}
}

func (r *reader) load(ctx context.Context, _ int32, urls []string) (store.ShapeSnapshot, map[string]store.ShapeReaders, error) {
	r.mu.Lock()
	r.calls++
	snap, out := r.snap, map[string]store.ShapeReaders{}
	for _, u := range urls {
		if v, ok := r.rows[u]; ok {
			out[u] = v
		}
	}
	entered, leave := r.entered, r.leave
	r.mu.Unlock()
	if entered != nil {
		entered <- struct{}{}
		<-leave
	}
	return snap, out, ctx.Err()
}

func (r *reader) set(xmax uint64, rows map[string]store.ShapeReaders) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snap, r.rows = store.ShapeSnapshot{XMin: xmax, XMax: xmax}, rows
}

// Rights are looked up once for all callers, and again when they may have
// changed; a lookup waits until the database shows what the log has shown.
func TestRightsAreRemembered(t *testing.T) {
	t.Parallel()
	db := &reader{}
	a := newAccess(db.load)
	ask := func(xid uint32) *facts {
		t.Helper()
		got, err := a.of(t.Context(), 1, map[string]uint32{"/chat/1": xid})
		if err != nil {
			t.Fatal(err)
		}
		return got["/chat/1"]
	}
	db.set(10, map[string]store.ShapeReaders{"/chat/1": {CreatedBy: "kyle", Subjects: []string{"mallory"}}})
	if f := ask(5); !f.allows("kyle", "user") || !f.allows("mallory", "user") || f.allows("eve", "user") || db.calls != 1 {
		t.Fatalf("%+v, %d calls", f, db.calls)
	}
	if ask(20); db.calls != 1 {
		t.Errorf("%d calls", db.calls)
	}
	// The grant is taken back by transaction 30, which snapshots do not show yet.
	a.invalid(1, "/chat/1", 30)
	result := make(chan *facts)
	go func() {
		got, _ := a.of(context.WithoutCancel(t.Context()), 1, map[string]uint32{"/chat/1": 25})
		result <- got["/chat/1"]
	}()
	for deadline := time.Now().Add(bound); ; {
		db.mu.Lock()
		calls := db.calls
		db.mu.Unlock()
		if calls >= 4 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody looks again")
		}
	}
	db.set(31, map[string]store.ShapeReaders{"/chat/1": {CreatedBy: "kyle"}})
	if f := <-result; f.allows("mallory", "user") {
		t.Error("an old answer")
	}
	// An entity that is not there is nobody's.
	if f, err := a.of(t.Context(), 1, map[string]uint32{"/none": 5}); err != nil || f["/none"].allows("kyle", "user") {
		t.Errorf("%v %v", f, err)
	}
	// Time ends what it must.
	db.set(40, map[string]store.ShapeReaders{"/chat/2": {CreatedBy: "kyle", Valid: time.Nanosecond}})
	before := db.calls
	for range 2 {
		if _, err := a.of(t.Context(), 1, map[string]uint32{"/chat/2": 5}); err != nil {
			t.Fatal(err)
		}
	}
	if db.calls != before+2 {
		t.Errorf("%d calls", db.calls-before)
	}
	if _, err := a.of(t.Context(), 2, map[string]uint32{"/chat/1": 5}); err != nil || db.calls != before+3 {
		t.Error("another service's answer passes for this one's")
	}
}

// What changes while a lookup is under way is not remembered, and nobody waits
// for ever for a lookup that failed.
func TestALookupUnderWayIsNotTrusted(t *testing.T) {
	t.Parallel()
	db := &reader{entered: make(chan struct{}), leave: make(chan struct{})}
	db.set(10, map[string]store.ShapeReaders{"/chat/1": {CreatedBy: "kyle", Subjects: []string{"mallory"}}})
	a := newAccess(db.load)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = a.of(ctx, 1, map[string]uint32{"/chat/1": 5}) })
	<-db.entered
	var second map[string]*facts
	var err error
	wg.Go(func() { second, err = a.of(t.Context(), 1, map[string]uint32{"/chat/1": 5}) })
	a.invalid(1, "/chat/1", 9)
	db.set(10, map[string]store.ShapeReaders{"/chat/1": {CreatedBy: "kyle"}})
	cancel()
	db.leave <- struct{}{}
	<-db.entered
	db.leave <- struct{}{}
	wg.Wait()
	if err != nil || second["/chat/1"].allows("mallory", "user") || !second["/chat/1"].allows("kyle", "user") {
		t.Errorf("%v %v", second, err)
	}
}

// The session begins with the first use, comes back after a failure, ends when
// nobody has asked for a while, and for good at the stop.
func TestTheSessionRunsWhileSomebodyAsks(t *testing.T) {
	t.Parallel()
	var begun, running atomic.Int32
	fail := make(chan struct{})
	cfg := &Config{Idle: 50 * time.Millisecond, Rows: func(ctx context.Context, sink feed.RowSink, _ int) error {
		begun.Add(1)
		running.Add(1)
		defer running.Add(-1)
		sink.Begin(feed.LSN(begun.Load()))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-fail:
			return errors.New("the connection was cut")
		}
	}}
	h, err := New(t.Context(), Config{Store: nothing{}, Services: nothing{}, Auth: nothing{}, Rows: cfg.Rows, Idle: cfg.Idle})
	if err != nil {
		t.Fatal(err)
	}
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(bound); !ok(); {
			if time.Now().After(deadline) {
				t.Fatalf("never: %s", what)
			}
		}
	}
	if begun.Load() != 0 {
		t.Error("a session before anybody asked")
	}
	leave := h.source.use(t.Context())
	eventually("it begins", func() bool { return running.Load() == 1 && h.ring.after(1).up })
	fail <- struct{}{}
	eventually("it comes back", func() bool { return begun.Load() == 2 && running.Load() == 1 })
	eventually("the gap is known", func() bool { v := h.ring.after(1); return v.up && v.gone })
	leave()
	eventually("it ends", func() bool { return running.Load() == 0 })
	if h.ring.after(2).up {
		t.Error("the ring is up without a session")
	}
	leave = h.source.use(t.Context())
	eventually("it begins again", func() bool { return running.Load() == 1 })
	leave()
	if err := h.Stop(t.Context()); err != nil || running.Load() != 0 {
		t.Errorf("%v, %d run", err, running.Load())
	}
	h.source.use(t.Context())()
	if running.Load() != 0 || begun.Load() != 3 {
		t.Errorf("%d sessions", begun.Load())
	}
}

// While no session reads the log nobody is told of a grant's end, so what was
// remembered before counts no more.
func TestRightsAreForgottenWithTheSession(t *testing.T) {
	t.Parallel()
	db := &reader{}
	a := newAccess(db.load)
	r := newRing(1000, a.invalid)
	ask := func() *facts {
		got, err := a.of(t.Context(), 1, map[string]uint32{"/chat/1": 5})
		if err != nil {
			t.Error(err)
		}
		return got["/chat/1"]
	}
	db.set(10, map[string]store.ShapeReaders{"/chat/1": {CreatedBy: "kyle", Subjects: []string{"mallory"}}})
	r.Begin(100)
	if !ask().allows("mallory", "user") {
		t.Fatal("no right to lose")
	}
	r.down()
	db.set(20, map[string]store.ShapeReaders{"/chat/1": {CreatedBy: "kyle"}})
	r.Begin(200)
	if ask().allows("mallory", "user") {
		t.Error("a grant that was taken back meanwhile still counts")
	}
	// What a transaction did that was too large to be read counts from it on.
	r.Commit(&feed.RowTx{XID: 30, End: 300, Lost: true})
	result := make(chan *facts)
	go func() { result <- ask() }()
	for deadline := time.Now().Add(bound); ; {
		db.mu.Lock()
		calls := db.calls
		db.mu.Unlock()
		if calls >= 4 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody looks again")
		}
	}
	db.set(31, nil)
	if f := <-result; f.allows("kyle", "user") {
		t.Error("an answer from before")
	}
	before := db.calls
	if ask(); db.calls != before+1 {
		t.Error("it is waited for again")
	}
	// Who changes rights all the time that nobody asks about takes no memory for each change.
	for i := range uint32(1000) {
		a.invalid(1, "/chat/2", i+1)
	}
	if n := len(a.all[entity{1, "/chat/2"}].show); n > maxShow {
		t.Errorf("%d transactions are remembered", n)
	}
}
