package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// Entity is one row of rouse.entities.
type Entity struct {
	URL            string
	Type           string
	Status         string
	DispatchPolicy json.RawMessage // nil when the entity has no target
	Tags           json.RawMessage
	SpawnArgs      json.RawMessage
	Sandbox        json.RawMessage // nil when absent
	Parent         string          // empty when absent
	CreatedBy      string
	TypeRevision   int32
	InboxSchemas   json.RawMessage // nil: anything goes; {}: no typed message
	StateSchemas   json.RawMessage
	ConsumerID     int64
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// entityCols selects an Entity from the composite or row alias in front of it.
func entityCols(alias string) string {
	out := ""
	for i, c := range [...]string{"url", "type", "status", "dispatch_policy", "tags", "spawn_args", "sandbox", "parent", "created_by",
		"type_revision", "inbox_schemas", "state_schemas", "consumer_id", "created_at", "updated_at"} {
		if i > 0 {
			out += ", "
		}
		out += alias + "." + c
	}
	return out
}

// entityScan holds the nullable columns of a row that may be absent as a whole.
type entityScan struct {
	url, typ, status, parent   *string
	createdBy                  *string
	revision                   *int32
	consumer                   *int64
	createdAt, updatedAt       *time.Time
	policy, tags, args, sb     []byte
	inboxSchemas, stateSchemas []byte
}

func (s *entityScan) dest() []any {
	return []any{&s.url, &s.typ, &s.status, &s.policy, &s.tags, &s.args, &s.sb, &s.parent, &s.createdBy,
		&s.revision, &s.inboxSchemas, &s.stateSchemas, &s.consumer, &s.createdAt, &s.updatedAt}
}

func (s *entityScan) entity() Entity {
	if s.url == nil {
		return Entity{}
	}
	return Entity{URL: *s.url, Type: *s.typ, Status: *s.status, DispatchPolicy: s.policy, Tags: s.tags, SpawnArgs: s.args,
		Sandbox: s.sb, Parent: str(s.parent), CreatedBy: str(s.createdBy), TypeRevision: num(s.revision),
		InboxSchemas: s.inboxSchemas, StateSchemas: s.stateSchemas, ConsumerID: num(s.consumer),
		CreatedAt: num(s.createdAt), UpdatedAt: num(s.updatedAt)}
}

func str(p *string) string { return num(p) }

func num[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// jsonArg passes JSON text as jsonb; nil is SQL null, never the JSON null.
func jsonArg(m json.RawMessage) any {
	if m == nil {
		return nil
	}
	return string(m)
}

// textArg passes an empty string as SQL null.
func textArg(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// SpawnRequest is the argument of [Store.EntitySpawn].
type SpawnRequest struct {
	Service      int32
	URL          string
	Type         string
	TypeRevision int32 // the revision the arguments were validated against
	Principal    string
	System       bool // bypasses ownership
	Open         bool // everybody may spawn the type
	Args         json.RawMessage
	Tags         json.RawMessage
	Parent       string
	Policy       json.RawMessage // nil: inherit
	Sandbox      json.RawMessage
	Created      string // the entity_created message
	Message      string // the first message, or empty
	// Grants on the new entity: [{permission, subject_kind, subject_value, …}].
	Grants json.RawMessage
	// Wake, if not nil, is what another entity is woken by on this one; the caller
	// has made sure that it may (ObserveMay). Its source is not looked at.
	Wake *ObserverRequest
	// Lease is how long a claim lives without a heartbeat, WakeAfter when an
	// unclaimed wake is told again; zero means 30 s.
	Lease, WakeAfter time.Duration
}

// millis is d for SQL; zero reads as the default of 30 s.
func millis(d time.Duration) int32 {
	if d <= 0 {
		d = 30 * time.Second
	}
	return int32(d.Milliseconds())
}

// SpawnResult answers [Store.EntitySpawn]; TxID and Entity are set when the
// outcome is "spawned".
type SpawnResult struct {
	Outcome string
	TxID    int64
	Entity  Entity
}

// EntitySpawn makes an entity in one transaction. Outcomes: see
// sql/functions/entity_spawn.sql.
func (s *Store) EntitySpawn(ctx context.Context, r SpawnRequest) (SpawnResult, error) {
	var out SpawnResult
	var txid *int64
	var es entityScan
	sql := `select r.outcome, r.txid, ` + entityCols("(r.entity)") + ` from rouse.entity_spawn($1, $2::text, $3::text, $4, $5::text, $6, $7,
		$8::jsonb, $9::jsonb, $10::text, $11::jsonb, $12::jsonb, $13::text, $14::text, $15, $16, $17::jsonb) r`
	args := []any{r.Service, r.URL, r.Type, r.TypeRevision, r.Principal, r.System, r.Open, jsonArg(r.Args), jsonArg(r.Tags), textArg(r.Parent),
		jsonArg(r.Policy), jsonArg(r.Sandbox), r.Created, textArg(r.Message), millis(r.Lease), millis(r.WakeAfter), jsonArg(r.Grants)}
	if w := r.Wake; w != nil {
		// In the spawn's transaction, so that its first run is not missed.
		sql = `with spawned as materialized (` + sql + `), woken as materialized (
			select rouse.observe_register($1, $5::text, $6, $18::text, $2::text, $19::text, $20, $21, $22, $23::text, p_checked => true) as outcome from spawned where spawned.outcome = 'spawned')
			select s.* from spawned s left join woken on true`
		args = append(args, w.Subscriber, w.Condition, w.DebounceMS, w.TimeoutMS, w.IncludeResponse, textArg(w.ManifestKey))
	}
	err := s.row(ctx, func(row pgx.Row) error {
		return row.Scan(append([]any{&out.Outcome, &txid}, es.dest()...)...)
	}, sql, args...)
	out.TxID, out.Entity = num(txid), es.entity()
	return out, err
}

// EntityGet looks an entity up; [ErrNoRow] when there is none.
func (s *Store) EntityGet(ctx context.Context, service int32, url string) (Entity, error) {
	var es entityScan
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(es.dest()...) },
		`select `+entityCols("e")+` from rouse.entity_get($1, $2::text) e`, service, url)
	return es.entity(), err
}

// EntityAccess looks an entity up and says whether the principal may do
// permission to it; an empty principal may everything. [ErrNoRow] when there is
// no such entity.
func (s *Store) EntityAccess(ctx context.Context, service int32, url, principal, permission string) (e Entity, allowed bool, err error) {
	var es entityScan
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(append([]any{&allowed}, es.dest()...)...) },
		`select r.allowed, `+entityCols("(r.entity)")+` from rouse.entity_access($1, $2::text, $3::text, $4::text) r`,
		service, url, textArg(principal), permission)
	return es.entity(), allowed, err
}

// EntityHeld says whether a principal's runner holds the live claim of an entity.
func (s *Store) EntityHeld(ctx context.Context, service int32, principal, url string) (held bool, err error) {
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(&held) }, `select rouse.entity_held($1, $2::text, $3::text)`, service, url, principal)
	return held, err
}

// EntityAllowed returns the urls to which the principal may do permission: it
// created the entity, or a grant says so that has not expired.
func (s *Store) EntityAllowed(ctx context.Context, service int32, principal, permission string, urls []string) ([]string, error) {
	var out []string
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var url string
		if err := rows.Scan(&url); err != nil {
			return err
		}
		out = append(out, url)
		return nil
	}, `select * from rouse.entity_allowed($1, $2::text, $3::text, $4::text[])`, service, principal, permission, urls)
	return out, err
}

// EntityFilter narrows [Store.EntityList]; empty fields match all.
type EntityFilter struct {
	VisibleTo string // principal; empty: everything
	Type      string
	Status    string
	Parent    string
	CreatedBy string
	BeforeAt  time.Time // cursor: the last row of the page before
	BeforeURL string
	Limit     int
}

// EntityList lists entities, newest first.
func (s *Store) EntityList(ctx context.Context, service int32, f EntityFilter) ([]Entity, error) {
	var before any
	if !f.BeforeAt.IsZero() {
		before = f.BeforeAt
	}
	out := []Entity{}
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var es entityScan
		if err := rows.Scan(es.dest()...); err != nil {
			return err
		}
		out = append(out, es.entity())
		return nil
	}, `select `+entityCols("e")+` from rouse.entity_list($1, $2::text, $3::text, $4::text, $5::text, $6::text, $7::timestamptz, $8::text, $9) e`,
		service, textArg(f.VisibleTo), textArg(f.Type), textArg(f.Status), textArg(f.Parent), textArg(f.CreatedBy), before, f.BeforeURL,
		int32(f.Limit))
	return out, err
}

// GateRequest asks [Store.EntityGate] about one entity.
type GateRequest struct {
	Service int32
	URL     string
	Type    string // of the url, to tell an unknown type from an unknown entity
	// Principal is who wants to write; empty: somebody who may.
	Principal string
}

// Gate is what a send needs to know of an entity.
type Gate struct {
	Found          bool
	TypeExists     bool
	Status         string
	Allowed        bool // the principal may write
	Type           string
	SchemaRevision int32
	InboxSchemas   json.RawMessage // nil: anything goes
}

// EntityGate asks about many entities in one round trip, answered in order.
func (s *Store) EntityGate(ctx context.Context, reqs []GateRequest) ([]Gate, error) {
	services := make([]int32, len(reqs))
	urls, types := make([]string, len(reqs)), make([]string, len(reqs))
	principals := make([]*string, len(reqs))
	for i, r := range reqs {
		services[i], urls[i], types[i] = r.Service, r.URL, r.Type
		if r.Principal != "" {
			principals[i] = &reqs[i].Principal
		}
	}
	out := make([]Gate, 0, len(reqs))
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var url, status, typ *string
		var rev *int32
		var schemas []byte
		var known, allowed bool
		if err := rows.Scan(&url, &status, &allowed, &typ, &rev, &schemas, &known); err != nil {
			return err
		}
		out = append(out, Gate{Found: url != nil, TypeExists: known, Status: str(status), Allowed: allowed, Type: str(typ),
			SchemaRevision: num(rev), InboxSchemas: schemas})
		return nil
	}, `select * from rouse.entity_gate($1::int[], $2::text[], $3::text[], $4::text[])`, services, urls, types, principals)
	return out, err
}

// StateGateRequest asks [Store.EntityStateGate] about one entity.
type StateGateRequest struct {
	Service int32
	URL     string
	Known   string // the version whose schemas the caller has, or ""
}

// StateGate is what appends to an entity's stream are checked against.
type StateGate struct {
	ConsumerID   int64           // 0 when there is no such entity
	Version      string          // changes with the schemas
	StateSchemas json.RawMessage // nil: anything goes, or the version is the known one
}

// EntityStateGate asks about many entities in one round trip, answered in order.
func (s *Store) EntityStateGate(ctx context.Context, reqs []StateGateRequest) ([]StateGate, error) {
	services := make([]int32, len(reqs))
	urls, known := make([]string, len(reqs)), make([]string, len(reqs))
	for i, r := range reqs {
		services[i], urls[i], known[i] = r.Service, r.URL, r.Known
	}
	out := make([]StateGate, 0, len(reqs))
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var consumer *int64
		var version string
		var schemas []byte
		if err := rows.Scan(&consumer, &version, &schemas); err != nil {
			return err
		}
		out = append(out, StateGate{ConsumerID: num(consumer), Version: version, StateSchemas: schemas})
		return nil
	}, `select * from rouse.entity_state_gate($1::int[], $2::text[], $3::text[])`, services, urls, known)
	return out, err
}

// EntityTagPut sets a tag, or removes it when value is nil. event is the row
// told on the entity's stream. Outcomes: ok, unchanged, not_found, not_running.
func (s *Store) EntityTagPut(ctx context.Context, service int32, url, principal, key string, value *string, event string) (string, int64, Entity, error) {
	var outcome string
	var txid *int64
	var es entityScan
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(append([]any{&outcome, &txid}, es.dest()...)...) },
		`select r.outcome, r.txid, `+entityCols("(r.entity)")+` from rouse.entity_tag_put($1, $2::text, $3::text, $4::text, $5::text, $6::text) r`,
		service, url, principal, key, value, event)
	return outcome, num(txid), es.entity(), err
}

// SignalResult answers [Store.EntitySignal]. Outcomes: signalled, not_found,
// terminal.
type SignalResult struct {
	Outcome       string
	TxID          int64
	PreviousState string
	NewState      string
	CreatedAt     time.Time
}

// EntitySignal signals an entity; payload may be nil.
func (s *Store) EntitySignal(ctx context.Context, service int32, url, principal, signal, key, reason string, payload json.RawMessage) (SignalResult, error) {
	var out SignalResult
	var txid *int64
	var prev, next *string
	var at *time.Time
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(&out.Outcome, &txid, &prev, &next, &at) },
		`select * from rouse.entity_signal($1, $2::text, $3::text, $4::text, $5::text, $6::text, $7::jsonb)`,
		service, url, principal, signal, key, textArg(reason), jsonArg(payload))
	out.TxID, out.PreviousState, out.NewState, out.CreatedAt = num(txid), str(prev), str(next), num(at)
	return out, err
}

// EntityResume lets a paused entity go on: resumed, unchanged or not_found.
func (s *Store) EntityResume(ctx context.Context, service int32, url string) (string, error) {
	var outcome string
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome) }, `select rouse.entity_resume($1, $2::text)`, service, url)
	return outcome, err
}

// EntityErrorStream makes an entity's error stream at its first write, for the
// holder of the entity's live claim: created, exists, not_found, guarded,
// token_stale, lease_expired or path_taken.
func (s *Store) EntityErrorStream(ctx context.Context, service int32, url string, claim WriteClaim) (Outcome, error) {
	var outcome Outcome
	err := s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome) },
		`select r.outcome from rouse.entity_error_stream($1, $2::text, $3, $4, $5::uuid) r`, service, url, claim.ConsumerID, claim.Epoch, claim.WakeID)
	return outcome, err
}
