package cli

import (
	"errors"
	"fmt"

	"github.com/rouse-run/rouse/gateway/devpg"
	"github.com/rouse-run/rouse/gateway/store/migrate"
)

// The exit codes, stable for ever. helpFooter tells them to people.
const (
	ExitOK             = 0
	ExitFailed         = 1
	ExitUsage          = 2
	ExitUnavailable    = 3
	ExitPending        = 4
	ExitTooNew         = 5
	ExitMigration      = 6
	ExitDataDir        = 7
	ExitPostgres       = 8
	ExitFindings       = 9
	ExitDrainCutShort  = 10
	ExitServerRefusal  = 11
	ExitServerNotFound = 12
)

const helpFooter = `--server, --service, --as, --token and --json stand before the command or behind it.

Exit codes:
  0  done
  1  failed; the message says why
  2  the command line or the configuration is not valid
  3  the database or the gateway cannot be reached
  4  migrations are pending: run "rouse migrate up", or serve with --migrate
  5  the database has a breaking migration that this binary does not know
  6  a migration failed, was interrupted, or somebody else is migrating
  7  the data directory is in use or cannot be used
  8  no usable Postgres on this machine, or it does not start
  9  "rouse doctor" found an error
  10 the drain ended before all requests did
  11 the gateway refused the request
  12 what was asked for does not exist`

// exitError carries the exit code of a failure.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// fail makes an error with an exit code.
func fail(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: code, err: err}
}

func failf(code int, format string, args ...any) error {
	return fail(code, fmt.Errorf(format, args...))
}

// exitCode gives the code an error ends the process with.
func exitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	switch devpg.CodeOf(err) {
	case devpg.CodeInUse, devpg.CodeNotReachable, devpg.CodeDataDir:
		return ExitDataDir
	case devpg.CodeNotFound, devpg.CodeVersion, devpg.CodeInit, devpg.CodeStart, devpg.CodeStop:
		return ExitPostgres
	}
	switch migrate.CodeOf(err) {
	case migrate.CodeUnavailable:
		return ExitUnavailable
	case migrate.CodePending:
		return ExitPending
	case migrate.CodeTooNew:
		return ExitTooNew
	case migrate.CodeDirty, migrate.CodeFailed, migrate.CodeLocked, migrate.CodeSource, migrate.CodeEdited:
		return ExitMigration
	}
	return ExitFailed
}
