package migrate

import "errors"

// Code names one way in which a database cannot be brought up to date. Codes are stable.
type Code string

// The codes of this package.
const (
	// CodeUnavailable: the database cannot be reached or refuses us.
	CodeUnavailable Code = "DATABASE_UNAVAILABLE"
	// CodeLocked: somebody else is migrating and did not finish in time.
	CodeLocked Code = "MIGRATION_LOCKED"
	// CodeDirty: an earlier migration was interrupted; Repair says and does what is needed.
	CodeDirty Code = "MIGRATION_DIRTY"
	// CodeFailed: the SQL of a migration or of a function was refused.
	CodeFailed Code = "MIGRATION_FAILED"
	// CodePending: the database is older than this binary.
	CodePending Code = "MIGRATIONS_PENDING"
	// CodeTooNew: the database has a breaking migration this binary does not know.
	CodeTooNew Code = "SCHEMA_TOO_NEW"
	// CodeEdited: a migration that was applied has another text in this binary.
	CodeEdited Code = "MIGRATION_EDITED"
	// CodeSource: the SQL in this binary is malformed; a fault of ours.
	CodeSource Code = "MIGRATION_SOURCE_INVALID"
)

// Error is what every exported method of this package fails with.
type Error struct {
	Code   Code
	Detail string // one sentence for a person
	Hint   string // what to do about it; may be empty
	cause  error
}

func (e *Error) Error() string {
	text := string(e.Code) + ": " + e.Detail
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	if e.Hint != "" {
		text += "\n" + e.Hint
	}
	return text
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.cause }

// CodeOf gives the code of err, or "" when err is not from this package.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}
