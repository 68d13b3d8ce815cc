package runner

import (
	"encoding/json"
	"sync"
)

// held are the claims that are being worked, by the wake that they were granted for.
type held struct {
	mu     sync.Mutex
	claims map[string]*Claim
}

func newHeld() *held { return &held{claims: map[string]*Claim{}} }

func (h *held) put(c *Claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claims[c.hold.wakeID] = c
}

func (h *held) drop(c *Claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.claims, c.hold.wakeID)
}

// ask has the claim of a wake handed over. One that is not worked here needs nothing.
func (h *held) ask(wakeID string) {
	h.mu.Lock()
	c := h.claims[wakeID]
	h.mu.Unlock()
	if c != nil {
		c.handOver()
	}
}

// handOver ends the handler's context: somebody else is to work the entity. The lease stays until the handler has
// returned and it is given back, or until the gateway ends it.
func (c *Claim) handOver() { c.lease.lose(ErrMoved) }

// parseRelease reads an entry that asks for a claim to be handed over.
func parseRelease(raw json.RawMessage) (wakeID string, ok bool) {
	var e struct {
		Type   string `json:"type"`
		WakeID string `json:"wakeId"`
	}
	if json.Unmarshal(raw, &e) != nil || e.Type != "release" {
		return "", false
	}
	return e.WakeID, e.WakeID != ""
}
