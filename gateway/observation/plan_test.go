package observation

import (
	"testing"
)

// What runs all the time costs what there is to do, not what there is: plans are
// made while the tables are empty and must not become walks when they are full.
func TestNothingWalksATable(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.spawn("/chat/a", "")
	r.spawn("/chat/b", "")
	c := r.db.Conn(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := c.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	const who = "/principal/user%3Akyle"
	work := func() {
		t.Helper()
		for range 8 {
			exec(`select rouse.observe_register(1, $1, false, '/chat/a', '/chat/b', '"runFinished"', 0, 0, true, null)`, who)
			exec(`select rouse.observe_register(1, $1, false, '/chat/a', '/chat/absent', '"runFinished"', 0, 0, true, 'k')`, who)
			exec(`select rouse._stream_push(s.id, '{"type":"run"}', false) from (select id from rouse.streams where path = 'chat/b/main' and service_id = 1 for no key update) s`)
			exec(`select count(*) from rouse.observe_take(0, 64, 100000)`)
			exec(`select rouse.observe_move(array[o.id], array[o.acked], array[o.state], array[o.due], array[o.tail], array[null::text], array[-1], array[false], array['{"type":"wake"}'], array[1], false)
				from rouse.observe_take(0, 64, 100000) o`)
			exec(`select rouse.observe_attach(9000000, 500)`)
			exec(`select rouse.observe_unregister(1, $1, false, '/chat/a', null, 'k')`, who)
			exec(`select rouse.observe_unregister(1, $1, false, '/chat/a', '/chat/b', null)`, who)
			exec(`select count(*) from rouse.observe_back((select rouse._entity_main(1, '/chat/b')), 100, 1000)`)
			exec(`select rouse.observation_next()`)
			exec(`select rouse.schedule_add(1, $1, false, '/chat/a', '{}', 0, 'p')`, who)
			exec(`select rouse.schedule_send(t.id, t.due_at, '{"type":"inbox"}', null, '{}', true) from rouse.schedule_take(50) t where t.kind = 'delayed_send'`)
			exec(`select rouse.schedule_write(1, $1, false, '/chat/a', 'schedule', 'schedule:x', '{"type":"manifest"}', true, null)`, who)
			exec(`select rouse.cron_ensure(1, '_cron/x', '* * * * *', 'UTC')`)
			exec(`select rouse.schedule_plan(t.id, t.due_at, clock_timestamp()) from rouse.schedule_take(50) t where t.kind = 'cron_tick' and not t.planned`)
			exec(`select rouse.schedule_tick(t.id, t.due_at, '{}', clock_timestamp()) from rouse.schedule_take(50) t where t.kind = 'cron_tick'`)
			exec(`select rouse.shared_state_admit(1, $1, false, '_electric/shared-state/s', 'write', '/chat/a', null, null, null)`, who)
			exec(`select rouse.shared_state_admit(1, $1, false, '_electric/shared-state/s', 'read', null, null, null, null)`, who)
			exec(`select rouse.membership_ensure(1, $1, false, 'ref', '{"k":"v"}')`, who)
			exec(`select rouse.membership_fill(1, 'ref', 500)`)
			exec(`insert into rouse.membership_changes (service_id, entity_url) values (1, '/chat/a')`)
			exec(`select rouse.membership_apply(500)`)
			exec(`select rouse.membership_check(0, 500)`)
			exec(`delete from rouse.producers`)
		}
	}
	work()
	loader := r.db.Conn(t)
	const many = 20_000
	for _, sql := range []string{
		`insert into rouse.streams (service_id, path, content_type, is_json, kind) select 1, 's' || i, 'application/json', true, 'app' from generate_series(1, $1) i`,
		`insert into rouse.observers (service_id, stream_id, kind, subscriber_url, acked, source_path, source_url, principal, condition, due_at, manifest_key)
			select 1, s.id, 'wake', '/chat/' || s.path, 0, s.path, '/' || s.path, 'p', '"runFinished"', clock_timestamp() + interval '1 day', s.path from rouse.streams s where s.path like 's%' and $1 > 0`,
		`insert into rouse.scheduled_tasks (service_id, kind, due_at, entity_url, message, principal, producer_id) select 1, 'delayed_send', clock_timestamp() + interval '1 day', '/chat/x', '{}', 'p', 'x' || i from generate_series(1, $1) i`,
		`insert into rouse.entities (service_id, url, type, created_by, consumer_id, tags) select 1, '/many/' || i, 'many', 'p', i + 1000000, jsonb_build_object('n', i::text) from generate_series(1, $1) i`,
		`insert into rouse.shared_state_links (service_id, path, entity_url) select 1, '_electric/shared-state/x' || i, '/many/' || i from generate_series(1, $1) i`,
		`delete from rouse.membership_changes where $1 > 0`,
	} {
		if _, err := loader.Exec(t.Context(), sql, many); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	type counts struct{ seq, read int64 }
	count := func() (n counts) {
		t.Helper()
		exec(`select pg_stat_force_next_flush()`)
		if _, err := loader.Exec(t.Context(), `select pg_stat_force_next_flush()`); err != nil {
			t.Fatal(err)
		}
		const tables = `('streams', 'messages', 'observers', 'scheduled_tasks', 'entities', 'consumers', 'consumer_streams', 'shared_state_links', 'membership_members', 'producers')`
		if err := loader.QueryRow(t.Context(), `select (select sum(seq_scan) from pg_stat_user_tables where relname in `+tables+`)::bigint,
			(select sum(idx_tup_read) from pg_stat_user_indexes where relname in `+tables+`)::bigint`).Scan(&n.seq, &n.read); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	work()
	after := count()
	// The one walk that there is: the test's own deletion of producers.
	if walks := after.seq - before.seq; walks > 8 {
		t.Errorf("%d sequential scans", walks)
	}
	if read := after.read - before.read; read > 8*1000 {
		t.Errorf("%d index entries are read in 8 rounds", read)
	}
}
