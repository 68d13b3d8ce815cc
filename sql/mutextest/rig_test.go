package mutextest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// TestMain gives the random tests a seed that can be printed: rapid keeps its
// own to itself. ROUSE_SEED repeats a run.
func TestMain(m *testing.M) {
	seed := os.Getenv("ROUSE_SEED")
	if seed == "" {
		seed = strconv.FormatInt(time.Now().UnixNano()&0x7fffffffffff|1, 10)
	}
	for name, value := range map[string]string{"rapid.seed": seed, "rapid.nofailfile": "true", "rapid.checks": "60", "rapid.steps": "60"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

const (
	kyle    = "/principal/user%3Akyle"
	mallory = "/principal/user%3Amallory"
	hook    = "https://hooks.example/wake"

	lease   = 30 * time.Second
	wakeTTL = 30 * time.Second
)

// epochStart is when every test begins by its own clock. No test waits for time
// to pass: it says what time it is.
var epochStart = time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)

// rig is one database with one session, and the time as the test tells it.
type rig struct {
	t   testing.TB
	db  *pgtest.DB
	c   *pgx.Conn
	now time.Time

	moved int
}

func newRig(t testing.TB) *rig {
	t.Helper()
	db := pgtest.New(t)
	r := &rig{t: t, db: db, c: db.Conn(t), now: epochStart}
	r.exec(`select rouse.entity_type_put(1, 'chat', $1, false, '', null, null, null, null, null, null, null, null)`, kyle)
	return r
}

func (r *rig) ctx() context.Context { return r.t.Context() }

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.c.Exec(r.ctx(), sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

// one reads one value.
func one[T any](r *rig, sql string, args ...any) (v T) {
	r.t.Helper()
	if err := r.c.QueryRow(r.ctx(), sql, args...).Scan(&v); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func (r *rig) after(d time.Duration) { r.now = r.now.Add(d) }

// runner registers a runner of kyle's. capacity 0 is none.
func (r *rig) runner(id string, capacity int) {
	r.t.Helper()
	if got := one[string](r, `select outcome from rouse.runner_register(1, $1, $2, false, $2, $3, 'local', 'enabled', '[]', nullif($4, 0))`,
		id, kyle, "Kyle's MacBook", capacity); got != "created" {
		r.t.Fatalf("runner %s: %s", id, got)
	}
}

// entity is one entity with its mutex and stream.
type entity struct {
	url, name, path string
	consumer        int64
	stream          int64
}

func toRunner(id string) string {
	return fmt.Sprintf(`{"targets":[{"type":"runner","runnerId":%q}]}`, id)
}

const toWebhook = `{"targets":[{"type":"webhook","url":"` + hook + `"}]}`

func (r *rig) entity(url, policy string) entity {
	r.t.Helper()
	var pol *string
	if policy != "" {
		pol = &policy
	}
	if got := one[string](r, `select outcome from rouse.entity_spawn(1, $1, 'chat', 1, $2, false, false, '{}', '{}', null, $3, null,
		'{"headers":{"operation":"insert"},"type":"entity_created","key":"entity-created","value":{}}', null)`, url, kyle, pol); got != "spawned" {
		r.t.Fatalf("spawn %s: %s", url, got)
	}
	e := entity{url: url, path: strings.TrimPrefix(url, "/") + "/main"}
	if err := r.c.QueryRow(r.ctx(), `select c.id, c.name, s.id from rouse.entities e join rouse.consumers c on c.id = e.consumer_id
		join rouse.streams s on s.consumer_id = c.id and s.kind = 'entity' where e.service_id = 1 and e.url = $1`, url).
		Scan(&e.consumer, &e.name, &e.stream); err != nil {
		r.t.Fatal(err)
	}
	return e
}

// push appends one actionable message and returns the tail.
func (r *rig) push(e entity) int64 {
	r.t.Helper()
	tail := one[*int64](r, `select rouse._stream_push($1, '{"headers":{"operation":"insert"},"type":"inbox","value":{}}', true)`, e.stream)
	if tail == nil {
		return 0
	}
	return *tail
}

func (r *rig) tail(e entity) int64 {
	return one[int64](r, `select tail from rouse.streams where id = $1`, e.stream)
}

func (r *rig) acked(e entity) int64 {
	return one[int64](r, `select acked from rouse.consumer_streams where stream_id = $1 and consumer_id = $2`, e.stream, e.consumer)
}

// route tells the router of the stream's last actionable position.
func (r *rig) route(e entity) string {
	r.t.Helper()
	return one[string](r, `select outcome from rouse._dispatch_route(array[$1::bigint], array[(select actionable from rouse.streams where id = $1)], $2)`,
		e.stream, r.now)
}

// answer is rouse.claim_answer.
type answer struct {
	Outcome      string
	ConsumerID   int64
	ConsumerName string
	Epoch        int64
	Wake         string
	Holder       string
	Runner       string
	LeaseMS      int64
	EntityStatus string
	StreamPath   string
	NextWake     *bool
	Notification json.RawMessage
}

const answerColumns = `(a).outcome, coalesce((a).consumer_id, 0), coalesce((a).consumer_name, ''), coalesce((a).epoch, 0),
	coalesce((a).wake_id::text, ''), coalesce((a).holder, ''), coalesce((a).runner_id, ''), coalesce((a).lease_ms, 0),
	coalesce((a).entity_status, ''), coalesce((a).stream_path, ''), (a).next_wake, (a).notification`

func scanAnswer(row pgx.Row) (a answer, err error) {
	err = row.Scan(&a.Outcome, &a.ConsumerID, &a.ConsumerName, &a.Epoch, &a.Wake, &a.Holder, &a.Runner, &a.LeaseMS,
		&a.EntityStatus, &a.StreamPath, &a.NextWake, &a.Notification)
	return a, err
}

// op is one member of a claim_apply batch.
type op map[string]any

func (o op) with(k string, v any) op {
	out := op{k: v}
	for a, b := range o {
		if a != k {
			out[a] = b
		}
	}
	return out
}

func opsJSON(ops ...op) string {
	for _, o := range ops {
		if _, ok := o["service"]; !ok {
			o["service"] = 1
		}
	}
	raw, err := json.Marshal(ops)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// apply runs one op at the rig's time.
func (r *rig) apply(o op) answer {
	r.t.Helper()
	a, err := scanAnswer(r.c.QueryRow(r.ctx(), `select `+answerColumns+` from (select answer as a from rouse._claim_apply($1, true, $2)) t`,
		opsJSON(o), r.now))
	if err != nil {
		r.t.Fatalf("%v: %v", o, err)
	}
	return a
}

// want runs one op and fails unless it has that outcome.
func (r *rig) want(outcome string, o op) answer {
	r.t.Helper()
	a := r.apply(o)
	if a.Outcome != outcome {
		r.t.Fatalf("%v: outcome %q, not %q", o, a.Outcome, outcome)
	}
	return a
}

func (e entity) acquire() op { return op{"op": "acquire", "id": e.consumer, "holder": kyle} }

func (e entity) call(name string, epoch int64, wake string) op {
	return op{"op": name, "id": e.consumer, "epoch": epoch, "wake": wake}
}

func (e entity) acks(position int64) []any {
	return []any{map[string]any{"path": "/" + e.path, "position": position}}
}

// reaped is what a round of the reaper did. That it also moves due times is its
// own affair; moved counts them.
type reaped struct{ Expired, Redelivered int }

func (r *rig) reap() (x reaped) {
	r.t.Helper()
	var moved int
	if err := r.c.QueryRow(r.ctx(), `select expired, redelivered, moved from rouse._claim_reap(1000, $1)`, r.now).
		Scan(&x.Expired, &x.Redelivered, &moved); err != nil {
		r.t.Fatal(err)
	}
	r.moved += moved
	return x
}

// later lets time pass and the reaper look then.
func (r *rig) later(d time.Duration) reaped {
	r.t.Helper()
	r.after(d)
	return r.reap()
}

// beat is a runner's heartbeat by its owner; it returns how many wakes were
// told again.
func (r *rig) beat(runner string, liveness time.Duration) int {
	r.t.Helper()
	return one[int](r, `select redelivered from rouse._runner_heartbeat(1, $1, $2, false, $3, null, null, $4)`,
		runner, kyle, liveness.Milliseconds(), r.now)
}

// entries are the wake entries of a runner's wake stream, oldest first.
func (r *rig) entries(runner string) []map[string]any {
	r.t.Helper()
	rows, err := r.c.Query(r.ctx(), `select convert_from(m.payload, 'UTF8')::jsonb from rouse.messages m
		join rouse.streams s on s.id = m.stream_id where s.service_id = 1 and s.path = 'runners/' || $1 || '/wake' order by m.position`, runner)
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[map[string]any])
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// state is everything the tables say about one entity's mutex.
type state struct {
	State, Holder, Runner   string
	Paused                  bool
	Epoch                   int64
	Wake                    string
	Lease, Due              *time.Time
	EntityStatus            string
	Acked, Tail, Actionable int64
	Pending                 bool
	Claims                  []claimRow
	Wakes                   []wakeRow
	Dispatch                dispatchRow
}

type claimRow struct {
	Epoch         int64
	Status        string
	Holder        string
	Runner        string
	LastHeartbeat *time.Time
	Lease         *time.Time
	Released      *time.Time
	NextWake      *bool
	Error         *string
	Acked         json.RawMessage
}

type wakeRow struct {
	Epoch    int64
	ID       string
	Delivery string
	Claim    string
	Open     bool
	Attempts int
	Next     *time.Time
	Offset   *string
}

type dispatchRow struct {
	PendingStreams json.RawMessage
	PendingReason  *string
	PendingSince   *time.Time
	Outstanding    *string
	Target         json.RawMessage
	ActiveConsumer *string
	ActiveRunner   *string
	ActiveEpoch    *int64
	ActiveLease    *time.Time
	LastWake       *string
	LastClaimed    *time.Time
	LastReleased   *time.Time
	LastCompleted  *time.Time
	LastError      *string
}

func (r *rig) state(e entity) state {
	r.t.Helper()
	var s state
	must := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	must(r.c.QueryRow(r.ctx(), `select c.state, coalesce(c.holder, ''), coalesce(c.runner_id, ''), c.paused, c.epoch,
			coalesce(c.wake_id::text, ''), c.lease_expires_at, nullif(c.due_at, 'infinity'), e.status, k.acked, s.tail, s.actionable, s.pending
		from rouse.consumers c join rouse.entities e on e.consumer_id = c.id
		join rouse.streams s on s.consumer_id = c.id and s.kind = 'entity'
		join rouse.consumer_streams k on k.consumer_id = c.id and k.stream_id = s.id where c.id = $1`, e.consumer).
		Scan(&s.State, &s.Holder, &s.Runner, &s.Paused, &s.Epoch, &s.Wake, &s.Lease, &s.Due, &s.EntityStatus,
			&s.Acked, &s.Tail, &s.Actionable, &s.Pending))
	rows, err := r.c.Query(r.ctx(), `select epoch, status, coalesce(holder, ''), coalesce(runner_id, ''), last_heartbeat_at, lease_expires_at,
		released_at, next_wake, error, acked_streams from rouse.consumer_claims where service_id = 1 and consumer_id = $1 order by epoch`, e.name)
	must(err)
	s.Claims, err = pgx.CollectRows(rows, pgx.RowToStructByPos[claimRow])
	must(err)
	rows, err = r.c.Query(r.ctx(), `select epoch, wake_id::text, delivery_status, claim_status, resolved_at is null, attempts, next_attempt_at,
		runner_wake_stream_offset from rouse.wake_notifications where service_id = 1 and consumer_id = $1 order by epoch`, e.name)
	must(err)
	s.Wakes, err = pgx.CollectRows(rows, pgx.RowToStructByPos[wakeRow])
	must(err)
	rows, err = r.c.Query(r.ctx(), `select pending_source_streams, pending_reason, pending_since, outstanding_wake_id::text, outstanding_wake_target,
		active_consumer_id, active_runner_id, active_epoch, active_lease_expires_at, last_wake_id::text, last_claimed_at, last_released_at,
		last_completed_at, last_error from rouse.entity_dispatch_state where service_id = 1 and entity_url = $1`, e.url)
	must(err)
	s.Dispatch, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[dispatchRow])
	must(err)
	return s
}

// lastWake is the newest wake's row.
func (s state) lastWake() wakeRow { return s.Wakes[len(s.Wakes)-1] }

func (s state) lastClaim() claimRow { return s.Claims[len(s.Claims)-1] }

func at(t *time.Time) string {
	if t == nil {
		return "null"
	}
	return t.UTC().Format("15:04:05.000")
}

func val[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}
