package store

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// The transition table of agents-wire section 2.
func TestTransitions(t *testing.T) {
	t.Parallel()
	_, db := controlStore(t)
	c := db.Conn(t)
	for _, tc := range []struct {
		signal, status string
		held           bool
		want           string
		handled, ends  bool
	}{
		{"SIGKILL", "idle", false, "killed", true, true},
		{"SIGKILL", "running", true, "killed", true, true},
		{"SIGKILL", "paused", false, "killed", true, true},
		{"SIGKILL", "stopping", true, "killed", true, true},
		{"SIGTERM", "idle", false, "stopped", true, true},
		{"SIGTERM", "paused", false, "stopped", true, true},
		{"SIGTERM", "paused", true, "stopping", false, false},
		{"SIGTERM", "spawning", false, "stopped", true, true},
		{"SIGTERM", "running", true, "stopping", false, false},
		{"SIGTERM", "stopping", true, "stopping", false, false},
		{"SIGSTOP", "idle", false, "paused", true, false},
		{"SIGSTOP", "running", true, "paused", false, false},
		{"SIGSTOP", "paused", false, "paused", true, false},
		{"SIGSTOP", "stopping", true, "stopping", false, false},
		{"SIGCONT", "paused", false, "idle", false, false},
		{"SIGCONT", "paused", true, "running", false, false},
		{"SIGCONT", "idle", false, "idle", false, false},
		{"SIGINT", "running", true, "running", false, false},
		{"SIGHUP", "idle", false, "idle", false, false},
		{"SIGUSR", "paused", false, "paused", true, false},
		{"SIGINT", "paused", true, "paused", false, false},
	} {
		var got string
		var handled, ends bool
		if err := c.QueryRow(t.Context(), `select * from rouse._entity_transition($1, $2, $3)`, tc.signal, tc.status, tc.held).
			Scan(&got, &handled, &ends); err != nil {
			t.Fatal(err)
		}
		if got != tc.want || handled != tc.handled || ends != tc.ends {
			t.Errorf("%s of %s (held %v): %s %v %v, want %s %v %v", tc.signal, tc.status, tc.held, got, handled, ends, tc.want, tc.handled, tc.ends)
		}
	}
}

func signal(t *testing.T, s *Store, url, sig string) SignalResult {
	t.Helper()
	res, err := s.EntitySignal(t.Context(), 1, url, kyle, sig, "sig-"+sig, "because", json.RawMessage(`{"n":null}`))
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// work makes an entity with a pending message, routed to a runner of kyle.
func work(t *testing.T, s *Store, db *pgtest.DB, url string) {
	t.Helper()
	r := spawnRequest(url)
	r.Policy, r.Message = runnerPolicy("mac"), `{"headers":{"operation":"insert"},"type":"inbox"}`
	mustSpawn(t, s, r)
	db.Exec(t, `select rouse.dispatch_route(array[s.id], array[s.tail]) from rouse.streams s where s.path = substr($1, 2) || '/main'`, url)
	if n := count(t, db, `select count(*) from rouse.entity_dispatch_state where entity_url = $1 and outstanding_wake_id is not null`, url); n != 1 {
		t.Fatal("no wake is outstanding")
	}
}

func claim(t *testing.T, db *pgtest.DB, url string) {
	t.Helper()
	var outcome string
	if err := db.Conn(t).QueryRow(t.Context(), `select a.outcome from rouse.consumers c,
		rouse.claim_acquire(1, c.name, c.wake_id, $2, 'mac') a where c.entity_url = $1`, url, kyle).Scan(&outcome); err != nil || outcome != "granted" {
		t.Fatalf("claim of %s: %s, %v", url, outcome, err)
	}
}

func TestKillClosesTheStreamAndEndsWhatIsHeldOrOutstanding(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	register(t, s, "mac", kyle)
	work(t, s, db, "/chat/waking")
	work(t, s, db, "/chat/held")
	claim(t, db, "/chat/held")
	for _, url := range []string{"/chat/waking", "/chat/held"} {
		res := signal(t, s, url, "SIGKILL")
		if res.Outcome != "signalled" || res.NewState != "killed" || res.TxID == 0 || res.CreatedAt.IsZero() {
			t.Fatalf("%s: %+v", url, res)
		}
		if n := count(t, db, `select count(*) from rouse.entities e join rouse.consumers c on c.id = e.consumer_id
			join rouse.streams m on m.consumer_id = c.id join rouse.entity_dispatch_state d on d.entity_url = e.url
			where e.url = $1 and e.status = 'killed' and c.state = 'stopped' and m.closed_at is not null and not m.pending
			  and d.outstanding_wake_id is null and d.active_consumer_id is null
			  and not exists (select from rouse.wake_notifications n where n.entity_url = e.url and n.resolved_at is null)
			  and not exists (select from rouse.consumer_claims k where k.entity_url = e.url and k.status = 'active')`, url); n != 1 {
			t.Errorf("%s is not ended as a whole", url)
		}
		var row struct {
			Type  string
			Value struct {
				Signal, Status, PreviousState, NewState string `json:",omitempty"`
				Payload                                 map[string]any
			}
		}
		var payload []byte
		if err := db.Conn(t).QueryRow(t.Context(), `select m.payload from rouse.messages m join rouse.streams s on s.id = m.stream_id
			where s.path = substr($1, 2) || '/main' and m.stamps = '{12}' order by m.position desc limit 1`, url).Scan(&payload); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(payload, &row); err != nil || row.Type != "signal" || row.Value.Signal != "SIGKILL" || row.Value.Status != "handled" {
			t.Errorf("row %s, %v", payload, err)
		}
		if _, has := row.Value.Payload["n"]; !has {
			t.Errorf("the payload was changed: %s", payload)
		}
		if again := signal(t, s, url, "SIGKILL"); again.Outcome != "terminal" {
			t.Errorf("a second kill: %s", again.Outcome)
		}
	}
	if res := signal(t, s, "/chat/none", "SIGINT"); res.Outcome != "not_found" {
		t.Error(res.Outcome)
	}
}

// lastSignal is what the newest signal's row of an entity says of itself.
func lastSignal(t *testing.T, db *pgtest.DB, url string) string {
	t.Helper()
	var got string
	if err := db.Conn(t).QueryRow(t.Context(), `select concat_ws(' ', v->>'signal', v->>'status', v->>'outcome', v->>'handled_by')
		from (select convert_from(m.payload, 'UTF8')::jsonb->'value' as v from rouse.messages m join rouse.streams s on s.id = m.stream_id
		       where s.path = substr($1, 2) || '/main' order by m.position desc limit 1) r`, url).Scan(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestTermOfAHeldEntityStopsItWhenTheHolderReleases(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	register(t, s, "mac", kyle)
	work(t, s, db, "/chat/r")
	claim(t, db, "/chat/r")
	if res := signal(t, s, "/chat/r", "SIGTERM"); res.PreviousState != "running" || res.NewState != "stopping" {
		t.Fatalf("%+v", res)
	}
	// The holder is the one to act on it: the row is still its to answer.
	if got := lastSignal(t, db, "/chat/r"); got != "SIGTERM unhandled" {
		t.Errorf("the row says %s", got)
	}
	db.Exec(t, `select rouse.claim_apply(jsonb_build_array(jsonb_build_object('op', 'release', 'service', 1, 'id', c.id, 'epoch', c.epoch, 'wake', c.wake_id)), true)
		from rouse.consumers c where c.entity_url = '/chat/r'`)
	if n := count(t, db, `select count(*) from rouse.entities e join rouse.streams s on s.consumer_id = e.consumer_id
		where e.url = '/chat/r' and e.status = 'stopped' and s.closed_at is not null`); n != 1 {
		t.Fatal("the final release did not stop the entity")
	}
}

func TestStopAndContinueHoldBackAndReleaseTheWake(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	register(t, s, "mac", kyle)
	work(t, s, db, "/chat/p")
	if res := signal(t, s, "/chat/p", "SIGSTOP"); res.NewState != "paused" {
		t.Fatalf("%+v", res)
	}
	if n := count(t, db, `select count(*) from rouse.entity_dispatch_state where entity_url = '/chat/p' and outstanding_wake_id is null`); n != 1 {
		t.Fatal("a paused entity has a wake outstanding")
	}
	if got := lastSignal(t, db, "/chat/p"); got != "SIGSTOP handled transitioned server" {
		t.Errorf("the row says %s", got)
	}
	signal(t, s, "/chat/p", "SIGINT")
	if got := lastSignal(t, db, "/chat/p"); got != "SIGINT handled ignored server" {
		t.Errorf("the row says %s", got)
	}
	if res := signal(t, s, "/chat/p", "SIGCONT"); res.PreviousState != "paused" || res.NewState != "idle" {
		t.Fatalf("%+v", res)
	}
	if n := count(t, db, `select count(*) from rouse.entity_dispatch_state where entity_url = '/chat/p' and outstanding_wake_id is not null`); n != 1 {
		t.Fatal("a resumed entity with work has no wake")
	}
	signal(t, s, "/chat/p", "SIGSTOP")
	if o, err := s.EntityResume(t.Context(), 1, "/chat/p"); err != nil || o != "resumed" {
		t.Fatal(o, err)
	}
	if o, _ := s.EntityResume(t.Context(), 1, "/chat/p"); o != "unchanged" {
		t.Fatal(o)
	}
	if o, _ := s.EntityResume(t.Context(), 1, "/chat/none"); o != "not_found" {
		t.Fatal(o)
	}
}

// The display rules of the RFC, as one golden table.
func TestDisplay(t *testing.T) {
	t.Parallel()
	s, db := controlStore(t)
	register(t, s, "mac", kyle)
	show := func(url string) Display {
		t.Helper()
		d, err := s.EntityDisplay(t.Context(), 1, url)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	online := func(d time.Duration) {
		t.Helper()
		db.Exec(t, `update rouse.runner_runtime_diagnostics set liveness_lease_expires_at = clock_timestamp() + make_interval(secs => $1) where runner_id = 'mac'`, d.Seconds())
	}
	expect := func(url, code, text string) {
		t.Helper()
		if d := show(url); d.Code != code || d.Display != text {
			t.Errorf("%s: %s %q, want %s %q", url, d.Code, d.Display, code, text)
		}
	}
	r := spawnRequest("/chat/idle")
	r.Policy = runnerPolicy("mac")
	mustSpawn(t, s, r)
	expect("/chat/idle", "waiting_for_input", "Waiting for input")

	work(t, s, db, "/chat/w")
	expect("/chat/w", "waiting_for_runner", "Waiting for runner...")
	online(-time.Second)
	expect("/chat/w", "waiting_for_runner", "Waiting for runner...")
	online(time.Minute)
	expect("/chat/w", "runner_syncing", "Runner syncing pending work...")
	db.Exec(t, `update rouse.runners set admin_status = 'disabled'`)
	expect("/chat/w", "waiting_for_runner", "Waiting for runner...")
	db.Exec(t, `update rouse.runners set admin_status = 'enabled'`)
	claim(t, db, "/chat/w")
	expect("/chat/w", "running", "Running on Kyle's MacBook")
	if d := show("/chat/w"); d.RunnerLiveness == nil || *d.RunnerLiveness != "online" || *d.RunnerID != "mac" {
		t.Errorf("facts %+v", d)
	}
	db.Exec(t, `select rouse.claim_apply(jsonb_build_array(jsonb_build_object('op', 'release', 'service', 1, 'id', c.id, 'epoch', c.epoch, 'wake', c.wake_id,
		'acks', jsonb_build_array(jsonb_build_object('path', 'chat/w/main', 'position', s.tail)), 'error', 'exit 1')), true)
		from rouse.consumers c join rouse.streams s on s.consumer_id = c.id where c.entity_url = '/chat/w'`)
	expect("/chat/w", "failed", "Run failed — check logs")

	r = spawnRequest("/chat/hook")
	r.Policy, r.Message = json.RawMessage(`{"targets":[{"type":"webhook","url":"https://example.com/h"}]}`), `{"headers":{}}`
	mustSpawn(t, s, r)
	expect("/chat/hook", "delivering", "Delivering pending work...")
	wake := func(state string) {
		t.Helper()
		db.Exec(t, `with n as (insert into rouse.wake_notifications (service_id, wake_id, consumer_id, epoch, entity_url, target_type, target, notification_public, delivery_status, created_at)
			select 1, gen_random_uuid(), c.name, c.epoch + 1, c.entity_url, 'webhook', '{}', '{}', $1, clock_timestamp() from rouse.consumers c where c.entity_url = '/chat/hook'
			returning wake_id)
			update rouse.entity_dispatch_state d set outstanding_wake_id = n.wake_id from n where d.entity_url = '/chat/hook'`, state)
	}
	wake("queued")
	expect("/chat/hook", "delivering", "Delivering pending work...")
	wake("failed") // a receiver that refused it for good
	expect("/chat/hook", "delivery_failed", "Delivery failed — check its wakes")
	r = spawnRequest("/chat/nowhere")
	r.Message = `{"headers":{}}`
	mustSpawn(t, s, r)
	expect("/chat/nowhere", "no_target", "Waiting for a dispatch target")

	signal(t, s, "/chat/idle", "SIGSTOP")
	expect("/chat/idle", "paused", "Paused")
	signal(t, s, "/chat/idle", "SIGTERM")
	expect("/chat/idle", "stopped", "Stopped")
	signal(t, s, "/chat/hook", "SIGKILL")
	expect("/chat/hook", "killed", "Killed")
}
