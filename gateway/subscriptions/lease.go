package subscriptions

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// turnBody is what a worker says of its wake.
type turnBody struct {
	WakeID     *string `json:"wake_id"`
	Generation *int64  `json:"generation"`
	Acks       []ack   `json:"acks"`
	Done       bool    `json:"done"`
	Error      *string `json:"error"`
}

// ack is one acknowledged stream; path is the other name of stream.
type ack struct {
	Stream string `json:"stream"`
	Path   string `json:"path"`
	Offset string `json:"offset"`
}

// turned is what a turn answers.
type turned struct {
	OK       bool `json:"ok"`
	NextWake bool `json:"next_wake"`
}

// callback is the webhook receiver's: its first call takes the lease, each
// keeps it, the last gives it back.
func (h *Handler) callback(q *request) error { return h.turn(q, "", false) }

// ack is callback for a worker that claimed.
func (h *Handler) ack(q *request) error { return h.turn(q, pullWakeType, false) }

// release gives a worker's lease back without more ado.
func (h *Handler) release(q *request) error { return h.turn(q, pullWakeType, true) }

// turn carries out one call of whoever shows the wake's token. kind, when not
// empty, is the type the subscription must have.
func (h *Handler) turn(q *request, kind string, release bool) error {
	token := auth.ClaimToken(q.Header)
	if token == "" {
		return problem.New(problem.TokenInvalid, "This needs the wake's token: send it in Authorization: Bearer.").WithHeader("WWW-Authenticate", "Bearer")
	}
	var body turnBody
	if err := h.decode(q, &body); err != nil {
		return err
	}
	t := claims.Turn{Service: q.service, Token: token, Done: body.Done || release, Failure: body.Error}
	if body.Generation != nil {
		t.Epoch = *body.Generation
		if t.Epoch < 1 {
			return invalid("/generation", "must be a positive integer")
		}
	}
	if body.WakeID != nil {
		id, err := uuid.Parse(*body.WakeID)
		if err != nil || len(*body.WakeID) != 36 {
			return problem.New(problem.Fenced, "There is no such wake of this subscription.")
		}
		t.Wake = id.String()
	}
	if body.Error != nil && strings.Contains(*body.Error, "\x00") {
		return invalid("/error", "holds a NUL character")
	}
	for i, a := range body.Acks {
		name := a.Stream
		if name == "" {
			name = a.Path
		}
		path := strings.Trim(name, "/")
		if !printable(path, maxPath) {
			return invalid("/acks/"+strconv.Itoa(i)+"/stream", "names no stream")
		}
		t.Acks = append(t.Acks, claims.Ack{Path: path, Offset: a.Offset})
	}
	s, err := h.Store.SubscriptionGet(q.Context(), q.service, q.id, 0)
	switch {
	case errors.Is(err, store.ErrNoRow):
		return h.tell(q, claims.ErrNoSubscription)
	case err != nil:
		return err
	case kind != "" && s.Type != kind:
		return h.tell(q, errNotPullWake)
	}
	t.Consumer, t.ConsumerID = s.ConsumerName, s.ConsumerID
	got, err := h.Mutex.Turn(q.Context(), t)
	if err != nil {
		return err
	}
	if release {
		q.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return q.answer(http.StatusOK, turned{OK: true, NextWake: got.NextWake})
}

var errNotPullWake = problem.New(problem.InvalidRequest, "The subscription is not of type pull-wake; its receiver uses the callback.")

// claim takes the lease for a worker that the subscription's owner vouches for.
func (h *Handler) claim(q *request) error {
	s, _, err := h.owned(q, 0)
	if err != nil {
		return err
	}
	var body struct {
		Worker  string `json:"worker"`
		ClaimID string `json:"claim_id"`
	}
	if err := h.decode(q, &body); err != nil {
		return err
	}
	switch {
	case !printable(body.Worker, 256):
		return invalid("/worker", "must be the worker's name: 1 to 256 bytes of text")
	case body.ClaimID != "" && !printable(body.ClaimID, 128):
		return invalid("/claim_id", "must be at most 128 bytes of text")
	case s.Type != pullWakeType:
		return errNotPullWake
	}
	got, err := h.Mutex.Take(q.Context(), q.service, s.ConsumerName, body.Worker, body.ClaimID)
	if err != nil {
		return err
	}
	out, err := h.claimed(q, s, got)
	if err != nil {
		return err
	}
	return q.answer(http.StatusOK, out)
}

// claimed is the answer to a claim: the wake with its token, and with what an
// entity's handler is told when the wake is about an entity.
func (h *Handler) claimed(q *request, s store.Subscription, got claims.Taken) (json.RawMessage, error) {
	var n struct {
		Entity json.RawMessage `json:"entity"`
	}
	if err := json.Unmarshal(got.Notification, &n); err != nil {
		return nil, err
	}
	out, more := got.Notification, []claims.Member{}
	if n.Entity != nil {
		var err error
		if out, err = h.Mutex.Notify(q.serviceName, out, got.Token); err != nil {
			return nil, err
		}
		more = append(more, claims.Member{Name: "writeToken", Value: claims.Text(got.WriteToken)})
	}
	return claims.With(out, append(more,
		claims.Member{Name: "wake_id", Value: claims.Text(got.Wake)},
		claims.Member{Name: "generation", Value: strconv.AppendInt(nil, got.Epoch, 10)},
		claims.Member{Name: "token", Value: claims.Text(got.Token)},
		claims.Member{Name: "lease_ttl_ms", Value: strconv.AppendInt(nil, s.Lease.Milliseconds(), 10)},
		claims.Member{Name: "lease_ms", Value: strconv.AppendInt(nil, got.Lease.Milliseconds(), 10)})...)
}
