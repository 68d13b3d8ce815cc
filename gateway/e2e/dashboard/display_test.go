package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "write the table of display words anew")

const web = "../../ui/web"

var installing sync.Mutex

// npm runs one of the page's scripts, with its modules installed.
func npm(t *testing.T, args ...string) []byte {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
	run := func(name string, args ...string) []byte {
		t.Helper()
		ctx, stop := context.WithTimeout(t.Context(), 4*bound)
		defer stop()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = web
		cmd.Env = append(os.Environ(), "NO_COLOR=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return out
	}
	want, err := os.ReadFile(filepath.Join(web, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	stamp := filepath.Join(web, "node_modules", ".lock-that-was-installed")
	if got, err := os.ReadFile(stamp); err != nil || !bytes.Equal(got, want) {
		run("npm", "ci", "--no-audit", "--no-fund")
		if err := os.WriteFile(stamp, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return run("npm", args...)
}

// What is embedded is what the sources make.
func TestThePageIsBuiltFromItsSources(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	npm(t, "run", "check")
	npm(t, "run", "build", "--", "--outDir", dir, "--emptyOutDir")
	names := func(dir string) map[string][]byte {
		t.Helper()
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string][]byte{}
		for _, e := range entries {
			if all[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
		return all
	}
	built, kept := names(dir), names("../../ui/page")
	for name, body := range built {
		if !bytes.Equal(body, kept[name]) {
			t.Errorf("gateway/ui/page/%s is not what gateway/ui/web makes: run `make ui` and commit", name)
		}
		delete(kept, name)
	}
	for name := range kept {
		t.Errorf("gateway/ui/page/%s is made from nothing: run `make ui` and commit", name)
	}
}

// The page's own tests: the words against the view's answers, a stream's rows folded.
func TestThePagesFunctions(t *testing.T) {
	t.Parallel()
	out := npm(t, "test")
	if !bytes.Contains(out, []byte("# fail 0")) && !bytes.Contains(out, []byte("fail 0")) || bytes.Contains(out, []byte("tests 0")) {
		t.Errorf("%s", out)
	}
}

// displayCase is a situation of an entity; each is put into the database's rows and read through the view.
type displayCase struct {
	Name     string          `json:"name"`
	Entity   json.RawMessage `json:"entity"`
	Dispatch json.RawMessage `json:"dispatch"`
	Failed   bool            `json:"failed"`
	Parked   string          `json:"parked,omitempty"`
	Attempts int             `json:"attempts"`
	// Unsynced words hang on what only the gateway knows.
	Unsynced bool   `json:"unsynced"`
	Code     string `json:"code"`
	Display  string `json:"display"`

	policy, status, open, active, lastError string
	pending, full, moving                   bool
}

const (
	someTime  = `'2026-01-01T00:00:00Z'`
	noTarget  = `null`
	atMac     = `{"type":"runner","runnerId":"mac"}`
	atStudio  = `{"type":"runner","runnerId":"studio"}`
	atOff     = `{"type":"runner","runnerId":"off"}`
	atWebhook = `{"type":"webhook","url":"https://example.com/hook"}`
	atPool    = `{"type":"worker-pool","workerPoolId":"coding"}`
	atAway    = `{"type":"worker-pool","workerPoolId":"away"}`
	atClosed  = `{"type":"worker-pool","workerPoolId":"closed"}`
)

func displayCases() []displayCase {
	policy := func(targets ...string) string {
		return `{"targets":[` + strings.Join(targets, ",") + `]}`
	}
	var all []displayCase
	add := func(c displayCase) {
		if c.status == "" {
			c.status = "idle"
		}
		if c.policy == "" {
			c.policy = noTarget
		}
		all = append(all, c)
	}
	for _, to := range [][2]string{{"online", atMac}, {"offline", atStudio}, {"disabled", atOff}, {"webhook", atWebhook}, {"pool", atPool}, {"pool away", atAway}, {"pool closed", atClosed}} {
		name, target := to[0], to[1]
		p := policy(target)
		add(displayCase{Name: name + ", idle", policy: p})
		add(displayCase{Name: name + ", woken", policy: p, open: target})
		add(displayCase{Name: name + ", woken, failed before", policy: p, open: target, lastError: "boom"})
		add(displayCase{Name: name + ", failed", policy: p, lastError: "boom"})
		add(displayCase{Name: name + ", pending", policy: p, pending: true})
		add(displayCase{Name: name + ", refused", policy: p, open: target, Failed: true})
		add(displayCase{Name: name + ", parked", policy: p, pending: true, Parked: "unclaimed"})
		for _, status := range []string{"spawning", "paused", "stopping", "stopped", "killed"} {
			add(displayCase{Name: name + ", " + status, policy: p, status: status, open: target})
		}
	}
	for _, reason := range []string{"attempts_exhausted", "delivery_failed", "no_target"} {
		for _, n := range []int{1, 5} {
			add(displayCase{Name: fmt.Sprintf("parked, %s %d", reason, n), policy: policy(atMac), pending: true, Parked: reason, Attempts: n})
		}
	}
	add(displayCase{Name: "pool full", policy: policy(atPool), open: atPool, full: true, Unsynced: true})
	add(displayCase{Name: "moving", policy: policy(atStudio), status: "running", active: "mac", moving: true, Unsynced: true})
	for _, runner := range []string{"mac", "studio", "off"} {
		add(displayCase{Name: "running on " + runner, policy: policy(atMac), status: "running", active: runner})
	}
	add(displayCase{Name: "running by a webhook", policy: policy(atWebhook), status: "running"})
	add(displayCase{Name: "running for a pool", policy: policy(atPool), status: "running", active: "mac"})
	add(displayCase{Name: "no target", policy: noTarget})
	add(displayCase{Name: "no target, failed", policy: noTarget, lastError: "boom"})
	for _, second := range []string{atMac, atStudio, atWebhook, atPool, atAway} {
		add(displayCase{Name: "second target " + second, policy: policy(atStudio, second), open: second})
		add(displayCase{Name: "first target before " + second, policy: policy(atMac, second), open: atMac})
		add(displayCase{Name: "pool before " + second, policy: policy(atPool, second), open: second})
	}
	return all
}

// The words of the page are those of the view: this writes down what the view says of many situations, and the page's own tests
// compare.
func TestTheDisplayWordsAreTheViews(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.entityType("task")
	w.runner("mac", "Kyle's MacBook", true)
	w.runner("studio", "Studio", true)
	w.runner("off", "Off", true)
	w.call("POST", "/_electric/runners/off/disable", nil)
	w.pool("coding", "Coding", object{}, "mac")
	w.pool("away", "Away", object{}, "studio", "off")
	w.pool("closed", "Closed", object{}, "mac")
	w.call("PUT", "/_electric/worker-pools/closed", object{"admin_status": "disabled"})
	db := w.gw.DB.Conn(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := db.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(sql, err)
		}
	}
	exec(`update rouse.runner_runtime_diagnostics set liveness_lease_expires_at = case runner_id when 'studio' then '2001-01-01Z'::timestamptz else '2999-01-01Z' end`)
	golden := struct {
		Now         int64             `json:"now"`
		Runners     []json.RawMessage `json:"runners"`
		Diagnostics []json.RawMessage `json:"diagnostics"`
		Pools       []json.RawMessage `json:"pools"`
		Members     []json.RawMessage `json:"members"`
		Cases       []displayCase     `json:"cases"`
	}{Now: 1_790_000_000_000}
	list := func(into *[]json.RawMessage, sql string) {
		t.Helper()
		rows, err := db.Query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var raw []byte
			if err := rows.Scan(&raw); err != nil {
				t.Fatal(err)
			}
			*into = append(*into, raw)
		}
	}
	list(&golden.Runners, `select jsonb_build_object('id', id, 'label', label, 'admin_status', admin_status) from rouse.runners order by id`)
	list(&golden.Diagnostics, `select jsonb_build_object('runner_id', runner_id, 'liveness_lease_expires_at', liveness_lease_expires_at at time zone 'UTC' || '+00') from rouse.runner_runtime_diagnostics order by runner_id`)
	list(&golden.Pools, `select jsonb_build_object('id', id, 'name', name, 'admin_status', admin_status) from rouse.worker_pools order by id`)
	list(&golden.Members, `select jsonb_build_object('pool_id', pool_id, 'runner_id', runner_id, 'status', status) from rouse.worker_pool_members order by pool_id, runner_id`)
	for i, c := range displayCases() {
		url := fmt.Sprintf("/task/%d", i)
		w.spawn(url, object{})
		exec(`begin`) // for nobody else to see, the router among them
		exec(`update rouse.entities set status = $2, dispatch_policy = $3::jsonb where url = $1`, url, c.status, c.policy)
		exec(`update rouse.entity_dispatch_state set last_error = nullif($2, ''), pending_since = case when $3 then `+someTime+`::timestamptz end, active_runner_id = nullif($4, ''),
			active_consumer_id = case when $5 = 'running' then 'someone' end where entity_url = $1`, url, c.lastError, c.pending || c.open != "", c.active, c.status)
		if c.pending {
			exec(`with s as (update rouse.streams s set actionable = s.tail from rouse.consumer_streams cs, rouse.consumers c
					where c.entity_url = $1 and cs.consumer_id = c.id and s.id = cs.stream_id returning s.id)
				update rouse.consumer_streams cs set acked = 0 from s where cs.stream_id = s.id`, url)
		}
		if c.Parked != "" {
			exec(`update rouse.consumers set paused = true, parked_at = `+someTime+`, parked_reason = $2, attempts = $3 where entity_url = $1`, url, c.Parked, c.Attempts)
		}
		if c.full || c.moving {
			exec(`update rouse.consumers set look_at = case when $2 then `+someTime+`::timestamptz end, release_by = case when $3 then `+someTime+`::timestamptz end where entity_url = $1`, url, c.full, c.moving)
		}
		if c.open != "" {
			state := "delivered"
			if c.Failed {
				state = "failed"
			}
			exec(`with w as (insert into rouse.wake_notifications (service_id, wake_id, consumer_id, epoch, entity_url, target_type, target_runner_id, target_pool_id, target, notification_public, delivery_status, created_at)
					select e.service_id, ('00000000-0000-4000-8000-' || lpad($4::text, 12, '0'))::uuid, c.name, 1, e.url, $2::jsonb ->> 'type', $2::jsonb ->> 'runnerId', $2::jsonb ->> 'workerPoolId', $2::jsonb, '{}', $3::rouse.wake_delivery_status, `+someTime+`
					  from rouse.entities e join rouse.consumers c on c.id = e.consumer_id where e.url = $1 returning wake_id, target)
				update rouse.entity_dispatch_state d set outstanding_wake_id = w.wake_id, outstanding_wake_target = w.target, outstanding_wake_created_at = `+someTime+` from w where d.entity_url = $1`, url, c.open, state, strconv.Itoa(i))
		}
		err := db.QueryRow(t.Context(), `select v.code, v.display, jsonb_build_object('url', e.url, 'type', e.type, 'status', e.status, 'dispatch_policy', e.dispatch_policy),
				jsonb_build_object('entity_url', e.url, 'pending_since', d.pending_since at time zone 'UTC' || '+00', 'outstanding_wake_id', d.outstanding_wake_id, 'outstanding_wake_target', d.outstanding_wake_target,
					'active_runner_id', d.active_runner_id, 'active_consumer_id', d.active_consumer_id, 'last_error', d.last_error)
			  from rouse.entity_display v join rouse.entities e using (service_id, url) join rouse.entity_dispatch_state d on d.entity_url = e.url where v.url = $1`, url).Scan(&c.Code, &c.Display, &c.Entity, &c.Dispatch)
		if err != nil {
			t.Fatal(c.Name, err)
		}
		exec(`rollback`)
		golden.Cases = append(golden.Cases, c)
	}
	var now bytes.Buffer
	enc := json.NewEncoder(&now)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(golden); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(web, "test", "display.golden.json")
	if *update {
		if err := os.WriteFile(file, now.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if kept, err := os.ReadFile(file); err != nil || !bytes.Equal(kept, now.Bytes()) {
		t.Errorf("the view says something else than %s has (%v): run `go test ./gateway/e2e/dashboard -run Views -update`, and bring src/display.ts along", file, err)
	}
}
