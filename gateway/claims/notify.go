package claims

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/google/uuid"
)

// Callback is the absolute URL a wake is claimed at.
func (s *Service) Callback(service, wakeID string) string {
	return s.absolute(service, "/_electric/wake-callbacks/"+wakeID)
}

// SubscriptionCallback is the absolute URL at which a receiver of a
// subscription's wakes answers; mount is where the subscription was made.
func (s *Service) SubscriptionCallback(service, mount, subscription string) string {
	return s.absolute(service, mount+"/__ds/subscriptions/"+url.PathEscape(subscription)+"/callback")
}

func (s *Service) absolute(service, path string) string {
	u := s.public + path
	if service != "" && service != "default" {
		u += "?service=" + url.QueryEscape(service)
	}
	return u
}

// Notify completes a redacted notification for its receiver: the callback and
// the given claim token, which are stored nowhere, and who made the entity.
func (s *Service) Notify(service string, notification json.RawMessage, claimToken string) (json.RawMessage, error) {
	var n struct {
		WakeID string `json:"wakeId"`
		Entity struct {
			CreatedBy string `json:"createdBy"`
		} `json:"entity"`
	}
	if err := json.Unmarshal(notification, &n); err != nil {
		return nil, err
	}
	if p, ok := principal(n.Entity.CreatedBy); ok {
		return s.complete(service, notification, n.WakeID, claimToken, p)
	}
	return s.complete(service, notification, n.WakeID, claimToken)
}

// principal is the member that says in parts who made the entity: its handler
// acts as that. creator is a principal URL.
func principal(creator string) (Member, bool) {
	escaped, ok := strings.CutPrefix(creator, "/principal/")
	key, err := url.PathUnescape(escaped)
	kind, id, two := strings.Cut(key, ":")
	if !ok || err != nil || !two {
		return Member{}, false
	}
	raw, err := json.Marshal(map[string]string{"url": creator, "key": key, "kind": kind, "id": id})
	return Member{"principal", raw}, err == nil
}

func (s *Service) complete(service string, notification json.RawMessage, wakeID, claimToken string, more ...Member) (json.RawMessage, error) {
	return With(notification, append(more, Member{"callback", Text(s.Callback(service, wakeID))}, Member{"claimToken", Text(claimToken)})...)
}

// ClaimToken is the token that travels with a wake; the wake alone finds its
// consumer.
func (s *Service) ClaimToken(service int32, epoch int64, wake string) string {
	return s.tokens.Mint(Token{Purpose: Claim, Service: service, Epoch: epoch, Wake: wake})
}

// DecorateWake completes one entry of a runner's wake stream for its owner. An
// entry that is not a wake is left as it is.
func (s *Service) DecorateWake(service int32, serviceName string, entry []byte) []byte {
	var e struct {
		Type   string `json:"type"`
		WakeID string `json:"wakeId"`
		Epoch  int64  `json:"epoch"`
	}
	if json.Unmarshal(entry, &e) != nil || e.Type != "wake" || uuid.Validate(e.WakeID) != nil {
		return entry
	}
	out, err := s.complete(serviceName, entry, e.WakeID, s.ClaimToken(service, e.Epoch, e.WakeID))
	if err != nil {
		return entry
	}
	return out
}
