//go:build faults

package fault

import (
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// F9: nothing comes through on the gateways' replication connections any more,
// and the server gives up the log that it keeps for them. Appends and wakes go
// on meanwhile; afterwards the slots are made anew.
func TestSlotLostUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorldThrough(t, 6, pgtest.Options{Settings: map[string]string{"max_slot_wal_keep_size": "32MB", "max_wal_size": "64MB", "min_wal_size": "32MB"}},
		func(w *world) string {
			direct := behindProxy(w)
			w.env = append(w.env, "ROUSE_DIRECT_URL="+direct)
			return w.pg.DB.DSN
		})
	const router = `slot_type = 'logical' and not temporary`
	underLoad(t, w, 4, 100, func() {
		var before, now string
		w.scan(`select slot_name from pg_replication_slots where `+router, nil, &before)
		w.proxy.frozen.Store(true)
		frozen := time.Now()
		seen := map[string]bool{}
		within(t, patience, "the router's slot is lost", func() bool {
			for _, sql := range []string{`select pg_logical_emit_message(false, 'burst', repeat('x', 4000000)) from generate_series(1, 4)`, `select pg_switch_wal()`, `checkpoint`} {
				w.pg.DB.Exec(t, sql)
			}
			w.scan(`select coalesce((select wal_status from pg_replication_slots where `+router+`), 'gone')`, nil, &now)
			seen[now] = true
			return now == "lost" || now == "gone"
		})
		t.Logf("the slot was lost after %v, by way of %v", time.Since(frozen).Round(time.Millisecond), seen)
		w.load.mu.Lock()
		grants := len(w.load.okGrant)
		w.load.mu.Unlock()
		within(t, patience, "wakes are granted while the log does not come through", func() bool {
			w.load.mu.Lock()
			defer w.load.mu.Unlock()
			return len(w.load.okGrant) > grants+10
		})
		w.proxy.frozen.Store(false)
		thawed := time.Now()
		within(t, patience, "the router has a slot that is sound", func() bool {
			var n int
			w.scan(`select count(*) from pg_replication_slots where active and wal_status in ('reserved', 'extended') and `+router, nil, &n)
			return n == 1
		})
		t.Logf("the router had a slot again %v after the connections were", time.Since(thawed).Round(time.Millisecond))
	})
}
