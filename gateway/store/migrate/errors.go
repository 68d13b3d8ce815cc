package migrate

import "github.com/rouse-run/rouse/gateway/failure"

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
type Error = failure.Error[Code]

// CodeOf gives the code of err, or "" when err is not from this package.
func CodeOf(err error) Code { return failure.CodeOf[Code](err) }
