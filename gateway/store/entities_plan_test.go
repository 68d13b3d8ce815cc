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
