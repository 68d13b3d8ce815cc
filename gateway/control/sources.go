package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/observation"
	"github.com/rouse-run/rouse/gateway/problem"
)

type cronStreamInput struct {
	Service string `query:"service"`
	Body    struct {
		Expression string `json:"expression" maxLength:"256" doc:"Five fields, or six with seconds first."`
		Timezone   string `json:"timezone,omitempty" maxLength:"64" doc:"An IANA time zone; UTC if absent."`
	} `nameHint:"CronStreamRequest"`
}

type cronStreamOutput struct {
	Body struct {
		StreamURL string `json:"streamUrl"`
	} `nameHint:"CronStream"`
}

type membersInput struct {
	Service string `query:"service"`
	Body    struct {
		Tags map[string]string `json:"tags,omitempty" doc:"Entities that have all of these."`
	} `nameHint:"MembershipStreamRequest"`
}

type sourceOutput struct {
	Body struct {
		SourceRef string `json:"sourceRef"`
		StreamURL string `json:"streamUrl"`
	} `nameHint:"SourceStream"`
}

type webhookSourcesOutput struct {
	Body struct {
		WebhookSources []json.RawMessage `json:"webhookSources"`
	} `nameHint:"WebhookSources"`
}

type eventSourcesOutput struct {
	Body struct {
		EventSources []json.RawMessage `json:"eventSources"`
	} `nameHint:"EventSources"`
}

type pgSyncInput struct {
	Service string `query:"service"`
	Body    struct {
		Options struct {
			_        struct{}        `additionalProperties:"true"`
			URL      string          `json:"url,omitempty" maxLength:"2048"`
			Table    string          `json:"table" minLength:"1" maxLength:"256"`
			Columns  []string        `json:"columns,omitempty"`
			Where    string          `json:"where,omitempty" maxLength:"16384"`
			Params   json.RawMessage `json:"params,omitempty" doc:"A list of strings, or an object of them."`
			Replica  string          `json:"replica,omitempty" enum:"default,full"`
			Metadata json.RawMessage `json:"metadata,omitempty"`
		} `json:"options" nameHint:"PgSyncOptions"`
		Metadata json.RawMessage `json:"metadata,omitempty"`
	} `nameHint:"PgSyncRequest"`
}

type subscriptionInput struct {
	EntityRef
	Key  string          `path:"key"`
	Body json.RawMessage `nameHint:"WebhookSourceSubscription"`
}

type entityKeyInput struct {
	EntityRef
	Key string `path:"key"`
}

func (c *Control) registerSources() {
	tags := []string{"observation"}
	add(c, huma.Operation{OperationID: "ensureCronStream", Method: http.MethodPost, Path: "/_electric/observations/cron/ensure-stream", Tags: tags,
		Summary: "Make the stream that ticks by a cron expression"}, routeOptions{}, nil, c.ensureCron)
	add(c, huma.Operation{OperationID: "ensureMembershipStream", Method: http.MethodPost, Path: "/_electric/observations/entities/ensure-stream", Tags: tags,
		Summary: "Make the stream of the entities that have certain tags"}, routeOptions{}, nil, c.ensureMembers)
	add(c, huma.Operation{OperationID: "listWebhookSources", Method: http.MethodGet, Path: "/_electric/webhook-sources", Tags: tags,
		Summary: "The webhook sources of this gateway: none"}, routeOptions{}, nil, func(context.Context, *struct{}) (*webhookSourcesOutput, error) {
		out := &webhookSourcesOutput{}
		out.Body.WebhookSources = []json.RawMessage{}
		return out, nil
	})
	add(c, huma.Operation{OperationID: "listEventSources", Method: http.MethodGet, Path: "/_electric/event-sources", Tags: tags,
		Summary: "The same under the name that earlier clients know"}, routeOptions{}, nil, func(context.Context, *struct{}) (*eventSourcesOutput, error) {
		out := &eventSourcesOutput{}
		out.Body.EventSources = []json.RawMessage{}
		return out, nil
	})
	for _, name := range []string{"webhook-source-subscriptions", "event-source-subscriptions"} {
		id := map[string]string{"webhook-source-subscriptions": "WebhookSource", "event-source-subscriptions": "EventSource"}[name]
		codes := []problem.Code{problem.NotFound, problem.UnknownEntityType, problem.Unauthorized}
		add(c, huma.Operation{OperationID: "subscribeTo" + id, Method: http.MethodPut, Path: entityPath + "/" + name + "/{key}", Tags: tags,
			Summary: "Refused: there is no webhook source"}, routeOptions{}, codes, func(ctx context.Context, in *subscriptionInput) (*noContent, error) {
			return nil, c.noWebhookSource(ctx, &in.EntityRef)
		})
		add(c, huma.Operation{OperationID: "unsubscribeFrom" + id, Method: http.MethodDelete, Path: entityPath + "/" + name + "/{key}", Tags: tags,
			Summary: "Refused: there is no webhook source"}, routeOptions{}, codes, func(ctx context.Context, in *entityKeyInput) (*noContent, error) {
			return nil, c.noWebhookSource(ctx, &in.EntityRef)
		})
	}
	add(c, huma.Operation{OperationID: "registerPgSync", Method: http.MethodPost, Path: "/_electric/pg-sync/register", Tags: tags,
		Summary: "Refused: this gateway syncs no other database"}, routeOptions{}, []problem.Code{problem.NotConfigured}, c.registerPgSync)
	add(c, huma.Operation{OperationID: "deletePgSyncObservation", Method: http.MethodDelete, Path: entityPath + "/pg-sync-observations/{key}", Tags: tags,
		Summary: "Stop observing a synced table"}, routeOptions{}, []problem.Code{problem.NotFound, problem.UnknownEntityType, problem.Unauthorized, problem.NotRunning},
		func(ctx context.Context, in *entityKeyInput) (*rowOutput, error) {
			if details := checkKey("path.key", in.Key); details != nil {
				return nil, invalidFields(details...)
			}
			return c.writeManifest(ctx, &in.EntityRef, mayWrite, "delete", "source:pgSync:"+in.Key, nil, "")
		})
}

func (c *Control) ensureCron(ctx context.Context, in *cronStreamInput) (*cronStreamOutput, error) {
	spec, err := observation.ParseCron(in.Body.Expression, in.Body.Timezone)
	if err != nil {
		member := "/expression"
		if _, zoneless := observation.ParseCron(in.Body.Expression, ""); zoneless == nil {
			member = "/timezone"
		}
		return nil, invalidFields(problem.Detail{Path: member, Message: err.Error()})
	}
	if err := c.cfg.Store.CronEnsure(ctx, from(ctx).service, spec.Path(), spec.Expression, spec.Timezone); err != nil {
		return nil, err
	}
	c.cfg.Poke()
	out := &cronStreamOutput{}
	out.Body.StreamURL = "/" + spec.Path()
	return out, nil
}

const (
	// fillFor is how long a request for a membership stream fills it at most.
	fillFor = 3 * time.Second
	// fillPage is how many entities come into it in one transaction, during which
	// no other membership stream of the service is written.
	fillPage = 500
)

func (c *Control) ensureMembers(ctx context.Context, in *membersInput) (*sourceOutput, error) {
	who, tags := from(ctx), in.Body.Tags
	if tags == nil {
		tags = map[string]string{}
	}
	var details []problem.Detail
	if len(tags) > maxTags {
		details = append(details, problem.Detail{Path: "/tags", Message: fmt.Sprintf("must be at most %d", maxTags)})
	}
	for k, v := range tags {
		if why := checkTag(k, v); why != "" || strings.IndexByte(k+v, 0) >= 0 {
			details = append(details, problem.Detail{Path: jsonPointer("/tags", []string{k}), Message: "is not a tag that an entity can have"})
		}
	}
	if len(details) > 0 {
		return nil, invalidFields(details...)
	}
	raw, err := json.Marshal(tags)
	if err != nil {
		return nil, err
	}
	out := &sourceOutput{}
	out.Body.SourceRef = observation.MembershipRef(tags, who.principal())
	out.Body.StreamURL = "/_entities/" + out.Body.SourceRef
	if err := c.cfg.Store.MembershipEnsure(ctx, who.service, who.principal(), who.trusted(), out.Body.SourceRef, raw); err != nil {
		return nil, err
	}
	// Whoever reads the stream after this answer finds the entities that there are
	// in it. What a very long list lacks after a while follows as changes.
	for more, begun := true, time.Now(); more && time.Since(begun) < fillFor; {
		var err error
		if more, err = c.cfg.Store.MembershipFill(ctx, who.service, out.Body.SourceRef, fillPage); err != nil {
			return nil, err
		}
	}
	c.cfg.Poke()
	return out, nil
}

// noWebhookSource refuses a subscription once the caller is known to be one who
// could have had it.
func (c *Control) noWebhookSource(ctx context.Context, in *EntityRef) error {
	if _, err := c.entityFor(ctx, in, mayWrite); err != nil {
		return err
	}
	return problem.New(problem.NotFound, "There is no such webhook source: this gateway has none.")
}

func (c *Control) registerPgSync(_ context.Context, in *pgSyncInput) (*noContent, error) {
	o := &in.Body.Options
	var details []problem.Detail
	if p := mayBeNull(o.Params); p != nil {
		var byPlace []string
		var byName map[string]string
		if json.Unmarshal(p, &byPlace) != nil && json.Unmarshal(p, &byName) != nil {
			details = append(details, problem.Detail{Path: "/options/params", Message: "must be a list of strings or an object of them"})
		}
	}
	if o.URL != "" && !strings.HasPrefix(o.URL, "http://") && !strings.HasPrefix(o.URL, "https://") {
		details = append(details, problem.Detail{Path: "/options/url", Message: "must be an http or https address"})
	}
	if len(details) > 0 {
		return nil, invalidFields(details...)
	}
	return nil, problem.New(problem.NotConfigured, "This gateway syncs no tables of other databases. Use a shape of its own tables, or append what has changed to a stream.")
}
