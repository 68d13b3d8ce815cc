package claims

import (
	"testing"

	"github.com/rouse-run/rouse/gateway/store"
)

// Calls share a lane only when they lock the same mutex.
func TestLaneKey(t *testing.T) {
	t.Parallel()
	seek := store.ClaimOp{Runner: "a", ClaimID: "1"}
	for _, c := range []struct {
		name string
		op   store.ClaimOp
		same bool
	}{
		{"its repeat", store.ClaimOp{Runner: "a", ClaimID: "1"}, true},
		{"another attempt of the runner", store.ClaimOp{Runner: "a", ClaimID: "2"}, false},
		{"another runner", store.ClaimOp{Runner: "b", ClaimID: "1"}, false},
		{"a mutex by name", store.ClaimOp{Runner: "a", ClaimID: "1", Consumer: "e_1"}, false},
	} {
		if got := laneKey(c.op) == laneKey(seek); got != c.same {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if laneKey(store.ClaimOp{ID: 7, ClaimID: "1"}) != laneKey(store.ClaimOp{ID: 7, ClaimID: "2"}) {
		t.Error("attempts at one mutex have a lane each")
	}
}
