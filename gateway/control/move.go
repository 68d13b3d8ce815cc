package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// defaultMoveDeadline is how long the holder of an entity that is moved may go
// on.
const defaultMoveDeadline = 30 * time.Second

type (
	moveInput struct {
		EntityRef
		Body struct {
			DispatchPolicy DispatchPolicy `json:"dispatch_policy" doc:"Takes the place of the one there is."`
			DeadlineMS     *int64         `json:"deadline_ms,omitempty" minimum:"0" maximum:"600000" doc:"How long whoever holds the entity now may go on; it is asked to release at once. 0 fences it now. Default 30 s."`
			Reason         string         `json:"reason,omitempty" maxLength:"1024" doc:"Kept in the history."`
		} `nameHint:"MoveRequest"`
	}
	moveOutput struct {
		Body struct {
			OK        bool       `json:"ok"`
			Outcome   string     `json:"outcome" enum:"moved,unchanged"`
			TxID      int64      `json:"txid,omitempty"`
			ReleaseBy *time.Time `json:"release_by,omitempty" doc:"When the claim of whoever holds the entity ends at the latest; absent: nobody holds it."`
		} `nameHint:"MoveResult"`
	}
	policiesInput struct {
		EntityRef
		Before int64 `query:"before" minimum:"1" doc:"Only revisions below this one."`
		Limit  int   `query:"limit" minimum:"1" maximum:"100" default:"100"`
	}
	policiesOutput struct{ Body []store.OldPolicy }
)

func (c *Control) registerMoves() {
	tags := []string{"entities"}
	absent := []problem.Code{problem.NotFound, problem.UnknownEntityType, problem.Unauthorized}
	add(c, huma.Operation{OperationID: "moveEntity", Method: http.MethodPost, Path: entityPath + "/move", Tags: tags,
		Summary: "Send an entity's work somewhere else",
		Description: "Gives the entity another dispatch policy. A wake that nobody has claimed goes to the new target at once; whoever holds the entity is asked to release it, " +
			"and is fenced at the deadline. The cursor stays where it is."},
		routeOptions{aliases: map[string]string{"dispatchPolicy": "dispatch_policy", "deadlineMs": "deadline_ms"}},
		append([]problem.Code{problem.NotRunning, problem.RunnerForbidden, problem.PoolForbidden, problem.InvalidTarget, problem.WebhookURLRejected}, absent...), c.move)
	add(c, huma.Operation{OperationID: "listEntityPolicies", Method: http.MethodGet, Path: entityPath + "/policies", Tags: tags,
		Summary: "The dispatch policies that an entity had before, newest first"}, routeOptions{}, absent,
		func(ctx context.Context, in *policiesInput) (*policiesOutput, error) {
			if _, err := c.entity(ctx, &in.EntityRef); err != nil {
				return nil, err
			}
			list, err := c.cfg.Store.EntityPolicies(ctx, from(ctx).service, in.url(), in.Before, in.Limit)
			return &policiesOutput{list}, err
		})
}

func (c *Control) move(ctx context.Context, in *moveInput) (*moveOutput, error) {
	who, b := from(ctx), &in.Body
	if in.Type == principalType {
		return nil, errPrincipalEntity
	}
	if why := storable(b.Reason); why != "" {
		return nil, invalidFields(problem.Detail{Path: "/reason", Message: why})
	}
	if _, err := c.entityFor(ctx, &in.EntityRef, mayManage); err != nil {
		return nil, err
	}
	policy, err := c.checkPolicy(ctx, "/dispatch_policy", b.DispatchPolicy)
	if err != nil {
		return nil, err
	}
	if policy == nil {
		return nil, invalidFields(problem.Detail{Path: "/dispatch_policy", Message: "must say where the work goes"})
	}
	deadline := defaultMoveDeadline
	if b.DeadlineMS != nil {
		deadline = time.Duration(*b.DeadlineMS) * time.Millisecond
	}
	lent, known, err := c.mayTarget(ctx, policy)
	if err != nil {
		return nil, err
	}
	trusted := who.trusted() || known && (lent || who.trustedFor(mayManage, kindEntity, in.url()))
	m, err := c.cfg.Store.EntityMove(ctx, who.service, in.url(), who.principal(), trusted, policy, deadline, b.Reason)
	if err != nil {
		return nil, err
	}
	switch m.Outcome {
	case "moved":
		c.cfg.Changed()
		c.cfg.Poke()
	case "unchanged":
	default:
		return nil, moveRefusal(m.Outcome, policy)
	}
	out := &moveOutput{}
	out.Body.OK, out.Body.Outcome, out.Body.TxID, out.Body.ReleaseBy = true, m.Outcome, m.TxID, m.ReleaseBy
	return out, nil
}

func moveRefusal(outcome string, policy json.RawMessage) error {
	switch outcome {
	case "not_found":
		return errEntityNotFound
	case "forbidden":
		return errMayNot(mayManage, "entity")
	case "not_running":
		return errNotRunning
	}
	if err := targetRefusal(outcome, policy); err != nil {
		return err
	}
	return problem.Wrap(problem.Internal, errors.New("unexpected outcome "+outcome), "The entity gave an unexpected answer.")
}

// targetRefusal words why a policy's targets may not be used; nil for an outcome
// that is about something else.
func targetRefusal(outcome string, policy json.RawMessage) error {
	switch outcome {
	case "runner_not_found":
		return problem.New(problem.NotFound, "There is no such runner. Register it first.").
			WithDetails(problem.Detail{Path: targetPlace(policy, targetRunner, "runnerId"), Message: "does not exist"})
	case "pool_not_found":
		return problem.New(problem.NotFound, "There is no such worker pool. Create it first.").
			WithDetails(problem.Detail{Path: targetPlace(policy, targetPool, "workerPoolId"), Message: "does not exist"})
	case "target_not_found":
		return problem.New(problem.NotFound, "A runner or worker pool of the policy does not exist. Register it first.").
			WithDetails(problem.Detail{Path: policyTargets, Message: "names a runner or pool that does not exist"})
	case "runner_forbidden":
		return problem.New(problem.RunnerForbidden, "Only the owner of a runner may spawn entities targeted at it.")
	case "pool_forbidden":
		return problem.New(problem.PoolForbidden, "Only the owner of a worker pool, and those whose runners are active members of it, may send work to it.")
	case "target_forbidden":
		return problem.New(problem.RunnerForbidden, "Work goes only to runners of one's own, and to worker pools that one owns or has an active runner in.")
	}
	return nil
}

const policyTargets = "/dispatch_policy/targets"

// targetPlace is where a policy names its target of a type, if it has but one.
func targetPlace(policy json.RawMessage, typ, member string) string {
	var p struct{ Targets []struct{ Type string } }
	if json.Unmarshal(policy, &p) != nil {
		return policyTargets
	}
	at := -1
	for i, t := range p.Targets {
		if t.Type == typ {
			if at >= 0 {
				return policyTargets
			}
			at = i
		}
	}
	if at < 0 {
		return policyTargets
	}
	return policyTargets + "/" + strconv.Itoa(at) + "/" + member
}
