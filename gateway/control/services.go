package control

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/rouse-run/rouse/gateway/problem"
	"github.com/rouse-run/rouse/gateway/store"
)

// ServiceInfo is a scope of entities, types, runners and streams.
type ServiceInfo struct {
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
}

type (
	serviceInput struct {
		Body struct {
			Name string `json:"name" doc:"Lower-case letters, digits, dots, dashes and underscores; 1 to 63."`
		} `nameHint:"ServiceCreate"`
	}
	serviceOutput     struct{ Body ServiceInfo }
	serviceListOutput struct{ Body []ServiceInfo }
	healthOutput      struct {
		Body struct {
			Status string `json:"status" example:"ok"`
		} `nameHint:"Health"`
	}
)

func (c *Control) registerServices() {
	tags := []string{"server"}
	add(c, huma.Operation{OperationID: "getHealth", Method: http.MethodGet, Path: "/_electric/health", Tags: tags,
		Summary: "Whether the server answers"}, routeOptions{public: true}, nil, func(context.Context, *struct{}) (*healthOutput, error) {
		out := &healthOutput{}
		out.Body.Status = "ok"
		return out, nil
	})
	add(c, huma.Operation{OperationID: "createService", Method: http.MethodPost, Path: "/_electric/services", Tags: tags, DefaultStatus: 201,
		Summary: "Make a service; one that exists is answered as it is"}, routeOptions{}, []problem.Code{problem.Forbidden}, c.createService)
	add(c, huma.Operation{OperationID: "listServices", Method: http.MethodGet, Path: "/_electric/services", Tags: tags,
		Summary: "All services"}, routeOptions{}, []problem.Code{problem.Forbidden}, c.listServices)
}

var errSystemOnly = problem.New(problem.Forbidden, "Only a system principal may do this.")

func (c *Control) createService(ctx context.Context, in *serviceInput) (*serviceOutput, error) {
	who := from(ctx)
	if !who.trusted() {
		return nil, errSystemOnly
	}
	if why := storable(in.Body.Name); why != "" {
		return nil, invalidFields(problem.Detail{Path: "/name", Message: why})
	}
	outcome, s, err := c.cfg.Store.ServiceCreate(ctx, in.Body.Name, who.principal())
	if err != nil {
		return nil, err
	}
	if outcome == "invalid" {
		return nil, invalidFields(problem.Detail{Path: "/name", Message: "must be 1 to 63 lower-case letters, digits, dots, dashes or underscores"})
	}
	return &serviceOutput{serviceInfo(s)}, nil
}

func (c *Control) listServices(ctx context.Context, _ *struct{}) (*serviceListOutput, error) {
	if !from(ctx).trusted() {
		return nil, errSystemOnly
	}
	rows, err := c.cfg.Store.ServiceList(ctx)
	if err != nil {
		return nil, err
	}
	out := &serviceListOutput{Body: make([]ServiceInfo, len(rows))}
	for i, s := range rows {
		out.Body[i] = serviceInfo(s)
	}
	return out, nil
}

func serviceInfo(s store.Service) ServiceInfo { return ServiceInfo{s.Name, s.CreatedAt.UTC()} }
