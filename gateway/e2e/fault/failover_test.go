//go:build faults

package fault

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// replicated makes a world whose primary has a standby. The gateways know one
// address that can be led to either, or both servers. link is between the two.
func replicated(t *testing.T, knowBoth bool) (w *world, standby *pgtest.Instance, link *proxy) {
	t.Helper()
	w = newWorldThrough(t, 6, pgtest.Options{}, func(w *world) string {
		tcp := w.pg.TCPURL("rouse")
		link = newProxy(t, hostOf(t, tcp))
		standby = w.pg.Standby(t, link.through(t, tcp), pgtest.Options{})
		if !knowBoth {
			return behindProxy(w)
		}
		tcp = w.pg.TCPURL("rouse")
		return strings.Replace(tcp, hostOf(t, tcp), hostOf(t, standby.TCPURL("rouse"))+","+hostOf(t, tcp), 1)
	})
	within(t, patience, "the standby follows", func() bool {
		var n int
		w.scan(`select count(*) from pg_stat_replication where application_name = 'standby' and state = 'streaming'`, nil, &n)
		return n == 1
	})
	return w, standby, link
}

// failOver kills the primary. For a while the gateways find a server that takes
// no writes; then that one is promoted.
func (w *world) failOver(standby *pgtest.Instance, link *proxy) {
	t := w.t
	t.Helper()
	if err := w.pg.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	link.frozen.Store(false)
	link.cutAll()
	if w.proxy != nil {
		w.proxy.lead(hostOf(t, standby.TCPURL("rouse")))
		w.proxy.cutAll()
	}
	for i := range w.gateways {
		within(t, patience, "a gateway says that it takes no requests", func() bool {
			return w.clients[i].Do(t.Context(), http.MethodGet, "/readyz", nil, nil).Status == http.StatusServiceUnavailable
		})
	}
	if a := w.clients[0].Send(t.Context(), "job", "0", "while-read-only", "x"); a.Status != 503 || !strings.HasPrefix(a.Code, "DATABASE_") {
		t.Errorf("a send meanwhile: %v", a)
	}
	if err := standby.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	promoted := time.Now()
	w.pg = standby
	for i := range w.gateways {
		w.ready(i)
	}
	t.Logf("promoted %v after the primary was killed; %v later both gateways were ready", promoted.Sub(killed).Round(time.Millisecond), time.Since(promoted).Round(time.Millisecond))
	within(t, patience, "the router has a slot", func() bool {
		var n int
		w.scan(`select count(*) from pg_replication_slots where active and slot_type = 'logical' and not temporary`, nil, &n)
		return n == 1
	})
	t.Logf("the router had a slot %v after the promotion", time.Since(promoted).Round(time.Millisecond))
}

// epochsJumped demands that what was granted after the failover is above all
// that can have been granted before it.
func (w *world) epochsJumped() {
	t := w.t
	t.Helper()
	var floors, below, above int
	w.scan(`select (select count(*) from rouse.epoch_floors),
		(select count(*) from rouse.consumer_claims k, (select floor, at from rouse.epoch_floors order by n desc limit 1) f where k.claimed_at > f.at and k.epoch < f.floor),
		(select count(*) from rouse.consumer_claims k, (select floor, at from rouse.epoch_floors order by n desc limit 1) f where k.epoch >= f.floor)`,
		nil, &floors, &below, &above)
	if floors != 2 || below > 0 || above == 0 {
		t.Errorf("%d floors of epochs; of the claims behind the failover %d are below the last one, %d above", floors, below, above)
	}
}

// F7, with a standby that every commit waits for: nothing that was acknowledged
// is lost. The gateways know both servers.
func TestFailoverToASynchronousStandby(t *testing.T) {
	t.Parallel()
	w, standby, link := replicated(t, true)
	for _, sql := range []string{`alter system set synchronous_standby_names = 'standby'`, `select pg_reload_conf()`} {
		w.pg.DB.Exec(t, sql)
	}
	within(t, patience, "commits wait for the standby", func() bool {
		var n int
		w.scan(`select count(*) from pg_stat_replication where sync_state = 'sync'`, nil, &n)
		return n == 1
	})
	underLoad(t, w, 4, 100, func() {
		if w.pg.Binaries().Major >= 17 {
			within(t, patience, "the standby has the router's slot", func() bool {
				var n int
				scan(t, standby.DB.DSN, `select count(*) from pg_replication_slots where synced and not temporary`, nil, &n)
				return n == 1
			})
		}
		w.failOver(standby, link)
	})
	w.epochsJumped()
}

// F7, with a standby that is behind and takes over the primary's address: what was acknowledged since is lost, and
// nothing else. What was granted since is not granted again.
func TestFailoverToAStandbyThatIsBehind(t *testing.T) {
	t.Parallel()
	w, standby, link := replicated(t, false)
	w.risky = true
	underLoad(t, w, 4, 100, func() {
		lost := window{from: time.Now()}
		link.frozen.Store(true)
		pause(t.Context(), 400*time.Millisecond)
		w.failOver(standby, link)
		lost.to = time.Now()
		w.forgive = &lost
	})
	w.epochsJumped()
}

// F34: a backup is restored while runners hold claims of what came after it.
// What came after it is lost, and nothing that is granted then has been granted
// before.
func TestBackupRestoredUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorldThrough(t, 6, pgtest.Options{}, behindProxy)
	w.risky = true
	underLoad(t, w, 4, 50, func() {
		lost := window{from: time.Now()}
		backup := w.pg.Backup(t)
		w.proxy.lead(hostOf(t, w.pg.TCPURL("rouse")))
		w.load.mu.Lock()
		grants := len(w.load.okGrant)
		w.load.mu.Unlock()
		within(t, patience, "work goes on", func() bool {
			w.load.mu.Lock()
			defer w.load.mu.Unlock()
			return len(w.load.okGrant) > grants+5
		})
		if err := w.pg.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		restored := w.pg.Restore(t, backup)
		lost.to = time.Now()
		w.proxy.lead(hostOf(t, restored.TCPURL("rouse")))
		w.proxy.cutAll()
		w.pg, w.forgive = restored, &lost
		for i := range w.gateways {
			w.ready(i)
		}
		t.Logf("the gateways were ready %v after the backup was restored", time.Since(lost.to).Round(time.Millisecond))
	})
	w.epochsJumped()
}
