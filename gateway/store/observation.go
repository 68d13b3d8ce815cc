package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// ObserverRequest is what an entity asks to be woken by.
type ObserverRequest struct {
	Service         int32
	Principal       string
	Trusted         bool
	Subscriber      string // an entity's url
	Source          string // an entity's url or a stream's path, with a leading slash
	Condition       string // JSON text
	DebounceMS      int32
	TimeoutMS       int32
	IncludeResponse bool
	ManifestKey     string // or empty
	// Expression and Timezone of a cron stream that is the source, or empty.
	Expression, Timezone string
	// Checked: the caller has found the rights on the subscriber, and on the source
	// if that is an entity, sufficient.
	Checked bool
}

// ObserveRegister registers what an entity is woken by: ok, not_found,
// forbidden, not_running or source_forbidden.
func (s *Store) ObserveRegister(ctx context.Context, r ObserverRequest) (outcome string, err error) {
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome) },
		`select rouse.observe_register($1, $2::text, $3, $4::text, $5::text, $6::text, $7, $8, $9, $10::text, $11::text, $12::text, $13)`,
		r.Service, r.Principal, r.Trusted, r.Subscriber, r.Source, r.Condition, r.DebounceMS, r.TimeoutMS, r.IncludeResponse,
		textArg(r.ManifestKey), textArg(r.Expression), textArg(r.Timezone), r.Checked)
	return outcome, err
}

// ObserveMay says whether ObserveRegister would be carried out, with its
// outcomes.
func (s *Store) ObserveMay(ctx context.Context, r ObserverRequest) (outcome string, err error) {
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome) },
		`select rouse.observe_may($1, $2::text, $3, $4::text, $5::text, $6)`,
		r.Service, r.Principal, r.Trusted, r.Subscriber, r.Source, r.Checked)
	return outcome, err
}

// ObserveUnregister removes what an entity is woken by, by its source or its
// manifest key: ok, not_found or forbidden.
func (s *Store) ObserveUnregister(ctx context.Context, service int32, principal string, trusted bool, subscriber, source, manifestKey string) (outcome string, err error) {
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome) },
		`select rouse.observe_unregister($1, $2::text, $3, $4::text, $5::text, $6::text)`,
		service, principal, trusted, subscriber, textArg(source), textArg(manifestKey))
	return outcome, err
}

// ObserveManifest makes sure that an entity's manifest rows are read: ok or
// not_found.
func (s *Store) ObserveManifest(ctx context.Context, service int32, url string) (outcome string, err error) {
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome) }, `select rouse.observe_manifest($1, $2::text)`, service, url)
	return outcome, err
}

// Observer is a cursor with something to do, and what follows it on its source.
type Observer struct {
	ID              int64
	Service         int32
	Kind            string // wake or manifest
	SubscriberURL   string
	SourcePath      string
	SourceURL       string
	Condition       string
	DebounceMS      int32
	IncludeResponse bool
	Principal       string
	State           string // what a debounce has collected, or empty
	Due             bool   // the due time has come
	StreamID        int64  // 0 while there is no source
	Acked, Tail     int64
	Over            bool   // the source is closed or gone
	Ended           bool   // the subscriber has, or may not read the source any more
	SourceEntity    string // url, type and parent of a source that is an entity
	SourceType      string
	SourceParent    string
	Positions       []int64
	Payloads        [][]byte
}

// ObserveTake reads cursors with something to do, in the order of their ids
// after one, each with a page of about bytes.
func (s *Store) ObserveTake(ctx context.Context, after int64, limit, bytes int32) ([]Observer, error) {
	var out []Observer
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var o Observer
		var state, entity, typ, parent *string
		var stream *int64
		if err := rows.Scan(&o.ID, &o.Service, &o.Kind, &o.SubscriberURL, &o.SourcePath, &o.SourceURL, &o.Condition, &o.DebounceMS,
			&o.IncludeResponse, &o.Principal, &state, &o.Due, &stream, &o.Acked, &o.Tail, &o.Over, &o.Ended, &entity, &typ, &parent,
			&o.Positions, &o.Payloads); err != nil {
			return err
		}
		o.State, o.StreamID = str(state), num(stream)
		o.SourceEntity, o.SourceType, o.SourceParent = str(entity), str(typ), str(parent)
		out = append(out, o)
		return nil
	}, `select id, service_id, kind, subscriber_url, source_path, source_url, condition, debounce_ms, include_response, principal,
		state, due, stream_id, acked, tail, over, ended, source_entity, source_type, source_parent, positions, payloads
		from rouse.observe_take($1, $2, $3)`, after, limit, bytes)
	return out, err
}

// ObserverMove moves a cursor and appends the wakes it found.
type ObserverMove struct {
	ID, From, To int64
	// Was and Due are the State and Due that the cursor was read with.
	Was   string
	Due   bool
	State string
	// KeepDue leaves the due time; otherwise DueMS is when it is, from now, and
	// nil that there is none.
	KeepDue bool
	DueMS   *int32
	Over    bool // the registration ends
	Rows    []string
}

// ObserveApply moves cursors in one transaction; answered in order: applied,
// gone, stale or busy. With wait it may wait for the row of the one subscriber.
func (s *Store) ObserveApply(ctx context.Context, moves []ObserverMove, wait bool) ([]string, error) {
	n := len(moves)
	ids, from, to, over := make([]int64, n), make([]int64, n), make([]int64, n), make([]bool, n)
	was, came := make([]*string, n), make([]bool, n)
	states, due := make([]*string, n), make([]*int32, n)
	rows, of := []string{}, []int32{}
	keep := int32(-1)
	for i, m := range moves {
		ids[i], from[i], to[i], over[i], came[i] = m.ID, m.From, m.To, m.Over, m.Due
		if m.Was != "" {
			was[i] = &moves[i].Was
		}
		if m.State != "" {
			states[i] = &moves[i].State
		}
		if due[i] = m.DueMS; m.KeepDue {
			due[i] = &keep
		}
		for _, r := range m.Rows {
			rows, of = append(rows, r), append(of, int32(i+1))
		}
	}
	out := make([]string, 0, n)
	err := s.rows(ctx, func(rs pgx.Rows) error {
		var id int64
		var outcome string
		if err := rs.Scan(&id, &outcome); err != nil {
			return err
		}
		out = append(out, outcome)
		return nil
	}, `select id, outcome from rouse.observe_move($1::bigint[], $2::bigint[], $3::text[], $4::bool[], $5::bigint[], $6::text[], $7::int[], $8::bool[], $9::text[], $10::int[], $11)`,
		ids, from, was, came, to, states, due, over, rows, of, wait)
	return out, err
}

// AppendedRow is one append of a stream.
type AppendedRow struct {
	Position int64
	Payload  []byte
}

// ObserveBack reads a page of a stream backwards from a position, about bytes
// long and at least one append.
func (s *Store) ObserveBack(ctx context.Context, stream, position int64, bytes int32) ([]AppendedRow, error) {
	var out []AppendedRow
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var a AppendedRow
		if err := rows.Scan(&a.Position, &a.Payload); err != nil {
			return err
		}
		out = append(out, a)
		return nil
	}, `select position, payload from rouse.observe_back($1, $2, $3)`, stream, position, bytes)
	return out, err
}

// ObserveAttach gives cursors that waited for their source its stream. It
// answers the last id it looked at, 0 for none, and how many of them wait on.
func (s *Store) ObserveAttach(ctx context.Context, after int64, limit int32) (last int64, waiting int32, err error) {
	var id *int64
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(&id, &waiting) }, `select last_id, waiting from rouse.observe_attach($1, $2)`, after, limit)
	return num(id), waiting, err
}

// ManifestApply carries out what an entity's manifest asks for and moves the
// cursor: applied, gone, stale or busy.
func (s *Store) ManifestApply(ctx context.Context, id, from, to int64, effects json.RawMessage) (outcome string, err error) {
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(&outcome) },
		`select rouse.manifest_apply($1, $2, $3, $4::jsonb)`, id, from, to, string(effects))
	return outcome, err
}

// ObservationNext is how long it is until the next thing of observation is due;
// ok is false when none is waited for.
func (s *Store) ObservationNext(ctx context.Context) (wait time.Duration, ok bool, err error) {
	var ms *int64
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(&ms) }, `select rouse.observation_next()`)
	return time.Duration(num(ms)) * time.Millisecond, ms != nil, err
}

// CronEnsure makes a cron stream, and lets it tick while it is observed.
func (s *Store) CronEnsure(ctx context.Context, service int32, path, expression, timezone string) error {
	return s.row(ctx, func(row pgx.Row) error { return row.Scan(nil) },
		`select rouse.cron_ensure($1, $2::text, $3::text, $4::text)::text`, service, path, expression, timezone)
}

// Task is a scheduled task that is due.
type Task struct {
	ID          int64
	Service     int32
	Kind        string // delayed_send or cron_tick
	DueAt       time.Time
	Planned     bool
	EntityURL   string
	Message     string
	OwnerURL    string // whose schedule it is, or empty
	ManifestKey string
	Manifest    string
	ProducerID  string
	Expression  string
	Timezone    string
	Tick        int64
	Now         time.Time // the database's clock
}

// ScheduleTake reads due tasks, oldest first.
func (s *Store) ScheduleTake(ctx context.Context, limit int32) ([]Task, error) {
	var out []Task
	err := s.rows(ctx, func(rows pgx.Rows) error {
		var t Task
		var entity, message, owner, key, manifest, producer, expression, zone *string
		if err := rows.Scan(&t.ID, &t.Service, &t.Kind, &t.DueAt, &t.Planned, &entity, &message, &owner, &key, &manifest, &producer,
			&expression, &zone, &t.Tick, &t.Now); err != nil {
			return err
		}
		t.EntityURL, t.Message, t.OwnerURL, t.ManifestKey, t.Manifest = str(entity), str(message), str(owner), str(key), str(manifest)
		t.ProducerID, t.Expression, t.Timezone = str(producer), str(expression), str(zone)
		out = append(out, t)
		return nil
	}, `select id, service_id, kind, due_at, planned, entity_url, message, owner_url, manifest_key, manifest, producer_id, expression, timezone,
		tick_number, now from rouse.schedule_take($1)`, limit)
	return out, err
}

// SchedulePlan sets when a cron stream ticks first; false when somebody else has.
func (s *Store) SchedulePlan(ctx context.Context, t Task, next time.Time) (ok bool, err error) {
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(&ok) }, `select rouse.schedule_plan($1, $2, $3)`, t.ID, t.DueAt, next)
	return ok, err
}

// SchedulePostpone lets a task that could not be carried out be due again later;
// false when it has changed meanwhile.
func (s *Store) SchedulePostpone(ctx context.Context, t Task, after time.Duration) (ok bool, err error) {
	err = s.row(ctx, func(row pgx.Row) error { return row.Scan(&ok) }, `select rouse.schedule_postpone($1, $2, $3)`, t.ID, t.DueAt, int32(after.Milliseconds()))
	return ok, err
}

// ScheduleTick lets a due cron stream tick: ticked, ended or stale.
func (s *Store) ScheduleTick(ctx context.Context, t Task, row string, next time.Time) (outcome string, err error) {
	err = s.row(ctx, func(r pgx.Row) error { return r.Scan(&outcome) },
		`select rouse.schedule_tick($1, $2, $3::text, $4)`, t.ID, t.DueAt, row, next)
	return outcome, err
}

// ScheduleSend sends a due message: sent, not_found, not_running, forbidden,
// dropped or stale. The manifest of its owner, if any, is told sent or the
// element of failed that fits, in that order.
func (s *Store) ScheduleSend(ctx context.Context, t Task, row, sent string, failed []string, resume bool) (outcome string, err error) {
	err = s.row(ctx, func(r pgx.Row) error { return r.Scan(&outcome) },
		`select rouse.schedule_send($1, $2, $3::text, $4::text, $5::text[], $6)`, t.ID, t.DueAt, row, textArg(sent), failed, resume)
	return outcome, err
}

// ScheduleAdd lets a message be sent to an entity after a while; producer, if
// any, stands for the message and lets it be sent once. The caller has checked
// that it may be sent.
func (s *Store) ScheduleAdd(ctx context.Context, service int32, principal string, trusted bool, url, message string, after time.Duration, producer string) error {
	return s.row(ctx, func(row pgx.Row) error { return row.Scan(nil) },
		`select rouse.schedule_add($1, $2::text, $3, $4::text, $5::text, $6, $7::text)::text`, service, principal, trusted, url, message,
		after.Milliseconds(), textArg(producer))
}

// ManifestWrite is an entity's manifest row that asks for something.
type ManifestWrite struct {
	Service    int32
	Principal  string
	Trusted    bool
	URL        string
	Permission string // that the caller needs on the entity
	Key        string
	Row        string
	Removed    bool
	Target     string // an entity that the caller must be able to write, or empty
}

// ScheduleWrite appends a row to an entity's manifest: ok, not_found, forbidden,
// not_running, target_not_found or target_forbidden.
func (s *Store) ScheduleWrite(ctx context.Context, m ManifestWrite) (outcome string, err error) {
	err = s.row(ctx, func(r pgx.Row) error { return r.Scan(&outcome) },
		`select rouse.schedule_write($1, $2::text, $3, $4::text, $5::text, $6::text, $7::text, $8, $9::text)`,
		m.Service, m.Principal, m.Trusted, m.URL, m.Permission, m.Key, m.Row, m.Removed, textArg(m.Target))
	return outcome, err
}

// SharedStateAdmit says whether a caller may read or write (permission) a shared
// state: ok or forbidden. With owner, that entity begins to use it if the caller
// may write it. claim, if any, is the caller's write token.
func (s *Store) SharedStateAdmit(ctx context.Context, service int32, principal string, trusted bool, path, permission, owner string, claim *WriteClaim) (outcome string, err error) {
	var consumer, epoch *int64
	var wake *string
	if claim != nil {
		consumer, epoch, wake = &claim.ConsumerID, &claim.Epoch, &claim.WakeID
	}
	err = s.row(ctx, func(r pgx.Row) error { return r.Scan(&outcome) },
		`select rouse.shared_state_admit($1, $2::text, $3, $4::text, $5::text, $6::text, $7, $8, $9::uuid)`,
		service, principal, trusted, path, permission, textArg(owner), consumer, epoch, wake)
	return outcome, err
}

// MembershipEnsure makes the stream of the entities that have the tags and that
// the principal may read.
func (s *Store) MembershipEnsure(ctx context.Context, service int32, principal string, trusted bool, ref string, tags json.RawMessage) error {
	return s.row(ctx, func(row pgx.Row) error { return row.Scan(nil) },
		`select rouse.membership_ensure($1, $2::text, $3, $4::text, $5::jsonb)::text`, service, principal, trusted, ref, string(tags))
}

// MembershipFill brings at most limit entities into a membership stream that is
// new, and says whether to call again.
func (s *Store) MembershipFill(ctx context.Context, service int32, ref string, limit int32) (more bool, err error) {
	err = s.row(ctx, func(r pgx.Row) error { return r.Scan(&more) }, `select rouse.membership_fill($1, $2::text, $3)`, service, ref, limit)
	return more, err
}

// MembershipApply tells membership streams of changed entities, at most limit
// changes; it answers how many it took.
func (s *Store) MembershipApply(ctx context.Context, limit int32) (n int32, err error) {
	err = s.row(ctx, func(r pgx.Row) error { return r.Scan(&n) }, `select rouse.membership_apply($1)`, limit)
	return n, err
}

// MembershipCheck compares a membership stream that was not for a while with the
// entities there are: more, checked, none, or empty when there is no stream.
func (s *Store) MembershipCheck(ctx context.Context, older time.Duration, limit int32) (outcome string, err error) {
	err = s.row(ctx, func(r pgx.Row) error { return r.Scan(&outcome) }, `select rouse.membership_check($1, $2)`, int32(older.Milliseconds()), limit)
	return outcome, err
}
