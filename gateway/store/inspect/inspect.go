// Package inspect owns the questions `rouse doctor` asks a database: is it one a gateway can run on, and how does it
// fare?
//
// It promises to change nothing, and to give each answer a stable code, a severity and what to do about it. It must not
// decide what an exit code or a page looks like.
package inspect

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/rouse-run/rouse/gateway/store/migrate"
)

// Severity says how much a finding matters.
type Severity string

// The severities.
const (
	OK    Severity = "ok"
	Warn  Severity = "warn"  // works, but something will hurt some day
	Error Severity = "error" // does not work, or acknowledged data can be lost
)

// Finding is one answer. Detail never holds an address or a secret.
type Finding struct {
	Code     string   `json:"code"`
	Severity Severity `json:"severity"`
	Detail   string   `json:"detail"`
	Fix      string   `json:"fix,omitempty"`
}

// Target says what to look at.
type Target struct {
	DSN       string // the hot path's, perhaps through a pooler
	DirectDSN string // for replication and migrations; empty = DSN
	Source    migrate.Source
}

// Run asks everything. The findings come in a fixed order; when the database cannot be reached there is only that one.
func Run(ctx context.Context, target Target) []Finding {
	if target.DirectDSN == "" {
		target.DirectDSN = target.DSN
	}
	r := &report{ctx: ctx}
	direct, err := pgx.Connect(ctx, target.DirectDSN)
	if err != nil {
		return []Finding{{Code: "DATABASE_UNAVAILABLE", Severity: Error, Detail: reason(err),
			Fix: "Check the direct URL (ROUSE_DIRECT_URL, else ROUSE_DATABASE_URL), that the server runs and that it lets this role in."}}
	}
	defer direct.Close(context.WithoutCancel(ctx))
	r.conn = direct
	r.version()
	r.standby()
	r.walLevel()
	r.timeline()
	r.capacity()
	r.slotCap()
	r.durability()
	r.idleTimeout()
	r.encoding()
	r.replication(target.DirectDSN)
	r.pooler(target)
	r.slots()
	r.oldSnapshots()
	r.migrations(target)
	return r.findings
}

type report struct {
	ctx      context.Context
	conn     *pgx.Conn
	findings []Finding
}

func (r *report) add(code string, severity Severity, detail, fix string) {
	r.findings = append(r.findings, Finding{code, severity, detail, fix})
}

// ask reads one row; when that fails the finding of that code says so.
func (r *report) ask(code, sql string, into ...any) bool {
	if err := r.conn.QueryRow(r.ctx, sql).Scan(into...); err != nil {
		r.add(code, Error, "cannot be asked: "+reason(err), "")
		return false
	}
	return true
}

// setting reads one setting in its base unit.
func (r *report) setting(code, name string) (string, bool) {
	var v string
	ok := r.ask(code, "select setting from pg_settings where name = '"+name+"'", &v)
	return v, ok
}

func (r *report) version() {
	var number int
	var text string
	if !r.ask("PG_VERSION", "select current_setting('server_version_num')::int, current_setting('server_version')", &number, &text) {
		return
	}
	if major := number / 10000; major < 15 || major > 18 {
		r.add("PG_VERSION", Error, "Postgres "+text+" is not supported", "Use Postgres 15 to 18.")
		return
	}
	r.add("PG_VERSION", OK, "Postgres "+text, "")
}

func (r *report) standby() {
	var standby, readOnly bool
	if !r.ask("PG_WRITABLE", "select pg_is_in_recovery(), current_setting('default_transaction_read_only')::bool", &standby, &readOnly) {
		return
	}
	switch {
	case standby:
		r.add("PG_WRITABLE", Error, "the server is a standby", "Connect to the primary (target_session_attrs=read-write in the URL finds it).")
	case readOnly:
		r.add("PG_WRITABLE", Error, "transactions are read-only by default", "Set default_transaction_read_only = off for this role.")
	default:
		r.add("PG_WRITABLE", OK, "a primary that takes writes", "")
	}
}

func (r *report) walLevel() {
	level, ok := r.setting("WAL_LEVEL", "wal_level")
	if !ok {
		return
	}
	if level != "logical" {
		r.add("WAL_LEVEL", Error, "wal_level is "+level+": wakes and tails fall back to polling",
			"ALTER SYSTEM SET wal_level = logical, then restart Postgres.")
		return
	}
	r.add("WAL_LEVEL", OK, "wal_level is logical", "")
}

// capacity looks for room for one slot and one walsender a gateway.
// timeline: a claim asks which timeline of its log the server is on, to see that
// it went on from an older state.
func (r *report) timeline() {
	var standby bool
	var id string
	if !r.ask("WAL_TIMELINE", "select pg_is_in_recovery()", &standby) || standby {
		return // PG_WRITABLE says so
	}
	if err := r.conn.QueryRow(r.ctx, "select left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)").Scan(&id); err != nil {
		r.add("WAL_TIMELINE", Error, "the server does not tell its timeline, without which nothing is claimed: "+reason(err),
			"Let this role execute pg_current_wal_insert_lsn() and pg_walfile_name(pg_lsn); a service that has no such functions cannot be used.")
		return
	}
	r.add("WAL_TIMELINE", OK, "timeline "+strings.TrimLeft(id, "0"), "")
}

func (r *report) capacity() {
	var slots, maxSlots, senders, maxSenders, connections int
	if !r.ask("REPLICATION_CAPACITY", `select (select count(*) from pg_replication_slots), current_setting('max_replication_slots')::int,
(select count(*) from pg_stat_replication), current_setting('max_wal_senders')::int, current_setting('max_connections')::int`,
		&slots, &maxSlots, &senders, &maxSenders, &connections) {
		return
	}
	detail := fmt.Sprintf("%d of %d replication slots and %d of %d WAL senders in use; %d connections allowed", slots, maxSlots, senders, maxSenders, connections)
	if maxSlots-slots < 2 || maxSenders-senders < 2 {
		r.add("REPLICATION_CAPACITY", Warn, detail, "Each gateway needs one of both, and one more while it takes over: raise max_replication_slots and max_wal_senders.")
		return
	}
	r.add("REPLICATION_CAPACITY", OK, detail, "")
}

// minSlotCap in MB holds well above fifteen seconds of the log at full load.
const minSlotCap = 1024

func (r *report) slotCap() {
	text, ok := r.setting("SLOT_WAL_CAP", "max_slot_wal_keep_size")
	if !ok {
		return
	}
	mb, err := strconv.Atoi(text)
	switch {
	case err != nil:
		r.add("SLOT_WAL_CAP", Error, "max_slot_wal_keep_size cannot be read", "")
	case mb < 0:
		r.add("SLOT_WAL_CAP", Warn, "max_slot_wal_keep_size is not set: while no gateway runs, the log grows until the disk is full",
			"ALTER SYSTEM SET max_slot_wal_keep_size = '4GB' (or what the disk can spare), then SELECT pg_reload_conf().")
	case mb < minSlotCap:
		r.add("SLOT_WAL_CAP", Warn, fmt.Sprintf("max_slot_wal_keep_size is %d MB: a short pause of the gateway under load can cost the slot", mb),
			fmt.Sprintf("Set it to %d MB or more.", minSlotCap))
	default:
		r.add("SLOT_WAL_CAP", OK, fmt.Sprintf("max_slot_wal_keep_size is %d MB", mb), "")
	}
}

func (r *report) durability() {
	var fsync, commit, pages string
	if !r.ask("DURABILITY", "select current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes')", &fsync, &commit, &pages) {
		return
	}
	detail := fmt.Sprintf("fsync %s, synchronous_commit %s, full_page_writes %s", fsync, commit, pages)
	if fsync != "on" || pages != "on" || commit == "off" {
		r.add("DURABILITY", Error, detail+": an acknowledged append can be lost in a crash", "Turn all three on.")
		return
	}
	r.add("DURABILITY", OK, detail, "")
}

func (r *report) idleTimeout() {
	text, ok := r.setting("IDLE_IN_TRANSACTION", "idle_in_transaction_session_timeout")
	if !ok {
		return
	}
	if text == "0" {
		r.add("IDLE_IN_TRANSACTION", Warn, "idle_in_transaction_session_timeout is off: one forgotten session slows every hot stream tenfold within seconds",
			"ALTER DATABASE … SET idle_in_transaction_session_timeout = '60s'.")
		return
	}
	r.add("IDLE_IN_TRANSACTION", OK, "idle_in_transaction_session_timeout is "+text+" ms", "")
}

func (r *report) encoding() {
	var name string
	var lz4 bool
	if !r.ask("ENCODING", "select current_setting('server_encoding'), 'lz4' = any(enumvals) from pg_settings where name = 'default_toast_compression'", &name, &lz4) {
		return
	}
	switch {
	case name != "UTF8":
		r.add("ENCODING", Error, "the database's encoding is "+name, "Create it with ENCODING 'UTF8'.")
	case !lz4:
		r.add("ENCODING", Warn, "this Postgres was built without lz4: payloads are compressed more slowly", "Use a build with lz4; the distributions' have it.")
	default:
		r.add("ENCODING", OK, "UTF8, lz4", "")
	}
}

// replication tries what the feed will do: open a replication connection to the database.
func (r *report) replication(dsn string) {
	cfg, err := pgx.ParseConfig(dsn)
	if err == nil {
		cfg.RuntimeParams["replication"] = "database"
		var conn *pgx.Conn
		if conn, err = pgx.ConnectConfig(r.ctx, cfg); err == nil {
			err = conn.Close(r.ctx)
		}
	}
	if err != nil {
		r.add("REPLICATION_CONNECTION", Error, "a replication connection is refused: "+reason(err),
			"Give the role REPLICATION (ALTER ROLE … REPLICATION), and go around the pooler (ROUSE_DIRECT_URL).")
		return
	}
	var may bool
	if r.ask("REPLICATION_CONNECTION", "select rolreplication or rolsuper from pg_roles where rolname = current_user", &may) {
		if !may {
			r.add("REPLICATION_CONNECTION", Error, "the role may not replicate", "ALTER ROLE … REPLICATION.")
			return
		}
		r.add("REPLICATION_CONNECTION", OK, "replication connections are accepted", "")
	}
}

// pooler compares the process that the protocol announced with the one that answers: a pooler makes up the former.
func (r *report) pooler(target Target) {
	if pooled(r.ctx, r.conn) {
		r.add("POOLER", Error, "the direct URL leads through a pooler", "Point ROUSE_DIRECT_URL at the server itself: replication and migrations need it.")
		return
	}
	conn, err := pgx.Connect(r.ctx, target.DSN)
	if err != nil {
		r.add("POOLER", Error, "ROUSE_DATABASE_URL does not answer: "+reason(err), "Check it; the direct URL works.")
		return
	}
	defer conn.Close(context.WithoutCancel(r.ctx))
	detail := "no pooler in between"
	if pooled(r.ctx, conn) {
		detail = "requests go through a pooler, replication and migrations around it"
	}
	r.add("POOLER", OK, detail, "")
}

func pooled(ctx context.Context, conn *pgx.Conn) bool {
	var pid uint32
	err := conn.QueryRow(ctx, "select pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	return err == nil && pid != conn.PgConn().PID()
}

func (r *report) slots() {
	type slot struct {
		name, status string
		active       bool
		retained     int64
	}
	rows, err := r.conn.Query(r.ctx, `select slot_name::text, coalesce(wal_status, 'unknown'), active,
coalesce(pg_wal_lsn_diff(case when pg_is_in_recovery() then null else pg_current_wal_lsn() end, restart_lsn), 0)::bigint
from pg_replication_slots where database = current_database() and slot_name like 'rouse\_%' order by 1`)
	if err != nil {
		r.add("SLOTS", Error, "cannot be asked: "+reason(err), "")
		return
	}
	slots, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s slot, err error) {
		err = row.Scan(&s.name, &s.status, &s.active, &s.retained)
		return s, err
	})
	if err != nil {
		r.add("SLOTS", Error, "cannot be asked: "+reason(err), "")
		return
	}
	for _, s := range slots {
		detail := fmt.Sprintf("slot %s: %s, active %v, %d MB of the log retained", s.name, s.status, s.active, s.retained>>20)
		switch {
		case s.status == "lost":
			r.add("SLOTS", Warn, detail, "A running gateway replaces it by itself; nothing is lost, the scan closes the gap.")
		case s.status == "unreserved" || !s.active && s.retained > 512<<20:
			r.add("SLOTS", Warn, detail, "No gateway reads it. Start one, or drop it: SELECT pg_drop_replication_slot('"+s.name+"').")
		default:
			r.add("SLOTS", OK, detail, "")
		}
	}
	if len(slots) == 0 {
		r.add("SLOTS", OK, "no slot of Rouse yet: no gateway has run on this database", "")
	}
}

func (r *report) oldSnapshots() {
	var seconds float64
	if !r.ask("OLD_SNAPSHOTS", `select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::float8 from pg_stat_activity
where datname = current_database() and backend_xmin is not null and pid <> pg_backend_pid() and backend_type = 'client backend'`, &seconds) {
		return
	}
	if seconds > 60 {
		r.add("OLD_SNAPSHOTS", Warn, fmt.Sprintf("a transaction has held its snapshot for %.0f s: dead rows of hot streams cannot be cleaned up", seconds),
			"Find it in pg_stat_activity by xact_start and end it.")
		return
	}
	r.add("OLD_SNAPSHOTS", OK, "no long transaction", "")
}

func (r *report) migrations(target Target) {
	m, err := migrate.New(migrate.Options{DSN: target.DirectDSN, Source: target.Source})
	var s migrate.Status
	if err == nil {
		s, err = m.Status(r.ctx)
	}
	if err == nil {
		err = s.Usable()
	}
	switch {
	case err != nil:
		code := string(migrate.CodeOf(err))
		r.add(code, Error, detailOf(err), hintOf(err))
	case s.Warning() != "":
		r.add("MIGRATIONS", Warn, s.Warning(), "Bring this binary up to date.")
	default:
		r.add("MIGRATIONS", OK, fmt.Sprintf("migration %06d and this binary's functions are in place", s.Version), "")
	}
}

// Worst is the gravest severity among findings.
func Worst(findings []Finding) Severity {
	order := []Severity{OK, Warn, Error}
	worst := OK
	for _, f := range findings {
		if slices.Index(order, f.Severity) > slices.Index(order, worst) {
			worst = f.Severity
		}
	}
	return worst
}
