//go:build faults

package fault

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// F17: a transaction somewhere keeps its snapshot, so that nothing that is
// superseded can be removed, and autovacuum is off. A claim that is held all the
// while is kept at the same price.
func TestSnapshotHeldUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorldThrough(t, 6, pgtest.Options{Settings: map[string]string{"autovacuum": "off", "idle_in_transaction_session_timeout": "0"}},
		func(w *world) string { return w.pg.DB.DSN })
	underLoad(t, w, 4, 100, func() {
		w.must(w.clients[0].Spawn(t.Context(), "job", "held", "mac"), 200, 201)
		w.must(w.clients[0].Send(t.Context(), "job", "held", "k", "k"), 200)
		var consumer string
		w.scan(`select name from rouse.consumers where entity_url = '/job/held'`, nil, &consumer)
		var hold string
		within(t, patience, "a claim is held", func() bool {
			a := w.clients[0].Acquire(t.Context(), consumer, "held")
			hold = a.ClaimToken
			return a.Status == 200
		})
		// Hours of heartbeats, as many as a claim of ten seconds each sends.
		beats := func() time.Duration {
			took := make([]time.Duration, 300)
			for i := range took {
				began := time.Now()
				w.must(w.clients[0].Heartbeat(t.Context(), consumer, hold), 200)
				took[i] = time.Since(began)
			}
			slices.Sort(took)
			return took[len(took)/2]
		}
		before := beats()
		conn, err := pgx.Connect(t.Context(), w.pg.DB.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(t.Context()) }()
		for _, sql := range []string{`begin isolation level repeatable read`, `select count(*) from rouse.consumers`} {
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		during := []time.Duration{beats(), beats(), beats(), beats()}
		t.Logf("the median of 300 heartbeats was %v, and %v while the snapshot was held", before, during)
		if last := during[len(during)-1]; last > 5*before+5*time.Millisecond {
			t.Errorf("heartbeats take %v beside a snapshot that is held, %v without", last, before)
		}
		w.must(w.clients[0].Release(t.Context(), consumer, hold, "", ""), 200)
	})
}
