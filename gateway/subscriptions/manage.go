package subscriptions

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// shownLinks bounds the streams that an answer lists: a pattern may match any
// number.
const shownLinks = 1000

// shown is a subscription as clients see it.
type shown struct {
	ID             string                     `json:"id"`
	SubscriptionID string                     `json:"subscription_id"`
	Type           string                     `json:"type"`
	Pattern        *string                    `json:"pattern,omitempty"`
	Streams        []store.SubscriptionStream `json:"streams,omitzero"`
	Webhook        *shownWebhook              `json:"webhook,omitempty"`
	WakeStream     *string                    `json:"wake_stream,omitempty"`
	Target         json.RawMessage            `json:"target,omitempty"`
	LeaseTTL       int64                      `json:"lease_ttl_ms"`
	CreatedAt      time.Time                  `json:"created_at"`
	Status         string                     `json:"status"`
	LastError      *string                    `json:"last_error,omitempty"`
	Description    *string                    `json:"description,omitempty"`
	Owner          string                     `json:"owner_principal"`
	Generation     int64                      `json:"generation"`
	State          string                     `json:"state"`
	Holder         *string                    `json:"current_holder,omitempty"`
	Pending        bool                       `json:"has_pending"`
}

type shownWebhook struct {
	URL     string  `json:"url"`
	Signing signing `json:"signing"`
}

type signing struct {
	Alg     string `json:"alg"`
	Kid     string `json:"kid"`
	JWKSURL string `json:"jwks_url"`
}

func (h *Handler) show(s store.Subscription) shown {
	out := shown{ID: s.ID, SubscriptionID: s.ID, Type: s.Type, Pattern: s.Pattern, Streams: s.Streams, WakeStream: s.WakeStream,
		LeaseTTL: s.Lease.Milliseconds(), CreatedAt: s.CreatedAt.UTC(), Status: s.Status, LastError: s.LastError, Description: s.Description,
		Owner: s.Owner, Generation: s.Epoch, State: s.State, Holder: s.Holder, Pending: s.Pending}
	if s.WebhookURL != nil {
		out.Webhook = &shownWebhook{*s.WebhookURL, signing{"ed25519", h.Keys.Kid(), h.PublicURL + s.Mount + root + "/jwks.json"}}
	}
	if s.Target != nil {
		out.Target = ownMembers(s.Target)
	}
	return out
}

// one is a subscription with its streams, none of them included.
func (h *Handler) one(s store.Subscription) shown {
	out := h.show(s)
	if out.Streams == nil {
		out.Streams = []store.SubscriptionStream{}
	}
	return out
}

// owned finds the subscription for one who may manage it.
func (h *Handler) owned(q *request, links int) (store.Subscription, auth.Principal, error) {
	p, err := h.caller(q)
	if err != nil {
		return store.Subscription{}, p, err
	}
	s, err := h.Store.SubscriptionGet(q.Context(), q.service, q.id, links)
	switch {
	case errors.Is(err, store.ErrNoRow):
		return s, p, claims.ErrNoSubscription
	case err == nil && !p.Owns(s.Owner):
		return s, p, errNotOwner
	}
	return s, p, err
}

var errNotOwner = problem.New(problem.Unauthorized, "The subscription belongs to somebody else.")

// put makes a subscription, or confirms one of the same configuration.
func (h *Handler) put(q *request) error {
	p, err := h.caller(q)
	if err != nil {
		return err
	}
	var body spec
	if err := h.decode(q, &body); err != nil {
		return err
	}
	want, err := body.check()
	if err != nil {
		return err
	}
	if want.Type == webhookType {
		t, err := target(want.WebhookURL)
		if err != nil {
			return err
		}
		if err := h.Transports.Validate(q.Context(), webhookType, t); err != nil {
			return err
		}
		if err := checkScheme(want.WebhookURL); err != nil {
			return err
		}
	}
	if want.Target != nil {
		if err := h.checkTarget(q.Context(), want.Type, want.Target); err != nil {
			return err
		}
	}
	want.Service, want.ID, want.Mount, want.Owner, want.System = q.service, q.id, q.mount, p.URL(), p.Trusted()
	outcome, err := h.Store.SubscriptionPut(q.Context(), want)
	if err != nil {
		return err
	}
	if err := refused(outcome); err != nil {
		return err
	}
	s, err := h.Store.SubscriptionGet(q.Context(), q.service, q.id, shownLinks)
	if errors.Is(err, store.ErrNoRow) {
		return claims.ErrNoSubscription // deleted the moment it was made
	} else if err != nil {
		return err
	}
	status := http.StatusOK
	if outcome == "created" {
		status = http.StatusCreated
	}
	return q.answer(status, h.one(s))
}

// refused gives the outcomes that change nothing their codes.
func refused(outcome string) error {
	switch outcome {
	case "conflict":
		return problem.New(problem.SubscriptionExists, "A subscription of this id has another configuration. Delete it first, or take another id.")
	case "forbidden":
		return errNotOwner
	case "not_found":
		return claims.ErrNoSubscription
	case "stream_forbidden":
		return problem.New(problem.Unauthorized, "You may not read one of the streams.")
	case "stream_reserved":
		return invalid("/streams", "names a stream of the gateway's own")
	case "too_many":
		return invalid("/streams", "would be more than a subscription may name")
	case "wake_stream_guarded":
		return invalid("/wake_stream", "is a stream of the gateway's or of an entity")
	case "wake_stream_type":
		return invalid("/wake_stream", "exists and is closed, or is not of type application/json")
	case "wake_stream_own":
		return invalid("/wake_stream", "would be one of the subscription's streams")
	}
	return nil
}

// changed answers a change of a subscription.
func (q *request) changed(outcome string, err error) error {
	if err == nil {
		err = refused(outcome)
	}
	if err == nil {
		q.w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (h *Handler) get(q *request) error {
	s, _, err := h.owned(q, shownLinks)
	if err != nil {
		return err
	}
	return q.answer(http.StatusOK, h.one(s))
}

// delete removes a subscription; one that is not there is removed already.
func (h *Handler) delete(q *request) error {
	_, p, err := h.owned(q, 0)
	if errors.Is(err, claims.ErrNoSubscription) {
		q.w.WriteHeader(http.StatusNoContent)
		return nil
	} else if err != nil {
		return err
	}
	if _, err := h.Store.SubscriptionDelete(q.Context(), q.service, q.id, p.URL()); err != nil {
		return err
	}
	q.w.WriteHeader(http.StatusNoContent)
	return nil
}

// list shows the caller's subscriptions, a system principal all, by id.
func (h *Handler) list(q *request) error {
	p, err := h.caller(q)
	if err != nil {
		return err
	}
	query := q.URL.Query()
	limit, err := number(query, "limit", 100, 1000)
	if err != nil {
		return err
	}
	after := query.Get("after")
	if after != "" && !printable(after, maxID) {
		return invalid("query.after", "is not a subscription's id")
	}
	owner := p.URL()
	if p.Trusted() {
		owner = ""
	}
	rows, err := h.Store.SubscriptionList(q.Context(), q.service, owner, after, int(limit))
	if err != nil {
		return err
	}
	out := make([]shown, len(rows))
	for i, s := range rows {
		s.Streams = nil
		out[i] = h.show(s)
	}
	return q.answer(http.StatusOK, map[string]any{"subscriptions": out})
}

// number is the value of a query parameter from 1 to most.
func number(query url.Values, name string, otherwise, most int64) (int64, error) {
	v := query.Get(name)
	if v == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, invalid("query."+name, "must be an integer from 1 to "+strconv.FormatInt(most, 10))
	}
	return n, nil
}

// addStreams links streams by name.
func (h *Handler) addStreams(q *request) error {
	_, p, err := h.owned(q, 0)
	if err != nil {
		return err
	}
	var body struct {
		Streams []string `json:"streams"`
	}
	if err := h.decode(q, &body); err != nil {
		return err
	}
	if len(body.Streams) == 0 {
		return invalid("/streams", "must name at least one stream")
	}
	list, err := paths(body.Streams)
	if err != nil {
		return err
	}
	outcome, err := h.Store.SubscriptionStreamsAdd(q.Context(), q.service, q.id, p.URL(), list)
	return q.changed(outcome, err)
}

// removeStream drops an explicit link; one that is not there is dropped already.
func (h *Handler) removeStream(q *request) error {
	_, p, err := h.owned(q, 0)
	if err != nil {
		return err
	}
	path, why := relative(q.rest, false)
	if why != "" {
		return invalid("path.stream", why)
	}
	outcome, err := h.Store.SubscriptionStreamRemove(q.Context(), q.service, q.id, p.URL(), path)
	return q.changed(outcome, err)
}

// wakes lists the subscription's wakes, newest first.
func (h *Handler) wakes(q *request) error {
	s, _, err := h.owned(q, 0)
	if err != nil {
		return err
	}
	query := q.URL.Query()
	limit, err := number(query, "limit", 100, 1000)
	if err != nil {
		return err
	}
	before, err := number(query, "before", 0, 1<<62)
	if err != nil {
		return err
	}
	rows, err := h.Store.ConsumerWakes(q.Context(), q.service, s.ConsumerName, before, int(limit))
	if err != nil {
		return err
	}
	return q.answer(http.StatusOK, map[string]any{"wakes": rows})
}
