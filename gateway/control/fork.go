package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/staterow"
	"github.com/rouse-run/rouse/gateway/store"
)

const (
	// maxTree bounds the entities of one fork.
	maxTree = 500
	// forkWait is how long a fork waits for its sources to become idle when it does
	// not say, maxForkWait what it may say.
	forkWait    = 30 * time.Second
	maxForkWait = 2 * time.Minute
	// forkPoll is how often it looks.
	forkPoll = 100 * time.Millisecond
)

type forkInput struct {
	EntityRef
	Body struct {
		InstanceID  string   `json:"instance_id,omitempty" maxLength:"256" doc:"The last part of the fork's url; made up when absent."`
		WaitMS      *float64 `json:"waitTimeoutMs,omitempty" minimum:"0" doc:"How long to wait for the entity and its descendants to become idle, at most 120000. Absent: 30 s. 0: not at all."`
		ForkPointer *struct {
			Offset    *string `json:"offset" nullable:"true" doc:"An offset of the entity's stream; null is its start."`
			SubOffset float64 `json:"sub_offset" minimum:"1" doc:"How many messages behind the offset are kept."`
		} `json:"fork_pointer,omitempty" doc:"Forks the entity as it was at a message; it may be at work. Of its children those are forked that its manifest named then."`
		Anchor         string            `json:"anchor,omitempty" enum:"latest_completed_run" doc:"Forks the entity as it was after its last completed run."`
		Parent         string            `json:"parent,omitempty" doc:"Url of the fork's parent."`
		Wake           *SpawnWake        `json:"wake,omitempty" doc:"What the parent is woken by."`
		InitialMessage json.RawMessage   `json:"initialMessage,omitempty" doc:"A first message's payload."`
		Tags           map[string]string `json:"tags,omitempty" doc:"Added to those of the entity."`
	} `nameHint:"ForkRequest"`
}

type forkOutput struct {
	Body struct {
		Root     Entity   `json:"root"`
		Entities []Entity `json:"entities" doc:"The root and the descendants forked with it."`
	} `nameHint:"ForkResult"`
}

func (c *Control) registerFork() {
	add(c, huma.Operation{OperationID: "forkEntity", Method: http.MethodPost, Path: entityPath + "/fork", Tags: []string{"entities"}, DefaultStatus: 201,
		Summary: "Fork an entity and its descendants: each goes on by itself from where it is"},
		routeOptions{aliases: map[string]string{"instanceId": "instance_id", "forkPointer": "fork_pointer", "wait_timeout_ms": "waitTimeoutMs", "initial_message": "initialMessage"}},
		[]problem.Code{problem.NotFound, problem.UnknownEntityType, problem.Unauthorized, problem.NotRunning, problem.DuplicateURL, problem.StreamExists,
			problem.ForkInProgress, problem.ForkWaitTimeout, problem.RunnerForbidden, problem.PoolForbidden, problem.PayloadTooLarge, problem.Overloaded, problem.ServerStopping}, c.fork)
}

// forking is one fork under way.
type forking struct {
	c       *Control
	who     *caller
	in      *forkInput
	root    string
	suffix  string
	pointer *forkPointer
	readers map[string]*forkReader // by url
	wake    *store.ObserverRequest
	tags    json.RawMessage
	message string
}

func (c *Control) fork(ctx context.Context, in *forkInput) (*forkOutput, error) {
	f, err := c.newFork(ctx, in)
	if err != nil {
		return nil, err
	}
	wait := forkWait
	if ms := in.Body.WaitMS; ms != nil {
		wait = time.Duration(min(*ms, float64(maxForkWait.Milliseconds()))) * time.Millisecond
	}
	deadline := time.Now().Add(wait)
	poll := time.NewTicker(forkPoll)
	defer poll.Stop()
	for tries := 0; ; tries++ {
		out, again, err := f.try(ctx)
		if err != nil || out != nil {
			return out, err
		}
		if time.Now().After(deadline) {
			return nil, again
		}
		if errors.Is(again, errMoved) && tries%16 != 15 {
			continue // what came meanwhile is read on from where it ended
		}
		select {
		case <-poll.C:
		case <-c.leaving:
			return nil, problem.New(problem.ServerStopping, "The gateway is going to stop; nothing was forked. Try again.")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// errMoved says that a source went on while it was read.
var errMoved = problem.New(problem.ForkWaitTimeout, "The entities kept changing. Try again when they are idle.")

// newFork checks a request.
func (c *Control) newFork(ctx context.Context, in *forkInput) (*forking, error) {
	who, b := from(ctx), &in.Body
	if in.Type == principalType {
		return nil, errPrincipalEntity
	}
	f := &forking{c: c, who: who, in: in, root: in.url(), suffix: staterow.RandomID()[:8], readers: map[string]*forkReader{}}
	var details []problem.Detail
	refuse := func(at, why string) { details = append(details, problem.Detail{Path: at, Message: why}) }
	if b.ForkPointer != nil && b.Anchor != "" {
		refuse("/anchor", "excludes fork_pointer")
	}
	if p := b.ForkPointer; p != nil {
		f.pointer = &forkPointer{sub: int64(p.SubOffset)}
		if p.SubOffset != math.Trunc(p.SubOffset) || p.SubOffset > 1<<31 {
			refuse("/fork_pointer/sub_offset", "must be a whole number")
		}
		if p.Offset != nil {
			at, err := store.ParseOffset(*p.Offset)
			if err != nil {
				refuse("/fork_pointer/offset", "must be an offset of the entity's stream")
			}
			f.pointer.offset = at
		}
	}
	if id := b.InstanceID; id != "" {
		if strings.Contains(id, "/") || strings.ContainsAny(id, "?#") || id == "." || id == ".." {
			refuse("/instance_id", "must be one segment of a path")
		} else if why := checkEntityURL(in.Type, id); why != "" || storable(id) != "" {
			refuse("/instance_id", "cannot be part of an entity's url")
		}
	}
	if len(b.Tags) > maxTags {
		refuse("/tags", fmt.Sprintf("must be at most %d", maxTags))
	}
	for k, v := range b.Tags {
		if why := checkTag(k, v); why != "" {
			refuse(jsonPointer("/tags", []string{k}), why)
		}
	}
	if why := storable(b.Parent); why != "" {
		refuse("/parent", why)
	}
	if b.Wake != nil {
		q, bad := b.Wake.request(who, "/wake", "")
		details, f.wake = append(details, bad...), &q
		if b.Parent == "" {
			refuse("/wake", "needs a parent, which is what it wakes")
		}
	}
	if len(details) > 0 {
		return nil, invalidFields(details...)
	}
	if b.Wake != nil && b.Wake.SubscriberURL != b.Parent {
		return nil, problem.New(problem.Unauthorized, "A fork wakes its parent and nobody else.").
			WithDetails(problem.Detail{Path: "/wake/subscriberUrl", Message: "must be the parent"})
	}
	if len(b.Tags) > 0 {
		var err error
		if f.tags, err = json.Marshal(b.Tags); err != nil {
			return nil, err
		}
	}
	if len(b.InitialMessage) > 0 {
		m := staterow.Message{Payload: b.InitialMessage, From: who.principal(), FromPrincipal: who.principal(), Mode: "immediate"}
		if b.Parent != "" {
			m.From = b.Parent
		}
		f.message, _, _ = m.Row(time.Now())
	}
	e, err := c.entityFor(ctx, &in.EntityRef, mayFork)
	if err == nil && e.Parent != "" {
		return nil, problem.New(problem.InvalidRequest, "Only an entity without a parent can be forked. Fork the root of its tree.").
			WithDetails(problem.Detail{Path: "path.id", Message: "has a parent"})
	}
	if err == nil && b.Wake != nil {
		err = c.maySubscribe(ctx, b.Parent)
	}
	if err == nil {
		err = c.mayEntity(ctx, b.Parent, maySpawn)
	}
	if carried := entityOf(e).Tags; err == nil && len(b.Tags) > 0 {
		if maps.Copy(carried, b.Tags); len(carried) > maxTags {
			err = errTooManyTags
		}
	}
	return f, err
}

// earlier says that the root is forked as it was once.
func (f *forking) earlier() bool { return f.pointer != nil || f.in.Body.Anchor != "" }

// try forks, or says why it cannot be now.
func (f *forking) try(ctx context.Context) (out *forkOutput, again, err error) {
	tree, err := f.c.cfg.Store.EntityTree(ctx, f.who.service, f.root, f.who.subject(), maxTree+1)
	switch {
	case err != nil:
		return nil, nil, err
	case len(tree) == 0:
		return nil, nil, errEntityNotFound
	case len(tree) > maxTree: // also where few of them are wanted: they may be among those that were not read
		return nil, nil, problem.Newf(problem.InvalidRequest, "The entity has more descendants than can be forked at once, which are %d.", maxTree)
	}
	if f.earlier() {
		if err := f.read(ctx, &tree[0], tree[0].Tail); err != nil {
			return nil, nil, err
		}
		switch r := f.readers[f.root]; {
		case r.cut == nil && f.pointer != nil:
			return nil, nil, errNoPointer
		case r.cut == nil:
			return nil, nil, errNoRun
		default:
			tree = namedThen(tree, r.rows.children())
		}
	}
	var active []string
	for i, e := range tree {
		if i == 0 { // it was asked about with the request
			e.Allowed = e.Allowed || f.who.lent[right{mayFork, kindEntity, e.URL}]
		} else {
			if e.Allowed, err = f.c.may(ctx, mayFork, "entity", e.URL, e.Allowed); err != nil {
				return nil, nil, err
			}
		}
		switch {
		case e.Status == "stopped" || e.Status == "killed":
			return nil, nil, problem.New(problem.NotRunning, "An entity of the tree is stopped, so it cannot be forked.").WithMeta("entity", e.URL)
		case !e.Allowed:
			return nil, nil, errMayNot(mayFork, "descendants of the entity")
		case e.Status != "idle" && e.Status != "paused" && !(i == 0 && f.earlier()):
			active = append(active, e.URL)
		}
	}
	if len(active) > 0 {
		return nil, errActive(active), nil
	}
	for i := range tree {
		if i > 0 || !f.earlier() {
			if err := f.read(ctx, &tree[i], tree[i].Tail); err != nil {
				return nil, nil, err
			}
		}
	}
	subject, err := f.subject(ctx, tree)
	if err != nil {
		return nil, nil, err
	}
	req, err := f.plan(tree, subject)
	if err != nil {
		return nil, nil, err
	}
	res, err := f.c.cfg.Store.EntityFork(context.WithoutCancel(ctx), req)
	if err != nil {
		return nil, nil, err
	}
	switch res.Outcome {
	case "forked":
		out = &forkOutput{}
		for _, e := range res.Entities {
			out.Body.Entities = append(out.Body.Entities, entityOf(e))
		}
		out.Body.Root = out.Body.Entities[0]
		f.c.cfg.Changed()
		f.c.cfg.Poke()
		return out, nil, nil
	case "moved":
		return nil, errMoved, nil
	case "active":
		return nil, errActive([]string{res.Detail}), nil
	case "in_progress":
		return nil, problem.New(problem.ForkInProgress, "The entity's tree is being forked or extended by somebody else. Try again."), nil
	case "not_running":
		return nil, nil, problem.New(problem.NotRunning, "An entity of the tree is stopped, so it cannot be forked.").WithMeta("entity", res.Detail)
	case "forbidden":
		return nil, nil, errMayNot(mayFork, "descendants of the entity")
	case "runner_not_found":
		return nil, nil, problem.New(problem.NotFound, "The runner that the entities are targeted at does not exist any more.")
	case "runner_forbidden":
		return nil, nil, problem.New(problem.RunnerForbidden, "Only the owner of a runner may fork entities targeted at it.")
	case "duplicate", "path_taken":
		if f.in.Body.InstanceID == "" { // a name that was made up, by a rare chance
			f.suffix = staterow.RandomID()[:8]
			return nil, errMoved, nil
		}
		if res.Outcome == "path_taken" {
			return nil, nil, f.c.taken(ctx, req.Entities[0].URL)
		}
	}
	return nil, nil, spawnRefusal(res.Outcome, nil)
}

func errActive(urls []string) error {
	return problem.New(problem.ForkWaitTimeout, "The entity or a descendant of it is at work. Try again when they are idle.").
		WithMeta("details", map[string]any{"active": urls})
}

// namedThen leaves of a tree the root, those of its children that its manifest
// named, and all below them.
func namedThen(tree []store.TreeEntity, children map[string]bool) []store.TreeEntity {
	kept := map[string]bool{tree[0].URL: true}
	return slices.DeleteFunc(tree, func(e store.TreeEntity) bool {
		if e.URL == tree[0].URL {
			return false
		}
		keep := kept[e.Parent] && (e.Parent != tree[0].URL || children[e.URL])
		kept[e.URL] = keep
		return !keep
	})
}

// read reads an entity's stream on to a position.
func (f *forking) read(ctx context.Context, e *store.TreeEntity, to int64) error {
	r := f.readers[e.URL]
	if r == nil {
		r = &forkReader{stream: e.StreamID, pos: e.Head, rows: newForkRows()}
		if e.URL == f.root {
			r.pointer, r.lastRun = f.pointer, f.in.Body.Anchor != ""
		}
		f.readers[e.URL] = r
	}
	return r.read(ctx, f.c.cfg.Store, to)
}

// subject is whose rights the transaction compares: nobody's, if some of what is
// needed only authorizers allow. All of it has been asked by then.
func (f *forking) subject(ctx context.Context, tree []store.TreeEntity) (string, error) {
	needed := []right{{maySpawn, kindEntity, f.in.Body.Parent}}
	lent, known := false, true
	for _, e := range tree {
		needed = append(needed, right{mayFork, kindEntity, e.URL})
		runners, transports, err := f.c.mayTarget(ctx, e.DispatchPolicy)
		if err != nil {
			return "", err
		}
		lent, known = lent || runners, known && transports
	}
	lent = lent || slices.ContainsFunc(needed, func(r right) bool { return f.who.lent[r] })
	if lent && known {
		return "", nil
	}
	return f.who.subject(), nil
}

// plan says what is to be made of the tree, by the rights of subject.
func (f *forking) plan(tree []store.TreeEntity, subject string) (store.ForkRequest, error) {
	b := &f.in.Body
	names := forkNames{urls: map[string]string{}, shared: map[string]string{}}
	for _, e := range tree {
		id := f.in.Body.InstanceID
		typ, old := splitURL(e.URL)
		if e.URL != f.root || id == "" {
			id = old + "-fork-" + f.suffix
		}
		names.urls[e.URL] = "/" + typ + "/" + id
		if len(typ)+len(id)+len("//attachments/")+128 > maxPath {
			return store.ForkRequest{}, problem.New(problem.InvalidPath, "The url of a fork would be too long. Give an instance_id, or fork less deep a fork.")
		}
		uses := map[string]bool{}
		for _, path := range e.Shared {
			uses[path] = true
		}
		for _, id := range f.readers[e.URL].rows.sharedIDs() {
			// Only what the entity really uses: anybody's id can stand in a manifest.
			if id != "" && uses[sharedStates[1:]+id] {
				names.shared[id] = id + "-fork-" + f.suffix
				if len(sharedStates)+len(names.shared[id]) > maxPath {
					return store.ForkRequest{}, problem.New(problem.InvalidPath, "The path of a forked shared state would be too long. Fork less deep a fork.")
				}
			}
		}
	}
	txid, now := "fork-"+uuid.NewString(), time.Now()
	req := store.ForkRequest{Service: f.who.service, Principal: subject, By: f.who.principal(), Parent: b.Parent, Whole: !f.earlier(),
		Tags: f.tags, Wake: f.wake, Message: f.message}
	for i, e := range tree {
		r, target := f.readers[e.URL], names.urls[e.URL]
		n := store.ForkedEntity{Source: e.URL, URL: target, Parent: names.urls[e.Parent], Args: names.value(e.SpawnArgs), At: r.pos}
		if i == 0 {
			n.Parent = b.Parent
		}
		if i == 0 && f.earlier() {
			n.At, n.Prefix, n.PrefixCount, n.PrefixStamps = r.cut.At, r.cut.Prefix, r.cut.Count, r.cut.Stamps
		} else {
			n.Tail = &r.pos
		}
		n.Rows, n.Observe = r.rows.reconcile(names, e.URL, target, createdValue(e.Type, n.Args, n.Parent, now), txid)
		n.Attached = r.rows.attachments()
		for _, id := range r.rows.sharedIDs() {
			if to, ok := names.shared[id]; ok && id != "" {
				n.Shared = append(n.Shared, [2]string{sharedStates[1:] + id, sharedStates[1:] + to})
			}
		}
		req.Entities = append(req.Entities, n)
	}
	return req, nil
}
