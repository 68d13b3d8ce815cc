package control

import (
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// The bodies of the subscription routes, for the description.
type (
	subscriptionPut struct {
		Type        string         `json:"type" doc:"webhook, pull-wake, or the type of a transport plugin." example:"webhook"`
		Pattern     string         `json:"pattern,omitempty" doc:"Paths to watch: * is one segment, ** any number. Needed unless streams are given."`
		Streams     []string       `json:"streams,omitempty" maxItems:"1000" doc:"Paths to watch, of streams that exist or come later."`
		Webhook     *webhookOf     `json:"webhook,omitempty" doc:"For type webhook."`
		WakeStream  string         `json:"wake_stream,omitempty" doc:"For type pull-wake: a JSON stream, made if it is not there."`
		Target      map[string]any `json:"target,omitempty" doc:"For any other type: what its transport is told, without the type."`
		LeaseTTL    int64          `json:"lease_ttl_ms,omitempty" minimum:"1000" maximum:"600000" default:"30000"`
		Description string         `json:"description,omitempty" maxLength:"4096"`
	}
	webhookOf struct {
		URL string `json:"url"`
	}
	subscriptionInfo struct {
		ID             string                     `json:"id"`
		SubscriptionID string                     `json:"subscription_id" doc:"The same as id."`
		Type           string                     `json:"type" doc:"webhook, pull-wake, or the type of a transport plugin."`
		Pattern        string                     `json:"pattern,omitempty"`
		Streams        []store.SubscriptionStream `json:"streams,omitempty" doc:"At most a thousand, the named ones first; absent in lists."`
		Webhook        *signedWebhook             `json:"webhook,omitempty"`
		WakeStream     string                     `json:"wake_stream,omitempty"`
		Target         map[string]any             `json:"target,omitempty" doc:"Of any other type: what its transport is told."`
		LeaseTTL       int64                      `json:"lease_ttl_ms"`
		CreatedAt      time.Time                  `json:"created_at"`
		Status         string                     `json:"status" enum:"active,failed" doc:"failed while the receiver's last answer was a refusal."`
		LastError      string                     `json:"last_error,omitempty"`
		Description    string                     `json:"description,omitempty"`
		Owner          string                     `json:"owner_principal"`
		Generation     int64                      `json:"generation"`
		State          string                     `json:"state" enum:"idle,waking,claimed,expired"`
		Holder         string                     `json:"current_holder,omitempty"`
		Pending        bool                       `json:"has_pending"`
	}
	signedWebhook struct {
		URL     string `json:"url"`
		Signing struct {
			Alg     string `json:"alg"`
			Kid     string `json:"kid"`
			JWKSURL string `json:"jwks_url"`
		} `json:"signing" nameHint:"WebhookSigning"`
	}
	subscriptionList struct {
		Subscriptions []subscriptionInfo `json:"subscriptions"`
	}
	subscriptionWakes struct {
		Wakes []store.Wake `json:"wakes"`
	}
	subscriptionStreams struct {
		Streams []string `json:"streams" minItems:"1" maxItems:"1000"`
	}
	subscriptionClaim struct {
		Worker  string `json:"worker" minLength:"1" maxLength:"256" doc:"Who others are told has it."`
		ClaimID string `json:"claim_id,omitempty" maxLength:"128" doc:"Names the attempt: repeated with it, a claim answers the same again."`
	}
	subscriptionClaimed struct {
		_          struct{}                   `additionalProperties:"true"`
		WakeID     string                     `json:"wake_id"`
		Generation int64                      `json:"generation"`
		Token      string                     `json:"token" doc:"Goes into Authorization: Bearer of acks and of the release."`
		Streams    []store.SubscriptionStream `json:"streams"`
		LeaseTTL   int64                      `json:"lease_ttl_ms"`
		LeaseMS    int64                      `json:"lease_ms" doc:"What is left of the lease, by the server's clock."`
	}
	subscriptionTurn struct {
		WakeID     string    `json:"wake_id,omitempty"`
		Generation int64     `json:"generation,omitempty"`
		Acks       []ackBody `json:"acks,omitempty" maxItems:"1000"`
		Done       bool      `json:"done,omitempty" doc:"Gives the lease back."`
		Error      string    `json:"error,omitempty" doc:"With done: records the run as failed."`
	}
	signingKeys struct {
		Keys []struct {
			Kty string `json:"kty"`
			Crv string `json:"crv"`
			X   string `json:"x"`
			Kid string `json:"kid"`
			Alg string `json:"alg"`
			Use string `json:"use"`
		} `json:"keys" nameHint:"SigningKey"`
	}
	subscriptionTurned struct {
		OK       bool `json:"ok"`
		NextWake bool `json:"next_wake" doc:"After done: work is left, and a fresh wake exists."`
	}
)

// describeSubscriptions documents the subscription routes, whose handlers are
// not huma's. They are described at the root; the same answer below /v1/stream.
func (c *Control) describeSubscriptions() {
	schemas := c.api.OpenAPI().Components.Schemas
	body := func(t reflect.Type) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{"application/json": {Schema: schemas.Schema(t, true, "")}}
	}
	param := func(in, name, doc string) *huma.Param {
		return &huma.Param{Name: name, In: in, Required: in == "path", Description: doc, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	service, id := param("query", "service", `The service; default is "default".`), param("path", "id", "The subscription's id.")
	subscription := body(reflect.TypeFor[subscriptionInfo]())
	turn, turned := body(reflect.TypeFor[subscriptionTurn]()), body(reflect.TypeFor[subscriptionTurned]())
	const at = "/__ds/subscriptions"
	managed := []problem.Code{problem.SubscriptionNotFound, problem.Unauthorized, problem.InvalidRequest}
	held := []problem.Code{problem.SubscriptionNotFound, problem.TokenInvalid, problem.Fenced, problem.InvalidOffset, problem.InvalidRequest}
	add := func(method, path, operation, summary string, in map[string]*huma.MediaType, answers map[string]map[string]*huma.MediaType, codes []problem.Code, params ...*huma.Param) {
		op := &huma.Operation{OperationID: operation, Method: method, Path: path, Tags: []string{"subscriptions"}, Summary: summary,
			Parameters: append([]*huma.Param{service}, params...), Responses: map[string]*huma.Response{}}
		if in != nil {
			op.RequestBody = &huma.RequestBody{Content: in}
		}
		for status, content := range answers {
			op.Responses[status] = &huma.Response{Description: http.StatusText(atoi(status)), Content: content}
		}
		describeErrors(op, codes)
		c.api.OpenAPI().AddOperation(op)
	}
	type answers = map[string]map[string]*huma.MediaType
	add(http.MethodGet, at, "listSubscriptions", "Your subscriptions, by id", nil, answers{"200": body(reflect.TypeFor[subscriptionList]())},
		[]problem.Code{problem.Unauthorized, problem.InvalidRequest}, param("query", "after", "Only ids behind this one."), param("query", "limit", "At most so many, up to 1000."))
	add(http.MethodPut, at+"/{id}", "putSubscription", "Make a subscription, or confirm it", body(reflect.TypeFor[subscriptionPut]()),
		answers{"200": subscription, "201": subscription}, append([]problem.Code{problem.SubscriptionExists, problem.WebhookURLRejected, problem.InvalidTarget, problem.PluginUnavailable}, managed...), id)
	add(http.MethodGet, at+"/{id}", "getSubscription", "A subscription, and how far it is", nil, answers{"200": subscription}, managed, id)
	add(http.MethodDelete, at+"/{id}", "deleteSubscription", "Delete a subscription", nil, answers{"204": nil}, managed, id)
	add(http.MethodPost, at+"/{id}/streams", "addSubscriptionStreams", "Name more streams", body(reflect.TypeFor[subscriptionStreams]()), answers{"204": nil}, managed, id)
	add(http.MethodDelete, at+"/{id}/streams/{path}", "removeSubscriptionStream", "Take a stream's name back", nil, answers{"204": nil}, managed, id,
		param("path", "path", "The stream's path; it may hold slashes, escaped or not."))
	add(http.MethodGet, at+"/{id}/wakes", "listSubscriptionWakes", "A subscription's wakes, newest first", nil, answers{"200": body(reflect.TypeFor[subscriptionWakes]())}, managed, id,
		param("query", "before", "Only generations below this one."), param("query", "limit", "At most so many, up to 1000."))
	add(http.MethodPost, at+"/{id}/claim", "claimSubscription", "Take the lease of a pull-wake subscription", body(reflect.TypeFor[subscriptionClaim]()),
		answers{"200": body(reflect.TypeFor[subscriptionClaimed]())}, append([]problem.Code{problem.AlreadyClaimed, problem.NoPendingWork}, managed...), id)
	add(http.MethodPost, at+"/{id}/ack", "ackSubscription", "Say how far you are, keep the lease, and with done give it back", turn, answers{"200": turned}, held, id)
	add(http.MethodPost, at+"/{id}/release", "releaseSubscription", "Give the lease back", turn, answers{"204": nil}, held, id)
	add(http.MethodPost, at+"/{id}/callback", "subscriptionCallback", "A webhook's receiver takes the lease, keeps it, acks, and with done gives it back", turn, answers{"200": turned}, held, id)
	add(http.MethodGet, "/__ds/jwks.json", "getSigningKeys", "The keys that deliveries are signed with", nil,
		answers{"200": map[string]*huma.MediaType{"application/jwk-set+json": {Schema: schemas.Schema(reflect.TypeFor[signingKeys](), true, "")}}}, nil)
}
