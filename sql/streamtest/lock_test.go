package streamtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// blocked waits until another session of the database waits for a lock.
func blocked(t *testing.T, r *rig) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for time.Now().Before(deadline) {
		if one[int](r, `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) > 0 {
			return
		}
	}
	t.Fatal("nobody came to wait for a lock")
}

func begin(t *testing.T, c *pgx.Conn, sql string, args ...any) pgx.Tx {
	t.Helper()
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
	return tx
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestALockedStreamDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(created{path: "a", contentType: plain})
	r.create(created{path: "b", contentType: plain})
	other := begin(t, r.db.Conn(t), `select * from rouse.streams where path = 'a' for update`)
	got := r.appendGroups(group{path: "a", typ: plain, payloads: []string{"x"}}, group{path: "b", typ: plain, payloads: []string{"y"}})
	if got[0].outcome != "busy" || got[1].outcome != "appended" {
		t.Fatalf("groups: %+v", got)
	}
	p := func(path string, seq int64) item {
		return item{path: path, typ: plain, payload: "z", producer: "p", seq: seq}
	}
	specials := r.append(false, p("a", 0), p("b", 0), p("a", 1))
	if specials[0].outcome != "busy" || specials[1].outcome != "appended" || specials[2].outcome != "busy" {
		t.Fatalf("specials: %+v", specials)
	}
	commit(t, other)
	if got := r.append(false, p("a", 0), p("a", 1)); got[0].outcome != "appended" || got[1].outcome != "appended" {
		t.Fatalf("after the lock: %+v", got)
	}
}

// waiting runs a special append with wait in a session of its own.
func waiting(t *testing.T, r *rig, it item) <-chan []answer {
	t.Helper()
	s := r.on(r.db.Conn(t))
	out := make(chan []answer, 1)
	go func() {
		got, err := s.tryAppend(true, it)
		if err != nil {
			var pe *pgconn.PgError
			if errors.As(err, &pe) {
				got = []answer{{outcome: pe.Code}}
			}
		}
		out <- got
	}()
	return out
}

func TestTheSideLaneWaitsAndDecidesOnWhatItFindsThen(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, other, want string
	}{
		{"plain lock", `select 1 from rouse.streams where path = 'a' for update`, "appended"},
		{"closed meanwhile", `update rouse.streams set closed_at = now() where path = 'a'`, "closed"},
		{"retired meanwhile", `select rouse._stream_retire(id, now()) from rouse.streams where path = 'a'`, "not_found"},
		{"expired meanwhile", `update rouse.streams set expires_at = '2031-05-01 12:00:00Z' where path = 'a'`, "not_found"},
		{"appended meanwhile", `select rouse._stream_push(id, 'y', false) from rouse.streams where path = 'a'`, "appended"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.create(created{path: "a", contentType: plain})
			other := begin(t, r.db.Conn(t), tc.other)
			done := waiting(t, r, item{path: "a", typ: plain, payload: "x", streamSeq: "1"})
			blocked(t, r)
			commit(t, other)
			if got := <-done; len(got) != 1 || got[0].outcome != tc.want {
				t.Fatalf("%+v, want %s", got, tc.want)
			}
			if tc.want == "appended" && tc.name == "appended meanwhile" && r.all("a") != "yx" {
				t.Fatalf("content %q", r.all("a"))
			}
		})
	}
}

// The clock is read after the lock: a lease that ends while the append waits
// for its consumer's row has ended.
func TestALeaseThatEndsWhileWaitingHasEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const wake = "018f0000-0000-7000-8000-000000000001"
	id := one[int64](r, `insert into rouse.consumers (service_id, name, kind, state, epoch, wake_id, lease_expires_at, due_at)
		values (1, 'c', 'entity', 'claimed', 1, $1, clock_timestamp() + interval '1 hour', now()) returning id`, wake)
	r.create(created{path: "e/main", contentType: plain, kind: "entity", consumer: &id})
	for _, tc := range []struct{ name, other, want string }{
		{"lapsed", `update rouse.consumers set lease_expires_at = clock_timestamp() where id = $1`, "lease_expired"},
		{"next epoch", `update rouse.consumers set epoch = 2, lease_expires_at = clock_timestamp() + interval '1 hour' where id = $1`, "token_stale"},
		{"back again", `update rouse.consumers set epoch = 1 where id = $1`, "appended"},
	} {
		other := begin(t, r.db.Conn(t), tc.other, id)
		if got := r.append(false, item{path: "e/main", typ: plain, payload: "x", consumer: id, claimEpoch: 1, wake: wake}); got[0].outcome != "busy" {
			t.Fatalf("%s: without wait: %+v", tc.name, got)
		}
		s := r.on(r.db.Conn(t))
		done := make(chan string, 1)
		go func() {
			var outcome string
			err := s.c.QueryRow(context.WithoutCancel(t.Context()), `select outcome from rouse.stream_append(null,null,null,null,null,null, null,null,null,null,null,
				'{1}','{e/main}','{text/plain}','{f}','{f}','{x}','{1}',array[null],array[null],array[null]::bigint[],array[null]::bigint[],array[null],'{f}',
				array[$1::bigint],'{1}',array[$2::uuid], true)`, id, wake).Scan(&outcome)
			if err != nil {
				outcome = err.Error()
			}
			done <- outcome
		}()
		blocked(t, r)
		commit(t, other)
		if got := <-done; got != tc.want {
			t.Fatalf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestAWaitIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(created{path: "a", contentType: plain})
	other := begin(t, r.db.Conn(t), `select 1 from rouse.streams where path = 'a' for update`)
	got := <-waiting(t, r, item{path: "a", typ: plain, payload: "x", streamSeq: "1"})
	if len(got) != 1 || got[0].outcome != pgerrcode.LockNotAvailable {
		t.Fatalf("%+v, want a lock timeout", got)
	}
	commit(t, other)
}

func TestRacesOfCreateForkAndDelete(t *testing.T) {
	t.Parallel()
	t.Run("two creates of one path", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		other := begin(t, r.db.Conn(t), `select * from rouse.stream_create(1, 'a', 'text/plain')`)
		s := r.on(r.db.Conn(t))
		done := make(chan string, 1)
		go func() { done <- s.create(created{path: "a", contentType: plain}).outcome }()
		blocked(t, r)
		commit(t, other)
		if got := <-done; got != "exists" {
			t.Fatalf("the second create: %s", got)
		}
	})
	t.Run("a fork while its source goes", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.create(created{path: "a", contentType: plain, payload: "A"})
		other := begin(t, r.db.Conn(t), `select * from rouse.stream_delete(1, 'a')`)
		s := r.on(r.db.Conn(t))
		done := make(chan string, 1)
		go func() { done <- s.create(created{path: "f", fork: "a"}).outcome }()
		blocked(t, r)
		commit(t, other)
		if got := <-done; got != "source_not_found" {
			t.Fatalf("the fork: %s", got)
		}
	})
	t.Run("a delete while a fork is made", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.create(created{path: "a", contentType: plain, payload: "A"})
		other := begin(t, r.db.Conn(t), `select * from rouse.stream_create(1, 'f', p_fork_path => 'a')`)
		s := r.on(r.db.Conn(t))
		done := make(chan string, 1)
		go func() { done <- s.delete("a", false) }()
		blocked(t, r)
		commit(t, other)
		if got := <-done; got != "deleted" || r.head("a") != "gone" || r.all("f") != "A" {
			t.Fatalf("delete %s, source %s, fork %q", got, r.head("a"), r.all("f"))
		}
	})
	t.Run("appends and forks do not wait for each other", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.create(created{path: "a", contentType: plain, payload: "A"})
		other := begin(t, r.db.Conn(t), `select * from rouse.stream_create(1, 'f', p_fork_path => 'a')`)
		if got := r.appendGroups(group{path: "a", typ: plain, payloads: []string{"B"}}); got[0].outcome != "appended" {
			t.Fatalf("the append: %+v", got)
		}
		commit(t, other)
		if r.all("f") != "A" || r.all("a") != "AB" {
			t.Fatalf("fork %q, source %q", r.all("f"), r.all("a"))
		}
	})
}
