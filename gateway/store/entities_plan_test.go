package store

import "testing"

// At a hundred thousand entities a lookup reads the rows it answers and few
// more, whatever the filter.
func TestEntityLookupsReadLittleAtVolume(t *testing.T) {
	t.Parallel()
	_, db := controlStore(t)
	db.Exec(t, `insert into rouse.entities (service_id, url, type, created_by, consumer_id, parent, created_at)
		select 1, '/chat/' || n, 'chat', case when n % 5000 = 0 then '/principal/user%3Akyle' else '/principal/user%3Acrowd' end, n,
		       case when n % 10000 = 1 then '/chat/0' end, clock_timestamp() - make_interval(secs => n)
		  from generate_series(0, 99999) n`)
	db.Exec(t, `with g as (insert into rouse.entity_grants (service_id, entity_url, permission, subject_kind, subject_value, created_by)
		select 1, '/chat/' || n * 1000 + 7, 'read', 'principal', case when n < 30 then '/principal/user%3Aada' else '/principal/user%3Abob' end, 'x' from generate_series(0, 90) n returning *)
		insert into rouse.entity_effective_permissions (service_id, entity_url, source_entity_url, source_grant_id, permission, subject_kind, subject_value)
		select 1, entity_url, entity_url, id, permission, subject_kind, subject_value from g`)
	db.Exec(t, `analyze rouse.entities`)
	db.Exec(t, `analyze rouse.entity_effective_permissions`)
	for name, tc := range map[string]struct {
		sql        string
		rows, most int64
	}{
		"one":                  {`select count(*) from rouse.entity_get(1, '/chat/77777')`, 1, 2},
		"many gates":           {`select count(*) from rouse.entity_gate(array[1, 1, 1], array['/chat/5', '/chat/6', '/chat/none'], array['chat', 'chat', 'chat'], array['/principal/user%3Akyle', '/principal/user%3Akyle', '/principal/user%3Akyle'])`, 3, 4},
		"many state gates":     {`select count(*) from rouse.entity_state_gate(array[1, 1, 1], array['/chat/5', '/chat/6', '/chat/none'], array['', '', ''])`, 3, 4},
		"newest of all":        {`select count(*) from rouse.entity_list(1, null, null, null, null, null, null, null, 50)`, 50, 60},
		"what one may":         {`select count(*) from rouse.entity_allowed(1, '/principal/user%3Akyle', 'read', array['/chat/5', '/chat/5000', '/chat/none'])`, 1, 3},
		"a person's":           {`select count(*) from rouse.entity_list(1, '/principal/user%3Akyle', null, null, null, null, null, null, 50)`, 20, 30},
		"what one is shown":    {`select count(*) from rouse.entity_list(1, '/principal/user%3Aada', null, null, null, null, null, null, 50)`, 30, 40},
		"a tree":               {`select count(*) from rouse.entity_tree(1, '/chat/0', '/principal/user%3Akyle', 500)`, 11, 60},
		"made by":              {`select count(*) from rouse.entity_list(1, null, null, null, null, '/principal/user%3Akyle', null, null, 50)`, 20, 30},
		"children":             {`select count(*) from rouse.entity_list(1, null, null, null, '/chat/0', null, null, null, 50)`, 10, 20},
		"a page in the middle": {`select count(*) from rouse.entity_list(1, null, null, null, null, null, clock_timestamp() - interval '50000 s', '/chat/x', 50)`, 50, 110},
		"a person's page":      {`select count(*) from rouse.entity_list(1, '/principal/user%3Akyle', null, null, null, null, clock_timestamp() - interval '50000 s', '/chat/x', 50)`, 10, 30},
	} {
		tx, err := db.Conn(t).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var rows, read int64
		if err := tx.QueryRow(t.Context(), tc.sql).Scan(&rows); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := tx.QueryRow(t.Context(), `select coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables
			where relid = 'rouse.entities'::regclass`).Scan(&read); err != nil {
			t.Fatal(err)
		}
		if rows < tc.rows-1 || rows > tc.rows+1 || read > tc.most {
			t.Errorf("%s: %d rows, %d read, want %d and at most %d", name, rows, read, tc.rows, tc.most)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// What spawns, grants and forks read follows what they touch, also by plans that
// a session made while the tables were empty.
func TestGrantsReadLittleByOldPlans(t *testing.T) {
	t.Parallel()
	_, db := controlStore(t)
	c := db.Conn(t)
	call := func(want, sql string, args ...any) {
		t.Helper()
		var outcome string
		if err := c.QueryRow(t.Context(), sql, args...).Scan(&outcome); err != nil || outcome != want {
			t.Fatalf("%s, %v", outcome, err)
		}
	}
	spawn := func(url, parent string) {
		t.Helper()
		call("spawned", `select outcome from rouse.entity_spawn(1, $1, 'chat', 1, $2, false, true, null, '{}', nullif($3, ''), null, null, '{"headers":{}}', null)`, url, kyle, parent)
	}
	grant := func(url string) {
		t.Helper()
		call("granted", `select outcome from rouse.grant_put(1, $1, $2, $2, '{"permission":"read","subject_kind":"principal","subject_value":"/principal/user%3Aada","propagation":"descendants","copy_to_children":true}')`, url, kyle)
	}
	access := func(url string) {
		t.Helper()
		call("read", `select coalesce((select 'read' from rouse.entity_access(1, $1, '/principal/user%3Aada', 'read') where allowed), 'no')`, url)
		call("write", `select case when allowed then 'yes' else 'write' end from rouse.entity_gate(array[1], array[$1], array['chat'], array['/principal/user%3Aada'])`, url)
	}
	revoke := func(url string) {
		t.Helper()
		call("deleted", `select d.outcome from rouse.grant_list(1, $1) g cross join lateral rouse.grant_delete(1, $1, $2, $2, g.id) d order by g.id desc limit 1`, url, kyle)
	}
	attach := func(url string) {
		t.Helper()
		call("created", `select rouse.attachment_put(1, $1, $2, $2, 'file', 'text/plain', '\x00', '{}', '{"headers":{}}')`, url, kyle)
	}
	fork := func(url string) {
		t.Helper()
		call("forked", `select f.outcome from rouse.streams s, rouse.entity_fork(1, $2, $2, null, true, array[$1], array[$1 || '-f'], array[null::text], array['{}'],
			array[s.tail], array[s.tail], array[null::bytea], array[0], array[null::text], array[true], null, array[1], array['{"headers":{}}'], array[1], array['file'],
			array[1], array['none'], array['none'], null, 0, 0, true, null, null) f where s.service_id = 1 and s.path = substr($1, 2) || '/main'`, url, kyle)
	}
	all := func(root string) {
		t.Helper()
		spawn(root+"-s", "")
		attach(root + "-s")
		fork(root + "-s")
		spawn(root, "")
		grant(root)
		spawn(root+"-c", root)
		spawn(root+"-g", root+"-c")
		grant(root)
		access(root + "-g")
		revoke(root)
	}
	for i := range 7 {
		all("/chat/warm" + string(rune('a'+i)))
	}
	db.Exec(t, `insert into rouse.entities (service_id, url, type, created_by, consumer_id, parent)
		select 1, '/chat/' || n, 'chat', $1, 0, case when n % 10 > 0 then '/chat/' || n / 10 * 10 end from generate_series(0, 49999) n`, kyle)
	db.Exec(t, `with g as (insert into rouse.entity_grants (service_id, entity_url, permission, subject_kind, subject_value, propagation, created_by)
		select 1, '/chat/' || n, 'read', 'principal', '/principal/user%3Aada', 'descendants', 'x' from generate_series(0, 49999) n returning *)
		insert into rouse.entity_effective_permissions (service_id, entity_url, source_entity_url, source_grant_id, permission, subject_kind, subject_value)
		select 1, entity_url, entity_url, id, permission, subject_kind, subject_value from g`)
	db.Exec(t, `with c as (insert into rouse.consumers (service_id, name, kind, entity_url) select 1, 'bulk-' || n, 'entity', '/chat/' || n from generate_series(0, 49999) n returning id, entity_url),
		s as (insert into rouse.streams (service_id, path, kind, content_type, is_json, consumer_id) select 1, substr(entity_url, 2) || '/main', 'entity', 'application/json', true, id from c returning id, consumer_id),
		l as (insert into rouse.consumer_streams (consumer_id, stream_id) select consumer_id, id from s)
		insert into rouse.entity_attachments (service_id, entity_url, id, stream_id, manifest) select 1, '/chat/0', id::text, id, '{}' from s`)
	const counted = `select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint from pg_stat_xact_user_tables where schemaname = 'rouse'`
	if _, err := c.Exec(t.Context(), `begin`); err != nil {
		t.Fatal(err)
	}
	var before, after int64
	for _, step := range []struct {
		name string
		run  func()
	}{
		{"spawn of a source", func() { spawn("/chat/z-s", "") }}, {"attach", func() { attach("/chat/z-s") }}, {"fork", func() { fork("/chat/z-s") }},
		{"spawn", func() { spawn("/chat/z", "") }}, {"grant", func() { grant("/chat/z") }}, {"child", func() { spawn("/chat/z-c", "/chat/z") }},
		{"grandchild", func() { spawn("/chat/z-g", "/chat/z-c") }}, {"grant on a tree", func() { grant("/chat/z") }},
		{"access", func() { access("/chat/z-g") }}, {"revoke", func() { revoke("/chat/z") }}, {"tree", func() {
			call("yes", `select case when count(*) = 3 then 'yes' end from rouse.entity_tree(1, '/chat/z', $1, 500)`, kyle)
		}},
	} {
		if err := c.QueryRow(t.Context(), counted).Scan(&before); err != nil {
			t.Fatal(err)
		}
		step.run()
		if err := c.QueryRow(t.Context(), counted).Scan(&after); err != nil {
			t.Fatal(err)
		}
		if after-before > 200 {
			t.Errorf("%s: %d rows read", step.name, after-before)
		}
	}
	if _, err := c.Exec(t.Context(), `rollback`); err != nil {
		t.Fatal(err)
	}
}
