package shape

import (
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// At fifty thousand entities, each with a claim and a wake, a snapshot reads the
// caller's rows, or those of the entity it names, and few more.
func TestSnapshotsReadLittleAtVolume(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Conn(t)
	for _, sql := range []string{
		`insert into rouse.consumers (service_id, name, kind, entity_url) select 1, 'e_' || n, 'entity', '/chat/' || n from generate_series(0, 49999) n`,
		`insert into rouse.entities (service_id, url, type, created_by, consumer_id)
			select 1, c.entity_url, 'chat', case when c.id % 5000 = 0 then '/principal/user%3Akyle' else '/principal/user%3Acrowd' end, c.id from rouse.consumers c`,
		`insert into rouse.entity_dispatch_state (service_id, entity_url) select 1, url from rouse.entities`,
		`insert into rouse.consumer_claims (service_id, consumer_id, epoch, entity_url, stream_path, status, claimed_at)
			select 1, c.name, 1, c.entity_url, c.entity_url || '/main', 'released', now() from rouse.consumers c`,
		`insert into rouse.wake_notifications (service_id, wake_id, consumer_id, epoch, entity_url, target_type, target, notification_public, created_at)
			select 1, gen_random_uuid(), c.name, 1, c.entity_url, 'runner', '{}', '{}', now() from rouse.consumers c`,
		`with g as (insert into rouse.entity_grants (service_id, entity_url, permission, subject_kind, subject_value, created_by)
			select 1, '/chat/' || n * 1000 + 7, 'read', 'principal', case when n < 10 then '/principal/user%3Akyle' else '/principal/user%3Abob' end, 'x' from generate_series(0, 40) n returning *)
			insert into rouse.entity_effective_permissions (service_id, entity_url, source_entity_url, source_grant_id, permission, subject_kind, subject_value)
			select 1, entity_url, entity_url, id, permission, subject_kind, subject_value from g`,
		`analyze rouse.consumers, rouse.entities, rouse.entity_dispatch_state, rouse.consumer_claims, rouse.wake_notifications, rouse.entity_effective_permissions`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	total := func() (n int) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), `select coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0) from pg_stat_xact_user_tables where schemaname = 'rouse'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	kyle := auth.Principal{Kind: "user", ID: "kyle"}
	for _, c := range []struct {
		table, where string
		who          auth.Principal
		rows         int
	}{
		{"entities", "", kyle, 20}, {"entity_dispatch_state", "", kyle, 20}, {"consumer_claims", "", kyle, 20}, {"wake_notifications", "", kyle, 20},
		{"consumer_claims", "status = 'released' and entity_url = '/chat/7'", auth.DevLocal, 1}, {"wake_notifications", "entity_url in ('/chat/7', '/chat/8')", auth.DevLocal, 2},
		{"entities", "url = '/chat/7'", auth.DevLocal, 1}, {"entity_dispatch_state", "entity_url = '/chat/7'", auth.DevLocal, 1},
		{"consumer_claims", "entity_url = '/chat/9'", kyle, 0},
	} {
		d, err := readDefinition(url.Values{"table": {c.table}, "where": {c.where}})
		if err != nil {
			t.Fatal(err)
		}
		d.belongs(1, "default", c.who, false)
		query, args := d.query(nil, "")
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before := total()
		found, err := tx.Query(t.Context(), query, append([]any{pgx.QueryExecModeDescribeExec}, args...)...)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		rows := 0
		for found.Next() {
			rows++
		}
		read := total() - before
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if most := 15*c.rows + 150; found.Err() != nil || rows != c.rows || read > most {
			t.Errorf("%s of %s where %s: %v, %d rows, %d read, want %d and at most %d", c.table, c.who.Key(), c.where, found.Err(), rows, read, c.rows, most)
		}
	}
}
