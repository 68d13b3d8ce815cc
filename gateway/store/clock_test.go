package store

import (
	"testing"
	"time"
)

// A clock that was set back is noticed, whether the process looks often or
// seldom; one that goes on, or ahead, is not suspected.
func TestAClockThatWasSetBackIsNoticed(t *testing.T) {
	t.Parallel()
	var c databaseClock
	if !c.suspect() {
		t.Error("what was before the first look is not known")
	}
	own, database := time.Now(), time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, x := range []struct {
		what          string
		own, database time.Duration
		suspect       bool
	}{
		{"first", 0, 0, false},
		{"half a second", 500 * time.Millisecond, 500 * time.Millisecond, false},
		{"jitter", 500 * time.Millisecond, 300 * time.Millisecond, false},
		{"ahead", 500 * time.Millisecond, 10 * time.Minute, false},
		{"back again", 500 * time.Millisecond, -10 * time.Minute, true},
		{"onwards", 500 * time.Millisecond, 500 * time.Millisecond, false},
		{"back while nobody looked for an hour", time.Hour, 50 * time.Minute, true},
	} {
		c.settled()
		own, database = own.Add(x.own), database.Add(x.database)
		c.saw(database, own)
		if c.suspect() != x.suspect {
			t.Errorf("%s: suspected: %v", x.what, c.suspect())
		}
	}
}
