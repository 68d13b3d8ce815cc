package dispatch

import (
	"sync"
	"time"

	"github.com/rouse-run/rouse/plugins/contract"
)

const (
	// deliverySlots bounds the deliveries under way at once; one costs a
	// goroutine and a connection.
	deliverySlots = 1024
	// troubledSlots is how many of them receivers may use together that are slow,
	// fail slowly, or have not shown yet that they are neither.
	troubledSlots = deliverySlots / 2

	// A receiver that nothing is known of gets firstRoom deliveries at once. Quick
	// answers double that up to mostRoom; slow ones raise it by one up to slowRoom,
	// since a receiver may do its work before it answers; those that do not come
	// halve it down to one.
	firstRoom, slowRoom, mostRoom = 4, 32, 64
	quick                         = time.Second

	// maxReceivers bounds the memory of receivers; beyond it idle ones are
	// forgotten.
	maxReceivers = 10_000
)

// receivers shares the delivery slots among receivers, so that one which is
// slow or dead holds up nobody else's wakes: what it cannot take stays due in
// the database.
type receivers struct {
	mu       sync.Mutex
	all      map[string]*receiver
	busy     int // slots in use
	troubled int // by receivers in trouble
}

type receiver struct {
	busy, room int
	proven     bool // its last answer was quick
}

func newReceivers() *receivers { return &receivers{all: map[string]*receiver{}} }

// free says how many wakes may be taken now, how many of each receiver that
// nothing is known of, and of those where it differs.
func (r *receivers) free() (slots, each int, room map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slots, each = deliverySlots-r.busy, min(firstRoom, troubledSlots-r.troubled)
	room = map[string]int{}
	for name, v := range r.all {
		n := v.room - v.busy
		if !v.proven {
			n = min(n, troubledSlots-r.troubled)
		}
		if n = max(n, 0); n != each {
			room[name] = n
		}
	}
	return slots, each, room
}

// begin takes a slot for a receiver.
func (r *receivers) begin(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.all[name]
	if v == nil {
		if len(r.all) >= maxReceivers {
			r.forget()
		}
		v = &receiver{room: firstRoom}
		r.all[name] = v
	}
	v.busy++
	r.busy++
	if !v.proven {
		r.troubled++
	}
}

// end gives the slot back and learns from how the delivery went.
func (r *receivers) end(name string, outcome contract.Outcome, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.all[name]
	if !v.proven {
		r.troubled -= v.busy
	}
	v.busy--
	r.busy--
	failed := outcome == contract.Retry || outcome == contract.Unknown
	v.proven = took < quick
	switch {
	case failed:
		v.room = max(v.room/2, 1)
	case v.proven:
		v.room = min(v.room*2, mostRoom)
	default:
		v.room = max(min(v.room+1, slowRoom), 1)
	}
	if !v.proven {
		r.troubled += v.busy
	}
}

// forget drops the idle ones.
func (r *receivers) forget() {
	for name, v := range r.all {
		if v.busy == 0 {
			delete(r.all, name)
		}
	}
}
