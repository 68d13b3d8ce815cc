package obs

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"

	"github.com/rouse-run/rouse/gateway/problem"
)

// Check says whether one part is well; code and detail say why not. It is called for every question, so it must answer
// from memory. detail holds no address, user or secret.
type Check func() (code, detail string, ok bool)

// Reason is one part that is not well.
type Reason struct {
	Check  string `json:"check"`
	Code   string `json:"code"`
	Detail string `json:"detail,omitempty"`
}

// Health collects the checks of a gateway's parts.
type Health struct {
	mu    sync.Mutex
	live  map[string]Check
	ready map[string]Check
	notes []func() []Reason
}

// NewHealth gives an empty collection: live and ready.
func NewHealth() *Health { return &Health{live: map[string]Check{}, ready: map[string]Check{}} }

// Live adds a check whose failure only a restart mends.
func (h *Health) Live(name string, c Check) { h.add(h.live, name, c) }

// Ready adds a check whose failure means: send requests elsewhere for now.
func (h *Health) Ready(name string, c Check) { h.add(h.ready, name, c) }

func (h *Health) add(to map[string]Check, name string, c Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	to[name] = c
}

// Note adds what is not well but no reason to send requests elsewhere: /readyz tells it beside its answer.
func (h *Health) Note(f func() []Reason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, f)
}

// Degraded lists what Note has.
func (h *Health) Degraded() []Reason {
	h.mu.Lock()
	notes := slices.Clone(h.notes)
	h.mu.Unlock()
	var all []Reason
	for _, f := range notes {
		all = append(all, f()...)
	}
	return all
}

// NotLive lists what fails among the live checks, in the order of names.
func (h *Health) NotLive() []Reason { return h.ask(h.live) }

// NotReady lists what fails among the ready checks, in the order of names.
func (h *Health) NotReady() []Reason { return h.ask(h.ready) }

func (h *Health) ask(checks map[string]Check) []Reason {
	h.mu.Lock()
	copied := make(map[string]Check, len(checks))
	for name, c := range checks {
		copied[name] = c
	}
	h.mu.Unlock()
	var reasons []Reason
	for name, c := range copied {
		if code, detail, ok := c(); !ok {
			reasons = append(reasons, Reason{Check: name, Code: code, Detail: detail})
		}
	}
	slices.SortFunc(reasons, func(a, b Reason) int {
		if a.Check < b.Check {
			return -1
		}
		return 1
	})
	return reasons
}

// LiveHandler answers /livez.
func (h *Health) LiveHandler() http.Handler {
	return h.handler("live", h.NotLive, func() []Reason { return nil })
}

// ReadyHandler answers /readyz.
func (h *Health) ReadyHandler() http.Handler { return h.handler("ready", h.NotReady, h.Degraded) }

func (h *Health) handler(word string, ask, notes func() []Reason) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		SetRoute(r.Context(), word+"z")
		reasons := ask()
		if len(reasons) > 0 {
			problem.Write(w, RequestID(r.Context()), problem.New(problem.NotReady, "The gateway is not "+word+"; see error.reasons.").WithMeta("reasons", reasons))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(struct {
			Status   string   `json:"status"`
			Degraded []Reason `json:"degraded,omitempty"`
		}{word, notes()})
	})
}
