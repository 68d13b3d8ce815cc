package dispatch

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rouse-run/rouse/plugins/contract"
)

// deliver lets one delivery begin and end.
func (r *receivers) deliver(name string, outcome contract.Outcome, took time.Duration) {
	r.begin(name)
	r.end(name, outcome, took)
}

func (r *receivers) roomOf(name string) int {
	_, each, room := r.free()
	if n, ok := room[name]; ok {
		return n
	}
	return each
}

func TestAReceiverEarnsItsRoom(t *testing.T) {
	t.Parallel()
	r := newReceivers()
	if r.roomOf("a") != firstRoom {
		t.Errorf("at first %d", r.roomOf("a"))
	}
	for range 10 {
		r.deliver("a", contract.Accepted, time.Millisecond)
	}
	if r.roomOf("a") != mostRoom {
		t.Errorf("quick: %d", r.roomOf("a"))
	}
	// Dead: no answer comes.
	for range 10 {
		r.deliver("a", contract.Retry, 20*time.Second)
	}
	if r.roomOf("a") != 1 {
		t.Errorf("dead: %d", r.roomOf("a"))
	}
	// Works before it answers: not to be choked.
	for range 100 {
		r.deliver("b", contract.Done, 10*time.Second)
	}
	if r.roomOf("b") != slowRoom {
		t.Errorf("slow: %d", r.roomOf("b"))
	}
	// Refuses at once: asked less, and it takes nobody's slot for long.
	for range 10 {
		r.deliver("c", contract.Retry, time.Millisecond)
	}
	if r.roomOf("c") != 1 || !r.all["c"].proven {
		t.Errorf("refusing: %d", r.roomOf("c"))
	}
	r.deliver("c", contract.Accepted, time.Millisecond)
	if r.roomOf("c") != 2 {
		t.Errorf("recovered: %d", r.roomOf("c"))
	}
}

// Those in trouble share a half; who answers quickly has the other one.
func TestTroubleLeavesRoomForTheOthers(t *testing.T) {
	t.Parallel()
	r := newReceivers()
	r.deliver("well", contract.Accepted, time.Millisecond)
	for n := 0; ; n++ {
		if _, each, _ := r.free(); each == 0 {
			break
		}
		r.begin(fmt.Sprint("dead-", n))
	}
	slots, each, room := r.free()
	if r.troubled != troubledSlots || slots != deliverySlots-troubledSlots || each != 0 || room["well"] != 2*firstRoom {
		t.Errorf("%d in trouble, %d slots, %d each, %d for the one that is well", r.troubled, slots, each, room["well"])
	}
	// The first that answers makes room for one more.
	r.end("dead-0", contract.Done, time.Millisecond)
	if _, each, _ := r.free(); each != 1 {
		t.Errorf("%d each", each)
	}
}

func TestReceiversAreForgotten(t *testing.T) {
	t.Parallel()
	r := newReceivers()
	r.begin("busy")
	for n := range 3 * maxReceivers {
		r.deliver(fmt.Sprint(n), contract.Accepted, time.Millisecond)
	}
	if len(r.all) > maxReceivers || r.all["busy"] == nil {
		t.Errorf("%d are remembered", len(r.all))
	}
}

// Whatever happens, the sums are those of the parts.
func TestSlotsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := newReceivers()
		busy := map[string]int{}
		names := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				name := names.Draw(t, "name")
				r.begin(name)
				busy[name]++
			},
			"end": func(t *rapid.T) {
				name := names.Draw(t, "name")
				if busy[name] == 0 {
					t.Skip("nothing is under way")
				}
				busy[name]--
				r.end(name, rapid.SampledFrom([]contract.Outcome{contract.Accepted, contract.Done, contract.Retry, contract.Permanent, contract.Unknown}).Draw(t, "outcome"),
					rapid.SampledFrom([]time.Duration{0, quick, 20 * time.Second}).Draw(t, "took"))
			},
			"": func(t *rapid.T) {
				sum, troubled := 0, 0
				for name, v := range r.all {
					if v.busy != busy[name] || v.room < 1 || v.room > mostRoom {
						t.Fatalf("%s: %+v, %d under way", name, v, busy[name])
					}
					sum += v.busy
					if !v.proven {
						troubled += v.busy
					}
				}
				if sum != r.busy || troubled != r.troubled {
					t.Fatalf("%d of %d in trouble, counted %d of %d", r.troubled, r.busy, troubled, sum)
				}
				if _, _, room := r.free(); room == nil {
					t.Fatal("no room is said")
				}
			},
		})
	})
}
