package observation

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// holding locks the row of a stream in a transaction of its own.
func (r *rig) holding(path string) pgx.Tx {
	r.t.Helper()
	tx, err := r.db.Conn(r.t).Begin(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := tx.Exec(r.t.Context(), `select 1 from rouse.streams where path = $1 and service_id = 1 for no key update`, path); err != nil {
		r.t.Fatal(err)
	}
	return tx
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A subscriber whose stream somebody holds delays nobody else and is told once it
// is free; one that is always held is waited for.
func TestABusySubscriberDelaysNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, u := range []string{"/chat/src", "/chat/busy", "/chat/free"} {
		r.spawn(u, "")
	}
	r.register(store.ObserverRequest{Subscriber: "/chat/busy", Source: "/chat/src"})
	r.register(store.ObserverRequest{Subscriber: "/chat/free", Source: "/chat/src"})
	tx := r.holding("chat/busy/main")
	r.write("chat/src/main", runEnded)
	w := r.worker()
	for range busyTries {
		if _, _, err := w.page(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.one("/chat/free", "wake")
	if n := len(r.wakes("/chat/busy")); n != 0 {
		t.Fatalf("%d wakes on a held stream", n)
	}
	// Now it waits, until the row is free.
	done := make(chan error, 1)
	go func() {
		_, _, err := w.page(t.Context())
		done <- err
	}()
	deadline := time.Now().Add(10 * time.Second)
	for r.count(`select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("nobody waits")
		}
	}
	commit(t, tx)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.one("/chat/busy", "wake")
}

// The mark of a cursor and an append to its source: whatever comes first, none is
// lost.
func TestAMarkIsNotLostBetweenAnAppendAndAMove(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/src", "")
	r.spawn("/chat/s", "")
	r.register(store.ObserverRequest{Subscriber: "/chat/s", Source: "/chat/src"})
	w := r.worker()
	const push = `select rouse._stream_push(s.id, $1, false) from (select id from rouse.streams where path = 'chat/src/main' and service_id = 1 for no key update) s`

	// An append is under way while the cursor moves: the mark stays.
	r.write("chat/src/main", runEnded)
	tx := r.holding("chat/src/main")
	if _, err := tx.Exec(t.Context(), push, runEnded); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.page(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.one("/chat/s", "wake")
	commit(t, tx)
	if n := r.count(`select count(*) from rouse.observers where behind`); n != 1 {
		t.Fatal("the mark is lost")
	}
	r.settle(w)
	if n := len(r.wakes("/chat/s")); n != 2 {
		t.Fatalf("%d wakes", n)
	}

	// An append that is done before the move, but was not in its page: the mark stays.
	r.write("chat/src/main", runEnded)
	list, err := r.s.ObserveTake(t.Context(), 0, 10, 1000)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	r.write("chat/src/main", runEnded)
	if got, err := r.s.ObserveApply(t.Context(), []store.ObserverMove{{ID: list[0].ID, From: list[0].Acked, To: list[0].Tail, KeepDue: true}}, false); err != nil || got[0] != "applied" {
		t.Fatal(got, err)
	}
	if n := r.count(`select count(*) from rouse.observers where behind`); n != 1 {
		t.Fatal("the mark is lost")
	}
	r.settle(w)
	if n := len(r.wakes("/chat/s")); n != 3 {
		t.Fatalf("%d wakes", n)
	}

	// A move is under way while an append comes: the append waits, and marks anew.
	r.write("chat/src/main", runEnded)
	if list, err = r.s.ObserveTake(t.Context(), 0, 10, 1000); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	o := list[0]
	mover, err := r.db.Conn(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mover.Exec(t.Context(), `select rouse.observe_move(array[$1::bigint], array[$2::bigint], array[null::text], array[false], array[$3::bigint], array[null::text], array[-1], array[false], '{}', '{}', false)`, o.ID, o.Acked, o.Tail); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	conn := r.db.Conn(t)
	go func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), push, runEnded)
		done <- err
	}()
	deadline := time.Now().Add(10 * time.Second)
	for r.count(`select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the append does not wait for the move")
		}
	}
	commit(t, mover)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := r.count(`select count(*) from rouse.observers where behind`); n != 1 {
		t.Fatal("the mark is lost")
	}
	r.settle(w)
	if n := len(r.wakes("/chat/s")); n != 4 {
		t.Fatalf("%d wakes", n)
	}
}

// Who changes what an entity observes waits for a source without holding a
// cursor that an append to it has to mark.
func TestAManifestThatWaitsHoldsUpNoAppend(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/a", "")
	r.spawn("/chat/src", "")
	if got, err := r.s.ObserveManifest(t.Context(), 1, "/chat/a"); err != nil || got != "ok" {
		t.Fatal(got, err)
	}
	const observe = `{"kind":"observe","entity_url":"/chat/src","wake":"runFinished"}`
	w := r.worker()
	r.write("chat/a/main", row("insert", "manifest", "one", observe))
	r.settle(w)
	r.write("chat/a/main", row("delete", "manifest", "one", `null`), row("insert", "manifest", "two", observe))
	tx := r.holding("chat/src/main")
	done := make(chan error, 1)
	go func() {
		_, _, err := w.page(t.Context())
		done <- err
	}()
	deadline := time.Now().Add(10 * time.Second)
	for r.count(`select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("nobody waits")
		}
	}
	for _, sql := range []string{`set local lock_timeout = '500ms'`,
		`select rouse._stream_push(s.id, '` + runEnded + `', false) from rouse.streams s where path = 'chat/src/main' and service_id = 1`} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	commit(t, tx)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.settle(w)
	if n := r.count(`select count(*) from rouse.observers where kind = 'wake' and manifest_key = 'two'`); n != 1 || r.count(`select count(*) from rouse.observers where kind = 'wake'`) != 1 {
		t.Error("the manifest is not carried out")
	}
}

// impatient is a database that waits for no subscriber's row for long.
type impatient struct{ *store.Store }

func (d impatient) ObserveApply(ctx context.Context, moves []store.ObserverMove, wait bool) ([]string, error) {
	if wait {
		return nil, problem.New(problem.DatabaseTimeout, "The row is held.")
	}
	return d.Store.ObserveApply(ctx, moves, wait)
}

// A row that is held for good keeps nobody else from being told.
func TestARowThatIsHeldForGoodDelaysNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, u := range []string{"/chat/a", "/chat/busy", "/chat/free", "/chat/src", "/chat/held"} {
		r.spawn(u, "")
	}
	if got, err := r.s.ObserveManifest(t.Context(), 1, "/chat/a"); err != nil || got != "ok" {
		t.Fatal(got, err)
	}
	r.register(store.ObserverRequest{Subscriber: "/chat/busy", Source: "/chat/src"})
	r.register(store.ObserverRequest{Subscriber: "/chat/free", Source: "/chat/src"})
	r.write("chat/a/main", row("insert", "manifest", "one", `{"kind":"observe","entity_url":"/chat/held","wake":"runFinished"}`))
	first, second := r.holding("chat/busy/main"), r.holding("chat/held/main")
	w, err := New(Config{DB: impatient{r.s}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2*busyTries + 1 {
		r.write("chat/src/main", runEnded)
		if _, _, err := w.page(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(r.wakes("/chat/free")); n != i+1 {
			t.Fatalf("%d wakes after %d rounds", n, i+1)
		}
	}
	commit(t, first)
	commit(t, second)
	r.settle(w)
	if n := len(r.wakes("/chat/busy")); n != 2*busyTries+1 {
		t.Errorf("%d wakes once the row is free", n)
	}
	if n := r.count(`select count(*) from rouse.observers where manifest_key = 'one'`); n != 1 {
		t.Error("the manifest is not carried out")
	}
}
