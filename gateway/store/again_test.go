package store

import (
	"errors"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rouse-run/rouse/gateway/problem"
)

func TestTheVictimOfADeadlockIsCalledAgain(t *testing.T) {
	t.Parallel()
	victim := mapError(&pgconn.PgError{Code: pgerrcode.DeadlockDetected})
	other := mapError(&pgconn.PgError{Code: pgerrcode.LockNotAvailable})
	for name, c := range map[string]struct {
		errs  []error
		calls int
		ok    bool
	}{
		"once":          {[]error{victim, nil}, 2, true},
		"again":         {[]error{victim, victim, nil}, 3, true},
		"for ever":      {[]error{victim, victim, victim, nil}, 3, false},
		"another error": {[]error{other, nil}, 1, false},
		"no SQLSTATE":   {[]error{errors.New("x"), nil}, 1, false},
		"none":          {[]error{nil}, 1, true},
	} {
		calls := 0
		err := again(func() error { calls++; return c.errs[calls-1] })
		if calls != c.calls || (err == nil) != c.ok {
			t.Errorf("%s: %d calls, %v", name, calls, err)
		}
	}
	if problem.CodeOf(victim) != problem.DatabaseTimeout {
		t.Errorf("a victim that gives up answers %v", victim)
	}
}
