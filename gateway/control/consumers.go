package control

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

type (
	ConsumerRef struct {
		Service string `query:"service"`
		ID      string `path:"id"`
	}
	consumerOutput struct{ Body store.Consumer }
	acquireInput   struct {
		ConsumerRef
		Token string `header:"Electric-Claim-Token"`
		Body  struct {
			WakeID  string `json:"wakeId,omitempty" maxLength:"64" doc:"Absent: whatever work is pending."`
			Epoch   int64  `json:"epoch,omitempty" minimum:"0"`
			ClaimID string `json:"claimId,omitempty" maxLength:"128" doc:"Names the attempt: repeated with it, an acquire answers the same again."`
		} `nameHint:"ConsumerAcquire"`
	}
	holdInput struct {
		ConsumerRef
		Token string `header:"Electric-Claim-Token" doc:"The token the acquire answered."`
		Body  struct {
			WakeID string `json:"wakeId,omitempty" maxLength:"64"`
			Epoch  int64  `json:"epoch,omitempty" minimum:"0"`
		} `nameHint:"ConsumerHeartbeat"`
	}
	ackInput struct {
		ConsumerRef
		Token string `header:"Electric-Claim-Token"`
		Body  struct {
			WakeID string    `json:"wakeId,omitempty" maxLength:"64"`
			Epoch  int64     `json:"epoch,omitempty" minimum:"0"`
			Acks   []ackBody `json:"acks" minItems:"1" maxItems:"100"`
		} `nameHint:"ConsumerAck"`
	}
	releaseInput struct {
		ConsumerRef
		Token string `header:"Electric-Claim-Token"`
		Body  struct {
			WakeID string    `json:"wakeId,omitempty" maxLength:"64"`
			Epoch  int64     `json:"epoch,omitempty" minimum:"0"`
			Acks   []ackBody `json:"acks,omitempty" maxItems:"100"`
			Error  *string   `json:"error,omitempty" maxLength:"4096" doc:"Records the run as failed."`
		} `nameHint:"ConsumerRelease"`
	}
)

func (c *Control) registerConsumers() {
	tags := []string{"claims"}
	const at = "/_electric/consumers/{id}"
	names := routeOptions{tokenAlone: true, aliases: map[string]string{"generation": "epoch", "wake_id": "wakeId", "claim_id": "claimId"}}
	hold := []problem.Code{problem.Unauthorized, problem.ClaimTokenInvalid, problem.EpochStale, problem.LeaseExpired}
	add(c, huma.Operation{OperationID: "getConsumer", Method: http.MethodGet, Path: at, Tags: tags, Summary: "A mutex and its cursor"},
		routeOptions{}, []problem.Code{problem.NotFound, problem.Unauthorized}, c.getConsumer)
	add(c, huma.Operation{OperationID: "acquireConsumer", Method: http.MethodPost, Path: at + "/acquire", Tags: tags, Summary: "Take the mutex"},
		names, []problem.Code{problem.NotFound, problem.Unauthorized, problem.ClaimTokenInvalid, problem.EpochHeld, problem.EpochStale, problem.NoPendingWork,
			problem.NotRunning, problem.RunnerForbidden, problem.RunnerDisabled, problem.RunnerFull, problem.NotPoolMember, problem.PoolDisabled, problem.PoolFull}, c.acquire)
	add(c, huma.Operation{OperationID: "heartbeatConsumer", Method: http.MethodPost, Path: at + "/heartbeat", Tags: tags, Summary: "Extend the lease"},
		names, hold, func(ctx context.Context, in *holdInput) (*callbackOutput, error) {
			h, err := holdRequest(ctx, in.ID, in.Body.WakeID, in.Body.Epoch)
			if err != nil {
				return nil, err
			}
			l, err := c.cfg.Claims.Heartbeat(ctx, h)
			return leaseAnswer(l), err
		})
	add(c, huma.Operation{OperationID: "ackConsumer", Method: http.MethodPost, Path: at + "/ack", Tags: tags, Summary: "Advance the cursor"},
		names, append([]problem.Code{problem.InvalidOffset}, hold...), func(ctx context.Context, in *ackInput) (*callbackOutput, error) {
			h, err := holdRequest(ctx, in.ID, in.Body.WakeID, in.Body.Epoch)
			if err != nil {
				return nil, err
			}
			acks, err := acksOf(in.Body.Acks)
			if err != nil {
				return nil, err
			}
			l, err := c.cfg.Claims.Ack(ctx, h, acks)
			return leaseAnswer(l), err
		})
	add(c, huma.Operation{OperationID: "releaseConsumer", Method: http.MethodPost, Path: at + "/release", Tags: tags, Summary: "Ack and give the mutex back"},
		names, append([]problem.Code{problem.InvalidOffset}, hold...), func(ctx context.Context, in *releaseInput) (*callbackOutput, error) {
			h, err := holdRequest(ctx, in.ID, in.Body.WakeID, in.Body.Epoch)
			if err != nil {
				return nil, err
			}
			acks, err := acksOf(in.Body.Acks)
			if err != nil {
				return nil, err
			}
			r, err := c.cfg.Claims.Release(ctx, h, acks, in.Body.Error)
			return &callbackOutput{CallbackAnswer{OK: true, ConsumerID: r.ConsumerID, Epoch: r.Epoch, NextWake: &r.NextWake}}, err
		})
}

func holdRequest(ctx context.Context, consumer, wake string, epoch int64) (claims.HoldRequest, error) {
	who := from(ctx)
	if who.token == "" {
		return claims.HoldRequest{}, problem.New(problem.Unauthorized, "This needs the token of the lease: send it in electric-claim-token.")
	}
	wake, _ = canonicalWake(wake)
	return claims.HoldRequest{Wire: claims.RFC, Service: who.service, Token: who.token, Consumer: consumer, Wake: wake, Epoch: epoch}, nil
}

func (c *Control) getConsumer(ctx context.Context, in *ConsumerRef) (*consumerOutput, error) {
	who := from(ctx)
	row, err := c.cfg.Store.ConsumerGet(ctx, who.service, in.ID)
	switch {
	case errors.Is(err, store.ErrNoRow):
		return nil, problem.New(problem.NotFound, "There is no such consumer.")
	case err != nil:
		return nil, err
	case who.trusted() || row.Holder != nil && *row.Holder == who.principal() || row.CreatedBy != nil && *row.CreatedBy == who.principal():
	case row.EntityURL == nil:
		return nil, problem.New(problem.Unauthorized, "Only who may read the entity and its holder may see this consumer.")
	default:
		if _, err := c.entityFor(ctx, ref(*row.EntityURL), mayRead); err != nil {
			return nil, err
		}
	}
	return &consumerOutput{row}, nil
}

func (c *Control) acquire(ctx context.Context, in *acquireInput) (*callbackOutput, error) {
	who := from(ctx)
	wake, isOne := canonicalWake(in.Body.WakeID)
	if wake != "" && !isOne {
		return nil, errNoWake
	}
	if who.token == "" {
		if err := c.mayClaimOf(ctx, in.ID); err != nil {
			return nil, err
		}
	}
	g, err := c.cfg.Claims.Acquire(ctx, claims.AcquireRequest{Wire: claims.RFC, Service: who.service, Consumer: in.ID, Wake: wake,
		Epoch: in.Body.Epoch, Token: who.token, Holder: who.principal(), ClaimID: in.Body.ClaimID, Trusted: who.trusted()})
	return grantAnswer(g), err
}
