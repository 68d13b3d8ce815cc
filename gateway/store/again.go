package store

import (
	"errors"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
)

// deadlockTries is how often a call is made that Postgres chose as the victim
// of a deadlock: it was rolled back whole, so it is safe to make again.
const deadlockTries = 3

// again makes a call again while it is such a victim. f must not have handed
// anything on when it fails so, which holds for a function that answers after
// its work.
func again(f func() error) error {
	for try := 1; ; try++ {
		err := f()
		var pe *pgconn.PgError
		if try == deadlockTries || !errors.As(err, &pe) ||
			pe.Code != pgerrcode.DeadlockDetected && pe.Code != pgerrcode.SerializationFailure {
			return err
		}
	}
}
