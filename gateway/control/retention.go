package control

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
	"github.com/rouse-run/rouse/plugins/contract"
)

// RetentionLimits say how much is kept; what is left out is not limited.
type RetentionLimits struct {
	MaxAgeSeconds *int64 `json:"max_age_seconds,omitempty" minimum:"1" maximum:"3162240000" doc:"Messages older than this may go, a little later at the latest."`
	MaxBytes      *int64 `json:"max_bytes,omitempty" minimum:"1" maximum:"9007199254740991" doc:"The oldest appends go while more bytes are kept. The newest append always stays."`
	MaxMessages   *int64 `json:"max_messages,omitempty" minimum:"1" maximum:"9007199254740991" doc:"The oldest appends go as long as this many messages stay."`
}

// StreamRetention is what is kept of a stream.
type StreamRetention struct {
	Stream     string `json:"stream"`
	EntityType string `json:"entity_type,omitempty" doc:"The entity's type, if that has limits."`
	Source     string `json:"source" enum:"stream,type,none" doc:"Whose the limits are."`
	RetentionLimits
	Earliest string `json:"earliest_offset" doc:"Where what is kept begins: a read below it is answered 410."`
	Next     string `json:"next_offset" doc:"The stream's tail."`
	Bytes    int64  `json:"bytes" doc:"How much is kept."`
	Deleting bool   `json:"deleting,omitempty" doc:"What was trimmed is still being deleted, or is read by forks."`
}

// Trimmed is what a trim came to.
type Trimmed struct {
	Trimmed   bool   `json:"trimmed" doc:"Whether the stream begins later than before."`
	Earliest  string `json:"earliest_offset"`
	Next      string `json:"next_offset"`
	LimitedBy string `json:"limited_by,omitempty" enum:"cursor" doc:"cursor: a subscription, an observer or the entity has still to read what follows."`
}

type (
	// StreamNameRef names a stream.
	StreamNameRef struct {
		Service string `query:"service"`
		Path    string `path:"path" doc:"The stream's path; it may hold slashes, escaped or not."`
	}
	retentionPutInput struct {
		StreamNameRef
		Body RetentionLimits
	}
	trimInput struct {
		StreamNameRef
		Body struct {
			Before string `json:"before" doc:"Everything before this offset goes, in whole appends; now is everything there is."`
			Force  bool   `json:"force,omitempty" doc:"Also what somebody has still to read: their cursors move along, and the work is lost."`
		} `nameHint:"StreamTrim"`
	}
	typeRetentionPutInput struct {
		Service string `query:"service"`
		Name    string `path:"name"`
		Body    RetentionLimits
	}
	retentionOutput     struct{ Body StreamRetention }
	trimOutput          struct{ Body Trimmed }
	typeRetentionOutput struct{ Body RetentionLimits }
)

func (c *Control) registerRetention() {
	tags := []string{"retention"}
	const stream, typ = "/_electric/retention/streams/{path}", "/_electric/retention/types/{name}"
	codes := []problem.Code{problem.StreamNotFound, problem.PathReserved, problem.Unauthorized, problem.Forbidden}
	add(c, huma.Operation{OperationID: "getStreamRetention", Method: http.MethodGet, Path: stream, Tags: tags,
		Summary: "What is kept of a stream"}, routeOptions{}, codes, c.getRetention)
	add(c, huma.Operation{OperationID: "putStreamRetention", Method: http.MethodPut, Path: stream, Tags: tags,
		Summary:     "Limit what is kept of a stream",
		Description: "Replaces the stream's limits. Without any, everything is kept, whatever the limits of its entity's type are. Nothing goes that a subscription, an observer or the entity has still to read."},
		routeOptions{}, codes, c.putRetention)
	add(c, huma.Operation{OperationID: "deleteStreamRetention", Method: http.MethodDelete, Path: stream, Tags: tags, DefaultStatus: 204,
		Summary: "Remove a stream's limits; those of its entity's type hold again"}, routeOptions{}, codes, c.deleteRetention)
	add(c, huma.Operation{OperationID: "trimStream", Method: http.MethodPost, Path: stream, Tags: tags,
		Summary: "Trim a stream now", Description: "What is trimmed cannot be read any more at once, and is deleted soon after."},
		routeOptions{}, append(codes, problem.OffsetInvalid, problem.DatabaseTimeout), c.trimStream)
	add(c, huma.Operation{OperationID: "getTypeRetention", Method: http.MethodGet, Path: typ, Tags: tags,
		Summary: "The limits of the main streams of a type's entities"}, routeOptions{}, []problem.Code{problem.UnknownEntityType, problem.Unauthorized}, c.getTypeRetention)
	add(c, huma.Operation{OperationID: "putTypeRetention", Method: http.MethodPut, Path: typ, Tags: tags,
		Summary: "Limit the main streams of a type's entities", Description: "For the entities that exist, within a minute or so, and those to come. Without any limit, as DELETE."},
		routeOptions{}, []problem.Code{problem.UnknownEntityType, problem.Unauthorized}, c.putTypeRetention)
	add(c, huma.Operation{OperationID: "deleteTypeRetention", Method: http.MethodDelete, Path: typ, Tags: tags, DefaultStatus: 204,
		Summary: "Remove the limits of a type"}, routeOptions{}, []problem.Code{problem.UnknownEntityType, problem.Unauthorized},
		func(ctx context.Context, in *typeNameInput) (*noContent, error) {
			_, err := c.putTypeRetention(ctx, &typeRetentionPutInput{Name: in.Name})
			return &noContent{}, err
		})
}

// limits are checked by their schema: no age overflows.
func (l RetentionLimits) limits() store.Limits {
	n := func(p *int64) int64 {
		if p == nil {
			return 0
		}
		return *p
	}
	return store.Limits{Age: time.Duration(n(l.MaxAgeSeconds)) * time.Second, Bytes: n(l.MaxBytes), Messages: n(l.MaxMessages)}
}

func limitsOut(l store.Limits) RetentionLimits {
	p := func(n int64) *int64 {
		if n <= 0 {
			return nil
		}
		return &n
	}
	return RetentionLimits{MaxAgeSeconds: p(int64(l.Age / time.Second)), MaxBytes: p(l.Bytes), MaxMessages: p(l.Messages)}
}

var (
	errNoStream       = problem.New(problem.StreamNotFound, "There is no stream at this path.")
	errKeptByGateway  = problem.New(problem.PathReserved, "The gateway itself keeps this stream as long as it is needed.")
	errMayNotRetain   = problem.New(problem.Unauthorized, "You may not do this to the stream.")
	retentionOnEntity = map[string]string{"entity": "/main", "error": "/error"}
)

// retained looks a stream up for somebody who may manage it, or just read what is
// kept of it: a plain stream for whom may delete it, an entity's for whom may
// manage the entity, a shared state for whom may write it.
func (c *Control) retained(ctx context.Context, in *StreamNameRef, manage bool) (store.Retention, error) {
	who := from(ctx)
	if why := storable(in.Path); why != "" {
		return store.Retention{}, problem.Newf(problem.InvalidPath, "The path %s.", why)
	}
	x, err := c.cfg.Store.RetentionGet(ctx, who.service, in.Path)
	if errors.Is(err, store.ErrNoRow) {
		return x, errNoStream
	} else if err != nil {
		return x, err
	}
	permission, verb, access := mayManage, http.MethodDelete, "write"
	if !manage {
		permission, verb, access = mayRead, http.MethodGet, "read"
	}
	switch x.Kind {
	case "app":
		// As the stream's own address is asked about.
		ok, err := c.cfg.Auth.May(ctx, who.Principal, verb, contract.Resource{Service: who.serviceName, Kind: "route", ID: "/" + in.Path}, true)
		if err == nil && !ok {
			err = problem.New(problem.Forbidden, "The policy of this gateway does not allow it.")
		}
		return x, err
	case "entity", "error":
		_, err := c.entityFor(ctx, ref("/"+strings.TrimSuffix(in.Path, retentionOnEntity[x.Kind])), permission)
		return x, err
	case "shared":
		outcome, err := c.cfg.Store.SharedStateAdmit(ctx, who.service, who.principal(), who.trusted(), in.Path, access, "", nil)
		if err != nil {
			return x, err
		}
		ok, err := c.may(ctx, access, kindShared, "/"+in.Path, outcome == "ok")
		if err == nil && !ok {
			err = errMayNotRetain
		}
		return x, err
	case "cron":
		if !manage || who.trusted() {
			return x, nil
		}
	case "wake":
		if manage {
			return x, errKeptByGateway
		} else if who.trusted() || who.principal() == x.Owner {
			return x, nil
		}
	default:
		return x, errKeptByGateway
	}
	return x, errMayNotRetain
}

func (c *Control) getRetention(ctx context.Context, in *StreamNameRef) (*retentionOutput, error) {
	x, err := c.retained(ctx, in, false)
	if err != nil {
		return nil, err
	}
	return kept(in.Path, x), nil
}

func kept(path string, x store.Retention) *retentionOutput {
	return &retentionOutput{StreamRetention{Stream: "/" + path, EntityType: x.EntityType, Source: x.Source, RetentionLimits: limitsOut(x.Limits),
		Earliest: store.FormatOffset(x.Head), Next: store.FormatOffset(x.Tail), Bytes: x.Tail - x.Head, Deleting: x.Sweeping}}
}

func (c *Control) putRetention(ctx context.Context, in *retentionPutInput) (*retentionOutput, error) {
	if _, err := c.retained(ctx, &in.StreamNameRef, true); err != nil {
		return nil, err
	}
	who := from(ctx)
	outcome, err := c.cfg.Store.RetentionPut(ctx, who.service, in.Path, in.Body.limits(), false, who.principal())
	if err == nil {
		err = retentionRefusal(outcome)
	}
	if err != nil {
		return nil, err
	}
	x, err := c.cfg.Store.RetentionGet(ctx, who.service, in.Path) // what is done is answered, whoever may read it
	if errors.Is(err, store.ErrNoRow) {
		return nil, errNoStream
	} else if err != nil {
		return nil, err
	}
	return kept(in.Path, x), nil
}

// retentionRefusal is what became of the stream since it was looked up.
func retentionRefusal(outcome string) error {
	switch outcome {
	case "not_found":
		return errNoStream
	case "guarded":
		return errKeptByGateway
	}
	return nil
}

func (c *Control) deleteRetention(ctx context.Context, in *StreamNameRef) (*noContent, error) {
	if _, err := c.retained(ctx, in, true); err != nil {
		return nil, err
	}
	outcome, err := c.cfg.Store.RetentionDelete(ctx, from(ctx).service, in.Path, from(ctx).principal())
	if err == nil {
		err = retentionRefusal(outcome)
	}
	return &noContent{}, err
}

func (c *Control) trimStream(ctx context.Context, in *trimInput) (*trimOutput, error) {
	var to *int64
	if in.Body.Before != "now" {
		at, err := store.ParseOffset(in.Body.Before)
		if err != nil {
			return nil, problem.New(problem.OffsetInvalid, "The offset is not one the server handed out. Use now to trim everything.").
				WithDetails(problem.Detail{Path: "/before", Message: "must be an offset, or now"})
		}
		to = &at
	}
	if _, err := c.retained(ctx, &in.StreamNameRef, true); err != nil {
		return nil, err
	}
	who := from(ctx)
	t, err := c.cfg.Store.StreamTrim(ctx, who.service, in.Path, to, in.Body.Force, who.principal())
	if err != nil {
		return nil, err
	}
	switch t.Outcome {
	case store.Beyond:
		return nil, problem.New(problem.OffsetInvalid, "The offset lies beyond the stream's end.").WithDetails(problem.Detail{Path: "/before", Message: "lies beyond the stream's end"})
	case store.Busy:
		return nil, problem.New(problem.DatabaseTimeout, "The stream is in use. Try again.")
	}
	if err := retentionRefusal(string(t.Outcome)); err != nil {
		return nil, err
	}
	return &trimOutput{Trimmed{Trimmed: t.Outcome == store.Trimmed, Earliest: store.FormatOffset(t.Head), Next: store.FormatOffset(t.Tail), LimitedBy: t.LimitedBy}}, nil
}

// limitedType refuses unless there is such a type and the caller has a permission
// on it.
func (c *Control) limitedType(ctx context.Context, name, permission string) error {
	t, err := c.cfg.Store.EntityTypeGet(ctx, from(ctx).service, name)
	if errors.Is(err, store.ErrNoRow) {
		return errTypeNotFound
	} else if err != nil {
		return err
	}
	ok, err := c.mayType(ctx, t, permission)
	if err == nil && !ok {
		err = errMayNot(permission, "entity type")
	}
	return err
}

func (c *Control) getTypeRetention(ctx context.Context, in *typeNameInput) (*typeRetentionOutput, error) {
	if err := c.limitedType(ctx, in.Name, maySpawn); err != nil {
		return nil, err
	}
	l, err := c.cfg.Store.RetentionTypeGet(ctx, from(ctx).service, in.Name)
	if errors.Is(err, store.ErrNoRow) {
		err = nil
	}
	return &typeRetentionOutput{limitsOut(l)}, err
}

func (c *Control) putTypeRetention(ctx context.Context, in *typeRetentionPutInput) (*typeRetentionOutput, error) {
	if err := c.limitedType(ctx, in.Name, mayManage); err != nil {
		return nil, err
	}
	who := from(ctx)
	l := in.Body.limits()
	_, err := c.cfg.Store.RetentionTypePut(ctx, who.service, in.Name, l, who.principal())
	return &typeRetentionOutput{limitsOut(l)}, err
}
