package control

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/problem"
)

// Notification is what a claim answers: the WakeNotification with its secrets,
// or {"done":true} when there is nothing to do any more.
type Notification struct {
	raw  json.RawMessage
	done bool
}

// MarshalJSON implements json.Marshaler.
func (n Notification) MarshalJSON() ([]byte, error) {
	if n.done {
		return []byte(`{"done":true}`), nil
	}
	return n.raw, nil
}

type notificationDoc struct {
	_            struct{}          `additionalProperties:"true"`
	Done         bool              `json:"done,omitempty" doc:"True: the entity is stopped or paused, and nothing was claimed."`
	ConsumerID   string            `json:"consumerId,omitempty"`
	Epoch        int64             `json:"epoch,omitempty" doc:"The fencing token of this lease."`
	WakeID       string            `json:"wakeId,omitempty"`
	StreamPath   string            `json:"streamPath,omitempty"`
	Streams      []pathOffset      `json:"streams,omitempty" doc:"Each offset is the end of the newest message that asks for work."`
	TriggeredBy  []string          `json:"triggeredBy,omitempty"`
	TriggerEvent string            `json:"triggerEvent,omitempty"`
	Callback     string            `json:"callback,omitempty" doc:"Where the lease is confirmed, kept and given back."`
	ClaimToken   string            `json:"claimToken,omitempty" doc:"Goes into electric-claim-token on the callback."`
	WriteToken   string            `json:"writeToken,omitempty" doc:"Goes into electric-claim-token on appends to the entity's streams."`
	LeaseMS      int64             `json:"lease_ms,omitempty" doc:"What is left of the lease, by the server's clock."`
	Attempt      int64             `json:"attempt,omitempty" doc:"The how-manieth wake it is since the entity last got on; 1 for the first."`
	TargetIndex  int64             `json:"targetIndex,omitempty" doc:"Which target of the dispatch policy it went to, from 0."`
	Entity       *wakeEntity       `json:"entity,omitempty"`
	Principal    map[string]string `json:"principal,omitempty"`
}

type pathOffset struct {
	Path        string `json:"path"`
	Offset      string `json:"offset"`
	AckedOffset string `json:"ackedOffset,omitempty" doc:"How far it has been worked: read from here."`
}

type wakeEntity struct {
	_         struct{}          `additionalProperties:"true"`
	URL       string            `json:"url"`
	Type      string            `json:"type"`
	Status    string            `json:"status"`
	Streams   EntityStreams     `json:"streams"`
	Tags      map[string]string `json:"tags,omitempty"`
	SpawnArgs json.RawMessage   `json:"spawnArgs,omitempty"`
	Sandbox   json.RawMessage   `json:"sandbox,omitempty"`
	CreatedBy string            `json:"createdBy,omitempty"`
}

// Schema implements huma.SchemaProvider.
func (Notification) Schema(r huma.Registry) *huma.Schema {
	return named(r, reflect.TypeFor[notificationDoc](), "WakeNotification")
}

// notification completes what a grant answers: its secrets and what is left of
// the lease.
func (c *Control) notification(who *caller, g claims.Grant) (*Notification, error) {
	full, err := c.cfg.Claims.Notify(who.serviceName, g.Notification, g.HoldToken)
	if err != nil {
		return nil, err
	}
	raw, err := claims.With(full, claims.Member{Name: "writeToken", Value: claims.Text(g.WriteToken)},
		claims.Member{Name: "lease_ms", Value: strconv.AppendInt(nil, g.Lease.Milliseconds(), 10)})
	return &Notification{raw: raw}, err
}

// ackBody is one acked stream; stream is the other name of path.
type ackBody struct {
	Path   string `json:"path,omitempty" maxLength:"1100"`
	Stream string `json:"stream,omitempty" maxLength:"1100"`
	Offset string `json:"offset" maxLength:"64"`
}

func acksOf(list []ackBody) ([]claims.Ack, error) {
	out := make([]claims.Ack, len(list))
	for i, a := range list {
		path := a.Path
		if path == "" {
			path = a.Stream
		}
		if why := storable(path); why != "" || path == "" {
			return nil, invalidFields(problem.Detail{Path: "/acks", Message: "an ack names no stream"})
		}
		out[i] = claims.Ack{Path: strings.TrimPrefix(path, "/"), Offset: a.Offset}
	}
	return out, nil
}

type callbackInput struct {
	Service string `query:"service"`
	WakeID  string `path:"wakeId"`
	Token   string `header:"Electric-Claim-Token" doc:"The claim token of the notification, then the one the claim answered. Authorization: Bearer is taken too."`
	Body    struct {
		Epoch   int64     `json:"epoch,omitempty" minimum:"0"`
		WakeID  string    `json:"wakeId,omitempty" maxLength:"64" doc:"Given: claim."`
		Acks    []ackBody `json:"acks,omitempty" maxItems:"100" doc:"Given: ack, and with done release."`
		Done    bool      `json:"done,omitempty" doc:"Given: release."`
		Error   *string   `json:"error,omitempty" maxLength:"4096" doc:"With done: records the run as failed."`
		ClaimID string    `json:"claimId,omitempty" maxLength:"128"`
		// RunnerID says which member of a pool claims.
		RunnerID string `json:"runnerId,omitempty" maxLength:"128" doc:"With a claim of a worker pool's wake: which of its members claims."`
	} `nameHint:"WakeCallback"`
}

// CallbackAnswer is what the callback and the consumer routes answer.
type CallbackAnswer struct {
	OK         bool   `json:"ok"`
	ConsumerID string `json:"consumerId,omitempty"`
	Epoch      int64  `json:"epoch,omitempty"`
	WakeID     string `json:"wakeId,omitempty"`
	WriteToken string `json:"writeToken,omitempty"`
	ClaimToken string `json:"claimToken,omitempty" doc:"Rotates the claim token: use it from now on."`
	Token      string `json:"token,omitempty" doc:"The same as claimToken."`
	LeaseMS    int64  `json:"lease_ms,omitempty" doc:"What is left of the lease, by the server's clock."`
	NextWake   *bool  `json:"next_wake,omitempty" doc:"After a release: whether work is left and a fresh wake exists."`
	// ReleaseBy asks the holder to hand over.
	ReleaseBy *time.Time `json:"release_by,omitempty" doc:"The entity is to be worked by somebody else: release it now. At this time, and no later, the lease ends whatever heartbeats come."`
}

type callbackOutput struct{ Body CallbackAnswer }

func (c *Control) registerCallbacks() {
	add(c, huma.Operation{OperationID: "wakeCallback", Method: http.MethodPost, Path: "/_electric/wake-callbacks/{wakeId}", Tags: []string{"claims"},
		Summary:     "Claim a wake, keep its lease, ack, and give it back",
		Description: "With wakeId (or neither it nor epoch, under a claim token): claim. With done: ack and release. With acks: ack. Else: heartbeat."},
		routeOptions{tokenAlone: true, aliases: map[string]string{"generation": "epoch", "wake_id": "wakeId", "claim_id": "claimId", "runner_id": "runnerId"}},
		[]problem.Code{problem.Unauthorized, problem.ClaimTokenInvalid, problem.WakeCallbackNotFound, problem.EpochHeld, problem.EpochStale, problem.LeaseExpired,
			problem.Fenced, problem.NotRunning, problem.NoPendingWork, problem.InvalidOffset, problem.RunnerForbidden, problem.RunnerFull,
			problem.NotPoolMember, problem.PoolDisabled, problem.PoolFull},
		c.callback)
}

func (c *Control) callback(ctx context.Context, in *callbackInput) (*callbackOutput, error) {
	who, b := from(ctx), &in.Body
	wake, isOne := canonicalWake(in.WakeID)
	if named, _ := canonicalWake(b.WakeID); b.WakeID != "" && named != wake {
		return nil, invalidFields(problem.Detail{Path: "/wakeId", Message: "is not the wake of this callback"})
	}
	token := who.token
	acks, err := acksOf(b.Acks)
	if err != nil {
		return nil, err
	}
	hold := claims.HoldRequest{Wire: claims.Peer, Service: who.service, Token: token, Wake: wake, Epoch: b.Epoch}
	switch {
	case token == "":
		return nil, problem.New(problem.Unauthorized, "The callback needs the claim token: send it in electric-claim-token.")
	case b.Done:
		r, err := c.cfg.Claims.Release(ctx, hold, acks, b.Error)
		return &callbackOutput{CallbackAnswer{OK: true, ConsumerID: r.ConsumerID, Epoch: r.Epoch, NextWake: &r.NextWake}}, err
	case len(acks) > 0:
		l, err := c.cfg.Claims.Ack(ctx, hold, acks)
		return leaseAnswer(l), err
	case b.WakeID != "" || b.Epoch == 0 && strings.HasPrefix(token, string(claims.Claim)):
		if !isOne {
			return nil, errNoWake
		}
		// The token speaks for the wake, and not for the runner that is named beside it.
		if err := c.mayRunner(ctx, b.RunnerID, mayClaim); err != nil {
			return nil, err
		}
		g, err := c.cfg.Claims.Acquire(ctx, claims.AcquireRequest{Wire: claims.RFC, Service: who.service, Wake: wake, Epoch: b.Epoch,
			Token: token, Holder: who.principal(), Runner: b.RunnerID, ClaimID: b.ClaimID, Trusted: who.trustedFor(mayClaim, kindRunner, b.RunnerID)})
		return grantAnswer(g), err
	}
	l, err := c.cfg.Claims.Heartbeat(ctx, hold)
	return leaseAnswer(l), err
}

var errNoWake = problem.New(problem.WakeCallbackNotFound, "There is no such wake.")

// canonicalWake gives a wake's id the spelling in which ids are compared; one in
// any form but that of 36 characters names no wake, and stays as it is.
func canonicalWake(s string) (string, bool) {
	if len(s) != 36 || uuid.Validate(s) != nil {
		return s, false
	}
	return strings.ToLower(s), true
}

func leaseAnswer(l claims.Lease) *callbackOutput {
	return &callbackOutput{CallbackAnswer{OK: true, ConsumerID: l.ConsumerID, Epoch: l.Epoch, LeaseMS: l.Remaining.Milliseconds(), ReleaseBy: l.ReleaseBy}}
}

func grantAnswer(g claims.Grant) *callbackOutput {
	return &callbackOutput{CallbackAnswer{OK: true, ConsumerID: g.ConsumerID, Epoch: g.Epoch, WakeID: g.WakeID, WriteToken: g.WriteToken,
		ClaimToken: g.HoldToken, Token: g.HoldToken, LeaseMS: g.Lease.Milliseconds(), ReleaseBy: g.ReleaseBy}}
}
