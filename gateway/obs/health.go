package obs

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
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
	ready map[string]Check
	notes []func() []Reason
}

// NewHealth gives an empty collection: ready.
func NewHealth() *Health { return &Health{ready: map[string]Check{}} }

// Ready adds a check whose failure means: send requests elsewhere for now.
func (h *Health) Ready(name string, c Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready[name] = c
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

// NotReady lists the checks that fail, in the order of names.
func (h *Health) NotReady() []Reason {
	h.mu.Lock()
	checks := maps.Clone(h.ready)
	h.mu.Unlock()
	var reasons []Reason
	for name, c := range checks {
		if code, detail, ok := c(); !ok {
			reasons = append(reasons, Reason{Check: name, Code: code, Detail: detail})
		}
	}
	slices.SortFunc(reasons, func(a, b Reason) int { return strings.Compare(a.Check, b.Check) })
	return reasons
}

// LiveHandler answers /livez: a gateway that answers at all is live.
func LiveHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		SetRoute(r.Context(), "livez")
		well(w, "live", nil)
	})
}

// ReadyHandler answers /readyz.
func (h *Health) ReadyHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		SetRoute(r.Context(), "readyz")
		if reasons := h.NotReady(); len(reasons) > 0 {
			problem.Write(w, RequestID(r.Context()), problem.New(problem.NotReady, "The gateway is not ready; see error.reasons.").WithMeta("reasons", reasons))
			return
		}
		well(w, "ready", h.Degraded())
	})
}

func well(w http.ResponseWriter, status string, degraded []Reason) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(struct {
		Status   string   `json:"status"`
		Degraded []Reason `json:"degraded,omitempty"`
	}{status, degraded})
}
