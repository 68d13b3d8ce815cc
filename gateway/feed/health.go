package feed

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Reason codes of Health, stable for ever.
const (
	CodeDown               = "FEED_DOWN"
	CodeWALLevel           = "FEED_WAL_LEVEL"
	CodeSlotWaiting        = "FEED_SLOT_WAITING"
	CodeSlotsExhausted     = "FEED_SLOTS_EXHAUSTED"
	CodePermission         = "FEED_PERMISSION"
	CodeReadOnly           = "FEED_READ_ONLY"
	CodePublicationMissing = "FEED_PUBLICATION_MISSING"
	CodeServerStopping     = "FEED_SERVER_STOPPING"
)

// trouble is why the feed is down: a code, and a text that holds no address,
// user or secret.
type trouble struct{ code, detail string }

var (
	errWALLevel = errors.New("wal_level is not logical")
	errReadOnly = errors.New("the server is a standby")
	// errNoPublication is found out after the server's own error, which does not
	// tell a missing publication from a missing slot.
	errNoPublication = errors.New("the publication does not exist")
)

// takesWrites refuses a standby, which says what it is when it greets; of several
// hosts in the DSN the next one is tried.
func takesWrites(_ context.Context, c *pgconn.PgConn) error {
	if c.ParameterStatus("in_hot_standby") == "on" {
		return errReadOnly
	}
	return nil
}

// diagnose names the reason of a failure.
func diagnose(err error) trouble {
	switch {
	case errors.Is(err, errWALLevel):
		return trouble{CodeWALLevel, "wal_level must be logical; the recovery scan and the poller stand in"}
	case errors.Is(err, errReadOnly):
		return trouble{CodeReadOnly, "connected to a read-only standby"}
	case errors.Is(err, errNoPublication):
		return trouble{CodePublicationMissing, "the publication does not exist: are migrations applied?"}
	case errors.Is(err, errServerStopping):
		return trouble{CodeServerStopping, errServerStopping.Error()}
	case errors.Is(err, errSilent), errors.Is(err, errServerEnded):
		return trouble{CodeDown, err.Error()}
	}
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return trouble{CodeDown, "no connection to Postgres"}
	}
	detail := fmt.Sprintf("%s (SQLSTATE %s)", pg.Message, pg.Code)
	switch pg.Code {
	case stateNoPrivilege, stateInvalidAuth, stateInvalidPassword:
		return trouble{CodePermission, fmt.Sprintf("the role may not replicate or log in (SQLSTATE %s)", pg.Code)}
	case stateConfigLimit, stateTooManyConns:
		return trouble{CodeSlotsExhausted, detail}
	case stateAdminShutdown, stateCannotConnectNow:
		return trouble{CodeServerStopping, detail}
	}
	return trouble{CodeDown, detail}
}

// Health reports whether the log is streamed, and if not a stable code and a
// sentence for people. While it is not, tails are polled and the scan routes.
func (f *Feed) Health() (code, detail string, ok bool) {
	if s := f.current.Load(); s != nil {
		if !s.ended() {
			return "", "", true
		}
		// The supervisor has not taken note of the end yet.
		t := diagnose(s.err)
		return t.code, t.detail, false
	}
	if t := f.trouble.Load(); t != nil {
		return t.code, t.detail, false
	}
	return CodeDown, "not connected yet", false
}
