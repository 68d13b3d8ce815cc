package streamtest

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestHotPathsScanNoTable runs the functions on 100 000 streams and looks at
// what the server counted: no sequential scan, and updates that stay on their
// page.
func TestHotPathsScanNoTable(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// Plans are made while the tables are empty, as on a new installation.
	work := func(suffix string) {
		for range 12 {
			r.create(created{path: "w" + suffix, contentType: plain, payload: "x"})
			r.appendGroups(group{path: "w" + suffix, typ: plain, payloads: []string{"x", "y"}}, group{path: "none", typ: plain, payloads: []string{"x"}})
			r.append(false, item{path: "w" + suffix, typ: plain, payload: "z", streamSeq: time.Now().Format(time.RFC3339Nano)})
			r.head("w" + suffix)
			r.read("w"+suffix, 0, 100, 100)
			r.create(created{path: "f" + suffix, fork: "w" + suffix})
			r.read("f"+suffix, 0, 100, 100)
			r.delete("f"+suffix, false)
			r.delete("w"+suffix, false)
			r.purge(10)
		}
	}
	work("1")
	loader := r.on(r.db.Conn(t))
	loader.exec(`insert into rouse.streams (service_id, path, content_type, is_json, tail) select 1, 's' || i, 'text/plain', false, 3 from generate_series(1, 100000) i`)
	loader.exec(`insert into rouse.messages (stream_id, position, payload) select id, 3, 'abc' from rouse.streams where path like 's%'`)
	flush := func() {
		r.exec(`select pg_stat_force_next_flush()`)
		loader.exec(`select pg_stat_force_next_flush()`)
	}
	type counts struct{ Seq, Read int64 }
	scans := func() counts {
		flush()
		rows, err := loader.c.Query(t.Context(), `select sum(seq_scan)::bigint as seq, sum(seq_tup_read)::bigint as read from pg_stat_user_tables where relname in ('streams', 'messages', 'producers')`)
		if err != nil {
			t.Fatal(err)
		}
		c, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[counts])
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := scans()
	work("2")
	if after := scans(); after != before {
		t.Fatalf("sequential scans: %+v before, %+v after", before, after)
	}
	r.exec(`select count(*) from rouse.streams where owner = 'nobody'`)
	if scans() == before {
		t.Fatal("the counters do not count")
	}

	// One stream, many appends: each new version fits on its page.
	r.exec(`vacuum rouse.streams`)
	hot := func() (upd, hot int64) {
		flush()
		if err := loader.c.QueryRow(t.Context(), `select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'streams'`).Scan(&upd, &hot); err != nil {
			t.Fatal(err)
		}
		return upd, hot
	}
	u0, h0 := hot()
	for range 200 {
		r.appendGroups(group{path: "s77", typ: plain, payloads: []string{"x"}})
	}
	if u1, h1 := hot(); u1-u0 != 200 || h1-h0 < 190 {
		t.Fatalf("%d updates, %d of them hot", u1-u0, h1-h0)
	}
}
