package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/plugins/contract"
)

// The kinds of things that authorizers are asked about here.
const (
	kindEntity = "entity"
	kindType   = "type"
	kindRunner = "runner"
	kindShared = "shared-state"
)

// mayDispatch is needed on a runner to have wakes go to it, mayClaim to claim work
// for it.
const (
	mayDispatch = "dispatch"
	mayClaim    = "claim"
)

// right is a permission on one thing.
type right struct{ permission, kind, id string }

// may asks the authorizers, after ownership and grants have said what they say,
// whether the caller may do something to a thing: an entity by its url, a type by
// its name, a runner by its id. Where a rule is compared inside the transaction
// that needs it, [Control.mayEntity], [Control.mayTypeNamed] and
// [Control.mayRunner] ask before it, and [caller.trustedFor] tells it of what only
// an authorizer has allowed.
func (c *Control) may(ctx context.Context, permission, kind, id string, builtIn bool) (bool, error) {
	who := from(ctx)
	if who.IsZero() {
		return builtIn, nil // a token speaks, for what it was made for
	}
	ok, err := c.cfg.Auth.May(ctx, who.Principal, permission, contract.Resource{Service: who.serviceName, Kind: kind, ID: id}, builtIn)
	if err == nil && ok && !builtIn {
		if who.lent == nil {
			who.lent = map[right]bool{}
		}
		who.lent[right{permission, kind, id}] = true
	}
	return ok, err
}

// trustedFor says that a transaction is not to compare a rule once more: the caller
// passes every one, or an authorizer has allowed in this request what ownership and
// grants would not.
func (c *caller) trustedFor(permission, kind, id string) bool {
	return c.trusted() || c.lent[right{permission, kind, id}]
}

// subjectFor is the principal that a permission is looked up for in a transaction:
// empty where nothing is to be compared.
func (c *caller) subjectFor(permission, kind, id string) string {
	if c.trustedFor(permission, kind, id) {
		return ""
	}
	return c.principal()
}

// mayEntity asks the authorizers, if there are any, about an entity whose rule is
// compared inside a transaction. One that is not there is left to that.
func (c *Control) mayEntity(ctx context.Context, url, permission string) error {
	_, err := c.judgedEntity(ctx, url, permission)
	return err
}

// judgedEntity is mayEntity, and gives the entity; a zero one if there is none.
func (c *Control) judgedEntity(ctx context.Context, url, permission string) (store.Entity, error) {
	if url == "" || !c.cfg.Auth.Judged() {
		return store.Entity{}, nil
	}
	e, err := c.entityFor(ctx, ref(url), permission)
	if code := problem.CodeOf(err); code == problem.NotFound || code == problem.UnknownEntityType {
		return store.Entity{}, nil
	}
	return e, err
}

// mayTypeNamed is mayEntity for an entity type.
func (c *Control) mayTypeNamed(ctx context.Context, name, permission string) error {
	_, err := c.judgedType(ctx, name, permission)
	return err
}

// judgedType is mayTypeNamed, and gives the type; a zero one if there is none.
func (c *Control) judgedType(ctx context.Context, name, permission string) (store.EntityType, error) {
	if !c.cfg.Auth.Judged() {
		return store.EntityType{}, nil
	}
	t, err := c.cfg.Store.EntityTypeGet(ctx, from(ctx).service, name)
	if errors.Is(err, store.ErrNoRow) {
		return store.EntityType{}, nil
	} else if err != nil {
		return store.EntityType{}, err
	}
	if ok, err := c.mayType(ctx, t, permission); err != nil || ok {
		return t, err
	}
	return store.EntityType{}, errMayNot(permission, "entity type")
}

// mayRunner is mayEntity for a runner.
func (c *Control) mayRunner(ctx context.Context, id, permission string) error {
	if id == "" || !c.cfg.Auth.Judged() {
		return nil
	}
	who := from(ctx)
	r, err := c.cfg.Store.RunnerGet(ctx, who.service, id)
	if errors.Is(err, store.ErrNoRow) {
		return nil
	} else if err != nil {
		return err
	}
	if ok, err := c.may(ctx, permission, kindRunner, id, who.Owns(r.Owner)); err != nil || ok {
		return err
	}
	if permission == mayDispatch {
		return spawnRefusal("runner_forbidden", nil)
	}
	return errRunnerOwner
}

// mayClaimOf asks about a claim that names no runner: about those of the caller's
// that the wakes of the consumer's entity go to, for each of which it would be.
func (c *Control) mayClaimOf(ctx context.Context, consumer string) error {
	if !c.cfg.Auth.Judged() {
		return nil
	}
	who := from(ctx)
	row, err := c.cfg.Store.ConsumerGet(ctx, who.service, consumer)
	if errors.Is(err, store.ErrNoRow) || err == nil && row.EntityURL == nil {
		return nil
	} else if err != nil {
		return err
	}
	e, err := c.cfg.Store.EntityGet(ctx, who.service, *row.EntityURL)
	if errors.Is(err, store.ErrNoRow) {
		return nil
	} else if err != nil {
		return err
	}
	targets, _ := targetsOf(e.DispatchPolicy)
	for _, t := range targets {
		if t.kind != kindRunner {
			continue
		}
		r, err := c.cfg.Store.RunnerGet(ctx, who.service, t.id)
		if errors.Is(err, store.ErrNoRow) || err == nil && !who.Owns(r.Owner) {
			continue // the claim says what follows from that
		} else if err != nil {
			return err
		}
		if ok, err := c.may(ctx, mayClaim, kindRunner, t.id, true); err != nil || !ok {
			if err == nil {
				err = errRunnerOwner
			}
			return err
		}
	}
	return nil
}

// mayPool is mayRunner for having wakes go to a worker pool.
func (c *Control) mayPool(ctx context.Context, id string) error {
	if id == "" || !c.cfg.Auth.Judged() {
		return nil
	}
	who := from(ctx)
	f, err := c.cfg.Store.PoolGet(ctx, who.service, id)
	if errors.Is(err, store.ErrNoRow) {
		return nil
	} else if err != nil {
		return err
	}
	// The rule that _targets_refusal has.
	builtIn := who.Owns(f.Pool.Owner) || slices.ContainsFunc(f.Members, func(m store.PoolMember) bool {
		return m.Status == "active" && m.Owner == who.principal()
	})
	if ok, err := c.may(ctx, mayDispatch, resourcePool, id, builtIn); err != nil || ok {
		return err
	}
	return targetRefusal("pool_forbidden", nil)
}

// mayManagePool is mayEntity for a change of a worker pool.
func (c *Control) mayManagePool(ctx context.Context, id string) error {
	if !c.cfg.Auth.Judged() {
		return nil
	}
	if _, err := c.pool(ctx, id, mayManage); problem.CodeOf(err) != problem.NotFound {
		return err
	}
	return nil
}

// mayMember asks about who is in a pool what takes the right away: the pool's, if
// the caller owns that, and the runner's. It gives nothing: whose word counts is
// found out by ownership.
func (c *Control) mayMember(ctx context.Context, pool, runner string) error {
	if !c.cfg.Auth.Judged() {
		return nil
	}
	who := from(ctx)
	f, err := c.cfg.Store.PoolGet(ctx, who.service, pool)
	if err == nil && who.Owns(f.Pool.Owner) {
		if ok, err := c.may(ctx, mayManage, resourcePool, pool, true); err != nil || !ok {
			return cmp.Or[error](err, errPoolOwner)
		}
	} else if err != nil && !errors.Is(err, store.ErrNoRow) {
		return err
	}
	r, err := c.cfg.Store.RunnerGet(ctx, who.service, runner)
	if err == nil && who.Owns(r.Owner) {
		if ok, err := c.may(ctx, mayManage, kindRunner, runner, true); err != nil || !ok {
			return cmp.Or[error](err, errRunnerOwner)
		}
	} else if err != nil && !errors.Is(err, store.ErrNoRow) {
		return err
	}
	return nil
}

// targetsOf lists the runners and worker pools among a policy's targets: what
// belongs to somebody. known says that the policy can be read.
func targetsOf(policy json.RawMessage) (all []right, known bool) {
	var p struct {
		Targets []struct{ Type, RunnerID, WorkerPoolID string }
	}
	if len(policy) > 0 && json.Unmarshal(policy, &p) != nil {
		return nil, false
	}
	for _, t := range p.Targets {
		switch t.Type {
		case targetRunner:
			all = append(all, right{mayDispatch, kindRunner, t.RunnerID})
		case targetPool:
			all = append(all, right{mayDispatch, resourcePool, t.WorkerPoolID})
		}
	}
	return all, true
}

// mayTarget asks about the runners and pools among a policy's targets. lent says
// that only authorizers allow one of them; known, that all have been asked about.
func (c *Control) mayTarget(ctx context.Context, policy json.RawMessage) (lent, known bool, err error) {
	if !c.cfg.Auth.Judged() {
		return false, true, nil
	}
	all, known := targetsOf(policy)
	for _, t := range all {
		if t.kind == kindRunner {
			err = c.mayRunner(ctx, t.id, mayDispatch)
		} else {
			err = c.mayPool(ctx, t.id)
		}
		if err != nil {
			return false, known, err
		}
		lent = lent || from(ctx).lent[t]
	}
	return lent, known, nil
}

// spawning says what a spawn's transaction is not to compare: who may spawn the type
// (open), or anything (system).
type spawning struct{ open, system bool }

// maySpawnOf asks the authorizers, if there are any, about all that a spawn needs:
// its type, its parent, and the runners that its wakes would go to.
func (c *Control) maySpawnOf(ctx context.Context, typ, parent string, policy, grants json.RawMessage) (spawning, error) {
	who := from(ctx)
	s := spawning{open: c.cfg.OpenTypes, system: who.trusted()}
	t, err := c.judgedType(ctx, typ, maySpawn)
	if err != nil || !c.cfg.Auth.Judged() {
		return s, err
	}
	above, err := c.judgedEntity(ctx, parent, maySpawn)
	if err != nil {
		return s, err
	}
	// As the transaction chooses it.
	for _, p := range []json.RawMessage{above.DispatchPolicy, t.DefaultDispatchPolicy} {
		if policy == nil {
			policy = p
		}
	}
	lent, known, err := c.mayTarget(ctx, policy)
	if err != nil {
		return s, err
	}
	s.open = s.open || who.lent[right{maySpawn, kindType, typ}]
	if lent || who.lent[right{maySpawn, kindEntity, parent}] {
		// All of it has been asked here, but for what grants on the child need.
		if parent != "" && broad(grants) {
			if err := c.mayEntity(ctx, parent, mayManage); err != nil {
				return s, err
			}
		}
		s.system = s.system || known
	}
	return s, nil
}

// broad says whether grants on a child need the permission manage on its parent; it
// is the rule that entity_spawn has.
func broad(grants json.RawMessage) bool {
	type grant struct {
		Permission  string `json:"permission"`
		SubjectKind string `json:"subject_kind"`
		Propagation string `json:"propagation"`
		Copy        bool   `json:"copy_to_children"`
	}
	var all []grant
	if len(grants) > 0 && json.Unmarshal(grants, &all) != nil {
		return true
	}
	return slices.ContainsFunc(all, func(g grant) bool {
		return g.Permission == mayManage || g.SubjectKind == "principal_kind" || g.Propagation == "descendants" || g.Copy
	})
}
