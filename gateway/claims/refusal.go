package claims

import (
	"errors"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// refusal gives a mutex outcome its code on the route's wire.
func refusal(w Wire, a store.ClaimAnswer) error {
	if w == Subscriptions {
		return subscriptionRefusal(a)
	}
	pick := func(rfc, peer problem.Code, text string) error {
		code := rfc
		if w == Peer {
			code = peer
		}
		e := problem.New(code, text).WithMeta("generation", a.Epoch).WithMeta("epoch", a.Epoch)
		if a.Outcome == "held" {
			if a.RunnerID != "" {
				e.WithMeta("current_holder", a.RunnerID)
			}
			e.WithMeta("lease_remaining_ms", a.Lease.Milliseconds())
		}
		return e
	}
	switch a.Outcome {
	case "held":
		return pick(problem.EpochHeld, problem.AlreadyClaimed, "Another holder has this claim. Skip the wake; a fresh one follows if work is left.")
	case "stale":
		return pick(problem.EpochStale, problem.Fenced, "This wake is over: a newer epoch exists or the claim has ended. Stop working on it.")
	case "lease_expired":
		return pick(problem.LeaseExpired, problem.Fenced, "The lease ended before this call. Stop working; a fresh wake follows if work is left.")
	case "no_work":
		return ErrNoWork
	case "stopped", "paused":
		return ErrStopped
	case "invalid_offset":
		return problem.New(problem.InvalidOffset, "An acked offset is below the cursor or beyond the stream's tail.")
	case "unknown_stream":
		return problem.New(problem.InvalidRequest, "An acked stream is not one of this consumer's.").
			WithDetails(problem.Detail{Path: "/acks", Message: "names a stream that is not linked"})
	case "not_found":
		if w == Peer {
			return problem.New(problem.WakeCallbackNotFound, "There is no such wake.")
		}
		return problem.New(problem.NotFound, "There is no such consumer.")
	case "wrong_consumer", "not_holder":
		return ErrToken
	case "wrong_wake":
		return problem.New(problem.InvalidRequest, "The consumer, the wake and the epoch named do not belong together.")
	case "not_owner":
		return problem.New(problem.RunnerForbidden, "Only the owner of the target runner may claim this.")
	case "runner_not_found":
		return problem.New(problem.NotFound, "There is no such runner.")
	case "runner_disabled":
		if w == Peer {
			return problem.New(problem.NotRunning, "The runner is disabled. Enable it to claim again.")
		}
		return problem.New(problem.RunnerDisabled, "The runner is disabled. Enable it to claim again.")
	case "runner_full":
		return problem.New(problem.RunnerFull, "The runner holds as many claims as its capacity, or the pool's limit for one runner, allows. Release one first.")
	case "not_member":
		return problem.New(problem.NotPoolMember, "The wake is for a worker pool of which the runner is no active member. Its owner, or a join token, lets it join.")
	case "pool_disabled":
		return problem.New(problem.PoolDisabled, "The worker pool is disabled. Enable it to claim again.")
	case "pool_full":
		return problem.New(problem.PoolFull, "The worker pool's members hold as many claims as it may. The wake is told again when one ends.")
	case "runner_mismatch":
		return problem.New(problem.InvalidRequest, "This wake is for another target.").
			WithDetails(problem.Detail{Path: "/subscription_id", Message: "is not a wake of this runner"})
	}
	return problem.Wrap(problem.Internal, errors.New("unexpected mutex outcome "+a.Outcome), "The mutex gave an unexpected answer.")
}

// subscriptionRefusal gives a mutex outcome its code on the subscription routes.
func subscriptionRefusal(a store.ClaimAnswer) error {
	switch a.Outcome {
	case "held":
		return problem.New(problem.AlreadyClaimed, "Another worker has this subscription's lease. A fresh wake follows if work is left.").
			WithMeta("current_holder", a.Holder).WithMeta("generation", a.Epoch).WithMeta("lease_remaining_ms", a.Lease.Milliseconds())
	case "stale", "wrong_wake":
		return problem.New(problem.Fenced, "This wake is over: a newer generation exists or the lease has ended. Stop working on it.").WithMeta("generation", a.Epoch)
	case "lease_expired":
		return problem.New(problem.Fenced, "The lease ended before this call. Stop working; a fresh wake follows if work is left.").WithMeta("generation", a.Epoch)
	case "no_work":
		return ErrNoWork
	case "stopped", "paused", "not_found":
		return ErrNoSubscription
	case "invalid_offset", "unknown_stream":
		return problem.New(problem.InvalidOffset, "An acknowledged offset is below the cursor or beyond the stream's tail, or the stream is not one of the subscription's.")
	case "wrong_consumer", "not_holder", "not_owner":
		return ErrTurnToken
	}
	return problem.Wrap(problem.Internal, errors.New("unexpected mutex outcome "+a.Outcome), "The mutex gave an unexpected answer.")
}
