package migrate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Status is where a database stands against this binary.
type Status struct {
	Fresh            bool // nothing of Rouse is there yet
	Version          int  // of the last migration begun
	Dirty            bool // that one was interrupted
	Newest           int  // the last migration this binary knows
	Pending          []Migration
	Unknown          []Migration // in the database, not in this binary (no SQL)
	Edited           []Migration // in the database with another text than this binary's
	FunctionsPending bool        // the installed functions differ, and are not a newer binary's
	FunctionsNewer   bool        // the installed functions are a newer binary's
	DatabaseRelease  string      // that installed the functions; "" when none did
	BinaryRelease    string
	recorded         bool // the record says that the interrupted migration was applied
}

// HasPending reports whether Up has something to do.
func (s Status) HasPending() bool { return len(s.Pending) > 0 || s.FunctionsPending }

// Status looks without changing anything.
func (m *Migrator) Status(ctx context.Context) (Status, error) {
	conn, err := m.connect(ctx)
	if err != nil {
		return Status{}, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return m.status(ctx, conn)
}

func (m *Migrator) status(ctx context.Context, conn *pgx.Conn) (Status, error) {
	s := Status{Newest: newest(m.list), BinaryRelease: m.opts.Source.Release}
	fail := func(err error) (Status, error) {
		return s, &Error{Code: CodeUnavailable, Detail: "cannot read the migrations' tables", Cause: err}
	}
	var hasHistory, hasVersion bool
	err := conn.QueryRow(ctx, `select to_regclass('rouse.schema_history') is not null, to_regclass('rouse.schema_migrations') is not null`).
		Scan(&hasHistory, &hasVersion)
	if err != nil {
		return fail(err)
	}
	s.Fresh = !hasHistory
	if hasVersion {
		err := conn.QueryRow(ctx, `select version, dirty from rouse.schema_migrations`).Scan(&s.Version, &s.Dirty)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fail(err)
		}
	}
	known := make(map[int]Migration, len(m.list))
	for _, mig := range m.list {
		known[mig.Version] = mig
		if mig.Version > s.Version {
			s.Pending = append(s.Pending, mig)
		}
	}
	s.FunctionsPending = true
	if !hasHistory {
		return s, nil
	}
	// A database that an older release has migrated last has no column of hashes yet.
	rows, err := conn.Query(ctx, `select version, name, compat, coalesce(to_jsonb(h) ->> 'hash', '') from rouse.schema_history h order by version`)
	if err != nil {
		return fail(err)
	}
	type applied struct {
		Migration
		hash string
	}
	history, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a applied, err error) {
		err = row.Scan(&a.Version, &a.Name, &a.Compat, &a.hash)
		return a, err
	})
	if err != nil {
		return fail(err)
	}
	lastRecorded := 0
	for _, mig := range history {
		s.recorded = s.recorded || mig.Version == s.Version
		lastRecorded = mig.Version
		ours, ok := known[mig.Version]
		switch {
		case mig.Version > s.Version:
		case !ok:
			s.Unknown = append(s.Unknown, mig.Migration)
		case mig.hash != "" && mig.hash != ours.hash():
			s.Edited = append(s.Edited, ours)
		}
	}
	if s.Version > s.Newest && s.Version > lastRecorded {
		// Somebody moved the version without leaving a record: assume the worst.
		s.Unknown = append(s.Unknown, Migration{Version: s.Version, Name: "unrecorded", Compat: Breaking})
	}
	var hash string
	var migration int
	err = conn.QueryRow(ctx, `select hash, migration, release from rouse.schema_manifest where id = 1`).Scan(&hash, &migration, &s.DatabaseRelease)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return fail(err)
	default:
		s.FunctionsNewer = hash != m.hash && newer(migration, s.DatabaseRelease, s.Newest, s.BinaryRelease)
		s.FunctionsPending = hash != m.hash && !s.FunctionsNewer
	}
	return s, nil
}

// newer reports whether a database's functions, installed by a binary that knew migration dbMigration and was release
// dbRelease, come after ours. Releases that are no version numbers count as equal.
func newer(dbMigration int, dbRelease string, migration int, release string) bool {
	if dbMigration != migration {
		return dbMigration > migration
	}
	a, okA := parseRelease(dbRelease)
	b, okB := parseRelease(release)
	if !okA || !okB {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return a[i] > b[i]
		}
	}
	return false
}

func parseRelease(s string) (v [3]int, ok bool) {
	core, _, _ := strings.Cut(strings.TrimPrefix(s, "v"), "-")
	parts := strings.Split(core, ".")
	if !strings.HasPrefix(s, "v") || len(parts) != 3 {
		return v, false
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

// refusal is why nothing may be done to, or with, the database; nil when something may.
func (s Status) refusal() error {
	if s.Dirty {
		return &Error{Code: CodeDirty, Detail: fmt.Sprintf("migration %06d was interrupted", s.Version),
			Hint: "Run `rouse migrate repair`: it finds out whether the migration took effect and puts the mark right."}
	}
	var breaking []string
	for _, u := range s.Unknown {
		if u.Compat == Breaking {
			breaking = append(breaking, fmt.Sprintf("%06d_%s", u.Version, u.Name))
		}
	}
	if len(breaking) > 0 {
		return &Error{Code: CodeTooNew,
			Detail: fmt.Sprintf("the database is at migration %06d, this binary (%s) knows up to %06d, and breaking ones lie between: %s",
				s.Version, s.BinaryRelease, s.Newest, strings.Join(breaking, ", ")),
			Hint: "Run a newer rouse (the database was last changed by " + orUnknown(s.DatabaseRelease) + ")."}
	}
	return nil
}

// edited is why no migration may follow those that were applied: some of them have another text in this binary, so that
// the database is not what the next ones expect.
func (s Status) edited() error {
	if len(s.Edited) == 0 {
		return nil
	}
	return &Error{Code: CodeEdited, Detail: s.edits(),
		Hint: "A migration that was applied is never changed: use the release that applied it, or put its file back and write the change as a new one."}
}

func (s Status) edits() string {
	var names []string
	for _, e := range s.Edited {
		names = append(names, fmt.Sprintf("%06d_%s", e.Version, e.Name))
	}
	return "the database was migrated with another text of " + strings.Join(names, ", ") + " than this binary has"
}

func orUnknown(release string) string {
	if release == "" {
		return "an unknown release"
	}
	return release
}

// Usable says whether a gateway of this binary may serve from the database: nil, or an Error with CodePending,
// CodeTooNew or CodeDirty. A safe migration that the binary does not know is no obstacle; Warning tells of it.
func (s Status) Usable() error {
	if err := s.refusal(); err != nil {
		return err
	}
	if s.HasPending() {
		what := fmt.Sprintf("%d migrations", len(s.Pending))
		if len(s.Pending) == 0 {
			what = "the functions"
		}
		return &Error{Code: CodePending, Detail: what + " of this binary are not in the database yet",
			Hint: "Run `rouse migrate up`, or start with --migrate."}
	}
	return nil
}

// Warning is what an operator should know of a usable database; empty when there is nothing.
func (s Status) Warning() string {
	if len(s.Edited) > 0 {
		return s.edits()
	}
	if len(s.Unknown) > 0 {
		return fmt.Sprintf("the database is at migration %06d and this binary knows up to %06d; the ones between are safe for it", s.Version, s.Newest)
	}
	if s.FunctionsNewer {
		return "the database's functions were installed by the newer release " + orUnknown(s.DatabaseRelease) + " and are left as they are"
	}
	return ""
}

// Explain puts the status into words.
func (s Status) Explain() string {
	var b strings.Builder
	switch {
	case s.Fresh:
		b.WriteString("The database holds nothing of Rouse yet.\n")
	case s.Dirty && s.recorded:
		fmt.Fprintf(&b, "Migration %06d took effect, but the migrator was interrupted before it cleared its mark.\n", s.Version)
	case s.Dirty:
		fmt.Fprintf(&b, "Migration %06d was begun and did not take effect.\n", s.Version)
	default:
		fmt.Fprintf(&b, "The database is at migration %06d; this binary knows up to %06d.\n", s.Version, s.Newest)
	}
	for _, p := range s.Pending {
		fmt.Fprintf(&b, "  to do: %06d_%s (%s)\n", p.Version, p.Name, p.Compat)
	}
	for _, e := range s.Edited {
		fmt.Fprintf(&b, "  applied with another text: %06d_%s\n", e.Version, e.Name)
	}
	for _, u := range s.Unknown {
		fmt.Fprintf(&b, "  unknown to this binary: %06d_%s (%s)\n", u.Version, u.Name, u.Compat)
	}
	switch {
	case s.FunctionsNewer:
		fmt.Fprintf(&b, "Functions: installed by the newer release %s; left as they are.\n", orUnknown(s.DatabaseRelease))
	case s.FunctionsPending:
		b.WriteString("Functions: to be replaced by this binary's.\n")
	default:
		b.WriteString("Functions: up to date.\n")
	}
	return b.String()
}

// Repair puts the mark of an interrupted migration right and says what it found and did. The migration's record, which
// commits with it, tells whether it took effect; a migration outside a transaction is made ready to be run again.
func (m *Migrator) Repair(ctx context.Context) (string, error) {
	var said string
	err := m.locked(ctx, func(conn *pgx.Conn) error {
		s, err := m.status(ctx, conn)
		if err != nil {
			return err
		}
		said = s.Explain()
		if !s.Dirty {
			said += "Nothing to repair.\n"
			return nil
		}
		target := s.Version
		if !s.recorded {
			target = -1 // golang-migrate's word for "before the first"
			for _, mig := range m.list {
				if mig.Version < s.Version {
					target = mig.Version
				}
			}
		}
		runner, err := m.runner(ctx)
		if err != nil {
			return err
		}
		defer runner.Close()
		if err := runner.Force(target); err != nil {
			return &Error{Code: CodeFailed, Detail: "cannot put the mark right", Cause: err}
		}
		if s.recorded {
			said += "Marked it as applied.\n"
		} else {
			said += "Marked it as not applied; `rouse migrate up` runs it again.\n"
		}
		return nil
	})
	return said, err
}
