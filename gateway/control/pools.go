package control

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/claims"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// Pool is a worker pool as its owner and its members' owners see it.
type Pool struct {
	ID             string       `json:"id"`
	Name           string       `json:"name"`
	OwnerPrincipal string       `json:"owner_principal"`
	AdminStatus    string       `json:"admin_status" enum:"enabled,disabled"`
	WakeStream     string       `json:"wake_stream" doc:"Read by every member; the first valid claim of an entry wins."`
	CapacityPolicy PoolCapacity `json:"capacity_policy"`
	Members        []PoolMember `json:"members"`
	ActiveClaims   int64        `json:"active_claims" doc:"Counted from the mutex, never self-reported."`
	WaitingWakes   int64        `json:"waiting_wakes" doc:"Wakes that nobody has claimed yet."`
	CreatedAt      time.Time    `json:"created_at"`
	UpdatedAt      time.Time    `json:"updated_at"`
}

// PoolCapacity bounds the claims of a pool's wakes.
type PoolCapacity struct {
	MaxPerRunner *int32 `json:"maxConcurrentClaimsPerRunner,omitempty" minimum:"1" maximum:"1024"`
	MaxTotal     *int32 `json:"maxTotalClaims,omitempty" minimum:"1" maximum:"100000"`
}

// PoolMember is a runner in a pool.
type PoolMember struct {
	RunnerID       string `json:"runner_id"`
	OwnerPrincipal string `json:"owner_principal,omitempty"`
	Label          string `json:"label,omitempty"`
	Status         string `json:"status" enum:"invited,active,disabled" doc:"invited: its owner has not accepted yet; disabled: it finishes what it holds and is granted nothing more."`
	Liveness       string `json:"liveness,omitempty" enum:"online,offline" doc:"Absent, as label and capacity are, until the runner's owner has agreed to be in the pool."`
	ActiveClaims   int64  `json:"active_claims" doc:"Claims of this pool's wakes that it holds now."`
	Capacity       *int32 `json:"capacity,omitempty" doc:"How many claims the runner holds at once, of this pool's and other wakes; absent: any number."`
}

func memberOf(m store.PoolMember) PoolMember {
	out := PoolMember{RunnerID: m.RunnerID, OwnerPrincipal: m.Owner, Label: m.Label, Status: m.Status, ActiveClaims: m.ActiveClaims, Capacity: m.Capacity}
	switch {
	case m.Online == nil:
	case *m.Online:
		out.Liveness = "online"
	default:
		out.Liveness = "offline"
	}
	return out
}

func poolOf(f store.PoolFile) Pool {
	p := f.Pool
	out := Pool{ID: p.ID, Name: p.Name, OwnerPrincipal: p.Owner, AdminStatus: p.AdminStatus, WakeStream: p.WakeStream,
		CapacityPolicy: PoolCapacity{p.MaxPerRunner, p.MaxTotal}, Members: make([]PoolMember, len(f.Members)), ActiveClaims: f.ActiveClaims,
		WaitingWakes: f.Waiting, CreatedAt: p.CreatedAt.UTC(), UpdatedAt: p.UpdatedAt.UTC()}
	for i, m := range f.Members {
		out.Members[i] = memberOf(m)
	}
	return out
}

type (
	PoolRef struct {
		Service string `query:"service"`
		ID      string `path:"id"`
	}
	poolOutput    struct{ Body Pool }
	poolPutOutput struct {
		Status int
		Body   Pool
	}
	poolPutInput struct {
		PoolRef
		Body struct {
			Name           string        `json:"name,omitempty" maxLength:"256" doc:"What people see; default: the id."`
			AdminStatus    string        `json:"admin_status,omitempty" enum:"enabled,disabled" doc:"Of a disabled pool nothing is granted; what its members hold runs to its end."`
			OwnerPrincipal string        `json:"owner_principal,omitempty" doc:"A principal URL; only the caller's own."`
			CapacityPolicy *PoolCapacity `json:"capacity_policy,omitempty" doc:"Takes the place of the limits there are, {} of all; absent: they stay."`
		} `nameHint:"PoolPut"`
	}
	poolListInput struct {
		Service string `query:"service"`
		After   string `query:"after" doc:"Only ids behind this one."`
		Limit   int    `query:"limit" minimum:"1" maximum:"1000" default:"1000"`
	}
	poolListOutput struct{ Body []Pool }
	PoolMemberRef  struct {
		PoolRef
		RunnerID string `path:"runnerId"`
	}
	memberPutInput struct {
		PoolMemberRef
		Body struct {
			Status    string `json:"status,omitempty" enum:"active,disabled" doc:"Default active. disabled drains it."`
			JoinToken string `json:"join_token,omitempty" maxLength:"512" doc:"Lets the runner's owner join without an invitation."`
		} `nameHint:"PoolMemberPut"`
	}
	memberOutput   struct{ Body PoolMember }
	joinTokenInput struct {
		PoolRef
		Body struct {
			TTLSeconds int64 `json:"ttl_seconds,omitempty" minimum:"1" maximum:"2592000" doc:"How long it can be used. Default one hour."`
		} `nameHint:"PoolJoinTokenRequest"`
	}
	joinTokenOutput struct {
		Body struct {
			JoinToken string    `json:"join_token" doc:"Shown once and kept nowhere. Whoever has it may put runners of their own into the pool."`
			ExpiresAt time.Time `json:"expires_at"`
		} `nameHint:"PoolJoinToken"`
	}
	runnerPoolsOutput struct{ Body []RunnerPool }
)

// RunnerPool is a pool that a runner is in.
type RunnerPool struct {
	PoolID     string `json:"pool_id"`
	WakeStream string `json:"wake_stream"`
	Status     string `json:"status" enum:"invited,active,disabled"`
}

func runnerPools(list []store.PoolOf) []RunnerPool {
	out := make([]RunnerPool, len(list))
	for i, p := range list {
		out[i] = RunnerPool(p)
	}
	return out
}

const (
	resourcePool   = "worker-pool"
	defaultJoinTTL = time.Hour
)

func (c *Control) registerPools() {
	tags := []string{"worker pools"}
	const at = "/_electric/worker-pools"
	own := []problem.Code{problem.NotFound, problem.PoolForbidden}
	add(c, huma.Operation{OperationID: "listWorkerPools", Method: http.MethodGet, Path: at, Tags: tags,
		Summary: "The pools that the caller owns or has a runner in"}, routeOptions{}, nil, c.listPools)
	add(c, huma.Operation{OperationID: "putWorkerPool", Method: http.MethodPut, Path: at + "/{id}", Tags: tags,
		Summary: "Make a worker pool, or change it", Description: "The id belongs to whoever registers it first."},
		routeOptions{aliases: map[string]string{"adminStatus": "admin_status", "ownerPrincipal": "owner_principal", "capacityPolicy": "capacity_policy"}},
		[]problem.Code{problem.PoolForbidden, problem.PoolExists}, c.putPool)
	add(c, huma.Operation{OperationID: "getWorkerPool", Method: http.MethodGet, Path: at + "/{id}", Tags: tags,
		Summary: "A pool with its members and load"}, routeOptions{}, own, func(ctx context.Context, in *PoolRef) (*poolOutput, error) {
		f, err := c.pool(ctx, in.ID, mayRead)
		return &poolOutput{poolOf(f)}, err
	})
	add(c, huma.Operation{OperationID: "deleteWorkerPool", Method: http.MethodDelete, Path: at + "/{id}", Tags: tags, DefaultStatus: 204,
		Summary: "Remove a pool", Description: "Wakes that wait in it go to the next target of their policy, or are parked. What its members hold runs to its end."},
		routeOptions{}, own, func(ctx context.Context, in *PoolRef) (*noContent, error) {
			who := from(ctx)
			if err := c.mayManagePool(ctx, in.ID); err != nil {
				return nil, err
			}
			outcome, err := c.cfg.Store.PoolDelete(ctx, who.service, in.ID, who.principal(), who.trustedFor(mayManage, resourcePool, in.ID))
			return poolDone(outcome, err, "deleted")
		})
	add(c, huma.Operation{OperationID: "putWorkerPoolMember", Method: http.MethodPut, Path: at + "/{id}/members/{runnerId}", Tags: tags,
		Summary: "Put a runner into a pool, drain it, or let it claim again",
		Description: "The pool's owner invites; the runner's owner accepts by the same call, or joins at once with a join token. Whoever owns both needs neither. " +
			"Either of them may disable the member."},
		routeOptions{aliases: map[string]string{"joinToken": "join_token"}}, append([]problem.Code{problem.JoinTokenInvalid, problem.RunnerForbidden}, own...), c.putMember)
	add(c, huma.Operation{OperationID: "deleteWorkerPoolMember", Method: http.MethodDelete, Path: at + "/{id}/members/{runnerId}", Tags: tags, DefaultStatus: 204,
		Summary: "Take a runner out of a pool", Description: "For the pool's owner and the runner's. What it holds runs to its end."},
		routeOptions{}, append([]problem.Code{problem.RunnerForbidden}, own...), func(ctx context.Context, in *PoolMemberRef) (*noContent, error) {
			who := from(ctx)
			if err := c.mayMember(ctx, in.ID, in.RunnerID); err != nil {
				return nil, err
			}
			outcome, err := c.cfg.Store.PoolMemberDelete(ctx, who.service, in.ID, in.RunnerID, who.principal(), who.trusted())
			return poolDone(outcome, err, "deleted")
		})
	add(c, huma.Operation{OperationID: "createWorkerPoolJoinToken", Method: http.MethodPost, Path: at + "/{id}/join-tokens", Tags: tags, DefaultStatus: 201,
		Summary: "A token with which others put their runners into the pool"},
		routeOptions{aliases: map[string]string{"ttlSeconds": "ttl_seconds"}}, own, c.joinToken)
	add(c, huma.Operation{OperationID: "revokeWorkerPoolJoinTokens", Method: http.MethodDelete, Path: at + "/{id}/join-tokens", Tags: tags, DefaultStatus: 204,
		Summary: "End every join token made so far", Description: "Members stay."},
		routeOptions{}, own, func(ctx context.Context, in *PoolRef) (*noContent, error) {
			who := from(ctx)
			if err := c.mayManagePool(ctx, in.ID); err != nil {
				return nil, err
			}
			outcome, err := c.cfg.Store.PoolJoinRotate(ctx, who.service, in.ID, who.principal(), who.trustedFor(mayManage, resourcePool, in.ID))
			return poolDone(outcome, err, "rotated")
		})
	add(c, huma.Operation{OperationID: "listRunnerPools", Method: http.MethodGet, Path: "/_electric/runners/{id}/pools", Tags: []string{"runners"},
		Summary: "The pools that a runner is in"}, routeOptions{}, []problem.Code{problem.NotFound, problem.RunnerForbidden},
		func(ctx context.Context, in *RunnerRef) (*runnerPoolsOutput, error) {
			if _, err := c.runner(ctx, in.ID); err != nil {
				return nil, err
			}
			list, err := c.cfg.Store.RunnerPools(ctx, from(ctx).service, in.ID)
			return &runnerPoolsOutput{runnerPools(list)}, err
		})
}

var (
	errPoolNotFound = problem.New(problem.NotFound, "There is no such worker pool. Create it first.")
	errPoolOwner    = problem.New(problem.PoolForbidden, "The worker pool belongs to somebody else.")
)

// pool loads a pool for somebody who owns it or, to read, has a runner in it.
func (c *Control) pool(ctx context.Context, id, permission string) (store.PoolFile, error) {
	who := from(ctx)
	if why := storable(id); why != "" {
		return store.PoolFile{}, errPoolNotFound
	}
	f, err := c.cfg.Store.PoolGet(ctx, who.service, id)
	switch {
	case errors.Is(err, store.ErrNoRow):
		return f, errPoolNotFound
	case err != nil:
		return f, err
	}
	allowed := who.Owns(f.Pool.Owner)
	if permission == mayRead {
		for _, m := range f.Members {
			allowed = allowed || who.Owns(m.Owner)
		}
	}
	if allowed, err = c.may(ctx, permission, resourcePool, id, allowed); err != nil || !allowed {
		if err == nil {
			err = errPoolOwner
		}
		return store.PoolFile{}, err
	}
	return f, nil
}

// poolDone words what became of a change that answers nothing.
func poolDone(outcome string, err error, good string) (*noContent, error) {
	switch {
	case err != nil:
		return nil, err
	case outcome == good:
		return &noContent{}, nil
	}
	return nil, poolRefusal(outcome)
}

func poolRefusal(outcome string) error {
	switch outcome {
	case "not_found", "pool_not_found":
		return errPoolNotFound
	case "runner_not_found":
		return errRunnerNotFound
	case "member_not_found":
		return problem.New(problem.NotFound, "The runner is not in this pool.")
	case "forbidden":
		return errPoolOwner
	case "path_taken":
		return problem.New(problem.PoolExists, "A stream has the path of the pool's wake stream. Choose another id.")
	}
	return problem.Wrap(problem.Internal, errors.New("unexpected outcome "+outcome), "The worker pool gave an unexpected answer.")
}

func (c *Control) putPool(ctx context.Context, in *poolPutInput) (*poolPutOutput, error) {
	who, b := from(ctx), &in.Body
	if why := checkRunnerID(in.ID); why != "" {
		return nil, invalidFields(problem.Detail{Path: "path.id", Message: why})
	}
	if why := storable(b.Name); why != "" {
		return nil, invalidFields(problem.Detail{Path: "/name", Message: why})
	}
	owner, err := ownerOf(who, b.OwnerPrincipal, problem.New(problem.PoolForbidden, "A pool is made for oneself only. Leave owner_principal out."))
	if err != nil {
		return nil, err
	}
	p := store.Pool{ID: in.ID, Owner: owner, Name: b.Name, AdminStatus: b.AdminStatus}
	if b.CapacityPolicy != nil {
		p.MaxPerRunner, p.MaxTotal = b.CapacityPolicy.MaxPerRunner, b.CapacityPolicy.MaxTotal
	}
	if err := c.mayManagePool(ctx, in.ID); err != nil {
		return nil, err
	}
	outcome, _, err := c.cfg.Store.PoolPut(ctx, who.service, who.principal(), who.trustedFor(mayManage, resourcePool, in.ID), p, b.CapacityPolicy != nil)
	switch {
	case err != nil:
		return nil, err
	case outcome != "created" && outcome != "updated":
		return nil, poolRefusal(outcome)
	}
	f, err := c.cfg.Store.PoolGet(ctx, who.service, in.ID) // what is done is answered, whoever may read it
	if errors.Is(err, store.ErrNoRow) {
		return nil, errPoolNotFound
	}
	status := http.StatusOK
	if outcome == "created" {
		status = http.StatusCreated
	}
	return &poolPutOutput{Status: status, Body: poolOf(f)}, err
}

func (c *Control) listPools(ctx context.Context, in *poolListInput) (*poolListOutput, error) {
	who := from(ctx)
	if why := storable(in.After); why != "" {
		return nil, invalidFields(problem.Detail{Path: "query.after", Message: why})
	}
	list, err := c.cfg.Store.PoolList(ctx, who.service, who.principal(), who.trusted(), in.After, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &poolListOutput{Body: make([]Pool, len(list))}
	for i, f := range list {
		out.Body[i] = poolOf(f)
	}
	return out, nil
}

// putMember invites, accepts, joins, drains and undrains: which of these, the
// database finds out from who owns what.
func (c *Control) putMember(ctx context.Context, in *memberPutInput) (*memberOutput, error) {
	who, b := from(ctx), &in.Body
	if checkRunnerID(in.ID) != "" {
		return nil, errPoolNotFound
	}
	if checkRunnerID(in.RunnerID) != "" {
		return nil, errRunnerNotFound
	}
	status := b.Status
	if status == "" {
		status = "active"
	}
	if b.JoinToken != "" {
		if err := c.checkJoin(ctx, in.ID, b.JoinToken); err != nil {
			return nil, err
		}
	}
	if err := c.mayMember(ctx, in.ID, in.RunnerID); err != nil {
		return nil, err
	}
	outcome, err := c.cfg.Store.PoolMemberPut(ctx, who.service, in.ID, in.RunnerID, who.principal(), who.trusted(), status, b.JoinToken != "")
	switch {
	case err != nil:
		return nil, err
	case outcome == "forbidden":
		return nil, problem.New(problem.PoolForbidden, "Neither the pool nor the runner is yours, or only the runner is, and the pool's owner has not invited it, or has drained or removed it. Ask the pool's owner.")
	case outcome == "accepted":
		outcome = "active"
	case outcome != "active" && outcome != "disabled" && outcome != "invited":
		return nil, poolRefusal(outcome)
	}
	f, err := c.cfg.Store.PoolGet(ctx, who.service, in.ID)
	if err != nil && !errors.Is(err, store.ErrNoRow) {
		return nil, err
	}
	for _, m := range f.Members {
		if m.RunnerID == in.RunnerID {
			return &memberOutput{memberOf(m)}, nil
		}
	}
	return &memberOutput{PoolMember{RunnerID: in.RunnerID, Status: outcome}}, nil // gone again already
}

// checkJoin checks a join token for a pool: signature, time and generation.
func (c *Control) checkJoin(ctx context.Context, pool, token string) error {
	service := from(ctx).service
	j, err := c.cfg.Claims.VerifyJoin(token)
	if err != nil {
		return err
	}
	f, err := c.cfg.Store.PoolGet(ctx, service, pool)
	switch {
	case errors.Is(err, store.ErrNoRow):
		return claims.ErrJoin
	case err != nil:
		return err
	case j.Service != service || j.Pool != pool || j.Generation != f.Pool.JoinGeneration:
		return claims.ErrJoin
	}
	return nil
}

func (c *Control) joinToken(ctx context.Context, in *joinTokenInput) (*joinTokenOutput, error) {
	f, err := c.pool(ctx, in.ID, mayManage)
	if err != nil {
		return nil, err
	}
	ttl := time.Duration(in.Body.TTLSeconds) * time.Second
	if ttl == 0 {
		ttl = defaultJoinTTL
	}
	out := &joinTokenOutput{}
	out.Body.ExpiresAt = time.Now().Add(ttl).UTC().Truncate(time.Second)
	if ttl < 2*time.Second {
		out.Body.ExpiresAt = out.Body.ExpiresAt.Add(time.Second) // a token has whole seconds: none is over before it is read
	}
	out.Body.JoinToken = c.cfg.Claims.JoinToken(claims.Join{Service: from(ctx).service, Pool: in.ID, Generation: f.Pool.JoinGeneration, Expires: out.Body.ExpiresAt})
	return out, nil
}
