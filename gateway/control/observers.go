package control

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/auth"
	"github.com/rouse-run/rouse/gateway/observation"
	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// WakeCondition is what an entity is woken by.
type WakeCondition struct {
	Condition       json.RawMessage `json:"condition" doc:"\"runFinished\", or {on: \"change\", collections?, ops?}; ops are insert, update, delete."`
	DebounceMS      float64         `json:"debounceMs,omitempty" minimum:"0" maximum:"2147483647" doc:"Changes are collected until none has come for this long."`
	TimeoutMS       float64         `json:"timeoutMs,omitempty" minimum:"0" maximum:"2147483647" doc:"Woken without a change if none has come within this time."`
	IncludeResponse *bool           `json:"includeResponse,omitempty" doc:"Whether a child's finished run brings what it said; true unless false is given."`
	ManifestKey     string          `json:"manifestKey,omitempty" maxLength:"1024" doc:"Under which it can be unregistered."`
}

// SpawnWake is WakeCondition for an entity that is being spawned.
type SpawnWake struct {
	WakeCondition
	SubscriberURL string `json:"subscriberUrl" minLength:"1" maxLength:"1024" doc:"The entity that is woken."`
}

type observerInput struct {
	Service string `query:"service"`
	Body    struct {
		SpawnWake
		SourceURL string `json:"sourceUrl" minLength:"1" maxLength:"1024" doc:"An entity's url or a stream's path. It need not exist yet."`
	} `nameHint:"WakeRegistration"`
}

type unregisterInput struct {
	Service string `query:"service"`
	Body    struct {
		SubscriberURL string `json:"subscriberUrl" minLength:"1" maxLength:"1024"`
		SourceURL     string `json:"sourceUrl,omitempty" maxLength:"1024"`
		ManifestKey   string `json:"manifestKey,omitempty" maxLength:"1024"`
	} `nameHint:"WakeUnregistration"`
}

func (c *Control) registerObservers() {
	tags := []string{"observation"}
	codes := []problem.Code{problem.NotFound, problem.Unauthorized, problem.NotRunning}
	add(c, huma.Operation{OperationID: "registerWake", Method: http.MethodPost, Path: "/_electric/wake", Tags: tags, DefaultStatus: 204,
		Summary: "Wake an entity by what happens on a source"}, routeOptions{aliases: wakeAliases}, codes, c.registerWake)
	add(c, huma.Operation{OperationID: "unregisterWake", Method: http.MethodPost, Path: "/_electric/wake/unregister", Tags: tags, DefaultStatus: 204,
		Summary: "Wake an entity no more by a source, or by what a manifest key asked for"}, routeOptions{aliases: wakeAliases},
		append([]problem.Code{problem.InvalidWakeUnregister}, codes...), c.unregisterWake)
}

var wakeAliases = map[string]string{
	"subscriber_url": "subscriberUrl", "source_url": "sourceUrl", "debounce_ms": "debounceMs", "timeout_ms": "timeoutMs",
	"include_response": "includeResponse", "manifest_key": "manifestKey",
}

// request checks a condition and makes a registration of it; at is its place in
// the body.
func (w SpawnWake) request(who *caller, at, source string) (store.ObserverRequest, []problem.Detail) {
	var details []problem.Detail
	cond, why := observation.ParseCondition(w.Condition)
	if len(w.Condition) == 0 {
		why = "is needed"
	}
	if text := cond.String(); why == "" && len(text) > 16<<10 {
		why = "is too long"
	}
	if why != "" {
		details = append(details, problem.Detail{Path: at + "/condition", Message: why})
	}
	if why := checkSource(w.SubscriberURL); why != "" {
		details = append(details, problem.Detail{Path: at + "/subscriberUrl", Message: why})
	}
	q := store.ObserverRequest{Service: who.service, Principal: who.principal(), Trusted: who.trusted(), Subscriber: w.SubscriberURL, Source: source,
		Condition: cond.String(), DebounceMS: int32(math.Ceil(w.DebounceMS)), TimeoutMS: int32(math.Ceil(w.TimeoutMS)),
		IncludeResponse: w.IncludeResponse == nil || *w.IncludeResponse, ManifestKey: w.ManifestKey}
	if strings.HasPrefix(source, "/"+observation.CronPrefix) {
		spec, err := observation.CronOfPath(source)
		if err != nil {
			details = append(details, problem.Detail{Path: at + "/sourceUrl", Message: err.Error()})
		}
		q.Expression, q.Timezone = spec.Expression, spec.Timezone
	}
	return q, details
}

// checkSource says why a text cannot be an entity's url or a stream's path, or "".
func checkSource(url string) string {
	if why := storable(url); why != "" {
		return why
	}
	if len(url) < 2 || url[0] != '/' {
		return "must begin with a slash"
	}
	for s := range strings.SplitSeq(url[1:], "/") {
		if s == "" || s == "." || s == ".." {
			return "has a segment that is empty, a dot, or two dots"
		}
	}
	return ""
}

func observerRefusal(outcome string) error {
	switch outcome {
	case "not_found":
		return problem.New(problem.NotFound, "There is no such subscriber. Spawn it first.").WithDetails(problem.Detail{Path: "/subscriberUrl", Message: "does not exist"})
	case "forbidden":
		return errMayNot(mayWrite, "subscriber")
	case "not_running":
		return errNotRunning
	case "source_forbidden":
		return problem.New(problem.Unauthorized, "You may not read the source, so it can wake nothing of yours.")
	}
	return problem.Wrap(problem.Internal, errors.New("unexpected registration outcome "+outcome), "The registration gave an unexpected answer.")
}

func (c *Control) registerWake(ctx context.Context, in *observerInput) (*noContent, error) {
	q, details := in.Body.request(from(ctx), "", in.Body.SourceURL)
	if why := checkSource(in.Body.SourceURL); why != "" {
		details = append(details, problem.Detail{Path: "/sourceUrl", Message: why})
	}
	if len(details) > 0 {
		return nil, invalidFields(details...)
	}
	if err := c.mayObserve(ctx, &q); err != nil {
		return nil, err
	}
	outcome, err := c.cfg.Store.ObserveRegister(ctx, q)
	if err != nil {
		return nil, err
	}
	if outcome != "ok" {
		return nil, observerRefusal(outcome)
	}
	c.cfg.Poke()
	return &noContent{}, nil
}

func (c *Control) unregisterWake(ctx context.Context, in *unregisterInput) (*noContent, error) {
	b, who := &in.Body, from(ctx)
	if b.SourceURL == "" && b.ManifestKey == "" {
		return nil, problem.New(problem.InvalidWakeUnregister, "Say what to unregister: sourceUrl or manifestKey.")
	}
	var details []problem.Detail
	for at, v := range map[string]string{"/subscriberUrl": b.SubscriberURL, "/sourceUrl": b.SourceURL} {
		if why := checkSource(v); v != "" && why != "" {
			details = append(details, problem.Detail{Path: at, Message: why})
		}
	}
	if len(details) > 0 {
		return nil, invalidFields(details...)
	}
	if err := c.maySubscribe(ctx, b.SubscriberURL); err != nil {
		return nil, err
	}
	outcome, err := c.cfg.Store.ObserveUnregister(ctx, who.service, who.principal(), true, b.SubscriberURL, b.SourceURL, b.ManifestKey)
	if err != nil {
		return nil, err
	}
	if outcome != "ok" {
		return nil, observerRefusal(outcome)
	}
	return &noContent{}, nil
}

// spawnWake makes a registration of a spawn's wake, if it has one.
func spawnWake(who *caller, url string, w *SpawnWake) (*store.ObserverRequest, []problem.Detail) {
	if w == nil {
		return nil, nil
	}
	q, details := w.request(who, "/wake", url)
	return &q, details
}

// mayWake refuses a wake that the caller may not register, before anything is
// done.
func (c *Control) mayWake(ctx context.Context, q *store.ObserverRequest) error {
	if q == nil {
		return nil
	}
	if err := c.maySubscribe(ctx, q.Subscriber); err != nil {
		return err
	}
	q.Checked = true
	outcome, err := c.cfg.Store.ObserveMay(ctx, *q)
	if err == nil && outcome != "ok" {
		err = observerRefusal(outcome)
	}
	return err
}

// ref reads an entity's url.
func ref(url string) *EntityRef {
	if p, err := auth.Parse(url); err == nil && url == p.URL() {
		return &EntityRef{Type: principalType, ID: p.Key()}
	}
	typ, id, _ := strings.Cut(strings.TrimPrefix(url, "/"), "/")
	return &EntityRef{Type: typ, ID: id}
}

// maySubscribe refuses unless the caller may write an entity.
func (c *Control) maySubscribe(ctx context.Context, url string) error {
	_, err := c.entityFor(ctx, ref(url), mayWrite)
	return err
}

// mayObserve refuses unless the caller may write the subscriber and, if the
// source is an entity, read that. What is not there yet is looked at when it is.
// What only authorizers allow counts for a source that was there to ask about.
func (c *Control) mayObserve(ctx context.Context, q *store.ObserverRequest) error {
	if err := c.maySubscribe(ctx, q.Subscriber); err != nil {
		return err
	}
	q.Checked = c.cfg.Auth.Judged()
	if strings.HasPrefix(q.Source, "/_") || strings.Count(q.Source, "/") < 2 {
		return nil
	}
	_, err := c.entityFor(ctx, ref(strings.TrimSuffix(q.Source, "/main")), mayRead)
	if code := problem.CodeOf(err); code == problem.NotFound || code == problem.UnknownEntityType {
		q.Checked = false // it may come to be before the registration does
		return nil
	}
	return err
}
