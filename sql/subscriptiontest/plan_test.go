package subscriptiontest

import (
	"fmt"
	"testing"
)

// crowdSQL makes, in bulk, what the functions make one by one: ten thousand
// subscriptions to patterns nobody's streams match, a hundred thousand streams,
// and one subscription that watches them all, a thousand of them unread. That
// the same holds at a million is the benchmark's to say.
var crowdSQL = []string{
	`insert into rouse.consumers (service_id, name, kind) select 1, 's_' || i, 'subscription' from generate_series(1, 10000) i`,
	`insert into rouse.subscriptions (consumer_id, service_id, id, type, pattern, webhook_url, config_hash, owner, system, settled, scan_done, changed_at, created_at)
	 select c.id, 1, c.name, 'webhook', p.pattern, 'https://x', '', 'x', true, 1, true, now(), now()
	   from (select c.*, substr(c.name, 3)::int as i from rouse.consumers c where c.name like 's\_%' and length(c.name) < 10) c
	  cross join lateral (select case c.i % 5 when 0 then 'crowd/*/' || c.i when 1 then '**/never' || c.i when 2 then 'never' || c.i || '/*'
	                                          when 3 then 'crowd/' || c.i || '/**/x' else 'crowd/*/x/' || c.i || '/**' end as pattern) p`,
	`insert into rouse.subscription_globs (consumer_id, service_id, pattern, owner, system)
	 select s.consumer_id, 1, g.pattern, 'x', true from rouse.subscriptions s cross join lateral rouse._glob_parse(s.pattern) g
	  where s.config_hash = '' on conflict do nothing`,
	`insert into rouse.streams (service_id, path, content_type, is_json, tail, watched) select 1, 'crowd/' || i || '/main', 'application/json', true, 8, 1 from generate_series(1, 100000) i`,
	`insert into rouse.consumer_streams (consumer_id, stream_id, link_type, acked, behind)
	 select s.consumer_id, t.id, 'glob', case when t.id % 100 = 0 then 0 else 8 end, t.id % 100 = 0
	   from rouse.subscriptions s join rouse.streams t on t.path like 'crowd/%/main' where s.id = 'big'`,
}

// TestCostIsWhatIsTouched counts what each function reads at volume, by the
// database's own statistics, with plans that were made while the tables were
// empty: no table is walked, and neither the patterns nor the links of a
// subscription that has many are.
func TestCostIsWhatIsTouched(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// An analyze would have all plans made again, with statistics.
	r.exec(`do $$ declare t text; begin for t in select tablename from pg_tables where schemaname = 'rouse' loop
		execute format('alter table rouse.%I set (autovacuum_enabled = off)', t); end loop; end $$`)
	big := r.subscribe(spec{id: "big", typ: "pull-wake", wakeStream: "wakes/big", pattern: "crowd/*/main"})
	warm := r.subscribe(spec{id: "warm", pattern: "warm/*"})
	// Plans are made while the tables are empty, as on a new installation.
	for i := range 12 {
		path := fmt.Sprint("warm/", i)
		id := r.make(path, `{"a": 1}`)
		r.append(path)
		r.route(id)
		r.exec(`select rouse.subscription_scan(0, 10)`)
		g := r.want("granted", warm.acquire("w"))
		r.want("ok", warm.call("ack", g, ack(path, 8)))
		r.want("released", warm.call("release", g, ack(path, 16)))
		r.exec(`select rouse.subscription_get(1, 'warm', 10)`)
		r.exec(`select rouse.subscription_list(1, null, '', 10)`)
		r.exec(`select rouse.subscription_watch(1, 'warm', 'x', array[$1])`, path)
		r.settle("warm")
		r.exec(`select rouse.subscription_unwatch(1, 'warm', 'x', $1)`, path)
		r.exec(`select rouse._stream_delete(1, $1, false, $2)`, path, r.now)
		r.subscribe(spec{id: "gone", pattern: "gone/*"})
		r.exec(`select rouse.subscription_delete(1, 'gone', '')`)
		r.exec(`select rouse.subscription_tidy(10)`)
		r.exec(`select rouse.subscription_tidy(10)`)
		r.exec(`select rouse.subscription_unsettled(0, 10)`)
	}
	loader := r.on(r.db.Conn(t))
	for _, sql := range crowdSQL {
		loader.exec(sql)
	}
	stats := func() (seq, read int64) {
		t.Helper()
		r.exec(`select pg_stat_force_next_flush()`)
		r.exec(`select pg_stat_clear_snapshot()`)
		if err := r.c.QueryRow(t.Context(), `select
			(select coalesce(sum(seq_tup_read), 0) from pg_stat_user_tables where schemaname = 'rouse' and relname not in ('services', 'policies', 'entity_types', 'delivery_attempts')),
			(select coalesce(sum(idx_tup_read), 0) from pg_stat_user_indexes where schemaname = 'rouse')`).Scan(&seq, &read); err != nil {
			t.Fatal(err)
		}
		return seq, read
	}
	var g answer
	var made int64
	path := "crowd/50/main"
	stream := one[int64](r, `select id from rouse.streams where path = $1`, path)
	unread := one[string](r, `select s.path from rouse.consumer_streams k join rouse.streams s on s.id = k.stream_id where k.behind limit 1`)
	for _, m := range []struct {
		name   string
		budget int64 // rows and index entries read
		run    func()
	}{
		{"making a stream that no pattern matches", 10, func() { r.make("quiet/a/b", `{"a": 1}`) }},
		{"making a stream near many patterns", 60, func() { r.make("crowd/new/x", `{"a": 1}`) }},
		{"making a stream that one matches", 40, func() { made = r.make("crowd/new/main", `{"a": 1}`) }},
		{"an append to a watched stream", 20, func() { r.append(path) }},
		{"dispatch_route of one", 2500, func() { r.wantRoute(stream, "minted") }}, // its notification names a thousand unread streams
		{"dispatch_route of one that is woken", 60, func() { r.wantRoute(made, "coalesced") }},
		{"acquire", 40, func() { g = r.want("granted", big.acquire("w")) }},
		{"heartbeat", 20, func() { r.want("ok", big.call("heartbeat", g)) }},
		{"ack", 40, func() { r.want("ok", big.call("ack", g, ack(path, 16))) }},
		{"release", 2500, func() { r.want("released", big.call("release", g, ack(unread, 8))) }},
		{"subscription_scan", 60, func() { r.exec(`select rouse.subscription_scan(0, 500)`) }},
		{"subscription_get", 400, func() { r.exec(`select rouse.subscription_get(1, 'big', 100)`) }},
		{"subscription_list", 80, func() { r.exec(`select rouse.subscription_list(1, null, '', 10)`) }},
		{"naming a stream", 200, func() { r.exec(`select rouse.subscription_watch(1, 'warm', 'x', array[$1])`, path) }},
		{"settling it", 100, func() { r.settle("warm") }},
		{"forgetting it", 60, func() { r.exec(`select rouse.subscription_unwatch(1, 'warm', 'x', $1)`, path) }},
		{"deleting a watched stream", 40, func() { r.exec(`select rouse._stream_delete(1, $1, false, $2)`, path, r.now) }},
		{"registering one", 60, func() { r.put(spec{id: "late", pattern: "crowd/1/*"}) }},
		{"settling it", 400, func() { r.settle("late") }},
		{"ending one", 60, func() { r.exec(`select rouse.subscription_delete(1, 'big', '')`) }},
		{"a step of what it leaves", 1200, func() { r.exec(`select rouse.subscription_tidy(100)`) }},
		{"subscription_unsettled", 100, func() { r.exec(`select rouse.subscription_unsettled(0, 10)`) }},
	} {
		seq0, read0 := stats()
		m.run()
		seq, read := stats()
		if seq > seq0 {
			t.Errorf("%s scans: %d rows", m.name, seq-seq0)
		}
		if read-read0 > m.budget {
			t.Errorf("%s reads %d index entries, more than %d", m.name, read-read0, m.budget)
		}
		t.Logf("%-45s %6d index entries", m.name, read-read0)
	}
}
