package mutextest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// crowdSQL makes entities up to a number, $crowd, as entity_spawn does, but in
// bulk. That the same holds at a million is the benchmark's to say.
var crowdSQL = []string{
	`insert into rouse.consumers (service_id, name, kind, entity_url) select 1, 'e_' || md5(i::text), 'entity', '/chat/' || i from generate_series(1, $crowd) i on conflict do nothing`,
	`insert into rouse.streams (service_id, path, kind, owner, content_type, is_json, consumer_id, tail)
	 select 1, 'chat/' || i || '/main', 'entity', '` + kyle + `', 'application/json', true, c.id, 10
	   from generate_series(1, $crowd) i join rouse.consumers c on c.name = 'e_' || md5(i::text) on conflict do nothing`,
	`insert into rouse.consumer_streams (consumer_id, stream_id, acked) select s.consumer_id, s.id, 10 from rouse.streams s where s.kind = 'entity' on conflict do nothing`,
	`insert into rouse.entities (service_id, url, type, dispatch_policy, created_by, consumer_id)
	 select 1, c.entity_url, 'chat', case when c.id % 10 = 0 then '` + toWebhook + `'::jsonb when c.id >= 50000 and c.id % 10 = 2 then '` + toPool("coding") + `'::jsonb
	              when c.id >= 50000 and c.id % 10 = 3 then '` + macThenPool + `'::jsonb else '{"targets":[{"type":"runner","runnerId":"mac"}]}'::jsonb end, '` + kyle + `', c.id
	   from rouse.consumers c on conflict do nothing`,
	`insert into rouse.entity_dispatch_state (service_id, entity_url) select 1, c.entity_url from rouse.consumers c on conflict do nothing`,
	// A past: one finished claim and wake each for a tenth of them.
	`insert into rouse.wake_notifications (service_id, wake_id, consumer_id, epoch, entity_url, target_type, target_runner_id, target, notification_public,
		delivery_status, claim_status, created_at, resolved_at)
	 select 1, gen_random_uuid(), c.name, 0, c.entity_url, 'runner', 'mac', '{}', '{}', 'delivered', 'completed', clock_timestamp(), clock_timestamp()
	   from rouse.consumers c where c.id % 10 = 1`,
	`insert into rouse.consumer_claims (service_id, consumer_id, epoch, entity_url, stream_path, runner_id, status, claimed_at)
	 select 1, c.name, 0, c.entity_url, c.entity_url || '/main', 'mac', 'released', clock_timestamp() from rouse.consumers c where c.id % 10 = 1 on conflict do nothing`,
}

const macThenPool = `{"targets":[{"type":"runner","runnerId":"mac"},{"type":"worker-pool","workerPoolId":"coding"},{"type":"webhook","url":"` + hook + `"}],
	"giveUp":{"afterMs":86400000,"attempts":9}}`

// TestCostIsWhatIsTouched counts what each function reads at volume, by the
// database's own statistics: no table is scanned, and the rows and index
// entries read follow what is asked, not what exists (R16). Plans stay with a
// long-lived connection, so the worst are tried: those made while the tables
// were empty or small, with wrong statistics or with none.
func TestCostIsWhatIsTouched(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"while empty", "after an analyze while empty", "while small, never analyzed"} {
		t.Run("planned "+when, func(t *testing.T) { t.Parallel(); costIsWhatIsTouched(t, when) })
	}
}

func costIsWhatIsTouched(t *testing.T, when string) {
	r := newRig(t)
	r.runner("mac", 0)
	warm := r.entity("/chat/warm", toRunner("mac"))
	warmHook := r.entity("/chat/hook", toWebhook)
	r.pool("coding", 100, 200)
	r.runner("box", 100)
	for _, m := range []string{"mac", "box"} {
		r.exec(`select rouse.runner_heartbeat(1, $1, $2, false, 3600000, null, null)`, m, kyle)
		r.member("coding", m, kyle, "active", false)
	}
	warmPool, warmChain := r.entity("/chat/pool", toPool("coding")), r.entity("/chat/chain", macThenPool)

	wakes := func(n int) []int64 { // n entities with unread work, by stream
		var ids []int64
		for i := range n {
			ids = append(ids, one[int64](r, `update rouse.streams set tail = tail + 1, actionable = tail + 1, pending = true
				where service_id = 1 and path = 'chat/' || $1 || '/main' returning id`, fmt.Sprint(1+i*97)))
		}
		return ids
	}
	type measured struct {
		name   string
		budget int64 // rows and index entries read
		run    func()
	}
	var picked entity
	var g answer
	var wake string
	pick := func(stream int64) {
		if err := r.c.QueryRow(r.ctx(), `select c.id, c.name, s.id, s.path, c.entity_url from rouse.streams s join rouse.consumers c on c.id = any (array[s.consumer_id]) where s.id = $1`, stream).
			Scan(&picked.consumer, &picked.name, &picked.stream, &picked.path, &picked.url); err != nil {
			t.Fatal(err)
		}
	}
	var dirty, ofPool, ofChain []int64
	steps := []measured{
		{"stream_append of one", 30, func() { r.write(picked, answer{Epoch: 1, Wake: strange}) }},
		{"dispatch_route of one", 60, func() { r.exec(`select rouse.dispatch_route(array[$1::bigint], array[11::bigint])`, dirty[0]) }},
		{"dispatch_route of one that is woken", 40, func() { r.exec(`select rouse.dispatch_route(array[$1::bigint], array[11::bigint])`, dirty[0]) }},
		{"dispatch_route of 64", 64 * 60, func() {
			r.exec(`select rouse.dispatch_route($1::bigint[], array_fill(11::bigint, array[64]))`, dirty[1:65])
		}},
		{"dispatch_scan", 1000 * 8, func() { r.exec(`select rouse.dispatch_scan(0, 500)`) }},
		{"acquire by id", 60, func() { g = r.want("granted", picked.acquire()) }},
		{"heartbeat", 30, func() { r.want("ok", picked.call("heartbeat", g.Epoch, g.Wake)) }},
		{"ack", 60, func() { r.want("ok", picked.call("ack", g.Epoch, g.Wake).with("acks", picked.acks(11))) }},
		{"release", 80, func() { r.want("released", picked.call("release", g.Epoch, g.Wake).with("acks", picked.acks(11))) }},
		{"release again", 30, func() { r.want("released", picked.call("release", g.Epoch, g.Wake).with("acks", picked.acks(11))) }},
		{"acquire by path", 60, func() {
			pick(dirty[1])
			r.want("granted", op{"op": "acquire", "path": "/" + picked.path, "holder": kyle, "trusted": true})
		}},
		{"acquire by name and epoch", 60, func() {
			pick(dirty[2])
			r.want("granted", op{"op": "acquire", "consumer": picked.name, "epoch": 1, "holder": kyle, "trusted": true})
		}},
		{"acquire by wake", 60, func() {
			r.want("granted", op{"op": "acquire", "wake": wake, "holder": kyle, "trusted": true})
		}},
		// The waiting wakes of one runner are read, the rest not.
		{"acquire naming nothing", 64 * 6, func() { r.want("granted", op{"op": "acquire", "runner": "mac", "holder": kyle, "claim_id": "x"}) }},
		{"claim_reap with nothing due", 20, func() { r.exec(`select rouse.claim_reap(500)`) }},
		{"claim_reap of a handful", 1000, func() {
			r.exec(`update rouse.consumers set due_at = clock_timestamp(), lease_expires_at = clock_timestamp() where id = $1`, picked.consumer)
			r.exec(`select rouse.claim_reap(500)`)
		}},
		{"delivery_lend", 64 * 12, func() { r.exec(`select rouse.delivery_lend(64, 64, '{}')`) }},
		{"runner_heartbeat while online", 20, func() { r.beat("mac", time.Hour) }},
		{"dispatch_route of one for a pool", 60, func() { r.exec(`select rouse.dispatch_route(array[$1::bigint], array[11::bigint])`, ofPool[0]) }},
		{"dispatch_route of one of several targets", 90, func() { r.exec(`select rouse.dispatch_route(array[$1::bigint], array[11::bigint])`, ofChain[0]) }},
		{"dispatch_route of 64 for a pool", 64 * 60, func() {
			r.exec(`select rouse.dispatch_route($1::bigint[], array_fill(11::bigint, array[64]))`, ofPool[1:65])
		}},
		{"dispatch_route of 64 of several targets", 64 * 90, func() {
			r.exec(`select rouse.dispatch_route($1::bigint[], array_fill(11::bigint, array[64]))`, ofChain[1:65])
		}},
		{"acquire of a pool's by id", 80, func() {
			pick(ofPool[0])
			g = r.want("granted", picked.by("box"))
		}},
		{"release of a pool's", 100, func() { r.want("released", picked.call("release", g.Epoch, g.Wake).with("acks", picked.acks(11))) }},
		{"acquire naming nothing by a member", 130 * 6, func() { r.want("granted", op{"op": "acquire", "runner": "box", "holder": kyle, "claim_id": "y"}) }},
		{"a slot of a pool is freed", 130 * 6, func() {
			pick(ofPool[2])
			g = r.want("granted", picked.by("box"))
			r.exec(`update rouse.worker_pools set max_total_claims = (select count(*) from rouse.consumer_claims where pool_id = 'coding' and status = 'active')`)
			r.want("released", picked.call("release", g.Epoch, g.Wake).with("acks", picked.acks(11)))
		}},
		{"claim_reap of one that moves on", 200, func() {
			pick(ofChain[1])
			r.exec(`update rouse.wake_notifications set created_at = created_at - interval '1 hour' where wake_id = (select wake_id from rouse.consumers where id = $1)`, picked.consumer)
			r.exec(fmt.Sprintf(`update rouse.consumers set due_at = clock_timestamp() where id = %d`, picked.consumer))
			r.exec(`select rouse.claim_reap(500)`)
			equal(t, "moved on", one[int](r, `select target_index::int from rouse.consumers where id = $1`, picked.consumer), 1)
		}},
	}
	plan := func() {
		for range 8 {
			for _, e := range []entity{warm, warmHook, warmPool, warmChain} {
				r.push(e)
				r.exec(`select rouse.dispatch_route(array[$1::bigint], array[$2::bigint])`, e.stream, r.tail(e))
				r.exec(`select rouse.delivery_lend(10, 10, '{}')`)
				r.exec(`update rouse.consumers set due_at = clock_timestamp() where id = $1`, e.consumer)
				r.exec(`select rouse.claim_reap(10)`)
				ask := e.acquire().with("trusted", true)
				if e == warmPool {
					ask = op{"op": "acquire", "runner": "box", "holder": kyle}
				}
				a := r.want("granted", ask)
				r.want("ok", e.call("heartbeat", a.Epoch, a.Wake))
				r.want("ok", e.call("ack", a.Epoch, a.Wake).with("acks", e.acks(r.tail(e))))
				r.write(e, a)
				r.want("released", e.call("release", a.Epoch, a.Wake).with("acks", e.acks(r.tail(e))))
			}
			r.exec(`select rouse.dispatch_scan(0, 10)`)
			r.exec(`select rouse.claim_reap(10)`)
			r.beat("mac", time.Minute)
			r.apply(op{"op": "acquire", "runner": "mac", "holder": kyle})
		}
	}
	// An analyze would have all plans made again, with statistics.
	r.exec(`do $$ declare t text; begin for t in select tablename from pg_tables where schemaname = 'rouse' loop
		execute format('alter table rouse.%I set (autovacuum_enabled = off)', t); end loop; end $$`)
	switch when {
	case "while empty":
		plan()
	case "after an analyze while empty":
		r.exec(`analyze`)
		plan()
	}
	loader := r.db.Conn(t)
	for _, crowd := range []string{"2000", "100000"} {
		for _, sql := range crowdSQL {
			if _, err := loader.Exec(t.Context(), strings.ReplaceAll(sql, "$crowd", crowd)); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
		if crowd == "2000" && when == "while small, never analyzed" {
			plan()
		}
	}
	// What the loader read is counted now, not in the middle of a step.
	for range 2 {
		if _, err := loader.Exec(t.Context(), `select pg_stat_force_next_flush()`); err != nil {
			t.Fatal(err)
		}
	}
	dirty = wakes(500)
	of := func(digit, n int) (ids []int64) {
		for i := range n {
			ids = append(ids, one[int64](r, `update rouse.streams s set tail = tail + 1, actionable = tail + 1, pending = true from rouse.consumers c
				where c.id = $1 and s.consumer_id = c.id and s.actionable = 0 returning s.id`, 50000+10*i+digit))
		}
		return ids
	}
	ofPool, ofChain = of(2, 65), of(3, 65)
	pick(dirty[0])

	type counts struct{ seq, read int64 }
	stats := func() (c counts) {
		t.Helper()
		// The counters of a session are flushed when it is idle, or when asked.
		r.exec(`select pg_stat_force_next_flush()`)
		r.exec(`select pg_stat_clear_snapshot()`)
		if err := r.c.QueryRow(t.Context(), `select
			(select coalesce(sum(seq_tup_read), 0) from pg_stat_user_tables where schemaname = 'rouse' and relname not in ('services', 'policies', 'runners', 'runner_runtime_diagnostics', 'worker_pools', 'worker_pool_members', 'entity_types', 'users', 'delivery_attempts', 'producers')),
			(select coalesce(sum(idx_tup_read), 0) from pg_stat_user_indexes where schemaname = 'rouse')`).Scan(&c.seq, &c.read); err != nil {
			t.Fatal(err)
		}
		return c
	}
	r.exec(`select rouse.dispatch_route(array[$1::bigint], array[11::bigint])`, dirty[100])
	wake = one[string](r, `select c.wake_id::text from rouse.streams s join rouse.consumers c on c.id = s.consumer_id where s.id = $1`, dirty[100])
	r.now = time.Now().Add(time.Second)    // these leases are by the real clock
	r.exec(`select rouse.claim_reap(500)`) // what the warming up left in the index
	r.beat("mac", time.Hour)
	stats()
	for _, m := range steps {
		before := stats()
		m.run()
		after := stats()
		read := after.read - before.read
		if seq := after.seq - before.seq; seq > 0 {
			t.Errorf("%s scans: %d rows", m.name, seq)
		}
		if read > m.budget {
			t.Errorf("%s reads %d index entries, more than %d", m.name, read, m.budget)
		}
		t.Logf("%-40s %6d index entries", m.name, read)
	}
}
