package shapes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// Whatever transactions do to the tables, a shape that has followed them holds
// what its query answers: rows that come, leave, change their key, are rolled
// back, in one transaction with others; with and without the old row in the log;
// through two gateways in turn.
func randomChanges(t *testing.T, fresh func() *pgtest.DB) {
	db := fresh()
	one, two := gateway(t, db), gateway(t, db)
	system := as(t, "", one.URL, two.URL)
	system.must(201, "POST", "/_electric/entity-types", `{"name":"chat","description":""}`)
	conn := db.Conn(t)
	type followed struct {
		*shape
		sql string
	}
	var shapes []*followed
	const ms = "floor(extract(epoch from %s) * 1000)::bigint"
	add := func(table, columns, where string, pairs ...string) {
		s := system.shape(table, append([]string{"where", where, "columns", columns}, pairs...)...)
		if table == "entities" {
			columns = strings.Replace(columns, "updated_at", fmt.Sprintf(ms, "updated_at")+" as updated_at", 1)
			where = strings.Replace(where, "created_at", fmt.Sprintf(ms, "created_at"), 1)
		}
		shapes = append(shapes, &followed{s, "select " + columns + " from rouse." + table + " where service_id = 1 and (" + where + ")"})
	}
	for _, replica := range []string{"default", "full"} {
		add("users", "id,display_name", "true", "replica", replica)
		add("users", "id,display_name,email", "display_name is not null and (email like 'a%' or id < 'u5')", "replica", replica)
		add("users", "id", "display_name in ('x', 'y')", "replica", replica)
		add("entities", "url,status,spawn_args,updated_at", "status = 'running' and created_at > 1577836800000", "replica", replica)
		add("entities", "url,parent,spawn_args,tags", "parent is not null or tags::text like '%red%'", "replica", replica)
		add("entities", "url,status", "url in ('/chat/1', '/chat/2', '/chat/3')", "replica", replica)
		add("entity_dispatch_state", "entity_url,active_epoch,last_error", "active_epoch between 2 and 5 or last_error is distinct from 'x'", "replica", replica)
		add("wake_notifications", "wake_id,claim_status,target_type", "not (claim_status = 'claimed')", "replica", replica)
	}
	step := func() {
		for _, s := range shapes {
			s.step(false)
		}
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 7))
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	text := func() string { return pick("null", "'x'", "'y'", "'z'", "'a1'", "'A1'", "''") }
	// Each statement makes one sensible change.
	statement := func() string {
		u, e, w := rng.IntN(8), rng.IntN(6), rng.IntN(6)
		big := "'{}'"
		if rng.IntN(2) == 0 {
			big = fmt.Sprintf("(select jsonb_build_object('a', string_agg(md5((i+%d)::text), '')) from generate_series(1, 400) i)", rng.IntN(1000))
		}
		wake := fmt.Sprintf("'00000000-0000-7000-8000-00000000000%d'", w)
		return []string{
			fmt.Sprintf("insert into rouse.users (service_id, id, display_name, email) values (1, 'u%d', %s, %s) on conflict (service_id, id) do update set display_name = excluded.display_name", u, text(), text()),
			fmt.Sprintf("update rouse.users set display_name = %s, email = %s where id = 'u%d'", text(), text(), u),
			fmt.Sprintf("update rouse.users set id = 'u%d' where id = 'u%d' and not exists (select from rouse.users where id = 'u%[1]d')", rng.IntN(8), u),
			fmt.Sprintf("delete from rouse.users where id in ('u%d', 'u%d')", u, rng.IntN(8)),
			fmt.Sprintf("update rouse.users set metadata = '{\"n\": %d}'", rng.IntN(9)),
			fmt.Sprintf("insert into rouse.entities (service_id, url, type, created_by, spawn_args, consumer_id, parent) values (1, '/chat/%d', 'chat', 'x', %s, 1, %s) on conflict do nothing", e, big, text()),
			fmt.Sprintf("update rouse.entities set status = %s, created_at = %s, updated_at = clock_timestamp() where url = '/chat/%d'", pick("'running'", "'idle'", "'killed'"), pick("created_at", "'2019-12-31 23:59:59.9999+00'", "'2020-01-01 00:00:00.0009+00'", "'2020-01-01 00:00:00.001+00'"), e),
			fmt.Sprintf("update rouse.entities set tags = %s, spawn_args = %s where url >= '/chat/%d'", pick("'{}'", `'{"c":"red"}'`), big, e),
			fmt.Sprintf("delete from rouse.entities where url = '/chat/%d'", e),
			fmt.Sprintf("insert into rouse.entity_dispatch_state (service_id, entity_url, active_epoch) values (1, '/chat/%d', %d) on conflict (entity_url, service_id) do update set active_epoch = excluded.active_epoch, last_error = %s", e, rng.IntN(7), text()),
			fmt.Sprintf("insert into rouse.wake_notifications (service_id, wake_id, consumer_id, epoch, target_type, target, notification_public, created_at) values (1, %s, 'c', 1, 'runner', '{}', '{}', now()) on conflict (wake_id) do update set claim_status = %s", wake, pick("'claimed'", "'completed'")),
			"delete from rouse.wake_notifications where wake_id = " + wake,
		}[rng.IntN(12)]
	}
	var done []string
	exec := func(sql string) {
		t.Helper()
		done = append(done, sql)
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	compare := func() {
		t.Helper()
		for i, s := range shapes {
			want := query(t, conn, s.sql)
			var got []string
			ok := func() bool {
				got = got[:0]
				for _, row := range s.rows {
					var cells []string
					for k, v := range row {
						cells = append(cells, k+"="+v)
					}
					slices.Sort(cells)
					got = append(got, strings.Join(cells, " "))
				}
				slices.Sort(got)
				return slices.Equal(got, want)
			}
			for deadline := time.Now().Add(bound); !ok(); s.step(false) {
				if time.Now().After(deadline) {
					t.Fatalf("shape %d, %v\nholds %.1500s\nwant  %.1500s\nafter\n%s", i, s.query, fmt.Sprint(got), fmt.Sprint(want), strings.Join(done[max(0, len(done)-12):], "\n"))
				}
			}
		}
	}
	step()
	for round := range 40 {
		exec("begin")
		for range 1 + rng.IntN(5) {
			if rng.IntN(6) == 0 {
				exec("savepoint s; " + statement() + "; rollback to savepoint s")
			}
			exec(statement())
		}
		exec(pick("commit", "commit", "commit", "rollback"))
		if round%4 == 0 {
			step()
		}
		if round%10 == 9 {
			compare()
		}
	}
	for i, s := range shapes {
		if s.refetched > 3 {
			t.Errorf("shape %d was fetched anew %d times", i, s.refetched)
		}
	}
}

// query answers rows as the shapes' are written.
func query(t *testing.T, conn *pgx.Conn, sql string) (out []string) {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	defer rows.Close()
	for rows.Next() {
		var cells []string
		for i, raw := range rows.RawValues() {
			v := "NULL"
			if raw != nil {
				v = string(raw)
			}
			cells = append(cells, rows.FieldDescriptions()[i].Name+"="+v)
		}
		slices.Sort(cells)
		out = append(out, strings.Join(cells, " "))
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	slices.Sort(out)
	return out
}
