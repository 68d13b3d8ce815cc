package feed

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// rowLog is a RowSink that keeps what it gets.
type rowLog struct {
	mu      sync.Mutex
	begun   []LSN
	reached LSN
	txs     []*RowTx
}

func (r *rowLog) Begin(at LSN) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = append(r.begun, at)
}

func (r *rowLog) Commit(tx *RowTx) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.txs = append(r.txs, tx)
}

func (r *rowLog) Reached(at LSN) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reached = at
}

func (r *rowLog) seen() (begun int, txs []*RowTx, reached LSN) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.begun), append([]*RowTx(nil), r.txs...), r.reached
}

// startRows runs row sessions of a feed that is not started otherwise.
func startRows(t *testing.T, db *pgtest.DB, maxBytes int) (*rowLog, func() error) {
	t.Helper()
	f, err := New(Config{DSN: db.DirectDSN()}, Deps{Hub: NewHub()})
	if err != nil {
		t.Fatal(err)
	}
	log := &rowLog{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Rows(ctx, log, maxBytes) }()
	stop := sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = stop() })
	eventually(t, "a row session", func() bool { n, _, _ := log.seen(); return n == 1 })
	return log, stop
}

func text(t *testing.T, c RowChange, values []Value, column string) string {
	t.Helper()
	for i, name := range c.Table.Columns {
		if name == column {
			switch values[i].Kind {
			case Null:
				return "NULL"
			case Unchanged:
				return "UNCHANGED"
			}
			return values[i].Text
		}
	}
	t.Fatalf("%s has no column %s", c.Table.Name, column)
	return ""
}

func TestRowsComeAsTheyAreCommitted(t *testing.T) {
	t.Parallel()
	db := pgtest.Server(t, pgtest.Options{}).DB
	log, stop := startRows(t, db, 1<<20)
	conn := db.Conn(t)
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	var xid uint32
	exec(`begin`)
	if err := conn.QueryRow(t.Context(), `select (pg_current_xact_id()::text::bigint & 4294967295)`).Scan(&xid); err != nil {
		t.Fatal(err)
	}
	exec(`insert into rouse.users (service_id, id, display_name, created_at) values (1, 'kyle', E'K\u00fc\'', '2026-11-29T18:00:00+02:00')`)
	exec(`insert into rouse.users (service_id, id) values (1, 'mallory')`)
	exec(`commit`)
	exec(`begin; insert into rouse.users (service_id, id) values (1, 'nobody'); rollback`)
	exec(`insert into rouse.services (name) values ('unpublished')`)
	exec(`update rouse.users set email = 'k@example.com' where id = 'kyle'`)
	exec(`insert into rouse.entities (service_id, url, type, created_by, spawn_args, consumer_id)
		select 1, '/chat/1', 'chat', 'x', jsonb_build_object('a', string_agg(md5(i::text), '')), 1 from generate_series(1, 1000) i`)
	exec(`update rouse.entities set status = 'running'`)
	exec(`delete from rouse.users where id = 'mallory'`)
	eventually(t, "five transactions", func() bool { _, txs, _ := log.seen(); return len(txs) == 5 })
	_, txs, reached := log.seen()
	for i, tx := range txs {
		if tx.Lost || tx.Bytes <= 0 || i > 0 && tx.End <= txs[i-1].End {
			t.Errorf("transaction %d: %+v", i, tx)
		}
	}
	if reached < txs[4].End {
		t.Errorf("read up to %v, which is before %v", reached, txs[4].End)
	}
	first := txs[0]
	if first.XID != xid || len(first.Changes) != 2 {
		t.Fatalf("%+v, want transaction %d", first, xid)
	}
	c := first.Changes[0]
	if c.Op != RowInsert || c.Old != nil || c.Table.Schema != "rouse" || c.Table.Name != "users" || !c.Table.Whole || text(t, c, c.New, "id") != "kyle" ||
		text(t, c, c.New, "display_name") != "Kü'" || text(t, c, c.New, "email") != "NULL" || text(t, c, c.New, "created_at") != "2026-11-29 16:00:00+00" {
		t.Errorf("an insert: %+v", c)
	}
	if c = txs[1].Changes[0]; c.Op != RowUpdate || text(t, c, c.Old, "email") != "NULL" || text(t, c, c.New, "email") != "k@example.com" || text(t, c, c.Old, "id") != "kyle" {
		t.Errorf("an update of a table that tells old rows: %+v", c)
	}
	if c = txs[2].Changes[0]; c.Table.Whole || len(text(t, c, c.New, "spawn_args")) < 32_000 || strings.Contains(strings.Join(c.Table.Columns, " "), "consumer_id") {
		t.Errorf("an entity, its published columns only: %v", c.Table)
	}
	if c = txs[3].Changes[0]; c.Old != nil || text(t, c, c.New, "spawn_args") != "UNCHANGED" || text(t, c, c.New, "status") != "running" {
		t.Errorf("a large value that did not change: %+v", c)
	}
	if c = txs[4].Changes[0]; c.Op != RowDelete || c.New != nil || text(t, c, c.Old, "id") != "mallory" {
		t.Errorf("a delete: %+v", c)
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Errorf("ended by %v", err)
	}
	eventually(t, "its slot to be gone", func() bool {
		var n int
		if err := conn.QueryRow(t.Context(), `select count(*) from pg_replication_slots where slot_name like 'rouse\_rows%' and database = current_database()`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}

// A transaction above the limit comes without its rows, and so does one that
// empties a table; what follows is whole. A table that is altered is another.
func TestRowsAreBounded(t *testing.T) {
	t.Parallel()
	db := pgtest.Server(t, pgtest.Options{}).DB
	log, _ := startRows(t, db, 10_000)
	for _, sql := range []string{
		`insert into rouse.users (service_id, id) select 1, 'u' || i from generate_series(1, 500) i`,
		`insert into rouse.users (service_id, id) values (1, 'one')`,
		`truncate rouse.runners`,
		`alter table rouse.users add column nickname text`,
		`insert into rouse.users (service_id, id, nickname) values (1, 'two', 'second')`,
	} {
		db.Exec(t, sql)
	}
	eventually(t, "four transactions", func() bool { _, txs, _ := log.seen(); return len(txs) == 4 })
	_, txs, _ := log.seen()
	for i, lost := range []bool{true, false, true, false} {
		if txs[i].Lost != lost || lost == (len(txs[i].Changes) > 0) {
			t.Errorf("transaction %d: %+v", i, txs[i])
		}
	}
	if c := txs[3].Changes[0]; text(t, c, c.New, "nickname") != "second" || len(txs[1].Changes[0].Table.Columns)+1 != len(c.Table.Columns) {
		t.Errorf("%+v", c)
	}
}

// A session whose backend is ended says so; one to a database without the
// publication too.
func TestRowSessionsFail(t *testing.T) {
	t.Parallel()
	db := pgtest.Server(t, pgtest.Options{}).DB
	f, err := New(Config{DSN: db.DirectDSN()}, Deps{Hub: NewHub()})
	if err != nil {
		t.Fatal(err)
	}
	log := &rowLog{}
	ended := make(chan error, 1)
	go func() { ended <- f.Rows(t.Context(), log, 1<<20) }()
	eventually(t, "a row session", func() bool { n, _, _ := log.seen(); return n == 1 })
	db.Exec(t, `select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name like 'rouse\_rows%' and database = current_database()`)
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it ended without an error")
		}
	case <-time.After(testPatience):
		t.Fatal("it does not end")
	}
	db.Exec(t, `drop publication rouse_rows`)
	if err := f.Rows(t.Context(), log, 1<<20); !errors.Is(err, errNoPublication) {
		t.Errorf("without the publication it ends by %v", err)
	}
}

// No message that is cut short makes the decoder panic or pass.
func FuzzRowDecoder(f *testing.F) {
	relation := []byte("R\x00\x00\x00\x01rouse\x00users\x00f\x00\x02\x00service_id\x00\x00\x00\x00\x17\xff\xff\xff\xff\x00id\x00\x00\x00\x00\x19\xff\xff\xff\xff")
	insert := []byte("I\x00\x00\x00\x01N\x00\x02t\x00\x00\x00\x011n")
	begin := []byte("B\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07")
	for _, seed := range [][]byte{relation, insert, begin, []byte("U\x00\x00\x00\x01O\x00\x01nN\x00\x01u"), []byte("D\x00\x00\x00\x01K\x00\x01n"), []byte("C\x00"), []byte("T"), []byte("Y\x00"), {}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		d := &rowDecoder{max: 1 << 20, commit: func(*RowTx) {}, finish: func(LSN) {}}
		for _, good := range [][]byte{begin, relation, insert} {
			if err := d.decode(good); err != nil {
				t.Fatal(err)
			}
		}
		_ = d.decode(frame)
	})
}

// A slot waits for the transactions that write. Whoever gives up does not wait
// with it, and leaves none behind.
func TestARowSessionThatWaitsIsGivenUp(t *testing.T) {
	t.Parallel()
	db := pgtest.Server(t, pgtest.Options{}).DB
	conn, writer := db.Conn(t), db.Conn(t)
	exec(t, writer, `begin; insert into rouse.users (service_id, id) values (1, 'slow')`)
	f, err := New(Config{DSN: db.DirectDSN()}, Deps{Hub: NewHub()})
	if err != nil {
		t.Fatal(err)
	}
	log := &rowLog{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Rows(ctx, log, 1<<20) }()
	waiting := func() bool {
		return query[int](t, conn, `select count(*) from pg_stat_activity where application_name = 'rouse-rows' and wait_event_type = 'Lock'`) == 1
	}
	eventually(t, "the slot to wait", waiting)
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it ended without an error")
		}
	case <-time.After(testPatience):
		t.Fatal("it cannot be given up")
	}
	eventually(t, "its backend to be gone", func() bool {
		return query[int](t, conn, `select count(*) from pg_stat_activity where application_name = 'rouse-rows'`) == 0
	})
	if n := query[int](t, conn, `select count(*) from pg_replication_slots`); n != 0 {
		t.Errorf("%d slots are left", n)
	}
	go func() { ended <- f.Rows(t.Context(), log, 1<<20) }()
	eventually(t, "the next to wait", waiting)
	exec(t, writer, `commit`)
	eventually(t, "it to begin", func() bool { n, _, _ := log.seen(); return n == 1 })
	exec(t, writer, `update rouse.users set email = 'x'`)
	eventually(t, "a change", func() bool { _, txs, _ := log.seen(); return len(txs) == 1 && txs[0].Changes[0].Op == RowUpdate })
}

// The log describes a table again whenever its statistics change; it stays the
// same Table, for who keeps what it knows of one keeps it by that.
func TestATableThatStaysAsItIsIsTheSame(t *testing.T) {
	t.Parallel()
	db := pgtest.Server(t, pgtest.Options{}).DB
	log, _ := startRows(t, db, 1<<20)
	for _, sql := range []string{`insert into rouse.users (service_id, id) values (1, 'a')`, `analyze rouse.users`, `insert into rouse.users (service_id, id) values (1, 'b')`,
		`alter table rouse.users add column extra text`, `insert into rouse.users (service_id, id) values (1, 'c')`} {
		db.Exec(t, sql)
	}
	eventually(t, "three transactions", func() bool { _, txs, _ := log.seen(); return len(txs) == 3 })
	_, txs, _ := log.seen()
	table := func(i int) *Table { return txs[i].Changes[0].Table }
	if table(0) != table(1) {
		t.Error("another Table after an analysis")
	}
	if table(1) == table(2) || len(table(2).Columns) != len(table(1).Columns)+1 {
		t.Error("the same Table after a change")
	}
}
