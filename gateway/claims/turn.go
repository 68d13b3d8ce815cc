package claims

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// Turn is one call of whoever works on a subscription's wake: it may take the
// lease, say how far it has come, and finish, in one transaction.
type Turn struct {
	Service int32
	// Consumer is the name of the subscription's consumer and ConsumerID its id: a
	// token of another one is refused.
	Consumer   string
	ConsumerID int64
	Token      string
	// Wake and Epoch, when given, must be the token's.
	Wake  string
	Epoch int64
	Acks  []Ack
	Done  bool
	// Failure, when not nil and Done, records the run as failed.
	Failure *string
}

// Turned is what a turn came to.
type Turned struct {
	// Lease is what is left of it; zero after a turn that was the last.
	Lease time.Duration
	// NextWake says, after the last turn, whether a fresh wake exists.
	NextWake bool
}

// ErrTurnToken is answered for every token that does not belong to the
// subscription's wakes; why is not said.
var ErrTurnToken = problem.New(problem.TokenInvalid, "The token is not valid for this subscription.")

// Genuine says that a token was made with this service's keys, whatever for and
// whether it still counts or not.
func (s *Service) Genuine(token string) bool {
	_, err := s.tokens.Verify(token)
	return err == nil
}

// callbackClaim names the grant that a callback takes by itself, so that each
// call of the same wake finds it.
const callbackClaim = "callback"

// Turn carries out t in one call of the database. A claim token that has not
// been granted takes the lease first; the others of its calls keep it. Done is
// the last: the same call again is fenced, since the wake is over.
func (s *Service) Turn(ctx context.Context, t Turn) (Turned, error) {
	k, err := s.tokens.Verify(t.Token)
	// A claim token names no consumer: its wake does.
	if err != nil || k.Service != t.Service || k.Purpose == Write || k.Consumer != 0 && k.Consumer != t.ConsumerID {
		return Turned{}, ErrTurnToken
	}
	acks, err := turnAcks(t.Acks)
	if err != nil {
		return Turned{}, err
	}
	if t.Wake != "" && t.Wake != k.Wake || t.Epoch != 0 && t.Epoch != k.Epoch {
		return Turned{}, subscriptionRefusal(store.ClaimAnswer{Outcome: "stale", Epoch: k.Epoch})
	}
	op := store.ClaimOp{Service: k.Service, ID: k.Consumer, Consumer: t.Consumer, Wake: k.Wake, Epoch: k.Epoch, Proved: k.Purpose == Claim}
	var ops []store.ClaimOp
	add := func(name string, edit func(*store.ClaimOp)) {
		next := op
		next.Op = name
		edit(&next)
		ops = append(ops, next)
	}
	if k.Purpose == Claim {
		add("acquire", func(o *store.ClaimOp) { o.Holder, o.ClaimID = "claim-token", callbackClaim })
	}
	first := len(ops)
	switch {
	case t.Done:
		add("release", func(o *store.ClaimOp) { o.Acks, o.Error = acks, cutFailure(t.Failure) })
	case len(acks) > 0:
		add("ack", func(o *store.ClaimOp) { o.Acks = acks })
		fallthrough
	default:
		add("heartbeat", func(*store.ClaimOp) {})
	}
	got, err := s.db.ClaimApply(ctx, ops, true)
	switch {
	case err != nil:
		return Turned{}, err
	case len(got) != len(ops):
		return Turned{}, problem.Wrap(problem.Internal, errors.New("the mutex answered another number of calls"), "The mutex gave an unexpected answer.")
	}
	if first > 0 && got[0].Outcome == "wrong_wake" {
		return Turned{}, ErrTurnToken
	}
	// Otherwise the acquire's own answer does not matter: the calls behind it meet
	// what it left, a claim of this wake or none.
	for _, a := range got[first:] {
		if a.Outcome != "ok" && a.Outcome != "released" {
			return Turned{}, subscriptionRefusal(a)
		}
	}
	last := got[len(got)-1]
	if t.Done && last.Holder == "" {
		// The answer to a release that is over already names nobody.
		return Turned{}, subscriptionRefusal(store.ClaimAnswer{Outcome: "stale", Epoch: last.Epoch})
	}
	return Turned{Lease: last.Lease, NextWake: last.NextWake}, nil
}

// Taken is a subscription's lease as a worker took it.
type Taken struct {
	Wake  string
	Epoch int64
	Lease time.Duration
	// Token goes into the worker's acks and its release.
	Token string
	// WriteToken is for the streams of the entity that the wake is about, if it
	// is about one.
	WriteToken   string
	Notification json.RawMessage
}

// String names the lease without its tokens.
func (t Taken) String() string { return "taken(wake " + t.Wake + ")" }

// GoString is String.
func (t Taken) GoString() string { return t.String() }

// Take takes the lease of a subscription for a worker that its owner vouches
// for, and mints the wake for work that nobody was told of. attempt, when not
// empty, makes a repeat answer the same.
func (s *Service) Take(ctx context.Context, service int32, consumer, worker, attempt string) (Taken, error) {
	if attempt == "" {
		attempt = uuid.NewString()
	}
	a, err := s.group.Do(ctx, store.ClaimOp{Op: "acquire", Service: service, Consumer: consumer, Holder: worker, ClaimID: attempt, Trusted: true})
	if err != nil {
		return Taken{}, err
	}
	if a.Outcome != "granted" && a.Outcome != "repeated" {
		return Taken{}, subscriptionRefusal(a)
	}
	g := s.grant(service, attempt, a)
	return Taken{Wake: g.WakeID, Epoch: g.Epoch, Lease: g.Lease, Token: g.HoldToken, WriteToken: g.WriteToken, Notification: g.Notification}, nil
}

// turnAcks reads offsets; one the server never handed out is out of range like
// any other that no cursor can go to.
func turnAcks(acks []Ack) ([]store.ClaimAck, error) {
	out, err := positions(acks)
	if err != nil && len(acks) <= maxAcks {
		return nil, problem.New(problem.InvalidOffset, "An acknowledged offset is not one the server handed out.").
			WithDetails(problem.Detail{Path: "/acks", Message: "offset is not valid"})
	}
	return out, err
}

// ErrNoSubscription says that there is no such subscription.
var ErrNoSubscription = problem.New(problem.SubscriptionNotFound, "There is no such subscription.")
