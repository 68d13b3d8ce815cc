package subscriptiontest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/rouse-run/rouse/gateway/devpg/pgtest"
)

// TestMain gives the random tests a seed that can be printed. ROUSE_SEED repeats
// a run.
func TestMain(m *testing.M) {
	seed := os.Getenv("ROUSE_SEED")
	if seed == "" {
		seed = strconv.FormatInt(time.Now().UnixNano()&0x7fffffffffff|1, 10)
	}
	for name, value := range map[string]string{"rapid.seed": seed, "rapid.nofailfile": "true", "rapid.checks": "40"} {
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
)

// epochStart is when every test begins by its own clock.
var epochStart = time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)

// rig is one database with one session, and the time as the test tells it.
type rig struct {
	t   testing.TB
	db  *pgtest.DB
	c   *pgx.Conn
	now time.Time
}

func newRig(t testing.TB) *rig {
	t.Helper()
	db := pgtest.New(t)
	r := &rig{t: t, db: db, c: db.Conn(t), now: epochStart}
	r.exec(`select rouse.entity_type_put(1, 'chat', $1, false, '', null, null, null, null, null, null, null, null)`, kyle)
	return r
}

// on is the same rig with another session.
func (r *rig) on(c *pgx.Conn) *rig { s := *r; s.c = c; return &s }

func (r *rig) ctx() context.Context { return r.t.Context() }

func (r *rig) after(d time.Duration) { r.now = r.now.Add(d) }

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	if _, err := r.c.Exec(r.ctx(), sql, args...); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
}

func one[T any](r *rig, sql string, args ...any) (v T) {
	r.t.Helper()
	if err := r.c.QueryRow(r.ctx(), sql, args...).Scan(&v); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// spec is a subscription as a test asks for it; zero values are the usual ones.
type spec struct {
	id, typ, pattern, wakeStream, url, description, mount, owner string
	streams                                                      []string
	system                                                       bool
	lease                                                        int
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (r *rig) put(s spec) string {
	r.t.Helper()
	if s.typ == "" {
		s.typ = "webhook"
	}
	if s.typ == "webhook" && s.url == "" {
		s.url = hook
	}
	if s.owner == "" {
		s.owner = kyle
	}
	if s.lease == 0 {
		s.lease = 30000
	}
	if s.streams == nil {
		s.streams = []string{}
	}
	return one[string](r, `select rouse.subscription_register(1, $1, $2, $3, $4, $5, $6, null, $7, $8, $9, $10, $11)`,
		s.id, s.typ, orNull(s.pattern), s.streams, orNull(s.wakeStream), orNull(s.url), orNull(s.description), s.lease, s.mount, s.owner, s.system)
}

// settle repeats subscription_settle as the store does.
func (r *rig) settle(id string) {
	r.t.Helper()
	var change *int32
	var creators []string
	var outcome string
	for deadline := time.Now().Add(20 * time.Second); ; {
		if err := r.c.QueryRow(r.ctx(), `select outcome, change, creators from rouse.subscription_settle(1, $1, $2, $3, 7)`, id, change, creators).
			Scan(&outcome, &change, &creators); err != nil {
			r.t.Fatal(err)
		}
		if outcome == "done" || outcome == "not_found" {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("subscription %s does not settle: %s %v", id, outcome, creators)
		}
	}
}

// subscribe puts and settles; it returns the consumer's id.
func (r *rig) subscribe(s spec) sub {
	r.t.Helper()
	if got := r.put(s); got != "created" {
		r.t.Fatalf("put %+v: %s", s, got)
	}
	r.settle(s.id)
	return r.sub(s.id)
}

// sub is a subscription's mutex.
type sub struct {
	id       string
	consumer int64
	name     string
}

func (r *rig) sub(id string) sub {
	r.t.Helper()
	s := sub{id: id}
	if err := r.c.QueryRow(r.ctx(), `select c.id, c.name from rouse.subscriptions s join rouse.consumers c on c.id = s.consumer_id where s.id = $1`, id).
		Scan(&s.consumer, &s.name); err != nil {
		r.t.Fatal(err)
	}
	return s
}

// make makes a plain JSON stream with or without a first message.
func (r *rig) make(path, payload string) int64 {
	r.t.Helper()
	return r.makeKind(path, payload, "app", nil)
}

func (r *rig) makeKind(path, payload, kind string, owner *string) int64 {
	r.t.Helper()
	var body []byte
	if payload != "" {
		body = []byte(payload)
	}
	var outcome string
	var id int64
	if err := r.c.QueryRow(r.ctx(), `select outcome, stream_id from rouse._stream_create(1, $1, 'application/json', null, null, false, $2, 1, null, null, null, null, $3, $4, null, $5)`,
		path, body, kind, owner, r.now).Scan(&outcome, &id); err != nil || outcome != "created" {
		r.t.Fatalf("make %s: %s %v", path, outcome, err)
	}
	return id
}

func (r *rig) spawn(url, owner string) int64 {
	r.t.Helper()
	if got := one[string](r, `select outcome from rouse.entity_spawn(1, $1, 'chat', 1, $2, true, true, '{}', '{}', null,
		'{"targets":[{"type":"webhook","url":"https://other.example"}]}', null,
		'{"headers":{"operation":"insert"},"type":"entity_created","key":"entity-created","value":{}}', null)`, url, owner); got != "spawned" {
		r.t.Fatalf("spawn %s: %s", url, got)
	}
	return one[int64](r, `select id from rouse.streams where path = $1`, url[1:]+"/main")
}

// append appends a message to a plain stream and returns the tail.
func (r *rig) append(path string) int64 {
	r.t.Helper()
	var outcome string
	var tail int64
	if err := r.c.QueryRow(r.ctx(), appendSQL, path, r.now, false).Scan(&outcome, &tail); err != nil || outcome != "appended" {
		r.t.Fatalf("append %s: %s %v", path, outcome, err)
	}
	return tail
}

// appendSQL is one group of one message, as the gateway sends it.
const appendSQL = `select outcome, coalesce(tail, 0) from rouse._stream_append(array[1], array[$1], array['application/json'], array[false], array[true], array[8::bigint],
	array[1], array[8::bigint], array['{"a": 1}'::bytea], array[1], array[null::text],
	null,null,null,null,null,null,null,null,null,null,null,null,null,null,null,null, $3, $2)`

// route tells the router of streams at their tails.
func (r *rig) route(streams ...int64) map[int64]string {
	r.t.Helper()
	rows, err := r.c.Query(r.ctx(), `select stream_id, outcome from rouse._dispatch_route($1, array(select (select s.tail from rouse.streams s where s.id = i.id) from unnest($1::bigint[]) with ordinality i (id, n) order by i.n), $2)`, streams, r.now)
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[int64]string{}
	for rows.Next() {
		var id int64
		var outcome string
		if err := rows.Scan(&id, &outcome); err != nil {
			r.t.Fatal(err)
		}
		out[id] = outcome
	}
	if rows.Err() != nil {
		r.t.Fatal(rows.Err())
	}
	return out
}

func (r *rig) wantRoute(stream int64, outcome string) {
	r.t.Helper()
	if got := r.route(stream)[stream]; got != outcome {
		r.t.Fatalf("route: %s, want %s", got, outcome)
	}
}

// link is a cursor as the tables have it.
type link struct {
	Path, Type  string
	Acked, Tail int64
	Behind      bool
}

func (r *rig) links(s sub) []link {
	r.t.Helper()
	rows, err := r.c.Query(r.ctx(), `select t.path, k.link_type, k.acked, t.tail, k.behind from rouse.consumer_streams k join rouse.streams t on t.id = k.stream_id
		where k.consumer_id = $1 order by t.path`, s.consumer)
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[link])
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) wantLinks(s sub, want ...link) {
	r.t.Helper()
	got := r.links(s)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.t.Fatalf("links %+v, want %+v", got, want)
	}
	for _, l := range want {
		if one[int](r, `select watched & 1 from rouse.streams where path = $1`, l.Path) != 1 {
			r.t.Fatalf("%s is not marked as watched", l.Path)
		}
	}
}

// answer is rouse.claim_answer.
type answer struct {
	Outcome      string
	Epoch        int64
	Wake, Holder string
	LeaseMS      int64
	NextWake     *bool
	Notification json.RawMessage
}

type op map[string]any

func opsJSON(ops ...op) string {
	for _, o := range ops {
		o["service"] = 1
	}
	raw, err := json.Marshal(ops)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func (r *rig) tryApply(ops ...op) ([]answer, error) {
	rows, err := r.c.Query(r.ctx(), `select (a).outcome, coalesce((a).epoch, 0), coalesce((a).wake_id::text, ''), coalesce((a).holder, ''), coalesce((a).lease_ms, 0),
		(a).next_wake, (a).notification from (select ord, answer as a from rouse._claim_apply($1, true, $2)) t order by ord`, opsJSON(ops...), r.now)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[answer])
}

func (r *rig) want(outcome string, o op) answer {
	r.t.Helper()
	got, err := r.tryApply(o)
	if err != nil {
		r.t.Fatalf("%v: %v", o, err)
	}
	if got[0].Outcome != outcome {
		r.t.Fatalf("%v: outcome %q, not %q", o, got[0].Outcome, outcome)
	}
	return got[0]
}

func (s sub) acquire(holder string) op {
	return op{"op": "acquire", "id": s.consumer, "holder": holder, "trusted": true}
}

func (s sub) call(name string, g answer, acks ...any) op {
	o := op{"op": name, "id": s.consumer, "epoch": g.Epoch, "wake": g.Wake}
	if len(acks) > 0 {
		o["acks"] = acks
	}
	return o
}

func ack(path string, position int64) any { return map[string]any{"path": path, "position": position} }

// notification is what a wake says.
type notification struct {
	ConsumerID     string   `json:"consumerId"`
	WakeID         string   `json:"wakeId"`
	Epoch          int64    `json:"epoch"`
	StreamPath     string   `json:"streamPath"`
	SubscriptionID string   `json:"subscription_id"`
	TriggeredBy    []string `json:"triggered_by"`
	Streams        []struct {
		Path        string `json:"path"`
		LinkType    string `json:"link_type"`
		AckedOffset string `json:"acked_offset"`
		TailOffset  string `json:"tail_offset"`
		HasPending  bool   `json:"has_pending"`
		Offset      string `json:"offset"`
	} `json:"streams"`
	Entity *struct {
		URL       string `json:"url"`
		Type      string `json:"type"`
		CreatedBy string `json:"createdBy"`
	} `json:"entity"`
}

func (r *rig) notified(raw json.RawMessage) (n notification) {
	r.t.Helper()
	if err := json.Unmarshal(raw, &n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

func offset(position int64) string { return fmt.Sprintf("%016d_%016d", 0, position) }

// state is the mutex's state and epoch.
func (r *rig) state(s sub) string {
	r.t.Helper()
	return one[string](r, `select state || ' ' || epoch from rouse.consumers where id = $1`, s.consumer)
}

// entries are the messages of a stream.
func (r *rig) entries(path string) (out []string) {
	r.t.Helper()
	rows, err := r.c.Query(r.ctx(), `select convert_from(m.payload, 'UTF8') from rouse.messages m join rouse.streams s on s.id = m.stream_id where s.path = $1 order by m.position`, path)
	if err != nil {
		r.t.Fatal(err)
	}
	if out, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		r.t.Fatal(err)
	}
	return out
}
