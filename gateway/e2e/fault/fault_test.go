package fault

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/devpg"
)

// underLoad runs the load, lets breakIt do its work in the middle, and checks
// what is left.
func underLoad(t *testing.T, w *world, workers, minimum int, breakIt func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	finish, end := context.WithCancel(t.Context())
	defer end()
	l := w.startLoad(ctx, finish, 3, 2, workers)
	w.load = l
	half := loadTime(t, 1500*time.Millisecond)
	pause(ctx, half)
	broke := time.Now()
	breakIt()
	pause(ctx, half)
	// A busy machine needs longer until enough is done to mean anything.
	within(t, patience, "sends are acknowledged again, wakes granted, and enough of both done", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		appends := 0
		for _, acks := range l.logged {
			appends += len(acks)
		}
		return firstAfter(l.okSends, broke) >= 0 && len(l.okSends) >= minimum && appends >= minimum &&
			(workers == 0 || firstAfter(l.okGrant, broke) >= 0 && len(l.okGrant) >= minimum/10)
	})
	l.mu.Lock()
	t.Logf("after the fault: first send acknowledged after %v", firstAfter(l.okSends, broke))
	if workers > 0 {
		t.Logf("after the fault: first wake granted after %v", firstAfter(l.okGrant, broke))
	}
	l.mu.Unlock()
	stop()
	t.Logf("everything was worked %v after the last send", w.quiet().Round(time.Millisecond))
	within(t, patience, "whoever follows the log has come to its end", func() bool {
		tail := w.clients[1].Do(t.Context(), "HEAD", logPath, nil, nil).Header.Get("Stream-Next-Offset")
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.follows == tail
	})
	end()
	l.wg.Wait()
	l.audit(minimum)
}

func TestGatewayKilledUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 6)
	underLoad(t, w, 4, 100, func() {
		// The first one started first, so it holds the router's slot.
		w.gateways[0].kill()
		pause(t.Context(), 500*time.Millisecond)
		w.startGateway(0)
		t.Logf("the killed gateway was ready again %v after its start", w.ready(0).Round(time.Millisecond))
	})
}

// A gateway that is frozen holds the router's slot and answers nobody; the
// other one takes over, and nothing is granted late when it thaws.
func TestGatewayFrozenUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 6)
	w.http.Timeout = time.Second
	underLoad(t, w, 4, 50, func() {
		if err := w.gateways[0].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		frozen := time.Now()
		var pid, now int
		const holder = `select coalesce(max(active_pid), 0) from pg_replication_slots where slot_type = 'logical' and not temporary`
		w.scan(holder, nil, &pid)
		within(t, patience, "another gateway holds the router's slot", func() bool {
			w.scan(holder, nil, &now)
			return now != 0 && now != pid
		})
		t.Logf("the router's slot had another holder after %v", time.Since(frozen).Round(time.Millisecond))
		pause(t.Context(), max(0, 2*lease-time.Since(frozen)))
		if err := w.gateways[0].cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	})
}

func TestPostgresRestartedUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 6)
	underLoad(t, w, 4, 100, func() {
		for _, mode := range []devpg.Mode{devpg.Immediate, devpg.Crash, devpg.Immediate} {
			began := time.Now()
			if err := w.pg.Restart(t.Context(), mode); err != nil {
				t.Fatal(err)
			}
			t.Logf("a restart in mode %v took %v", mode, time.Since(began).Round(time.Millisecond))
			pause(t.Context(), 300*time.Millisecond)
		}
	})
}

func TestSlotDroppedUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 6)
	underLoad(t, w, 4, 100, func() {
		conn, err := pgx.Connect(t.Context(), w.pg.DB.DSN)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(t.Context()) }()
		const durable = `slot_type = 'logical' and not temporary`
		within(t, patience, "the router's slot can be dropped", func() bool {
			// Its holder comes back at once: end it and drop in one breath.
			_, err := conn.Exec(t.Context(), `do $$ declare s record; begin
				for s in select slot_name, active_pid from pg_replication_slots where `+durable+` loop
					perform pg_terminate_backend(s.active_pid, 1000);
					perform pg_drop_replication_slot(s.slot_name);
				end loop; end $$`)
			return err == nil
		})
		dropped := time.Now()
		within(t, patience, "the router has a slot again", func() bool {
			var n int
			return conn.QueryRow(t.Context(), `select count(*) from pg_replication_slots where active and `+durable).Scan(&n) == nil && n == 1
		})
		t.Logf("the router had a slot again after %v", time.Since(dropped).Round(time.Millisecond))
	})
}

// laptop starts a runner process that answers each message in one line.
func (w *world) laptop(delay string) *process {
	w.t.Helper()
	script := fmt.Sprintf(`while IFS= read -r line; do
		key=$(printf '%%s' "$line" | sed 's/.*"payload":"\([^"]*\)".*/\1/'); %s
		echo "$key done by epoch $ROUSE_EPOCH"
	done`, delay)
	return launch(w.t, nil, "runner", "run", "--id", "mac", "--as", "user:kyle", "--server", w.clients[0].Base,
		"--cursor-dir", w.t.TempDir(), "--no-register", "--exec", script)
}

func TestRunnerKilledUnderLoad(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("sed"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, 4)
	first := w.laptop("sleep 0.02")
	underLoad(t, w, 0, 50, func() {
		first.kill()
		killed := time.Now()
		var after int64
		w.laptop("sleep 0.01")
		within(t, patience, "the next runner holds something", func() bool {
			w.scan(`select coalesce(sum(epoch), 0) from rouse.consumers where state = 'claimed'`, nil, &after)
			return after > 0 && time.Since(killed) > lease
		})
		within(t, patience, "what the killed one held is ended", func() bool {
			var live int
			w.scan(`select count(*) from rouse.consumer_claims where status = 'active' and claimed_at < $1 and lease_expires_at < clock_timestamp()`, []any{killed}, &live)
			return live == 0
		})
	})
}

// A holder that is stopped for longer than its lease finds that others went on.
func TestRunnerStoppedLongerThanItsLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	first := w.laptop("sleep 0.05")
	underLoad(t, w, 0, 50, func() {
		if err := first.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		stopped := time.Now()
		w.laptop("sleep 0.01")
		var expired int
		within(t, patience, "the stopped one's leases end", func() bool {
			w.scan(`select count(*) from rouse.consumer_claims where status = 'expired'`, nil, &expired)
			return expired > 0
		})
		t.Logf("the first lease was ended %v after the stop; a lease is %v", time.Since(stopped).Round(time.Millisecond), lease)
		pause(t.Context(), max(0, 2*lease-time.Since(stopped)))
		if err := first.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	})
	if s := first.said(); strings.Contains(s, "panic") {
		t.Errorf("the runner that was stopped: %s", s)
	}
}
