package claims

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/rouse-run/rouse/gateway/groupcommit"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// Wire chooses how conflicts are named: by the RFC, or by the ecosystem's
// servers whose clients look for other words.
type Wire int

// The wires: the RFC's routes, those of the ecosystem's agents server, and the
// subscription routes of its streams.
const (
	RFC Wire = iota
	Peer
	Subscriptions
)

// ErrNoWork and ErrStopped are matched by code and kept apart from it, since
// some routes answer them with success.
var (
	ErrNoWork  = problem.New(problem.NoPendingWork, "There is no pending work to claim.")
	ErrStopped = problem.New(problem.NotRunning, "The entity is stopped or paused; nothing can be claimed.")
)

// Database is what the service needs of the store.
type Database interface {
	ClaimApply(ctx context.Context, ops []store.ClaimOp, wait bool) ([]store.ClaimAnswer, error)
}

// Config of a [Service].
type Config struct {
	// PublicURL is the base of callback URLs, without a trailing slash.
	PublicURL string
	// MaxBatch bounds the calls of one transaction; zero means 128.
	MaxBatch int
}

// Service runs the calls of the mutex.
type Service struct {
	db     Database
	tokens *Tokens
	public string
	group  *groupcommit.Group[store.ClaimOp, store.ClaimAnswer]
}

// New makes the service; ctx bounds its database calls and Stop ends it.
func New(ctx context.Context, db Database, tokens *Tokens, cfg Config) *Service {
	if cfg.MaxBatch <= 0 {
		cfg.MaxBatch = 128
	}
	return &Service{
		db: db, tokens: tokens, public: strings.TrimRight(cfg.PublicURL, "/"),
		group: groupcommit.New(ctx, groupcommit.Config[store.ClaimOp, store.ClaimAnswer]{
			Run: func(ctx context.Context, wait bool, ops []store.ClaimOp) ([]groupcommit.Answer[store.ClaimAnswer], error) {
				got, err := db.ClaimApply(ctx, ops, wait)
				if err != nil {
					return nil, err
				}
				out := make([]groupcommit.Answer[store.ClaimAnswer], len(got))
				for i, a := range got {
					out[i] = groupcommit.Answer[store.ClaimAnswer]{Res: a, Busy: !wait && a.Outcome == "busy"}
				}
				return out, nil
			},
			Key:      laneKey,
			MaxBatch: cfg.MaxBatch,
			Alone:    store.IsDataError,
		}),
	}
}

// Stop ends the group commit after the calls under way.
func (s *Service) Stop(ctx context.Context) error { return s.group.Stop(ctx) }

// VerifyWrite checks a write token's signature.
func (s *Service) VerifyWrite(token string) (consumerID, epoch int64, wakeID string, err error) {
	return s.tokens.VerifyWrite(token)
}

// laneKey orders contended calls of one consumer among themselves. A call that
// names none is alone with repeats of itself: several together would each wait
// for a mutex while they hold another one, and the row of the pool that counts.
func laneKey(op store.ClaimOp) string {
	switch {
	case op.ID != 0:
		return "i" + strconv.FormatInt(op.ID, 10)
	case op.Consumer != "":
		return "c" + op.Consumer
	case op.Path != "":
		return "p" + op.Path
	case op.Wake != "":
		return "w" + op.Wake
	}
	return "r" + op.Runner + " " + op.ClaimID
}

// AcquireRequest asks for a mutex. Consumer, Wake or Path finds it; with none
// of them Runner takes its oldest waiting wake.
type AcquireRequest struct {
	Wire     Wire
	Service  int32
	Consumer string
	Wake     string
	Path     string
	Epoch    int64  // zero: not given; else it must be the token's or the wake's
	Token    string // claim or hold token, if one was shown
	Holder   string // principal URL; empty when only the token speaks
	Runner   string
	ClaimID  string // makes a repeat of the same attempt answer the same
	Trusted  bool   // a system principal
}

// Grant is a lease taken.
type Grant struct {
	ConsumerID   string
	Epoch        int64
	WakeID       string
	EntityURL    string
	StreamPath   string
	RunnerID     string
	Lease        time.Duration
	Repeated     bool
	HoldToken    string
	WriteToken   string
	Notification json.RawMessage
	// ReleaseBy is when the lease ends at the latest, whatever heartbeats come:
	// its holder was asked to hand over. Nil: nobody has asked.
	ReleaseBy *time.Time
}

// Acquire takes the lease, or says who has it. A hold token answers its holder
// the write token again.
func (s *Service) Acquire(ctx context.Context, r AcquireRequest) (Grant, error) {
	op := store.ClaimOp{Op: "acquire", Service: r.Service, Consumer: r.Consumer, Path: r.Path, Wake: r.Wake, Epoch: r.Epoch,
		Holder: r.Holder, Runner: r.Runner, ClaimID: r.ClaimID, Trusted: r.Trusted}
	if r.Wake != "" && uuid.Validate(r.Wake) != nil {
		return Grant{}, problem.New(problem.WakeCallbackNotFound, "There is no such wake.")
	}
	if r.Token != "" {
		k, err := s.tokens.Verify(r.Token)
		if err != nil {
			return Grant{}, err
		}
		if k.Service != r.Service || (r.Wake != "" && k.Wake != r.Wake) || (r.Epoch != 0 && k.Epoch != r.Epoch) || k.Purpose == Write {
			return Grant{}, ErrToken
		}
		if k.Purpose == Hold {
			return s.again(ctx, r, k)
		}
		// A claim token names no consumer: the wake does.
		op.ID, op.Wake, op.Epoch, op.Proved = k.Consumer, k.Wake, k.Epoch, true
		if op.Holder == "" {
			op.Holder = "claim-token"
		}
	}
	if op.ClaimID == "" && op.Runner == "" && op.Wake == "" && op.Consumer == "" && op.Path == "" {
		return Grant{}, problem.New(problem.InvalidRequest, "Name a consumer, a wake, a stream or a runner to claim.")
	}
	claimID := op.ClaimID
	if claimID == "" {
		// Each attempt is its own: only a named attempt can be repeated.
		op.ClaimID = uuid.NewString()
	}
	a, err := s.group.Do(ctx, op)
	if err != nil {
		return Grant{}, err
	}
	if a.Outcome == "wrong_wake" && r.Token != "" {
		return Grant{}, ErrToken
	}
	if a.Outcome != "granted" && a.Outcome != "repeated" {
		return Grant{}, refusal(r.Wire, a)
	}
	return s.grant(r.Service, op.ClaimID, a), nil
}

func (s *Service) grant(service int32, claimID string, a store.ClaimAnswer) Grant {
	k := Token{Service: service, Consumer: a.ConsumerID, Epoch: a.Epoch, Wake: a.WakeID, Claim: claimID}
	k.Purpose = Hold
	hold := s.tokens.Mint(k)
	k.Purpose, k.Claim = Write, a.Holder
	return Grant{ConsumerID: a.ConsumerName, Epoch: a.Epoch, WakeID: a.WakeID, EntityURL: a.EntityURL, StreamPath: a.StreamPath,
		RunnerID: a.RunnerID, Lease: a.Lease, ReleaseBy: a.ReleaseBy, Repeated: a.Outcome == "repeated", HoldToken: hold,
		WriteToken: s.tokens.Mint(k), Notification: a.Notification}
}

// again answers the holder of a lease its write token: the same bytes each
// time. It extends the lease, as any sign of life does.
func (s *Service) again(ctx context.Context, r AcquireRequest, k Token) (Grant, error) {
	a, err := s.group.Do(ctx, store.ClaimOp{Op: "heartbeat", Service: k.Service, ID: k.Consumer, Consumer: r.Consumer, Epoch: k.Epoch, Wake: k.Wake})
	if err != nil {
		return Grant{}, err
	}
	if a.Outcome != "ok" {
		return Grant{}, refusal(r.Wire, a)
	}
	w := Token{Purpose: Write, Service: k.Service, Consumer: a.ConsumerID, Epoch: a.Epoch, Wake: a.WakeID, Claim: a.Holder}
	return Grant{ConsumerID: a.ConsumerName, Epoch: a.Epoch, WakeID: a.WakeID, EntityURL: a.EntityURL, RunnerID: a.RunnerID,
		Lease: a.Lease, ReleaseBy: a.ReleaseBy, Repeated: true, HoldToken: r.Token, WriteToken: s.tokens.Mint(w)}, nil
}

// HoldRequest is a call of somebody who holds, or held, a lease. The token says
// which; Consumer, Wake and Epoch, when given, must agree with it.
type HoldRequest struct {
	Wire     Wire
	Service  int32
	Token    string
	Consumer string
	Wake     string
	Epoch    int64
}

// Ack says how far a stream has been worked, as an offset of the wire.
type Ack struct {
	Path   string
	Offset string
}

// Lease is what is left of it, measured by the database's clock.
type Lease struct {
	ConsumerID string
	Epoch      int64
	Remaining  time.Duration
	// ReleaseBy is as in [Grant].
	ReleaseBy *time.Time
}

// Released says whether a fresh wake exists since work was left.
type Released struct {
	ConsumerID string
	Epoch      int64
	NextWake   bool
}

func (s *Service) hold(ctx context.Context, r HoldRequest, op store.ClaimOp) (store.ClaimAnswer, error) {
	k, err := s.tokens.Verify(r.Token)
	if err != nil {
		return store.ClaimAnswer{}, err
	}
	if k.Service != r.Service || (r.Wake != "" && r.Wake != k.Wake) {
		return store.ClaimAnswer{}, ErrToken
	}
	if r.Epoch != 0 && r.Epoch != k.Epoch {
		return store.ClaimAnswer{}, refusal(r.Wire, store.ClaimAnswer{Outcome: "stale", Epoch: k.Epoch})
	}
	op.Service, op.ID, op.Consumer, op.Epoch, op.Wake = k.Service, k.Consumer, r.Consumer, k.Epoch, k.Wake
	op.Proved = k.Purpose == Claim // not the taker's own: SQL says where that is enough
	a, err := s.group.Do(ctx, op)
	if err != nil {
		return a, err
	}
	if a.Outcome != "ok" && a.Outcome != "released" {
		return a, refusal(r.Wire, a)
	}
	return a, nil
}

// Heartbeat extends the lease.
func (s *Service) Heartbeat(ctx context.Context, r HoldRequest) (Lease, error) {
	a, err := s.hold(ctx, r, store.ClaimOp{Op: "heartbeat"})
	return Lease{ConsumerID: a.ConsumerName, Epoch: a.Epoch, Remaining: a.Lease, ReleaseBy: a.ReleaseBy}, err
}

// Ack advances the cursor of the claim's streams.
func (s *Service) Ack(ctx context.Context, r HoldRequest, acks []Ack) (Lease, error) {
	at, err := positions(acks)
	if err != nil {
		return Lease{}, err
	}
	a, err := s.hold(ctx, r, store.ClaimOp{Op: "ack", Acks: at})
	return Lease{ConsumerID: a.ConsumerName, Epoch: a.Epoch, Remaining: a.Lease, ReleaseBy: a.ReleaseBy}, err
}

// Release acks and gives the lease back. failure, when not nil, records the
// run as failed. A repeat answers the same.
func (s *Service) Release(ctx context.Context, r HoldRequest, acks []Ack, failure *string) (Released, error) {
	at, err := positions(acks)
	if err != nil {
		return Released{}, err
	}
	a, err := s.hold(ctx, r, store.ClaimOp{Op: "release", Acks: at, Error: cutFailure(failure)})
	return Released{ConsumerID: a.ConsumerName, Epoch: a.Epoch, NextWake: a.NextWake}, err
}

// cutFailure bounds what is kept of a failure's text.
func cutFailure(failure *string) *string {
	if failure == nil || len(*failure) <= 1000 {
		return failure
	}
	cut := strings.ToValidUTF8((*failure)[:1000], "")
	return &cut
}

// maxAcks bounds the streams that one call acks.
const maxAcks = 1000

func positions(acks []Ack) ([]store.ClaimAck, error) {
	if len(acks) > maxAcks {
		return nil, problem.Newf(problem.InvalidRequest, "A call acks at most %d streams.", maxAcks)
	}
	out := make([]store.ClaimAck, len(acks))
	for i, a := range acks {
		pos, err := store.ParseOffset(a.Offset)
		if err != nil || a.Offset == "-1" || a.Offset == "now" {
			return nil, problem.New(problem.InvalidRequest, "An acked offset is not one the server handed out.").
				WithDetails(problem.Detail{Path: "/acks", Message: "offset is not valid"})
		}
		out[i] = store.ClaimAck{Path: a.Path, Position: pos}
	}
	return out, nil
}
